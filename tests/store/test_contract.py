"""The sentences of `store/base.py`, for every store."""

from __future__ import annotations

import pytest

from busway.model.message import COUNTER_MASK, Message, MessageState, sequence_number
from busway.store.base import (
    PURGE_ROWS,
    READ_ROWS_MAX,
    Batch,
    CommitRefused,
    Counters,
    Delete,
    DuplicateMark,
    Expiring,
    Move,
    SessionCount,
    SessionState,
    StoreFenced,
    StoreUnavailable,
    SubQueueKey,
    SubQueueKind,
    SubQueueRecord,
    TransferMark,
    Update,
)
from tests.store.places import (
    DEAD,
    DEAD_KEY,
    MAIN,
    MAIN_KEY,
    PARTITION,
    NewHandle,
    Owner,
    facts,
    message,
    number,
)

ACTIVE, DEFERRED, SCHEDULED = MessageState


def put(owner: Owner, *messages: Message, slot: int = MAIN) -> None:
    owner.commit(puts=[(slot, each) for each in messages])


def dead_letter(counter: int, *, expires_ms: int | None = None) -> Move:
    moved = message(counter, delivery_count=1, expires_ms=expires_ms)
    return Move(MAIN, number(counter), DEAD, moved)


class TestOpening:
    def test_a_new_store_is_empty_at_commit_0(self, new_handle: NewHandle) -> None:
        opened = new_handle().open()
        assert (opened.epoch, opened.commit_number, opened.time_ms) == (1, 0, 0)
        assert list(opened.sub_queues) == []

    def test_the_store_keeps_its_id(self, new_handle: NewHandle) -> None:
        first, second = new_handle().open(), new_handle().open()
        assert first.store_id
        assert first.store_id == second.store_id

    def test_each_opening_raises_the_epoch(self, new_handle: NewHandle) -> None:
        handle = new_handle()
        assert [handle.open().epoch, handle.open().epoch, new_handle().open().epoch] == [1, 2, 3]

    def test_a_handle_that_is_not_open_is_unavailable(self, new_handle: NewHandle) -> None:
        handle = new_handle()
        with pytest.raises(StoreUnavailable):
            handle.read_page(MAIN, 0)
        with pytest.raises(StoreUnavailable):
            handle.commit(Batch(1))

    def test_a_closed_handle_is_unavailable_and_opens_again(self, owner: Owner) -> None:
        owner.store.close()
        owner.store.close()
        with pytest.raises(StoreUnavailable):
            owner.store.read_page(MAIN, 0)
        assert owner.store.open().commit_number == 1

    def test_sub_queues_come_back_by_slot(self, owner: Owner) -> None:
        assert list(owner.store.open().sub_queues) == [
            SubQueueRecord(MAIN, MAIN_KEY, Counters()),
            SubQueueRecord(DEAD, DEAD_KEY, Counters()),
        ]
        assert owner.store.open().sub_queues[1].key.kind is SubQueueKind.DEAD_LETTER


