"""What an access rule may be, and how many there may be (amqp.md 18, LIM-12).

A rule belongs to a namespace or to one queue or topic. Who changes its keys has made them anew: an
old one opens nothing from then on, and what it has opened ends with its tokens.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from dataclasses import replace

from busway.model.entities import ALL_RIGHTS, AuthorizationRule
from busway.model.errors import ARGUMENT_ERROR, BusError
from busway.model.limits import ACCESS_RULES_MAX
from busway.model.names import name_key

ACCESS_RULE_NAME_MAX_CHARS = 256
ACCESS_KEY_MAX_CHARS = 256
ACCESS_KEY_BYTES = 32
CHOSEN_KEY_MIN_CHARS = 16
"""Of a key that a person has thought of; less can be guessed."""

Rules = tuple[AuthorizationRule, ...]


def fresh_key(random_bytes: Callable[[int], bytes]) -> str:
    return base64.b64encode(random_bytes(ACCESS_KEY_BYTES)).decode()


def check_access_rule(rule: AuthorizationRule) -> AuthorizationRule:
    """The rule with its rights in the words and the order of the service; raises `BusError`."""
    if not 1 <= len(rule.name) <= ACCESS_RULE_NAME_MAX_CHARS:
        raise _refused(f"An access rule has a name of 1 to {ACCESS_RULE_NAME_MAX_CHARS} characters")
    named = f"The access rule '{rule.name}'"
    words = {right.lower(): right for right in ALL_RIGHTS}
    said = {words.get(right.lower()) for right in rule.rights}
    if not said or None in said:
        raise _refused(f"{named} has some of the rights {', '.join(ALL_RIGHTS)}, and no others")
    if "Manage" in said and len(said) < len(ALL_RIGHTS):
        raise _refused(f"{named} has the right Manage, which needs Send and Listen as well")
    for key in (rule.primary_key, rule.secondary_key):
        if key is not None and not 1 <= len(key) <= ACCESS_KEY_MAX_CHARS:
            raise _refused(f"{named} has keys of 1 to {ACCESS_KEY_MAX_CHARS} characters")
    return replace(rule, rights=tuple(right for right in ALL_RIGHTS if right in said))


def checked_access_rules(
    rules: Rules, old: Iterable[AuthorizationRule], now_ms: int, *, room: int = ACCESS_RULES_MAX
) -> Rules:
    """All rules of a namespace or an entity, each with when it was made and last changed.

    `room` is less where rules are there that are not among them.
    """
    if len(rules) > room:
        count = len(rules) + ACCESS_RULES_MAX - room
        raise _refused(f"There are {count} access rules, and {ACCESS_RULES_MAX} may be at most")
    there = {name_key(rule.name): rule for rule in old}
    found: dict[str, AuthorizationRule] = {}
    for rule in map(check_access_rule, rules):
        key = name_key(rule.name)
        if key in found:
            raise _refused(f"There are two access rules of the name '{rule.name}'")
        before = there.get(key)
        if before is None:
            found[key] = replace(rule, created_ms=now_ms, updated_ms=now_ms)
        elif _opens_the_same(before, rule):
            found[key] = before
        else:
            found[key] = replace(rule, created_ms=before.created_ms, updated_ms=now_ms)
    return tuple(found.values())


def _opens_the_same(before: AuthorizationRule, after: AuthorizationRule) -> bool:
    return (before.rights, before.primary_key, before.secondary_key) == (
        after.rights,
        after.primary_key,
        after.secondary_key,
    )


def _refused(detail: str) -> BusError:
    return BusError(ARGUMENT_ERROR, detail=f"{detail}.")
