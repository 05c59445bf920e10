"""`/{entity}/$explorer`: what people ask of an entity and its messages, over a real server."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue

from busway.testing import Server
from tests.http.asking import ask, make, manager, token_of
from tests.http.atom_client import Management
from tests.http.rest_client import until
from tests.http.test_atom_access import rule, rules
from tests.sdk.conftest import received

CONFIG = """
[[queues]]
name = "plain"

[[queues]]
name = "spread"
enable_partitioning = true

[[queues]]
name = "sessions"
requires_session = true
enable_partitioning = true

[[queues]]
name = "detecting"
requires_duplicate_detection = true

[[topics]]
name = "events"

[[topics.subscriptions]]
name = "large"
rules = [{ name = "large", sql_filter = "amount > 100 AND sys.Label = 'order'" }]

[[topics.subscriptions]]
name = "all"
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(config=CONFIG, arguments=["--allow-faults"]) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(server.connection_string) as opened:
        yield opened


def keyed(server: Server, rule: str, key: str) -> str:
    """The connection string of another rule."""
    endpoint = server.connection_string.partition(";")[0]
    return f"{endpoint};SharedAccessKeyName={rule};SharedAccessKey={key}"


def get(server: Server, path: str) -> Any:
    reply = ask(server, "GET", path, token=manager(server))
    assert reply.status == 200, reply.text
    return reply.json


def post(server: Server, path: str, body: object) -> Any:
    reply = ask(server, "POST", path, body, token=manager(server))
    assert reply.status == 200, reply.text
    return reply.json


def peek(server: Server, path: str, **query: object) -> list[dict[str, Any]]:
    """All of them, page by page."""
    found: list[dict[str, Any]] = []
    start = 0
    while True:
        asked = "&".join(f"{name}={value}" for name, value in {**query, "from": start}.items())
        page = get(server, f"/{path}/$explorer/messages?{asked}")
        found += page["messages"]
        if page["next"] is None:
            return found
        start = page["next"]


def purge(server: Server, path: str) -> int:
    reply = ask(server, "DELETE", f"/{path}/$explorer/messages", token=manager(server))
    assert reply.status == 200, reply.text
    assert isinstance(reply.json["deleted"], int)
    return reply.json["deleted"]


def test_a_peek_shows_all_that_a_message_says_of_itself(
    server: Server, client: ServiceBusClient
) -> None:
    message = ServiceBusMessage(
        '{"a": 1}',
        message_id="m-1",
        content_type="application/json",
        subject="order",
        correlation_id="c",
        reply_to="r",
        application_properties={"n": 7, "text": "x", "yes": True},
    )
    with client.get_queue_sender("plain") as sender:
        sender.send_messages(message)
    (found,) = peek(server, "plain")
    assert (found["message_id"], found["subject"], found["content_type"]) == (
        "m-1",
        "order",
        "application/json",
    )
    assert found["application_properties"]["n"] == {"type": "int", "value": "7"}
    assert found["application_properties"]["yes"] == {"type": "boolean", "value": "true"}
    body = found["body"]
    assert (body["kind"], base64.b64decode(body["base64"]), body["complete"]) == (
        "data",
        b'{"a": 1}',
        True,
    )
    (cut,) = peek(server, "plain", preview=3)
    assert (base64.b64decode(cut["body"]["base64"]), cut["body"]["complete"]) == (b'{"a', False)
    assert purge(server, "plain") == 1


def test_d_26_a_peek_by_pages_shows_each_message_of_all_partitions_once(
    server: Server, client: ServiceBusClient
) -> None:
    with client.get_queue_sender("spread") as sender:
        for number in range(40):
            sender.send_messages(ServiceBusMessage(f"{number}", message_id=f"m-{number}"))
    found = peek(server, "spread", count=7)
    assert sorted(each["message_id"] for each in found) == sorted(f"m-{n}" for n in range(40))
    assert {each["partition"] for each in found} == set(range(16))
    only = peek(server, "spread", partition=3)
    assert only == [each for each in found if each["partition"] == 3]
    assert purge(server, "spread") == 40
    assert peek(server, "spread") == []


