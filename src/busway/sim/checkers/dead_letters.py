"""Messages are dead-lettered when they are due, never else, and with the reason (DLQ, DLV, TTL)."""

from __future__ import annotations

from busway.broker import dead_letters
from busway.broker.seams import SettlementKind
from busway.model.errors import NOT_FOUND, SEND_DISABLED
from busway.sim.checkers.routes import Routes
from busway.sim.history import (
    Delivered,
    Event,
    Holder,
    SendStarted,
    SettleStarted,
    Violation,
)
from busway.store.base import SubQueueKind

NAME = "dead letters"

UNDELIVERABLE = {SEND_DISABLED.name, NOT_FOUND.name}
"""FWD-4: definite answers of destinations."""

REMOVAL_SLACK_MS = 60_000
"""What is received and deleted was alive when it was set aside; its commit may have been slow."""


class DeadLetters:
    def __init__(self, delivery_slack_ms: int = 0) -> None:
        self._slack_ms = delivery_slack_ms
        """How long a delivery may be under way before the client has it."""
        self._routes = Routes()
        self._ttl_ms: dict[int, int | None] = {}
        self._asked: dict[int, set[str | None]] = {}
        self._inherited: dict[int, set[object]] = {}
        """Reasons that it came with, having been forwarded as a dead letter (DLQ-4)."""
        self._destinations: dict[int, str] = {}
        self._with_session: set[int] = set()

    def see(self, now_ms: int, event: Event) -> None:
        self._routes.see(event)
        match event:
            case SendStarted():
                if event.session_id is not None:
                    self._with_session.update(event.bodies)
                for body in event.bodies:
                    self._ttl_ms[body] = event.ttl_ms
                    if event.destination is not None:
                        self._destinations[body] = event.destination
            case SettleStarted(kind=SettlementKind.DEAD_LETTER):
                self._asked.setdefault(event.body, set()).add(event.reason)
            case Delivered():
                queue = self._routes.queues[event.key.incarnation]
                if event.key.kind is not SubQueueKind.MAIN:
                    self._dead(now_ms, event, queue)
                    return
                reason = dict(event.properties).get(dead_letters.REASON)
                self._inherited.setdefault(event.body, set()).add(reason)
                if not event.deferred:
                    self._alive(now_ms, event, queue)

    def _expires_ms(self, event: Delivered, queue: Holder) -> int | None:
        lives = [ms for ms in (self._ttl_ms[event.body], queue.default_ttl_ms) if ms is not None]
        return event.enqueued_ms + min(lives) if lives else None

    def _alive(self, now_ms: int, event: Delivered, queue: Holder) -> None:
        if event.delivery_count >= queue.max_delivery_count:  # DLV-3
            raise Violation(
                NAME,
                f"{event.body} was delivered with a count of {event.delivery_count}, "
                f"and {queue.max_delivery_count} is the maximum",
            )
        expires_ms = self._expires_ms(event, queue)
        slack_ms = self._slack_ms + (REMOVAL_SLACK_MS if event.token is None else 0)
        if expires_ms is not None and expires_ms + slack_ms <= now_ms:  # TTL-4
            raise Violation(NAME, f"{event.body} was delivered {now_ms - expires_ms} ms too late")

    def _dead(self, now_ms: int, event: Delivered, queue: Holder) -> None:
        properties = dict(event.properties)
        reason = properties.get(dead_letters.REASON)
        asked = self._asked.get(event.body, set())
        if None in asked and reason in self._inherited.get(event.body, set()):
            return  # dead-lettered again without a word: the old one stays
        too_often = dead_letters.delivered_too_often(queue.max_delivery_count)
        if reason == dead_letters.expired()[dead_letters.REASON]:
            self._check_text(event, properties, dead_letters.expired())
            expires_ms = self._expires_ms(event, queue)
            if not queue.dead_lettering_on_expiration:
                raise Violation(NAME, f"{event.body} expired and its queue drops such (TTL-6)")
            if expires_ms is None or now_ms < expires_ms:
                raise Violation(NAME, f"{event.body} is said to be expired and is not")
        elif reason == too_often[dead_letters.REASON]:
            self._check_text(event, properties, too_often)
            if event.delivery_count < queue.max_delivery_count:
                raise Violation(
                    NAME, f"{event.body} was dead-lettered at a count of {event.delivery_count}"
                )
        elif reason == dead_letters.without_session()[dead_letters.REASON]:
            if not queue.requires_session or event.body in self._with_session:
                raise Violation(NAME, f"{event.body} is said to have no session")
        elif reason in UNDELIVERABLE:
            if self._way_of(event).isdisjoint(self._routes.troubled):
                raise Violation(NAME, f"{event.body} was not forwarded, for no reason: {reason}")
        elif reason not in asked:
            raise Violation(NAME, f"{event.body} is dead because of {reason!r}, by nobody's wish")

    def _way_of(self, event: Delivered) -> set[str]:
        """The paths that it may have been on its way to from here."""
        way = set(self._routes.forwards_of(event.key.incarnation))
        if event.body in self._destinations:
            way.add(self._destinations[event.body])
        return way

    def _check_text(
        self, event: Delivered, properties: dict[str, object], expected: dict[str, str]
    ) -> None:
        text = properties.get(dead_letters.DESCRIPTION)
        if text != expected[dead_letters.DESCRIPTION]:
            raise Violation(NAME, f"{event.body} has the description {text!r}")
