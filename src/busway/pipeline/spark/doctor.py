"""What the pipeline needs, what of it is there, and how to get the rest."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata

from busway.pipeline.spark import java
from busway.remote import connection

PACKAGES = {
    "pyspark": "runs the jobs",
    "pyarrow": "carries rows between the broker, Python and Spark",
    "pandas": "is needed by PySpark's Arrow functions",
    "deltalake": "commits the tables of a lake",
}
HOW_TO_GET_PACKAGES = (
    "Run 'make pipeline' in a clone of Busway, or pip install '/path/to/the/clone[pipeline]'."
)
PYTHON_MIN = (3, 11)


@dataclass(frozen=True, slots=True)
class Finding:
    what: str
    well: bool
    told: str
    needed: bool = True
    """Whether jobs cannot run without it."""


def examine(environ: Mapping[str, str]) -> list[Finding]:
    findings = [_python()]
    findings += [_package(name, use) for name, use in PACKAGES.items()]
    findings.append(_java(environ))
    findings.append(_connection(environ))
    return findings


def _python() -> Finding:
    version = platform.python_version()
    well = tuple(map(int, platform.python_version_tuple()[:2])) >= PYTHON_MIN
    return Finding("python", well, version if well else f"{version}, and 3.11 is needed")


def _package(name: str, use: str) -> Finding:
    try:
        return Finding(name, True, metadata.version(name))
    except metadata.PackageNotFoundError:
        return Finding(name, False, f"not installed; it {use}. {HOW_TO_GET_PACKAGES}")


def _java(environ: Mapping[str, str]) -> Finding:
    try:
        found = java.find(environ, java.cache_folder(environ))
    except java.JavaError as error:
        return Finding("java", False, str(error))
    note = "" if found.version <= java.VERSION_MAX_TRIED else ", newer than what was tried"
    return Finding("java", True, f"{found.version} by {found.found_by}: {found.home}{note}")


def _connection(environ: Mapping[str, str]) -> Finding:
    """Never the string itself: it has a key in it."""
    if not environ.get(connection.VARIABLE):
        told = f"{connection.VARIABLE} is not set; give --connection-string to commands instead"
        return Finding("broker", False, told, needed=False)
    try:
        credentials = connection.read(environ[connection.VARIABLE])
    except connection.ConnectionStringError as error:
        return Finding("broker", False, f"{connection.VARIABLE}: {error}", needed=False)
    return Finding("broker", True, f"{credentials.endpoint}, as {credentials.rule}", needed=False)
