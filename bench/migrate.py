"""Migrate a conventional session queue into a partitioned one, and look at every message after it.

    .venv/bin/python bench/migrate.py [--messages 100000] [--sessions 500] [--back]

A real server with files, the official SDK on both ends, and `busway pipeline migrate` between them.
Each session is received afterwards: its messages must have the ids that were sent, in that order.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import typer
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode

from busway.testing import Server

QUEUE = "orders"
CONFIG = f"""
[[queues]]
name = "{QUEUE}"
requires_session = true
max_size_mb = 5120
"""
BODY_BYTES = 256
BATCH = 200
RECEIVERS = 16
WAIT_S = 60


def ids_of(session: int, each: int) -> list[str]:
    return [f"s{session:04}-{number:06}" for number in range(each)]


def fill(client: ServiceBusClient, sessions: int, each: int) -> None:
    body = b"x" * BODY_BYTES
    with client.get_queue_sender(QUEUE) as sender:
        for first in range(0, each, BATCH):
            for session in range(sessions):
                sender.send_messages(
                    [
                        ServiceBusMessage(body, message_id=name, session_id=f"s{session:04}")
                        for name in ids_of(session, each)[first : first + BATCH]
                    ]
                )


def migrate(server: Server, *way: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "busway", "pipeline", "migrate", "--entity", QUEUE, *way, "--json"],
        env={**os.environ, "BUSWAY_CONNECTION_STRING": server.connection_string},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"the migration failed with status {done.returncode}")
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def received(client: ServiceBusClient, session: int, each: int) -> list[str]:
    found: list[str] = []
    with client.get_queue_receiver(
        QUEUE,
        session_id=f"s{session:04}",
        receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE,
    ) as receiver:
        while len(found) < each:
            page = receiver.receive_messages(each - len(found), max_wait_time=WAIT_S)
            if not page:
                break
            found += [str(message.message_id) for message in page]
    return found


def check(client: ServiceBusClient, sessions: int, each: int) -> None:
    with ThreadPoolExecutor(RECEIVERS) as threads:
        found = threads.map(lambda session: received(client, session, each), range(sessions))
        for session, names in enumerate(found):
            if names != ids_of(session, each):
                raise SystemExit(f"session {session}: {len(names)} messages, not those sent")


def main(
    messages: Annotated[int, typer.Option(help="How many, over all sessions.")] = 100_000,
    sessions: Annotated[int, typer.Option(help="How many sessions.")] = 500,
    back: Annotated[bool, typer.Option(help="And back to a conventional queue.")] = False,
) -> None:
    each = messages // sessions
    times: dict[str, float] = {}
    began = time.monotonic()

    def lap(name: str) -> None:
        nonlocal began
        times[name] = round(time.monotonic() - began, 1)
        print(f"{name}: {times[name]} s", file=sys.stderr, flush=True)
        began = time.monotonic()

    with (
        tempfile.TemporaryDirectory(prefix="busway-migrate-") as folder,
        Server(config=CONFIG, data=Path(folder)) as server,
        ServiceBusClient.from_connection_string(server.connection_string) as client,
    ):
        lap("started")
        fill(client, sessions, each)
        lap("filled")
        summaries = [migrate(server, "--partitioned")]
        lap("migrated")
        if back:
            summaries.append(migrate(server, "--conventional"))
            lap("migrated back")
        check(client, sessions, each)
        lap("received and compared")
    for summary in summaries:
        summary["verified"].pop("deferred")
    print(json.dumps({"messages": sessions * each, "times_s": times, "jobs": summaries}, indent=2))


if __name__ == "__main__":
    typer.run(main)
