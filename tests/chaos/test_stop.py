"""SIGTERM under traffic: what is in flight is finished, and the server says goodbye with 0."""

from __future__ import annotations

from pathlib import Path

from busway.testing import Server
from tests.chaos.ledger import Ledger
from tests.chaos.traffic import Traffic, drain, wait_until

PLAIN, PARTS = "plain", "parts"


def test_a_stop_under_traffic_exits_0_and_loses_nothing(tmp_path: Path) -> None:
    ledger = Ledger()
    server = Server(PLAIN, partitioned=[PARTS], data=tmp_path / "data")
    for _ in range(2):
        server.start()
        with Traffic(server.connection_string, ledger) as traffic:
            for queue in (PLAIN, PARTS):
                traffic.send(queue)
                traffic.send(queue, batch=10)
                traffic.receive(queue)
            goal = len(ledger.completed) + 100
            wait_until(lambda goal=goal: len(ledger.completed) >= goal)
            assert server.stop() == 0
        assert traffic.unexpected == []
    with server:
        left = [each for queue in (PLAIN, PARTS) for each in drain(server.connection_string, queue)]
    ledger.judge(left)
