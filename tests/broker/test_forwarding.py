"""FWD, DLQ-4: messages that an entity hands on, each of them once (D-27)."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from busway.broker.transactions import Transaction
from busway.model.entities import Entity, EntityStatus, Queue
from busway.model.errors import SERVER_BUSY, BusError
from busway.model.message import Message
from busway.store.base import SubQueueKind
from busway.store.faults import CommitOutcome, Fault
from tests.broker.several_entities import DLQ, SeveralEntities, key_of, message, texts
from tests.broker.single_queue import ABANDON, ACCEPTED, COMPLETE, DEAD_LETTER, DEFER

TRANSFER = SubQueueKind.TRANSFER
REASON = "DeadLetterReason"
DESCRIPTION = "DeadLetterErrorDescription"


def on_two_stores() -> tuple[SeveralEntities, Queue, Queue]:
    """A queue that forwards to one whose store is another."""
    house = SeveralEntities(stores=2)
    home = None
    for number in range(50):
        queue = house.queue(f"q{number}")
        if home is None:
            home = queue
        elif queue.placement != home.placement:
            house.update(queue, forward_to=home.path)
            return house, queue, home
    raise AssertionError("all queues have the same store")


def pair(house: SeveralEntities, **properties: object) -> tuple[Queue, Queue]:
    destination = house.queue("destination")
    return house.queue("source", forward_to="destination", **properties), destination


def is_empty(house: SeveralEntities, entity: Entity) -> bool:
    kinds = house.broker_of(entity).counters(entity.incarnation, 0)
    return all(each.active == 0 and each.bytes == 0 for each in kinds.values())


# --- The good case (FWD-1, FWD-2) ----------------------------------------------------------------


def test_fwd_1_what_is_sent_to_the_source_arrives_at_the_destination(
    house: SeveralEntities,
) -> None:
    source, destination = pair(house)
    house.send(source, "1", "2", session_id="s")
    house.send(source, "3", session_id="s")
    delivered = house.receive(destination)
    assert texts(delivered) == ["1", "2", "3"]
    assert {each.session_id for each in delivered} == {"s"}, "FWD-7: its keys go along"
    assert is_empty(house, source)


def test_fwd_1_nothing_runs_while_there_is_nothing_to_forward(house: SeveralEntities) -> None:
    source, _ = pair(house)
    house.send(source, "1")
    house.run(1_000)
    steps = house.world.scheduler.steps
    house.run(60_000)
    assert house.world.scheduler.steps - steps < 100


def test_fwd_2_it_keeps_its_first_number_and_gets_a_new_one(house: SeveralEntities) -> None:
    source, destination = pair(house)
    house.send(destination, "own")
    house.send(source, "a")
    house.run(1_000)
    house.send(source, "b")
    arrived_ms = house.now_ms()
    delivered = house.receive(destination)
    assert [(each.text, each.number, each.enqueued_number) for each in delivered] == [
        ("own", 1, 0),
        ("a", 2, 1),
        ("b", 3, 2),
    ]
    assert delivered[2].enqueued_ms <= arrived_ms


def test_fwd_2_its_time_to_live_begins_anew(house: SeveralEntities) -> None:
    house.queue("destination", default_ttl_ms=30_000)
    source = house.queue("source", forward_to="destination", default_ttl_ms=10_000)
    house.send(source, "1", ttl_ms=60_000)
    destination = house.world.catalog.find("destination")
    assert destination is not None
    (peeked,) = house.peek(destination)
    assert peeked.expires_ms == peeked.enqueued_ms + 30_000


def test_fwd_1_to_a_topic_it_is_fanned_out_there(house: SeveralEntities) -> None:
    topic = house.topic("news")
    subscriptions = [house.subscription(topic, name) for name in ("a", "b")]
    source = house.queue("source", forward_to="news")
    house.send(source, "1")
    house.run()
    assert [texts(house.receive(each)) for each in subscriptions] == [["1"], ["1"]]


def test_fwd_1_a_subscription_forwards_its_copies(house: SeveralEntities) -> None:
    destination = house.queue("destination")
    topic = house.topic("news")
    subscription = house.subscription(topic, "a", forward_to="destination")
    keeps = house.subscription(topic, "b")
    house.send(topic, "1")
    house.run()
    (arrived,) = house.receive(destination)
    assert (arrived.text, arrived.enqueued_number) == ("1", 1)
    assert texts(house.receive(keeps)) == ["1"]
    assert is_empty(house, subscription)


def test_dup_6_duplicates_are_looked_for_at_the_destination(house: SeveralEntities) -> None:
    destination = house.queue("destination", requires_duplicate_detection=True)
    sources = [house.queue(f"source{n}", forward_to="destination") for n in range(2)]
    for source in sources:
        house.send(source, source.path, message_id="1")
        house.run()
    house.crash(destination)
    house.send(sources[0], "again", message_id="1")
    house.run()
    assert texts(house.receive(destination)) == ["source0"]
    assert is_empty(house, sources[0])


def test_sch_1_a_scheduled_message_is_forwarded_when_it_becomes_active(
    house: SeveralEntities,
) -> None:
    source, destination = pair(house)
    house.send(source, "later", at_ms=house.now_ms() + 60_000)
    house.run(1_000)
    assert house.peek(destination) == []
    house.run(60_000)
    assert texts(house.receive(destination)) == ["later"]


def test_ses_1_a_message_without_session_is_dead_lettered_where_it_arrives(
    house: SeveralEntities,
) -> None:
    destination = house.queue("destination", requires_session=True)
    source = house.queue("source", forward_to="destination")
    house.send(source, "none")
    house.send(source, "some", session_id="a")
    house.run()
    assert texts(house.receive(destination, holder=house.hold(destination))) == ["some"]
    assert texts(house.dead_letters(destination)) == ["none"]


def test_fwd_1_thousands_arrive_once_and_in_order(house: SeveralEntities) -> None:
    source, destination = pair(house)
    expected = [str(number) for number in range(3_000)]
    for start in range(0, 3_000, 250):
        house.start_send(
            source, *(message(body, size=10) for body in expected[start : start + 250])
        )
    house.run(5_000)
    assert is_empty(house, source)
    assert texts(house.receive(destination, 4_000)) == expected


# --- Hops (FWD-3) --------------------------------------------------------------------------------


def chain(house: SeveralEntities, length: int) -> list[Queue]:
    """From the first to the last, each forwards to the next."""
    queues = [house.queue(f"q{length - 1}")]
    for position in reversed(range(length - 1)):
        queues.insert(0, house.queue(f"q{position}", forward_to=f"q{position + 1}"))
    return queues


def test_fwd_3_four_hops_are_allowed(house: SeveralEntities) -> None:
    queues = chain(house, 5)
    house.send(queues[0], "1")
    house.run(1_000)
    (arrived,) = house.receive(queues[4])
    assert (arrived.text, arrived.enqueued_number) == ("1", 1)


def test_fwd_3_the_fifth_dead_letters_where_it_would_begin(house: SeveralEntities) -> None:
    queues = chain(house, 6)
    house.send(queues[0], "1")
    house.run(1_000)
    assert house.receive(queues[5]) == []
    (dead,) = house.dead_letters(queues[4])
    assert dead.properties[REASON] == "MaxTransferHopCountExceeded"
    assert dead.properties[DESCRIPTION] == (
        "The maximum number of allowed hops when forwarding between queues has been exceeded. "
        "This value is set to 4."
    )


def test_fwd_3_a_ring_ends(house: SeveralEntities) -> None:
    first = house.queue("first")
    second = house.queue("second", forward_to="first")
    house.update(first, forward_to="second")
    house.send(first, "1")
    house.run(2_000)
    dead = [*house.dead_letters(first), *house.dead_letters(second)]
    assert texts(dead) == ["1"]


def test_fwd_3_dead_letters_of_a_queue_that_collects_its_own_come_to_rest(
    house: SeveralEntities,
) -> None:
    """It forwards everything to itself, dead letters as well: what the service accepts (DLQ-4)."""
    queue = house.queue("self")
    house.update(queue, forward_to="self", forward_dead_letters_to="self")
    house.send(queue, "1", "2")
    house.run(5_000)
    house.update(queue, forward_to=None, forward_dead_letters_to=None)
    assert house.receive(queue) == []
    assert sorted(texts(house.dead_letters(queue))) == ["1", "2"]


def test_fwd_3_who_collects_dead_letters_gets_what_was_forwarded_too_often(
    house: SeveralEntities,
) -> None:
    collected = house.queue("collected")
    queues = chain(house, 6)
    house.update(queues[4], forward_dead_letters_to="collected")
    house.send(queues[0], "1")
    house.run(2_000)
    (dead,) = house.receive(collected)
    assert dead.properties[REASON] == "MaxTransferHopCountExceeded"


# --- Destinations that cannot take it (FWD-4) ----------------------------------------------------


def test_fwd_4_a_full_destination_sends_them_to_the_sources_dead_letters(
    house: SeveralEntities,
) -> None:
    """Those for which there is room arrive."""
    source, destination = pair(house, max_size_mb=2048)
    room = destination.max_size_bytes
    house.send(source, message("fits", size=room - 100))
    house.send(source, message("too much", size=200), message("fits, too", size=50))
    house.run(2_000)
    assert texts(house.receive(destination)) == ["fits", "fits, too"]
    (dead,) = house.dead_letters(source)
    assert (dead.text, dead.properties[REASON]) == ("too much", "QuotaExceeded")


def test_fwd_4_a_disabled_destination(house: SeveralEntities) -> None:
    source, destination = pair(house)
    house.update(destination, status=EntityStatus.SEND_DISABLED)
    house.send(source, "1")
    house.run(1_000)
    (dead,) = house.dead_letters(source)
    assert dead.properties[REASON] == "MessagingEntitySendDisabled"
    house.update(destination, status=EntityStatus.ACTIVE)
    house.run(10_000)
    assert house.receive(destination) == [], "FWD-4: it stays there"


def test_fwd_4_a_destination_that_is_gone(house: SeveralEntities) -> None:
    source, destination = pair(house)
    house.delete(destination)
    house.run(2_000)
    house.send(source, "1")
    house.run(1_000)
    (dead,) = house.dead_letters(source)
    assert dead.properties[REASON] == "MessagingEntityNotFound"


def test_d_27_an_unavailable_destination_is_waited_for() -> None:
    house, source, destination = on_two_stores()
    house.store_of(destination).faults.be(Fault.ILL)
    house.start_send(destination, "finds out")
    house.run(1_000)
    assert not house.broker_of(destination).available
    house.send(source, "1")
    house.run(60_000)
    assert house.counters(source, TRANSFER).active == 1
    house.store_of(destination).recover()
    house.run(5_000)
    assert texts(house.receive(destination)) == ["1"]
    assert is_empty(house, source)


@pytest.mark.parametrize("status", [EntityStatus.ACTIVE, EntityStatus.SEND_DISABLED, None])
@pytest.mark.parametrize("later_ms", range(0, 16, 3))
def test_d_16_a_deleted_source_takes_what_is_on_its_way_along(
    status: EntityStatus | None, later_ms: int
) -> None:
    """The destination answers while the source is being purged: nothing else may suffer."""
    house, source, destination = on_two_stores()
    bystander = next(
        queue
        for number in range(50, 100)
        if (queue := house.queue(f"q{number}")).placement == source.placement
    )
    house.store_of(destination).hang()
    house.send(source, "1", "2")
    house.run(1_000)
    house.delete(source)
    if status is None:
        house.delete(destination)
    else:
        house.update(destination, status=status)
    house.run(later_ms)
    house.store_of(destination).recover()
    for _ in range(20):
        house.start_send(bystander, "x")
        house.run(10)
    house.run(10_000)
    assert house.counters(bystander).active == 20
    assert house.world.purges_under_way == set()


# --- Exactly once (D-27) -------------------------------------------------------------------------

OUTCOMES = [None, *CommitOutcome]


@pytest.mark.parametrize(("at_source", "at_destination"), list(product(OUTCOMES, OUTCOMES)))
def test_d_27_once_however_the_commits_of_both_sides_end(
    at_source: CommitOutcome | None, at_destination: CommitOutcome | None
) -> None:
    house, source, destination = on_two_stores()
    house.store_of(destination).hang()
    house.send(source, "1", "2")
    house.run(100)
    if at_source is not None:
        house.store_of(source).next_commits_end(at_source)
    if at_destination is not None:
        house.store_of(destination).next_commits_end(at_destination)
    house.store_of(destination).recover()
    house.run(10_000)
    assert texts(house.receive(destination)) == ["1", "2"]
    assert is_empty(house, source)


@pytest.mark.parametrize("finish_commit", [False, True])
@pytest.mark.parametrize("crashes", ["source", "destination", "both"])
@pytest.mark.parametrize("seed", range(6))
def test_d_27_once_over_a_crash_of_either_side(
    crashes: str, finish_commit: bool, seed: int
) -> None:
    house, source, destination = on_two_stores()
    for number in range(seed):
        house.start_send(destination, f"noise {number}")  # moves the moments of what follows
        house.run(3)
    for number in range(20):
        house.start_send(source, str(number))
        house.run(house.world.random.randint(0, 6))
        if number % 5 == 4:
            for side in (source, destination):
                name = "source" if side is source else "destination"
                if crashes in (name, "both"):
                    house.store_of(side).crash(finish_commit=finish_commit)
                    house.store_of(side).restart()
            house.world.settle_down()
    house.run(10_000)
    got = [each for each in texts(house.receive(destination, 200)) if "noise" not in each]
    assert len(got) == len(set(got)), "forwarded twice"
    assert got == sorted(got, key=int)
    assert is_empty(house, source)


def test_d_27_a_source_that_comes_back_while_its_first_transfer_is_still_on_its_way() -> None:
    """The destination is slow; the source dies, opens again and hands the same over again."""
    house, source, destination = on_two_stores()
    house.store_of(destination).hang()
    house.send(source, "1", "2")
    house.run(200)
    house.crash_quickly(source)
    house.run(1_000)
    house.store_of(destination).recover()
    house.run(10_000)
    assert house.exchange.handed_over >= 4
    assert texts(house.receive(destination)) == ["1", "2"]
    assert is_empty(house, source)


def test_d_27_numbers_are_handed_over_in_order_where_memory_ends(house: SeveralEntities) -> None:
    """A destination takes a number only if it took no higher one: an activation and a later send
    of one commit must not change places when only one of them has room in memory."""
    source, destination = pair(house)
    house.send(source, "scheduled", at_ms=house.now_ms() + 10_000)
    broker = house.broker_of(source)
    main = broker.find_sub_queue(key_of(source))
    assert main is not None
    house.world.run_until(lambda: 1 in main.known)  # its activation is staged
    sent = house.start_send(source, "sent")
    broker._budget.bytes_max = broker._budget.bytes_used + 1
    house.run(5_000)
    assert sent.outcome == ACCEPTED
    assert texts(house.receive(destination)) == ["scheduled", "sent"]


def test_d_27_nothing_is_lost_when_a_page_comes_while_a_group_waits(
    house: SeveralEntities, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large messages come page by page; the destination is busy only for the first of them."""
    source, destination = pair(house)
    transfer = house.exchange.transfer
    monkeypatch.setattr(house.exchange, "transfer", lambda *call: call[3](BusError(SERVER_BUSY)))
    expected = [str(number) for number in range(60)]
    for body in expected:
        house.send(source, message(body, size=256 * 1024))
    busy = [True]

    def once_busy(*call: Any) -> None:
        if busy:
            call[3](BusError(SERVER_BUSY))
            busy.clear()
        else:
            transfer(*call)

    monkeypatch.setattr(house.exchange, "transfer", once_busy)
    house.crash_quickly(source)
    house.run(20_000)
    assert texts(house.receive(destination)) == expected
    assert is_empty(house, source)