def test_states_are_shown_one_by_one(server: Server, client: ServiceBusClient) -> None:
    with client.get_queue_sender("plain") as sender:
        sender.send_messages([ServiceBusMessage("later"), ServiceBusMessage("now")])
    with client.get_queue_receiver("plain") as receiver:
        (first,) = received(receiver, 1)
        receiver.defer_message(first)
    (deferred,) = peek(server, "plain", state="deferred")
    assert base64.b64decode(deferred["body"]["base64"]) == b"later"
    (active,) = peek(server, "plain", state="active")
    assert base64.b64decode(active["body"]["base64"]) == b"now"
    assert peek(server, "plain", state="scheduled") == []

    numbers = {"sequence_numbers": [deferred["sequence_number"]]}
    (locked,) = post(server, "/plain/$explorer/messages/lock", numbers)["messages"]
    settlement = {
        "lock_token": locked["lock_token"],
        "settlement": "dead-letter",
        "reason": "tried",
        "description": "it was",
    }
    post(server, "/plain/$explorer/messages/settle", settlement)
    (dead,) = peek(server, "plain/$DeadLetterQueue")
    assert (dead["dead_letter_reason"], dead["dead_letter_error_description"]) == (
        "tried",
        "it was",
    )
    assert purge(server, "plain/$DeadLetterQueue") == 1
    with client.get_queue_receiver("plain", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as letters:
        assert letters.peek_messages(10) == []
    assert purge(server, "plain") == 1


def test_a_purge_leaves_what_is_newer_or_locked(server: Server, client: ServiceBusClient) -> None:
    with client.get_queue_sender("plain") as sender:
        sender.send_messages([ServiceBusMessage("held"), ServiceBusMessage("free")])
    with client.get_queue_receiver("plain") as receiver:
        (held,) = received(receiver, 1)
        assert (
            ask(
                server,
                "DELETE",
                "/plain/$explorer/messages?before=2020-01-01T00:00:00Z",
                token=manager(server),
            ).json["deleted"]
            == 0
        )
        assert purge(server, "plain") == 1
        receiver.complete_message(held)
    assert peek(server, "plain") == []


def dead_letters(
    server: Server, client: ServiceBusClient, queue: str, *messages: ServiceBusMessage
) -> list[dict[str, Any]]:
    """Messages that are sent to a queue and dead-lettered there, as the explorer shows them."""
    with client.get_queue_sender(queue) as sender:
        for message in messages:
            sender.send_messages(message)
    with client.get_queue_receiver(queue) as receiver:
        for each in received(receiver, len(messages)):
            receiver.dead_letter_message(each, reason="tried")
    found = peek(server, f"{queue}/$DeadLetterQueue")
    assert len(found) == len(messages)
    return found


@pytest.mark.parametrize("queue", ["plain", "spread", "detecting"])
def test_dead_letters_go_back_to_where_they_were(
    server: Server, client: ServiceBusClient, queue: str
) -> None:
    messages = [
        ServiceBusMessage(f"{n}", message_id=f"m-{n}", partition_key=f"key {n}") for n in range(6)
    ]
    dead = dead_letters(server, client, queue, *messages)
    chosen = [each["sequence_number"] for each in dead[:2]]
    path = f"/{queue}/$DeadLetterQueue/$explorer/resubmit"
    done = post(server, path, {"sequence_numbers": chosen})
    assert done == {"resubmitted": 2, "more": False}
    assert {each["message_id"] for each in peek(server, queue)} == {
        each["message_id"] for each in dead[:2]
    }
    assert post(server, path, {"sequence_numbers": chosen})["resubmitted"] == 0
    assert post(server, path, {})["resubmitted"] == 4
    assert peek(server, f"{queue}/$DeadLetterQueue") == []
    back = {each["message_id"]: each for each in peek(server, queue)}
    for each in dead:
        again = back[each["message_id"]]
        assert (again["partition"], again["body"]) == (each["partition"], each["body"])
        assert (again["dead_letter_reason"], again["delivery_count"]) == (None, 0)
    assert purge(server, queue) == 6


def test_dead_letters_of_a_subscription_go_back_to_its_topic(
    server: Server, client: ServiceBusClient
) -> None:
    with client.get_topic_sender("events") as sender:
        sender.send_messages(
            ServiceBusMessage("x", subject="order", application_properties={"amount": 500})
        )
    with client.get_subscription_receiver("events", "large") as receiver:
        (only,) = received(receiver, 1)
        receiver.dead_letter_message(only, reason="tried")
    purge(server, "events/Subscriptions/all")
    path = "/events/Subscriptions/large/$DeadLetterQueue/$explorer/resubmit"
    assert post(server, path, {})["resubmitted"] == 1
    for name in ("large", "all"):
        assert len(peek(server, f"events/Subscriptions/{name}")) == 1
        assert purge(server, f"events/Subscriptions/{name}") == 1


def test_what_cannot_be_committed_is_not_resubmitted(
    server: Server, client: ServiceBusClient
) -> None:
    dead = dead_letters(server, client, "plain", ServiceBusMessage("x", message_id="one"))
    (store,) = {each["store"] for each in get(server, "/plain/$explorer")["partitions"]}
    path = "/plain/$DeadLetterQueue/$explorer/resubmit"
    make(server, store, "ill")
    try:
        refused = ask(server, "POST", path, {}, token=manager(server))
        assert refused.status >= 500
    finally:
        make(server, store, "none")
    until(lambda: get(server, "/plain/$explorer")["availability"] == "Available")
    assert peek(server, "plain/$DeadLetterQueue") == dead
    assert peek(server, "plain") == []
    assert post(server, path, {})["resubmitted"] == 1
    assert purge(server, "plain") == 1


def test_a_dead_letter_that_somebody_has_locked_stays(
    server: Server, client: ServiceBusClient
) -> None:
    dead_letters(server, client, "plain", ServiceBusMessage("x"))
    path = "/plain/$DeadLetterQueue/$explorer/resubmit"
    with client.get_queue_receiver("plain", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as letters:
        (held,) = received(letters, 1)
        assert post(server, path, {})["resubmitted"] == 0
        letters.complete_message(held)
    assert peek(server, "plain") == []


def test_sessions_are_listed_with_their_state(server: Server, client: ServiceBusClient) -> None:
    with client.get_queue_sender("sessions") as sender:
        for name in ("red", "blue"):
            sender.send_messages(ServiceBusMessage("x", session_id=name))
    with client.get_queue_receiver("sessions", session_id="red") as receiver:
        receiver.session.set_state(b"half way")
    listed = get(server, "/sessions/$explorer/sessions")
    assert [each["session_id"] for each in listed["sessions"]] == ["blue", "red"]
    red = get(server, "/sessions/$explorer/sessions/red")
    assert base64.b64decode(red["state_base64"]) == b"half way"
    assert get(server, "/sessions/$explorer/sessions/blue")["state_base64"] is None
    missing = ask(server, "GET", "/sessions/$explorer/sessions/none", token=manager(server))
    assert missing.status == 404
    (message,) = peek(server, "sessions", session="red")
    assert message["session_id"] == "red"


def test_an_overview_has_settings_counts_and_partitions(
    server: Server, client: ServiceBusClient
) -> None:
    with client.get_queue_sender("spread") as sender:
        sender.send_messages(ServiceBusMessage("one"))
    seen = get(server, "/spread/$explorer")
    assert (seen["path"], seen["type"], seen["partitioned"]) == ("spread", "queue", True)
    assert seen["max_size_mb"] == 16 * seen["settings"]["max_size_mb"]  # P-15
    assert seen["depth"]["active"] == 1
    assert sum(each["depth"]["active"] for each in seen["partitions"]) == 1
    assert len(seen["partitions"]) == 16
    assert seen["oldest_active"] is not None
    assert "SharedAccessKey" not in json.dumps(seen)
    purge(server, "spread")


def test_the_list_of_entities_is_searched_and_paged(server: Server) -> None:
    everything = get(server, "/$busway/entities")
    paths = [each["path"] for each in everything["entities"]]
    assert "events/Subscriptions/large" in paths
    assert everything["total"] == len(paths)
    found = get(server, "/$busway/entities?search=SPREAD")
    assert [each["path"] for each in found["entities"]] == ["spread"]
    first = get(server, "/$busway/entities?top=2")
    second = get(server, first["next"])
    assert [each["path"] for each in first["entities"] + second["entities"]][:4] == paths[:4]


def test_rules_are_tried_without_sending(server: Server) -> None:
    message = {"properties": {"Label": "note"}, "application_properties": {"amount": 500}}
    tried = post(server, "/events/$explorer/try", message)
    by_name = {each["subscription"]: each for each in tried["subscriptions"]}
    assert by_name["all"]["matches"] is True
    assert by_name["large"]["matches"] is False
    (rule,) = by_name["large"]["rules"]
    assert [(part["text"], part["outcome"], part["found"]) for part in rule["parts"]] == [
        ("amount > 100", "true", "500"),
        ("sys.Label = 'order'", "false", "'note'"),
    ]
    assert peek(server, "events/Subscriptions/all") == []
    draft = post(
        server, "/events/$explorer/try", {**message, "rule": {"sql": "colour = 'red' OR amount=5"}}
    )
    (outcome,) = draft["rules"]
    assert (outcome["matches"], outcome["parts"][0]["outcome"]) == (False, "unknown")
    broken = post(server, "/events/$explorer/try", {**message, "rule": {"sql": "amount >"}})
    assert "SQL filter" in broken["rules"][0]["error"]


def test_connections_are_listed_with_their_links(server: Server, client: ServiceBusClient) -> None:
    with client.get_queue_sender("plain") as sender:
        sender.send_messages(ServiceBusMessage("x"))
        found = get(server, "/$busway/connections")
        links = [link for each in found["connections"] for link in each["links"]]
        assert {"role": "sender", "entity": "plain"}.items() <= next(
            link for link in links if link["role"] == "sender"
        ).items()
    purge(server, "plain")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing/$explorer", 404),
        ("GET", "/plain/$explorer/nothing", 404),
        ("PUT", "/plain/$explorer/messages", 405),
        ("GET", "/plain/$explorer/messages?count=x", 400),
        ("GET", "/plain/$explorer/messages?state=odd", 400),
        ("DELETE", "/plain/$explorer/messages?before=soon", 400),
    ],
)
def test_what_cannot_be_is_told(server: Server, method: str, path: str, status: int) -> None:
    assert ask(server, method, path, token=manager(server)).status == status


