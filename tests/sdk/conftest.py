"""One server for each module of tests, and in it one queue, or one topic, for each test.

A test says what its queue is like with `@pytest.mark.queue(lock_duration="5s")`, and gets it as
`queue`: conventional and partitioned, each for both faces of the SDK. It gets a topic as `topic`,
with the subscriptions that `@pytest.mark.topic(...)` writes down as a configuration file would.
Whatever else a test needs is written down so with `@pytest.mark.entities(...)`, where `$name` is
the name of its queue or topic and `$partitioned` says whether that is partitioned.

The SDK takes half a second to open a link, and as long to close one, nearly all of it asleep. So
the links of the next tests are opened, and those of past ones closed, while a test runs. (With
several workers, run `--dist loadfile`: then a worker knows which tests come next.)
"""

from __future__ import annotations

import re
import time
import tomllib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import cached_property
from string import Template
from typing import Any

import pytest
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)

from busway.testing import Server
from tests.sdk.faces import FACES, Sdk

WAIT_S = 60.0
"""How long a test waits for what must come; it comes at once, but on a busy machine."""
PARTITIONED = "partitioned"
TESTS_AHEAD = 6

ONCE_EACH = pytest.mark.parametrize(
    ("face", "kind"), [("sync", "conventional"), ("async", PARTITIONED)]
)
"""For tests that must wait for seconds: both faces and both kinds, not all four pairs."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "queue(**properties): what the queue of a test is like")
    config.addinivalue_line("markers", "topic(subscriptions, **properties): the same of a topic")
    config.addinivalue_line("markers", "entities(toml): what else is there for a test")


def wait_until(condition: Callable[[], Any], within_s: float = WAIT_S) -> Any:
    """What the condition says once it says something; fails after `within_s`."""
    deadline = time.monotonic() + within_s
    while not (result := condition()):
        assert time.monotonic() < deadline, f"not within {within_s} s: {condition}"
        time.sleep(0.02)
    return result


def renewed_past(renew: Callable[[], datetime], before: datetime) -> datetime:
    """The end of a lock that was renewed, a millisecond or more after it was taken.

    The wire tells milliseconds, and a renewal can come in the one in which the lock was taken.
    """
    return wait_until(lambda: end if (end := renew()) > before else None)  # type: ignore[no-any-return]


def received(receiver: Any, count: int) -> list[ServiceBusReceivedMessage]:
    """Exactly this many, over as many calls as it takes (P-29)."""
    found: list[ServiceBusReceivedMessage] = []
    deadline = time.monotonic() + WAIT_S
    while len(found) < count:
        missing = count - len(found)
        assert time.monotonic() < deadline, f"{missing} of {count} messages did not come"
        found += receiver.receive_messages(max_message_count=missing, max_wait_time=5)
    return found


def everything(receiver: Any, within_s: float = WAIT_S) -> list[ServiceBusReceivedMessage]:
    """All that is there, by a receiver that deletes: it is empty then.

    A receive may end with nothing on a busy machine, but a peek knows; and what the broker had sent
    before it answered the peek is received after it.
    """
    found: list[ServiceBusReceivedMessage] = []
    deadline = time.monotonic() + within_s
    seems_empty = False
    while True:
        batch = receiver.receive_messages(max_message_count=200, max_wait_time=0.5)
        found += batch
        if seems_empty and not batch:
            return found
        assert time.monotonic() < deadline, f"after {len(found)} messages the rest does not come"
        seems_empty = not batch and not receiver.peek_messages(1, sequence_number=1)


class EntityUnderTest:
    """A queue or topic of a running server, seen through one face of the SDK.

    Whatever is opened through it is closed after the test.
    """

    def __init__(self, server: Server, sdk: Sdk, item: pytest.Function, background: Executor):
        self.server = server
        self.sdk = sdk
        self.name = _entity_name(item)
        self.partitioned = _partitioned(item)
        self._background = background
        self._open = ExitStack()
        self._ahead: dict[str, Future[Any]] = {}

    @cached_property
    def client(self) -> Any:
        return self.connect()

    def open_ahead(self, item: pytest.Function) -> None:
        """Begin to open what the test will want first."""
        raise NotImplementedError

    def soon(self, what: str, open_it: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        """Begin to open something; `opened(what)` waits until it is."""
        self._ahead[what] = self._background.submit(open_it, *arguments, **options)

    def opened(self, what: str) -> Any:
        return self._ahead[what].result()

    @property
    def sender(self) -> Any:
        return self.opened("sender")

    def connect(self, connection_string: str | None = None) -> Any:
        """A client that does not try again: a retry would hide what a test is there to see."""
        text = connection_string or self.server.connection_string
        return self._open.enter_context(self.sdk.connect(text, retry_total=0))

    def open(self, context: Any) -> Any:
        """Anything that is to be closed after the test."""
        return self._open.enter_context(context)

    def open_queue_sender(self, name: str) -> Any:
        return self.open(self.client.get_queue_sender(name))

    def open_queue_receiver(self, name: str, **options: Any) -> Any:
        return self.open(self.client.get_queue_receiver(name, **options))

    def send(self, *messages: Any, sender: Any = None) -> None:
        """One by one, so that each finds its own partition."""
        for message in messages:
            if isinstance(message, str | bytes):
                message = ServiceBusMessage(message)
            (sender or self.sender).send_messages(message)

    def receive_from(self, receiver: Any, count: int = 1) -> list[ServiceBusReceivedMessage]:
        return received(receiver, count)

    def peek_at(self, receiver: Any, page: int = 100) -> list[ServiceBusReceivedMessage]:
        """All that is there, locked and deferred too (PEEK-1), by walking until nothing comes."""
        seen: list[ServiceBusReceivedMessage] = []
        following = 1
        while batch := receiver.peek_messages(page, sequence_number=following):
            seen += batch
            following = batch[-1].sequence_number + 1
        return seen

    def close(self) -> None:
        wait(self._ahead.values())
        self._open.close()
        self.sdk.close()


class QueueUnderTest(EntityUnderTest):
    def open_ahead(self, item: pytest.Function) -> None:
        assert self.client
        self.soon("sender", self.open_sender)
        if not _properties(item).get("requires_session"):
            self.soon("receiver", self.open_receiver)
        if "dead_letters" in item.fixturenames:
            sub_queue = ServiceBusSubQueue.DEAD_LETTER
            self.soon("dead letters", self.open_receiver, sub_queue=sub_queue)

    @property
    def receiver(self) -> Any:
        return self.opened("receiver")

    @property
    def dead_letters(self) -> Any:
        """For tests that ask for the fixture of this name."""
        return self.opened("dead letters")

    def open_sender(self) -> Any:
        return self.open_queue_sender(self.name)

    def open_receiver(self, **options: Any) -> Any:
        return self.open_queue_receiver(self.name, **options)

    def accept(self, session_id: str, **options: Any) -> Any:
        """A receiver that holds this session."""
        return self.open_receiver(session_id=session_id, **options)

    def accept_next(self, max_wait_time: float = WAIT_S, **options: Any) -> Any:
        """A receiver that holds the next available session."""
        next_one = NEXT_AVAILABLE_SESSION
        return self.open_receiver(session_id=next_one, max_wait_time=max_wait_time, **options)

    def receive(self, count: int = 1, receiver: Any = None) -> list[ServiceBusReceivedMessage]:
        return self.receive_from(receiver or self.receiver, count)

    def receive_one(self, receiver: Any = None) -> ServiceBusReceivedMessage:
        return self.receive(1, receiver)[0]

    def drain(self, count: int) -> list[ServiceBusReceivedMessage]:
        """Take for good what is there, which is at least this many."""
        mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
        receiver = self.open_receiver(receive_mode=mode, prefetch_count=100)
        drained = self.receive(count, receiver)
        while batch := receiver.receive_messages(max_message_count=100, max_wait_time=0.5):
            drained += batch
        return drained

    def peek_all(self, receiver: Any = None, page: int = 100) -> list[ServiceBusReceivedMessage]:
        return self.peek_at(receiver or self.receiver, page)

    @property
    def is_empty(self) -> bool:
        return not self.peek_all()


class TopicUnderTest(EntityUnderTest):
    def open_ahead(self, item: pytest.Function) -> None:
        assert self.client
        self.soon("sender", self.open_sender)
        for subscription in tomllib.loads(_topic_table(item))["topics"][0]["subscriptions"]:
            if not subscription.get("requires_session"):
                self.soon(subscription["name"], self.open_receiver, subscription["name"])

    def receiver(self, subscription: str) -> Any:
        return self.opened(subscription)

    def open_sender(self) -> Any:
        return self.open(self.client.get_topic_sender(self.name))

    def open_receiver(self, subscription: str, **options: Any) -> Any:
        return self.open(self.client.get_subscription_receiver(self.name, subscription, **options))

    def receive(self, subscription: str, count: int = 1) -> list[ServiceBusReceivedMessage]:
        return self.receive_from(self.receiver(subscription), count)

    def peek_all(self, subscription: str) -> list[ServiceBusReceivedMessage]:
        return self.peek_at(self.receiver(subscription))

    def bodies_in(self, subscription: str) -> list[str]:
        """Sorted: there is no order over partitions (P-30)."""
        return sorted(str(message) for message in self.peek_all(subscription))


class Entities:
    """The queues and topics of a module's tests, in the order in which they run."""

    def __init__(self, server: Server, items: list[pytest.Function], background: Executor) -> None:
        self._server = server
        self._coming = deque(items)
        self._background = background
        self._ahead: deque[tuple[pytest.Item, EntityUnderTest]] = deque()

    def of(self, item: pytest.Item) -> EntityUnderTest:
        while True:
            while self._coming and len(self._ahead) <= TESTS_AHEAD:
                self._open_next(self._coming.popleft())
            following, under_test = self._ahead.popleft()
            if following is item:
                return under_test
            self.close(under_test)  # of a test that was skipped

    def _open_next(self, item: pytest.Function) -> None:
        sdk = FACES[item.callspec.params["face"]]()
        make = TopicUnderTest if "topic" in item.fixturenames else QueueUnderTest
        under_test = make(self._server, sdk, item, self._background)
        under_test.open_ahead(item)
        self._ahead.append((item, under_test))

    def close(self, under_test: EntityUnderTest) -> None:
        self._background.submit(under_test.close)

    def close_all(self) -> None:
        for _, under_test in self._ahead:
            self.close(under_test)


