"""The tables of a lake, with every column and what it means.

Bronze is what was read, silver is one row per thing, gold is figures; jobs keep tables of their own
there (`replay_tables.py`). Layouts only gain columns, and those may be empty in older rows.
"""

from __future__ import annotations

from busway.model.journal import COLUMNS
from busway.pipeline.lake.replay_tables import JOBS, PLAN_FOLDER, PLAN_NAME, messages_of
from busway.pipeline.lake.table import (
    BINARY,
    COUNT,
    DATE,
    REAL,
    SMALL,
    TEXT,
    TEXT_MAP,
    TIME,
    LakeColumn,
    LakeTable,
    lake_table,
)

# --- Bronze --------------------------------------------------------------------------------------

JOURNAL_MEANINGS = {
    "entity": "queue or topic",
    "subscription": "subscription of the topic, if the journal is of one",
    "partition": "partition of the entity",
    "journal_offset": "place in the partition's journal, without gaps",
    "event": "what happened: enqueued, delivered, completed, ...",
    "event_time": "when it was committed",
    "sub_queue": "main queue, dead-letter or transfer queue",
    "sequence_number": "number of the message; with the epoch its identity",
    "related_sequence_number": "the number that it has, or had, on the other side of the event",
    "enqueued_sequence_number": "number at its first queue, before it was forwarded",
    "enqueued_time": "when the message became available",
    "scheduled_time": "when a scheduled message falls due",
    "expires_at": "when its time to live ends",
    "message_id": "id that the sender gave it",
    "session_id": "session",
    "partition_key": "key that picked the partition",
    "correlation_id": "correlation id",
    "subject": "subject, once called label",
    "content_type": "content type of the body",
    "reply_to": "where answers go",
    "reply_to_session_id": "session that answers go to",
    "to": "address that the sender wrote on it",
    "delivery_count": "how often it was delivered before",
    "lock_token": "lock under which it was delivered or settled",
    "dead_letter_reason": "why it was dead-lettered",
    "dead_letter_description": "what its receiver said of it",
    "dead_letter_source": "where it was dead-lettered first",
    "destination": "where it was forwarded to",
    "application_properties": "application properties as texts",
    "typed_properties": "application properties as JSON with their AMQP types, without loss",
    "body": "body",
    "body_type": "data, value or sequence",
    "body_size": "bytes of the body",
    "message_size": "bytes of the whole message",
    "schema_version": "of these columns",
    "envelope": "the encoded message without its body, as it was sent; with it, if that is no plain"
    " text or bytes",
}

EVENTS = LakeTable(
    "events",
    "bronze",
    "What happened to messages, one row per event, as the journals tell it.",
    (
        *(LakeColumn(each.name, each.kind, JOURNAL_MEANINGS[each.name]) for each in COLUMNS),
        LakeColumn("epoch", TEXT, "incarnation of the entity: another one if it was made anew"),
        LakeColumn("event_date", DATE, "date of event_time, in UTC"),
    ),
    ("event_date",),
)

ENTITIES = lake_table(
    "entities",
    "bronze",
    "What was captured: one row per incarnation of a queue, topic or subscription.",
    ("entity", TEXT, "queue or topic"),
    ("subscription", TEXT, "subscription, if it is of one"),
    ("epoch", TEXT, "incarnation of the entity"),
    ("partitions", SMALL, "how many partitions it has"),
    ("first_captured_at", TIME, "when a capture into this lake saw it first"),
)

# --- Silver --------------------------------------------------------------------------------------

_IDENTITY = (
    ("entity", TEXT, "queue or topic"),
    ("subscription", TEXT, "subscription, if it is of one"),
    ("epoch", TEXT, "incarnation of the entity"),
    ("partition", SMALL, "partition"),
    ("sequence_number", COUNT, "number of the message"),
)

