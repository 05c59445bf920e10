from __future__ import annotations

from collections.abc import Iterator

import pytest
from azure.servicebus import ServiceBusClient


@pytest.fixture
def client(busway) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(busway.connection_string) as client:
        yield client
