"""What a bearer token opens: its signature, its claims, and the roles of who it speaks of.

The order is that of RFC 7519, section 7.2: the issuer is looked up by what the token claims, its
key by the id in the header, and only a token whose signature that key has made is believed. Which
algorithms may be is configured and never taken from the token alone (RFC 8725, section 3.1).
Times are compared with the clock that is passed in, always the machine's (`auth.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from jwt.api_jws import PyJWS
from jwt.exceptions import InvalidSignatureError, PyJWTError

from busway.gateway.auth import Access, OwnHost, Right, scope_of
from busway.gateway.bearer import TOKEN_LENGTH_MAX, KeysAwaited
from busway.gateway.bearer.errors import ROLE_MISSING, TOKEN_REFUSED
from busway.gateway.bearer.keys import KeySource, VerifyingKey
from busway.model.errors import (
    TOKEN_EXPIRED,
    TOKEN_MALFORMED,
    TOKEN_SCOPE_INVALID,
    TOKEN_SIGNATURE_INVALID,
    BusError,
)
from busway.model.identity import CLAIMS, Issuer, RoleAssignment
from busway.model.names import name_key, parse_address, scope_covers

SHOWN_MAX = 120
"""Of a stranger's text in an error."""
TIME_MAX_S = 253_402_300_799
"""The year 9999: a later time is a mistake, or an attempt to overflow something."""

_signatures = PyJWS()

Claims = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """Where an assignment holds."""

    scope: str = ""
    """An `audience_key`; empty for the whole namespace."""
    entity: str | None = None
    """The `name_key` of the queue or topic: `a` does not open the queue `a/b`."""


class BearerTokens:
    """Of one namespace."""

    def __init__(self, sources: Iterable[KeySource], assignments: Iterable[RoleAssignment]) -> None:
        self._sources = {source.issuer.issuer: source for source in sources}
        self._assignments = tuple(
            (each, tuple(map(_place, each.entities)) or (Place(),)) for each in assignments
        )

    def verify(
        self,
        text: str,
        audience: str,
        clock_ms: int,
        own_host: OwnHost,
        *,
        entity: str | None = None,
        may_wait: bool = False,
    ) -> Sequence[Access]:
        """What the token opens at an audience, as `audience_key` writes it, and below it.

        `entity` is the queue or topic in which the audience lies, where that is not an address:
        requests are for `orders/messages/head`.

        Raises `BusError`; and `KeysAwaited` where the caller `may_wait`, if its key is not known
        and the issuer can be asked.
        """
        header, claims = unverified(text)
        source = self._sources.get(claims["iss"])
        if source is None:
            raise _refused(f"its issuer '{_shown(claims['iss'])}' is not trusted here")
        issuer = source.issuer
        algorithm = header.get("alg")
        if algorithm not in issuer.algorithms:
            allowed = ", ".join(issuer.algorithms)
            raise _refused(f"its algorithm is '{_shown(algorithm)}', and may be {allowed}")
        if "crit" in header:
            raise _refused("it demands an extension ('crit') that is not known")
        key = _key(source, header.get("kid"), may_wait)
        if not key.fits(str(algorithm)):
            raise _refused(f"its key is not one for the algorithm {algorithm}")
        _check_signature(text, key, str(algorithm))
        expires_ms = _check_times(claims, issuer, clock_ms)
        _check_audience(claims, issuer, audience, own_host)
        known = _entity_of(audience) if entity is None else name_key(entity)
        opened = self._opened(claims, audience, known, expires_ms)
        if not opened:
            raise BusError(ROLE_MISSING, who=identity_of(claims), uri=audience or "/")
        return opened

    def _opened(
        self, claims: Claims, audience: str, entity: str | None, expires_ms: int
    ) -> Sequence[Access]:
        rights: dict[Place, Right] = {}
        for assignment, places in self._assignments:
            if assignment.issuer not in (None, claims["iss"]) or not _is_for(assignment, claims):
                continue
            for place in places:
                at = _within(place, audience, entity)
                if at is not None:
                    granted = Right.of(assignment.role.rights)
                    rights[at] = rights.get(at, Right.NONE) | granted
        who = identity_of(claims)
        return [
            Access(place.scope, granted, expires_ms, who, place.entity)
            for place, granted in rights.items()
        ]


def unverified(text: str) -> tuple[dict[str, Any], Claims]:
    """Header and claims as they stand there; nothing of them is true yet."""
    if len(text) > TOKEN_LENGTH_MAX:
        raise BusError(TOKEN_MALFORMED, detail=f"it is longer than {TOKEN_LENGTH_MAX} characters")
    try:
        loaded = _signatures.decode_complete(text, options={"verify_signature": False})
        claims = json.loads(loaded["payload"])
    except (PyJWTError, ValueError, RecursionError) as error:  # not ASCII is a `ValueError`
        raise BusError(TOKEN_MALFORMED, detail="it is no JSON Web Token") from error
    if not isinstance(claims, dict) or not isinstance(claims.get("iss"), str):
        raise BusError(TOKEN_MALFORMED, detail="it has no issuer ('iss')")
    return loaded["header"], claims


