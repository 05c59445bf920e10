"""Copies of messages: what a sender wrote, to the byte, but for what cannot stay as it was.

A copy is enqueued now. So its time to live begins anew, a moment of expiry that has passed is left
out, and a time to be enqueued at that has passed means at once (SCH-1). Its id may have to be
another one, where a target would take it for a duplicate of itself; then the old one goes along as
an application property.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from busway.amqp.codec import scan_message
from busway.amqp.sections import (
    ABSOLUTE_EXPIRY_TIME,
    TTL_MAX_MS,
    VIA_PARTITION_KEY,
    apply_changes,
    drop_application_properties,
    drop_pairs,
    merge_changes,
    read_application_properties,
    replace_properties,
    sender_front,
    with_times,
)
from busway.model.partitioning import message_id_text

ORIGINAL_ID = "busway-original-message-id"
"""The application property of a copy that says which message it is a copy of."""
RESUBMITTED_FOR = "busway-resubmitted-for"
"""Of a copy of a subscription's dead letter: the subscription, for the rules of others."""
MESSAGE_ID = 0
"""Its place in the properties section (AMQP 1.0, section 3.2.4)."""


def copy_of(
    message: bytes,
    now_ms: int,
    *,
    message_id: str | None = None,
    without: Collection[str] = (),
    more: Mapping[str, Any] | None = None,
) -> bytes:
    """A copy of a message as a sender sent it, or as a broker delivered it.

    With `message_id` under another id, `without` some application properties, and with `more`.
    What brokers wrote on it is left out, and the key that chose a way to send it by (TXN-5).
    """
    seen = scan_message(message)
    bare = drop_application_properties(seen.bare, without)
    added = dict(more or {})
    fields: dict[int, Any] = {}
    if seen.ttl_ms is not None and seen.ttl_ms > TTL_MAX_MS:
        bare = with_times(bare, now_ms, now_ms + seen.ttl_ms)
    elif seen.absolute_expiry_ms is not None and seen.absolute_expiry_ms <= now_ms:
        fields[ABSOLUTE_EXPIRY_TIME] = None
    if message_id is not None:
        fields[MESSAGE_ID] = message_id
        if seen.message_id is not None and ORIGINAL_ID not in read_application_properties(bare):
            added[ORIGINAL_ID] = message_id_text(seen.message_id)
    if fields:
        bare = replace_properties(bare, fields)
    if added:
        bare = apply_changes(bare, merge_changes(None, added))
    annotations, items = seen.annotations, seen.annotation_items
    if seen.via_partition_key is not None:
        annotations, items = drop_pairs(annotations, items, {VIA_PARTITION_KEY})
    return sender_front(seen.header, seen.ttl_ms, annotations, items) + bare


def hashed(values: Sequence[Any]) -> str:
    """The same values have the same id, in every run and on every machine."""
    text = json.dumps(values, default=_told, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _told(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
