"""The public keys of an issuer: a JSON Web Key Set (RFC 7517), taken apart.

Only keys that can verify are kept: no shared secrets, none that are meant for encryption, none
that a small computer could break. A set without any such key is refused as a whole, because it
would let nobody in.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt import PyJWK
from jwt.exceptions import PyJWTError

from busway.model.identity import Issuer

RSA_BITS_MIN = 2048
KEYS_MAX = 100
CURVES = {"ES256": "secp256r1", "ES384": "secp384r1", "ES512": "secp521r1"}

PublicKey = RSAPublicKey | EllipticCurvePublicKey


class KeySetError(Exception):
    """One sentence: why these are no keys that can be used."""


@dataclass(frozen=True, slots=True)
class VerifyingKey:
    kid: str | None
    key: PublicKey
    algorithm: str | None
    """The only one that the issuer uses it for; None: any that fits it."""

    def fits(self, algorithm: str) -> bool:
        """Whether a signature by this algorithm can be one of this key."""
        if self.algorithm is not None:
            return self.algorithm == algorithm
        if isinstance(self.key, RSAPublicKey):
            return algorithm[:2] in ("RS", "PS")
        return CURVES.get(algorithm) == self.key.curve.name


@dataclass(frozen=True, slots=True)
class KeySet:
    keys: tuple[VerifyingKey, ...] = ()

    def find(self, kid: str | None) -> VerifyingKey | None:
        """By its id; a token that names none is of the only key that there is."""
        if kid is None:
            return self.keys[0] if len(self.keys) == 1 else None
        return next((key for key in self.keys if key.kid == kid), None)


class KeySource(Protocol):
    """Where the keys of an issuer come from."""

    @property
    def issuer(self) -> Issuer: ...

    @property
    def keys(self) -> KeySet:
        """Those that are known now."""

    @property
    def problem(self) -> str | None:
        """Why there are none; None if there are."""

    def refresh(self, then: Callable[[], None]) -> bool:
        """Ask the issuer again, off this thread; `then` is called when it has answered or failed.
        False if it was asked a moment ago, or too many wait: then nothing is called."""


def parse_key_set(data: bytes) -> KeySet:
    """Raises `KeySetError`."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise KeySetError("it is not JSON") from None
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise KeySetError("it is no JSON Web Key Set: it has no list 'keys'")
    if len(listed) > KEYS_MAX:
        raise KeySetError(f"it has {len(listed)} keys, and {KEYS_MAX} may be at most")
    found = tuple(_usable(listed))
    if not found:
        raise KeySetError("it has no RSA or EC key for signatures")
    return KeySet(found)


def _usable(listed: list[Any]) -> Iterable[VerifyingKey]:
    for each in listed:
        if not isinstance(each, dict) or each.get("kty") not in ("RSA", "EC"):
            continue
        uses = each.get("key_ops", ["verify"])
        if each.get("use", "sig") != "sig" or not (isinstance(uses, list) and "verify" in uses):
            continue
        kid, algorithm = each.get("kid"), each.get("alg")
        # Without what is private, should a careless issuer publish it.
        public = {name: each[name] for name in ("kty", "n", "e", "crv", "x", "y") if name in each}
        try:
            key = PyJWK.from_dict(public, algorithm="RS256" if each["kty"] == "RSA" else None).key
        except (PyJWTError, ValueError, TypeError):
            continue  # an issuer may have kinds of keys that we do not know
        if isinstance(key, RSAPublicKey) and key.key_size < RSA_BITS_MIN:
            continue
        if isinstance(key, RSAPublicKey | EllipticCurvePublicKey):
            yield VerifyingKey(
                kid if isinstance(kid, str) else None,
                key,
                algorithm if isinstance(algorithm, str) else None,
            )
