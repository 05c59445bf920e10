"""Every command that a page tells its reader to type is one: a renamed option fails here."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from busway.cli import app

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```[a-z-]*\n(.*?)^```$|^((?:    .*\n)+)", re.MULTILINE | re.DOTALL)
IN_LINE = re.compile(r"`((?:busway|make)\s[^`]+)`")
COMMAND = re.compile(r"^\s*(?:\$ )?(?:[A-Z_]+=\S+ )*((?:busway|make) .*)$")
COMMANDS = get_command(app)
"""Made once: for each call anew would be most of the time of these tests."""
PLACEHOLDERS = re.compile(r"\.\.\.|…|\[")
"""What stands for something else: such a command is not one to type."""


def typed(page: Path) -> Iterator[str]:
    """What stands in blocks to be typed, one command each; and in sentences."""
    text = page.read_text(encoding="utf-8")
    for block in BLOCK.finditer(text):
        lines = (block[1] or block[2]).replace("\\\n", " ").splitlines()
        for line in lines:
            if found := COMMAND.match(line):
                yield found[1]
    for found in IN_LINE.finditer(BLOCK.sub("", text)):
        yield re.sub(r"\s+", " ", found[1])


def commands_of(page: Path, program: str) -> list[list[str]]:
    said = (each for each in typed(page) if not PLACEHOLDERS.search(each))
    split = (shlex.split(each, comments=True) for each in said)
    return [words[1:] for words in split if words[0] == program]


def objection(words: list[str]) -> str:
    """What the command line has against them; nothing is run, because help comes first."""
    with patch("typer.testing._get_command", lambda app: COMMANDS):
        result = CliRunner().invoke(app, [*words, "--help"])
    return "" if result.exit_code == 0 else result.output


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_busway_are_there(page: Path) -> None:
    for words in commands_of(page, "busway"):
        assert not objection(words), words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_targets_of_make_are_there(page: Path) -> None:
    targets = re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for words in commands_of(page, "make"):
        named = [word for word in words if "=" not in word and not word.startswith("-")]
        assert set(named) <= set(targets)


@pytest.mark.parametrize(
    "page",
    [
        ROOT / "README.md",
        *(
            page
            for page in sorted((ROOT / "docs" / "how-to").glob("*.md"))
            if commands_of(page, "busway")
        ),
    ],
    ids=lambda page: page.name,
)
def test_who_is_to_type_busway_is_told_where_it_is(page: Path) -> None:
    """Nobody publishes it yet: it is in the environment of a clone."""
    first = re.search(r"^\s*(?:\$ )?busway \w", page.read_text(), re.MULTILINE)
    told = page.read_text().find(".venv/bin/activate")
    assert first is None or 0 <= told < first.start()


@pytest.mark.parametrize(
    "wrong", ["capture orders --retension 3d", "pipeline captur", "pipeline curate --leak x"]
)
def test_a_command_that_is_none_is_found_out(wrong: str) -> None:
    assert "No such" in objection(shlex.split(wrong))


def test_pages_are_read_for_what_is_typed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    block = "```sh\n$ A=b busway serve \\\n  --tls  # so\nls\n```"
    page.write_text(f"Say `busway\nmap` or:\n\n{block}\n\n    make x\n")
    assert commands_of(page, "busway") == [["serve", "--tls"], ["map"]]
    assert commands_of(page, "make") == [["x"]]
