"""A clock that was wrong: what a broker does with the times that it has stored (D-25)."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from busway.testing import Server
from tests.http.asking import ask, manager
from tests.runtime.test_serve import refused

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def clock_ms() -> int:
    return time.time_ns() // 1_000_000


def write_time(data: Path, ahead_ms: int, position: int = 0) -> None:
    """As if the store had been written with a clock that was so far ahead."""
    database = sqlite3.connect(data / f"store-{position}.db", isolation_level=None)
    database.execute("UPDATE store SET time_ms = ?", (clock_ms() + ahead_ms,))
    database.close()


def stored_ms(data: Path, position: int = 0) -> int:
    database = sqlite3.connect(data / f"store-{position}.db")
    [(time_ms,)] = database.execute("SELECT time_ms FROM store").fetchall()
    database.close()
    return int(time_ms)


def exchange(server: Server) -> None:
    with ServiceBusClient.from_connection_string(server.connection_string) as client:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("x"))
        with client.get_queue_receiver("orders", max_wait_time=60) as receiver:
            receiver.complete_message(next(receiver))


def test_tokens_open_a_broker_whose_stores_are_ahead_of_the_clock(tmp_path: Path) -> None:
    """The SDKs' tokens are good for an hour: broker time is past that, the clock is not."""
    with Server("orders", data=tmp_path) as server:
        server.stop()
        write_time(tmp_path, 3 * HOUR_MS)
        server.start()
        exchange(server)
        assert ask(server, "GET", "/$busway/map", token=manager(server)).status == 200


@pytest.mark.parametrize(
    ("ahead_ms", "told"), [(365 * DAY_MS, "365 days"), (9 * HOUR_MS, "9 hours")]
)
def test_a_stored_time_far_ahead_of_the_clock_is_refused_at_start(
    tmp_path: Path, ahead_ms: int, told: str
) -> None:
    with Server("orders", data=tmp_path) as server:
        server.stop()
        write_time(tmp_path, ahead_ms, position=1)
        before_ms = stored_ms(tmp_path, 1)
        said = refused(server.command)
        assert "store-1: it was last written at " in said
        assert f"{told} ahead of this machine's clock" in said
        assert "--accept-clock" in said
        assert stored_ms(tmp_path, 1) == before_ms


def test_accepting_the_clock_sets_the_stores_back_once(tmp_path: Path) -> None:
    with Server("orders", data=tmp_path) as server:
        exchange(server)
    write_time(tmp_path, 365 * DAY_MS)
    with Server("orders", data=tmp_path, arguments=["--accept-clock"]) as server:
        exchange(server)
        with ServiceBusClient.from_connection_string(server.connection_string) as client:
            client.get_queue_sender("orders").send_messages(ServiceBusMessage("kept"))
            [message] = client.get_queue_receiver("orders").receive_messages(max_wait_time=60)
            assert message.enqueued_time_utc is not None
            assert abs(message.enqueued_time_utc.timestamp() - time.time()) < 600
        assert "store-0.db was ahead of the clock and has been set back to it" in server.log
    assert stored_ms(tmp_path) <= clock_ms()
    with Server("orders", data=tmp_path) as server:
        exchange(server)


def test_accepting_a_clock_that_is_right_changes_nothing(tmp_path: Path) -> None:
    with Server("orders", data=tmp_path) as server:
        exchange(server)
    with Server("orders", data=tmp_path, arguments=["--accept-clock"]) as server:
        exchange(server)
        assert "set back" not in server.log
