"""Links that tell of what passes, for traces: used instead of the plain ones where tracing is on.

Which classes a gateway uses is chosen when it is made, so a link of a gateway that does not trace
pays nothing. A span is for a run, not for a message: the sends that one commit made durable, the
messages that one delivery brought, the settlements that one answer was for.

The context of a message is what its sender wrote into its application properties, `traceparent` or
`Diagnostic-Id` (both in the form of W3C). The broker keeps it as it is and adds nothing. A run
whose messages are of one trace is a child of it; one of several is linked to each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Protocol

from busway.amqp.errors import ProtocolError
from busway.amqp.events import Disposed, TransferReceived
from busway.amqp.performatives import Outcome, Rejected, TransactionalState
from busway.amqp.sections import BATCH_FORMAT, walk_sections
from busway.broker.seams import Grant
from busway.gateway.receiver import ReceiverEndpoint
from busway.gateway.sender import SenderEndpoint
from busway.gateway.session_receiver import SessionReceiverEndpoint
from busway.model.errors import BusError
from busway.model.message import Message

APPLICATION_PROPERTIES = 0x74
KEPT_CONTEXTS_MAX = 10_000
"""Of messages that a link has delivered and that are not settled; the oldest go first."""

_CONTEXT = re.compile(
    rb"(?:traceparent|Diagnostic-Id)(?:\xa1.|\xb1....)"
    rb"(00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2})",
    re.DOTALL,
)


class Tracer(Protocol):
    def now_ns(self) -> int:
        """Nanoseconds since 1970."""

    def record(
        self,
        operation: str,
        entity: str,
        start_ns: int,
        contexts: Iterable[str],
        *,
        messages: int,
        outcome: str = "ok",
        error: str | None = None,
    ) -> None:
        """A run that is over now."""


class Endpoints:
    """Which classes a gateway makes of links."""

    sender: type[SenderEndpoint] = SenderEndpoint
    receiver: type[ReceiverEndpoint] = ReceiverEndpoint
    session_receiver: type[SessionReceiverEndpoint] = SessionReceiverEndpoint


def contexts_in(bare: bytes) -> set[str]:
    """Of a message: looked for among its application properties alone."""
    try:
        for code, _, start, stop in walk_sections(bare):
            if code == APPLICATION_PROPERTIES:
                return {each.decode() for each in _CONTEXT.findall(bare, start, stop)}
    except ProtocolError:
        return set()  # whoever reads the message says what is wrong with it
    return set()


def contexts_in_batch(payload: bytes) -> set[str]:
    return {each.decode() for each in _CONTEXT.findall(payload)}


def traced(tracer: Tracer) -> Endpoints:
    """Links that tell `tracer`."""

    class TracedSender(SenderEndpoint):
        """From the arrival of a message to the commit that made it durable."""

        def start(self) -> None:
            self._arrived: dict[int, tuple[int, set[str]]] = {}
            super().start()

        def transfer(self, event: TransferReceived) -> None:
            batch = event.message_format == BATCH_FORMAT
            found = contexts_in_batch(event.payload) if batch else contexts_in(event.payload)
            self._arrived[event.delivery_id] = (tracer.now_ns(), found)
            super().transfer(event)
            if event.delivery_id not in self._pending:
                # In a transaction, or answered already; a refusal has been told of.
                self._arrived.pop(event.delivery_id, None)

        def committed(self, tags: list[int]) -> None:
            known = [tag for tag in tags if tag in self._arrived and tag in self._pending]
            if known:
                arrived = [self._arrived.pop(tag) for tag in known]
                tracer.record(
                    "send",
                    self.entity.path,
                    min(start_ns for start_ns, _ in arrived),
                    set().union(*(found for _, found in arrived)),
                    messages=sum(len(self._pending[tag].messages) for tag in known),
                )
            super().committed(tags)

        def _finish(self, tag: int, error: BusError) -> None:
            arrived = self._arrived.pop(tag, None)
            if arrived is not None:
                self._refused(arrived, error)
            super()._finish(tag, error)

        def _reject(self, delivery_id: int, error: BusError) -> None:
            arrived = self._arrived.pop(delivery_id, None)
            if arrived is not None:
                self._refused(arrived, error)
            super()._reject(delivery_id, error)

        def _refused(self, arrived: tuple[int, set[str]], error: BusError) -> None:
            start_ns, found = arrived
            tracer.record(
                "send",
                self.entity.path,
                start_ns,
                found,
                messages=1,
                outcome="refused",
                error=error.text,
            )

    class Telling(ReceiverEndpoint):
        """From asking a partition's message to handing it over; from a decision to its answer."""

        _delivered: dict[bytes, set[str]]
        _decided: dict[int, tuple[int, set[str]]]

        def _deliver(self, grant: Grant, messages: list[Message]) -> None:
            start_ns = tracer.now_ns()
            super()._deliver(grant, messages)
            delivered, everything = self._kept()[0], set[str]()
            for message in messages:
                found = contexts_in(message.bare)
                everything |= found
                if found and message.lock_token is not None:
                    delivered[message.lock_token] = found
            while len(delivered) > KEPT_CONTEXTS_MAX:
                del delivered[next(iter(delivered))]
            tracer.record("receive", self.entity.path, start_ns, everything, messages=len(messages))

        def disposed(self, event: Disposed) -> None:
            delivered, decided = self._kept()
            start_ns, outcome = tracer.now_ns(), type(event.state).__name__.lower()
            if not isinstance(event.state, TransactionalState) and event.state is not None:
                found = [delivered.pop(token, set()) for token in event.tags]
                if event.settled:
                    self._settled_by_client(start_ns, found, outcome)
                else:
                    for delivery_id, each in zip(event.delivery_ids, found, strict=True):
                        decided.setdefault(delivery_id, (start_ns, each))
            super().disposed(event)

        def _settled_by_client(self, start_ns: int, found: list[set[str]], outcome: str) -> None:
            contexts = set[str]().union(*found)
            path = self.entity.path
            tracer.record("settle", path, start_ns, contexts, messages=len(found), outcome=outcome)

        def _answer(self, delivery_ids: list[int], state: Outcome) -> None:
            decided = self._kept()[1]
            known = [decided.pop(each) for each in delivery_ids if each in decided]
            super()._answer(delivery_ids, state)
            if known:
                error = state.error if isinstance(state, Rejected) else None
                tracer.record(
                    "settle",
                    self.entity.path,
                    min(start_ns for start_ns, _ in known),
                    set().union(*(found for _, found in known)),
                    messages=len(known),
                    outcome="refused" if error else type(state).__name__.lower(),
                    error=str(error.description) if error else None,
                )

        def _kept(self) -> tuple[dict[bytes, set[str]], dict[int, tuple[int, set[str]]]]:
            """Made at first use: a link may be given messages before it is wholly there."""
            if not hasattr(self, "_delivered"):
                self._delivered, self._decided = {}, {}
            return self._delivered, self._decided

    class TracedReceiver(Telling):
        pass

    class TracedSessionReceiver(Telling, SessionReceiverEndpoint):
        pass

    chosen = Endpoints()
    chosen.sender = TracedSender
    chosen.receiver = TracedReceiver
    chosen.session_receiver = TracedSessionReceiver
    return chosen
