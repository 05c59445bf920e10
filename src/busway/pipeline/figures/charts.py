"""Charts as SVG texts: lines over time, bars, and a heat map. No scripts, no network, no files.

Every mark carries a title, so that pointing at it tells its value; colours are classes, so that the
page decides them for light and dark.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html import escape

WIDTH, HEIGHT = 760, 240
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 20, 34
PLOT_WIDTH, PLOT_HEIGHT = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
SERIES_MAX = 6
HEAT_STEPS = 7
HEAT_ROW = 16
HEAT_GAP_FROM = 6.0
"""Narrower cells touch each other."""
BAR_HEIGHT, BAR_GAP, BAR_LABEL, BAR_LETTERS = 20, 6, 220, 30

STEPS_MIN = (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2 * 1440, 7 * 1440)
"""Minutes from one column or mark to the next: such as clocks and calendars have."""
COLUMNS_MAX = 180
"""However long a lake's time is, a chart has no more of them: a page must open."""
MARKS_MAX = 7
DOTS_SHOWN_MAX = 60
"""Of a line; with more of them, a dot shows when it is pointed at."""

Points = Sequence[tuple[datetime, float]]
"""Minutes and their values."""
Fold = Callable[[Sequence[float], int], float]
"""The value of a column, of those of its minutes and of how many minutes it has."""


def per_minute(values: Sequence[float], minutes: int) -> float:
    """For counts: a minute that is not there had none."""
    return sum(values) / minutes


def highest(values: Sequence[float], minutes: int) -> float:
    """For what must not hide behind a mean."""
    return max(values)


def total(values: Sequence[float], minutes: int) -> float:
    return sum(values)


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    points: Points
    fold: Fold = highest


class TimeAxis:
    """From the first minute to the last, in columns of equal length."""

    def __init__(self, times: Iterable[datetime]) -> None:
        ordered = sorted(times)
        minutes = (ordered[-1] - ordered[0]).total_seconds() / 60 + 1
        self.step_min = _step(minutes, COLUMNS_MAX)
        self.step = timedelta(minutes=self.step_min)
        self.first = _floor(ordered[0], self.step)
        self.columns = int((ordered[-1] - self.first) / self.step) + 1

    def folded(self, points: Points, fold: Fold) -> list[tuple[int, float]]:
        """By column, in order; a column without a value is not there."""
        found: dict[int, list[float]] = defaultdict(list)
        for when, value in points:
            found[int((when - self.first) / self.step)].append(value)
        return [(column, fold(found[column], self.step_min)) for column in sorted(found)]

    def x(self, column: float) -> float:
        return LEFT + column / max(1, self.columns - 1) * PLOT_WIDTH

    def said(self, column: int) -> str:
        """When that was, for a person who points at it."""
        begin = self.first + column * self.step
        if self.step_min == 1:
            return f"{begin:%Y-%m-%d %H:%M} UTC"
        return f"{begin:%Y-%m-%d %H:%M} to {begin + self.step:%m-%d %H:%M} UTC"

    def marks(self) -> list[tuple[float, str]]:
        """Columns and what is written below them, at times that people know."""
        span_min = self.columns * self.step_min
        step = timedelta(minutes=_step(span_min, MARKS_MAX))
        days = span_min > STEPS_MIN[-1] or step >= timedelta(days=1)
        form = "%m-%d" if days else "%H:%M" if span_min <= 1440 else "%m-%d %H:%M"
        when, found = _floor(self.first, step), []
        while (column := (when - self.first) / self.step) <= self.columns - 1:
            if column >= 0:
                found.append((column, when.strftime(form)))
            when += step
        return found or [(0, self.first.strftime("%m-%d %H:%M"))]


def _step(minutes: float, columns: int) -> int:
    """The first of the usual lengths that needs no more than so many columns."""
    for step in STEPS_MIN:
        if minutes <= step * columns:
            return step
    weeks = math.ceil(minutes / (STEPS_MIN[-1] * columns))
    return weeks * STEPS_MIN[-1]


def _floor(when: datetime, step: timedelta) -> datetime:
    start = datetime(2000, 1, 3, tzinfo=UTC)  # a Monday
    return start + (when - start) // step * step


def lines(series: Sequence[Line], unit: str) -> str:
    """Values over time. Time without a value is a break, not a straight line across it."""
    shown = [line for line in series if line.points][:SERIES_MAX]
    if not shown:
        return nothing()
    axis = TimeAxis(when for line in shown for when, _ in line.points)
    drawn = [axis.folded(line.points, line.fold) for line in shown]
    most = nice(max(value for points in drawn for _, value in points))
    parts = [*_grid(most, unit), *_times(axis, HEIGHT - 10)]
    kind = "dot" if max(map(len, drawn)) <= DOTS_SHOWN_MAX else "dot hidden"
    for number, (line, points) in enumerate(zip(shown, drawn, strict=True)):
        for run in _runs(points, axis):
            path = " ".join(
                f"{'L' if index else 'M'}{axis.x(column):.1f} {_y(value, most):.1f}"
                for index, (column, value) in enumerate(run)
            )
            parts.append(f'<path class="line s{number}" d="{path}"/>')
        for column, value in points:
            title = f"{line.name}: {amount(value)} {unit}, {axis.said(column)}"
            parts.append(
                f'<circle class="{kind} s{number}" cx="{axis.x(column):.1f}" '
                f'cy="{_y(value, most):.1f}" r="2.5"><title>{escape(title)}</title></circle>'
            )
    said = f"{', '.join(line.name for line in shown)} over time, in {unit}"
    return legend([line.name for line in shown]) + _svg(WIDTH, HEIGHT, parts, said)


