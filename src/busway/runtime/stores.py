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
from pathlib import Path

from busway.broker.broker import Broker
from busway.broker.seams import Exchange
from busway.cluster.catalog import Change
from busway.cluster.catalogs import Catalogs
from busway.model.errors import BusError
from busway.model.journal import JournalLimits
from busway.runtime.data_folder import DataFolder
from busway.runtime.host import Host
from busway.runtime.journal_readers import Source
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
    purging: set[int] = field(default_factory=set)
    """Deleted entities that it is forgetting."""
    path: Path | None = None
    """Its file; None for a store in memory."""

    @property
    def name(self) -> str:
        return f"store-{self.position}"

    @property
    def journals(self) -> Source:
        """Where its journals are read."""
        return self.path if self.path is not None else self.faults.journal_handle()

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
        self.read_journal_sizes = inner.read_journal_sizes
        self.journal_handle = inner.journal_handle
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
    wanted: int,
    folder: DataFolder | None,
    catalogs: Catalogs,
    host: Host,
    exchange: Exchange,
    journal_limits: JournalLimits | None = None,
) -> list[NodeStore]:
    """The stores of this node, registered in the catalog, with their brokers started.

    A folder that has more stores than `wanted` keeps them. In memory if there is no folder.
    """
    count = wanted
    while catalogs.stores.expected(count) is not None:
        count += 1
    stores = [_around(position, folder, catalogs, host, exchange) for position in range(count)]
    if journal_limits is not None:
        for store in stores:
            store.broker.journal_limits = journal_limits
    found = await asyncio.gather(*(_id_of(store) for store in stores))
    for store, standing in zip(stores, catalogs.stores.register(found), strict=True):
        store.identity.expected_id = standing.store_id
        if standing.problem is not None:
            store.problem = store.problem or standing.problem
            log.error("%s", standing.problem, extra={"store": store.name})
        if standing.store_id is not None:
            _start(store, catalogs)
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
    position: int, folder: DataFolder | None, catalogs: Catalogs, host: Host, exchange: Exchange
) -> NodeStore:
    identity = ExpectedStore(_store(position, folder, catalogs))
    faults = FaultyStore(identity, pause=time.sleep)
    thread = StoreThread(
        faults, host.loop, f"store-{position}", lambda opened: host.not_before(opened.time_ms)
    )
    broker = Broker(thread, host, catalogs, exchange)
    path = None if folder is None else folder.store(position)
    return NodeStore(position, faults, thread, broker, identity, path=path)


def _store(position: int, folder: DataFolder | None, catalogs: Catalogs) -> MessagingStore:
    if folder is None:
        from busway.store.memory import MemoryDisk, MemoryStore

        return MemoryStore(MemoryDisk(str(uuid.uuid4())))
    from busway.store.sqlite import SqliteStore

    is_new = catalogs.stores.expected(position) is None
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


def _start(store: NodeStore, catalogs: Catalogs) -> None:
    def changed() -> None:
        available = store.broker.available
        state = "serving" if available else "not available"
        log.info("store is %s", state, extra={"store": store.name})
        if store.store_id is not None:
            catalogs.stores.note(store.store_id, available=available)
        if available:
            store.serving.set()
            for tombstone in catalogs.tombstones():
                if store.store_id in tombstone.stores:
                    _purge(store, catalogs, tombstone.incarnation)

    def entity_changed(change: Change) -> None:
        before, after = change.before, change.after
        if after is not None:
            store.broker.entity_changed(after)
        elif before is not None and store.store_id in before.placement:
            _purge(store, catalogs, before.incarnation)

    store.broker.on_availability = changed
    catalogs.listen(entity_changed)
    store.broker.start()


def _purge(store: NodeStore, catalogs: Catalogs, incarnation: int) -> None:
    """Let the store forget a deleted entity (D-16). One that is not available is told of all its
    tombstones when it is back (P-42)."""
    if not store.broker.available or incarnation in store.purging:
        return

    def done() -> None:
        store.purging.discard(incarnation)
        try:
            catalogs.purged(incarnation, store.store_id)
        except BusError as error:
            # The tombstone stays, and the store is asked again when it is opened the next time.
            log.warning("a tombstone is kept: %s", error, extra={"store": store.name})

    store.purging.add(incarnation)
    store.broker.purge(incarnation, done)
