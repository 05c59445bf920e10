"""The journal tells the truth (D-31): whoever replays it knows what is in the store.

At rest, the journal of every captured partition is played from its beginning: offsets without a
gap, times that never fall, each event legal where it stands, and in the end exactly the messages
that are stored, in their places and states, with their delivery counts. Every acknowledged message
arrived once; no refused one did.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from busway.model.entities import Entity, Subscription, Topic
from busway.model.journal import JournalEvent
from busway.model.message import Message, MessageState
from busway.sim.checkers.at_rest import rows_of
from busway.sim.checkers.presence import Gone, Presence, There
from busway.sim.history import Violation
from busway.sim.world import StoreAndBroker, World, sub_queues_of
from busway.store.base import SubQueueKey, SubQueueKind
from busway.store.journal import JournalHead, JournalRecord, JournalRow

NAME = "journal"

BodyOf = Callable[[SubQueueKey, Message], int]

ACTIVE, DEFERRED, SCHEDULED = MessageState
IN_PLACE = (ACTIVE, DEFERRED)

# What may happen to a message in which state; an event that is not here needs it to be absent.
LEGAL: dict[JournalEvent, tuple[MessageState, ...]] = {
    JournalEvent.CANCELLED: (SCHEDULED,),
    JournalEvent.DELIVERED: IN_PLACE,
    JournalEvent.ABANDONED: IN_PLACE,
    JournalEvent.DEFERRED: IN_PLACE,
    JournalEvent.COMPLETED: IN_PLACE,
    JournalEvent.DEAD_LETTERED: IN_PLACE,
    JournalEvent.EXPIRED: (ACTIVE,),
    JournalEvent.FORWARDED: (ACTIVE, SCHEDULED),
    JournalEvent.PURGED: (ACTIVE,),
}
ENDS = {
    JournalEvent.CANCELLED,
    JournalEvent.COMPLETED,
    JournalEvent.EXPIRED,
    JournalEvent.FORWARDED,
    JournalEvent.PURGED,
}


@dataclass(slots=True)
class Life:
    """A message as far as the journal has told of it."""

    kind: SubQueueKind
    state: MessageState
    delivery_count: int
    tokens: set[bytes] = field(default_factory=set)
    """Of its deliveries so far."""


class Replay:
    """The messages of one partition, after so many events."""

    def __init__(self, key: SubQueueKey, *, keeps: bool) -> None:
        self._key = key
        self._keeps = keeps
        """A topic's arrivals do not stay: its subscriptions have the copies."""
        self.lives: dict[int, Life] = {}
        self.arrived: list[JournalRow] = []

    def play(self, row: JournalRow) -> None:
        record = row.record
        if record.event is JournalEvent.DUPLICATE_DROPPED:
            return
        if record.event in (JournalEvent.ENQUEUED, JournalEvent.SCHEDULED):
            self._arrive(row)
            return
        life = self.lives.get(record.number)
        if life is None or life.state not in LEGAL[record.event]:
            raise Violation(NAME, f"{self._key}: {record} of {life}")
        self._happen(record, life)

    def _arrive(self, row: JournalRow) -> None:
        record = row.record
        if record.number in self.lives:
            raise Violation(NAME, f"{self._key}: {record} is there already")
        if record.related_number:
            before = self.lives.pop(record.related_number, None)
            if before is None or before.state not in self._before(record):
                raise Violation(NAME, f"{self._key}: {record} was {before}")
        else:
            self.arrived.append(row)
        state = SCHEDULED if record.event is JournalEvent.SCHEDULED else ACTIVE
        if self._keeps or state is SCHEDULED or record.kind is not SubQueueKind.MAIN:
            self.lives[record.number] = Life(record.kind, state, record.delivery_count)

    @staticmethod
    def _before(record: JournalRecord) -> tuple[MessageState, ...]:
        """What it was under its old number: scheduled, or there before its entity forwarded."""
        return (SCHEDULED, ACTIVE) if record.kind is SubQueueKind.TRANSFER else (SCHEDULED,)

    def _happen(self, record: JournalRecord, life: Life) -> None:
        event, token = record.event, record.lock_token
        # Without a token it arrived deferred, from an entity that it was moved out of.
        counts = event is JournalEvent.ABANDONED or (event is JournalEvent.DEFERRED and token)
        count = life.delivery_count + bool(counts)
        if record.delivery_count != count:
            raise Violation(NAME, f"{self._key}: {record} after {life.delivery_count} deliveries")
        if event is JournalEvent.DELIVERED:
            assert token is not None
            life.tokens.add(token)
        elif token is not None and token not in life.tokens:
            raise Violation(NAME, f"{self._key}: {record} ends a delivery that nobody told of")
        if event is JournalEvent.DEAD_LETTERED:
            life.kind, life.state = record.kind, ACTIVE
            if record.related_number:
                self.lives[record.related_number] = self.lives.pop(record.number)
            return
        if record.kind is not life.kind:
            raise Violation(NAME, f"{self._key}: {record} of one in {life.kind.name}")
        if event is JournalEvent.DEFERRED:
            life.state = DEFERRED
        elif event in ENDS:
            del self.lives[record.number]
        life.delivery_count = count


