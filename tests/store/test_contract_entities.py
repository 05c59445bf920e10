"""The sentences of `store/base.py` about sessions, shared bodies and marks, for every store."""

from __future__ import annotations

import pytest

from busway.model.message import MessageState
from busway.store.base import (
    FORGET_ROWS,
    PURGE_ROWS,
    READ_ROWS_MAX,
    CommitRefused,
    Counters,
    Delete,
    DuplicateMark,
    Move,
    SessionCount,
    SessionRecord,
    SessionState,
    StoreFenced,
    StoreUnavailable,
    SubQueueKey,
    SubQueueKind,
    TransactionMark,
    TransferMark,
    Update,
)
from tests.store.places import DEAD, MAIN, PARTITION, NewHandle, Owner, facts, message, number

ACTIVE, DEFERRED, SCHEDULED = MessageState
BODY = 5 << 44 | 17


def digest(value: int) -> bytes:
    return value.to_bytes(16, "big")


def count(session_id: str, active: int, slot: int = MAIN) -> SessionCount:
    return SessionCount(slot, session_id, active)


def state(session_id: str, value: bytes | None, updated_ms: int = 9) -> SessionState:
    return SessionState(MAIN, session_id, value, updated_ms)


class TestNewReads:
    def test_a_handle_that_is_not_open_answers_none_of_them(self, new_handle: NewHandle) -> None:
        handle = new_handle()
        with pytest.raises(StoreUnavailable):
            handle.read_session_state(MAIN, "s")
        with pytest.raises(StoreUnavailable):
            handle.read_duplicates(MAIN, b"", 0)
        with pytest.raises(StoreUnavailable):
            handle.find_duplicates(MAIN, [digest(1)], 0)

    def test_nor_does_a_fenced_one(self, owner: Owner, new_handle: NewHandle) -> None:
        new_handle().open()
        with pytest.raises(StoreFenced):
            owner.store.read_session_state(MAIN, "s")
        with pytest.raises(StoreFenced):
            owner.store.read_duplicates(MAIN, b"", 0)
        with pytest.raises(StoreFenced):
            owner.store.find_duplicates(MAIN, [digest(1)], 0)

    def test_a_new_store_has_nothing_of_it(self, new_handle: NewHandle) -> None:
        opened = new_handle().open()
        assert list(opened.sessions) == []
        assert list(opened.transfers) == []
        assert list(opened.transactions) == []

    def test_a_slot_that_is_not_there_is_empty(self, owner: Owner) -> None:
        assert owner.numbers(99, session_id="s") == []
        assert owner.store.read_session_state(99, "s") is None
        assert owner.store.read_duplicates(99, b"", 0) == []
        assert owner.store.find_duplicates(99, [digest(1)], 0) == []


