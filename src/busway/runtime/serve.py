"""From the command line to a running node and back to an exit status.

This file owns what belongs to the process and not to a node: the event loop, signals, limits of the
system, and what is printed for the one who started it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable

from busway import __version__
from busway.amqp import codec
from busway.config import Configuration
from busway.runtime.data_folder import StartError
from busway.runtime.node import Node

log = logging.getLogger(__name__)

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
STOPPED_AT_ONCE = 1


def run(configuration: Configuration) -> int:
    """Serve until told to stop; the exit status. Raises `StartError` if it cannot start."""
    raise_file_limit()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(serve(configuration))


async def serve(configuration: Configuration) -> int:
    node = Node(configuration)
    stop = asyncio.Event()
    watch_signals(stop)
    log.info("busway %s starts: codec %s, loop %s", __version__, codec.IMPLEMENTATION, loop_name())
    try:
        await node.start()
    except StartError:
        await node.stop()
        raise
    announce(node)
    if configuration.settings.allow_faults:
        log.warning("--allow-faults: whoever may manage can make the stores slow, ill or gone")
    await stop.wait()
    log.info("stopping: finishing what is in flight; a second signal ends it at once")
    await node.stop()
    log.info("stopped")
    return 0


def announce(node: Node) -> None:
    """For scripts as well: the connection string first, and a last line that begins with `ready`.

    With TLS, between them, the one for clients that are to use it; then those of other namespaces.
    """
    first, *others = node.connection_strings.items()
    print(first[1])
    if node.has_tls:
        print(node.tls_connection_strings[first[0]])
    for name, text in others:
        print(f"namespace {name}: {text}")
    also = [str(port) for port in (node.ports.http, node.ports.tls) if port is not None]
    print(
        f"ready on {node.settings.host}:{node.port}"
        + (f", also on {' and '.join(also)}" if also else ""),
        flush=True,
    )


def watch_signals(stop: asyncio.Event) -> None:
    def told() -> None:
        if stop.is_set():
            log.warning("ending at once")
            sys.stderr.flush()
            os._exit(STOPPED_AT_ONCE)
        stop.set()

    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, told)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """uvloop where it is installed: about a fifth less time per message (measured)."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def loop_name() -> str:
    return "asyncio" if loop_factory() is asyncio.new_event_loop else "uvloop"


def raise_file_limit() -> None:
    """5,000 connections (LIM-9) are more files than most systems allow by default."""
    try:
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    except (ImportError, ValueError, OSError) as error:
        log.debug("the limit of open files stays as it is: %s", error)
