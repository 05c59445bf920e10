"""Receiving with the SDK: credit, waiting, prefetch, deleting at once, iterating, competing."""

from __future__ import annotations

import threading
import time
from typing import Any

from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusReceiveMode

from tests.sdk.conftest import WAIT_S, QueueUnderTest, wait_until

DELETE = ServiceBusReceiveMode.RECEIVE_AND_DELETE


def numbered(count: int) -> list[str]:
    return [f"message {number:03}" for number in range(count)]


def bodies(messages: list[ServiceBusReceivedMessage]) -> list[str]:
    return [str(message) for message in messages]


def test_with_nothing_there_a_receive_waits_as_long_as_it_was_told(queue: QueueUnderTest) -> None:
    queue.receiver.peek_messages()  # so that opening the link is not measured
    started = time.monotonic()
    assert queue.receiver.receive_messages(max_wait_time=1) == []
    assert 0.9 < time.monotonic() - started < WAIT_S


def test_a_message_ends_the_waiting(queue: QueueUnderTest) -> None:
    late = threading.Timer(0.5, queue.sender.send_messages, [ServiceBusMessage("late")])
    late.start()
    started = time.monotonic()
    [message] = queue.receiver.receive_messages(max_wait_time=4 * WAIT_S)
    late.join()
    assert str(message) == "late"
    assert time.monotonic() - started < WAIT_S


def test_a_receive_returns_at_most_what_it_asked_for(queue: QueueUnderTest) -> None:
    queue.send(*numbered(5))
    assert len(queue.receiver.receive_messages(max_message_count=3, max_wait_time=WAIT_S)) <= 3


def test_several_receives_return_everything(queue: QueueUnderTest) -> None:
    """P-29: it may take more than one call."""
    queue.send(*numbered(20))
    assert sorted(bodies(queue.receive(20))) == numbered(20)


def test_messages_of_one_key_come_in_order(queue: QueueUnderTest) -> None:
    """MSG-6, P-19: the same key, the same partition, the order of sending."""
    queue.send(*(ServiceBusMessage(body, partition_key="one") for body in numbered(20)))
    assert bodies(queue.receive(20)) == numbered(20)


def test_prefetched_messages_are_received(queue: QueueUnderTest) -> None:
    queue.send(*numbered(30))
    receiver = queue.open_receiver(prefetch_count=10)
    received = queue.receive(30, receiver)
    assert sorted(bodies(received)) == numbered(30)
    for message in received:
        receiver.complete_message(message)
    assert queue.is_empty


def test_what_was_prefetched_and_not_received_is_given_back_on_close(queue: QueueUnderTest) -> None:
    """amqp.md 9: released, and DLV-1: without a count."""
    queue.send(*numbered(10))
    with queue.client.get_queue_receiver(queue.name, prefetch_count=10) as receiver:
        assert receiver.receive_messages(max_message_count=1, max_wait_time=WAIT_S)
    returned = queue.receive(9)
    assert {message.delivery_count for message in returned} == {0}


def test_receive_and_delete_leaves_nothing(queue: QueueUnderTest) -> None:
    queue.send(*numbered(5))
    receiver = queue.open_receiver(receive_mode=DELETE)
    received = queue.receive(5, receiver)
    assert sorted(bodies(received)) == numbered(5)
    assert {message.lock_token for message in received} == {None}
    assert queue.is_empty


def test_receive_and_delete_with_prefetch_gets_each_message_once(queue: QueueUnderTest) -> None:
    queue.send(*numbered(50))
    assert sorted(bodies(queue.drain(50))) == numbered(50)
    assert queue.is_empty


def iterated(receiver: Any, count: int) -> list[str]:
    """What iterators find until it is so much: on a busy machine one may end before that."""
    deadline = time.monotonic() + WAIT_S
    received: list[str] = []
    while len(received) < count:
        assert time.monotonic() < deadline, f"{received} are all that came"
        for message in receiver:
            received.append(str(message))
            receiver.complete_message(message)
    return received


def test_an_iterator_ends_when_nothing_came_for_a_while(queue: QueueUnderTest) -> None:
    queue.send(*numbered(5))
    assert sorted(iterated(queue.open_receiver(max_wait_time=0.5), 5)) == numbered(5)
    assert queue.is_empty


def test_an_iterator_with_prefetch_gets_everything(queue: QueueUnderTest) -> None:
    queue.send(*numbered(30))
    receiver = queue.open_receiver(max_wait_time=0.5, prefetch_count=10)
    assert sorted(iterated(receiver, 30)) == numbered(30)


def test_a_locked_message_is_not_given_to_another_receiver(queue: QueueUnderTest) -> None:
    """LOCK-8."""
    queue.send("mine")
    assert queue.receive_one()
    assert queue.open_receiver().receive_messages(max_wait_time=0.5) == []


def test_a_message_goes_to_the_receiver_that_waits(queue: QueueUnderTest) -> None:
    """D-22: credit stays on record, and a new message finds it."""
    waiting = queue.open_receiver()
    waiting.peek_messages()  # the link is up
    found: list[ServiceBusReceivedMessage] = []
    thread = threading.Thread(
        target=lambda: found.extend(waiting.receive_messages(max_wait_time=WAIT_S))
    )
    thread.start()
    queue.send("for whoever waits")
    thread.join()
    assert bodies(found) == ["for whoever waits"]


def test_two_competing_receivers_get_each_message_exactly_once(queue: QueueUnderTest) -> None:
    """LOCK-8."""
    queue.send(*numbered(60))
    received: list[list[str]] = [[], []]
    done = threading.Event()

    def compete(mine: list[str], prefetch_count: int) -> None:
        with queue.client.get_queue_receiver(queue.name, prefetch_count=prefetch_count) as receiver:
            while not done.is_set():
                for message in receiver.receive_messages(max_message_count=5, max_wait_time=0.3):
                    mine.append(str(message))
                    receiver.complete_message(message)

    threads = [
        threading.Thread(target=compete, args=(mine, prefetch_count))
        for mine, prefetch_count in zip(received, (0, 10), strict=True)
    ]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: sum(map(len, received)) >= 60)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert sorted(received[0] + received[1]) == numbered(60)
    assert queue.is_empty


def test_an_unsettled_message_stays_locked_when_its_receiver_closes(queue: QueueUnderTest) -> None:
    """LOCK-7: the lock runs on, and LOCK-6: its token is good for another connection."""
    queue.send("held")
    with queue.client.get_queue_receiver(queue.name) as receiver:
        queue.receive_one(receiver)
    assert queue.receiver.receive_messages(max_wait_time=0.5) == []
    assert len(queue.peek_all()) == 1
