"""Clients that speak AMQP over the virtual network, as applications do: a connection, links,
transfers, dispositions, credit, drains. What they saw goes into the same history as the others'.
"""

from __future__ import annotations

from dataclasses import dataclass
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
    Error,
    Modified,
    Rejected,
    Released,
    Source,
    Target,
)
from busway.amqp.sections import BATCH_FORMAT
from busway.amqp.session import Session
from busway.amqp.types import Symbol
from busway.broker.seams import SettlementKind
from busway.model.entities import Queue
from busway.model.errors import LOCK_LOST, NOT_FOUND, QUOTA_EXCEEDED
from busway.model.message import MessageState, partition_of
from busway.model.partitioning import partition_of_key
from busway.sim import amqp_requests, habits
from busway.sim.amqp_requests import AmqpRequests
from busway.sim.direct import Setting
from busway.sim.habits import Habits, Parcel
from busway.sim.history import (
    Answer,
    Delivered,
    Peeked,
    PeekStarted,
    RemovalUnknown,
    Renewed,
    SendEnded,
    SendStarted,
    SettleEnded,
    SettleStarted,
    Violation,
)
from busway.sim.network import DELAY_MAX_MS, Wire
from busway.sim.node import CREDENTIALS, HOSTNAME, Node
from busway.sim.wire_messages import WireMessage, encode
from busway.store.base import SubQueueKey, SubQueueKind

DEFINITE = {kind.condition for kind in (LOCK_LOST, NOT_FOUND, QUOTA_EXCEEDED)}
"""Conditions that say by themselves that nothing was done; *server busy* does not."""


def answer_of(error: Error | None) -> Answer:
    definite = error is not None and error.condition in DEFINITE
    return Answer.REFUSED if definite else Answer.UNKNOWN


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


@dataclass(slots=True)
class HeldDelivery:
    delivery_id: int
    body: int
    number: int
    key: SubQueueKey
    token: bytes
    link: Link | None
    """None if it was fetched by its number."""


