"""Clients that talk to brokers without a gateway: what they share, those who send, those who peek.

They do what a gateway does with a broker, and remember what they may believe: after a crash a
command without an answer is *unknown*, and nothing of an old life reaches them any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from busway.model.entities import Entity
from busway.model.errors import (
    CANCEL_NOT_FOUND,
    LOCK_LOST,
    MESSAGE_NOT_FOUND,
    NOT_FOUND,
    QUOTA_EXCEEDED,
    SESSION_LOCK_LOST,
    STORE_FULL,
    TRANSACTION_ROLLBACK,
    BusError,
)
from busway.model.message import Message, MessageState
from busway.sim.direct_messages import Target, effective_key, make_messages, partition_for
from busway.sim.habits import Habits, Parcel
from busway.sim.history import (
    Answer,
    History,
    Peeked,
    PeekStarted,
    SendEnded,
    SendStarted,
    Violation,
)
from busway.sim.traits import Traits
from busway.sim.world import StoreAndBroker, World
from busway.store.base import SubQueueKey, SubQueueKind

if TYPE_CHECKING:
    from busway.sim.direct_holder import Held

DEFINITE = (
    CANCEL_NOT_FOUND,
    LOCK_LOST,
    MESSAGE_NOT_FOUND,
    NOT_FOUND,
    QUOTA_EXCEEDED,
    SESSION_LOCK_LOST,
    STORE_FULL,
    TRANSACTION_ROLLBACK,
)
"""Errors that say by themselves that nothing was done."""

REPEATS_MAX = 3
REPEAT_WITHIN_MS = 120_000
"""Well within every window of duplicate detection."""


class Transactor(Protocol):
    def settle(self, held: Sequence[Held], habits: Habits) -> bool:
        """Settle these in one transaction, with sends; False if that cannot be now."""


class Setting(Protocol):
    """What clients share: the world, the history, and numbers that nobody else has."""

    @property
    def world(self) -> World: ...

    @property
    def history(self) -> History: ...

    @property
    def deferred(self) -> dict[SubQueueKey, dict[int, int]]:
        """Numbers and bodies that somebody has deferred, as far as is known."""

    @property
    def transactor(self) -> Transactor | None: ...

    def next_number(self) -> int: ...

    def body_of(self, key: SubQueueKey, message: Message) -> int:
        """The number that a message of this sub-queue is."""

    def copies_of(self, target: Target, traits: Traits) -> Sequence[tuple[int, int]]:
        """What is sent there becomes a copy in each of these incarnations, its body higher by so
        much: of a queue, itself; of a topic, one for each subscription that wants it."""

    def higher(self, incarnation: int) -> int:
        """By how much the bodies of what is there are above those that were sent."""

    def scheduled(self, key: SubQueueKey, number: int, bodies: Sequence[int]) -> None:
        """A message waits for its time, and may be cancelled by this number."""


def answer_of(error: BusError) -> Answer:
    return Answer.REFUSED if error.refused or error.kind in DEFINITE else Answer.UNKNOWN


@dataclass(slots=True)
class Outgoing:
    """Messages of one parcel, which may be sent more than once."""

    target: Target
    parcel: Parcel
    bodies: tuple[int, ...]
    key: str | None
    due_ms: int | None
    first_ms: int

    @classmethod
    def pack(cls, setting: Setting, target: Target, parcel: Parcel) -> Outgoing:
        bodies = tuple(setting.next_number() for _ in range(parcel.count))
        key = effective_key(target, bodies[0], parcel.key, parcel.session_id)
        now_ms = setting.world.now_ms()
        due_ms = None if parcel.due_in_ms is None else now_ms + parcel.due_in_ms
        return cls(target, parcel, bodies, key, due_ms, now_ms)

    def messages(self) -> list[Message]:
        parcel = self.parcel
        return make_messages(
            self.target,
            self.bodies,
            parcel.sizes,
            ttl_ms=parcel.ttl_ms,
            key=parcel.key,
            session_id=parcel.session_id,
            due_ms=self.due_ms,
            traits=parcel.traits,
        )

    def start(self, setting: Setting, via: Target | None = None) -> tuple[int, ...]:
        """Say that they are being sent: one send for each copy that will be made of them."""
        parcel, target = self.parcel, self.target
        sends = []
        for incarnation, higher in setting.copies_of(via or target, parcel.traits):
            send = setting.next_number()
            sends.append(send)
            setting.history.record(
                SendStarted(
                    send,
                    incarnation,
                    tuple(body + higher for body in self.bodies),
                    parcel.sizes,
                    parcel.ttl_ms,
                    None if via is not None else partition_for(target, self.key),
                    parcel.session_id or parcel.key,
                    parcel.session_id,
                    self.due_ms,
                    None if via is None else target.path,
                    target.requires_duplicate_detection,
                )
            )
        return tuple(sends)


@dataclass(slots=True)
class SendUnderWay:
    sends: tuple[int, ...]
    outgoing: Outgoing
    pinned: int | None
    times: int
    store: StoreAndBroker | None = None
    key: SubQueueKey | None = None
    messages: list[Message] = field(default_factory=list)
    tried: set[int] = field(default_factory=set)


class DirectSender:
    """Sends to partitions, to another one where that is safe (P-22 to P-24, D-4). Where duplicates
    are detected it sends again what may not have arrived, and sometimes what has (DUP-3)."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._under_way: dict[int, SendUnderWay] = {}
        self.closed = False
        setting.world.crash_listeners.append(self._crashed)

    @property
    def idle(self) -> bool:
        return not self._under_way

    def send(self, target: Target, parcel: Parcel) -> None:
        self._start(Outgoing.pack(self._setting, target, parcel), 1)

    def _start(self, outgoing: Outgoing, times: int) -> None:
        sends = outgoing.start(self._setting)
        pinned = partition_for(outgoing.target, outgoing.key)
        tag = self._setting.next_number()
        self._under_way[tag] = SendUnderWay(sends, outgoing, pinned, times)
        self._hand_over(tag)

    def _hand_over(self, tag: int) -> None:
        under_way = self._under_way[tag]
        world, target = self._setting.world, under_way.outgoing.target
        if under_way.pinned is not None:
            choices = [under_way.pinned] if not under_way.tried else []
        else:
            count = len(target.placement)
            choices = [each for each in range(count) if each not in under_way.tried]
            world.random.shuffle(choices)
        for partition in choices:
            under_way.tried.add(partition)
            store = world.stores[target.placement[partition]]
            if store.serving:
                under_way.store = store
                key = under_way.key = SubQueueKey(target.incarnation, partition, SubQueueKind.MAIN)
                under_way.messages = under_way.outgoing.messages()
                store.broker.send(key, under_way.messages, self, tag)
                return
        self._end(tag, Answer.REFUSED)

    def committed(self, tags: list[int]) -> None:
        for tag in tags:
            under_way = self._under_way.get(tag)
            self._end(tag, Answer.DONE)
            if under_way is not None and under_way.key is not None:
                self._tell_scheduled(under_way.key, under_way)

    def _tell_scheduled(self, key: SubQueueKey, under_way: SendUnderWay) -> None:
        outgoing = under_way.outgoing
        copies = self._setting.copies_of(outgoing.target, outgoing.parcel.traits)
        for message, body in zip(under_way.messages, outgoing.bodies, strict=True):
            if message.state is MessageState.SCHEDULED and message.number:
                bodies = [body + higher for _, higher in copies]
                self._setting.scheduled(key, message.number, bodies)

    def failed(self, tag: int, error: BusError) -> None:
        if tag not in self._under_way:
            raise Violation("answers", f"the send {tag} was answered twice: {error}")
        answer = answer_of(error)
        if answer is Answer.REFUSED and error.kind is not NOT_FOUND:
            self._hand_over(tag)
        else:
            self._end(tag, answer)

    def _end(self, tag: int, answer: Answer) -> None:
        under_way = self._under_way.pop(tag, None)
        if under_way is None:
            raise Violation("answers", f"the send {tag} was answered twice: {answer}")
        for send in under_way.sends:
            self._setting.history.record(SendEnded(send, answer))
        outgoing = under_way.outgoing
        if outgoing.target.requires_duplicate_detection and under_way.times < REPEATS_MAX:
            random = self._setting.world.random
            if random.randrange(100) < (15 if answer is Answer.DONE else 70):
                delay_ms = random.randint(0, 3_000)
                times = under_way.times + 1
                self._setting.world.scheduler.after(delay_ms, lambda: self._repeat(outgoing, times))

    def _repeat(self, outgoing: Outgoing, times: int) -> None:
        world = self._setting.world
        late = world.now_ms() - outgoing.first_ms > REPEAT_WITHIN_MS
        if not late and not self.closed and _exists(world, outgoing.target):
            self._start(outgoing, times)

    def _crashed(self, store: StoreAndBroker) -> None:
        for tag in [tag for tag, each in self._under_way.items() if each.store is store]:
            self._end(tag, Answer.UNKNOWN)


