"""TXN: what a broker does when a transaction is discharged: one commit, all of it or nothing."""

from __future__ import annotations

from itertools import count

import pytest

from busway.broker.seams import Settlement
from busway.broker.transactions import Transaction
from busway.model.entities import Entity, EntityStatus
from busway.model.message import Message
from busway.store.base import SubQueueKind
from busway.store.faults import CommitOutcome
from tests.broker.several_entities import DLQ, SeveralEntities, key_of, message, texts
from tests.broker.single_queue import (
    ABANDON,
    ACCEPTED,
    COMPLETE,
    DEAD_LETTER,
    DEFER,
    Delivered,
)

ROLLBACK = "TransactionRollback"
IDS = count(1)


class Work:
    """A transaction that is being collected."""

    def __init__(self) -> None:
        self.transaction = Transaction(b"coordinator/%d" % next(IDS))

    def send(self, entity: Entity, *bodies: str | Message, **fields: object) -> Work:
        made = [
            message(each, **fields) if isinstance(each, str) else each  # type: ignore[arg-type]
            for each in bodies
        ]
        self.transaction.sends.append((key_of(entity), made))
        return self

    def transfer(self, via: Entity, to: str, *bodies: str) -> Work:
        made = [message(each) for each in bodies]
        for each in made:
            each.destination = to
        self.transaction.transfers.append((key_of(via), made))
        return self

    def settle(
        self,
        entity: Entity,
        delivered: Delivered,
        settlement: Settlement = COMPLETE,
        kind: SubQueueKind = SubQueueKind.MAIN,
    ) -> Work:
        self.transaction.settlements.append((key_of(entity, kind), delivered.token, settlement))
        return self


# --- All of it (TXN-1, TXN-2) --------------------------------------------------------------------


def test_txn_2_sends_and_settlements_are_one_commit(house: SeveralEntities) -> None:
    queue = house.queue()
    house.send(queue, "complete", "abandon", "defer", "dead")
    complete, abandon, defer, dead = house.receive(queue)
    work = (
        Work()
        .settle(queue, complete, COMPLETE)
        .settle(queue, abandon, ABANDON)
        .settle(queue, defer, DEFER)
        .settle(queue, dead, DEAD_LETTER)
        .send(queue, "new", "newer")
    )
    commits = house.store_of(queue).medium.commit_number
    assert house.transact(queue, work.transaction) == ACCEPTED
    assert house.store_of(queue).medium.commit_number == commits + 1
    got = [(each.text, each.delivery_count) for each in house.receive(queue)]
    assert got == [("abandon", 1), ("new", 0), ("newer", 0)]
    assert texts(house.dead_letters(queue)) == ["dead"]
    assert house.counters(queue).deferred == 1


def test_txn_2_until_then_nothing_is_visible(house: SeveralEntities) -> None:
    queue = house.queue()
    house.send(queue, "1")
    delivered = house.receive_one(queue)
    work = Work().settle(queue, delivered).send(queue, "2")
    house.start_transact(queue, work.transaction)
    assert house.counters(queue).active == 1
    assert house.receive(queue, 0) == []


@pytest.mark.parametrize("outcome", list(CommitOutcome))
def test_txn_2_all_or_nothing_however_the_commit_ends(
    house: SeveralEntities, outcome: CommitOutcome
) -> None:
    queue = house.queue()
    house.send(queue, "old")
    delivered = house.receive_one(queue)
    house.store_of(queue).next_commits_end(outcome)
    command = house.start_transact(
        queue, Work().settle(queue, delivered).send(queue, "new").transaction
    )
    house.run(2_000)
    done = outcome is CommitOutcome.UNKNOWN_DONE
    assert command.outcome == (ACCEPTED if done else "ServerBusy")
    assert texts(house.peek(queue)) == (["new"] if done else ["old"])


@pytest.mark.parametrize("finish_commit", [False, True])
def test_txn_2_all_or_nothing_over_a_crash(house: SeveralEntities, finish_commit: bool) -> None:
    queue = house.queue()
    house.send(queue, "old")
    delivered = house.receive_one(queue)
    house.start_transact(queue, Work().settle(queue, delivered).send(queue, "new").transaction)
    house.world.scheduler.step()
    house.crash(queue, finish_commit=finish_commit)
    assert texts(house.peek(queue)) in (["new"], ["old"])


