"""D-27: what becomes of a queue that is emptied into its twin, by single behaviours.

That nothing is lost, doubled or out of order whatever goes wrong is the simulation's to show.
"""

from __future__ import annotations

from typing import Any

import pytest

from busway.broker.broker import Broker
from busway.broker.seams import Grant
from busway.cluster import migrations
from busway.model.entities import Queue
from busway.model.errors import BusError
from busway.model.message import MessageState
from busway.model.partitioning import partition_of_key
from busway.sim.checkers.at_rest import rows_of
from busway.sim.world import World
from busway.store.base import SubQueueKey, SubQueueKind
from tests.broker.several_entities import message
from tests.broker.single_queue import ABANDON, Answers, Command, Hand

MAIN, DLQ = SubQueueKind.MAIN, SubQueueKind.DEAD_LETTER


class House:
    """One store, a queue in it, and what a client does."""

    def __init__(self, **properties: Any) -> None:
        self.world = World(1)
        self.world.settle_down()
        self.queue = self.world.create_queue(Queue(path="orders", **properties))
        self._answers = Answers()
        self._tags = 0

    @property
    def broker(self) -> Broker:
        return self.world.stores["store-0"].broker

    def send(self, text: str, to: Queue | None = None, **fields: Any) -> str | None:
        to = to or self.queue
        session = fields.get("session_id")
        partition = 0 if session is None else partition_of_key(session, len(to.placement))
        self._tags += 1
        key = SubQueueKey(to.incarnation, partition, MAIN)
        self.broker.send(key, [message(text, **fields)], self._answers, self._tags)
        self.world.run_for(100)
        return Command(self._answers, self._tags).outcome

    def start(self) -> None:
        self.queue = migrations.start(
            self.world.catalog,
            self.queue,
            partitioned=not self.queue.enable_partitioning,
            capture=False,
            now_ms=self.world.now_ms(),
        )

    @property
    def twin(self) -> Queue:
        twin = migrations.twin_of(self.world.catalog, self.queue)
        assert twin is not None
        return twin

    @property
    def finished(self) -> bool:
        return all(
            self.broker.movers.standing(self.queue.incarnation, index).finished
            for index in range(len(self.queue.placement))
        )

    def move(self) -> None:
        self.start()
        self.world.run_until(lambda: self.finished)

    def switch(self) -> None:
        self.queue = migrations.switch(
            self.world.catalog, self.queue, self.twin, self.world.now_ms()
        )
        self.world.run_for(200)

    def rows(self, queue: Queue, kind: SubQueueKind = MAIN) -> list[Any]:
        found = []
        for partition in range(len(queue.placement)):
            sub_queue = self.broker.stored_sub_queue(
                SubQueueKey(queue.incarnation, partition, kind)
            )
            if sub_queue is not None:
                found += rows_of(self.world.stores["store-0"], sub_queue.slot)
        return found


def test_fwd_2_a_message_keeps_all_but_its_number() -> None:
    house = House()
    for text in "abc":
        house.send(text, ttl_ms=3_600_000)
    before = house.rows(house.queue)
    house.move()
    after = sorted(house.rows(house.twin), key=lambda row: row.enqueued_number)
    assert [row.enqueued_number for row in after] == [row.number for row in before]
    for was, now in zip(before, after, strict=True):
        for name in ("bare", "enqueued_ms", "expires_ms", "ttl_ms", "delivery_count", "hops"):
            assert getattr(now, name) == getattr(was, name), name
    assert house.rows(house.queue) == []


def test_a_message_that_somebody_has_locked_is_waited_for() -> None:
    house = House(lock_duration_ms=5_000)
    house.send("held")
    house.send("behind it")
    hand = Hand()
    key = SubQueueKey(house.queue.incarnation, 0, MAIN)
    house.broker.grant(Grant(hand, key, 1, delete=False))
    house.world.run_for(100)
    house.start()
    house.world.run_for(2_000)
    assert house.broker.movers.standing(house.queue.incarnation, 0).locked == 1
    assert len(house.rows(house.queue)) == 2, "nothing overtakes it"
    (held,) = hand.delivered
    house.broker.settle(key, held.token, ABANDON, Answers(), 1)
    house.world.run_until(lambda: house.finished)
    assert sorted(row.delivery_count for row in house.rows(house.twin)) == [0, 1]


def test_nothing_is_sent_received_or_held_while_it_stands_still() -> None:
    house = House(requires_session=True)
    house.send("a", session_id="s")
    house.start()
    assert house.send("b", session_id="s") == "MessagingEntitySendDisabled"
    assert house.send("b", house.twin, session_id="s") == "MessagingEntitySendDisabled"
    key = SubQueueKey(house.queue.incarnation, 0, MAIN)
    with pytest.raises(BusError, match="disabled"):
        house.broker.accept_session(key, "s", object())  # type: ignore[arg-type]
    hand = Hand()
    grant = Grant(hand, key, 1, delete=True)
    house.broker.grant(grant)
    assert hand.finished_grants == [grant]


def test_sch_3_time_stands_still_until_the_switch() -> None:
    house = House()
    house.send("brief", ttl_ms=5_000)
    house.send("later", at_ms=house.world.now_ms() + 5_000)
    house.move()
    house.world.run_for(60_000)
    states = {row.state for row in house.rows(house.twin)}
    assert states == {MessageState.ACTIVE, MessageState.SCHEDULED}
    house.switch()
    house.world.run_for(1_000)
    (left,) = house.rows(house.queue)
    assert left.state is MessageState.ACTIVE, "the one has expired, the other's time has come"
    assert left.ttl_ms is None


def test_fwd_4_what_is_forwarded_to_it_waits_and_goes_to_the_new_one() -> None:
    house = House()
    before = house.world.create_queue(Queue(path="before", forward_to="orders"))
    house.move()
    assert house.send("on its way", before) == "accepted"
    house.world.run_for(5_000)
    assert house.rows(before, DLQ) == []
    house.switch()
    house.world.run_for(2_000)
    assert len(house.rows(house.queue)) == 1
    assert house.rows(before, SubQueueKind.TRANSFER) == []


def test_dup_3_an_id_that_was_moved_is_still_known() -> None:
    house = House(requires_duplicate_detection=True, enable_partitioning=True)
    house.send("a", message_id="1")
    house.move()
    house.switch()
    assert len(house.queue.placement) == 1
    assert house.send("a", message_id="1") == "accepted"
    assert len(house.rows(house.queue)) == 1
    house.send("b", message_id="2")
    assert len(house.rows(house.queue)) == 2


def test_quotas_are_for_sends_and_what_was_accepted_is_moved() -> None:
    house = House(enable_partitioning=True, requires_session=True)
    megabytes_700 = 700 * 1024 * 1024
    for session in ("a", "b", "c"):
        assert house.send("large", session_id=session, size=megabytes_700) == "accepted"
    house.move()
    house.switch()
    assert len(house.rows(house.queue)) == 3
    assert house.send("one more", session_id="a") == "QuotaExceeded"


def test_called_off_it_is_received_from_as_before() -> None:
    house = House()
    house.send("a")
    house.start()
    twin = house.twin
    house.queue = migrations.call_off(house.world.catalog, house.queue, twin, house.world.now_ms())
    house.world.run_for(1_000)
    hand = Hand()
    key = SubQueueKey(house.queue.incarnation, 0, MAIN)
    house.broker.grant(Grant(hand, key, 5, delete=False))
    house.world.run_for(100)
    assert [each.text for each in hand.delivered] == ["a"]