def _exists(world: World, entity: Entity) -> bool:
    return world.catalog.get(entity.incarnation) is not None


class DirectBrowser:
    """Peeks, and walks on from what it saw (PEEK-2)."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._asking: dict[int, StoreAndBroker] = {}
        setting.world.crash_listeners.append(self._crashed)

    @property
    def idle(self) -> bool:
        return not self._asking

    def walk(self, queue: Entity, key: SubQueueKey, from_number: int = 0) -> None:
        setting = self._setting
        store = setting.world.stores[queue.placement[key.partition]]
        if not store.running:
            return
        peek = setting.next_number()
        self._asking[peek] = store
        setting.history.record(PeekStarted(peek, key, from_number))

        def done(found: list[Message] | BusError) -> None:
            if self._asking.pop(peek, None) is None:
                raise Violation("answers", f"the peek {peek} was answered twice")
            if isinstance(found, BusError):
                return
            bodies = tuple(setting.body_of(key, message) for message in found)
            numbers = tuple(message.number for message in found)
            setting.history.record(Peeked(peek, bodies, numbers))
            for place, message in enumerate(found):
                if message.state is MessageState.DEFERRED:
                    setting.deferred.setdefault(key, {})[message.number] = bodies[place]
            if found:
                self.walk(queue, key, numbers[-1] + 1)

        store.broker.peek(key, from_number, 10, 262_144, done)

    def _crashed(self, store: StoreAndBroker) -> None:
        for peek in [peek for peek, asked in self._asking.items() if asked is store]:
            del self._asking[peek]
