"""A data folder whose clock was moved: what the next start does with it, and what a backup has."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from busway.testing import Bus, Server, ServerError
from tests.remote.test_commands import run
from tests.runtime.test_serve import refused
from tests.testing.test_clock import schedule, send, there

ALLOWED = ["--allow-clock"]


def test_a_restart_goes_on_from_where_the_clock_was_moved_to(tmp_path: Path) -> None:
    """Far more than the four hours that a store may be ahead of the machine's clock."""
    with Server("orders", data=tmp_path, arguments=ALLOWED) as server:
        bus = Bus(server)
        schedule(bus, "orders", "later", days=31)
        bus.clock.advance(days=30)
        send(bus, "orders", "now")
        before = bus.clock.now()
        server.kill()
        server.restart()
        assert bus.clock.now() >= before
        assert bus.clock.ahead == timedelta(days=30)
        assert sorted(there(bus, "orders")) == ["active now", "scheduled later"]
        bus.clock.advance(days=1)
        assert sorted(there(bus, "orders")) == ["active later", "active now"]


def test_a_start_that_does_not_allow_it_says_what_to_do(tmp_path: Path) -> None:
    with Server("orders", data=tmp_path, arguments=ALLOWED) as server:
        Bus(server).clock.advance(minutes=20)
        send(Bus(server), "orders", "kept")
    with pytest.raises(ServerError) as caught:
        Server("orders", data=tmp_path).start()
    said = str(caught.value)
    assert "was moved ahead by 20 minutes ('busway clock')" in said
    assert "--allow-clock" in said
    assert "--accept-clock" in said
    with Server("orders", data=tmp_path, arguments=["--accept-clock"]) as server:
        assert Bus(server).clock.now() < datetime.now(UTC) + timedelta(minutes=10)
        assert there(Bus(server), "orders") == ["active kept"]
        server.stop()
        assert not (tmp_path / "ahead.json").exists()
    with Server("orders", data=tmp_path) as server:  # and from now on as ever
        assert there(Bus(server), "orders") == ["active kept"]


def test_after_a_reset_a_folder_is_as_any_other(tmp_path: Path) -> None:
    with Server("orders", data=tmp_path, arguments=ALLOWED) as server:
        bus = Bus(server)
        bus.clock.advance(days=100)
        send(bus, "orders")
        bus.reset()
        send(bus, "orders", "after")
    with Server("orders", data=tmp_path) as server:
        assert there(Bus(server), "orders") == ["active after"]
        assert Bus(server).clock.now() < datetime.now(UTC) + timedelta(days=1)


def test_a_note_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with Server("orders", data=tmp_path, arguments=ALLOWED) as server:
        server.stop()
        (tmp_path / "ahead.json").write_text('{"ahead_ms": "much"}')
        said = refused(server.command)
        assert "ahead.json" in said
        assert "--accept-clock" in said


def test_a_snapshot_comes_back_as_often_as_it_is_wanted(busway: Bus) -> None:
    queue = busway.queue(lock_duration=timedelta(minutes=5))
    send(busway, queue, "first")
    busway.clock.advance(days=3)
    schedule(busway, queue, "later", hours=1)
    taken = busway.snapshot()
    for _ in range(2):
        send(busway, queue, "more")
        busway.clock.advance(days=1)
        assert len(there(busway, queue)) == 3
        busway.restore(taken)
        assert there(busway, queue) == ["active first", "scheduled later"]
        assert busway.clock.ahead == timedelta(days=3)


def test_a_server_in_memory_has_no_snapshots() -> None:
    with Server("orders") as server, pytest.raises(ServerError, match=r"Server\(data="):
        Bus(server).snapshot()


def test_the_next_test_gets_a_server_that_this_one_has_ended(busway: Bus) -> None:
    busway.server.kill()


def test_the_command_shows_moves_and_resets_the_clock(busway: Bus) -> None:
    def said(*words: str) -> str:
        done = run(busway.server, "clock", *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    queue = busway.queue()
    schedule(busway, queue, minutes=90)
    assert "as the machine's clock" in said()
    assert "01:30:30 ahead of the machine's clock" in said("advance", "1h30m30s")
    assert there(busway, queue) == ["active x"]
    assert json.loads(said("--json"))["ahead_ms"] == 5_430_000
    assert "as the machine's clock" in said("reset")


def test_the_command_refuses_what_it_does_not_know(busway: Bus) -> None:
    for words, told in (
        (["forward"], "'advance' or 'reset'"),
        (["advance"], "needs a span of time"),
        (["reset", "10m"], "nothing else takes one"),
    ):
        done = run(busway.server, "clock", *words)
        assert done.returncode == 2
        assert told in done.stderr
    done = run(busway.server, "clock", "advance", "soon")
    assert done.returncode == 1
    assert "no span of time" in done.stderr


def test_the_plugin_imports_nothing_of_the_broker() -> None:
    """pytest loads it in every project of an environment that has Busway in it."""
    code = "import sys, busway.testing.plugin; print(*(m for m in sys.modules if 'busway' in m))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    rooms = {name.split(".")[1] for name in loaded.stdout.split() if "." in name}
    assert rooms == {"testing"}