# --- Dead letters that are forwarded (DLQ-4) -----------------------------------------------------


def test_dlq_4_dead_letters_go_where_they_are_forwarded_to(house: SeveralEntities) -> None:
    morgue = house.queue("morgue")
    queue = house.queue(forward_dead_letters_to="morgue", max_delivery_count=1)
    house.send(morgue, "own")
    house.send(queue, "1", "2")
    first, second = house.receive(queue)
    house.settle(queue, first, ABANDON)
    house.settle(queue, second, DEAD_LETTER)
    house.run()
    _, one, two = house.receive(morgue)
    assert (one.text, one.number, one.dead_letter_source) == ("1", 2, "orders")
    assert one.properties[REASON] == "MaxDeliveryCountExceeded"
    assert one.delivery_count == 0
    assert (two.text, two.dead_letter_source) == ("2", "orders")
    assert is_empty(house, queue)


def test_dlq_5_dead_letters_that_stay_have_no_source(house: SeveralEntities) -> None:
    queue = house.queue()
    house.send(queue, "1")
    house.settle(queue, house.receive_one(queue), DEAD_LETTER)
    (dead,) = house.dead_letters(queue)
    assert dead.dead_letter_source is None


def test_dlq_4_expired_ones_too(house: SeveralEntities) -> None:
    morgue = house.queue("morgue")
    queue = house.queue(
        forward_dead_letters_to="morgue", dead_lettering_on_expiration=True, default_ttl_ms=1_000
    )
    house.send(queue, "1")
    house.run(5_000)
    (arrived,) = house.receive(morgue)
    assert arrived.properties[REASON] == "TTLExpiredException"
    assert arrived.expires_ms is None


