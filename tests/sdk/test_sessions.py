"""Sessions: accepted by id or as the next available, exclusive, and in order."""

from __future__ import annotations

import time
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusError,
    SessionCannotBeLockedError,
)

from tests.sdk.conftest import (
    ONCE_EACH,
    PARTITIONED,
    WAIT_S,
    QueueUnderTest,
    of_session,
    partition_of,
    texts,
)

SESSIONS = pytest.mark.queue(requires_session=True)

# --- What is refused -----------------------------------------------------------------------------


@SESSIONS
def test_a_send_without_a_session_id_is_refused(queue: QueueUnderTest) -> None:
    """SES-1: and nothing is stored."""
    with pytest.raises(ServiceBusError, match="SessionId was not set"):
        queue.send("of no session")
    assert queue.accept("any").peek_messages(10, sequence_number=1) == []


@SESSIONS
def test_a_batch_with_one_message_without_a_session_id_is_refused(queue: QueueUnderTest) -> None:
    """SES-1, MSG-7: all of it."""
    with pytest.raises(ServiceBusError, match="amqp:not-allowed"):
        queue.sender.send_messages([*of_session("a", "good"), ServiceBusMessage("bad")])
    assert queue.accept("a").peek_messages(10, sequence_number=1) == []


@SESSIONS
def test_a_receiver_without_a_session_is_refused(queue: QueueUnderTest) -> None:
    """SES-2."""
    with pytest.raises(ServiceBusError, match="requires sessions"):
        queue.open_receiver()


def test_a_session_receiver_is_refused_where_there_are_no_sessions(queue: QueueUnderTest) -> None:
    """SES-2, amqp.md 11."""
    with pytest.raises(ServiceBusError, match="sessionful message receiver"):
        queue.accept("a")


@pytest.mark.parametrize("kind", [PARTITIONED])
@SESSIONS
def test_a_batch_of_several_sessions_is_refused_on_a_partitioned_queue(
    queue: QueueUnderTest,
) -> None:
    """PRT-7, D-29."""
    with pytest.raises(ServiceBusError, match="amqp:not-allowed"):
        queue.sender.send_messages([*of_session("a", "x"), *of_session("b", "y")])


# --- Accepting -----------------------------------------------------------------------------------


@SESSIONS
def test_a_session_gives_its_own_messages_and_no_others(queue: QueueUnderTest) -> None:
    """SES-3."""
    queue.send(*of_session("a", "a1"), *of_session("b", "b1"), *of_session("a", "a2"))
    receiver = queue.accept("a")
    assert receiver.session.session_id == "a"
    messages = queue.receive(2, receiver)
    assert texts(messages) == ["a1", "a2"]
    assert {message.session_id for message in messages} == {"a"}
    for message in messages:
        receiver.complete_message(message)
    assert receiver.receive_messages(max_wait_time=0.3) == []


@SESSIONS
def test_what_comes_later_comes_to_the_owner(queue: QueueUnderTest) -> None:
    """SES-3, SES-6: a session can be accepted before it has anything."""
    receiver = queue.accept("a")
    queue.send(*of_session("b", "not this"), *of_session("a", "this"))
    assert texts(queue.receive(1, receiver)) == ["this"]


@SESSIONS
def test_a_session_that_is_held_cannot_be_locked(queue: QueueUnderTest) -> None:
    """SES-3, SES-6: and the refusal comes at once."""
    queue.accept("a")
    began = time.monotonic()
    with pytest.raises(SessionCannotBeLockedError, match="'a' cannot be accepted"):
        queue.accept("a", max_wait_time=4 * WAIT_S)
    assert time.monotonic() - began < WAIT_S
    with pytest.raises(SessionCannotBeLockedError):  # SES-13: the same one
        queue.accept("A", max_wait_time=4 * WAIT_S)


@SESSIONS
def test_the_next_available_session_is_one_with_messages_that_nobody_holds(
    queue: QueueUnderTest,
) -> None:
    """SES-7, D-24."""
    queue.send(*of_session("a", "a1"), *of_session("b", "b1"))
    queue.accept("a")
    queue.accept("empty")
    receiver = queue.accept_next()
    assert receiver.session.session_id == "b"
    assert texts(queue.receive(1, receiver)) == ["b1"]


@SESSIONS
def test_those_who_ask_for_the_next_get_one_each(queue: QueueUnderTest) -> None:
    """SES-3, SES-7; D-24: sessions of all partitions."""
    names = {f"customer {number}" for number in range(5)}
    queue.send(*(message for name in names for message in of_session(name, "x")))
    assert {queue.accept_next().session.session_id for _ in names} == names


