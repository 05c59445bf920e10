"""Capture on a Spark cluster: a master and two workers of their own processes (P-47).

The workers know nothing of the broker but what a task brings with it: a pass for one entity.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from busway.amqp.performatives import Properties
from busway.amqp.sections import encode_message
from busway.pipeline.lake.lake import Lake
from busway.pipeline.lake.tables import EVENTS
from busway.pipeline.spark.session import prepare_environment
from busway.remote import connection
from busway.remote.wire.sender import Sender
from busway.testing.server import Server
from tests.pipeline.jobs import Job, pipeline, processes_of_session, wait_for

pytestmark = pytest.mark.skipif(
    not os.environ.get("BUSWAY_CLUSTER"), reason="takes minutes: make chaos-pipeline runs it"
)

QUEUE = "orders"
CONFIG = f"""
[[queues]]
name = "{QUEUE}"
enable_partitioning = true
requires_duplicate_detection = true
capture = true
"""
SENT = 40_000


class Cluster:
    """From the distribution that came with PySpark, on free ports of this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.master = f"spark://127.0.0.1:{free.getsockname()[1]}"

    def start(self) -> None:
        host, port = self.master.removeprefix("spark://").split(":")
        self._run("master.Master", "--host", host, "--port", port, "--webui-port", "0")
        wait_for(lambda: "I have been elected leader" in self.log)
        for number in range(2):
            self._run(
                "worker.Worker", "--host", host, "--port", "0", "--webui-port", "0",
                "--cores", "1", "--memory", "1g",
                "--work-dir", str(self._folder / f"work-{number}"), self.master,
            )  # fmt: skip
        wait_for(lambda: self.log.count("Registering worker") == 2)

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text()

    def executors(self) -> list[int]:
        """Their processes, of all workers."""
        found = []
        for process in self._processes:
            for pid in processes_of_session(process.pid):
                if b"CoarseGrainedExecutorBackend" in _command_of(pid):
                    found.append(pid)
        return found

    def environments(self) -> bytes:
        """What all of its processes have been started with."""
        texts = []
        for process in self._processes:
            for pid in processes_of_session(process.pid):
                try:
                    texts.append(Path(f"/proc/{pid}/environ").read_bytes())
                except OSError:
                    continue  # it has ended meanwhile
                texts.append(_command_of(pid))
        return b"\n".join(texts)

    def stop(self) -> None:
        for process in self._processes:
            for pid in processes_of_session(process.pid):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            process.wait()

    def _run(self, name: str, *arguments: str) -> None:
        home = Path(pyspark.__file__).parent
        environment = {k: v for k, v in os.environ.items() if not k.startswith("BUSWAY_")}
        prepare_environment(environment, self.master)
        environment["SPARK_HOME"] = str(home)
        with (self._folder / "log").open("ab") as log:
            self._processes.append(
                subprocess.Popen(
                    [home / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *arguments],
                    stdout=log,
                    stderr=log,
                    stdin=subprocess.DEVNULL,
                    env=environment,
                    start_new_session=True,
                )
            )


def _command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    running = Cluster(tmp_path)
    try:
        running.start()
        yield running
    finally:
        running.stop()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(config=CONFIG, data=tmp_path / "data") as running:
        yield running


def send(server: Server, numbers: range) -> None:
    allowed = connection.read(server.connection_string).pass_for(QUEUE)
    messages = (
        encode_message(properties=Properties(message_id=f"m-{number}"), data=bytes(1024))
        for number in numbers
    )
    assert Sender(QUEUE, allowed).send_all(messages) == len(numbers)


def captured(lake: Path) -> list[str]:
    table = Lake(lake).table(EVENTS.layout())
    if not table.exists():
        return []
    ids: list[str] = (
        table.delta().to_pyarrow_table(columns=["message_id"])["message_id"].to_pylist()
    )
    return sorted(ids)


def test_a_cluster_captures_each_event_once_though_its_executors_are_killed(
    cluster: Cluster, server: Server, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    send(server, range(SENT))
    command = pipeline(
        "capture", "--entity", QUEUE, "--lake", str(lake), "--once", "--json",
        "--batch-events", str(SENT // 8), "--master", cluster.master,
        "--conf", "spark.executor.memory=512m",
    )  # fmt: skip
    job = Job(tmp_path / "capture.log", server, command)
    job.wait_for(lambda: len(captured(lake)) > 0)
    seen = cluster.environments()
    killed = cluster.executors()
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    summary = job.summary()["entities"][QUEUE]
    assert killed
    assert summary["rows"] == SENT
    assert captured(lake) == sorted(f"m-{number}" for number in range(SENT))

    key = server.connection_string.partition("SharedAccessKey=")[2].partition(";")[0]
    assert b"CoarseGrainedExecutorBackend" in seen
    assert key.encode() not in seen
    assert key not in cluster.log + job.told