def test_txn_2_after_a_roll_back_the_message_is_still_locked(house: SeveralEntities) -> None:
    queue = house.queue()
    house.send(queue, "old")
    delivered = house.receive_one(queue)
    house.store_of(queue).next_commits_end(CommitOutcome.REFUSED)
    house.start_transact(queue, Work().settle(queue, delivered).transaction)
    house.run(2_000)
    assert house.receive(queue) == []
    assert house.settle(queue, delivered) == ACCEPTED


def test_txn_1_a_message_can_be_scheduled_in_it(house: SeveralEntities) -> None:
    queue = house.queue()
    work = Work().send(queue, "later", at_ms=house.now_ms() + 60_000)
    assert house.transact(queue, work.transaction) == ACCEPTED
    assert house.receive(queue) == []
    house.run(60_000)
    assert texts(house.receive(queue)) == ["later"]


def test_txn_1_it_is_not_split_however_large_it_is(house: SeveralEntities) -> None:
    queue = house.queue()
    house.send(queue, *(message(str(number), size=10) for number in range(900)))
    delivered = house.receive(queue, 900)
    other = house.start_send(queue, *(message("noise", size=10) for _ in range(200)))
    work = Work()
    for each in delivered:
        work.settle(queue, each)
    work.send(queue, *(message("new", size=20_000) for _ in range(100)))
    house.store_of(queue).next_commits_end(CommitOutcome.REFUSED)
    command = house.start_transact(queue, work.transaction)
    house.run(2_000)
    assert "ServerBusy" in (command.outcome, other.outcome)
    active = house.counters(queue).active
    assert active in (900, 1_100, 100, 300)
    assert (command.outcome == ACCEPTED) == (active in (100, 300))


def test_txn_1_on_a_topic_it_is_fanned_out(house: SeveralEntities) -> None:
    topic = house.topic()
    subscriptions = [house.subscription(topic, name) for name in ("a", "b")]
    house.send(topic, "old")
    delivered = house.receive_one(subscriptions[0])
    work = Work().settle(subscriptions[0], delivered).send(topic, "new")
    assert house.transact(topic, work.transaction) == ACCEPTED
    assert texts(house.receive(subscriptions[0])) == ["new"]
    assert texts(house.receive(subscriptions[1])) == ["old", "new"]


# --- Or nothing: what makes it roll back (D-28) --------------------------------------------------


def test_d_28_a_lost_lock_rolls_everything_back(house: SeveralEntities) -> None:
    queue = house.queue()
    house.send(queue, "1", "2")
    first, second = house.receive(queue)
    house.settle(queue, second, COMPLETE)
    work = Work().settle(queue, first).settle(queue, second).send(queue, "new")
    assert house.transact(queue, work.transaction) == ROLLBACK
    assert texts(house.peek(queue)) == ["1"]
    assert house.settle(queue, first) == ACCEPTED, "its lock is kept"


def test_d_28_a_lock_that_ran_out_rolls_everything_back(house: SeveralEntities) -> None:
    queue = house.queue()
    house.send(queue, "1")
    delivered = house.receive_one(queue)
    house.run(61_000)
    work = Work().settle(queue, delivered).send(queue, "new")
    assert house.transact(queue, work.transaction) == ROLLBACK
    assert texts(house.peek(queue)) == ["1"]


def test_d_28_settling_a_message_twice_rolls_everything_back(house: SeveralEntities) -> None:
    queue = house.queue()
    house.send(queue, "1")
    delivered = house.receive_one(queue)
    work = Work().settle(queue, delivered).settle(queue, delivered, ABANDON)
    assert house.transact(queue, work.transaction) == ROLLBACK
    assert texts(house.peek(queue)) == ["1"]


def test_d_28_a_full_entity_rolls_everything_back(house: SeveralEntities) -> None:
    queue = house.queue()
    house.send(queue, "1")
    delivered = house.receive_one(queue)
    half = queue.max_size_bytes // 2
    work = Work().settle(queue, delivered)
    work.send(queue, message("a", size=half)).send(queue, message("b", size=half))
    assert house.transact(queue, work.transaction) == ROLLBACK
    assert texts(house.peek(queue)) == ["1"]


