"""Clients that speak AMQP over the virtual network, as applications do: a connection, links,
transfers, dispositions, credit, drains. What they saw goes into the same history as the others'.
"""

from __future__ import annotations

from typing import Any

from busway.amqp import codec
from busway.amqp.connection import Connection, ConnectionSettings, Role
from busway.amqp.events import (
    Attached,
    Detached,
    Disposed,
    Event,
    Settled,
    TransferReceived,
)
from busway.amqp.link import Link, LinkRole
from busway.amqp.performatives import (
    Accepted,
    DeliveryState,
    Rejected,
    Source,
    Target,
)
from busway.amqp.sections import BATCH_FORMAT
from busway.amqp.session import Session
from busway.model.entities import Queue
from busway.model.message import MessageState, partition_of
from busway.model.partitioning import partition_of_key
from busway.sim import amqp_requests
from busway.sim.amqp_receiver import AmqpReceiver, answer_of
from busway.sim.amqp_requests import AmqpRequests
from busway.sim.direct import Setting
from busway.sim.habits import Habits, Parcel
from busway.sim.history import (
    Answer,
    Peeked,
    PeekStarted,
    SendEnded,
    SendStarted,
    Violation,
)
from busway.sim.network import Wire
from busway.sim.node import CREDENTIALS, HOSTNAME, Node
from busway.sim.wire_messages import WireMessage, encode
from busway.store.base import SubQueueKey, SubQueueKind


class AmqpClient:
    """One application: it connects again whenever it lost its connection."""

    def __init__(self, setting: Setting, node: Node, name: str) -> None:
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
        self._connect()

    @property
    def idle(self) -> bool:
        return (
            all(sender.idle for sender in self.senders.values())
            and all(receiver.idle for receiver in self.receivers)
            and all(requests.idle for requests in self.requests.values())
        )

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
        for sender in self.senders.values():
            sender.attach()
        for receiver in self.receivers:
            receiver.attach()
        for requests in self.requests.values():
            requests.attach()

    def disconnect(self) -> None:
        """Without a word."""
        if self._wire is not None:
            self._wire.cut()

    def _lost(self) -> None:
        self._wire = self.session = None
        for sender in self.senders.values():
            sender.lost()
        for receiver in self.receivers:
            receiver.lost()
        for requests in self.requests.values():
            requests.lost()
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

    def send(self, queue: Queue, parcel: Parcel) -> None:
        sender = self.senders.get(queue.incarnation)
        if sender is None:
            sender = self.senders[queue.incarnation] = AmqpSender(self, queue)
            sender.attach()
        sender.send(parcel)

    def receive(
        self, queue: Queue, kind: SubQueueKind, habits: Habits, *, delete: bool
    ) -> AmqpReceiver:
        name = f"{self.name}-receiver-{len(self.receivers)}"
        receiver = AmqpReceiver(self, name, queue, kind, habits, delete=delete)
        self.receivers.append(receiver)
        receiver.attach()
        return receiver

    def manage(self, queue: Queue, kind: SubQueueKind) -> AmqpRequests:
        found = self.requests.get((queue.incarnation, kind))
        if found is None:
            found = self.requests[queue.incarnation, kind] = AmqpRequests(self, queue, kind)
            found.attach()
        return found

    def peek(self, queue: Queue, kind: SubQueueKind, from_number: int = 0) -> None:
        """Walks on until nothing is left (P-32)."""
        setting = self.setting
        peek = setting.next_number()
        setting.history.record(
            PeekStarted(peek, SubQueueKey(queue.incarnation, 0, kind), from_number)
        )

        def done(status: int | None, body: dict[str, Any]) -> None:
            if status != amqp_requests.OK:
                return
            messages = [WireMessage.read(bytes(each["message"])) for each in body["messages"]]
            numbers = tuple(each.number for each in messages)
            setting.history.record(Peeked(peek, tuple(each.body for each in messages), numbers))
            for each in messages:
                if each.state == MessageState.DEFERRED:
                    key = SubQueueKey(queue.incarnation, partition_of(each.number), kind)
                    setting.deferred.setdefault(key, {})[each.number] = each.body
            self.peek(queue, kind, numbers[-1] + 1)

        self.manage(queue, kind).peek(from_number, done)


class AmqpSender:
    def __init__(self, client: AmqpClient, queue: Queue) -> None:
        self._client = client
        self._setting = client.setting
        self._queue = queue
        self._link: Link | None = None
        self._tags = 0
        self._under_way: dict[int, int] = {}
        """Sends by delivery id, which is one for each life of the link."""

    @property
    def idle(self) -> bool:
        return not self._under_way

    def attach(self) -> None:
        session = self._client.session
        if session is not None:
            name = f"{self._client.name}-sender-{self._queue.path}"
            self._link = session.attach(
                name,
                LinkRole.SENDER,
                source=Source(name),
                target=Target(self._queue.path),
                rcv_settle_mode=1,
            )
            self._link.context = self

    def lost(self) -> None:
        self._link = None
        under_way, self._under_way = self._under_way, {}
        for send in under_way.values():
            self._setting.history.record(SendEnded(send, Answer.UNKNOWN))

    def send(self, parcel: Parcel) -> None:
        link = self._link
        if link is None or not link.is_attached or link.credit == 0:
            return
        setting, queue = self._setting, self._queue
        bodies = tuple(setting.next_number() for _ in range(parcel.count))
        pinned = None if parcel.key is None else partition_of_key(parcel.key, queue.partitions)
        send = setting.next_number()
        sizes = (1,) * parcel.count
        setting.history.record(
            SendStarted(send, queue.incarnation, bodies, sizes, parcel.ttl_ms, pinned)
        )
        messages = [encode(body, parcel.ttl_ms, parcel.key) for body in bodies]
        self._tags += 1
        tag = self._tags.to_bytes(4, "big")
        if len(messages) == 1:
            delivery_id = link.send(messages[0], tag)
        else:
            inner = b"".join(b"\x00\x53\x75" + codec.encode_value(each) for each in messages)
            delivery_id = link.send(inner, tag, message_format=BATCH_FORMAT)
        self._under_way[delivery_id] = send

    def take(self, event: Event) -> None:
        if isinstance(event, Disposed):
            for delivery_id in event.delivery_ids:
                send = self._under_way.pop(delivery_id, None)
                if send is None:
                    raise Violation("answers", f"delivery {delivery_id} was answered twice")
                self._setting.history.record(SendEnded(send, self._answer(event.state)))
        elif isinstance(event, Detached):
            self.lost()

    def _answer(self, state: DeliveryState | None) -> Answer:
        if isinstance(state, Accepted):
            return Answer.DONE
        if isinstance(state, Rejected):
            return answer_of(state.error)
        raise Violation("answers", f"a send was answered with {state}")