class TestSharedBodies:
    def put_copies(self, owner: Owner, bare: bytes = b"shared") -> None:
        copies = [
            (MAIN, message(1, bare=bare, body_id=BODY)),
            (DEAD, message(1, bare=bare, body_id=BODY, state=SCHEDULED)),
        ]
        own = (MAIN, message(2, bare=b"own"))
        owner.commit(bodies=[(BODY, bare)], puts=[*copies, own])

    def bares(self, owner: Owner, slot: int = MAIN) -> list[tuple[int | None, bytes]]:
        page = owner.store.read_page(slot, 0, state=None)
        return [(each.body_id, each.bare) for each in page]

    @pytest.mark.parametrize("bare", [b"shared", b"", b"x" * 300_000])
    def test_every_copy_comes_back_with_the_body(
        self, owner: Owner, new_handle: NewHandle, bare: bytes
    ) -> None:
        self.put_copies(owner, bare)
        again = Owner(new_handle())
        assert self.bares(again) == [(BODY, bare), (None, b"own")]
        assert self.bares(again, DEAD) == [(BODY, bare)]
        (read,) = again.store.read_numbers(MAIN, [number(1)])
        assert (read.body_id, read.bare) == (BODY, bare)

    def test_a_put_takes_the_body_that_the_batch_names(self, owner: Owner) -> None:
        owner.commit(bodies=[(BODY, b"named")], puts=[(MAIN, message(1, bare=b"", body_id=BODY))])
        assert self.bares(owner) == [(BODY, b"named")]

    def test_a_put_without_its_body_is_refused(self, owner: Owner) -> None:
        self.put_copies(owner)
        with pytest.raises(CommitRefused):
            owner.commit(puts=[(MAIN, message(3, body_id=BODY))])

    def test_a_body_is_there_until_its_last_message_goes(self, owner: Owner) -> None:
        self.put_copies(owner)
        owner.commit(deletes=[Delete(MAIN, number(1)), Delete(MAIN, number(2))])
        assert self.bares(owner, DEAD) == [(BODY, b"shared")]
        with pytest.raises(CommitRefused):
            self.put_copies(owner, b"early")
        owner.commit(deletes=[Delete(DEAD, number(1))])
        self.put_copies(owner, b"new")
        assert self.bares(owner, DEAD) == [(BODY, b"new")]

    def test_a_body_that_no_message_takes_is_not_kept(self, owner: Owner) -> None:
        owner.commit(bodies=[(BODY, b"nobody's")])
        self.put_copies(owner)

    def test_moves_and_updates_keep_it(self, owner: Owner, new_handle: NewHandle) -> None:
        self.put_copies(owner)
        moved = message(5, bare=b"shared", body_id=BODY)
        owner.commit(
            moves=[Move(MAIN, number(1), MAIN, moved)],
            updates=[Update(DEAD, number(1), ACTIVE, 1, None, None)],
        )
        again = Owner(new_handle())
        assert self.bares(again) == [(None, b"own"), (BODY, b"shared")]
        again.commit(
            deletes=[Delete(MAIN, number(2)), Delete(MAIN, number(5)), Delete(DEAD, number(1))]
        )
        self.put_copies(again, b"new")

    def test_purging_lets_go_of_it(self, owner: Owner) -> None:
        self.put_copies(owner)
        owner.commit(purges=[MAIN])
        assert self.bares(owner, DEAD) == [(BODY, b"shared")]
        owner.commit(purges=[DEAD])
        keys = [SubQueueKey(8, PARTITION, kind) for kind in SubQueueKind]
        owner.commit(sub_queues=[(MAIN, keys[0]), (DEAD, keys[1])])
        self.put_copies(owner, b"new")

    def test_a_body_cannot_come_twice(self, owner: Owner) -> None:
        self.put_copies(owner)
        with pytest.raises(CommitRefused):
            owner.commit(bodies=[(BODY, b"x")], puts=[(MAIN, message(3, body_id=BODY))])
        assert self.bares(owner) == [(BODY, b"shared"), (None, b"own")]


