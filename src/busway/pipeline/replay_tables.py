"""What a replay keeps in the lake: what it will send, to the letter, and how far it has come."""

from __future__ import annotations

import re

from busway.pipeline.lake_table import BINARY, COUNT, SMALL, TEXT, TIME, LakeColumn, LakeTable

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
    """The messages of one plan: a table of its own, which can be deleted when it is done."""
    return LakeTable(
        f"{PLAN_FOLDER}/{plan}",
        "jobs",
        "The messages of a replay, as they are sent.",
        (
            LakeColumn("position", COUNT, "place in the replay, from 0"),
            LakeColumn("chunk", COUNT, "chunk that it is sent in"),
            LakeColumn("epoch", TEXT, "incarnation of the entity"),
            LakeColumn("partition", SMALL, "partition that it was in"),
            LakeColumn("sequence_number", COUNT, "number that it had"),
            LakeColumn("original_message_id", TEXT, "id that it had"),
            LakeColumn("message_id", TEXT, "id that it gets: SHA-256 of the plan and its number"),
            LakeColumn("session_id", TEXT, "session"),
            LakeColumn("partition_key", TEXT, "key that picks the partition"),
            LakeColumn("correlation_id", TEXT, "correlation id"),
            LakeColumn("subject", TEXT, "subject"),
            LakeColumn("content_type", TEXT, "content type of the body"),
            LakeColumn("reply_to", TEXT, "where answers go"),
            LakeColumn("reply_to_session_id", TEXT, "session that answers go to"),
            LakeColumn("to", TEXT, "address that the sender wrote on it"),
            LakeColumn("typed_properties", TEXT, "application properties with their types"),
            LakeColumn("body", BINARY, "body"),
            LakeColumn("body_type", TEXT, "data, string, binary, value or sequence"),
        ),
    )


JOBS = (PLANS, PROGRESS, messages_of("NAME"))
