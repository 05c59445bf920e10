"""The how-to for rehearsing an outage, done as it says."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from busway.testing import Server
from tests.http.asking import map_of
from tests.remote.test_commands import ENDED_S, environment, run
from tests.sdk.conftest import wait_until

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "rehearse-an-outage.md"


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def commands(word: str) -> list[list[str]]:
    """The lines of the page that run `busway WORD`, without what is said about them."""
    lines = re.findall(rf"^busway ({word} .*?)(?:  +#.*)?$", PAGE.read_text(), re.MULTILINE)
    return [line.split() for line in lines]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    (arguments,) = commands("serve")
    stores = arguments.index("--stores")
    flags = [*arguments[stores : stores + 2], "--allow-faults"]
    assert "--allow-faults" in arguments
    with Server(config=block("toml"), arguments=flags) as server:
        yield server


@contextmanager
def load(server: Server, folder: Path, *arguments: str) -> Iterator[Path]:
    """The page's program while it runs; what it prints is in the file."""
    program, said = folder / "load.py", folder / "_".join(["said", *arguments])
    program.write_text(block("python"))
    with said.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, str(program), *arguments],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment(server.connection_string),
        )
        try:
            yield said
        finally:
            process.kill()
            process.wait(ENDED_S)


def wait_for(said: Path, text: str, after: int = 0) -> None:
    """Until the program has printed this; what it printed instead is what one wants to know."""
    try:
        wait_until(lambda: text in said.read_text()[after:], 60)
    except AssertionError:
        pytest.fail(f"no {text!r} in {said.name} after {after}: {said.read_text()!r}")


def test_what_the_loads_see(server: Server, tmp_path: Path) -> None:
    (invoices,) = map_of(server, "?entity=invoices")["entities"]
    gone = invoices["partitions"][0]["store"]
    with (
        load(server, tmp_path, "orders") as unkeyed,
        load(server, tmp_path, "orders", "customer-7") as keyed,
        load(server, tmp_path, "invoices") as conventional,
    ):
        for said in (unkeyed, keyed, conventional):
            wait_for(said, "...")
        assert run(server, "fault", gone, "gone").returncode == 0
        drawn = run(server, "map", "--entity", "orders").stdout
        assert re.search(r"^orders +queue, partitioned +\d+\+ +Limited .*xxxx", drawn, re.MULTILINE)
        later = tmp_path / "later"
        later.mkdir()
        with load(server, later, "invoices") as refused_ones:
            wait_for(refused_ones, "OperationTimeoutError")
        assert run(server, "fault", gone, "none").returncode == 0
        wait_for(conventional, "...", after=len(conventional.read_text()))
        assert "Error" not in unkeyed.read_text()


@pytest.mark.parametrize("arguments", commands("fault"), ids=" ".join)
def test_the_faults_of_the_page_are_understood(server: Server, arguments: list[str]) -> None:
    fault, store, mode, *options = arguments
    if "--for" in options:
        options[options.index("--for") + 1] = "1"
    if "8000" in options:
        options[options.index("8000")] = "80"
    said = run(server, fault, store, mode, *options)
    assert said.returncode == 0, said.stderr
    assert said.stdout.splitlines()[-1] == f"{store}: none, serving"
