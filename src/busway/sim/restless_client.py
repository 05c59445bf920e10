"""A simulated application whose links come and go, and whose socket is full at times."""

from __future__ import annotations

from collections.abc import Sequence

from busway.amqp.events import Event, FlowReceived
from busway.sim.amqp_clients import AmqpClient
from busway.sim.amqp_session import AmqpSessionReceiver
from busway.sim.habits import Habits
from busway.sim.history import Holder
from busway.sim.restless_receiver import WINDOWS, RestlessReceiver, RestlessSessionReceiver
from busway.store.base import SubQueueKind

STALL_MAX_MS = 500
"""Less than the checkers grant to what is on its way."""


class RestlessClient(AmqpClient):
    def receive(
        self, queue: Holder, kind: SubQueueKind, habits: Habits, *, delete: bool
    ) -> RestlessReceiver:
        own = self.random.randrange(4) > 0
        window = self.random.choice(WINDOWS) if own else None
        return self.visit(queue, kind, habits, delete=delete, window=window)

    def visit(
        self,
        queue: Holder,
        kind: SubQueueKind,
        habits: Habits,
        *,
        delete: bool,
        window: int | None,
    ) -> RestlessReceiver:
        name = f"{self.name}-receiver-{len(self.receivers)}"
        receiver = RestlessReceiver(self, name, queue, kind, habits, delete=delete, window=window)
        self.receivers.append(receiver)
        receiver.attach()
        return receiver

    def receive_session(
        self,
        queue: Holder,
        habits: Habits,
        session_ids: Sequence[str],
        *,
        delete: bool,
        drains: bool = False,
    ) -> AmqpSessionReceiver:
        name = f"{self.name}-receiver-{len(self.receivers)}"
        receiver = RestlessSessionReceiver(
            self, name, queue, habits, session_ids, delete=delete, drains=drains
        )
        self.receivers.append(receiver)
        receiver.attach()
        return receiver

    def stall(self) -> None:
        """It reads nothing for a moment."""
        wire = self._wire
        if wire is not None:
            wire.stall()
            self.world.scheduler.after(self.random.randint(1, STALL_MAX_MS), wire.go_on)

    def _take(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, FlowReceived) and isinstance(event.link.context, RestlessReceiver):
                event.link.context.flowed()
        super()._take(events)
