"""Strangers are poor: what a connection may do, and how many there are, before a valid token."""

from __future__ import annotations

from busway.amqp import codec
from busway.amqp.errors import RESOURCE_LIMIT_EXCEEDED
from busway.amqp.link import LinkRole
from busway.amqp.performatives import Accepted, Rejected, Source, Target, Transfer
from busway.gateway.gateway import GatewaySettings
from busway.model.limits import BATCH_MAX_COPIES, BATCH_MAX_MESSAGES
from tests.gateway.world import Client, World, message

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


def test_replies_that_are_not_taken_end_the_link_of_the_requests() -> None:
    world = World(settings=GatewaySettings(reply_bytes_max=20_000))
    world.queue("q")
    client = world.connect()
    sender = client.sender("q")
    for _ in range(20):
        assert isinstance(sender.send(message(size=1_000)), Accepted)
    requests = client.requests("q/$management", credit=0)
    peek = {"operation": "com.microsoft:peek-message"}
    for _ in range(10):
        if not requests.link.is_attached:
            break
        requests.ask(peek, {"from-sequence-number": 0, "message-count": 20})
    error = client.refusal(requests.link)
    assert error is not None
    assert "Give credit" in (error.description or "")
    # One reply above the bound at most, whatever was asked for.
    assert client.server.reply_bytes <= 20_000 + 2 * 30_000


def test_a_batch_of_too_many_messages_is_refused(world: World) -> None:
    world.queue("q")
    sender = world.connect().sender("q")
    outcome = sender.send_batch(*[b"\x00\x53\x77\x40"] * (BATCH_MAX_MESSAGES + 1))
    assert isinstance(outcome, Rejected)
    assert "Send them in several batches" in (outcome.error.description or "")
    assert isinstance(sender.send_batch(*[b"\x00\x53\x77\x40"] * 100), Accepted)


def test_a_batch_of_too_many_copies_is_refused_and_one_message_is_not(world: World) -> None:
    world.topic("t")
    for n in range(101):
        world.subscription("t", f"s{n}")
    sender = world.connect().sender("t")
    count = BATCH_MAX_COPIES // 101 + 1
    outcome = sender.send_batch(*[message()] * count)
    assert isinstance(outcome, Rejected)
    assert "one alone is always taken" in (outcome.error.description or "")
    assert isinstance(sender.send_batch(*[message()] * (count - 1)), Accepted)
    assert isinstance(sender.send(message()), Accepted)
