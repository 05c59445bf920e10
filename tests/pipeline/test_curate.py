"""Messages, deliveries and figures out of events (P-47)."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from busway.pipeline.jobs.curate import NothingCapturedError, curate
from busway.pipeline.lake.lake import Lake
from busway.pipeline.lake.tables import BY_NAME, EVENTS
from tests.pipeline.stories import Story

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rows(lake: Lake, name: str) -> list[dict[str, Any]]:
    table = lake.table(BY_NAME[name].layout())
    return table.delta().to_pyarrow_table().to_pylist() if table.exists() else []


def keep(spark: SparkSession, lake: Lake, *stories: Story) -> None:
    for number, story in enumerate(stories):
        lake.table(EVENTS.layout()).append(story.frame(spark), f"test-{number}", 0)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def lives() -> Story:
    """One message of every fate, with the number of its fate."""
    story = Story()
    tell = story.tell
    for number in range(1, 9):
        tell("enqueued", number, number, session_id="s" if number in (1, 2, 3) else None)
    tell("delivered", 2, 20, lock_token="t2")
    tell("delivered", 1, 21, lock_token="t1")
    tell("completed", 2, 22, lock_token="t2")  # before the older one of its session
    tell("completed", 1, 23, lock_token="t1")
    tell("delivered", 3, 24, lock_token="t3")
    tell("abandoned", 3, 25, lock_token="t3", dead_letter_reason="LockExpired")
    tell("delivered", 3, 26, lock_token="t3b", delivery_count=1)
    tell("completed", 3, 27, lock_token="t3b")
    tell("delivered", 4, 30, lock_token="t4")
    tell("dead_lettered", 4, 31, lock_token="t4", sub_queue="dead_letter",
         dead_letter_reason="Unreadable", dead_letter_description="not JSON")  # fmt: skip
    tell("delivered", 5, 32, lock_token="t5")
    tell("dead_lettered", 5, 33, lock_token="t5", sub_queue="dead_letter",
         dead_letter_reason="Unreadable")  # fmt: skip
    tell("completed", 5, 40, lock_token="t5d", sub_queue="dead_letter")
    tell("expired", 6, 50)
    tell("delivered", 7, 51, lock_token="t7")
    tell("deferred", 7, 52, lock_token="t7")
    tell("scheduled", 100, 60)
    tell("enqueued", 9, 70, related_sequence_number=100)
    tell("scheduled", 101, 71)
    tell("cancelled", 101, 72)
    tell("duplicate_dropped", 0, 73, message_id="m-1")
    return story


STATES = {
    1: "completed", 2: "completed", 3: "completed", 4: "dead_lettered", 5: "dead_letter_removed",
    6: "expired", 7: "deferred", 8: "active", 9: "active", 100: "renumbered", 101: "cancelled",
}  # fmt: skip


def test_every_message_has_one_row_with_its_life(spark: SparkSession, lake: Lake) -> None:
    keep(spark, lake, lives())
    curate(spark, lake)
    messages = {row["sequence_number"]: row for row in rows(lake, "messages")}
    assert {number: row["state"] for number, row in messages.items()} == STATES
    third = messages[3]
    assert (third["deliveries"], third["abandons"], third["body"]) == (2, 1, b"b-3")
    assert dict(third["application_properties"]) == {"n": "3"}
    waited = third["first_delivered_at"] - third["enqueued_at"]
    assert (waited.total_seconds(), third["ended_at"].second) == (21, 27)
    assert messages[8]["ended_at"] is None
    assert messages[4]["dead_letter_description"] == "not JSON"


def test_every_delivery_has_one_row_with_its_end(spark: SparkSession, lake: Lake) -> None:
    keep(spark, lake, lives())
    curate(spark, lake)
    ends = {row["lock_token"]: (row["attempt"], row["outcome"]) for row in rows(lake, "deliveries")}
    assert ends["t3"] == (1, "lock_expired")
    assert ends["t3b"] == (2, "completed")
    assert ends["t4"] == (1, "dead_lettered")
    assert ends["t7"] == (1, "deferred")


def test_the_figures_add_up(spark: SparkSession, lake: Lake) -> None:
    keep(spark, lake, lives())
    curate(spark, lake)
    events = {row["event"]: 0 for row in rows(lake, "throughput")}
    for row in rows(lake, "throughput"):
        events[row["event"]] += row["events"]
    assert (events["enqueued"], events["completed"], events["expired"]) == (9, 4, 1)
    (reason,) = rows(lake, "dead_letter_reasons")
    assert (reason["reason"], reason["messages"], reason["still_there"]) == ("Unreadable", 2, 1)
    dropped = sum(row["dropped"] for row in rows(lake, "duplicate_rate"))
    accepted = sum(row["accepted"] for row in rows(lake, "duplicate_rate"))
    assert (accepted, dropped) == (10, 1)
    (session,) = rows(lake, "session_order")
    assert (session["session_id"], session["completed"], session["inversions"]) == ("s", 3, 1)
    (hot,) = rows(lake, "hot_keys")
    assert (hot["key_kind"], hot["key"], hot["messages"], hot["share"]) == (
        "session",
        "s",
        3,
        3 / 9,
    )
    (skew,) = rows(lake, "partition_skew")
    assert (skew["messages"], skew["share"], skew["skew"]) == (9, 1.0, 1.0)
    waits = {row["measure"]: 0 for row in rows(lake, "latency")}
    for row in rows(lake, "latency"):
        waits[row["measure"]] += row["messages"]
    assert waits == {"to_delivery": 6, "to_completion": 3}


def test_bit_by_bit_gives_what_all_at_once_gives(spark: SparkSession, tmp_path: Path) -> None:
    """Whatever was curated before, and however captures and compactions fell."""
    story = random_story(seed=7, messages=120)
    whole, bits = Lake(tmp_path / "whole"), Lake(tmp_path / "bits")
    keep(spark, whole, story)
    curate(spark, whole)
    events = bits.table(EVENTS.layout())
    cuts = [0, 40, 41, 200, len(story.events)]
    for batch, (first, last) in enumerate(pairwise(cuts)):
        events.append(story.frame(spark, first, last), "test", batch)
        if batch == 2:
            events.compact()
        curate(spark, bits)
    for name in BY_NAME:
        if name != "events":
            assert sorted(map(str, rows(bits, name))) == sorted(map(str, rows(whole, name))), name


def test_a_second_run_has_nothing_to_do(spark: SparkSession, lake: Lake) -> None:
    keep(spark, lake, lives())
    assert curate(spark, lake).rows["messages"] == 11
    assert set(curate(spark, lake).rows.values()) == {0}


def test_a_log_that_was_vacuumed_is_read_as_a_whole(spark: SparkSession, lake: Lake) -> None:
    story = lives()
    events = lake.table(EVENTS.layout())
    events.append(story.frame(spark, 0, 12), "test", 0)
    curate(spark, lake)
    events.append(story.frame(spark, 12), "test", 1)
    events.compact()
    events.vacuum(0)  # the files that the second batch brought are gone
    curate(spark, lake)
    states = {row["sequence_number"]: row["state"] for row in rows(lake, "messages")}
    assert states == STATES


def test_an_empty_lake_says_what_to_do_first(spark: SparkSession, lake: Lake) -> None:
    with pytest.raises(NothingCapturedError, match="busway pipeline capture"):
        curate(spark, lake)


def random_story(seed: int, messages: int) -> Story:
    dice = random.Random(seed)
    story = Story()
    open_ones: list[tuple[int, int]] = []
    at_s, number = 0.0, 0
    while number < messages or open_ones:
        at_s += dice.random() * 3_000  # over several days
        if number < messages and (not open_ones or dice.random() < 0.4):
            number += 1
            partition = dice.randrange(4)
            session = dice.choice([None, "a", "b"])
            story.tell("enqueued", number, at_s, partition=partition, session_id=session)
            open_ones.append((number, partition))
            continue
        place = dice.randrange(len(open_ones))
        chosen, partition = open_ones[place]
        token = f"t-{chosen}-{len(story.events)}"
        story.tell("delivered", chosen, at_s, partition=partition, lock_token=token)
        end = dice.choice(["completed", "completed", "abandoned", "dead_lettered"])
        more = {"sub_queue": "dead_letter"} if end == "dead_lettered" else {}
        story.tell(end, chosen, at_s + 1, partition=partition, lock_token=token, **more)
        if end != "abandoned":
            open_ones.pop(place)
    return story
