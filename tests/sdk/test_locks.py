"""Message locks: how long they hold, how they are renewed, and what happens when they end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus.exceptions import MessageLockLostError

from tests.sdk.conftest import (
    ONCE_EACH,
    QueueUnderTest,
    renewed_past,
    seconds_left,
    wait_until,
)

SHORT = "5s"
"""The shortest that there is (LOCK-1)."""
CLOCKS = timedelta(seconds=0.5)
"""Broker time is not the machine's clock (D-25): they differ by a little."""


def assert_held_for(queue: QueueUnderTest, seconds: float) -> None:
    before = datetime.now(UTC)
    queue.send("locked")
    end = queue.receive_one().locked_until_utc
    duration = timedelta(seconds=seconds)
    assert before - CLOCKS <= end - duration <= datetime.now(UTC) + CLOCKS


@pytest.mark.queue(lock_duration="30s")
def test_a_lock_holds_for_the_lock_duration_of_the_queue(queue: QueueUnderTest) -> None:
    """LOCK-1."""
    assert_held_for(queue, 30)


def test_a_lock_holds_for_a_minute_if_the_queue_says_nothing(queue: QueueUnderTest) -> None:
    """LOCK-1, DFT."""
    assert_held_for(queue, 60)


@pytest.mark.queue(lock_duration="30s")
def test_renewing_starts_the_lock_duration_anew(queue: QueueUnderTest) -> None:
    """LOCK-3: from now, not from the old end."""
    queue.send("renewed")
    message = queue.receive_one()
    before = message.locked_until_utc
    renewed = renewed_past(lambda: queue.receiver.renew_message_lock(message), before)
    assert renewed <= datetime.now(UTC) + timedelta(seconds=30) + CLOCKS
    assert message.locked_until_utc == renewed
    queue.receiver.complete_message(message)
    assert queue.is_empty


def test_a_lock_is_renewed_as_often_as_one_likes(queue: QueueUnderTest) -> None:
    """LOCK-3."""
    queue.send("renewed")
    message = queue.receive_one()
    ends = [queue.receiver.renew_message_lock(message) for _ in range(5)]
    assert ends == sorted(ends)


@ONCE_EACH
@pytest.mark.queue(lock_duration=SHORT)
def test_when_a_lock_runs_out_the_message_comes_again_counted(queue: QueueUnderTest) -> None:
    """LOCK-4, DLV-1; LOCK-5: and its old lock is lost."""
    queue.send("too slow")
    first = queue.receive_one()
    second = queue.receive_one()
    assert (second.sequence_number, second.delivery_count) == (first.sequence_number, 1)
    with pytest.raises(MessageLockLostError):
        queue.receiver.complete_message(first)
    queue.receiver.complete_message(second)
    assert queue.is_empty


@ONCE_EACH
@pytest.mark.queue(lock_duration=SHORT)
def test_an_automatic_renewer_holds_a_lock_past_its_end(queue: QueueUnderTest) -> None:
    renewer = queue.open(queue.sdk.lock_renewer())
    queue.send("takes its time")
    message = queue.receive_one()
    first_end = message.locked_until_utc
    renewer.register(queue.receiver, message, max_lock_renewal_duration=60)
    wait_until(lambda: seconds_left(first_end) < -0.5)
    assert message.auto_renew_error is None
    assert seconds_left(message.locked_until_utc) > 0
    queue.receiver.complete_message(message)
    assert queue.is_empty


@ONCE_EACH
@pytest.mark.queue(lock_duration=SHORT)
def test_a_receiver_with_a_renewer_registers_what_it_receives(queue: QueueUnderTest) -> None:
    renewer = queue.open(queue.sdk.lock_renewer())
    receiver = queue.open_receiver(auto_lock_renewer=renewer)
    queue.send("renewed by itself")
    message = queue.receive_one(receiver)
    first_end = message.locked_until_utc
    wait_until(lambda: message.locked_until_utc > first_end)
    receiver.complete_message(message)
    assert queue.is_empty
