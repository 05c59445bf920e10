"""A move to a twin: nothing lost, nothing doubled, nothing changed, nothing out of order (D-27)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from busway.model.message import Message, MessageState
from busway.sim.history import Violation
from busway.store.base import SubQueueKey, SubQueueKind

NAME = "moves"


class Stored(NamedTuple):
    """What a message is wherever it lies, by which it must be known again."""

    kind: SubQueueKind
    state: MessageState
    session_id: str | None
    expires_ms: int | None
    enqueued_ms: int
    changes: bytes | None
    annotations: bytes


class Row(NamedTuple):
    partition: int
    number: int
    delivery_count: int
    stored: Stored


class Rows:
    """All that an entity holds, by the bytes that were sent, which differ for each message."""

    def __init__(self, found: Iterable[tuple[SubQueueKey, Sequence[Message]]]) -> None:
        self.by_body: dict[bytes, Row] = {}
        for key, messages in found:
            for each in messages:
                if each.bare in self.by_body:
                    raise Violation(NAME, f"{each} of {key} is there twice")
                stored = Stored(
                    key.kind,
                    each.state,
                    each.session_id,
                    each.expires_ms,
                    each.enqueued_ms,
                    each.changes,
                    each.annotations,
                )
                self.by_body[each.bare] = Row(
                    key.partition, each.number, each.delivery_count, stored
                )

    def in_order(self) -> list[bytes]:
        return sorted(self.by_body, key=lambda body: self.by_body[body].number)


def check_move(
    before: Rows, after: Rows, locked: set[bytes], *, there_and_back: bool = False
) -> None:
    """`locked` are those that a receiver had: a lock that ran out has counted (LOCK-4), one that
    its store lost has not (D-5). What went there and back was in several places meanwhile: of that
    only sessions keep their order."""
    lost = before.by_body.keys() - after.by_body.keys()
    if lost:
        raise Violation(NAME, f"lost: {[before.by_body[body] for body in lost]}")
    unexpected = after.by_body.keys() - before.by_body.keys()
    if unexpected:
        raise Violation(NAME, f"unexpected: {[after.by_body[body] for body in unexpected]}")
    for body, row in before.by_body.items():
        now = after.by_body[body]
        if now.stored != row.stored:
            raise Violation(NAME, f"{row} has become {now}")
        counted = now.delivery_count - row.delivery_count
        if counted and not (counted == 1 and body in locked):
            raise Violation(NAME, f"the deliveries of {row} are {now.delivery_count}")
    _check_order(before, after, by_session=there_and_back)


def _check_order(before: Rows, after: Rows, *, by_session: bool) -> None:
    """What lay in one place, and lies in one place again, is in the order in which it was; sessions
    are never split (P-18), so that is more than FIFO within each."""
    first: dict[Hashable, list[bytes]] = {}
    then: dict[Hashable, list[bytes]] = {}
    for rows, ways in ((before, first), (after, then)):
        for body in rows.in_order():
            source, twin = before.by_body[body], after.by_body[body]
            way: Hashable = (source.stored.kind, source.partition, twin.partition)
            if by_session:
                way = (source.stored.kind, source.stored.session_id or body)
            ways.setdefault(way, []).append(body)
    for way, bodies in first.items():
        if then[way] != bodies:
            raise Violation(NAME, f"another order on the way {way}")
