"""Strangers are poor: what a connection may do, and how many there are, before a valid token."""

from __future__ import annotations

from busway.amqp import codec
from busway.amqp.errors import RESOURCE_LIMIT_EXCEEDED
from busway.amqp.link import LinkRole
from busway.amqp.performatives import Accepted, Rejected, Source, Target, Transfer
from busway.amqp.sections import BATCH_FORMAT
from busway.gateway.gateway import GatewaySettings
from busway.model.limits import BATCH_MAX_COPIES
from tests.gateway.world import Client, World, batch, message

BODY = b"x" * 1_000


def unfinished(client: Client, handle: int, delivery_id: int, pieces: int, size: int) -> None:
    """Transfers of a delivery that does not end."""
    frames = [
        codec.encode_frame(
            client.session.channel,
            Transfer(handle, delivery_id if n == 0 else None, b"t" if n == 0 else None, more=True),
            b"x" * size,
        )
        for n in range(pieces)
    ]
    for frame in frames:
        client.server.receive(frame)
    client.world.settle()


def test_a_stranger_has_few_links_until_it_shows_a_token(world: World) -> None:
    stranger = world.connect(token=False)
    for n in range(17):
        stranger.attach(f"l{n}", LinkRole.SENDER, source=Source("me"), target=Target("$cbs"))
    assert not stranger.session.is_writable
    known = world.connect()
    for n in range(40):
        known.attach(f"l{n}", LinkRole.SENDER, source=Source("me"), target=Target("$cbs"))
    assert known.session.is_writable


def test_what_a_stranger_leaves_unfinished_is_small(world: World) -> None:
    stranger = world.connect(token=False)
    link = stranger.attach("l", LinkRole.SENDER, source=Source("me"), target=Target("$cbs"))
    unfinished(stranger, link.handle, 0, 40, 2_000)
    assert stranger.closed_with is not None
    assert stranger.closed_with.condition == RESOURCE_LIMIT_EXCEEDED
    assert "put a token on $cbs" in (stranger.closed_with.description or "")
    assert world.gateway.partial_room.used_bytes == 0


def test_strangers_do_not_take_the_places_of_who_has_a_token() -> None:
    world = World(settings=GatewaySettings(connections_max=2, strangers_max=3))
    strangers = [world.connect(token=False) for _ in range(10)]
    world.settle()
    known = [world.connect() for _ in range(2)]
    assert all(client.closed_with is None for client in known)
    gone = [client for client in strangers if client.closed_with is not None]
    assert gone == strangers[: len(gone)], "the oldest go first"
    assert len(strangers) - len(gone) <= 3
    error = gone[0].closed_with
    assert error is not None
    assert "Put a token on $cbs" in (error.description or "")


def test_unfinished_deliveries_of_all_clients_have_one_bound() -> None:
    world = World(settings=GatewaySettings(partial_bytes_max=20_000))
    world.queue("q")
    first, second = world.connect(), world.connect()
    for client in (first, second):
        link = client.sender("q").link
        unfinished(client, link.handle, 0, 8, 1_500)
    assert first.closed_with is None
    assert second.closed_with is not None
    assert "unfinished deliveries" in (second.closed_with.description or "")
    assert world.gateway.partial_room.used_bytes <= 20_000


def test_a_batch_of_too_many_copies_is_refused_and_one_message_is_not(world: World) -> None:
    world.topic("t")
    for n in range(101):
        world.subscription("t", f"s{n}")
    sender = world.connect().sender("t")
    count = BATCH_MAX_COPIES // 101 + 1
    refused = sender.put(batch(*[message()] * count), message_format=BATCH_FORMAT)
    world.settle(for_ms=1_000)
    outcome = sender.outcome(refused)
    assert isinstance(outcome, Rejected)
    assert "one alone is always taken" in (outcome.error.description or "")
    allowed = sender.put(batch(*[message()] * (count - 1)), message_format=BATCH_FORMAT)
    one = sender.put(message())
    world.settle(for_ms=1_000)  # computed in rounds
    assert isinstance(sender.outcome(allowed), Accepted)
    assert isinstance(sender.outcome(one), Accepted)
