"""`busway serve` as a user meets it: real processes, real sockets, real signals."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from busway.amqp.events import Closed
from busway.testing import Server, ServerError
from tests.runtime.wire import RawClient

ENDED_S = 120


@pytest.fixture
def server() -> Iterator[Server]:
    with Server("orders") as running:
        yield running


def refused(command: list[str]) -> str:
    """What a server that cannot start says: one sentence, and status 2."""
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=ENDED_S, check=False, env=os.environ
    )
    assert ended.returncode == 2, ended
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""
    said = [line for line in ended.stderr.splitlines() if line.startswith("busway: ")]
    assert len(said) == 1, ended.stderr
    return said[0]


def serve(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "busway", "serve", *arguments]


# --- starting ------------------------------------------------------------------------------------


def test_it_prints_a_connection_string_and_then_ready(tmp_path: Path) -> None:
    process = subprocess.Popen(
        serve("--data", str(tmp_path / "data"), "--port", "0", "--print-connection-string"),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    first, last = process.stdout.readline(), process.stdout.readline()
    process.terminate()
    assert process.stdout.read() == ""
    assert process.wait(ENDED_S) == 0
    endpoint, rule, key, emulator = first.rstrip(";\n").split(";")
    assert endpoint.startswith("Endpoint=sb://localhost:")
    assert rule == "SharedAccessKeyName=RootManageSharedAccessKey"
    assert len(key.removeprefix("SharedAccessKey=")) == 44
    assert emulator == "UseDevelopmentEmulator=true"
    assert last.startswith("ready")


def test_start_time_and_idle_memory_are_reported(
    tmp_path: Path, record_property: pytest.RecordProperty, capsys: pytest.CaptureFixture[str]
) -> None:
    """D-33. Reported, not judged: a loaded machine would fail it for no fault of ours."""
    with Server("orders", partitioned=["parts"], data=tmp_path / "data") as server:
        server.stop()
        began = time.monotonic()
        server.start()
        ready_s = time.monotonic() - began
        status = Path(f"/proc/{server.pid}/status")
        if not status.exists():
            pytest.skip("no /proc here to read the memory from")
        (line,) = (row for row in status.read_text().splitlines() if row.startswith("VmRSS"))
        rss_mb = int(line.split()[1]) / 1024
    record_property("ready_s", round(ready_s, 2))
    record_property("idle_rss_mb", round(rss_mb, 1))
    with capsys.disabled():
        print(f"\n[busway serve: ready after {ready_s:.2f} s, idle at {rss_mb:.0f} MB]")
    assert rss_mb < 100


HEAVY = {
    "aiohttp", "azure", "certifi", "click", "cryptography", "deltalake", "hypothesis", "msgspec",
    "opentelemetry", "prometheus_client", "psycopg", "pyarrow", "pydantic", "pydantic_core",
    "pyspark", "pytest", "requests", "rich", "ssl", "unittest", "xml",
}  # fmt: skip
"""What `serve` must not have loaded when it is ready (D-33)."""

LOADED = """
import sys
from busway.runtime import serve
def announce(node, original=serve.announce):
    original(node)
    print(*sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr, flush=True)