@pytest.mark.parametrize(
    ("rights", "path", "allowed"),
    [
        (["Listen"], "/plain/$explorer/messages", True),
        (["Listen"], "/plain/$explorer", False),
        (["Send"], "/plain/$explorer/messages", False),
        (["Listen"], "/$busway/entities", False),
        (["Listen"], "/$busway/connections", False),
    ],
)
def test_d_34_a_token_opens_what_its_rights_cover(
    server: Server, rights: list[str], path: str, allowed: bool
) -> None:
    name = "-".join(rights)
    put = ask(server, "PUT", f"/$busway/rules/{name}", {"rights": rights}, token=manager(server))
    key = put.json["primary_key"]
    token = token_of(keyed(server, name, key))
    status = ask(server, "GET", path, token=token).status
    assert status == (200 if allowed else 401)
    assert ask(server, "GET", path).status == 401


def test_an_entitys_own_key_opens_its_messages_and_no_others(
    managed: Server, bus: Management
) -> None:
    assert (
        bus.create("Queue", "/mine", rules(rule("listener", "Listen", primary="k" * 44))).status
        == 201
    )
    assert bus.create("Queue", "/other").status == 201
    token = token_of(keyed(managed, "listener", "k" * 44), "mine")
    assert ask(managed, "GET", "/mine/$explorer/messages", token=token).status == 200
    assert ask(managed, "GET", "/other/$explorer/messages", token=token).status == 401
