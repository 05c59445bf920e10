"""Clients that speak AMQP over the virtual network, as applications do: a connection, links,
transfers, dispositions, credit, drains. What they saw goes into the same history as the others'.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from busway.amqp.connection import Connection, ConnectionSettings, Role
from busway.amqp.events import (
    Attached,
    Detached,
    Disposed,
    Event,
    Settled,
    TransferReceived,
)
from busway.amqp.session import Session
from busway.model.entities import Entity
from busway.model.message import MessageState, partition_of
from busway.sim.amqp_answers import OK, answer_of_status
from busway.sim.amqp_receiver import AmqpReceiver
from busway.sim.amqp_requests import AmqpRequests
from busway.sim.amqp_sender import AmqpSender, packed
from busway.sim.amqp_session import AmqpSessionReceiver
from busway.sim.amqp_transactions import AmqpTransactor, Compose
from busway.sim.direct import Setting
from busway.sim.direct_messages import Target
from busway.sim.habits import Habits, Parcel
from busway.sim.history import (
    Answer,
    CancelEnded,
    CancelStarted,
    Holder,
    Peeked,
    PeekStarted,
    SendEnded,
)
from busway.sim.network import Wire
from busway.sim.node import CREDENTIALS, HOSTNAME, Node
from busway.sim.wire_messages import WireMessage
from busway.store.base import SubQueueKey, SubQueueKind


class AmqpClient:
    """One application: it connects again whenever it lost its connection."""

    def __init__(
        self, setting: Setting, node: Node, name: str, compose: Compose | None = None
    ) -> None:
        """It uses transactions if it is told what to put into them."""
        self.setting = setting
        self.world = setting.world
        self.random = setting.world.random
        self.name = name
        self.closed = False
        self._node = node
        self._wire: Wire | None = None
        self.session: Session | None = None
        self.senders: dict[int, AmqpSender] = {}
        self.receivers: list[AmqpReceiver] = []
        self.requests: dict[tuple[int, SubQueueKind], AmqpRequests] = {}
        self.transactor = None if compose is None else AmqpTransactor(self, compose)
        self._connect()

    @property
    def _ends(self) -> list[AmqpSender | AmqpReceiver | AmqpRequests | AmqpTransactor]:
        """Whatever has links."""
        control = [] if self.transactor is None else [self.transactor]
        return [*self.senders.values(), *self.receivers, *self.requests.values(), *control]

    @property
    def idle(self) -> bool:
        return all(end.idle for end in self._ends)

    def _connect(self) -> None:
        if self.closed or self._wire is not None:
            return
        if not self._node.running:
            self.world.scheduler.after(500, self._connect)
            return
        settings = ConnectionSettings(
            container_id=self.name, hostname=HOSTNAME, credentials=CREDENTIALS
        )
        engine = Connection(settings, role=Role.CLIENT)
        engine.open()
        self.session = engine.begin()
        self._wire = self._node.connect(engine, self._take, self._lost)
        for end in self._ends:
            end.attach()

    def disconnect(self) -> None:
        """Without a word."""
        if self._wire is not None:
            self._wire.cut()

    def _lost(self) -> None:
        self._wire = self.session = None
        for end in self._ends:
            end.lost()
        if not self.closed:
            self.world.scheduler.after(self.random.randint(0, 1_000), self._connect)

    def close(self) -> None:
        self.closed = True
        self.disconnect()

    def _take(self, events: list[Event]) -> None:
        for event in events:
            match event:
                case (
                    Attached(link=link)
                    | Detached(link=link)
                    | Disposed(link=link)
                    | Settled(link=link)
                    | TransferReceived(link=link)
                ):
                    if link.context is not None:
                        link.context.take(event)
                case _:
                    pass

    # What an application does.

    def send(self, target: Target, parcel: Parcel) -> None:
        self.sender_to(target).send(parcel)

    def sender_to(self, target: Target) -> AmqpSender:
        sender = self.senders.get(target.incarnation)
        if sender is None:
            sender = self.senders[target.incarnation] = AmqpSender(self, target)
            sender.attach()
        return sender

    def schedule(self, target: Target, parcel: Parcel) -> None:
        """SCH-2: by a request, which is answered with the numbers that cancel them."""
        setting = self.setting
        outgoing, payloads = packed(setting, target, parcel)
        sends = outgoing.start(setting)

        def ended(answer: Answer) -> None:
            for send in sends:
                setting.history.record(SendEnded(send, answer))

        def done(status: int | None, body: dict[str, Any]) -> None:
            ended(answer_of_status(status))
            copies = setting.copies_of(target, parcel.traits)
            numbers = body.get("sequence-numbers", []) if status == OK else []
            for number, message in zip(numbers, outgoing.bodies, strict=False):
                if number:  # a duplicate has none
                    key = SubQueueKey(target.incarnation, partition_of(number), SubQueueKind.MAIN)
                    setting.scheduled(key, number, [message + higher for _, higher in copies])

        if not self.manage(target, SubQueueKind.MAIN).schedule(payloads, done):
            ended(Answer.REFUSED)

    def cancel(self, target: Target, number: int, bodies: Sequence[int]) -> None:
        cancel, record = self.setting.next_number(), self.setting.history.record

        def done(status: int | None, body: dict[str, Any]) -> None:
            record(CancelEnded(cancel, answer_of_status(status)))

        record(CancelStarted(cancel, tuple(bodies)))
        if not self.manage(target, SubQueueKind.MAIN).cancel(number, done):
            record(CancelEnded(cancel, Answer.REFUSED))

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
        receiver = AmqpSessionReceiver(
            self, name, queue, habits, session_ids, delete=delete, drains=drains
        )
        self.receivers.append(receiver)
        receiver.attach()
        return receiver

    def receive(
        self, queue: Holder, kind: SubQueueKind, habits: Habits, *, delete: bool
    ) -> AmqpReceiver:
        name = f"{self.name}-receiver-{len(self.receivers)}"
        receiver = AmqpReceiver(self, name, queue, kind, habits, delete=delete)
        self.receivers.append(receiver)
        receiver.attach()
        return receiver

    def manage(self, entity: Entity, kind: SubQueueKind) -> AmqpRequests:
        found = self.requests.get((entity.incarnation, kind))
        if found is None:
            found = self.requests[entity.incarnation, kind] = AmqpRequests(self, entity, kind)
            found.attach()
        return found

    def peek(self, queue: Holder, kind: SubQueueKind, from_number: int = 0) -> None:
        """Walks on until nothing is left (P-32)."""
        setting = self.setting
        peek = setting.next_number()
        setting.history.record(
            PeekStarted(peek, SubQueueKey(queue.incarnation, 0, kind), from_number)
        )

        def done(status: int | None, body: dict[str, Any]) -> None:
            if status != OK:
                return
            higher = setting.higher(queue.incarnation)
            messages = [
                WireMessage.read(bytes(each["message"]), higher) for each in body["messages"]
            ]
            numbers = tuple(each.number for each in messages)
            setting.history.record(Peeked(peek, tuple(each.body for each in messages), numbers))
            for each in messages:
                if each.state == MessageState.DEFERRED:
                    key = SubQueueKey(queue.incarnation, partition_of(each.number), kind)
                    setting.deferred.setdefault(key, {})[each.number] = each.body
            self.peek(queue, kind, numbers[-1] + 1)

        self.manage(queue, kind).peek(from_number, done)
