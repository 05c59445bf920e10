"""The how-to for the command line: every command in its blocks is run, in their order."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.manage.conftest import Line

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "manage-from-the-command-line.md"
NOT_HERE = ("export ", "eval ")
"""They are about a shell, and have tests of their own."""


def blocks() -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_the_page_does_what_it_says(line: Line, tmp_path: Path) -> None:
    """In this process: another one for each command would take most of the time."""
    commands = [
        each for block in blocks() for each in block.splitlines() if not each.startswith(NOT_HERE)
    ]
    assert len(commands) > 35
    ran = 0
    for command in commands:
        before, _, rest = command.rpartition("busway ")
        stdin = None
        if before:
            assert before == "seq 1000 | "
            stdin = "".join(f"{n + 1}\n" for n in range(1000))
        words, into = re.fullmatch(r"(.*?)(?: >(\S+\.jsonl))?", rest).groups()  # type: ignore[union-attr]
        result = line.type(*_split(words, tmp_path), stdin=stdin)
        assert result.exit_code == 0, (command, result.output)
        if into:
            (tmp_path / into).write_text(result.stdout)
        ran += 1
    assert ran == len(commands)
    assert line.type("queue", "show", "copy").exit_code == 5
    counts = line.told("queue", "show", "orders")["counts"]
    assert (counts["active"], counts["scheduled"], counts["dead_letter"]) == (0, 0, 0)


def _split(words: str, folder: Path) -> list[str]:
    import shlex

    return [str(folder / each) if each.endswith(".jsonl") else each for each in shlex.split(words)]


@pytest.mark.parametrize("line_of_shell", ['eval "$(busway completion bash)"'])
def test_the_lines_for_a_shell_are_understood_by_it(line_of_shell: str) -> None:
    assert line_of_shell in PAGE.read_text()
    script = line_of_shell.replace("busway", f"{sys.executable} -m busway") + "; complete -p busway"
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "_busway_completion" in done.stdout
