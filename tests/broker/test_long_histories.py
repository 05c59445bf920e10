"""DUP with more ids than memory keeps: what only the store knows is still a duplicate (P-21, D-13).

Each test runs twice: with sieves for what memory let go, and without room for any, when every id
has to be looked up.
"""

from __future__ import annotations

import tracemalloc

import pytest

from busway.broker import duplicates
from busway.broker.commits import PATIENCE_MS
from busway.broker.duplicates import DuplicateHistory, Duplicates
from busway.broker.transactions import Transaction
from busway.model.entities import Queue
from busway.store.base import DuplicateMark, MessagingStore
from busway.store.faults import CommitOutcome, Fault
from tests.broker.several_entities import SeveralEntities, digest, key_of, message, texts
from tests.broker.single_queue import ACCEPTED, Command

FEW = 16
MANY = 40 * FEW


@pytest.fixture(params=[64, 0], ids=["with sieves", "without sieves"], autouse=True)
def memory_of_few_ids(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "IDS_MAX", FEW)
    monkeypatch.setattr(duplicates, "SIEVES_MAX", request.param)


@pytest.fixture
def queue(house: SeveralEntities) -> Queue:
    """With a history that is much longer than what memory keeps of it."""
    queue = house.queue(requires_duplicate_detection=True)
    fill(house, queue)
    return queue


def fill(house: SeveralEntities, queue: Queue) -> None:
    for start in range(0, MANY, 2 * FEW):
        ids = range(start, start + 2 * FEW)
        house.send(queue, *(message("x", message_id=f"old {each}", size=10) for each in ids))


def newer(house: SeveralEntities, queue: Queue) -> list[str]:
    """What is there beside the history's own messages."""
    return [text for text in texts(house.peek(queue)) if text != "x"]


def ids_in_memory(house: SeveralEntities, queue: Queue) -> int:
    kept = house.broker_of(queue)._duplicates
    assert len(kept) == sum(len(history._recent) for history in kept)
    return len(kept)


def outcomes(*commands: Command) -> set[str | None]:
    return {command.outcome for command in commands}


def test_memory_has_so_many_ids_and_no_more(house: SeveralEntities, queue: Queue) -> None:
    assert ids_in_memory(house, queue) == FEW
    others = [house.queue(f"q{n}", requires_duplicate_detection=True) for n in range(3)]
    for other in others:
        fill(house, other)
        assert ids_in_memory(house, queue) <= FEW, "over all partitions of the broker"
    house.crash(queue)
    for each in (queue, *others):
        house.send(each, "after the crash", message_id="new")
    assert ids_in_memory(house, queue) <= FEW


def test_memory_does_not_grow_with_the_history() -> None:
    """The same in bytes, without the messages: forty times as many ids, and no more than before."""

    class Clock:
        def now_ms(self) -> int:
            return 0

        def read(self, operation: object, done: object) -> None:
            raise AssertionError("nothing is looked up")

    class Slot:
        slot, stored = 1, False

    house = Duplicates(Clock())
    history = house.history(Slot())  # type: ignore[arg-type]

    def commit(first: int, last: int) -> int:
        for each in range(first, last):
            history.committed(DuplicateMark(1, digest(str(each)), 1_000 + each))
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = commit(0, 20 * FEW)
        after = commit(20 * FEW, 800 * FEW)
    finally:
        tracemalloc.stop()
    assert after - before < FEW * 300, "a dictionary may be larger by one step of its growth"
    assert len(house) == FEW


