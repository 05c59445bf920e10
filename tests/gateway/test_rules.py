"""Rules over `$management` (management-amqp.md 6)."""

from __future__ import annotations

from typing import Any

import pytest

from busway.amqp.types import Described, Int
from busway.model.entities import AuthorizationRule
from tests.gateway.world import Client, Requests, World, message

TRUE = 83483426823
SQL = 83483426822
CORRELATION = 83483426825
SQL_ACTION = 1335734829062
RULE = 1335734829060
EMPTY_ACTION = 0x0000013700000005


@pytest.fixture(params=[False, True], ids=["conventional", "partitioned"])
def path(request: pytest.FixtureRequest, world: World) -> str:
    world.topic("news", enable_partitioning=request.param)  # P-44
    return world.subscription("news", "s").path


@pytest.fixture
def requests(client: Client, path: str) -> Requests:
    return client.requests(f"{path}/$management")


def listed(requests: Requests, **arguments: Any) -> list[Any]:
    status, answer = requests.manage(
        "enumerate-rules", **{"top": Int(2**31 - 1), "skip": Int(0), **arguments}
    )
    assert status in (200, 204)
    return [each["rule-description"] for each in answer.get("rules", [])]


def sql(expression: str, action: str | None = None) -> dict[str, Any]:
    described: dict[str, Any] = {"sql-filter": {"expression": expression}}
    if action is not None:
        described["sql-rule-action"] = {"expression": action}
    return described


def test_the_default_rule_is_described_as_clients_read_it(requests: Requests) -> None:
    (rule,) = listed(requests)  # RUL-1, section 6.3
    assert isinstance(rule, Described)
    assert rule.descriptor == RULE
    condition, action, name, _ = rule.value
    assert (condition.descriptor, condition.value) == (TRUE, [])
    assert (action.descriptor, action.value) == (EMPTY_ACTION, [])
    assert name == "$Default"


def test_added_rules_decide_what_comes(world: World, client: Client, requests: Requests) -> None:
    receiver = client.receiver("news/Subscriptions/s", credit=10)
    assert requests.manage("remove-rule", rule_name="$Default") == (200, {})
    sender = client.sender("news")
    sender.send(message("nobody"))
    red = sql("color = 'red'", "SET seen = TRUE")
    assert requests.manage("add-rule", rule_name="red", rule_description=red) == (200, {})
    sender.send(message("red", application_properties={"color": "red"}))
    sender.send(message("blue", application_properties={"color": "blue"}))
    assert receiver.bodies == ["red"]  # RUL-1, RUL-6
    (rule,) = listed(requests)
    condition, action, name, _ = rule.value
    assert (condition.descriptor, condition.value[0]) == (SQL, "color = 'red'")
    assert (action.descriptor, action.value[0]) == (SQL_ACTION, "SET seen = TRUE")
    assert name == "red"


def test_a_correlation_filter_with_nulls_where_nothing_is_asked(
    client: Client, requests: Requests
) -> None:
    requests.manage("remove-rule", rule_name="$Default")
    described = {
        "correlation-filter": {
            "correlation-id": None,
            "message-id": "one",
            "label": None,
            "properties": {"color": "red"},
        },
        "sql-rule-action": None,
    }
    assert requests.manage("add-rule", rule_name="c", rule_description=described)[0] == 200
    (rule,) = listed(requests)
    condition = rule.value[0]
    assert condition.descriptor == CORRELATION
    assert condition.value == [None, "one", *[None] * 6, {"color": "red"}]
    sender = client.sender("news")
    sender.send(message("yes", message_id="one", application_properties={"color": "red"}))
    sender.send(message("no", message_id="one"))
    assert client.receiver("news/Subscriptions/s", credit=5).bodies == ["yes"]  # COR-1


def test_rules_are_listed_in_pages(requests: Requests) -> None:
    for n in range(5):
        requests.manage("add-rule", rule_name=f"r{n}", rule_description=sql("1=0"))
    names = [rule.value[2] for rule in listed(requests, skip=1, top=3)]
    assert names == ["r0", "r1", "r2"]
    assert listed(requests, skip=6) == []


@pytest.mark.parametrize(
    ("arguments", "status", "condition"),
    [
        (
            {"rule_name": "$default", "rule_description": sql("1=1")},
            409,
            "com.microsoft:entity-already-exists",
        ),
        ({"rule_name": "r", "rule_description": sql("a = = 1")}, 400, "argument-error"),  # SQL-11
        ({"rule_name": "r", "rule_description": {}}, 400, "argument-error"),
        ({"rule_name": "r", "rule_description": {"correlation-filter": {}}}, 400, "argument"),
        (
            {
                "rule_name": "r",
                "rule_description": {**sql("1=1"), "correlation-filter": {"to": "x"}},
            },
            400,
            "argument-error",
        ),
        ({"rule_description": sql("1=1")}, 400, "argument-error"),
        ({"rule_name": "r"}, 400, "argument-error"),
    ],
)
def test_what_cannot_be_a_rule_is_refused(
    requests: Requests, arguments: dict[str, Any], status: int, condition: str
) -> None:
    assert requests.manage("add-rule", **arguments)[0] == status
    assert condition in str(requests.condition)
    assert len(listed(requests)) == 1


def test_a_rule_that_is_not_there_cannot_be_removed(requests: Requests) -> None:
    assert requests.manage("remove-rule", rule_name="none")[0] == 404
    assert requests.condition == "amqp:not-found"


def test_only_subscriptions_have_rules(world: World, client: Client) -> None:
    world.topic("news")
    world.queue("orders")
    for node in ("news", "orders"):
        requests = client.requests(f"{node}/$management", name=node)
        assert requests.manage("enumerate-rules", top=10, skip=0)[0] == 400
        assert requests.condition == "amqp:not-allowed"


def test_rules_take_the_right_to_manage_and_a_look_at_them_does_not(
    world: World, path: str
) -> None:
    from dataclasses import replace

    topic = world.catalog.find("news")
    assert topic is not None
    listen = AuthorizationRule("reader", ("Listen",), "a-key")
    world.catalog.update(replace(topic, authorization_rules=(listen,)))
    client = world.connect(token=False)
    client.put_token("news", rule="reader", key="a-key")
    requests = client.requests(f"{path}/$management")
    assert requests.manage("enumerate-rules", top=10, skip=0)[0] == 200  # amqp.md 18
    assert requests.manage("remove-rule", rule_name="$Default")[0] == 401
    status, _ = requests.manage("schedule-message", messages=[{"message": message()}])
    assert status == 401


def test_rules_are_listed_in_the_order_of_their_names(requests: Requests) -> None:
    for name in ("zebra", "Ant", "mole"):
        assert requests.manage("add-rule", rule_name=name, rule_description=sql("1=1"))[0] == 200
    assert [rule.value[2] for rule in listed(requests)] == ["$Default", "Ant", "mole", "zebra"]
    assert [rule.value[2] for rule in listed(requests, skip=Int(1), top=Int(2))] == ["Ant", "mole"]
