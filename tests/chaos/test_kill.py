"""`kill -9` under traffic: what was acknowledged is there, what was completed is gone (MSG-2, D-5).

A few kills by default; `make chaos` sets BUSWAY_KILLS to many.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from busway.testing import Server
from tests.chaos.ledger import Ledger
from tests.chaos.traffic import Traffic, drain, wait_until

KILLS = int(os.environ.get("BUSWAY_KILLS", "3"))
PLAIN, PARTS = "plain", "parts"


@pytest.fixture
def server(tmp_path: Path) -> Server:
    """Not started: it is started again and again."""
    return Server(PLAIN, partitioned=[PARTS], data=tmp_path / "data")


@pytest.fixture
def chance() -> random.Random:
    """When to kill; a failure prints the seed through the test's own report."""
    seed = int(os.environ.get("BUSWAY_SEED", random.randrange(1 << 32)))
    print(f"BUSWAY_SEED={seed}")
    return random.Random(seed)


def left_in(server: Server) -> list[str]:
    with server:
        return [each for queue in (PLAIN, PARTS) for each in drain(server.connection_string, queue)]


def test_nothing_acknowledged_is_missing_after_kills_while_sending(
    server: Server, chance: random.Random
) -> None:
    ledger = Ledger()
    for _ in range(KILLS):
        server.start()
        with Traffic(server.connection_string, ledger) as traffic:
            for queue in (PLAIN, PARTS):
                traffic.send(queue)
                traffic.send(queue, batch=10)
            goal = len(ledger.accepted) + chance.randrange(1, 300)
            wait_until(lambda goal=goal: len(ledger.accepted) >= goal)
            server.kill()
        assert traffic.unexpected == []
    left = left_in(server)
    ledger.judge(left)
    assert len(left) >= len(ledger.accepted) > 0


def test_nothing_completed_comes_back_after_kills_while_receiving(
    server: Server, chance: random.Random
) -> None:
    ledger = Ledger()
    for _ in range(KILLS):
        server.start()
        with Traffic(server.connection_string, ledger) as traffic:
            for queue in (PLAIN, PARTS):
                traffic.send(queue, batch=5)
                traffic.receive(queue)
            goal = len(ledger.completed) + chance.randrange(1, 200)
            wait_until(lambda goal=goal: len(ledger.completed) >= goal)
            server.kill()
        assert traffic.unexpected == []
    ledger.judge(left_in(server))
    assert ledger.completed


def test_nothing_is_received_twice_after_kills_while_deleting(
    server: Server, chance: random.Random
) -> None:
    """D-6: at most once; what was on its way when the broker died is gone."""
    ledger = Ledger()
    for _ in range(KILLS):
        server.start()
        with Traffic(server.connection_string, ledger) as traffic:
            for queue in (PLAIN, PARTS):
                traffic.send(queue, batch=5)
                traffic.receive_and_delete(queue)
            goal = len(ledger.deliveries) + chance.randrange(1, 200)
            wait_until(lambda goal=goal: len(ledger.deliveries) >= goal)
            server.kill()
        assert traffic.unexpected == []
    for message_id in left_in(server):
        ledger.deliver(message_id)
    assert ledger.problems == []
    assert [each for each, times in ledger.deliveries.items() if times > 1] == []
