"""Topics: every subscription has its own copy of what its rules select."""

from __future__ import annotations

from typing import Any

import pytest
from sdk import listed, result
from world import World, bodies, complete, is_empty, message, receive_one, received, refusal

# isort: split

from Azure.Messaging.ServiceBus import ServiceBusFailureReason
from Azure.Messaging.ServiceBus.Administration import (
    CorrelationRuleFilter,
    CreateRuleOptions,
    FalseRuleFilter,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)
from System import Int32, Object, Type
from System.Linq import Enumerable


def coloured(body: str, colour: str, **properties: Any) -> Any:
    made = message(body, **properties)
    made.ApplicationProperties["colour"] = colour
    return made


def rule(name: str, filter: Any, action: str | None = None) -> Any:
    options = CreateRuleOptions(name, filter)
    if action:
        options.Action = SqlRuleAction(action)
    return options


@pytest.mark.short
def test_each_subscription_has_its_own_copy(world: World) -> None:
    topic = world.topic("one", "two")
    world.send(topic, "news")
    for subscription in ("one", "two"):
        receiver = world.receiver(topic, subscription)
        found = receive_one(receiver)
        assert found.Body.ToString() == "news"
        complete(receiver, found)
        assert is_empty(receiver)


@pytest.mark.short
def test_sql_and_correlation_rules_select_and_change(world: World) -> None:
    topic = world.topic()
    world.subscription(
        topic, "red", rule("red", SqlRuleFilter("colour = 'red'"), "SET painted = 'yes'")
    )
    urgent = CorrelationRuleFilter()
    urgent.Subject = "urgent"
    urgent.ApplicationProperties["colour"] = "blue"
    world.subscription(topic, "urgent", rule("urgent", urgent))
    world.subscription(topic, "none", rule("none", FalseRuleFilter()))
    world.subscription(topic, "all", rule("all", TrueRuleFilter()))
    world.send(
        topic, coloured("1", "red"), coloured("2", "blue"), coloured("3", "blue", Subject="urgent")
    )
    (red,) = received(world.receiver(topic, "red", deletes=True), 1)
    assert red.Body.ToString() == "1"
    assert red.ApplicationProperties["painted"] == "yes"
    assert bodies(received(world.receiver(topic, "urgent", deletes=True), 1)) == ["3"]
    assert sorted(bodies(received(world.receiver(topic, "all", deletes=True), 3))) == list("123")
    assert is_empty(world.receiver(topic, "none"))


@pytest.mark.short
def test_rules_are_managed_over_amqp(world: World) -> None:
    topic = world.topic("s")
    rules = world.opened(world.client.CreateRuleManager(topic, "s"))
    assert [each.Name for each in listed(rules.GetRulesAsync())] == ["$Default"]
    result(rules.DeleteRuleAsync("$Default"))
    result(rules.CreateRuleAsync("red", SqlRuleFilter("colour = 'red'")))
    result(rules.CreateRuleAsync(rule("blue", SqlRuleFilter("colour = 'blue'"), "SET b = 1")))
    by_name = {each.Name: each for each in listed(rules.GetRulesAsync())}
    assert by_name.keys() == {"red", "blue"}
    assert by_name["red"].Filter.SqlExpression == "colour = 'red'"
    assert by_name["blue"].Action.SqlExpression == "SET b = 1"
    world.send(topic, *(coloured(colour, colour) for colour in ("red", "blue", "green")))
    found = received(world.receiver(topic, "s", deletes=True), 2)
    assert sorted(bodies(found)) == ["blue", "red"]


def test_a_rule_of_a_name_that_is_taken_or_missing_is_refused(world: World) -> None:
    topic = world.topic("s")
    rules = world.opened(world.client.CreateRuleManager(topic, "s"))
    again = refusal(lambda: result(rules.CreateRuleAsync("$Default", TrueRuleFilter())))
    assert again.Reason == ServiceBusFailureReason.MessagingEntityAlreadyExists
    missing = refusal(lambda: result(rules.DeleteRuleAsync("nobody")))
    assert missing.Reason == ServiceBusFailureReason.MessagingEntityNotFound


def test_parameters_of_a_filter_keep_their_types(world: World) -> None:
    topic = world.topic()
    over = SqlRuleFilter("amount > @least AND colour = @colour")
    over.Parameters["@least"] = Int32(10)
    over.Parameters["@colour"] = "red"
    world.subscription(topic, "s", rule("over", over))
    for amount in (5, 15):
        made = coloured(str(amount), "red")
        made.ApplicationProperties["amount"] = Int32(amount)
        world.send(topic, made)
    receiver = world.receiver(topic, "s", deletes=True)
    assert bodies(received(receiver, 1)) == ["15"]
    assert is_empty(receiver)


def test_a_filter_that_fails_dead_letters_if_the_subscription_says_so(world: World) -> None:
    topic = world.topic()
    world.subscription(
        topic,
        "s",
        rule("fails", SqlRuleFilter("colour / 2 = 1")),
        EnableDeadLetteringOnFilterEvaluationExceptions=True,
    )
    world.send(topic, coloured("odd", "red"))
    dead = receive_one(world.receiver(topic, "s", dead_letters=True))
    assert dead.Body.ToString() == "odd"
    assert dead.DeadLetterReason == "FilterException"


def test_a_subscription_has_sessions_of_its_own(world: World) -> None:
    topic = world.topic()
    world.subscription(topic, "sessions", RequiresSession=True)
    world.send(topic, *(message(f"{n}", SessionId="s") for n in range(3)))
    receiver = world.opened(result(world.client.AcceptNextSessionAsync(topic, "sessions")))
    assert bodies(received(receiver, 3)) == ["0", "1", "2"]


def test_a_batch_is_sent_to_a_topic(world: World) -> None:
    topic = world.topic("s")
    sender = world.sender(topic)
    batch = result(sender.CreateMessageBatchAsync())
    for number in range(10):
        assert batch.TryAddMessage(message(str(number), PartitionKey="k"))
    result(sender.SendMessagesAsync(batch))
    assert bodies(received(world.receiver(topic, "s"), 10)) == [str(n) for n in range(10)]


def test_an_action_sets_a_parameter_with_its_type(world: World) -> None:
    topic = world.topic()
    marked = rule("marked", TrueRuleFilter(), "SET number = @number")
    marked.Action.Parameters["@number"] = Int32(7)
    world.subscription(topic, "s", marked)
    world.send(topic, "x")
    found = receive_one(world.receiver(topic, "s")).ApplicationProperties
    kinds = Type.GetTypeArray(Enumerable.ToArray[Object](found.Values))
    assert dict(zip(found.Keys, kinds, strict=True))["number"].Name == "Int32"
