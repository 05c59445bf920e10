"""Virtual time: nothing happens early, and nothing late by accident."""

from __future__ import annotations

from busway.sim.scheduler import START_MS, Scheduler


def test_running_for_a_time_does_not_go_beyond_it() -> None:
    """Not even when the last event within it was cancelled."""
    scheduler = Scheduler(0)
    happened: list[str] = []
    scheduler.after(50, lambda: happened.append("cancelled")).cancel()
    scheduler.after(5_000, lambda: happened.append("later"))
    scheduler.run_for(100)
    assert happened == []
    assert scheduler.now_ms() == START_MS + 100
    scheduler.run_for(4_900)
    assert happened == ["later"]
