"""The two faces of the SDK, so that each test is written once and run on both.

The asynchronous client is driven by an event loop in a thread of its own and shows the face of the
synchronous one: a coroutine is awaited, an asynchronous context or iterator becomes a plain one.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any

from azure.servicebus import AutoLockRenewer, ServiceBusClient
from azure.servicebus import aio as azure_aio
from azure.servicebus.aio.management import (
    ServiceBusAdministrationClient as AsyncAdministrationClient,
)
from azure.servicebus.management import ServiceBusAdministrationClient

ANSWER_S = 300.0
"""Longer than any single call of a test may take; the SDK's own limits are shorter."""

AWAITED = (AbstractAsyncContextManager, AsyncIterable, azure_aio.ServiceBusSession)


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(ANSWER_S)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class AsyncFace:
    """A client, sender, receiver, session, renewer or list of pages of `azure.servicebus.aio` with
    a synchronous face."""

    def __init__(self, subject: Any, loop: Loop) -> None:
        self._subject = subject
        self._loop = loop

    def __enter__(self) -> AsyncFace:
        self._loop.run(self._subject.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._loop.run(self._subject.__aexit__(kind, error, traceback))

    def __iter__(self) -> Iterator[Any]:
        iterator = self._subject.__aiter__()
        end = object()

        async def following() -> Any:
            try:
                return await iterator.__anext__()
            except StopAsyncIteration:
                return end

        while (each := self._loop.run(following())) is not end:
            yield each

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._subject, name)
        return self._wrap(value) if callable(value) else self._faced(value)

    def _faced(self, value: Any) -> Any:
        """What has methods to await gets a face, too."""
        return AsyncFace(value, self._loop) if isinstance(value, AWAITED) else value

    def _wrap(self, method: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*arguments: Any, **options: Any) -> Any:
            # The faces of this file are opened again: the SDK knows its own classes only.
            result = method(
                *map(_subject_of, arguments), **{k: _subject_of(v) for k, v in options.items()}
            )
            return await result if inspect.isawaitable(result) else result

        def face(*arguments: Any, **options: Any) -> Any:
            return self._faced(self._loop.run(call(*arguments, **options)))

        return face


def _subject_of(argument: Any) -> Any:
    return argument._subject if isinstance(argument, AsyncFace) else argument


class SyncSdk:
    """`azure.servicebus`."""

    def connect(self, connection_string: str, **options: Any) -> Any:
        return ServiceBusClient.from_connection_string(connection_string, **options)

    def administer(self, connection_string: str, **options: Any) -> Any:
        return ServiceBusAdministrationClient.from_connection_string(connection_string, **options)

    def lock_renewer(self, **options: Any) -> Any:
        return AutoLockRenewer(**options)

    def close(self) -> None:
        pass


class AsyncSdk:
    """`azure.servicebus.aio`."""

    def __init__(self) -> None:
        self._loop = Loop()

    def connect(self, connection_string: str, **options: Any) -> Any:
        async def make() -> Any:
            return azure_aio.ServiceBusClient.from_connection_string(connection_string, **options)

        return AsyncFace(self._loop.run(make()), self._loop)

    def administer(self, connection_string: str, **options: Any) -> Any:
        async def make() -> Any:
            return AsyncAdministrationClient.from_connection_string(connection_string, **options)

        return AsyncFace(self._loop.run(make()), self._loop)

    def lock_renewer(self, **options: Any) -> Any:
        async def make() -> Any:
            return azure_aio.AutoLockRenewer(**options)

        return AsyncFace(self._loop.run(make()), self._loop)

    def close(self) -> None:
        self._loop.close()


Sdk = SyncSdk | AsyncSdk

FACES: dict[str, Callable[[], Sdk]] = {"sync": SyncSdk, "async": AsyncSdk}
