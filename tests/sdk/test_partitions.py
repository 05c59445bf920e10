"""Partitioned queues through the SDK: which partition a message goes to, and that none is left out.

A client does not know of partitions (P-7); these tests read them off the sequence numbers (P-31).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import ServiceBusError

from tests.sdk.conftest import PARTITIONED, QueueUnderTest, partition_of

PARTITIONS = 16

pytestmark = pytest.mark.parametrize("kind", [PARTITIONED])


def by_partition(messages: list[ServiceBusReceivedMessage]) -> Counter[int]:
    return Counter(partition_of(message) for message in messages)


def both_keys(session_id: str, partition_key: str) -> AmqpAnnotatedMessage:
    """With two keys that differ; the SDK's own message class would not let them."""
    return AmqpAnnotatedMessage(
        data_body=b"torn",
        properties={"group_id": session_id},
        annotations={"x-opt-partition-key": partition_key},
    )


def test_sends_without_a_key_take_the_partitions_in_turn(queue: QueueUnderTest) -> None:
    """P-22."""
    queue.send(*(f"message {number}" for number in range(2 * PARTITIONS)))
    assert by_partition(queue.peek_all()) == dict.fromkeys(range(PARTITIONS), 2)


def test_each_partition_numbers_its_own_messages(queue: QueueUnderTest) -> None:
    """P-31, SEQ-2: unique in the queue, counted from 1 in each partition."""
    queue.send(*(f"message {number}" for number in range(3 * PARTITIONS)))
    numbers = [message.sequence_number for message in queue.peek_all()]
    counters = Counter(number & (1 << 48) - 1 for number in numbers)
    assert len(set(numbers)) == 3 * PARTITIONS
    assert counters == {1: PARTITIONS, 2: PARTITIONS, 3: PARTITIONS}


@pytest.mark.parametrize("key", ["session_id", "partition_key"])
def test_the_same_key_is_always_the_same_partition(queue: QueueUnderTest, key: str) -> None:
    """P-18, P-19."""
    queue.send(*(ServiceBusMessage(f"message {n}", **{key: "customer 7"}) for n in range(20)))
    assert len(by_partition(queue.peek_all())) == 1


def test_a_session_id_and_the_same_partition_key_agree(queue: QueueUnderTest) -> None:
    """P-18, P-20: one key, whichever name it has."""
    queue.send(
        ServiceBusMessage("a", session_id="customer 7"),
        ServiceBusMessage("b", partition_key="customer 7"),
        ServiceBusMessage("c", session_id="customer 7", partition_key="customer 7"),
    )
    assert len(by_partition(queue.peek_all())) == 1


@pytest.mark.parametrize("key", ["session_id", "partition_key"])
def test_different_keys_spread_over_the_partitions(queue: QueueUnderTest, key: str) -> None:
    """P-17."""
    queue.send(*(ServiceBusMessage("x", **{key: f"customer {n}"}) for n in range(64)))
    assert len(by_partition(queue.peek_all())) > PARTITIONS // 2


def test_a_message_id_is_no_key(queue: QueueUnderTest) -> None:
    """P-21: not without duplicate detection."""
    queue.send(*(ServiceBusMessage("x", message_id="the same") for _ in range(PARTITIONS)))
    assert len(by_partition(queue.peek_all())) == PARTITIONS


def test_two_different_keys_are_an_invalid_operation(queue: QueueUnderTest) -> None:
    """P-20: and nothing is stored."""
    with pytest.raises(ServiceBusError, match="amqp:not-allowed"):
        queue.send(both_keys("one", "another"))
    assert queue.is_empty


def test_a_batch_with_different_keys_is_an_invalid_operation(queue: QueueUnderTest) -> None:
    """PRT-7, D-29: and nothing is stored."""
    messages = [ServiceBusMessage("x", partition_key=key) for key in ("one", "another")]
    with pytest.raises(ServiceBusError, match="amqp:not-allowed"):
        queue.sender.send_messages(messages)
    assert queue.is_empty


def test_a_batch_with_one_key_goes_where_the_key_says(queue: QueueUnderTest) -> None:
    """MSG-7, P-19."""
    queue.send(ServiceBusMessage("alone", partition_key="one"))
    queue.sender.send_messages([ServiceBusMessage("x", partition_key="one") for _ in range(10)])
    assert by_partition(queue.peek_all()).most_common(1)[0][1] == 11


def test_batches_without_a_key_take_the_partitions_in_turn(queue: QueueUnderTest) -> None:
    """P-22: each batch as a unit."""
    for _ in range(PARTITIONS):
        queue.sender.send_messages([ServiceBusMessage("x") for _ in range(3)])
    assert by_partition(queue.peek_all()) == dict.fromkeys(range(PARTITIONS), 3)


def test_a_receive_takes_from_all_partitions(queue: QueueUnderTest) -> None:
    """P-26."""
    queue.send(*(f"message {number}" for number in range(PARTITIONS)))
    assert len(by_partition(queue.receive(PARTITIONS))) == PARTITIONS


def test_a_full_partition_does_not_starve_the_others(queue: QueueUnderTest) -> None:
    """P-26: round robin over those that have something."""
    for _ in range(4):
        queue.sender.send_messages(
            [ServiceBusMessage("many", partition_key="crowded") for _ in range(100)]
        )
    crowded = partition_of(queue.peek_all()[0])
    queue.send(*(ServiceBusMessage("few") for _ in range(PARTITIONS)))
    first = queue.receive(4 * PARTITIONS, queue.open_receiver(prefetch_count=4 * PARTITIONS))
    others = {partition_of(message) for message in first} - {crowded}
    assert len(others) == PARTITIONS - 1


def test_the_order_within_a_key_is_kept_among_other_traffic(queue: QueueUnderTest) -> None:
    """P-18, PRT-4."""
    for number in range(30):
        queue.send(ServiceBusMessage(f"{number:02}", session_id="ordered"), "in between")
    received = [str(message) for message in queue.receive(60)]
    ordered = [body for body in received if body != "in between"]
    assert ordered == [f"{number:02}" for number in range(30)]


def test_a_walk_of_peeks_sees_every_message_once(queue: QueueUnderTest) -> None:
    """P-32."""
    queue.send(*(f"message {number:03}" for number in range(100)))
    seen = [str(message) for message in queue.peek_all(page=9)]
    assert sorted(seen) == [f"message {number:03}" for number in range(100)]


def test_messages_of_all_partitions_are_settled(queue: QueueUnderTest) -> None:
    """P-7, D-23: the token says which partition."""
    queue.send(*(f"message {number}" for number in range(2 * PARTITIONS)))
    for message in queue.receive(2 * PARTITIONS):
        queue.receiver.complete_message(message)
    assert queue.is_empty


def test_a_dead_letter_stays_in_its_partition(queue: QueueUnderTest, dead_letters: Any) -> None:
    """DLQ-2, P-41."""
    queue.send(*(f"message {number}" for number in range(PARTITIONS)))
    for message in queue.receive(PARTITIONS):
        queue.receiver.dead_letter_message(message)
    assert len(by_partition(queue.receive(PARTITIONS, dead_letters))) == PARTITIONS
