"""The thread of a store: in order, one wake-up for many outcomes, nothing lost at the end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from busway.runtime.store_thread import StoreThread
from busway.store.base import (
    CommitRefused,
    CommitUnknown,
    MessagingStore,
    Opened,
    StoreUnavailable,
)


class Shelf:
    """As much of a store as these tests call."""

    closed_in: threading.Thread | None = None

    def close(self) -> None:
        self.closed_in = threading.current_thread()


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


def thread_of(shelf: Any) -> StoreThread:
    return StoreThread(shelf, asyncio.get_running_loop(), "store-0")


def give(value: Any) -> Callable[[MessagingStore], Any]:
    return lambda store: value


def fail(error: Exception) -> Callable[[MessagingStore], Any]:
    def operation(store: MessagingStore) -> None:
        raise error

    return operation


async def test_jobs_run_in_order_in_another_thread(shelf: Shelf) -> None:
    thread = thread_of(shelf)
    ran: list[int] = []
    outcomes: list[Any] = []
    for number in range(100):
        thread.call(lambda store, number=number: ran.append(number), outcomes.append)
    thread.call(lambda store: threading.current_thread(), outcomes.append)
    await thread.stop()
    assert ran == list(range(100))
    assert outcomes[:100] == [None] * 100
    assert outcomes[100] is not threading.current_thread()


async def test_outcomes_arrive_in_the_loop_s_own_thread(shelf: Shelf) -> None:
    thread = thread_of(shelf)
    arrived_in: list[threading.Thread] = []
    thread.call(give(1), lambda outcome: arrived_in.append(threading.current_thread()))
    await thread.stop()
    assert arrived_in == [threading.current_thread()]


async def test_many_outcomes_are_handed_over_with_one_wake_up(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    wake_ups: list[str] = []
    really = loop.call_soon_threadsafe
    monkeypatch.setattr(
        loop,
        "call_soon_threadsafe",
        lambda callback, *args: (wake_ups.append(callback.__name__), really(callback, *args))[1],
    )
    thread = thread_of(shelf)
    outcomes: list[Any] = []
    done = threading.Event()
    for number in range(50):
        thread.call(give(number), outcomes.append)
    thread.call(lambda store: done.set(), outcomes.append)
    done.wait(60)  # the loop stands still meanwhile: nothing can be handed over
    await thread.stop()
    assert outcomes == [*range(50), None]
    assert wake_ups.count("_hand_over") <= 2  # the last one's outcome may come after that


async def test_what_a_store_refuses_is_an_outcome(shelf: Shelf) -> None:
    thread = thread_of(shelf)
    outcomes: list[Any] = []
    refused = CommitRefused("the disk is full")
    thread.call(fail(refused), outcomes.append)
    await thread.stop()
    assert outcomes == [refused]


async def test_an_unforeseen_failure_is_an_unknown_outcome_and_the_thread_lives_on(
    shelf: Shelf,
) -> None:
    thread = thread_of(shelf)
    outcomes: list[Any] = []
    thread.call(fail(ValueError("a mistake")), outcomes.append)
    thread.call(give("next"), outcomes.append)
    await thread.stop()
    assert isinstance(outcomes[0], CommitUnknown)
    assert outcomes[1] == "next"


async def test_whoever_keeps_the_time_hears_of_an_opened_store_first(shelf: Any) -> None:
    opened = Opened("id", epoch=1, commit_number=0, time_ms=4711, sub_queues=())
    heard: list[str] = []
    thread = StoreThread(
        shelf, asyncio.get_running_loop(), "store-0", lambda it: heard.append(f"{it.time_ms}")
    )
    thread.call(give(opened), lambda outcome: heard.append("asked"))
    await thread.stop()
    assert heard == ["4711", "asked"]


async def test_taking_an_outcome_may_fail_without_holding_the_others_up(shelf: Shelf) -> None:
    thread = thread_of(shelf)
    outcomes: list[Any] = []
    thread.call(give(0), lambda outcome: 1 // outcome)
    thread.call(give(1), outcomes.append)
    await thread.stop()
    assert outcomes == [1]


async def test_stopping_finishes_what_is_queued_and_closes_the_store_in_its_thread(
    shelf: Shelf,
) -> None:
    thread = thread_of(shelf)
    gate = threading.Event()
    outcomes: list[Any] = []
    thread.call(lambda store: gate.wait(60), outcomes.append)
    thread.call(give("last"), outcomes.append)
    stopping = asyncio.create_task(thread.stop())
    gate.set()
    await stopping
    assert outcomes == [True, "last"]
    assert shelf.closed_in not in (None, threading.current_thread())


async def test_a_call_after_the_stop_is_answered_not_forgotten(shelf: Shelf) -> None:
    thread = thread_of(shelf)
    await thread.stop()
    outcomes: list[Any] = []
    thread.call(give(1), outcomes.append)
    await asyncio.sleep(0)
    assert isinstance(outcomes[0], StoreUnavailable)
