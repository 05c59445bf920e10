"""Topics: a copy for each subscription whose rules want the message."""

from __future__ import annotations

from typing import Any

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import MessagingEntityNotFoundError, ServiceBusError

from tests.sdk.conftest import WAIT_S, TopicUnderTest, of_session, partition_of, texts

TWO = """
[[topics.subscriptions]]
name = "one"
[[topics.subscriptions]]
name = "two"
"""


def of_color(color: str, **properties: Any) -> ServiceBusMessage:
    return ServiceBusMessage(color, application_properties={"color": color}, **properties)


def dead_letters(topic: TopicUnderTest, subscription: str) -> Any:
    return topic.open_receiver(subscription, sub_queue=ServiceBusSubQueue.DEAD_LETTER)


# --- Fan-out -------------------------------------------------------------------------------------


@pytest.mark.topic(TWO)
def test_every_subscription_gets_a_copy_of_its_own(topic: TopicUnderTest) -> None:
    """RUL-1, RUL-3: what becomes of one copy is nothing to the others."""
    topic.send("message")
    [message] = topic.receive("one")
    topic.receiver("one").complete_message(message)
    assert topic.peek_all("one") == []
    assert texts(topic.receive("two")) == ["message"]


@pytest.mark.topic(TWO)
def test_all_of_a_message_is_in_every_copy(topic: TopicUnderTest) -> None:
    """MSG-4."""
    properties: dict[str, Any] = {
        "message_id": "7",
        "subject": "order",
        "correlation_id": "c",
        "content_type": "text/plain",
        "to": "you",
        "reply_to": "me",
    }
    topic.send(of_color("red", **properties))
    for subscription in ("one", "two"):
        [message] = topic.receive(subscription)
        assert {name: getattr(message, name) for name in properties} == properties
        assert message.application_properties == {b"color": b"red"}


@pytest.mark.topic(TWO)
def test_a_batch_is_copied_as_a_whole(topic: TopicUnderTest) -> None:
    """MSG-7."""
    topic.sender.send_messages([ServiceBusMessage(f"{number}") for number in range(10)])
    expected = [str(number) for number in range(10)]
    assert texts(topic.receive("one", 10)) == texts(topic.receive("two", 10)) == expected


@pytest.mark.topic(TWO)
def test_a_copy_stays_in_the_partition_of_its_message(topic: TopicUnderTest) -> None:
    """P-18, P-19, RUL-3."""
    topic.send(*(ServiceBusMessage("x", partition_key=f"customer {n}") for n in range(8)))
    one, two = (
        {message.partition_key: partition_of(message) for message in topic.peek_all(each)}
        for each in ("one", "two")
    )
    assert one == two
    assert len(set(one.values())) > 1 or not topic.partitioned


@pytest.mark.topic(TWO)
def test_a_topic_is_not_received_from(topic: TopicUnderTest) -> None:
    """Amqp.md 6: it is said at once where to receive from instead."""
    with pytest.raises(MessagingEntityNotFoundError, match="Receive from one of its subscriptions"):
        topic.open_queue_receiver(topic.name)


@pytest.mark.topic(TWO)
def test_nothing_is_sent_to_a_subscription(topic: TopicUnderTest) -> None:
    """Amqp.md 6."""
    with pytest.raises(ServiceBusError):
        topic.send("x", sender=topic.open_queue_sender(f"{topic.name}/Subscriptions/one"))


# --- Filters -------------------------------------------------------------------------------------


