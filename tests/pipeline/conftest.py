"""One Spark session for all tests of a worker: starting one takes longer than most tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from busway.pipeline.spark.session import open_session
from busway.remote.connection import VARIABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
# Of this process and of the jobs that tests start: none of them lives long enough to win back what
# the second compiler costs, and several run at once.


@pytest.fixture(autouse=True)
def _own_connection_string() -> Iterator[None]:
    """A command that runs in this process leaves it for Spark's, and not for the next test."""
    before = os.environ.get(VARIABLE)
    yield
    os.environ.pop(VARIABLE, None)
    if before is not None:
        os.environ[VARIABLE] = before


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = open_session("busway tests", "local[2,4]")
    yield session
    session.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spark is slow to start and slow on a loaded machine; a test that hangs is still ended."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.timeout(1800))