@pytest.mark.parametrize("crash", [False, True])
def test_dup_3_an_id_of_long_ago_is_still_a_duplicate(
    house: SeveralEntities, queue: Queue, crash: bool
) -> None:
    if crash:
        house.crash(queue)
    for each in (0, 1, MANY // 2, MANY - 1):
        house.send(queue, "again", message_id=f"old {each}")
    house.send(queue, "new", message_id="new")
    house.send(queue, "again", message_id="new")
    assert newer(house, queue) == ["new"]


def test_dup_3_every_single_one_of_them_is(house: SeveralEntities, queue: Queue) -> None:
    house.crash(queue)
    again = [house.start_send(queue, "again", message_id=f"old {n}") for n in range(MANY)]
    house.run(1_000)
    assert outcomes(*again) == {ACCEPTED}
    assert house.counters(queue).active == MANY


def test_dup_1_after_the_window_it_is_new_and_nothing_is_looked_up(
    house: SeveralEntities, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.run(11 * 60_000)
    monkeypatch.setattr(DuplicateHistory, "_look_up", None)
    house.send(queue, "new again", message_id="old 0")
    assert newer(house, queue) == ["new again"]


def test_a_new_id_is_seldom_looked_up_where_there_is_a_sieve(
    house: SeveralEntities,
    queue: Queue,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    asked: list[bytes] = []
    faults = house.store_of(queue).faults
    find = faults.find_duplicates

    def counted(slot: int, digests: list[bytes], now_ms: int) -> list[DuplicateMark]:
        asked.extend(digests)
        return find(slot, digests, now_ms)

    monkeypatch.setattr(faults, "find_duplicates", counted)
    for each in range(100):
        house.start_send(queue, "new", message_id=f"new {each}")
    house.run()
    has_sieves = house.broker_of(queue)._duplicates.sieves.left > 0
    assert len(asked) <= 2 if has_sieves else len(asked) == 100
    house.start_send(queue, "again", message_id="old 0")
    house.run()
    assert asked[-1] == digest("old 0"), "a sieve must not call it new"


def test_msg_7_whoever_comes_after_one_that_is_looked_up_stays_behind_it(
    house: SeveralEntities, queue: Queue
) -> None:
    commands = [
        house.start_send(queue, message("a", message_id="old 3"), message("b", message_id="b")),
        house.start_send(queue, "c"),
        house.start_send(queue, "d", message_id="d"),
        house.start_send(queue, message("e", message_id="old 4"), message("f", message_id="f")),
        house.start_send(queue, "g"),
    ]
    house.run()
    assert outcomes(*commands) == {ACCEPTED}
    assert newer(house, queue) == ["b", "c", "d", "f", "g"]


def test_msg_7_whoever_comes_after_one_that_waits_for_a_commit_stays_behind_it(
    house: SeveralEntities, queue: Queue
) -> None:
    house.start_send(queue, "a", message_id="a")
    house.start_send(queue, message("a again", message_id="a"), message("b", message_id="b"))
    house.start_send(queue, "c")
    house.run()
    assert newer(house, queue) == ["a", "b", "c"]


def test_d_1_two_with_the_same_new_id_meet_although_both_are_looked_up(
    house: SeveralEntities, queue: Queue
) -> None:
    house.crash(queue)
    twins = [house.start_send(queue, text, message_id="twin") for text in ("first", "second")]
    assert outcomes(*twins) == {None}
    house.run()
    assert outcomes(*twins) == {ACCEPTED}
    assert newer(house, queue) == ["first"]


def test_d_1_if_the_first_of_them_is_refused_the_second_is_not_its_duplicate(
    house: SeveralEntities, queue: Queue
) -> None:
    house.crash(queue)
    first = house.start_send(queue, "first", message_id="twin")
    second = house.start_send(queue, "second", message_id="twin")
    house.store_of(queue).next_commits_end(CommitOutcome.REFUSED)
    house.run(2_000)
    assert first.outcome == "ServerBusy"
    if second.outcome != ACCEPTED:
        house.send(queue, "second", message_id="twin")
    assert newer(house, queue) == ["second"]


def test_d_1_one_that_was_let_go_while_another_waited_for_it_is_its_duplicate(
    house: SeveralEntities, queue: Queue
) -> None:
    """The first is committed, and out of memory again, before the second is tried again."""
    house.crash(queue)
    batch = [message("x", message_id=f"more {each}", size=10) for each in range(4 * FEW)]
    first = house.start_send(queue, message("first", message_id="twin"), *batch)
    second = house.start_send(queue, "second", message_id="twin")
    house.run()
    assert outcomes(first, second) == {ACCEPTED}
    assert newer(house, queue) == ["first"]


def test_dup_3_of_a_batch_those_that_only_the_store_knows_are_dropped(
    house: SeveralEntities, queue: Queue
) -> None:
    house.send(
        queue,
        message("a", message_id="a"),
        message("old", message_id="old 5"),
        message("a again", message_id="a"),
        message("old again", message_id="old 5"),
        message("b", message_id="b"),
    )
    assert newer(house, queue) == ["a", "b"]


def test_dup_5_a_scheduled_message_is_looked_up_too(house: SeveralEntities, queue: Queue) -> None:
    later_ms = house.now_ms() + 60_000
    house.send(queue, "again", message_id="old 0", at_ms=later_ms)
    house.send(queue, "new", message_id="new", at_ms=later_ms)
    assert newer(house, queue) == ["new"]


def test_dup_3_a_transaction_is_looked_up_at_its_discharge(
    house: SeveralEntities, queue: Queue
) -> None:
    """D-28. Its settlement is part of it, duplicate or not."""
    transaction = Transaction(b"1")
    again = [message("again", message_id="old 0"), message("new", message_id="new")]
    transaction.sends.append((key_of(queue), again))
    transaction.sends.append((key_of(queue), [message("and again", message_id="new")]))
    assert house.transact(queue, transaction) == ACCEPTED
    assert newer(house, queue) == ["new"]


def test_d_28_a_transaction_over_two_histories_waits_for_both(house: SeveralEntities) -> None:
    queues = [house.queue(f"q{n}", requires_duplicate_detection=True) for n in range(2)]
    for queue in queues:
        fill(house, queue)
    house.crash(queues[0])
    commands = []
    for number in range(2):
        transaction = Transaction(bytes([number]))
        for queue in queues if number else reversed(queues):
            sent = [message("again", message_id="old 0"), message("new", message_id="new")]
            transaction.sends.append((key_of(queue), sent))
        commands.append(house.start_transact(queues[0], transaction))
    after = [house.start_send(queue, "after", message_id="after") for queue in queues]
    house.run(1_000)
    assert outcomes(*commands, *after) == {ACCEPTED}
    assert [sorted(newer(house, queue)) for queue in queues] == [["after", "new"]] * 2


def test_dup_6_what_is_forwarded_is_looked_up_at_its_destination(
    house: SeveralEntities, queue: Queue
) -> None:
    source = house.queue("source", forward_to=queue.path)
    house.send(source, message("again", message_id="old 0"), message("new", message_id="new"))
    house.run()
    house.crash(queue)
    house.send(source, message("again", message_id="new"), message("other", message_id="other"))
    house.run()
    assert newer(house, queue) == ["new", "other"]


def test_a_store_that_fails_while_it_is_asked_makes_the_sender_try_again(
    house: SeveralEntities, queue: Queue
) -> None:
    """Nothing is called new for want of an answer, and nothing goes past those that waited."""
    store = house.store_of(queue)
    first = house.start_send(queue, "again", message_id="old 0")
    behind = house.start_send(queue, "behind")
    store.faults.be(Fault.ILL)
    house.run()
    assert outcomes(first, behind) == {"ServerBusy"}
    assert first.error.refused
    store.faults.be(Fault.NONE)
    house.run(2_000)
    house.send(queue, "again", message_id="old 0")
    house.send(queue, "behind")
    assert newer(house, queue) == ["behind"]


def test_d_8_who_waits_for_a_store_that_hangs_is_refused(
    house: SeveralEntities, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = house.queue("other")
    asked: list[object] = []
    port = house.store_of(queue).port
    monkeypatch.setattr(port, "call", lambda operation, done: asked.append(operation))
    monkeypatch.setattr(port, "busy_ms", lambda: PATIENCE_MS)
    waiting = house.start_send(queue, "again", message_id="old 0")
    behind = house.start_send(queue, "behind")
    house.start_send(other, "hangs as well")
    house.run(4_000)
    assert outcomes(waiting, behind) == {None}
    house.run(2_000)
    assert asked
    assert outcomes(waiting, behind) == {"ServerBusy"}


def test_a_crash_while_the_history_is_read_begins_anew(
    house: SeveralEntities, queue: Queue
) -> None:
    house.crash(queue)
    house.start_send(queue, "new", message_id="lost, perhaps")
    house.run(1)
    house.crash(queue)
    house.send(queue, "again", message_id="old 7")
    house.send(queue, "new", message_id="new")
    assert "again" not in newer(house, queue)
    assert newer(house, queue)[-1] == "new"


def test_the_history_of_a_deleted_queue_gives_its_sieves_back(
    house: SeveralEntities, queue: Queue
) -> None:
    kept = house.broker_of(queue)._duplicates
    house.delete(queue)
    house.run(10_000)
    assert kept.sieves.left == duplicates.SIEVES_MAX
    assert not list(kept)


def test_the_store_is_asked_for_no_more_than_a_page_at_a_time(
    house: SeveralEntities, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-11: those that wait are looked up together, up to so many."""
    monkeypatch.setattr(duplicates, "READ_ROWS_MAX", 10)
    house.crash(queue)
    asked: list[int] = []
    store: MessagingStore = house.store_of(queue).faults
    find = store.find_duplicates

    def counted(slot: int, digests: list[bytes], now_ms: int) -> list[DuplicateMark]:
        asked.append(len(digests))
        return find(slot, digests, now_ms)

    monkeypatch.setattr(store, "find_duplicates", counted)
    sends = [house.start_send(queue, "again", message_id=f"old {n}") for n in range(30)]
    house.run(1_000)
    assert outcomes(*sends) == {ACCEPTED}
    assert sum(asked) >= 30
    assert max(asked) <= 10
    assert len(asked) < 10, "not one by one"
