"""Time to live as frames say it: header, creation-time and absolute-expiry-time (TTL)."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from busway.amqp.performatives import Accepted, Header, Modified, Properties, Rejected
from busway.amqp.sections import LATEST_MS, TTL_MAX_MS, encode_message, read_properties
from busway.amqp.types import Timestamp, UInt
from busway.model.durations import DAY_MS, MINUTE_MS
from busway.model.entities import Queue
from tests.gateway.world import (
    Client,
    Sender,
    World,
    header,
    longs,
    message,
    message_annotations,
)

EARLIER_MS = 1_000_000_000_000
"""The clock of a client goes its own way: only the difference of its two times counts."""


def lasting(ttl_ms: int) -> bytes:
    """As the .NET client sends it."""
    return encode_message(
        header=Header(ttl=min(ttl_ms, TTL_MAX_MS)),
        properties=Properties(
            message_id="m",
            creation_time=EARLIER_MS,
            absolute_expiry_time=min(EARLIER_MS + ttl_ms, LATEST_MS),
        ),
        data=b"body",
    )


class Said(NamedTuple):
    """What a client makes its time to live and its expiry from."""

    header_ttl_ms: int | None
    ttl_ms: int
    """.NET: absolute-expiry-time less creation-time."""
    begins_late_ms: int
    """creation-time less the time at which it was enqueued."""


def said_by(payload: bytes) -> Said:
    properties = read_properties(payload)
    assert properties.creation_time is not None
    assert properties.absolute_expiry_time is not None
    enqueued_ms = message_annotations(payload)["x-opt-enqueued-time"]
    return Said(
        header(payload).ttl,
        properties.absolute_expiry_time - properties.creation_time,
        properties.creation_time - enqueued_ms,
    )


def take(client: Client, path: str, name: str = "receiver") -> bytes:
    receiver = client.receiver(path, name, credit=1, delete=True)
    [delivery] = receiver.deliveries
    receiver.link.detach()
    client.world.settle()
    return delivery.payload


@pytest.fixture(params=[False, True], ids=["conventional", "partitioned"])
def partitioned(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_a_message_of_a_hundred_days_is_there_after_ninety_nine(
    world: World, client: Client, queue: str
) -> None:
    """TTL-1, TTL-3: its header has room for 49 days."""
    assert isinstance(client.sender(queue).send(lasting(100 * DAY_MS)), Accepted)
    world.scheduler.run_for(99 * DAY_MS)
    later = world.connect()
    assert said_by(take(later, queue)) == (TTL_MAX_MS, 100 * DAY_MS, 0)


def test_a_message_of_a_hundred_days_is_gone_after_them(
    world: World, client: Client, queue: str
) -> None:
    client.sender(queue).send(lasting(100 * DAY_MS))
    world.scheduler.run_for(100 * DAY_MS + MINUTE_MS)
    assert world.connect().receiver(queue, credit=1).deliveries == []


def test_an_unlimited_time_to_live_ends_with_the_last_day_that_clients_know(
    client: Client, queue: str
) -> None:
    """`TimeSpan.MaxValue` is 29,000 years; the client ends the message with the year 9999."""
    client.sender(queue).send(lasting(10_675_199 * DAY_MS))
    payload = take(client, queue)
    assert header(payload).ttl == TTL_MAX_MS
    assert read_properties(payload).absolute_expiry_time == LATEST_MS


@pytest.mark.parametrize(
    ("creation_ms", "expiry_ms"),
    [
        (-(1 << 63), (1 << 63) - 1),
        ((1 << 63) - 1, -(1 << 63)),
        (None, 5),
        (5, None),
        (EARLIER_MS, EARLIER_MS + 1),
    ],
)
def test_times_that_make_no_sense_do_no_harm(
    client: Client, queue: str, creation_ms: int | None, expiry_ms: int | None
) -> None:
    payload = encode_message(
        header=Header(ttl=TTL_MAX_MS),
        properties=Properties(creation_time=creation_ms, absolute_expiry_time=expiry_ms),
        data=b"body",
    )
    assert isinstance(client.sender(queue).send(payload), Accepted)
    assert header(take(client, queue)).ttl == TTL_MAX_MS


def test_the_header_rules_where_it_has_room(client: Client, queue: str) -> None:
    """TTL-1: Python computes the two times in another time zone."""
    payload = encode_message(
        header=Header(ttl=MINUTE_MS),
        properties=Properties(creation_time=1, absolute_expiry_time=7 * DAY_MS),
        data=b"body",
    )
    client.sender(queue).send(payload)
    assert said_by(take(client, queue)) == (MINUTE_MS, MINUTE_MS, 0)


def test_the_entity_s_limit_is_what_clients_see(
    world: World, client: Client, partitioned: bool
) -> None:
    """TTL-1: of a message that asks for a day in an entity that gives seven minutes."""
    options: dict[str, Any] = {"enable_partitioning": partitioned}
    world.queue("brief", default_ttl_ms=7 * MINUTE_MS, **options)
    client.sender("brief").send(lasting(DAY_MS))
    assert said_by(take(client, "brief")) == (7 * MINUTE_MS, 7 * MINUTE_MS, 0)


def test_a_default_above_49_days_is_said_to_clients_also_without_properties(
    world: World, client: Client, partitioned: bool
) -> None:
    world.queue("slow", default_ttl_ms=100 * DAY_MS, enable_partitioning=partitioned)
    client.sender("slow").send(encode_message(data=b"nothing but a body"))
    assert said_by(take(client, "slow")) == (TTL_MAX_MS, 100 * DAY_MS, 0)


def test_without_any_the_sender_s_times_stay(client: Client, queue: str) -> None:
    properties = Properties(message_id="m", creation_time=5, absolute_expiry_time=6)
    client.sender(queue).send(encode_message(properties=properties, data=b"body"))
    payload = take(client, queue)
    assert read_properties(payload) == properties
    assert header(payload).ttl is None


def test_a_limit_that_came_later_is_not_told_of_a_message_that_does_not_have_it(
    world: World, client: Client, queue: str
) -> None:
    client.sender(queue).send(message())
    world.catalog.update(Queue(path=queue, default_ttl_ms=MINUTE_MS))
    client.world.settle()
    payload = take(client, queue)
    assert header(payload).ttl is None
    assert read_properties(payload).absolute_expiry_time is None


def test_a_scheduled_message_lives_from_its_activation_on(
    world: World, client: Client, queue: str
) -> None:
    """TTL-3: also as a peek shows it before that."""
    due_ms = world.scheduler.now_ms() + 20_000
    due = {"x-opt-scheduled-enqueue-time": Timestamp(due_ms)}
    client.sender(queue).send(message(ttl_ms=MINUTE_MS, annotations=due))
    requests = client.requests(f"{queue}/$management")
    status, answer = requests.manage("peek-message", from_sequence_number=0, message_count=9)
    assert status == 200
    [peeked] = [each["message"] for each in answer["messages"]]
    properties = read_properties(peeked)
    assert properties.creation_time == due_ms
    assert properties.absolute_expiry_time == due_ms + MINUTE_MS
    world.settle(for_ms=20_000)
    payload = take(client, queue)
    assert said_by(payload) == (MINUTE_MS, MINUTE_MS, 0)
    assert (read_properties(payload).creation_time or 0) >= due_ms


def dead_letter(client: Client, source: str) -> None:
    receiver = client.receiver(source, "burying", credit=1)
    assert receiver.settle(receiver.deliveries, Rejected())
    receiver.link.detach()
    client.world.settle()


def test_a_dead_letter_of_a_topic_with_a_long_default_can_be_read(
    world: World, client: Client, partitioned: bool
) -> None:
    """TTL-2, TTL-8: 60 days do not fit a header; it was to live so long."""
    world.topic("news", default_ttl_ms=60 * DAY_MS, enable_partitioning=partitioned)
    world.subscription("news", "all")
    client.sender("news").send(message())
    source = "news/Subscriptions/all"
    dead_letter(client, source)
    requests = client.requests(f"{source}/$DeadLetterQueue/$management")
    status, answer = requests.manage("peek-message", from_sequence_number=0, message_count=9)
    assert status == 200
    [peeked] = [each["message"] for each in answer["messages"]]
    expected = (TTL_MAX_MS, 60 * DAY_MS, 0)
    assert said_by(peeked) == expected
    assert said_by(take(client, f"{source}/$DeadLetterQueue")) == expected


@pytest.mark.parametrize("delete", [0, 1])
def test_what_is_deferred_says_how_long_it_was_to_live(
    world: World, client: Client, partitioned: bool, delete: int
) -> None:
    """TTL-7: fetched by its number, and peeked."""
    world.queue("brief", default_ttl_ms=7 * MINUTE_MS, enable_partitioning=partitioned)
    client.sender("brief").send(lasting(DAY_MS))
    receiver = client.receiver("brief", credit=1)
    [delivery] = receiver.deliveries
    receiver.settle([delivery], Modified(undeliverable_here=True))
    number = message_annotations(delivery.payload)["x-opt-sequence-number"]
    requests = client.requests("brief/$management")
    expected = (7 * MINUTE_MS, 7 * MINUTE_MS, 0)
    _, peeked = requests.manage("peek-message", from_sequence_number=0, message_count=9)
    assert [said_by(each["message"]) for each in peeked["messages"]] == [expected]
    status, answer = requests.manage(
        "receive-by-sequence-number",
        sequence_numbers=longs(number),
        receiver_settle_mode=UInt(delete),
    )
    assert status == 200
    assert [said_by(each["message"]) for each in answer["messages"]] == [expected]


def test_a_forwarded_message_begins_anew_where_it_arrives(
    world: World, client: Client, partitioned: bool
) -> None:
    """FWD-2: what it asked for counts there, above 49 days too."""
    world.queue("archive", enable_partitioning=partitioned)
    world.queue("inbox", default_ttl_ms=DAY_MS, forward_to="archive")
    sender: Sender = client.sender("inbox")
    sender.send(lasting(100 * DAY_MS))
    world.settle(for_ms=1_000)
    assert said_by(take(client, "archive")) == (TTL_MAX_MS, 100 * DAY_MS, 0)
