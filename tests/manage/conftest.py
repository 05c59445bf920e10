"""One server for all tests of this room on a worker, and the command line beside it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import pytest
from azure.servicebus import ServiceBusClient
from typer.main import get_command
from typer.testing import CliRunner, Result

from busway.cli import app
from busway.remote.connection import VARIABLE
from busway.testing import Server

COMMANDS = get_command(app)
"""Made once: for each call anew would be most of the time of these tests."""


class Line:
    """The command line, typed at one server."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.connection_string = server.connection_string

    def type(self, *words: str, stdin: bytes | str | None = None, by: str | None = None) -> Result:
        with patch("typer.testing._get_command", lambda app: COMMANDS):
            return CliRunner().invoke(
                app, list(words), input=stdin, env={VARIABLE: by or self.connection_string}
            )

    def said(self, *words: str, stdin: bytes | str | None = None, by: str | None = None) -> str:
        """What a command that does well has printed."""
        result = self.type(*words, stdin=stdin, by=by)
        assert result.exit_code == 0, result.output
        output: str = result.stdout
        return output

    def told(self, *words: str, **more: Any) -> Any:
        return json.loads(self.said(*words, "--json", **more))

    def lines(self, *words: str, **more: Any) -> list[dict[str, Any]]:
        return [json.loads(each) for each in self.said(*words, "--json", **more).splitlines()]

    def refused(self, status: int, *words: str, by: str | None = None) -> str:
        """The one sentence of a command that ends with this status."""
        result = self.type(*words, by=by)
        assert result.exit_code == status, result.output
        assert "Traceback" not in result.output
        said: str = result.stderr
        assert said.startswith("busway: ")
        assert said.count("busway: ") == 1
        return said

    def client(self) -> ServiceBusClient:
        return ServiceBusClient.from_connection_string(self.connection_string)


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    data: Path = tmp_path_factory.mktemp("data")
    with Server(data=data / "data") as server:
        yield Line(server)


@pytest.fixture
def new(line: Line) -> Callable[..., str]:
    """Makes a queue of a name that no other test has; with the words of `busway queue create`."""

    def make(*options: str) -> str:
        name = f"q-{uuid4().hex[:12]}"
        line.said("queue", "create", name, *options)
        return name

    return make
