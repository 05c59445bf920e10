"""What a lake knows of dead letters that have left their queue."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from typer.testing import CliRunner

from busway.cli import app
from busway.pipeline.jobs.curate import curate
from busway.pipeline.lake.dead_letter_history import history
from busway.pipeline.lake.lake import Lake
from busway.pipeline.lake.tables import EVENTS
from busway.remote.triage import TriageError
from busway.testing.server import Server
from tests.pipeline.stories import Story

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_lake_knows_those_that_have_left(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    with pytest.raises(TriageError, match="busway pipeline curate"):
        history(lake.folder, "orders")
    story = Story()
    for number in (1, 2, 3):
        story.tell("enqueued", number, number)
        story.tell("dead_lettered", number, number + 10, sub_queue="dead_letter",
                   dead_letter_reason="Late" if number < 3 else None)  # fmt: skip
    story.tell("completed", 2, 30, sub_queue="dead_letter")
    lake.table(EVENTS.layout()).append(story.frame(spark), "test", 0)
    curate(spark, lake)
    known = {
        "Late": {"dead_lettered": 2, "still_there": 1},
        "(none)": {"dead_lettered": 1, "still_there": 1},
    }
    assert history(lake.folder, "Orders") == known
    assert history(lake.folder, "other") == {}
    with Server("orders") as server:
        with (
            ServiceBusClient.from_connection_string(server.connection_string) as client,
            client.get_queue_sender("orders") as sender,
        ):
            sender.send_messages(ServiceBusMessage("alive"))
        words = ["dead-letters", "list", "orders", "--lake", lake.folder, "--json"]
        result = CliRunner().invoke(app, [*words, "--connection-string", server.connection_string])
    found = json.loads(result.stdout)
    assert (found["dead_letters"], found["history"]) == (0, known)
