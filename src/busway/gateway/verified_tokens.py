"""Tokens that were verified before, so that a client that shows one with every request pays once.

What is kept is who signed it, by a digest of its text, and never an answer: that it has not run
out, that its rule is the very one whose key was tried, and what it covers are looked at each time
(D-34). So a change of rules needs not be told here, and only good tokens take room.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from busway.gateway import auth
from busway.gateway.auth import Access, AccessRules, OwnHost, Right, Scope
from busway.model.entities import AuthorizationRule
from busway.model.names import name_key, scope_covers

KEPT_MAX = 1_024


class Verified(NamedTuple):
    scope: Scope
    expires_ms: int
    entity: str | None
    rule: AuthorizationRule
    rights: Right


class VerifiedTokens:
    """Of one namespace."""

    def __init__(self, rules: AccessRules) -> None:
        self._rules = rules
        self._kept: dict[bytes, Verified] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def verify(self, text: str, audience: str, clock_ms: int, own_host: OwnHost) -> Access:
        """As `auth.verify`, with the same errors."""
        digest = hashlib.sha256(text.encode(errors="surrogatepass")).digest()
        known = self._kept.get(digest)
        if known is not None:
            if (
                clock_ms < known.expires_ms
                and known.scope.is_of(own_host)
                and scope_covers(known.scope.key, audience)
                and self._is_there(known, audience)
            ):
                rule_name = known.rule.name
                return Access(audience, known.rights, known.expires_ms, rule_name, known.entity)
            del self._kept[digest]
        access = auth.verify(text, audience, self._rules, clock_ms, own_host)
        self._keep(digest, text, audience, access)
        return access

    def _is_there(self, known: Verified, audience: str) -> bool:
        return self._rule(known.entity, known.rule.name, audience) is known.rule

    def _rule(self, entity: str | None, name: str, audience: str) -> AuthorizationRule | None:
        if entity is None:
            return self._rules.namespace_rule(name)
        found = self._rules.entity_rule(audience, name)
        return found[1] if found is not None and name_key(found[0]) == entity else None

    def _keep(self, digest: bytes, text: str, audience: str, access: Access) -> None:
        rule = self._rule(access.entity, access.rule_name, audience)
        if rule is None or access.expires_ms is None:
            return
        if len(self._kept) >= KEPT_MAX:
            del self._kept[next(iter(self._kept))]
        scope = auth.scope_of(auth.parse(text).resource)
        self._kept[digest] = Verified(scope, access.expires_ms, access.entity, rule, access.rights)
