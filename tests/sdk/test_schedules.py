"""Scheduled messages: by call and by annotation, cancelled, activated, and there after a crash."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState
from azure.servicebus.exceptions import MessageNotFoundError, MessagingEntityNotFoundError

from tests.sdk.conftest import (
    ONCE_EACH,
    QueueUnderTest,
    TopicUnderTest,
    of_session,
    partition_of,
    texts,
)

T = TypeVar("T")

SOON_S = (1.5, 6.0, 24.0)
"""Short enough to wait for; and long enough to be seen as scheduled on a busier machine."""
CLOCKS = timedelta(seconds=0.5)
"""Broker time is not the machine's clock (D-25): they differ by a little."""


def moment(seconds: float) -> datetime:
    """From now on, in the milliseconds that AMQP has."""
    at = datetime.now(UTC) + timedelta(seconds=seconds)
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


def later() -> datetime:
    return moment(3600)


def before_its_time(
    look: Callable[[datetime], T], again: Callable[[], object]
) -> tuple[datetime, T]:
    """A moment soon, and what was seen when it had not come yet; `again` clears a late try away."""
    for seconds in SOON_S:
        at = moment(seconds)
        seen = look(at)
        if datetime.now(UTC) < at - CLOCKS:
            return at, seen
        again()
    raise AssertionError("this machine is too busy to see anything in time")


def scheduled(body: str, at: datetime, **properties: Any) -> ServiceBusMessage:
    return ServiceBusMessage(body, scheduled_enqueue_time_utc=at, **properties)


# --- Scheduling ----------------------------------------------------------------------------------


def test_scheduling_returns_the_number_of_each_message(queue: QueueUnderTest) -> None:
    """SCH-2: in the order of the messages, all or none of them."""
    messages = [ServiceBusMessage(body, partition_key="one") for body in "abc"]
    numbers = queue.sender.schedule_messages(messages, later())
    assert len(set(numbers)) == 3
    assert numbers == sorted(numbers)
    assert {each.sequence_number: str(each) for each in queue.peek_all()} == dict(
        zip(numbers, "abc", strict=True)
    )


def test_a_scheduled_message_is_peeked_and_not_received(queue: QueueUnderTest) -> None:
    """SCH-5, PEEK-1, MSG-1."""
    at = later()
    [number] = queue.sender.schedule_messages(ServiceBusMessage("later"), at)
    [seen] = queue.peek_all()
    assert seen.sequence_number == number
    assert seen.state == ServiceBusMessageState.SCHEDULED
    assert seen.scheduled_enqueue_time_utc == at
    assert queue.receiver.receive_messages(max_wait_time=0.3) == []


def test_an_annotation_schedules_as_well(queue: QueueUnderTest) -> None:
    """SCH-1."""
    at = later()
    queue.send(scheduled("later", at), "now")
    assert str(queue.receive_one()) == "now"
    states = {str(each): each.state for each in queue.peek_all()}
    assert states["later"] == ServiceBusMessageState.SCHEDULED


def test_a_batch_may_hold_scheduled_messages_and_others(queue: QueueUnderTest) -> None:
    """SCH-1, MSG-7."""
    queue.sender.send_messages([scheduled("later", later()), ServiceBusMessage("now")])
    assert str(queue.receive_one()) == "now"
    assert sorted(texts(queue.peek_all())) == ["later", "now"]


def test_a_time_in_the_past_is_now(queue: QueueUnderTest) -> None:
    """SCH-1."""
    queue.sender.schedule_messages(ServiceBusMessage("called"), moment(-60))
    queue.send(scheduled("annotated", moment(-60)))
    assert sorted(texts(queue.receive(2))) == ["annotated", "called"]


# --- Cancelling ----------------------------------------------------------------------------------


def test_what_is_cancelled_is_gone(queue: QueueUnderTest) -> None:
    """SCH-2."""
    messages = [ServiceBusMessage(body, partition_key="one") for body in "abc"]
    numbers = queue.sender.schedule_messages(messages, later())
    queue.sender.cancel_scheduled_messages([numbers[0], numbers[2]])
    assert texts(queue.peek_all()) == ["b"]


def test_a_message_sent_with_an_annotation_is_cancelled_by_its_number(
    queue: QueueUnderTest,
) -> None:
    """SCH-1, SCH-2."""
    queue.send(scheduled("later", later()))
    [seen] = queue.peek_all()
    queue.sender.cancel_scheduled_messages(seen.sequence_number)
    assert queue.is_empty


def test_cancelling_twice_finds_nothing(queue: QueueUnderTest) -> None:
    """SCH-2, management 4.4."""
    [number] = queue.sender.schedule_messages(ServiceBusMessage("later"), later())
    queue.sender.cancel_scheduled_messages(number)
    with pytest.raises(MessageNotFoundError):
        queue.sender.cancel_scheduled_messages(number)


