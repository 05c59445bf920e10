"""An issuer of bearer tokens for tests: it signs what a test wants, right or wrong."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from functools import cache
from typing import Any

from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm
from jwt.api_jws import PyJWS

from busway.gateway.bearer.keys import KeySet, parse_key_set
from busway.model.identity import AUDIENCE, Issuer

ISSUER = "https://sts.example/tenant/"


@cache
def rsa_key(name: str) -> rsa.RSAPrivateKey:
    """One for each name, the same in all tests of a process: making one takes long."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def jwk(name: str, **others: Any) -> dict[str, Any]:
    public = json.loads(RSAAlgorithm.to_jwk(rsa_key(name).public_key()))
    return {**public, "kid": name, "use": "sig", **others}


def key_set(*names: str) -> bytes:
    return json.dumps({"keys": [jwk(name) for name in names]}).encode()


def token(
    clock_ms: int,
    key: str = "first",
    *,
    header: dict[str, Any] | None = None,
    algorithm: str = "RS256",
    **claims: Any,
) -> str:
    """One that is good, but for what a test says; a claim that is None is left out."""
    now_s = clock_ms // 1000
    usual = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "nbf": now_s - 60,
        "exp": now_s + 3600,
        "appid": "shop",
        "sub": "subject-of-shop",
    }
    said = {name: value for name, value in {**usual, **claims}.items() if value is not None}
    headers = {"kid": key, **(header or {})}
    headers = {name: value for name, value in headers.items() if value is not None}
    payload = json.dumps(said).encode()
    return PyJWS().encode(payload, rsa_key(key), algorithm, headers)


def by_hand(header: dict[str, Any], claims: dict[str, Any], signature: bytes = b"") -> str:
    """What no library makes."""
    parts = [json.dumps(header).encode(), json.dumps(claims).encode(), signature]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


class Source:
    """Keys that a test exchanges; who waits for them is called when the test says so."""

    def __init__(self, *names: str, **options: Any) -> None:
        self.issuer = Issuer(issuer=ISSUER, jwks_url="https://sts.example/keys", **options)
        self.keys = parse_key_set(key_set(*names)) if names else KeySet()
        self.problem: str | None = None if names else "nobody answers"
        self.can_refresh = True
        self.waiting: list[Callable[[], None]] = []

    def refresh(self, then: Callable[[], None]) -> bool:
        if self.can_refresh:
            self.waiting.append(then)
        return self.can_refresh

    def answer(self, *names: str) -> None:
        self.keys, self.problem = parse_key_set(key_set(*names)), None
        self.can_refresh = False
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            each()
