"""A request that waits at the head of a queue, in virtual time: who comes between, and when.

The world is a node in memory; the request is the real receiver of `busway.http.rest`, without the
bytes around it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from unittest.mock import patch

import pytest

from busway.amqp.performatives import Accepted
from busway.amqp.types import Symbol
from busway.gateway.visitors import SEAT_KEPT_MS
from busway.http.rest.messages import body_of
from busway.http.rest.receiving import LOOK_MS, HeadReceiver
from busway.model.entities import EntityStatus
from busway.model.errors import (
    ENTITY_DISABLED,
    NOT_FOUND,
    RECEIVERS_EXCEEDED,
    SHUTTING_DOWN,
    BusError,
)
from busway.model.message import Message
from busway.model.names import Address, SubQueueKind
from tests.gateway.world import World, message

Taken = asyncio.Task[Message | None]


@pytest.fixture(params=["conventional", "partitioned"])
def world(request: pytest.FixtureRequest) -> World:
    made = World()
    made.queue("queue", enable_partitioning=request.param == "partitioned")
    return made


def head(world: World, *, delete: bool = False) -> HeadReceiver:
    return HeadReceiver(world.gateway, Address("queue"), "sb://test/queue", delete=delete)


async def waiting(world: World, timeout_ms: int, *, delete: bool = False) -> Taken:
    """A request that has asked, and been told to wait."""
    task = asyncio.create_task(head(world, delete=delete).take(timeout_ms))
    await turn()
    return task


async def turn() -> None:
    """Let tasks run until they wait again."""
    for _ in range(5):
        await asyncio.sleep(0)


async def take(world: World, timeout_ms: int = 0, *, delete: bool = False) -> Message | None:
    task = await waiting(world, timeout_ms, delete=delete)
    world.settle()
    await turn()
    assert task.done()
    return task.result()


def send(world: World, count: int = 1) -> None:
    sender = world.connect().sender("queue")
    for _ in range(count):
        sender.put(message())
    world.settle()


async def test_the_time_runs_out_when_it_should(world: World) -> None:
    task = await waiting(world, 3_000)
    world.settle(for_ms=2_000)
    await turn()
    assert not task.done()
    world.settle(for_ms=1_000)
    await turn()
    assert task.result() is None


async def test_who_does_not_wait_gets_what_is_there(world: World) -> None:
    send(world, 3)
    for _ in range(3):
        assert await take(world) is not None
    assert await take(world) is None


@pytest.mark.parametrize("delete", [False, True])
async def test_who_leaves_before_anything_came_takes_nothing(world: World, delete: bool) -> None:
    task = await waiting(world, 60_000, delete=delete)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    send(world)
    found = await take(world)
    assert found is not None
    assert found.delivery_count == 0


async def test_who_leaves_with_a_message_on_its_way_gives_it_back_uncounted(world: World) -> None:
    """DLV-1."""
    receiver = head(world)
    task = asyncio.create_task(receiver.take(60_000))
    await turn()
    send(world)  # delivers into the future that the task waits for; the task does not run yet
    assert receiver.free_credit() == 0
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    world.settle()
    found = await take(world)
    assert found is not None
    assert found.delivery_count == 0


async def test_a_delivery_goes_back_if_it_could_not_be_written(world: World) -> None:
    send(world)
    receiver = head(world)
    found = await receiver.take(0)
    assert found is not None
    assert await take(world) is None
    receiver.hand_back(found)
    world.settle()
    again = await take(world)
    assert again is not None
    assert (again.number, again.delivery_count) == (found.number, 0)


async def test_what_is_being_removed_when_time_is_up_still_comes(world: World) -> None:
    """D-6: it is gone from the queue, so it must reach whoever it was removed for."""
    send(world)
    for disk in world.disks.values():
        disk.pause()
    task = await waiting(world, 0, delete=True)
    world.settle(for_ms=2 * LOOK_MS)
    await turn()
    assert not task.done()
    for disk in world.disks.values():
        disk.resume()
    world.settle()
    await turn()
    assert task.result() is not None
    assert await take(world) is None


CHANGES: dict[str, tuple[Callable[[World], None], object]] = {
    "deleted": (lambda world: world.catalog.delete("queue"), NOT_FOUND),
    "disabled": (lambda world: set_status(world, EntityStatus.DISABLED), ENTITY_DISABLED),
    "stopped": (lambda world: stop(world), SHUTTING_DOWN),
}


def stop(world: World) -> None:
    world.gateway.visitors.send_away(BusError(SHUTTING_DOWN))


def set_status(world: World, status: EntityStatus) -> None:
    queue = world.catalog.find("queue")
    assert queue is not None
    world.catalog.update(replace(queue, status=status))


@pytest.mark.parametrize("change", CHANGES)
async def test_who_leaves_just_then_has_left(world: World, change: str) -> None:
    task = await waiting(world, 60_000)
    CHANGES[change][0](world)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("change", CHANGES)
async def test_who_waits_is_told_that_there_is_nothing_to_wait_for(
    world: World, change: str
) -> None:
    """STA-2, STA-5."""
    act, kind = CHANGES[change]
    task = await waiting(world, 60_000)
    act(world)
    world.settle()
    with pytest.raises(BusError) as caught:
        await task
    assert caught.value.kind is kind


async def test_a_change_that_does_not_matter_does_not_end_the_wait(world: World) -> None:
    task = await waiting(world, 60_000)
    set_status(world, EntityStatus.SEND_DISABLED)
    world.settle()
    await turn()
    assert not task.done()
    set_status(world, EntityStatus.ACTIVE)
    send(world)
    await turn()
    assert task.result() is not None


async def test_requests_are_served_in_the_order_in_which_they_came(world: World) -> None:
    """P-26."""
    tasks = [await waiting(world, 60_000) for _ in range(5)]
    for served in range(5):
        send(world)
        await turn()
        assert [task.done() for task in tasks] == [True] * (served + 1) + [False] * (4 - served)


async def test_a_seat_is_kept_for_the_next_and_given_up_when_none_comes(world: World) -> None:
    """P-28."""
    queue = world.catalog.find("queue")
    assert queue is not None
    assert await take(world) is None
    assert world.gateway.has_receivers(queue)
    fan_in = world.gateway.fan_in(queue, Address("queue").sub_queue)
    world.settle(for_ms=SEAT_KEPT_MS // 2)
    assert await take(world) is None
    assert world.gateway.fan_in(queue, Address("queue").sub_queue) is fan_in
    world.settle(for_ms=3 * SEAT_KEPT_MS)
    assert not world.gateway.has_receivers(queue)
    send(world)
    assert await take(world) is not None


async def test_requests_that_find_nothing_leave_nothing_behind(world: World) -> None:
    queue = world.catalog.find("queue")
    assert queue is not None
    world.connect().receiver("queue")  # keeps the fan-in
    fan_in = world.gateway.fan_in(queue, Address("queue").sub_queue)
    links = len(fan_in.links)
    for _ in range(100):
        assert await take(world) is None
    assert len(fan_in.links) == links + 1  # the seat
    assert len(fan_in._hungry) <= links


async def test_what_could_not_be_transferred_is_received_where_it_stayed(world: World) -> None:
    """FWD-5."""
    world.queue("out", status=EntityStatus.SEND_DISABLED)
    via = Symbol("com.microsoft:transfer-destination-address")
    sender = world.connect().sender("queue", properties={via: "out"})
    assert isinstance(sender.send(message("lost")), Accepted)
    world.settle(for_ms=1_000)
    address = Address("queue", sub_queue=SubQueueKind.TRANSFER_DEAD_LETTER)
    found = await HeadReceiver(world.gateway, address, "sb://test", delete=False).take(0)
    assert found is not None
    assert body_of(found.bare) == b"lost"
    assert await take(world) is None


async def test_lim_10_requests_are_receivers_too(world: World) -> None:
    assert await take(world) is None
    with patch("busway.gateway.receiver_counts.RECEIVES_PER_ENTITY_MAX", 2):
        tasks = [await waiting(world, 60_000) for _ in range(2)]
        with pytest.raises(BusError) as caught:
            head(world)
        assert caught.value.kind is RECEIVERS_EXCEEDED
        tasks[0].cancel()
        await turn()
        assert await take(world) is None
    tasks[1].cancel()
