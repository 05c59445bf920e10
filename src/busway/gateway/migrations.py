"""Migrations of queues between conventional and partitioned, as those who ask for them see them.

The catalog knows whether a queue is being migrated, its brokers how far that is. Here both meet:
nothing is switched before every partition of the source is empty for good, and nothing is called
off once a message has been moved, because then there is no order any more in which to put it back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from busway.cluster import migrations
from busway.gateway.gateway import Gateway
from busway.model.entities import Queue
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


@dataclass(frozen=True, slots=True)
class Progress:
    entity: str
    partitioned: bool
    """What the queue is, or becomes."""
    phase: Phase
    left: Mapping[str, int]
    """Messages that are still in the queue: by state, and dead letters."""
    moved: Mapping[str, int] = field(default_factory=dict)
    twin: str | None = None
    locked: int = 0
    """Of those left, how many receivers have locked: they are waited for."""
    problems: tuple[str, ...] = ()


def queue_named(gateway: Gateway, path: str) -> Queue:
    entity = gateway.catalog.find(path)
    if entity is None:
        raise BusError(NOT_FOUND, uri=path)
    if not isinstance(entity, Queue):
        raise BusError(
            INVALID_OPERATION,
            detail=f"'{entity.path}' is a topic, and only queues can be migrated. Make another "
            "topic, forward a subscription of this one to it, and let its clients go over.",
        )
    if entity.migration is not None and entity.migration.source != entity.incarnation:
        raise BusError(
            INVALID_OPERATION,
            detail=f"'{entity.path}' is being filled by a migration, and goes when that is over. "
            "Ask for the queue that it takes the place of.",
        )
    return entity


def start(gateway: Gateway, path: str, *, partitioned: bool, capture: bool) -> Progress:
    queue = queue_named(gateway, path)
    if queue.migration is None and bool(queue.enable_partitioning) is partitioned:
        return progress(gateway, path)
    now_ms = gateway.host.now_ms()
    migrations.start(
        gateway.catalog, queue, partitioned=partitioned, capture=capture, now_ms=now_ms
    )
    return progress(gateway, path)


def progress(gateway: Gateway, path: str) -> Progress:
    source = queue_named(gateway, path)
    twin = migrations.twin_of(gateway.catalog, source)
    left, problems = _counts(gateway, source)
    if source.migration is None or twin is None:
        partitioned = bool(source.enable_partitioning)
        return Progress(source.path, partitioned, Phase.NONE, left, problems=tuple(problems))
    moved, twin_problems = _counts(gateway, twin)
    problems |= twin_problems
    finished, locked = not problems, 0
    for partition in range(len(source.placement)):
        owner = gateway.router.owner(source, partition)
        if owner is None:
            continue
        standing = owner.movers.standing(source.incarnation, partition)
        finished = finished and standing.finished
        locked += standing.locked
        if standing.problem is not None:
            problems[standing.problem] = None
    return Progress(
        source.path,
        bool(twin.enable_partitioning),
        Phase.MOVED if finished else Phase.MOVING,
        left,
        moved,
        twin.path,
        locked,
        tuple(problems),
    )


def switch(gateway: Gateway, path: str) -> Progress:
    """The twin takes the path, and clients may come again."""
    source, twin = _both(gateway, path)
    found = progress(gateway, path)
    if found.phase is not Phase.MOVED:
        raise BusError(
            INVALID_OPERATION,
            detail=f"'{source.path}' is not empty yet: {sum(found.left.values())} messages are "
            f"left, {found.locked} of them locked. Ask again when its phase is 'moved'.",
        )
    migrations.switch(gateway.catalog, source, twin, gateway.host.now_ms())
    return progress(gateway, path)


def call_off(gateway: Gateway, path: str) -> Progress:
    """As if nothing had been; only possible while nothing has been moved."""
    source = queue_named(gateway, path)
    twin = migrations.twin_of(gateway.catalog, source)
    if twin is None:
        return progress(gateway, path)
    moved, problems = _counts(gateway, twin)
    if problems:
        raise BusError(PARTITION_UNAVAILABLE, partition=0, uri=twin.path)
    if sum(moved.values()):
        raise BusError(
            INVALID_OPERATION,
            detail=f"{sum(moved.values())} messages of '{source.path}' have been moved, and would "
            "come behind the others if they were moved back now. Let it end, switch, and migrate "
            "the queue back.",
        )
    migrations.call_off(gateway.catalog, source, twin, gateway.host.now_ms())
    return progress(gateway, path)


def _both(gateway: Gateway, path: str) -> tuple[Queue, Queue]:
    source = queue_named(gateway, path)
    twin = migrations.twin_of(gateway.catalog, source)
    if source.migration is None or twin is None:
        raise BusError(
            INVALID_OPERATION,
            detail=f"'{source.path}' is not being migrated. Start with POST /$busway/migrations.",
        )
    return source, twin


def _counts(gateway: Gateway, queue: Queue) -> tuple[dict[str, int], dict[str, None]]:
    """What it holds, over the partitions that can be asked; and what is wrong with the others."""
    counts: Counter[str] = Counter()
    problems: dict[str, None] = {}
    for partition in range(len(queue.placement)):
        owner = gateway.router.owner(queue, partition)
        if owner is None or not owner.available:
            problems[f"Partition {partition} of '{queue.path}' is not available."] = None
            continue
        for kind, each in owner.counters(queue.incarnation, partition).items():
            if kind is SubQueueKind.MAIN:
                counts.update(active=each.active, deferred=each.deferred, scheduled=each.scheduled)
            else:
                counts[PLACES[kind]] += each.active + each.deferred
    return {name: number for name, number in counts.items() if number}, problems