def test_dlq_1_a_dead_letter_that_is_dead_lettered_rolls_everything_back(
    house: SeveralEntities,
) -> None:
    queue = house.queue()
    house.send(queue, "dead", "alive")
    dead, alive = house.receive(queue)
    house.settle(queue, dead, DEAD_LETTER)
    (dead,) = house.dead_letters(queue)
    work = Work().settle(queue, alive).send(queue, "new").settle(queue, dead, DEAD_LETTER, DLQ)
    assert house.transact(queue, work.transaction) == ROLLBACK
    assert texts(house.peek(queue)) == ["alive"]
    assert house.settle(queue, alive) == ACCEPTED


def test_d_16_a_deleted_entity_rolls_everything_back(house: SeveralEntities) -> None:
    """And does not disturb the purge, nor the work of others."""
    queue, other = house.queue(), house.queue("other")
    house.send(queue, "1")
    delivered = house.receive_one(queue)
    house.delete(queue)
    for _ in range(8):
        command = house.start_transact(queue, Work().settle(queue, delivered).transaction)
        house.run(2)
        assert command.outcome == ROLLBACK
    house.send(other, "fine")
    house.run(5_000)
    assert house.world.purges_under_way == set()


def test_d_28_a_settlement_on_its_way_is_waited_for(house: SeveralEntities) -> None:
    queue = house.queue()
    house.send(queue, "1")
    delivered = house.receive_one(queue)
    settled = house.start_settle(queue, delivered, ABANDON)
    command = house.start_transact(
        queue, Work().settle(queue, delivered).send(queue, "new").transaction
    )
    house.run()
    assert (settled.outcome, command.outcome) == (ACCEPTED, ROLLBACK)
    assert texts(house.peek(queue)) == ["1"]


def test_ses_8_a_lost_session_lock_rolls_everything_back(house: SeveralEntities) -> None:
    queue = house.queue(requires_session=True)
    house.send(queue, "1", session_id="a")
    holder = house.hold(queue)
    delivered = house.receive_one(queue, holder=holder)
    house.leave(queue, holder)
    work = Work().settle(queue, delivered).send(queue, "new", session_id="a")
    assert house.transact(queue, work.transaction) == ROLLBACK
    holder = house.hold(queue)
    delivered = house.receive_one(queue, holder=holder)
    work = Work().settle(queue, delivered).send(queue, "new", session_id="a")
    assert house.transact(queue, work.transaction) == ACCEPTED
    assert texts(house.receive(queue, holder=holder)) == ["new"]


# --- Once (D-28) ---------------------------------------------------------------------------------


def test_d_28_a_repeated_apply_is_answered_and_not_carried_out(house: SeveralEntities) -> None:
    queue = house.queue()
    work = Work().send(queue, "1")
    assert house.transact(queue, work.transaction) == ACCEPTED
    house.run(4 * 60_000)
    house.crash(queue)
    again = Transaction(work.transaction.transaction_id)
    again.sends.append((key_of(queue), [message("1")]))
    assert house.transact(queue, again) == ACCEPTED
    assert texts(house.receive(queue)) == ["1"]


def test_d_28_repeated_while_the_first_is_on_its_way_it_waits_for_the_outcome(
    house: SeveralEntities,
) -> None:
    queue = house.queue()
    first = Work().send(queue, "1").transaction
    again = Transaction(first.transaction_id)
    again.sends.append((key_of(queue), [message("1")]))
    commands = [house.start_transact(queue, each) for each in (first, again)]
    house.run()
    assert [each.outcome for each in commands] == [ACCEPTED, ACCEPTED]
    assert texts(house.receive(queue)) == ["1"]


def test_d_28_the_outcome_is_kept_for_five_minutes_and_no_longer(house: SeveralEntities) -> None:
    queue = house.queue()
    for _ in range(5):
        house.transact(queue, Work().send(queue, "1").transaction)
    house.run(6 * 60_000)
    house.transact(queue, Work().send(queue, "1").transaction)
    assert len(house.broker_of(queue)._carried_out) == 1


# --- Duplicates (DUP-7) --------------------------------------------------------------------------


def test_dup_3_duplicates_in_a_transaction_are_dropped(house: SeveralEntities) -> None:
    queue = house.queue(requires_duplicate_detection=True)
    house.send(queue, "first", message_id="1")
    work = Work().send(queue, "again", message_id="1").send(queue, "new", message_id="2")
    work.send(queue, "new again", message_id="2")
    assert house.transact(queue, work.transaction) == ACCEPTED
    assert texts(house.receive(queue)) == ["first", "new"]


