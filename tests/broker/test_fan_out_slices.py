"""Large fan-outs are computed in slices, with turns between, and are still one commit (D-30).

Nothing here looks at a clock: rounds are kept in a list, and each test says when one begins.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from busway.broker import fan_outs
from busway.broker.transactions import Transaction
from busway.model.entities import FalseFilter, Rule, SqlFilter, Subscription, Topic
from busway.model.message import Message
from busway.store.base import SubQueueKind
from tests.broker.several_entities import SeveralEntities, key_of, message, texts
from tests.broker.single_queue import ACCEPTED, DEAD_LETTER, Command

SUBSCRIPTIONS = 3
PER_SLICE = 2
SLICE = PER_SLICE * (SUBSCRIPTIONS + 1) - 1
"""A message costs its copies and one: the second ends a slice."""


class Rounds:
    """The rounds of the loop: what was put off to the next one."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []
        self.taken = 0

    def next(self) -> None:
        waiting, self.waiting = self.waiting, []
        assert waiting, "nobody waits for a round"
        self.taken += 1
        for callback in waiting:
            callback()

    def all(self) -> int:
        """Every round that is asked for; how many they were."""
        before = self.taken
        while self.waiting:
            self.next()
        return self.taken - before


class Hall:
    """A topic with three subscriptions and a small slice."""

    def __init__(self, house: SeveralEntities, rounds: Rounds) -> None:
        self.house = house
        self.rounds = rounds
        self.topic = house.topic(max_size_mb=1024)
        self.subscriptions = [house.subscription(self.topic, name) for name in ("a", "b", "c")]
        self.broker = house.broker_of(self.topic)
        self.broker.slice_copies = SLICE

    def start(self, count: int, first: int = 0) -> Command:
        names = [str(n) for n in range(first, first + count)]
        return self.house.start_send(self.topic, *names)

    def held(self, subscription: Subscription) -> int:
        self.house.run()
        return self.house.counters(subscription).active

    def received(self, subscription: Subscription) -> list[str]:
        return texts(self.house.receive(subscription, 1_000))


@pytest.fixture
def rounds(house: SeveralEntities, monkeypatch: pytest.MonkeyPatch) -> Rounds:
    made = Rounds()

    def next_round(callback: Callable[[], None]) -> None:
        made.waiting.append(callback)

    monkeypatch.setattr(house.world.scheduler, "next_round", next_round)
    return made


@pytest.fixture
def hall(house: SeveralEntities, rounds: Rounds) -> Hall:
    return Hall(house, rounds)


def numbers(count: int, first: int = 0) -> list[str]:
    return [str(n) for n in range(first, first + count)]


def test_a_small_fan_out_waits_for_nothing(hall: Hall) -> None:
    command = hall.start(1)
    hall.house.run()
    assert command.outcome == ACCEPTED
    assert hall.rounds.taken == 0


def test_a_slice_has_so_many_messages_and_others_are_served_between(hall: Hall) -> None:
    queue = hall.house.queue("beside")
    command = hall.start(5 * PER_SLICE)
    for done in range(5):
        (line,) = hall.broker._fan_outs._lines.values()
        assert line[0].done == done * PER_SLICE
        hall.house.send(queue, f"beside {done}")  # accepted, although the batch is not
        assert command.outcome is None
        assert [hall.held(each) for each in hall.subscriptions] == [0, 0, 0]
        hall.rounds.next()
    hall.house.run()
    assert command.outcome == ACCEPTED
    assert texts(hall.house.receive(queue)) == [f"beside {n}" for n in range(5)]
    for subscription in hall.subscriptions:
        assert hall.received(subscription) == numbers(5 * PER_SLICE)
    assert not hall.rounds.waiting


def test_all_slices_are_one_commit(hall: Hall) -> None:
    before = hall.broker.commit_times.done
    command = hall.start(20)
    assert hall.rounds.all() == 20 // PER_SLICE
    hall.house.run()
    assert command.outcome == ACCEPTED
    assert hall.broker.commit_times.done == before + 1