@ONCE_EACH
@SESSIONS
def test_who_waits_for_a_session_in_vain_is_told_so_in_time(queue: QueueUnderTest) -> None:
    """SES-7: the client's own time-out."""
    queue.send(*of_session("a", "held"))
    queue.accept("a")
    began = time.monotonic()
    with pytest.raises(OperationTimeoutError):
        queue.accept_next(max_wait_time=2)
    assert 1.5 < time.monotonic() - began < WAIT_S


@SESSIONS
def test_who_waits_for_a_session_gets_it_as_soon_as_it_has_something(queue: QueueUnderTest) -> None:
    """SES-7: waiting, not asking again and again."""
    queue.soon("next", queue.accept_next, max_wait_time=4 * WAIT_S)
    time.sleep(0.5)
    began = time.monotonic()
    queue.send(*of_session("a", "at last"))
    receiver = queue.opened("next")
    assert receiver.session.session_id == "a"
    assert time.monotonic() - began < WAIT_S
    assert texts(queue.receive(1, receiver)) == ["at last"]


@SESSIONS
def test_who_waits_for_a_session_gets_it_as_soon_as_its_owner_leaves(queue: QueueUnderTest) -> None:
    """SES-7, SES-9."""
    queue.send(*of_session("a", "handed over"))
    owner = queue.accept("a")
    queue.soon("next", queue.accept_next, max_wait_time=4 * WAIT_S)
    time.sleep(0.5)
    owner.close()
    receiver = queue.opened("next")
    assert receiver.session.session_id == "a"
    assert texts(queue.receive(1, receiver)) == ["handed over"]


@pytest.mark.parametrize("kind", [PARTITIONED])
@SESSIONS
def test_a_session_lives_in_one_partition(queue: QueueUnderTest) -> None:
    """P-18, P-36."""
    queue.send(*of_session("a", *map(str, range(20))))
    messages = queue.receive(20, queue.accept("a"))
    assert texts(messages) == [str(number) for number in range(20)]
    assert len({partition_of(message) for message in messages}) == 1


# --- Order ---------------------------------------------------------------------------------------


@SESSIONS
def test_an_abandoned_message_comes_again_before_later_ones(queue: QueueUnderTest) -> None:
    """SES-4, DLV-1."""
    queue.send(*of_session("a", "1", "2", "3"))
    receiver = queue.accept("a")
    first = queue.receive_one(receiver)
    receiver.abandon_message(first)
    again = queue.receive(3, receiver)
    assert texts(again) == ["1", "2", "3"]
    assert [message.delivery_count for message in again] == [1, 0, 0]


@SESSIONS
def test_the_next_owner_goes_on_where_the_last_one_stopped(queue: QueueUnderTest) -> None:
    """SES-9, DLV-8: what was delivered and not settled comes first, and is not counted."""
    queue.send(*of_session("a", "1", "2", "3"))
    with queue.accept("a") as owner:
        messages = queue.receive(2, owner)
        owner.complete_message(messages[0])
    again = queue.receive(2, queue.accept("a"))
    assert texts(again) == ["2", "3"]
    assert [message.delivery_count for message in again] == [0, 0]


@SESSIONS
def test_an_abandoned_message_is_first_for_the_next_owner_too(queue: QueueUnderTest) -> None:
    """SES-4, SES-9."""
    queue.send(*of_session("a", "1", "2"))
    with queue.accept("a") as owner:
        owner.abandon_message(queue.receive_one(owner))
    again = queue.receive(2, queue.accept("a"))
    assert [(str(message), message.delivery_count) for message in again] == [("1", 1), ("2", 0)]


@SESSIONS
def test_a_message_that_is_abandoned_too_often_lets_the_session_go_on(
    queue: QueueUnderTest, dead_letters: Any
) -> None:
    """DLV-3, SES-12: the dead-letter queue has no sessions; a plain receiver reads it."""
    queue.send(*of_session("a", "poison", "fine"))
    receiver = queue.accept("a")
    for _ in range(10):
        receiver.abandon_message(queue.receive_one(receiver))
    assert str(queue.receive_one(receiver)) == "fine"
    dead = queue.receive_one(dead_letters)
    assert (str(dead), dead.dead_letter_reason) == ("poison", "MaxDeliveryCountExceeded")