MESSAGES = lake_table(
    "messages",
    "silver",
    "One row per message, with its life. One that was migrated has its row in the new journal.",
    *_IDENTITY,
    ("message_id", TEXT, "id that the sender gave it"),
    ("session_id", TEXT, "session"),
    ("partition_key", TEXT, "key that picked the partition"),
    ("correlation_id", TEXT, "correlation id"),
    ("subject", TEXT, "subject"),
    ("content_type", TEXT, "content type of the body"),
    ("reply_to", TEXT, "where answers go"),
    ("to", TEXT, "address that the sender wrote on it"),
    ("application_properties", TEXT_MAP, "application properties as texts"),
    ("typed_properties", TEXT, "application properties with their types, as JSON"),
    ("body", BINARY, "body"),
    ("body_type", TEXT, "data, value or sequence"),
    ("body_size", COUNT, "bytes of the body"),
    ("scheduled_at", TIME, "when it was scheduled, if it was"),
    ("enqueued_at", TIME, "when it became available"),
    ("first_delivered_at", TIME, "first delivery"),
    ("last_delivered_at", TIME, "last delivery"),
    ("dead_lettered_at", TIME, "when it was dead-lettered, if it was"),
    ("ended_at", TIME, "when it left for good"),
    ("state", TEXT, "where it stands: see STATES"),
    ("deliveries", COUNT, "how often it was delivered"),
    ("abandons", COUNT, "how often it was given back, or its lock ran out"),
    ("dead_letter_reason", TEXT, "why it was dead-lettered"),
    ("dead_letter_description", TEXT, "what its receiver said of it"),
    ("destination", TEXT, "where it was forwarded to, if it was"),
    ("message_size", COUNT, "bytes of the whole message"),
    ("first_event_at", TIME, "time of its first event"),
    ("last_event", TEXT, "its last event"),
    ("last_sub_queue", TEXT, "where that happened"),
    ("last_event_at", TIME, "time of its last event"),
    ("last_offset", COUNT, "offset of its last event in the partition's journal"),
    ("first_date", DATE, "date of its first event, in UTC"),
    by=("first_date",),
)

STATES = {
    "scheduled": "waits for its time",
    "renumbered": "went on under another number: its time came, or it began to be forwarded",
    "cancelled": "was cancelled before its time",
    "active": "can be received, or is being received",
    "deferred": "waits to be asked for by its number",
    "transferring": "is on its way to another entity",
    "forwarded": "went to another entity",
    "completed": "was received",
    "expired": "its time to live ended",
    "purged": "was deleted with others",
    "dead_lettered": "is in the dead-letter queue",
    "dead_letter_removed": "has left the dead-letter queue",
}
"""What `messages.state` says."""
OVER = ("renumbered", "cancelled", "forwarded", "completed", "expired", "purged",
        "dead_letter_removed")  # fmt: skip

DELIVERIES = lake_table(
    "deliveries",
    "silver",
    "One row per delivery, with how it ended.",
    *_IDENTITY,
    ("lock_token", TEXT, "lock under which it was delivered"),
    ("attempt", COUNT, "which delivery of the message it was, from 1"),
    ("delivered_at", TIME, "when it was delivered"),
    ("settled_at", TIME, "when it ended; empty while it goes on, or if a crash cut it off"),
    ("outcome", TEXT, "completed, abandoned, lock_expired, deferred, dead_lettered; empty if open"),
    ("last_offset", COUNT, "offset of its last event in the partition's journal"),
    ("first_date", DATE, "date of its first event, in UTC"),
    by=("first_date",),
)

DEAD_LETTERS = lake_table(
    "dead_letters",
    "silver",
    "One row per message that was dead-lettered.",
    *_IDENTITY,
    ("message_id", TEXT, "id that the sender gave it"),
    ("session_id", TEXT, "session"),
    ("reason", TEXT, "why"),
    ("description", TEXT, "what was said of it"),
    ("dead_lettered_at", TIME, "when"),
    ("deliveries", COUNT, "deliveries until then"),
    ("left_at", TIME, "when it left the dead-letter queue, if it did"),
)

# --- Gold ----------------------------------------------------------------------------------------

_ENTITY = (
    ("entity", TEXT, "queue or topic"),
    ("subscription", TEXT, "subscription, if it is of one"),
)

