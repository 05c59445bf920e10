"""The clock of a server under test."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from busway.testing.requests import Requests


class Clock:
    """Moves the time of a server that was started with `--allow-clock`.

    When `advance` returns, everything that fell due on the way is done and committed: scheduled
    messages are active, locks and sessions are lost, messages have expired, idle entities are gone.
    The machine's clock stays as it is, and so do tokens and your own program's `datetime.now()`:
    write due times as `clock.now() + timedelta(...)` once the clock was moved.
    """

    def __init__(self, requests: Callable[[], Requests]) -> None:
        self._requests = requests

    def now(self) -> datetime:
        """What time it is for messages."""
        return _when(self._reading()["now_ms"])

    @property
    def ahead(self) -> timedelta:
        """How far it was moved."""
        return timedelta(milliseconds=self._reading()["ahead_ms"])

    def advance(
        self,
        span: timedelta | None = None,
        /,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
    ) -> datetime:
        """`advance(minutes=10)`, `advance(timedelta(days=14))`; the new time."""
        by = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        by += span or timedelta()
        if by < timedelta():
            raise ValueError(f"The clock goes ahead only, and {by} is back; reset() begins anew.")
        body = {"advance_ms": round(by / timedelta(milliseconds=1))}
        return _when(self._requests().json("POST", "/$busway/clock", body)["now_ms"])

    def advance_to(self, time: datetime) -> datetime:
        """To a moment, which must have a time zone; nothing happens if it is over."""
        if time.tzinfo is None:
            raise ValueError(f"{time} has no time zone; clock.now() gives one with UTC.")
        return self.advance(max(time - self.now(), timedelta()))

    def _reading(self) -> Any:
        return self._requests().json("GET", "/$busway/clock")


def _when(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)