class TestCommitting:
    def test_what_was_committed_is_there_for_the_next_owner(
        self, owner: Owner, new_handle: NewHandle
    ) -> None:
        put(owner, message(1), message(2))
        owner.store.close()
        next_owner = Owner(new_handle())
        assert next_owner.opened.commit_number == 2
        assert next_owner.numbers() == [number(1), number(2)]

    def test_an_empty_batch_counts(self, owner: Owner) -> None:
        owner.commit()
        assert owner.store.open().commit_number == 2

    def test_a_batch_out_of_turn_is_the_owners_mistake(self, owner: Owner) -> None:
        with pytest.raises(AssertionError):
            owner.store.commit(Batch(owner.next_number + 1))
        owner.commit()

    def test_the_largest_time_is_never_forgotten(self, owner: Owner) -> None:
        owner.commit(time_ms=5_000)
        owner.commit(time_ms=3_000)
        assert owner.store.open().time_ms == 5_000

    def test_counters_are_those_of_the_last_commit(self, owner: Owner) -> None:
        owner.commit(counters={MAIN: Counters(9, 1, 2, 3, 4_000)})
        owner.commit(counters={DEAD: Counters(1, 5, 0, 0, 500)})
        assert [record.counters for record in owner.store.open().sub_queues] == [
            Counters(9, 1, 2, 3, 4_000),
            Counters(1, 5, 0, 0, 500),
        ]

    def test_a_sub_queue_can_be_used_in_the_batch_that_brings_it(self, owner: Owner) -> None:
        key = SubQueueKey(8, PARTITION, SubQueueKind.MAIN)
        owner.commit(
            sub_queues=[(9, key)], puts=[(9, message(1))], counters={9: Counters(2, 1, 0, 0, 100)}
        )
        assert owner.numbers(9) == [number(1)]
        assert owner.store.open().sub_queues[-1] == SubQueueRecord(
            9, key, Counters(2, 1, 0, 0, 100)
        )

    def test_a_deleted_message_is_gone(self, owner: Owner) -> None:
        put(owner, message(1), message(2))
        owner.commit(deletes=[Delete(MAIN, number(1))])
        assert owner.numbers(state=None) == [number(2)]

    def test_an_update_changes_only_what_it_names(self, owner: Owner) -> None:
        put(owner, message(1, bare=b"kept", ttl_ms=60_000, enqueued_ms=9, header=3))
        owner.commit(updates=[Update(MAIN, number(1), DEFERRED, 4, 12, b"changed")])
        (read,) = owner.store.read_page(MAIN, 0, state=None)
        expected = message(
            1,
            bare=b"kept",
            ttl_ms=60_000,
            enqueued_ms=9,
            header=3,
            state=DEFERRED,
            delivery_count=4,
            expires_ms=12,
            changes=b"changed",
        )
        assert facts(read) == facts(expected)

    def test_a_moved_message_keeps_its_body(self, owner: Owner) -> None:
        kept = {
            "bare": b"kept",
            "size": 321,
            "header": 3,
            "annotations": b"\xa3\x01x\x54\x01",
            "annotation_items": 2,
            "session_id": "s",
        }
        put(owner, message(1, **kept, expires_ms=77))
        moved = message(
            2,
            **kept,
            ttl_ms=9,
            delivery_count=10,
            enqueued_ms=55,
            expires_ms=88,
            state=DEFERRED,
            changes=b"reason",
            enqueued_number=number(1),
            hops=3,
            dead_letter_source="from",
            destination="to",
        )
        owner.commit(moves=[Move(MAIN, number(1), DEAD, moved)])
        (read,) = owner.store.read_page(DEAD, 0, state=None)
        assert facts(read) == facts(moved)
        assert owner.numbers(MAIN, state=None) == []

    def test_a_move_takes_away_what_it_does_not_say(self, owner: Owner) -> None:
        put(
            owner,
            message(
                1,
                ttl_ms=1,
                expires_ms=2,
                changes=b"c",
                enqueued_number=3,
                hops=4,
                dead_letter_source="from",
                destination="to",
            ),
        )
        owner.commit(moves=[Move(MAIN, number(1), DEAD, message(1))])
        (read,) = owner.store.read_page(DEAD, 0)
        assert facts(read) == facts(message(1))

    @pytest.mark.parametrize("before", [ACTIVE, DEFERRED, SCHEDULED])
    @pytest.mark.parametrize("after", [ACTIVE, DEFERRED, SCHEDULED])
    def test_a_move_may_renumber_within_its_sub_queue(
        self, owner: Owner, before: MessageState, after: MessageState
    ) -> None:
        put(owner, message(1, state=before, expires_ms=5), message(2, state=before))
        owner.commit(
            moves=[
                Move(MAIN, number(1), MAIN, message(8, state=after, expires_ms=6)),
                Move(MAIN, number(2), MAIN, message(9, state=after)),
            ]
        )
        assert owner.numbers(state=after) == [number(8), number(9)]
        assert owner.numbers(state=None) == [number(8), number(9)]
        assert list(owner.store.read_expiring(None, 9).rows) == [Expiring(6, MAIN, number(8))]

    @pytest.mark.parametrize("before", [ACTIVE, DEFERRED, SCHEDULED])
    @pytest.mark.parametrize("after", [ACTIVE, DEFERRED, SCHEDULED])
    def test_an_update_may_change_the_state_to_any_other(
        self, owner: Owner, before: MessageState, after: MessageState
    ) -> None:
        put(owner, message(1, state=before), message(2, state=after), message(3))
        owner.commit(
            updates=[
                Update(MAIN, number(1), after, 7, 40, None),
                Update(MAIN, number(2), after, 7, None, b"x"),
            ]
        )
        read = owner.store.read_page(MAIN, 0, state=None)
        expected = [
            message(1, state=after, delivery_count=7, expires_ms=40),
            message(2, state=after, delivery_count=7, changes=b"x"),
            message(3),
        ]
        assert [facts(each) for each in read] == [facts(each) for each in expected]

    def test_one_batch_deletes_and_moves_messages_of_every_state(self, owner: Owner) -> None:
        states = [ACTIVE, DEFERRED, SCHEDULED] * 3
        put(owner, *(message(counter, state=each) for counter, each in enumerate(states)))
        owner.commit(
            deletes=[Delete(MAIN, number(counter)) for counter in (0, 1, 2)],
            moves=[dead_letter(counter) for counter in (3, 4, 5)],
        )
        assert owner.numbers(MAIN, state=None) == [number(counter) for counter in (6, 7, 8)]
        assert owner.numbers(DEAD) == [number(counter) for counter in (3, 4, 5)]

    def test_one_batch_does_everything_at_once(self, owner: Owner) -> None:
        put(owner, message(1), message(2), message(3))
        owner.commit(
            puts=[(MAIN, message(4))],
            moves=[dead_letter(1)],
            updates=[Update(MAIN, number(2), DEFERRED, 1, None, None)],
            deletes=[Delete(MAIN, number(3))],
        )
        assert owner.numbers(MAIN, state=None) == [number(2), number(4)]
        assert owner.numbers(DEAD) == [number(1)]

    @pytest.mark.parametrize(
        "wrong",
        [
            {"deletes": [Delete(MAIN, number(99))]},
            {"updates": [Update(MAIN, number(99), ACTIVE, 1, None, None)]},
            {"moves": [dead_letter(99)]},
            {"puts": [(MAIN, message(1))]},
            {"puts": [(77, message(5))]},
            {"puts": [(MAIN, message(5, body_id=6))]},
            {"counters": {77: Counters()}},
            {"session_counts": [SessionCount(77, "s", 1)]},
            {"session_states": [SessionState(77, "s", b"state", 1)]},
            {"duplicates": [DuplicateMark(77, b"d" * 16, 1)]},
            {"transfers": [TransferMark(77, 1, 1, 1)]},
            {"sub_queues": [(77, MAIN_KEY)]},
            {"sub_queues": [(MAIN, SubQueueKey(9, PARTITION, SubQueueKind.MAIN))]},
        ],
        ids=lambda wrong: next(iter(wrong)),
    )
    def test_a_batch_that_does_not_fit_is_refused_whole(
        self, owner: Owner, wrong: dict[str, object]
    ) -> None:
        put(owner, message(1))
        content = {"puts": [(MAIN, message(2))], **wrong}
        with pytest.raises(CommitRefused):
            owner.commit(**content)
        assert owner.numbers() == [number(1)]
        owner.commit(puts=[(MAIN, message(2))])
        assert owner.store.open().commit_number == 3
        assert [record.slot for record in owner.store.open().sub_queues] == [MAIN, DEAD]

    def test_a_number_of_another_partition_is_the_owners_mistake(self, owner: Owner) -> None:
        with pytest.raises(AssertionError):
            put(owner, message(1, number=sequence_number(PARTITION + 1, 1)))
        put(owner, message(1))


