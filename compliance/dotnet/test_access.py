"""Who may do what: keys, rights and tokens, and what those are told who may not."""

from __future__ import annotations

import re
import time
from typing import Any
from urllib.parse import quote_plus

import pytest
from sdk import result
from world import World, bodies, message, receive_one, received, refusal

from busway.gateway.auth import sign

# isort: split

from Azure import AzureNamedKeyCredential, AzureSasCredential
from Azure.Messaging.ServiceBus import (
    ServiceBusClient,
    ServiceBusClientOptions,
    ServiceBusTransportType,
)
from Azure.Messaging.ServiceBus.Administration import (
    AccessRights,
    CreateQueueOptions,
    SharedAccessAuthorizationRule,
)
from System import Array, UnauthorizedAccessException, Uri

KEY = "c29tZSBrZXkgb2YgdGhlIHF1ZXVlLCAzMiBieXRlcy4="


def connected(world: World, *credentials: Any) -> Any:
    """A client that is not let in by the connection string, or not by it alone."""
    options = ServiceBusClientOptions()
    options.RetryOptions.MaxRetries = 0
    if world.way != "plain":
        options.CustomEndpointAddress = Uri(f"sb://localhost:{world.address.port}")
    if world.way == "websocket":
        options.TransportType = ServiceBusTransportType.AmqpWebSockets
    return world.opened(ServiceBusClient(*credentials, options))


def string_of(world: World, rule: str, key: str) -> str:
    string = world.address.plain if world.way == "plain" else world.address.tls
    string = re.sub("SharedAccessKeyName=[^;]*", f"SharedAccessKeyName={rule}", string)
    return re.sub("SharedAccessKey=[^;]*", f"SharedAccessKey={key}", string)


def queue_with_a_rule(world: World, rule: str, *rights: Any) -> str:
    made = SharedAccessAuthorizationRule(rule, KEY, KEY, Array[AccessRights](rights))
    options = CreateQueueOptions(world.new_name("ruled"))
    options.EnablePartitioning = world.partitioned
    options.AuthorizationRules.Add(made)
    result(world.administration.CreateQueueAsync(options))
    world.delete_later(options.Name)
    return str(options.Name)


def send(client: Any, queue: str, text: str) -> None:
    result(client.CreateSender(queue).SendMessageAsync(message(text)))


@pytest.mark.short
def test_a_wrong_key_is_not_let_in(world: World) -> None:
    queue = world.queue()
    stranger = connected(world, string_of(world, "RootManageSharedAccessKey", KEY))
    error = refusal(lambda: send(stranger, queue, "never"), UnauthorizedAccessException)
    assert "TrackingId" in error.Message
    world.send(queue, "who is in is not disturbed")
    assert bodies([receive_one(world.receiver(queue))]) == ["who is in is not disturbed"]


def test_who_may_only_listen_receives_and_cannot_send(world: World) -> None:
    queue = queue_with_a_rule(world, "listens", AccessRights.Listen)
    world.send(queue, "hello")
    client = connected(world, string_of(world, "listens", KEY))
    found = receive_one(client.CreateReceiver(queue))
    assert found.Body.ToString() == "hello"
    refusal(lambda: send(client, queue, "never"), UnauthorizedAccessException)


def test_who_may_only_send_sends_and_cannot_receive(world: World) -> None:
    queue = queue_with_a_rule(world, "sends", AccessRights.Send)
    client = connected(world, string_of(world, "sends", KEY))
    send(client, queue, "hello")
    receiver = client.CreateReceiver(queue)
    refusal(lambda: result(receiver.ReceiveMessageAsync()), UnauthorizedAccessException)
    assert bodies(received(world.receiver(queue), 1)) == ["hello"]


def token(world: World, path: str, rule: str, key: str, life_s: int = 600) -> Any:
    resource, expiry = quote_plus(f"amqps://localhost/{path}"), str(int(time.time()) + life_s)
    signature = quote_plus(sign(resource, expiry, key))
    return f"SharedAccessSignature sr={resource}&sig={signature}&se={expiry}&skn={rule}"


def test_a_token_for_one_queue_opens_that_and_no_other(world: World) -> None:
    """Tokens and named keys go to a host without a port, so in TLS only."""
    if world.way == "plain":
        pytest.skip("the SDK takes such credentials in TLS only")
    queue, other = queue_with_a_rule(world, "sends", AccessRights.Send), world.queue()
    text = token(world, queue, "sends", KEY)
    client = connected(world, "localhost", AzureSasCredential(text))
    send(client, queue, "by token")
    refusal(lambda: send(client, other, "never"), UnauthorizedAccessException)
    assert bodies(received(world.receiver(queue), 1)) == ["by token"]
    late = AzureSasCredential(token(world, queue, "sends", KEY, life_s=-60))
    late_client = connected(world, "localhost", late)
    refusal(lambda: send(late_client, queue, "never"), UnauthorizedAccessException)


def test_a_named_key_is_as_good_as_a_connection_string(world: World) -> None:
    if world.way == "plain":
        pytest.skip("the SDK takes such credentials in TLS only")
    queue = queue_with_a_rule(world, "both", AccessRights.Send, AccessRights.Listen)
    client = connected(world, "localhost", AzureNamedKeyCredential("both", KEY))
    send(client, queue, "by name")
    assert bodies(received(client.CreateReceiver(queue), 1)) == ["by name"]
