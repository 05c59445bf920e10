"""The lock of a session: how long it holds, how it is renewed, and what happens when it ends."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus.exceptions import SessionLockLostError

from tests.sdk.conftest import (
    ONCE_EACH,
    WAIT_S,
    QueueUnderTest,
    of_session,
    renewed_past,
    seconds_left,
    wait_until,
)

SHORT_SESSIONS = pytest.mark.queue(requires_session=True, lock_duration="5s")
"""The shortest lock that there is (LOCK-1)."""
DURATION = timedelta(seconds=30)
CLOCKS = timedelta(seconds=0.5)
"""Broker time is not the machine's clock (D-25): they differ by a little."""


@pytest.mark.queue(requires_session=True, lock_duration="30s")
def test_renewing_starts_the_lock_of_a_session_anew(queue: QueueUnderTest) -> None:
    """SES-3, LOCK-3."""
    began = datetime.now(UTC) - CLOCKS
    session = queue.accept("a").session
    before = session.locked_until_utc
    assert began + DURATION <= before <= datetime.now(UTC) + DURATION + CLOCKS
    renewed = renewed_past(session.renew_lock, before)
    assert renewed <= datetime.now(UTC) + DURATION + CLOCKS
    assert session.locked_until_utc == renewed


@ONCE_EACH
@SHORT_SESSIONS
def test_when_the_lock_of_a_session_runs_out_all_is_lost(queue: QueueUnderTest) -> None:
    """SES-8, DLV-8: the receiver is told, and the message comes again, counted."""
    queue.send(*of_session("a", "too slow", "untouched"))
    receiver = queue.accept("a")
    held = queue.receive_one(receiver)
    following = queue.accept_next()
    assert seconds_left(receiver.session.locked_until_utc) < 0.5
    with pytest.raises(SessionLockLostError):
        receiver.complete_message(held)
    with pytest.raises(SessionLockLostError):
        receiver.session.set_state("whose?")
    again = queue.receive(2, following)
    assert [(str(message), message.delivery_count) for message in again] == [
        ("too slow", 1),
        ("untouched", 0),
    ]


@ONCE_EACH
@SHORT_SESSIONS
def test_a_link_whose_session_is_lost_is_detached(queue: QueueUnderTest) -> None:
    """SES-8: also one that only waits."""
    receiver = queue.accept("a")
    with pytest.raises(SessionLockLostError):
        receiver.receive_messages(max_wait_time=WAIT_S)


@ONCE_EACH
@SHORT_SESSIONS
def test_messages_of_a_session_have_no_locks_of_their_own(queue: QueueUnderTest) -> None:
    """SES-5: the session's renewal covers them."""
    queue.send(*of_session("a", "covered"))
    receiver = queue.accept("a")
    message = queue.receive_one(receiver)
    first_end = receiver.session.locked_until_utc
    while seconds_left(first_end) > -0.5:
        receiver.session.renew_lock()
        time.sleep(0.2)
    receiver.complete_message(message)
    assert receiver.peek_messages(10, sequence_number=1) == []


@ONCE_EACH
@SHORT_SESSIONS
def test_an_automatic_renewer_holds_a_session_past_its_end(queue: QueueUnderTest) -> None:
    """SES-3."""
    renewer = queue.open(queue.sdk.lock_renewer())
    queue.send(*of_session("a", "takes its time"))
    receiver = queue.accept("a", auto_lock_renewer=renewer)
    message = queue.receive_one(receiver)
    first_end = receiver.session.locked_until_utc
    wait_until(lambda: seconds_left(first_end) < -0.5)
    assert receiver.session.auto_renew_error is None
    receiver.complete_message(message)
    assert receiver.peek_messages(10, sequence_number=1) == []
