"""What one side of a connection is told before its first byte, and the limits on its peer.

Everything that a stranger can make us keep has a number here. The defaults are those of the
service where they are known (amqp.md 4) and generous where they are not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from busway.amqp.partial import PartialRoom

# AMQP 2.4.1: no peer may ask for frames smaller than this.
MIN_MAX_FRAME_SIZE = 512
# A shorter promise would keep us busy with nothing but empty frames.
MIN_IDLE_TIMEOUT_MS = 100


class Role(Enum):
    """Who speaks first: the client opens, the server answers."""

    CLIENT = "client"
    SERVER = "server"


def refuse_credentials(mechanism: str, initial_response: bytes | None) -> bool:
    """The default of `ConnectionSettings.authenticate`: nobody is known here."""
    return False


@dataclass(frozen=True, slots=True)
class StrangerLimits:
    """What a peer may do before it has proved who it is.

    The SDKs need a few links, frames and kilobytes until their first token is accepted.
    """

    bytes_max: int = 65_536
    frames_max: int = 250
    # At a time.
    links_max: int = 16


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    container_id: str
    hostname: str | None = None
    max_frame_size: int = 65_536
    channel_max: int = 4_999
    # E12: Python takes it over as its own limit, so never below 255.
    handle_max: int = 255
    # Python's keep-alive thread wakes every 30 s only: anything shorter loses it (amqp.md 4).
    idle_timeout_ms: int = 120_000
    incoming_window: int = 5_000
    outgoing_window: int = 5_000
    properties: dict[Any, Any] | None = None

    # Limits on what the peer can make us keep.
    # A delivery that grows larger is drained and reported as `TransferTooLarge`; a link may name a
    # lower limit of its own when it is accepted.
    max_message_size: int = 1_048_576
    # Sum over all links of the deliveries whose last frame has not come yet.
    max_partial_bytes: int = 67_108_864
    # The same over all connections that share it.
    partial_room: PartialRoom | None = None
    # Over all sessions of the connection, links that are being refused included.
    max_links: int = 5_000

    # None: the peer is trusted from the first byte.
    stranger: StrangerLimits | None = None

    # SASL, server side: what is offered, in this order (amqp.md 2). PLAIN and EXTERNAL are asked
    # of `authenticate`; ANONYMOUS and MSSBCBS prove nothing, a token on `$cbs` must follow.
    mechanisms: tuple[str, ...] = ("MSSBCBS", "PLAIN", "ANONYMOUS")
    authenticate: Callable[[str, bytes | None], bool] = refuse_credentials
    # A client that starts with `AMQP 0 1 0 0` counts as anonymous (amqp.md 2, item 6).
    allow_without_sasl: bool = True

    # SASL, client side: PLAIN if there are credentials, else ANONYMOUS.
    credentials: tuple[str, str] | None = None
    skip_sasl: bool = False
