"""What MassTransit, NServiceBus and Rebus ask of a broker, done with the SDK below them.

The frameworks themselves are not at hand (see `../README.md`). These are the kinds of entities that
they make, and the steps that one message takes through each.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from sdk import handler, listed, result
from transaction import transaction
from world import (
    World,
    bodies,
    complete,
    date_time_offset,
    is_empty,
    message,
    receive_one,
    received,
    wait_until,
    with_properties,
)

# isort: split

from Azure.Messaging.ServiceBus import (
    ProcessErrorEventArgs,
    ProcessMessageEventArgs,
    ServiceBusMessage,
    ServiceBusProcessorOptions,
)
from Azure.Messaging.ServiceBus.Administration import (
    CreateRuleOptions,
    CreateTopicOptions,
    FalseRuleFilter,
    SqlRuleFilter,
)
from System import TimeSpan

DAYS = TimeSpan.FromDays
MINUTES = TimeSpan.FromMinutes
KEY = "key"
"""On every message, so that a partitioned entity can have it in a transaction (P-33)."""


def make_topic(world: World, name: str, **options: Any) -> str:
    options = {"EnablePartitioning": world.partitioned} | options
    made = with_properties(CreateTopicOptions(name), options)
    result(world.administration.CreateTopicAsync(made))
    world.delete_topic_later(name)
    return name


def test_masstransit_publishes_consumes_and_moves_faults(world: World) -> None:
    """A consumer that throws: the message goes to `_error`, a fault to the topic of its type."""
    times = {"DefaultMessageTimeToLive": DAYS(366), "AutoDeleteOnIdle": DAYS(427)}
    endpoint = world.queue(LockDuration=MINUTES(5), MaxDeliveryCount=5, **times)
    errors = world.queue(MaxDeliveryCount=2_147_483_647, **times)
    base = world.new_name("Orders")
    paid = make_topic(world, f"{base}/OrderPaid", **times)
    faults = make_topic(world, f"MassTransit/Fault--{base}/OrderPaid--", **times)
    forwards = {"ForwardTo": endpoint, "UserMetadata": f"{paid} to {endpoint}"} | times
    world.subscription(paid, endpoint, **forwards)
    world.subscription(faults, "watcher")

    def consume(args: Any) -> None:
        headers = {"MT-Fault-Message": "no such customer", "MT-Reason": "fault"}
        for destination in (errors, faults):
            copy = ServiceBusMessage(args.Message)
            for name, value in headers.items():
                copy.ApplicationProperties[name] = value
            world.send(destination, copy)
        result(args.CompleteMessageAsync(args.Message))

    options = ServiceBusProcessorOptions()
    options.AutoCompleteMessages, options.MaxConcurrentCalls = False, 4
    processor = world.opened(world.client.CreateProcessor(endpoint, options))
    failures: list[str] = []
    on_message = handler(ProcessMessageEventArgs, consume)
    on_error = handler(
        ProcessErrorEventArgs, lambda args: failures.append(args.Exception.ToString())
    )
    processor.ProcessMessageAsync += on_message
    processor.ProcessErrorAsync += on_error
    result(processor.StartProcessingAsync())
    world.send(paid, message("order 7", ContentType="application/vnd.masstransit+json"))
    for receiver in (world.receiver(errors), world.receiver(faults, "watcher")):
        found = receive_one(receiver)
        assert found.Body.ToString() == "order 7"
        assert found.ContentType == "application/vnd.masstransit+json"
        assert found.ApplicationProperties["MT-Fault-Message"] == "no such customer"
    result(processor.StopProcessingAsync())
    assert failures == []
    assert is_empty(world.receiver(endpoint))


def test_nservicebus_subscribes_and_sends_atomically_with_the_receive(world: World) -> None:
    """Its default mode: what a handler sends goes out first, then its message is completed."""
    unlimited = {"MaxDeliveryCount": 2_147_483_647, "LockDuration": MINUTES(5)}
    endpoint = world.queue(MaxSizeInMegabytes=5 * 1024, **unlimited)
    audit = world.queue(**unlimited)
    bundle = make_topic(world, world.new_name("bundle-1"), MaxSizeInMegabytes=5 * 1024)
    options = {"ForwardTo": endpoint, "EnableBatchedOperations": True} | unlimited
    nothing = CreateRuleOptions("$default", FalseRuleFilter())
    world.subscription(bundle, endpoint, nothing, **options)
    like = "[NServiceBus.EnclosedMessageTypes] LIKE '%Orders.OrderPaid%'"
    rule = CreateRuleOptions("Orders.OrderPaid", SqlRuleFilter(like))
    result(world.administration.CreateRuleAsync(bundle, endpoint, rule))
    rules = listed(world.administration.GetRulesAsync(bundle, endpoint))
    assert sorted(each.Name for each in rules) == ["$default", "Orders.OrderPaid"]

    def event(kind: str) -> Any:
        made = message(kind, PartitionKey=KEY)
        types = f"{kind}, Orders, Version=1.0.0.0;IEvent, Orders"
        made.ApplicationProperties["NServiceBus.EnclosedMessageTypes"] = types
        return made

    world.send(bundle, event("Orders.OrderLost"), event("Orders.OrderPaid"))
    client = world.connect(EnableCrossEntityTransactions=True)
    receiver = client.CreateReceiver(endpoint)
    found = receive_one(receiver)
    assert found.Body.ToString() == "Orders.OrderPaid"
    with transaction():
        copy = message("audited", PartitionKey=KEY, TransactionPartitionKey=KEY)
        result(client.CreateSender(audit).SendMessageAsync(copy))
        complete(receiver, found)
    assert bodies(received(world.receiver(audit), 1)) == ["audited"]
    assert is_empty(world.receiver(endpoint))


def test_rebus_defers_renews_and_retries(world: World) -> None:
    """Names made of types, deferral by a scheduled copy, an error queue of its own."""
    endpoint = world.queue(LockDuration=MINUTES(5), AutoDeleteOnIdle=DAYS(7))
    errors = world.queue()
    topic = make_topic(world, world.new_name("Orders.OrderPaid__Orders"))
    world.subscription(topic, endpoint, ForwardTo=endpoint)
    world.send(topic, with_properties(message("order 7"), {"MessageId": "rbs2-7"}))
    receiver = world.receiver(endpoint, prefetch=10)
    found = receive_one(receiver)
    result(receiver.RenewMessageLockAsync(found))
    later = ServiceBusMessage(found)
    later.ApplicationProperties["rbs2-defer-count"] = "1"
    later.ScheduledEnqueueTime = date_time_offset(datetime.now(UTC) + timedelta(seconds=1))
    result(world.sender(endpoint).SendMessageAsync(later))
    complete(receiver, found)
    again = receive_one(receiver)
    assert again.ApplicationProperties["rbs2-defer-count"] == "1"
    assert (again.MessageId, again.DeliveryCount) == ("rbs2-7", 1)
    failed = ServiceBusMessage(again)
    failed.ApplicationProperties["rbs2-error-details"] = "no such customer"
    world.send(errors, failed)
    complete(receiver, again)
    wait_until(lambda: is_empty(world.receiver(endpoint)))
    found = receive_one(world.receiver(errors))
    assert found.ApplicationProperties["rbs2-error-details"] == "no such customer"
