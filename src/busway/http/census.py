"""Collecting what `/metrics` tells: a walk over the entities of a namespace, in small steps.

What is collected is plain numbers, so that writing it down can be done elsewhere. What the steps
find belongs to slightly different moments; each number was true at one of them.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from busway.broker.broker import Broker
from busway.broker.counting import Movements, Waits
from busway.cluster.catalog import Catalog
from busway.gateway.browser import BrowserEndpoint
from busway.gateway.coordinator import CoordinatorEndpoint
from busway.gateway.gateway import Gateway
from busway.gateway.receiver import ReceiverEndpoint
from busway.gateway.router import is_partitioned
from busway.gateway.sender import SenderEndpoint
from busway.http.depths import EMPTY, Depth, depth_of
from busway.http.services import Services, Store
from busway.http.steps import in_steps
from busway.model.entities import Entity, Subscription, Topic
from busway.model.errors import BusError
from busway.store.base import SubQueueKey, SubQueueKind

READ_STEP = 32
"""Sub-queues whose oldest message is read before commits get their turn (D-11)."""
READ_WAIT_S = 2.0
PARTITIONS_MAX = 2_048
"""Partitions with series of their own: 128 entities of sixteen."""

OTHER = "(other)"


class Totals(NamedTuple):
    """What was counted since the process started (`broker/counting.py`)."""

    messages_in: int = 0
    messages_out: int = 0
    dead_letters_out: int = 0
    forwarded: int = 0
    dead_lettered: int = 0
    expired: int = 0
    abandoned: int = 0
    locks_expired: int = 0
    activated: int = 0
    discarded: int = 0
    duplicates: int = 0

    @classmethod
    def of(cls, kinds: Mapping[SubQueueKind, Movements]) -> Totals:
        if not kinds:
            return NO_TOTALS
        received = {kind: each.received for kind, each in kinds.items()}
        every = kinds.values()
        return cls(
            messages_in=sum(each.sent for each in every),
            messages_out=received.get(SubQueueKind.MAIN, 0),
            dead_letters_out=received.get(SubQueueKind.DEAD_LETTER, 0)
            + received.get(SubQueueKind.TRANSFER_DEAD_LETTER, 0),
            forwarded=received.get(SubQueueKind.TRANSFER, 0),
            dead_lettered=sum(each.dead_lettered for each in every),
            expired=sum(each.expired for each in every),
            abandoned=sum(each.abandoned for each in every),
            locks_expired=sum(each.locks_expired for each in every),
            activated=sum(each.activated for each in every),
            discarded=sum(each.discarded for each in every),
            duplicates=sum(each.duplicates for each in every),
        )

    def plus(self, other: Totals) -> Totals:
        return Totals(*map(sum, zip(self, other, strict=True)))

    def minus(self, other: Totals) -> Totals:
        return Totals(*(max(0, a - b) for a, b in zip(self, other, strict=True)))


NO_TOTALS = Totals()


@dataclass(slots=True)
class Links:
    """Of one role at one entity."""

    count: int = 0
    credit: int = 0


@dataclass(slots=True)
class Figures:
    """Of an entity or of one of its partitions."""

    depth: Depth = EMPTY
    totals: Totals = NO_TOTALS
    unavailable: int = 0
    """Partitions whose store does not serve."""
    oldest_ms: int | None = None
    """When its oldest active message was enqueued."""
    oldest_dead_letter_ms: int | None = None
    waits: Waits | None = None
    """Of messages that were received; None if there was none."""

    def add(self, other: Figures) -> None:
        if other.depth is not EMPTY:
            self.depth = self.depth.plus(other.depth)
        if other.totals is not NO_TOTALS:
            self.totals = self.totals.plus(other.totals)
        self.unavailable += other.unavailable
        if other.waits is not None:
            if self.waits is None:
                self.waits = Waits()
            self.waits.add(other.waits)

    def older(self, main_ms: int | None, dead_letter_ms: int | None) -> None:
        self.oldest_ms = _earlier(self.oldest_ms, main_ms)
        self.oldest_dead_letter_ms = _earlier(self.oldest_dead_letter_ms, dead_letter_ms)


@dataclass(slots=True)
class EntityFigures:
    entity: str
    subscription: str
    whole: Figures = field(default_factory=Figures)
    partitions: list[tuple[int, str, Figures]] = field(default_factory=list)
    """With the names of their stores; empty if they have no series of their own."""
    links: dict[str, Links] = field(default_factory=dict)
    """By role of the client."""


@dataclass(slots=True)
class Census:
    namespace: str
    now_ms: int
    connections: dict[str, int] = field(default_factory=dict)
    """By kind."""
    entities: list[EntityFigures] = field(default_factory=list)
    links: dict[str, Links] = field(default_factory=dict)
    """Those that belong to no entity: for tokens and transactions."""
    entity_count: int = 0


@dataclass(frozen=True, slots=True)
class StoreFigures:
    name: str
    state: str
    serves: bool
    uncommitted_bytes: int
    damaged_messages: int
    commit_counts: Sequence[int]
    commit_total_ms: int
    commits_failed: int
    free_bytes: int | None
    sends_refused: int


@dataclass(frozen=True, slots=True)
class NodeFigures:
    censuses: Sequence[Census]
    stores: Sequence[StoreFigures]
    uncommitted_bytes: int
    uncommitted_bytes_max: int
    damaged_journal_rows: int

    @classmethod
    def of(cls, services: Services, censuses: Sequence[Census]) -> Self:
        budget = services.gateways()[0].budget
        stores = [_store_figures(store) for store in services.stores()]
        damaged_rows = services.journals.damaged_rows
        return cls(censuses, stores, budget.used_bytes, budget.limit_bytes, damaged_rows)


class Others:
    """Totals of what has no series of its own. They never go down, although an entity may leave:
    because it was deleted, or has got its own series."""

    def __init__(self) -> None:
        self.totals = NO_TOTALS
        self._seen: dict[int, Totals] = {}
        self._next: dict[int, Totals] = {}

    def take(self, incarnation: int, totals: Totals) -> None:
        if totals == NO_TOTALS:
            return
        before = self._seen.get(incarnation, NO_TOTALS)
        if totals == before:
            totals = before  # one object is enough
        else:
            self.totals = self.totals.plus(totals.minus(before))
        self._next[incarnation] = totals

    def taken(self) -> None:
        """That was all of them."""
        self._seen, self._next = self._next, {}


async def take_census(
    services: Services, gateway: Gateway, namespace: str, shown: dict[int, None], others: Others
) -> Census:
    """`shown` are the entities that have series of their own; it is brought up to date.

    Of the others nothing is kept, one by one: ten thousand small objects that live as long as this
    would set the garbage collector on everything that the server has in memory.
    """
    census = Census(namespace, services.host.now_ms())
    stores = {store.store_id: store for store in services.stores() if store.store_id}
    entities = {each.incarnation: each for each in _entities(gateway.catalog)}
    census.entity_count = len(entities)
    await _choose(shown, entities, stores, services.metrics_entities)
    rows: dict[int, EntityFigures] = {}
    other = EntityFigures(OTHER, "")
    details = _Details()
    async for entity in in_steps(entities.values(), _weight):
        incarnation = entity.incarnation
        row = other
        if incarnation in shown:
            row = rows[incarnation] = _row(entity)
            details.expect(entity, row)
        totals = NO_TOTALS
        for index, store_id in enumerate(entity.placement):
            figures = figures_of(entity, index, stores.get(store_id))
            totals = figures.totals if index == 0 else totals.plus(figures.totals)
            row.whole.add(figures)
            if row is not other:
                details.take(entity, index, stores.get(store_id), figures)
        if row is other:
            others.take(incarnation, totals)
    others.taken()
    other.whole.totals = others.totals
    other.whole.waits = None  # it would shrink when an entity leaves
    await details.find_ages(rows, stores)
    await _count_links(census, gateway, rows, other)
    census.entities = [rows[each] for each in shown if each in rows]
    if len(rows) < len(entities) or others.totals != NO_TOTALS:
        census.entities.append(other)
    return census


def _entities(catalog: Catalog) -> Iterator[Entity]:
    for entity in catalog.queues_and_topics():
        yield entity
        if isinstance(entity, Topic):
            yield from catalog.subscriptions(entity)


async def _choose(
    shown: dict[int, None], entities: Mapping[int, Entity], stores: Mapping[str, Store], limit: int
) -> None:
    """Look at how important entities are only while there is room for some and not for all."""
    for gone in [each for each in shown if each not in entities]:
        del shown[gone]
    room = limit - len(shown)
    if room <= 0:
        return
    waiting = [each for each in entities.values() if each.incarnation not in shown]
    if len(waiting) <= room:
        shown.update((each.incarnation, None) for each in waiting)
        return
    importance: dict[int, int] = {}
    async for entity in in_steps(waiting, _weight):
        whole = Figures()
        for index, store_id in enumerate(entity.placement):
            whole.add(figures_of(entity, index, stores.get(store_id)))
        importance[entity.incarnation] = important(whole)
    shown.update(dict.fromkeys(heapq.nlargest(room, importance, key=importance.__getitem__)))


def important(figures: Figures) -> int:
    """Traffic first, then depth."""
    return sum(figures.totals) << 64 | figures.depth.messages


def _weight(entity: Entity) -> int:
    return len(entity.placement)


def _row(entity: Entity) -> EntityFigures:
    if isinstance(entity, Subscription):
        return EntityFigures(entity.topic, entity.name)
    return EntityFigures(entity.path, "")


def figures_of(entity: Entity, partition: int, store: Store | None) -> Figures:
    if store is None:
        return Figures(unavailable=1)
    broker = store.broker
    movements = broker.movements(entity.incarnation, partition)
    main = movements.get(SubQueueKind.MAIN)
    return Figures(
        depth_of(broker, entity, partition) or EMPTY,
        Totals.of(movements),
        0 if broker.available else 1,
        waits=None if main is None else main.waits,
    )


class _Details:
    """Partitions of entities that have series of their own, and the ages of what is in them."""

    def __init__(self) -> None:
        self._room = PARTITIONS_MAX
        self._row: EntityFigures | None = None
        """Whose partitions are being taken, if they have series of their own."""
        self._shown: dict[tuple[int, int], Figures] = {}
        self._wanted: dict[str, list[SubQueueKey]] = {}
        """By store id: sub-queues that have an oldest message."""

    def expect(self, entity: Entity, row: EntityFigures) -> None:
        """The partitions of this entity come next."""
        count = len(entity.placement)
        self._row = row if is_partitioned(entity) and count <= self._room else None
        self._room -= count if self._row is not None else 0

    def take(self, entity: Entity, index: int, store: Store | None, figures: Figures) -> None:
        incarnation, depth = entity.incarnation, figures.depth
        if self._row is not None:
            self._row.partitions.append((index, "" if store is None else store.name, figures))
            self._shown[incarnation, index] = figures
        wanted = self._wanted.setdefault(entity.placement[index], [])
        if depth.active:
            wanted.append(SubQueueKey(incarnation, index, SubQueueKind.MAIN))
        if depth.dead_letter:
            wanted.append(SubQueueKey(incarnation, index, SubQueueKind.DEAD_LETTER))

    async def find_ages(
        self, rows: Mapping[int, EntityFigures], stores: Mapping[str, Store]
    ) -> None:
        asked = [
            _ages(stores[store_id].broker, keys)
            for store_id, keys in self._wanted.items()
            if store_id in stores
        ]
        for oldest in await asyncio.gather(*asked):
            for key, enqueued_ms in oldest.items():
                is_main = key.kind is SubQueueKind.MAIN
                pair = (enqueued_ms, None) if is_main else (None, enqueued_ms)
                rows[key.incarnation].whole.older(*pair)
                shown = self._shown.get((key.incarnation, key.partition))
                if shown is not None:
                    shown.older(*pair)


async def oldest_of(services: Services, entity: Entity) -> int | None:
    """When the oldest active message of an entity was enqueued, as far as its stores tell."""
    stores = {store.store_id: store for store in services.stores()}
    by_store: dict[str, list[SubQueueKey]] = {}
    for index, store_id in enumerate(entity.placement):
        key = SubQueueKey(entity.incarnation, index, SubQueueKind.MAIN)
        by_store.setdefault(store_id, []).append(key)
    asked = [_ages(stores[each].broker, keys) for each, keys in by_store.items() if each in stores]
    times = [time for found in await asyncio.gather(*asked) for time in found.values()]
    return min(times, default=None)


async def _ages(broker: Broker, keys: Sequence[SubQueueKey]) -> dict[SubQueueKey, int]:
    """As far as the store tells them in time: one that hangs must not hold up the rest."""
    found: dict[SubQueueKey, int] = {}
    for start in range(0, len(keys), READ_STEP):
        if not broker.available:
            break
        answer: asyncio.Future[dict[SubQueueKey, int] | BusError]
        answer = asyncio.get_running_loop().create_future()
        broker.oldest(keys[start : start + READ_STEP], answer.set_result)
        await asyncio.wait([answer], timeout=READ_WAIT_S)
        oldest = answer.result() if answer.done() else None
        if not isinstance(oldest, dict):
            break
        found.update(oldest)
    return found


async def _count_links(
    census: Census, gateway: Gateway, rows: Mapping[int, EntityFigures], other: EntityFigures
) -> None:
    connections = list(gateway.connections)
    websockets = sum(connection.websocket for connection in connections)
    census.connections = {
        "amqp": len(connections) - websockets,
        "websocket": websockets,
        "http": len(gateway.callers),
    }
    async for connection in in_steps(connections, lambda each: 1 + len(each.endpoints)):
        for endpoint in connection.endpoints:
            place = census.links
            if isinstance(endpoint, SenderEndpoint | ReceiverEndpoint | BrowserEndpoint):
                role = "sender" if isinstance(endpoint, SenderEndpoint) else "receiver"
                place = rows.get(endpoint.entity.incarnation, other).links
            else:
                role = "transaction" if isinstance(endpoint, CoordinatorEndpoint) else "request"
            links = place.setdefault(role, Links())
            links.count += 1
            links.credit += endpoint.link.credit


def _store_figures(store: Store) -> StoreFigures:
    broker = store.broker
    times = broker.commit_times
    return StoreFigures(
        store.name,
        broker.state.value,
        broker.available,
        broker.uncommitted_bytes,
        broker.quarantined,
        tuple(times.counts),
        times.total_ms,
        times.failed,
        times.free_bytes,
        times.sends_refused,
    )


def _earlier(first: int | None, second: int | None) -> int | None:
    if first is None or second is None:
        return second if first is None else first
    return min(first, second)
