"""Credit and partitions in pairs: nobody starves, nothing is lent twice (P-26, D-22)."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from busway.broker.seams import Grant
from busway.gateway.fanin import GRANT_MESSAGES_MAX, FanIn
from busway.gateway.router import Router
from busway.model.entities import Queue
from busway.store.base import SubQueueKey, SubQueueKind


class Partitions:
    """Stands for every owner: so many messages in each partition, given at once."""

    available = True

    def __init__(self, counts: list[int]) -> None:
        self.left = dict(enumerate(counts))
        self.watchers: dict[SubQueueKey, Any] = {}
        self.order: list[int] = []

    def watch(self, key: SubQueueKey, watcher: Any) -> None:
        self.watchers[key] = watcher

    def unwatch(self, key: SubQueueKey, watcher: Any) -> None:
        del self.watchers[key]

    def grant(self, grant: Grant) -> None:
        partition = grant.key.partition
        given = min(grant.left, self.left[partition])
        self.left[partition] -= given
        if given:
            self.order.append(partition)
            grant.receiver.deliver(grant, [None] * given)  # type: ignore[list-item]
        grant.left = 0  # as brokers do, whatever was left
        grant.receiver.finished(grant)

    def add(self, key: SubQueueKey, count: int) -> None:
        self.left[key.partition] += count
        if key in self.watchers:
            self.watchers[key].ready(key)


class CreditOnly:
    """A link that is nothing but its credit."""

    delete = False

    def __init__(self, fan_in: FanIn, credit: int) -> None:
        self.credit = credit
        self.got: Counter[int] = Counter()
        self.largest = 0
        self._fan_in = fan_in
        self._lent: dict[Grant, int] = {}
        fan_in.join(self)

    def free_credit(self) -> int:
        return self.credit - sum(self._lent.values())

    def lend(self, grant: Grant) -> None:
        self._lent[grant] = grant.left
        self.largest = max(self.largest, grant.left)
        assert self.free_credit() >= 0  # D-22

    def deliver(self, grant: Grant, messages: list[Any]) -> None:
        self._lent[grant] -= len(messages)
        self.credit -= len(messages)
        self.got[grant.key.partition] += len(messages)

    def finished(self, grant: Grant) -> None:
        self._fan_in.returned(grant.key, empty=self._lent.pop(grant) > 0)
        self._fan_in.hungry(self)


class AtOnce:
    """Turns that end when the test says so."""

    def __init__(self) -> None:
        self.due: list[Any] = []

    def is_left(self, fan_in: Any) -> None:
        """Nobody keeps it."""

    def at_turn_end(self, due: Any) -> None:
        self.due.append(due)

    def end(self) -> None:
        while self.due:
            self.due.pop().turn()


def make(counts: list[int]) -> tuple[FanIn, Partitions, AtOnce]:
    partitions, turns = Partitions(counts), AtOnce()
    queue = Queue(path="q", incarnation=1, placement=tuple("s" for _ in counts))
    router = Router({"s": partitions})  # type: ignore[dict-item]
    fan_in = FanIn(queue, SubQueueKind.MAIN, router, turns, range(len(counts)))
    return fan_in, partitions, turns


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(0, 200), min_size=1, max_size=16),
    st.lists(st.integers(0, 300), min_size=1, max_size=5),
)
def test_everything_ready_reaches_a_link_with_credit(counts: list[int], credits: list[int]) -> None:
    fan_in, _, turns = make(counts)
    links = [CreditOnly(fan_in, credit) for credit in credits]
    for link in links:
        fan_in.hungry(link)
    turns.end()
    delivered = sum(sum(link.got.values()) for link in links)
    assert delivered == min(sum(counts), sum(credits))
    assert all(link.credit >= 0 for link in links)
    assert all(link.largest <= GRANT_MESSAGES_MAX for link in links)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), max_size=30))
def test_what_arrives_later_is_not_forgotten(arrivals: list[tuple[int, int]]) -> None:
    fan_in, partitions, turns = make([0, 0, 0, 0])
    link = CreditOnly(fan_in, 1_000)
    fan_in.hungry(link)
    turns.end()
    for partition, count in arrivals:
        partitions.add(SubQueueKey(1, partition, SubQueueKind.MAIN), count)
        turns.end()
    assert sum(link.got.values()) == sum(count for _, count in arrivals)


def test_one_credit_at_a_time_visits_every_partition_in_turn() -> None:
    fan_in, partitions, turns = make([10] * 8)
    link = CreditOnly(fan_in, 0)
    for _ in range(16):
        link.credit += 1
        fan_in.hungry(link)
        turns.end()
    assert partitions.order == [*range(8), *range(8)]


def test_links_with_the_same_credit_get_about_the_same() -> None:
    fan_in, _, turns = make([1_000])
    links = [CreditOnly(fan_in, 200) for _ in range(4)]
    for link in links:
        fan_in.hungry(link)
    turns.end()
    assert [sum(link.got.values()) for link in links] == [200] * 4


def test_the_last_link_to_leave_stops_the_watch() -> None:
    fan_in, partitions, turns = make([0, 0])
    first, second = CreditOnly(fan_in, 1), CreditOnly(fan_in, 1)
    assert len(partitions.watchers) == 2
    fan_in.leave(first)
    assert len(partitions.watchers) == 2
    fan_in.leave(second)
    assert partitions.watchers == {}
    assert not turns.due


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 7), st.integers(1, 4), st.integers(1, 2))
def test_links_with_little_credit_are_served_in_their_order(
    links: int, partitions: int, credit: int
) -> None:
    """A link that was asked for when there was nothing left must not lose its place by that."""
    fan_in, stores, turns = make([0] * partitions)
    waiting = [CreditOnly(fan_in, credit) for _ in range(links)]
    for link in waiting:
        fan_in.hungry(link)
    turns.end()
    for number in range(links * 10):
        before = [sum(link.got.values()) for link in waiting]
        stores.add(SubQueueKey(1, number % partitions, SubQueueKind.MAIN), 1)
        turns.end()
        (served,) = [
            link
            for link, count in zip(waiting, before, strict=True)
            if sum(link.got.values()) > count
        ]
        served.credit += 1
        fan_in.hungry(served)
        turns.end()
    assert {sum(link.got.values()) for link in waiting} == {10}
