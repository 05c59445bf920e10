"""Pages about frameworks, run as they are written, in an environment of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from busway.testing import Server

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RUN_S = 300
FILE = re.compile(r"`([\w./]+\.\w+)`:\n+```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TEXT = re.compile(r"^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder of `python` and `celery`, with what `requirements.txt` pins."""
    venv = HERE.parent / "build" / "pages"
    wanted = (HERE / "requirements.txt").read_text()
    stamp = venv / "requirements.txt"
    if not stamp.exists() or stamp.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(venv)], check=True)
        pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, "-r", str(HERE / "requirements.txt")], check=True)
        stamp.write_text(wanted)
    return venv / "bin"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    tour = (ROOT / "examples" / "tour.toml").read_text()
    with Server(config=tour, data=tmp_path / "data", arguments=["--tls"]) as server:
        yield server


def files_of(page: str, folder: Path) -> str:
    """Writes the files of a page; what the page says that comes out."""
    text = (ROOT / "docs" / "how-to" / page).read_text()
    for name, content in FILE.findall(text):
        (folder / name).write_text(content)
    (wanted,) = TEXT.findall(text)
    return str(wanted)


def environment(server: Server) -> dict[str, str]:
    assert server.data is not None
    return {
        **os.environ,
        "BUSWAY_CONNECTION_STRING": server.connection_string,
        "REQUESTS_CA_BUNDLE": str(server.data / "tls" / "authority.pem"),
    }


def said_by(command: list[str], folder: Path, server: Server) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment(server),
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_celery_runs_tasks(programs: Path, server: Server, tmp_path: Path) -> None:
    wanted = files_of("use-celery.md", tmp_path)
    (tmp_path / "results").mkdir()
    words = ["-A", "tasks", "worker", "--pool", "threads", "--concurrency", "2"]
    with (tmp_path / "worker.log").open("w") as log:
        worker = subprocess.Popen(
            [str(programs / "celery"), *words],
            cwd=tmp_path,
            env=environment(server),
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        assert said_by([str(programs / "python"), "caller.py"], tmp_path, server) == wanted
    finally:
        worker.terminate()
        worker.wait(60)


def test_functions_are_triggered(programs: Path, server: Server, tmp_path: Path) -> None:
    wanted = files_of("use-triggers.md", tmp_path)
    assert said_by([str(programs / "python"), "functions.py"], tmp_path, server) == wanted


WITHOUT_A_CONTAINER = """
import testcontainers.core.container
from azure.servicebus import ServiceBusClient, ServiceBusMessage

testcontainers.core.container.DockerClient = lambda **options: None
from busway_container import PORT, BuswayContainer

container = BuswayContainer()
print(" ".join(f"{name}={value}" for name, value in container.env.items()), flush=True)
port = int(input())
container.get_container_host_ip = lambda: "localhost"
container.get_exposed_port = lambda inner: {PORT: port}[inner]
container.wait_until_healthy()
with ServiceBusClient.from_connection_string(container.connection_string) as client:
    with client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("x"))
print("sent")
"""


def test_a_container_without_docker(programs: Path, tmp_path: Path) -> None:
    """All but the container: what it is told starts a server, which the module then reaches."""
    text = (ROOT / "docs" / "how-to" / "use-testcontainers.md").read_text()
    (module,) = re.findall(r"```python\n(import secrets\n.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (tmp_path / "busway_container.py").write_text(module)
    client = subprocess.Popen(
        [str(programs / "python"), "-c", WITHOUT_A_CONTAINER],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert client.stdin is not None
    assert client.stdout is not None
    variables = dict(each.split("=", 1) for each in client.stdout.readline().split())
    assert set(variables) == {
        "BUSWAY_EMULATOR",
        "BUSWAY_MEMORY",
        "BUSWAY_ALLOW_CLOCK",
        "BUSWAY_KEY",
    }
    with Server("orders", environment=variables) as server:
        said, _ = client.communicate(f"{server.port}\n", timeout=RUN_S)
        assert said == "sent\n"
        assert "--allow-clock" in server.log
