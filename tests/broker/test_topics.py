"""RUL, and what else a topic does: fan-out in one commit, bodies stored once, schedules (SCH-4)."""

from __future__ import annotations

import pytest

from busway.amqp.types import Timestamp
from busway.model.entities import (
    CorrelationFilter,
    EntityStatus,
    FalseFilter,
    Rule,
    SqlFilter,
    Subscription,
    Topic,
)
from busway.store.base import SubQueueKind
from busway.store.faults import CommitOutcome
from tests.broker.several_entities import DLQ, SeveralEntities, message, texts
from tests.broker.single_queue import ABANDON, ACCEPTED, COMPLETE, DEAD_LETTER

HOUR_MS = 3_600_000
REASON = "DeadLetterReason"
DESCRIPTION = "DeadLetterErrorDescription"


def shared_bodies(house: SeveralEntities, topic: Topic) -> int:
    """How many bodies the store keeps for several messages at once (D-30)."""
    return len(house.store_of(topic).medium._copies)


def sql(name: str, expression: str, action: str | None = None) -> Rule:
    return Rule(name=name, filter=SqlFilter(expression), action=action)


@pytest.fixture
def topic(house: SeveralEntities) -> Topic:
    return house.topic()


# --- Fan-out -------------------------------------------------------------------------------------


def test_rul_1_every_subscription_gets_a_copy(house: SeveralEntities, topic: Topic) -> None:
    subscriptions = [house.subscription(topic, name) for name in ("a", "b", "c")]
    house.send(topic, "1", "2")
    for subscription in subscriptions:
        assert texts(house.receive(subscription)) == ["1", "2"]


def test_rul_1_no_rules_means_no_messages(house: SeveralEntities, topic: Topic) -> None:
    subscription = house.subscription(topic, "a")
    house.world.catalog.remove_rule(subscription, "$Default")
    house.send(topic, "1")
    assert house.receive(subscription) == []


def test_rul_5_a_send_that_nobody_wants_is_accepted(house: SeveralEntities, topic: Topic) -> None:
    house.send(topic, "nobody")
    subscription = house.subscription(topic, "a", Rule(name="none", filter=FalseFilter()))
    house.send(topic, "still nobody")
    assert house.receive(subscription) == []
    assert house.counters(topic).next_counter == 3


def test_rul_6_rules_are_for_later_messages(house: SeveralEntities, topic: Topic) -> None:
    subscription = house.subscription(topic, "a")
    house.send(topic, "before")
    house.world.catalog.add_rule(subscription, sql("red", "colour = 'red'"))
    house.world.catalog.remove_rule(subscription, "$Default")
    house.send(topic, "plain")
    house.send(topic, "red", user={"colour": "red"})
    assert texts(house.receive(subscription)) == ["before", "red"]


def test_rul_2_rules_without_action_yield_one_copy(house: SeveralEntities, topic: Topic) -> None:
    subscription = house.subscription(
        topic, "a", sql("one", "n > 1"), sql("two", "n > 2"), sql("three", "n > 3")
    )
    house.send(topic, "1", user={"n": 3})
    assert texts(house.receive(subscription)) == ["1"]


def test_rul_2_each_rule_with_an_action_yields_its_own_copy(
    house: SeveralEntities, topic: Topic
) -> None:
    """RUL-7: what an action does is private to that copy."""
    changed = house.subscription(
        topic,
        "changed",
        sql("plain", "1=1"),
        sql("red", "1=1", "SET colour = 'red'"),
        sql("blue", "1=1", "SET colour = 'blue'"),
    )
    untouched = house.subscription(topic, "untouched")
    house.send(topic, "1", user={"colour": "grey"})
    got = [
        (each.properties["colour"], each.properties.get("RuleName"))
        for each in house.receive(changed)
    ]
    assert sorted(got, key=str) == [("blue", "blue"), ("grey", None), ("red", "red")]
    (plain,) = house.receive(untouched)
    assert plain.properties == {"colour": "grey"}


def test_rul_2_a_correlation_filter_lets_its_messages_in(
    house: SeveralEntities, topic: Topic
) -> None:
    rule = Rule(name="label", filter=CorrelationFilter(label="urgent"))
    subscription = house.subscription(topic, "a", rule)
    house.send(topic, "1", label="urgent")
    house.send(topic, "2", label="Urgent")
    assert texts(house.receive(subscription)) == ["1"]


