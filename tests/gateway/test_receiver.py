"""What a receiving client gets, and what becomes of what it decides (amqp.md 9 and 10)."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest

from busway.amqp.events import Settled
from busway.amqp.performatives import Accepted, Error, Modified, Rejected, Released, Source
from busway.amqp.types import Symbol, Timestamp
from busway.gateway.gateway import GatewaySettings
from busway.model.message import partition_of
from tests.gateway.world import Client, World, header, message, message_annotations, sections


def condition(state: Any) -> str | None:
    assert isinstance(state, Rejected)
    return None if state.error is None else state.error.condition


# --- What is delivered ---------------------------------------------------------------------------


def test_a_delivery_has_what_the_client_libraries_read(
    world: World, client: Client, queue: str
) -> None:
    client.sender(queue).send(message("hello", message_id="id-1"))
    (delivery,) = client.receiver(queue, credit=5).deliveries
    assert len(delivery.tag) == 16
    assert not delivery.settled
    assert delivery.message_format == 0  # E7
    said = message_annotations(delivery.payload)
    assert type(said["x-opt-sequence-number"]) is int  # a long
    assert type(said["x-opt-locked-until"]) is Timestamp
    assert type(said["x-opt-enqueued-time"]) is Timestamp
    assert said["x-opt-message-state"] == 0
    assert ("x-opt-partition-id" in said) == world.catalog.find(queue).enable_partitioning  # type: ignore[union-attr]
    assert header(delivery.payload).delivery_count == 0


def test_the_time_to_live_shown_is_what_the_entity_left_of_it(world: World, client: Client) -> None:
    world.queue("short", default_ttl_ms=60_000)  # TTL-1
    sender = client.sender("short")
    sender.send(message(ttl_ms=10_000))
    sender.send(message(ttl_ms=100_000))
    sender.send(message())
    deliveries = client.receiver("short", credit=5).deliveries
    assert [header(each.payload).ttl for each in deliveries] == [10_000, 60_000, 60_000]


def test_nothing_is_delivered_beyond_credit(client: Client, queue: str) -> None:
    client.sender(queue).fill(20)
    receiver = client.receiver(queue)
    assert receiver.deliveries == []
    receiver.credit(3)
    assert len(receiver.deliveries) == 3
    receiver.credit(17)
    assert len(receiver.deliveries) == 20


def test_credit_that_waits_is_used_when_a_message_comes(client: Client, queue: str) -> None:
    receiver = client.receiver(queue, credit=5)
    client.sender(queue).fill(2)
    assert sorted(receiver.bodies) == ["m0", "m1"]


def test_every_partition_is_emptied(world: World, client: Client) -> None:
    world.queue("spread", enable_partitioning=True)  # P-26
    client.sender("spread").fill(100)
    receiver = client.receiver("spread", credit=5)
    while receiver.link.credit == 0 and len(receiver.deliveries) < 100:
        receiver.credit(5)
    assert sorted(receiver.bodies) == sorted(f"m{n}" for n in range(100))


def test_small_credit_takes_from_all_partitions_in_turn(world: World, client: Client) -> None:
    world.queue("spread", enable_partitioning=True)
    client.sender("spread").fill(160)
    receiver = client.receiver("spread")
    for _ in range(16):
        receiver.credit(1)
    numbers = [
        message_annotations(each.payload)["x-opt-sequence-number"] for each in receiver.deliveries
    ]
    assert sorted(partition_of(number) for number in numbers) == list(range(16))


def test_links_share_what_arrives(client: Client, queue: str) -> None:
    receivers = [client.receiver(queue, f"r{n}", credit=50) for n in range(3)]
    for _ in range(3):
        client.sender(queue, f"s{_}").fill(20)
    counts = [len(receiver.deliveries) for receiver in receivers]
    assert sum(counts) == 60
    assert min(counts) >= 5


def test_a_conventional_queue_keeps_its_order(world: World, client: Client) -> None:
    world.queue("fifo")
    client.sender("fifo").fill(200)
    assert client.receiver("fifo", credit=200).bodies == [f"m{n}" for n in range(200)]


def test_receive_and_delete_removes_before_it_delivers(
    world: World, client: Client, queue: str
) -> None:
    client.sender(queue).fill(3)
    receiver = client.receiver(queue, credit=10, delete=True)
    assert all(each.settled for each in receiver.deliveries)  # D-6
    assert sorted(receiver.bodies) == ["m0", "m1", "m2"]
    assert "x-opt-locked-until" not in message_annotations(receiver.deliveries[0].payload)
    receiver.link.detach()
    world.settle()
    assert client.receiver(queue, "again", credit=10).deliveries == []


def test_d_6_what_is_being_removed_for_a_link_comes_although_its_credit_was_taken_back(
    world: World, client: Client, queue: str
) -> None:
    client.sender(queue).fill(3)
    receiver = client.receiver(queue, delete=True)
    for disk in world.disks.values():
        disk.pause()
    receiver.credit(10)
    receiver.credit(0)
    assert receiver.deliveries == []
    for disk in world.disks.values():
        disk.resume()
    world.settle()
    assert sorted(receiver.bodies) == ["m0", "m1", "m2"]


def test_a_full_socket_stops_deliveries_until_it_is_drained(queue: str, world: World) -> None:
    client = world.connect()
    client.sender(queue).fill(200)
    receiver = client.receiver(queue)
    client.server.pause_output()
    receiver.credit(200)
    assert receiver.deliveries == []
    client.server.resume_output()
    world.settle()
    assert len(receiver.deliveries) == 200


def test_output_is_bounded_by_the_high_water_mark() -> None:
    world = World(settings=GatewaySettings(output_high_bytes=50_000))
    world.queue("large")
    client = world.connect()
    client.sender("large").fill(300, size=10_000)
    receiver = client.receiver("large")
    receiver.link.set_credit(300)
    client.server.receive(client.engine.take_output())
    world.scheduler.run_for(100)
    written = client.server.take_output()
    assert len(written) < 1_000_000  # one grant's worth, not three megabytes
    client.events += client.engine.receive(written)
    world.settle()
    assert len(receiver.deliveries) == 300


def test_a_closed_session_window_bounds_what_is_taken_for_a_client() -> None:
    world = World(settings=GatewaySettings(output_high_bytes=50_000))
    world.queue("large")
    world.connect().sender("large").fill(300, size=10_000)
    client = world.connect()
    receiver = client.receiver("large")
    flow = receiver.link.flow()
    flow.incoming_window, flow.link_credit = 0, 1_000
    client.session.write(flow)
    world.settle()
    (held,) = client.server.engine.links_by_name.values()
    assert held.pending_bytes == 0
    client.session.write(client.session.flow())  # opens it again
    world.settle()
    assert len(receiver.deliveries) == 300


# --- Drain ---------------------------------------------------------------------------------------


def test_a_drain_delivers_what_is_there_and_gives_the_rest_back(client: Client, queue: str) -> None:
    client.sender(queue).fill(3)
    receiver = client.receiver(queue)
    receiver.credit(10, drain=True)
    assert len(receiver.deliveries) == 3
    assert receiver.link.credit == 0
    client.sender(queue, "later").fill(1)
    assert len(receiver.deliveries) == 3


@pytest.mark.parametrize("delete", [False, True])
def test_a_drain_of_nothing_is_answered(client: Client, queue: str, delete: bool) -> None:
    receiver = client.receiver(queue, delete=delete)
    receiver.credit(10, drain=True)
    assert receiver.link.credit == 0
    assert client.server.engine.links_by_name  # still there
    receiver.credit(0, drain=True)
    assert receiver.link.credit == 0


def test_a_drain_does_not_wait_for_a_slow_store(world: World, client: Client) -> None:
    world.queue("orders")
    sender = client.sender("orders")
    for _ in range(12):
        sender.fill(100)  # more than the window of what is kept in memory
    receiver = client.receiver("orders", credit=1000)
    taken = len(receiver.deliveries)
    for disk in world.disks.values():
        disk.pause()
    receiver.link.set_credit(500, drain=True)
    world.settle(for_ms=1000)
    assert receiver.link.credit == 0  # D-22
    for disk in world.disks.values():
        disk.resume()
    world.settle()
    assert len(receiver.deliveries) >= taken


# --- Settlement ----------------------------------------------------------------------------------

DEAD_LETTER = Rejected(
    Error(
        "com.microsoft:dead-letter",
        "because",
        {Symbol("DeadLetterReason"): "bad", Symbol("DeadLetterErrorDescription"): "because"},
    )
)
OUTCOMES = [
    (Accepted(), "gone"),
    (Modified(delivery_failed=True, undeliverable_here=False), "back, counted"),
    (Modified(), "back, counted"),  # DLV-2
    (Modified(delivery_failed=True, undeliverable_here=True), "deferred"),
    (DEAD_LETTER, "dead-lettered"),
    (Rejected(), "dead-lettered"),
    (Released(), "back"),
]


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize(("outcome", "fate"), OUTCOMES)
def test_an_outcome_decides_a_message_s_fate(
    world: World, client: Client, queue: str, outcome: Any, fate: str, settled: bool
) -> None:
    client.sender(queue).send(message("one"))
    receiver = client.receiver(queue, credit=1)
    answer = receiver.settle(receiver.deliveries, outcome, settled=settled)
    if settled:
        assert answer is None
    else:
        assert type(answer) is type(outcome)
        assert getattr(answer, "error", None) is None  # Python and JS raise if there is one
    again = client.receiver(queue, "again", credit=1).deliveries
    dead = client.receiver(f"{queue}/$DeadLetterQueue", "dead", credit=1).deliveries
    assert bool(again) == fate.startswith("back")
    assert bool(dead) == (fate == "dead-lettered")
    if again:
        assert header(again[0].payload).delivery_count == (1 if fate == "back, counted" else 0)


def test_a_dead_letter_says_why(client: Client, queue: str) -> None:
    client.sender(queue).send(message("one", application_properties={"kept": 1}))
    receiver = client.receiver(queue, credit=1)
    number = message_annotations(receiver.deliveries[0].payload)["x-opt-sequence-number"]
    receiver.settle(receiver.deliveries, DEAD_LETTER)
    (dead,) = client.receiver(f"{queue}/$deadletterqueue", "dead", credit=1).deliveries
    said = sections(dead.payload)[0x74]
    assert said == {
        "kept": 1,
        "DeadLetterReason": "bad",
        "DeadLetterErrorDescription": "because",
    }
    assert message_annotations(dead.payload)["x-opt-sequence-number"] == number  # DLQ-2


def test_properties_to_modify_are_merged(client: Client, queue: str) -> None:
    client.sender(queue).send(message("one", application_properties={"a": 1, "b": 2}))
    receiver = client.receiver(queue, credit=1)
    changed = Modified(message_annotations={Symbol("b"): 3, Symbol("c"): "new"})
    receiver.settle(receiver.deliveries, changed)
    (again,) = client.receiver(queue, "again", credit=1).deliveries
    assert sections(again.payload)[0x74] == {"a": 1, "b": 3, "c": "new"}


def test_a_range_is_settled_at_once(client: Client, queue: str) -> None:
    client.sender(queue).fill(50)
    receiver = client.receiver(queue, credit=50)
    assert isinstance(receiver.settle(receiver.deliveries, Accepted()), Accepted)
    settled = [each for event in client.of(Settled) for each in event.delivery_ids]
    assert sorted(settled) == sorted(event.delivery_id for event in receiver.deliveries)
    assert client.receiver(queue, "again", credit=5).deliveries == []


def test_an_expired_lock_is_lost(world: World, client: Client) -> None:
    world.queue("orders", lock_duration_ms=5_000)
    client.sender("orders").send(message())
    receiver = client.receiver("orders", credit=1)
    world.settle(for_ms=6_000)
    answer = receiver.settle(receiver.deliveries, Accepted())
    assert condition(answer) == "com.microsoft:message-lock-lost"  # LOCK-5


def test_a_delivery_that_the_session_does_not_know_is_lock_lost(
    world: World, client: Client, queue: str
) -> None:
    client.sender(queue).send(message())
    receiver = client.receiver(queue, credit=1)
    delivery = receiver.deliveries
    receiver.settle(delivery, Accepted())
    before = len(client.of(Settled))
    assert condition(receiver.settle(delivery, Accepted())) == "com.microsoft:message-lock-lost"
    assert len(client.of(Settled)) == before + 1


# --- The end of a link ---------------------------------------------------------------------------


def test_locks_survive_their_link(world: World, client: Client, queue: str) -> None:
    client.sender(queue).send(message())
    receiver = client.receiver(queue, credit=1)
    assert len(receiver.deliveries) == 1
    receiver.link.detach()
    world.settle()
    other = world.connect().receiver(queue, credit=1)
    assert other.deliveries == []  # LOCK-7
    world.settle(for_ms=61_000)
    assert len(other.deliveries) == 1


def test_credit_of_a_lost_connection_takes_nothing(
    world: World, client: Client, queue: str
) -> None:
    lost = world.connect()
    lost.receiver(queue, credit=100)
    lost.server.lost()
    client.sender(queue).fill(5)
    assert len(client.receiver(queue, credit=10).deliveries) == 5


def test_nothing_is_left_behind_by_links_that_went(world: World, queue: str) -> None:
    client = world.connect()
    client.sender(queue).fill(3)
    client.receiver(queue, credit=10)
    client.server.lost()
    world.settle()
    assert world.gateway._fan_ins == {}
    assert client.server not in world.gateway.connections


# --- Who may have a receiver ---------------------------------------------------------------------


def test_a_session_filter_needs_a_session_entity(client: Client, queue: str) -> None:
    source = Source(queue, filter={Symbol("com.microsoft:session-filter"): "red"})
    receiver = client.receiver(queue, source=source)
    refusal = client.refusal(receiver.link)
    assert refusal is not None
    assert refusal.condition == "amqp:not-allowed"
    assert (refusal.description or "").startswith("A sessionful message receiver cannot be created")


def test_a_session_entity_needs_a_session_filter(world: World, client: Client) -> None:
    world.queue("talks", requires_session=True)
    refusal = client.refusal(client.receiver("talks").link)
    assert refusal is not None
    assert refusal.condition == "amqp:not-allowed"


def test_lim_10_an_entity_has_a_largest_number_of_receivers(world: World, client: Client) -> None:
    world.queue("popular")
    with patch("busway.gateway.receiver_counts.RECEIVES_PER_ENTITY_MAX", 2):
        receivers = [client.receiver("popular", name) for name in ("one", "two")]
        assert all(client.is_attached(receiver.link) for receiver in receivers)
        error = client.refusal(client.receiver("popular", "three").link)
        assert error is not None
        assert error.condition == "amqp:resource-limit-exceeded"
        receivers[0].link.detach()
        world.settle()
        assert client.is_attached(client.receiver("popular", "four").link)


def test_lim_10_the_subscriptions_of_a_topic_share_it(world: World, client: Client) -> None:
    world.topic("news")
    paths = [world.subscription("news", name).path for name in ("a", "b", "c")]
    with patch("busway.gateway.receiver_counts.RECEIVES_PER_ENTITY_MAX", 2):
        for path in (paths[0], f"{paths[1]}/$DeadLetterQueue"):
            assert client.is_attached(client.receiver(path, path).link)
        error = client.refusal(client.receiver(paths[2], "c").link)
    assert error is not None
    assert error.condition == "amqp:resource-limit-exceeded"
