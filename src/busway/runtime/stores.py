"""The stores of a node: each with its thread, its broker, and the faults it can be told to show.

This file owns how stores are found at start (D-14): which files there must be, which may be made,
and what becomes of one that is missing or not the one that the catalog expects. Such a store is
*ill*: its broker keeps trying, and serves once the right store is back.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from dataclasses import dataclass, field
from functools import partial

from busway.broker.broker import Broker
from busway.broker.seams import Exchange
from busway.cluster.catalog import Catalog, Change
from busway.model.errors import BusError
from busway.runtime.data_folder import DataFolder
from busway.runtime.host import Host
from busway.runtime.store_thread import StoreThread
from busway.store.base import MessagingStore, Opened, StoreError, StoreUnavailable
from busway.store.faults import FaultyStore

log = logging.getLogger(__name__)


@dataclass(slots=True)
class NodeStore:
    """One store of this node and everything that is around it."""

    position: int
    faults: FaultyStore
    """Told to be slow, ill or gone, the store is: for tests, and to try out what then happens."""
    thread: StoreThread
    broker: Broker
    identity: ExpectedStore
    serving: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it serves for the first time."""
    problem: str | None = None
    """Why it could not be used at start."""

    @property
    def name(self) -> str:
        return f"store-{self.position}"

    @property
    def store_id(self) -> str | None:
        """The id that the catalog knows; None for a new store that could not be made."""
        return self.identity.expected_id


class ExpectedStore:
    """A store that opens only if it is the one that the catalog expects (D-14)."""

    def __init__(self, inner: MessagingStore) -> None:
        self._inner = inner
        self.expected_id: str | None = None
        self.commit = inner.commit
        self.read_page = inner.read_page
        self.read_numbers = inner.read_numbers
        self.read_expiring = inner.read_expiring
        self.read_session_state = inner.read_session_state
        self.read_duplicates = inner.read_duplicates
        self.find_duplicates = inner.find_duplicates
        self.free_bytes = inner.free_bytes
        self.close = inner.close

    def open(self) -> Opened:
        opened = self._inner.open()
        if self.expected_id is not None and opened.store_id != self.expected_id:
            self._inner.close()
            raise StoreUnavailable(f"it is store {opened.store_id}, not {self.expected_id}")
        return opened


async def open_stores(
    wanted: int, folder: DataFolder | None, catalog: Catalog, host: Host, exchange: Exchange
) -> list[NodeStore]:
    """The stores of this node, registered in the catalog, with their brokers started.

    A folder that has more stores than `wanted` keeps them. In memory if there is no folder.
    """
    count = wanted
    while catalog.expected_store(count) is not None:
        count += 1
    stores = [_around(position, folder, catalog, host, exchange) for position in range(count)]
    found = await asyncio.gather(*(_id_of(store) for store in stores))
    for store, standing in zip(stores, catalog.register_stores(found), strict=True):
        store.identity.expected_id = standing.store_id
        if standing.problem is not None:
            store.problem = store.problem or standing.problem
            log.error("%s", standing.problem, extra={"store": store.name})
        if standing.store_id is not None:
            _start(store, catalog)
    return stores


async def until_serving(stores: list[NodeStore], wait_s: float) -> None:
    """Wait for the stores that are well; an ill one joins when it can."""
    well = [store for store in stores if store.problem is None]
    if well:
        tasks = [asyncio.create_task(store.serving.wait()) for store in well]
        _, late = await asyncio.wait(tasks, timeout=wait_s)
        for task in late:
            task.cancel()


def _around(
    position: int, folder: DataFolder | None, catalog: Catalog, host: Host, exchange: Exchange
) -> NodeStore:
    identity = ExpectedStore(_store(position, folder, catalog))
    faults = FaultyStore(identity, pause=time.sleep)
    thread = StoreThread(
        faults, host.loop, f"store-{position}", lambda opened: host.not_before(opened.time_ms)
    )
    broker = Broker(thread, host, catalog, exchange)
    return NodeStore(position, faults, thread, broker, identity)


def _store(position: int, folder: DataFolder | None, catalog: Catalog) -> MessagingStore:
    if folder is None:
        from busway.store.memory import MemoryDisk, MemoryStore

        return MemoryStore(MemoryDisk(str(uuid.uuid4())))
    from busway.store.sqlite import SqliteStore

    is_new = catalog.expected_store(position) is None
    return SqliteStore(folder.store(position), create=is_new)


async def _id_of(store: NodeStore) -> str | None:
    """Open it once to learn who it is; None if it cannot be opened."""
    opened: asyncio.Future[Opened | StoreError] = asyncio.get_running_loop().create_future()
    store.thread.call(lambda it: it.open(), opened.set_result)
    outcome = await opened
    if isinstance(outcome, StoreError):
        store.problem = str(outcome)
        return None
    return outcome.store_id


def _start(store: NodeStore, catalog: Catalog) -> None:
    def changed() -> None:
        state = "serving" if store.broker.available else "not available"
        log.info("store is %s", state, extra={"store": store.name})
        if store.broker.available:
            store.serving.set()
            _purge(store, catalog)

    def entity_changed(change: Change) -> None:
        if change.after is None:
            _purge(store, catalog)
        elif change.before is not None:
            store.broker.entity_changed(change.after.incarnation)

    store.broker.on_availability = changed
    catalog.listen(entity_changed)
    store.broker.start()


def _purge(store: NodeStore, catalog: Catalog) -> None:
    """Let the store forget what belongs to deleted entities (D-16); what fails now, later does."""
    for tombstone in catalog.tombstones():
        if store.store_id not in tombstone.stores:
            continue
        done = partial(catalog.purged, tombstone.incarnation, store.store_id)
        try:
            store.broker.purge(tombstone.incarnation, done)
        except BusError as error:
            log.info("purging waits: %s", error, extra={"store": store.name})