def test_rul_3_a_subscription_numbers_its_copies_and_tells_the_topics_number(
    house: SeveralEntities, topic: Topic
) -> None:
    every = house.subscription(topic, "every")
    some = house.subscription(topic, "some", sql("big", "n > 1"))
    for n in range(4):
        house.send(topic, str(n), user={"n": n})
    assert [(m.number, m.enqueued_number) for m in house.receive(every)] == [
        (1, 1), (2, 2), (3, 3), (4, 4),
    ]  # fmt: skip
    assert [(m.number, m.enqueued_number) for m in house.receive(some)] == [(1, 3), (2, 4)]


def test_rul_3_numbers_go_on_after_a_crash(house: SeveralEntities, topic: Topic) -> None:
    subscription = house.subscription(topic, "a")
    house.send(topic, "1")
    house.crash(topic)
    house.send(topic, "2")
    got = [(each.number, each.enqueued_number) for each in house.receive(subscription)]
    assert got == [(1, 1), (2, 2)]


@pytest.mark.parametrize("outcome", list(CommitOutcome))
def test_d_30_all_copies_or_none(
    house: SeveralEntities, topic: Topic, outcome: CommitOutcome
) -> None:
    subscriptions = [house.subscription(topic, name) for name in ("a", "b")]
    house.store_of(topic).next_commits_end(outcome)
    command = house.start_send(topic, "1")
    house.run(2_000)
    expected = ["1"] if outcome is CommitOutcome.UNKNOWN_DONE else []
    assert command.outcome == (ACCEPTED if expected else "ServerBusy")
    assert [texts(house.receive(each)) for each in subscriptions] == [expected, expected]


def test_rul_1_copies_are_settled_one_by_one(house: SeveralEntities, topic: Topic) -> None:
    a, b = (house.subscription(topic, name, max_delivery_count=2) for name in ("a", "b"))
    house.send(topic, "1")
    for _ in range(2):
        house.settle(a, house.receive_one(a), ABANDON)
    assert texts(house.dead_letters(a)) == ["1"]
    assert house.receive_one(b).delivery_count == 0


# --- Bodies (D-30) -------------------------------------------------------------------------------


def test_d_30_a_shared_body_is_stored_once_and_goes_with_its_last_copy(
    house: SeveralEntities, topic: Topic
) -> None:
    a, b = house.subscription(topic, "a"), house.subscription(topic, "b")
    house.send(topic, "1")
    assert shared_bodies(house, topic) == 1
    house.settle(a, house.receive_one(a), COMPLETE)
    assert shared_bodies(house, topic) == 1
    house.crash(topic)
    delivered = house.receive_one(b)
    assert delivered.text == "1"
    house.settle(b, delivered, DEAD_LETTER)
    assert shared_bodies(house, topic) == 1
    house.crash(topic)
    (dead,) = house.dead_letters(b)
    assert dead.text == "1"
    house.settle(b, dead, COMPLETE, DLQ)
    assert shared_bodies(house, topic) == 0


def test_d_30_a_body_that_one_copy_has_is_not_shared(house: SeveralEntities, topic: Topic) -> None:
    house.subscription(topic, "a")
    house.subscription(topic, "b", sql("never", "1=0"))
    house.send(topic, "1")
    assert shared_bodies(house, topic) == 0


def test_d_30_a_deleted_subscription_lets_its_bodies_go(
    house: SeveralEntities, topic: Topic
) -> None:
    a = house.subscription(topic, "a")
    house.subscription(topic, "b")
    house.send(topic, "1")
    house.world.catalog.delete_subscription(topic.path, "b", house.now_ms())
    house.run(5_000)
    house.settle(a, house.receive_one(a), COMPLETE)
    assert shared_bodies(house, topic) == 0


def test_d_30_copies_that_expire_let_their_body_go(house: SeveralEntities, topic: Topic) -> None:
    house.subscription(topic, "a")
    house.subscription(topic, "b")
    house.send(topic, "1", ttl_ms=1_000)
    house.run(5_000)
    assert shared_bodies(house, topic) == 0


def test_d_17_all_copies_count_against_the_topics_size(house: SeveralEntities) -> None:
    topic = house.topic(max_size_mb=1024)
    house.subscription(topic, "a")
    house.subscription(topic, "b")
    house.send(topic, message("1", size=400 << 20))
    refused = house.start_send(topic, message("2", size=400 << 20))
    house.run()
    assert refused.outcome == "QuotaExceeded"


