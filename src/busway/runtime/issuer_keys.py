"""The keys of issuers, from a file or an address, read off the event loop.

They are asked for again every hour or so, when a token names a key that is not known (at most every
30 s, so that strangers cannot make us ask), and on SIGHUP. What cannot be read is told in the log
once, and the keys before it stay for a day; after that they are forgotten, because a key that was
withdrawn meanwhile would still open. A key that is gone from the set opens nothing new; what its
tokens have opened ends with them.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any
from urllib.error import HTTPError, URLError

from busway.gateway.bearer.keys import KeySet, KeySetError, parse_key_set
from busway.model.identity import Issuer
from busway.runtime.data_folder import StartError

log = logging.getLogger(__name__)

ASKED_AGAIN_AFTER_S = 30.0
FAILED_AGAIN_AFTER_S = 60.0
FILE_LOOKED_AT_S = 60.0
KEPT_WITHOUT_ANSWER_S = 24 * 3600.0
FIRST_ANSWER_S = 5.0
"""How long a start waits for an address; it may be down, and signatures work without it."""
FETCH_S = 10.0
"""How long one fetch may take as a whole."""
BYTES_MAX = 1024 * 1024
WAITING_MAX = 1_000
CHUNK_BYTES = 64 * 1024


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Keys come from the address that was configured, and from no other."""

    def redirect_request(self, *arguments: Any) -> None:
        return None


def fetch(url: str) -> bytes:
    """In a thread. Raises `KeySetError`; never takes much longer than `FETCH_S`."""
    deadline = time.monotonic() + FETCH_S
    opener = urllib.request.build_opener(NoRedirect)
    try:
        with opener.open(url, timeout=FETCH_S) as answer:
            return _read(answer, deadline)
    except HTTPError as error:
        raise KeySetError(f"it answers {error.code}") from error
    except TimeoutError as error:
        raise KeySetError(f"it does not answer within {FETCH_S:.0f} s") from error
    except (URLError, OSError, ValueError) as error:
        raise KeySetError(str(getattr(error, "reason", error))) from error


def _read(answer: IO[bytes], deadline: float) -> bytes:
    """One that sends a byte now and then must not hold the thread."""
    data = b""
    while chunk := answer.read1(CHUNK_BYTES):  # type: ignore[attr-defined]
        data += chunk
        if len(data) > BYTES_MAX:
            raise KeySetError(f"it sends more than {BYTES_MAX} bytes")
        if time.monotonic() > deadline:
            raise KeySetError(f"it takes longer than {FETCH_S:.0f} s")
    return data


class IssuerKeys:
    """Of one issuer (`KeySource`). `start` it in the event loop."""

    def __init__(self, issuer: Issuer) -> None:
        self.issuer = issuer
        self.keys = KeySet()
        self.problem: str | None = "they were not read yet"
        self._loop = asyncio.get_running_loop()
        self._asked_s: float | None = None
        self._read_s = 0.0
        self._told: str | None = None
        """The problem that the log has."""
        self._then: list[Callable[[], None]] = []
        self._under_way: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None

    @property
    def _place(self) -> str:
        return str(self.issuer.jwks_file or self.issuer.jwks_url)

    async def start(self) -> None:
        """Raises `StartError` for a file that has no keys; an address may answer later."""
        reading = self._ask()
        await asyncio.wait([reading], timeout=FIRST_ANSWER_S)
        if self.issuer.jwks_file is not None:
            await reading
            if self.problem is not None:
                raise StartError(
                    f"issuer '{self.issuer.issuer}': {self._place}: {self.problem}. Give it the "
                    "JSON Web Key Set of the issuer."
                )
        elif not reading.done():
            log.warning("the keys of %s take long: %s", self.issuer.issuer, self._place)
        self._looking = self._loop.create_task(self._look())

    def stop(self) -> None:
        for task in (self._looking, self._under_way):
            if task is not None:
                task.cancel()

    def refresh(self, then: Callable[[], None]) -> bool:
        now_s = time.monotonic()
        if self._under_way is None:
            if self._asked_s is not None and now_s - self._asked_s < ASKED_AGAIN_AFTER_S:
                return False
            self._ask()
        if len(self._then) >= WAITING_MAX:
            return False
        self._then.append(then)
        return True

    async def reload(self) -> None:
        """SIGHUP."""
        await self._ask()

    def _ask(self) -> asyncio.Task[None]:
        if self._under_way is None:
            self._asked_s = time.monotonic()
            self._under_way = self._loop.create_task(self._answered())
        return self._under_way

    async def _answered(self) -> None:
        try:
            self._take(parse_key_set(await self._data()))
        except KeySetError as error:
            self._failed(str(error))
        finally:
            self._under_way = None
            then, self._then = self._then, []
            for each in then:
                self._loop.call_soon(each)

    async def _data(self) -> bytes:
        """Read in a thread of its own, which nobody waits for when the server ends."""
        over: asyncio.Future[bytes] = self._loop.create_future()

        def done(data: bytes | None, problem: KeySetError | None) -> None:
            if over.done():
                return
            if problem is not None:
                over.set_exception(problem)
            else:
                over.set_result(data or b"")

        def read() -> None:
            data, problem = None, None
            try:
                data = self._read()
            except KeySetError as error:
                problem = error
            except Exception as error:  # or the one who waits would wait for ever
                problem = KeySetError(f"{type(error).__name__}: {error}")
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                self._loop.call_soon_threadsafe(done, data, problem)

        threading.Thread(target=read, name="issuer-keys", daemon=True).start()
        return await over

    def _read(self) -> bytes:
        if self.issuer.jwks_file is None:
            assert self.issuer.jwks_url is not None
            return fetch(self.issuer.jwks_url)
        try:
            return self.issuer.jwks_file.read_bytes()
        except FileNotFoundError:
            raise KeySetError("there is no such file") from None
        except OSError as error:
            raise KeySetError(f"cannot be read: {error.strerror}") from error

    def _take(self, found: KeySet) -> None:
        if self.problem is not None or found != self.keys:
            kids = ", ".join(str(key.kid) for key in found.keys)
            log.info("keys of the issuer %s: %s", self.issuer.issuer, kids)
        self.keys, self.problem, self._read_s = found, None, time.monotonic()
        self._told = None

    def _failed(self, problem: str) -> None:
        is_old = time.monotonic() - self._read_s > KEPT_WITHOUT_ANSWER_S
        if is_old or not self.keys.keys:
            self.keys, self.problem = KeySet(), problem
        if self._told != problem:
            self._told = problem
            log.warning(
                "the keys of the issuer %s cannot be read from %s: %s%s",
                self.issuer.issuer,
                self._place,
                problem,
                "" if not self.keys.keys else "; those from before are used for up to a day",
            )

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(self._pause_s())
            await self._ask()

    def _pause_s(self) -> float:
        if self.issuer.jwks_file is not None:
            return FILE_LOOKED_AT_S
        return FAILED_AGAIN_AFTER_S if self._told else self.issuer.refresh_ms / 1000