def test_dlq_4_copies_that_cannot_be_placed_too(house: SeveralEntities) -> None:
    """RUL-4, SES-1: nobody may read the dead-letter queue of such a subscription."""
    morgue = house.queue("morgue")
    topic = house.topic()
    subscription = house.subscription(
        topic, "a", requires_session=True, forward_dead_letters_to="morgue"
    )
    house.send(topic, "none")
    house.run()
    (arrived,) = house.receive(morgue)
    assert arrived.properties[REASON] == "Session id is null."
    assert arrived.dead_letter_source == subscription.path
    assert is_empty(house, subscription)


def test_dlq_4_a_destination_that_is_gone_leaves_them_in_the_dead_letter_queue(
    house: SeveralEntities,
) -> None:
    morgue = house.queue("morgue")
    queue = house.queue(forward_dead_letters_to="morgue")
    house.delete(morgue)
    house.send(queue, "1")
    house.settle(queue, house.receive_one(queue), DEAD_LETTER)
    house.run(2_000)
    (dead,) = house.dead_letters(queue)
    assert dead.text == "1"
    assert house.settle(queue, dead, COMPLETE, DLQ) == ACCEPTED


@pytest.mark.parametrize("outcome", list(CommitOutcome))
def test_dlq_4_once_however_the_commit_ends(house: SeveralEntities, outcome: CommitOutcome) -> None:
    morgue = house.queue("morgue")
    queue = house.queue(forward_dead_letters_to="morgue")
    house.send(queue, "1")
    delivered = house.receive_one(queue)
    house.store_of(queue).next_commits_end(outcome)
    house.start_settle(queue, delivered, DEAD_LETTER)
    house.run(5_000)
    expected = ["1"] if outcome is CommitOutcome.UNKNOWN_DONE else []
    assert texts(house.receive(morgue)) == expected
    assert house.counters(queue).active == 1 - len(expected)


