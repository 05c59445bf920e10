"""The namespaces that a configuration file declares: what each is, who may enter, and its entities.

Our TOML has the default one at its top, with what it is in `[serve]`, and every other one as
`[namespaces.NAME]` with the same tables below it. In the emulator's JSON the first namespace is the
default one, whatever its name: clients of the emulator say `localhost`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from busway.config.entities import (
    EMULATOR_KEYS,
    NAMESPACE_KEYS,
    TOML_TABLES,
    USER_CONFIG_KEYS,
    Declared,
    read_emulator_entities,
    read_toml_entities,
)
from busway.config.errors import ConfigError, wrong_value
from busway.config.identity import read_roles
from busway.config.tables import check_keys, name_in, table_in, tables_in
from busway.config.values import HOSTS_WANTED, hosts, key_in_file, partitions, secret, tier
from busway.model.access import check_access_rule
from busway.model.entities import DEFAULT_NAMESPACE, AuthorizationRule
from busway.model.errors import BusError
from busway.model.identity import Issuer, RoleAssignment
from busway.model.limits import Tier
from busway.model.names import NAMESPACE_NAME, check_name, name_key

TOML_KEYS = (
    "serve",
    "journal",
    "strangers",
    "issuers",
    "namespaces",
    "access",
    "roles",
    *TOML_TABLES,
)
NAMESPACE_SETTINGS = ("tier", "namespace_partitions", "hosts", "key", "key_file")
ACCESS_KEYS = ("name", "rights", "key", "secondary_key")

Table = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredNamespace:
    name: str
    tier: Tier | None = None
    """None: the one that it has, Standard for a new one."""
    partitions: int | None = None
    """P-14."""
    hosts: tuple[str, ...] = ()
    """Host names and addresses that mean it, beside its own name."""
    key: str | None = field(default=None, repr=False)
    """Of its root rule; None: the one that is kept in the data folder."""
    access: tuple[AuthorizationRule, ...] = ()
    """Rules beside the root rule; others that it has are left alone."""
    roles: tuple[RoleAssignment, ...] = ()
    """Of identities that show bearer tokens."""
    entities: tuple[Declared, ...] = ()


def read_namespaces(
    document: Table,
    file: str,
    default: DeclaredNamespace,
    issuers: tuple[Issuer, ...] = (),
    *,
    emulator: bool = False,
) -> tuple[DeclaredNamespace, ...]:
    """The default one first; `emulator`, with the defaults of Microsoft's emulator where its JSON
    states nothing. Raises `ConfigError` for whatever is wrong or unknown."""
    if "UserConfig" in document:
        found = tuple(_of_emulator(document, file, default, emulator))
    else:
        found = tuple(_of_toml(document, file, default, issuers))
    claimed = {name_key(each.name): each.name for each in found}
    for each in found:
        for host in each.hosts:
            other = claimed.setdefault(name_key(host), each.name)
            if other != each.name:
                raise ConfigError(
                    f"{file}: the host '{host}' of the namespace '{each.name}' means the "
                    f"namespace '{other}' already."
                )
    return found


# --- Our TOML ------------------------------------------------------------------------------------


def _of_toml(
    document: Table, file: str, default: DeclaredNamespace, issuers: tuple[Issuer, ...]
) -> Iterator[DeclaredNamespace]:
    check_keys(file, document, TOML_KEYS)
    yield replace(
        default,
        access=_access(document, file, ""),
        roles=read_roles(document, file, "", issuers),
        entities=read_toml_entities(document, file, default.tier),
    )
    seen = {name_key(default.name)}
    for name, table in table_in(document, "namespaces", file).items():
        where = f"{file}: namespace '{name}'"
        if name_key(name) == name_key(DEFAULT_NAMESPACE):
            raise ConfigError(
                f"{where}: is the default one. Its settings are those of [serve], and its entities "
                "stand at the top of the file."
            )
        if name_key(name) in seen:
            raise ConfigError(f"{where}: is declared twice.")
        seen.add(name_key(name))
        if not isinstance(table, dict):
            raise ConfigError(f"{where}: must be a table, [namespaces.{name}].")
        yield _namespace(name, table, where, issuers)


def _namespace(
    name: str, table: Table, where: str, issuers: tuple[Issuer, ...]
) -> DeclaredNamespace:
    _check_namespace_name(name, where)
    check_keys(where, table, (*NAMESPACE_SETTINGS, "access", "roles", *TOML_TABLES))
    chosen = tier(table["tier"], where, "tier") if "tier" in table else None
    return DeclaredNamespace(
        name=name,
        tier=chosen,
        partitions=partitions(table["namespace_partitions"], where, "namespace_partitions")
        if "namespace_partitions" in table
        else None,
        hosts=_hosts(table, where),
        key=_key(table, where),
        access=_access(table, where, f"namespaces.{name}."),
        roles=read_roles(table, where, f"namespaces.{name}.", issuers),
        entities=read_toml_entities(table, where, chosen, f"namespaces.{name}."),
    )


def _check_namespace_name(name: str, where: str) -> None:
    try:
        check_name(NAMESPACE_NAME, name)
    except BusError as error:
        raise ConfigError(f"{where}: {error.text}") from error


def _hosts(table: Table, where: str) -> tuple[str, ...]:
    named = table.get("hosts", [])
    if isinstance(named, str):
        raise wrong_value(where, "hosts", named, HOSTS_WANTED)
    return hosts(named, where, "hosts")


def _key(table: Table, where: str) -> str | None:
    if "key_file" not in table:
        return secret(table["key"], where, "key") if "key" in table else None
    if "key" in table:
        raise ConfigError(f"{where}: has both key and key_file. Leave one of them out.")
    file = table["key_file"]
    if not isinstance(file, str) or not file.strip():
        raise wrong_value(where, "key_file", file, "the path of a file")
    return key_in_file(Path(file), f"{where}: key_file")


def _access(table: Table, where: str, prefix: str) -> tuple[AuthorizationRule, ...]:
    rules: dict[str, AuthorizationRule] = {}
    for number, each in enumerate(tables_in(table, "access", where, f"[[{prefix}access]]")):
        name = name_in(each, "name", f"{where}: access rule {number + 1}")
        rule_where = f"{where}: access rule '{name}'"
        check_keys(rule_where, each, ACCESS_KEYS)
        if name_key(name) in rules:
            raise ConfigError(f"{rule_where}: is declared twice.")
        if "key" not in each:
            raise ConfigError(f"{rule_where}: has no key.")
        rights = each.get("rights", [])
        if not isinstance(rights, list):
            raise wrong_value(rule_where, "rights", rights, 'a list such as ["Send", "Listen"]')
        rule = AuthorizationRule(
            name,
            tuple(str(right) for right in rights),
            secret(each["key"], rule_where, "key"),
            secret(each["secondary_key"], rule_where, "secondary_key")
            if "secondary_key" in each
            else None,
        )
        try:
            rules[name_key(name)] = check_access_rule(rule)
        except BusError as error:
            raise ConfigError(f"{rule_where}: {error.text}") from error
    return tuple(rules.values())


# --- The JSON of Microsoft's emulator ------------------------------------------------------------


def _of_emulator(
    document: Table, file: str, default: DeclaredNamespace, own_defaults: bool
) -> Iterator[DeclaredNamespace]:
    check_keys(file, document, EMULATOR_KEYS)
    user_config = table_in(document, "UserConfig", file)
    check_keys(f"{file}: UserConfig", user_config, USER_CONFIG_KEYS)
    namespaces = tables_in(user_config, "Namespaces", file, "a list of objects")
    for number, table in enumerate(namespaces or [{}]):
        check_keys(f"{file}: namespace", table, NAMESPACE_KEYS)
        if number == 0:
            entities = read_emulator_entities(table, file, default.tier, own_defaults=own_defaults)
            yield replace(default, entities=entities)
            continue
        name = name_in(table, "Name", f"{file}: namespace {number + 1}")
        where = f"{file}: namespace '{name}'"
        _check_namespace_name(name, where)
        entities = read_emulator_entities(table, where, None, own_defaults=own_defaults)
        yield DeclaredNamespace(name=name, entities=entities)