class TestSessionPages:
    def put_sessions(self, owner: Owner) -> None:
        states = [ACTIVE, DEFERRED, ACTIVE, SCHEDULED, ACTIVE, ACTIVE]
        owner.commit(
            puts=[
                *((MAIN, message(n, session_id="a", state=s)) for n, s in enumerate(states, 1)),
                *((MAIN, message(n, session_id="b")) for n in (11, 12)),
                *((MAIN, message(n)) for n in (21, 22)),
                *((DEAD, message(n, session_id="a")) for n in (1, 2)),
            ]
        )

    def counters(self, owner: Owner, slot: int = MAIN, **how: object) -> list[int]:
        return [each - number(0) for each in owner.numbers(slot, **how)]  # type: ignore[arg-type]

    def test_a_page_of_a_session_has_only_its_messages(
        self, owner: Owner, new_handle: NewHandle
    ) -> None:
        self.put_sessions(owner)
        again = Owner(new_handle())
        assert self.counters(again, session_id="a") == [1, 3, 5, 6]
        assert self.counters(again, session_id="b") == [11, 12]
        assert self.counters(again, session_id="c") == []
        assert self.counters(again, DEAD, session_id="a") == [1, 2]

    def test_no_session_id_takes_all_sessions_and_none(self, owner: Owner) -> None:
        self.put_sessions(owner)
        assert self.counters(owner) == [1, 3, 5, 6, 11, 12, 21, 22]

    @pytest.mark.parametrize(
        ("state", "counters"), [(None, [1, 2, 3, 4, 5, 6]), (DEFERRED, [2]), (SCHEDULED, [4])]
    )
    def test_it_may_be_of_another_state_or_of_all(
        self, owner: Owner, state: MessageState | None, counters: list[int]
    ) -> None:
        self.put_sessions(owner)
        assert self.counters(owner, session_id="a", state=state) == counters

    def test_it_begins_above_a_number_and_is_limited(self, owner: Owner) -> None:
        self.put_sessions(owner)
        assert self.counters(owner, session_id="a", after=number(1), rows=2) == [3, 5]
        assert self.counters(owner, session_id="a", after=number(1), size=100) == [3]
        assert self.counters(owner, session_id="a", state=None, after=number(2), rows=2) == [3, 4]

    @pytest.mark.parametrize("session_id", ["", "0", "Größe 尺寸 🚌 \x00 end"])
    def test_a_session_id_is_any_text(self, owner: Owner, session_id: str) -> None:
        owner.commit(puts=[(MAIN, message(1, session_id=session_id)), (MAIN, message(2))])
        assert self.counters(owner, session_id=session_id) == [1]

    def test_a_changed_message_stays_in_its_session(self, owner: Owner) -> None:
        self.put_sessions(owner)
        owner.commit(
            deletes=[Delete(MAIN, number(1))],
            updates=[
                Update(MAIN, number(2), ACTIVE, 0, None, None),
                Update(MAIN, number(3), DEFERRED, 0, None, None),
            ],
            moves=[
                Move(MAIN, number(4), MAIN, message(31, session_id="a")),
                Move(MAIN, number(5), DEAD, message(5, session_id="a")),
            ],
        )
        assert self.counters(owner, session_id="a") == [2, 6, 31]
        assert self.counters(owner, session_id="a", state=None) == [2, 3, 6, 31]
        assert self.counters(owner, DEAD, session_id="a") == [1, 2, 5]


