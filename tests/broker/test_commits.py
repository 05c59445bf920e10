"""D-1 to D-9: what a command may believe before, while and after its commit."""

from __future__ import annotations

import pytest

from busway.broker.commits import DISK_RESERVE_BYTES, WayState
from busway.broker.staging import STAGE_BYTES_MAX, STAGE_RECORDS_MAX
from busway.model.errors import BusError
from busway.store.base import StoreUnavailable
from busway.store.faults import CommitOutcome, Fault
from busway.store.memory import MemoryStore
from tests.broker.single_queue import (
    ABANDON,
    ACCEPTED,
    COMPLETE,
    DEFER,
    Hand,
    SingleQueue,
)

BUSY = "ServerBusy"
LOST = "MessageLockLost"


# D-1


def test_d_1_settling_twice_waits_for_the_first_outcome(orders: SingleQueue) -> None:
    orders.send("a")
    delivered = orders.receive_one()
    orders.store.hang()
    first = orders.start_settle(delivered, COMPLETE)
    second = orders.start_settle(delivered, ABANDON)
    orders.run(1_000)
    assert (first.outcome, second.outcome) == (None, None)
    orders.store.recover()
    orders.run()
    assert (first.outcome, second.outcome) == (ACCEPTED, LOST)


def test_d_1_when_the_first_settlement_fails_the_second_is_not_lost(orders: SingleQueue) -> None:
    """It is told to come again; the lock is still the client's."""
    orders.send("a")
    delivered = orders.receive_one()
    orders.store.next_commits_end(CommitOutcome.REFUSED)
    first = orders.start_settle(delivered, COMPLETE)
    second = orders.start_settle(delivered, COMPLETE)
    orders.run()
    assert (first.outcome, second.outcome) == (BUSY, BUSY)
    assert orders.settle(delivered, COMPLETE) == ACCEPTED


def test_d_1_a_failed_commit_takes_the_open_batch_behind_it_along(orders: SingleQueue) -> None:
    orders.store.hang()
    first = orders.start_send("a")
    orders.run(10)
    second = orders.start_send("b")
    orders.store.next_commits_end(CommitOutcome.REFUSED)
    orders.store.recover()
    orders.run()
    assert (first.outcome, second.outcome) == (BUSY, BUSY)
    assert first.error.refused
    assert second.error.refused
    assert orders.peek() == []


def test_d_1_a_marked_message_is_not_delivered(orders: SingleQueue) -> None:
    orders.send("a")
    delivered = orders.receive_one()
    orders.store.hang()
    orders.start_settle(delivered, ABANDON)
    hand = Hand()
    orders.grant(hand)
    orders.run(1_000)
    assert hand.texts == []


def test_d_1_a_lock_does_not_run_out_while_its_settlement_is_on_the_way() -> None:
    orders = SingleQueue(lock_duration_ms=5_000)
    orders.send("a")
    delivered = orders.receive_one()
    orders.run(4_000)
    orders.store.hang()
    command = orders.start_settle(delivered, COMPLETE)
    orders.run(4_000)
    orders.store.recover()
    orders.run(1_000)
    assert command.outcome == ACCEPTED
    assert orders.peek() == []


# D-3: refused, unknown and done, unknown and not done, fenced


def test_d_3_refused_is_certainly_not_there(orders: SingleQueue) -> None:
    orders.store.next_commits_end(CommitOutcome.REFUSED)
    command = orders.start_send("a")
    orders.run()
    assert command.outcome == BUSY
    assert command.error.refused
    assert orders.broker.available


def test_d_3_after_a_refusal_memory_and_locks_stay(orders: SingleQueue) -> None:
    orders.send("a")
    delivered = orders.receive_one()
    orders.store.next_commits_end(CommitOutcome.REFUSED)
    orders.start_send("b")
    orders.run()
    assert orders.settle(delivered, COMPLETE) == ACCEPTED


def test_d_3_unknown_and_done_is_answered_with_the_truth(orders: SingleQueue) -> None:
    orders.store.next_commits_end(CommitOutcome.UNKNOWN_DONE)
    command = orders.start_send("a")
    orders.run(1_000)
    assert command.outcome == ACCEPTED
    assert [each.text for each in orders.receive()] == ["a"]


def test_d_3_unknown_and_not_done_is_answered_with_the_truth(orders: SingleQueue) -> None:
    orders.store.next_commits_end(CommitOutcome.UNKNOWN_NOT_DONE)
    command = orders.start_send("a")
    orders.run(1_000)
    assert command.outcome == BUSY
    assert command.error.refused
    assert orders.peek() == []


