"""The administration client: every option of every entity, and how it is told of refusals."""

from __future__ import annotations

from typing import Any

import pytest
from sdk import listed, result
from world import World, message, receive_one, refusal, seconds, with_properties

# isort: split

from Azure.Core.Diagnostics import AzureEventSourceListener
from Azure.Messaging.ServiceBus import ServiceBusException, ServiceBusFailureReason
from Azure.Messaging.ServiceBus.Administration import (
    AccessRights,
    CorrelationRuleFilter,
    CreateQueueOptions,
    CreateRuleOptions,
    CreateSubscriptionOptions,
    CreateTopicOptions,
    EntityStatus,
    SharedAccessAuthorizationRule,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)
from System import Action, Array, String, TimeSpan
from System.Diagnostics.Tracing import EventLevel, EventWrittenEventArgs

WARNING = EventLevel.Warning
MINUTES = TimeSpan.FromMinutes


def text_of(value: Any) -> str:
    return value.ToString() if hasattr(value, "ToString") else str(value)


def shown(thing: Any, expected: dict[str, Any]) -> dict[str, str]:
    """What an entity says of itself, of all that is expected; as text, since types are .NET's."""
    return {name: text_of(getattr(thing, name)) for name in expected}


def texts(expected: dict[str, Any]) -> dict[str, str]:
    return {name: text_of(value) for name, value in expected.items()}


QUEUE: dict[str, Any] = {
    "AutoDeleteOnIdle": MINUTES(7),
    "DeadLetteringOnMessageExpiration": True,
    "DefaultMessageTimeToLive": TimeSpan.FromDays(2),
    "DuplicateDetectionHistoryTimeWindow": MINUTES(2),
    "EnableBatchedOperations": False,
    "LockDuration": seconds(45),
    "MaxDeliveryCount": 8,
    "MaxSizeInMegabytes": 2048,
    "RequiresDuplicateDetection": True,
    "RequiresSession": True,
    "UserMetadata": "note <to> & self",
}
SUBSCRIPTION: dict[str, Any] = {
    "AutoDeleteOnIdle": MINUTES(7),
    "DeadLetteringOnMessageExpiration": True,
    "DefaultMessageTimeToLive": TimeSpan.FromDays(2),
    "EnableBatchedOperations": False,
    "EnableDeadLetteringOnFilterEvaluationExceptions": False,
    "LockDuration": seconds(45),
    "MaxDeliveryCount": 8,
    "RequiresSession": True,
    "UserMetadata": "note",
}
TOPIC: dict[str, Any] = {
    "AutoDeleteOnIdle": MINUTES(7),
    "DefaultMessageTimeToLive": TimeSpan.FromDays(2),
    "DuplicateDetectionHistoryTimeWindow": MINUTES(2),
    "EnableBatchedOperations": False,
    "MaxSizeInMegabytes": 2048,
    "RequiresDuplicateDetection": True,
    "UserMetadata": "note",
}


def options_of(world: World, options: dict[str, Any]) -> dict[str, Any]:
    return {**options, "EnablePartitioning": world.partitioned, "Status": EntityStatus.Active}


def as_shown(options: dict[str, Any]) -> dict[str, str]:
    """The size is that of one partition when it is asked for, and that of all when it is shown."""
    size = options["MaxSizeInMegabytes"] * (16 if options["EnablePartitioning"] else 1)
    return texts({**options, "MaxSizeInMegabytes": size})


@pytest.mark.short
def test_a_queue_is_made_with_every_option_and_shows_them(world: World) -> None:
    destination = world.queue()
    options = options_of(world, QUEUE)
    forwards = {"ForwardDeadLetteredMessagesTo": destination}
    name = world.new_name("full")
    made = with_properties(CreateQueueOptions(name), options | forwards)
    rights = Array[AccessRights]([AccessRights.Send, AccessRights.Listen])
    made.AuthorizationRules.Add(SharedAccessAuthorizationRule("clerk", rights))
    created = result(world.administration.CreateQueueAsync(made)).Value
    found = result(world.administration.GetQueueAsync(name)).Value
    for queue in (created, found):
        assert shown(queue, options) == as_shown(options)
        assert queue.ForwardDeadLetteredMessagesTo.endswith(destination)
        (rule,) = queue.AuthorizationRules
        assert rule.KeyName == "clerk"
        assert sorted(text_of(right) for right in rule.Rights) == ["Listen", "Send"]
    result(world.administration.DeleteQueueAsync(name))
    assert not result(world.administration.QueueExistsAsync(name)).Value


