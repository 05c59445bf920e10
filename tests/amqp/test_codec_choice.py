"""Which codec runs: the compiled one where it was built, the reference everywhere else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.amqp.codecs_at_hand import CODECS

ROOT = Path(__file__).parents[2]
PRINT_CHOICE = "from busway.amqp import codec; print(codec.IMPLEMENTATION, codec.encode_value(5))"


def run(*arguments: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_the_reference_runs_when_it_is_asked_for() -> None:
    outcome = run("-c", PRINT_CHOICE, BUSWAY_CODEC="pure")
    assert outcome.stdout == "pure b'U\\x05'\n"


def test_the_compiled_codec_runs_where_it_was_built() -> None:
    outcome = run("-c", PRINT_CHOICE, BUSWAY_CODEC="")
    assert outcome.stdout == f"{'cython' if 'cython' in CODECS else 'pure'} b'U\\x05'\n"


def test_the_package_is_built_and_runs_without_a_compiler(tmp_path: Path) -> None:
    pytest.importorskip("Cython")
    nowhere = str(tmp_path / "no-such-compiler")
    outcome = run(
        "setup.py",
        *("--quiet", "build", "--build-base", str(tmp_path / "work")),
        *("--build-lib", str(tmp_path / "lib")),
        CC=nowhere,
        CXX=nowhere,
    )
    assert outcome.returncode == 0, outcome.stderr
    assert "pure" in outcome.stderr
    assert not list((tmp_path / "lib").rglob("_fast*.so"))
    outcome = run(
        "-c",
        PRINT_CHOICE + "; print(codec.__file__)",
        cwd=tmp_path,
        PYTHONPATH=str(tmp_path / "lib"),
        BUSWAY_CODEC="",
    )
    assert outcome.stdout.splitlines()[0] == "pure b'U\\x05'", outcome.stderr
    assert str(tmp_path) in outcome.stdout