def test_d_3_an_unknown_outcome_is_not_answered_while_nobody_can_look(orders: SingleQueue) -> None:
    orders.store.next_commits_end(CommitOutcome.UNKNOWN_DONE)
    command = orders.start_send("a")
    orders.world.run_until(lambda: orders.broker.state is WayState.OPENING)
    orders.store.faults.be(Fault.GONE)
    orders.run(5_000)
    assert command.outcome is None
    orders.store.recover()
    orders.run(5_000)
    assert command.outcome == ACCEPTED


def test_d_3_what_was_staged_behind_an_unknown_commit_is_refused(orders: SingleQueue) -> None:
    orders.store.hang()
    orders.start_send("a")
    orders.run(10)
    behind = orders.start_send("b")
    orders.store.next_commits_end(CommitOutcome.UNKNOWN_DONE)
    orders.store.recover()
    orders.run(1_000)
    assert behind.outcome == BUSY
    assert behind.error.refused
    assert [each.text for each in orders.peek()] == ["a"]


def test_d_3_after_an_unknown_outcome_all_locks_are_void(orders: SingleQueue) -> None:
    orders.send("a", "b")
    delivered = orders.receive_one()
    orders.store.next_commits_end(CommitOutcome.UNKNOWN_DONE)
    orders.start_send("c")
    orders.run(1_000)
    assert orders.settle(delivered) == LOST
    again = orders.receive()
    assert [(each.text, each.delivery_count) for each in again] == [("a", 0), ("b", 0), ("c", 0)]


def test_d_3_a_removal_that_was_unknown_and_done_is_delivered(orders: SingleQueue) -> None:
    orders.send("a")
    orders.store.next_commits_end(CommitOutcome.UNKNOWN_DONE)
    hand = Hand()
    orders.grant(hand, 1, delete=True)
    orders.run(1_000)
    assert hand.texts == ["a"]
    assert len(hand.finished_grants) == 1


def test_d_18_a_fenced_broker_serves_no_more(orders: SingleQueue) -> None:
    orders.send("a")
    MemoryStore(orders.store.medium).open()
    command = orders.start_send("b")
    orders.run(1_000)
    assert command.outcome == BUSY
    assert orders.broker.state is WayState.FENCED
    assert not orders.broker.available


# D-5: what a crash leaves


def test_d_5_after_a_crash_locks_are_void_and_counts_unchanged(orders: SingleQueue) -> None:
    orders.send("a")
    orders.settle(orders.receive_one(), ABANDON)
    delivered = orders.receive_one()
    orders.crash()
    assert orders.settle(delivered) == LOST
    assert orders.receive_one().delivery_count == 1


@pytest.mark.parametrize("finish_commit", [False, True])
def test_d_5_a_commit_under_way_at_a_crash_is_there_whole_or_not(finish_commit: bool) -> None:
    orders = SingleQueue()
    command = orders.start_send("a", "b")
    orders.world.scheduler.step()
    orders.crash(finish_commit=finish_commit)
    assert command.outcome is None
    assert [each.text for each in orders.peek()] == (["a", "b"] if finish_commit else [])


def test_d_5_a_returned_message_is_offered_only_when_its_count_is_durable(
    orders: SingleQueue,
) -> None:
    orders.send("a")
    delivered = orders.receive_one()
    hand = Hand()
    orders.broker.watch(orders.key(), hand)
    orders.store.hang()
    orders.start_settle(delivered, ABANDON)
    orders.run(1_000)
    assert orders.receive() == []
    orders.store.recover()
    orders.run()
    assert hand.ready_calls > 0
    assert orders.receive_one().delivery_count == 1


# D-7


