"""Who may do what: shared access signatures and the rights they carry (D-34, amqp.md 5 and 18).

This file owns the one decision that AMQP and HTTP share: a token, the path it is used for and the
rules of the namespace and its entities give `Access`, or a `BusError` with the reason. It knows
nothing of connections; `cbs.py` keeps what was granted to each. The time that it is given is always
the machine's clock (`Host.clock_ms`): the expiry in a token was written by a client's clock.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Flag
from typing import NamedTuple, Protocol
from urllib.parse import quote, quote_plus, unquote, unquote_plus

from busway.model.entities import AuthorizationRule
from busway.model.errors import (
    TOKEN_EXPIRED,
    TOKEN_MALFORMED,
    TOKEN_SCOPE_INVALID,
    TOKEN_SIGNATURE_INVALID,
    BusError,
)
from busway.model.names import audience_key, name_key, scope_covers

TOKEN_PREFIX = "sharedaccesssignature "
TOKEN_LENGTH_MAX = 4096
"""A stranger's bytes: real tokens are below 500 characters."""


class Right(Flag):
    """What a rule may allow. `MANAGE` brings the other two (amqp.md 18)."""

    NONE = 0
    SEND = 1
    LISTEN = 2
    MANAGE = 4

    @classmethod
    def of(cls, claims: Iterable[str]) -> Right:
        rights = cls.NONE
        for claim in claims:
            rights |= CLAIMS[claim.lower()]
        return rights


CLAIMS = {
    "send": Right.SEND,
    "listen": Right.LISTEN,
    "manage": Right.MANAGE | Right.SEND | Right.LISTEN,
}


class AccessRules(Protocol):
    """The rules that can apply to a path."""

    def namespace_rule(self, name: str) -> AuthorizationRule | None: ...

    def entity_rule(self, path: str, name: str) -> tuple[str, AuthorizationRule] | None:
        """The rule of the entity that `path` names or lies in, with that entity's path."""


@dataclass(frozen=True, slots=True)
class Access:
    """What one valid token allows until it expires."""

    scope: str
    """The `audience_key` that it covers, with what is below; empty for the whole namespace."""
    rights: Right
    expires_ms: int | None
    """None for a password, which does not expire (SASL PLAIN)."""
    rule_name: str
    entity: str | None = None
    """The `name_key` of an entity, set when that entity's own rule signed it: it opens
    nothing outside, whatever `sr` says (D-34)."""

    def allows(self, path: str, right: Right, clock_ms: int, entity: str | None = None) -> bool:
        """Whether `path` of the entity `entity` is open for `right` at this time."""
        if self.expires_ms is not None and clock_ms >= self.expires_ms:
            return False
        if right not in self.rights or not scope_covers(self.scope, name_key(path)):
            return False
        return self.entity is None or self.entity == name_key(path if entity is None else entity)

    def opens_all_of(self, other: Access) -> bool:
        """Whether it can take the place of another one with the same scope."""
        return other.rights in self.rights and self.entity in (None, other.entity)


class Scope(NamedTuple):
    """What the `sr` of a token names."""

    host: str
    """As it stands there, with its port."""
    key: str
    """The `audience_key` of the path; empty for the whole namespace."""
    has_scheme: bool

    def is_of(self, own_host: OwnHost, *, bare_host: bool = False) -> bool:
        """Whether it names something of the namespace whose host names `own_host` knows.

        A text without scheme and path is as likely the name of a queue as that of a host, and
        opens nothing, unless `bare_host` allows it.
        """
        return own_host(self.host) and (self.has_scheme or bool(self.key) or bare_host)


OwnHost = Callable[[str], bool]
"""Whether a host name in a token means the namespace to which it is shown."""


def scope_of(resource: str) -> Scope:
    text = unquote(resource)
    scheme, found, rest = text.partition("://")
    if not found:
        rest = scheme
    host, slash, path = rest.partition("/")
    for end in "?#":
        host = host.partition(end)[0]
    return Scope(host, audience_key(f"/{path}") if slash else "", bool(found))


@dataclass(frozen=True, slots=True)
class Token:
    """`SharedAccessSignature sr=..&sig=..&se=..&skn=..`, taken apart."""

    resource: str
    """Exactly as transmitted: the signature is over this text, however it was encoded."""
    signature: str
    expiry: str
    rule_name: str
    rule_name_as_sent: str

    @property
    def expires_ms(self) -> int:
        return int(self.expiry) * 1000


def is_signature(text: str) -> bool:
    """A SAS token tells itself by its prefix; the `type` of put-token does not (amqp.md 5)."""
    return text[: len(TOKEN_PREFIX)].lower() == TOKEN_PREFIX


