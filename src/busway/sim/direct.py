"""Clients that talk to brokers without a gateway: what they share, those who send, those who peek.

They do what a gateway does with a broker, and remember what they may believe: after a crash a
command without an answer is *unknown*, and nothing of an old life reaches them any more.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from busway.amqp.codec import decode_value
from busway.amqp.sections import DATA, walk_sections
from busway.model.entities import Queue
from busway.model.errors import LOCK_LOST, NOT_FOUND, QUOTA_EXCEEDED, STORE_FULL, BusError
from busway.model.message import Message, MessageState
from busway.model.partitioning import partition_of_key
from busway.sim.habits import Parcel
from busway.sim.history import (
    Answer,
    History,
    Peeked,
    PeekStarted,
    SendEnded,
    SendStarted,
    Violation,
)
from busway.sim.world import StoreAndBroker, World
from busway.store.base import SubQueueKey, SubQueueKind

DEFINITE = (LOCK_LOST, NOT_FOUND, QUOTA_EXCEEDED, STORE_FULL)
"""Errors that say by themselves that nothing was done."""


class Setting(Protocol):
    """What clients share: the world, the history, and numbers that nobody else has."""

    @property
    def world(self) -> World: ...

    @property
    def history(self) -> History: ...

    @property
    def deferred(self) -> dict[SubQueueKey, dict[int, int]]:
        """Numbers and bodies that somebody has deferred, as far as is known."""

    def next_number(self) -> int: ...


def body_of(message: Message) -> int:
    """The number that a message is, whoever sent it: bare digits, or AMQP's data section."""
    if message.bare.isdigit():
        return int(message.bare)
    for code, _, value, stop in walk_sections(message.bare):
        if code == DATA:
            return int(bytes(decode_value(message.bare[value:stop])[0]))
    raise ValueError(f"{message} has no body")


def answer_of(error: BusError) -> Answer:
    return Answer.REFUSED if error.refused or error.kind in DEFINITE else Answer.UNKNOWN


@dataclass(slots=True)
class SendUnderWay:
    send: int
    queue: Queue
    messages: list[Message]
    pinned: int | None
    store: StoreAndBroker | None = None
    tried: set[int] = field(default_factory=set)


class DirectSender:
    """Sends to partitions, to another one where that is safe (P-22 to P-24, D-4)."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._under_way: dict[int, SendUnderWay] = {}
        setting.world.crash_listeners.append(self._crashed)

    @property
    def idle(self) -> bool:
        return not self._under_way

    def send(self, queue: Queue, parcel: Parcel) -> None:
        setting = self._setting
        bodies = tuple(setting.next_number() for _ in range(parcel.count))
        messages = [
            Message(bare=str(body).encode(), size=size, ttl_ms=parcel.ttl_ms)
            for body, size in zip(bodies, parcel.sizes, strict=True)
        ]
        pinned = None if parcel.key is None else partition_of_key(parcel.key, queue.partitions)
        send = setting.next_number()
        setting.history.record(
            SendStarted(send, queue.incarnation, bodies, parcel.sizes, parcel.ttl_ms, pinned)
        )
        self._under_way[send] = SendUnderWay(send, queue, messages, pinned)
        self._hand_over(self._under_way[send])

    def _hand_over(self, under_way: SendUnderWay) -> None:
        world, queue = self._setting.world, under_way.queue
        if under_way.pinned is not None:
            choices = [under_way.pinned] if not under_way.tried else []
        else:
            choices = [each for each in range(queue.partitions) if each not in under_way.tried]
            world.random.shuffle(choices)
        for partition in choices:
            under_way.tried.add(partition)
            store = world.stores[queue.placement[partition]]
            if store.serving:
                under_way.store = store
                key = SubQueueKey(queue.incarnation, partition, SubQueueKind.MAIN)
                store.broker.send(key, under_way.messages, self, under_way.send)
                return
        self._end(under_way.send, Answer.REFUSED)

    def committed(self, tags: list[int]) -> None:
        for tag in tags:
            self._end(tag, Answer.DONE)

    def failed(self, tag: int, error: BusError) -> None:
        under_way = self._under_way.get(tag)
        if under_way is None:
            raise Violation("answers", f"the send {tag} was answered twice: {error}")
        answer = answer_of(error)
        if answer is Answer.REFUSED and error.kind is not NOT_FOUND:
            self._hand_over(under_way)
        else:
            self._end(tag, answer)

    def _end(self, send: int, answer: Answer) -> None:
        if self._under_way.pop(send, None) is None:
            raise Violation("answers", f"the send {send} was answered twice: {answer}")
        self._setting.history.record(SendEnded(send, answer))

    def _crashed(self, store: StoreAndBroker) -> None:
        for under_way in [each for each in self._under_way.values() if each.store is store]:
            self._end(under_way.send, Answer.UNKNOWN)


class DirectBrowser:
    """Peeks, and walks on from what it saw (PEEK-2)."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._asking: dict[int, StoreAndBroker] = {}
        setting.world.crash_listeners.append(self._crashed)

    @property
    def idle(self) -> bool:
        return not self._asking

    def walk(self, queue: Queue, key: SubQueueKey, from_number: int = 0) -> None:
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
            bodies = tuple(body_of(message) for message in found)
            numbers = tuple(message.number for message in found)
            setting.history.record(Peeked(peek, bodies, numbers))
            for message in found:
                if message.state is MessageState.DEFERRED:
                    setting.deferred.setdefault(key, {})[message.number] = body_of(message)
            if found:
                self.walk(queue, key, numbers[-1] + 1)

        store.broker.peek(key, from_number, 10, 262_144, done)

    def _crashed(self, store: StoreAndBroker) -> None:
        for peek in [peek for peek, asked in self._asking.items() if asked is store]:
            del self._asking[peek]
