"""What holds on one event loop must hold on the other that a node may run on."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from importlib.util import find_spec
from typing import Any

import pytest

from busway.runtime import listener
from busway.runtime.certificates import CertificateFolder
from tests.runtime.played import Port


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "limits(**values): those of the port of a test")


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    factories: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
        "asyncio": asyncio.new_event_loop
    }
    if find_spec("uvloop") is not None:
        import uvloop

        factories["uvloop"] = uvloop.new_event_loop
    return factories


@pytest.fixture
def quick_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "TICK_MS", 5)


@pytest.fixture
async def open_port() -> AsyncIterator[Callable[..., Port]]:
    ports: list[Port] = []

    def make(**options: Any) -> Port:
        ports.append(Port(**options))
        return ports[-1]

    yield make
    for port in ports:
        await port.listener.close("amqp:connection:forced", "the test is over", wait_s=0)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> CertificateFolder:
    """As `busway cert` makes them."""
    files = CertificateFolder(tmp_path_factory.mktemp("tls"))
    files.make([])
    return files


@pytest.fixture(scope="session")
def trusting(certificates: CertificateFolder) -> ssl.SSLContext:
    """A client that trusts them."""
    return ssl.create_default_context(cafile=certificates.authority)
