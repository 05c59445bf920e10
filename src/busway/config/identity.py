"""Issuers of bearer tokens and the roles of their identities, as a TOML file declares them.

`[[issuers]]` stands at the top of the file, for the whole server; `[[roles]]` belongs to a
namespace, as `[[access]]` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from busway.config.errors import ConfigError, wrong_value
from busway.config.tables import check_keys, name_in, tables_in
from busway.model.durations import parse_duration
from busway.model.errors import BusError
from busway.model.identity import ALGORITHMS, CLAIMS, DEV_ISSUER, Issuer, Role, RoleAssignment
from busway.model.names import is_loopback, parse_address

ISSUER_KEYS = (
    "issuer",
    "jwks_file",
    "jwks_url",
    "audiences",
    "algorithms",
    "clock_skew",
    "refresh",
)
ROLE_KEYS = ("role", "issuer", "entities", *CLAIMS)
ISSUERS_MAX = 16
SKEW_MAX_MS = 600_000
REFRESH_RANGE_MS = (60_000, 24 * 3_600_000)
ROLES = {word: role for role in Role for word in (role.value.lower(), role.name.lower())}

Table = Mapping[str, Any]


def read_issuers(document: Table, file: str) -> tuple[Issuer, ...]:
    """Raises `ConfigError`."""
    tables = tables_in(document, "issuers", file, "[[issuers]]")
    if len(tables) > ISSUERS_MAX:
        raise ConfigError(f"{file}: has {len(tables)} issuers, and {ISSUERS_MAX} may be at most.")
    found: dict[str, Issuer] = {}
    for number, table in enumerate(tables):
        name = name_in(table, "issuer", f"{file}: issuer {number + 1}")
        where = f"{file}: issuer '{name}'"
        check_keys(where, table, ISSUER_KEYS)
        if name in found:
            raise ConfigError(f"{where}: is declared twice.")
        if name == DEV_ISSUER:
            raise ConfigError(f"{where}: is the name of --dev-tokens, and cannot be another's.")
        found[name] = _issuer(name, table, where)
    return tuple(found.values())


def _issuer(name: str, table: Table, where: str) -> Issuer:
    given = [key for key in ("jwks_file", "jwks_url") if key in table]
    if len(given) != 1:
        raise ConfigError(f"{where}: must have jwks_file or jwks_url, one of the two.")
    url = _url(table, where) if "jwks_url" in table else None
    file = table.get("jwks_file")
    if file is not None and (not isinstance(file, str) or not file.strip()):
        raise wrong_value(where, "jwks_file", file, "the path of a file")
    optional: dict[str, Any] = {}
    if "audiences" in table:
        optional["audiences"] = _texts(table, "audiences", where, '["api://my-broker"]')
    if "algorithms" in table:
        optional["algorithms"] = _algorithms(table, where)
    if "clock_skew" in table:
        optional["clock_skew_ms"] = _span(table, "clock_skew", where, 0, SKEW_MAX_MS)
    if "refresh" in table:
        optional["refresh_ms"] = _span(table, "refresh", where, *REFRESH_RANGE_MS)
    return Issuer(
        issuer=name, jwks_file=None if file is None else Path(file), jwks_url=url, **optional
    )


def _url(table: Table, where: str) -> str:
    """Keys that somebody on the way could exchange open everything: HTTPS, or this machine."""
    url = table["jwks_url"]
    parts = urlsplit(url) if isinstance(url, str) else urlsplit("")
    is_near = parts.scheme == "http" and is_loopback(parts.hostname or "")
    if not parts.hostname or not (parts.scheme == "https" or is_near):
        raise wrong_value(where, "jwks_url", url, "an https:// address (http:// on this machine)")
    return str(url)


def _texts(table: Table, key: str, where: str, example: str) -> tuple[str, ...]:
    value = table[key]
    if (
        not isinstance(value, list)
        or not value
        or not all(isinstance(each, str) and each.strip() for each in value)
    ):
        raise wrong_value(where, key, value, f"a list of texts such as {example}")
    return tuple(value)


def _algorithms(table: Table, where: str) -> tuple[str, ...]:
    named = _texts(table, "algorithms", where, '["RS256"]')
    for each in named:
        if each not in ALGORITHMS:
            raise ConfigError(
                f"{where}: algorithms has '{each}', and can have {', '.join(ALGORITHMS)}. None "
                "and those with a shared secret are never taken."
            )
    return named


def _span(table: Table, key: str, where: str, least_ms: int, most_ms: int) -> int:
    value = table[key]
    try:
        span_ms = parse_duration(value) if isinstance(value, str) else None
    except ValueError:
        span_ms = None
    if span_ms is None or not least_ms <= span_ms <= most_ms:
        allowed = f'a text such as "5m", from {least_ms // 1000} s to {most_ms // 1000} s'
        raise wrong_value(where, key, value, allowed)
    return span_ms


# --- Roles of a namespace ------------------------------------------------------------------------


def read_roles(
    table: Table, where: str, prefix: str, issuers: Iterable[Issuer]
) -> tuple[RoleAssignment, ...]:
    """Raises `ConfigError`; `prefix` goes before the name of the table."""
    known = tuple(each.issuer for each in issuers)
    tables = tables_in(table, "roles", where, f"[[{prefix}roles]]")
    return tuple(
        _assignment(each, f"{where}: role {number + 1}", known)
        for number, each in enumerate(tables)
    )


def _assignment(table: Table, where: str, known: tuple[str, ...]) -> RoleAssignment:
    check_keys(where, table, ROLE_KEYS)
    word = table.get("role")
    role = ROLES.get(word.strip().lower()) if isinstance(word, str) else None
    if role is None:
        allowed = ", ".join(f"'{each.value}'" for each in Role)
        raise wrong_value(where, "role", word, f"one of {allowed}, or owner, sender, receiver")
    named = [claim for claim in CLAIMS if claim in table]
    if len(named) != 1:
        raise ConfigError(f"{where}: must say whose it is, by one of {', '.join(CLAIMS)}.")
    return RoleAssignment(
        role=role,
        claim=named[0],
        value=name_in(table, named[0], where),
        issuer=_issuer_of(table, where, known),
        entities=_entities(table, where),
    )


def _issuer_of(table: Table, where: str, known: tuple[str, ...]) -> str:
    """An id means something at one issuer only; with several it must be said at which."""
    if "issuer" not in table:
        if len(known) == 1:
            return known[0]
        if known:
            raise ConfigError(f"{where}: must say of which issuer: there are {len(known)}.")
        return DEV_ISSUER
    named = name_in(table, "issuer", where)
    if named not in (*known, DEV_ISSUER):
        there = ", ".join(f"'{each}'" for each in (*known, DEV_ISSUER))
        raise ConfigError(f"{where}: issuer is '{named}', and there are {there}.")
    return named


def _entities(table: Table, where: str) -> tuple[str, ...]:
    if "entities" not in table:
        return ()
    named = _texts(table, "entities", where, '["orders"]')
    for each in named:
        try:
            parse_address(each)
        except BusError:
            raise ConfigError(f"{where}: entities has '{each}', which can be no entity.") from None
    return named
