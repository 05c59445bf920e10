"""The access rules of an entity as `AuthorizationRules` (http.md 6, LIM-12)."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import replace
from xml.etree.ElementTree import Element

from busway.http.atom.instants import instant
from busway.http.atom.markup import Markup, element
from busway.http.atom.reading import bad, children, local_name, text_of
from busway.model.entities import ALL_RIGHTS, AuthorizationRule
from busway.model.limits import ACCESS_RULES_MAX
from busway.model.names import name_key

RULE = "AuthorizationRule"
RULES = "AuthorizationRules"
CLAIM_TYPE, CLAIM_VALUE = "SharedAccessKey", "None"
KEY_BYTES = 32
KEY_MAX_CHARS = NAME_MAX_CHARS = 256

Random = Callable[[int], bytes]

# --- In ------------------------------------------------------------------------------------------


def read_access_rules(
    parent: Element, random: Random, now_ms: int, old: tuple[AuthorizationRule, ...] = ()
) -> tuple[AuthorizationRule, ...]:
    """With a fresh key wherever one is left out: so keys are made, and made anew."""
    before = {name_key(rule.name): rule for rule in old}
    rules = [
        _dated(rule, before.get(name_key(rule.name)), now_ms)
        for rule in (_read_rule(each, random) for each in parent if local_name(each) == RULE)
    ]
    names = [name_key(rule.name) for rule in rules]
    if len(rules) > ACCESS_RULES_MAX:
        raise bad(f"There are {len(rules)} access rules and at most {ACCESS_RULES_MAX} can be.")
    if len(set(names)) != len(names):
        raise bad("Two access rules have the same KeyName.")
    return tuple(rules)


def _read_rule(rule: Element, random: Random) -> AuthorizationRule:
    parts = children(rule)
    texts = {name: text_of(part).strip() for name, part in parts.items() if name != "Rights"}
    name = texts.get("KeyName", "")
    if not name or len(name) > NAME_MAX_CHARS:
        raise bad(f"The KeyName of an access rule must have 1 to {NAME_MAX_CHARS} characters.")
    if texts.get("ClaimType", CLAIM_TYPE) != CLAIM_TYPE:
        raise bad(f"The ClaimType of the access rule '{name}' must be {CLAIM_TYPE}.")
    primary = texts.get("PrimaryKey") or fresh_key(random)
    secondary = texts.get("SecondaryKey") or fresh_key(random)
    if max(len(primary), len(secondary)) > KEY_MAX_CHARS:
        raise bad(f"A key of the access rule '{name}' has more than {KEY_MAX_CHARS} characters.")
    return AuthorizationRule(name, _read_rights(name, parts.get("Rights")), primary, secondary)


def _dated(
    rule: AuthorizationRule, old: AuthorizationRule | None, now_ms: int
) -> AuthorizationRule:
    if old is None:
        return replace(rule, created_ms=now_ms, updated_ms=now_ms)
    same = replace(rule, created_ms=old.created_ms, updated_ms=old.updated_ms)
    return same if same == old else replace(same, updated_ms=now_ms)


def _read_rights(name: str, rights: Element | None) -> tuple[str, ...]:
    known = {right.lower(): right for right in ALL_RIGHTS}
    said = {
        known.get(text_of(each).strip().lower())
        for each in (() if rights is None else rights)
        if local_name(each) == "AccessRights"
    }
    if not said or None in said:
        raise bad(
            f"The Rights of the access rule '{name}' must be some of {', '.join(ALL_RIGHTS)}."
        )
    if "Manage" in said and len(said) < len(ALL_RIGHTS):
        raise bad(
            f"The access rule '{name}' has the right Manage, which needs Send and Listen, too."
        )
    return tuple(right for right in ALL_RIGHTS if right in said)


def fresh_key(random: Random) -> str:
    return base64.b64encode(random(KEY_BYTES)).decode()


# --- Out -----------------------------------------------------------------------------------------


def write_access_rules(rules: tuple[AuthorizationRule, ...]) -> Markup:
    return element(RULES, [_write_rule(rule) for rule in rules])


def _write_rule(rule: AuthorizationRule) -> Markup:
    rights = [element("AccessRights", right) for right in rule.rights]
    return element(
        RULE,
        [
            element("ClaimType", CLAIM_TYPE),
            element("ClaimValue", CLAIM_VALUE),
            element("Rights", rights),
            element("CreatedTime", instant(rule.created_ms)),
            element("ModifiedTime", instant(rule.updated_ms)),
            element("KeyName", rule.name),
            element("PrimaryKey", rule.primary_key),
            element("SecondaryKey", rule.secondary_key or ""),
        ],
        {"i:type": "SharedAccessAuthorizationRule"},
    )
