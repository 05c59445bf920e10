"""A damaged row of a journal, seen as its readers see it: over HTTP, and as Spark's tasks do."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from busway.pipeline.datasource.options import read_options
from busway.pipeline.datasource.source import rows_of, work_of
from busway.pipeline.wire.journal import DamagedError, Journal
from busway.pipeline.wire.offsets import Span
from busway.remote.connection import VARIABLE
from busway.testing import Server

CONFIG = """
[[queues]]
name = "orders"
capture = true
"""
MESSAGES = 12
DAMAGED = 5


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Of twelve events that were captured one is damaged since."""
    data = tmp_path / "data"
    with Server(config=CONFIG, data=data) as running:
        with (
            ServiceBusClient.from_connection_string(running.connection_string) as client,
            client.get_queue_sender("orders") as sender,
        ):
            for number in range(MESSAGES):
                sender.send_messages(ServiceBusMessage(str(number)))
        running.stop()
        changed = 0
        for path in data.glob("store-*.db"):
            with sqlite3.connect(path) as database:
                changed += database.execute(
                    "UPDATE journal SET number = number + 1"
                    " WHERE id = (SELECT min(id) FROM journal) + ?",
                    (DAMAGED,),
                ).rowcount
            database.close()
        assert changed == 1
        running.start()
        monkeypatch.setenv(VARIABLE, running.connection_string)
        yield running


def tasks_read(**options: str) -> list[int]:
    """The offsets that the tasks of a Spark query get."""
    chosen = read_options({"entity": "orders", "columns": "journal_offset,body", **options})
    journal = Journal("orders", chosen.pass_for_entity())
    epoch = journal.heads().epoch
    journal.close()
    works = work_of(chosen, epoch, [Span(0, 0, MESSAGES)])
    batches = [batch for work in works for batch in rows_of(work)]
    return sorted(
        offset for batch in batches for offset in batch.column("journal_offset").to_pylist()
    )


def test_a_reader_is_told_of_a_damaged_event_and_can_go_on_behind_it(server: Server) -> None:
    with pytest.raises(
        DamagedError, match=f"offsets {DAMAGED} to {DAMAGED} of partition 0"
    ) as told:
        tasks_read()
    assert "failOnDataLoss=false" in str(told.value)
    kept = [offset for offset in range(MESSAGES) if offset != DAMAGED]
    assert tasks_read(failOnDataLoss="false") == kept
    with urlopen(f"http://localhost:{server.port}/health") as answer:
        assert json.load(answer)["damaged_journal_rows"] == 1