def test_d_27_who_has_given_up_its_store_hands_nothing_over_any_more() -> None:
    house, source, destination = on_two_stores()
    house.store_of(destination).faults.be(Fault.ILL)
    house.start_send(destination, "finds out")
    house.run(1_000)
    house.send(source, "1")
    house.run(1_000)  # handed over, and to be handed over again
    store = house.store_of(source)
    store.stop()
    house.world.run_until(lambda: not store.running)
    house.store_of(destination).recover()
    house.run(10_000)  # the broker that was is still in its process
    assert house.counters(destination).active == 0
    store.restart()
    house.run(10_000)
    assert texts(house.receive(destination)) == ["1"]


# --- Destinations that cannot take it yet, or in another way (FWD-4, FWD-5) ----------------------


def via(house: SeveralEntities, entity: Queue, to: str, *messages: Message, id_: bytes) -> None:
    transaction = Transaction(id_)
    for each in messages:
        each.destination = to
    transaction.transfers.append((key_of(entity), list(messages)))
    assert house.transact(entity, transaction) == ACCEPTED


def test_fwd_5_what_a_transaction_sent_waits_for_a_full_destination(house: SeveralEntities) -> None:
    """Neither to a dead-letter queue nor lost, and others do not wait for it."""
    source, full, free = house.queue("source"), house.queue("full"), house.queue("free")
    house.send(full, message("x", size=full.max_size_bytes - 100))
    via(house, source, "full", message("big", size=200), message("small", size=50), id_=b"1")
    house.run(2_000)
    assert house.counters(source, TRANSFER).active == 2
    via(house, source, "free", message("not held up"), id_=b"2")
    via(house, source, "full", message("last", size=10), id_=b"3")
    house.run(2_000)
    assert texts(house.receive(free)) == ["not held up"]
    house.settle(full, house.receive_one(full))
    house.run(2_000)
    assert texts(house.receive(full)) == ["big", "small", "last"]
    assert is_empty(house, source)


