"""Queues, topics and subscriptions on one or two stores, in virtual time, with a client's verbs.

Messages here are real ones, encoded as a sender would, so that rules have something to read. The
exchange between entities is the simplest that keeps its contract: it answers every transfer once,
also when the owner of the destination dies meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from busway.amqp.codec import scan_message
from busway.amqp.performatives import Properties
from busway.amqp.sections import encode_message, read_properties
from busway.broker.broker import Broker
from busway.broker.seams import Grant, SessionLock, Settlement, TransferSource
from busway.broker.transactions import Transaction
from busway.model.entities import Entity, Queue, Rule, Subscription, Topic
from busway.model.errors import NOT_FOUND, SERVER_BUSY, BusError
from busway.model.message import Message, MessageState
from busway.sim.disk import LATENCY_MS
from busway.sim.world import StoreAndBroker, World
from busway.store.base import Counters, SubQueueKey, SubQueueKind
from tests.broker.single_queue import ACCEPTED, COMPLETE, Answers, Command, Delivered, Hand

MAIN = SubQueueKind.MAIN
DLQ = SubQueueKind.DEAD_LETTER

Done = Callable[[BusError | None], None]


def message(
    text: str,
    *,
    session_id: str | None = None,
    message_id: str | None = None,
    ttl_ms: int | None = None,
    at_ms: int | None = None,
    size: int | None = None,
    user: Mapping[str, Any] | None = None,
    label: str | None = None,
) -> Message:
    """As a gateway would hand it over; `at_ms` schedules it."""
    encoded = encode_message(
        properties=Properties(message_id=message_id, subject=label, group_id=session_id),
        application_properties=dict(user) if user else None,
        data=text.encode(),
    )
    made = Message(
        bare=scan_message(encoded).bare,
        size=len(encoded) if size is None else size,
        session_id=session_id,
        ttl_ms=ttl_ms,
    )
    if message_id is not None:
        made.digest = digest(message_id)
    if at_ms is not None:
        made.state = MessageState.SCHEDULED
        made.expires_ms = at_ms
    return made


def digest(message_id: str) -> bytes:
    return blake2b(message_id.encode(), digest_size=16).digest()


class PlainExchange:
    """`Exchange` of the broker's seams, between the brokers of a world."""

    def __init__(self) -> None:
        self.world: World | None = None
        self.handed_over = 0
        """How many messages were handed over, again or for the first time."""
        self._open: dict[int, tuple[StoreAndBroker, Done]] = {}
        self._calls = 0

    def destination(self, source: TransferSource, message: Message) -> SubQueueKey:
        assert self.world is not None
        entity = self.world.catalog.find(message.destination or "")
        if entity is None:
            raise BusError(NOT_FOUND, uri=message.destination)
        return SubQueueKey(entity.incarnation, 0, MAIN)

    def transfer(
        self, key: SubQueueKey, source: TransferSource, messages: list[Message], done: Done
    ) -> None:
        assert self.world is not None
        store = self.world.owner(key)
        if store is None or not store.serving:
            done(BusError(NOT_FOUND, uri="gone") if store is None else BusError(SERVER_BUSY))
            return
        self.handed_over += len(messages)
        for each in messages:
            message_id = read_properties(each.bare).message_id
            each.digest = None if message_id is None else digest(str(message_id))
        self._calls += 1
        call = self._calls
        self._open[call] = (store, done)

        def answered(error: BusError | None) -> None:
            if self._open.pop(call, None) is not None:
                done(error)

        store.broker.transfer(key, source, messages, answered)

    def crashed(self, store: StoreAndBroker) -> None:
        """Nobody knows what became of what was handed to it."""
        for call, (owner, done) in list(self._open.items()):
            if owner is store:
                del self._open[call]
                done(BusError(SERVER_BUSY))


class Holder:
    """A `SessionHolder`: a client with a session receiver."""

    def __init__(self) -> None:
        self.lock: SessionLock | None = None
        self.ready_calls = 0
        self.lost: list[str] = []

    def session_ready(self) -> None:
        self.ready_calls += 1

    def session_lost(self, error: BusError) -> None:
        self.lost.append(error.kind.name)

    @property
    def session_id(self) -> str:
        return self.held.session_id

    @property
    def held(self) -> SessionLock:
        assert self.lock is not None
        return self.lock