class TestFencing:
    def test_a_new_owner_fences_the_old(self, owner: Owner, new_handle: NewHandle) -> None:
        new_handle().open()
        with pytest.raises(StoreFenced):
            put(owner, message(1))

    def test_a_fenced_batch_is_not_there(self, owner: Owner, new_handle: NewHandle) -> None:
        new_owner = Owner(new_handle())
        with pytest.raises(StoreFenced):
            put(owner, message(1))
        assert new_owner.numbers() == []
        put(new_owner, message(1))

    def test_a_fenced_handle_answers_nobody(self, owner: Owner, new_handle: NewHandle) -> None:
        new_handle().open()
        for _ in range(2):
            with pytest.raises(StoreFenced):
                owner.store.read_page(MAIN, 0)
        with pytest.raises(StoreFenced):
            owner.store.commit(owner.batch())

    def test_the_old_owner_may_come_back_with_a_newer_epoch(
        self, owner: Owner, new_handle: NewHandle
    ) -> None:
        between = Owner(new_handle())
        again = Owner(owner.store)
        assert again.opened.epoch == between.opened.epoch + 1
        put(again, message(1))
        with pytest.raises(StoreFenced):
            put(between, message(1))


class TestWhatIsKept:
    @pytest.mark.parametrize(
        "fields",
        [
            {},
            {"bare": b"", "size": 0},
            {"bare": bytes(range(256)) * 1024, "size": 256 * 1024 + 300},
            {"session_id": ""},
            {"session_id": "0"},
            {"session_id": "Größe 尺寸 🚌 \x00 end"},
            {"ttl_ms": 0, "expires_ms": 0},
            {"ttl_ms": 2**40, "expires_ms": 2**62, "enqueued_ms": 2**41},
            {"annotations": b"\xa3\x01x\x54\x01", "annotation_items": 2, "header": 255},
            {"changes": b""},
            {"state": SCHEDULED, "delivery_count": 2**31 - 1},
            {"enqueued_number": 2**63 - 1},
            {"hops": 4, "dead_letter_source": "a/b", "destination": "Größe"},
            {"dead_letter_source": "", "destination": ""},
            {"state": DEFERRED, "session_id": "s", "expires_ms": 8},
            {"number": number(2**44 - 1)},
        ],
        ids=lambda fields: ",".join(fields) or "defaults",
    )
    def test_every_field_comes_back(
        self, owner: Owner, new_handle: NewHandle, fields: dict[str, object]
    ) -> None:
        sent = message(1, **fields)
        put(owner, sent)
        (read,) = Owner(new_handle()).store.read_page(MAIN, 0, state=None)
        assert facts(read) == facts(sent)
        assert type(read.state) is MessageState

    @pytest.mark.parametrize("partition", [0, 1, 0x7FFF])
    def test_a_number_names_its_partition(self, new_handle: NewHandle, partition: int) -> None:
        owner = Owner(new_handle())
        numbers = [sequence_number(partition, counter) for counter in (1, 2**44 - 1)]
        owner.commit(
            sub_queues=[(0, SubQueueKey(1, partition, SubQueueKind.MAIN))],
            puts=[(0, message(0, number=each, expires_ms=5)) for each in numbers],
        )
        assert owner.numbers(0) == numbers
        assert [row.number for row in owner.store.read_expiring(None, 5).rows] == numbers
        assert owner.numbers(0, after=numbers[0]) == numbers[1:]

    def test_locks_are_not_kept(self, owner: Owner) -> None:
        sent = message(1)
        sent.lock_token, sent.locked_until_ms = b"t" * 16, 99
        put(owner, sent)
        (read,) = owner.store.read_page(MAIN, 0)
        assert (read.lock_token, read.locked_until_ms) == (None, 0)

    def test_what_the_owner_changes_after_a_commit_is_not_in_the_store(self, owner: Owner) -> None:
        sent, counters = message(1), Counters(2, 1, 0, 0, 100)
        owner.commit(puts=[(MAIN, sent)], counters={MAIN: counters})
        sent.delivery_count = counters.active = 9
        (read,) = owner.store.read_page(MAIN, 0)
        assert read.delivery_count == 0
        assert owner.store.open().sub_queues[0].counters.active == 1

    def test_each_read_gives_objects_of_its_own(self, owner: Owner) -> None:
        put(owner, message(1))
        (first,) = owner.store.read_page(MAIN, 0)
        first.delivery_count = 9
        owner.store.open().sub_queues[0].counters.active = 9
        (second,) = owner.store.read_numbers(MAIN, [number(1)])
        assert second.delivery_count == 0
        assert owner.store.open().sub_queues[0].counters.active == 0


