"""A node: one process with a gateway, and the brokers of the stores that it holds.

This file owns the order of starting and stopping. Nothing is accepted before every store that can
be opened serves; on the way down, what was taken is committed and answered before anybody is sent
away.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
from collections.abc import Awaitable
from functools import partial
from uuid import UUID

from busway.cluster import declared
from busway.cluster.catalog import Catalog, CatalogError
from busway.cluster.root_key import KEY_BYTES
from busway.config import ConfigError, Configuration
from busway.gateway.exchange import Exchange
from busway.gateway.gateway import Gateway
from busway.gateway.router import Owner
from busway.model.entities import ROOT_RULE_NAME
from busway.model.errors import BusError
from busway.model.limits import CONNECTIONS_PER_NAMESPACE_MAX
from busway.runtime.data_folder import DataFolder, StartError
from busway.runtime.host import Host
from busway.runtime.journal_readers import JournalReaders
from busway.runtime.listener import Listener, ListenerLimits
from busway.runtime.stores import NodeStore, open_stores, until_serving

log = logging.getLogger(__name__)

FIRST_SERVING_S = 5.0
"""How long the start waits for stores; one that takes longer is ill and joins later."""
LAST_COMMITS_S = 10.0
GOODBYE_S = 2.0

EVERYWHERE = ("0.0.0.0", "::", "127.0.0.1", "::1")
"""Addresses under which this machine is best called `localhost` in a connection string."""


class Node:
    """`start`, then serve until `stop`. Both may be called once."""

    def __init__(self, configuration: Configuration) -> None:
        self.settings = configuration.settings
        self.stores: list[NodeStore] = []
        self.port = 0
        self._declared = configuration.entities
        self._journal_limits = configuration.journal
        self._folder: DataFolder | None = None
        self._catalog: Catalog | None = None
        self._listener: Listener | None = None
        self.journals: JournalReaders | None = None
        """How the journals of its stores are read, once it has started."""
        self._key = ""

    @property
    def connection_string(self) -> str:
        """For the Azure SDKs; plain TCP, as with Microsoft's emulator."""
        host = "localhost" if self.settings.host in EVERYWHERE else self.settings.host
        return (
            f"Endpoint=sb://{host}:{self.port};SharedAccessKeyName={ROOT_RULE_NAME};"
            f"SharedAccessKey={self._key};UseDevelopmentEmulator=true;"
        )

    # --- up ----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Raises `StartError` if it cannot."""
        settings = self.settings
        if not settings.memory:
            self._folder = DataFolder(settings.data)
            self._folder.take()
        self._key = settings.key or self._own_key()
        host = Host(asyncio.get_running_loop())
        try:
            catalog = Catalog.open(
                None if self._folder is None else self._folder.catalog,
                new_id=lambda: UUID(bytes=host.random_bytes(16)),
            )
            self._catalog = catalog
            catalog.set_root_key(self._key)
            # Filled as stores are found; what is on its way to one that is not there yet waits.
            owners: dict[str, Owner] = {}
            exchange = Exchange(host, catalog, owners)
            self.stores = await open_stores(
                settings.stores, self._folder, catalog, host, exchange, self._journal_limits
            )
        except (CatalogError, BusError) as error:
            raise StartError(str(error)) from error
        await until_serving(self.stores, FIRST_SERVING_S)
        if not any(store.broker.available for store in self.stores):
            problem = next((store.problem for store in self.stores if store.problem), "too slow")
            raise StartError(f"No messaging store can be opened: {problem}")
        try:
            declared.apply(self._declared, catalog, host.now_ms())
        except ConfigError as error:
            raise StartError(str(error)) from error
        owners |= {store.store_id: store.broker for store in self.stores if store.store_id}
        self.journals = JournalReaders(
            {store.store_id: store.journals for store in self.stores if store.store_id}
        )
        gateway = Gateway(host, catalog, owners)
        limits = ListenerLimits(sockets_max=CONNECTIONS_PER_NAMESPACE_MAX + 100)
        self._listener = Listener(
            host, gateway.connect, limits=limits, over_budget=gateway.over_budget
        )
        try:
            self.port = await self._listener.open(settings.host, settings.port)
        except (OSError, OverflowError) as error:
            raise StartError(
                f"Port {settings.port} of {settings.host} cannot be listened on: "
                f"{reason_of(error)}. Choose another one with --port; 0 takes any that is free."
            ) from error

    def _own_key(self) -> str:
        if self._folder is not None:
            return self._folder.root_key()
        return base64.b64encode(os.urandom(KEY_BYTES)).decode()

    # --- down --------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Commit and answer what was taken, say goodbye, close the stores."""
        listener = self._listener
        if listener is not None:
            listener.stop_accepting()
            listener.stop_reading()
        await self._stop_brokers()
        if self.journals is not None:
            await self.journals.close()
        if listener is not None:
            await listener.close(
                "amqp:connection:forced", "The broker is being stopped.", wait_s=GOODBYE_S
            )
        await asyncio.gather(*(within(store.thread.stop(), store.name) for store in self.stores))
        if self._catalog is not None:
            self._catalog.close()
        if self._folder is not None:
            self._folder.release()

    async def _stop_brokers(self) -> None:
        loop = asyncio.get_running_loop()
        stopping = []
        for store in self.stores:
            if store.store_id is not None:
                stopped: asyncio.Future[None] = loop.create_future()
                store.broker.stop(partial(stopped.set_result, None))
                stopping.append(within(stopped, store.name))
        await asyncio.gather(*stopping)


async def within(stopping: Awaitable[None], name: str) -> None:
    """A store that hangs must not keep the node from ending."""
    try:
        await asyncio.wait_for(stopping, LAST_COMMITS_S)
    except TimeoutError:
        log.error("ending without %s, which does not answer", name)


def reason_of(error: Exception) -> str:
    """A system error in words; asyncio wraps them in texts of its own."""
    number = getattr(error, "errno", None)
    return os.strerror(number) if number else str(error)
