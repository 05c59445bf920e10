"""Jobs reach a broker in TLS: SSL_CERT_FILE names whom to trust (docs/how-to/tls.md)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from pyspark.sql.types import StringType, StructField, StructType

from busway.amqp.performatives import Properties
from busway.amqp.sections import encode_message
from busway.pipeline.datasource import sink
from busway.pipeline.datasource.options import write_options
from busway.pipeline.wire.journal import Journal
from busway.pipeline.wire.offsets import Span
from busway.remote import connection, triage
from busway.remote.connection import Credentials
from busway.remote.triage import Triage
from busway.remote.trust import VARIABLE, UntrustedError
from busway.remote.wire import target
from busway.remote.wire.sender import Sender
from busway.testing.server import Server

CONFIG = """
[[queues]]
name = "orders"
capture = true

[[queues]]
name = "failed"

[[queues]]
name = "again"
requires_duplicate_detection = true
"""
SENT = 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data = tmp_path_factory.mktemp("data")
    with Server(config=CONFIG, data=data, arguments=["--tls"]) as running:
        yield running


@pytest.fixture(scope="module")
def authority(server: Server) -> str:
    assert server.data is not None
    return str(server.data / "tls" / "authority.pem")


@pytest.fixture
def credentials(server: Server, authority: str, monkeypatch: pytest.MonkeyPatch) -> Credentials:
    monkeypatch.setenv(VARIABLE, authority)
    found = connection.read(server.tls_connection_string)
    assert found.endpoint.tls
    return found


def message(number: int) -> bytes:
    return encode_message(properties=Properties(message_id=f"m-{number}"), data=b"%d" % number)


def test_messages_are_sent_and_their_journal_is_read(credentials: Credentials) -> None:
    allowed = credentials.pass_for("orders")
    assert Sender("orders", allowed).send_all(map(message, range(SENT))) == SENT
    with Journal("orders", allowed) as journal:
        heads = journal.heads()
        (end,) = heads.latest.next.values()
        rows = [
            row["message_id"]
            for batch in journal.read(heads.epoch, Span(0, 0, end), ["message_id"])
            for row in batch.to_pylist()
        ]
    assert rows == [f"m-{number}" for number in range(SENT)]


def test_rows_are_sent(
    server: Server, credentials: Credentials, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(connection.VARIABLE, server.tls_connection_string)
    names = ("message_id", "body")
    schema = StructType([StructField(name, StringType()) for name in names])
    prepared = sink.prepare(write_options({"entity": "again"}), schema, overwrite=False)
    batch = pa.RecordBatch.from_pydict({name: ["a", "b"] for name in names})
    assert sink.send_rows(prepared, iter([batch])) == sink.Sent(2, 2)


def test_dead_letters_are_moved(server: Server, credentials: Credentials) -> None:
    with ServiceBusClient.from_connection_string(server.connection_string) as client:
        with client.get_queue_sender("failed") as sender:
            sender.send_messages(ServiceBusMessage("x"))
        with client.get_queue_receiver("failed") as receiver:
            (one,) = receiver.receive_messages(1, max_wait_time=60)
            receiver.dead_letter_message(one, "Late")
    chosen = triage.look("failed", credentials)
    assert [each.reason for each in chosen] == ["Late"]
    assert Triage("failed", "failed", credentials).resubmit(chosen).moved == 1
    assert triage.look("failed", credentials) == []


def test_whom_nobody_trusts_is_said_at_once(
    server: Server, credentials: Credentials, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE)
    allowed = credentials.pass_for("orders")
    attempts = (
        lambda: Sender("orders", allowed).send_all([message(1)]),
        lambda: target.describe("orders", allowed),
        lambda: Journal("orders", allowed).heads(),
        lambda: triage.look("orders", credentials),
    )
    for attempt in attempts:
        with pytest.raises(UntrustedError, match="variable SSL_CERT_FILE"):
            attempt()


def test_a_broker_without_tls_is_said_at_once() -> None:
    with Server("orders") as server:
        in_tls = server.connection_string.replace("UseDevelopmentEmulator=true", "")
        allowed = connection.read(in_tls).pass_for("orders")
        with pytest.raises(UntrustedError, match="speaks no TLS"):
            Sender("orders", allowed).send_all([message(1)])
        with pytest.raises(UntrustedError, match="speaks no TLS"):
            target.describe("orders", allowed)


def test_commands_capture_and_replay(server: Server, authority: str, tmp_path: Path) -> None:
    """With Spark's processes in between, which have the variable from the one that starts them."""
    environment = {
        **os.environ,
        connection.VARIABLE: server.tls_connection_string,
        VARIABLE: authority,
    }
    lake = str(tmp_path / "a lake")

    def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "busway", "pipeline", *arguments, "--lake", lake],
            env=environment | more,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    untrusted = run("capture", "--entity", "orders", "--once", **{VARIABLE: ""})
    assert untrusted.returncode == 1
    assert "is not trusted" in untrusted.stderr
    assert "Traceback" not in untrusted.stderr
    captured = run("capture", "--entity", "orders", "--once", "--json")
    assert captured.returncode == 0, captured.stderr
    replayed = run("replay", "--entity", "orders", "--to", "again", "--json")
    assert replayed.returncode == 0, replayed.stderr
    assert json.loads(replayed.stdout)["sent"] == SENT
