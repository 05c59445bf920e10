"""Every figure of the report, against a computation of its own in plain Python.

The data has what figures get wrong: partitions that nothing went to, a hot key, messages without
one, duplicates, sessions out of order, several days, two entities of which one is a subscription.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from busway.pipeline.figures import report
from busway.pipeline.jobs.curate import curate
from busway.pipeline.lake.lake import Lake
from busway.pipeline.lake.tables import ENTITIES, EVENTS
from tests.pipeline.stories import NOON, Story

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 16
EMPTY = (3, 7, 11)
HOT = "hot"
MESSAGES = 240


def orders() -> Story:
    """Partition 0 has half of all; a key has two of five; each tenth is dead; each 12th twice."""
    story = Story()
    used = [part for part in range(PARTITIONS) if part not in EMPTY]
    for number in range(1, MESSAGES + 1):
        partition = 0 if number % 2 else used[1 + number % (len(used) - 1)]
        at_s = number * 37.0  # some minutes have several, the whole takes two and a half hours
        key = HOT if number % 5 < 2 else None if number % 5 == 2 else f"k-{number % 9}"
        session = f"s-{partition}-{number % 3}"
        story.tell(
            "enqueued", number, at_s, partition=partition, partition_key=key, session_id=session,
            message_size=100 + number,
        )  # fmt: skip
        if number % 12 == 0:
            story.tell("duplicate_dropped", 0, at_s + 1, partition=partition)
    # Later ones of some sessions are completed first.
    for number in _shuffled():
        (arrival,) = (
            each for each in story.events
            if each["event"] == "enqueued" and each["sequence_number"] == number
        )  # fmt: skip
        partition, token = arrival["partition"], f"t-{number}"
        waited = 100_000 + number * 3.0
        story.tell("delivered", number, waited, partition=partition, lock_token=token)
        dead = number % 10 == 0
        story.tell(
            "dead_lettered" if dead else "completed", number, waited + number % 7,
            partition=partition, lock_token=token, sub_queue="dead_letter" if dead else "main",
            dead_letter_reason=("Bad" if number % 20 else "Worse") if dead else None,
        )  # fmt: skip
    return story


def _shuffled() -> list[int]:
    """Each block of ten backwards, without those that stay in the queue."""
    blocks = [range(first + 9, first - 1, -1) for first in range(1, MESSAGES + 1, 10)]
    return [number for block in blocks for number in block if number % 30 != 1]


def news() -> Story:
    story = Story(entity="news", subscription="all", epoch="e2")
    for number in range(1, 5):
        story.tell("enqueued", number, number, partition=0)
    return story


@pytest.fixture(scope="module")
def told() -> list[dict[str, Any]]:
    return [*orders().events, *news().events]


@pytest.fixture(scope="module")
def figures(
    spark: SparkSession, told: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> report.Figures:
    lake = Lake(tmp_path_factory.mktemp("figures") / "lake")
    for number, story in enumerate((orders(), news())):
        lake.table(EVENTS.layout()).append(story.frame(spark), f"test-{number}", 0)
    for number, (entity, subscription, partitions) in enumerate(
        [("orders", None, 1), ("orders", None, PARTITIONS), ("news", "all", 2)]
    ):
        row = {
            "entity": entity, "subscription": subscription, "epoch": f"e{number}",
            "partitions": partitions, "first_captured_at": NOON + timedelta(seconds=number),
        }  # fmt: skip
        lake.table(ENTITIES.layout()).append_rows([row], f"test-{number}", 0)
    curate(spark, lake)
    return report.read(lake)


def minute(when: datetime) -> datetime:
    return when.replace(second=0, microsecond=0)


def entity(row: dict[str, Any]) -> tuple[str, str | None]:
    return row["entity"], row["subscription"]


def arrivals(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for each in told if each["event"] == "enqueued"]


def test_throughput(told: list[dict[str, Any]], figures: report.Figures) -> None:
    events: Counter[Any] = Counter()
    size: Counter[Any] = Counter()
    for each in told:
        key = (*entity(each), minute(each["event_time"]), each["event"])
        events[key] += 1
        size[key] += each["message_size"] or 0
    assert {
        (*entity(row), row["minute"], row["event"]): (row["events"], row["bytes"])
        for row in figures.throughput
    } == {key: (count, size[key]) for key, count in events.items()}


def test_skew_is_relative_to_all_partitions(
    told: list[dict[str, Any]], figures: report.Figures
) -> None:
    expected = {}
    for name, partitions in ((("orders", None), PARTITIONS), (("news", "all"), 2)):
        mine = [each for each in arrivals(told) if entity(each) == name]
        for partition in range(partitions):
            here = [each for each in mine if each["partition"] == partition]
            share = len(here) / len(mine)
            size = sum(each["message_size"] for each in here)
            expected[(*name, partition)] = (len(here), size, share, share * partitions)
    found = {
        (*entity(row), row["partition"]): (row["messages"], row["bytes"], row["share"], row["skew"])
        for row in figures.skew
    }
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        assert found[key] == pytest.approx(values), key
    assert found["orders", None, 0][3] == pytest.approx(8)  # half of all in one of 16
    assert [found["orders", None, part][3] for part in EMPTY] == [0, 0, 0]


def test_load_of_partitions(told: list[dict[str, Any]], figures: report.Figures) -> None:
    expected = Counter(
        (*entity(each), each["partition"], minute(each["event_time"])) for each in arrivals(told)
    )
    assert {
        (*entity(row), row["partition"], row["minute"]): row["messages"] for row in figures.heat
    } == dict(expected)


def test_hot_keys(told: list[dict[str, Any]], figures: report.Figures) -> None:
    total = Counter(entity(each) for each in arrivals(told))
    expected: Counter[Any] = Counter()
    for each in arrivals(told):
        for kind, column in (("session", "session_id"), ("partition_key", "partition_key")):
            if each[column] is not None:
                expected[(*entity(each), kind, each[column])] += 1
    found = {
        (*entity(row), row["key_kind"], row["key"]): (row["messages"], row["share"])
        for row in figures.hot_keys
    }
    assert {key: count for key, (count, _) in found.items()} == dict(expected)
    for key, (count, share) in found.items():
        assert share == pytest.approx(count / total[key[:2]])
    assert found["orders", None, "partition_key", HOT] == (96, pytest.approx(0.4))


def test_latency(told: list[dict[str, Any]], figures: report.Figures) -> None:
    enqueued = {each["sequence_number"]: each["event_time"] for each in arrivals(told[:-4])}
    waits: dict[Any, list[float]] = defaultdict(list)
    for each in told:
        measure = {"delivered": "to_delivery", "completed": "to_completion"}.get(each["event"])
        if measure is not None:
            began = enqueued[each["sequence_number"]]
            waited_ms = (each["event_time"] - began) / timedelta(milliseconds=1)
            waits[(*entity(each), minute(began), measure)].append(waited_ms)
    found = {(*entity(row), row["minute"], row["measure"]): row for row in figures.latency}
    assert found.keys() == waits.keys()
    for key, values in waits.items():
        ordered = sorted(values)
        assert found[key]["messages"] == len(ordered)
        assert found[key]["max_ms"] == pytest.approx(ordered[-1])
        for name, part in (("p50_ms", 0.5), ("p95_ms", 0.95), ("p99_ms", 0.99)):
            nearest = ordered[math.ceil(part * len(ordered)) - 1]
            assert found[key][name] == pytest.approx(nearest), (key, name)


def test_reasons_of_dead_letters(told: list[dict[str, Any]], figures: report.Figures) -> None:
    expected = Counter(
        (each["event_time"].date(), each["dead_letter_reason"])
        for each in told
        if each["event"] == "dead_lettered"
    )
    assert {(row["day"], row["reason"]): row["messages"] for row in figures.reasons} == dict(
        expected
    )
    assert {row["reason"] for row in figures.reasons} == {"Bad", "Worse"}
    assert all(row["still_there"] == row["messages"] for row in figures.reasons)


def test_duplicates(told: list[dict[str, Any]], figures: report.Figures) -> None:
    counts: dict[Any, Counter[str]] = defaultdict(Counter)
    for each in told:
        if each["event"] in ("enqueued", "duplicate_dropped"):
            counts[(*entity(each), minute(each["event_time"]))][each["event"]] += 1
    found = {
        (*entity(row), row["minute"]): (row["accepted"], row["dropped"], row["rate"])
        for row in figures.duplicates
    }
    assert found.keys() == counts.keys()
    for key, count in counts.items():
        accepted, dropped = count["enqueued"], count["duplicate_dropped"]
        assert found[key] == (accepted, dropped, pytest.approx(dropped / (accepted + dropped)))
    assert sum(dropped for _, dropped, _ in found.values()) == MESSAGES // 12


def test_order_of_sessions(told: list[dict[str, Any]], figures: report.Figures) -> None:
    session_of = {each["sequence_number"]: each["session_id"] for each in arrivals(told[:-4])}
    ended: dict[str, list[tuple[int, datetime]]] = defaultdict(list)
    for each in told:  # a session is in one partition, whose events are in their order
        if each["event"] == "completed":
            session = session_of[each["sequence_number"]]
            ended[session].append((each["sequence_number"], each["event_time"]))
    expected = {}
    for session, ends in ended.items():
        wrong = [
            when for place, (number, when) in enumerate(ends)
            if any(number < earlier for earlier, _ in ends[:place])
        ]  # fmt: skip
        expected[session] = (len(ends), len(wrong), min(wrong, default=None))
    assert {
        row["session_id"]: (row["completed"], row["inversions"], row["first_inversion_at"])
        for row in figures.order
    } == expected
    assert any(wrong for _, wrong, _ in expected.values())
    assert any(not wrong for _, wrong, _ in expected.values())
