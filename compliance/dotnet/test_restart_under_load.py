"""Brokers killed and stopped under .NET processors: nothing lost, sessions in order, work goes on.

Two partitioned queues, one with sessions, are filled and emptied at the same time while the broker
ends again and again (`BUSWAY_KILLS`, twice by default). The seconds until handlers are called
again are printed: from the end of the broker, and from the moment that it is ready again.
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from certificates import tls_arguments
from sdk import handler, result
from world import Address, World, message, seconds, wait_until, with_properties

from busway.testing.server import Server

# isort: split

from Azure.Messaging.ServiceBus import (
    ProcessErrorEventArgs,
    ProcessMessageEventArgs,
    ProcessSessionMessageEventArgs,
    ServiceBusException,
    ServiceBusProcessorOptions,
    ServiceBusRetryOptions,
    ServiceBusSessionProcessorOptions,
)
from System.Net.WebSockets import WebSocketException

KILLS = int(os.environ.get("BUSWAY_KILLS", "2"))
SESSIONS = 32
MORE_BETWEEN_ENDS = 300
"""Messages of each queue that are handled between one end of the broker and the next."""
GO_ON_S = 120.0


@pytest.fixture(params=["partitioned"])
def partitioned(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(data=tmp_path / "data", arguments=tls_arguments()) as server:
        yield server


@pytest.fixture
def world(server: Server, way: str, partitioned: bool) -> Iterator[World]:
    address = Address(server.connection_string, server.tls_connection_string)
    world = World(address, way, partitioned)
    world.client = world.connect(RetryOptions=ServiceBusRetryOptions())
    yield world
    world.close()


class Sending(threading.Thread):
    """Sends until told to end; what was acknowledged is what must arrive."""

    def __init__(self, sender: Any, session_ids: list[str]) -> None:
        super().__init__(daemon=True)
        self.acknowledged: dict[str, int] = defaultdict(int)
        """How many of each session; those of no session have an empty name."""
        self._sender = sender
        self._session_ids = session_ids
        self._ending = threading.Event()

    def run(self) -> None:
        while not self._ending.is_set():
            for session_id in self._session_ids:
                self._send(session_id, str(self.acknowledged[session_id]))
                self.acknowledged[session_id] += 1

    def end(self) -> None:
        self._ending.set()
        self.join()

    def _send(self, session_id: str, body: str) -> None:
        """Until it is taken: an outcome that is unknown may store the message twice."""
        while True:
            made = message(body, SessionId=session_id) if session_id else message(body)
            try:
                result(self._sender.SendMessageAsync(made), within_s=600)
                return
            except (ServiceBusException, WebSocketException):
                continue


class Handling:
    """What handlers were called with, in order."""

    def __init__(self, processor: Any, kind: Any) -> None:
        self.bodies: dict[str, list[int]] = defaultdict(list)
        self.times: list[float] = []
        """When they were called."""
        self.processor = processor
        self._on_message = handler(kind, self._take)
        self._on_error = handler(ProcessErrorEventArgs, lambda args: None)
        processor.ProcessMessageAsync += self._on_message
        processor.ProcessErrorAsync += self._on_error
        result(processor.StartProcessingAsync())

    def _take(self, args: Any) -> None:
        self.bodies[args.Message.SessionId or ""].append(int(args.Message.Body.ToString()))
        self.times.append(time.monotonic())

    @property
    def calls(self) -> int:
        return len(self.times)

    def seen(self) -> dict[str, int]:
        return {name: len(set(bodies)) for name, bodies in self.bodies.items()}

    def end(self) -> None:
        result(self.processor.StopProcessingAsync())
        result(self.processor.DisposeAsync())


def first_seen(bodies: list[int]) -> list[int]:
    return list(dict.fromkeys(bodies))


@pytest.mark.timeout(300 + 60 * KILLS)
def test_processors_go_on_after_restarts_and_nothing_is_lost(
    world: World, server: Server, way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, with_sessions = world.queue(), world.queue(RequiresSession=True)
    options = with_properties(ServiceBusProcessorOptions(), {"MaxConcurrentCalls": 16})
    session_options = with_properties(
        ServiceBusSessionProcessorOptions(),
        {"MaxConcurrentSessions": SESSIONS, "SessionIdleTimeout": seconds(2)},
    )
    handled = {
        "processor": Handling(
            world.client.CreateProcessor(plain, options), ProcessMessageEventArgs
        ),
        "session processor": Handling(
            world.client.CreateSessionProcessor(with_sessions, session_options),
            ProcessSessionMessageEventArgs,
        ),
    }
    sending = [
        Sending(world.sender(plain), [""]),
        Sending(world.sender(with_sessions), [f"session {number}" for number in range(SESSIONS)]),
    ]
    for each in sending:
        each.start()
    figures: list[str] = []

    def wait_for_more(than: dict[str, int], more: int) -> None:
        wait_until(
            lambda: all(handled[name].calls >= than[name] + more for name in handled), GO_ON_S
        )

    for number in range(KILLS):
        wait_for_more({name: each.calls for name, each in handled.items()}, MORE_BETWEEN_ENDS)
        end = "kill" if number % 2 == 0 else "stop"
        ended = time.monotonic()
        getattr(server, end)()
        before = {name: each.calls for name, each in handled.items()}
        server.restart()
        ready = time.monotonic()
        for name, each in handled.items():
            wait_until(lambda each=each, past=before[name]: each.calls > past, GO_ON_S)
            first = each.times[before[name]]
            figures.append(f"{way} {end}: {name} {first - ended:.1f} s ({first - ready:.1f} s)")
    wait_for_more({name: each.calls for name, each in handled.items()}, MORE_BETWEEN_ENDS)
    for each in sending:
        each.end()
    for each, sent in zip(handled.values(), sending, strict=True):
        wait_until(lambda each=each, sent=sent: each.seen() == sent.acknowledged, GO_ON_S)
        each.end()
    for name, bodies in handled["session processor"].bodies.items():
        assert first_seen(bodies) == list(range(len(set(bodies)))), name
    again = sum(each.calls - sum(each.seen().values()) for each in handled.values())
    total = sum(sum(each.seen().values()) for each in handled.values())
    with capsys.disabled():
        print(f"\n{total} messages, {again} more than once; handlers called again after the end of")
        print("the broker (after it was ready again): " + "; ".join(figures))
