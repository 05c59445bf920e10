"""What a replay keeps in the lake: what it will send, and how far it has come."""

from __future__ import annotations

import re

from busway.pipeline.lake.table import COUNT, DATE, SMALL, TEXT, TIME, LakeColumn, LakeTable

PLAN_FOLDER = "replays"
PLAN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")

PLANS = LakeTable(
    "replay_plans",
    "jobs",
    "One row per replay: what it sends, and where to.",
    (
        LakeColumn("plan", TEXT, "name of the plan"),
        LakeColumn("entity", TEXT, "queue, topic or subscription whose messages they are"),
        LakeColumn("target", TEXT, "queue or topic that gets them"),
        LakeColumn("selection", TEXT, "which messages, as JSON"),
        LakeColumn("chunk_size", COUNT, "messages in a chunk"),
        LakeColumn("planned_at", TIME, "when it was made"),
    ),
)

PROGRESS = LakeTable(
    "replay_progress",
    "jobs",
    "Two rows per chunk of a replay: when it was begun, and when all of it was acknowledged.",
    (
        LakeColumn("plan", TEXT, "name of the plan"),
        LakeColumn("chunk", COUNT, "which chunk, from 0"),
        LakeColumn("state", TEXT, "sending or sent"),
        LakeColumn("messages", COUNT, "messages in the chunk"),
        LakeColumn("at", TIME, "when"),
    ),
)


def messages_of(plan: str) -> LakeTable:
    """The messages of one plan: a table of its own, which can be deleted when it is done.

    Where they are in the table `events`, which has their bodies.
    """
    return LakeTable(
        f"{PLAN_FOLDER}/{plan}",
        "jobs",
        "The messages of a replay: which they are, and when they are sent.",
        (
            LakeColumn("position", COUNT, "place in the replay, from 0"),
            LakeColumn("chunk", COUNT, "chunk that it is sent in"),
            LakeColumn("epoch", TEXT, "incarnation of the entity"),
            LakeColumn("partition", SMALL, "partition that it was in"),
            LakeColumn("journal_offset", COUNT, "place of its arrival in the partition's journal"),
            LakeColumn("event_date", DATE, "date of its arrival"),
            LakeColumn("sequence_number", COUNT, "number that it had"),
            LakeColumn("original_message_id", TEXT, "id that it had"),
            LakeColumn("message_id", TEXT, "id that it gets: SHA-256 of the plan and its number"),
            LakeColumn("session_id", TEXT, "session"),
        ),
    )


JOBS = (PLANS, PROGRESS, messages_of("NAME"))