class TestPages:
    def test_numbers_ascend_whatever_order_they_came_in(self, owner: Owner) -> None:
        put(owner, message(5), message(2))
        put(owner, message(9), message(1))
        assert owner.numbers() == [number(c) for c in (1, 2, 5, 9)]

    def test_a_page_begins_above_the_number_given(self, owner: Owner) -> None:
        put(owner, *(message(counter) for counter in range(1, 6)))
        assert owner.numbers(after=number(3)) == [number(4), number(5)]
        assert owner.numbers(after=number(5)) == []

    def test_a_number_below_the_partition_means_from_its_start(self, owner: Owner) -> None:
        put(owner, message(1))
        assert owner.numbers(after=-1) == [number(1)]
        assert owner.numbers(after=sequence_number(PARTITION - 1, COUNTER_MASK)) == [number(1)]

    def test_a_number_above_the_partition_means_nothing(self, owner: Owner) -> None:
        put(owner, message(1))
        put(owner, message(1), slot=DEAD)
        assert owner.numbers(after=sequence_number(PARTITION, COUNTER_MASK)) == []
        assert owner.numbers(after=sequence_number(PARTITION + 1, 0)) == []

    def test_a_page_has_no_more_rows_than_asked_for(self, owner: Owner) -> None:
        put(owner, *(message(counter) for counter in range(1, 6)))
        assert owner.numbers(rows=2) == [number(1), number(2)]

    def test_a_page_is_limited_in_any_case(self, owner: Owner) -> None:
        put(owner, *(message(counter) for counter in range(1, READ_ROWS_MAX + 11)))
        assert len(owner.numbers(rows=10**6)) == READ_ROWS_MAX
        assert len(owner.numbers()) == READ_ROWS_MAX

    def test_a_page_ends_once_its_bytes_are_reached(self, owner: Owner) -> None:
        put(owner, *(message(counter, size=100) for counter in range(1, 6)))
        assert len(owner.numbers(size=200)) == 2
        assert len(owner.numbers(size=201)) == 3

    def test_a_page_always_has_one_message_if_there_is_one(self, owner: Owner) -> None:
        put(owner, message(1, size=10**6), message(2))
        assert owner.numbers(size=1) == [number(1)]
        assert owner.numbers(size=0) == [number(1)]

    @pytest.mark.parametrize(
        ("state", "counters"),
        [(ACTIVE, [1, 4]), (DEFERRED, [2, 5]), (SCHEDULED, [3, 6]), (None, [1, 2, 3, 4, 5, 6])],
    )
    def test_a_page_is_of_one_state_or_of_all(
        self, owner: Owner, state: MessageState | None, counters: list[int]
    ) -> None:
        states = [ACTIVE, DEFERRED, SCHEDULED] * 2
        put(owner, *(message(counter, state=each) for counter, each in enumerate(states, 1)))
        put(owner, *(message(counter, state=each) for counter, each in enumerate(states, 11)))
        expected = [number(counter) for counter in counters]
        assert owner.numbers(state=state, rows=len(expected)) == expected
        assert owner.numbers(state=state, after=number(10)) == [n + 10 for n in expected]

    def test_a_changed_state_moves_a_message_to_other_pages(self, owner: Owner) -> None:
        put(owner, message(1, state=DEFERRED))
        owner.commit(updates=[Update(MAIN, number(1), ACTIVE, 0, None, None)])
        assert owner.numbers(state=DEFERRED) == []
        assert owner.numbers(state=ACTIVE) == [number(1)]

    def test_pages_of_all_states_are_in_order_and_limited(self, owner: Owner) -> None:
        states = [SCHEDULED, ACTIVE, ACTIVE, DEFERRED, ACTIVE, SCHEDULED]
        put(owner, *(message(counter, state=each) for counter, each in enumerate(states, 1)))
        assert owner.numbers(state=None, rows=4) == [number(counter) for counter in (1, 2, 3, 4)]
        assert owner.numbers(state=None, after=number(3), size=200) == [number(4), number(5)]

    def test_sub_queues_do_not_see_each_other(self, owner: Owner) -> None:
        put(owner, message(1), message(3))
        put(owner, message(2), slot=DEAD)
        assert owner.numbers(MAIN) == [number(1), number(3)]
        assert owner.numbers(DEAD) == [number(2)]

    def test_a_slot_that_is_not_there_is_empty(self, owner: Owner) -> None:
        assert owner.numbers(99) == []
        assert owner.store.read_numbers(99, [number(1)]) == []


