"""The virtual machine itself: time, turns, disks and deaths."""

from __future__ import annotations

import pytest

from busway.broker.seams import Grant
from busway.model.entities import Queue
from busway.model.errors import BusError
from busway.model.message import Message
from busway.sim.scheduler import Scheduler
from busway.sim.world import World
from busway.store.base import SubQueueKey, SubQueueKind


class Deaf:
    """A client that must hear nothing."""

    def committed(self, tags: list[int]) -> None:
        pytest.fail("an answer of a broker that is dead")

    def failed(self, tag: int, error: BusError) -> None:
        pytest.fail("an answer of a broker that is dead")

    def deliver(self, grant: Grant, messages: list[Message]) -> None:
        pytest.fail("a delivery of a broker that is dead")

    def finished(self, grant: Grant) -> None:
        pytest.fail("a grant of a broker that is dead")


def test_callbacks_run_in_the_order_of_time_and_then_of_arrival() -> None:
    scheduler = Scheduler(1)
    seen: list[str] = []
    scheduler.after(5, lambda: seen.append("late"))
    scheduler.after(1, lambda: seen.append("first"))
    scheduler.after(1, lambda: seen.append("second"))
    scheduler.soon(lambda: seen.append("at once"))
    scheduler.run_for(10)
    assert seen == ["at once", "first", "second", "late"]


def test_time_never_goes_back_after_a_jump() -> None:
    scheduler = Scheduler(1)
    times: list[int] = []
    scheduler.after(5, lambda: times.append(scheduler.now_ms()))
    begin_ms = scheduler.now_ms()
    scheduler.jump(1_000)
    scheduler.run_for(10)
    assert times == [begin_ms + 1_000]


def test_a_cancelled_timer_does_nothing() -> None:
    scheduler = Scheduler(1)
    seen: list[int] = []
    scheduler.after(5, lambda: seen.append(1)).cancel()
    scheduler.run_for(10)
    assert seen == []


def test_a_world_that_goes_in_circles_is_stopped() -> None:
    scheduler = Scheduler(1)

    def again() -> None:
        scheduler.after(0, again)

    again()
    with pytest.raises(RuntimeError, match="circles"):
        scheduler.run_for(1)


@pytest.mark.parametrize("finish_commit", [False, True])
def test_a_dead_broker_reaches_nobody(finish_commit: bool) -> None:
    world = World(1)
    (store,) = world.stores.values()
    queue = world.create_queue(Queue(path="orders"))
    world.settle_down()
    key = SubQueueKey(queue.incarnation, 0, SubQueueKind.MAIN)
    store.broker.send(key, [Message(bare=b"1", size=1)], Deaf(), 1)
    world.scheduler.step()
    store.crash(finish_commit=finish_commit)
    world.run_for(20_000)
    store.restart()
    world.settle_down()
    assert store.broker.counters(queue.incarnation, 0).keys() == (
        {SubQueueKind.MAIN} if finish_commit else set()
    )


def test_brokers_of_several_stores_fail_by_themselves() -> None:
    world = World(1, stores=3)
    world.settle_down()
    first, *others = world.stores.values()
    first.crash(finish_commit=False)
    assert [store.serving for store in others] == [True, True]