serve.announce = announce
from busway.cli import main
main()
"""


def test_nothing_heavy_is_loaded_when_it_is_ready(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", LOADED, *serve("--data", str(tmp_path), "--port", "0")[3:]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    while not process.stdout.readline().startswith("ready"):
        assert process.poll() is None
    process.terminate()
    _, stderr = process.communicate(timeout=ENDED_S)
    (loaded,) = (line.split() for line in stderr.splitlines() if " asyncio " in line)
    # What the interpreter's own start-up files import is not ours to answer for.
    bare = subprocess.run(
        [sys.executable, "-c", "import sys; print(*sys.modules)"], capture_output=True, text=True
    )
    before = {name.partition(".")[0] for name in bare.stdout.split()}
    assert (set(loaded) & HEAVY) - before <= {"ssl"}  # asyncio's own; needed for TLS soon
    assert {"sqlite3", "busway"} <= set(loaded)


def test_the_root_key_is_made_once_and_readable_by_its_owner_only(tmp_path: Path) -> None:
    with Server(data=tmp_path) as server:
        first = server.connection_string
        server.restart()
        assert server.connection_string == first
    mode = stat.S_IMODE((tmp_path / "root.key").stat().st_mode)
    assert mode == 0o600


def test_a_key_can_be_given(tmp_path: Path) -> None:
    key = "a-key-of-my-own-choice"
    with Server(environment={"BUSWAY_KEY": key}) as server:
        assert f"SharedAccessKey={key};" in server.connection_string


def test_a_folder_keeps_its_stores_when_fewer_are_asked_for(tmp_path: Path) -> None:
    with Server(data=tmp_path, arguments=["--stores", "3"]) as server:
        server.stop()
    with Server(data=tmp_path, arguments=["--stores", "1"]) as server:
        assert server.log.count("store is serving") == 3
    assert len(list(tmp_path.glob("store-*.db"))) == 3


def test_a_folder_gets_new_stores_when_more_are_asked_for(tmp_path: Path) -> None:
    with Server(data=tmp_path, arguments=["--stores", "1"]) as server:
        server.stop()
    with Server(data=tmp_path, arguments=["--stores", "2"]) as server:
        assert server.log.count("store is serving") == 2


def test_a_store_that_is_missing_is_not_made_anew(tmp_path: Path) -> None:
    with Server("orders", data=tmp_path, arguments=["--stores", "2"]) as server:
        server.stop()
    (tmp_path / "store-1.db").unlink()
    with Server(data=tmp_path, arguments=["--stores", "2"]) as server:
        assert "no empty one is put in its place" in server.log
        assert server.log.count("store is serving") == 1
    assert not (tmp_path / "store-1.db").exists()


def test_logs_can_be_objects() -> None:
    with Server(arguments=["--log-format", "json"]) as server:
        with RawClient(server.port).open():
            pass
        server.stop()
        lines = [json.loads(line) for line in server.log.splitlines()]
    opened = next(line for line in lines if line["message"] == "connection opened")
    assert opened["connection"] == "c1"
    assert opened["peer"].startswith("127.0.0.1:")


# --- what it refuses -----------------------------------------------------------------------------


def test_a_second_instance_on_the_same_data_is_refused(tmp_path: Path) -> None:
    with Server(data=tmp_path) as server:
        said = refused(serve("--data", str(tmp_path), "--port", "0"))
        assert f"The data folder {tmp_path} cannot be used" in said
        assert f"pid {server.pid}" in said
        assert server.is_running


def test_the_data_can_be_used_again_after_a_kill(tmp_path: Path) -> None:
    with Server(data=tmp_path) as server:
        server.kill()
        server.restart()
        assert server.is_running


def test_a_port_in_use_is_refused(server: Server) -> None:
    said = refused(serve("--memory", "--port", str(server.port)))
    assert f"Port {server.port} of 127.0.0.1 cannot be listened on: Address already in use" in said


def test_an_address_of_another_machine_is_refused() -> None:
    said = refused(serve("--memory", "--port", "0", "--host", "192.0.2.1"))
    assert "192.0.2.1 cannot be listened on" in said


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = refused(serve("--data", str(tmp_path / "file" / "data"), "--port", "0"))
    assert "cannot be made" in said


def test_a_catalog_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "catalog.db").write_text("this is not a database" * 100)
    assert "catalog" in refused(serve("--data", str(tmp_path), "--port", "0"))


def test_a_queue_that_cannot_become_what_the_file_says_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Server("orders", data=data):
        pass
    (tmp_path / "changed.toml").write_text('[[queues]]\nname = "orders"\npartitioned = true\n')
    options = ["--data", str(data), "--port", "0", "--config", str(tmp_path / "changed.toml")]
    assert "queue 'orders'" in refused(serve(*options))


# --- stopping ------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_status_0(number: signal.Signals) -> None:
    server = Server().start()
    process = server.process
    process.send_signal(number)
    assert process.wait(ENDED_S) == 0
    assert server.log.rstrip().endswith("stopped")
    server.close()


def test_connections_hear_that_it_stops(server: Server) -> None:
    with RawClient(server.port).open() as client:
        process = server.process
        process.terminate()
        closed = client.until_closed()
        assert closed.error is not None
        assert closed.error.condition == "amqp:connection:forced"
        assert process.wait(ENDED_S) == 0


def test_what_was_acknowledged_before_the_stop_is_there_after_it(tmp_path: Path) -> None:
    from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode
    from azure.servicebus.exceptions import ServiceBusError

    acknowledged: list[str] = []
    enough = threading.Event()

    def send_until_it_stops(connection_string: str) -> None:
        with (
            ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client,
            client.get_queue_sender("orders") as sender,
            suppress(ServiceBusError),
        ):
            while True:
                body = f"order {len(acknowledged)}"
                sender.send_messages(ServiceBusMessage(body))
                acknowledged.append(body)
                if len(acknowledged) == 50:
                    enough.set()

    with Server("orders", data=tmp_path) as server:
        sending = threading.Thread(target=send_until_it_stops, args=[server.connection_string])
        sending.start()
        assert enough.wait(ENDED_S)
        assert server.stop() == 0
        sending.join(ENDED_S)
        server.restart()
        received: list[str] = []
        with (
            ServiceBusClient.from_connection_string(server.connection_string) as client,
            client.get_queue_receiver(
                "orders", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
            ) as receiver,
        ):
            deadline = time.monotonic() + ENDED_S
            while len(received) < len(acknowledged) and time.monotonic() < deadline:
                batch = receiver.receive_messages(max_message_count=500, max_wait_time=5)
                received += [str(message) for message in batch]
            left = receiver.receive_messages(max_message_count=500, max_wait_time=1)
            received += [str(message) for message in left]
    assert received[: len(acknowledged)] == acknowledged
    assert len(received) <= len(acknowledged) + 1, "one send was under way, no more"


def test_a_second_signal_ends_it_at_once(server: Server) -> None:
    with RawClient(server.port).open() as client:  # never answers the close: it would be waited for
        process = server.process
        process.terminate()
        assert isinstance(client.until(Closed), Closed)
        process.terminate()
        assert process.wait(ENDED_S) in (0, 1)


# --- strangers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rubbish",
    [
        b"GET / HTTP/1.1\r\nHost localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\x00" * 1000,
        b"AMQP\x03\x01\x00\x00" + b"\xff" * 1000,
        b"AMQP\x00\x01\x00\x00" + b"\x7f\xff\xff\xff\x02\x00\x00\x00",
        random.Random(4096).randbytes(4096),
    ],
    ids=["http", "tls", "zeros", "bad sasl", "huge frame", "noise"],
)
def test_rubbish_ends_its_own_connection_and_no_other(server: Server, rubbish: bytes) -> None:
    with RawClient(server.port).open() as good, RawClient(server.port) as bad:
        bad.socket.sendall(rubbish)
        bad.read_to_end()
        good.engine.begin()
        good.write()
        assert good.socket.recv(1024)
    assert "Traceback" not in server.log


def test_a_stranger_who_says_nothing_is_dropped(server: Server) -> None:
    with RawClient(server.port) as silent:
        assert silent.read_to_end() == b""
    assert "it said nothing valid in time" in server.log


def test_a_port_is_free_again_after_the_stop(server: Server) -> None:
    with RawClient(server.port).open():
        server.stop()
    with socket.socket() as own:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        own.bind(("127.0.0.1", server.port))


# --- busway.testing itself -----------------------------------------------------------------------


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    server = Server(config="nonsense = 1")
    with pytest.raises(ServerError, match="unknown key 'nonsense'"):
        server.start()
    server.close()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a port cannot be held so")
def test_nobody_else_gets_its_port_while_it_is_down() -> None:
    with Server() as server:
        server.kill()
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", server.port))
        port = server.port
        assert server.restart().port == port
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))


def test_the_fixture_gives_a_running_server(busway_server: Server) -> None:
    assert busway_server.is_running
    assert busway_server.connection_string.startswith("Endpoint=sb://localhost:")
