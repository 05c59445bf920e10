"""`format("busway")` in the session that anybody makes: `SparkSession.builder.getOrCreate()`.

Such a session has other settings than ours, and a process can have one session only. So each
program runs in a process of its own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from busway.pipeline.spark.session import prepare_environment
from busway.remote.connection import VARIABLE
from busway.testing.server import Server

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "spark.md"

CONFIG = """
[[queues]]
name = "orders"
enable_partitioning = true
requires_duplicate_detection = true
capture = true

[[queues]]
name = "copy"
requires_duplicate_detection = true
"""
SENT = 20
KEYS = ("one", "two")
"""Their partitions differ."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(config=CONFIG, data=tmp_path_factory.mktemp("data")) as running:
        with (
            ServiceBusClient.from_connection_string(running.connection_string) as client,
            client.get_queue_sender("orders") as sender,
        ):
            for number in range(SENT):
                message = ServiceBusMessage(f"{number}", message_id=f"m-{number}")
                message.partition_key = KEYS[number % 2]
                sender.send_messages(message)
        yield running


def run(program: str, server: Server, folder: Path, *conf: str) -> str:
    """What a program prints that a user starts with plain Python."""
    submit = " ".join(["--conf spark.ui.enabled=false", *(f"--conf {each}" for each in conf)])
    environment = {
        **os.environ,
        VARIABLE: server.connection_string,
        "PYSPARK_SUBMIT_ARGS": f"{submit} pyspark-shell",
    }
    prepare_environment(environment, "local[*]")
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


COUNT = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
rows = spark.read.format("busway").option("entity", "orders").load()
rows = rows.where("event = 'enqueued' and message_id <> 'm-one-more'")
place = rows.where("message_id = 'm-7'").first().partition
print(rows.count(), rows.where(f"partition = {place}").count())
"""


@pytest.mark.parametrize("pushdown", ["false", "true"])
def test_a_batch_is_read_whether_the_session_pushes_filters_or_not(
    server: Server, tmp_path: Path, pushdown: str
) -> None:
    conf = f"spark.sql.python.filterPushdown.enabled={pushdown}"
    everything, one_partition = run(COUNT, server, tmp_path, conf).split()
    assert (int(everything), int(one_partition)) == (SENT, SENT // 2)


PREPARED = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
frame = spark.createDataFrame([("one more", "m-one-more")], "body string, message_id string")
"""


def test_the_examples_of_the_page_run(server: Server, tmp_path: Path) -> None:
    examples = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert examples
    program = PREPARED + "\n".join(examples)
    run(program + "\nspark.streams.active[0].processAllAvailable()\n", server, tmp_path)
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_receiver("copy") as receiver,
    ):
        ids = {message.message_id for message in receiver.peek_messages(100)}
    assert ids == {f"m-{number}" for number in range(SENT)} | {"m-one-more"}