def of_session(session_id: str, *bodies: str) -> list[ServiceBusMessage]:
    return [ServiceBusMessage(body, session_id=session_id) for body in bodies]


def texts(messages: Iterable[Any]) -> list[str]:
    return [str(message) for message in messages]


def seconds_left(moment: datetime) -> float:
    return (moment - datetime.now(UTC)).total_seconds()


def partition_of(message: ServiceBusReceivedMessage) -> int:
    """The high 16 bits of its sequence number (P-31)."""
    return message.sequence_number >> 48


# --- fixtures ------------------------------------------------------------------------------------


@pytest.fixture(params=list(FACES))
def face(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["conventional", PARTITIONED])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """On disk with the default settings, as a user would run it."""
    config = "".join(map(_entity_tables, _tests_with_entities(request)))
    with Server(config=config, data=tmp_path_factory.mktemp("data")) as running:
        yield running


@pytest.fixture(scope="module")
def entities(request: pytest.FixtureRequest, server: Server) -> Iterator[Entities]:
    with ThreadPoolExecutor(max_workers=16) as background:
        all_of_them = Entities(server, _tests_with_entities(request), background)
        yield all_of_them
        all_of_them.close_all()


@pytest.fixture
def queue(
    request: pytest.FixtureRequest, entities: Entities, face: str, kind: str
) -> Iterator[EntityUnderTest]:
    under_test = entities.of(request.node)
    yield under_test
    entities.close(under_test)


