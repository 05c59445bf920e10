"""Bearer tokens of a node: the keys of its issuers, and what `--dev-tokens` needs.

| file in the data folder | is |
|---|---|
| `identity/signing.key` | signs the tokens of `--dev-tokens`; only its owner can read it |
| `identity/header` | the secret that applications show to get one; likewise |

Both are made once, so that tokens and environments outlive a restart. This module loads what only
bearer tokens need, and is imported where they are wanted (D-33).
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from busway.config import Configuration
from busway.gateway.bearer.dev_issuer import DevIssuer
from busway.gateway.bearer.keys import KeySource
from busway.gateway.bearer.verifier import BearerTokens
from busway.model.identity import DEV_ASSIGNMENTS, RoleAssignment
from busway.model.names import name_key
from busway.runtime.certificates import PRIVATE, PRIVATE_FOLDER, write
from busway.runtime.data_folder import StartError
from busway.runtime.issuer_keys import IssuerKeys

RSA_BITS = 2048
HEADER_BYTES = 24
FOLDER = "identity"
SIGNING_KEY = "signing.key"
HEADER = "header"


class Identity:
    """`start` it before anybody is let in."""

    def __init__(self, configuration: Configuration) -> None:
        settings = configuration.settings
        self._roles = {name_key(each.name): each.roles for each in configuration.namespaces}
        self._issuers = [IssuerKeys(each) for each in configuration.issuers]
        self.dev_issuer: DevIssuer | None = None
        self.header: str | None = None
        """The secret of `--dev-tokens`."""
        if settings.dev_tokens:
            folder = None if settings.memory else settings.data / FOLDER
            assignments = [each for roles in self._roles.values() for each in roles]
            key = rsa_key() if folder is None else kept_key(folder)
            self.dev_issuer = DevIssuer(key, assignments, os.urandom)
            self.header = settings.identity_header or (
                fresh_header() if folder is None else kept_header(folder)
            )

    async def start(self) -> None:
        """Raises `StartError`."""
        for each in self._issuers:
            await each.start()

    def stop(self) -> None:
        for each in self._issuers:
            each.stop()

    async def reload(self) -> None:
        for each in self._issuers:
            await each.reload()

    def tokens_of(self, namespace: str) -> BearerTokens:
        sources: list[KeySource] = [*self._issuers]
        roles: tuple[RoleAssignment, ...] = self._roles.get(name_key(namespace), ())
        if self.dev_issuer is not None:
            sources.append(self.dev_issuer)
            roles = (*roles, *DEV_ASSIGNMENTS)
        return BearerTokens(sources, roles)


def rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=RSA_BITS)


def fresh_header() -> str:
    return secrets.token_urlsafe(HEADER_BYTES)


def kept_key(folder: Path) -> rsa.RSAPrivateKey:
    path = folder / SIGNING_KEY
    try:
        if not path.exists():
            folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
            data = rsa_key().private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            write(path, data, PRIVATE)
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise StartError(f"--dev-tokens: {path}: {error.strerror}.") from error
    except (ValueError, TypeError) as error:
        raise StartError(
            f"--dev-tokens: {path} is no private key. Delete it to have a new one made."
        ) from error
    if not isinstance(key, rsa.RSAPrivateKey):
        raise StartError(f"--dev-tokens: {path} is no RSA key. Delete it to have a new one made.")
    return key


def kept_header(folder: Path) -> str:
    path = folder / HEADER
    try:
        if not path.exists():
            write(path, fresh_header().encode(), PRIVATE)
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StartError(f"--dev-tokens: {path} cannot be read or made: {error}.") from error
