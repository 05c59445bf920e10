"""A disk that runs full: sends are refused in time, and the broker can still be drained (D-9)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusServerBusyError

from busway.testing import Server
from tests.chaos.traffic import ENDED_S, connect, wait_until

QUEUE = "orders"
RESERVE_MB = 256
ROOM_MB = 16


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with little more than the reserve."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    options = f"size={RESERVE_MB + ROOM_MB}m"
    mount = ["mount", "-t", "tmpfs", "-o", options, "busway-test", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting is not allowed here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def is_taken(sender: Any, body: bytes) -> bool:
    """Whether a send was taken; otherwise the broker was too busy for it."""
    try:
        sender.send_messages(ServiceBusMessage(body))
    except ServiceBusServerBusyError:
        return False
    return True


def test_a_full_broker_refuses_sends_and_is_drained(small_disk: Path) -> None:
    body = b"x" * 200_000
    with (
        Server(QUEUE, data=small_disk / "data") as server,
        connect(server.connection_string) as client,
        client.get_queue_sender(QUEUE) as sender,
    ):
        accepted = 0
        while accepted < ROOM_MB * 10 and is_taken(sender, body):
            accepted += 1
        assert 0 < accepted < ROOM_MB * 10
        with client.get_queue_receiver(QUEUE) as receiver:
            for _ in range(accepted):
                [message] = receiver.receive_messages(max_wait_time=ENDED_S)
                receiver.complete_message(message)
            assert receiver.peek_messages(sequence_number=1) == []
        sender.send_messages(ServiceBusMessage(body))


def test_sends_are_taken_again_when_others_made_room(small_disk: Path) -> None:
    ballast = small_disk / "somebody-elses-file"

    with (
        Server(QUEUE, data=small_disk / "data") as server,
        connect(server.connection_string) as client,
        client.get_queue_sender(QUEUE) as sender,
    ):
        ballast.write_bytes(bytes(2 * ROOM_MB * 1024 * 1024))
        wait_until(lambda: not is_taken(sender, b"x"))
        ballast.unlink()
        wait_until(lambda: is_taken(sender, b"x"))
