"""Object stores on this machine: real servers from the registries, started by tests.

`outage` cuts a store off: connections are refused for a while, and those that are open break. The
server behind it goes on, because it keeps what it has in memory.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.error import URLError

BUCKET = "lakes"
START_S = 120.0
SECRET = "a-secret-that-nobody-may-see"


@dataclass(slots=True)
class ObjectStore:
    lake: str
    environ: dict[str, str]
    door: Door


class Door:
    """Forwards connections to a port of this machine, as long as it is open. A process of its own:
    who waits for a store may hold up the threads of this one."""

    def __init__(self, port: int) -> None:
        self._behind = port
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self._process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.pipeline.object_stores",
                str(self.port),
                str(self._behind),
            ]
        )

    def shut(self) -> None:
        self._process.kill()
        self._process.wait()

    def reopen(self) -> None:
        self._process = self._started()


class Forwarder:
    def __init__(self, port: int, behind: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", port))
        self._behind = behind

    def run(self) -> None:
        while True:
            inward, _ = self._listener.accept()
            outward = socket.create_connection(("127.0.0.1", self._behind))
            for one, other in ((inward, outward), (outward, inward)):
                threading.Thread(target=_carry, args=(one, other), daemon=True).start()


def _carry(one: socket.socket, other: socket.socket) -> None:
    try:
        while data := one.recv(65536):
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)
    except OSError as problem:
        print(f"door: {problem}", file=sys.stderr)
        one.close()
        other.close()


@contextmanager
def s3() -> Iterator[ObjectStore]:
    """Amazon's, as moto plays it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    door = Door(port)
    try:
        _await(f"http://127.0.0.1:{port}/moto-api/")
        _await(f"http://127.0.0.1:{door.port}/moto-api/")
        request = urllib.request.Request(f"http://127.0.0.1:{port}/{BUCKET}", method="PUT")
        urllib.request.urlopen(request, timeout=START_S).close()
        yield ObjectStore(
            f"s3://{BUCKET}/lake",
            {
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{door.port}",
                "AWS_ACCESS_KEY_ID": "somebody",
                "AWS_SECRET_ACCESS_KEY": SECRET,
                "AWS_REGION": "us-east-1",
            },
            door,
        )
    finally:
        door.shut()
        server.kill()
        server.wait()


def _await(url: str) -> None:
    until = time.monotonic() + START_S
    while True:
        try:
            urllib.request.urlopen(url, timeout=START_S).close()
            return
        except (URLError, OSError):
            assert time.monotonic() < until, f"nobody answers at {url}"
            time.sleep(0.2)


@contextmanager
def environment(variables: dict[str, str]) -> Iterator[None]:
    """Of this process, and of those that it starts."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


if __name__ == "__main__":
    Forwarder(int(sys.argv[1]), int(sys.argv[2])).run()