def _key(source: KeySource, kid: object, may_wait: bool) -> VerifyingKey:
    found = source.keys.find(kid if isinstance(kid, str) else None)
    if found is not None:
        return found
    if may_wait:
        waiting = _Waiting()
        if source.refresh(waiting.go_on):
            raise KeysAwaited(waiting.add)
    if source.problem is not None:
        raise _refused(f"the keys of its issuer are not there: {source.problem}")
    raise _refused(f"its key '{_shown(kid)}' is not one of its issuer's")


class _Waiting:
    """What is to be done when the issuer has answered; it may have done so before it is said."""

    def __init__(self) -> None:
        self._over = False
        self._then: list[Any] = []

    def add(self, then: Any) -> None:
        if self._over:
            then()
        else:
            self._then.append(then)

    def go_on(self) -> None:
        self._over = True
        for then in self._then:
            then()


def _check_signature(text: str, key: VerifyingKey, algorithm: str) -> None:
    try:
        _signatures.decode_complete(text, key.key, algorithms=[algorithm])
    except InvalidSignatureError:
        raise BusError(TOKEN_SIGNATURE_INVALID) from None
    except (PyJWTError, ValueError, TypeError) as error:
        raise BusError(TOKEN_MALFORMED, detail="its signature cannot be read") from error


def _check_times(claims: Claims, issuer: Issuer, clock_ms: int) -> int:
    """Until when it is good: its end, and as much longer as clocks may differ."""
    expires_ms = _time_ms(claims, "exp") + issuer.clock_skew_ms
    if expires_ms <= clock_ms:
        raise BusError(TOKEN_EXPIRED, expired_text=_written(_time_ms(claims, "exp")))
    if "nbf" in claims and _time_ms(claims, "nbf") - issuer.clock_skew_ms > clock_ms:
        raise _refused(f"it is not valid before {_written(_time_ms(claims, 'nbf'))}")
    return expires_ms


def _time_ms(claims: Claims, name: str) -> int:
    value = claims.get(name)
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value <= TIME_MAX_S
    ):
        raise BusError(TOKEN_MALFORMED, detail=f"its '{name}' is no time")
    return int(value * 1000)


def _check_audience(claims: Claims, issuer: Issuer, audience: str, own_host: OwnHost) -> None:
    """For the service as a whole, or for this very namespace."""
    said = claims.get("aud")
    named = [each for each in (said if isinstance(said, list) else [said]) if isinstance(each, str)]
    allowed = {each.rstrip("/") for each in issuer.audiences}
    if any(each.rstrip("/") in allowed or _is_ours(each, audience, own_host) for each in named):
        return
    shown = _shown(", ".join(named) or "nobody")
    raise BusError(TOKEN_SCOPE_INVALID, scope=shown, uri=audience or "/")


def _is_ours(named: str, audience: str, own_host: OwnHost) -> bool:
    scope = scope_of(named)
    return scope.has_scheme and scope.is_of(own_host) and scope_covers(scope.key, audience)


# --- Roles ---------------------------------------------------------------------------------------


def _place(entity: str) -> Place:
    address = parse_address(entity)
    return Place(name_key(address.entity), name_key(address.path))


def _within(place: Place, audience: str, entity: str | None) -> Place | None:
    """What a token that is put for an audience of an entity opens of a place; None if nothing."""
    if place.entity is None:
        return Place(audience)
    if scope_covers(audience, place.scope):
        return place
    if not scope_covers(place.scope, audience):
        return None
    return Place(audience, place.entity) if entity == place.entity else None


def _entity_of(audience: str) -> str | None:
    try:
        return name_key(parse_address(audience).path)
    except BusError:
        return None


def _is_for(assignment: RoleAssignment, claims: Claims) -> bool:
    for name in CLAIMS[assignment.claim]:
        if name in claims:
            said = claims[name]
            if name == "scp" and isinstance(said, str):
                said = said.split()
            listed = said if isinstance(said, list) else [said]
            return assignment.value in listed
    return False


def identity_of(claims: Claims) -> str:
    """Whom a token speaks of, for logs and errors."""
    for name in ("appid", "azp", "oid", "sub"):
        if isinstance(claims.get(name), str):
            return f"{name} {_shown(claims[name])}"
    return "nobody"


# --- Texts ---------------------------------------------------------------------------------------


def _refused(detail: str) -> BusError:
    return BusError(TOKEN_REFUSED, detail=detail)


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


def _written(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
