"""What a node gives to HTTP: the seams that `runtime/` fills."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from busway.broker.broker import Broker
from busway.broker.seams import Host, StorePort
from busway.gateway.gateway import Gateway
from busway.store.faults import FaultyStore


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    host: Host
    gateway_of: Callable[[str], Gateway]
    """The namespace that a host name means; the default one for names that nobody has claimed."""
    gateways: Callable[[], Sequence[Gateway]]
    stores: Callable[[], Sequence[Store]]
    amqp: Callable[[], asyncio.Protocol]
    """What takes the bytes of a WebSocket, as it takes those of a socket that speaks AMQP."""
    allow_faults: bool = False
    """Whether clients with the right to manage may make stores ill (`--allow-faults`)."""
    metrics_open: bool = False
    """Whether `/metrics` is for everybody (`--metrics open`)."""
    metrics_entities: int = 1_000
    """How many entities of a namespace have series of their own there."""
