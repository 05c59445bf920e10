"""Bytes of a peer that are not handled yet, and what a peer may send that has proved nothing."""

from __future__ import annotations

from typing import NoReturn

from busway.amqp.errors import RESOURCE_LIMIT_EXCEEDED, ProtocolError
from busway.amqp.settings import StrangerLimits


class Input:
    """What was read, in order: a piece that is being handled, and what came behind it."""

    __slots__ = ("_rest", "at", "needed", "piece")

    def __init__(self, needed: int) -> None:
        self.piece = b""
        self.at = 0
        """How much of the piece is handled."""
        self.needed = needed
        """How many bytes it takes until the rest can be a whole frame."""
        self._rest = bytearray()

    def feed(self, data: bytes) -> None:
        if self.piece or self._rest:
            self._rest += data
        else:
            self.piece = data

    def __bool__(self) -> bool:
        """Whether there may be something whole in it."""
        return bool(self.piece or len(self._rest) >= self.needed)

    def current(self) -> tuple[bytes, int]:
        """The piece that is handled now, and from where on."""
        if not self.piece:
            self.piece = bytes(self._rest)
            self._rest.clear()
        return self.piece, self.at

    def handled_up_to(self, after: int) -> None:
        """What is no whole frame yet waits for more."""
        piece, at = self.piece, self.at
        if after != at:
            self.needed = 1  # what was needed is here; how long the next frame is, nobody knows
        if after not in (at, len(piece)):
            self.at = after
            return
        if after == at:
            self._rest[:0] = piece[at:] if at else piece
        self.piece, self.at = b"", 0

    def clear(self) -> None:
        self.piece, self.at = b"", 0
        self._rest.clear()


class StrangerQuota:
    """What is left of a stranger's limits, over the whole life of its connection."""

    __slots__ = ("_bytes_left", "_frames_left", "_limits")

    def __init__(self, limits: StrangerLimits) -> None:
        self._limits = limits
        self._bytes_left = limits.bytes_max
        self._frames_left = limits.frames_max

    @property
    def links_max(self) -> int:
        return self._limits.links_max

    def charge_bytes(self, count: int) -> None:
        self._bytes_left -= count
        if self._bytes_left < 0:
            self._refuse(f"more than {self._limits.bytes_max} bytes")

    def charge_frame(self) -> None:
        self._frames_left -= 1
        if self._frames_left < 0:
            self._refuse(f"more than {self._limits.frames_max} frames")

    def _refuse(self, what: str) -> NoReturn:
        raise ProtocolError(
            RESOURCE_LIMIT_EXCEEDED,
            f"{what} from a client that has shown no valid token; put a token on $cbs, or log in "
            "with SASL PLAIN, before anything else",
        )
