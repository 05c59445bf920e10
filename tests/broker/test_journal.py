"""D-31: what a broker tells of captured entities, and that it does so in the same commit."""

from __future__ import annotations

from typing import Any

import pytest

from busway.broker.seams import Settlement, SettlementKind
from busway.broker.transactions import Transaction
from busway.model.entities import Entity
from busway.model.errors import BusError
from busway.model.journal import JournalEvent
from busway.model.names import SubQueueKind
from busway.store.faults import CommitOutcome
from busway.store.journal import JournalHead, JournalRecord, JournalRow
from tests.broker.several_entities import DLQ, SeveralEntities, key_of, message
from tests.broker.single_queue import ABANDON, ACCEPTED, DEAD_LETTER, DEFER, RELEASE

TRANSFER = SubQueueKind.TRANSFER


def rows(house: SeveralEntities, entity: Entity) -> list[JournalRow]:
    """All that is told of partition 0, once what rides along has been committed."""
    house.run(1_000)
    handle = house.store_of(entity).medium.journal_handle()
    head = handle.head(key_of(entity)) or JournalHead()
    found = handle.read(key_of(entity), head.earliest, head.next_offset).rows()
    offsets = [row.record.offset for row in found]
    assert offsets == list(range(head.earliest, head.next_offset)), "offsets are dense"
    times = [row.record.time_ms for row in found]
    assert times == sorted(times), "times never fall"
    assert head.bytes == sum(row.record.bytes for row in found)
    return found


def told(house: SeveralEntities, entity: Entity) -> list[JournalRecord]:
    return [row.record for row in rows(house, entity)]


def words(house: SeveralEntities, entity: Entity) -> list[str]:
    return [record.event.word for record in told(house, entity)]


def last(house: SeveralEntities, entity: Entity) -> JournalRecord:
    return told(house, entity)[-1]


class TestTheSwitch:
    def test_an_entity_that_is_not_captured_has_no_journal(self, house: SeveralEntities) -> None:
        queue = house.queue()
        house.send(queue, "one")
        house.settle(queue, house.receive_one(queue))
        assert rows(house, queue) == []
        assert list(house.broker_of(queue).journals) == []

    def test_it_is_captured_from_the_moment_of_the_switch(self, house: SeveralEntities) -> None:
        queue = house.queue()
        house.send(queue, "before")
        house.update(queue, capture=True)
        switched_ms = house.now_ms()
        house.send(queue, "after")
        assert words(house, queue) == ["enqueued"]
        newest = house.world.catalog.get(queue.incarnation)
        assert newest is not None
        assert newest.captured_ms == switched_ms

    def test_what_was_there_before_is_told_of_without_its_arrival(
        self, house: SeveralEntities
    ) -> None:
        queue = house.queue()
        house.send(queue, "before")
        house.update(queue, capture=True)
        house.settle(queue, house.receive_one(queue))
        assert words(house, queue) == ["delivered", "completed"]

    def test_switched_off_it_keeps_what_was_told(self, house: SeveralEntities) -> None:
        queue = house.queue(capture=True)
        house.send(queue, "one")
        house.update(queue, capture=False)
        house.send(queue, "two")
        house.update(queue, capture=True)
        house.send(queue, "three")
        assert [row.bare is not None for row in rows(house, queue)] == [True, True]

    def test_it_goes_on_after_a_restart(self, house: SeveralEntities) -> None:
        queue = house.queue(capture=True)
        house.send(queue, "one")
        house.crash(queue)
        house.send(queue, "two")
        assert [record.offset for record in told(house, queue)] == [0, 1]


