"""A Busway server as a child process: started, stopped, killed and started again by a test.

It is the real program with the real command line, so a test sees what a user sees. Without a data
folder it runs with `--memory` and forgets everything; with one, what was acknowledged is there
again after `kill()` and `restart()`.
"""

from __future__ import annotations

import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

import busway

READY_S = 120.0
"""Generous: a ready server takes well under a second, a loaded machine may not."""
STOP_S = 120.0


class ServerError(Exception):
    """The server did not do what the test asked for; its log is part of the text."""


class Server:
    """`busway serve` with the queues that a test needs, on a free port.

    `queues` are conventional, `partitioned` ones are partitioned; `config` is the text of a
    configuration file with more of both. `arguments` go to the command line as they are.
    """

    def __init__(
        self,
        *queues: str,
        partitioned: Sequence[str] = (),
        config: str = "",
        data: str | os.PathLike[str] | None = None,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.data = None if data is None else Path(data)
        self.port = 0
        """A free one, kept from the first start on."""
        self.connection_string = ""
        self.connection_strings: dict[str, str] = {}
        """Of namespaces beside the default one, by name."""
        self.tls_connection_string = ""
        """For clients that insist on TLS, if `arguments` switch it on."""
        self._config = config + "".join(
            [_queue_table(name, partitioned=False) for name in queues]
            + [_queue_table(name, partitioned=True) for name in partitioned]
        )
        self._arguments = list(arguments)
        self._environment = dict(environment or {})
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[str] | None = None
        self._held: socket.socket | None = None

    # --- its life ----------------------------------------------------------------------------

    def start(self) -> Server:
        """Start it and wait until it is ready."""
        if self._process is not None and self._process.poll() is None:
            raise ServerError("the server is already running")
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="busway-test-")
        self._hold_a_port()
        folder = Path(self._folder.name)
        (folder / "busway.toml").write_text(self._config)
        with (folder / "log").open("a") as log:
            self._process = subprocess.Popen(
                self.command,
                stdout=subprocess.PIPE,
                stderr=log,
                stdin=subprocess.DEVNULL,
                text=True,
                env=self._child_environment(),
            )
        self._wait_until_ready(self._process)
        return self

    def stop(self) -> int:
        """Ask it to stop (SIGTERM), wait until it has; its exit status."""
        process = self.process
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise self._error("the server did not stop") from None

    def kill(self) -> None:
        """End it at once, as a crash would (SIGKILL)."""
        process = self.process
        process.kill()
        process.wait()

    def restart(self) -> Server:
        """Start it again on the same port and data, after stopping it if it still runs."""
        if self._process is not None and self._process.poll() is None:
            self.stop()
        return self.start()

    def close(self) -> None:
        """End it if it still runs, and remove its temporary files."""
        if self._process is not None and self._process.poll() is None:
            self.stop()
        if self._held is not None:
            self._held.close()
            self._held = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # --- what a test may look at -------------------------------------------------------------

    @property
    def command(self) -> list[str]:
        """The command line; a test may run it again to see it refused."""
        assert self._folder is not None, "start it first"
        where = ["--memory"] if self.data is None else ["--data", str(self.data)]
        config = str(Path(self._folder.name, "busway.toml"))
        # This port takes everything, and the usual ones may be another server's.
        others = ("--http-port", "--tls-port", "--https-port")
        ports = ["--port", str(self.port), *(word for flag in others for word in (flag, "off"))]
        shown = ["--print-connection-string"]
        options = [*where, *ports, *shown, "--config", config, *self._arguments]
        return [sys.executable, "-m", "busway", "serve", *options]

    @property
    def process(self) -> subprocess.Popen[str]:
        """The running process, for tests that signal it themselves."""
        if self._process is None or self._process.poll() is not None:
            raise self._error("the server is not running")
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """Everything it has written to standard error, over all its starts."""
        return "" if self._folder is None else Path(self._folder.name, "log").read_text()

    # --- how it is done ----------------------------------------------------------------------

    def _hold_a_port(self) -> None:
        """Keep others from taking the port while the server is down.

        Linux gives nobody a port that a socket is bound to, and lets who names it listen there as
        long as that socket does not. Elsewhere the server finds one by itself.
        """
        if sys.platform != "linux" or self._held is not None:
            return
        held = socket.socket()
        try:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.bind(("127.0.0.1", self.port))
        except OSError:
            held.close()
            raise
        self._held = held
        self.port = int(held.getsockname()[1])

    def _child_environment(self) -> dict[str, str]:
        """The test's own, without settings for some other server, and with this very Busway."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("BUSWAY_")}
        if codec := os.environ.get("BUSWAY_CODEC"):
            inherited["BUSWAY_CODEC"] = codec
        source = str(Path(busway.__file__).parent.parent)
        paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
        return {**inherited, "PYTHONPATH": os.pathsep.join(paths), **self._environment}

    def _wait_until_ready(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=_read_lines, args=(process.stdout, lines), daemon=True).start()
        while True:
            try:
                line = lines.get(timeout=READY_S)
            except queue.Empty:
                process.kill()
                process.wait()
                raise self._error(f"the server was not ready within {READY_S:.0f} s") from None
            if line is None:
                raise self._error(f"the server ended with status {process.wait()}")
            if line.startswith("Endpoint=") and "UseDevelopmentEmulator=true" in line:
                self.connection_string = line
                self.port = _port_of(line)
            elif line.startswith("Endpoint="):
                self.tls_connection_string = line
            elif line.startswith("namespace "):
                name, _, text = line.removeprefix("namespace ").partition(": ")
                self.connection_strings[name] = text
            elif line.startswith("ready"):
                return

    def _error(self, text: str) -> ServerError:
        return ServerError(f"{text}\n{self.log}".rstrip())


def _read_lines(output: IO[str], lines: queue.SimpleQueue[str | None]) -> None:
    with output:
        for line in output:
            lines.put(line.rstrip("\n"))
    lines.put(None)


def _port_of(connection_string: str) -> int:
    endpoint = connection_string.removeprefix("Endpoint=").partition(";")[0]
    return int(endpoint.rstrip("/").rpartition(":")[2])


def _queue_table(name: str, *, partitioned: bool) -> str:
    return f'[[queues]]\nname = "{name}"\npartitioned = {str(partitioned).lower()}\n\n'