# --- Failing rules (RUL-4) -----------------------------------------------------------------------


def failing(house: SeveralEntities, topic: Topic, **properties: object) -> Subscription:
    return house.subscription(topic, "failing", sql("wrong", "n / 0 = 1"), **properties)


def test_rul_4_a_filter_that_fails_dead_letters_its_copy(
    house: SeveralEntities, topic: Topic
) -> None:
    subscription = failing(house, topic)
    house.send(topic, "1", user={"n": 1})
    assert house.receive(subscription) == []
    (dead,) = house.dead_letters(subscription)
    assert dead.text == "1"
    assert dead.properties[REASON] == "FilterException"
    assert dead.properties[DESCRIPTION]
    assert dead.number == 1


def test_rul_4_or_is_no_match_where_that_is_asked_for(house: SeveralEntities, topic: Topic) -> None:
    subscription = failing(house, topic, dead_lettering_on_filter_errors=False)
    house.send(topic, "1", user={"n": 1})
    assert house.receive(subscription) == []
    assert house.dead_letters(subscription) == []


def test_rul_4_a_body_is_shared_only_by_copies_that_are_kept(
    house: SeveralEntities, topic: Topic
) -> None:
    """Nobody has the failed copy, so nobody would ever let a shared body of it go."""
    failing(house, topic, dead_lettering_on_filter_errors=False)
    only = house.subscription(topic, "only")
    batches = []
    store = house.store_of(topic).faults
    commit = store.commit
    store.commit = lambda batch: (batches.append(batch), commit(batch))[1]  # type: ignore[method-assign]
    house.send(topic, "1", user={"n": 1})
    assert texts(house.receive(only)) == ["1"]
    assert [batch.bodies for batch in batches] == [[]]


def test_rul_4_an_action_that_fails_dead_letters_its_copy(
    house: SeveralEntities, topic: Topic
) -> None:
    subscription = house.subscription(
        topic, "a", sql("wrong", "1=1", "SET sys.NoSuchThing = 'x'"), sql("fine", "1=1")
    )
    house.send(topic, "1")
    assert texts(house.receive(subscription)) == ["1"]
    (dead,) = house.dead_letters(subscription)
    assert dead.properties[REASON] == "RuleActionException"


# --- Sessions, time to live, status --------------------------------------------------------------


def test_ses_1_a_copy_without_session_id_is_dead_lettered(
    house: SeveralEntities, topic: Topic
) -> None:
    with_sessions = house.subscription(topic, "sessions", requires_session=True)
    plain = house.subscription(topic, "plain")
    house.send(topic, "none")
    house.send(topic, "some", session_id="a")
    assert texts(house.receive(plain)) == ["none", "some"]
    holder = house.hold(with_sessions)
    assert texts(house.receive(with_sessions, holder=holder)) == ["some"]
    (dead,) = house.dead_letters(with_sessions)
    assert dead.properties[REASON] == "Session id is null."
    assert dead.properties[DESCRIPTION] == (
        "Session enabled entity doesn't allow a message whose session identifier is null."
    )


def test_rul_7_an_action_may_give_a_copy_its_session(house: SeveralEntities, topic: Topic) -> None:
    subscription = house.subscription(
        topic, "a", sql("by", "1=1", "SET sys.SessionId = customer"), requires_session=True
    )
    house.send(topic, "1", user={"customer": "c7"})
    assert house.hold(subscription).session_id == "c7"
    house.crash(topic)
    holder = house.hold(subscription)
    assert holder.session_id == "c7"
    assert texts(house.receive(subscription, holder=holder)) == ["1"]


def test_act_4_an_action_may_give_a_copy_its_time_to_live(
    house: SeveralEntities, topic: Topic
) -> None:
    """It counts where the copy is placed, capped by the subscription's (TTL-2)."""
    rule = sql("short", "1=1", "SET sys.TimeToLive = until - since")
    subscription = house.subscription(topic, "a", rule)
    house.send(topic, "1", user={"until": Timestamp(7_000), "since": Timestamp(2_000)})
    (peeked,) = house.peek(subscription)
    assert peeked.expires_ms == peeked.enqueued_ms + 5_000