def test_d_7_a_batch_closes_at_its_size(orders: SingleQueue) -> None:
    for index in range(5):
        orders.start_send(str(index), size=STAGE_BYTES_MAX // 2)
    orders.run(1_000)
    assert orders.store.medium.commit_number == 3


def test_d_7_one_send_is_never_split(orders: SingleQueue) -> None:
    texts = [str(index) for index in range(STAGE_RECORDS_MAX + 500)]
    orders.start_send("small")
    orders.send(*texts)
    assert orders.store.medium.commit_number == 2
    assert orders.counters().active == len(texts) + 1


# D-8


def test_d_8_a_store_that_hangs_is_refused_at_once(orders: SingleQueue) -> None:
    orders.store.hang()
    orders.start_send("a")
    orders.run(5_100)
    assert orders.broker.state is WayState.HUNG
    late = orders.start_send("b")
    assert late.outcome == BUSY
    assert late.error.refused


@pytest.mark.parametrize("seed", range(8))
def test_d_8_a_store_that_has_answered_is_not_hung_although_nobody_heard_it(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A loop that stood still hears late, and that says nothing of the store."""
    orders = SingleQueue(seed=seed)
    command = orders.start_send("a")
    orders.run(0)  # the commit is on its way to the store
    orders.world.scheduler.jump(20_000)
    orders.run()
    assert command.outcome == ACCEPTED
    assert "does not answer" not in caplog.text


def test_d_8_nothing_queues_behind_a_commit_that_hangs(orders: SingleQueue) -> None:
    orders.store.hang()
    orders.start_send("a")
    orders.run(10)
    behind = orders.start_send("b")
    orders.run(5_100)
    assert behind.outcome == BUSY
    assert behind.error.refused


def test_d_8_the_late_answer_is_still_given(orders: SingleQueue) -> None:
    orders.store.hang()
    command = orders.start_send("a")
    orders.run(20_000)
    assert command.outcome is None
    orders.store.recover()
    orders.run()
    assert command.outcome == ACCEPTED
    assert orders.broker.available
    assert [each.text for each in orders.receive()] == ["a"]


def test_d_8_a_grant_does_not_wait_for_a_store_that_hangs(orders: SingleQueue) -> None:
    orders.store.hang()
    orders.start_send("a")
    orders.run(5_100)
    hand = Hand()
    grant = orders.grant(hand)
    assert hand.finished_grants == [grant]


def test_d_8_nothing_queues_behind_a_store_that_cannot_be_read(orders: SingleQueue) -> None:
    found: list[object] = []
    orders.send("a")
    orders.store.faults.be(Fault.ILL)
    orders.broker.peek(orders.key(), 0, 1, 1_000, found.append)
    orders.start_send("b")
    orders.world.scheduler.step()  # on its way, behind the peek
    behind = orders.start_send("c")
    orders.world.run_until(lambda: bool(found))
    orders.store.hang()
    orders.run(1_000)
    assert behind.outcome == BUSY
    assert behind.error.refused


def peeked(orders: SingleQueue) -> list[list[object] | BusError]:
    """A read under way; what it gives is put into the list."""
    found: list[list[object] | BusError] = []
    orders.broker.peek(orders.key(), 0, 10, 1_000, found.append)
    assert not found, "there is nothing to read"
    return found


def test_d_8_a_read_that_hangs_makes_the_store_ill_though_nothing_is_committed(
    orders: SingleQueue,
) -> None:
    orders.send("a")
    orders.store.hang()
    found = peeked(orders)
    orders.run(4_900)
    assert orders.broker.available
    orders.run(200)
    assert orders.broker.state is WayState.HUNG
    late = orders.start_send("b")
    assert late.outcome == BUSY
    assert late.error.refused
    orders.store.recover()
    orders.run()
    assert orders.broker.available
    assert [len(each) for each in found if not isinstance(each, BusError)] == [1]
    orders.send("c")
    assert [each.text for each in orders.receive()] == ["a", "c"]


def test_d_8_a_commit_behind_a_read_that_hangs_is_answered_in_the_end(orders: SingleQueue) -> None:
    orders.send("before")
    orders.store.hang()
    peeked(orders)
    orders.run(10)
    command = orders.start_send("a")
    orders.run(20_000)
    assert orders.broker.state is WayState.HUNG
    assert command.outcome is None
    orders.store.recover()
    orders.run()
    assert command.outcome == ACCEPTED
    assert orders.broker.available


def test_d_8_many_reads_that_come_back_are_no_hang(orders: SingleQueue) -> None:
    """The last has waited for longer than patience lasts, but not for an answer of the store."""
    orders.send("a")
    disturbances = orders.store.disturbances
    orders.store.port.latency_ms = (2_000, 2_000)
    found = [peeked(orders) for _ in range(5)]
    orders.run(11_000)
    assert all(found)
    assert orders.store.disturbances == disturbances


def test_d_8_a_second_read_that_hangs_is_noticed_too(orders: SingleQueue) -> None:
    orders.send("a")
    orders.store.port.latency_ms = (6_000, 6_000)
    found = [peeked(orders) for _ in range(2)]
    states = []
    for duration_ms in (5_500, 1_000, 5_000, 1_000):
        orders.run(duration_ms)
        states.append(orders.broker.state)
    assert states == [WayState.HUNG, WayState.SERVING] * 2
    assert all(found)


def test_d_8_a_read_that_fails_after_it_hung_leaves_the_store_refusing(
    orders: SingleQueue,
) -> None:
    orders.send("a")
    orders.store.hang()
    found = peeked(orders)
    orders.run(5_100)
    orders.store.faults.be(Fault.ILL)
    orders.store.port.resume()
    orders.run(20)
    assert isinstance(found[0], BusError)
    assert orders.broker.state is WayState.REFUSING
    orders.store.recover()
    orders.run(2_000)
    assert orders.broker.available


# D-9


def test_d_9_a_full_disk_refuses_sends_and_lets_settlements_through(orders: SingleQueue) -> None:
    orders.send("a")
    delivered = orders.receive_one()
    orders.store.free_bytes = DISK_RESERVE_BYTES - 1
    orders.send("the one that finds out")
    command = orders.start_send("b")
    orders.run()
    assert command.outcome == "StoreFull"
    assert command.error.refused
    assert orders.settle(delivered, COMPLETE) == ACCEPTED
    assert len(orders.receive(delete=True)) == 1


def test_d_9_sends_are_taken_again_once_there_is_room(orders: SingleQueue) -> None:
    orders.store.free_bytes = DISK_RESERVE_BYTES - 1
    orders.send("the one that finds out")
    orders.store.free_bytes = DISK_RESERVE_BYTES
    orders.start_send("looks again")
    orders.run()
    orders.send("b")


# Outcomes of odd places


def test_d_3_a_commit_is_done_even_if_the_disk_cannot_say_how_full_it_is(
    orders: SingleQueue,
) -> None:
    def unreadable(*_: object) -> int:
        raise StoreUnavailable("no room to be told")

    orders.store.faults.free_bytes = unreadable  # type: ignore[method-assign]
    orders.send("a")
    assert [each.text for each in orders.peek()] == ["a"]


def test_stopping_commits_what_is_staged_and_answers_it(orders: SingleQueue) -> None:
    command = orders.start_send("a")
    stopped: list[bool] = []
    orders.broker.stop(lambda: stopped.append(True))
    orders.run()
    assert command.outcome == ACCEPTED
    assert stopped == [True]
    assert orders.broker.state is WayState.STOPPED


def test_stopping_while_the_store_refuses_stays_stopped(orders: SingleQueue) -> None:
    stopped: list[bool] = []
    orders.store.next_commits_end(CommitOutcome.REFUSED)
    orders.start_send("a")
    orders.world.run_until(lambda: orders.broker.state is WayState.REFUSING)
    orders.world.scheduler.step()  # the probe is on its way
    orders.broker.stop(lambda: stopped.append(True))
    orders.run(1_000)
    assert orders.broker.state is WayState.STOPPED
    assert stopped == [True]


def test_a_read_that_fails_is_told_and_the_broker_comes_back(orders: SingleQueue) -> None:
    orders.send("a")
    found: list[object] = []
    orders.store.faults.be(Fault.ILL)
    orders.broker.peek(orders.key(), 0, 1, 1_000, found.append)
    orders.run()
    assert isinstance(found[0], BusError)
    assert not orders.broker.available
    orders.store.recover()
    orders.run(2_000)
    assert orders.broker.available
    assert [each.text for each in orders.receive()] == ["a"]


def test_deferring_what_the_store_refuses_keeps_the_lock(orders: SingleQueue) -> None:
    orders.send("a")
    delivered = orders.receive_one()
    orders.store.next_commits_end(CommitOutcome.REFUSED)
    assert orders.settle(delivered, DEFER) == BUSY
    assert orders.settle(delivered, DEFER) == ACCEPTED


def test_a_store_that_refused_and_was_lost_serves_in_the_end(orders: SingleQueue) -> None:
    outcomes = [CommitOutcome.REFUSED, CommitOutcome.UNKNOWN_DONE, CommitOutcome.UNKNOWN_NOT_DONE]
    for outcome in outcomes:
        orders.store.next_commits_end(outcome)
        orders.start_send(outcome.value)
        orders.run(1_000)
    orders.send("done")
    assert [each.text for each in orders.peek()] == ["unknown-done", "done"]
