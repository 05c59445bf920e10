"""Nobody is told to install a package of this name from PyPI, where it would be somebody else's."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PIP = re.compile(r"\bpip\S* (?:install|download|wheel)\b[^`\n]*|\b(?:pipx|uvx|uv tool) \w+[^`\n]*")
FROM_PYPI = re.compile(
    r"""(?:^|[\s'"])busway(?:\[[\w,-]*\])?(?:[=~<>!]=?[\w.]+)?(?=$|[\s'".,;)])"""
)
"""The bare name, as pip would look it up; not a path, not part of another name."""


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:  # a tree without its history
        found = [each for each in ROOT.rglob("*") if ".venv" not in each.parts]
    else:
        found = [ROOT / name for name in listed.stdout.splitlines()]
    kinds = {".md", ".py", ".toml", ".txt", ".yml", ".yaml", ".service", ".js", ".html", ".sh", ""}
    return [each for each in found if each.suffix in kinds and each.is_file()]


def told_to_install(text: str) -> list[str]:
    return [line[0] for line in PIP.finditer(text) if FROM_PYPI.search(line[0])]


def test_no_page_and_no_text_says_to_install_it_from_pypi() -> None:
    found = {}
    for path in tracked():
        if path == Path(__file__):
            continue
        told = told_to_install(path.read_text(encoding="utf-8", errors="replace"))
        if told:
            found[str(path.relative_to(ROOT))] = told
    assert found == {}


def test_no_project_depends_on_it_by_name() -> None:
    """But its own extras on each other."""
    for path in tracked():
        if path.name.startswith("requirements") or (
            path.name == "pyproject.toml" and path.parent != ROOT
        ):
            assert not re.search(r"""^\s*["']?busway\b""", path.read_text(), re.MULTILINE), path


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("pip install busway", True),
        ("pip install 'busway[pipeline]'.", True),
        ("pip install azure-servicebus busway==0.1.0", True),
        ("pipx install busway", True),
        ("pip install -e /path/to/busway", False),
        ("pip install '/path/to/the/clone[pipeline]'", False),
        ("pip install -e '.[otel]'", False),
        ("pip install azure-servicebus", False),
        ("`pip install -e .`, and busway is there", False),
    ],
)
def test_what_counts_as_telling(text: str, told: bool) -> None:
    assert bool(told_to_install(text)) is told


def test_setting_up_says_what_it_does() -> None:
    """The steps of 'make serve' in a fresh clone, as make would run them."""
    steps = subprocess.run(
        ["make", "-n", "-B", "serve", "VENV=/nowhere/venv"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    told = re.findall(r'echo "(\d of \d)', steps)
    assert told == ["1 of 3", "2 of 3", "3 of 3"]
    assert steps.index("making /nowhere/venv") < steps.index("1 of 3") < steps.index("busway serve")
