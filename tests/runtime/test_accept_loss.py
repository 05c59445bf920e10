"""`busway recover --accept-loss`: a store whose log is damaged or lost serves what is left.

With the real server, killed, and the SDK.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from typer.testing import CliRunner

from busway.cli import app
from busway.store.sqlite_log import FRAME_HEADER, HEADER, log_of
from busway.store.sqlite_schema import PAGE_SIZE
from busway.testing import Server

BEFORE, AFTER = 5, 20
"""Messages in the file itself, and messages in the log only."""
FRAME_BYTES = FRAME_HEADER.size + PAGE_SIZE


def send(running: Server, names: list[str]) -> None:
    """Each in a commit of its own."""
    with (
        ServiceBusClient.from_connection_string(running.connection_string) as client,
        client.get_queue_sender("orders") as sender,
    ):
        for name in names:
            sender.send_messages(ServiceBusMessage(name))


def received(running: Server) -> dict[str, int]:
    """Sequence numbers by text."""
    found: dict[str, int] = {}
    with (
        ServiceBusClient.from_connection_string(running.connection_string) as client,
        client.get_queue_receiver("orders", receive_mode="receiveanddelete") as receiver,
    ):
        while batch := receiver.receive_messages(50, max_wait_time=2):
            found |= {str(each): each.sequence_number or 0 for each in batch}
    return found


def busway(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(word) for word in words])
    return result.exit_code, result.output


def damage_in_the_middle(log: Path) -> None:
    frames = (log.stat().st_size - HEADER.size) // FRAME_BYTES
    assert frames > AFTER
    with log.open("r+b") as file:
        file.seek(HEADER.size + frames // 2 * FRAME_BYTES + 4_000)
        (byte,) = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte ^ 0x10]))


def damage_its_header(log: Path) -> None:
    with log.open("r+b") as file:
        file.write(b"????")


@pytest.mark.parametrize("harm", [damage_in_the_middle, damage_its_header, Path.unlink])
def test_the_store_serves_what_is_left_and_gives_no_number_twice(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    data = tmp_path / "data"
    sent = [f"message {n}" for n in range(BEFORE + AFTER)]
    with Server("orders", data=data) as running:
        send(running, sent[:BEFORE])
        running.restart()  # copies the log into the file
        send(running, sent[BEFORE:])
        running.kill()
    logs = sorted(data.glob("store-*.db-wal"), key=lambda each: each.stat().st_size)
    log = logs[-1]
    store = log.with_name(log.name.removesuffix("-wal"))
    assert log == log_of(store)
    before = log.read_bytes()
    harm(log)
    harmed = log.read_bytes() if log.exists() else None

    status, text = busway("verify", data)
    assert status == 1, text
    assert store.name in text

    status, text = busway("recover", data, "--accept-loss")
    assert status == 0, text
    assert f"{store.name}: goes on without " in text
    assert "DAMAGED" not in text
    kept = log.with_name(log.name + ".lost")
    assert (kept.read_bytes() if kept.exists() else None) == harmed
    assert len(before) > len(log.read_bytes() if log.exists() else b"")
    status, text = busway("verify", data)
    assert status == 0, text

    with Server("orders", data=data) as running:
        left = received(running)
        assert list(left) == sent[: len(left)]
        assert BEFORE <= len(left) < BEFORE + AFTER
        if harm is damage_in_the_middle:
            assert len(left) > BEFORE
        send(running, ["new"])
        assert received(running)["new"] > len(sent)


def test_nothing_is_given_up_where_nothing_is_lost(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Server("orders", data=data) as running:
        send(running, ["one", "two"])
        running.kill()
    status, text = busway("recover", data, "--accept-loss")
    assert status == 0, text
    assert "goes on without" not in text
    assert not list(data.glob("*.lost"))
    with Server("orders", data=data) as running:
        assert received(running) == {"one": 1, "two": 2}
        send(running, ["three"])
        assert received(running) == {"three": 3}
