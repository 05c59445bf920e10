"""`busway backup` of a broker under load: what was acknowledged before it began is in it, once."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode

from busway.testing import Server
from tests.chaos.traffic import ENDED_S, connect, wait_until
from tests.http.asking import ask, manager

CONFIG = """
[[queues]]
name = "orders"

[[queues]]
name = "parts"
partitioned = true
capture = true

[[queues]]
name = "there"

[[queues]]
name = "from-first"
forward_to = "there"

[[queues]]
name = "from-second"
forward_to = "there"

[[queues]]
name = "and-back"

[[queues]]
name = "from-third"
forward_to = "and-back"
"""
"""Single queues lie on one of two stores in turn, so that some are forwarded from one to the
other, in both directions."""
SOURCES = ("orders", "parts", "from-first", "from-second", "from-third")
RESTING = ("orders", "parts", "there", "and-back")


def busway(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "busway", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=ENDED_S,
        check=False,
    )


def backed_up(data: Path, target: Path) -> str:
    said = busway("backup", data, target)
    assert said.returncode == 0, said.stderr
    return said.stdout


def refusal(*arguments: str | Path) -> str:
    said = busway(*arguments)
    assert said.returncode == 2, said
    assert said.stderr.count("\n") == 1, said.stderr
    return said.stderr


class Load:
    """Senders that go on until they are told to stop; what each was told is kept in order."""

    def __init__(self, connection_string: str) -> None:
        self._connection_string = connection_string
        self._stop = threading.Event()
        self.acknowledged: list[str] = []
        self.failed: list[str] = []
        self._threads = [threading.Thread(target=self._send, args=(name,)) for name in SOURCES]

    def _send(self, queue: str) -> None:
        number = 0
        with (
            connect(self._connection_string) as client,
            client.get_queue_sender(queue) as sender,
        ):
            while not self._stop.is_set():
                number += 1
                message_id = f"{queue} {number}"
                try:
                    sender.send_messages(ServiceBusMessage(b"x" * 500, message_id=message_id))
                except Exception as error:  # it may be there or not: not counted on
                    self.failed.append(f"{message_id}: {error!r}")
                else:
                    self.acknowledged.append(message_id)

    def until(self, acknowledged: int) -> None:
        wait_until(lambda: len(self.acknowledged) >= acknowledged)

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(ENDED_S)


def begun(process: subprocess.Popen[bytes], partial: Path) -> None:
    wait_until(lambda: partial.exists() or process.poll() is not None)


def drained(connection_string: str) -> Counter[str]:
    found: Counter[str] = Counter()
    with connect(connection_string) as client:
        for queue in RESTING:
            with client.get_queue_receiver(
                queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
            ) as receiver:
                while batch := receiver.receive_messages(500, max_wait_time=3):
                    found.update(str(message.message_id) for message in batch)
    return found


@contextmanager
def restored(backup: Path, data: Path) -> Iterator[Server]:
    said = busway("restore", backup, data)
    assert said.returncode == 0, said.stderr
    with Server(config=CONFIG, data=data) as server:
        yield server


@pytest.mark.timeout(600)
def test_what_was_acknowledged_before_a_backup_under_load_is_in_it_once(tmp_path: Path) -> None:
    with Server(config=CONFIG, data=tmp_path / "data") as server:
        counted = []
        with Load(server.connection_string) as load:
            for number in range(3):
                load.until(200 * (number + 1))
                before = list(load.acknowledged)
                said = backed_up(tmp_path / "data", tmp_path / f"backup-{number}")
                assert "while the broker ran" in said
                counted.append(before)
                load.until(len(load.acknowledged) + 50)  # it goes on serving
        assert load.failed == []
        assert drained(server.connection_string) == Counter(load.acknowledged)
    for number, before in enumerate(counted):
        with restored(tmp_path / f"backup-{number}", tmp_path / f"again-{number}") as again:
            parts = ask(again, "GET", "/parts/$journal", token=manager(again)).json
            assert sum(each["next"] for each in parts["partitions"]) > 0
            found = drained(again.connection_string)
        assert [each for each in before if each not in found] == []
        assert {each: count for each, count in found.items() if count > 1} == {}


def test_a_killed_backup_leaves_the_broker_as_it_is_and_nothing_that_looks_like_one(
    tmp_path: Path,
) -> None:
    with Server(config=CONFIG, data=tmp_path / "data") as server:
        with Load(server.connection_string) as load:
            load.until(100)
            for number in range(5):
                target = tmp_path / f"backup-{number}"
                command = [sys.executable, "-m", "busway", "backup", tmp_path / "data", target]
                process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
                partial = tmp_path / f"backup-{number}.partial-{process.pid}"
                begun(process, partial)
                process.send_signal(signal.SIGKILL)
                process.wait()
                load.until(len(load.acknowledged) + 20)
                if not target.exists():
                    assert "is no backup" in refusal("restore", partial, tmp_path / "again")
        assert load.failed == []
        server.kill()
        server.restart()
        assert drained(server.connection_string) == Counter(load.acknowledged)


def test_a_folder_that_nobody_uses_is_backed_up_as_it_lies_there(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Server(config=CONFIG, data=data) as server:
        with Load(server.connection_string) as load:
            load.until(100)
        server.kill()  # so that logs are left that nobody has played in
        before = {path.name: path.read_bytes() for path in data.glob("*.db*")}
        assert "of a broker that did not run" in backed_up(data, tmp_path / "backup")
        after = {path.name: path.read_bytes() for path in data.glob("*.db*")}
        assert after == before
    with restored(tmp_path / "backup", tmp_path / "again") as again:
        assert drained(again.connection_string) == Counter(load.acknowledged)


def test_keys_and_certificates_come_back_with_it(tmp_path: Path) -> None:
    data, again = tmp_path / "data", tmp_path / "again"
    with Server("orders", data=data, arguments=["--tls"]) as server:
        backed_up(data, tmp_path / "backup")
        secrets = [data / "root.key", *sorted((data / "tls").iterdir())]
        assert busway("restore", tmp_path / "backup", again).returncode == 0
        for path in secrets:
            assert (again / path.relative_to(data)).read_bytes() == path.read_bytes()
        with Server("orders", data=again) as other:
            key = server.connection_string.partition("SharedAccessKey=")[2]
            assert other.connection_string.endswith(key)
    for folder in (tmp_path / "backup", again):
        for path in [folder, *folder.rglob("*")]:
            has_secrets = path.name not in ("manifest.json", "served-at.json")
            assert not has_secrets or path.stat().st_mode & 0o077 == 0, path


@pytest.fixture(scope="module")
def backup(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    with Server("orders", data=folder / "data"):
        backed_up(folder / "data", folder / "backup")
    return folder / "backup"


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGE = {
    "a flipped bit in a store": (lambda at: flip(at / "store-0.db"), "store-0.db is not what"),
    "a flipped bit in the catalog": (lambda at: flip(at / "catalog.db"), "catalog.db is not what"),
    "another key": (lambda at: (at / "root.key").write_text("x" * 45), "root.key is not what"),
    "a file cut short": (lambda at: os.truncate(at / "store-1.db", 4096), "has 4096 bytes and had"),
    "a missing file": (lambda at: (at / "store-1.db").unlink(), "store-1.db cannot be read"),
    "a manifest with a flipped bit": (lambda at: flip(at / "manifest.json"), "manifest.json is"),
    "a manifest that is none": (
        lambda at: (at / "manifest.json").write_text("[" * 100_000),
        "manifest.json is",
    ),
    "no manifest": (lambda at: (at / "manifest.json").unlink(), "is no backup"),
}


@pytest.mark.parametrize(("damage", "told"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_backup_is_refused(backup: Path, tmp_path: Path, damage, told: str) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(backup, damaged)
    damage(damaged)
    assert told in refusal("restore", damaged, tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_nothing_is_overwritten(backup: Path, tmp_path: Path) -> None:
    assert "is there already" in refusal("restore", backup, backup.parent / "data")
    assert "is there already" in refusal("backup", backup.parent / "data", backup)
    assert "is no data folder" in refusal("backup", tmp_path, tmp_path / "backup")
    (tmp_path / "empty").mkdir()
    assert busway("restore", backup, tmp_path / "empty").returncode == 0
    assert (tmp_path / "empty" / "catalog.db").is_file()


def test_a_backup_of_another_format_is_refused(backup: Path, tmp_path: Path) -> None:
    from busway.runtime.backup_manifest import _digest_of

    newer = tmp_path / "newer"
    shutil.copytree(backup, newer)
    content = json.loads((newer / "manifest.json").read_text())["manifest"] | {"format": 2}
    text = json.dumps({"manifest": content, "sha256": _digest_of(content)})
    (newer / "manifest.json").write_text(text)
    assert "is of format 2" in refusal("restore", newer, tmp_path / "data")


@pytest.mark.parametrize("running", [False, True])
def test_a_folder_that_lacks_a_store_is_not_backed_up(tmp_path: Path, running: bool) -> None:
    data = tmp_path / "data"
    with Server("orders", data=data) as server:
        server.stop()
        (data / "store-1.db").unlink()
        if running:
            server.start()
        assert "store-1.db is missing" in refusal("backup", data, tmp_path / "backup")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


def test_a_store_that_does_not_let_go_is_named(tmp_path: Path) -> None:
    with Server("orders", data=tmp_path / "data"):
        hanging = sqlite3.connect(tmp_path / "data" / "catalog.db", isolation_level=None)
        hanging.execute("BEGIN IMMEDIATE")
        said = refusal("backup", tmp_path / "data", tmp_path / "backup")
        hanging.close()
        assert "does not stand still: database is locked" in said
    assert not (tmp_path / "backup").exists()
