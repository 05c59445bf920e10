"""What the tests share: a way to the broker, entities of their own, and short forms of SDK calls.

`World` is what a test is given: it knows the way (plain, TLS, WebSocket) and the flavour
(conventional, partitioned), makes entities with the SDK's administration client, and closes and
deletes after the test whatever was opened and made through it.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from sdk import WAIT_S, result

# isort: split

from Azure.Messaging.ServiceBus import (
    ServiceBusClient,
    ServiceBusClientOptions,
    ServiceBusException,
    ServiceBusMessage,
    ServiceBusReceiveMode,
    ServiceBusReceiverOptions,
    ServiceBusTransportType,
    SubQueue,
)
from Azure.Messaging.ServiceBus.Administration import (
    CreateQueueOptions,
    CreateSubscriptionOptions,
    CreateTopicOptions,
    ServiceBusAdministrationClient,
)
from System import DateTimeOffset, TimeSpan, Uri

PLAIN, TLS, WEBSOCKET = "plain", "tls", "websocket"
WAYS = (PLAIN, TLS, WEBSOCKET)
NOTHING_S = 0.5
"""How long a receive waits that is to bring nothing."""

_names = itertools.count(1)


def date_time_offset(moment: datetime) -> DateTimeOffset:
    return DateTimeOffset.FromUnixTimeMilliseconds(int(moment.timestamp() * 1000))


def python_time(moment: DateTimeOffset) -> datetime:
    return datetime.fromtimestamp(moment.ToUnixTimeMilliseconds() / 1000, UTC)


def seconds(number: float) -> TimeSpan:
    return TimeSpan.FromSeconds(number)


def with_properties(thing: Any, properties: dict[str, Any]) -> Any:
    """Set what an object initializer sets in C#."""
    for name, value in properties.items():
        setattr(thing, name, value)
    return thing


def message(body: str = "message", /, **properties: Any) -> Any:
    return with_properties(ServiceBusMessage(body), properties)


def bodies(messages: Iterable[Any]) -> list[str]:
    return [each.Body.ToString() for each in messages]


def received(receiver: Any, count: int) -> list[Any]:
    """Exactly this many, over as many calls as it takes (P-29)."""
    found: list[Any] = []
    deadline = time.monotonic() + WAIT_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"{count - len(found)} of {count} did not come"
        found += result(receiver.ReceiveMessagesAsync(count - len(found), seconds(5)))
    return found


def receive_one(receiver: Any) -> Any:
    return received(receiver, 1)[0]


def is_empty(receiver: Any) -> bool:
    return result(receiver.ReceiveMessageAsync(seconds(NOTHING_S))) is None


def peeked(receiver: Any, count: int) -> list[Any]:
    """This many from the beginning; a peek may return fewer than asked (PRT-5)."""
    found: list[Any] = []
    while len(found) < count:
        begin = found[-1].SequenceNumber + 1 if found else 1
        some = list(result(receiver.PeekMessagesAsync(count - len(found), begin)))
        assert some, f"{len(found)} of {count} messages were peeked"
        found += some
    return found


def complete(receiver: Any, *messages: Any) -> None:
    for each in messages:
        result(receiver.CompleteMessageAsync(each))


def wait_until(condition: Callable[[], Any], within_s: float = WAIT_S) -> Any:
    """What the condition says once it says something; fails after `within_s`."""
    deadline = time.monotonic() + within_s
    while not (said := condition()):
        assert time.monotonic() < deadline, f"not within {within_s} s: {condition}"
        time.sleep(0.02)
    return said


def refusal(action: Callable[[], Any], kind: type = ServiceBusException) -> Any:
    """The exception with which the SDK answers something that must be refused."""
    try:
        action()
    except kind as error:
        return error
    raise AssertionError(f"this was not refused with {kind.__name__}")