def test_a_queue_is_updated(world: World) -> None:
    name = world.queue()
    queue = result(world.administration.GetQueueAsync(name)).Value
    changes = {
        "DeadLetteringOnMessageExpiration": True,
        "DefaultMessageTimeToLive": TimeSpan.FromDays(3),
        "LockDuration": seconds(30),
        "MaxDeliveryCount": 5,
        "UserMetadata": "changed",
        "Status": EntityStatus.SendDisabled,
    }
    updated = result(world.administration.UpdateQueueAsync(with_properties(queue, changes))).Value
    assert shown(updated, changes) == texts(changes)
    assert updated.EnablePartitioning == world.partitioned
    error = refusal(lambda: world.send(name, "no"))
    assert error.Reason == ServiceBusFailureReason.MessagingEntityDisabled


@pytest.mark.short
def test_topics_and_subscriptions_show_every_option(world: World) -> None:
    topic = world.new_name("full-topic")
    destination = world.queue()
    options = options_of(world, TOPIC)
    made = with_properties(CreateTopicOptions(topic), options)
    created = result(world.administration.CreateTopicAsync(made)).Value
    assert shown(created, options) == as_shown(options)
    made = with_properties(CreateSubscriptionOptions(topic, "s"), SUBSCRIPTION)
    made.ForwardDeadLetteredMessagesTo = destination
    subscription = result(world.administration.CreateSubscriptionAsync(made)).Value
    assert shown(subscription, SUBSCRIPTION) == texts(SUBSCRIPTION)
    assert subscription.ForwardDeadLetteredMessagesTo.endswith(destination)
    assert subscription.TopicName == topic
    subscription.MaxDeliveryCount = 3
    updated = result(world.administration.UpdateSubscriptionAsync(subscription)).Value
    assert updated.MaxDeliveryCount == 3
    result(world.administration.DeleteSubscriptionAsync(topic, "s"))
    assert not result(world.administration.SubscriptionExistsAsync(topic, "s")).Value
    result(world.administration.DeleteTopicAsync(topic))
    assert not result(world.administration.TopicExistsAsync(topic)).Value


def test_rules_are_made_changed_and_listed(world: World) -> None:
    topic = world.topic("s")
    correlation = with_properties(
        CorrelationRuleFilter(),
        {
            "ContentType": "text/plain",
            "CorrelationId": "c",
            "MessageId": "m",
            "ReplyTo": "r",
            "ReplyToSessionId": "rs",
            "SessionId": "s",
            "Subject": "sub",
            "To": "t",
        },
    )
    correlation.ApplicationProperties["level"] = "high"
    sql = CreateRuleOptions("sql", SqlRuleFilter("colour = 'red'"))
    sql.Action = SqlRuleAction("SET seen = TRUE")
    result(
        world.administration.CreateRuleAsync(topic, "s", CreateRuleOptions("all", TrueRuleFilter()))
    )
    result(world.administration.CreateRuleAsync(topic, "s", sql))
    made = result(
        world.administration.CreateRuleAsync(topic, "s", CreateRuleOptions("cor", correlation))
    ).Value
    assert made.Filter.Equals(correlation)
    rule = result(world.administration.GetRuleAsync(topic, "s", "sql")).Value
    assert rule.Filter.SqlExpression == "colour = 'red'"
    assert rule.Action.SqlExpression == "SET seen = TRUE"
    rule.Filter = SqlRuleFilter("colour = 'blue'")
    changed = result(world.administration.UpdateRuleAsync(topic, "s", rule)).Value
    assert changed.Filter.SqlExpression == "colour = 'blue'"
    names = {each.Name for each in listed(world.administration.GetRulesAsync(topic, "s"))}
    assert names == {"$Default", "all", "sql", "cor"}
    result(world.administration.DeleteRuleAsync(topic, "s", "cor"))
    assert not result(world.administration.RuleExistsAsync(topic, "s", "cor")).Value


