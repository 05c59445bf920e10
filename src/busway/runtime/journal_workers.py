"""The processes that read journals: as many as have something to do, and no longer than they have.

The first is started by the first question, one more whenever a question waits while all of them are
busy, up to the number of cores. A question waits its turn, whoever asks it, so that no reader waits
for all that another one wants. A process that has nothing to do for a while is ended.

An answer has two parts: an outcome, which is pickled, and octets, which are not. Those are kept in
the pieces in which the loop gets them, so that it is never held up by a long answer.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import struct
import sys
from collections import deque
from typing import Any, NamedTuple, cast

from busway.runtime import background
from busway.store.base import StoreUnavailable

log = logging.getLogger(__name__)

WORKERS_MAX = 4
IDLE_S = 60.0
"""A start costs half a second of a core, an idle process about 80 MB."""
GOODBYE_S = 2.0
LENGTH = struct.Struct(">I")
"""In front of every request."""
LENGTHS = struct.Struct(">IQ")
"""In front of every answer: of the outcome, and of the octets behind it."""

PROGRAM = (
    "from busway.runtime.background import step_back; step_back();"
    " from busway.runtime.journal_worker import main; main()"
)
"""Not `-m`: what is pickled there must be known here by the same name. Importing is work, too, and
a Ctrl-C is for the broker, which then ends its workers."""


class Answer(NamedTuple):
    outcome: Any
    chunks: list[bytes]


class WorkerEndedError(Exception):
    """A process is gone, with a question or before one."""


class Worker(asyncio.SubprocessProtocol):
    """One process, which takes one question at a time.

    What comes from it is kept as the loop read it, without another copy: nothing comes unasked, and
    an answer is a batch at most.
    """

    def __init__(self) -> None:
        self.retirement: asyncio.TimerHandle | None = None
        """While it has nothing to do."""
        self._transport: asyncio.SubprocessTransport | None = None
        self._exited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asked: asyncio.Future[Answer] | None = None
        self._begin = bytearray()
        """Of an answer, until its outcome is there."""
        self._answer: Answer | None = None
        self._left = 0
        """Octets that the answer still lacks."""

    @classmethod
    async def start(cls) -> Worker:
        loop = asyncio.get_running_loop()
        command = (sys.executable, "-c", PROGRAM)
        _, worker = await loop.subprocess_exec(cls, *command, stderr=None)
        return worker

    @property
    def pid(self) -> int:
        assert self._transport is not None
        return self._transport.get_pid()

    @property
    def is_running(self) -> bool:
        return not self._exited.done()

    async def ask(self, request: bytes) -> Answer:
        """Raises `WorkerEndedError`."""
        assert self._asked is None
        if not self.is_running:
            raise WorkerEndedError
        self._asked = asyncio.get_running_loop().create_future()
        self._requests.write(LENGTH.pack(len(request)) + request)
        return await self._asked

    @property
    def _requests(self) -> asyncio.WriteTransport:
        assert self._transport is not None
        return cast(asyncio.WriteTransport, self._transport.get_pipe_transport(0))

    def kill(self) -> None:
        if self.is_running:
            assert self._transport is not None
            self._transport.kill()

    async def wait(self) -> None:
        """Until it has ended, as it does with its input."""
        await asyncio.shield(self._exited)

    async def end(self) -> None:
        if self.is_running:
            self._requests.close()
        try:
            await asyncio.wait_for(self.wait(), GOODBYE_S)
        except TimeoutError:
            log.warning("a process that reads journals does not end; it is killed")
            self.kill()
            await self.wait()

    # What the loop tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if self._answer is None:
            self._begin += data
            data = self._begun()
        if self._answer is None:
            return
        if data:
            self._answer.chunks.append(data)
            self._left -= len(data)
        if not self._left:
            answer, self._answer = self._answer, None
            asked, self._asked = self._asked, None
            if asked is not None and not asked.done():
                asked.set_result(answer)

    def _begun(self) -> bytes:
        """Take the outcome, if it is there; what follows it."""
        if len(self._begin) < LENGTHS.size:
            return b""
        length, octets = LENGTHS.unpack_from(self._begin)
        end = LENGTHS.size + length
        if len(self._begin) < end:
            return b""
        self._answer = Answer(pickle.loads(self._begin[LENGTHS.size : end]), [])
        self._left = octets
        rest = bytes(self._begin[end:])
        self._begin.clear()
        return rest

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._fail()

    def process_exited(self) -> None:
        if not self._exited.done():
            self._exited.set_result(None)
        self._fail()

    def _fail(self) -> None:
        if self._asked is not None and not self._asked.done():
            self._asked.set_exception(WorkerEndedError())


class Workers:
    """All of them. Used by one loop."""

    def __init__(self, most: int | None = None, idle_s: float = IDLE_S) -> None:
        self.most = min(WORKERS_MAX, background.cores()) if most is None else most
        self.running: list[Worker] = []
        self._idle_s = idle_s
        self._idle: list[Worker] = []
        self._waiting: deque[asyncio.Future[Worker]] = deque()
        self._starting: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False

    async def ask(self, request: bytes) -> Answer:
        """Raises `StoreUnavailable` if no process can answer."""
        worker = await self._take()
        try:
            answer = await worker.ask(request)
        except WorkerEndedError as error:
            self._forget(worker)
            raise StoreUnavailable(
                "the process that reads journals ended; ask again, another one is started"
            ) from error
        except BaseException:
            self._forget(worker)  # somebody gave up in the middle: its answer is nobody's
            raise
        self._give_back(worker)
        return answer

    async def close(self) -> None:
        self._closed = True
        if self._starting is not None:
            await asyncio.gather(self._starting, return_exceptions=True)
        self._refuse("the broker is being stopped")
        self._idle.clear()
        running, self.running = self.running, []
        for worker in running:
            self._stay(worker)
        await asyncio.gather(*(worker.end() for worker in running), *self._ending)

    # Who has which.

    async def _take(self) -> Worker:
        if self._closed:
            raise StoreUnavailable("the broker is being stopped")
        while self._idle:
            worker = self._idle.pop()  # the last one that worked: the others may be ended
            self._stay(worker)
            if worker.is_running:
                return worker
            self.running.remove(worker)
        waiting: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        self._start_if_needed()
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled() and waiting.exception() is None:
                self._give_back(waiting.result())
            raise

    def _give_back(self, worker: Worker) -> None:
        if self._closed:
            return  # `close` ends it
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(worker)
                return
        self._idle.append(worker)
        loop = asyncio.get_running_loop()
        worker.retirement = loop.call_later(self._idle_s, self._retire, worker)

    def _stay(self, worker: Worker) -> None:
        if worker.retirement is not None:
            worker.retirement.cancel()
            worker.retirement = None

    def _retire(self, worker: Worker) -> None:
        self._idle.remove(worker)
        self.running.remove(worker)
        ending = asyncio.get_running_loop().create_task(worker.end())
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    def _forget(self, worker: Worker) -> None:
        worker.kill()
        if worker in self.running:
            self.running.remove(worker)
        self._start_if_needed()

    # Starting them, one after the other.

    def _start_if_needed(self) -> None:
        while self._waiting and self._waiting[0].done():
            self._waiting.popleft()
        busy = self._starting is not None or len(self.running) >= self.most
        if self._waiting and not busy and not self._closed:
            self._starting = asyncio.get_running_loop().create_task(self._start())

    async def _start(self) -> None:
        try:
            worker = await Worker.start()
        except OSError as error:
            self._starting = None
            if not self.running:
                self._refuse(f"the process that reads journals cannot be started: {error}")
            return
        self._starting = None
        self.running.append(worker)
        self._give_back(worker)
        self._start_if_needed()

    def _refuse(self, why: str) -> None:
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_exception(StoreUnavailable(why))
