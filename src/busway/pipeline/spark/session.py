"""A Spark session, set up so that jobs run the same on a laptop and on a cluster.

Each setting here has cost somebody a day; the reasons stand beside them. What the user gives with
`--master` and `--conf` goes before all of it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from busway.pipeline.spark import java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER = "local[*,4]"
"""All cores, and four attempts for a task: plain `local[*]` never retries one."""

LOOPBACK = "127.0.0.1"

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # A laptop's shuffle of a few batches is not the cluster's default of 200 tasks.
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
LOCAL_SETTINGS = {
    # Otherwise Spark listens on the machine's outward address.
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
}


def open_session(
    app: str,
    master: str = DEFAULT_MASTER,
    conf: Mapping[str, str] | None = None,
    *,
    log_level: str = "ERROR",
) -> SparkSession:
    """Start Spark, or join what runs in this process. Raises `java.JavaError`."""
    prepare_environment(os.environ, master)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app).master(master)
    for name, value in {**settings_for(master), **(conf or {})}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel(log_level)
    # Spark would find it by itself, after importing every module that is called pyspark_*.
    from busway.pipeline.datasource.source import BuswayDataSource

    session.dataSource.register(BuswayDataSource)
    return session


def settings_for(master: str) -> dict[str, str]:
    return {**SETTINGS, **(LOCAL_SETTINGS if is_local(master) else {})}


def is_local(master: str) -> bool:
    return master.startswith("local") or f"//{LOOPBACK}" in master or "//localhost" in master


def prepare_environment(environ: dict[str, str] | os._Environ[str], master: str) -> java.Java:
    """What Spark reads before it has a session to be configured by."""
    found = java.find(environ, java.cache_folder(environ))
    environ["JAVA_HOME"] = str(found.home)
    # Workers would take the `python3` of the PATH, which knows nothing of this one's packages.
    environ.setdefault("PYSPARK_PYTHON", sys.executable)
    environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if is_local(master):
        environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    return found
