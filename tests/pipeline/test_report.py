"""The report is one page that stands for itself."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from xml.etree import ElementTree

import pytest

from busway.pipeline.figures import charts, report
from busway.pipeline.figures.charts import Line

NOON = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)
HOSTILE = "<script>alert('x')</script> & \"co\""


def minutes(*values: float) -> list[tuple[datetime, float]]:
    return [(NOON + timedelta(minutes=number), value) for number, value in enumerate(values)]


def figures(entity: str = "orders") -> report.Figures:
    def row(**columns: Any) -> dict[str, Any]:
        return {"entity": entity, "subscription": None, **columns}

    return report.Figures(
        throughput=[
            row(minute=when, event="enqueued", events=int(count), bytes=10)
            for when, count in minutes(5, 7, 9)
        ],
        latency=[
            row(minute=NOON, measure="to_delivery", messages=9, p50_ms=1.5, p95_ms=4.0, p99_ms=9.0,
                max_ms=12.0)
        ],
        skew=[row(partition=n, messages=5, bytes=50, share=0.5, skew=1.0) for n in range(2)],
        hot_keys=[row(key_kind="session", key=HOSTILE, messages=12, share=0.5)],
        reasons=[row(day=NOON.date(), reason=HOSTILE, messages=3, still_there=1)],
        duplicates=[row(minute=NOON, accepted=9, dropped=1, rate=0.1)],
        order=[row(epoch="1", session_id=HOSTILE, completed=5, inversions=1,
                   first_inversion_at=NOON)],
        heat=[row(partition=n, minute=NOON, messages=n + 1) for n in range(2)],
    )  # fmt: skip


def test_a_page_shows_every_figure_and_fetches_nothing() -> None:
    page = report.page(figures(), NOON, "./lake")
    for title in ("Throughput", "Waiting", "Partitions over time", "Skew", "Top keys",
                  "Dead letters", "Duplicates", "Order of sessions"):  # fmt: skip
        assert f"<h3>{title}</h3>" in page
    assert not re.search(r"(?:src|href)=|@import|url\(", page)
    assert page.count("<svg") == 7


def test_what_senders_wrote_cannot_become_markup() -> None:
    page = report.page(figures(entity=HOSTILE), NOON, HOSTILE)
    assert "<script" not in page
    assert "&lt;script&gt;" in page


@pytest.mark.parametrize(
    "chart",
    [
        charts.lines([Line("a", minutes(1, 2, 3)), Line("b", minutes(0, 0))], "ms"),
        charts.lines([Line("one point", minutes(4))], "ms"),
        charts.bars([(HOSTILE, 3.0), ("none", 0.0)], "messages"),
        charts.heat({0: minutes(0, 5), 1: minutes(2, 1)}, "messages"),
        charts.heat({7: minutes(1)}, "messages"),
    ],
)
def test_charts_are_well_formed(chart: str) -> None:
    ElementTree.fromstring(f"<div>{chart}</div>")
    assert "nan" not in chart


def test_an_empty_lake_makes_a_page_too() -> None:
    empty = report.Figures([], [], [], [], [], [], [], [])
    assert "Nothing to show yet" in report.page(empty, NOON, "./lake")


def test_a_gap_in_time_is_a_gap_in_the_line() -> None:
    points = [*minutes(1, 2), (NOON + timedelta(hours=3), 5.0)]
    assert charts.lines([Line("a", points)], "ms").count('<path class="line') == 2


@pytest.mark.parametrize("days", [1, 30, 365, 3650])
def test_however_long_a_lake_is_its_charts_are_drawn_in_few_strokes(days: int) -> None:
    hours = [(NOON + timedelta(hours=number), float(number % 7)) for number in range(24 * days)]
    line = charts.lines([Line("a", hours)], "ms")
    assert 0 < line.count("<circle") <= charts.COLUMNS_MAX
    heat = charts.heat({0: hours, 1: hours[:1]}, "messages")
    assert 0 < heat.count("<rect") <= 2 * charts.COLUMNS_MAX
    assert 1 <= len(charts.TimeAxis(when for when, _ in hours).marks()) <= charts.MARKS_MAX + 1


def test_a_column_of_several_minutes_hides_no_peak_and_invents_no_rate() -> None:
    points = [(NOON + timedelta(minutes=number), 1.0) for number in range(1000)]
    points[503] = (points[503][0], 100.0)
    axis = charts.TimeAxis(when for when, _ in points)
    assert axis.step_min == 10
    assert max(value for _, value in axis.folded(points, charts.highest)) == 100
    assert sum(value for _, value in axis.folded(points, charts.total)) == 1099
    rates = axis.folded(points, charts.per_minute)
    assert [value for column, value in rates if column == 50] == [(9 + 100) / 10]


def test_marks_are_at_times_that_people_know() -> None:
    odd = NOON + timedelta(minutes=7)
    axis = charts.TimeAxis([odd, odd + timedelta(hours=3)])
    assert [text for _, text in axis.marks()] == [
        "12:30",
        "13:00",
        "13:30",
        "14:00",
        "14:30",
        "15:00",
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (999, "999"),
        (9_999, "9999"),
        (12_345, "12.3 k"),
        (3.2e6, "3.2 M"),
        (0.123, "0.123"),
    ],
)
def test_amounts_are_for_people(value: float, text: str) -> None:
    assert charts.amount(value) == text


@pytest.mark.parametrize(
    ("value", "top"), [(0, 1), (1, 1), (1.1, 2), (23, 25), (51, 100), (730, 1000)]
)
def test_scales_end_at_round_numbers(value: float, top: float) -> None:
    assert charts.nice(value) == top
