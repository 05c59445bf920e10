"""Nothing acknowledged is lost, nothing unexpected appears, nothing comes twice (MSG-2, D-6).

A message *must*, *must not* or *may* be there, by how its sends ended; and it is *gone*, *may be
gone* or is not, by how settlements of it ended. It may be where it was sent to, or where that
forwards to.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from busway.broker.seams import SettlementKind
from busway.sim.checkers.routes import Routes
from busway.sim.history import (
    Answer,
    CancelEnded,
    CancelStarted,
    Delivered,
    Event,
    Peeked,
    PeekStarted,
    RemovalUnknown,
    SendEnded,
    SendStarted,
    SettleEnded,
    SettleStarted,
    TransactionStarted,
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
    destination: str | None = None
    sends: int = 1
    """Under way, or with an outcome that nobody knows."""
    there: There = There.MAY
    gone: Gone = Gone.NO
    gone_from: int = 0
    """The incarnation that it was in, then."""
    dead_lettered: set[int] = field(default_factory=set)
    """The incarnations in whose main queues it will not be any more."""
    pending: set[int] = field(default_factory=set)
    """Settlements and cancels under way that would remove it."""
    gone_since: int = 0
    """The event after which it was certainly gone."""


class Presence:
    def __init__(self) -> None:
        self.fates: dict[int, Fate] = {}
        self._sends: dict[int, tuple[int, ...]] = {}
        self.transacted: set[int] = set()
        """Sent in transactions: they may go by way of another entity, too (TXN-3)."""
        self._settlements: dict[int, SettleStarted] = {}
        self._cancels: dict[int, tuple[int, ...]] = {}
        self._routes = Routes()
        self._cut_off: dict[int, int] = {}
        """By incarnation: messages that were removed for clients that never got them (D-6)."""
        self._peeks: dict[int, tuple[PeekStarted, int]] = {}
        self._events = 0

    def see(self, now_ms: int, event: Event) -> None:
        self._events += 1
        self._routes.see(event)
        match event:
            case SendStarted():
                self._send_started(now_ms, event)
            case TransactionStarted():
                for send in event.sends:
                    self.transacted.update(self._sends[send])
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
            case CancelStarted(cancel, bodies):
                self._cancels[cancel] = bodies
                for body in bodies:
                    self.fates[body].pending.add(cancel)
            case CancelEnded(cancel, answer):
                for body in self._cancels.pop(cancel):
                    self._cancelled(cancel, body, answer)
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

    def _send_started(self, now_ms: int, event: SendStarted) -> None:
        self._sends[event.send] = event.bodies
        for body, size in zip(event.bodies, event.sizes, strict=True):
            fate = self.fates.get(body)
            if fate is None:
                self.fates[body] = Fate(
                    event.incarnation, event.send, size, event.ttl_ms, now_ms, event.destination
                )
            else:  # sent again (DUP-3)
                fate.sends += 1
                if fate.there is There.MUST_NOT:
                    fate.there = There.MAY

    def _sent(self, send: int, answer: Answer) -> None:
        for body in self._sends.pop(send):
            fate = self.fates[body]
            if answer is Answer.DONE:
                fate.there = There.MUST
            elif answer is Answer.REFUSED:
                fate.sends -= 1
                if fate.there is There.MUST and fate.send == send and not fate.sends:
                    raise Violation(NAME, f"{body} was delivered and then its send refused")
                if fate.there is There.MAY and not fate.sends:
                    fate.there = There.MUST_NOT

    def was_carried_out(self, body: int) -> None:
        """A send that nobody had an answer to was done, as is known by now."""
        self.fates[body].there = There.MUST

    def _cancelled(self, cancel: int, body: int, answer: Answer) -> None:
        fate = self.fates[body]
        fate.pending.discard(cancel)
        if answer is Answer.DONE:
            if fate.gone is Gone.YES:
                raise Violation(NAME, f"{body} was cancelled although it is gone")
            self._gone(fate, fate.incarnation)
        elif answer is Answer.UNKNOWN and fate.gone is Gone.NO:
            fate.gone = Gone.MAYBE

    def _gone(self, fate: Fate, incarnation: int) -> None:
        fate.gone = Gone.YES
        fate.gone_from = incarnation
        fate.gone_since = self._events

    def _delivered(self, event: Delivered) -> None:
        fate = self._expected(event.body, event.key, "delivered")
        if fate.gone is Gone.YES and not self._came_again(fate, event.key.incarnation):
            raise Violation(NAME, f"{event.body} was delivered again although it is gone")
        self._placed(event.body, fate, event.key)
        fate.gone = Gone.NO
        if event.token is None:
            self._gone(fate, event.key.incarnation)

    def _came_again(self, fate: Fate, incarnation: int) -> bool:
        """What was handed to a destination that was deleted before it could say so is handed to the
        next one of that name, or is a dead letter of its source (FWD-4)."""
        was_forwarded = fate.gone_from != fate.incarnation
        deleted = fate.gone_from in self._routes.deleted
        return was_forwarded and deleted and fate.gone_from != incarnation

    def _placed(self, body: int, fate: Fate, key: SubQueueKey) -> None:
        if key.kind is not SubQueueKind.MAIN:
            fate.dead_lettered.add(key.incarnation)
        elif key.incarnation in fate.dead_lettered:
            raise Violation(NAME, f"{body} is in the main queue although it was dead-lettered")

    def _expected(self, body: int, key: SubQueueKey, how: str) -> Fate:
        fate = self.fates.get(body)
        if fate is None:
            raise Violation(NAME, f"{body} was {how} and never sent")
        if fate.there is There.MUST_NOT:
            raise Violation(NAME, f"{body} was {how} although its send was refused")
        if key.incarnation not in self._routes.from_(fate.incarnation, fate.destination):
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
            if done:
                self._gone(fate, started.key.incarnation)
            elif fate.gone is Gone.NO:
                fate.gone = Gone.MAYBE
        elif started.kind is SettlementKind.DEAD_LETTER and done:
            fate.dead_lettered.add(started.key.incarnation)

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
        places = self._routes.from_(fate.incarnation, fate.destination)
        if fate.there is There.MUST_NOT or fate.gone is Gone.YES or places <= self._routes.deleted:
            return There.MUST_NOT
        if fate.there is There.MAY or fate.gone is Gone.MAYBE or fate.pending:
            return There.MAY
        if not places.isdisjoint(self._routes.deleted):
            return There.MAY
        return There.MAY if self._may_expire(fate, places, now_ms) else There.MUST

    def _may_expire(self, fate: Fate, places: frozenset[int], now_ms: int) -> bool:
        for incarnation in places:
            queue = self._routes.queues[incarnation]
            lives_ms = [ms for ms in (fate.ttl_ms, queue.default_ttl_ms) if ms is not None]
            over = bool(lives_ms) and fate.sent_ms + min(lives_ms) <= now_ms
            if over and not queue.dead_lettering_on_expiration:
                return True
        return False

    def check_found(self, found: dict[int, SubQueueKey], now_ms: int) -> None:
        """`found` is all that the stores hold, at rest."""
        for body, key in found.items():
            fate = self._expected(body, key, "found in the store")
            if fate.gone is Gone.YES and not self._came_again(fate, key.incarnation):
                raise Violation(NAME, f"{body} is in the store although it is gone")
            fate.gone = Gone.NO
            self._placed(body, fate, key)
        lost = [
            body
            for body in self.fates
            if body not in found
            and self.expects(body, now_ms) is There.MUST
            and not self._was_cut_off(body)
        ]
        if lost:
            raise Violation(NAME, f"lost: {lost}")

    def _was_cut_off(self, body: int) -> bool:
        """Removed for somebody who never got it: each is forgiven once."""
        fate = self.fates[body]
        places = sorted(self._routes.from_(fate.incarnation, fate.destination))
        # Where most are: what is few may be all that another can be forgiven by.
        incarnation = max(places, key=lambda each: self._cut_off.get(each, 0))
        if self._cut_off.get(incarnation, 0) <= 0:
            return False
        self._cut_off[incarnation] -= 1
        self._gone(fate, incarnation)
        return True


def _removes(event: SettleStarted) -> bool:
    return event.kind is SettlementKind.COMPLETE
