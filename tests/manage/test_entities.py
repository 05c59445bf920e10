"""`busway queue|topic|subscription|rule`: made, shown, changed and deleted (P-9, P-10)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from busway.http.atom import descriptions
from busway.model.entities import Queue, Subscription, Topic
from busway.model.properties import PROPERTIES, properties_of
from busway.remote.management.options import BY_NAME, KINDS, OPTIONS, ORDER, options_of
from tests.http.asking import ask, manager
from tests.manage.conftest import Line

CLASSES: dict[str, Any] = {"queue": Queue, "topic": Topic, "subscription": Subscription}
DESCRIPTIONS: dict[str, Any] = {
    "queue": descriptions.QUEUE,
    "topic": descriptions.TOPIC,
    "subscription": descriptions.SUBSCRIPTION,
}
EVERYTHING = {
    "queue": (
        ["--lock-duration", "30s", "--max-size-mb", "2048", "--requires-session",
         "--requires-duplicate-detection", "--duplicate-detection-history-time-window", "PT5M",
         "--default-message-time-to-live", "14d", "--dead-lettering-on-message-expiration",
         "--max-delivery-count", "7", "--no-enable-batched-operations", "--status", "senddisabled",
         "--user-metadata", "a <b> & c", "--auto-delete-on-idle", "1h", "--no-partitioned"],
        {"lock_duration": "PT30S", "max_size_mb": 2048, "requires_session": True,
         "requires_duplicate_detection": True,
         "duplicate_detection_history_time_window": "PT5M",
         "default_message_time_to_live": "P14D", "dead_lettering_on_message_expiration": True,
         "max_delivery_count": 7, "enable_batched_operations": False, "status": "SendDisabled",
         "user_metadata": "a <b> & c", "auto_delete_on_idle": "PT1H", "partitioned": False},
    ),
    "topic": (
        ["--max-size-mb", "1024", "--default-message-time-to-live", "PT2H", "--no-partitioned",
         "--no-support-ordering", "--status", "Disabled", "--enable-express"],
        {"max_size_mb": 1024, "default_message_time_to_live": "PT2H", "partitioned": False,
         "support_ordering": False, "status": "Disabled", "enable_express": True},
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_property_of_the_service_is_an_option(kind: str) -> None:
    rows = {each.wire: each for each in properties_of(CLASSES[kind])}
    rows.pop("SupportOrdering", None) if kind == "queue" else None  # which is only shown there
    assert {each.element for each in options_of(kind)} == set(rows)
    for each in options_of(kind):
        assert each.name in rows[each.element].names
        assert each.fixed is not rows[each.element].mutable


def test_there_is_no_other_option() -> None:
    assert {each.element for each in OPTIONS} == {each.wire for each in PROPERTIES}
    assert len(BY_NAME) == len(OPTIONS)


@pytest.mark.parametrize("kind", KINDS)
def test_elements_are_in_the_order_of_the_service(kind: str) -> None:
    rows = [
        row.element
        for row in DESCRIPTIONS[kind].rows
        if row.property is not None or row.element == "AuthorizationRules"
    ]
    assert list(ORDER[kind]) == [each for each in rows if each in ORDER[kind]]
    assert set(ORDER[kind]) - {"AuthorizationRules"} == {each.element for each in options_of(kind)}


@pytest.mark.parametrize("kind", sorted(EVERYTHING))
def test_all_that_can_be_said_is_there_when_it_is_shown(line: Line, kind: str) -> None:
    words, expected = EVERYTHING[kind]
    made = line.told(kind, "create", f"all-{kind}", *words)
    shown = line.told(kind, "show", f"all-{kind}")
    for found in (made, shown):
        assert {name: found[name] for name in expected} == expected


def test_it_is_partitioned_unless_that_is_not_wanted(line: Line) -> None:
    """As in the portal; the size is that of all partitions together (P-15)."""
    line.said("queue", "create", "spread")
    spread = line.told("queue", "show", "spread")
    assert spread["partitioned"] is True
    assert spread["max_size_mb"] == 16 * 1024
    assert [each["partition"] for each in spread["partitions"]] == list(range(16))
    line.said("queue", "create", "whole", "--no-partitioned")
    whole = line.told("queue", "show", "whole")
    assert (whole["partitioned"], len(whole["partitions"])) == (False, 1)
    assert "availability  Available" in line.said("queue", "show", "spread")


def test_an_update_changes_what_is_named_and_nothing_else(line: Line) -> None:
    line.said("queue", "create", "target")
    words = ["--lock-duration", "45s", "--max-size-mb", "3072", "--user-metadata", "mine"]
    before = line.told("queue", "create", "changing", "--forward-to", "target", *words)
    after = line.told("queue", "update", "changing", "--max-delivery-count", "3")
    volatile = ("max_delivery_count", "updated_at", "accessed_at")
    assert after["max_delivery_count"] == 3
    assert {k: v for k, v in after.items() if k not in volatile} == {
        k: v for k, v in before.items() if k not in volatile
    }
    assert after["forward_to"] == "target"
    gone = line.told("queue", "update", "changing", "--forward-to", "none",
                     "--user-metadata", "none")  # fmt: skip
    assert (gone["forward_to"], gone["user_metadata"]) == (None, None)
    assert gone["max_size_mb"] == before["max_size_mb"] == 16 * 3072


def test_keys_of_an_entity_survive_an_update(line: Line) -> None:
    body = (
        '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">'
        '<QueueDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/'
        'connect" xmlns:i="http://www.w3.org/2001/XMLSchema-instance"><AuthorizationRules>'
        '<AuthorizationRule i:type="SharedAccessAuthorizationRule"><ClaimType>SharedAccessKey'
        "</ClaimType><ClaimValue>None</ClaimValue><Rights><AccessRights>Send</AccessRights>"
        "</Rights><KeyName>web</KeyName></AuthorizationRule></AuthorizationRules>"
        "</QueueDescription></content></entry>"
    )

    def keys() -> list[str]:
        told = ask(line.server, "GET", "/keyed", token=manager(line.server)).body.decode()
        assert "<KeyName>web</KeyName>" in told
        return sorted(part.partition("</")[0] for part in told.split("Key>")[1:])

    made = ask(line.server, "PUT", "/keyed", body, token=manager(line.server))
    assert made.status == 201
    before = keys()
    line.said("queue", "update", "keyed", "--max-delivery-count", "4")
    assert keys() == before


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["queue", "update", "spare"], "What is to change?"),
        (["queue", "create", "x", "--lock-duration", "soon"], "must be a duration such as 30s"),
        (["queue", "create", "x", "--max-delivery-count", "-1"], "must be a whole number"),
        (["queue", "create", "x", "--status", "Sleepy"], "must be one of Active, Disabled"),
        (["queue", "list", "--sort", "colour"], "must be one of name, messages"),
        (["queue", "delete", "spare"], "Nobody is there to be asked: say --yes."),
        (["rule", "create", "t", "s", "r", "--sql", "1=1", "--false"], "A rule has one filter"),
        (["rule", "create", "t", "s", "r", "--correlation", "n:int=x"], "'x' is no int"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_what_cannot_be_meant_is_a_mistake_of_use(line: Line, words: list[str], told: str) -> None:
    if words[-1] == "spare":
        line.type("queue", "create", "spare")
    assert told in line.refused(2, *words)


def test_what_the_server_refuses_has_its_reason(line: Line) -> None:
    line.said("queue", "create", "taken")
    assert "already exists" in line.refused(1, "queue", "create", "taken")
    assert "LockDuration" in line.refused(1, "queue", "create", "y", "--lock-duration", "9m")
    assert "is a queue. Say 'busway queue'" in line.refused(5, "topic", "show", "taken")
    assert "could not be found" in line.refused(5, "queue", "show", "nowhere")
    assert "could not be found" in line.refused(5, "queue", "delete", "nowhere", "--yes")


def test_fixed_ones_cannot_be_updated(line: Line) -> None:
    """P-10: there is no such option, so nobody need be told by the server."""
    result = line.type("queue", "update", "taken", "--no-partitioned")
    assert result.exit_code == 2
    assert "No such option" in result.output


def test_lists_are_sorted_and_searched(line: Line, new: Callable[..., str]) -> None:
    line.said("queue", "create", "list-b", "--no-partitioned")
    line.said("queue", "create", "list-a", "--no-partitioned")
    line.said("send", "list-b", "x", "--count", "3")
    by_name = line.told("queue", "list", "--search", "LIST-")
    assert [each["name"] for each in by_name] == ["list-a", "list-b"]
    full = line.told("queue", "list", "--search", "list-", "--sort", "messages")
    assert [(each["name"], each["counts"]["active"]) for each in full] == [
        ("list-b", 3),
        ("list-a", 0),
    ]
    head, *rows = line.said("queue", "list", "--search", "list-").splitlines()
    assert head.split()[:3] == ["queue", "status", "active"]
    assert [row.split()[:3] for row in rows] == [
        ["list-a", "Active", "0"],
        ["list-b", "Active", "3"],
    ]
    assert all(row.index("Active") == head.index("status") for row in rows)
    assert "There are no queues to show" in line.said("queue", "list", "--search", "zzz")


def test_a_list_of_more_than_a_page_is_whole(line: Line) -> None:
    for number in range(120):
        reply = ask(
            line.server, "PUT", f"/page-{number:03d}", token=manager(line.server),
            body='<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">'
            '<QueueDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/'
            'connect"/></content></entry>',
        )  # fmt: skip
        assert reply.status == 201
    found = line.told("queue", "list", "--search", "page-")
    assert [each["name"] for each in found] == [f"page-{n:03d}" for n in range(120)]


def test_a_deleted_one_is_gone_with_its_messages(line: Line) -> None:
    line.said("queue", "create", "leaving", "--no-partitioned")
    line.said("send", "leaving", "x")
    told = line.told("queue", "delete", "leaving", "--yes")
    assert told == {"deleted": "leaving", "messages": 1}
    line.refused(5, "queue", "show", "leaving")


# --- Topics, subscriptions, rules ----------------------------------------------------------------


def test_a_subscription_has_the_rule_that_it_was_made_with(line: Line) -> None:
    line.said("topic", "create", "news")
    line.said("subscription", "create", "news", "all", "--lock-duration", "20s")
    line.said("subscription", "create", "news", "sport", "--sql", "goals > 3", "--action",
              "SET important = true", "--status", "Active")  # fmt: skip
    rules = line.told("rule", "list", "news", "sport")
    assert [(each["name"], each["text"], each["action"]) for each in rules] == [
        ("$Default", "goals > 3", "SET important = true")
    ]
    (default,) = line.told("rule", "list", "news", "all")
    assert (default["filter"], default["text"]) == ("true", "everything")
    for goals in (2, 5):
        line.said("send", "news", f"{goals}", "--property", f"goals:int={goals}")
    (got,) = line.lines("receive", "news/Subscriptions/sport", "--wait", "60s")
    assert (got["body"], got["application_properties"]["important"]) == ("5", True)
    listed = line.told("subscription", "list", "news")
    assert [(each["name"], each["counts"]["active"]) for each in listed] == [
        ("news/Subscriptions/all", 2),
        ("news/Subscriptions/sport", 0),
    ]
    assert line.told("topic", "show", "news")["subscriptions"] == 2
    assert "all" in line.said("subscription", "list", "news")
    assert "sport" in line.said("subscription", "show", "news", "sport")
    line.said("subscription", "update", "news", "all", "--max-delivery-count", "2")
    assert line.told("subscription", "show", "news", "all")["lock_duration"] == "PT20S"
    line.said("subscription", "delete", "news", "all", "--yes")
    assert len(line.told("subscription", "list", "news")) == 1


def test_rules_are_made_changed_and_deleted(line: Line) -> None:
    line.said("topic", "create", "events", "--no-partitioned")
    line.said("subscription", "create", "events", "some")
    line.said("rule", "delete", "events", "some", "$Default", "--yes")
    made = line.told("rule", "create", "events", "some", "finals", "--correlation",
                     "subject=final", "--correlation", "year:int=2026")  # fmt: skip
    assert made["conditions"] == {"subject": "final", "year": "2026"}
    line.said("send", "events", "no", "--subject", "final", "--property", "year=2026")
    line.said("send", "events", "yes", "--subject", "final", "--property", "year:int=2026")
    got = line.lines("receive", "events/Subscriptions/some", "--wait", "60s")
    assert [each["body"] for each in got] == ["yes"]
    assert line.told("subscription", "show", "events", "some")["counts"]["active"] == 0
    changed = line.told("rule", "update", "events", "some", "finals", "--action", "SET a = 1")
    assert (changed["action"], changed["conditions"]) == ("SET a = 1", made["conditions"])
    changed = line.told("rule", "update", "events", "some", "finals", "--sql", "a = 1",
                        "--action", "none")  # fmt: skip
    assert (changed["filter"], changed["text"], changed["action"]) == ("sql", "a = 1", None)
    assert "a = 1" in line.said("rule", "show", "events", "some", "finals")
    line.said("rule", "create", "events", "some", "never", "--false")
    assert line.told("rule", "show", "events", "some", "never")["filter"] == "false"
    assert "a = 1" in line.said("rule", "list", "events", "some")
    assert "SQL" in line.refused(1, "rule", "create", "events", "some", "bad", "--sql", "a >")
    line.refused(5, "rule", "show", "events", "some", "nowhere")


def test_the_json_of_a_queue_has_these_fields(line: Line) -> None:
    """They are promised in docs/reference/command-line.md."""
    line.type("queue", "create", "fields")
    found = line.told("queue", "show", "fields")
    names = [each.name for each in options_of("queue")]
    assert list(found) == [
        "name", "type", *names, "counts", "size_bytes", "availability", "created_at",
        "updated_at", "accessed_at", "partitions",
    ]  # fmt: skip
    assert json.dumps(found["counts"]) == json.dumps(
        dict.fromkeys(
            ["active", "dead_letter", "scheduled", "transfer", "transfer_dead_letter", "deferred"],
            0,
        )
    )
