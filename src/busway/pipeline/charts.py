"""Charts as SVG texts: lines over time, bars, and a heat map. No scripts, no network, no files.

Every mark carries a title, so that pointing at it tells its value; colours are classes, so that the
page decides them for light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from html import escape

WIDTH, HEIGHT = 760, 240
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 12, 34
PLOT_WIDTH, PLOT_HEIGHT = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
SERIES_MAX = 6
HEAT_STEPS = 7
BAR_HEIGHT, BAR_GAP, BAR_LABEL = 20, 6, 220


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    points: Sequence[tuple[datetime, float]]


def lines(series: Sequence[Line], unit: str) -> str:
    """Values over time. A minute without a value is a break, not a straight line across it."""
    shown = [line for line in series if line.points][:SERIES_MAX]
    if not shown:
        return nothing()
    first = min(point[0] for line in shown for point in line.points)
    last = max(point[0] for line in shown for point in line.points)
    span_s = max((last - first).total_seconds(), 60.0)
    most = nice(max(point[1] for line in shown for point in line.points))
    parts = [*_grid(most, unit), *_times(first, span_s)]
    for number, line in enumerate(shown):
        for run in _runs(line.points, span_s):
            path = " ".join(
                f"{'L' if index else 'M'}{_x(when, first, span_s):.1f} {_y(value, most):.1f}"
                for index, (when, value) in enumerate(run)
            )
            parts.append(f'<path class="line s{number}" d="{path}"/>')
            for when, value in run:
                title = f"{line.name}: {amount(value)} {unit}, {when:%Y-%m-%d %H:%M} UTC"
                parts.append(
                    f'<circle class="dot s{number}" cx="{_x(when, first, span_s):.1f}" '
                    f'cy="{_y(value, most):.1f}" r="2.5"><title>{escape(title)}</title></circle>'
                )
    return legend([line.name for line in shown]) + _svg(WIDTH, HEIGHT, parts)


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
        text = label if len(label) <= 34 else f"{label[:33]}…"
        middle = top + BAR_HEIGHT - 6
        parts.append(
            f'<text class="label end" x="{BAR_LABEL - 8}" y="{middle}">{escape(text)}'
            f"<title>{escape(label)}</title></text>"
            f'<rect class="bar" x="{BAR_LABEL}" y="{top}" width="{width:.1f}" height="{BAR_HEIGHT}"'
            f' rx="2"><title>{escape(f"{label}: {amount(value)} {unit}")}</title></rect>'
            f'<text class="label" x="{BAR_LABEL + width + 6:.1f}" y="{middle}">'
            f"{amount(value)}</text>"
        )
    return _svg(WIDTH, len(rows) * (BAR_HEIGHT + BAR_GAP), parts)


def heat(rows: Sequence[str], columns: Sequence[str], values: Sequence[Sequence[float]]) -> str:
    """How much there is of each row in each column, by colour."""
    if not rows or not columns:
        return nothing()
    most = max(max(row) for row in values) or 1.0
    cell = max(3.0, min(40.0, PLOT_WIDTH / len(columns)))
    height = 16
    parts = []
    for line, (name, row) in enumerate(zip(rows, values, strict=True)):
        parts.append(
            f'<text class="label end" x="{LEFT - 8}" y="{line * height + 12}">{escape(name)}</text>'
        )
        for column, value in enumerate(row):
            step = 0 if value == 0 else 1 + min(HEAT_STEPS - 1, int(value / most * HEAT_STEPS))
            title = f"partition {name}, {columns[column]}: {amount(value)} messages"
            parts.append(
                f'<rect class="h{step}" x="{LEFT + column * cell:.1f}" y="{line * height}" '
                f'width="{max(1.0, cell - 1):.1f}" height="{height - 1}">'
                f"<title>{escape(title)}</title></rect>"
            )
    bottom = len(rows) * height
    ends = ((LEFT, "", columns[0]), (LEFT + len(columns) * cell, " end", columns[-1]))
    for x, where, text in ends if len(columns) > 1 else ends[:1]:
        parts.append(
            f'<text class="label{where}" x="{x:.1f}" y="{bottom + 16}">{escape(text)}</text>'
        )
    return _svg(WIDTH, bottom + 24, parts)


def legend(names: Sequence[str]) -> str:
    if len(names) < 2:
        return ""
    items = "".join(
        f'<li class="s{number}">{escape(name)}</li>' for number, name in enumerate(names)
    )
    return f'<ul class="legend">{items}</ul>'


def nothing() -> str:
    return '<p class="nothing">Nothing to show yet.</p>'


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
    parts.append(f'<text class="label" x="{LEFT}" y="{TOP - 2}">{escape(unit)}</text>')
    return parts


def _times(first: datetime, span_s: float) -> list[str]:
    form = "%H:%M" if span_s < 86_400 else "%m-%d %H:%M"
    marks = []
    for step in range(5):
        when = first + timedelta(seconds=span_s * step / 4)
        where = ("", " middle", " middle", " middle", " end")[step]
        marks.append(
            f'<text class="label{where}" x="{LEFT + PLOT_WIDTH * step / 4:.1f}" '
            f'y="{HEIGHT - 10}">{when.strftime(form)}</text>'
        )
    return marks


def _runs(
    points: Sequence[tuple[datetime, float]], span_s: float
) -> list[list[tuple[datetime, float]]]:
    """The points, cut where more than a few steps of the chart are missing."""
    longest = timedelta(seconds=max(180.0, span_s / 50))
    runs: list[list[tuple[datetime, float]]] = []
    for point in sorted(points):
        if runs and point[0] - runs[-1][-1][0] <= longest:
            runs[-1].append(point)
        else:
            runs.append([point])
    return runs


def _x(when: datetime, first: datetime, span_s: float) -> float:
    return LEFT + (when - first).total_seconds() / span_s * PLOT_WIDTH


def _y(value: float, most: float) -> float:
    return TOP + (1 - value / most) * PLOT_HEIGHT


def _svg(width: int, height: int, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" preserveAspectRatio="xMinYMin">'
        f"{''.join(parts)}</svg>"
    )
