"""All kinds of entities, created, changed, listed and deleted: a program as a user would write it.

It is run in a process of its own, which knows nothing of Busway but a connection string, and trusts
its certificate by the one variable that is documented for the client:

    REQUESTS_CA_BUNDLE=... python administration_tour.py sync "$CONNECTION_STRING"
    SSL_CERT_FILE=...      python administration_tour.py async "$CONNECTION_STRING"
"""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta

from azure.core.exceptions import ResourceNotFoundError
from azure.servicebus.aio.management import (
    ServiceBusAdministrationClient as AsyncAdministrationClient,
)
from azure.servicebus.management import ServiceBusAdministrationClient, SqlRuleFilter


def tour(client: ServiceBusAdministrationClient) -> None:
    with client:
        queue = client.create_queue("tour-queue", enable_partitioning=True)
        queue.lock_duration = timedelta(seconds=30)
        client.update_queue(queue)
        assert client.get_queue("tour-queue").lock_duration == timedelta(seconds=30)
        assert "tour-queue" in [each.name for each in client.list_queues()]

        topic = client.create_topic("tour-topic")
        client.update_topic(topic, user_metadata="changed")
        assert client.get_topic("tour-topic").user_metadata == "changed"
        assert "tour-topic" in [each.name for each in client.list_topics()]

        subscription = client.create_subscription("tour-topic", "tour")
        client.update_subscription("tour-topic", subscription, max_delivery_count=3)
        assert client.get_subscription("tour-topic", "tour").max_delivery_count == 3
        assert [each.name for each in client.list_subscriptions("tour-topic")] == ["tour"]

        rule = client.create_rule("tour-topic", "tour", "red", filter=SqlRuleFilter("a = 1"))
        rule.filter = SqlRuleFilter("a = 2")
        client.update_rule("tour-topic", "tour", rule)
        rules = list(client.list_rules("tour-topic", "tour"))
        assert [each.name for each in rules] == ["$Default", "red"]
        assert rules[1].filter.sql_expression == "a = 2"

        client.delete_rule("tour-topic", "tour", "red")
        client.delete_subscription("tour-topic", "tour")
        client.delete_topic("tour-topic")
        client.delete_queue("tour-queue")
        try:
            client.get_queue("tour-queue")
        except ResourceNotFoundError:
            return
        raise AssertionError("the queue is still there")


async def async_tour(client: AsyncAdministrationClient) -> None:
    async with client:
        queue = await client.create_queue("tour-queue", enable_partitioning=True)
        queue.lock_duration = timedelta(seconds=30)
        await client.update_queue(queue)
        assert (await client.get_queue("tour-queue")).lock_duration == timedelta(seconds=30)
        assert "tour-queue" in [each.name async for each in client.list_queues()]

        topic = await client.create_topic("tour-topic")
        await client.update_topic(topic, user_metadata="changed")
        assert (await client.get_topic("tour-topic")).user_metadata == "changed"
        assert "tour-topic" in [each.name async for each in client.list_topics()]

        subscription = await client.create_subscription("tour-topic", "tour")
        await client.update_subscription("tour-topic", subscription, max_delivery_count=3)
        assert (await client.get_subscription("tour-topic", "tour")).max_delivery_count == 3
        assert [each.name async for each in client.list_subscriptions("tour-topic")] == ["tour"]

        red = SqlRuleFilter("a = 1")
        rule = await client.create_rule("tour-topic", "tour", "red", filter=red)
        rule.filter = SqlRuleFilter("a = 2")
        await client.update_rule("tour-topic", "tour", rule)
        rules = [each async for each in client.list_rules("tour-topic", "tour")]
        assert [each.name for each in rules] == ["$Default", "red"]
        assert rules[1].filter.sql_expression == "a = 2"

        await client.delete_rule("tour-topic", "tour", "red")
        await client.delete_subscription("tour-topic", "tour")
        await client.delete_topic("tour-topic")
        await client.delete_queue("tour-queue")
        try:
            await client.get_queue("tour-queue")
        except ResourceNotFoundError:
            return
        raise AssertionError("the queue is still there")


if __name__ == "__main__":
    face, connection_string = sys.argv[1:]
    if face == "sync":
        tour(ServiceBusAdministrationClient.from_connection_string(connection_string))
    else:
        asyncio.run(async_tour(AsyncAdministrationClient.from_connection_string(connection_string)))
    print("done")
