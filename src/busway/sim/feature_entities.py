"""Entities of every kind, and what is sent to them: everything that is drawn about them, from the
seed."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from busway.model.entities import Queue, Subscription, Topic
from busway.model.partitioning import partition_of_key
from busway.sim import habits
from busway.sim.direct_messages import Target
from busway.sim.habits import Parcel
from busway.sim.simulation import LOCK_DURATION_MAX_MS
from busway.sim.traits import PLAIN, Traits

SESSION_IDS = tuple(f"session-{each}" for each in range(6))
KEYS = tuple(f"key-{each}" for each in range(40))


def some_queue(random: Random, path: str, below: Sequence[str]) -> Queue:
    """It may forward to those below, so no way leads back."""
    with_sessions = random.randrange(5) < 2
    forward_to = forward_dead_letters_to = None
    if below and not with_sessions and random.randrange(3):
        forward_to = random.choice(below)
    if below and random.randrange(3) == 0:
        forward_dead_letters_to = random.choice(below)
    return Queue(
        path=path,
        enable_partitioning=random.randrange(2) == 0,
        lock_duration_ms=random.choice((5_000, 8_000, LOCK_DURATION_MAX_MS)),
        max_delivery_count=random.choice((1, 2, 3, 10)),
        default_ttl_ms=random.choice((None, None, None, 10_000)),
        dead_lettering_on_expiration=random.randrange(2) == 0,
        requires_session=with_sessions,
        requires_duplicate_detection=random.randrange(5) < 2,
        forward_to=forward_to,
        forward_dead_letters_to=forward_dead_letters_to,
        capture=random.randrange(3) > 0,
    )


def short_queue(random: Random, path: str) -> Queue:
    """Messages stay, and come back: nothing in it expires, and it forwards nothing."""
    return Queue(
        path=path,
        enable_partitioning=random.randrange(2) == 0,
        lock_duration_ms=random.choice((5_000, LOCK_DURATION_MAX_MS)),
        max_delivery_count=random.choice((2, 10)),
    )


def some_topic(random: Random) -> Topic:
    return Topic(
        path="topic",
        enable_partitioning=random.randrange(2) == 0,
        requires_duplicate_detection=random.randrange(2) == 0,
        capture=random.randrange(2) == 0,
    )


def some_subscription(random: Random, topic: Topic, place: int) -> Subscription:
    return Subscription(
        topic=topic.path,
        name=f"subscription-{place}",
        lock_duration_ms=random.choice((5_000, LOCK_DURATION_MAX_MS)),
        max_delivery_count=random.choice((1, 3, 10)),
        dead_lettering_on_expiration=random.randrange(2) == 0,
        requires_session=random.randrange(4) == 0,
        capture=random.randrange(3) > 0,
    )


def needs_session(target: Target) -> bool:
    """A queue refuses what has none (SES-1); where copies or forwards arrive it is dead."""
    return isinstance(target, Queue) and target.requires_session


def feature_parcel(random: Random, target: Target, partition: int | None, *, large: bool) -> Parcel:
    """For this partition, if there is to be one."""
    parcel = habits.parcel(random, large=large)
    session_id = key = None
    partitions = len(target.placement)

    def fitting(names: Sequence[str]) -> str | None:
        right = [
            name
            for name in names
            if partition is None or partition_of_key(name, partitions) == partition
        ]
        return random.choice(right) if right else None

    if needs_session(target) or random.randrange(2):
        session_id = fitting(SESSION_IDS)
    if session_id is None and (parcel.key is not None or partition is not None):
        key = fitting(KEYS)
    count = parcel.count
    if target.requires_duplicate_detection and session_id is None and key is None:
        count = 1  # its id is its key, and a batch has one key
    due_in_ms = None
    if random.randrange(6) == 0:
        longest_ms = 30_000 if isinstance(target, Topic) else 100_000
        due_in_ms = random.choice((random.randint(1, 2_000), random.randint(1, 30_000), longest_ms))
    traits = Traits.draw(random) if isinstance(target, Topic) else PLAIN
    return Parcel(count, parcel.sizes[:count], parcel.ttl_ms, key, session_id, due_in_ms, traits)
