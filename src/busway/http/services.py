"""What a node gives to HTTP: the seams that `runtime/` fills."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from busway.broker.broker import Broker
from busway.broker.journal_reader import PartitionHead
from busway.broker.seams import Host, StorePort
from busway.gateway.gateway import Gateway
from busway.model.entities import Entity
from busway.model.journal import JournalLimits
from busway.model.strangers import StrangerShare
from busway.store.faults import FaultyStore
from busway.store.journal import JournalHold

if TYPE_CHECKING:
    from busway.gateway.bearer.dev_issuer import DevIssuer


class Store(Protocol):
    """A messaging store of this node, with what is around it."""

    @property
    def name(self) -> str: ...
    @property
    def store_id(self) -> str | None: ...
    @property
    def problem(self) -> str | None: ...
    @property
    def broker(self) -> Broker: ...
    @property
    def thread(self) -> StorePort: ...
    @property
    def faults(self) -> FaultyStore: ...


class ClockReading(Protocol):
    @property
    def now_ms(self) -> int: ...
    @property
    def ahead_ms(self) -> int: ...


class Clock(Protocol):
    """A clock that can be moved; `reset` empties the server and sets it right."""

    def reading(self) -> ClockReading: ...

    async def advance(self, by_ms: int) -> ClockReading: ...

    async def reset(self) -> ClockReading: ...


class Journals(Protocol):
    """Journals, read off the loop. Raises `JournalError` and `StoreUnavailable`."""

    @property
    def damaged_rows(self) -> int:
        """Rows that readers asked for and that are damaged, since the start."""

    async def heads(self, entity: Entity) -> list[PartitionHead]: ...

    async def at(self, entity: Entity, time_ms: int) -> dict[int, int]: ...

    async def holds(self, entity: Entity) -> dict[str, list[tuple[int, JournalHold]]]: ...

    async def plan(
        self,
        entity: Entity,
        start: Mapping[int, int],
        *,
        rows: int | None = None,
        size: int | None = None,
        epoch: str | None = None,
    ) -> dict[int, int]: ...

    def stream(
        self,
        entity: Entity,
        partition: int,
        first: int,
        stop: int,
        columns: list[str] | None = None,
        *,
        epoch: str | None = None,
    ) -> AsyncGenerator[bytes]:
        """An Arrow IPC stream, in chunks that are written at once."""


class KeptReport(NamedTuple):
    page: bytes
    kept_ms: int
    """When it came, by the machine's clock."""


class Reports(Protocol):
    """The latest report of each namespace."""

    async def keep(self, namespace: str, page: bytes) -> None: ...

    async def latest(self, namespace: str) -> KeptReport | None: ...


class AmqpWire(Protocol):
    """An `asyncio.Protocol` that takes the bytes of AMQP, and knows whether they have shown a valid
    token or password."""

    @property
    def is_known(self) -> bool: ...
    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...
    def data_received(self, data: bytes) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    host: Host
    gateway_of: Callable[[str], Gateway]
    """The namespace that a host means, with or without its port; the default one for names that
    nobody has claimed."""
    gateways: Callable[[], Sequence[Gateway]]
    stores: Callable[[], Sequence[Store]]
    journals: Journals
    reports: Reports
    journal_limits: JournalLimits = field(default_factory=JournalLimits)
    """How much of journals is kept where an entity does not say so itself."""
    stranger_share: StrangerShare = field(default_factory=StrangerShare)
    """What connections without a valid token may have."""
    amqp: Callable[[], AmqpWire]
    """What takes the bytes of a WebSocket, as it takes those of a socket that speaks AMQP."""
    dev_issuer: DevIssuer | None = None
    """Makes tokens for development (`--dev-tokens`); None: there are none."""
    identity_header: str | None = field(default=None, repr=False)
    """The secret without which nobody gets one."""
    allow_faults: bool = False
    """Whether clients with the right to manage may make stores ill (`--allow-faults`)."""
    clock: Clock | None = None
    """For servers whose clock clients with the right to manage may move (`--allow-clock`)."""
    metrics_open: bool = False
    """Whether `/metrics` is for everybody (`--metrics open`)."""
    metrics_entities: int = 1_000
    """How many entities of a namespace have series of their own there."""
