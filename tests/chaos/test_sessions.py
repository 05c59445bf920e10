"""Many sessions, and consumers that come and go: each session in exact order, nothing lost, nothing
twice but what a consumer let go (SES-3, SES-4, SES-8, SES-9).

Small by default; `BUSWAY_SESSIONS=full` is 100 sessions, 20 consumers and 50,000 messages.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusConnectionError,
    SessionLockLostError,
)

from busway.testing import Server
from tests.chaos.session_ledger import Holding, SessionLedger


@dataclass(frozen=True)
class Size:
    sessions: int
    consumers: int
    messages: int


SIZES = {"small": Size(20, 5, 2_000), "full": Size(100, 20, 50_000)}
SIZE = SIZES[os.environ.get("BUSWAY_SESSIONS", "small")]
SENDERS = 4
LOG_SHOWN = 10_000
TOO_SLOW = "it said nothing valid in time"
TAKEN_AWAY_S = 120.0
"""Of which the lock is 5 s; the rest is for a busy machine."""
BATCH = 20
QUEUES = {"conventional": "plain", "partitioned": "parts"}
CONFIG = """
[[queues]]
name = "plain"
requires_session = true
lock_duration = "5s"
max_delivery_count = 1000
[[queues]]
name = "parts"
partitioned = true
requires_session = true
lock_duration = "5s"
max_delivery_count = 1000
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(config=CONFIG, data=tmp_path / "data") as running:
        yield running
        print(running.log[-LOG_SHOWN:])  # what a failure is shown with


@pytest.fixture
def chance() -> random.Random:
    """When to leave and how; a failure prints the seed."""
    seed = int(os.environ.get("BUSWAY_SEED", random.randrange(1 << 32)))
    print(f"BUSWAY_SEED={seed}")
    return random.Random(seed)


class Crowd:
    """All senders and consumers of one queue, in one event loop."""

    def __init__(self, client: ServiceBusClient, queue: str, chance: random.Random) -> None:
        self.client = client
        self.queue = queue
        self.chance = chance
        self.ledger = SessionLedger()
        self.expired = 0
        """How many sessions were held for too long."""
        self._asleep = 0
        self.turned_away = 0
        """Connections that were cut before they were open."""

    async def run(self) -> None:
        names = [f"session {number}" for number in range(SIZE.sessions)]
        async with asyncio.TaskGroup() as group:
            for sender in range(SENDERS):
                group.create_task(self._watch(self._send(names[sender::SENDERS])))
            for _ in range(SIZE.consumers):
                group.create_task(self._watch(self._consume()))

    async def _watch(self, work: Coroutine[Any, Any, None]) -> None:
        """What goes wrong for one ends all: the SDK does not let itself be cancelled everywhere."""
        try:
            await work
        except Exception as error:
            self.ledger.complain("".join(traceback.format_exception(error)))

    async def _open(self, make: Callable[[], Any]) -> Any:
        """A starved client is too slow to greet, and is cut off: nothing was begun, so it tries
        again. The server's log must say so of each."""
        while True:
            opened = make()
            try:
                return await opened.__aenter__()
            except ServiceBusConnectionError:
                self.turned_away += 1
                await opened.close()

    @property
    def is_done(self) -> bool:
        return self.ledger.completed.total() >= SIZE.messages or bool(self.ledger.problems)

    async def _send(self, names: list[str]) -> None:
        """Each sender has sessions of its own, so that it knows their order."""
        due = dict.fromkeys(names, SIZE.messages // SIZE.sessions)
        async with await self._open(lambda: self.client.get_queue_sender(self.queue)) as sender:
            while due and not self.is_done:
                name = self.chance.choice(list(due))
                count = min(due[name], self.chance.randint(1, BATCH))
                first = self.ledger.accepted[name]
                await sender.send_messages(
                    [
                        ServiceBusMessage(str(number), session_id=name)
                        for number in range(first, first + count)
                    ]
                )
                self.ledger.accepted[name] += count
                due[name] -= count
                if not due[name]:
                    del due[name]

    async def _consume(self) -> None:
        """Accept whatever session is next, stay for a while, leave."""
        while not self.is_done:
            try:
                receiver = await self._open(self._next_session)
            except OperationTimeoutError:
                await self._resolve_last_doubts()
                continue
            holding = self.ledger.accept(receiver.session)
            try:
                await self._stay(receiver, holding)
            except SessionLockLostError:
                pass  # a busy machine: what was in hand comes again
            finally:
                holding.let_go()
                await receiver.close()

    def _next_session(self) -> Any:
        return self.client.get_queue_receiver(
            self.queue,
            session_id=NEXT_AVAILABLE_SESSION,
            max_wait_time=2,
            prefetch_count=2 * BATCH,
        )

    async def _stay(self, receiver: Any, holding: Holding) -> None:
        for _ in range(self.chance.randint(1, 10)):
            messages = await receiver.receive_messages(max_message_count=BATCH, max_wait_time=0.5)
            if not holding.is_locked:
                return
            for message in messages:
                holding.deliver(int(str(message)))
            if messages and self.chance.random() < 0.01 and self._asleep < SIZE.consumers - 2:
                await self._fall_asleep(holding)
                return
            if not messages or self.chance.random() < 0.02:
                return  # with what is in hand
            for message in messages:
                holding.completing = int(str(message))
                await receiver.complete_message(message)
                holding.complete(int(str(message)))
            await receiver.session.renew_lock()

    async def _fall_asleep(self, holding: Holding) -> None:
        """Until the lock has expired and the broker has given the session, and what is in hand, to
        somebody else (SES-8); somebody is always awake."""
        self.expired += 1
        self._asleep += 1
        deadline = time.monotonic() + TAKEN_AWAY_S
        while not holding.is_over and not self.is_done:
            if time.monotonic() > deadline:
                self.ledger.complain(f"{holding.session_id} was never given to another")
            await asyncio.sleep(0.05)
        self._asleep -= 1

    async def _resolve_last_doubts(self) -> None:
        """There is no free session; what was asked about before the answer is what it is about."""
        doubtful = self.ledger.last_doubts(SIZE.messages // SIZE.sessions)
        if doubtful:
            sessions = self.client.list_queue_sessions(self.queue)
            found = {session_id async for session_id in sessions}
            still = self.ledger.last_doubts(SIZE.messages // SIZE.sessions)
            for session_id in doubtful:
                if session_id not in found and session_id in still:
                    self.ledger.is_empty(session_id)

    async def left(self) -> list[str]:
        """Whatever is still there, alive or dead."""
        sessions = self.client.list_queue_sessions(self.queue)
        found = [session_id async for session_id in sessions]
        dead_letters = self.client.get_queue_receiver(
            self.queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER
        )
        async with dead_letters:
            return found + [str(each) for each in await dead_letters.peek_messages(10)]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", list(QUEUES))
async def test_sessions_are_in_order_under_consumers_that_come_and_go(
    server: Server, kind: str, chance: random.Random
) -> None:
    began = time.monotonic()
    text = server.connection_string
    async with ServiceBusClient.from_connection_string(text, retry_total=0) as client:
        crowd = Crowd(client, QUEUES[kind], chance)
        await crowd.run()
        crowd.ledger.judge()
        assert crowd.ledger.completed.total() == SIZE.messages
        assert await crowd.left() == []
        assert crowd.turned_away <= server.log.count(TOO_SLOW)
    print(
        f"{kind}: {SIZE} in {time.monotonic() - began:.1f} s: {crowd.ledger.holdings} holdings, "
        f"{crowd.expired} left to expire, {crowd.ledger.repeats} messages again"
    )
