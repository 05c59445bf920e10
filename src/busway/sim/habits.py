"""How simulated clients behave: everything they choose is drawn here, from the seed."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from busway.broker.seams import Settlement, SettlementKind
from busway.sim.traits import PLAIN, Traits

LARGE_BYTES = 300_000
"""A few of these fill a window in memory, so that messages are paged (D-11)."""


@dataclass(frozen=True, slots=True)
class Habits:
    """Of a receiver: what becomes of a message, and when."""

    outcomes: tuple[tuple[SettlementKind | None, int], ...] = (
        (SettlementKind.COMPLETE, 50),
        (SettlementKind.ABANDON, 14),
        (SettlementKind.DEFER, 8),
        (SettlementKind.DEAD_LETTER, 8),
        (SettlementKind.RELEASE, 8),
        (None, 12),  # forgotten: the lock runs out
    )
    renews_percent: int = 10
    settles_twice_percent: int = 5
    transacts_percent: int = 0
    slow_percent: int = 15
    """So slow that the lock may have run out."""

    def outcome(self, random: Random) -> SettlementKind | None:
        kinds = [kind for kind, _ in self.outcomes]
        return random.choices(kinds, [weight for _, weight in self.outcomes])[0]

    def delay_ms(self, random: Random, lock_duration_ms: int) -> int:
        if random.randrange(100) < self.slow_percent:
            return random.randint(lock_duration_ms // 2, lock_duration_ms * 3 // 2)
        return random.choice((0, 0, random.randint(1, 30), random.randint(30, 1_000)))


DRAINING = Habits(
    outcomes=((SettlementKind.COMPLETE, 1),),
    renews_percent=0,
    settles_twice_percent=0,
    slow_percent=0,
)
"""Of those who empty the world when its troubles are over."""


def settlement(kind: SettlementKind, random: Random) -> tuple[Settlement, str | None]:
    """With the reason, if it is a dead letter's."""
    if kind is not SettlementKind.DEAD_LETTER:
        changes = {"seen": random.randrange(100)} if random.randrange(4) == 0 else {}
        return Settlement(kind, dict(changes)), None
    reason = random.choice((None, "bad", "worse"))
    if reason is None:
        return Settlement(kind), None
    changes_and_reason = {"DeadLetterReason": reason, "DeadLetterErrorDescription": "so it is"}
    return Settlement(kind, dict(changes_and_reason)), reason


@dataclass(frozen=True, slots=True)
class Parcel:
    """What one send carries."""

    count: int
    sizes: tuple[int, ...]
    ttl_ms: int | None
    key: str | None
    session_id: str | None = None
    due_in_ms: int | None = None
    """When its messages become active, from now; None if they are at once."""
    traits: Traits = PLAIN
    """The same of all of them: one rule's yes or no is the whole parcel's."""


def parcel(random: Random, *, large: bool) -> Parcel:
    count = random.choice((1, 1, 1, 2, 3, 8))
    sizes = tuple(
        random.randint(LARGE_BYTES // 2, LARGE_BYTES) if large else random.randint(50, 500)
        for _ in range(count)
    )
    ttl_ms = random.choice((None, None, None, random.randint(1, 500), random.randint(500, 20_000)))
    key = f"key-{random.randrange(20)}" if random.randrange(2) else None
    return Parcel(count, sizes, ttl_ms, key)
