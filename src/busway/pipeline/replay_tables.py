"""What a replay keeps in the lake: what it will send, to the letter, and how far it has come."""

from __future__ import annotations

from busway.model.journal import ColumnKind
from busway.pipeline.tables import LakeColumn, LakeTable

_TEXT, _COUNT, _SMALL, _TIME, _BINARY = (
    ColumnKind.TEXT,
    ColumnKind.COUNT,
    ColumnKind.SMALL,
    ColumnKind.TIME,
    ColumnKind.BINARY,
)

PLANS = LakeTable(
    "replay_plans",
    "jobs",
    "One row per replay: what it sends, and where to.",
    (
        LakeColumn("plan", _TEXT, "name of the plan"),
        LakeColumn("entity", _TEXT, "queue, topic or subscription whose messages they are"),
        LakeColumn("target", _TEXT, "queue or topic that gets them"),
        LakeColumn("selection", _TEXT, "which messages, as JSON"),
        LakeColumn("chunk_size", _COUNT, "messages in a chunk"),
        LakeColumn("planned_at", _TIME, "when it was made"),
    ),
)

PROGRESS = LakeTable(
    "replay_progress",
    "jobs",
    "Two rows per chunk of a replay: when it was begun, and when all of it was acknowledged.",
    (
        LakeColumn("plan", _TEXT, "name of the plan"),
        LakeColumn("chunk", _COUNT, "which chunk, from 0"),
        LakeColumn("state", _TEXT, "sending or sent"),
        LakeColumn("messages", _COUNT, "messages in the chunk"),
        LakeColumn("at", _TIME, "when"),
    ),
)


def messages_of(plan: str) -> LakeTable:
    """The messages of one plan: a table of its own, which can be deleted when it is done."""
    return LakeTable(
        f"replays/{plan}",
        "jobs",
        "The messages of a replay, as they are sent.",
        (
            LakeColumn("position", _COUNT, "place in the replay, from 0"),
            LakeColumn("chunk", _COUNT, "chunk that it is sent in"),
            LakeColumn("epoch", _TEXT, "incarnation of the entity"),
            LakeColumn("partition", _SMALL, "partition that it was in"),
            LakeColumn("sequence_number", _COUNT, "number that it had"),
            LakeColumn("original_message_id", _TEXT, "id that it had"),
            LakeColumn("message_id", _TEXT, "id that it gets: SHA-256 of the plan and its number"),
            LakeColumn("session_id", _TEXT, "session"),
            LakeColumn("partition_key", _TEXT, "key that picks the partition"),
            LakeColumn("correlation_id", _TEXT, "correlation id"),
            LakeColumn("subject", _TEXT, "subject"),
            LakeColumn("content_type", _TEXT, "content type of the body"),
            LakeColumn("reply_to", _TEXT, "where answers go"),
            LakeColumn("reply_to_session_id", _TEXT, "session that answers go to"),
            LakeColumn("to", _TEXT, "address that the sender wrote on it"),
            LakeColumn("typed_properties", _TEXT, "application properties with their types"),
            LakeColumn("body", _BINARY, "body"),
            LakeColumn("body_type", _TEXT, "data, string, binary, value or sequence"),
        ),
    )


JOBS = (PLANS, PROGRESS)