class TestEvents:
    def test_a_message_that_is_completed(self, house: SeveralEntities) -> None:
        queue = house.queue(capture=True)
        house.send(queue, "hello", session_id=None, message_id="m-1", user={"a": 1})
        delivered = house.receive_one(queue)
        house.settle(queue, delivered)
        found = rows(house, queue)
        assert [row.record.event.word for row in found] == ["enqueued", "delivered", "completed"]
        assert {row.record.number for row in found} == {delivered.number}
        assert [row.record.lock_token for row in found] == [None, *[delivered.token] * 2]
        assert found[0].bare is not None
        assert b"hello" in found[0].bare
        content = found[0].record.content
        assert content is not None
        assert content.enqueued_ms == delivered.enqueued_ms
        assert [row.record.content for row in found[1:]] == [None, None]

    def test_the_body_outlives_the_message_and_goes_with_the_journal(
        self, house: SeveralEntities
    ) -> None:
        queue = house.queue(capture=True)
        house.send(queue, "hello")
        assert list(house.store_of(queue).medium._copies.values()) == [2]
        house.settle(queue, house.receive_one(queue))
        assert list(house.store_of(queue).medium._copies.values()) == [1]

    def test_abandoned_then_too_often(self, house: SeveralEntities) -> None:
        queue = house.queue(capture=True, max_delivery_count=2)
        house.send(queue, "one")
        house.settle(queue, house.receive_one(queue), ABANDON)
        house.settle(queue, house.receive_one(queue), ABANDON)
        found = told(house, queue)
        assert [(each.event.word, each.delivery_count) for each in found] == [
            ("enqueued", 0),
            ("delivered", 0),
            ("abandoned", 1),
            ("delivered", 1),
            ("abandoned", 2),
            ("dead_lettered", 2),
        ]
        assert found[-1].reason == "MaxDeliveryCountExceeded"
        assert found[-1].kind is DLQ

    def test_a_lock_that_runs_out_is_an_abandon_with_its_reason(
        self, house: SeveralEntities
    ) -> None:
        queue = house.queue(capture=True, lock_duration_ms=5_000)
        house.send(queue, "one")
        house.receive_one(queue)
        house.run(6_000)
        assert (last(house, queue).event.word, last(house, queue).reason) == (
            "abandoned",
            "LockExpired",
        )

    def test_a_release_is_no_event(self, house: SeveralEntities) -> None:
        """D-5: nothing is committed for it."""
        queue = house.queue(capture=True)
        house.send(queue, "one")
        house.settle(queue, house.receive_one(queue), RELEASE)
        house.receive_one(queue)
        assert words(house, queue) == ["enqueued", "delivered", "delivered"]

    def test_deferred_received_by_number_and_completed(self, house: SeveralEntities) -> None:
        queue = house.queue(capture=True)
        house.send(queue, "one", "two")
        first, second = house.receive(queue)
        house.settle(queue, first, DEFER)
        house.settle(queue, second, DEFER)
        again = house.receive_deferred(queue, first.number)
        assert not isinstance(again, str)
        house.settle(queue, again[0])
        house.receive_deferred(queue, second.number, delete=True)
        assert words(house, queue)[4:] == [
            "deferred",
            "deferred",
            "delivered",
            "completed",
            "completed",
        ]
        assert last(house, queue).lock_token is None

    def test_receive_and_delete_completes_without_a_lock(self, house: SeveralEntities) -> None:
        queue = house.queue(capture=True)
        house.send(queue, "one", "two")
        house.receive(queue, delete=True)
        assert words(house, queue) == ["enqueued", "enqueued", "completed", "completed"]

    def test_a_dead_letter_with_its_reason_and_its_end(self, house: SeveralEntities) -> None:
        queue = house.queue(capture=True)
        house.send(queue, "one")
        why = {"DeadLetterReason": "bad", "DeadLetterErrorDescription": "very"}
        settlement = Settlement(SettlementKind.DEAD_LETTER, why)
        house.settle(queue, house.receive_one(queue), settlement)
        (dead,) = house.dead_letters(queue)
        house.settle(queue, dead, kind=DLQ)
        found = told(house, queue)[2:]
        assert [(each.event.word, each.kind) for each in found] == [
            ("dead_lettered", DLQ),
            ("delivered", DLQ),
            ("completed", DLQ),
        ]
        assert (found[0].reason, found[0].description) == ("bad", "very")

    @pytest.mark.parametrize(
        ("to_dead_letters", "expected", "reason"),
        [(False, "expired", None), (True, "dead_lettered", "TTLExpiredException")],
    )
    def test_expiry(
        self, house: SeveralEntities, to_dead_letters: bool, expected: str, reason: str | None
    ) -> None:
        queue = house.queue(capture=True, dead_lettering_on_expiration=to_dead_letters)
        house.send(queue, "one", ttl_ms=1_000)
        house.run(3_000)
        assert (last(house, queue).event.word, last(house, queue).reason) == (expected, reason)

    def test_expiry_of_one_that_comes_back(self, house: SeveralEntities) -> None:
        """TTL-5: the delivery ends first, then the message."""
        queue = house.queue(capture=True)
        house.send(queue, "one", ttl_ms=1_000)
        delivered = house.receive_one(queue)
        house.run(3_000)
        house.settle(queue, delivered, ABANDON)
        assert words(house, queue)[2:] == ["abandoned", "expired"]

    def test_scheduled_becomes_enqueued_under_a_new_number(self, house: SeveralEntities) -> None:
        queue = house.queue(capture=True)
        house.send(queue, "later", at_ms=house.now_ms() + 5_000)
        house.run(6_000)
        first, second = rows(house, queue)
        assert (first.record.event.word, second.record.event.word) == ("scheduled", "enqueued")
        assert second.record.related_number == first.record.number != second.record.number
        assert first.bare == second.bare
        assert list(house.store_of(queue).medium._copies.values()) == [3]

    def test_scheduled_before_it_was_captured(self, house: SeveralEntities) -> None:
        """Its row is in the store with a body of its own: the journal keeps another."""
        queue = house.queue()
        house.send(queue, "later", at_ms=house.now_ms() + 5_000)
        house.update(queue, capture=True)
        house.run(6_000)
        (row,) = rows(house, queue)
        assert row.bare is not None
        assert b"later" in row.bare
        assert house.receive_one(queue).text == "later"
        house.crash(queue)
        assert house.receive_one(queue).text == "later"

    def test_cancelled(self, house: SeveralEntities) -> None:
        queue = house.queue(capture=True)
        house.send(queue, "later", at_ms=house.now_ms() + 50_000)
        assert house.cancel(queue, told(house, queue)[0].number) == ACCEPTED
        assert words(house, queue) == ["scheduled", "cancelled"]

    def test_a_transaction_that_schedules_tells_the_number_that_its_client_has(
        self, house: SeveralEntities
    ) -> None:
        queue = house.queue(capture=True)
        key = key_of(queue)
        (number,) = house.broker_of(queue).reserve_numbers(key, 1)
        later = message("later", at_ms=house.now_ms() + 50_000)
        work = Transaction(b"one", schedules=[(key, [later], [number])])
        assert house.transact(queue, work) == ACCEPTED
        assert [record.number for record in told(house, queue)] == [number]

    def test_duplicates(self, house: SeveralEntities) -> None:
        queue = house.queue(capture=True, requires_duplicate_detection=True)
        house.send(queue, "one", message_id="m-1")
        house.send(queue, "again", message_id="m-1")
        house.send(queue, message("x", message_id="m-2"), message("y", message_id="m-1"))
        found = rows(house, queue)
        assert [row.record.event.word for row in found] == [
            "enqueued",
            "duplicate_dropped",
            "duplicate_dropped",
            "enqueued",
        ]
        assert found[1].record.number == 0
        assert found[1].bare is not None
        assert b"m-1" in found[1].bare
        assert b"again" not in found[1].bare

    def test_a_batch_delete_purges(self, house: SeveralEntities) -> None:
        queue = house.queue(capture=True)
        house.send(queue, "one", "two")
        counts: list[int | BusError] = []
        house.broker_of(queue).delete_batch(
            key_of(queue), 10, house.now_ms() + 1, None, counts.append
        )
        house.run()
        assert counts == [2]
        assert words(house, queue)[2:] == ["purged", "purged"]

    def test_forwarded(self, house: SeveralEntities) -> None:
        target = house.queue("target", capture=True)
        queue = house.queue(capture=True, forward_to="target")
        house.send(queue, "one")
        found = told(house, queue)
        assert [(each.event.word, each.kind) for each in found] == [
            ("enqueued", TRANSFER),
            ("forwarded", TRANSFER),
        ]
        assert found[1].description == "target"
        (arrived,) = told(house, target)
        assert arrived.content is not None
        assert arrived.content.enqueued_number == found[0].number

    def test_a_dead_letter_that_is_forwarded(self, house: SeveralEntities) -> None:
        house.queue("morgue")
        queue = house.queue(capture=True, forward_dead_letters_to="morgue")
        house.send(queue, "one")
        house.settle(queue, house.receive_one(queue), DEAD_LETTER)
        dead, gone = told(house, queue)[2:]
        assert (dead.event.word, gone.event.word) == ("dead_lettered", "forwarded")
        assert dead.related_number == gone.number != dead.number

    def test_forwarding_that_fails_is_a_dead_letter(self, house: SeveralEntities) -> None:
        target = house.queue("target")
        queue = house.queue(capture=True, forward_to="target")
        house.delete(target)
        house.run()
        house.send(queue, "one")
        assert words(house, queue) == ["enqueued", "dead_lettered"]
        assert (last(house, queue).kind, last(house, queue).lock_token) == (DLQ, None)

    def test_a_transaction_by_way_of_an_entity(self, house: SeveralEntities) -> None:
        house.queue("target")
        queue = house.queue(capture=True)
        sent = message("one")
        sent.destination = "target"
        work = Transaction(b"one", transfers=[(key_of(queue), [sent])])
        assert house.transact(queue, work) == ACCEPTED
        assert words(house, queue) == ["enqueued", "forwarded"]


