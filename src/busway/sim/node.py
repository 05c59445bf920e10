"""One process of the product in a simulated world: a gateway in front of all brokers.

It lives and dies as a whole: a crash takes the gateway, every broker and every connection with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from busway.amqp.connection import Connection
from busway.amqp.events import Event
from busway.gateway.gateway import Gateway, GatewaySettings
from busway.gateway.router import Owner
from busway.model.entities import ROOT_RULE_NAME
from busway.sim.network import Wire
from busway.sim.world import MortalHost, World

ROOT_KEY = "the-root-key"
CREDENTIALS = (ROOT_RULE_NAME, ROOT_KEY)
HOSTNAME = "bus.example.net"
TICK_MS = 1_000


@dataclass(frozen=True)
class SimulatedPeer:
    connection_id: str
    address: str = "simulated"
    loopback: bool = True


class Node:
    def __init__(self, world: World) -> None:
        self._world = world
        self._owners: dict[str, Owner] = {}
        self._wires: list[Wire] = []
        self._connections = 0
        world.catalog.set_root_key(ROOT_KEY)
        self._begin_life()

    def _begin_life(self) -> None:
        world = self._world
        self.running = True
        self._host = MortalHost(world.scheduler)
        self._owners = {store_id: store.broker for store_id, store in world.stores.items()}
        settings = GatewaySettings(slice_messages=world.slice_copies)
        self.gateway = Gateway(self._host, world.catalog, self._owners, settings)
        self._tick()

    def _tick(self) -> None:
        self._wires = [wire for wire in self._wires if not wire.is_cut]
        for wire in list(self._wires):
            wire.tick(self._world.now_ms())
        self._host.at(self._world.now_ms() + TICK_MS, self._tick)

    def connect(
        self,
        client: Connection,
        on_events: Callable[[list[Event]], None],
        on_lost: Callable[[], None],
    ) -> Wire:
        assert self.running
        self._connections += 1
        wire = Wire(self._world.scheduler, client, on_events, on_lost)
        peer = SimulatedPeer(f"c{self._connections}")
        wire.join(self.gateway.connect(peer, wire.server_has_output))
        self._wires.append(wire)
        return wire

    def crash(self, *, finish_commit: bool) -> None:
        self.running = False
        self._host.alive = False
        self.gateway.connections.clear()  # its memory is gone: nobody is told of entities any more
        for store in self._world.stores.values():
            if store.running:
                store.crash(finish_commit=finish_commit)
        wires, self._wires = self._wires, []
        for wire in wires:
            wire.cut(server_is_dead=True)

    def restart(self) -> None:
        for store in self._world.stores.values():
            if not store.running:
                store.restart()
        self._begin_life()

    def cut_some_connection(self) -> None:
        wires = [wire for wire in self._wires if not wire.is_cut]
        if wires:
            self._world.random.choice(wires).cut()
