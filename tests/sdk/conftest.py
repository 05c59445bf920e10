"""One server for each module of tests, and in it one queue for each test.

A test says what its queue is like with `@pytest.mark.queue(lock_duration="5s")`, and gets it as
`queue`: conventional and partitioned, each for both faces of the SDK.

The SDK takes half a second to open a link, and as long to close one, nearly all of it asleep. So
the links of the next tests are opened, and those of past ones closed, while a test runs. (With
several workers, run `--dist loadfile`: then a worker knows which tests come next.)
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from contextlib import ExitStack
from functools import cached_property
from typing import Any

import pytest
from azure.servicebus import (
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)

from busway.testing import Server
from tests.sdk.faces import FACES, Sdk

WAIT_S = 10.0
"""How long a test waits for what must come; it comes at once."""
PARTITIONED = "partitioned"
TESTS_AHEAD = 6

ONCE_EACH = pytest.mark.parametrize(
    ("face", "kind"), [("sync", "conventional"), ("async", PARTITIONED)]
)
"""For tests that must wait for seconds: both faces and both kinds, not all four pairs."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "queue(**properties): what the queue of a test is like")


def wait_until(condition: Callable[[], Any], within_s: float = WAIT_S) -> Any:
    """What the condition says once it says something; fails after `within_s`."""
    deadline = time.monotonic() + within_s
    while not (result := condition()):
        assert time.monotonic() < deadline, f"not within {within_s} s: {condition}"
        time.sleep(0.02)
    return result


class QueueUnderTest:
    """A queue of a running server, seen through one face of the SDK.

    Whatever is opened through it is closed after the test.
    """

    def __init__(
        self, server: Server, sdk: Sdk, name: str, background: Executor, *, partitioned: bool
    ) -> None:
        self.server = server
        self.sdk = sdk
        self.name = name
        self.partitioned = partitioned
        self._background = background
        self._open = ExitStack()

    @cached_property
    def client(self) -> Any:
        return self.connect()

    def open_ahead(self, *, dead_letters: bool) -> None:
        assert self.client
        self._ahead = [self._background.submit(self.open_sender)]
        self._ahead.append(self._background.submit(self.open_receiver))
        if dead_letters:
            sub_queue = ServiceBusSubQueue.DEAD_LETTER
            self._ahead.append(self._background.submit(self.open_receiver, sub_queue=sub_queue))

    @property
    def sender(self) -> Any:
        return self._ahead[0].result()

    @property
    def receiver(self) -> Any:
        return self._ahead[1].result()

    @property
    def dead_letters(self) -> Any:
        """For tests that ask for the fixture of this name."""
        return self._ahead[2].result()

    def connect(self, connection_string: str | None = None) -> Any:
        """A client that does not try again: a retry would hide what a test is there to see."""
        text = connection_string or self.server.connection_string
        return self._open.enter_context(self.sdk.connect(text, retry_total=0))

    def open_sender(self) -> Any:
        return self._open.enter_context(self.client.get_queue_sender(self.name))

    def open_receiver(self, **options: Any) -> Any:
        return self._open.enter_context(self.client.get_queue_receiver(self.name, **options))

    def open(self, context: Any) -> Any:
        """Anything else that is to be closed after the test."""
        return self._open.enter_context(context)

    def send(self, *messages: Any) -> None:
        """One by one, so that each finds its own partition."""
        for message in messages:
            if isinstance(message, str | bytes):
                message = ServiceBusMessage(message)
            self.sender.send_messages(message)

    def receive(self, count: int = 1, receiver: Any = None) -> list[ServiceBusReceivedMessage]:
        """Exactly this many, over as many calls as it takes (P-29)."""
        receiver = receiver or self.receiver
        received: list[ServiceBusReceivedMessage] = []
        deadline = time.monotonic() + WAIT_S
        while len(received) < count:
            missing = count - len(received)
            assert time.monotonic() < deadline, f"{missing} of {count} messages did not come"
            received += receiver.receive_messages(max_message_count=missing, max_wait_time=2)
        return received

    def receive_one(self, receiver: Any = None) -> ServiceBusReceivedMessage:
        return self.receive(1, receiver)[0]

    def drain(self) -> list[ServiceBusReceivedMessage]:
        """Take everything that can be received, for good."""
        mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
        receiver = self.open_receiver(receive_mode=mode, prefetch_count=100)
        drained: list[ServiceBusReceivedMessage] = []
        while batch := receiver.receive_messages(max_message_count=100, max_wait_time=0.5):
            drained += batch
        return drained

    def peek_all(self, receiver: Any = None, page: int = 100) -> list[ServiceBusReceivedMessage]:
        """All that is there, locked and deferred too (PEEK-1), by walking until nothing comes."""
        receiver = receiver or self.receiver
        seen: list[ServiceBusReceivedMessage] = []
        following = 1
        while batch := receiver.peek_messages(page, sequence_number=following):
            seen += batch
            following = batch[-1].sequence_number + 1
        return seen

    @property
    def is_empty(self) -> bool:
        return not self.peek_all()

    def close(self) -> None:
        wait(self._ahead)
        self._open.close()
        self.sdk.close()