def test_sends_behind_it_keep_their_order_and_those_elsewhere_do_not_wait(hall: Hall) -> None:
    other = hall.house.topic("other")
    listener = hall.house.subscription(other, "listener")
    first = hall.start(6)
    behind = [hall.start(1, first=6), hall.start(1, first=7)]
    elsewhere = hall.house.start_send(other, "elsewhere")
    hall.house.run()
    assert elsewhere.outcome == ACCEPTED
    assert [each.outcome for each in (first, *behind)] == [None, None, None]
    hall.rounds.all()
    hall.house.run()
    assert [each.outcome for each in (first, *behind)] == [ACCEPTED] * 3
    for subscription in hall.subscriptions:
        assert hall.received(subscription) == numbers(8)
    assert hall.received(listener) == ["elsewhere"]
    assert hall.broker._fan_outs.waiting_bytes == 0


def test_topics_take_turns_after_each_send(hall: Hall) -> None:
    other = hall.house.topic("other")
    for name in ("a", "b", "c"):
        hall.house.subscription(other, name)
    commands = [hall.start(4), hall.start(4, first=4)]
    commands.insert(1, hall.house.start_send(other, *numbers(4)))
    ended: list[Command] = []
    while hall.rounds.waiting:
        hall.rounds.next()
        hall.house.run()
        ended += [each for each in commands if each.outcome == ACCEPTED and each not in ended]
    assert ended == [commands[0], commands[1], commands[2]]


def test_rul_6_a_rule_counts_for_messages_that_were_not_computed_yet(hall: Hall) -> None:
    first, second, _ = hall.subscriptions
    hall.start(6)
    hall.rounds.next()
    catalog = hall.house.world.catalog
    catalog.add_rule(first, Rule(name="odd", filter=SqlFilter("1=0")))
    catalog.remove_rule(first, "$Default")
    catalog.remove_rule(second, "$Default")
    catalog.add_rule(second, Rule(name="nothing", filter=FalseFilter()))
    hall.rounds.all()
    hall.house.run()
    assert hall.received(first) == numbers(PER_SLICE)
    assert hall.received(second) == numbers(PER_SLICE)
    assert hall.received(hall.subscriptions[2]) == numbers(6)


def test_a_subscription_that_is_deleted_gets_nothing_and_a_new_one_what_comes(hall: Hall) -> None:
    command = hall.start(6)
    hall.rounds.next()
    hall.house.world.catalog.delete_subscription(hall.topic.path, "a")
    late = hall.house.subscription(hall.topic, "late")
    hall.rounds.all()
    hall.house.run()
    assert command.outcome == ACCEPTED
    assert hall.received(hall.subscriptions[1]) == numbers(6)
    assert hall.received(late) == numbers(6 - PER_SLICE, PER_SLICE)


def test_a_topic_that_is_deleted_refuses_the_whole(hall: Hall) -> None:
    commands = [hall.start(6), hall.start(1)]
    hall.rounds.next()
    hall.house.delete(hall.topic)
    hall.rounds.all()
    hall.house.run()
    assert [each.outcome for each in commands] == ["MessagingEntityNotFound"] * 2
    assert not hall.broker._fan_outs._lines


def test_a_store_that_is_lost_refuses_the_whole_and_can_be_sent_again(hall: Hall) -> None:
    command = hall.start(6)
    hall.rounds.next()
    hall.broker.dropped()
    hall.house.run()
    assert command.outcome == "ServerBusy"
    assert command.error.refused
    assert not hall.broker._fan_outs._lines


def test_rules_may_ask_for_the_number_that_the_topic_gives(hall: Hall) -> None:
    odd = hall.house.subscription(
        hall.topic, "odd", Rule(name="odd", filter=SqlFilter("sys.SequenceNumber % 2 = 1"))
    )
    hall.start(6)
    hall.rounds.all()
    hall.house.run()
    every = hall.house.receive(hall.subscriptions[0], 100)
    wanted = [each.text for each in every if each.enqueued_number % 2 == 1]
    assert 0 < len(wanted) < 6
    assert hall.received(odd) == wanted
    assert len({each.enqueued_number for each in every}) == 6


