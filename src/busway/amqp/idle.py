"""Silence on a connection (AMQP 2.4.5): when to break our own, when to give up on the peer.

Time comes in only with `check`, so nothing here knows when a byte moved, only between which two
checks. Both rules are therefore counted in checks, four to a time-out:

* ours: a check that finds nothing sent since the last one sends an empty frame, so that no gap is
  longer than two checks, half of what the peer tolerates;
* the peer's: five checks in a row that found nothing received are more than the time-out. Counting
  checks, not time, is fair after our own process stood still: then it is one check that was late.
"""

from __future__ import annotations

CHECKS_PER_TIMEOUT = 4
SILENT_CHECKS_ALLOWED = 4


class IdleWatch:
    __slots__ = (
        "_due_receive_ms",
        "_due_send_ms",
        "_silent_checks",
        "has_received",
        "has_sent",
        "receive_every_ms",
        "send_every_ms",
    )

    def __init__(self, own_timeout_ms: int) -> None:
        self.receive_every_ms = own_timeout_ms // CHECKS_PER_TIMEOUT
        self.send_every_ms = 0
        self.has_received = False
        self.has_sent = False
        self._due_receive_ms: int | None = None
        self._due_send_ms: int | None = None
        self._silent_checks = 0

    def promise(self, peer_timeout_ms: int | None) -> None:
        """The peer has said how long it tolerates silence; null or zero means for ever."""
        self.send_every_ms = (peer_timeout_ms or 0) // CHECKS_PER_TIMEOUT
        self._due_send_ms = None

    def due_ms(self, now_ms: int) -> int | None:
        """When `check` must be called next, None for never."""
        if self.receive_every_ms and self._due_receive_ms is None:
            self._due_receive_ms = now_ms + self.receive_every_ms
        if self.send_every_ms and self._due_send_ms is None:
            self._due_send_ms = now_ms + self.send_every_ms
        due = [ms for ms in (self._due_receive_ms, self._due_send_ms) if ms is not None]
        return min(due, default=None)

    def check(self, now_ms: int) -> tuple[bool, bool]:
        """Whether to send an empty frame now, and whether the peer has been silent too long."""
        self.due_ms(now_ms)
        must_send = is_silent = False
        if self._due_send_ms is not None and now_ms >= self._due_send_ms:
            must_send = not self.has_sent
            self.has_sent = False
            self._due_send_ms = now_ms + self.send_every_ms
        if self._due_receive_ms is not None and now_ms >= self._due_receive_ms:
            self._silent_checks = 0 if self.has_received else self._silent_checks + 1
            self.has_received = False
            is_silent = self._silent_checks > SILENT_CHECKS_ALLOWED
            self._due_receive_ms = now_ms + self.receive_every_ms
        return must_send, is_silent