class AmqpReceiver:
    def __init__(
        self,
        client: AmqpClient,
        name: str,
        queue: Queue,
        kind: SubQueueKind,
        habits: Habits,
        *,
        delete: bool,
    ) -> None:
        self._client = client
        self._setting = client.setting
        self._random = client.random
        self._habits = habits
        self.name = name
        self.queue = queue
        self.kind = kind
        self.delete = delete
        self.closed = False
        self.keeps_credit = 0
        """Filled up again whenever half of it is used."""
        self._lives = 0
        self._last_credit = 0
        self._link: Link | None = None
        self._settling: dict[int, tuple[int, HeldDelivery, SettlementKind]] = {}
        """By delivery id: the settlement under way."""

    @property
    def idle(self) -> bool:
        return not self._settling

    # The link.

    def attach(self) -> None:
        session = self._client.session
        if session is None or self.closed:
            return
        self._lives += 1
        dead = self.kind is SubQueueKind.DEAD_LETTER
        path = f"{self.queue.path}/$DeadLetterQueue" if dead else self.queue.path
        self._link = session.attach(
            f"{self.name}-{self._lives}",
            LinkRole.RECEIVER,
            source=Source(path),
            target=Target(self.name),
            snd_settle_mode=1 if self.delete else 0,
            rcv_settle_mode=0 if self.delete else 1,
        )
        self._link.context = self

    def detach(self) -> None:
        self.closed = True
        if self._link is not None:
            self._credit_lost()
            self._link.detach()

    def lost(self) -> None:
        if self._link is not None:
            self._credit_lost()
        self._link = None
        settling, self._settling = self._settling, {}
        for settlement, _, _ in settling.values():
            self._setting.history.record(SettleEnded(settlement, Answer.UNKNOWN))

    def _credit_lost(self) -> None:
        """What was being removed for the link may be lost with it: at most its credit (D-6)."""
        if self.delete and self._last_credit:
            self._setting.history.record(
                RemovalUnknown(self.queue.incarnation, (), self._last_credit)
            )
        self._last_credit = 0

    # Credit.

    def set_credit(self, credit: int, *, drain: bool = False) -> None:
        link = self._link
        if link is None or not link.is_attached:
            return
        if self.delete:
            credit = max(credit, link.credit)  # taken back, it may cost what is on its way (D-6)
        link.set_credit(credit, drain=drain)
        self._last_credit = link.credit

    # What arrives.

    def take(self, event: Event) -> None:
        match event:
            case Attached():
                if self.keeps_credit:
                    self.set_credit(self.keeps_credit)
            case TransferReceived():
                self._received(event)
            case Settled():
                for delivery_id in event.delivery_ids:
                    self._settled(delivery_id, event.state)
            case Detached():
                self.lost()
            case _:
                pass

    def _received(self, event: TransferReceived) -> None:
        message = WireMessage.read(event.payload)
        if event.settled is not self.delete:
            raise Violation("answers", f"{self.name}: {message} is settled: {event.settled}")
        self._last_credit = event.link.credit
        if self.keeps_credit and event.link.credit < self.keeps_credit // 2:
            self.set_credit(self.keeps_credit)
        token = None if event.settled else event.tag
        key = self._record(message, token, deferred=False)
        if token is not None:
            held = HeldDelivery(
                event.delivery_id, message.body, message.number, key, token, event.link
            )
            self._decide_later(held)

    def _record(self, message: WireMessage, token: bytes | None, *, deferred: bool) -> SubQueueKey:
        key = SubQueueKey(self.queue.incarnation, partition_of(message.number), self.kind)
        store = self._setting.world.stores[self.queue.placement[key.partition]]
        recently = self._setting.world.now_ms() - store.disturbed_ms <= 2 * DELAY_MAX_MS
        self._setting.history.record(
            Delivered(
                receiver=f"{self.name}-{self._lives}",
                key=key,
                body=message.body,
                number=message.number,
                delivery_count=message.delivery_count,
                enqueued_ms=message.enqueued_ms,
                token=token,
                locked_until_ms=message.locked_until_ms,
                epoch=int.from_bytes(token[2:6], "little") if token else store.broker.epoch,
                # What was sent before a disturbance may arrive after it: then order means nothing.
                disturbances=-message.body if recently else store.disturbances,
                deferred=deferred,
                properties=message.properties,
            )
        )
        return key

    # What is done with it.

    def _decide_later(self, held: HeldDelivery) -> None:
        delay_ms = self._habits.delay_ms(self._random, self.queue.lock_duration_ms)
        self._setting.world.scheduler.after(delay_ms, lambda: self._decide(held))

    def _decide(self, held: HeldDelivery) -> None:
        if self._random.randrange(100) < self._habits.renews_percent and self._renew(held):
            return
        kind = self._habits.outcome(self._random)
        if kind is None:
            return
        if kind is SettlementKind.DEAD_LETTER and self.kind is not SubQueueKind.MAIN:
            kind = SettlementKind.COMPLETE
        if held.link is None or self._random.randrange(10) == 0:
            self._settle_by_request(held, kind)
        else:
            self._settle_on_link(held, kind)

    def _renew(self, held: HeldDelivery) -> bool:
        def done(status: int | None, body: dict[str, Any]) -> None:
            if status == amqp_requests.OK:
                (until_ms,) = body["expirations"]
                self._setting.history.record(Renewed(held.body, held.token, int(until_ms)))
            self._decide_later(held)

        return self._client.manage(self.queue, self.kind).renew(held.token, done)

    def _settle_by_request(self, held: HeldDelivery, kind: SettlementKind) -> None:
        """LOCK-6: a token is good on any connection."""
        _, reason = habits.settlement(kind, self._random)
        number = self._setting.next_number()

        def done(status: int | None, body: dict[str, Any]) -> None:
            self._ended(number, held, kind, amqp_requests.answer_of(status))

        # Recorded first, because a lost connection may answer at once.
        requests = self._client.manage(self.queue, self.kind)
        self._setting.history.record(
            SettleStarted(number, held.key, held.body, held.token, kind, reason)
        )
        if not requests.settle(held.token, kind, reason, done):
            self._setting.history.record(SettleEnded(number, Answer.REFUSED))

    def _settle_on_link(self, held: HeldDelivery, kind: SettlementKind) -> None:
        link = held.link
        if link is None or link is not self._link or not link.is_attached:
            return
        if held.delivery_id in self._settling:
            return
        settlement, reason = habits.settlement(kind, self._random)
        number = self._setting.next_number()
        self._settling[held.delivery_id] = (number, held, kind)
        self._setting.history.record(
            SettleStarted(number, held.key, held.body, held.token, kind, reason)
        )
        link.settle([held.delivery_id], outcome(kind, settlement.changes), settled=False)

    def _settled(self, delivery_id: int, state: DeliveryState | None) -> None:
        found = self._settling.pop(delivery_id, None)
        if found is None:
            return  # of a link that is gone
        number, held, kind = found
        error = state.error if isinstance(state, Rejected) else None
        answer = Answer.DONE if error is None else answer_of(error)
        if error is None and type(state) is not type(outcome(kind, {})):
            raise Violation("answers", f"{kind} of {held.body} was answered with {state}")
        self._ended(number, held, kind, answer)

    def _ended(
        self, settlement: int, held: HeldDelivery, kind: SettlementKind, answer: Answer
    ) -> None:
        self._setting.history.record(SettleEnded(settlement, answer))
        if answer is Answer.DONE and kind is SettlementKind.DEFER:
            self._setting.deferred.setdefault(held.key, {})[held.number] = held.body

    def fetch_deferred(self, key: SubQueueKey, number: int, *, delete: bool) -> None:
        """DEF-2, DEF-3: by its number, through `$management`."""
        body = self._setting.deferred[key][number]

        def done(status: int | None, answer: dict[str, Any]) -> None:
            if status == amqp_requests.OK:
                for each in answer["messages"]:
                    message = WireMessage.read(bytes(each["message"]))
                    token = None if delete else each["lock-token"].bytes_le
                    self._record(message, token, deferred=True)
                    if token is not None:
                        held = HeldDelivery(-1, message.body, message.number, key, token, None)
                        self._decide_later(held)
            elif delete and amqp_requests.answer_of(status) is Answer.UNKNOWN:
                self._setting.history.record(RemovalUnknown(key.incarnation, (body,), 0))

        self._client.manage(self.queue, self.kind).fetch(number, delete=delete, done=done)


def outcome(kind: SettlementKind, changes: dict[str, Any]) -> DeliveryState:
    """As the client libraries say it (amqp.md 10)."""
    symbols = {Symbol(key): value for key, value in changes.items()} or None
    if kind is SettlementKind.COMPLETE:
        return Accepted()
    if kind is SettlementKind.RELEASE:
        return Released()
    if kind is SettlementKind.DEAD_LETTER:
        return Rejected(Error("com.microsoft:dead-letter", None, symbols))
    defers = kind is SettlementKind.DEFER
    return Modified(
        delivery_failed=not defers, undeliverable_here=defers, message_annotations=symbols
    )
