"""Quick starts are run as their pages tell: files, commands and output are taken from there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from busway.testing import Server

ROOT = Path(__file__).parents[2]
RUN_S = 600
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
FILE = re.compile(r"`([\w./]+\.\w+)`:\n+```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)

PAGES = {
    "use-the-javascript-sdk.md": ["node", "npm"],
    "use-the-java-sdk.md": ["java", "mvn"],
    "use-the-go-sdk.md": ["go"],
    "use-spring-jms.md": ["java", "mvn"],
}


@pytest.mark.parametrize("page", PAGES)
def test_a_quick_start_does_what_its_page_says(page: str, tmp_path: Path) -> None:
    for program in PAGES[page]:
        if shutil.which(program) is None:
            pytest.skip(f"{program} not found")
    text = (ROOT / "docs" / "how-to" / page).read_text()
    section = text.split("## Quick start\n")[1].split("\n## ")[0]
    files = FILE.findall(section)
    assert files, "the page has no file to run"
    for name, content in files:
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
    blocks = BLOCK.findall(section)
    commands = [
        line
        for kind, content in blocks
        if kind == "sh"
        for line in content.splitlines()
        if not line.startswith("export BUSWAY_CONNECTION_STRING=")
    ]
    (wanted,) = (content for kind, content in blocks if kind == "text")
    said = ""
    tour = (ROOT / "examples" / "tour.toml").read_text()
    with Server(config=tour) as server:
        environment = {**os.environ, "BUSWAY_CONNECTION_STRING": server.connection_string}
        for command in commands:
            done = subprocess.run(
                command,
                shell=True,
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=RUN_S,
                check=False,
            )
            assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
            said = COLOURS.sub("", done.stdout)
    assert said == wanted