THROUGHPUT = lake_table(
    "throughput",
    "gold",
    "Events of each kind per minute.",
    *_ENTITY,
    ("minute", TIME, "beginning of the minute"),
    ("event", TEXT, "what happened"),
    ("events", COUNT, "how often"),
    ("bytes", COUNT, "bytes of the messages, for events that carry them"),
)
LATENCY = lake_table(
    "latency",
    "gold",
    "How long messages waited, per minute in which they were enqueued.",
    *_ENTITY,
    ("minute", TIME, "beginning of the minute"),
    ("measure", TEXT, "to_delivery: until the first delivery; to_completion: until completed"),
    ("messages", COUNT, "messages measured"),
    ("p50_ms", REAL, "half of them waited at most this long"),
    ("p95_ms", REAL, "95 of 100"),
    ("p99_ms", REAL, "99 of 100"),
    ("max_ms", REAL, "the longest"),
)
SKEW = lake_table(
    "partition_skew",
    "gold",
    "How evenly the partitions of an entity are used; also those that are not.",
    *_ENTITY,
    ("partition", SMALL, "partition"),
    ("messages", COUNT, "messages that it took"),
    ("bytes", COUNT, "their bytes"),
    ("share", REAL, "its part of all messages of the entity"),
    ("skew", REAL, "its part divided by an even part of all partitions: 1 is even, 0 is unused"),
)
PARTITION_LOAD = lake_table(
    "partition_load",
    "gold",
    "Messages that each partition took, per minute.",
    *_ENTITY,
    ("partition", SMALL, "partition"),
    ("minute", TIME, "beginning of the minute"),
    ("messages", COUNT, "messages that it took"),
)
HOT_KEYS = lake_table(
    "hot_keys",
    "gold",
    "The sessions and partition keys with most messages, up to 100 of each entity.",
    *_ENTITY,
    ("key_kind", TEXT, "session or partition_key"),
    ("key", TEXT, "the key"),
    ("messages", COUNT, "messages that had it"),
    ("share", REAL, "their part of all messages of the entity"),
)
REASONS = lake_table(
    "dead_letter_reasons",
    "gold",
    "Why messages were dead-lettered, per day.",
    *_ENTITY,
    ("day", DATE, "day"),
    ("reason", TEXT, "why"),
    ("messages", COUNT, "how many"),
    ("still_there", COUNT, "how many of them are in the dead-letter queue now"),
)
DUPLICATES = lake_table(
    "duplicate_rate",
    "gold",
    "How many messages duplicate detection dropped, per minute.",
    *_ENTITY,
    ("minute", TIME, "beginning of the minute"),
    ("accepted", COUNT, "messages taken"),
    ("dropped", COUNT, "copies dropped"),
    ("rate", REAL, "dropped, divided by both together"),
)
ORDER_AUDIT = lake_table(
    "session_order",
    "gold",
    "Whether the messages of each session were completed in order.",
    *_ENTITY,
    ("epoch", TEXT, "incarnation of the entity"),
    ("session_id", TEXT, "session"),
    ("completed", COUNT, "messages completed"),
    ("inversions", COUNT, "completions of a message before an older one of the session"),
    ("first_inversion_at", TIME, "when it happened first"),
)

SILVER = (MESSAGES, DELIVERIES, DEAD_LETTERS)
GOLD = (THROUGHPUT, LATENCY, SKEW, PARTITION_LOAD, HOT_KEYS, REASONS, DUPLICATES, ORDER_AUDIT)
ALL = (EVENTS, ENTITIES, *SILVER, *GOLD, *JOBS)
BY_NAME = {table.name: table for table in ALL}


def table_named(name: str) -> LakeTable | None:
    """One of these, or the messages of a replay by their own name (`replays/NAME`)."""
    folder, _, plan = name.partition("/")
    if folder == PLAN_FOLDER and PLAN_NAME.fullmatch(plan):
        return messages_of(plan)
    return BY_NAME.get(name)
