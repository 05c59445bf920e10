"""What one client can make the broker keep or say has a bound, whatever it asks for."""

from __future__ import annotations

import pytest

from busway.amqp.performatives import Accepted, Source
from busway.amqp.types import Symbol
from busway.broker.broker import Broker
from busway.broker.seams import Grant
from busway.gateway.fanin import GRANT_MESSAGES_MAX, LENT_CREDIT_MAX
from busway.gateway.gateway import GatewaySettings
from busway.gateway.requests import REQUEST_CREDIT, RequestEndpoint
from busway.gateway.session_receiver import SESSION_FILTER
from busway.model.limits import PEEK_REPLY_MAX_BYTES
from tests.gateway.world import Client, Requests, World, message

ALL_CREDIT = 2**32 - 1
DEPTH = 1_300
"""More than a window holds, so that some of it has to be read from the store."""


@pytest.fixture
def grants(monkeypatch: pytest.MonkeyPatch) -> list[Grant]:
    """Every grant that is made from now on."""
    made: list[Grant] = []
    grant_of_broker = Broker.grant

    def grant(broker: Broker, grant: Grant) -> None:
        made.append(grant)
        grant_of_broker(broker, grant)

    monkeypatch.setattr(Broker, "grant", grant)
    return made


@pytest.mark.parametrize("delete", [False, True], ids=["peek-lock", "receive-and-delete"])
def test_one_grant_waits_for_a_page_however_much_credit_there_is(
    world: World, grants: list[Grant], delete: bool
) -> None:
    world.queue("deep")
    sender = world.connect().sender("deep")
    sender.fill(DEPTH)
    for disk in world.disks.values():
        disk.pause()
    receiver = world.connect().receiver("deep", credit=ALL_CREDIT, delete=delete)
    waiting = [grant for grant in grants if grant.left > 0]
    assert len(waiting) <= 1
    assert sum(grant.left + grant.reserved for grant in grants) <= LENT_CREDIT_MAX
    for disk in world.disks.values():
        disk.resume()
    world.settle()
    assert len(receiver.deliveries) == DEPTH
    assert len(grants) <= 3 * DEPTH // GRANT_MESSAGES_MAX + 10


def test_one_grant_of_a_session_waits_for_a_page(world: World, grants: list[Grant]) -> None:
    world.queue("deep", requires_session=True)
    sender = world.connect().sender("deep")
    sender.fill(DEPTH, session_id="s")
    source = Source("deep", filter={Symbol(SESSION_FILTER): "s"})
    receiver = world.connect().receiver("deep", source=source)
    for disk in world.disks.values():
        disk.pause()
    receiver.credit(ALL_CREDIT)
    assert len([grant for grant in grants if grant.left > 0]) <= 1
    for disk in world.disks.values():
        disk.resume()
    world.settle()
    assert len(receiver.deliveries) == DEPTH
    assert isinstance(receiver.settle(receiver.deliveries[:1], Accepted()), Accepted)


# --- Replies that are not taken ------------------------------------------------------------------

PEEK = {"operation": "com.microsoft:peek-message"}
TWENTY = {"from-sequence-number": 0, "message-count": 20}


def filled(settings: GatewaySettings) -> Client:
    """A queue of twenty messages of a kilobyte: a reply to a peek has about 22 kB."""
    world = World(settings=settings)
    world.queue("q")
    client = world.connect()
    sender = client.sender("q")
    for _ in range(20):
        assert isinstance(sender.send(message(size=1_000)), Accepted)
    return client


def open_window(requests: Requests, window: int) -> None:
    flow = requests.replies.flow()
    flow.incoming_window = window
    requests.replies.session.write(flow)
    requests.client.world.settle()


def test_requests_are_not_read_while_replies_wait_for_credit() -> None:
    client = filled(GatewaySettings(output_high_bytes=50_000))
    requests = client.requests("q/$management", credit=0)
    asked = [requests.ask(PEEK, TWENTY) for _ in range(10)]
    (endpoint,) = (
        each
        for each in client.server.endpoints
        if isinstance(each, RequestEndpoint) and each.link.name == requests.link.name
    )
    assert 50_000 <= client.server.reply_bytes < 75_000, "three replies, and no more are made"
    assert len(endpoint._held) == 7
    assert requests.link.is_attached
    # The flow of a client is read meanwhile; with it the rest is answered, in order.
    requests.replies.set_credit(100)
    client.world.settle(for_ms=1_000)
    assert all(requests.reply(each) is not None for each in asked)
    assert client.server.reply_bytes == 0
    assert not endpoint._held


def test_requests_are_not_read_while_replies_wait_for_a_session_window() -> None:
    client = filled(GatewaySettings(output_high_bytes=50_000))
    requests = client.requests("q/$management", credit=100)
    open_window(requests, 0)
    asked = [requests.ask(PEEK, TWENTY) for _ in range(10)]
    engine = client.server.engine
    assert 50_000 <= engine.pending_bytes < 75_000
    assert requests.link.is_attached
    open_window(requests, 1_000)
    client.world.settle(for_ms=1_000)
    assert all(requests.reply(each) is not None for each in asked)
    assert engine.pending_bytes == 0


def test_what_is_being_answered_counts_as_the_largest_reply_it_may_bring() -> None:
    room = 4 * PEEK_REPLY_MAX_BYTES
    client = filled(GatewaySettings(reply_bytes_max=room))
    world = client.world
    requests = client.requests("q/$management", credit=100)
    for disk in world.disks.values():
        disk.pause()
    asked = [requests.ask(PEEK, TWENTY, wait=False) for _ in range(10)]
    world.settle()
    assert client.server.reply_bytes_expected == room
    assert client.server.requests_open == 4
    for disk in world.disks.values():
        disk.resume()
    world.settle(for_ms=1_000)
    assert all(requests.reply(each) is not None for each in asked)
    assert client.server.reply_bytes_expected == 0


def test_a_client_that_asks_on_without_credit_loses_the_link_of_its_requests() -> None:
    client = filled(GatewaySettings(output_high_bytes=50_000))
    requests = client.requests("q/$management", credit=0)
    count = 0
    while requests.link.is_attached:
        count += 1
        assert count <= 3 + REQUEST_CREDIT + 1
        requests.link.credit = max(requests.link.credit, 1)
        requests.ask(PEEK, TWENTY)
    error = client.refusal(requests.link)
    assert error is not None
    assert "Give credit" in (error.description or "")
    assert client.server.reply_bytes < 75_000
    assert client.closed_with is None