class TestSessions:
    def test_opening_tells_them_with_their_counts_and_states(
        self, owner: Owner, new_handle: NewHandle
    ) -> None:
        owner.commit(
            session_counts=[count("b", 2), count("a", 1), count("a", 7, DEAD)],
            session_states=[state("a", b"12345", 77), state("c", b"", 78)],
        )
        assert list(new_handle().open().sessions) == [
            SessionRecord(MAIN, "a", 1, 77, 5),
            SessionRecord(MAIN, "b", 2, None, 0),
            SessionRecord(MAIN, "c", 0, 78, 0),
            SessionRecord(DEAD, "a", 7, None, 0),
        ]

    def test_counts_and_states_leave_each_other_alone(self, owner: Owner) -> None:
        owner.commit(session_counts=[count("a", 1)])
        owner.commit(session_states=[state("a", b"x", 5)])
        owner.commit(session_counts=[count("a", 4)])
        owner.commit(session_states=[state("a", b"xyz", 6)])
        assert list(owner.store.open().sessions) == [SessionRecord(MAIN, "a", 4, 6, 3)]

    @pytest.mark.parametrize("session_id", ["", "s", "Größe 尺寸 🚌 \x00 end"])
    @pytest.mark.parametrize("value", [b"", b"\x00state", b"x" * 256 * 1024])
    def test_a_state_can_be_read(
        self, owner: Owner, new_handle: NewHandle, session_id: str, value: bytes
    ) -> None:
        owner.commit(session_states=[state(session_id, value)])
        again = Owner(new_handle())
        assert again.store.read_session_state(MAIN, session_id) == value
        assert again.store.read_session_state(DEAD, session_id) is None
        assert again.store.read_session_state(MAIN, session_id + "?") is None

    def test_a_session_without_a_state_has_none(self, owner: Owner) -> None:
        owner.commit(session_counts=[count("a", 1)])
        assert owner.store.read_session_state(MAIN, "a") is None

    def test_none_clears_a_state(self, owner: Owner) -> None:
        owner.commit(session_counts=[count("a", 1)], session_states=[state("a", b"x")])
        owner.commit(session_states=[state("a", None, 99)])
        assert owner.store.read_session_state(MAIN, "a") is None
        assert list(owner.store.open().sessions) == [SessionRecord(MAIN, "a", 1, None, 0)]

    @pytest.mark.parametrize(
        "last",
        [
            {"session_counts": [count("a", 0)], "session_states": [state("a", None)]},
            {"session_counts": [count("a", 0), count("b", 0)]},
            {"session_states": [state("a", None), state("b", None)]},
        ],
    )
    def test_a_session_without_messages_and_state_is_forgotten(
        self, owner: Owner, last: dict[str, object]
    ) -> None:
        if "session_states" in last:
            owner.commit(session_states=[state("a", b"x")])
        if "session_counts" in last:
            owner.commit(session_counts=[count("a", 3)])
        owner.commit(**last)
        assert list(owner.store.open().sessions) == []

    def test_a_count_of_nothing_makes_no_session(self, owner: Owner) -> None:
        owner.commit(session_counts=[count("a", 0)], session_states=[state("b", None)])
        assert list(owner.store.open().sessions) == []

    def test_a_state_outlives_the_messages(self, owner: Owner) -> None:
        owner.commit(session_counts=[count("a", 3)], session_states=[state("a", b"x", 5)])
        owner.commit(session_counts=[count("a", 0)])
        assert list(owner.store.open().sessions) == [SessionRecord(MAIN, "a", 0, 5, 1)]

    def test_the_last_state_in_a_batch_counts(self, owner: Owner) -> None:
        owner.commit(session_states=[state("a", b"x", 5), state("a", None, 6), state("a", b"z", 7)])
        assert owner.store.read_session_state(MAIN, "a") == b"z"
        assert list(owner.store.open().sessions) == [SessionRecord(MAIN, "a", 0, 7, 1)]

    def test_there_may_be_thousands(self, owner: Owner) -> None:
        owner.commit(session_counts=[count(f"{n:05}", n) for n in range(1, 5_001)])
        owner.commit(session_counts=[count(f"{n:05}", 0) for n in range(1, 4_999)])
        assert [each.active for each in owner.store.open().sessions] == [4_999, 5_000]


