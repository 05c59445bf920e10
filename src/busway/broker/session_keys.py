"""Which session a message belongs to, at the entity where it is (SES-13).

A `Message` is kept with the key of its session: the id that its sender wrote, folded where the
entity folds. What the sender wrote is in its properties.
"""

from __future__ import annotations

from busway.amqp import codec
from busway.amqp.errors import ProtocolError
from busway.model.entities import Entity
from busway.model.message import Message
from busway.model.session_ids import fold


def spelt_session_id(message: Message) -> str | None:
    """As the message says it of itself; as it is kept, if what it says cannot be read."""
    try:
        said = codec.scan_message(message.bare).group_id
    except ProtocolError:
        said = None
    return message.session_id if said is None else said


def session_key_at(entity: Entity, message: Message) -> str | None:
    """The key of its session at an entity that it comes to from another one (P-40)."""
    if message.session_id is None:
        return None
    return fold(message.session_id) if entity.folds_session_ids else spelt_session_id(message)