class TestTopics:
    def test_a_topic_tells_of_arrivals_and_a_subscription_of_its_copies(
        self, house: SeveralEntities
    ) -> None:
        topic = house.topic(capture=True)
        first = house.subscription(topic, "first", capture=True)
        second = house.subscription(topic, "second")
        house.send(topic, "news")
        house.settle(first, house.receive_one(first))
        assert words(house, topic) == ["enqueued"]
        assert words(house, first) == ["enqueued", "delivered", "completed"]
        assert words(house, second) == []
        copy = told(house, first)[0].content
        assert copy is not None
        assert copy.enqueued_number == told(house, topic)[0].number

    def test_one_body_for_all_of_them(self, house: SeveralEntities) -> None:
        topic = house.topic(capture=True)
        for name in ("first", "second"):
            house.subscription(topic, name, capture=True)
        house.send(topic, "news")
        assert list(house.store_of(topic).medium._copies.values()) == [5]

    def test_a_topic_without_subscriptions(self, house: SeveralEntities) -> None:
        topic = house.topic(capture=True)
        house.send(topic, "news")
        (row,) = rows(house, topic)
        assert row.bare is not None
        assert b"news" in row.bare

    def test_scheduled_on_a_topic(self, house: SeveralEntities) -> None:
        topic = house.topic(capture=True)
        only = house.subscription(topic, "only", capture=True)
        house.send(topic, "later", at_ms=house.now_ms() + 5_000)
        house.run(6_000)
        first, second = told(house, topic)
        assert (first.event.word, second.event.word) == ("scheduled", "enqueued")
        assert second.related_number == first.number
        assert words(house, only) == ["enqueued"]
        assert house.receive_one(only).text == "later"

    def test_a_copy_that_is_dead_on_arrival(self, house: SeveralEntities) -> None:
        topic = house.topic()
        only = house.subscription(topic, "only", capture=True, requires_session=True)
        house.send(topic, "without a session")
        found = told(house, only)
        assert [each.event.word for each in found] == ["enqueued", "dead_lettered"]
        assert found[1].reason == "Session id is null."


