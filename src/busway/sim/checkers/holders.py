"""One holder per lock at a time, judged by what clients received (LOCK-1 to LOCK-5, LOCK-8)."""

from __future__ import annotations

from dataclasses import dataclass

from busway.broker.seams import SettlementKind
from busway.sim.history import (
    Answer,
    Delivered,
    Event,
    Holder,
    QueueCreated,
    Renewed,
    SessionLeft,
    SessionLost,
    SessionRenewed,
    SettleEnded,
    SettleStarted,
    Violation,
)

NAME = "holders"


@dataclass(slots=True)
class Holding:
    """A lock as its holder knows it."""

    receiver: str
    token: bytes
    until_ms: int
    epoch: int
    incarnation: int
    given_up: bool = False
    """The holder has said what is to become of the message."""
    of_session: bool = False
    session_is_over: bool = False


class Holders:
    def __init__(self, answer_slack_ms: int = 0) -> None:
        self._slack_ms = answer_slack_ms
        """How long an answer may be under way before the client has it."""
        self._held: dict[int, Holding] = {}
        self._tokens: set[bytes] = set()
        self._epochs: dict[tuple[int, int], int] = {}
        """By body and incarnation: each store has its own."""
        self._superseded: set[bytes] = set()
        """Given up by their holders, and given to others since."""
        self._settlements: dict[int, tuple[SettleStarted, int]] = {}
        self._queues: dict[int, Holder] = {}
        self._of_holding: dict[int, list[Holding]] = {}
        """By holding of a session: its lock is theirs (SES-5)."""

    def see(self, now_ms: int, event: Event) -> None:
        match event:
            case QueueCreated(queue):
                self._queues[queue.incarnation] = queue
            case Delivered():
                self._delivered(now_ms, event)
            case Renewed(body, token, until_ms):
                held = self._held.get(body)
                if held is None or held.token != token:
                    if self._slack_ms:
                        return  # settled meanwhile, on another way than the answer came
                    raise Violation(NAME, f"{body} was renewed by one who does not hold it")
                if held.until_ms + self._slack_ms <= now_ms:
                    raise Violation(NAME, f"{body} was renewed after its lock had run out")
                held.until_ms = until_ms
            case SessionRenewed(holding, until_ms):
                for held in self._of_holding.get(holding, []):
                    held.until_ms = until_ms
            case SessionLeft(holding) | SessionLost(holding):
                for held in self._of_holding.pop(holding, []):
                    held.session_is_over = True
            case SettleStarted():
                self._settlements[event.settlement] = (event, now_ms)
                held = self._held.get(event.body)
                if held is not None and held.token == event.token:
                    held.given_up = True
            case SettleEnded(settlement, answer):
                self._settled(*self._settlements.pop(settlement), answer)

    def _delivered(self, now_ms: int, event: Delivered) -> None:
        place = (event.body, event.key.incarnation)
        if event.epoch < self._epochs.get(place, 0):
            return  # overtaken on the network by a later owner's: it holds nothing (D-23)
        self._epochs[place] = event.epoch
        held = self._held.pop(event.body, None)
        if held is not None and held.given_up:
            self._superseded.add(held.token)
        if (
            held is not None
            and not held.given_up
            and not held.session_is_over
            and now_ms < held.until_ms
            and (event.epoch, event.key.incarnation) == (held.epoch, held.incarnation)
        ):
            left_ms = held.until_ms - now_ms
            raise Violation(
                NAME,
                f"{event.body} was given to {event.receiver} while {held.receiver} holds it "
                f"for another {left_ms} ms",
            )
        if event.token is None:
            return
        if event.token in self._tokens:
            raise Violation(NAME, f"the token {event.token.hex()} was used twice")
        self._tokens.add(event.token)
        longest_ms = self._queues[event.key.incarnation].lock_duration_ms
        if event.locked_until_ms > now_ms + longest_ms:
            raise Violation(NAME, f"{event.body} is locked for longer than {longest_ms} ms")
        held = self._held[event.body] = Holding(
            event.receiver,
            event.token,
            event.locked_until_ms,
            event.epoch,
            event.key.incarnation,
        )
        if event.holding is not None:
            held.of_session = True
            self._of_holding.setdefault(event.holding, []).append(held)

    def _settled(self, started: SettleStarted, started_ms: int, answer: Answer) -> None:
        held = self._held.get(started.body)
        current = held is not None and held.token == started.token
        if answer is Answer.DONE:
            if started.token in self._superseded and started.kind is not SettlementKind.COMPLETE:
                return  # returned, and the next holder had it before the answer was here
            if not current:
                raise Violation(NAME, f"{started.body} was settled by one who does not hold it")
            assert held is not None
            # A session's lock may have been renewed by an answer that is under way.
            slack_ms = self._slack_ms if held.of_session else 0
            if started_ms >= held.until_ms + slack_ms:
                raise Violation(NAME, f"{started.body} was settled after its lock had run out")
            del self._held[started.body]
        elif answer is Answer.REFUSED and current:
            assert held is not None
            held.given_up = False