@pytest.mark.parametrize(
    ("own", "of_topic", "of_subscription", "expected"),
    [
        (None, None, None, None),
        (500_000, None, None, 500_000),
        (None, 400_000, None, 400_000),
        (500_000, 400_000, None, 400_000),
        (500_000, 400_000, 300_000, 300_000),
        (200_000, 400_000, 300_000, 200_000),
        (None, None, 300_000, 300_000),
    ],
)
def test_ttl_2_the_smallest_of_message_topic_and_subscription(
    house: SeveralEntities,
    own: int | None,
    of_topic: int | None,
    of_subscription: int | None,
    expected: int | None,
) -> None:
    topic = house.topic(default_ttl_ms=of_topic)
    subscription = house.subscription(topic, "a", default_ttl_ms=of_subscription)
    house.send(topic, "1", ttl_ms=own)
    (peeked,) = house.peek(subscription)
    lives_ms = None if peeked.expires_ms is None else peeked.expires_ms - peeked.enqueued_ms
    assert lives_ms == expected


def test_sta_1_a_disabled_subscription_still_collects(house: SeveralEntities, topic: Topic) -> None:
    subscription = house.subscription(topic, "a", status=EntityStatus.DISABLED)
    house.send(topic, "1")
    assert house.counters(subscription).active == 1


# --- Schedules (SCH-4, SCH-5) --------------------------------------------------------------------


def test_sch_4_a_scheduled_message_waits_in_the_topic(house: SeveralEntities, topic: Topic) -> None:
    subscription = house.subscription(topic, "a")
    house.send(topic, "later", at_ms=house.now_ms() + HOUR_MS)
    assert house.peek(subscription) == []
    assert texts(house.peek(topic)) == ["later"]
    assert house.counters(topic).scheduled == 1
    house.run(HOUR_MS)
    assert house.peek(topic) == []
    (delivered,) = house.receive(subscription)
    assert (delivered.text, delivered.number, delivered.enqueued_number) == ("later", 1, 2)


def test_sch_4_rules_are_asked_when_it_becomes_active(house: SeveralEntities, topic: Topic) -> None:
    early = house.subscription(topic, "early")
    house.send(topic, "later", at_ms=house.now_ms() + HOUR_MS)
    house.world.catalog.remove_rule(early, "$Default")
    late = house.subscription(topic, "late")
    house.crash(topic)
    house.run(HOUR_MS)
    assert house.receive(early) == []
    assert texts(house.receive(late)) == ["later"]


def test_sch_2_on_a_topic_it_is_cancelled_by_number(house: SeveralEntities, topic: Topic) -> None:
    subscription = house.subscription(topic, "a")
    house.send(topic, "later", at_ms=house.now_ms() + HOUR_MS)
    assert house.cancel(topic, house.peek(topic)[0].number) == ACCEPTED
    house.run(HOUR_MS)
    assert house.receive(subscription) == []


@pytest.mark.parametrize("outcome", list(CommitOutcome))
def test_sch_4_the_fan_out_of_an_activation_happens_once(
    house: SeveralEntities, topic: Topic, outcome: CommitOutcome
) -> None:
    subscriptions = [house.subscription(topic, name) for name in ("a", "b")]
    house.send(topic, "later", at_ms=house.now_ms() + 10_000)
    house.run(9_000)
    house.store_of(topic).next_commits_end(outcome)
    house.run(10_000)
    assert [texts(house.receive(each)) for each in subscriptions] == [["later"], ["later"]]
    assert house.counters(topic).scheduled == 0


def test_sta_4_a_deleted_topic_takes_its_subscriptions_along(
    house: SeveralEntities, topic: Topic
) -> None:
    house.subscription(topic, "a")
    house.subscription(topic, "b")
    house.send(topic, "1")
    house.send(topic, "later", at_ms=house.now_ms() + 10_000)
    house.delete(topic)
    house.run(30_000)
    assert house.world.purges_under_way == set()
    assert shared_bodies(house, topic) == 0
    again = house.topic()
    subscription = house.subscription(again, "a")
    house.send(again, "2")
    assert texts(house.receive(subscription)) == ["2"]


def test_dlq_6_a_topic_has_no_dead_letter_queue(house: SeveralEntities, topic: Topic) -> None:
    house.subscription(topic, "a")
    house.send(topic, "1", ttl_ms=1_000)
    house.run(5_000)
    kinds = house.broker_of(topic).counters(topic.incarnation, 0)
    assert set(kinds) == {SubQueueKind.MAIN}
