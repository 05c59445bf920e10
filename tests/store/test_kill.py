"""kill -9: a real process is killed at a random moment, and the store is as its last word said.

`BUSWAY_KILLS` sets how often (`make chaos` kills more), `BUSWAY_SEED` at which moments.
"""

from __future__ import annotations

import os
import random
import select
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from busway.store.base import Expiring, SessionRecord
from busway.store.sqlite import SqliteStore
from tests.store import crash_child
from tests.store.crash_child import SESSIONS, SLOTS, Plan
from tests.store.places import Owner, facts

KILLS = int(os.environ.get("BUSWAY_KILLS", "4"))
SEED = int(os.environ.get("BUSWAY_SEED", "1"))
LIFE_MAX_S = 0.3


def run_and_kill(path: Path, seed: int, life_s: float) -> int:
    """Start a child, kill it `life_s` after its first commit; the last commit it reported."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, crash_child.__file__, str(path), str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as child:
        assert child.stdout is not None
        reports = child.stdout.fileno()
        output = os.read(reports, 65_536)
        assert output, "the child died by itself"
        deadline = time.monotonic() + life_s
        while (left_s := deadline - time.monotonic()) > 0:
            if select.select([reports], [], [], left_s)[0]:
                output += os.read(reports, 65_536)
        child.send_signal(signal.SIGKILL)
        while rest := os.read(reports, 65_536):
            output += rest
    assert child.returncode == -signal.SIGKILL
    # A number may be cut off by the kill; only whole lines were said.
    return int(output[: output.rindex(b"\n")].split(b"\n")[-1])


def check_whole(owner: Owner, plan: Plan) -> None:
    """Rows, counters and the expiry index are those of the plan, and of each other."""
    found = {}
    for record in owner.opened.sub_queues:
        after, page = 0, owner.store.read_page(record.slot, 0, state=None)
        while page:
            found.update({(record.slot, row.number): row for row in page})
            after = page[-1].number
            page = owner.store.read_page(record.slot, after, state=None)
        rows = [row for (slot, _), row in found.items() if slot == record.slot]
        counters = record.counters
        assert counters.active + counters.deferred + counters.scheduled == len(rows)
        assert record.counters.bytes == sum(row.size for row in rows)
        assert record.counters == plan.counters[record.slot]
    assert {key: facts(row) for key, row in found.items()} == {
        key: facts(row) for key, row in plan.rows.items()
    }
    expected = sorted(
        Expiring(row.expires_ms, slot, number)
        for (slot, number), row in plan.rows.items()
        if row.expires_ms is not None
    )
    assert list(owner.store.read_expiring(None, 2**62).rows) == expected[:1_000]
    assert owner.opened.time_ms == plan.time_ms


def check_marks(owner: Owner, plan: Plan) -> None:
    """Sessions and marks are those of the plan."""
    opened, sessions = owner.opened, []
    for session_id in sorted(SESSIONS):
        active = plan.active_in(session_id)
        state, updated_ms = plan.states.get(session_id, (None, None))
        assert owner.store.read_session_state(0, session_id) == state
        if active or state is not None:
            sessions.append(SessionRecord(0, session_id, active, updated_ms, len(state or b"")))
    assert sorted(opened.sessions) == sorted(sessions)
    assert {each.source_incarnation: each.number for each in opened.transfers} == plan.transfers
    assert {mark[0]: mark[1] for mark in opened.transactions} == still_counting(
        plan.transactions, plan
    )
    marks = owner.store.read_duplicates(0, b"", plan.time_ms)
    assert {each.digest: each.until_ms for each in marks} == still_counting(plan.duplicates, plan)


def still_counting(marks: dict[bytes, int], plan: Plan) -> dict[bytes, int]:
    return {key: until_ms for key, until_ms in marks.items() if until_ms > plan.time_ms}


@pytest.mark.timeout(600 + KILLS * 10)
def test_what_a_killed_process_reported_is_there_whole_and_at_most_one_batch_more(
    tmp_path: Path,
) -> None:
    path, chance = tmp_path / "store.db", random.Random(SEED)
    plan, reported, more = Plan(SEED), 0, 0
    for _ in range(KILLS):
        reported = run_and_kill(path, SEED, chance.uniform(0, LIFE_MAX_S))
        owner = Owner(SqliteStore(path, create=False))
        there = owner.opened.commit_number
        assert there in (reported, reported + 1)
        more += there - reported
        while plan.number < there:
            plan.next_batch()
        assert len(owner.opened.sub_queues) == len(SLOTS)
        check_whole(owner, plan)
        check_marks(owner, plan)
        owner.store.close()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    shared = "SELECT body_id, count(*) FROM messages WHERE body_id IS NOT NULL GROUP BY body_id"
    copies = connection.execute("SELECT body_id, count FROM copies ORDER BY body_id").fetchall()
    assert copies == connection.execute(f"{shared} ORDER BY body_id").fetchall()
    bodies = connection.execute("SELECT id FROM bodies ORDER BY id").fetchall()
    assert bodies == [(body_id,) for body_id, _ in copies]
    connection.close()
    print(f"seed {SEED}: {KILLS} kills, {plan.number} commits, {more} there but not reported")