@pytest.mark.topic("""
[[topics.subscriptions]]
name = "red"
[[topics.subscriptions.rules]]
name = "red"
sql_filter = "color = 'red'"

[[topics.subscriptions]]
name = "large"
[[topics.subscriptions.rules]]
name = "large"
sql_filter = "sys.Label = 'order' AND amount >= 1000"

[[topics.subscriptions]]
name = "unpainted"
[[topics.subscriptions.rules]]
name = "unpainted"
sql_filter = "NOT EXISTS(color) OR color IS NULL"

[[topics.subscriptions]]
name = "nothing"
[[topics.subscriptions.rules]]
name = "nothing"
sql_filter = "1 = 0"
""")
def test_an_sql_filter_takes_what_it_describes(topic: TopicUnderTest) -> None:
    """SQL-1, SQL-3, SQL-4; RUL-5: a message that nobody wants is accepted."""

    def order(body: str, amount: float) -> ServiceBusMessage:
        properties = {"amount": amount, "color": "blue"}
        return ServiceBusMessage(body, subject="order", application_properties=properties)

    topic.send(of_color("red"), of_color("blue"), order("small", 999), order("large", 1000))
    topic.send(order("larger", 1000.5), "plain")
    assert topic.bodies_in("red") == ["red"]
    assert topic.bodies_in("large") == ["large", "larger"]
    assert topic.bodies_in("unpainted") == ["plain"]
    assert topic.bodies_in("nothing") == []


@pytest.mark.topic("""
[[topics.subscriptions]]
name = "red-orders"
[[topics.subscriptions.rules]]
name = "red-orders"
correlation_filter = { label = "order", properties = { color = "red" } }

[[topics.subscriptions]]
name = "reply"
[[topics.subscriptions.rules]]
name = "reply"
correlation_filter = { correlation_id = "question 7" }
""")
def test_a_correlation_filter_takes_what_agrees_in_everything(topic: TopicUnderTest) -> None:
    """COR-1."""
    topic.send(of_color("red", subject="order"), of_color("red", subject="Order"), of_color("red"))
    topic.send(of_color("blue", subject="order", correlation_id="question 7"))
    assert topic.bodies_in("red-orders") == ["red"]
    assert topic.bodies_in("reply") == ["blue"]


@pytest.mark.topic("""
[[topics.subscriptions]]
name = "both"
[[topics.subscriptions.rules]]
name = "red"
sql_filter = "color = 'red'"
[[topics.subscriptions.rules]]
name = "any"
sql_filter = "EXISTS(color)"
""")
def test_several_rules_without_action_make_one_copy(topic: TopicUnderTest) -> None:
    """RUL-2."""
    topic.send(of_color("red"))
    assert topic.bodies_in("both") == ["red"]


@pytest.mark.topic("""
[[topics.subscriptions]]
name = "marked"
[[topics.subscriptions.rules]]
name = "urgent"
sql_filter = "color = 'red'"
action = "SET priority = 'high'; SET sys.Label = 'urgent'; REMOVE color"
[[topics.subscriptions.rules]]
name = "counted"
sql_filter = "1 = 1"
action = "SET seen = 1 + 1"
[[topics.subscriptions.rules]]
name = "plain"
sql_filter = "1 = 1"

[[topics.subscriptions]]
name = "untouched"
""")
def test_each_rule_with_an_action_makes_a_copy_of_its_own(topic: TopicUnderTest) -> None:
    """RUL-2, RUL-7, ACT-1, ACT-2."""
    topic.send(of_color("red", subject="order"))
    found = {
        message.application_properties.get(b"RuleName"): (
            message.subject,
            {k: v for k, v in message.application_properties.items() if k != b"RuleName"},
        )
        for message in topic.peek_all("marked")
    }
    assert found == {
        b"urgent": ("urgent", {b"priority": b"high"}),
        b"counted": ("order", {b"color": b"red", b"seen": 2}),
        None: ("order", {b"color": b"red"}),
    }
    [message] = topic.peek_all("untouched")
    assert (message.subject, message.application_properties) == ("order", {b"color": b"red"})


@pytest.mark.topic("""
[[topics.subscriptions]]
name = "strict"
[[topics.subscriptions.rules]]
name = "fails"
sql_filter = "amount / 0 > 1"

[[topics.subscriptions]]
name = "lenient"
dead_lettering_on_filter_evaluation_exceptions = false
[[topics.subscriptions.rules]]
name = "fails"
sql_filter = "amount / 0 > 1"
""")
def test_a_filter_that_fails_makes_a_dead_letter(topic: TopicUnderTest) -> None:
    """RUL-4, DLQ-3, SQL-9: or no match, as the subscription wishes."""
    topic.send(ServiceBusMessage("x", application_properties={"amount": 5}))
    [dead] = topic.receive_from(dead_letters(topic, "strict"))
    assert dead.dead_letter_reason == "FilterException"
    assert topic.bodies_in("strict") == topic.bodies_in("lenient") == []
    assert topic.peek_at(dead_letters(topic, "lenient")) == []