def test_numbers_go_on_after_a_crash(hall: Hall) -> None:
    hall.start(6)
    hall.rounds.all()
    hall.house.run()
    before = [each.enqueued_number for each in hall.house.peek(hall.subscriptions[0])]
    hall.house.crash(hall.topic)
    hall.house.broker_of(hall.topic).slice_copies = SLICE
    hall.house.send(hall.topic, "after")
    after = hall.house.peek(hall.subscriptions[0])[-1]
    assert after.text == "after"
    assert after.enqueued_number > max(before)


def test_too_many_copies_are_refused_as_soon_as_they_are_counted(
    hall: Hall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fan_outs, "BATCH_MAX_COPIES", 4 * SUBSCRIPTIONS)
    command = hall.start(100)
    taken = hall.rounds.all()
    hall.house.run()
    assert command.outcome == "CopiesExceeded"
    assert taken == 3, "two slices are allowed, the third is too much"
    assert [hall.held(each) for each in hall.subscriptions] == [0, 0, 0]
    allowed = hall.start(4)
    hall.rounds.all()
    hall.house.run()
    assert allowed.outcome == ACCEPTED


def test_nothing_more_is_staged_while_too_much_waits_for_its_commit(
    hall: Hall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fan_outs, "WAITING_RECORDS_MAX", 5)
    commands = [hall.start(4), hall.start(4, first=4)]
    hall.rounds.next()
    hall.rounds.next()  # staged: twelve copies wait for their commit
    hall.rounds.next()
    hall.rounds.next()  # the other one is computed
    assert hall.broker._way.waiting_records == 4 * SUBSCRIPTIONS
    assert not hall.rounds.waiting, "it goes on with the commit, not with the next round"
    hall.house.run()
    assert commands[0].outcome == ACCEPTED
    hall.rounds.all()
    hall.house.run()
    assert commands[1].outcome == ACCEPTED
    assert hall.received(hall.subscriptions[0]) == numbers(8)


def test_sch_3_no_more_becomes_active_while_too_much_waits_for_its_commit(
    hall: Hall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fan_outs, "WAITING_RECORDS_MAX", 5)
    due_ms = hall.house.now_ms() + 10_000
    for n in range(6):
        hall.house.start_send(hall.topic, message(str(n), at_ms=due_ms))
    hall.house.run()
    hall.house.run(11_000)
    hall.rounds.next()
    hall.rounds.next()
    assert not hall.rounds.waiting
    while hall.held(hall.subscriptions[0]) < 6:
        hall.rounds.all()
    assert sorted(hall.received(hall.subscriptions[0])) == numbers(6)


def test_duplicates_are_told_when_it_is_staged(hall: Hall) -> None:
    topic = hall.house.topic("once", requires_duplicate_detection=True)
    subscriptions = [hall.house.subscription(topic, name) for name in ("a", "b", "c")]

    def batch() -> list[Message]:
        return [message(str(n), message_id=f"id-{n}") for n in range(6)]

    commands = [hall.house.start_send(topic, *batch()) for _ in range(2)]
    while hall.rounds.waiting:
        hall.rounds.next()
        hall.house.run()
    assert [each.outcome for each in commands] == [ACCEPTED, ACCEPTED]
    for subscription in subscriptions:
        assert hall.received(subscription) == numbers(6)


# --- Other ways into a topic ---------------------------------------------------------------------


def in_transaction(topic: Topic, count: int) -> Transaction:
    made = Transaction(b"t" * 16)
    for n in range(count):
        made.sends.append((key_of(topic), [message(str(n))]))
    return made


def test_txn_a_transaction_is_sliced_and_still_one_commit(hall: Hall) -> None:
    before = hall.broker.commit_times.done
    command = hall.house.start_transact(hall.topic, in_transaction(hall.topic, 6))
    assert hall.rounds.all() == 6 // PER_SLICE
    hall.house.run()
    assert command.outcome == ACCEPTED
    assert hall.broker.commit_times.done == before + 1
    for subscription in hall.subscriptions:
        assert hall.received(subscription) == numbers(6)


