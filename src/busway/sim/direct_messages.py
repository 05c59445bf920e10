"""Messages as simulated gateways hand them to brokers: a body that is a number, and around it what
a sender may say of session, key, id and time."""

from __future__ import annotations

from collections.abc import Sequence

from busway.amqp.codec import decode_value, encode_value
from busway.amqp.performatives import Properties
from busway.amqp.sections import DATA, encode_message, walk_sections
from busway.amqp.types import Symbol
from busway.gateway import envelope
from busway.model.entities import Queue, Topic
from busway.model.message import Message, MessageState
from busway.model.partitioning import partition_of_key
from busway.sim.traits import PLAIN, Traits

PARTITION_KEY = encode_value(Symbol("x-opt-partition-key"))

Target = Queue | Topic
"""What messages can be sent to."""


def body_of(message: Message) -> int:
    """The number that a message is, whoever sent it: bare digits, or AMQP's data section."""
    if message.bare.isdigit():
        return int(message.bare)
    for code, _, value, stop in walk_sections(message.bare):
        if code == DATA:
            return int(bytes(decode_value(message.bare[value:stop])[0]))
    raise ValueError(f"{message} has no body")


def message_id_of(body: int) -> str:
    return f"id-{body}"


def effective_key(target: Target, body: int, key: str | None, session_id: str | None) -> str | None:
    """What decides about the partition (P-17); where duplicates are detected, at last the id."""
    if session_id is not None or key is not None:
        return session_id or key
    return message_id_of(body) if target.requires_duplicate_detection else None


def partition_for(target: Target, key: str | None) -> int | None:
    return None if key is None else partition_of_key(key, len(target.placement))


def make_messages(
    target: Target,
    bodies: Sequence[int],
    sizes: Sequence[int],
    *,
    ttl_ms: int | None = None,
    key: str | None = None,
    session_id: str | None = None,
    due_ms: int | None = None,
    traits: Traits = PLAIN,
) -> list[Message]:
    """Anew for each try: a broker owns what it was given. Every message has an id, and the target
    looks at it if it detects duplicates."""
    messages = []
    for body, size in zip(bodies, sizes, strict=True):
        message_id = message_id_of(body)
        message = Message(
            bare=encode_message(
                properties=Properties(
                    message_id=message_id, subject=traits.label, group_id=session_id
                ),
                application_properties=traits.properties,
                data=str(body).encode(),
            ),
            size=size,
            ttl_ms=ttl_ms,
            session_id=session_id,
        )
        if key is not None:
            message.annotations = PARTITION_KEY + encode_value(key)
            message.annotation_items = 2
        if target.requires_duplicate_detection:
            decides = effective_key(target, body, key, session_id)
            message.digest = envelope.digest(
                message_id, decides if target.enable_partitioning else None
            )
        if due_ms is not None:
            message.state = MessageState.SCHEDULED
            message.expires_ms = due_ms
        messages.append(message)
    return messages
