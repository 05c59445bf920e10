"""The access rules of a namespace: which there are, and how they are made and changed (D-34).

Rules are in the catalog, but for the root rule: its keys have a place of their own (`root_key.py`),
and whoever opens the namespace says how new ones get there. One rule that may manage is always
left, so that nobody locks everybody out. What a change means for who is inside already is told in
`docs/architecture.md`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from enum import Enum

from busway.cluster.catalog_file import CatalogFile
from busway.model.access import Rules, checked_access_rules
from busway.model.entities import ALL_RIGHTS, ROOT_RULE_NAME, AuthorizationRule, Namespace
from busway.model.errors import (
    ACCESS_RULE_FIXED,
    ACCESS_RULE_NOT_FOUND,
    ARGUMENT_ERROR,
    SERVER_BUSY,
    BusError,
)
from busway.model.limits import ACCESS_RULES_MAX
from busway.model.names import name_key

KeepKeys = Callable[[str, str | None], None]
"""Puts the keys of the root rule where the next start finds them; raises `OSError`."""


class KeyName(Enum):
    PRIMARY = "primary"
    SECONDARY = "secondary"


class NamespaceAccess:
    """Of one namespace. `writing` guards what is written to the file, as in `Catalog`."""

    def __init__(
        self,
        file: CatalogFile,
        namespace: Namespace,
        writing: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._file = file
        self._stored = namespace
        self._writing = writing
        self._root_rule: AuthorizationRule | None = None
        self._keep_root_keys: KeepKeys | None = None
        self.namespace = namespace
        """With the root rule first, if its key is known."""

    def find(self, name: str) -> AuthorizationRule | None:
        return named(self.namespace.authorization_rules, name)

    # --- All at once -----------------------------------------------------------------------------

    def set_root_key(self, key: str, secondary_key: str | None, keep: KeepKeys | None) -> None:
        """Without `keep` the key is somebody else's to say, and cannot be renewed here."""
        self._root_rule = AuthorizationRule(ROOT_RULE_NAME, ALL_RIGHTS, key, secondary_key)
        self._keep_root_keys = keep
        self._show()

    def update(self, namespace: Namespace, now_ms: int) -> None:
        """New access rules. All else is fixed, and the root rule is left as it is."""
        old = self._stored
        if (namespace.name, namespace.tier, namespace.partitions) != (
            old.name,
            old.tier,
            old.partitions,
        ):
            raise BusError(
                ARGUMENT_ERROR,
                detail="The name, the tier and the partitions of a namespace cannot be changed.",
            )
        others = tuple(rule for rule in namespace.authorization_rules if not _is_root(rule.name))
        kept = checked_access_rules(
            others, old.authorization_rules, now_ms, room=ACCESS_RULES_MAX - 1
        )
        if kept == old.authorization_rules:
            return  # as at every start with the same file
        changed = replace(old, authorization_rules=kept, updated_ms=now_ms)
        with self._writing():
            self._file.write_namespace(changed)
        self._stored = changed
        self._show()

    def declare(self, rules: Rules, now_ms: int) -> None:
        """What a configuration says, where it says something else than when it was last read.

        So who spoke last is right: a key that was renewed here is not the old one again after a
        restart, and a line that is changed in the file counts. Rules that it does not name are left
        alone.
        """
        name = self._stored.name
        before = self._file.declared_access(name)
        said = {name_key(rule.name): _digest(rule) for rule in rules}
        wanted = self._stored.authorization_rules
        for rule in rules:
            if before.get(name_key(rule.name)) != said[name_key(rule.name)]:
                wanted = _replaced(wanted, rule)
        self._change(wanted, now_ms)
        if said != before:
            with self._writing():
                self._file.write_declared_access(name, said)

    # --- One at a time ---------------------------------------------------------------------------

    def put(self, rule: AuthorizationRule, now_ms: int) -> AuthorizationRule:
        """A new rule, or another form of the one of this name."""
        if _is_root(rule.name):
            raise BusError(
                ACCESS_RULE_FIXED,
                detail=f"'{ROOT_RULE_NAME}' has every right and keeps them. Its keys can be "
                "renewed; for less, make a rule of another name.",
            )
        rules = _replaced(self._stored.authorization_rules, rule)
        self._check_somebody_manages(rules)
        self._change(rules, now_ms)
        return self.existing(rule.name)

    def renew(self, name: str, which: KeyName, key: str, now_ms: int) -> AuthorizationRule:
        """This key instead of the primary or secondary one, which opens nothing from now on."""
        rule = self.existing(name)
        if which is KeyName.PRIMARY:
            rule = replace(rule, primary_key=key)
        else:
            rule = replace(rule, secondary_key=key)
        if _is_root(name):
            self._renew_root(rule)
        else:
            self._change(_replaced(self._stored.authorization_rules, rule), now_ms)
        return self.existing(name)

    def remove(self, name: str, now_ms: int) -> None:
        rule = self.existing(name)
        if _is_root(name):
            raise BusError(
                ACCESS_RULE_FIXED,
                detail=f"'{ROOT_RULE_NAME}' cannot be removed: it is how the owner of the server "
                "gets in. Renew both of its keys, and nobody knows them who did before.",
            )
        rules = tuple(each for each in self._stored.authorization_rules if each is not rule)
        self._check_somebody_manages(rules)
        self._change(rules, now_ms)

    def existing(self, name: str) -> AuthorizationRule:
        rule = self.find(name)
        if rule is None:
            raise BusError(ACCESS_RULE_NOT_FOUND, name=name, namespace=self.namespace.name)
        return rule

    def _check_somebody_manages(self, rules: Rules) -> None:
        before = self.namespace.authorization_rules
        if self._root_rule is None and _any_manages(before) and not _any_manages(rules):
            raise BusError(
                ACCESS_RULE_FIXED,
                detail="No rule of the namespace would have the right Manage then, and nobody "
                "could give it back. Make another one with that right first.",
            )

    def _renew_root(self, rule: AuthorizationRule) -> None:
        if self._keep_root_keys is None:
            raise BusError(
                ACCESS_RULE_FIXED,
                detail=f"The key of '{ROOT_RULE_NAME}' is a setting of the server (--key, "
                "BUSWAY_KEY, or 'key' in its configuration): change it there, and start the "
                "server again.",
            )
        try:
            self._keep_root_keys(rule.primary_key, rule.secondary_key)
        except OSError as error:
            raise BusError(SERVER_BUSY, refused=True) from error
        self._root_rule = rule
        self._show()

    def _change(self, rules: Rules, now_ms: int) -> None:
        self.update(replace(self._stored, authorization_rules=rules), now_ms)

    def _show(self) -> None:
        rules = self._stored.authorization_rules
        if self._root_rule is not None:
            rules = (self._root_rule, *rules)
        self.namespace = replace(self._stored, authorization_rules=rules)


def named(rules: Rules, name: str) -> AuthorizationRule | None:
    return next((rule for rule in rules if name_key(rule.name) == name_key(name)), None)


def _is_root(name: str) -> bool:
    return name_key(name) == name_key(ROOT_RULE_NAME)


def _replaced(rules: Rules, rule: AuthorizationRule) -> Rules:
    """With this one in the place of its namesake, or behind all others."""
    if named(rules, rule.name) is None:
        return (*rules, rule)
    return tuple(rule if name_key(each.name) == name_key(rule.name) else each for each in rules)


def _digest(rule: AuthorizationRule) -> bytes:
    text = json.dumps([sorted(rule.rights), rule.primary_key, rule.secondary_key])
    return hashlib.sha256(text.encode()).digest()


def _any_manages(rules: Rules) -> bool:
    return any("Manage" in rule.rights for rule in rules)
