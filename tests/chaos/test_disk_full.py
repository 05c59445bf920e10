"""A disk that runs full: sends are refused in time, and the broker can still be drained (D-9)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusServerBusyError

from busway.testing import Server
from tests.chaos.traffic import ENDED_S, connect, wait_until
from tests.http.asking import ask, manager
from tests.runtime.test_serve import refused, serve

QUEUE = "orders"
RESERVE_MB = 256 + 16
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
    """Whether a send was taken; otherwise the broker was too busy for it, or its store had just
    refused a commit."""
    try:
        sender.send_messages(ServiceBusMessage(body))
    except (ServiceBusServerBusyError, OperationTimeoutError):
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


def fill(path: Path) -> None:
    """To the last byte."""
    size = 1 << 20
    with path.open("wb", buffering=0) as file:
        while size:
            try:
                if file.write(bytes(size)) < size:
                    size //= 2
            except OSError:
                size //= 2


def test_a_disk_that_others_fill_to_the_last_byte_is_drained_also_after_a_restart(
    small_disk: Path,
) -> None:
    data = small_disk / "data"
    with (
        Server(QUEUE, data=data) as server,
        connect(server.connection_string) as client,
        client.get_queue_sender(QUEUE) as sender,
    ):
        assert (data / "reserve").stat().st_size == 16 * 1024 * 1024
        for number in range(40):
            sender.send_messages(ServiceBusMessage(b"x" * 100_000, message_id=str(number)))
        fill(small_disk / "somebody-elses-file")
        assert os.statvfs(small_disk).f_bavail == 0
        wait_until(lambda: not is_taken(sender, b"x"))
        found = []
        with client.get_queue_receiver(QUEUE) as receiver:
            for _ in range(20):
                [message] = receiver.receive_messages(max_wait_time=ENDED_S)
                receiver.complete_message(message)
                found.append(message.message_id)
        server.stop()
        server.start()
        with (
            connect(server.connection_string) as again,
            again.get_queue_receiver(QUEUE) as receiver,
        ):
            for _ in range(20):
                [message] = receiver.receive_messages(max_wait_time=ENDED_S)
                receiver.complete_message(message)
                found.append(message.message_id)
            assert found == [str(number) for number in range(40)]
            (small_disk / "somebody-elses-file").unlink()
            with again.get_queue_sender(QUEUE) as taken:
                wait_until(lambda: is_taken(taken, b"x"))
        wait_until((data / "reserve").exists)
        assert "the disk is full: " in server.log
        assert "the disk has room again" in server.log
        text = ask(server, "GET", "/metrics", token=manager(server)).text
        assert "busway_store_free_bytes{" in text
        assert "busway_store_sends_refused_total{" in text


def test_a_volume_that_is_too_small_is_refused_at_start(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "busway-test", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting is not allowed here")
    try:
        options = ["--data", str(folder / "data"), "--port", "0"]
        said = refused(serve(*options))
        assert "has 64 MB and is too small: 272 MB are kept free" in said
    finally:
        subprocess.run(["umount", str(folder)], check=True)
