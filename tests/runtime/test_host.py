"""The real machine behind `broker.seams.Host`: time that never goes back, turns before waiting."""

from __future__ import annotations

import asyncio
import time

import pytest

from busway.runtime import host as host_module
from busway.runtime.host import Host
from tests.runtime.wire import WAIT_S


@pytest.fixture
async def host() -> Host:
    return Host(asyncio.get_running_loop())


async def test_broker_time_is_the_time_of_day(host: Host) -> None:
    assert abs(host.now_ms() - time.time() * 1000) < 1000


async def test_broker_time_does_not_follow_a_clock_that_is_set(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = host.now_ms()
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    assert host.now_ms() >= before


async def test_broker_time_is_never_below_what_a_store_has_committed(host: Host) -> None:
    ahead = host.now_ms() + 3_600_000
    host.not_before(ahead)
    assert host.now_ms() >= ahead
    host.not_before(ahead - 1_000_000)  # an older store takes nothing away
    assert host.now_ms() >= ahead


async def test_turns_are_taken_in_order_and_before_anything_is_waited_for(host: Host) -> None:
    order: list[str] = []
    host.soon(lambda: order.append("first"))
    host.soon(lambda: (order.append("second"), host.soon(lambda: order.append("third")))[0])
    assert order == []
    await asyncio.sleep(0)
    assert order == ["first", "second", "third"]


async def test_what_is_called_last_comes_after_every_turn(host: Host) -> None:
    order: list[str] = []
    host.last(lambda: order.append("last"))
    host.soon(lambda: (order.append("first"), host.soon(lambda: order.append("second")))[0])
    await asyncio.sleep(0)
    assert order == ["first", "second", "last"]


async def test_many_turns_cost_one_call_of_the_loop(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0

    class CountingLoop:
        def call_soon(self, callback: object) -> None:
            nonlocal calls
            calls += 1

    monkeypatch.setattr(host, "loop", CountingLoop())
    for _ in range(100):
        host.soon(lambda: None)
    assert calls == 1


async def test_a_turn_that_fails_does_not_take_the_others(host: Host) -> None:
    taken: list[int] = []
    host.soon(lambda: taken.append(1))
    host.soon(lambda: 1 // 0)
    host.soon(lambda: taken.append(2))
    await asyncio.sleep(0)
    assert taken == [1, 2]


async def test_turns_that_call_for_turns_without_end_still_let_the_loop_read(host: Host) -> None:
    going_on = True

    def again() -> None:
        if going_on:
            host.soon(again)

    host.soon(again)
    reached = asyncio.Event()
    asyncio.get_running_loop().call_later(0.001, reached.set)
    await asyncio.wait_for(reached.wait(), WAIT_S)
    going_on = False


async def test_a_timer_never_fires_early(host: Host) -> None:
    fired: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    due = host.now_ms() + 15
    host.at(due, lambda: fired.set_result(host.now_ms()))
    assert await asyncio.wait_for(fired, WAIT_S) >= due


async def test_a_timer_in_the_past_fires_soon_but_not_at_once(host: Host) -> None:
    fired = asyncio.Event()
    host.at(0, fired.set)
    assert not fired.is_set()
    await asyncio.wait_for(fired.wait(), WAIT_S)


async def test_a_cancelled_timer_stays_silent(host: Host) -> None:
    fired: list[str] = []
    later = asyncio.Event()
    host.at(host.now_ms(), lambda: fired.append("cancelled")).cancel()
    host.at(host.now_ms() + 5, later.set)
    await asyncio.wait_for(later.wait(), WAIT_S)
    assert fired == []


async def test_a_long_wait_looks_at_broker_time_again(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a laptop's sleep: the loop's clock stood still, broker time went on."""
    monkeypatch.setattr(host_module, "LONGEST_WAIT_S", 0.005)
    fired = asyncio.Event()
    host.at(host.now_ms() + 3_600_000, fired.set)
    host.not_before(host.now_ms() + 3_600_000)
    await asyncio.wait_for(fired.wait(), WAIT_S)


async def test_random_bytes_have_the_length_asked_for_and_do_not_repeat(host: Host) -> None:
    drawn = [host.random_bytes(10) for _ in range(1000)]
    assert {len(token) for token in drawn} == {10}
    assert len(set(drawn)) == 1000
    assert len(host.random_bytes(10_000)) == 10_000


async def test_a_clock_that_is_moved_leaves_durations_alone() -> None:
    host = Host(asyncio.get_running_loop(), movable=True)
    before, steady = host.now_ms(), host.steady_ms()
    host.move(3_600_000)
    assert host.now_ms() - before >= 3_600_000
    assert host.steady_ms() - steady < 3_600_000
    assert host.clock_ms() - before < 3_600_000


async def test_a_timer_waits_as_long_when_the_clock_was_moved_and_set_back() -> None:
    host = Host(asyncio.get_running_loop(), movable=True)
    host.move(3_600_000)
    rang = asyncio.Event()
    timer = host.at(host.now_ms() + 10, rang.set)
    host.move_back()
    assert host.moved_ms == 0
    assert abs(host.now_ms() - time.time() * 1000) < 60_000
    await asyncio.wait_for(rang.wait(), WAIT_S)
    timer.cancel()


async def test_a_clock_is_not_moved_where_nobody_said_so(host: Host) -> None:
    with pytest.raises(AssertionError, match="cannot be moved"):
        host.move(1)
