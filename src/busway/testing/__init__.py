"""What applications put into their own tests: a real server, started and stopped by the test.

    from busway.testing import Server

    with Server("orders") as server:
        client = ServiceBusClient.from_connection_string(server.connection_string)

With pytest, the fixture `busway_server` is there once Busway is installed (`testing/plugin.py`).
"""

from busway.testing.server import Server, ServerError

__all__ = ["Server", "ServerError"]
