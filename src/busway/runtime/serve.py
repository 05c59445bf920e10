"""From the command line to a running node and back to an exit status.

This file owns what belongs to the process and not to a node: the event loop, signals, limits of the
system, and what is printed for the one who started it.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable

from busway import __version__
from busway.amqp import codec
from busway.config import Configuration
from busway.model.names import is_loopback
from busway.runtime import logs
from busway.runtime.data_folder import StartError
from busway.runtime.node import FIXED_PORTS, Node

log = logging.getLogger(__name__)

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
STOPPED_AT_ONCE = 1
GARBAGE_OBJECTS = 10_000
"""New objects after which Python looks for cycles. Its default, 700, is less than a read chunk."""


def run(configuration: Configuration) -> int:
    """Serve until told to stop; the exit status. Raises `StartError` if it cannot start."""
    raise_file_limit()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(serve(configuration))


async def serve(configuration: Configuration) -> int:
    node = Node(configuration)
    stop = asyncio.Event()
    watch_signals(stop, Reloading(node).again)
    log.info("busway %s starts: codec %s, loop %s", __version__, codec.IMPLEMENTATION, loop_name())
    try:
        await node.start()
    except StartError:
        await node.stop()
        raise
    rest_garbage_collection()
    announce(node)
    warn_of_open_doors(node)
    if configuration.settings.allow_faults:
        log.warning("--allow-faults: whoever may manage can make the stores slow, ill or gone")
    if configuration.settings.allow_clock:
        log.warning("--allow-clock: whoever may manage can move the clock, and delete everything")
    await stop.wait()
    log.info("stopping: finishing what is in flight; a second signal ends it at once")
    await node.stop()
    log.info("stopped")
    return 0


def warn_of_open_doors(node: Node) -> None:
    """What is meant for development, and lets in more people than a broker should."""
    settings = node.settings
    if settings.emulator:
        file = settings.config or "none: start it where Config.json is, or set CONFIG_PATH"
        log.info("--emulator: configuration file: %s", file)
    if settings.emulator and settings.key is None and settings.key_file is None:
        reach = "on this machine" if is_loopback(settings.host) else "in the NETWORK"
        log.warning(
            "--emulator: the key is the public one of Microsoft's emulator, so everybody %s can "
            "read, write and delete everything here; --key sets another one",
            reach,
        )
    if settings.dev_tokens:
        log.warning(
            "--dev-tokens: applications on this machine that know the secret of 'busway env' get "
            "tokens for everything here; for development only"
        )


def announce(node: Node) -> None:
    """For scripts as well: the connection string first, and a last line that begins with `ready`.

    With TLS, between them, the one for clients that are to use it, and one for clients that dial
    fixed ports and want a host with a dot; then those of other namespaces.
    They have keys in them. Where nobody looks on and nobody has asked for them, standard output is
    likely to be kept as a log, and a sentence says how to get them.
    """
    settings = node.settings
    if settings.print_connection_string or sys.stdout.isatty():
        first, *others = node.connection_strings.items()
        print(first[1])
        if node.has_tls:
            print(node.tls_connection_strings[first[0]])
            if fixed := node.fixed_ports_connection_string:
                dialled = [str(port) for port in FIXED_PORTS if port in node.ports.opened]
                print(f"for clients that dial {in_words(dialled)}: {fixed}")
        for name, text in others:
            print(f"namespace {name}: {text}")
    elif settings.memory:
        print("connection string: not shown, it has a key; --print-connection-string shows it")
    else:
        print(
            "connection string: not shown, it has a key; "
            f"'busway connection-string {settings.data}' shows it"
        )
    also = [str(port) for port in node.ports.opened if port != node.port]
    print(
        f"ready on {node.settings.host}:{node.port}"
        + (f", also on {in_words(also)}" if also else ""),
        flush=True,
    )


def in_words(names: list[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


class Reloading:
    """What SIGHUP asks for: log files and certificates are read anew, and everybody stays."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._under_way: set[asyncio.Task[None]] = set()

    def again(self) -> None:
        logs.reopen()
        log.info("SIGHUP: log files and certificates are opened anew")
        task = asyncio.create_task(self._node.reload())
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)


def watch_signals(stop: asyncio.Event, reload: Callable[[], None]) -> None:
    def told() -> None:
        if stop.is_set():
            log.warning("ending at once")
            sys.stderr.flush()
            os._exit(STOPPED_AT_ONCE)
        stop.set()

    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, told)
    loop.add_signal_handler(signal.SIGHUP, reload)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """uvloop where it is installed: about a fifth less time per message (measured)."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def loop_name() -> str:
    return "asyncio" if loop_factory() is asyncio.new_event_loop else "uvloop"


def rest_garbage_collection() -> None:
    """Look for cycles less often, and never among what the start has made, which stays for good:
    about a tenth less CPU for a message that is received (measured)."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_OBJECTS, 10, 10)


def raise_file_limit() -> None:
    """5,000 connections (LIM-9) are more files than most systems allow by default."""
    try:
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    except (ImportError, ValueError, OSError) as error:
        log.debug("the limit of open files stays as it is: %s", error)
