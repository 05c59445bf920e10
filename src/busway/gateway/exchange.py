"""The way of a message from one entity to another, whoever owns the destination (D-27, FWD).

A forwarding entity and a transaction name a destination by its path. Which partition of it a
message goes to follows from the message's key, else from its number, and is never another one, so
that a repeated transfer finds what the first one has left there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from busway.amqp import codec
from busway.amqp.sections import (
    PARTITION_KEY,
    SCHEDULED_ENQUEUE_TIME,
    VIA_PARTITION_KEY,
    read_properties,
)
from busway.broker.seams import Host, SessionStateMove, TransferSource
from busway.broker.session_keys import session_key_at
from busway.broker.staging import Change, changed_copy
from busway.gateway import envelope
from busway.gateway.router import Destination, Owner, Router
from busway.model.entities import Entity, Queue, Subscription, Topic
from busway.model.errors import NOT_FOUND, SERVER_BUSY, BusError
from busway.model.message import Message, MessageState
from busway.model.partitioning import message_id_text, partition_of_key
from busway.store.base import SubQueueKey, SubQueueKind

ANY_PARTITION = -1


class Directory(Protocol):
    """The catalogs, as far as they are asked."""

    def get(self, incarnation: int) -> Entity | None: ...

    def find_beside(self, incarnation: int, path: str) -> Queue | Topic | None:
        """The queue or topic of this name in the namespace of that incarnation."""


class Exchange:
    """`Exchange` of the broker's seams, for all brokers of a node."""

    def __init__(self, host: Host, directory: Directory, owners: Mapping[str, Owner]) -> None:
        self._host = host
        self._directory = directory
        self._router = Router(owners)

    def destination(self, source: TransferSource, message: Message) -> SubQueueKey:
        """Raises *not found*, which is definite (FWD-4)."""
        path = message.destination or ""
        entity = self._directory.find_beside(source.incarnation, path)
        if entity is None:
            raise BusError(NOT_FOUND, uri=path)
        return SubQueueKey(entity.incarnation, _partition(message, entity), SubQueueKind.MAIN)

    # From an entity to its twin.

    def _twin(self, source: TransferSource) -> Entity:
        """The other of the two: if a migration was called off, the one that was there first."""
        entity = self._directory.get(source.incarnation)
        migration = None if entity is None else entity.migration
        twin = None if migration is None else self._directory.get(migration.taker)
        if twin is None:
            raise BusError(NOT_FOUND, uri=f"the twin of incarnation {source.incarnation}")
        return twin

    def _keyed(self, entity: Entity) -> Destination:
        """Who says by which key a message finds its partition: for a subscription its topic."""
        if not isinstance(entity, Subscription):
            return entity
        topic = self._directory.get(entity.topic_incarnation)
        if not isinstance(topic, Topic):
            raise BusError(NOT_FOUND, uri=entity.topic)
        return topic

    def twin_path(self, source: TransferSource) -> str:
        return self._twin(source).path

    def in_twin(self, source: TransferSource, kind: SubQueueKind, message: Message) -> SubQueueKey:
        twin = self._twin(source)
        return SubQueueKey(twin.incarnation, _partition(message, self._keyed(twin)), kind)

    def session_in_twin(self, source: TransferSource, session_id: str) -> SubQueueKey:
        twin = self._twin(source)
        partition = partition_of_key(session_id, len(twin.placement))
        return SubQueueKey(twin.incarnation, partition, SubQueueKind.MAIN)

    def move(
        self,
        key: SubQueueKey,
        source: TransferSource,
        messages: list[Message],
        done: Callable[[BusError | None], None],
    ) -> None:
        twin = self._directory.get(key.incarnation)
        owner = self._owner_of(twin, key)
        if owner is None or twin is None:
            done(BusError(SERVER_BUSY))  # its messages wait
            return
        keyed = self._keyed(twin)
        for message in messages:
            _digest(message, keyed)
        owner.move_in(key, source, messages, done)

    def move_states(
        self,
        key: SubQueueKey,
        source: TransferSource,
        states: list[SessionStateMove],
        done: Callable[[BusError | None], None],
    ) -> None:
        owner = self._owner_of(self._directory.get(key.incarnation), key)
        if owner is None:
            done(BusError(SERVER_BUSY))
        else:
            owner.move_states_in(key, source, states, done)

    def _owner_of(self, entity: Entity | None, key: SubQueueKey) -> Owner | None:
        """Who can take something for it now."""
        owner = None if entity is None else self._router.owner(entity, key.partition)
        return owner if owner is not None and owner.available else None

    def transfer(
        self,
        key: SubQueueKey,
        source: TransferSource,
        messages: list[Message],
        done: Callable[[BusError | None], None],
    ) -> None:
        entity = self._directory.get(key.incarnation)
        if not isinstance(entity, Queue | Topic):
            done(BusError(NOT_FOUND, uri=messages[0].destination))
            return
        owner = self._router.owner(entity, key.partition)
        if owner is None or not owner.available:
            done(BusError(SERVER_BUSY))  # its messages wait
            return
        now_ms = self._host.now_ms()
        owner.transfer(key, source, [_prepared(each, entity, now_ms) for each in messages], done)


