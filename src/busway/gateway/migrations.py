"""Migrations of queues and topics between conventional and partitioned, as those who ask for them
see them.

The catalog knows whether an entity is being migrated, its brokers how far that is. Here both meet:
nothing is switched before every partition of the source is empty for good, and what is called off
in the middle goes on to its end and then comes back, because half of it could not come back in
order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from busway.cluster import migrations
from busway.gateway.gateway import Gateway
from busway.model.entities import Course, Entity, Migration, Queue, Topic
from busway.model.errors import INVALID_OPERATION, NOT_FOUND, PARTITION_UNAVAILABLE, BusError
from busway.store.base import SubQueueKind

PLACES = {
    SubQueueKind.DEAD_LETTER: "dead_letter",
    SubQueueKind.TRANSFER: "transfer",
    SubQueueKind.TRANSFER_DEAD_LETTER: "transfer_dead_letter",
}


class Phase(Enum):
    NONE = "none"
    """It is not being migrated: not yet, or not any more."""
    MOVING = "moving"
    MOVED = "moved"
    """The twin has everything. It only has to take the path."""
    RETURNING = "returning"
    """It was called off: what the twin has comes back."""
    RETURNED = "returned"
    """The twin has nothing any more. It only has to go."""


PHASES = {
    Course.THERE: (Phase.MOVING, Phase.MOVED),
    Course.CALLED_OFF: (Phase.MOVING, Phase.MOVED),
    Course.BACK: (Phase.RETURNING, Phase.RETURNED),
}
"""While messages are on their way, and when they have all arrived."""


@dataclass(frozen=True, slots=True)
class Part:
    """An entity that holds messages, and its twin: a queue; a topic, and each subscription."""

    entity: str
    twin: str
    left: Mapping[str, int]
    moved: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Progress:
    entity: str
    partitioned: bool
    """What the entity is, or becomes."""
    phase: Phase
    left: Mapping[str, int]
    """Messages that are in the entity, and its subscriptions: by state, and dead letters."""
    moved: Mapping[str, int] = field(default_factory=dict)
    """Messages that are in the twin."""
    twin: str | None = None
    locked: int = 0
    """How many of those that have still to go receivers have locked: they are waited for."""
    problems: tuple[str, ...] = ()
    called_off: bool = False
    parts: tuple[Part, ...] = ()


def entity_named(gateway: Gateway, path: str) -> Queue | Topic:
    entity = gateway.catalog.find(path)
    if entity is None:
        raise BusError(NOT_FOUND, uri=path)
    if entity.migration is not None and entity.migration.source != entity.incarnation:
        raise _refused(
            f"'{entity.path}' is being filled by a migration, and goes when that is over. Ask for "
            f"the {entity.entity_type.lower()} that it takes the place of."
        )
    return entity


def start(gateway: Gateway, path: str, *, partitioned: bool, capture: bool) -> Progress:
    entity = entity_named(gateway, path)
    if entity.migration is None and bool(entity.enable_partitioning) is partitioned:
        return progress(gateway, path)
    now_ms = gateway.host.now_ms()
    migrations.start(
        gateway.catalog, entity, partitioned=partitioned, capture=capture, now_ms=now_ms
    )
    return progress(gateway, path)


def progress(gateway: Gateway, path: str) -> Progress:
    source = entity_named(gateway, path)
    twin = migrations.twin_of(gateway.catalog, source)
    if source.migration is None or twin is None:
        subscriptions = gateway.catalog.subscriptions(source) if isinstance(source, Topic) else []
        held = _Held(gateway)
        left = _sum(held.by(each) for each in (source, *subscriptions))
        partitioned = bool(source.enable_partitioning)
        problems = tuple(held.problems)
        return Progress(source.path, partitioned, Phase.NONE, left, problems=problems)
    return _under_way(gateway, source, twin, source.migration)


def _under_way(
    gateway: Gateway, source: Queue | Topic, twin: Queue | Topic, migration: Migration
) -> Progress:
    held = _Held(gateway)
    parts, finished, locked = [], True, 0
    for pair in migrations.pairs_of(gateway.catalog, source):
        left, moved = held.by(pair.source), held.by(pair.twin)
        parts.append(Part(pair.source.path, pair.twin.path, left, moved))
        giver = pair.twin if migration.course is Course.BACK else pair.source
        for partition in range(len(giver.placement)):
            owner = gateway.router.owner(giver, partition)
            if owner is None:
                continue
            standing = owner.movers.standing(giver.incarnation, partition)
            finished = finished and standing.finished
            locked += standing.locked
            if standing.problem is not None:
                held.problems[standing.problem] = None
    under_way, over = PHASES[migration.course]
    return Progress(
        source.path,
        bool(twin.enable_partitioning),
        over if finished and not held.problems else under_way,
        _sum(part.left for part in parts),
        _sum(part.moved for part in parts),
        twin.path,
        locked,
        tuple(held.problems),
        migration.course is not Course.THERE,
        tuple(parts),
    )


def switch(gateway: Gateway, path: str) -> Progress:
    """The twin takes the path, and clients may come again."""
    source, found = entity_named(gateway, path), progress(gateway, path)
    if found.phase is Phase.NONE:
        raise _refused(
            f"'{source.path}' is not being migrated. Start with POST /$busway/migrations."
        )
    if found.called_off:
        raise _refused(
            f"The migration of '{source.path}' has been called off. Let it end with DELETE "
            "/$busway/migrations/{name}, and start again."
        )
    if found.phase is not Phase.MOVED:
        raise _refused(
            f"'{source.path}' is not empty yet: {sum(found.left.values())} messages are left, "
            f"{found.locked} of them locked. Ask again when its phase is 'moved'."
        )
    migrations.switch(gateway.catalog, source, gateway.host.now_ms())
    return progress(gateway, path)


def call_off(gateway: Gateway, path: str) -> Progress:
    """The next step that can be done of calling it off; asked for until the phase is `none`.

    At once while nothing has been moved. Else what goes there goes on to its end, then comes back,
    and then the source serves again.
    """
    source, found = entity_named(gateway, path), progress(gateway, path)
    if found.phase is Phase.NONE:
        return found
    catalog, now_ms = gateway.catalog, gateway.host.now_ms()
    if found.phase is Phase.RETURNED or _untouched(gateway, source, found):
        migrations.call_off(catalog, source, now_ms)
    elif found.phase is Phase.MOVED:
        migrations.set_course(catalog, source, Course.BACK, now_ms)
    elif not found.called_off:
        migrations.set_course(catalog, source, Course.CALLED_OFF, now_ms)
    return progress(gateway, path)


def _untouched(gateway: Gateway, source: Queue | Topic, found: Progress) -> bool:
    """Whether nothing has been moved yet, no message and no session's state. The source removes
    nothing before the twin has committed it, so what is on its way does not matter."""
    if found.called_off or found.moved:
        return False
    for pair in migrations.pairs_of(gateway.catalog, source):
        for partition in range(len(pair.twin.placement)):
            owner = gateway.router.owner(pair.twin, partition)
            if owner is None or not owner.available:
                raise BusError(PARTITION_UNAVAILABLE, partition=partition, uri=pair.twin.path)
            if owner.size_bytes(pair.twin.incarnation, partition):
                return False
    return True


class _Held:
    """What entities hold, over the partitions that can be asked; and what is wrong with others."""

    def __init__(self, gateway: Gateway) -> None:
        self._router = gateway.router
        self.problems: dict[str, None] = {}

    def by(self, entity: Entity) -> dict[str, int]:
        counts: Counter[str] = Counter()
        for partition in range(len(entity.placement)):
            owner = self._router.owner(entity, partition)
            if owner is None or not owner.available:
                told = f"Partition {partition} of '{entity.path}' is not available."
                self.problems[told] = None
                continue
            for kind, each in owner.counters(entity.incarnation, partition).items():
                if kind is SubQueueKind.MAIN:
                    counts.update(
                        active=each.active, deferred=each.deferred, scheduled=each.scheduled
                    )
                else:
                    counts[PLACES[kind]] += each.active + each.deferred
        return {name: number for name, number in counts.items() if number}


def _sum(counted: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for counts in counted:
        total.update(counts)
    return dict(total)


def _refused(detail: str) -> BusError:
    return BusError(INVALID_OPERATION, detail=detail)
