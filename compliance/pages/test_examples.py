"""The example projects in other languages run their own tests, with this very Busway."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
RUN_S = 600
BUSWAY = {"BUSWAY": str(Path(sys.executable).with_name("busway"))}


def run(folder: Path, *command: str) -> str:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} not found")
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **BUSWAY},
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def copied(name: str, tmp_path: Path) -> Path:
    """What is installed or built does not stay in the tree."""
    left_out = shutil.ignore_patterns("node_modules", "target")
    return Path(shutil.copytree(EXAMPLES / name, tmp_path / name, ignore=left_out))


def test_with_nodes_test_runner(tmp_path: Path) -> None:
    folder = copied("node-test", tmp_path)
    run(folder, "npm", "ci", "--no-audit", "--no-fund")
    said = run(folder, "npm", "test")
    assert re.search(r"pass 4\b", said)


def test_with_junit(tmp_path: Path) -> None:
    folder = copied("junit", tmp_path)
    run(folder, "mvn", "--batch-mode", "test")
    reports = [each.read_text() for each in folder.glob("target/surefire-reports/TEST-*.xml")]
    assert sum(report.count("<testcase") for report in reports) == 4
