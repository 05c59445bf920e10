"""What a client's outcome means for a locked message, and what answers it (amqp.md 10).

Two tables: delivery state or `disposition-status` to settlement, and settlement to the state that
acknowledges it. The link and `$management` say the same things in different words.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from busway.amqp.performatives import Accepted, DeliveryState, Modified, Outcome, Rejected, Released
from busway.broker import dead_letters
from busway.broker.seams import Settlement, SettlementKind
from busway.gateway.router import Router
from busway.model.entities import Entity
from busway.model.errors import BusError
from busway.model.message import Message
from busway.store.base import SubQueueKey

log = logging.getLogger("busway.gateway")

COMPLETE = Settlement(SettlementKind.COMPLETE)
ABANDON = Settlement(SettlementKind.ABANDON)
DEFER = Settlement(SettlementKind.DEFER)
DEAD_LETTER = Settlement(SettlementKind.DEAD_LETTER)
RELEASE = Settlement(SettlementKind.RELEASE)

ACKNOWLEDGEMENTS: dict[SettlementKind, Outcome] = {
    SettlementKind.COMPLETE: Accepted(),
    SettlementKind.ABANDON: Modified(),
    SettlementKind.DEFER: Modified(undeliverable_here=True),
    # Without an error: Python and JS take a rejection with one for a failure.
    SettlementKind.DEAD_LETTER: Rejected(),
    SettlementKind.RELEASE: Released(),
}

DISPOSITION_STATUSES: dict[str, SettlementKind] = {
    "completed": SettlementKind.COMPLETE,
    "abandoned": SettlementKind.ABANDON,
    "suspended": SettlementKind.DEAD_LETTER,
    "defered": SettlementKind.DEFER,  # sic: what the clients send
    "deferred": SettlementKind.DEFER,
    "released": SettlementKind.RELEASE,
}

DEAD_LETTER_TEXT_MAX = 4096
"""Characters of a reason or description (DLQ-3); more is cut off."""


def from_outcome(state: DeliveryState | None) -> Settlement | None:
    """The settlement that an outcome asks for; None if the state is no outcome."""
    if isinstance(state, Accepted):
        return COMPLETE
    if isinstance(state, Released):
        return RELEASE
    if isinstance(state, Modified):
        # Whatever delivery-failed says (DLV-2).
        plain = DEFER if state.undeliverable_here else ABANDON
        if not state.message_annotations:
            return plain
        return Settlement(plain.kind, _changes(state.message_annotations))
    if isinstance(state, Rejected):
        # The condition does not matter, and neither does a missing info.
        info = state.error.info if state.error is not None else None
        if not info:
            return DEAD_LETTER
        return Settlement(SettlementKind.DEAD_LETTER, _changes(info))
    return None


def from_status(
    kind: SettlementKind, reason: object, description: object, properties: object
) -> Settlement:
    """The settlement of an `update-disposition` request (management-amqp.md 4.6)."""
    changes = _changes(properties) if isinstance(properties, dict) else {}
    if kind is SettlementKind.DEAD_LETTER:
        for name, value in ((dead_letters.REASON, reason), (dead_letters.DESCRIPTION, description)):
            if isinstance(value, str) and value:  # Python sends empty strings when unset
                changes[name] = value[:DEAD_LETTER_TEXT_MAX]
    return Settlement(kind, changes)


def _changes(properties: dict[Any, Any]) -> dict[str, Any]:
    changes = {}
    for name, value in properties.items():
        if str(name) in (dead_letters.REASON, dead_letters.DESCRIPTION):
            if value is None or value == "":
                continue  # not set
            if isinstance(value, str):  # any other keeps its type: a timestamp stays one
                value = str(value)[:DEAD_LETTER_TEXT_MAX]
        changes[str(name)] = value
    return changes


class Unanswered:
    """Answers nobody waits for: the client has settled already, or it never saw the message."""

    def committed(self, tags: list[int]) -> None:
        pass

    def failed(self, tag: int, error: BusError) -> None:
        log.debug("a settlement that nobody waits for failed: %s", error)


UNANSWERED = Unanswered()


def hand_back(
    router: Router, entity: Entity, key: SubQueueKey, messages: Iterable[Message]
) -> None:
    """Unlock what was delivered to somebody who has left, without counting it (DLV-1)."""
    tokens = [message.lock_token for message in messages if message.lock_token is not None]
    release(router, entity, key, tokens)


def release(router: Router, entity: Entity, key: SubQueueKey, tokens: Iterable[bytes]) -> None:
    """As `hand_back`, by tokens."""
    owner = router.owner(entity, key.partition)
    if owner is None:
        return  # its locks are void with the store
    for token in tokens:
        owner.settle(key, token, RELEASE, UNANSWERED, 0)