# --- Subscriptions are queues --------------------------------------------------------------------


@pytest.mark.topic(TWO)
def test_a_subscription_has_a_dead_letter_queue(topic: TopicUnderTest) -> None:
    """DLQ-1, DLQ-2."""
    topic.send("bad")
    [message] = topic.receive("one")
    topic.receiver("one").dead_letter_message(message, reason="Why", error_description="because")
    [dead] = topic.receive_from(dead_letters(topic, "one"))
    assert (str(dead), dead.dead_letter_reason) == ("bad", "Why")
    assert dead.sequence_number == message.sequence_number
    assert topic.bodies_in("two") == ["bad"]


@pytest.mark.topic('[[topics.subscriptions]]\nname = "once"\nmax_delivery_count = 1\n' + TWO)
def test_each_subscription_counts_deliveries_itself(topic: TopicUnderTest) -> None:
    """DLV-3."""
    topic.send("x")
    for subscription in ("once", "one"):
        topic.receiver(subscription).abandon_message(*topic.receive(subscription))
    assert topic.bodies_in("once") == []
    assert [message.delivery_count for message in topic.receive("one")] == [1]
    assert [message.delivery_count for message in topic.receive("two")] == [0]


@pytest.mark.topic(TWO)
def test_a_message_is_deferred_in_one_subscription(topic: TopicUnderTest) -> None:
    """DEF-1."""
    topic.send("x")
    [message] = topic.receive("one")
    topic.receiver("one").defer_message(message)
    [deferred] = topic.receiver("one").receive_deferred_messages(message.sequence_number)
    topic.receiver("one").complete_message(deferred)
    assert topic.peek_all("one") == []
    assert topic.bodies_in("two") == ["x"]


@pytest.mark.topic(TWO)
def test_a_copy_is_peeked_with_a_number_of_its_subscription(topic: TopicUnderTest) -> None:
    """PEEK-3, RUL-3."""
    for number in range(3):
        topic.send(ServiceBusMessage(str(number), partition_key="one"))
    seen = topic.peek_all("one")
    assert texts(seen) == ["0", "1", "2"]
    assert [message.sequence_number & (1 << 48) - 1 for message in seen] == [1, 2, 3]


@pytest.mark.topic("""
[[topics.subscriptions]]
name = "ordered"
requires_session = true
[[topics.subscriptions]]
name = "all"
""")
def test_a_subscription_may_have_sessions(topic: TopicUnderTest) -> None:
    """SES-1, SES-3, SES-7: also where its topic knows nothing of them."""
    topic.send(*of_session("a", "a1"), *of_session("b", "b1"), *of_session("a", "a2"))
    a = topic.open_receiver("ordered", session_id="a")
    following = topic.open_receiver(
        "ordered", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=WAIT_S
    )
    assert texts(topic.receive_from(a, 2)) == ["a1", "a2"]
    assert following.session.session_id == "b"
    following.session.set_state("x")
    listed = topic.client.list_subscription_sessions(topic.name, "ordered")
    assert sorted(listed) == ["a", "b"]
    assert topic.bodies_in("all") == ["a1", "a2", "b1"]


@pytest.mark.topic("""
[[topics.subscriptions]]
name = "ordered"
requires_session = true
[[topics.subscriptions]]
name = "all"
""")
def test_a_message_without_a_session_is_dead_for_a_subscription_with_sessions(
    topic: TopicUnderTest,
) -> None:
    """SES-1, DLQ-3."""
    topic.send("of no session")
    [dead] = topic.receive_from(dead_letters(topic, "ordered"))
    assert (str(dead), dead.dead_letter_reason) == ("of no session", "Session id is null.")
    assert topic.bodies_in("all") == ["of no session"]
