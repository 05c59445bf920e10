"""What a session has: a state, messages to look at, deferred ones; and which sessions there are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus.exceptions import ServiceBusError

from tests.sdk.conftest import ONCE_EACH, QueueUnderTest, of_session, texts, wait_until

SESSIONS = pytest.mark.queue(requires_session=True)


@SESSIONS
def test_a_session_keeps_a_state(queue: QueueUnderTest) -> None:
    """SES-10: whatever becomes of owners and messages; empty is not none."""
    queue.send(*of_session("a", "gone"))
    with queue.accept("a") as owner:
        assert owner.session.get_state() is None
        owner.session.set_state("step 1")
        assert owner.session.get_state() == b"step 1"
        owner.session.set_state(b"\x00step 2")
        owner.complete_message(queue.receive_one(owner))
    session = queue.accept("a").session
    assert session.get_state() == b"\x00step 2"
    session.set_state(b"")
    assert session.get_state() == b""
    session.set_state(None)
    assert session.get_state() is None


@SESSIONS
def test_each_session_has_its_own_state(queue: QueueUnderTest) -> None:
    """SES-10, PRT-9."""
    a, b = queue.accept("a").session, queue.accept("b").session
    a.set_state("of a")
    assert b.get_state() is None
    b.set_state("of b")
    assert (a.get_state(), b.get_state()) == (b"of a", b"of b")


@SESSIONS
def test_a_state_may_be_as_large_as_a_message(queue: QueueUnderTest) -> None:
    """LIM-13."""
    session = queue.accept("a").session
    session.set_state(b"x" * 200_000)
    assert session.get_state() == b"x" * 200_000
    with pytest.raises(ServiceBusError):
        session.set_state(b"x" * 300_000)
    assert session.get_state() == b"x" * 200_000


@SESSIONS
def test_a_peek_inside_a_session_sees_that_session(queue: QueueUnderTest) -> None:
    """PEEK-3."""
    queue.send(*of_session("a", "a1", "a2"), *of_session("b", "b1"))
    assert texts(queue.accept("a").peek_messages(10)) == ["a1", "a2"]
    assert texts(queue.accept("b").peek_messages(10)) == ["b1"]


@SESSIONS
def test_a_deferred_message_belongs_to_its_session(queue: QueueUnderTest) -> None:
    """DEF-1, DEF-5."""
    queue.send(*of_session("a", "later", "now"))
    with queue.accept("a") as owner:
        later = queue.receive_one(owner)
        owner.defer_message(later)
        owner.complete_message(queue.receive_one(owner))
    with pytest.raises(ServiceBusError):
        queue.accept("b").receive_deferred_messages(later.sequence_number)
    owner = queue.accept("a")
    [deferred] = owner.receive_deferred_messages(later.sequence_number)
    assert str(deferred) == "later"
    owner.complete_message(deferred)
    assert owner.peek_messages(10, sequence_number=1) == []


@SESSIONS
def test_sessions_are_listed(queue: QueueUnderTest) -> None:
    """SES-11: those with messages or a state."""
    assert list(queue.client.list_queue_sessions(queue.name)) == []
    queue.send(*of_session("with messages", "x"))
    queue.accept("with a state").session.set_state("x")
    queue.accept("with nothing")
    found = list(queue.client.list_queue_sessions(queue.name))
    assert sorted(found) == ["with a state", "with messages"]


@ONCE_EACH
@SESSIONS
def test_more_sessions_than_a_page_are_listed_once_each(queue: QueueUnderTest) -> None:
    """SES-11: the SDK asks for a hundred at a time."""
    names = [f"session {number:03}" for number in range(230)]
    queue.send(*(message for name in names for message in of_session(name, "x")))
    assert sorted(queue.client.list_queue_sessions(queue.name)) == names


@ONCE_EACH
@SESSIONS
def test_sessions_whose_state_changed_are_listed(queue: QueueUnderTest) -> None:
    """SES-11, management 5.4."""
    queue.send(*of_session("with messages", "x"))
    early, late = queue.accept("early").session, queue.accept("late").session
    early.set_state("x")

    def listed(after: datetime) -> list[str]:
        return sorted(queue.client.list_queue_sessions(queue.name, state_updated_after=after))

    def moment_after_early() -> datetime | None:
        now = datetime.now(UTC)
        return None if listed(now) else now

    def late_is_listed() -> bool:
        """The broker's clock may be behind ours by a little: then it was not yet after it."""
        late.set_state("x")
        return listed(moment) == ["late"]

    moment = wait_until(moment_after_early)
    wait_until(late_is_listed)
    assert listed(moment - timedelta(minutes=1)) == ["early", "late"]
    early.set_state("y")
    assert listed(moment) == ["early", "late"]