class TestDuplicates:
    def test_they_come_in_the_order_of_their_digests(
        self, owner: Owner, new_handle: NewHandle
    ) -> None:
        marks = [DuplicateMark(MAIN, digest(value), 100 - value) for value in (5, 1, 30, 2)]
        owner.commit(duplicates=[*marks, DuplicateMark(DEAD, digest(3), 50)])
        again = Owner(new_handle()).store
        assert again.read_duplicates(MAIN, b"", 0, rows=4) == sorted(marks)[:4]
        assert again.read_duplicates(DEAD, b"", 0) == [DuplicateMark(DEAD, digest(3), 50)]

    def test_they_can_be_paged_through(self, owner: Owner) -> None:
        marks = [DuplicateMark(MAIN, digest(value), 9) for value in range(25)]
        owner.commit(duplicates=marks[::-1])
        seen: list[DuplicateMark] = []
        while page := owner.store.read_duplicates(MAIN, seen[-1].digest if seen else b"", 0, 10):
            assert len(page) <= 10
            seen += page
        assert seen == marks

    def test_a_page_is_limited_in_any_case(self, owner: Owner) -> None:
        marks = [DuplicateMark(MAIN, digest(value), 9) for value in range(READ_ROWS_MAX + 5)]
        owner.commit(duplicates=marks)
        assert owner.store.read_duplicates(MAIN, b"", 0, 10**6) == marks[:READ_ROWS_MAX]

    def test_they_are_found_one_by_one_in_the_order_asked(
        self, owner: Owner, new_handle: NewHandle
    ) -> None:
        marks = [DuplicateMark(MAIN, digest(value), 100 + value) for value in range(5)]
        owner.commit(duplicates=[*marks, DuplicateMark(DEAD, digest(7), 900)])
        again = Owner(new_handle()).store
        asked = [digest(value) for value in (4, 7, 0, 3, 99)]
        assert again.find_duplicates(MAIN, asked, 0) == [marks[4], marks[0], marks[3]]
        assert again.find_duplicates(MAIN, asked, 103) == [marks[4]]
        assert again.find_duplicates(DEAD, asked, 0) == [DuplicateMark(DEAD, digest(7), 900)]
        assert again.find_duplicates(MAIN, [], 0) == []

    def test_one_is_found_among_many(self, owner: Owner) -> None:
        many = 20 * READ_ROWS_MAX
        owner.commit(duplicates=[DuplicateMark(MAIN, digest(value), 9) for value in range(many)])
        asked = [digest(value) for value in range(many - 500, many + 500)]
        found = owner.store.find_duplicates(MAIN, asked, 0)
        assert [mark.digest for mark in found] == asked[:500]

    def test_those_that_do_not_count_any_more_are_left_out(self, owner: Owner) -> None:
        owner.commit(duplicates=[DuplicateMark(MAIN, digest(value), value) for value in range(9)])
        read = owner.store.read_duplicates(MAIN, b"", 6)
        assert [mark.until_ms for mark in read] == [7, 8]

    def test_time_that_passes_takes_none_that_still_counts(self, owner: Owner) -> None:
        owner.commit(duplicates=[DuplicateMark(MAIN, digest(value), value) for value in range(9)])
        owner.commit(time_ms=6)
        owner.commit(time_ms=5)
        read = owner.store.read_duplicates(MAIN, b"", 6)
        assert [mark.until_ms for mark in read] == [7, 8]

    @pytest.mark.parametrize("time_ms", [4, 50])
    def test_a_digest_can_come_again(self, owner: Owner, time_ms: int) -> None:
        owner.commit(duplicates=[DuplicateMark(MAIN, digest(1), 5)])
        again = DuplicateMark(MAIN, digest(1), 90)
        owner.commit(time_ms=time_ms, duplicates=[again])
        for _ in range(3):
            owner.commit(time_ms=time_ms)
        assert owner.store.read_duplicates(MAIN, b"", time_ms) == [again]

    def test_many_that_are_over_are_forgotten_in_steps(self, owner: Owner) -> None:
        many = 2 * FORGET_ROWS + 10
        owner.commit(duplicates=[DuplicateMark(MAIN, digest(v), 5_000) for v in range(many)])
        kept = DuplicateMark(MAIN, digest(many), 9_000)
        owner.commit(duplicates=[kept], time_ms=6_000)
        left = [
            len(owner.store.read_duplicates(MAIN, digest(FORGET_ROWS - 1), 0)),
            len(owner.store.read_duplicates(MAIN, digest(2 * FORGET_ROWS - 1), 0)),
        ]
        assert left == [FORGET_ROWS, 11]
        for _ in range(3):
            owner.commit(time_ms=6_000)
        assert owner.store.read_duplicates(MAIN, b"", 0) == [kept]


class TestTransfers:
    def test_the_last_number_of_each_source_is_kept(
        self, owner: Owner, new_handle: NewHandle
    ) -> None:
        owner.commit(
            transfers=[
                TransferMark(MAIN, 9, 1, 5),
                TransferMark(MAIN, 9, 0, 6),
                TransferMark(DEAD, 9, 0, 7),
            ]
        )
        owner.commit(transfers=[TransferMark(MAIN, 9, 0, 2**63 - 1)])
        assert list(new_handle().open().transfers) == [
            TransferMark(MAIN, 9, 0, 2**63 - 1),
            TransferMark(MAIN, 9, 1, 5),
            TransferMark(DEAD, 9, 0, 7),
        ]

    def test_the_last_of_a_batch_counts(self, owner: Owner) -> None:
        owner.commit(transfers=[TransferMark(MAIN, 9, 0, 5), TransferMark(MAIN, 9, 0, 6)])
        assert list(owner.store.open().transfers) == [TransferMark(MAIN, 9, 0, 6)]


