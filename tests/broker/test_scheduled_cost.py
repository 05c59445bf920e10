"""SCH, D-10, D-13: scheduled messages wait in the store; the broker keeps a time, not messages."""

from __future__ import annotations

import gc
from types import FunctionType, ModuleType

import pytest

from busway.broker.broker import Broker
from busway.broker.window import WINDOW_MESSAGES
from tests.broker.several_entities import SeveralEntities, message

HOUR_MS = 3_600_000
FEW, MANY = 500, 6_000
BATCH = 500
PATIENCE_MS = 10_000
"""After this no commit is being watched any more (D-8)."""
SURROUNDINGS = ("busway.sim", "busway.store", "busway.cluster", "tests")
"""What a broker is put into, and what it would leave behind if it were gone."""


def objects_of(broker: Broker) -> int:
    """How many objects live by this broker alone."""
    seen: set[int] = set()
    found: list[object] = [broker]
    while found:
        each = found.pop()
        kind = type(each)
        around = kind.__module__.startswith(SURROUNDINGS) and not hasattr(kind, "_fields")
        if id(each) in seen or around or isinstance(each, type | ModuleType):
            continue
        seen.add(id(each))
        if isinstance(each, FunctionType):
            found += each.__closure__ or ()  # not its module, which knows everything
        else:
            found += gc.get_referents(each)
    return len(seen)


def house_with(count: int, due_in_ms: int, *, restarted: bool = False) -> SeveralEntities:
    house = SeveralEntities()
    queue = house.queue()
    for start in range(0, count, BATCH):
        due_ms = house.now_ms() + due_in_ms + start  # each batch has a time of its own
        house.send(queue, *(message("x", at_ms=due_ms, size=10) for _ in range(BATCH)))
    if restarted:
        house.crash(queue)
    house.run(PATIENCE_MS)
    assert house.counters(queue).scheduled == count
    return house


def broker_in(house: SeveralEntities) -> Broker:
    (store,) = house.world.stores.values()
    return store.broker


def timers_in(house: SeveralEntities) -> int:
    return sum(timer.callback is not None for _, _, timer in house.world.scheduler._events)


@pytest.mark.parametrize("restarted", [False, True], ids=["as sent", "started again"])
def test_sch_1_many_cost_no_more_objects_than_few(restarted: bool) -> None:
    few, many = (
        objects_of(broker_in(house_with(count, HOUR_MS, restarted=restarted)))
        for count in (FEW, MANY)
    )
    assert many - few < 100


def test_the_count_of_objects_sees_what_a_broker_keeps() -> None:
    """Active messages fill the window and are in memory (D-11)."""
    house = SeveralEntities()
    queue = house.queue()
    empty = objects_of(broker_in(house))
    house.send(queue, *(message("x", size=10) for _ in range(WINDOW_MESSAGES)))
    assert objects_of(broker_in(house)) - empty >= WINDOW_MESSAGES


def test_sch_1_one_timer_stands_for_all_of_them() -> None:
    house = house_with(MANY, HOUR_MS)
    assert timers_in(house) == 1
    (store,) = house.world.stores.values()
    store.crash(finish_commit=False)
    of_the_dead = timers_in(house)
    store.restart()
    house.run(PATIENCE_MS)
    assert timers_in(house) - of_the_dead == 1


def test_sch_1_nobody_looks_at_them_before_their_time() -> None:
    house = house_with(MANY, HOUR_MS)
    before = house.world.scheduler.steps
    house.run(HOUR_MS // 2)
    assert house.world.scheduler.steps - before <= 2


def test_sch_1_what_became_active_beyond_the_window_is_not_kept_either() -> None:
    """D-11: all fall due, nobody receives: a window of them is in memory, not all."""
    house = house_with(MANY, 60_000)
    house.run(120_000)
    (sub_queue,) = broker_in(house)._sub_queues.values()
    assert sub_queue.committed.active == MANY
    assert len(sub_queue.known) <= WINDOW_MESSAGES
    assert timers_in(house) <= 1