def test_cancelling_is_all_or_nothing(queue: QueueUnderTest) -> None:
    """Management 4.4."""
    [number] = queue.sender.schedule_messages(ServiceBusMessage("stays"), later())
    with pytest.raises(MessageNotFoundError):
        queue.sender.cancel_scheduled_messages([number, number + 1000])
    assert texts(queue.peek_all()) == ["stays"]


def test_an_active_message_cannot_be_cancelled(queue: QueueUnderTest) -> None:
    """SCH-2."""
    queue.send("active")
    [seen] = queue.peek_all()
    with pytest.raises(MessageNotFoundError):
        queue.sender.cancel_scheduled_messages(seen.sequence_number)
    assert str(queue.receive_one()) == "active"


# --- Activation ----------------------------------------------------------------------------------


def take(queue: QueueUnderTest, count: int) -> None:
    for message in queue.receive(count):
        queue.receiver.complete_message(message)


@ONCE_EACH
@pytest.mark.parametrize("way", ["called", "annotated"])
def test_when_its_time_comes_a_message_is_enqueued_with_a_new_number(
    queue: QueueUnderTest, way: str
) -> None:
    """SCH-3, TTL-3; P-36: in the partition where it was scheduled."""

    def schedule(at: datetime) -> Any:
        if way == "called":
            queue.sender.schedule_messages(ServiceBusMessage("in time"), at)
        else:
            queue.send(scheduled("in time", at))
        [seen] = queue.peek_all()
        return seen

    at, seen = before_its_time(schedule, lambda: take(queue, 1))
    assert seen.state == ServiceBusMessageState.SCHEDULED
    message = queue.receive_one()
    assert datetime.now(UTC) >= at - CLOCKS
    assert message.sequence_number > seen.sequence_number
    assert partition_of(message) == partition_of(seen)
    assert message.enqueued_time_utc >= at
    assert message.scheduled_enqueue_time_utc == at
    queue.receiver.complete_message(message)
    assert queue.is_empty


@ONCE_EACH
def test_messages_are_activated_in_the_order_of_their_times(queue: QueueUnderTest) -> None:
    """SCH-3, MSG-6."""

    def schedule(first: datetime) -> None:
        for body, seconds in (("second", 0.4), ("first", 0.0), ("third", 0.8)):
            message = ServiceBusMessage(body, partition_key="one")
            queue.sender.schedule_messages(message, first + timedelta(seconds=seconds))

    before_its_time(schedule, lambda: take(queue, 3))
    assert texts(queue.receive(3)) == ["first", "second", "third"]


@ONCE_EACH
@pytest.mark.queue(requires_session=True)
def test_a_session_is_available_when_its_message_is(queue: QueueUnderTest) -> None:
    """SCH-3, SES-7: what is scheduled does not make a session available."""
    at = moment(SOON_S[0])
    queue.sender.schedule_messages(of_session("a", "in time"), at)
    receiver = queue.accept_next()
    assert datetime.now(UTC) >= at - CLOCKS
    assert texts(queue.receive(1, receiver)) == ["in time"]


# --- Topics --------------------------------------------------------------------------------------

ONE_SUBSCRIPTION = pytest.mark.topic('[[topics.subscriptions]]\nname = "all"\n')


@ONCE_EACH
@ONE_SUBSCRIPTION
def test_subscriptions_see_a_scheduled_message_when_its_time_comes(topic: TopicUnderTest) -> None:
    """SCH-4, SCH-5."""

    def schedule(at: datetime) -> list[Any]:
        topic.sender.schedule_messages(ServiceBusMessage("in time"), at)
        return topic.peek_all("all")

    def take_it() -> None:
        topic.receiver("all").complete_message(*topic.receive("all"))

    at, seen = before_its_time(schedule, take_it)
    assert seen == []
    [message] = topic.receive("all")
    assert datetime.now(UTC) >= at - CLOCKS
    assert str(message) == "in time"


@ONE_SUBSCRIPTION
def test_what_is_scheduled_on_a_topic_can_be_cancelled_there(topic: TopicUnderTest) -> None:
    """SCH-2, SCH-5. No SDK can peek there: it would need a receiver, and a topic has none."""
    numbers = topic.sender.schedule_messages(ServiceBusMessage("later"), later())
    with pytest.raises(MessagingEntityNotFoundError, match="Receive from one of its subscriptions"):
        topic.open_queue_receiver(topic.name)
    topic.sender.cancel_scheduled_messages(numbers)
    assert topic.peek_all("all") == []