class SeveralEntities:
    def __init__(
        self,
        *,
        seed: int = 1,
        stores: int = 1,
        latency_ms: tuple[int, int] = LATENCY_MS,
        patience_ms: int = 100,
    ) -> None:
        self.patience_ms = patience_ms
        """How long a verb waits for its outcome."""
        self.exchange = PlainExchange()
        self.world = World(
            seed,
            stores=stores,
            latency_ms=latency_ms,
            make_broker=lambda port, host, entities: Broker(port, host, entities, self.exchange),
        )
        self.exchange.world = self.world
        self.world.crash_listeners.append(self.exchange.crashed)
        self._answers = Answers()
        self._tags = 0
        self.world.settle_down()

    # Entities.

    def queue(self, path: str = "orders", **properties: Any) -> Queue:
        return self.world.create_queue(Queue(path=path, **properties))

    def topic(self, path: str = "news", **properties: Any) -> Topic:
        return self.world.catalog.create_topic(Topic(path=path, **properties), self.now_ms())

    def subscription(
        self, topic: Topic, name: str, *rules: Rule, **properties: Any
    ) -> Subscription:
        """With these rules, or the default rule if there are none."""
        described = Subscription(topic=topic.path, name=name, **properties)
        return self.world.catalog.create_subscription(described, self.now_ms(), rules or None)

    def update(self, entity: Any, **changes: Any) -> None:
        newest = self.world.catalog.get(entity.incarnation)
        assert newest is not None
        self.world.catalog.update(replace(newest, **changes), self.now_ms())

    def delete(self, entity: Queue | Topic) -> None:
        self.world.catalog.delete(entity.path, self.now_ms())

    def store_of(self, entity: Entity) -> StoreAndBroker:
        return self.world.stores[entity.placement[0]]

    def broker_of(self, entity: Entity) -> Broker:
        return self.store_of(entity).broker

    def counters(self, entity: Entity, kind: SubQueueKind = MAIN) -> Counters:
        return self.broker_of(entity).counters(entity.incarnation, 0).get(kind, Counters())

    # Time.

    def now_ms(self) -> int:
        return self.world.now_ms()

    def run(self, duration_ms: int | None = None) -> None:
        self.world.run_for(self.patience_ms if duration_ms is None else duration_ms)

    def crash(self, entity: Entity, *, finish_commit: bool = False) -> None:
        self.crash_quickly(entity, finish_commit=finish_commit)
        self.world.settle_down()

    def crash_quickly(self, entity: Entity, *, finish_commit: bool = False) -> None:
        """As `crash`, without waiting for the other stores."""
        store = self.store_of(entity)
        store.crash(finish_commit=finish_commit)
        store.restart()
        self.world.run_until(lambda: store.serving)

    # Verbs that leave the outcome open.

    def command(self, give: Callable[[Answers, int], None]) -> Command:
        self._tags += 1
        give(self._answers, self._tags)
        return Command(self._answers, self._tags)

    def start_send(self, entity: Entity, *messages: Message | str, **fields: Any) -> Command:
        made = [message(each, **fields) if isinstance(each, str) else each for each in messages]
        key = key_of(entity)
        return self.command(
            lambda answers, tag: self.broker_of(entity).send(key, made, answers, tag)
        )

    def start_settle(
        self,
        entity: Entity,
        delivered: Delivered,
        settlement: Settlement = COMPLETE,
        kind: SubQueueKind = MAIN,
    ) -> Command:
        key, token = key_of(entity, kind), delivered.token
        return self.command(
            lambda answers, tag: self.broker_of(entity).settle(key, token, settlement, answers, tag)
        )

    def start_transact(self, entity: Entity, transaction: Transaction) -> Command:
        return self.command(
            lambda answers, tag: self.broker_of(entity).transact(transaction, answers, tag)
        )

    def start_set_state(self, entity: Entity, holder: Holder, state: bytes | None) -> Command:
        broker = self.broker_of(entity)
        return self.command(
            lambda answers, tag: broker.set_session_state(holder.held, state, answers, tag)
        )

    # Verbs that wait for it.

    def send(self, entity: Entity, *messages: Message | str, **fields: Any) -> None:
        command = self.start_send(entity, *messages, **fields)
        self.run()
        assert command.outcome == ACCEPTED, command.outcome

    def settle(
        self,
        entity: Entity,
        delivered: Delivered,
        settlement: Settlement = COMPLETE,
        kind: SubQueueKind = MAIN,
    ) -> str | None:
        command = self.start_settle(entity, delivered, settlement, kind)
        self.run()
        return command.outcome

    def transact(self, entity: Entity, transaction: Transaction) -> str | None:
        command = self.start_transact(entity, transaction)
        self.run()
        return command.outcome

    def grant(
        self,
        entity: Entity,
        hand: Hand,
        limit: int = 100,
        *,
        kind: SubQueueKind = MAIN,
        holder: Holder | None = None,
        delete: bool = False,
    ) -> Grant:
        session = None if holder is None else holder.lock
        grant = Grant(hand, key_of(entity, kind), limit, delete=delete, session=session)
        self.broker_of(entity).grant(grant)
        return grant

    def receive(
        self,
        entity: Entity,
        limit: int = 100,
        *,
        kind: SubQueueKind = MAIN,
        holder: Holder | None = None,
        delete: bool = False,
    ) -> list[Delivered]:
        """What there is, up to the limit; then the grant is called back."""
        hand = Hand()
        grant = self.grant(entity, hand, limit, kind=kind, holder=holder, delete=delete)
        self.run()
        self.broker_of(entity).recall(grant)
        self.run()
        assert hand.finished_grants == [grant]
        return hand.delivered

    def receive_one(
        self, entity: Entity, *, kind: SubQueueKind = MAIN, holder: Holder | None = None
    ) -> Delivered:
        (delivered,) = self.receive(entity, 1, kind=kind, holder=holder)
        return delivered

    def dead_letters(self, entity: Entity) -> list[Delivered]:
        return self.receive(entity, kind=DLQ)

    def peek(
        self, entity: Entity, *, kind: SubQueueKind = MAIN, session_id: str | None = None
    ) -> list[Delivered]:
        found: list[list[Message] | BusError] = []
        key = key_of(entity, kind)
        self.broker_of(entity).peek(key, 0, 1_000, 1 << 20, found.append, session_id)
        self.run()
        (answer,) = found
        assert not isinstance(answer, BusError)
        return [Delivered(each) for each in answer]

    def receive_deferred(
        self, entity: Entity, *numbers: int, holder: Holder | None = None, delete: bool = False
    ) -> list[Delivered] | str:
        """The messages, or the name of the error."""
        found: list[list[Message] | BusError] = []
        session = None if holder is None else holder.lock
        self.broker_of(entity).receive_deferred(
            key_of(entity), numbers, delete, found.append, session
        )
        self.run()
        (answer,) = found
        if isinstance(answer, BusError):
            return answer.kind.name
        return [Delivered(each) for each in answer]

    def cancel(self, entity: Entity, *numbers: int) -> str:
        found: list[BusError | None] = []
        self.broker_of(entity).cancel_scheduled(key_of(entity), numbers, found.append)
        self.run()
        (error,) = found
        return ACCEPTED if error is None else error.kind.name

    # Sessions.

    def accept(self, entity: Entity, session_id: str | None = None) -> Holder | None:
        """A holder, or None if no session is free; raises if this one is not."""
        holder = Holder()
        holder.lock = self.broker_of(entity).accept_session(key_of(entity), session_id, holder)
        return holder if holder.lock is not None else None

    def hold(self, entity: Entity, session_id: str | None = None) -> Holder:
        holder = self.accept(entity, session_id)
        assert holder is not None, "no session is free"
        return holder

    def leave(self, entity: Entity, holder: Holder) -> None:
        self.broker_of(entity).leave_session(holder.held)

    def sessions(self, entity: Entity, updated_after_ms: int | None = None) -> list[str]:
        return self.broker_of(entity).sessions(key_of(entity), updated_after_ms)

    def set_state(self, entity: Entity, holder: Holder, state: bytes | None) -> str | None:
        command = self.start_set_state(entity, holder, state)
        self.run()
        return command.outcome

    def state(self, entity: Entity, holder: Holder) -> bytes | str | None:
        found: list[bytes | BusError | None] = []
        self.broker_of(entity).session_state(holder.held, found.append)
        self.run()
        (answer,) = found
        return answer.kind.name if isinstance(answer, BusError) else answer


def key_of(entity: Entity, kind: SubQueueKind = MAIN) -> SubQueueKey:
    return SubQueueKey(entity.incarnation, 0, kind)


def texts(delivered: Sequence[Delivered]) -> list[str]:
    return [each.text for each in delivered]