@pytest.mark.short
def test_entities_are_listed_with_what_they_hold(world: World) -> None:
    queue, topic = world.queue(), world.topic("one", "two")
    world.send(queue, "a", "b")
    receiver = world.receiver(queue)
    result(receiver.DeadLetterMessageAsync(receive_one(receiver)))
    assert queue in {each.Name for each in listed(world.administration.GetQueuesAsync())}
    assert topic in {each.Name for each in listed(world.administration.GetTopicsAsync())}
    subscriptions = listed(world.administration.GetSubscriptionsAsync(topic))
    assert {each.SubscriptionName for each in subscriptions} == {"one", "two"}
    runtime = result(world.administration.GetQueueRuntimePropertiesAsync(queue)).Value
    assert runtime.TotalMessageCount == 2
    assert runtime.ActiveMessageCount == 1
    assert runtime.DeadLetterMessageCount == 1
    assert runtime.SizeInBytes > 0
    of_topic = result(world.administration.GetTopicRuntimePropertiesAsync(topic)).Value
    assert of_topic.SubscriptionCount == 2
    world.send(topic, "copied")
    of_one = result(world.administration.GetSubscriptionRuntimePropertiesAsync(topic, "one")).Value
    assert of_one.ActiveMessageCount == 1
    every = listed(world.administration.GetSubscriptionsRuntimePropertiesAsync(topic))
    assert [each.ActiveMessageCount for each in every] == [1, 1]


def test_a_name_that_is_taken_and_one_that_is_missing_have_their_reasons(world: World) -> None:
    name = world.queue()
    taken = refusal(lambda: result(world.administration.CreateQueueAsync(CreateQueueOptions(name))))
    assert taken.Reason == ServiceBusFailureReason.MessagingEntityAlreadyExists
    missing = refusal(
        lambda: result(world.administration.GetQueueAsync("missing")), ServiceBusException
    )
    assert missing.Reason == ServiceBusFailureReason.MessagingEntityNotFound
    assert not result(world.administration.QueueExistsAsync("missing")).Value


def test_asking_whether_a_queue_or_topic_exists_logs_no_warning(world: World) -> None:
    """N-15: at a 404 the SDK warns of an error response, though *no* is an answer like *yes*."""
    warnings: list[str] = []

    def keep(event: Any, text: str) -> None:
        warnings.append(text)

    listener = AzureEventSourceListener(Action[EventWrittenEventArgs, String](keep), WARNING)
    try:
        assert not result(world.administration.QueueExistsAsync("missing")).Value
        assert not result(world.administration.TopicExistsAsync("missing")).Value
        assert warnings == []
        refusal(lambda: result(world.administration.DeleteQueueAsync("missing")))
        assert len(warnings) == 1  # so that the listener is known to listen
    finally:
        listener.Dispose()


def test_the_namespace_tells_of_itself(world: World) -> None:
    told = result(world.administration.GetNamespacePropertiesAsync()).Value
    assert told.Name
    assert told.MessagingSku is not None


def test_a_forwarding_queue_made_by_administration_forwards(world: World) -> None:
    destination = world.queue()
    source = world.queue(ForwardTo=destination)
    world.send(source, message("on and on", PartitionKey="k"))
    assert receive_one(world.receiver(destination)).Body.ToString() == "on and on"


def test_duplicates_are_dropped(world: World) -> None:
    queue = world.queue(RequiresDuplicateDetection=True)
    world.send(queue, message("first", MessageId="7"), message("again", MessageId="7"))
    world.send(queue, message("other", MessageId="8"))
    runtime = result(world.administration.GetQueueRuntimePropertiesAsync(queue)).Value
    assert runtime.ActiveMessageCount == 2


def test_names_and_delivery_counts_that_frameworks_ask_for_are_taken(world: World) -> None:
    """MassTransit makes topics of such names, NServiceBus queues with such a count."""
    topic = f"{world.new_name('Fault')}--Orders/Placed--"
    options = CreateTopicOptions(topic)
    options.EnablePartitioning = world.partitioned
    result(world.administration.CreateTopicAsync(options))
    result(world.administration.CreateSubscriptionAsync(CreateSubscriptionOptions(topic, "s_")))
    world.send(topic, "fault")
    assert receive_one(world.receiver(topic, "s_")).Body.ToString() == "fault"
    result(world.administration.DeleteTopicAsync(topic))
    name = world.queue(MaxDeliveryCount=2_147_483_647)
    found = result(world.administration.GetQueueAsync(name)).Value
    assert found.MaxDeliveryCount == 2_147_483_647
