"""Nothing acknowledged is lost, nothing unexpected appears, nothing comes twice (MSG-2, D-6).

A message *must*, *must not* or *may* be there, by how its send ended; and it is *gone*, *may be
gone* or is not, by how settlements of it ended.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from busway.broker.seams import SettlementKind
from busway.model.entities import Queue
from busway.sim.history import (
    Answer,
    Delivered,
    Event,
    Peeked,
    PeekStarted,
    QueueCreated,
    QueueDeleted,
    RemovalUnknown,
    SendEnded,
    SendStarted,
    SettleEnded,
    SettleStarted,
    Violation,
)
from busway.store.base import SubQueueKey, SubQueueKind

NAME = "presence"


class There(Enum):
    MUST = "must be there"
    MAY = "may be there"
    MUST_NOT = "must not be there"


class Gone(Enum):
    NO = "not gone"
    MAYBE = "may be gone"
    YES = "gone"


@dataclass(slots=True)
class Fate:
    """What is known of one message."""

    incarnation: int
    send: int
    size: int
    ttl_ms: int | None
    sent_ms: int
    there: There = There.MAY
    gone: Gone = Gone.NO
    dead_lettered: Gone = Gone.NO
    pending: set[int] = field(default_factory=set)
    """Settlements under way that would remove or dead-letter it."""
    gone_since: int = 0
    """The event after which it was certainly gone."""


class Presence:
    def __init__(self) -> None:
        self.fates: dict[int, Fate] = {}
        self._sends: dict[int, tuple[int, ...]] = {}
        self._settlements: dict[int, SettleStarted] = {}
        self._queues: dict[int, Queue] = {}
        self._deleted: set[int] = set()
        self._cut_off: dict[int, int] = {}
        """By incarnation: messages that were removed for clients that never got them (D-6)."""
        self._peeks: dict[int, tuple[PeekStarted, int]] = {}
        self._events = 0

    def see(self, now_ms: int, event: Event) -> None:
        self._events += 1
        match event:
            case QueueCreated(queue):
                self._queues[queue.incarnation] = queue
            case QueueDeleted(incarnation):
                self._deleted.add(incarnation)
            case SendStarted():
                self._sends[event.send] = event.bodies
                for body, size in zip(event.bodies, event.sizes, strict=True):
                    self.fates[body] = Fate(
                        event.incarnation, event.send, size, event.ttl_ms, now_ms
                    )
            case SendEnded(send, answer):
                self._sent(send, answer)
            case Delivered():
                self._delivered(event)
            case SettleStarted():
                self._settlements[event.settlement] = event
                if _removes(event):
                    self.fates[event.body].pending.add(event.settlement)
            case SettleEnded(settlement, answer):
                self._settled(self._settlements.pop(settlement), answer)
            case RemovalUnknown():
                for body in event.bodies:
                    if self.fates[body].gone is Gone.NO:
                        self.fates[body].gone = Gone.MAYBE
                cut_off = self._cut_off.get(event.incarnation, 0)
                self._cut_off[event.incarnation] = cut_off + event.count
            case PeekStarted():
                self._peeks[event.peek] = (event, self._events)
            case Peeked():
                self._peeked(event)

    def _sent(self, send: int, answer: Answer) -> None:
        for body in self._sends.pop(send):
            fate = self.fates[body]
            if answer is Answer.DONE:
                fate.there = There.MUST
            elif answer is Answer.REFUSED:
                if fate.there is There.MUST:
                    raise Violation(NAME, f"{body} was delivered and then its send refused")
                fate.there = There.MUST_NOT

    def _delivered(self, event: Delivered) -> None:
        fate = self._expected(event.body, event.key, "delivered")
        if fate.gone is Gone.YES:
            raise Violation(NAME, f"{event.body} was delivered again although it is gone")
        self._placed(event.body, fate, event.key)
        fate.gone = Gone.NO
        if event.token is None:
            fate.gone = Gone.YES
            fate.gone_since = self._events

    def _placed(self, body: int, fate: Fate, key: SubQueueKey) -> None:
        if key.kind is SubQueueKind.DEAD_LETTER:
            fate.dead_lettered = Gone.YES
        elif fate.dead_lettered is Gone.YES:
            raise Violation(NAME, f"{body} is in the main queue although it was dead-lettered")

    def _expected(self, body: int, key: SubQueueKey, how: str) -> Fate:
        fate = self.fates.get(body)
        if fate is None:
            raise Violation(NAME, f"{body} was {how} and never sent")
        if fate.there is There.MUST_NOT:
            raise Violation(NAME, f"{body} was {how} although its send was refused")
        if fate.incarnation != key.incarnation:
            raise Violation(NAME, f"{body} was {how} from another queue than it was sent to")
        fate.there = There.MUST
        return fate

    def _settled(self, started: SettleStarted, answer: Answer) -> None:
        fate = self.fates[started.body]
        fate.pending.discard(started.settlement)
        if answer is Answer.REFUSED:
            return
        done = answer is Answer.DONE
        if started.kind is SettlementKind.COMPLETE:
            if done and fate.gone is Gone.YES:
                raise Violation(NAME, f"{started.body} was completed twice")
            if fate.gone is not Gone.YES:
                fate.gone = Gone.YES if done else Gone.MAYBE
                fate.gone_since = self._events
        elif (
            started.kind is SettlementKind.DEAD_LETTER
            and started.key.kind is SubQueueKind.MAIN
            and fate.dead_lettered is not Gone.YES
        ):
            fate.dead_lettered = Gone.YES if done else Gone.MAYBE

    def _peeked(self, event: Peeked) -> None:
        started, since = self._peeks.pop(event.peek)
        for body in event.bodies:
            fate = self._expected(body, started.key, "peeked")
            if fate.gone is Gone.YES and fate.gone_since < since:
                raise Violation(NAME, f"{body} was peeked although it was gone before")
        if list(event.numbers) != sorted(set(event.numbers)):
            raise Violation(NAME, f"a peek showed numbers out of order: {event.numbers}")
        if event.numbers and event.numbers[0] < started.from_number:
            raise Violation(NAME, f"a peek from {started.from_number} showed {event.numbers[0]}")

    # What the end must look like.

    def expects(self, body: int, now_ms: int) -> There:
        """Whether the message is to be found in a store that is at rest."""
        fate = self.fates[body]
        if (
            fate.there is There.MUST_NOT
            or fate.gone is Gone.YES
            or fate.incarnation in self._deleted
        ):
            return There.MUST_NOT
        if fate.there is There.MAY or fate.gone is Gone.MAYBE or fate.pending:
            return There.MAY
        return There.MAY if self._may_expire(fate, now_ms) else There.MUST

    def _may_expire(self, fate: Fate, now_ms: int) -> bool:
        queue = self._queues[fate.incarnation]
        lives_ms = [ms for ms in (fate.ttl_ms, queue.default_ttl_ms) if ms is not None]
        if not lives_ms or queue.dead_lettering_on_expiration:
            return False
        return fate.sent_ms + min(lives_ms) <= now_ms

    def check_found(self, found: dict[int, SubQueueKey], now_ms: int) -> None:
        """`found` is all that the stores hold, at rest."""
        for body, key in found.items():
            fate = self._expected(body, key, "found in the store")
            if fate.gone is Gone.YES:
                raise Violation(NAME, f"{body} is in the store although it is gone")
            self._placed(body, fate, key)
        missing: dict[int, list[int]] = {}
        for body, fate in self.fates.items():
            if body not in found and self.expects(body, now_ms) is There.MUST:
                missing.setdefault(fate.incarnation, []).append(body)
        for incarnation, bodies in missing.items():
            if len(bodies) > self._cut_off.get(incarnation, 0):
                raise Violation(NAME, f"lost: {bodies}")
            # Removed for somebody who never got them: each is forgiven once.
            self._cut_off[incarnation] -= len(bodies)
            for body in bodies:
                self.fates[body].gone = Gone.YES


def _removes(event: SettleStarted) -> bool:
    return event.kind is SettlementKind.COMPLETE
