"""Messages for rules to look at, as a sender's bytes would become them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from busway.amqp.codec import scan_message
from busway.amqp.performatives import Properties
from busway.amqp.sections import encode_message
from busway.filters.evaluator import Compiler
from busway.filters.facts import MessageFacts
from busway.filters.operators import Truth
from busway.filters.parser import parse_filter
from busway.filters.values import Value
from busway.model.message import Message

NEW_ID = UUID("01234567-89ab-cdef-0123-456789abcdef")


def message(
    user: Mapping[str, Any] | None = None,
    *,
    annotations: bytes = b"",
    annotation_items: int = 0,
    ttl_ms: int | None = None,
    number: int = 1,
    enqueued_ms: int = 0,
    expires_ms: int | None = None,
    changes: bytes | None = None,
    data: bytes = b"body",
    **properties: Any,
) -> Message:
    encoded = encode_message(
        properties=Properties(**properties) if properties else None,
        application_properties=dict(user) if user is not None else None,
        data=data,
    )
    sections = scan_message(encoded)
    return Message(
        bare=sections.bare,
        size=len(encoded),
        ttl_ms=ttl_ms,
        annotations=annotations,
        annotation_items=annotation_items,
        session_id=sections.group_id,
        number=number,
        enqueued_ms=enqueued_ms,
        expires_ms=expires_ms,
        changes=changes,
    )


def decide(
    expression: str,
    user: Mapping[str, Any] | None = None,
    parameters: Mapping[str, object] | None = None,
    **fields: Any,
) -> Truth:
    """What a filter says of a message: True, False, or None for unknown."""
    decision = Compiler(lambda: NEW_ID, parameters).predicate(parse_filter(expression))
    return decision(MessageFacts(message(user, **fields)))


def evaluate(expression: str, user: Mapping[str, Any] | None = None, **fields: Any) -> Value:
    """The value of an expression, seen through a comparison's left side."""
    comparison: Any = parse_filter(f"{expression} = 0")
    return Compiler(lambda: NEW_ID).expression(comparison.left)(
        MessageFacts(message(user, **fields))
    )
