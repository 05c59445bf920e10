"""The laws of the house, read off the source itself (docs/architecture.md).

Imports point down or sideways to the pure packages. Time, randomness, threads and the network
enter in `runtime/` (or `sim/`) and are passed in. Modules can be read in one sitting, and what is
left to do is an issue, not a comment.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "busway"

RINGS = {
    # Pure and dependency-free: they may know each other.
    "amqp": 0,
    "model": 0,
    "filters": 0,
    "store": 1,
    "config": 1,
    "broker": 2,
    "cluster": 2,
    "gateway": 3,
    # Requests to what the gateway knows, as the gateway brings links to it.
    "http": 4,
    # The real machine and the virtual one.
    "runtime": 5,
    "sim": 5,
    # A running server, from outside.
    "remote": 5,
    # Jobs on what it tells.
    "pipeline": 6,
    # Faces.
    "portal": 7,
    "testing": 7,
    "cli": 7,
    "__main__": 8,
}
PURE = 0

PIPELINE_RINGS = {
    # Two neighbours that know nothing of each other: the broker's side, and the lake's.
    "wire": 0,
    "lake": 0,
    "datasource": 1,
    "figures": 1,
    "spark": 2,
    "jobs": 3,
    "commands": 4,
}
"""The rooms within the pipeline."""

OUTSIDE_WORLD = {"runtime", "sim", "remote", "pipeline", "testing", "cli", "__main__"}
"""Packages in which the machine may be touched; everywhere else it is passed in."""

FORBIDDEN_MODULES = {
    "asyncio",  # gateway and broker are callbacks, so that a seed replays (D-35)
    "concurrent",
    "multiprocessing",
    "random",
    "secrets",
    "select",
    "selectors",
    "signal",
    "socket",
    "subprocess",
    "threading",
}

FORBIDDEN_NAMES = {
    "time.time",
    "time.time_ns",
    "time.monotonic",
    "time.monotonic_ns",
    "time.perf_counter",
    "time.perf_counter_ns",
    "time.sleep",
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "datetime.datetime.today",
    "datetime.date.today",
    "uuid.uuid1",
    "uuid.uuid4",
    "os.urandom",
    "os.getrandom",
}

ROOM_EXCEPTIONS: dict[str, set[str]] = {
    # aiohttp's handlers are coroutines; sockets and time are still given to them.
    "http": {"asyncio"},
}

EXCEPTIONS: dict[str, set[str]] = {
    # A store that is told to be slow or to hang does so in its own thread, which is real.
    "store/faults.py": {"time.sleep", "threading"},
    # Files are real too: their locks are taken by threads, their ids are made when they are.
    "store/lockfile.py": {"threading"},
    "store/sqlite.py": {"uuid.uuid4"},
}

MODULE_LINES_MAX = 600

MODULES = sorted(SOURCE.rglob("*.py"))
PIPELINE = sorted((SOURCE / "pipeline").rglob("*.py"))
TEXTS = sorted([*MODULES, *SOURCE.rglob("*.pyx"), *SOURCE.rglob("*.pyi")])


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def room_of(path: Path) -> str:
    """The package (or top-level module) below `busway` that a file belongs to."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_modules(tree: ast.AST, package: list[str]) -> Iterator[str]:
    """Full names of what is imported, wherever in the file; also of each name taken from it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def used_names(tree: ast.AST) -> Iterator[str]:
    """Dotted names as they are used, with imported names written out in full."""
    full: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            full |= {alias.asname: alias.name for alias in node.names if alias.asname}
        elif isinstance(node, ast.ImportFrom) and node.module:
            full |= {
                alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names
            }
    for node in ast.walk(tree):
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.insert(0, node.attr)
            node = node.value
        if isinstance(node, ast.Name):
            yield ".".join([full.get(node.id, node.id), *parts])


def imports_that_point_up(path: Path, source: str) -> list[str]:
    room = room_of(path)
    ring = RINGS.get(room)
    if ring is None:
        return [] if room == "__init__" else [f"{room} has no ring: give it one in RINGS"]
    package = ["busway", *path.relative_to(SOURCE).parts[:-1]]
    wrong = []
    for module in imported_modules(ast.parse(source), package):
        parts = module.split(".")
        if parts[0] != "busway" or len(parts) < 2 or parts[1] not in RINGS or parts[1] == room:
            continue
        target = RINGS[parts[1]]
        if target > ring or (target == ring and ring != PURE):
            wrong.append(f"{room} (ring {ring}) imports {module} (ring {target})")
    return wrong


def rooms_that_point_up(path: Path, source: str) -> list[str]:
    """Within the pipeline, as `imports_that_point_up` within the house."""
    room = path.relative_to(SOURCE / "pipeline").parts[0]
    if room == "__init__.py":
        return []
    ring = PIPELINE_RINGS[room]
    targets = [
        parts[2]
        for parts in (name.split(".") for name in imported_modules(ast.parse(source), []))
        if parts[:2] == ["busway", "pipeline"] and len(parts) > 2 and parts[2] != room
    ]
    return [f"{room} imports {each}" for each in targets if PIPELINE_RINGS[each] >= ring]


def touches_the_machine(path: Path, source: str) -> list[str]:
    if room_of(path) in OUTSIDE_WORLD:
        return []
    tree = ast.parse(source)
    modules = {name.split(".")[0] for name in imported_modules(tree, [])}
    names = set(used_names(tree)) | set(imported_modules(tree, []))
    found = (modules & FORBIDDEN_MODULES) | (names & FORBIDDEN_NAMES)
    allowed = ROOM_EXCEPTIONS.get(room_of(path), set()) | EXCEPTIONS.get(name_of(path), set())
    return sorted(found - allowed)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_point_down(path: Path) -> None:
    assert imports_that_point_up(path, path.read_text()) == []


@pytest.mark.parametrize("path", PIPELINE, ids=name_of)
def test_imports_point_down_in_the_pipeline(path: Path) -> None:
    assert rooms_that_point_up(path, path.read_text()) == []


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_time_randomness_threads_and_network_are_passed_in(path: Path) -> None:
    assert touches_the_machine(path, path.read_text()) == []


@pytest.mark.parametrize("path", TEXTS, ids=name_of)
def test_a_module_can_be_read_in_one_sitting(path: Path) -> None:
    if path.suffix == ".pyx":
        pytest.skip("one compilation unit, so that C calls stay within it")
    assert len(path.read_text().splitlines()) <= MODULE_LINES_MAX


@pytest.mark.parametrize("path", TEXTS, ids=name_of)
def test_what_is_left_to_do_is_an_issue_not_a_comment(path: Path) -> None:
    left = re.findall(r"\b(?:TODO|FIXME|XXX)\b.*", path.read_text())
    assert left == []


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_says_what_it_owns(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text())), "no docstring"


class TestTheJudge:
    """The checks themselves must see what they are there to see."""

    @pytest.mark.parametrize(
        "source",
        [
            "import random",
            "from threading import Lock",
            "import time\nnow = time.time()",
            "from time import time as clock\nnow = clock()",
            "import time as t\nt.sleep(1)",
            "from datetime import datetime\nx = datetime.now()",
            "import datetime as dt\nx = dt.datetime.utcnow()",
            "import datetime\nx = datetime.datetime.now(datetime.UTC)",
            "def f():\n    from uuid import uuid4\n    return uuid4()",
            "import os\nkey = os.urandom(32)",
            "import asyncio",
        ],
    )
    def test_sees_the_machine_being_touched(self, source: str) -> None:
        assert touches_the_machine(SOURCE / "broker" / "x.py", source) != []

    @pytest.mark.parametrize(
        "source",
        ["'''time.time and random are for runtime'''", "import uuid\nuuid.UUID(int=1)", "time = 1"],
    )
    def test_does_not_see_what_is_not_there(self, source: str) -> None:
        assert touches_the_machine(SOURCE / "broker" / "x.py", source) == []

    @pytest.mark.parametrize(
        ("room", "source"),
        [
            ("broker", "from busway.gateway.router import Router"),
            ("store", "from busway.broker import seams"),
            ("amqp", "def f():\n    import busway.store.base"),
            ("store", "from ..broker import seams"),
            ("sim", "from busway.runtime.host import Host"),
        ],
    )
    def test_sees_an_import_that_points_up_or_across(self, room: str, source: str) -> None:
        assert imports_that_point_up(SOURCE / room / "x.py", source) != []

    @pytest.mark.parametrize(
        ("room", "source"),
        [
            ("broker", "from busway.store.base import Batch"),
            ("model", "from busway.amqp.codec import encode_value"),
            ("runtime", "from busway import __version__"),
            ("broker", "from . import seams"),
        ],
    )
    def test_lets_imports_point_down(self, room: str, source: str) -> None:
        assert imports_that_point_up(SOURCE / room / "x.py", source) == []
