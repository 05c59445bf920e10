"""The access rules of an entity as `AuthorizationRules` (http.md 6, LIM-12)."""

from __future__ import annotations

from collections.abc import Callable
from xml.etree.ElementTree import Element

from busway.http.atom.instants import instant
from busway.http.atom.markup import Markup, element
from busway.http.atom.reading import bad, children, local_name, text_of
from busway.model.access import fresh_key
from busway.model.entities import AuthorizationRule

RULE = "AuthorizationRule"
RULES = "AuthorizationRules"
CLAIM_TYPE, CLAIM_VALUE = "SharedAccessKey", "None"

Random = Callable[[int], bytes]

# --- In ------------------------------------------------------------------------------------------


def read_access_rules(parent: Element, random: Random) -> tuple[AuthorizationRule, ...]:
    """With a fresh key wherever one is left out: so keys are made, and made anew. What a rule may
    be, `model/access.py` knows."""
    return tuple(_read_rule(each, random) for each in parent if local_name(each) == RULE)


def _read_rule(rule: Element, random: Random) -> AuthorizationRule:
    parts = children(rule)
    texts = {name: text_of(part).strip() for name, part in parts.items() if name != "Rights"}
    name = texts.get("KeyName", "")
    if texts.get("ClaimType", CLAIM_TYPE) != CLAIM_TYPE:
        raise bad(f"The ClaimType of the access rule '{name}' must be {CLAIM_TYPE}.")
    rights = parts.get("Rights", ())
    return AuthorizationRule(
        name,
        tuple(text_of(each).strip() for each in rights if local_name(each) == "AccessRights"),
        texts.get("PrimaryKey") or fresh_key(random),
        texts.get("SecondaryKey") or fresh_key(random),
    )


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
