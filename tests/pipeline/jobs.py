"""`busway pipeline ...` as a user starts it: a process with a JVM and Python workers behind it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from busway.remote.connection import VARIABLE
from busway.testing.server import Server

WAIT_S = 600.0
"""For anything that a job does: a loaded machine takes long, a hung job takes for ever."""
LOOK_EVERY_S = 0.5
"""To read a lake costs more than to wait for it."""


class Job:
    """One run. It has a session of its own, so that all of its processes can be found."""

    def __init__(self, log: Path, server: Server | None, command: list[str]) -> None:
        self.log = log
        self._file: IO[str] = log.open("a")
        environment = {k: v for k, v in os.environ.items() if not k.startswith("BUSWAY_")}
        if server is not None:
            environment[VARIABLE] = server.connection_string
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=self._file,
            stdin=subprocess.DEVNULL,
            text=True,
            env=environment,
            start_new_session=True,
        )

    @property
    def told(self) -> str:
        """What it has said so far on the error stream, of all jobs with this log."""
        return self.log.read_text()

    def ended(self, status: int = 0) -> str:
        """Wait for its end; what it printed. `status` is what it must end with."""
        output, _ = self.process.communicate(timeout=WAIT_S)
        self._file.close()
        assert self.process.returncode == status, f"{self.process.returncode}\n{self.told}"
        return output

    def summary(self) -> dict[str, Any]:
        """What it printed with `--json`."""
        told = json.loads(self.ended())
        assert isinstance(told, dict)
        return told

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def kill(self) -> int:
        """`kill -9` of the driver, the JVM and all Python workers; how many there were."""
        found = processes_of_session(self.process.pid)
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._file.close()
        return len(found)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Until it is true. A job that ends before that has failed."""

        def looked() -> bool:
            if condition():
                return True
            assert self.process.poll() is None, f"it has ended\n{self.told}"
            return False

        wait_for(looked)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come to be"
        time.sleep(LOOK_EVERY_S)


def pipeline(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "busway", "pipeline", *arguments]


def java_of(job: Job) -> int:
    """The process that is Spark's JVM."""
    (found,) = (
        pid
        for pid in processes_of_session(job.process.pid)
        if (Path("/proc") / str(pid) / "comm").read_text().strip() == "java"
    )
    return found


def processes_of_session(session: int) -> list[int]:
    """Spark's Python workers leave their parent's process group, but nobody leaves a session."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            text = (entry / "stat").read_text()
        except OSError:
            continue  # it has ended meanwhile
        fields = text.rpartition(")")[2].split()
        if int(fields[3]) == session:
            found.append(int(entry.name))
    return found
