"""Spans of time in the three forms that are read and written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway.model.durations import (
    DAY_MS,
    UNLIMITED_MS,
    UNLIMITED_TEXT,
    format_iso,
    format_timespan,
    parse_duration,
    parse_iso,
    parse_short,
    parse_timespan,
)


@pytest.mark.parametrize(
    ("text", "span_ms"),
    [
        ("PT1M", 60_000),
        ("PT30S", 30_000),
        ("PT0.5S", 500),
        ("P14D", 14 * DAY_MS),
        ("P1W", 7 * DAY_MS),
        ("P1DT2H3M4.005S", DAY_MS + 7_384_005),
        ("pt20s", 20_000),
        ("PT90M", 5_400_000),
        (UNLIMITED_TEXT, None),
        ("P10675199DT2H48M5.477539S", None),
        ("P99999999D", None),
    ],
)
def test_iso_8601(text: str, span_ms: int | None) -> None:
    assert parse_iso(text) == span_ms


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1DT", "1M", "PT1", "P1Y", "PT-1S", "P1M", "00:01:00"]
)
def test_not_iso_8601(text: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        parse_iso(text)


@pytest.mark.parametrize(
    ("text", "span_ms"),
    [
        ("1m", 60_000),
        ("1h30m", 5_400_000),
        ("1h 30m", 5_400_000),
        ("500ms", 500),
        ("14D", 14 * DAY_MS),
        ("unlimited", None),
        ("PT1M", 60_000),
    ],
)
def test_short_forms_of_configuration_files(text: str, span_ms: int | None) -> None:
    assert parse_duration(text) == span_ms


@pytest.mark.parametrize("text", ["", "1", "m", "1x", "1m!", "-1m", "1.5h"])
def test_not_a_short_form(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_short(text)


@pytest.mark.parametrize(
    ("span_ms", "text"),
    [
        (0, "PT0S"),
        (60_000, "PT1M"),
        (500, "PT0.5S"),
        (14 * DAY_MS, "P14D"),
        (DAY_MS + 1_000, "P1DT1S"),
        (None, UNLIMITED_TEXT),
    ],
)
def test_as_the_service_writes_it(span_ms: int | None, text: str) -> None:
    assert format_iso(span_ms) == text


@given(st.none() | st.integers(0, UNLIMITED_MS - 1))
def test_what_is_written_reads_back(span_ms: int | None) -> None:
    assert parse_iso(format_iso(span_ms)) == span_ms


@pytest.mark.parametrize(
    ("span_ms", "text"),
    [(65_000, "00:01:05"), (DAY_MS + 500, "1.00:00:00.5000000"), (0, "00:00:00")],
)
def test_in_error_texts(span_ms: int, text: str) -> None:
    assert format_timespan(span_ms) == text


@pytest.mark.parametrize(
    ("text", "span_ms"),
    [
        ("00:01:30", 90_000),
        ("0:0:40", 40_000),
        ("0.00:00:40", 40_000),
        ("1.00:00:00", 86_400_000),
        ("14.23:59:59.1234567", 14 * 86_400_000 + 86_399_123),
        ("00:00:00.5", 500),
    ],
)
def test_a_time_span_of_dot_net_is_read(text: str, span_ms: int) -> None:
    assert parse_timespan(text) == span_ms
    assert parse_timespan(format_timespan(span_ms)) == span_ms


@pytest.mark.parametrize("text", ["", "90", "24:00:00", "00:60:00", "00:00", "-00:00:01", "PT1M"])
def test_what_is_no_time_span_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="time span"):
        parse_timespan(text)
