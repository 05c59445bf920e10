"""What people get wrong at `busway pipeline`: one sentence that says what to do, and a status."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from busway.cli import app
from busway.pipeline.lake.tables import ALL
from busway.remote.connection import VARIABLE
from busway.testing.server import Server
from tests.http.asking import ask, manager

NOBODY = (
    "Endpoint=sb://localhost:1;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true;"
)
COMMANDS = (
    "capture", "curate", "report", "export", "compact", "tables", "doctor", "replay", "migrate",
)  # fmt: skip
ENDED_S = 120


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server("orders", "quiet") as running:
        yield running


@pytest.fixture
def at_server(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setenv(VARIABLE, server.connection_string)
    return server


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["pipeline", *arguments])


def refused(result: Result) -> str:
    """What it said; nothing else may be on the output, which programs read."""
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    said: str = result.stderr
    assert "Traceback" not in said
    assert "starting Spark" not in said, "Spark takes its time, and this could be said before"
    return said


def captured(server: Server, queue: str) -> bool:
    return ask(server, "GET", f"/{queue}/$journal", token=manager(server)).status == 200


# --- Help ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command: str) -> None:
    assert f"\n    busway pipeline {command}" in invoke(command, "--help").stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_each_default_once(command: str) -> None:
    said = " ".join(invoke(command, "--help").stdout.split())
    assert not re.search(r"\[default: [^]]*\] \[default:", said)


def test_help_names_every_command() -> None:
    said = invoke("--help").stdout
    assert [name for name in COMMANDS if f"\n  {name} " not in said] == []


# --- Entities and servers ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ordres", "Order"])
def test_a_misspelt_entity_is_guessed(at_server: Server, tmp_path: Path, name: str) -> None:
    said = refused(invoke("capture", "--entity", name, "--lake", str(tmp_path / "lake")))
    assert f"There is no queue, topic or subscription '{name}'" in said
    assert "Is it 'orders'?" in said


def test_one_that_is_like_no_other_is_not(at_server: Server, tmp_path: Path) -> None:
    said = refused(invoke("capture", "--entity", "zebra", "--lake", str(tmp_path)))
    assert "'zebra'" in said
    assert "Is it" not in said


def test_a_wrong_key_is_said_so(server: Server, tmp_path: Path) -> None:
    wrong = server.connection_string.replace("SharedAccessKey=", "SharedAccessKey=x")
    arguments = ["--entity", "orders", "--lake", str(tmp_path), "--connection-string", wrong]
    assert "does not let this key read" in refused(invoke("capture", *arguments))


def test_a_server_that_is_not_there_is_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("busway.pipeline.jobs.capture_watch.FIRST_PATIENCE_S", 0.0)
    arguments = ["--entity", "orders", "--lake", str(tmp_path), "--connection-string", NOBODY]
    assert "cannot be reached" in refused(invoke("capture", *arguments))


# --- Lakes ---------------------------------------------------------------------------------------


def test_a_lake_that_cannot_be_written_is_said_before_anything_is_switched(
    at_server: Server, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    said = refused(invoke("capture", "--entity", "quiet", "--lake", str(tmp_path / "file" / "x")))
    assert f"{tmp_path / 'file'} cannot be used: Not a directory." in said
    assert not captured(at_server, "quiet")


@pytest.mark.parametrize(
    "command", [["curate"], ["report"], ["report", "--no-curate"], ["compact"]]
)
def test_a_folder_that_is_no_lake_is_said_so(tmp_path: Path, command: list[str]) -> None:
    said = refused(invoke(*command, "--lake", str(tmp_path)))
    assert f"There is no table 'events' in {tmp_path}" in said
    assert "busway pipeline capture" in said


def test_a_table_that_is_not_made_yet_is_said_so(tmp_path: Path) -> None:
    said = refused(invoke("export", "--lake", str(tmp_path), "--out", str(tmp_path / "out")))
    assert "has no table 'messages' yet" in said
    assert "busway pipeline curate" in said


def test_a_table_that_is_broken_is_said_in_one_line(tmp_path: Path) -> None:
    log = tmp_path / "events" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text("no log")
    said = refused(invoke("compact", "--lake", str(tmp_path), "--table", "events"))
    assert said.startswith("busway: A table of the lake cannot be used: ")
    assert len(said.splitlines()) == 1


# --- What is installed ---------------------------------------------------------------------------


def test_without_java_nothing_is_switched(
    at_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("busway.pipeline.spark.java._of_wheel", lambda: None)
    said = refused(invoke("capture", "--entity", "quiet", "--lake", str(tmp_path)))
    assert "JAVA_HOME names /nowhere" in said
    assert "'make pipeline' in a clone" in said
    assert not captured(at_server, "quiet")


@pytest.mark.parametrize("command", [["compact"], ["curate"], ["report", "--no-curate"]])
def test_a_library_that_is_missing_is_said_with_how_to_get_it(
    tmp_path: Path, command: list[str]
) -> None:
    (tmp_path / "pyarrow.py").write_text("raise ImportError('none', name='pyarrow')\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    ended = subprocess.run(
        [sys.executable, "-m", "busway", "pipeline", *command, "--lake", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=ENDED_S,
        check=False,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "busway: pyarrow is not installed. Run 'make pipeline'" in ended.stderr
    assert "Traceback" not in ended.stderr


# --- For programs --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [["tables"], *(["tables", table.name] for table in ALL), ["doctor"]],
    ids=" ".join,
)
def test_the_summary_is_one_document_and_nothing_else(command: list[str]) -> None:
    assert isinstance(json.loads(invoke(*command, "--json").stdout), dict)
