"""One holder per session at a time, and the order within it, exactly (SES-3 to SES-5, SES-8, D-24).

Order is judged three ways. Messages that come for the first time come in the order of their
numbers, whoever holds the session. Within one holding nothing comes below what has come, but what
this holder itself has given back. And what was certainly given back, by this holder or because an
earlier one is gone, comes before everything above it.

Over a network things are told later than they are so: what is under way is allowed for, and what
nobody saw happen speaks for nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from busway.broker.seams import SettlementKind
from busway.sim.checkers.routes import Routes
from busway.sim.history import (
    Answer,
    Delivered,
    Event,
    RemovalUnknown,
    SendStarted,
    SessionAccepted,
    SessionLeft,
    SessionLost,
    SessionRenewed,
    SettleEnded,
    SettleStarted,
    Violation,
)
from busway.store.base import SubQueueKey

NAME = "sessions"

UNSEEN_MAX = 3
"""Deliveries in a row that were counted, and that ran out or were lost on their way."""

Place = tuple[SubQueueKey, str]
"""A session of a partition."""


@dataclass(slots=True)
class SessionHolding:
    number: int
    receiver: str
    place: Place
    until_ms: int
    epoch: int
    disturbances: int
    over: bool = False
    """It was left, or its holder was told that it is lost."""
    had: set[int] = field(default_factory=set)
    last: int = 0
    """The highest number that came."""


@dataclass(slots=True)
class Out:
    """A message that is, or was, in the hands of a holder."""

    body: int
    number: int
    token: bytes
    holding: SessionHolding
    count: int
    expires: bool
    settling: int = 0
    """Settlements under way, or with an outcome that nobody knows."""
    given_back: bool = False


class Sessions:
    def __init__(self, slack_ms: int = 0) -> None:
        self._slack_ms = slack_ms
        """How long deliveries and answers may be under way."""
        self._unseen = UNSEEN_MAX if slack_ms else 0
        self._routes = Routes()
        self._holdings: dict[int, SessionHolding] = {}
        self._current: dict[Place, SessionHolding] = {}
        self._session_of: dict[int, str | None] = {}
        self._expires: dict[int, bool] = {}
        self._seen: set[tuple[int, int]] = set()
        self._last_new: dict[Place, int] = {}
        self._out: dict[Place, dict[int, Out]] = {}
        """By body."""
        self._settlements: dict[int, tuple[SettleStarted, Out | None]] = {}

    def see(self, now_ms: int, event: Event) -> None:
        self._routes.see(event)
        match event:
            case SendStarted():
                for body in event.bodies:
                    self._session_of[body] = event.session_id
                    self._expires[body] = event.ttl_ms is not None
            case SessionAccepted():
                self._accepted(now_ms, event)
            case SessionRenewed(holding, until_ms):
                held = self._holdings[holding]
                if held.over or now_ms >= held.until_ms + self._slack_ms:
                    raise Violation(NAME, f"{held.receiver} renewed {held.place} too late")
                held.until_ms = until_ms
            case SessionLeft(holding):
                self._holdings[holding].over = True
            case SessionLost(holding, disturbances):
                held = self._holdings[holding]
                held.over = True
                if now_ms < held.until_ms and disturbances == held.disturbances:
                    raise Violation(NAME, f"{held.receiver} lost {held.place} before its time")
            case RemovalUnknown() if event.count:
                for place in [p for p in self._out if p[0].incarnation == event.incarnation]:
                    del self._out[place]  # one of these may have been removed for somebody
            case Delivered() if event.holding is not None:
                self._delivered(now_ms, event, self._holdings[event.holding])
            case SettleStarted():
                out = self._find(event)
                self._settlements[event.settlement] = (event, out)
                if out is not None:
                    out.settling += 1
            case SettleEnded(settlement, answer):
                self._settled(*self._settlements.pop(settlement), answer)

    # Holders.

    def _accepted(self, now_ms: int, event: SessionAccepted) -> None:
        place = (event.key, event.session_id)
        before = self._current.get(place)
        if (
            before is not None
            and not before.over
            and now_ms < before.until_ms
            and self._same_locks(before, event)
        ):
            raise Violation(
                NAME,
                f"{event.receiver} was given {place} while {before.receiver} holds it for another "
                f"{before.until_ms - now_ms} ms",
            )
        self._holdings[event.holding] = self._current[place] = SessionHolding(
            event.holding,
            event.receiver,
            place,
            event.locked_until_ms,
            event.epoch,
            event.disturbances,
        )

    def _same_locks(self, before: SessionHolding, event: SessionAccepted) -> bool:
        """Whether memory was not lost in between."""
        if self._slack_ms:  # what came just after a disturbance compares with nothing
            return before.disturbances == event.disturbances
        return before.epoch == event.epoch

    # Order.

    def _delivered(self, now_ms: int, event: Delivered, holding: SessionHolding) -> None:
        place, body, number = holding.place, event.body, event.number
        if self._session_of[body] != place[1]:
            raise Violation(NAME, f"{body} of {self._session_of[body]} was delivered in {place}")
        if event.key != place[0]:
            raise Violation(NAME, f"{body} was delivered from {event.key} in {place}")
        if self._slack_ms and self._current[place] is not holding:
            self._out.get(place, {}).pop(body, None)
            return  # it was under way when the session went to another
        if event.token is not None:
            if holding.over or self._current[place] is not holding:
                raise Violation(NAME, f"{body} was delivered to {holding.receiver}, who has left")
            if now_ms >= holding.until_ms + self._slack_ms:
                raise Violation(NAME, f"{body} was delivered after its session's lock ran out")
        first = (body, event.key.incarnation) not in self._seen
        self._seen.add((body, event.key.incarnation))
        out = self._out.setdefault(place, {})
        if not event.deferred:
            if not holding.over:
                self._check_order(event, holding, first)
            holding.last = max(holding.last, number)
        holding.had.add(body)
        if event.token is None:
            out.pop(body, None)
            return
        expires = self._expires[body] or self._routes.queues[event.key.incarnation].default_ttl_ms
        out[body] = Out(
            body,
            number,
            event.token,
            holding,
            event.delivery_count,
            expires is not None and bool(expires),
        )
        if event.deferred:
            del out[body]  # wherever it goes, it is in nobody's way

    def _check_order(self, event: Delivered, holding: SessionHolding, first: bool) -> None:
        place, body, number = holding.place, event.body, event.number
        if first:
            last = self._last_new.get(place, 0)
            if number < last:
                raise Violation(NAME, f"{body} ({number}) came after {last} in {place} (SES-4)")
            self._last_new[place] = number
        if number < holding.last and body not in holding.had:
            raise Violation(
                NAME, f"{body} ({number}) came to {holding.receiver} after {holding.last} (SES-4)"
            )
        for other in self._out[place].values():
            if other.number < number and self._waits(other, holding):
                raise Violation(
                    NAME, f"{body} ({number}) overtook {other.body} ({other.number}) (SES-4)"
                )

    def _waits(self, out: Out, holding: SessionHolding) -> bool:
        """Whether it is certainly ready: given back, or its holder is gone."""
        if out.expires:
            return False
        if out.given_back:
            return True
        if out.holding is holding or out.settling:
            return False
        queue = self._routes.queues[out.holding.place[0].incarnation]
        return out.count + 1 + self._unseen < queue.max_delivery_count

    # Settlements.

    def _find(self, event: SettleStarted) -> Out | None:
        session_id = self._session_of.get(event.body)
        out = None
        if session_id is not None:
            out = self._out.get((event.key, session_id), {}).get(event.body)
        return out if out is not None and out.token == event.token else None

    def _settled(self, started: SettleStarted, out: Out | None, answer: Answer) -> None:
        if out is None:
            return
        if answer is Answer.REFUSED:
            out.settling -= 1
            return
        bodies = self._out.get(out.holding.place, {})
        if answer is not Answer.DONE or bodies.get(out.body) is not out:
            return
        queue = self._routes.queues[started.key.incarnation]
        if started.kind is SettlementKind.RELEASE or (
            started.kind is SettlementKind.ABANDON and out.count + 1 < queue.max_delivery_count
        ):
            out.given_back = True
        else:
            del bodies[out.body]
