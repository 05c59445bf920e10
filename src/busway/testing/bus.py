"""What the fixture `busway` gives to a test: queues and topics of its own, and a clock."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import count
from pathlib import Path
from xml.sax.saxutils import escape

from busway.testing.clock import Clock
from busway.testing.requests import Requests
from busway.testing.server import Server, ServerError

ENTRY_TYPE = "application/atom+xml;type=entry;charset=utf-8"
SERVICE_BUS = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"

ELEMENTS = {
    "lock_duration": "LockDuration",
    "max_size_in_megabytes": "MaxSizeInMegabytes",
    "requires_duplicate_detection": "RequiresDuplicateDetection",
    "requires_session": "RequiresSession",
    "default_message_time_to_live": "DefaultMessageTimeToLive",
    "dead_lettering_on_message_expiration": "DeadLetteringOnMessageExpiration",
    "duplicate_detection_history_time_window": "DuplicateDetectionHistoryTimeWindow",
    "max_delivery_count": "MaxDeliveryCount",
    "forward_to": "ForwardTo",
    "auto_delete_on_idle": "AutoDeleteOnIdle",
    "enable_partitioning": "EnablePartitioning",
    "forward_dead_lettered_messages_to": "ForwardDeadLetteredMessagesTo",
}
"""Properties as the SDK's administration client calls them, in the order of the service."""

Value = bool | int | str | timedelta


class Snapshot:
    """Everything that a server had at one moment; `Bus.restore` brings it back."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder


class Bus:
    """A server, with what a test needs to know of it.

    Entities are made with the properties that the SDK's administration client has:
    `bus.queue(lock_duration=timedelta(minutes=5), requires_session=True)`.
    """

    _names = count(1)

    def __init__(self, server: Server) -> None:
        self.server = server
        self.clock = Clock(lambda: self._requests)
        self._snapshots = count(1)

    @property
    def connection_string(self) -> str:
        return self.server.connection_string

    @property
    def _requests(self) -> Requests:
        return Requests(self.server.connection_string)

    # --- entities ----------------------------------------------------------------------------

    def queue(self, name: str | None = None, /, **properties: Value) -> str:
        """A new queue; its name, which is made up if none is given."""
        name = name or f"queue-{next(self._names)}"
        self._put(name, "QueueDescription", properties)
        return name

    def topic(
        self,
        name: str | None = None,
        /,
        *,
        subscriptions: Sequence[str] | Mapping[str, Mapping[str, Value]] = (),
        **properties: Value,
    ) -> str:
        """A new topic, with subscriptions that take everything; each may have properties."""
        name = name or f"topic-{next(self._names)}"
        self._put(name, "TopicDescription", properties)
        wanted = subscriptions if isinstance(subscriptions, Mapping) else {}
        for each in subscriptions:
            self.subscription(name, each, **wanted.get(each, {}))
        return name

    def subscription(self, topic: str, name: str, /, **properties: Value) -> None:
        self._put(f"{topic}/subscriptions/{name}", "SubscriptionDescription", properties)

    def delete(self, name: str) -> None:
        """A queue, a topic, or a subscription: `topic/subscriptions/name`."""
        self._requests.send("DELETE", f"/{name}", None, ENTRY_TYPE)

    def _put(self, path: str, description: str, properties: Mapping[str, Value]) -> None:
        for name in properties:
            if name not in ELEMENTS:
                raise TypeError(f"'{name}' is no property; there are {', '.join(ELEMENTS)}.")
        elements = "".join(
            f"<{element}>{_text(properties[name])}</{element}>"
            for name, element in ELEMENTS.items()
            if name in properties
        )
        entry = (
            '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">'
            f'<{description} xmlns="{SERVICE_BUS}">{elements}</{description}></content></entry>'
        )
        self._requests.send("PUT", f"/{path}?api-version=2021-05", entry.encode(), ENTRY_TYPE)

    # --- all of it ---------------------------------------------------------------------------

    def reset(self) -> None:
        """As after the start: no messages, no entities but the configured ones, the real time.

        Connections stay; links to entities that are gone are detached.
        """
        self._requests.json("POST", "/$busway/reset", {})

    def snapshot(self) -> Snapshot:
        """A copy of entities, messages, sessions and time, while the server goes on."""
        data = self._data("snapshot")
        folder = data.parent / f"{data.name}-snapshot-{next(self._snapshots)}"
        _run("backup", str(data), str(folder))
        return Snapshot(folder)

    def restore(self, snapshot: Snapshot) -> None:
        """Back to that moment, any number of times. The server starts anew on its port, so clients
        lose their connections, and locks with them."""
        data = self._data("restore")
        if self.server.is_running:
            self.server.kill()
        shutil.rmtree(data)
        _run("restore", str(snapshot.folder), str(data))
        self.server.start()

    def _data(self, wanted: str) -> Path:
        if self.server.data is None:
            raise ServerError(f"{wanted}() needs a server with a data folder: Server(data=...)")
        return self.server.data


def _text(value: Value) -> str:
    match value:
        case bool():
            return str(value).lower()
        case timedelta():
            return f"PT{value / timedelta(seconds=1):.3f}S"
        case _:
            return escape(str(value))


def _run(*words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "busway", *words], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ServerError(done.stderr.strip())