class TestCommits:
    """In the same commit as the change, or not at all."""

    @pytest.mark.parametrize("outcome", [CommitOutcome.REFUSED, CommitOutcome.UNKNOWN_NOT_DONE])
    def test_a_commit_that_was_not_done_leaves_no_trace_and_no_gap(
        self, house: SeveralEntities, outcome: CommitOutcome
    ) -> None:
        queue = house.queue(capture=True)
        house.send(queue, "one")
        house.store_of(queue).next_commits_end(outcome)
        command = house.start_send(queue, "lost")
        house.run(1_000)
        assert command.outcome != ACCEPTED
        house.send(queue, "two")
        found = rows(house, queue)
        assert [b"lost" in (row.bare or b"") for row in found] == [False, False]

    def test_a_commit_that_was_done_although_nobody_knew(self, house: SeveralEntities) -> None:
        queue = house.queue(capture=True)
        house.store_of(queue).next_commits_end(CommitOutcome.UNKNOWN_DONE)
        command = house.start_send(queue, "one")
        house.run(1_000)
        assert command.outcome == ACCEPTED
        house.send(queue, "two")
        assert words(house, queue) == ["enqueued", "enqueued"]

    def test_a_message_that_was_refused_can_be_sent_elsewhere(self, house: SeveralEntities) -> None:
        """P-23: the same object; what was to be its shared body is not."""
        queue, other = house.queue(capture=True), house.queue("other")
        house.store_of(queue).next_commits_end(CommitOutcome.REFUSED)
        sent = message("one")
        assert house.start_send(queue, sent) is not None
        house.run(1_000)
        house.send(other, sent)
        house.send(queue, message("two"))
        assert house.receive_one(other).text == "one"

    def test_a_delivery_does_not_wait_for_a_commit_and_makes_none(
        self, house: SeveralEntities
    ) -> None:
        queue = house.queue(capture=True)
        house.send(queue, "one")
        store = house.store_of(queue)
        before = store.medium.commit_number
        house.receive_one(queue)
        assert store.medium.commit_number == before
        house.run(1_000)
        assert store.medium.commit_number == before + 1
        assert words(house, queue) == ["enqueued", "delivered"]

    def test_it_rides_along_with_the_next_commit(self, house: SeveralEntities) -> None:
        queue = house.queue(capture=True)
        house.send(queue, "one")
        house.settle(queue, house.receive_one(queue))
        before = house.store_of(queue).medium.commit_number
        assert words(house, queue) == ["enqueued", "delivered", "completed"]
        assert house.store_of(queue).medium.commit_number == before

    def test_a_delivery_is_told_although_the_commit_that_it_rode_on_was_refused(
        self, house: SeveralEntities
    ) -> None:
        queue = house.queue(capture=True)
        house.send(queue, "one")
        delivered = house.receive_one(queue)
        house.store_of(queue).next_commits_end(CommitOutcome.REFUSED)
        assert house.settle(queue, delivered) != ACCEPTED
        house.run(100)
        assert house.settle(queue, delivered) == ACCEPTED
        assert words(house, queue) == ["enqueued", "delivered", "completed"]

    def test_a_crash_may_cut_off_a_delivery(self, house: SeveralEntities) -> None:
        queue = house.queue(capture=True)
        house.send(queue, "one")
        house.receive_one(queue)
        house.crash(queue)
        house.settle(queue, house.receive_one(queue))
        assert words(house, queue) == ["enqueued", "delivered", "completed"]

    def test_an_orderly_stop_cuts_off_nothing(self, house: SeveralEntities) -> None:
        queue = house.queue(capture=True)
        house.send(queue, "one")
        house.receive_one(queue)
        store = house.store_of(queue)
        store.stop()
        house.world.run_until(lambda: not store.running)
        handle = store.medium.journal_handle()
        assert [row.record.event for row in handle.read(key_of(queue), 0, 9).rows()] == [
            JournalEvent.ENQUEUED,
            JournalEvent.DELIVERED,
        ]

    def test_a_deleted_entity_has_no_journal_any_more(self, house: SeveralEntities) -> None:
        queue: Any = house.queue(capture=True)
        house.send(queue, "one")
        house.receive_one(queue)
        house.delete(queue)
        house.run(5_000)
        medium = house.store_of(queue).medium
        assert medium.journal_handle().head(key_of(queue)) is None
        assert medium._copies == {}
        assert list(house.broker_of(queue).journals) == []
        again = house.queue(capture=True)
        house.send(again, "two")
        assert [record.offset for record in told(house, again)] == [0]