class TestTransactions:
    def test_those_carried_out_are_told_until_their_time_is_over(
        self, owner: Owner, new_handle: NewHandle
    ) -> None:
        marks = [TransactionMark(bytes([value]), value) for value in (3, 1, 2)]
        owner.commit(transactions=marks)
        assert list(owner.store.open().transactions) == sorted(marks)
        owner.commit(time_ms=2)
        assert list(new_handle().open().transactions) == [TransactionMark(b"\x03", 3)]

    def test_one_may_be_kept_longer(self, owner: Owner) -> None:
        owner.commit(transactions=[TransactionMark(b"t", 3)])
        owner.commit(transactions=[TransactionMark(b"t", 8)], time_ms=5)
        owner.commit(time_ms=7)
        assert list(owner.store.open().transactions) == [TransactionMark(b"t", 8)]

    def test_one_with_orders_is_kept_until_one_without_takes_its_place(
        self, owner: Owner, new_handle: NewHandle
    ) -> None:
        """D-28: whatever the time."""
        ordering = TransactionMark(b"t", 3, b"rules")
        owner.commit(transactions=[ordering, TransactionMark(b"u", 3)])
        for time_ms in (100, 5_000, 100_000):
            owner.commit(time_ms=time_ms)
        again = Owner(new_handle())
        assert list(again.opened.transactions) == [ordering]
        again.commit(transactions=[ordering._replace(orders=None)], time_ms=200_000)
        again.commit(time_ms=300_000)
        assert list(new_handle().open().transactions) == []


