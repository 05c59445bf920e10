"""`$management`: requests about an entity's messages (management-amqp.md)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from busway.amqp.events import Disposed, TransferReceived
from busway.amqp.link import LinkRole
from busway.amqp.performatives import (
    Accepted,
    Error,
    Modified,
    Properties,
    Rejected,
    Source,
    Target,
)
from busway.amqp.sections import encode_message, read_application_properties, read_properties
from busway.amqp.types import Array, Int, Symbol, Timestamp, UInt, ULong
from busway.model.entities import AuthorizationRule
from busway.model.message import partition_of
from tests.gateway.world import (
    Client,
    Receiver,
    Requests,
    World,
    body,
    header,
    longs,
    message,
    message_annotations,
    sections,
    uuids,
)


def tokens(receiver: Receiver) -> list[bytes]:
    return [each.tag for each in receiver.deliveries]


def number(delivery: TransferReceived) -> int:
    found = message_annotations(delivery.payload)["x-opt-sequence-number"]
    assert isinstance(found, int)
    return found


@pytest.fixture
def requests(client: Client, queue: str) -> Requests:
    return client.requests(f"{queue}/$management")


def defer(client: Client, queue: str, count: int = 1) -> list[int]:
    """Send and defer so many; returns their numbers."""
    client.sender(queue, f"sender-{count}").fill(count, partition_key="one")
    receiver = client.receiver(queue, f"deferring-{count}", credit=count)
    receiver.settle(receiver.deliveries, Modified(undeliverable_here=True))
    receiver.link.detach()
    client.world.settle()
    return [number(each) for each in receiver.deliveries]


# --- Shape (section 3) ---------------------------------------------------------------------------


def test_a_reply_has_the_types_that_clients_test_for(requests: Requests) -> None:
    properties, answer = requests.call(
        {"operation": "com.microsoft:peek-message"},
        {"from-sequence-number": 1, "message-count": Int(5)},
    )
    assert type(properties["statusCode"]) is Int
    assert properties["statusCode"] == 204
    assert type(properties["statusDescription"]) is str
    assert answer == {}


def test_a_failure_has_a_symbol_as_its_condition(requests: Requests) -> None:
    status, answer = requests.manage("renew-lock", lock_tokens=uuids(bytes(16)))
    assert status == 410
    assert requests.condition == "com.microsoft:message-lock-lost"
    assert type(requests.condition) is Symbol
    assert answer == {}
    assert requests.description.startswith("The lock supplied is invalid.")


@pytest.mark.parametrize("message_id", [UUID(int=5), "text", ULong(7), b"octets"])
def test_the_correlation_id_keeps_its_type(
    world: World, client: Client, requests: Requests, message_id: Any
) -> None:
    payload = encode_message(
        properties=Properties(message_id=message_id, reply_to=requests.node),
        application_properties={"operation": "com.microsoft:peek-message"},
        body={"from-sequence-number": 1, "message-count": 1},
    )
    requests.link.send(payload, b"1")
    world.settle()
    (reply,) = [each for each in client.of(TransferReceived) if each.link is requests.replies]
    found = read_properties(reply.payload).correlation_id
    assert found == message_id
    assert type(found) is type(message_id)


def test_a_request_is_accepted_at_once(client: Client, requests: Requests) -> None:
    requests.manage("no-such-operation")
    answers = [each for each in client.of(Disposed) if each.link is requests.link]
    assert [type(each.state) for each in answers] == [Accepted]


def test_a_settled_request_gets_its_reply_and_no_disposition(
    world: World, client: Client, requests: Requests
) -> None:
    """As Java sends them."""
    payload = encode_message(
        properties=Properties(message_id=ULong(1)),
        application_properties={"operation": "com.microsoft:peek-message"},
        body={"from-sequence-number": 1, "message-count": 1},
    )
    requests.link.send(payload, b"1", settled=True)
    world.settle()
    assert [each for each in client.of(Disposed) if each.link is requests.link] == []
    assert [each for each in client.of(TransferReceived) if each.link is requests.replies]


@pytest.mark.parametrize("payload", [b"\xff", b"\x00\x53\x74\x40", b"\x00\x53\x73\xc0\x01\x05"])
def test_what_is_no_request_is_rejected_and_harms_nobody(
    world: World, client: Client, requests: Requests, payload: bytes
) -> None:
    requests.link.send(payload, b"1")
    world.settle()
    assert client.closed_with is None
    assert requests.manage("peek-message", from_sequence_number=1, message_count=1)[0] == 204


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        ("peek-message", {}),
        ("peek-message", {"from_sequence_number": "x", "message_count": 1}),
        ("peek-message", {"from_sequence_number": 1, "message_count": 0}),
        ("renew-lock", {}),
        ("renew-lock", {"lock_tokens": longs(1)}),
        ("renew-lock", {"lock_tokens": []}),
        ("receive-by-sequence-number", {"sequence_numbers": longs(1), "receiver_settle_mode": 7}),
        ("receive-by-sequence-number", {"receiver_settle_mode": 1}),
        ("update-disposition", {"disposition_status": "eaten", "lock_tokens": uuids(bytes(16))}),
        ("update-disposition", {"lock_tokens": uuids(bytes(16))}),
    ],
)
def test_bad_arguments_are_the_client_s_fault(
    requests: Requests, operation: str, arguments: dict[str, Any]
) -> None:
    assert requests.manage(operation, **arguments)[0] == 400
    assert requests.condition is not None
    assert requests.condition.startswith("com.microsoft:argument")


def test_an_unknown_operation_is_not_implemented(requests: Requests) -> None:
    properties, _ = requests.call({"operation": "com.microsoft:what-is-this"}, {})
    assert properties["statusCode"] == 501
    assert properties["errorCondition"] == "amqp:not-implemented"


# --- Reply routing (section 2) -------------------------------------------------------------------


def test_a_reply_goes_to_the_link_whose_target_is_reply_to(client: Client, queue: str) -> None:
    node = f"{queue}/$management"
    first = client.requests(node, name="a", target="reply-a")
    second = client.requests(node, name="b", target="reply-b")
    asked = {"operation": "com.microsoft:peek-message"}
    body_of_it = {"from-sequence-number": 1, "message-count": 1}
    message_id = first.ask(asked, body_of_it, reply_to="reply-b")
    assert first.reply(message_id) is None
    assert second.reply(message_id) is not None


def test_a_reply_goes_to_the_link_whose_name_is_reply_to(client: Client, queue: str) -> None:
    """As JS asks on `$cbs`: its receiver has no target address."""
    node = f"{queue}/$management"
    first = client.requests(node, name="a", target="x")
    client.requests(node, name="b", target="y")
    asked = {"operation": "com.microsoft:peek-message"}
    message_id = first.ask(asked, {"from-sequence-number": 1, "message-count": 1}, reply_to="a")
    assert first.reply(message_id) is not None


def test_a_reply_finds_its_link_in_another_session(
    world: World, client: Client, queue: str
) -> None:
    node = f"{queue}/$management"
    other = client.engine.begin()
    world.settle()
    replies = client.attach(
        "r", LinkRole.RECEIVER, source=Source(node), target=Target("here"), session=other
    )
    replies.set_credit(5)
    link = client.attach("s", LinkRole.SENDER, target=Target(node))
    payload = encode_message(
        properties=Properties(message_id="1", reply_to="here"),
        application_properties={"operation": "com.microsoft:peek-message"},
        body={"from-sequence-number": 1, "message-count": 1},
    )
    link.send(payload, b"1")
    world.settle()
    assert [each for each in client.of(TransferReceived) if each.link is replies]


def test_replies_wait_for_credit(world: World, client: Client, queue: str) -> None:
    slow = client.requests(f"{queue}/$management", credit=0)
    asked = {"operation": "com.microsoft:peek-message"}
    ids = [slow.ask(asked, {"from-sequence-number": 1, "message-count": 1}) for _ in range(3)]
    assert [slow.reply(each) for each in ids] == [None, None, None]
    slow.replies.set_credit(2)
    world.settle()
    assert [slow.reply(each) is not None for each in ids] == [True, True, False]


# --- renew-lock (4.1) ----------------------------------------------------------------------------


def test_a_renewed_lock_runs_from_now(world: World, client: Client, requests: Requests) -> None:
    queue = requests.node.removesuffix("/$management")
    client.sender(queue).fill(3)
    receiver = client.receiver(queue, credit=3)
    world.settle(for_ms=30_000)
    status, answer = requests.manage("renew-lock", lock_tokens=uuids(*tokens(receiver)))
    assert status == 200
    times = answer["expirations"]
    assert isinstance(times, Array)
    assert len(times) == 3
    assert all(type(each) is Timestamp for each in times)
    assert 55_000 < times[0] - world.scheduler.now_ms() <= 60_000  # LOCK-3
    world.settle(for_ms=45_000)
    assert isinstance(receiver.settle(receiver.deliveries, Accepted()), Accepted)


def test_a_settled_lock_cannot_be_renewed(client: Client, requests: Requests) -> None:
    queue = requests.node.removesuffix("/$management")
    client.sender(queue).fill(1)
    receiver = client.receiver(queue, credit=1)
    receiver.settle(receiver.deliveries, Accepted())
    assert requests.manage("renew-lock", lock_tokens=uuids(*tokens(receiver)))[0] == 410


# --- peek-message (4.2, D-26) --------------------------------------------------------------------


def peek_all(requests: Requests, count: int = 10) -> list[bytes]:
    found: list[bytes] = []
    following = 1
    while True:
        status, answer = requests.manage(
            "peek-message", from_sequence_number=following, message_count=Int(count)
        )
        if status == 204:
            return found
        assert type(answer["messages"]) is list
        page = [each["message"] for each in answer["messages"]]
        assert 0 < len(page) <= count
        found += page
        following = message_annotations(page[-1])["x-opt-sequence-number"] + 1


@pytest.mark.parametrize("count", [1, 7, 100])
def test_repeated_peeks_show_every_message_once(
    client: Client, requests: Requests, count: int
) -> None:
    queue = requests.node.removesuffix("/$management")
    client.sender(queue).fill(40)
    assert sorted(body(each) for each in peek_all(requests, count)) == sorted(
        f"m{n}" for n in range(40)
    )  # P-32
    numbers = [
        message_annotations(each)["x-opt-sequence-number"] for each in peek_all(requests, count)
    ]
    assert numbers == sorted(numbers)


def test_peek_shows_locked_and_deferred_messages(client: Client, requests: Requests) -> None:
    queue = requests.node.removesuffix("/$management")
    defer(client, queue)
    client.sender(queue).fill(1)
    client.receiver(queue, credit=1)
    states = [message_annotations(each)["x-opt-message-state"] for each in peek_all(requests)]
    assert sorted(states) == [0, 1]  # PEEK-1


def test_a_peek_reply_stays_below_256_kib(client: Client, requests: Requests) -> None:
    queue = requests.node.removesuffix("/$management")
    client.sender(queue).fill(10, size=60_000)
    _, answer = requests.manage("peek-message", from_sequence_number=1, message_count=Int(10))
    assert len(answer["messages"]) == 4  # PEEK-2
    assert len(peek_all(requests)) == 10


def test_peek_may_leave_bodies_out(client: Client, requests: Requests) -> None:
    queue = requests.node.removesuffix("/$management")
    client.sender(queue).send(message("hello", application_properties={"a": 1}))
    _, answer = requests.manage(
        "peek-message", from_sequence_number=1, message_count=1, omit_message_body=True
    )
    found = sections(answer["messages"][0]["message"])
    assert 0x75 not in found
    assert found[0x74] == {"a": 1}


def test_peek_skips_a_partition_that_is_ill(world: World, client: Client) -> None:
    queue = world.queue("orders", enable_partitioning=True)
    client.sender("orders").fill(32)
    requests = client.requests("orders/$management")
    world.make_ill("store-0")
    well = {n for n, store in enumerate(queue.placement) if store == "store-1"}
    found = {
        partition_of(message_annotations(each)["x-opt-sequence-number"])
        for each in peek_all(requests)
    }
    assert found == well


def test_peek_on_a_dead_letter_queue_sees_only_that(client: Client, queue: str) -> None:
    client.sender(queue).fill(2)
    dead = client.requests(f"{queue}/$DeadLetterQueue/$management")
    assert peek_all(dead) == []


# --- receive-by-sequence-number (4.5) ------------------------------------------------------------


def test_a_deferred_message_is_locked_by_its_number(client: Client, requests: Requests) -> None:
    queue = requests.node.removesuffix("/$management")
    numbers = defer(client, queue, 2)
    status, answer = requests.manage(
        "receive-by-sequence-number",
        sequence_numbers=longs(*numbers),
        receiver_settle_mode=UInt(1),
    )
    assert status == 200
    first = answer["messages"][0]
    assert isinstance(first["lock-token"], UUID)
    found = sections(first["message"])
    assert found[0x71] == {"x-opt-lock-token": first["lock-token"]}  # Go reads it only there
    said = message_annotations(first["message"])
    assert said["x-opt-message-state"] == 1
    assert type(said["x-opt-locked-until"]) is Timestamp
    locks = [each["lock-token"] for each in answer["messages"]]
    done, _ = requests.manage(
        "update-disposition", disposition_status="completed", lock_tokens=Array(locks, UUID)
    )
    assert done == 200
    assert peek_all(requests) == []


def test_each_defer_counts_as_a_delivery(client: Client, requests: Requests) -> None:
    """DLV-1; the maximum is not applied to it (DLV-3)."""
    client.sender("orders").fill(1)
    receiver = client.receiver("orders", credit=1)
    (delivery,) = receiver.deliveries
    number = message_annotations(delivery.payload)["x-opt-sequence-number"]
    receiver.settle([delivery], Modified(undeliverable_here=True))
    fetch = {"sequence_numbers": longs(number), "receiver_settle_mode": UInt(1)}
    for count in range(1, 13):  # the queue's maximum is 10
        status, answer = requests.manage("receive-by-sequence-number", **fetch)
        assert status == 200
        (item,) = answer["messages"]
        assert header(item["message"]).delivery_count == count
        tokens = uuids(item["lock-token"].bytes_le)
        again = {"disposition_status": "defered", "lock_tokens": tokens}
        assert requests.manage("update-disposition", **again)[0] == 200


def test_a_deferred_message_is_removed_in_mode_0(client: Client, requests: Requests) -> None:
    queue = requests.node.removesuffix("/$management")
    numbers = defer(client, queue)
    status, answer = requests.manage(
        "receive-by-sequence-number", sequence_numbers=longs(*numbers), receiver_settle_mode=0
    )
    assert status == 200
    assert "lock-token" not in answer["messages"][0]  # DEF-3
    assert peek_all(requests) == []


def test_numbers_that_are_not_deferred_are_not_found(client: Client, requests: Requests) -> None:
    queue = requests.node.removesuffix("/$management")
    client.sender(queue).fill(1)
    far = 9 << 48 | 1
    for missing in (1, 77, far):
        status, _ = requests.manage(
            "receive-by-sequence-number", sequence_numbers=longs(missing), receiver_settle_mode=1
        )
        assert status == 404  # DEF-4, never 204: JS would break
        assert requests.condition == "com.microsoft:message-not-found"


def test_numbers_of_two_partitions_are_refused(client: Client, requests: Requests) -> None:
    status, _ = requests.manage(
        "receive-by-sequence-number",
        sequence_numbers=longs(1, 1 << 48 | 1),
        receiver_settle_mode=1,
    )
    assert status == 400  # DEF-7
    assert requests.condition == "amqp:not-allowed"


# --- update-disposition (4.6) --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "state", "count"),
    [
        ("completed", None, None),
        ("abandoned", 0, 1),
        ("suspended", "dead", 0),
        ("defered", 1, 1),
        ("Deferred", 1, 1),
        ("released", 0, 0),
    ],
)
def test_a_link_s_message_is_settled_after_the_link_is_gone(
    world: World, client: Client, queue: str, status: str, state: Any, count: int | None
) -> None:
    client.sender(queue).fill(1)
    gone = world.connect()
    receiver = gone.receiver(queue, credit=1)
    gone.server.lost()  # LOCK-6, LOCK-7
    requests = client.requests(f"{queue}/$management")
    answer = requests.manage(
        "update-disposition",
        disposition_status=status,
        lock_tokens=uuids(*tokens(receiver)),
        deadletter_reason="why",
        deadletter_description="",
        properties_to_modify={"changed": True},
    )
    assert answer == (200, {})
    node = f"{queue}/$DeadLetterQueue/$management" if state == "dead" else f"{queue}/$management"
    left = peek_all(client.requests(node, name="look"))
    if count is None:
        assert left == []
        return
    (one,) = left
    assert header(one).delivery_count == count
    if state == "dead":
        assert sections(one)[0x74] == {"changed": True, "DeadLetterReason": "why"}
    else:
        assert message_annotations(one)["x-opt-message-state"] == state


def test_an_unknown_token_is_lock_lost(requests: Requests) -> None:
    for token in (bytes(16), b"\xff" * 16):
        status, _ = requests.manage(
            "update-disposition", disposition_status="completed", lock_tokens=uuids(token)
        )
        assert status == 410


def test_a_token_of_another_entity_is_lock_lost(
    world: World, client: Client, requests: Requests
) -> None:
    world.queue("other")
    client.sender("other").fill(1)
    receiver = client.receiver("other", credit=1)
    status, _ = requests.manage(
        "update-disposition",
        disposition_status="completed",
        lock_tokens=uuids(*tokens(receiver)),
    )
    assert status == 410  # D-23
    assert isinstance(receiver.settle(receiver.deliveries, Accepted()), Accepted)


# --- Time and rights -----------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["com.microsoft:server-timeout", "server-timeout"])
def test_a_request_that_no_store_answers_times_out(
    world: World, client: Client, requests: Requests, key: str
) -> None:
    queue = requests.node.removesuffix("/$management")
    client.sender(queue).fill(16)
    for disk in world.disks.values():
        disk.pause()
    message_id = requests.ask(
        {"operation": "com.microsoft:peek-message", key: UInt(1_000)},
        {"from-sequence-number": 1, "message-count": 1},
    )
    world.settle(for_ms=2_000)
    answer = requests.reply(message_id)
    assert answer is not None
    assert answer[0]["statusCode"] == 408
    assert answer[0]["errorCondition"] == "com.microsoft:timeout"
    assert client.server.requests_open == 0


def test_locks_taken_for_a_request_that_timed_out_are_given_back(
    world: World, client: Client, requests: Requests
) -> None:
    queue = requests.node.removesuffix("/$management")
    numbers = defer(client, queue)
    for disk in world.disks.values():
        disk.pause()
    asked = {"operation": "com.microsoft:receive-by-sequence-number", "server-timeout": UInt(500)}
    arguments = {"sequence-numbers": longs(*numbers), "receiver-settle-mode": UInt(1)}
    requests.ask(asked, arguments)
    world.settle(for_ms=1_000)
    for disk in world.disks.values():
        disk.resume()
    world.settle()
    assert requests.call(asked, arguments)[0]["statusCode"] == 200


def test_operations_need_their_right(world: World, client: Client, queue: str) -> None:
    namespace = world.catalog.namespace
    rules = (AuthorizationRule("sender", ("Send",), "send-key"),)
    world.catalog.update_namespace(replace(namespace, authorization_rules=rules))
    limited = world.connect(token=False)
    assert limited.put_token(queue, rule="sender", key="send-key")["status-code"] == 202
    requests = limited.requests(f"{queue}/$management")
    assert requests.manage("peek-message", from_sequence_number=1, message_count=1)[0] == 401
    assert requests.condition == "amqp:unauthorized-access"


# --- Deleting in batches (4.7) -------------------------------------------------------------------


def test_messages_are_deleted_in_batches(world: World, client: Client, queue: str) -> None:
    client.sender(queue).fill(30)
    requests = client.requests(f"{queue}/$management")
    status, answer = requests.manage("batch-delete-messages", message_count=Int(20))
    assert (status, answer) == (200, {"message-count": 20})  # PRT-8: ours does it there, too
    assert len(client.receiver(queue, credit=50).deliveries) == 10
    status, answer = requests.manage("batch-delete-messages", message_count=Int(20))
    assert (status, answer) == (204, {"message-count": 0})  # what is locked stays


def test_only_what_was_enqueued_before_a_time_is_deleted(
    world: World, client: Client, queue: str
) -> None:
    sender = client.sender(queue)
    sender.fill(5)
    world.settle(for_ms=10_000)
    before = Timestamp(world.scheduler.now_ms() - 5_000)
    sender.fill(3)
    requests = client.requests(f"{queue}/$management")
    arguments = {"message_count": Int(100), "enqueued_time_utc": before}
    assert requests.manage("batch-delete-messages", **arguments)[1] == {"message-count": 5}
    assert len(client.receiver(queue, credit=50).deliveries) == 3


def test_a_batch_delete_has_a_limit(world: World, client: Client, queue: str) -> None:
    for n in range(6):
        client.sender(queue, f"s{n}").fill(100)
    requests = client.requests(f"{queue}/$management")
    status, answer = requests.manage("batch-delete-messages", message_count=Int(2**31 - 1))
    assert (status, answer) == (200, {"message-count": 500})  # LIM-14


def test_a_topic_is_asked_only_what_a_topic_can_do(world: World, client: Client) -> None:
    world.topic("news")
    requests = client.requests("news/$management")
    asked = {"sequence_numbers": longs(1), "receiver_settle_mode": UInt(1)}
    assert requests.manage("receive-by-sequence-number", **asked)[0] == 400
    assert requests.condition == "amqp:not-allowed"
    assert requests.manage("batch-delete-messages", message_count=Int(1))[0] == 400


def test_a_peeked_deferred_message_says_until_when_it_was_locked(
    client: Client, queue: str, requests: Requests
) -> None:
    """.NET reads it of every deferred message."""
    defer(client, queue)
    _, answer = requests.manage("peek-message", from_sequence_number=0, message_count=9)
    [peeked] = [each["message"] for each in answer["messages"]]
    assert isinstance(message_annotations(peeked)["x-opt-locked-until"], Timestamp)


def test_a_reason_for_dead_lettering_keeps_its_type(client: Client, queue: str) -> None:
    """DLQ-2."""
    client.sender(queue).fill(1)
    receiver = client.receiver(queue, credit=1)
    info = {Symbol("DeadLetterReason"): Timestamp(5), Symbol("DeadLetterErrorDescription"): 7}
    receiver.settle(receiver.deliveries, Rejected(Error("com.microsoft:dead-letter", None, info)))
    [dead] = client.receiver(f"{queue}/$DeadLetterQueue", "dead", credit=1).deliveries
    found = read_application_properties(dead.payload)
    assert type(found["DeadLetterReason"]) is Timestamp
    assert found == {"DeadLetterReason": 5, "DeadLetterErrorDescription": 7}


def test_the_source_of_a_forwarded_dead_letter_is_in_lower_case(
    world: World, client: Client
) -> None:
    """DLQ-4."""
    world.queue("morgue")
    world.queue("Orders/EU", forward_dead_letters_to="morgue")
    client.sender("Orders/EU").fill(1)
    receiver = client.receiver("Orders/EU", credit=1)
    receiver.settle(receiver.deliveries, Rejected())
    world.settle(for_ms=1_000)
    [dead] = client.receiver("morgue", "dead", credit=1).deliveries
    assert message_annotations(dead.payload)["x-opt-deadletter-source"] == "orders/eu"
