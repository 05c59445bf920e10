"""Forwarding from queues: once, in order, in chains, and with the key kept.

The queue of a test is where messages arrive; what forwards to it is written above the test.
"""

from __future__ import annotations

from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import ServiceBusError

from tests.sdk.conftest import (
    ONCE_EACH,
    EntityUnderTest,
    QueueUnderTest,
    of_session,
    partition_of,
    texts,
    wait_until,
)

SOURCE = pytest.mark.entities("""
[[queues]]
name = "$name-source"
partitioned = $partitioned
forward_to = "$name"
""")
BOTH_KINDS = pytest.mark.parametrize("source_kind", ["conventional", "partitioned"])
SOURCES_OF_BOTH_KINDS = pytest.mark.entities("""
[[queues]]
name = "$name-conventional"
forward_to = "$name"
[[queues]]
name = "$name-partitioned"
partitioned = true
forward_to = "$name"
""")


def source(entity: EntityUnderTest, suffix: str = "source") -> Any:
    return entity.open_queue_sender(f"{entity.name}-{suffix}")


def dead_letters_of(entity: EntityUnderTest, suffix: str) -> Any:
    name = f"{entity.name}-{suffix}"
    return entity.open_queue_receiver(name, sub_queue=ServiceBusSubQueue.DEAD_LETTER)


# --- From queue to queue -------------------------------------------------------------------------


@SOURCE
def test_what_is_sent_to_a_forwarding_queue_arrives_at_its_destination(
    queue: QueueUnderTest,
) -> None:
    """FWD-1, FWD-2."""
    properties = {"color": "red"}
    queue.send(
        ServiceBusMessage("x", message_id="7", subject="s", application_properties=properties),
        sender=source(queue),
    )
    message = queue.receive_one()
    assert (str(message), message.message_id, message.subject) == ("x", "7", "s")
    assert message.application_properties == {b"color": b"red"}
    assert message.delivery_count == 0
    queue.receiver.complete_message(message)
    assert queue.is_empty


@SOURCE
def test_a_forwarded_message_says_which_number_it_had(queue: QueueUnderTest) -> None:
    """FWD-2, SEQ-6: a new number at the destination, and the first one beside it."""
    queue.send("here before", sender=queue.sender)
    sender = source(queue)
    queue.send(ServiceBusMessage("a", partition_key="k"), sender=sender)
    queue.send(ServiceBusMessage("b", partition_key="k"), sender=sender)
    found = {str(message): message for message in queue.receive(3)}
    first, second = found["a"], found["b"]
    assert first.sequence_number < second.sequence_number
    assert 0 < first.enqueued_sequence_number < second.enqueued_sequence_number


@SOURCE
def test_the_order_within_a_key_is_kept_on_the_way(queue: QueueUnderTest) -> None:
    """FWD-2, D-27."""
    sender = source(queue)
    for number in range(30):
        queue.send(ServiceBusMessage(f"{number:02}", partition_key="one"), sender=sender)
    assert texts(queue.receive(30)) == [f"{number:02}" for number in range(30)]


@SOURCE
def test_a_batch_is_forwarded_as_a_whole(queue: QueueUnderTest) -> None:
    """MSG-7, FWD-2."""
    source(queue).send_messages([ServiceBusMessage(str(number)) for number in range(20)])
    assert sorted(texts(queue.receive(20)), key=int) == [str(number) for number in range(20)]


@SOURCE
def test_a_forwarding_queue_is_not_received_from(queue: QueueUnderTest) -> None:
    """FWD-1."""
    with pytest.raises(ServiceBusError, match="auto-forwarding"):
        queue.open_queue_receiver(f"{queue.name}-source")


@BOTH_KINDS
@SOURCES_OF_BOTH_KINDS
def test_a_key_is_kept_and_picks_the_partition_where_it_arrives(
    queue: QueueUnderTest, source_kind: str
) -> None:
    """P-39, P-40, FWD-7: where a message of that key would go that was sent there."""
    keys = [f"customer {number}" for number in range(6)]
    forwarding = source(queue, source_kind)
    for key in keys:
        queue.send(ServiceBusMessage("sent there", partition_key=key))
        queue.send(ServiceBusMessage("forwarded", partition_key=key), sender=forwarding)
    messages = queue.receive(2 * len(keys))
    found = {(str(each), each.partition_key): partition_of(each) for each in messages}
    assert {key: found["forwarded", key] for key in keys} == {
        key: found["sent there", key] for key in keys
    }


@BOTH_KINDS
@SOURCES_OF_BOTH_KINDS
@pytest.mark.queue(requires_session=True)
def test_sessions_are_kept_on_the_way(queue: QueueUnderTest, source_kind: str) -> None:
    """P-40: a forwarding queue has no sessions of its own, and passes them on."""
    sender = source(queue, source_kind)
    queue.send(
        *of_session("a", "a1"), *of_session("b", "b1"), *of_session("a", "a2"), sender=sender
    )
    assert texts(queue.receive(2, queue.accept("a"))) == ["a1", "a2"]
    assert texts(queue.receive(1, queue.accept_next())) == ["b1"]


@SOURCES_OF_BOTH_KINDS
@pytest.mark.queue(requires_duplicate_detection=True)
def test_duplicates_are_found_where_a_message_arrives(queue: QueueUnderTest) -> None:
    """DUP-6."""
    queue.send(ServiceBusMessage("1", message_id="1"))
    for suffix in ("conventional", "partitioned"):
        sender = source(queue, suffix)
        queue.send(ServiceBusMessage("1", message_id="1"), sender=sender)
        queue.send(ServiceBusMessage("2", message_id="2"), sender=sender)
        queue.send(ServiceBusMessage(suffix, message_id=suffix), sender=sender)
    wait_until(lambda: len(queue.peek_all()) >= 4)
    assert sorted(texts(queue.peek_all())) == ["1", "2", "conventional", "partitioned"]


@pytest.mark.queue(status="SendDisabled")
@SOURCE
def test_what_its_destination_does_not_take_is_a_dead_letter_of_the_source(
    queue: QueueUnderTest,
) -> None:
    """FWD-4: with its own sub-queue to look at; the send itself was accepted (MSG-2)."""
    queue.send("not wanted", sender=source(queue))
    dead = queue.receive_one(dead_letters_of(queue, "source"))
    assert str(dead) == "not wanted"
    assert queue.is_empty


# --- Chains --------------------------------------------------------------------------------------

CHAIN = "".join(
    f"""
[[queues]]
name = "$name-{hop}"
partitioned = {"true" if hop % 2 else "false"}
forward_to = "$name{f"-{hop - 1}" if hop > 1 else ""}"
"""
    for hop in range(1, 6)
)


@ONCE_EACH
@pytest.mark.entities(CHAIN)
def test_four_hops_are_made(queue: QueueUnderTest) -> None:
    """FWD-3: through conventional and partitioned queues in turn."""
    queue.send("travelled", sender=source(queue, "4"))
    assert str(queue.receive_one()) == "travelled"


@ONCE_EACH
@pytest.mark.entities(CHAIN)
def test_a_fifth_hop_is_not_made(queue: QueueUnderTest) -> None:
    """FWD-3, DLQ-3: it is a dead letter of the queue that would have made it."""
    queue.send("too far", sender=source(queue, "5"))
    dead = queue.receive_one(dead_letters_of(queue, "1"))
    assert (str(dead), dead.dead_letter_reason) == ("too far", "MaxTransferHopCountExceeded")
    assert queue.is_empty