class TestNumbers:
    def test_they_come_in_the_order_asked(self, owner: Owner) -> None:
        put(owner, *(message(counter) for counter in range(1, 6)))
        asked = [number(counter) for counter in (4, 1, 5)]
        assert [read.number for read in owner.store.read_numbers(MAIN, asked)] == asked

    def test_those_that_are_not_there_are_left_out(self, owner: Owner) -> None:
        put(owner, message(2), message(3, state=DEFERRED))
        put(owner, message(7), slot=DEAD)
        elsewhere = sequence_number(PARTITION + 1, 2)
        asked = [number(7), number(3), elsewhere, 2, -1, number(2)]
        read = owner.store.read_numbers(MAIN, asked)
        assert [each.number for each in read] == [number(3), number(2)]

    def test_none_asked_is_none_given(self, owner: Owner) -> None:
        assert owner.store.read_numbers(MAIN, []) == []

    def test_many_can_be_asked_for(self, owner: Owner) -> None:
        put(owner, *(message(counter) for counter in range(1, 1_501)))
        asked = [number(counter) for counter in range(1_500, 0, -1)]
        assert [read.number for read in owner.store.read_numbers(MAIN, asked)] == asked


class TestExpiry:
    def test_rows_are_in_the_order_of_time_slot_and_number(self, owner: Owner) -> None:
        put(owner, message(3, expires_ms=20), message(2, expires_ms=10), message(1, expires_ms=20))
        put(owner, message(5, expires_ms=10), slot=DEAD)
        assert list(owner.store.read_expiring(None, 100).rows) == [
            Expiring(10, MAIN, number(2)),
            Expiring(10, DEAD, number(5)),
            Expiring(20, MAIN, number(1)),
            Expiring(20, MAIN, number(3)),
        ]

    def test_only_what_is_due_is_given_and_the_next_is_named(self, owner: Owner) -> None:
        put(owner, message(1, expires_ms=10), message(2, expires_ms=11), message(3, expires_ms=30))
        page = owner.store.read_expiring(None, 11)
        assert [row.number for row in page.rows] == [number(1), number(2)]
        assert page.next_expires_ms == 30

    def test_nothing_due_still_names_the_next(self, owner: Owner) -> None:
        put(owner, message(1, expires_ms=10))
        page = owner.store.read_expiring(None, 9)
        assert (list(page.rows), page.next_expires_ms) == ([], 10)

    def test_behind_the_last_row_there_is_none(self, owner: Owner) -> None:
        put(owner, message(1, expires_ms=10))
        assert owner.store.read_expiring(None, 10).next_expires_ms is None
        assert owner.store.read_expiring(Expiring(10, MAIN, number(1)), 10).rows == []

    def test_it_can_be_paged_through(self, owner: Owner) -> None:
        put(owner, *(message(counter, expires_ms=counter // 4) for counter in range(1, 21)))
        seen: list[int] = []
        after: Expiring | None = None
        while True:
            page = owner.store.read_expiring(after, 100, rows=3)
            assert len(page.rows) <= 3
            seen += [row.number for row in page.rows]
            if page.next_expires_ms is None:
                break
            after = page.rows[-1]
        assert seen == [number(counter) for counter in range(1, 21)]

    def test_a_page_that_is_full_says_when_the_row_behind_it_is_due(self, owner: Owner) -> None:
        put(owner, message(1, expires_ms=10), message(2, expires_ms=10), message(3, expires_ms=11))
        assert owner.store.read_expiring(None, 50, rows=1).next_expires_ms == 10
        assert owner.store.read_expiring(None, 50, rows=2).next_expires_ms == 11

    def test_scheduled_messages_are_in_it_with_the_time_that_they_are_due(
        self, owner: Owner
    ) -> None:
        put(
            owner,
            message(1, expires_ms=20),
            message(2, state=SCHEDULED, expires_ms=20),
            message(3, expires_ms=20),
            message(4, state=SCHEDULED, expires_ms=10),
        )
        rows = [Expiring(10, MAIN, number(4))]
        rows += [Expiring(20, MAIN, number(counter)) for counter in (1, 2, 3)]
        assert list(owner.store.read_expiring(None, 20).rows) == rows
        for index, row in enumerate(rows):
            assert list(owner.store.read_expiring(row, 20).rows) == rows[index + 1 :]

    def test_messages_without_expiry_are_not_in_it(self, owner: Owner) -> None:
        put(owner, message(1))
        assert owner.store.read_expiring(None, 2**62).rows == []

    def test_updates_and_moves_put_messages_in_and_take_them_out(self, owner: Owner) -> None:
        put(owner, message(1, expires_ms=10), message(2, expires_ms=11), message(3))
        owner.commit(
            moves=[dead_letter(1)],
            updates=[
                Update(MAIN, number(2), DEFERRED, 0, None, None),
                Update(MAIN, number(3), ACTIVE, 0, 44, None),
            ],
        )
        assert list(owner.store.read_expiring(None, 100).rows) == [Expiring(44, MAIN, number(3))]

    def test_deleted_messages_leave_it(self, owner: Owner) -> None:
        put(owner, message(1, expires_ms=10))
        owner.commit(deletes=[Delete(MAIN, number(1))])
        assert owner.store.read_expiring(None, 100).rows == []

    def test_a_row_that_is_gone_can_still_be_paged_from(self, owner: Owner) -> None:
        put(owner, message(1, expires_ms=10), message(2, expires_ms=10))
        after = owner.store.read_expiring(None, 10, rows=1).rows[0]
        owner.commit(deletes=[Delete(MAIN, number(1))])
        assert [row.number for row in owner.store.read_expiring(after, 10).rows] == [number(2)]


class TestPurging:
    def test_a_purge_forgets_a_step_of_rows_at_a_time(self, owner: Owner) -> None:
        total = PURGE_ROWS + 300
        for start in range(1, total, 500):
            put(owner, *(message(c, expires_ms=5) for c in range(start, min(start + 500, total))))
        put(owner, message(1), slot=DEAD)
        owner.commit(purges=[MAIN])
        assert owner.numbers(rows=1) == [number(PURGE_ROWS + 1)]
        assert [record.slot for record in owner.store.open().sub_queues] == [MAIN, DEAD]
        owner.commit(purges=[MAIN])
        assert owner.numbers() == []
        assert [record.slot for record in owner.store.open().sub_queues] == [DEAD]
        assert owner.store.read_expiring(None, 100).rows == []
        assert owner.numbers(DEAD) == [number(1)]

    def test_a_sub_queue_goes_with_its_last_row(self, owner: Owner) -> None:
        put(owner, message(1))
        owner.commit(purges=[MAIN, DEAD])
        assert list(owner.store.open().sub_queues) == []

    def test_purging_what_is_gone_is_nothing(self, owner: Owner) -> None:
        owner.commit(purges=[MAIN, 99])
        owner.commit(purges=[MAIN])
        assert owner.store.open().commit_number == 3

    def test_nothing_can_be_put_where_a_sub_queue_was_purged(self, owner: Owner) -> None:
        owner.commit(purges=[MAIN])
        with pytest.raises(CommitRefused):
            put(owner, message(1))

    def test_a_purged_slot_can_be_used_again(self, owner: Owner) -> None:
        put(owner, message(1))
        owner.commit(purges=[MAIN])
        key = SubQueueKey(8, 0, SubQueueKind.MAIN)
        owner.commit(sub_queues=[(MAIN, key)], puts=[(MAIN, message(0, number=5))])
        assert owner.numbers() == [5]

    def test_a_purge_counts_with_the_rest_of_its_batch(self, owner: Owner) -> None:
        put(owner, message(1))
        owner.commit(
            puts=[(DEAD, message(2))], counters={MAIN: Counters(2), DEAD: Counters()}, purges=[MAIN]
        )
        assert owner.numbers(DEAD) == [number(2)]
        assert [record.slot for record in owner.store.open().sub_queues] == [DEAD]


def test_room_is_a_number_or_without_limit(owner: Owner) -> None:
    free = owner.store.free_bytes()
    assert free is None or free > 0
