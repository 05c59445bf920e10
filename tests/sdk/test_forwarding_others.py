"""Forwarding from and to other things than queues: subscriptions, topics, dead letters.

The queue of a test is where messages arrive; what forwards to it is written above the test.
"""

from __future__ import annotations

from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import ServiceBusError

from tests.sdk.conftest import ONCE_EACH, QueueUnderTest, texts, wait_until

# --- Dead letters --------------------------------------------------------------------------------


@pytest.mark.entities("""
[[queues]]
name = "$name-source"
partitioned = $partitioned
forward_dead_lettered_messages_to = "$name"
""")
def test_dead_letters_are_forwarded_with_their_reason_and_source(queue: QueueUnderTest) -> None:
    """DLQ-4: and cannot be received where they died."""
    name = f"{queue.name}-source"
    queue.send("bad", sender=queue.open_queue_sender(name))
    receiver = queue.open_queue_receiver(name)
    receiver.dead_letter_message(queue.receive_one(receiver), reason="Why")
    dead = queue.receive_one()
    assert (str(dead), dead.dead_letter_source) == ("bad", name)
    assert dead.application_properties[b"DeadLetterReason"] == b"Why"
    with pytest.raises(ServiceBusError, match="auto-forwarding"):
        queue.open_queue_receiver(name, sub_queue=ServiceBusSubQueue.DEAD_LETTER)


@ONCE_EACH
@pytest.mark.entities("""
[[queues]]
name = "$name-source"
partitioned = $partitioned
dead_lettering_on_message_expiration = true
default_message_time_to_live = "1s"
forward_dead_lettered_messages_to = "$name"
""")
def test_what_expires_is_forwarded_too(queue: QueueUnderTest) -> None:
    """DLQ-4, TTL-6."""
    name = f"{queue.name}-source"
    queue.send("old", sender=queue.open_queue_sender(name))
    receiver = queue.open_queue_receiver(name)
    wait_until(lambda: receiver.peek_messages(1, sequence_number=1) == [])
    dead = queue.receive_one()
    assert dead.application_properties[b"DeadLetterReason"] == b"TTLExpiredException"


# --- Subscriptions and topics --------------------------------------------------------------------

TOPIC = """
[[topics]]
name = "$name-topic"
partitioned = {partitioned}
[[topics.subscriptions]]
name = "red"
forward_to = "$name"
[[topics.subscriptions.rules]]
name = "red"
sql_filter = "color = 'red'"
action = "SET seen = TRUE"
[[topics.subscriptions]]
name = "all"
"""
TOPIC_OF_THE_SAME_KIND = pytest.mark.entities(TOPIC.format(partitioned="$partitioned"))


def of_color(color: str, **properties: Any) -> ServiceBusMessage:
    return ServiceBusMessage(color, application_properties={"color": color}, **properties)


@TOPIC_OF_THE_SAME_KIND
def test_a_subscription_forwards_what_it_wants(queue: QueueUnderTest) -> None:
    """FWD-1, RUL-2: with the marks of its rules."""
    sender = queue.open(queue.client.get_topic_sender(f"{queue.name}-topic"))
    queue.send(of_color("blue"), of_color("red"), sender=sender)
    message = queue.receive_one()
    assert message.application_properties[b"seen"] is True
    queue.receiver.complete_message(message)
    assert queue.is_empty
    others = queue.open(queue.client.get_subscription_receiver(f"{queue.name}-topic", "all"))
    assert sorted(texts(queue.peek_at(others))) == ["blue", "red"]


@TOPIC_OF_THE_SAME_KIND
def test_a_forwarding_subscription_is_not_received_from(queue: QueueUnderTest) -> None:
    """FWD-1."""
    with pytest.raises(ServiceBusError, match="auto-forwarding"):
        queue.open(queue.client.get_subscription_receiver(f"{queue.name}-topic", "red"))


@pytest.mark.entities(TOPIC.format(partitioned="true"))
@pytest.mark.entities("""
[[queues]]
name = "$name-source"
partitioned = $partitioned
forward_to = "$name-topic"
""")
def test_a_queue_forwards_to_a_topic(queue: QueueUnderTest) -> None:
    """FWD-1, P-39: filters look at it when it arrives there."""
    queue.send(
        of_color("blue"), of_color("red"), sender=queue.open_queue_sender(f"{queue.name}-source")
    )
    assert str(queue.receive_one()) == "red"
    others = queue.open(queue.client.get_subscription_receiver(f"{queue.name}-topic", "all"))
    assert sorted(texts(queue.receive_from(others, 2))) == ["blue", "red"]


@pytest.mark.entities("""
[[topics]]
name = "$name-topic"
partitioned = $partitioned
[[topics.subscriptions]]
name = "orders"
forward_dead_lettered_messages_to = "$name"
""")
def test_a_subscription_forwards_its_dead_letters(queue: QueueUnderTest) -> None:
    """DLQ-4: they name the subscription."""
    topic = f"{queue.name}-topic"
    queue.send("bad", sender=queue.open(queue.client.get_topic_sender(topic)))
    receiver = queue.open(queue.client.get_subscription_receiver(topic, "orders"))
    receiver.dead_letter_message(queue.receive_one(receiver), reason="Why")
    dead = queue.receive_one()
    assert str(dead) == "bad"
    assert dead.dead_letter_source.lower() == f"{topic}/Subscriptions/orders".lower()
