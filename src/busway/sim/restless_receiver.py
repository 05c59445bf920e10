"""Receivers that do not sit still: AMQP sessions of their own with windows that open and shut, and
several frames in one write.

Their messages have one frame each, so a window counts deliveries: no more than it held can have
been on the way when the link ended, whatever its credit was (D-22).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from busway.amqp.session import Session
from busway.broker.seams import SettlementKind
from busway.sim.amqp_receiver import AmqpReceiver, ReceivingClient
from busway.sim.amqp_session import AmqpSessionReceiver
from busway.sim.habits import Habits
from busway.sim.history import Holder
from busway.store.base import SubQueueKind

if TYPE_CHECKING:
    from busway.sim.restless_client import RestlessClient

SHUT = 0
WINDOWS = (SHUT, SHUT, 1, 2, 5, 20)
WIDE = 5_000
RELEASED_MAX = 10


class OwnSession:
    """The AMQP session of one receiver, through all its connections."""

    def __init__(self, client: ReceivingClient, window: int) -> None:
        self._client = client
        self._session: Session | None = None
        self._window = window
        self.widest = self._window
        """Of all windows that the peer was told since the session began."""

    def session(self) -> Session | None:
        shared = self._client.session
        if shared is None:
            return None
        mine = self._session
        if mine is None or mine.connection is not shared.connection or not mine.is_writable:
            mine = self._session = shared.connection.begin()
            self.widest = self._window
        mine.settings = replace(mine.settings, incoming_window=self._window)
        return mine

    def set_window(self, window: int) -> None:
        self._window = window
        self.widest = max(self.widest, window)
        mine = self._session
        if mine is not None and mine.is_writable:
            mine.settings = replace(mine.settings, incoming_window=window)
            mine.write(mine.flow())

    def end(self) -> None:
        if self._session is not None:
            self._session.end()


class RestlessReceiver(AmqpReceiver):
    def __init__(
        self,
        client: RestlessClient,
        name: str,
        queue: Holder,
        kind: SubQueueKind,
        habits: Habits,
        *,
        delete: bool,
        window: int | None,
    ) -> None:
        """`window`: of its own session; None if it shares its client's."""
        super().__init__(client, name, queue, kind, habits, delete=delete)
        self._own = None if window is None else OwnSession(client, window)
        self._is_draining = False
        self.received = 0

    @property
    def is_attached(self) -> bool:
        return self._link is not None and self._link.is_attached

    def _session_of_link(self) -> Session | None:
        return super()._session_of_link() if self._own is None else self._own.session()

    def _under_way_max(self) -> int:
        credit = super()._under_way_max()
        return credit if self._own is None else min(credit, self._own.widest)

    def set_window(self, window: int) -> None:
        if self._own is not None:
            self._own.set_window(window)

    def set_credit(self, credit: int, *, drain: bool = False) -> None:
        super().set_credit(credit, drain=drain)
        self._is_draining = drain

    def flowed(self) -> None:
        """The peer has said something of the link; if it answers a drain, nothing is under way."""
        link = self._link
        if self._is_draining and link is not None and link.credit == 0:
            self._is_draining = False
            self._last_credit = 0

    def _received(self, event: object) -> None:
        self.received += 1
        super()._received(event)  # type: ignore[arg-type]

    def end_session(self) -> None:
        """With its session, if that is its own."""
        if self._own is None or not self.is_attached:
            self.detach()
            return
        self.closed = True
        self._credit_lost()
        self._own.end()

    def release_and(self, last_word: str) -> None:
        """As .NET's client does when it closes: what is cached is released, all in one write."""
        held = [each for each in self._in_hand.values() if each.link is self._link]
        for each in held[: self._random.randint(1, RELEASED_MAX)]:
            del self._in_hand[each.token]
            self._settle_on_link(each, SettlementKind.RELEASE)
        if last_word == "no credit":
            self.set_credit(0)
        elif last_word == "drain":
            self.set_credit(self._random.choice((0, 5)), drain=True)
        elif last_word == "end":
            self.end_session()
        else:
            self.detach()


class RestlessSessionReceiver(AmqpSessionReceiver):
    """It has an AMQP session of its own for each session that it asks for."""

    def __init__(
        self,
        client: RestlessClient,
        name: str,
        queue: Holder,
        habits: Habits,
        session_ids: Sequence[str],
        *,
        delete: bool,
        drains: bool = False,
    ) -> None:
        super().__init__(client, name, queue, habits, session_ids, delete=delete, drains=drains)
        self._own = None if drains else OwnSession(client, client.random.choice(WINDOWS))

    def _session_of_link(self) -> Session | None:
        return super()._session_of_link() if self._own is None else self._own.session()

    def _under_way_max(self) -> int:
        credit = super()._under_way_max()
        return credit if self._own is None else min(credit, self._own.widest)

    def set_window(self, window: int) -> None:
        """Only wider: what has to wait for a window that became narrower may come after the answer
        to a release, and its order could not be judged by what the client received (SES-4)."""
        if self._own is not None:
            self._own.set_window(max(window, self._own.widest))
