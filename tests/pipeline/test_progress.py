"""How far a job has come: a bar for a person, lines for a log."""

from __future__ import annotations

import io
import sys

import pytest

from busway.pipeline.commands.progress import progress


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_person_sees_a_bar_that_ends_where_the_job_does(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    with progress("sent", 2_000) as tell:
        for done in (0, 500, 1_000, 2_000):
            tell(done)
    first, *_, last = screen.getvalue().lstrip("\r").rstrip("\n").split("\r")
    assert first == f"[{'-' * 30}] 0 of 2,000 sent"
    assert last == f"[{'#' * 30}] 2,000 of 2,000 sent"
    assert screen.getvalue().endswith("\n")


def test_a_log_has_lines_for_what_was_told_first_and_last(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with progress("moved", 30) as tell:
        for done in range(1, 26):
            tell(done)
    lines = [line.partition(" s  ")[2] for line in capsys.readouterr().err.splitlines()]
    assert lines[0] == "1 of 30 moved"
    assert lines[-1] == "25 of 30 moved"
    assert len(lines) < 25


def test_a_job_that_ends_before_it_began_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("moved", 30):
        pass
    assert capsys.readouterr().err == ""