class TestPurging:
    def test_sessions_and_marks_go_with_their_sub_queue(
        self, owner: Owner, new_handle: NewHandle
    ) -> None:
        owner.commit(
            puts=[(MAIN, message(1, session_id="a", state=SCHEDULED)), (MAIN, message(2))],
            session_counts=[count("a", 1), count("a", 2, DEAD)],
            session_states=[state("b", b"x")],
            duplicates=[DuplicateMark(MAIN, digest(1), 5), DuplicateMark(DEAD, digest(1), 5)],
            transfers=[TransferMark(MAIN, 9, 0, 5), TransferMark(DEAD, 9, 0, 7)],
        )
        owner.commit(purges=[MAIN])
        opened = owner.store.open()
        assert [record.slot for record in opened.sub_queues] == [DEAD]
        assert list(opened.sessions) == [SessionRecord(DEAD, "a", 2, None, 0)]
        assert list(opened.transfers) == [TransferMark(DEAD, 9, 0, 7)]
        again = Owner(new_handle())
        key = SubQueueKey(8, PARTITION, SubQueueKind.MAIN)
        again.commit(sub_queues=[(MAIN, key)], counters={MAIN: Counters()})
        assert again.store.read_duplicates(MAIN, b"", 0) == []
        assert again.store.read_session_state(MAIN, "b") is None
        assert again.store.read_duplicates(DEAD, b"", 0) == [DuplicateMark(DEAD, digest(1), 5)]
        assert again.numbers(MAIN, state=None) == []

    def test_what_is_more_than_a_step_is_forgotten_in_later_commits(
        self, owner: Owner, new_handle: NewHandle
    ) -> None:
        many = PURGE_ROWS + 10
        owner.commit(
            puts=[(MAIN, message(1))],
            duplicates=[DuplicateMark(MAIN, digest(value), 5) for value in range(many)],
            session_counts=[count(str(value), 1) for value in range(many)],
            transfers=[TransferMark(MAIN, value, 0, 1) for value in range(many)],
        )
        owner.commit(purges=[MAIN])
        assert owner.numbers() == []
        owner = Owner(new_handle())
        assert [record.slot for record in owner.opened.sub_queues] == [MAIN, DEAD]
        commits = 0
        while len(owner.store.open().sub_queues) == 2:
            owner = Owner(new_handle())
            owner.commit(puts=[(DEAD, message(10 + commits))])
            commits += 1
        assert commits == 3
        opened = owner.store.open()
        assert list(opened.sessions) == []
        assert list(opened.transfers) == []
        assert owner.store.read_duplicates(MAIN, b"", 0) == []

    def test_messages_are_forgotten_only_when_asked_for(self, owner: Owner) -> None:
        puts = [(MAIN, message(counter)) for counter in range(1, PURGE_ROWS + 3)]
        owner.commit(puts=puts, transfers=[TransferMark(MAIN, 1, 1, 1)])
        owner.commit(purges=[MAIN])
        owner.commit()
        assert owner.numbers() == [number(PURGE_ROWS + 1), number(PURGE_ROWS + 2)]

    @pytest.mark.parametrize("state", [ACTIVE, SCHEDULED])
    def test_an_owner_that_counts_messages_need_not_ask_once_too_often(
        self, owner: Owner, state: MessageState
    ) -> None:
        puts = [(MAIN, message(counter, state=state)) for counter in range(1, PURGE_ROWS + 1)]
        owner.commit(puts=puts)
        owner.commit(purges=[MAIN])
        owner.commit()
        assert [record.slot for record in owner.store.open().sub_queues] == [DEAD]

    def test_messages_of_every_state_are_forgotten(self, owner: Owner) -> None:
        states = [ACTIVE, DEFERRED, SCHEDULED] * 3
        owner.commit(puts=[(MAIN, message(n, state=each)) for n, each in enumerate(states)])
        owner.commit(purges=[MAIN])
        assert owner.numbers(state=None) == []
        assert [record.slot for record in owner.store.open().sub_queues] == [DEAD]


def test_a_refused_batch_leaves_nothing_of_any_kind(owner: Owner) -> None:
    shared = message(1, bare=b"shared", body_id=BODY, session_id="a")
    owner.commit(
        bodies=[(BODY, b"shared")],
        puts=[(MAIN, shared)],
        session_counts=[count("a", 1)],
        session_states=[state("b", b"kept", 1)],
        duplicates=[DuplicateMark(MAIN, digest(1), 50)],
        transfers=[TransferMark(MAIN, 9, 0, 5)],
        transactions=[TransactionMark(b"t", 60)],
    )
    with pytest.raises(CommitRefused):
        owner.commit(
            time_ms=99,
            bodies=[(BODY + 1, b"new")],
            puts=[(MAIN, message(2, bare=b"new", body_id=BODY + 1))],
            deletes=[Delete(MAIN, number(1))],
            session_counts=[count("a", 0), count("c", 1)],
            session_states=[state("b", None)],
            duplicates=[DuplicateMark(MAIN, digest(2), 150)],
            transfers=[TransferMark(MAIN, 9, 0, 6)],
            transactions=[TransactionMark(b"u", 160), TransactionMark(b"t", 161)],
            counters={77: Counters()},
        )
    opened = owner.store.open()
    assert opened.time_ms == 0
    assert list(opened.sessions) == [
        SessionRecord(MAIN, "a", 1, None, 0),
        SessionRecord(MAIN, "b", 0, 1, 4),
    ]
    assert list(opened.transfers) == [TransferMark(MAIN, 9, 0, 5)]
    assert list(opened.transactions) == [TransactionMark(b"t", 60)]
    assert owner.store.read_duplicates(MAIN, b"", 0) == [DuplicateMark(MAIN, digest(1), 50)]
    assert owner.store.read_session_state(MAIN, "b") == b"kept"
    (read,) = owner.store.read_page(MAIN, 0, session_id="a")
    assert facts(read) == facts(shared)