def test_fwd_5_a_crash_does_not_change_who_waits(house: SeveralEntities) -> None:
    source, full = house.queue("source"), house.queue("full")
    house.send(full, message("x", size=full.max_size_bytes))
    via(house, source, "full", message("1"), message("2"), id_=b"1")
    house.crash(source)
    house.run(2_000)
    assert house.dead_letters(source) == []
    house.settle(full, house.receive_one(full))
    house.run(2_000)
    assert texts(house.receive(full)) == ["1", "2"]


def test_fwd_5_so_many_may_wait_and_the_rest_stays_in_the_store(
    house: SeveralEntities, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("busway.broker.forwarding.WAITING_MESSAGES_MAX", 10)
    monkeypatch.setattr("busway.broker.forwarding.GROUP_MESSAGES_MAX", 4)
    source, full = house.queue("source"), house.queue("full")
    house.send(full, message("x", size=full.max_size_bytes))
    sent = [str(number) for number in range(40)]
    for number in sent:
        via(house, source, "full", message(number), id_=number.encode())
    house.run(2_000)
    assert house.counters(source, TRANSFER).active == 40
    house.settle(full, house.receive_one(full))
    house.run(5_000)
    assert texts(house.receive(full)) == sent
    assert is_empty(house, source)


def test_fwd_5_a_disabled_destination_is_one_for_the_transfer_dead_letters(
    house: SeveralEntities,
) -> None:
    source, other = house.queue("source"), house.queue("other")
    house.update(other, status=EntityStatus.SEND_DISABLED)
    via(house, source, "other", message("1"), message("2"), id_=b"1")
    house.run(2_000)
    dead = house.receive(source, kind=SubQueueKind.TRANSFER_DEAD_LETTER)
    assert texts(dead) == ["1", "2"]


def test_d_27_an_unavailable_destination_holds_nobody_else_up() -> None:
    house, source, destination = on_two_stores()
    neighbour = next(
        queue
        for number in range(50, 100)
        if (queue := house.queue(f"q{number}")).placement == source.placement
    )
    house.store_of(destination).faults.be(Fault.ILL)
    house.start_send(destination, "finds out")
    house.run(1_000)
    house.send(source, "waits")
    via(house, source, neighbour.path, message("goes"), id_=b"1")
    house.run(2_000)
    assert texts(house.receive(neighbour)) == ["goes"]
    house.store_of(destination).recover()
    house.run(5_000)
    assert texts(house.receive(destination)) == ["waits"]


def test_dlq_4_what_cannot_be_forwarded_is_a_dead_letter_that_can(house: SeveralEntities) -> None:
    """FWD-4 with ForwardDeadLetteredMessagesTo: receivers of the source's own dead-letter queue are
    refused, so it must not end there."""
    destination, graves = house.queue("destination"), house.queue("graves")
    source = house.queue("source", forward_to="destination", forward_dead_letters_to="graves")
    house.update(destination, status=EntityStatus.SEND_DISABLED)
    house.send(source, "1", "2")
    house.run(2_000)
    dead = house.receive(graves)
    assert texts(dead) == ["1", "2"]
    assert {each.dead_letter_source for each in dead} == {"source"}
    assert {each.properties[REASON] for each in dead} == {"MessagingEntitySendDisabled"}
    assert is_empty(house, source)


def test_fwd_4_a_dead_letter_that_cannot_go_on_either_stays_with_its_source(
    house: SeveralEntities,
) -> None:
    """It can be peeked at, and received once the source forwards no dead letters any more."""
    destination, graves = house.queue("destination"), house.queue("graves")
    source = house.queue("source", forward_to="destination", forward_dead_letters_to="graves")
    for each in (destination, graves):
        house.update(each, status=EntityStatus.SEND_DISABLED)
    house.send(source, "1")
    house.run(2_000)
    assert texts(house.peek(source, kind=DLQ)) == ["1"]
    assert house.counters(source, TRANSFER).active == 0


# --- Told to forward later (FWD-1) ---------------------------------------------------------------


@pytest.mark.parametrize("crash", [False, True])
def test_fwd_1_what_was_there_before_is_forwarded_too(house: SeveralEntities, crash: bool) -> None:
    house.queue("destination")
    source = house.queue("source")
    house.send(source, "1", "2", "3")
    house.send(source, "later", at_ms=house.now_ms() + 60_000)
    number = house.peek(source)[1].number
    house.update(source, forward_to="destination")
    if crash:
        house.crash(source)
    house.run(2_000)
    house.send(source, "4")
    house.run(2_000)
    destination = house.world.catalog.find("destination")
    assert isinstance(destination, Queue)
    arrived = house.receive(destination, delete=True)
    assert texts(arrived) == ["1", "2", "3", "4"]
    assert arrived[1].enqueued_number == number, "FWD-2"
    house.run(60_000)
    assert texts(house.receive(destination)) == ["later"]
    assert is_empty(house, source)


def test_fwd_1_thousands_that_were_there_before_arrive_once_and_in_order(
    house: SeveralEntities,
) -> None:
    destination, source = house.queue("destination"), house.queue("source")
    for start in range(0, 3_000, 500):
        house.send(source, *(message(str(n), size=10) for n in range(start, start + 500)))
    house.update(source, forward_to="destination")
    house.run(3)
    house.crash(source)
    house.run(10_000)
    assert is_empty(house, source)
    arrived = texts(house.receive(destination, 4_000))
    assert arrived == [str(n) for n in range(3_000)]


def test_fwd_1_what_somebody_had_locked_goes_when_it_comes_back(house: SeveralEntities) -> None:
    destination, source = house.queue("destination"), house.queue("source")
    house.send(source, "1", "2", "3")
    locked = house.receive_one(source)
    house.update(source, forward_to="destination")
    house.run(1_000)
    assert house.settle(source, locked, ABANDON) == ACCEPTED
    house.run(1_000)
    assert sorted(texts(house.receive(destination))) == ["1", "2", "3"]


def test_def_1_what_is_deferred_stays_until_it_is_asked_for(house: SeveralEntities) -> None:
    house.queue("destination")
    source = house.queue("source")
    house.send(source, "1")
    delivered = house.receive_one(source)
    assert house.settle(source, delivered, DEFER) == ACCEPTED
    house.update(source, forward_to="destination")
    house.run(1_000)
    assert house.counters(source).deferred == 1


@pytest.mark.parametrize("outcome", list(CommitOutcome))
def test_fwd_1_once_however_the_commit_of_the_move_ends(
    house: SeveralEntities, outcome: CommitOutcome
) -> None:
    destination, source = house.queue("destination"), house.queue("source")
    house.send(source, "1", "2")
    house.store_of(source).next_commits_end(outcome)
    house.update(source, forward_to="destination")
    house.run(5_000)
    assert texts(house.receive(destination)) == ["1", "2"]
    assert is_empty(house, source)


def test_fwd_1_a_subscription_forwards_what_it_holds(house: SeveralEntities) -> None:
    destination, topic = house.queue("destination"), house.topic()
    subscription = house.subscription(topic, "s")
    house.subscription(topic, "other")
    house.send(topic, "shared by two")
    house.update(subscription, forward_to="destination")
    house.run(1_000)
    assert texts(house.receive(destination)) == ["shared by two"]
    assert is_empty(house, subscription)