@pytest.fixture
def topic(
    request: pytest.FixtureRequest, entities: Entities, face: str, kind: str
) -> Iterator[EntityUnderTest]:
    under_test = entities.of(request.node)
    yield under_test
    entities.close(under_test)


@pytest.fixture
def dead_letters(queue: QueueUnderTest) -> Any:
    """A receiver on the dead-letter queue of `queue`."""
    return queue.dead_letters


def _tests_with_entities(request: pytest.FixtureRequest) -> list[pytest.Function]:
    return [
        item
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.path == request.path
        and {"queue", "topic"} & set(item.fixturenames)
    ]


def _entity_name(item: pytest.Item) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", item.name).strip("-._")


def _partitioned(item: pytest.Function) -> bool:
    return item.callspec.params["kind"] == PARTITIONED


def _properties(item: pytest.Function) -> dict[str, Any]:
    """What the marker of the queue or topic says, and the kind."""
    marker = item.get_closest_marker("topic" if "topic" in item.fixturenames else "queue")
    return {**(marker.kwargs if marker else {}), "partitioned": _partitioned(item)}


def _entity_tables(item: pytest.Function) -> str:
    table = _topic_table(item) if "topic" in item.fixturenames else _table("queues", item)
    return table + "".join(_filled(item, m.args[0]) for m in item.iter_markers("entities"))


def _topic_table(item: pytest.Function) -> str:
    marker = item.get_closest_marker("topic")
    assert marker is not None, "which subscriptions?"
    return _table("topics", item) + _filled(item, marker.args[0])


def _table(kind: str, item: pytest.Function) -> str:
    lines = [f"{name} = {_toml(value)}" for name, value in _properties(item).items()]
    return _filled(item, "\n".join([f"[[{kind}]]", 'name = "$name"', *lines, "", ""]))


def _filled(item: pytest.Function, text: str) -> str:
    partitioned = _toml(_partitioned(item))
    return Template(text).safe_substitute(name=_entity_name(item), partitioned=partitioned)


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool | int) else f'"{value}"'
