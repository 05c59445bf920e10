"""D-27: what becomes of a queue or topic that is emptied into its twin, by single behaviours.

That nothing is lost, doubled or out of order whatever goes wrong is the simulation's to show.
"""

from __future__ import annotations

from typing import Any

import pytest

from busway.broker.broker import Broker
from busway.broker.seams import Grant
from busway.cluster import migrations
from busway.model.entities import (
    Course,
    Entity,
    Queue,
    Rule,
    SqlFilter,
    Subscription,
    Topic,
)
from busway.model.errors import BusError
from busway.model.message import MessageState
from busway.model.partitioning import partition_of_key
from busway.sim.checkers.at_rest import check_at_rest, rows_of
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

    def send(self, text: str, to: Queue | Topic | None = None, **fields: Any) -> str | None:
        to = to or self.queue
        session = fields.get("session_id")
        partition = 0 if session is None else partition_of_key(session, len(to.placement))
        self._tags += 1
        key = SubQueueKey(to.incarnation, partition, MAIN)
        self.broker.send(key, [message(text, **fields)], self._answers, self._tags)
        self.world.run_for(100)
        return Command(self._answers, self._tags).outcome

    def start(self) -> None:
        stopped = migrations.start(
            self.world.catalog,
            self.queue,
            partitioned=not self.queue.enable_partitioning,
            capture=False,
            now_ms=self.world.now_ms(),
        )
        assert isinstance(stopped, Queue)
        self.queue = stopped

    @property
    def twin(self) -> Queue:
        twin = migrations.twin_of(self.world.catalog, self.queue)
        assert isinstance(twin, Queue)
        return twin

    @property
    def finished(self) -> bool:
        return self.is_empty(self.queue)

    def is_empty(self, giver: Entity) -> bool:
        return all(
            self.broker.movers.standing(giver.incarnation, index).finished
            for index in range(len(giver.placement))
        )

    def move(self) -> None:
        self.start()
        self.world.run_until(lambda: self.finished)

    def switch(self) -> None:
        served = migrations.switch(self.world.catalog, self.queue, self.world.now_ms())
        assert isinstance(served, Queue)
        self.queue = served
        self.world.run_for(200)

    def set_course(self, course: Course) -> None:
        migrations.set_course(self.world.catalog, self.queue, course, self.world.now_ms())

    def rows(self, entity: Entity, kind: SubQueueKind = MAIN) -> list[Any]:
        found = []
        for partition in range(len(entity.placement)):
            sub_queue = self.broker.stored_sub_queue(
                SubQueueKey(entity.incarnation, partition, kind)
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
    migrations.call_off(house.world.catalog, house.queue, house.world.now_ms())
    house.world.run_for(1_000)
    hand = Hand()
    key = SubQueueKey(house.queue.incarnation, 0, MAIN)
    house.broker.grant(Grant(hand, key, 5, delete=False))
    house.world.run_for(100)
    assert [each.text for each in hand.delivered] == ["a"]


def test_called_off_in_the_middle_it_comes_back_in_order_with_its_states() -> None:
    house = House(requires_session=True)
    for number in range(12):
        house.send(f"{number}", session_id=f"s{number % 3}")
    before = house.rows(house.queue)
    house.start()
    house.set_course(Course.CALLED_OFF)
    house.world.run_until(lambda: house.finished)
    assert house.rows(house.queue) == [], "it goes on to its end: half could not come back in order"
    house.set_course(Course.BACK)
    house.world.run_until(lambda: house.is_empty(house.twin))
    assert house.rows(house.twin) == []
    assert house.send("early", session_id="s0") == "MessagingEntitySendDisabled"
    migrations.call_off(house.world.catalog, house.queue, house.world.now_ms())
    house.world.run_for(1_000)
    after = house.rows(house.queue)
    for session in ("s0", "s1", "s2"):
        texts = [
            [row.bare for row in rows if row.session_id == session] for rows in (before, after)
        ]
        assert texts[0] == texts[1]
        assert len(texts[1]) == 4
    assert house.send("again", session_id="s0") == "accepted"


# --- Topics --------------------------------------------------------------------------------------


class NewsHouse:
    """A topic with a subscription that takes all, and one that takes what is marked."""

    def __init__(self, *, forward_to: str | None = None, **properties: Any) -> None:
        self.house = House()
        self.world = self.house.world
        self.topic = self.world.create_topic(Topic(path="news", **properties))
        self.world.create_subscription(Subscription(topic="news", name="all"))
        self.world.create_subscription(
            Subscription(topic="news", name="marked", forward_to=forward_to),
            [
                Rule(
                    name="marks",
                    filter=SqlFilter("sys.MessageId = 'marked'"),
                    action="SET seen = TRUE",
                )
            ],
        )

    def subscription(self, name: str) -> Subscription:
        found = self.world.catalog.find_subscription("news", name)
        assert found is not None
        return found

    def send(self, text: str, **fields: Any) -> str | None:
        return self.house.send(text, self.topic, **fields)

    def start(self) -> None:
        stopped = migrations.start(
            self.world.catalog,
            self.topic,
            partitioned=not self.topic.enable_partitioning,
            capture=False,
            now_ms=self.world.now_ms(),
        )
        assert isinstance(stopped, Topic)
        self.topic = stopped

    def move(self) -> None:
        self.start()
        pairs = migrations.pairs_of(self.world.catalog, self.topic)
        self.world.run_until(lambda: all(self.house.is_empty(pair.source) for pair in pairs))

    def switch(self) -> None:
        served = migrations.switch(self.world.catalog, self.topic, self.world.now_ms())
        assert isinstance(served, Topic)
        self.topic = served
        self.world.run_for(200)

    def held(self, name: str, kind: SubQueueKind = MAIN) -> list[Any]:
        return self.house.rows(self.subscription(name), kind)


def test_d_27_a_topic_moves_with_what_its_subscriptions_hold() -> None:
    news = NewsHouse()
    news.send("a", message_id="1")
    news.send("b", message_id="marked")
    before = {name: [row.bare for row in news.held(name)] for name in ("all", "marked")}
    was = {name: news.subscription(name) for name in before}
    news.move()
    news.switch()
    for name, bodies in before.items():
        assert sorted(row.bare for row in news.held(name)) == sorted(bodies)
        assert len(news.subscription(name).placement) == 16
        assert news.house.rows(was[name]) == []
    assert [len(bodies) for bodies in before.values()] == [2, 1]


def test_rul_6_the_rules_of_the_twin_decide_what_is_sent_after_the_switch() -> None:
    news = NewsHouse()
    news.move()
    news.switch()
    assert news.send("a", message_id="1") == "accepted"
    assert news.send("b", message_id="marked") == "accepted"
    assert (len(news.held("all")), len(news.held("marked"))) == (2, 1)


def test_sch_3_what_is_scheduled_at_a_topic_is_moved_and_comes_at_its_time() -> None:
    news = NewsHouse()
    due_ms = news.world.now_ms() + 5_000
    news.send("later", at_ms=due_ms, message_id="marked")
    news.move()
    news.world.run_for(60_000)
    assert news.held("all") == [], "time stands still"
    news.switch()
    news.world.run_for(1_000)
    assert (len(news.held("all")), len(news.held("marked"))) == (1, 1)
    assert news.house.rows(news.topic) == []


def test_nothing_is_sent_to_a_topic_while_it_stands_still() -> None:
    news = NewsHouse()
    news.start()
    assert news.send("a") == "MessagingEntitySendDisabled"


def test_fwd_1_a_subscription_forwards_before_and_after() -> None:
    news = NewsHouse(forward_to="orders")
    news.send("a", message_id="marked")
    news.move()
    news.switch()
    news.send("b", message_id="marked")
    news.world.run_for(2_000)
    assert len(news.house.rows(news.house.queue)) == 2
    assert news.held("marked", SubQueueKind.TRANSFER) == []


def test_dup_3_a_topic_knows_the_ids_of_what_its_subscriptions_hold() -> None:
    news = NewsHouse(requires_duplicate_detection=True, enable_partitioning=True)
    news.send("a", message_id="1")
    news.move()
    news.switch()
    assert len(news.topic.placement) == 1
    assert news.send("a", message_id="1") == "accepted"
    assert len(news.held("all")) == 1
    news.send("b", message_id="2")
    assert len(news.held("all")) == 2


def test_d_17_what_a_topic_had_accepted_is_moved_and_counts_against_its_size() -> None:
    news = NewsHouse(enable_partitioning=True)
    megabytes_700 = 700 * 1024 * 1024
    for session in ("a", "b", "c"):
        assert news.send("large", session_id=session, size=megabytes_700) == "accepted"
    news.move()
    news.switch()
    assert len(news.held("all")) == 3
    assert news.send("one more") == "QuotaExceeded"


def test_d_30_copies_that_shared_a_body_have_their_own_and_none_is_left() -> None:
    news = NewsHouse()
    news.send("shared", message_id="1")
    news.world.create_subscription(Subscription(topic="news", name="second"))
    news.send("shared by two", message_id="2")
    news.move()
    news.switch()
    news.world.run_for(60_000)
    assert len(news.held("all")) == 2
    assert len(news.held("second")) == 1
    store = news.world.stores["store-0"]
    check_at_rest(store, lambda key, row: hash((key.incarnation, row.bare)))