def test_txn_a_transaction_with_too_many_copies_is_rolled_back(
    hall: Hall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fan_outs, "BATCH_MAX_COPIES", 4 * SUBSCRIPTIONS)
    command = hall.house.start_transact(hall.topic, in_transaction(hall.topic, 6))
    hall.rounds.all()
    hall.house.run()
    assert command.outcome == "TransactionRollback"
    assert [hall.held(each) for each in hall.subscriptions] == [0, 0, 0]


def test_fwd_what_is_forwarded_to_a_topic_comes_a_slice_per_commit(hall: Hall) -> None:
    source = hall.house.queue("source", forward_to=hall.topic.path)
    for n in range(3):
        hall.house.start_send(source, str(2 * n), str(2 * n + 1))
    hall.house.run()
    most = 0
    while hall.rounds.waiting:
        before = hall.house.counters(hall.subscriptions[0]).active
        hall.rounds.next()
        hall.house.run()
        most = max(most, hall.house.counters(hall.subscriptions[0]).active - before)
    assert most <= PER_SLICE
    for subscription in hall.subscriptions:
        assert hall.received(subscription) == numbers(6)


def test_sch_3_what_falls_due_together_becomes_active_a_slice_at_a_time(hall: Hall) -> None:
    due_ms = hall.house.now_ms() + 10_000
    for n in range(6):
        hall.house.start_send(hall.topic, message(str(n), at_ms=due_ms))
    hall.house.run()
    assert not hall.rounds.waiting
    hall.house.run(11_000)
    active = []
    while hall.rounds.waiting:
        hall.rounds.next()
        active.append(hall.held(hall.subscriptions[0]))
    assert active == [PER_SLICE, 2 * PER_SLICE, 3 * PER_SLICE]
    for subscription in hall.subscriptions:
        assert sorted(hall.received(subscription)) == numbers(6)


def test_sch_2_what_is_due_and_waits_for_its_slice_cannot_be_cancelled(hall: Hall) -> None:
    due_ms = hall.house.now_ms() + 10_000
    for n in range(4):
        hall.house.start_send(hall.topic, message(str(n), at_ms=due_ms))
    hall.house.run()
    last = max(each.number for each in hall.house.peek(hall.topic))
    hall.house.run(11_000)
    hall.rounds.next()
    assert hall.house.cancel(hall.topic, last) == "ScheduledMessageNotFound"
    hall.rounds.all()
    hall.house.run()
    assert sorted(hall.received(hall.subscriptions[0])) == numbers(4)


def test_sch_1_a_batch_whose_time_comes_while_it_is_computed_stays_in_slices(hall: Hall) -> None:
    due_ms = hall.house.now_ms() + 10
    batch = [message(str(n), at_ms=due_ms) for n in range(6)]
    command = hall.house.start_send(hall.topic, *batch)
    first = hall.rounds.waiting
    assert first
    while command.outcome is None:
        if hall.rounds.waiting:
            hall.rounds.next()
        hall.house.world.run_for(20)
    active = []
    while hall.rounds.waiting:
        before = hall.held(hall.subscriptions[0])
        hall.rounds.next()
        active.append(hall.held(hall.subscriptions[0]) - before)
    assert max(active) <= PER_SLICE
    assert sorted(hall.received(hall.subscriptions[0])) == numbers(6)


def test_dead_letters_of_a_subscription_are_sent_again_in_slices(hall: Hall) -> None:
    hall.start(6)
    hall.rounds.all()
    hall.house.run()
    first = hall.subscriptions[0]
    for delivered in hall.house.receive(first, 10):
        assert hall.house.settle(first, delivered, DEAD_LETTER) == ACCEPTED
    found: list[object] = []
    dead = key_of(first, SubQueueKind.DEAD_LETTER)
    hall.broker.resubmit(dead, None, 10, found.append)
    hall.house.run()
    assert found == []
    assert hall.rounds.all() == 6 // PER_SLICE
    hall.house.run()
    assert found == [6]
    assert hall.received(first) == numbers(6)
    assert hall.received(hall.subscriptions[1]) == numbers(6) * 2
