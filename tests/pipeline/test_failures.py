"""What goes wrong while a job runs: one sentence that says what to do, a status, and no trace."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from busway.pipeline.commands.console import known
from busway.pipeline.commands.monitor import Monitor
from busway.pipeline.jobs.capture_watch import Watch
from busway.pipeline.wire.journal import UnreachableError
from busway.remote import connection
from busway.testing.server import Server
from tests.pipeline.jobs import Job, java_of, pipeline
from tests.pipeline.test_commands import invoke

NOBODY = (
    "Endpoint=sb://localhost:1;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true;"
)
CONFIG = """
[[queues]]
name = "orders"
capture = true
"""
LINES_MAX = 25
"""What Java itself says when it is started, progress, and the sentence."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(config=CONFIG, data=tmp_path_factory.mktemp("data")) as running:
        yield running


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "busway-test", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting is not allowed here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def send(server: Server, count: int) -> None:
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_sender("orders") as sender,
    ):
        for _ in range(count):
            sender.send_messages(ServiceBusMessage(os.urandom(100_000)))


def sentence(job: Job) -> str:
    assert job.ended(1) == ""
    lines = job.told.splitlines()
    assert "Traceback" not in job.told
    assert len(lines) <= LINES_MAX, job.told
    (told,) = (line for line in lines if line.startswith("busway: "))
    return told


def test_a_jvm_that_is_killed_and_a_disk_that_is_full(server: Server, small_disk: Path) -> None:
    lake = small_disk / "lake"
    log = small_disk.parent / "log"
    send(server, 3)
    job = Job(log, server, pipeline("capture", "--entity", "orders", "--lake", str(lake)))
    job.wait_for(lambda: "orders: 3 events in 1 batch" in job.told)
    os.kill(java_of(job), signal.SIGKILL)
    send(server, 20)  # it notices with the next batch, which is more than the disk has room for
    assert "Spark's JVM has ended" in sentence(job)

    log.write_text("")
    job = Job(log, server, pipeline("capture", "--entity", "orders", "--lake", str(lake)))
    assert "No space left on device" in sentence(job)


def test_debug_shows_the_trace(tmp_path: Path) -> None:
    log = tmp_path / "events" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text("no log")
    refused = invoke("compact", "--lake", str(tmp_path), "--table", "events")
    assert "Traceback" not in refused.stderr
    shown = invoke("compact", "--lake", str(tmp_path), "--table", "events", "--debug")
    assert "Traceback" in shown.stderr
    assert (refused.exit_code, shown.exit_code) == (1, 1)


def test_what_nobody_has_thought_of_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(lake: object) -> None:
        raise ZeroDivisionError("a page\nof text")

    monkeypatch.setattr("busway.pipeline.jobs.curate.captured", fail)
    refused = invoke("curate", "--lake", str(tmp_path))
    assert refused.exit_code == 1
    assert refused.stderr == (
        "busway: It failed unexpectedly: ZeroDivisionError: a page (--debug shows where)\n"
    )
    assert known(ZeroDivisionError("x")) is None


def test_a_broker_that_does_not_answer_is_waited_for_and_said_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []
    watch = Watch(connection.read(NOBODY), ["orders"], lambda heads: ({}, {}), said.append)
    for _ in range(3):
        watch.look()
    assert said == ["the broker does not answer; waiting"]
    monkeypatch.setattr("busway.pipeline.jobs.capture_watch.PATIENCE_S", -1.0)
    with pytest.raises(UnreachableError, match="cannot be reached"):
        watch.look()


# --- What is told over HTTP ----------------------------------------------------------------------


def asked(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=30) as reply:
            return reply.status, reply.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def test_metrics_and_health_tell_of_each_entity(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    credentials = connection.read(server.connection_string)
    watch = Watch(credentials, ["orders", "missing"], lambda heads: ({}, {}))
    send(server, 1)
    watch.begin(once=False)
    behind = sum(watch.captured["orders"].behind.values())
    with Monitor("127.0.0.1:0", watch):
        address = capsys.readouterr().err.strip().rpartition(" ")[2]
        status, text = asked(f"{address}/metrics")
        assert status == 200
        assert f'busway_capture_behind_events{{entity="orders",partition="0"}} {behind}.0' in text
        assert 'busway_capture_state{entity="missing",state="waiting"} 1.0' in text
        assert "busway_capture_broker_up 1.0" in text
        status, text = asked(f"{address}/health")
        assert (status, json.loads(text)["status"]) == (200, "well")
        watch.failed("orders", "It has no more paper.")
        status, text = asked(f"{address}/health")
        assert (status, json.loads(text)["problems"]) == (503, {"orders": "It has no more paper."})
        assert asked(f"{address}/")[0] == 404
    watch.close()
    assert behind > 0
