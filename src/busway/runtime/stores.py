"""The stores of a node: each with its thread, its broker, and the faults it can be told to show.

This file owns how stores are found at start (D-14): which files there must be, which may be made,
and what becomes of one that is missing or not the one that the catalog expects. Such a store is
*ill*: its broker keeps trying, and serves once the right store is back. A store whose time is far
ahead of the clock is not opened at all: broker time would follow it, and never come back (D-25).
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from busway.broker.broker import Broker
from busway.broker.seams import Exchange
from busway.cluster.catalog import CatalogError, Change
from busway.cluster.catalogs import Catalogs
from busway.cluster.strangers import refusal, strangers_in
from busway.model.durations import DAY_MS, HOUR_MS
from busway.model.errors import BusError
from busway.model.journal import JournalLimits
from busway.runtime.data_folder import DataFolder, StartError
from busway.runtime.disk_reserve import DiskReserve
from busway.runtime.host import Host
from busway.runtime.journal_readers import Source
from busway.runtime.store_thread import StoreThread
from busway.store.ailments import Ailment
from busway.store.base import (
    MessagingStore,
    Opened,
    StoreError,
    StoreUnavailable,
    SubQueueRecord,
)
from busway.store.faults import FaultyStore

log = logging.getLogger(__name__)

AHEAD_MAX_MS = 4 * HOUR_MS
"""How far the time of a store may be ahead of the clock. A clock that was a little fast, or that
was set right by hand, is followed in silence; a wrong date is not."""


class StoreAhead(StoreUnavailable):
    """The store was last written at a time that the machine's clock will not reach for hours."""


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
    ahead: bool = False
    """That is because its time is far ahead of the clock."""
    purging: set[int] = field(default_factory=set)
    """Deleted entities that it is forgetting."""
    path: Path | None = None
    """Its file; None for a store in memory."""
    held: Sequence[SubQueueRecord] = ()
    """What it held when it was opened to learn who it is."""

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

    def __init__(self, inner: MessagingStore, host: Host) -> None:
        self._inner = inner
        self._host = host
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
        self.recount = inner.recount
        self.free_bytes = inner.free_bytes
        self.close = inner.close

    def set_back(self, path: Path | None, latest_ms: int) -> None:
        """In its thread: let it have committed nothing after that (`clock_control.py`)."""
        if path is None:
            from busway.store.memory import MemoryStore

            assert isinstance(self._inner, MemoryStore)
            self._inner.disk.time_ms = min(self._inner.disk.time_ms, latest_ms)
        else:
            from busway.store.sqlite_time import set_back_open

            set_back_open(path, latest_ms)

    def open(self) -> Opened:
        opened = self._inner.open()
        if self.expected_id is not None and opened.store_id != self.expected_id:
            self._inner.close()
            raise StoreUnavailable(
                f"it is store {opened.store_id}, not {self.expected_id}", Ailment.FOREIGN
            )
        # In a node that has served for long, broker time is what counts: the clock may have been
        # set back meanwhile, and this store may be one of those that were written since.
        ahead_ms = opened.time_ms - max(self._host.clock_ms(), self._host.now_ms())
        if ahead_ms > AHEAD_MAX_MS:
            self._inner.close()
            raise StoreAhead(
                f"it was last written at {_date(opened.time_ms)}, which is "
                f"{in_words(ahead_ms)} ahead of this machine's clock"
            )
        return opened


def _date(time_ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(time_ms / 1000))


def in_words(duration_ms: int) -> str:
    """Days where there are some, else hours."""
    hours = round(duration_ms / HOUR_MS)
    return f"{hours} hours" if hours < 48 else f"{round(duration_ms / DAY_MS)} days"


async def open_stores(
    wanted: int,
    folder: DataFolder | None,
    catalogs: Catalogs,
    host: Host,
    exchange: Exchange,
    journal_limits: JournalLimits | None = None,
    *,
    accept_clock: bool = False,
) -> list[NodeStore]:
    """The stores of this node, registered in the catalog, with their brokers started.

    A folder that has more stores than `wanted` keeps them. In memory if there is no folder. With
    `accept_clock`, stores that are ahead of the clock are set back to it. Raises `StartError`.
    """
    count = wanted
    while catalogs.stores.expected(count) is not None:
        count += 1
    if accept_clock and folder is not None:
        _set_back([folder.store(position) for position in range(count)], host.clock_ms())
    stores = [_around(position, folder, catalogs, host, exchange) for position in range(count)]
    if journal_limits is not None:
        for store in stores:
            store.broker.journal_limits = journal_limits
    found = await asyncio.gather(*(_id_of(store) for store in stores))
    _refuse_wrong_clock(stores)
    _refuse_strangers(stores, folder, catalogs)
    for store, standing in zip(stores, catalogs.stores.register(found), strict=True):
        store.identity.expected_id = standing.store_id
        if standing.problem is not None:
            store.problem = store.problem or standing.problem
            log.error("%s", standing.problem, extra={"store": store.name})
        if standing.store_id is not None:
            _start(store, catalogs)
    return stores


def _refuse_strangers(
    stores: list[NodeStore], folder: DataFolder | None, catalogs: Catalogs
) -> None:
    strangers = strangers_in({each.name: each.held for each in stores}, catalogs.incarnations())
    if strangers:
        raise StartError(refusal(strangers, None if folder is None else folder.catalog))


def _refuse_wrong_clock(stores: list[NodeStore]) -> None:
    ahead = [f"{each.name}: {each.problem}" for each in stores if each.ahead]
    if ahead:
        raise StartError(
            f"The clock cannot be right, or was wrong before. {'; '.join(ahead)}. If the clock is "
            "wrong, set it. If it is right, start once with --accept-clock: the stores are set "
            "back to it, and messages that came while it was wrong expire that much later."
        )


def _set_back(paths: list[Path], clock_ms: int) -> None:
    from busway.store.sqlite_time import set_back

    for path in paths:
        try:
            if path.exists() and set_back(path, clock_ms):
                log.warning("%s was ahead of the clock and has been set back to it", path)
        except StoreUnavailable as error:
            raise StartError(f"--accept-clock: {error}") from error


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
    identity = ExpectedStore(_store(position, folder, catalogs), host)
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
    return SqliteStore(folder.store(position), create=is_new, room=DiskReserve(folder.path))


async def _id_of(store: NodeStore) -> str | None:
    """Open it once to learn who it is; None if it cannot be opened."""
    opened: asyncio.Future[Opened | StoreError] = asyncio.get_running_loop().create_future()
    store.thread.call(lambda it: it.open(), opened.set_result)
    outcome = await opened
    if isinstance(outcome, StoreError):
        store.problem = str(outcome)
        store.ahead = isinstance(outcome, StoreAhead)
        return None
    store.held = outcome.sub_queues
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
            _purge_deleted(store, catalogs)

    def entity_changed(change: Change) -> None:
        before, after = change.before, change.after
        if after is not None:
            store.broker.entity_changed(after)
        elif before is not None and store.store_id in before.placement:
            _purge(store, catalogs, before.incarnation)

    store.broker.on_availability = changed
    catalogs.listen(entity_changed)
    store.broker.start()


def _purge_deleted(store: NodeStore, catalogs: Catalogs) -> None:
    try:
        tombstones = catalogs.tombstones()
    except CatalogError as error:
        # It was sound when the node started. Nothing is purged: it might be the wrong entity.
        log.error("deleted entities are not purged: %s", error, extra={"store": store.name})
        return
    for tombstone in tombstones:
        if store.store_id in tombstone.stores:
            _purge(store, catalogs, tombstone.incarnation)


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
