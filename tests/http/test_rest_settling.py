"""Complete, unlock and renew by the address of a locked message (http.md section 9)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from urllib.parse import quote
from uuid import uuid4

import pytest
from azure.servicebus import ServiceBusClient

from busway.testing import Server
from tests.http.rest_client import Reply, Rest

CONFIG = """
[[queues]]
name = "plain"

[[queues]]
name = "parts"
partitioned = true

[[queues]]
name = "other"
partitioned = true

[[queues]]
name = "brief"
lock_duration = "5s"

[[topics]]
name = "news"
partitioned = true

[[topics.subscriptions]]
name = "all"
"""
PLACES = {"plain": "plain", "parts": "parts", "news": "news/Subscriptions/all"}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(config=CONFIG) as running:
        yield running


@pytest.fixture
def rest(server: Server) -> Iterator[Rest]:
    client = Rest(server)
    yield client
    client.close()


@pytest.fixture
def another(server: Server) -> Iterator[Rest]:
    """Another connection."""
    client = Rest(server)
    yield client
    client.close()


@pytest.mark.parametrize("entity", PLACES)
def test_a_completed_message_is_gone(rest: Rest, another: Rest, entity: str) -> None:
    """LOCK-6: the token counts, not the connection that the message came on."""
    rest.sent(entity, "x")
    locked = rest.locked(PLACES[entity])
    assert rest.is_empty(PLACES[entity])
    reply = another.complete(locked)
    assert (reply.status, reply.body, reply.headers["content-length"]) == (200, b"", "0")
    assert rest.is_empty(PLACES[entity])
    assert rest.complete(locked).status == 404


@pytest.mark.parametrize("entity", PLACES)
def test_an_unlocked_message_comes_again_and_has_been_counted(
    rest: Rest, another: Rest, entity: str
) -> None:
    """DLV-2."""
    rest.sent(entity, "x")
    for count in (1, 2, 3):
        locked = rest.locked(PLACES[entity])
        assert locked.broker["DeliveryCount"] == count
        reply = another.unlock(locked)
        assert (reply.status, reply.body) == (200, b"")
        assert another.unlock(locked).status == 404
    assert rest.taken(PLACES[entity], 1) == ["x"]


def test_a_renewed_lock_lasts_longer(rest: Rest, another: Rest) -> None:
    """LOCK-3, LOCK-4."""
    rest.sent("brief", "x")
    locked = rest.locked("brief")
    first = parsedate_to_datetime(locked.broker["LockedUntilUtc"])
    until = first
    while until <= first:  # whole seconds are what a header shows
        reply = another.renew(locked)
        assert (reply.status, reply.body) == (200, b"")
        until = parsedate_to_datetime(reply.broker["LockedUntilUtc"])
    again = rest.peek_lock("brief", timeout=30)
    assert (again.status, again.text, again.broker["DeliveryCount"]) == (201, "x", 2)
    assert rest.renew(locked).status == 404
    assert rest.complete(locked).status == 404
    assert rest.complete(again).status == 200


@pytest.mark.parametrize("entity", PLACES)
@pytest.mark.parametrize("message_id", ["order/7", "naïve & ?#%25", "7", "a" * 128, "messages"])
def test_a_message_is_named_by_its_number_or_its_id(
    rest: Rest, entity: str, message_id: str
) -> None:
    place = PLACES[entity]
    rest.sent(entity, "x", MessageId=message_id)
    locked = rest.locked(place)
    name, token = quote(message_id, safe=""), locked.broker["LockToken"]
    assert rest.request("POST", f"/{place}/messages/{name}/{token}").status == 200
    assert rest.request("PUT", f"/{place}/messages/{name}/{token}").status == 200
    locked = rest.locked(place)
    token = locked.broker["LockToken"]
    assert rest.request("DELETE", f"/{place}/messages/{name}/{token.upper()}").status == 200
    assert rest.is_empty(place)


def wrong_addresses(locked: Reply) -> dict[str, str]:
    number, token = locked.broker["SequenceNumber"], locked.broker["LockToken"]
    return {
        "another message": f"/parts/messages/{number + 1}/{token}",
        "another id": f"/parts/messages/somebody/{token}",
        "another token": f"/parts/messages/{number}/{uuid4()}",
        "another partition": f"/parts/messages/{number}/ffff{token[4:]}",
        "no token": f"/parts/messages/{number}/nonsense",
        "another queue": f"/other/messages/{number}/{token}",
        "a conventional queue": f"/plain/messages/{number}/{token}",
        "another sub-queue": f"/parts/$DeadLetterQueue/messages/{number}/{token}",
        "a subscription": f"/news/subscriptions/all/messages/{number}/{token}",
    }


@pytest.mark.parametrize("method", ["DELETE", "PUT", "POST"])
def test_a_lock_that_is_not_known_is_not_found(rest: Rest, method: str) -> None:
    rest.sent("parts", "x")
    locked = rest.locked("parts")
    for what, path in wrong_addresses(locked).items():
        reply = rest.request(method, path)
        assert reply.status == 404, what
        assert "The lock supplied is invalid" in reply.text
    assert rest.complete(locked).status == 200  # nothing of it has done anything


@pytest.mark.parametrize("method", ["DELETE", "PUT", "POST"])
@pytest.mark.parametrize("entity", ["nowhere", "news/subscriptions/nobody"])
def test_an_entity_that_is_not_there_is_gone(rest: Rest, method: str, entity: str) -> None:
    assert rest.request(method, f"/{entity}/messages/1/{uuid4()}").status == 410


def test_links_and_requests_hold_the_same_locks(rest: Rest, server: Server) -> None:
    rest.sent("parts", "by a link", "by a request")
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_receiver("parts") as receiver,
    ):
        (message,) = receiver.receive_messages(max_wait_time=30)
        locked = rest.locked("parts")
        assert {str(message), locked.text} == {"by a link", "by a request"}
        assert rest.is_empty("parts")
        number, token = message.sequence_number, message.lock_token
        assert rest.request("DELETE", f"/parts/messages/{number}/{token}").status == 200
        assert rest.complete(locked).status == 200
        assert receiver.peek_messages() == []


def test_a_dead_letter_can_be_unlocked_for_ever(rest: Rest) -> None:
    """DLV-6."""
    rest.sent("brief", "x", TimeToLive=60)
    for _ in range(10):
        assert rest.unlock(rest.locked("brief")).status == 200
    place = "brief/$DeadLetterQueue"
    for count in range(11, 15):
        locked = rest.locked(place)
        assert locked.broker["DeliveryCount"] == count
        assert rest.unlock(locked).status == 200
    assert json.loads(rest.delete(place).headers["deadletterreason"]) == "MaxDeliveryCountExceeded"
