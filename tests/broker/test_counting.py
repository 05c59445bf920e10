"""What a broker counts since its start: raised by commits, exact through a store's loss."""

from __future__ import annotations

from busway.broker.counting import (
    COMMIT_BOUNDS_MS,
    WAIT_STEPS,
    CommitTimes,
    Movements,
    Waits,
)
from busway.model.entities import Entity
from busway.model.errors import BusError
from busway.store.base import SubQueueKey, SubQueueKind
from busway.store.faults import CommitOutcome
from tests.broker.several_entities import DLQ, MAIN, SeveralEntities, key_of
from tests.broker.single_queue import ABANDON, ACCEPTED, DEAD_LETTER, SingleQueue


def movements(orders: SingleQueue, kind: SubQueueKind = MAIN) -> Movements:
    return orders.broker.movements(orders.queue.incarnation, 0)[kind]


def of(house: SeveralEntities, entity: Entity, kind: SubQueueKind = MAIN) -> Movements:
    return house.broker_of(entity).movements(entity.incarnation, 0)[kind]


def test_sends_and_both_ways_of_receiving_are_counted(orders: SingleQueue) -> None:
    orders.send("a", "b")
    orders.send("c")
    orders.settle(orders.receive_one())
    orders.receive(1, delete=True)
    assert movements(orders).sent == 3
    assert movements(orders).received == 2


def test_dead_letters_are_counted_where_they_come_from_and_received_where_they_are(
    orders: SingleQueue,
) -> None:
    orders.send("a")
    orders.settle(orders.receive_one(), DEAD_LETTER)
    assert movements(orders).dead_lettered == 1
    assert movements(orders).received == 0
    (dead,) = orders.dead_letters()
    orders.settle(dead, kind=DLQ)
    assert movements(orders, DLQ).received == 1


def test_abandoned_messages_and_expired_locks_are_told_apart() -> None:
    orders = SingleQueue(lock_duration_ms=5_000)
    orders.send("a")
    orders.settle(orders.receive_one(), ABANDON)
    orders.receive_one()
    orders.run(6_000)
    assert (movements(orders).abandoned, movements(orders).locks_expired) == (1, 1)


def test_what_expires_is_not_received() -> None:
    for dead_lettering in (False, True):
        orders = SingleQueue(dead_lettering_on_expiration=dead_lettering)
        orders.send("a", ttl_ms=1_000)
        orders.run(10_000)
        assert orders.counters().active == 0
        counted = movements(orders)
        assert (counted.expired, counted.received) == (1, 0)
        assert counted.dead_lettered == int(dead_lettering)


def test_duplicates_are_counted_alone_and_among_others(house: SeveralEntities) -> None:
    queue = house.queue(requires_duplicate_detection=True)
    house.send(queue, "first", message_id="1")
    house.send(queue, "again", message_id="1")
    house.send(queue, "both", "again", message_id="2")
    assert of(house, queue).duplicates == 2
    assert of(house, queue).sent == 2


def test_a_topic_counts_what_is_sent_and_each_subscription_its_copies(
    house: SeveralEntities,
) -> None:
    topic = house.topic()
    first, second = (house.subscription(topic, name) for name in ("first", "second"))
    house.send(topic, "a", "b")
    assert of(house, topic).sent == 2
    assert (of(house, first).sent, of(house, second).sent) == (2, 2)


def test_a_scheduled_message_is_sent_once_and_activated_once(house: SeveralEntities) -> None:
    topic, queue = house.topic(), house.queue()
    copies = house.subscription(topic, "all")
    for entity in (topic, queue):
        house.send(entity, "later", at_ms=house.now_ms() + 5_000)
        house.run(10_000)
        counted = of(house, entity)
        assert (counted.sent, counted.activated, counted.received) == (1, 1, 0)
    assert of(house, copies).sent == 1


def test_a_cancelled_message_is_discarded(house: SeveralEntities) -> None:
    queue = house.queue()
    house.send(queue, "never", at_ms=house.now_ms() + 60_000)
    (scheduled,) = house.peek(queue)
    assert house.cancel(queue, scheduled.number) == ACCEPTED
    assert (of(house, queue).discarded, of(house, queue).received) == (1, 0)


def test_a_transfer_queue_receives_what_it_hands_over(house: SeveralEntities) -> None:
    target = house.queue("target")
    source = house.queue("source", forward_to="target")
    house.send(source, "a")
    house.run(1_000)
    assert of(house, source, SubQueueKind.TRANSFER).received == 1
    assert of(house, target).sent == 1


def test_fwd_4_what_cannot_be_forwarded_is_dead_lettered(house: SeveralEntities) -> None:
    target = house.queue("target")
    source = house.queue("source", forward_to="target")
    house.delete(target)
    house.send(source, "a")
    house.run(1_000)
    transfers = of(house, source, SubQueueKind.TRANSFER)
    assert (transfers.dead_lettered, transfers.received) == (1, 0)


