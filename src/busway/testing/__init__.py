"""What applications put into their own tests: a real server, started and stopped by the test.

    from busway.testing import Server

    with Server("orders") as server:
        client = ServiceBusClient.from_connection_string(server.connection_string)

With pytest, the fixtures `busway` (clean for each test, with a clock) and `busway_server` are there
once Busway is installed (`testing/plugin.py`).
"""

from busway.testing.bus import Bus, Snapshot
from busway.testing.clock import Clock
from busway.testing.requests import RequestError
from busway.testing.server import Server, ServerError

__all__ = ["Bus", "Clock", "RequestError", "Server", "ServerError", "Snapshot"]