class Queues:
    """The queues of a module's tests, in the order in which they run."""

    def __init__(self, server: Server, items: list[pytest.Function], background: Executor) -> None:
        self._server = server
        self._coming = deque(items)
        self._background = background
        self._ahead: deque[tuple[pytest.Item, QueueUnderTest]] = deque()

    def of(self, item: pytest.Item) -> QueueUnderTest:
        while True:
            while self._coming and len(self._ahead) <= TESTS_AHEAD:
                self._open_next(self._coming.popleft())
            following, under_test = self._ahead.popleft()
            if following is item:
                return under_test
            self.close(under_test)  # of a test that was skipped

    def _open_next(self, item: pytest.Function) -> None:
        sdk = FACES[item.callspec.params["face"]]()
        under_test = QueueUnderTest(
            self._server, sdk, _queue_name(item), self._background, partitioned=_partitioned(item)
        )
        under_test.open_ahead(dead_letters="dead_letters" in item.fixturenames)
        self._ahead.append((item, under_test))

    def close(self, under_test: QueueUnderTest) -> None:
        self._background.submit(under_test.close)

    def close_all(self) -> None:
        for _, under_test in self._ahead:
            self.close(under_test)


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
    config = "".join(map(_queue_table, _tests_with_queues(request)))
    with Server(config=config, data=tmp_path_factory.mktemp("data")) as running:
        yield running


@pytest.fixture(scope="module")
def queues(request: pytest.FixtureRequest, server: Server) -> Iterator[Queues]:
    with ThreadPoolExecutor(max_workers=16) as background:
        all_of_them = Queues(server, _tests_with_queues(request), background)
        yield all_of_them
        all_of_them.close_all()


@pytest.fixture
def queue(
    request: pytest.FixtureRequest, queues: Queues, face: str, kind: str
) -> Iterator[QueueUnderTest]:
    under_test = queues.of(request.node)
    yield under_test
    queues.close(under_test)


@pytest.fixture
def dead_letters(queue: QueueUnderTest) -> Any:
    """A receiver on the dead-letter queue of `queue`."""
    return queue.dead_letters


def _tests_with_queues(request: pytest.FixtureRequest) -> list[pytest.Function]:
    return [
        item
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.path == request.path
        and "queue" in item.fixturenames
    ]


def _queue_name(item: pytest.Item) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", item.name).strip("-._")


def _partitioned(item: pytest.Function) -> bool:
    return item.callspec.params["kind"] == PARTITIONED


def _queue_table(item: pytest.Function) -> str:
    marker = item.get_closest_marker("queue")
    properties = {**(marker.kwargs if marker else {}), "partitioned": _partitioned(item)}
    lines = [f"{name} = {_toml(value)}" for name, value in properties.items()]
    return "\n".join(["[[queues]]", f'name = "{_queue_name(item)}"', *lines, "", ""])


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool | int) else f'"{value}"'
