"""Spans of time as the service writes them, in milliseconds; None is *unlimited*.

Owns ISO 8601 (`PT1M30S`), the .NET form of error texts (`00:01:30`) and the short form of our own
configuration files (`1m30s`).
"""

from __future__ import annotations

import re

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

UNLIMITED_TEXT = "P10675199DT2H48M5.4775807S"
UNLIMITED_MS = 10_675_199 * DAY_MS + 2 * HOUR_MS + 48 * MINUTE_MS + 5 * SECOND_MS + 477
"""The longest span that .NET knows. The Python library sends it back 42 µs shorter, so whatever
reaches this many whole milliseconds is unlimited (http.md section 6)."""

_ISO = re.compile(
    r"P(?:(?P<weeks>\d+)W|(?:(?P<days>\d+)D)?"
    r"(?P<time>T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?)",
    re.IGNORECASE,
)
_TIMESPAN = re.compile(
    r"(?:(?P<days>\d{1,8})\.)?(?P<hours>[01]?\d|2[0-3]):(?P<minutes>[0-5]?\d):"
    r"(?P<seconds>[0-5]?\d)(?:\.(?P<fraction>\d{1,7}))?",
    re.ASCII,
)
_SHORT_UNITS = {"ms": 1, "s": SECOND_MS, "m": MINUTE_MS, "h": HOUR_MS, "d": DAY_MS}
_SHORT_PART = re.compile(r"(\d+)\s*(ms|s|m|h|d)\s*", re.IGNORECASE)


def parse_iso(text: str) -> int | None:
    """Milliseconds of an ISO 8601 duration, None if unlimited; `ValueError` if it is not one."""
    match = _ISO.fullmatch(text.strip())
    if match is None or not any(match.group("weeks", "days", "hours", "minutes", "seconds")):
        raise ValueError(f"{text!r} is not an ISO 8601 duration such as PT1M or P14D")
    if (match["time"] or "").upper() == "T":
        raise ValueError(f"{text!r} has a T with nothing behind it")
    whole, _, fraction = (match["seconds"] or "0").partition(".")
    total_ms = (
        int(match["weeks"] or 0) * 7 * DAY_MS
        + int(match["days"] or 0) * DAY_MS
        + int(match["hours"] or 0) * HOUR_MS
        + int(match["minutes"] or 0) * MINUTE_MS
        + int(whole) * SECOND_MS
        + int(fraction[:3].ljust(3, "0"))
    )
    return None if total_ms >= UNLIMITED_MS else total_ms


def parse_short(text: str) -> int | None:
    """Milliseconds of `30s`, `1h30m`, `14d`; None for `unlimited`; `ValueError` otherwise."""
    text = text.strip()
    if text.lower() == "unlimited":
        return None
    position, total_ms = 0, 0
    while match := _SHORT_PART.match(text, position):
        total_ms += int(match[1]) * _SHORT_UNITS[match[2].lower()]
        position = match.end()
    if not text or position != len(text):
        raise ValueError(f"{text!r} is not a duration such as 30s, 1h30m or 14d")
    return None if total_ms >= UNLIMITED_MS else total_ms


def parse_duration(text: str) -> int | None:
    """Either form: what starts with P is ISO 8601."""
    return parse_iso(text) if text.strip()[:1] in ("P", "p") else parse_short(text)


def format_iso(span_ms: int | None) -> str:
    """As the service writes it: `PT1M`, `P14D`, `PT0S`, and its longest span for None."""
    if span_ms is None:
        return UNLIMITED_TEXT
    days, rest = divmod(span_ms, DAY_MS)
    hours, rest = divmod(rest, HOUR_MS)
    minutes, rest = divmod(rest, MINUTE_MS)
    seconds, thousandths = divmod(rest, SECOND_MS)
    date = f"{days}D" if days else ""
    time = (f"{hours}H" if hours else "") + (f"{minutes}M" if minutes else "")
    if thousandths:
        time += f"{seconds}.{thousandths:03d}".rstrip("0") + "S"
    elif seconds or not (date or time):
        time += f"{seconds}S"
    return f"P{date}" + (f"T{time}" if time else "")


def parse_timespan(text: str) -> int:
    """Milliseconds of a .NET TimeSpan, `[d.]hh:mm:ss[.fffffff]`; `ValueError` if it is not one."""
    match = _TIMESPAN.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a time span such as 00:01:30 or 1.00:00:00")
    return (
        int(match["days"] or 0) * DAY_MS
        + int(match["hours"]) * HOUR_MS
        + int(match["minutes"]) * MINUTE_MS
        + int(match["seconds"]) * SECOND_MS
        + int((match["fraction"] or "")[:3].ljust(3, "0"))
    )


def format_timespan(span_ms: int) -> str:
    """As .NET writes it in the service's error texts: `00:01:05`, `1.00:00:00.5000000`."""
    days, rest = divmod(span_ms, DAY_MS)
    hours, rest = divmod(rest, HOUR_MS)
    minutes, rest = divmod(rest, MINUTE_MS)
    seconds, thousandths = divmod(rest, SECOND_MS)
    text = f"{hours:02d}:{minutes:02d}:{seconds:02d}"
    if thousandths:
        text += f".{thousandths:03d}0000"
    return f"{days}.{text}" if days else text