def test_dup_3_a_transaction_of_nothing_but_duplicates_is_committed(house: SeveralEntities) -> None:
    queue = house.queue(requires_duplicate_detection=True)
    house.send(queue, "first", message_id="1")
    work = Work().send(queue, "again", message_id="1")
    assert house.transact(queue, work.transaction) == ACCEPTED
    assert texts(house.receive(queue)) == ["first"]


def test_dup_7_a_transaction_that_was_rolled_back_leaves_no_history(house: SeveralEntities) -> None:
    queue = house.queue(requires_duplicate_detection=True)
    house.send(queue, "1", message_id="1")
    delivered = house.receive_one(queue)
    house.settle(queue, delivered)
    work = Work().settle(queue, delivered).send(queue, "new", message_id="2")
    assert house.transact(queue, work.transaction) == ROLLBACK
    house.send(queue, "new", message_id="2")
    assert texts(house.receive(queue)) == ["new"]


def test_d_13_after_a_crash_it_waits_until_the_history_is_read(house: SeveralEntities) -> None:
    queue = house.queue(requires_duplicate_detection=True)
    house.send(queue, "1", message_id="1")
    house.crash(queue)
    work = Work().send(queue, "again", message_id="1").send(queue, "new", message_id="2")
    assert house.transact(queue, work.transaction) == ACCEPTED
    assert texts(house.receive(queue)) == ["1", "new"]


# --- Via (TXN-3, FWD-5) --------------------------------------------------------------------------


def test_txn_3_messages_to_other_entities_are_stored_with_it_and_moved_then(
    house: SeveralEntities,
) -> None:
    via, other = house.queue("via"), house.queue("other")
    house.send(via, "in")
    delivered = house.receive_one(via)
    work = Work().settle(via, delivered).transfer(via, "other", "out")
    assert house.transact(via, work.transaction) == ACCEPTED
    house.run()
    assert texts(house.receive(other)) == ["out"]
    assert house.peek(via) == []
    assert house.counters(via, SubQueueKind.TRANSFER).active == 0


@pytest.mark.parametrize("outcome", list(CommitOutcome))
def test_txn_3_atomic_on_the_via_entity(house: SeveralEntities, outcome: CommitOutcome) -> None:
    via, other = house.queue("via"), house.queue("other")
    house.send(via, "in")
    delivered = house.receive_one(via)
    house.store_of(via).next_commits_end(outcome)
    work = Work().settle(via, delivered).transfer(via, "other", "out")
    command = house.start_transact(via, work.transaction)
    house.run(5_000)
    done = command.outcome == ACCEPTED
    assert done == (outcome is CommitOutcome.UNKNOWN_DONE)
    assert texts(house.peek(via)) == ([] if done else ["in"])
    assert texts(house.receive(other)) == (["out"] if done else [])


def test_fwd_5_a_disabled_destination_sends_it_to_the_transfer_dead_letters(
    house: SeveralEntities,
) -> None:
    via, other = house.queue("via"), house.queue("other")
    house.update(other, status=EntityStatus.DISABLED)
    work = Work().transfer(via, "other", "out")
    assert house.transact(via, work.transaction) == ACCEPTED
    house.run(1_000)
    assert house.dead_letters(via) == []
    (dead,) = house.receive(via, kind=SubQueueKind.TRANSFER_DEAD_LETTER)
    assert dead.text == "out"
    assert dead.properties["DeadLetterReason"] == "MessagingEntitySendDisabled"


def test_fwd_5_a_topic_can_be_the_via_entity(house: SeveralEntities) -> None:
    """And its transfer dead-letter queue can be read."""
    topic, other = house.topic(), house.queue("other")
    house.update(other, status=EntityStatus.DISABLED)
    work = Work().transfer(topic, "other", "out")
    assert house.transact(topic, work.transaction) == ACCEPTED
    house.run(1_000)
    kind = SubQueueKind.TRANSFER_DEAD_LETTER
    (dead,) = house.receive(topic, kind=kind)
    assert house.settle(topic, dead, ABANDON, kind) == ACCEPTED
    (dead,) = house.receive(topic, kind=kind)
    assert house.settle(topic, dead, COMPLETE, kind) == ACCEPTED