def parse(text: str) -> Token:
    if not is_signature(text) or len(text) > TOKEN_LENGTH_MAX:
        raise BusError(TOKEN_MALFORMED, detail="it is not a shared access signature")
    if not text.isascii() and any("\ud800" <= each <= "\udfff" for each in text):
        # Bytes of a header that are no UTF-8 come as these; nobody can have signed them.
        raise BusError(TOKEN_MALFORMED, detail="it is not text")
    fields: dict[str, str] = {}
    for part in text[len(TOKEN_PREFIX) :].strip().split("&"):
        name, _, value = part.partition("=")
        fields[name.lower()] = value
    missing = [name for name in ("sr", "sig", "se", "skn") if not fields.get(name)]
    if missing:
        raise BusError(TOKEN_MALFORMED, detail=f"it has no '{missing[0]}'")
    # ASCII digits only: `int` would also take signs, spaces and underscores.
    if not (fields["se"].isascii() and fields["se"].isdigit() and len(fields["se"]) <= 12):
        raise BusError(TOKEN_MALFORMED, detail="its expiry is not a number")
    as_sent = unquote_plus(fields["skn"])
    return Token(
        resource=fields["sr"],
        signature=unquote(fields["sig"]),
        expiry=fields["se"],
        rule_name=unquote_plus(as_sent),  # Python encodes it twice
        rule_name_as_sent=as_sent,
    )


def write(resource: str, rule_name: str, key: str, expires_s: int) -> str:
    """A token for a resource, as client libraries make it; it expires at so many seconds since
    1970."""
    encoded, expiry = quote_plus(resource), str(expires_s)
    signature = quote_plus(sign(encoded, expiry, key))
    name = quote_plus(rule_name)
    return f"SharedAccessSignature sr={encoded}&sig={signature}&se={expiry}&skn={name}"


def sign(resource: str, expiry: str, key: str) -> str:
    """The signature over the `sr` text as transmitted; the key is its text, not its base64."""
    digest = hmac.digest(key.encode(), f"{resource}\n{expiry}".encode(), "sha256")
    return base64.b64encode(digest).decode()


def _equal(left: str, right: str) -> bool:
    return hmac.compare_digest(left.encode(), right.encode())


NOBODY = AuthorizationRule("", (), "the key of nobody", "the other key of nobody")
"""Stands for a rule that is not there: looking at it takes as long, and it opens nothing."""

UNRESERVED_BY_JAVASCRIPT = "!'()*"
"""What `encodeURIComponent` leaves as it is, beside what Python does."""


def _keys(rule: AuthorizationRule) -> tuple[str, str]:
    return rule.primary_key, rule.secondary_key or rule.primary_key


def _signed_by(rule: AuthorizationRule, resource: str, token: Token) -> bool:
    # Both keys are always tried, so that time does not tell which one matched.
    matches = [_equal(sign(resource, token.expiry, key), token.signature) for key in _keys(rule)]
    return any(matches)


def signed_texts(resource: str) -> list[str]:
    """What a client may have signed that sent this `sr` (http.md 3): the very text first, then the
    same resource without any encoding, and in those of the client libraries."""
    plain = unquote(resource)
    encoded = (quote_plus(plain), quote(plain, safe=UNRESERVED_BY_JAVASCRIPT))
    return list(dict.fromkeys((resource, plain, *encoded, *(each.lower() for each in encoded))))


def _signer(
    token: Token, audience: str, rules: AccessRules
) -> tuple[str | None, AuthorizationRule]:
    """The rule whose key made the signature, with the entity that it is a rule of."""
    asked: list[tuple[str | None, AuthorizationRule]] = []
    for name in dict.fromkeys((token.rule_name, token.rule_name_as_sent)):
        asked.append((None, rules.namespace_rule(name) or NOBODY))
        path, rule = rules.entity_rule(audience, name) or ("", NOBODY)
        asked.append((name_key(path), rule))
    for text in signed_texts(token.resource):
        # All of them, so that time does not tell which rules there are.
        found = [each for each in asked if _signed_by(each[1], text, token)]
        for entity, rule in found:
            if rule is not NOBODY:
                return entity, rule
    # One text for an unknown rule and a wrong key: a stranger learns no rule names.
    raise BusError(TOKEN_SIGNATURE_INVALID)


def verify(
    text: str,
    audience: str,
    rules: AccessRules,
    clock_ms: int,
    own_host: OwnHost,
    *,
    bare_host: bool = False,
) -> Access:
    """What the token allows for an audience, as `audience_key` writes it."""
    token = parse(text)
    entity, rule = _signer(token, audience, rules)
    if token.expires_ms <= clock_ms:
        raise BusError(TOKEN_EXPIRED, expired_text=token.expiry)
    scope = scope_of(token.resource)
    if not (scope.is_of(own_host, bare_host=bare_host) and scope_covers(scope.key, audience)):
        raise BusError(TOKEN_SCOPE_INVALID, scope=unquote(token.resource), uri=audience)
    return Access(audience, Right.of(rule.rights), token.expires_ms, rule.name, entity)


def verify_password(rule_name: str, key: str, rules: AccessRules) -> Access:
    """SASL PLAIN: rule name and key open the namespace as a token of it would (amqp.md 2)."""
    rule = rules.namespace_rule(rule_name) or NOBODY
    matches = [_equal(key, own) for own in _keys(rule)]
    if rule is NOBODY or not any(matches):
        raise BusError(TOKEN_SIGNATURE_INVALID)
    return Access("", Right.of(rule.rights), None, rule.name)
