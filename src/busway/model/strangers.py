"""What clients may have before they show a valid token, each and all together.

Whoever reaches a port can connect to it. Strangers have a small share of connections and memory of
their own, so that they cannot take the places of those who have a token.
"""

from __future__ import annotations

from dataclasses import dataclass

from busway.model.durations import SECOND_MS
from busway.model.limits import KIB, TOKEN_WAIT_MAX_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class StrangerShare:
    """`[strangers]` of a configuration file."""

    connections: int = 500
    """Of a namespace, by AMQP and WebSocket; beyond it the oldest is closed."""
    links: int = 16
    """Of one connection, at a time."""
    frames: int = 250
    """Of one connection, over its life; the SDKs need a few links, frames and kilobytes."""
    bytes: int = 64 * KIB
    token_wait_ms: int = TOKEN_WAIT_MAX_MS
    """Until the first valid token."""
    http_connections: int = 250
    """Of a node; beyond it the oldest is closed."""
    http_requests: int = 100
    """Of one connection, over its life; a browser loads the portal without a token."""
    http_bytes: int = 1024 * KIB
    """Of one connection, over its life: the body of a first request comes before its token was
    looked at."""
    http_idle_ms: int = 20 * SECOND_MS
    """Between two requests of one connection."""


RANGES: dict[str, tuple[int, int]] = {
    "connections": (1, 5_000),
    "links": (4, 1_000),
    "frames": (50, 1_000_000),
    "bytes": (16 * KIB, 1024 * KIB * KIB),
    "token_wait_ms": (SECOND_MS, 3_600 * SECOND_MS),
    "http_connections": (1, 5_000),
    "http_requests": (1, 1_000_000),
    "http_bytes": (512 * KIB, 1024 * KIB * KIB),
    "http_idle_ms": (SECOND_MS, 120 * SECOND_MS),
}
"""Least and most of each. With less than the least the SDKs would not get in."""
