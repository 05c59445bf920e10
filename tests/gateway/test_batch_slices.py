"""Large batches are read in slices of their connection's turns, and are still one commit."""

from __future__ import annotations

from typing import Any

import pytest

from busway.amqp.performatives import Accepted, Rejected
from busway.amqp.sections import BATCH_FORMAT
from busway.amqp.types import Timestamp
from busway.gateway.batch_reading import MEMBER_BYTES, memory_of
from busway.gateway.gateway import GatewaySettings
from busway.model.limits import TIERS, Tier
from tests.gateway.transacting import Control
from tests.gateway.world import Client, Sender, World, batch, message

SLICE = 4
FRAMES = 16


@pytest.fixture
def world() -> World:
    made = World(settings=GatewaySettings(slice_messages=SLICE))
    made.queue("q")
    made.queue("other")
    return made


def upload(client: Client) -> None:
    """What the client has written is read, and nothing of it handled."""
    client.server.feed(client.engine.take_output())


def steps(client: Client) -> int:
    """Handle all of it; how many steps that took."""
    count = 0
    while client.server.has_input:
        client.server.advance(FRAMES)
        count += 1
    return count


def put_batch(sender: Sender, count: int, **options: Any) -> int:
    payload = batch(*[message(str(n)) for n in range(count)])
    return sender.put(payload, message_format=BATCH_FORMAT, **options)


def held(world: World, queue: str = "q") -> int:
    entity = world.catalog.find(queue)
    assert entity is not None
    owner = world.gateway.router.available_owner(entity, 0)
    return sum(each.active for each in owner.counters(entity.incarnation, 0).values())


def test_a_small_batch_is_one_step(world: World) -> None:
    sender = world.connect().sender("q")
    put_batch(sender, SLICE)
    upload(sender.client)
    assert steps(sender.client) == 1


def test_a_large_batch_is_read_a_slice_per_step_and_others_are_served_between(
    world: World,
) -> None:
    sender, other = world.connect().sender("q"), world.connect().sender("other")
    tag = put_batch(sender, 5 * SLICE)
    client = sender.client
    upload(client)
    client.server.advance(FRAMES)  # the frame: the batch is begun
    for done in range(5):
        assert client.server.has_input
        assert isinstance(other.send(message(f"beside {done}")), Accepted)
        assert held(world) == 0
        client.server.advance(FRAMES)
    assert not client.server.has_input
    world.settle()
    assert isinstance(sender.outcome(tag), Accepted)
    assert world.connect().receiver("q", credit=100).bodies == [str(n) for n in range(5 * SLICE)]
    assert held(world, "other") == 5


def test_all_of_it_is_one_commit(world: World) -> None:
    sender = world.connect().sender("q")
    done = sum(broker.commit_times.done for broker in world.brokers.values())
    assert isinstance(sender.send_batch(*[message()] * 10 * SLICE), Accepted)
    assert sum(broker.commit_times.done for broker in world.brokers.values()) == done + 1


def test_what_the_connection_sends_behind_it_keeps_its_order(world: World) -> None:
    client = world.connect()
    sender, second = client.sender("q"), client.sender("q", name="second")
    put_batch(sender, 2 * SLICE)
    sender.put(message("behind"))
    second.put(message("on another link"))
    upload(client)
    client.server.advance(FRAMES)
    client.server.advance(FRAMES)
    assert client.server.has_input
    steps(client)
    world.settle()
    assert world.connect().receiver("q", credit=100).bodies == [
        *[str(n) for n in range(2 * SLICE)],
        "behind",
        "on another link",
    ]


def test_a_connection_that_is_lost_meanwhile_leaves_nothing(world: World) -> None:
    sender = world.connect().sender("q")
    used = world.gateway.budget.used_bytes
    put_batch(sender, 5 * SLICE)
    sender.put(message("behind"))
    upload(sender.client)
    sender.client.server.advance(FRAMES)
    sender.client.server.advance(FRAMES)
    assert world.gateway.budget.used_bytes > used
    sender.client.server.lost()
    assert not sender.client.server.has_input
    world.clients.remove(sender.client)
    world.settle()
    assert held(world) == 0
    assert world.gateway.budget.used_bytes == used


