"""Tokens for development, as a managed identity would give them (`--dev-tokens`).

They are like those of Entra ID, and signed with a key of this broker's own. Who asks for one in the
name of an application gets one for that application: if the configuration gives it roles, it has
these; otherwise it owns everything, as who asks in nobody's name does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import NamedTuple

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from busway.gateway.auth import OwnHost, scope_of
from busway.gateway.bearer.keys import KeySet, VerifyingKey
from busway.model.errors import ARGUMENT_ERROR, BusError
from busway.model.identity import AUDIENCE, DEV_ISSUER, Issuer, Role, RoleAssignment

ALGORITHM = "RS256"
LASTS_S = 3_600
TENANT = "00000000-0000-0000-0000-000000000000"
NOBODY = "busway-dev"
CLIENT_ID_MAX = 256


class IssuedToken(NamedTuple):
    text: str
    resource: str
    client_id: str
    expires_s: int


class DevIssuer:
    """Makes tokens, and is where their key comes from (`KeySource`)."""

    issuer = Issuer(issuer=DEV_ISSUER, algorithms=(ALGORITHM,), clock_skew_ms=0)
    problem = None

    def __init__(
        self,
        key: rsa.RSAPrivateKey,
        assignments: Iterable[RoleAssignment],
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._key = key
        self._random_bytes = random_bytes
        public = key.public_key()
        written = public.public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        self.kid = hashlib.sha256(written).hexdigest()[:32]
        self.keys = KeySet((VerifyingKey(self.kid, public, ALGORITHM),))
        self._with_roles = {
            each.value for each in assignments if (each.claim, each.issuer) == ("app", DEV_ISSUER)
        }

    def refresh(self, then: Callable[[], None]) -> bool:
        return False

    def issue(
        self, resource: str, client_id: str | None, clock_ms: int, own_host: OwnHost
    ) -> IssuedToken:
        """Raises `BusError` for what is no resource of this broker."""
        scope = scope_of(resource)
        if resource.rstrip("/") != AUDIENCE and not (scope.has_scheme and own_host(scope.host)):
            raise BusError(
                ARGUMENT_ERROR,
                detail=f"The resource is '{resource[:100]}', and --dev-tokens gives tokens for "
                f"{AUDIENCE} only.",
            )
        if client_id is not None and not 0 < len(client_id) <= CLIENT_ID_MAX:
            raise BusError(
                ARGUMENT_ERROR, detail=f"A client id has 1 to {CLIENT_ID_MAX} characters."
            )
        now_s = clock_ms // 1000
        app = client_id or NOBODY
        claims = {
            "iss": DEV_ISSUER,
            "aud": resource,
            "iat": now_s,
            "nbf": now_s,
            "exp": now_s + LASTS_S,
            "appid": app,
            "oid": app,
            "sub": app,
            "tid": TENANT,
            "ver": "1.0",
            "jti": self._random_bytes(16).hex(),
        }
        if app not in self._with_roles:
            claims["roles"] = [Role.OWNER.value]
        text = jwt.encode(claims, self._key, ALGORITHM, headers={"kid": self.kid})
        return IssuedToken(text, resource, app, now_s + LASTS_S)
