"""A clock that tests move: what falls due is done when the call returns, and nothing else is."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
)
from azure.servicebus.exceptions import MessageLockLostError, SessionLockLostError

from busway.testing import Bus, RequestError, Server
from tests.http.asking import ask, manager

WAIT_S = 60
"""How long to wait for what must be there; nobody waits for it when all is well."""


@pytest.fixture
def client(busway: Bus) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(busway.connection_string) as client:
        yield client


def send(bus: Bus, queue: str, body: str = "x", **properties: Any) -> None:
    """Over HTTP, which opens no links: the SDK takes a second for each."""
    reply = ask(
        bus.server,
        "POST",
        f"/{queue}/messages",
        body,
        token=manager(bus.server),
        headers={"BrokerProperties": json.dumps(properties)},
    )
    assert reply.status == 201, reply.text


def schedule(bus: Bus, queue: str, body: str = "x", **span: float) -> None:
    due = bus.clock.now() + timedelta(**span)
    text = due.strftime("%a, %d %b %Y %H:%M:%S GMT")
    send(bus, queue, body, ScheduledEnqueueTimeUtc=text)


def there(bus: Bus, queue: str) -> list[str]:
    """What is there now: peeks do not wait, so this tells what a call has left behind."""
    found, after = [], 0
    while after is not None:
        path = f"/{queue}/$explorer/messages?count=250&from={after}"
        page = ask(bus.server, "GET", path, token=manager(bus.server)).json
        found += [
            f"{each['state']} {base64.b64decode(each['body']['base64']).decode()}"
            for each in page["messages"]
        ]
        after = page["next"]
    return found


def one(receiver: ServiceBusReceiver) -> ServiceBusReceivedMessage:
    (message,) = receiver.receive_messages(max_message_count=1, max_wait_time=WAIT_S)
    return message


def test_a_schedule_fires_when_its_time_has_come(busway: Bus, client: ServiceBusClient) -> None:
    queue = busway.queue()
    with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        for minutes in (10, 30):
            due = busway.clock.now() + timedelta(minutes=minutes)
            sender.schedule_messages(ServiceBusMessage(f"in {minutes}"), due)
        busway.clock.advance(minutes=5)
        assert there(busway, queue) == ["scheduled in 10", "scheduled in 30"]
        busway.clock.advance(minutes=10)
        assert sorted(there(busway, queue)) == ["active in 10", "scheduled in 30"]
        busway.clock.advance(minutes=20)
        assert [str(one(receiver)) for _ in range(2)] == ["in 10", "in 30"]


def test_a_lock_is_lost_and_its_message_comes_again(busway: Bus, client: ServiceBusClient) -> None:
    queue = busway.queue(lock_duration=timedelta(minutes=5))
    send(busway, queue)
    with client.get_queue_receiver(queue) as receiver:
        first = one(receiver)
        busway.clock.advance(minutes=3)
        receiver.renew_message_lock(first)
        busway.clock.advance(minutes=3)
        receiver.renew_message_lock(first)  # the first renewal has counted
        busway.clock.advance(minutes=6)
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(first)
        again = one(receiver)
        assert (str(again), again.delivery_count) == ("x", 1)
        assert again.locked_until_utc > busway.clock.now()
        receiver.complete_message(again)


def test_a_session_lock_is_lost(busway: Bus, client: ServiceBusClient) -> None:
    queue = busway.queue(requires_session=True, lock_duration=timedelta(minutes=2))
    send(busway, queue, SessionId="s")
    with client.get_queue_receiver(
        queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=WAIT_S
    ) as receiver:
        one(receiver)
        busway.clock.advance(minutes=3)
        with pytest.raises(SessionLockLostError):
            receiver.session.set_state("late")
    assert there(busway, queue) == ["active x"]


def test_messages_expire(busway: Bus) -> None:
    queue = busway.queue(dead_lettering_on_message_expiration=True)
    send(busway, queue, "late", TimeToLive=7_200)
    send(busway, queue, "soon", TimeToLive=3_600)
    send(busway, queue, "never")
    busway.clock.advance(hours=1.5)
    assert there(busway, queue) == ["active late", "active never"]
    busway.clock.advance(hours=1.5)
    assert there(busway, queue) == ["active never"]
    assert there(busway, f"{queue}/$DeadLetterQueue") == ["active late", "active soon"]


def test_time_passes_in_order_however_far_it_is_moved(busway: Bus) -> None:
    """It comes after two minutes, is forwarded and lives for five. A clock that jumped would let
    it live from the end of the jump on."""
    goal = busway.queue(
        default_message_time_to_live=timedelta(minutes=5), dead_lettering_on_message_expiration=True
    )
    queue = busway.queue(forward_to=goal)
    schedule(busway, queue, minutes=2)
    busway.clock.advance(minutes=10)
    assert there(busway, goal) == []
    assert there(busway, f"{goal}/$DeadLetterQueue") == ["active x"]


def test_more_than_a_page_falls_due_at_once(busway: Bus, client: ServiceBusClient) -> None:
    """The sweep rests between pages of 200; who moves the clock does not see that."""
    queue = busway.queue()
    with client.get_queue_sender(queue) as sender:
        for _ in range(5):
            due = busway.clock.now() + timedelta(minutes=1)
            sender.schedule_messages([ServiceBusMessage("x")] * 150, due)
    busway.clock.advance(minutes=2)
    assert there(busway, queue) == ["active x"] * 750


def test_what_becomes_active_is_forwarded_before_the_call_returns(busway: Bus) -> None:
    goal = busway.queue()
    middle = busway.topic(subscriptions={"all": {"forward_to": goal}})
    first = busway.queue(forward_to=middle)
    schedule(busway, first, days=1)
    busway.clock.advance(days=1)
    assert there(busway, goal) == ["active x"]


@pytest.mark.parametrize("partitioned", [False, True])
def test_a_duplicate_window_ends(busway: Bus, partitioned: bool) -> None:
    queue = busway.queue(
        requires_duplicate_detection=True,
        duplicate_detection_history_time_window=timedelta(hours=10),
        enable_partitioning=partitioned,
    )
    for hours in (0, 9, 2):
        busway.clock.advance(hours=hours)
        send(busway, queue, MessageId="1")
    assert there(busway, queue) == ["active x"] * 2


def test_an_idle_queue_is_gone(busway: Bus) -> None:
    queue = busway.queue(auto_delete_on_idle=timedelta(hours=5))
    waiting = busway.queue(auto_delete_on_idle=timedelta(hours=5))
    schedule(busway, waiting, hours=13)  # which is use
    for _ in range(2):
        send(busway, queue)
        busway.clock.advance(hours=4)
    assert there(busway, queue) == ["active x"] * 2
    busway.clock.advance(hours=6)
    with pytest.raises(RequestError) as gone:
        busway.delete(queue)
    assert gone.value.status == 404
    assert there(busway, waiting) == ["active x"]


def test_connections_and_tokens_do_not_notice(busway: Bus, client: ServiceBusClient) -> None:
    """Days of silence, and tokens that are good for an hour: neither ends the link."""
    queue = busway.queue()
    with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        sender.send_messages(ServiceBusMessage("before"))
        receiver.complete_message(one(receiver))
        before = sender._handler, receiver._handler
        busway.clock.advance(days=30)
        sender.send_messages(ServiceBusMessage("after"))
        receiver.complete_message(one(receiver))
        assert (sender._handler, receiver._handler) == before, "the SDK had to open links anew"


def test_the_clock_tells_how_far_it_is_ahead(busway: Bus) -> None:
    assert busway.clock.ahead == timedelta()
    told = busway.clock.advance(days=2, hours=1)
    assert busway.clock.ahead == timedelta(days=2, hours=1)
    assert told - datetime.now(UTC) > timedelta(days=2)
    goal = busway.clock.now() + timedelta(minutes=30)
    assert busway.clock.advance_to(goal) >= goal
    assert busway.clock.advance_to(datetime.now(UTC)) >= goal  # over already: nothing happens
    with pytest.raises(ValueError, match="ahead only"):
        busway.clock.advance(minutes=-1)
    with pytest.raises(ValueError, match="no time zone"):
        busway.clock.advance_to(datetime(2030, 1, 1))
    with pytest.raises(RequestError, match="may be 3,660"):
        busway.clock.advance(days=4_000)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("[]", "one entry"),
        ('{"advance": "soon"}', "no span of time"),
        ('{"advance_ms": true}', "no span of time"),
        ('{"advance_ms": -1}', "ahead only"),
        ("10m", "not JSON"),
    ],
)
def test_a_span_that_is_none_is_refused(busway: Bus, body: str, told: str) -> None:
    reply = ask(busway.server, "POST", "/$busway/clock", body, token=manager(busway.server))
    assert reply.status == 400
    assert told in reply.text
    assert busway.clock.ahead == timedelta()


@pytest.mark.parametrize("span", ["90s", "1m30s", "PT1M30S", "PT90S"])
def test_spans_are_written_as_elsewhere(busway: Bus, span: str) -> None:
    body = {"advance": span}
    reply = ask(busway.server, "POST", "/$busway/clock", body, token=manager(busway.server))
    assert reply.json["ahead_ms"] == 90_000


def test_nobody_moves_it_without_a_token(busway: Bus) -> None:
    for path in ("/$busway/clock", "/$busway/reset"):
        assert ask(busway.server, "POST", path, {"advance": "1m"}).status == 401
    assert busway.clock.ahead == timedelta()


def test_reset_begins_anew_with_the_real_time(busway: Bus) -> None:
    mine = busway.queue(requires_duplicate_detection=True)
    send(busway, mine)
    busway.clock.advance(days=400)
    send(busway, "queue", "with a time to come")
    busway.reset()
    assert busway.clock.ahead == timedelta()
    assert there(busway, "queue") == []
    with pytest.raises(RequestError) as gone:
        busway.delete(mine)
    assert gone.value.status == 404
    # The stores have forgotten the other time as well: what is new keeps its own.
    again = busway.queue(
        requires_duplicate_detection=True,
        duplicate_detection_history_time_window=timedelta(minutes=10),
    )
    send(busway, again, MessageId="1")
    send(busway, again, MessageId="1")
    busway.clock.advance(minutes=11)
    send(busway, again, MessageId="1")
    schedule(busway, again, "later", minutes=1)
    busway.clock.advance(minutes=2)
    assert there(busway, again) == ["active x", "active x", "active later"]


def test_a_server_that_does_not_allow_it_refuses() -> None:
    with Server("orders") as server:
        bus = Bus(server)
        assert bus.clock.ahead == timedelta()  # it can be read
        for refused in (lambda: bus.clock.advance(minutes=1), bus.reset):
            with pytest.raises(RequestError, match="--allow-clock") as caught:
                refused()
            assert caught.value.status == 403
        assert bus.clock.ahead == timedelta()


def test_memory_servers_have_a_clock_too() -> None:
    with Server("orders", arguments=["--allow-clock"]) as server:
        bus = Bus(server)
        for _ in range(2):
            schedule(bus, "orders", days=1)
            bus.clock.advance(days=1)
            assert there(bus, "orders") == ["active x"]
            bus.reset()
            assert there(bus, "orders") == []
            assert bus.clock.ahead == timedelta()
