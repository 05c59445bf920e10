"""What Azure.Messaging.ServiceBus (on Microsoft.Azure.Amqp) sends and expects, frame by frame."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest

from busway.amqp.performatives import (
    Close,
    Detach,
    End,
    Open,
    Target,
    Transfer,
)
from busway.amqp.types import Array, Int, Symbol, UInt, ULong
from busway.gateway.session_receiver import LOCKED_UNTIL
from busway.gateway.source_filters import SESSION_FILTER
from busway.model.limits import Tier
from tests.gateway.dotnet_peer import (
    EMPTY_FRAME,
    IDLE_TIMEOUT_MS,
    LINK_PROPERTIES,
    MANAGEMENT,
    TIMEOUT,
    Peer,
)
from tests.gateway.world import World, longs, message

LOCK_MS = 60_000


@pytest.fixture(params=[False, True], ids=["conventional", "partitioned"])
def world(request: pytest.FixtureRequest) -> World:
    world = World()
    world.queue("orders", enable_partitioning=request.param, lock_duration_ms=LOCK_MS)
    return world


# --- The connection ------------------------------------------------------------------------------


def test_an_open_with_properties_and_unknown_capabilities_is_answered(world: World) -> None:
    opened = Peer(world).last(Open)
    assert opened.idle_time_out is not None
    assert opened.idle_time_out >= 120_000
    assert not opened.offered_capabilities  # none of those that were desired
    assert 512 <= opened.max_frame_size <= 1 << 20


def test_a_quiet_connection_lives_on_empty_frames_of_both_sides(world: World) -> None:
    peer = Peer(world)
    channel, _ = peer.sender()
    began_ms = world.scheduler.now_ms()
    for second in peer.pass_time(900):
        if second % 60 == 59:  # half of what the broker tolerates
            peer.write(EMPTY_FRAME)
    heard_ms = [began_ms, *peer.empty_frames_ms, world.scheduler.now_ms()]
    gaps_ms = [after - before for before, after in pairwise(heard_ms)]
    assert max(gaps_ms) <= IDLE_TIMEOUT_MS * 2 / 3  # half, and ticks that come once a second
    assert not peer.heard(Close)
    assert not peer.heard(Detach)  # a link may be idle for as long as it likes
    peer.put(channel, message("after a quarter of an hour"))


def test_a_peer_that_says_nothing_at_all_is_closed(world: World) -> None:
    peer = Peer(world)
    tolerated_ms = peer.last(Open).idle_time_out
    assert tolerated_ms is not None
    began_ms = world.scheduler.now_ms()
    for _ in peer.pass_time(tolerated_ms // 1000 * 2):
        if peer.heard(Close):
            break
    assert world.scheduler.now_ms() - began_ms >= tolerated_ms
    error = peer.last(Close).error
    assert error is not None
    assert error.condition == "amqp:resource-limit-exceeded"


# --- Attaching -----------------------------------------------------------------------------------


@pytest.mark.parametrize("capabilities", [None, ["a-capability-that-nobody-has"]])
@pytest.mark.parametrize("properties", [None, {}, TIMEOUT, LINK_PROPERTIES])
def test_links_with_any_properties_and_capabilities_are_served(
    world: World, properties: dict[Any, Any] | None, capabilities: list[str] | None
) -> None:
    peer = Peer(world)
    fields = {"properties": properties, "desired_capabilities": capabilities}
    channel, answer = peer.sender(**fields)
    assert (answer.name, answer.role) == ("sender", True)
    assert isinstance(answer.target, Target)
    assert answer.target.address == "/orders"
    assert not answer.offered_capabilities
    peer.put(channel, message("hello"))
    channel, answer = peer.receiver(**fields)
    assert (answer.name, answer.role, answer.initial_delivery_count) == ("receiver", False, 0)
    assert (answer.snd_settle_mode, answer.rcv_settle_mode) == (0, 1)
    assert answer.source is not None
    assert answer.source.address == "/orders"
    assert not answer.source.filter
    assert not answer.offered_capabilities
    assert peer.bodies(channel) == ["hello"]
    assert not peer.heard(Detach)


@pytest.mark.parametrize(
    ("tier", "size"), [(Tier.STANDARD, 256 * 1024), (Tier.PREMIUM, 1024 * 1024)]
)
def test_a_sender_is_told_the_largest_message_as_ulong(tier: Tier, size: int) -> None:
    """.NET makes batches by `max-message-size`, and newer ones by the property."""
    world = World(tier=tier)
    world.queue("orders")
    _, answer = Peer(world).sender()
    assert answer.max_message_size == size
    assert answer.properties is not None
    batch = answer.properties[Symbol("com.microsoft:max-message-batch-size")]
    assert (type(batch), batch) == (ULong, size)


@pytest.mark.parametrize("wished", ["a", None], ids=["by id", "the next"])
@pytest.mark.parametrize("properties", [None, LINK_PROPERTIES])
def test_a_session_receiver_is_told_its_session_and_its_lock(
    wished: str | None, properties: dict[Any, Any] | None
) -> None:
    world = World()
    world.queue("orders", requires_session=True, lock_duration_ms=30_000)
    peer = Peer(world)
    channel, _ = peer.sender()
    peer.put(channel, message("hello", session_id="a"))
    filters = {Symbol(SESSION_FILTER): wished}
    channel, answer = peer.receiver(filters=filters, properties=properties)
    assert answer.source is not None
    assert answer.source.filter == {Symbol(SESSION_FILTER): "a"}
    assert answer.properties is not None
    assert type(answer.properties[Symbol(LOCKED_UNTIL)]) is int  # a long, in ticks
    assert peer.bodies(channel) == ["hello"]


def test_a_management_request_with_what_dotnet_adds_is_answered(world: World) -> None:
    peer = Peer(world)
    link = peer.request_links("orders/$management", MANAGEMENT, channel=peer.begin())
    properties = {
        "operation": "com.microsoft:peek-message",
        "com.microsoft:server-timeout": UInt(59_999),
        "com.microsoft:tracking-id": "11111111-2222-3333-4444-555555555555",
        "associated-link-name": "receiver",
    }
    peek = {"from-sequence-number": 0, "message-count": 1}
    answer = peer.request(link, properties, peek)
    assert (type(answer["statusCode"]), answer["statusCode"]) == (Int, 204)


def test_a_refused_request_says_its_status_as_int_and_its_condition_as_symbol(
    world: World,
) -> None:
    """.NET casts the condition, and takes no other type."""
    peer = Peer(world)
    link = peer.request_links("orders/$management", MANAGEMENT, channel=peer.begin())
    cancel = {"operation": "com.microsoft:cancel-scheduled-message"}
    answer = peer.request(link, cancel, {"sequence-numbers": longs(7)})
    assert (type(answer["statusCode"]), answer["statusCode"]) == (Int, 404)
    condition = answer["errorCondition"]
    assert (type(condition), condition) == (Symbol, "com.microsoft:message-not-found")
    assert "TrackingId:" in answer["statusDescription"]


# --- Links that the broker ends ------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sender", "sender-2"], ids=["same name", "another name"])
@pytest.mark.parametrize("single_session", [True, False])
def test_a_link_that_was_detached_by_force_is_attached_again(
    world: World, name: str, single_session: bool
) -> None:
    peer = Peer(world)
    channel, _ = peer.sender()
    peer.put(channel, message("before"))
    entity = world.catalog.find("orders")
    assert entity is not None
    world.catalog.update(replace(entity, max_delivery_count=3))
    world.settle()
    detach = peer.last(Detach)
    assert detach.closed
    assert detach.error is not None
    assert detach.error.condition == "amqp:link:detach-forced"
    assert "TrackingId:" in str(detach.error.description)
    peer.send(Detach(peer.asked.handle, True), channel=channel)
    if single_session:  # with transactions across entities
        channel, answer = peer.sender(name, channel=channel)
    else:
        peer.send(End(), channel=channel)
        channel, answer = peer.sender(name)
    assert answer.target is not None
    peer.put(channel, message("after"), number=2 if single_session else 1)
    found: list[str] = []
    for number in range(2):
        channel, _ = peer.receiver(f"receiver-{number}")
        found += peer.bodies(channel)
    assert sorted(found) == ["after", "before"]


def test_a_session_whose_link_was_detached_by_force_is_accepted_again() -> None:
    world = World()
    queue = world.queue("orders", requires_session=True)
    peer = Peer(world)
    filters = {Symbol(SESSION_FILTER): "a"}
    channel, _ = peer.receiver(filters=filters)
    entity = world.catalog.find(queue.path)
    assert entity is not None
    world.catalog.update(replace(entity, max_delivery_count=3))
    world.settle()
    error = peer.last(Detach).error
    assert error is not None
    assert error.condition == "amqp:link:detach-forced"
    peer.send(Detach(peer.asked.handle, True), channel=channel)
    peer.send(End(), channel=channel)
    _, answer = peer.receiver("again", filters=filters)
    assert answer.name == "again"
    assert answer.source is not None
    assert answer.source.filter == filters


# --- Tokens --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first_s", "renewed_s"), [(60, 300), (300, 60), (60, 60)])
def test_the_newest_token_says_how_long_a_live_link_lasts(
    world: World, first_s: int, renewed_s: int
) -> None:
    peer = Peer(world, life_s=first_s)
    channel, _ = peer.sender()
    world.settle(for_ms=30_000)
    assert peer.put_token(life_s=renewed_s) == 202
    renewed_ms = world.scheduler.now_ms()
    for second in peer.pass_time(renewed_s + 10):
        if second % 60 == 20:
            peer.put(channel, message(), number=second + 1)
        if peer.heard(Detach):
            break
    lasted_ms = world.scheduler.now_ms() - renewed_ms
    assert (renewed_s - 2) * 1_000 <= lasted_ms <= (renewed_s + 3) * 1_000
    error = peer.last(Detach).error
    assert error is not None
    assert error.condition == "amqp:unauthorized-access"
    assert not peer.heard(Close)
    assert peer.put_token() == 202  # and all goes on
    channel, _ = peer.sender("again")
    peer.put(channel, message())


# --- Receivers whose link ended ------------------------------------------------------------------


def lock_token(peer: Peer, channel: int) -> UUID:
    """As .NET reads it: a delivery tag in the byte order of a Guid."""
    (tag,) = [
        frame.delivery_tag
        for at, frame, _ in peer.said
        if at == channel and isinstance(frame, Transfer)
    ]
    return UUID(bytes_le=bytes(tag or b""))


def complete_by_request(peer: Peer, token: UUID) -> int:
    """What .NET does for a message whose link is gone."""
    link = peer.request_links("orders/$management", MANAGEMENT, channel=peer.begin())
    asked = {"operation": "com.microsoft:update-disposition"}
    content = {"disposition-status": "completed", "lock-tokens": Array([token], UUID)}
    return int(peer.request(link, asked, content)["statusCode"])


def is_empty(world: World, peer: Peer) -> bool:
    channel, _ = peer.receiver("looks")
    world.settle(for_ms=LOCK_MS + 1_000)  # what was locked would be there again
    return peer.bodies(channel) == []


def test_what_was_received_before_a_link_was_detached_by_force_can_be_completed(
    world: World,
) -> None:
    peer = Peer(world)
    channel, _ = peer.sender()
    peer.put(channel, message("hello"))
    channel, _ = peer.receiver()
    token = lock_token(peer, channel)
    entity = world.catalog.find("orders")
    assert entity is not None
    world.catalog.update(replace(entity, max_delivery_count=3))
    world.settle()
    forced = [each for each in peer.heard(Detach) if each.error is not None]
    assert {str(each.error.condition) for each in forced if each.error} == {
        "amqp:link:detach-forced"
    }
    assert len(forced) == 2  # the sender's and the receiver's
    assert complete_by_request(peer, token) == 200
    assert is_empty(world, peer)


def test_what_was_received_before_a_token_ran_out_can_be_completed_with_the_next(
    world: World,
) -> None:
    peer = Peer(world, life_s=20)
    channel, _ = peer.sender()
    peer.put(channel, message("hello"))
    channel, _ = peer.receiver()
    token = lock_token(peer, channel)
    for _ in peer.pass_time(25):
        pass
    conditions = {str(each.error.condition) for each in peer.heard(Detach) if each.error}
    assert conditions == {"amqp:unauthorized-access"}
    assert peer.put_token() == 202
    assert complete_by_request(peer, token) == 200
    assert is_empty(world, peer)


@pytest.mark.parametrize("requires_session", [False, True])
def test_a_token_renewed_in_time_keeps_a_receiver_that_waits(requires_session: bool) -> None:
    """What comes after the first token's end reaches it, and the session stays its own."""
    world = World()
    world.queue("orders", requires_session=requires_session, lock_duration_ms=300_000)
    peer = Peer(world, life_s=60)
    filters = {Symbol(SESSION_FILTER): "a"} if requires_session else None
    channel, _ = peer.receiver(filters=filters)
    for second in peer.pass_time(240):
        if second % 40 == 39:
            assert peer.put_token(life_s=60) == 202
    assert not peer.heard(Detach)
    sending, _ = peer.sender()
    peer.put(sending, message("late", session_id="a" if requires_session else None))
    assert peer.bodies(channel) == ["late"]