def check_room(router: Router, entity: Destination, messages: Sequence[Message]) -> None:
    """FWD-5: raise if the destination is full, while there is a sender to be told.

    One that cannot be asked may have room; what becomes full later has to be waited for (D-27).
    """
    sizes: dict[int, int] = {}
    for message in messages:
        key = _key(message, entity)
        partition = ANY_PARTITION if key is None else partition_of_key(key, len(entity.placement))
        sizes[partition] = sizes.get(partition, 0) + message.size
    for partition, size in sizes.items():
        partitions = range(len(entity.placement)) if partition == ANY_PARTITION else [partition]
        _check_some_room(router, entity, partitions, size)


def _check_some_room(
    router: Router, entity: Destination, partitions: Sequence[int], size: int
) -> None:
    full: BusError | None = None
    for partition in partitions:
        owner = router.owner(entity, partition)
        if owner is None or not owner.available:
            return
        try:
            owner.check_room(SubQueueKey(entity.incarnation, partition, SubQueueKind.MAIN), size)
        except BusError as error:
            full = error
        else:
            return
    if full is not None:
        raise full


def _partition(message: Message, entity: Destination) -> int:
    """P-40: the key goes along. An action may have set another session since (RUL-7)."""
    count = len(entity.placement)
    if count == 1:
        return 0
    key = _key(message, entity)
    return message.number % count if key is None else partition_of_key(key, count)


def _key(message: Message, entity: Destination) -> str | None:
    if message.session_id is not None:
        return session_key_at(entity, message)
    for name in (PARTITION_KEY, VIA_PARTITION_KEY):
        key = _annotation(message, name)
        if isinstance(key, str) and key:
            return str(key)
    if not entity.requires_duplicate_detection:
        return None
    message_id = read_properties(message.bare).message_id
    return None if message_id is None else message_id_text(message_id) or None


def _prepared(message: Message, entity: Destination, now_ms: int) -> Message:
    """What the destination decides anew: duplicates (DUP-6), and whether it is still early."""
    _digest(message, entity)
    due_ms = _annotation(message, SCHEDULED_ENQUEUE_TIME) if message.annotations else None
    if not isinstance(due_ms, int) or due_ms <= now_ms:
        return message
    change = Change(MessageState.SCHEDULED, 0, int(due_ms), message.changes)
    scheduled = changed_copy(message, change)
    scheduled.digest = message.digest
    return scheduled


def _digest(message: Message, entity: Destination) -> None:
    message.digest = None
    if entity.requires_duplicate_detection:
        message_id = read_properties(message.bare).message_id
        if message_id is not None:
            key = _key(message, entity) if entity.enable_partitioning else None
            message.digest = envelope.digest(message_id, key)


def _annotation(message: Message, name: bytes) -> Any:
    """A message annotation of the sender; None if there is none of that name."""
    data, offset = message.annotations, 0
    for _ in range(message.annotation_items // 2):
        key, offset = codec.decode_value(data, offset)
        value, offset = codec.decode_value(data, offset)
        if isinstance(key, str) and key.encode() == name:
            return value
    return None
