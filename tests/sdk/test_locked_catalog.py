"""Another process has locked the catalog's file: messages pass, and management says so (P-42)."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from busway.testing import Server
from tests.http.atom_client import Management, description

HOLDS_THE_LOCK = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
"""
CHANGES = 20
WAITED_S = 5.0
"""What SQLite waits for a lock unless it is told otherwise."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server("orders", data=tmp_path / "data") as running:
        yield running


@contextmanager
def locked(file: Path) -> Iterator[None]:
    command = [sys.executable, "-c", HOLDS_THE_LOCK, str(file)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as other:  # type: ignore[call-overload]
        assert other.stdout.readline() == "locked\n"
        yield
        other.stdin.close()


def test_sends_are_acknowledged_and_changes_are_refused_at_once(
    server: Server, tmp_path: Path
) -> None:
    management = Management(server)
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_sender("orders") as sender,
        client.get_queue_receiver("orders") as receiver,
    ):
        with locked(tmp_path / "data" / "catalog.db"):
            began_s = time.monotonic()
            for number in range(CHANGES):
                reply = management.put(f"/new-{number}", description("Queue"))
                assert reply.status == 503, reply.body
                sender.send_messages(ServiceBusMessage(f"message {number}"))
            took_s = time.monotonic() - began_s
            assert management.get("/new-0").status == 404
            assert management.get("/orders").status == 200
        # If each had waited for the lock, and all sends behind it, this were not enough by far.
        assert took_s < CHANGES * WAITED_S / 2
        texts: list[str] = []
        while len(texts) < CHANGES:
            for message in receiver.receive_messages(CHANGES, max_wait_time=5):
                texts.append(str(message))
                receiver.complete_message(message)
        assert texts == [f"message {number}" for number in range(CHANGES)]
        assert management.put("/new-0", description("Queue")).status == 201
    management.close()
    assert "nothing was changed in the catalog" in server.log
