"""LIM-9 with the real gateway: one too many hears why, and nobody else notices."""

from __future__ import annotations

import asyncio

from busway.cluster.catalog import Catalog
from busway.gateway.gateway import Gateway, GatewaySettings
from busway.model.entities import ROOT_RULE_NAME
from busway.runtime.host import Host
from busway.runtime.listener import Listener
from tests.runtime.wire import RawClient


async def test_one_too_many_is_told_why() -> None:
    host = Host(asyncio.get_running_loop())
    catalog = Catalog.open(None)
    catalog.set_root_key("a key")
    gateway = Gateway(host, catalog, {}, GatewaySettings(connections_max=1))
    listener = Listener(host, gateway.connect, over_budget=gateway.over_budget)
    port = await listener.open("127.0.0.1", 0)

    def two_clients() -> str:
        password = (ROOT_RULE_NAME, "a key")
        first_client = RawClient(port, credentials=password).open()
        with first_client as first, RawClient(port, credentials=password) as second:
            second.engine.open()
            closed = second.until_closed()
            assert closed.error is not None
            first.engine.begin()
            first.write()
            assert first.socket.recv(1024), "the first one was cut off"
            return closed.error.condition

    assert await asyncio.to_thread(two_clients) == "amqp:resource-limit-exceeded"
    await listener.close("amqp:connection:forced", "the test is over", wait_s=0)