class Address:
    """Where a broker is: its two connection strings, and the one port that takes everything."""

    def __init__(self, connection_string: str, tls_connection_string: str) -> None:
        self.plain = connection_string
        self.tls = tls_connection_string
        self.port = int(connection_string.partition(";")[0].rstrip("/").rpartition(":")[2])

    @classmethod
    def told(cls) -> Address:
        """That of the server which the suite was started for."""
        plain = os.environ["BUSWAY_CONNECTION_STRING"]
        return cls(plain, os.environ.get("BUSWAY_TLS_CONNECTION_STRING", ""))

    def administration(self, way: str) -> Any:
        return ServiceBusAdministrationClient(self.plain if way == PLAIN else self.tls)

    def connect(self, way: str, **options: Any) -> Any:
        """A client that does not try again: a retry would hide what a test is there to see.

        Without the emulator's flag the SDK dials 5671 whatever the string says, so it is told the
        port of this server as a custom endpoint.
        """
        chosen = ServiceBusClientOptions()
        chosen.RetryOptions.MaxRetries = 0
        if way != PLAIN:
            chosen.CustomEndpointAddress = Uri(f"sb://localhost:{self.port}")
        if way == WEBSOCKET:
            chosen.TransportType = ServiceBusTransportType.AmqpWebSockets
        with_properties(chosen, options)
        return ServiceBusClient(self.plain if way == PLAIN else self.tls, chosen)


class World:
    def __init__(self, address: Address, way: str, partitioned: bool) -> None:
        self.address = address
        self.way = way
        self.partitioned = partitioned
        self.administration = address.administration(way)
        self._open: list[Any] = []
        self._made: list[Callable[[], Any]] = []
        self.client = self.connect()

    def connect(self, **options: Any) -> Any:
        return self.opened(self.address.connect(self.way, **options))

    def opened(self, closable: Any) -> Any:
        """Anything that is to be disposed of after the test."""
        self._open.append(closable)
        return closable

    def close(self) -> None:
        for closable in reversed(self._open):
            result(closable.DisposeAsync())
        for delete in reversed(self._made):
            result(delete())

    # --- entities ----------------------------------------------------------------------------

    def new_name(self, kind: str) -> str:
        return f"{kind}-{self.way}-{next(_names)}"

    def queue(self, **options: Any) -> str:
        name = self.new_name("queue")
        options = {"EnablePartitioning": self.partitioned} | options
        result(
            self.administration.CreateQueueAsync(with_properties(CreateQueueOptions(name), options))
        )
        self.delete_later(name)
        return name

    def delete_later(self, queue: str) -> None:
        self._made.append(lambda: self.administration.DeleteQueueAsync(queue))

    def delete_topic_later(self, topic: str) -> None:
        self._made.append(lambda: self.administration.DeleteTopicAsync(topic))

    def topic(self, *subscriptions: str, **options: Any) -> str:
        name = self.new_name("topic")
        options = {"EnablePartitioning": self.partitioned} | options
        result(
            self.administration.CreateTopicAsync(with_properties(CreateTopicOptions(name), options))
        )
        self.delete_topic_later(name)
        for subscription in subscriptions:
            self.subscription(name, subscription)
        return name

    def subscription(self, topic: str, name: str, *rule: Any, **options: Any) -> None:
        made = with_properties(CreateSubscriptionOptions(topic, name), options)
        result(self.administration.CreateSubscriptionAsync(made, *rule))

    # --- links -------------------------------------------------------------------------------

    def sender(self, name: str) -> Any:
        return self.client.CreateSender(name)

    def send(self, name: str, *messages: Any) -> None:
        """One by one, so that each finds its own partition."""
        sender = self.sender(name)
        for each in messages:
            result(sender.SendMessageAsync(message(each) if isinstance(each, str) else each))

    def receiver(
        self, *path: str, deletes: bool = False, dead_letters: bool = False, prefetch: int = 0
    ) -> Any:
        options = ServiceBusReceiverOptions()
        options.PrefetchCount = prefetch
        if deletes:
            options.ReceiveMode = ServiceBusReceiveMode.ReceiveAndDelete
        if dead_letters:
            options.SubQueue = SubQueue.DeadLetter
        return self.client.CreateReceiver(*path, options)
