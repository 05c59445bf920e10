"""Who may do what by bearer tokens: issuers that are trusted, and the roles of their identities.

Names and meaning of the roles are Azure's. An assignment gives a role to whoever a claim of a
token names, in a whole namespace or in some of its entities. Nobody has a role by default.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

AUDIENCE = "https://servicebus.azure.net"
"""What SDKs ask a token for; Entra writes it with or without a slash at the end."""
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
"""That can be allowed. Those with a shared secret cannot: the public key would be the secret."""
DEV_ISSUER = "https://busway.invalid/dev-tokens"
"""Of the tokens that the broker issues itself (`--dev-tokens`); the name can belong to nobody."""


class Role(Enum):
    OWNER = "Azure Service Bus Data Owner"
    SENDER = "Azure Service Bus Data Sender"
    RECEIVER = "Azure Service Bus Data Receiver"

    @property
    def rights(self) -> tuple[str, ...]:
        return ROLE_RIGHTS[self]


ROLE_RIGHTS = {
    Role.OWNER: ("Manage", "Send", "Listen"),
    Role.SENDER: ("Send",),
    Role.RECEIVER: ("Listen",),
}

CLAIMS = {
    "app": ("appid", "azp"),
    "object": ("oid",),
    "subject": ("sub",),
    "group": ("groups",),
    "token_role": ("roles",),
    "token_scope": ("scp",),
}
"""How an assignment names an identity, and the claims that have it in tokens. The first that a
token has counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Issuer:
    issuer: str
    """The exact text of `iss`."""
    jwks_file: Path | None = None
    jwks_url: str | None = None
    """One of the two is there."""
    audiences: tuple[str, ...] = (AUDIENCE,)
    """Beside the host names of a namespace."""
    algorithms: tuple[str, ...] = ("RS256",)
    clock_skew_ms: int = 60_000
    """How far the issuer's clock may be from ours."""
    refresh_ms: int = 3_600_000
    """How often keys are fetched again from `jwks_url`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleAssignment:
    role: Role
    claim: str
    """One of `CLAIMS`."""
    value: str
    issuer: str | None = None
    """None: of the only one that there is."""
    entities: tuple[str, ...] = ()
    """Queues, topics, or subscriptions as `topic/Subscriptions/name`; none: the whole namespace."""


DEV_ASSIGNMENTS = tuple(
    RoleAssignment(role=role, claim="token_role", value=role.value, issuer=DEV_ISSUER)
    for role in Role
)
"""Tokens of `--dev-tokens` name Azure's roles themselves."""
