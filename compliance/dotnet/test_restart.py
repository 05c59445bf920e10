"""A broker that is stopped or killed, and started again: clients go on, and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from certificates import tls_arguments
from sdk import handler, result
from world import Address, World, bodies, complete, message, receive_one, received, wait_until

from busway.testing.server import Server

# isort: split

from Azure.Messaging.ServiceBus import (
    ProcessErrorEventArgs,
    ProcessMessageEventArgs,
    ServiceBusRetryOptions,
)
from System import BinaryData
from System.Net.WebSockets import WebSocketException


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(data=tmp_path / "data", arguments=tls_arguments()) as server:
        yield server


@pytest.fixture
def world(server: Server, way: str, partitioned: bool) -> Iterator[World]:
    """A broker of its own, with stores on disk, and a client that tries again as it does."""
    address = Address(server.connection_string, server.tls_connection_string)
    world = World(address, way, partitioned)
    world.client = world.connect(RetryOptions=ServiceBusRetryOptions())
    yield world
    world.close()


def send_as_soon_as_possible(sender: Any, body: str) -> None:
    """The SDK tries again by itself, but not when a WebSocket breaks under a send."""

    def is_taken() -> bool:
        try:
            result(sender.SendMessageAsync(message(body)))
        except WebSocketException:
            return False
        return True

    wait_until(is_taken)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_messages_locks_and_state_are_there_after_a_restart(
    world: World, server: Server, end: str
) -> None:
    queue, sessions = world.queue(), world.queue(RequiresSession=True)
    sent = [f"message {number}" for number in range(20)]
    world.send(queue, *sent)
    world.send(sessions, message("step", SessionId="s"))
    holder = world.opened(result(world.client.AcceptSessionAsync(sessions, "s")))
    result(holder.SetSessionStateAsync(BinaryData("half way")))
    getattr(server, end)()
    server.restart()
    receiver = world.receiver(queue)
    found = received(receiver, len(sent))
    assert sorted(bodies(found)) == sorted(sent)
    complete(receiver, *found)
    again = world.connect(RetryOptions=ServiceBusRetryOptions())
    result(holder.CloseAsync())
    accepted = world.opened(result(again.AcceptSessionAsync(sessions, "s")))
    assert result(accepted.GetSessionStateAsync()).ToString() == "half way"
    assert receive_one(accepted).Body.ToString() == "step"


def test_links_that_were_open_go_on_after_a_kill(world: World, server: Server) -> None:
    queue = world.queue()
    sender, receiver = world.sender(queue), world.receiver(queue)
    result(sender.SendMessageAsync(message("before")))
    complete(receiver, receive_one(receiver))
    server.kill()
    server.restart()
    send_as_soon_as_possible(sender, "after")
    assert receive_one(receiver).Body.ToString() == "after"


def test_a_processor_goes_on_after_a_kill(world: World, server: Server) -> None:
    queue = world.queue()
    handled: list[str] = []
    processor = world.client.CreateProcessor(queue)
    on_message = handler(
        ProcessMessageEventArgs, lambda args: handled.append(args.Message.Body.ToString())
    )
    on_error = handler(ProcessErrorEventArgs, lambda args: None)
    processor.ProcessMessageAsync += on_message
    processor.ProcessErrorAsync += on_error
    result(processor.StartProcessingAsync())
    world.send(queue, "before")
    wait_until(lambda: "before" in handled)
    server.kill()
    server.restart()
    send_as_soon_as_possible(world.sender(queue), "after")
    wait_until(lambda: "after" in handled)
    result(processor.StopProcessingAsync())
    result(processor.DisposeAsync())