def test_a_queue_that_is_deleted_meanwhile_gets_nothing_and_the_link_is_told(
    world: World,
) -> None:
    client = world.connect()
    sender, other = client.sender("q"), client.sender("other", name="other")
    put_batch(sender, 5 * SLICE)
    sender.put(message("behind"))
    kept = other.put(message("kept"))
    upload(client)
    client.server.advance(FRAMES)
    client.server.advance(FRAMES)
    world.catalog.delete("q")
    steps(client)
    world.settle()
    assert client.refusal(sender.link) is not None
    assert client.closed_with is None
    assert isinstance(other.outcome(kept), Accepted)
    assert world.gateway.budget.used_bytes == 0


def test_one_message_that_cannot_be_read_refuses_the_whole(world: World) -> None:
    sender = world.connect().sender("q")
    good = [message(str(n)) for n in range(3 * SLICE)]
    outcome = sender.send_batch(*good, b"\x00\x53\x73\xff")
    assert isinstance(outcome, Rejected)
    assert "cannot be read" in (outcome.error.description or "")
    assert held(world) == 0
    assert world.gateway.budget.used_bytes == 0
    assert isinstance(sender.send(message()), Accepted)


def test_every_message_of_a_batch_counts_against_the_budget(world: World) -> None:
    sender = world.connect().sender("q")
    payload = batch(*[message()] * 5 * SLICE)
    sender.put(payload, message_format=BATCH_FORMAT)
    upload(sender.client)
    steps(sender.client)
    assert world.gateway.budget.used_bytes == memory_of(len(payload), 5 * SLICE)
    assert memory_of(100, 3) == 100 + 2 * MEMBER_BYTES
    world.settle()
    assert world.gateway.budget.used_bytes == 0


def test_a_transaction_refuses_too_many_before_any_is_read(world: World) -> None:
    client = world.connect()
    transaction = Control(client).declare()
    sender = client.sender("q")
    outcome = sender.send_batch(*[b"no message"] * 101, state=transaction.state)
    assert isinstance(outcome, Rejected)
    assert "cannot be read" not in (outcome.error.description or "")
    assert "100" in (outcome.error.description or "")


def test_schedules_of_one_request_are_read_in_slices_too(world: World) -> None:
    client = world.connect()
    requests = client.requests("q/$management")
    at_ms = world.scheduler.now_ms() + 60_000
    annotations = {"x-opt-scheduled-enqueue-time": Timestamp(at_ms)}
    scheduled = [
        {"message-id": str(n), "message": message(str(n), annotations=annotations)}
        for n in range(5 * SLICE)
    ]
    tag = requests.ask(
        {"operation": "com.microsoft:schedule-message"}, {"messages": scheduled}, wait=False
    )
    upload(client)
    assert steps(client) == 5
    world.settle()
    reply = requests.reply(tag)
    assert reply is not None
    assert reply[0]["statusCode"] == 200
    assert len(reply[1]["sequence-numbers"]) == 5 * SLICE


@pytest.mark.parametrize("tier", [Tier.STANDARD, Tier.PREMIUM])
def test_lim_2_how_many_messages_a_batch_may_have_depends_on_the_tier(tier: Tier) -> None:
    world = World(tier=tier)
    world.queue("q")
    limit = TIERS[tier].batch_max_messages
    assert limit == {Tier.STANDARD: 4_500, Tier.PREMIUM: 10_000}[tier]
    sender = world.connect().sender("q")
    outcome = sender.send_batch(*[b"\x00\x53\x77\x40"] * (limit + 1))
    assert isinstance(outcome, Rejected)
    assert f"{limit} are allowed" in (outcome.error.description or "")
    assert isinstance(sender.send_batch(*[b"\x00\x53\x77\x40"] * limit), Accepted)