def check_journals(world: World, presence: Presence, body_of: BodyOf) -> None:
    for store in world.stores.values():
        for key in list(store.medium._keys):
            entity = world.catalog.get(key.incarnation)
            if (entity is None or not entity.capture) and _all_rows(store, key):
                raise Violation(NAME, f"{key} is not captured, and has a journal")
    arrivals: dict[int, Counter[int]] = {}
    for entity in [*world.catalog.queues_and_topics(), *_subscriptions(world)]:
        if entity.capture:
            arrivals[entity.incarnation] = _check_entity(world, entity, body_of, presence)
    for body, fate in presence.fates.items():
        times = arrivals.get(fate.incarnation)
        if times is None:
            continue
        if fate.gone is not Gone.NO and isinstance(
            world.catalog.get(fate.incarnation), Subscription
        ):
            continue  # it may have been cancelled while its topic had it
        if not times[body] and fate.destination is not None:
            continue  # a transaction that sends to one entity only needs none to send it via
        if fate.there is There.MUST and times[body] != 1:
            raise Violation(NAME, f"{body} was acknowledged and arrived {times[body]} times")
        if fate.there is There.MUST_NOT and times[body]:
            raise Violation(NAME, f"{body} was refused, and it is told that it arrived")


def _subscriptions(world: World) -> list[Entity]:
    topics = [each for each in world.catalog.queues_and_topics() if isinstance(each, Topic)]
    return [each for topic in topics for each in world.catalog.subscriptions(topic)]


def _check_entity(
    world: World, entity: Entity, body_of: BodyOf, presence: Presence
) -> Counter[int]:
    """How often each message arrived, by body."""
    arrived: Counter[int] = Counter()
    for key in sub_queues_of(entity):
        store = world.stores[entity.placement[key.partition]]
        replay = Replay(key, keeps=not isinstance(entity, Topic))
        rows = _checked_rows(store, key)
        if rows and rows[0].record.offset:
            raise Violation(NAME, f"{key}: the beginning is forgotten before its time")
        for row in rows:
            replay.play(row)
        _check_store(store, key, replay)
        for row in replay.arrived:
            arrived[body_of(key, Message(bare=row.bare or b"", size=0))] += 1
    for body, times in arrived.items():
        # One that a transaction sent by way of the entity may have been forwarded to it afterwards.
        if times > (2 if body in presence.transacted else 1):
            raise Violation(NAME, f"{body} arrived {times} times in {entity.path}")
    return arrived


def _checked_rows(store: StoreAndBroker, key: SubQueueKey) -> list[JournalRow]:
    head = store.medium.journal_handle().head(key) or JournalHead()
    rows = _all_rows(store, key)
    if [row.record.offset for row in rows] != list(range(head.earliest, head.next_offset)):
        raise Violation(NAME, f"{key}: the offsets have a gap, or do not fit {head}")
    times = [row.record.time_ms for row in rows]
    if times != sorted(times):
        raise Violation(NAME, f"{key}: times go back")
    if sum(row.record.bytes for row in rows) != head.bytes:
        raise Violation(NAME, f"{key}: the bytes do not fit {head}")
    if (key.incarnation, key.partition) in store.broker.journals._by_partition:
        known = store.broker.journals._by_partition[key.incarnation, key.partition].head
        if known != head:
            raise Violation(NAME, f"{key}: the broker knows {known}, the store {head}")
    return rows


def _all_rows(store: StoreAndBroker, key: SubQueueKey) -> list[JournalRow]:
    handle = store.medium.journal_handle()
    head = handle.head(key) or JournalHead()
    rows: list[JournalRow] = []
    first = head.earliest
    while page := handle.read(key, first, head.next_offset):
        rows += page.rows()
        first += len(page)
    return rows


def _check_store(store: StoreAndBroker, key: SubQueueKey, replay: Replay) -> None:
    told = {
        number: (life.kind, life.state, life.delivery_count)
        for number, life in replay.lives.items()
    }
    stored = {}
    for kind in SubQueueKind:
        sub_queue = store.broker.find_sub_queue(SubQueueKey(*key[:2], kind))
        for row in [] if sub_queue is None else rows_of(store, sub_queue.slot):
            stored[row.number] = (kind, row.state, row.delivery_count)
    if told != stored:
        differing = {
            number: (told.get(number), stored.get(number))
            for number in {**told, **stored}
            if told.get(number) != stored.get(number)
        }
        raise Violation(NAME, f"{key}: told and stored differ: {differing}")
