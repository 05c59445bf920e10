"""Bearer tokens of Entra ID and its like: JSON Web Tokens, in place of shared access signatures.

`keys` reads the public keys of issuers, `verifier` decides what a token opens, `dev_issuer` makes
tokens for development. They load libraries that a broker without issuers never needs, so they are
imported where there is one (D-33); this file imports nothing of that.
"""

from __future__ import annotations

from collections.abc import Callable

PREFIX = "bearer "
TOKEN_LENGTH_MAX = 16 * 1024
"""A stranger's bytes: real ones have 1 to 3 KB, with many groups about 10."""


class KeysAwaited(Exception):  # noqa: N818 - it tells of something to wait for
    """The key of a token is not known, and the issuer is being asked for its keys. `then` takes
    what is to be done when it has answered or failed."""

    def __init__(self, then: Callable[[Callable[[], None]], None]) -> None:
        super().__init__("the keys of the issuer are on their way")
        self.then = then


def token_in(header: str) -> str | None:
    """The token in the value of an `Authorization` header; None if it has something else.

    The administration client for Go sends it without the word `Bearer`.
    """
    if header[: len(PREFIX)].lower() == PREFIX:
        return header[len(PREFIX) :].strip()
    return header if looks_like_one(header) else None


def looks_like_one(text: str) -> bool:
    """Whether what a client put by CBS is meant as one: it has three parts. The `type` of put-token
    is not looked at, as for signatures (amqp.md 5)."""
    return text.count(".") == 2 and "=" not in text
