"""Conditions on messages that a broker has shown us: the SQL of subscriptions' rules (SQL-1).

    sys.Label = 'paid' AND amount > 5

One language for who chooses: rules do it in the broker, and this does it here, with the same code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from busway.amqp.codec import decode_value, scan_message
from busway.amqp.sections import HEADER, MESSAGE_ANNOTATIONS, walk_sections
from busway.filters.errors import FilterError
from busway.filters.facts import MessageFacts
from busway.filters.rules import compile_rule
from busway.model.entities import Rule, SqlFilter
from busway.model.errors import BusError
from busway.model.message import Message, MessageState


class ConditionError(Exception):
    """It is no condition, and why."""


def condition(text: str) -> Callable[[bytes], bool]:
    """Whether a message, as a broker delivers or shows it, is one that it is true for."""
    try:
        rule = compile_rule(Rule(name="where", filter=SqlFilter(text)), lambda: UUID(int=0))
    except BusError as error:
        detail = error.text.partition("is not valid. ")[2] or error.text
        raise ConditionError(f"--where is not a condition: {detail}") from error
    decide = rule.decide
    if decide is None:
        constant = bool(rule.constant)
        return lambda payload: constant

    def matches(payload: bytes) -> bool:
        try:
            return decide(MessageFacts(delivered(payload))) is True
        except FilterError:
            return False  # as a subscription that does not dead-letter for that (RUL-5)

    return matches


def delivered(payload: bytes) -> Message:
    """What a broker has told of a message, as the broker has it."""
    annotations, delivery_count = broker_facts(payload)
    seen = scan_message(payload)
    return Message(
        bare=seen.bare,
        size=len(payload),
        header=seen.header,
        ttl_ms=seen.ttl_ms,
        annotations=seen.annotations,
        annotation_items=seen.annotation_items,
        session_id=seen.group_id,
        number=int(annotations.get("x-opt-sequence-number", 0)),
        enqueued_ms=int(annotations.get("x-opt-enqueued-time", 0)),
        expires_ms=seen.absolute_expiry_ms,
        delivery_count=delivery_count,
        state=MessageState(int(annotations.get("x-opt-message-state", 0))),
    )


def broker_facts(payload: bytes) -> tuple[dict[str, Any], int]:
    """The message annotations, and how often it was delivered before."""
    annotations: dict[str, Any] = {}
    delivery_count = 0
    for code, start, value, _ in walk_sections(payload):
        if code == MESSAGE_ANNOTATIONS:
            annotations = {str(k): v for k, v in decode_value(payload, value)[0].items()}
        elif code == HEADER:
            fields = decode_value(payload, start)[0].value
            delivery_count = int(fields[4] or 0) if len(fields) > 4 else 0
    return annotations, delivery_count
