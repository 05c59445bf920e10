"""`kill -9` under traffic with sessions, topics and forwarding (MSG-2, FWD-2, SES-4, D-5).

Nothing acknowledged is lost, what is forwarded arrives once, a session stays in order.

A few kills by default; `make chaos` sets BUSWAY_KILLS to many.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pytest

from busway.testing import Server
from tests.chaos.ledger import Ledger
from tests.chaos.traffic import Traffic, drain, drain_sessions, wait_until

KILLS = int(os.environ.get("BUSWAY_KILLS", "3"))
KINDS = {"plain": "false", "parts": "true"}
OTHER = {"plain": "parts", "parts": "plain"}
"""What is forwarded goes from each kind to the other."""
CONFIG = "".join(
    f"""
[[queues]]
name = "{kind}-sessions"
partitioned = {partitioned}
requires_session = true
max_delivery_count = 1000
[[queues]]
name = "{kind}-target"
partitioned = {partitioned}
max_delivery_count = 1000
[[queues]]
name = "{kind}-hop"
partitioned = {partitioned}
forward_to = "{OTHER[kind]}-target"
[[queues]]
name = "{kind}-source"
partitioned = {partitioned}
forward_to = "{OTHER[kind]}-hop"
[[topics]]
name = "{kind}-topic"
partitioned = {partitioned}
[[topics.subscriptions]]
name = "all"
[[topics.subscriptions]]
name = "forwarding"
forward_to = "{OTHER[kind]}-target"
"""
    for kind, partitioned in KINDS.items()
)


@pytest.fixture
def server(tmp_path: Path) -> Server:
    """Not started: it is started again and again."""
    return Server(config=CONFIG, data=tmp_path / "data")


@pytest.fixture
def chance() -> random.Random:
    """When to kill; a failure prints the seed through the test's own report."""
    seed = int(os.environ.get("BUSWAY_SEED", random.randrange(1 << 32)))
    print(f"BUSWAY_SEED={seed}")
    return random.Random(seed)


def test_sessions_lose_nothing_and_stay_in_order(server: Server, chance: random.Random) -> None:
    ledger = Ledger()
    for _ in range(KILLS):
        server.start()
        with Traffic(server.connection_string, ledger) as traffic:
            for kind in KINDS:
                queue = f"{kind}-sessions"
                for number in range(3):
                    traffic.send(queue, batch=5, session_id=f"{kind} {number}")
                for _ in range(2):
                    traffic.receive_sessions(queue)
            goal = len(ledger.completed) + chance.randrange(1, 200)
            wait_until(lambda goal=goal: len(ledger.completed) >= goal)
            server.kill()
        assert traffic.unexpected == []
    with server:
        text = server.connection_string
        left = [each for kind in KINDS for each in drain_sessions(text, f"{kind}-sessions")]
    ledger.judge(left)
    assert ledger.completed


def test_what_is_forwarded_arrives_once(server: Server, chance: random.Random) -> None:
    """D-27: over two hops, between conventional and partitioned queues."""
    ledger = Ledger()
    for _ in range(KILLS):
        server.start()
        with Traffic(server.connection_string, ledger) as traffic:
            for kind in KINDS:
                traffic.send(f"{kind}-source")
                traffic.send(f"{kind}-source", batch=10)
                traffic.receive(f"{kind}-target")
            goal = len(ledger.completed) + chance.randrange(1, 300)
            wait_until(lambda goal=goal: len(ledger.completed) >= goal)
            server.kill()
        assert traffic.unexpected == []
    ledger.judge(arrived(server, ledger))
    assert ledger.completed


def test_every_subscription_gets_its_copy_once(server: Server, chance: random.Random) -> None:
    """MSG-2, D-30: one keeps its copies, the other forwards them."""
    ledger = Ledger()
    for _ in range(KILLS):
        server.start()
        with Traffic(server.connection_string, ledger) as traffic:
            for kind in KINDS:
                traffic.send(f"{kind}-topic")
                traffic.send(f"{kind}-topic", batch=10)
                traffic.receive(f"{kind}-target")
            goal = len(ledger.completed) + chance.randrange(1, 300)
            wait_until(lambda goal=goal: len(ledger.completed) >= goal)
            server.kill()
        assert traffic.unexpected == []
    ledger.judge(arrived(server, ledger))
    assert ledger.completed
    with server:
        text = server.connection_string
        kept = Counter(
            each for kind in KINDS for each in drain(text, f"{kind}-topic/Subscriptions/all")
        )
    assert sorted(ledger.accepted - kept.keys()) == [], "acknowledged and lost"
    assert sorted(kept.keys() - ledger.sending) == [], "never sent"
    assert [each for each, times in kept.items() if times > 1] == [], "there twice"


def arrived(server: Server, ledger: Ledger) -> list[str]:
    """What is at the destinations once all that is under way has arrived there."""
    with server:
        found: list[str] = []

        def all_is_there() -> bool:
            found.extend(
                each for kind in KINDS for each in drain(server.connection_string, f"{kind}-target")
            )
            return ledger.accepted - ledger.completing <= set(found)

        wait_until(all_is_there)
        all_is_there()  # once more: a second copy would come now
        return found
