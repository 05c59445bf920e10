"""SIGHUP, certificates that are replaced, and log files that are moved away."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from busway.config import load
from busway.runtime import certificate_reload
from busway.runtime.certificates import CertificateFolder
from busway.runtime.node import Node
from busway.testing import Server
from tests.runtime.test_serve import refused
from tests.runtime.wire import RawClient
from tests.sdk.conftest import wait_until


def shown(port: int) -> str:
    return ssl.get_server_certificate(("127.0.0.1", port), timeout=60)


def fresh(folder: Path) -> CertificateFolder:
    files = CertificateFolder(folder)
    files.make([])
    return files


def put(files: CertificateFolder, folder: Path) -> None:
    """As certbot does: new files in the place of the old ones."""
    folder.mkdir(exist_ok=True)
    for path in (files.server, files.server_key):
        shutil.copy(path, folder / f"{path.name}.new")
        os.replace(folder / f"{path.name}.new", folder / path.name)


@pytest.fixture
def in_use(tmp_path: Path) -> Path:
    put(fresh(tmp_path / "first"), tmp_path / "in-use")
    return tmp_path / "in-use"


@pytest.fixture
def server(in_use: Path) -> Iterator[Server]:
    arguments = ["--tls-cert", str(in_use / "server.pem"), "--tls-key", str(in_use / "server.key")]
    with Server("orders", arguments=arguments) as running:
        yield running


def test_sighup_shows_new_connections_the_new_certificate_and_ends_no_old_one(
    server: Server, in_use: Path, tmp_path: Path
) -> None:
    before = shown(server.port)
    with RawClient(server.port).open() as client:
        second = fresh(tmp_path / "second")
        put(second, in_use)
        assert shown(server.port) == before
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: shown(server.port) != before)
        assert shown(server.port) in second.server.read_text()
        server.process.terminate()
        error = client.until_closed().error
        assert error is not None
        assert error.condition == "amqp:connection:forced"  # so it had been open until now


def test_a_bad_new_certificate_keeps_the_old_one_and_says_why(
    server: Server, in_use: Path, tmp_path: Path
) -> None:
    before = shown(server.port)
    (in_use / "server.key").write_bytes(fresh(tmp_path / "second").server_key.read_bytes())
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "the certificate stays as it was" in server.log)
    assert "is not the key of" in server.log
    assert shown(server.port) == before
    (in_use / "server.pem").unlink()
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: server.log.count("the certificate stays as it was") == 2)
    assert "there is no such file" in server.log
    assert shown(server.port) == before


def test_sighup_without_tls_ends_nothing(tmp_path: Path) -> None:
    with Server("orders") as server:
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "SIGHUP" in server.log)
        with RawClient(server.port).open():
            assert server.is_running


async def test_a_replaced_certificate_counts_without_a_signal(
    in_use: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificate_reload, "LOOK_S", 0.01)
    flags = {"tls_cert": in_use / "server.pem", "tls_key": in_use / "server.key"}
    node = Node(load({"memory": True, "port": 0, **flags}, {}))
    await node.start()
    try:
        before = await asyncio.to_thread(shown, node.port)
        put(fresh(tmp_path / "second"), in_use)
        async with asyncio.timeout(60):
            while await asyncio.to_thread(shown, node.port) == before:
                pass
    finally:
        await node.stop()


def test_a_log_file_that_was_moved_away_is_opened_anew(tmp_path: Path) -> None:
    log, moved = tmp_path / "busway.log", tmp_path / "busway.log.1"
    with Server("orders", arguments=["--log-file", str(log)]) as server:
        assert "starts" in log.read_text()
        log.rename(moved)
        server.process.send_signal(signal.SIGHUP)
        wait_until(log.exists)
        wait_until(lambda: "SIGHUP" in log.read_text())
        with RawClient(server.port).open():
            pass
        wait_until(lambda: "connection opened" in log.read_text())
        assert "SIGHUP" not in moved.read_text()
        assert server.log == ""


def test_a_log_file_that_cannot_be_opened_anew_goes_on_as_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    with Server("orders", arguments=["--log-file", str(folder / "busway.log")]) as server:
        folder.rename(tmp_path / "elsewhere")
        server.process.send_signal(signal.SIGHUP)
        log = tmp_path / "elsewhere" / "busway.log"
        wait_until(lambda: "the log goes on in the old file" in log.read_text())
        assert server.is_running


def test_a_log_file_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    with Server("orders") as server:
        server.stop()
        said = refused([*server.command, "--log-file", str(tmp_path / "none" / "busway.log")])
        assert "--log-file:" in said
        assert "cannot be opened: No such file or directory" in said
