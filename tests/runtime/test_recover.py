"""A catalog that is missing, a store from elsewhere: refused with a text, and recovered from.

With the real server and the SDK: what a queue hands out is what was sent to it, or nothing.
"""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from typer.testing import CliRunner

from busway.cli import app
from busway.testing import Server
from busway.testing.server import ServerError

QUEUES = ("apples", "pears", "plums")


def server(data: Path, *queues: str) -> Server:
    return Server(*queues, data=data)


def send(running: Server) -> None:
    with ServiceBusClient.from_connection_string(running.connection_string) as client:
        for index, name in enumerate(QUEUES):
            with client.get_queue_sender(name) as sender:
                sender.send_messages([ServiceBusMessage(f"{name} {n}") for n in range(index + 2)])


def received(running: Server, queue: str) -> list[str]:
    with (
        ServiceBusClient.from_connection_string(running.connection_string) as client,
        client.get_queue_receiver(queue, receive_mode="receiveanddelete") as receiver,
    ):
        return [str(each) for each in receiver.receive_messages(10, max_wait_time=5)]


def busway(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(word) for word in words])
    return result.exit_code, result.output


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with two, three and four messages in three queues."""
    data = tmp_path / "data"
    with server(data, *QUEUES) as running:
        send(running)
    return data


def test_a_missing_catalog_gives_no_queue_the_messages_of_another(data: Path) -> None:
    assert busway("verify", data)[0] == 0
    for file in data.glob("catalog.db*"):
        file.unlink()
    with pytest.raises(ServerError, match="9 messages of entities that the catalog") as refused:
        server(data, *reversed(QUEUES)).start()
    assert "busway recover" in str(refused.value)
    assert re.search(
        r"store-[01]: \d messages in partition 0 of incarnation \d+", str(refused.value)
    )
    status, text = busway("verify", data)
    assert status == 1
    assert "the catalog does not know" in text
    status, text = busway("recover", data)
    found = {
        int(count): incarnation
        for count, incarnation in re.findall(r"(\d) messages in .* incarnation (\d+)", text)
    }
    assert sorted(found) == [2, 3, 4]
    for index, name in enumerate(QUEUES):
        status, text = busway("recover", data, "--attach", f"{found[index + 2]}={name}")
        assert status == 0, text
    assert busway("verify", data)[0] == 0
    with server(data, *reversed(QUEUES)) as running:
        for index, name in enumerate(QUEUES):
            assert received(running, name) == [f"{name} {n}" for n in range(index + 2)]


def test_what_the_catalog_does_not_know_can_be_written_out(data: Path, tmp_path: Path) -> None:
    for file in data.glob("catalog.db*"):
        file.unlink()
    status, text = busway("recover", data, "--export", tmp_path / "out.jsonl")
    assert status == 0
    assert "9 messages were written" in text
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(lines) == 9
    assert {line["state"] for line in lines} == {"active"}
    assert not any(line["damaged"] for line in lines)


def test_a_store_of_another_broker_is_not_served(data: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "data"
    other.parent.mkdir()
    with server(other, *QUEUES) as running:
        send(running)
    for position in (0, 1):
        shutil.copy(other / f"store-{position}.db", data / f"store-{position}.db")
    with pytest.raises(ServerError, match="9 messages of entities"):
        server(data, *QUEUES).start()
    status, text = busway("verify", data)
    assert status == 1
    assert "the catalog expects" in text


def test_incarnations_are_not_counted(data: Path) -> None:
    with sqlite3.connect(data / "catalog.db") as catalog:
        found = [number for (number,) in catalog.execute("SELECT incarnation FROM entities")]
    assert min(found) > 1 << 32


def test_verify_needs_the_folder_for_itself(data: Path) -> None:
    with server(data, *QUEUES):
        program = (
            "import sys; from busway.cli import main; sys.argv = ['busway', *sys.argv[1:]]; main()"
        )
        done = subprocess.run(
            [sys.executable, "-c", program, "verify", str(data)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 2
    assert "another process" in done.stderr