def test_a_commit_that_is_refused_counts_nothing(orders: SingleQueue) -> None:
    orders.send("a")
    orders.store.next_commits_end(CommitOutcome.REFUSED)
    orders.start_send("b")
    orders.run()
    assert movements(orders).sent == 1
    assert orders.broker.commit_times.failed == 1


def test_d_3_what_an_unknown_outcome_turns_out_to_be_decides(orders: SingleQueue) -> None:
    """The counts outlive the memory that is dropped with the store."""
    orders.send("a")
    for outcome in (CommitOutcome.UNKNOWN_DONE, CommitOutcome.UNKNOWN_NOT_DONE):
        orders.store.next_commits_end(outcome)
        orders.start_send("b")
        orders.run(2_000)
    assert orders.counters().active == 2
    assert movements(orders).sent == 2


def test_a_deleted_entity_is_forgotten(house: SeveralEntities) -> None:
    queue = house.queue()
    house.send(queue, "a")
    broker = house.broker_of(queue)
    house.delete(queue)
    broker.purge(queue.incarnation, lambda: None)
    house.run(2_000)
    assert broker.movements(queue.incarnation, 0) == {}


def test_every_commit_is_timed(orders: SingleQueue) -> None:
    before = sum(orders.broker.commit_times.counts)
    orders.send("a")
    orders.send("b")
    times = orders.broker.commit_times
    assert sum(times.counts) == before + 2
    assert times.total_ms > 0


def test_a_bound_is_part_of_its_bucket() -> None:
    times = CommitTimes()
    for duration_ms in (0, *COMMIT_BOUNDS_MS, COMMIT_BOUNDS_MS[-1] + 1):
        times.took(duration_ms)
    assert times.counts == [2, *[1] * len(COMMIT_BOUNDS_MS)]


# The oldest message


def oldest(house: SeveralEntities, *keys: SubQueueKey) -> dict[SubQueueKey, int]:
    (store,) = house.world.stores.values()
    found: list[dict[SubQueueKey, int] | BusError] = []
    store.broker.oldest(keys, found.append)
    house.run()
    (answer,) = found
    assert not isinstance(answer, BusError)
    return answer


def test_the_oldest_is_told_of_what_is_not_empty(house: SeveralEntities) -> None:
    queue, empty = house.queue(), house.queue("empty")
    house.send(queue, "a")
    (first,) = house.peek(queue)
    house.send(queue, "b")
    keys = [key_of(queue), key_of(queue, DLQ), key_of(empty)]
    assert oldest(house, *keys) == {key_of(queue): first.enqueued_ms}


def test_the_oldest_may_be_locked_or_only_in_the_store_or_of_a_session(
    house: SeveralEntities,
) -> None:
    locked, stored = house.queue("locked"), house.queue("stored")
    sessions = house.queue("sessions", requires_session=True)
    expected = {}
    for queue in (locked, stored, sessions):
        house.send(queue, "a", session_id="one")
        expected[key_of(queue)] = house.peek(queue)[0].enqueued_ms
        house.send(queue, "b", session_id="two")
    house.crash(stored)
    house.receive_one(locked)
    assert oldest(house, *expected) == expected


# A probe


def test_a_probe_comes_back_from_a_store_that_serves(orders: SingleQueue) -> None:
    found: list[BusError | None] = []
    orders.broker.probe(found.append)
    assert found == []
    orders.run()
    assert found == [None]


def test_a_probe_of_a_store_that_hangs_does_not_come_back_until_it_does(
    orders: SingleQueue,
) -> None:
    orders.store.hang()
    found: list[BusError | None] = []
    orders.broker.probe(found.append)
    orders.run(2_000)
    assert found == []
    orders.store.recover()
    orders.run(1_000)
    assert found == [None]


def test_waits_of_what_was_received_are_counted_from_enqueued_on(orders: SingleQueue) -> None:
    orders.send("a")
    orders.run(3_000)
    orders.settle(orders.receive_one())
    waits = movements(orders).waits
    assert waits is not None
    assert 3_000 <= waits.total_ms < 4_096
    assert waits.counts[12] == sum(waits.counts) == 1  # below 2 ** 12 ms, above half of that


def test_what_is_discarded_has_not_waited_for_a_receiver(orders: SingleQueue) -> None:
    orders.send("a", "b")
    orders.run(1_000)
    found: list[int | BusError] = []
    orders.broker.delete_batch(orders.key(), 10, orders.now_ms(), None, found.append)
    orders.run()
    assert found == [2]
    waits = movements(orders).waits
    assert waits is not None
    assert (sum(waits.counts), waits.total_ms) == (0, 0)


def test_a_wait_that_no_step_holds_is_in_the_last_one() -> None:
    waits = Waits()
    for wait_ms in (-5, 0, 1, 2, 3, 1 << 40):
        waits.took(wait_ms)
    assert waits.counts[:3] == [2, 1, 2]
    assert waits.counts[-1] == 1
    assert len(waits.counts) == WAIT_STEPS
