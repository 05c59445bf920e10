"""Which ports a node listens on.

All of them take the same (D-32); the others are where clients look that cannot be told of the first
one. A port that somebody asked for must be had. One that nobody asked for is left to whoever has it
already, and with `--port 0`, which is for many brokers on one machine, none of these is opened.
Most users may not listen on 443, so nothing is made of it when that is refused.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
from dataclasses import dataclass

from busway.config import Configuration
from busway.runtime.data_folder import StartError
from busway.runtime.listener import Listener

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    main: int
    http: int | None = None
    """None: no port of its own."""
    tls: int | None = None
    https: int | None = None

    @property
    def opened(self) -> list[int]:
        every = (self.main, self.http, self.tls, self.https)
        return [port for port in every if port is not None]


async def open_ports(listener: Listener, configuration: Configuration, *, has_tls: bool) -> Ports:
    """Raises `StartError` if one that was asked for cannot be had."""
    settings = configuration.settings
    main = await _must_open(listener, settings.host, settings.port, "--port")
    opened = [main]

    async def also(name: str, port: int | None) -> int | None:
        if port is None or (name not in configuration.chosen and settings.port == 0):
            return None
        if port in opened:
            return None  # one port is enough for all
        flag = f"--{name.replace('_', '-')}"
        try:
            opened.append(await _must_open(listener, settings.host, port, flag))
        except StartError as error:
            if name in configuration.chosen:
                raise
            level = logging.DEBUG if name == "https_port" else logging.WARNING
            log.log(level, "%s Going on without: port %d takes the same.", error, main)
            return None
        return opened[-1]

    http = await also("http_port", settings.http_port)
    tls = await also("tls_port", settings.tls_port if has_tls else None)
    https = await also("https_port", settings.https_port if has_tls else None)
    return Ports(main=main, http=http, tls=tls, https=https)


async def _must_open(listener: Listener, address: str, port: int, flag: str) -> int:
    try:
        return await listener.open(address, port)
    except (OSError, OverflowError) as error:
        raise StartError(
            f"Port {port} of {address} cannot be listened on: {reason_of(error)}. "
            f"{_how_to_allow(port, error)}"
            f"Choose another one with {flag}; 0 takes any that is free."
        ) from error


def _how_to_allow(port: int, error: Exception) -> str:
    """Linux keeps the low ports for root, unless it is told otherwise for a program or for all."""
    if getattr(error, "errno", None) != errno.EACCES or sys.platform != "linux":
        return ""
    return (
        f"Allow it to this Python with 'sudo setcap cap_net_bind_service=+ep "
        f"{os.path.realpath(sys.executable)}', or to everybody with "
        f"'sudo sysctl net.ipv4.ip_unprivileged_port_start={port}'. "
    )


def reason_of(error: Exception) -> str:
    """A system error in words."""
    number = getattr(error, "errno", None)
    return os.strerror(number) if number and number > 0 else str(error)
