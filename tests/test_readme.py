"""The README's tour, copied line by line: what it says must be what happens."""

from __future__ import annotations

import io
import re
import subprocess
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from busway.testing import Server

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


class Terminal:
    """Does what a reader does, with a server of its own in place of `make serve`."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.monkeypatch = monkeypatch
        self.python: dict[str, object] = {}
        self.printed = ""
        self.server = Server(
            config=(ROOT / "examples" / "tour.toml").read_text(), data=folder / "data"
        )

    def sh(self, command: str) -> None:
        match command.split():
            case ["make", "serve"]:
                self.server.start()
            case [".", activated]:
                assert f"VENV   := {Path(activated).parts[0]}\n" in (ROOT / "Makefile").read_text()
            case ["pip", "install", requirement]:
                assert requirement in (ROOT / "pyproject.toml").read_text()
            case ["export", assignment]:
                name, _, value = assignment.partition("=")
                assert self.server.connection_string.startswith(value.strip("'").rstrip(".")[:13])
                self.monkeypatch.setenv(name, self.server.connection_string)
            case ["kill", "-9", *_]:
                subprocess.run(["sh", "-c", command], cwd=self.folder, check=True)
                self.server.process.wait()
            case _:
                pytest.fail(f"the tour has a command that this test does not know: {command}")

    def paste(self, code: str) -> None:
        output = io.StringIO()
        with redirect_stdout(output):
            exec(compile(code, "README.md", "exec"), self.python)
        self.printed = output.getvalue()


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path, monkeypatch)
    yield terminal
    terminal.server.close()


def test_the_tour_works_as_it_is_written(terminal: Terminal) -> None:
    for language, text in BLOCKS:
        match language:
            case "sh":
                for command in text.strip().splitlines():
                    terminal.sh(command)
            case "python":
                terminal.paste(text)
            case "text":
                assert terminal.printed == text
    assert {language for language, _ in BLOCKS} == {"sh", "python", "text"}


def test_the_tour_can_be_pasted_into_a_prompt() -> None:
    """An interactive Python ends a block at an empty line: none may stand inside one."""
    for language, text in BLOCKS:
        if language == "python":
            assert not re.search(r"\n\n[ \t]", text)


@pytest.mark.parametrize("page", sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text())
    for target in targets:
        if not target.startswith(("http:", "https:")):
            assert (page.parent / target).exists(), target