def bars(rows: Sequence[tuple[str, float]], unit: str) -> str:
    """One bar for each row, the largest first as given."""
    if not rows:
        return nothing()
    most = max(value for _, value in rows) or 1.0
    room = WIDTH - BAR_LABEL - 110
    parts = []
    for number, (label, value) in enumerate(rows):
        top = number * (BAR_HEIGHT + BAR_GAP)
        width = max(1.0, value / most * room)
        text = label if len(label) <= BAR_LETTERS else f"{label[: BAR_LETTERS - 1]}…"
        middle = top + BAR_HEIGHT - 6
        parts.append(
            f'<text class="label end" x="{BAR_LABEL - 8}" y="{middle}">{escape(text)}'
            f"<title>{escape(label)}</title></text>"
            f'<rect class="bar" x="{BAR_LABEL}" y="{top}" width="{width:.1f}" height="{BAR_HEIGHT}"'
            f' rx="2"><title>{escape(f"{label}: {amount(value)} {unit}")}</title></rect>'
            f'<text class="label" x="{BAR_LABEL + width + 6:.1f}" y="{middle}">'
            f"{amount(value)}</text>"
        )
    said = ", ".join(f"{label}: {amount(value)} {unit}".strip() for label, value in rows)
    return _svg(WIDTH, len(rows) * (BAR_HEIGHT + BAR_GAP), parts, said)


def heat(rows: Mapping[int, Points], unit: str) -> str:
    """How much there is in each row, in each stretch of time, by colour."""
    if not rows:
        return nothing()
    axis = TimeAxis(when for points in rows.values() for when, _ in points)
    drawn = {row: dict(axis.folded(rows[row], total)) for row in sorted(rows)}
    most = max(value for values in drawn.values() for value in values.values()) or 1.0
    cell = min(40.0, PLOT_WIDTH / axis.columns)
    gap = 1 if cell >= HEAT_GAP_FROM else 0
    parts = []
    for line, (row, values) in enumerate(drawn.items()):
        y = line * HEAT_ROW
        parts.append(f'<text class="label end" x="{LEFT - 8}" y="{y + 12}">{row}</text>')
        for column in range(axis.columns):
            value = values.get(column, 0.0)
            step = 0 if value == 0 else 1 + min(HEAT_STEPS - 1, int(value / most * HEAT_STEPS))
            title = f"partition {row}: {amount(value)} {unit}, {axis.said(column)}"
            parts.append(
                f'<rect class="h{step}" x="{LEFT + column * cell:.1f}" y="{y}" '
                f'width="{cell - gap:.1f}" height="{HEAT_ROW - 1}">'
                f"<title>{escape(title)}</title></rect>"
            )
    bottom = len(drawn) * HEAT_ROW
    for place, text in axis.marks():
        x = LEFT + (place + 0.5) * cell
        parts.append(f'<text class="label{_anchor(x)}" x="{x:.1f}" y="{bottom + 16}">{text}</text>')
    return _svg(WIDTH, bottom + 24, parts, f"{unit} of {len(drawn)} partitions over time")


def legend(names: Sequence[str]) -> str:
    if len(names) < 2:
        return ""
    items = "".join(
        f'<li class="s{number}">{escape(name)}</li>' for number, name in enumerate(names)
    )
    return f'<ul class="legend">{items}</ul>'


def nothing(said: str = "Nothing to show yet.") -> str:
    return f'<p class="nothing">{said}</p>'


# --- Scales --------------------------------------------------------------------------------------


def nice(value: float) -> float:
    """The next round number: 1, 2, 2.5 or 5 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(
        (step * power for step in (1, 2, 2.5, 5, 10) if value <= step * power * (1 + 1e-9)),
        10 * power,
    )


def amount(value: float) -> str:
    """A number for people: 1.2 k, 3.4 M, 0.05."""
    for limit, suffix in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if abs(value) >= limit:
            return f"{value / (1e3 if suffix == ' k' else limit):.3g}{suffix}"
    return f"{value:.0f}" if value == int(value) else f"{value:.3g}"


def _grid(most: float, unit: str) -> list[str]:
    parts = []
    for step in range(5):
        value = most * step / 4
        y = _y(value, most)
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(
            f'<text class="label end" x="{LEFT - 8}" y="{y + 4:.1f}">{amount(value)}</text>'
        )
    parts.append(f'<text class="label" x="{LEFT}" y="{TOP - 8}">{escape(unit)}</text>')
    return parts


def _times(axis: TimeAxis, y: float) -> list[str]:
    return [
        f'<text class="label{_anchor(axis.x(column))}" x="{axis.x(column):.1f}" y="{y}">'
        f"{text}</text>"
        for column, text in axis.marks()
    ]


def _anchor(x: float) -> str:
    """Text is in the middle below its mark, unless it would leave the chart there."""
    if x < LEFT + 20:
        return ""
    return " end" if x > WIDTH - RIGHT - 20 else " middle"


def _runs(points: Sequence[tuple[int, float]], axis: TimeAxis) -> list[list[tuple[int, float]]]:
    """The points, cut where more than a few columns are missing."""
    longest = max(3, axis.columns // 50)
    runs: list[list[tuple[int, float]]] = []
    for point in points:
        if runs and point[0] - runs[-1][-1][0] <= longest:
            runs[-1].append(point)
        else:
            runs.append([point])
    return runs


def _y(value: float, most: float) -> float:
    return TOP + (1 - value / most) * PLOT_HEIGHT


def _svg(width: int, height: int, parts: Sequence[str], said: str) -> str:
    return (
        f'<div class="chart"><svg viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(said)}" preserveAspectRatio="xMinYMin">{"".join(parts)}</svg></div>'
    )
