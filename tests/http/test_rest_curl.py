"""The page about curl, copied line by line: what it says must be what happens."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from busway.testing import Server

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "how-to" / "rest.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")


class Shell:
    """A terminal: what is exported or assigned in one block is there in the next."""

    END = "--- the end of a block ---"

    def __init__(self, folder: Path) -> None:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        plain = {k: v for k, v in os.environ.items() if not k.startswith("BUSWAY_")}
        self._process = subprocess.Popen(
            ["sh"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
            env={**plain, "PATH": path, "PYTHONPATH": str(ROOT / "src")},
        )

    def run(self, block: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{block}\necho '{self.END}'\n")
        self._process.stdin.flush()
        lines: list[str] = []
        for line in self._process.stdout:
            if line.rstrip("\n") == self.END:
                break
            lines.append(line)
        return "".join(lines)

    def close(self) -> None:
        self._process.communicate("exit\n", timeout=120)


@needs_curl
def test_the_page_works_as_it_is_written(tmp_path: Path) -> None:
    config = (ROOT / "examples" / "tour.toml").read_text()
    with Server(config=config, data=tmp_path / "data") as server:
        shell = Shell(tmp_path)
        said = ""
        for language, text in BLOCKS:
            if language == "text":
                assert said == text
            elif not text.startswith("busway serve"):
                said = shell.run(text.replace(":5300", f":{server.port}"))
        shell.close()


def test_the_page_shows_what_comes_back() -> None:
    """Also where it cannot be run: a block of output for nearly every block of commands."""
    languages = [language for language, _ in BLOCKS]
    assert set(languages) == {"sh", "text"}
    assert languages.count("text") >= languages.count("sh") - 2
