"""Session receivers: one link, one session of one partition (amqp.md 11, SES, D-24).

A session asked for by its id is locked at once or refused. Who asks for the next available one
waits. Partitions that may have a free session say since when it has waited; the link that waits
longest claims the session that waits longest, over all partitions (SES-7), and a claim that finds
nothing goes on to the next. Nobody polls: partitions say *ready*, and one timer stands for the
earliest deadline of all waiters.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from busway.amqp.link import Link
from busway.amqp.types import Symbol
from busway.broker.seams import Grant, SessionLock, Timer
from busway.gateway.fanin import GRANT_MESSAGES_MAX, CreditLink
from busway.gateway.partition_turns import OtherTurns
from busway.gateway.receiver import ReceiverEndpoint
from busway.gateway.source_filters import SESSION_FILTER, SessionWish
from busway.gateway.via_entity import via_entity
from busway.model.durations import format_timespan
from busway.model.entities import Entity
from busway.model.errors import (
    ARGUMENT_OUT_OF_RANGE,
    SESSION_LOCK_LOST,
    TIMEOUT,
    BusError,
)
from busway.model.limits import KEY_MAX_CHARS, SESSION_WAIT_DEFAULT_MS
from busway.model.names import Address
from busway.model.partitioning import partition_of_key
from busway.model.session_ids import session_key
from busway.store.base import SubQueueKey, SubQueueKind

if TYPE_CHECKING:
    from busway.gateway.connection import GatewayConnection
    from busway.gateway.gateway import Gateway

log = logging.getLogger("busway.gateway")

LOCKED_UNTIL = "com.microsoft:locked-until-utc"
TIMEOUT_PROPERTY = "com.microsoft:timeout"
SESSION_WAIT_MAX_MS = 24 * 60 * 60_000
COMPACT_MIN = 1_000

TICKS_AT_1970 = 621_355_968_000_000_000
TICKS_PER_MS = 10_000


def wait_of(link: Link) -> int:
    """How long the client waits for its attach to be answered."""
    for name, value in (link.properties or {}).items():
        if str(name) == TIMEOUT_PROPERTY and isinstance(value, int):
            return max(0, min(int(value), SESSION_WAIT_MAX_MS))
    return SESSION_WAIT_DEFAULT_MS


class SessionFeed:
    """Gives one link what is in its session: the fan-in of a single line."""

    __slots__ = (
        "_gateway",
        "_is_hungry",
        "_is_ready",
        "_link",
        "_pairing",
        "_waiting",
        "connection",
        "lock",
        "turn_is_due",
    )

    def __init__(self, connection: GatewayConnection) -> None:
        self.connection = connection
        self._gateway = connection.gateway
        self._link: CreditLink | None = None
        self.lock: SessionLock | None = None
        self._is_hungry = False
        self._is_ready = True
        self._waiting: Grant | None = None
        """The grant that waits for a page of the store."""
        self._pairing = False
        self.turn_is_due = False

    def join(self, link: CreditLink) -> None:
        self._link = link

    def leave(self, link: CreditLink) -> None:
        self._link = None

    def hungry(self, link: CreditLink) -> None:
        self._is_hungry = True
        self._look()

    def ready(self) -> None:
        """The session may have something to give."""
        if self._waiting is None or self._waiting.left == 0:
            self._waiting = None
            self._is_ready = True
            self._look()

    def returned(self, key: SubQueueKey, *, empty: bool) -> None:
        self._is_ready = False
        if not empty:
            self.ready()

    def _look(self) -> None:
        if self._is_hungry and self._is_ready and self.lock is not None:
            self._gateway.at_turn_end(self)

    def turn(self) -> None:
        if self._pairing:
            return  # an answer that came at once: the loop below goes on with it
        self._pairing = True
        try:
            while self._is_hungry and self._is_ready:
                self._lend()
        finally:
            self._pairing = False

    def _lend(self) -> None:
        link, lock = self._link, self.lock
        free = 0 if link is None else link.free_credit()
        if link is None or lock is None or free <= 0:
            self._is_hungry = False
            return
        key = lock.key
        entity = self._gateway.catalog.get(key.incarnation)
        owner = None if entity is None else self._gateway.router.owner(entity, key.partition)
        if owner is None or not owner.available:
            self._is_ready = False
            return
        limit = min(free, GRANT_MESSAGES_MAX)
        grant = Grant(link, key, limit, delete=link.delete, session=lock)
        link.lend(grant)
        owner.grant(grant)
        if grant.left > 0:
            # It waits for a page of the store: no second one waits behind it.
            self._waiting = grant
            self._is_ready = False


class SessionReceiverEndpoint(ReceiverEndpoint):
    """A receiver link that holds a session, or waits for one: then its attach is not answered."""

    __slots__ = ("_waits", "_wish", "deadline_ms", "lock", "timeout_ms")

    lost = SESSION_LOCK_LOST
    feed: SessionFeed

    def __init__(
        self,
        connection: GatewayConnection,
        link: Link,
        entity: Entity,
        address: Address,
        wish: SessionWish,
        *,
        delete: bool,
    ) -> None:
        super().__init__(connection, link, entity, address, SessionFeed(connection), delete=delete)
        self._wish = wish
        self._waits: SessionOffers | None = None
        self.lock: SessionLock | None = None
        self.timeout_ms = wait_of(link)
        self.deadline_ms = self.gateway.host.now_ms() + self.timeout_ms

    @property
    def is_waiting(self) -> bool:
        return self.lock is None and not self.closed

    # --- Getting it ------------------------------------------------------------------------------

    def start(self) -> None:
        """Lock the session that was asked for, or wait for one. Raises if it cannot be had."""
        session_id = self._wish.session_id
        if session_id is not None and len(session_id) > KEY_MAX_CHARS:
            raise BusError(
                ARGUMENT_OUT_OF_RANGE,
                detail=f"A SessionId has at most {KEY_MAX_CHARS} characters.",  # SES-13
            )
        if session_id is None:
            self._waits = self.gateway.sessions.wait(self)
            return
        entity = self.entity
        partition = partition_of_key(session_key(entity, session_id), len(entity.placement))
        owner = self.gateway.router.available_owner(entity, partition)
        key = SubQueueKey(entity.incarnation, partition, SubQueueKind.MAIN)
        lock = owner.accept_session(key, session_id, self)  # SES-6
        assert lock is not None
        self.accepted(lock)

    def accepted(self, lock: SessionLock) -> None:
        """The session is ours: answer the attach."""
        self._waits = None
        self.lock = self.feed.lock = lock
        assert self.link.source is not None
        filters = dict(self.link.source.filter or {})
        for name in filters:
            if str(name) == SESSION_FILTER:
                filters[name] = self._wish.granted(lock.name)
        ticks = TICKS_AT_1970 + lock.locked_until_ms * TICKS_PER_MS
        self.link.accept(
            source=replace(self.link.source, filter=filters),
            properties={Symbol(LOCKED_UNTIL): ticks},
        )
        via_entity(self.link.session).decide()
        self.flow()  # its credit may have come along with the attach

    def wait_is_over(self) -> None:
        """SES-7: nothing came in time."""
        error = BusError(TIMEOUT, timeout=format_timespan(self.timeout_ms))
        self.connection.detach(self, error)

    # --- Holding it ------------------------------------------------------------------------------

    def session_ready(self) -> None:
        self.feed.ready()

    def session_lost(self, error: BusError) -> None:
        """SES-8. Never into the partition that says so: it serves others."""
        try:
            self.connection.detach(self, error)
        except Exception:
            log.exception("a detach failed", extra=self.connection.named(self.link))
            self.connection.fail()

    # --- Leaving it ------------------------------------------------------------------------------

    def close(self) -> None:
        """SES-9: whatever ends the link frees the session at once."""
        if self.closed:
            return
        super().close()
        if self._waits is not None:
            self._waits.leave(self)
            self._waits = None
            via_entity(self.link.session).given_up(self.link)
        lock, self.feed.lock = self.lock, None
        if lock is not None and lock.valid:
            owner = self.gateway.router.owner(self.entity, lock.key.partition)
            if owner is not None:
                owner.leave_session(lock)


class SessionOffers:
    """Who waits for the next session of one entity, and which partitions may have one."""

    def __init__(self, gateway: Gateway, entity: Entity, on_left: Callable[[Entity], None]) -> None:
        self._gateway = gateway
        self._entity = entity
        self._on_left = on_left
        self._waiting: dict[SessionReceiverEndpoint, None] = {}
        """In the order in which they came."""
        self._keys = {
            SubQueueKey(entity.incarnation, partition, SubQueueKind.MAIN): None
            for partition in gateway.partition_turns.order(entity, OtherTurns.SESSIONS)
        }
        """Of all partitions; who gave a session longest ago is first. That decides among sessions
        that have waited equally long: all of them, when a broker has just started."""
        self._offers: dict[SubQueueKey, None] = {}
        """Those that may have a session to give."""
        self.turn_is_due = False

    def join(self, link: SessionReceiverEndpoint) -> None:
        if not self._waiting:
            # Whatever was said while nobody listened: every partition is asked once.
            for key in self._keys:
                self._offers[key] = None
                owner = self._gateway.router.owner(self._entity, key.partition)
                if owner is not None:
                    owner.watch(key, self)
        self._waiting[link] = None
        self._gateway.at_turn_end(self)

    def leave(self, link: SessionReceiverEndpoint) -> None:
        self._waiting.pop(link, None)
        if not self._waiting:
            for key in self._keys:
                owner = self._gateway.router.owner(self._entity, key.partition)
                if owner is not None:
                    owner.unwatch(key, self)
            order = [key.partition for key in self._keys]
            turns = self._gateway.partition_turns
            turns.keep(self._entity.incarnation, OtherTurns.SESSIONS, order)
            self._on_left(self._entity)

    def ready(self, key: SubQueueKey) -> None:
        """The partition may have a session that nobody holds."""
        self._offers[key] = None
        if self._waiting:
            self._gateway.at_turn_end(self)

    def turn(self) -> None:
        """Claim until there is nobody left to claim, or nothing to."""
        while self._waiting:
            key = self._oldest_offer()
            if key is None:
                return
            link = next(iter(self._waiting))
            lock = self._claim(key, link)
            if lock is None:
                self._offers.pop(key, None)  # says ready when it has one to give
                continue
            del self._keys[key]
            self._keys[key] = None
            self.leave(link)
            self._hand_over(lock, link)

    def _oldest_offer(self) -> SubQueueKey | None:
        """The partition whose next session has waited longest."""
        oldest: SubQueueKey | None = None
        oldest_ms = 0
        for key in self._keys:
            if key not in self._offers:
                continue
            owner = self._gateway.router.owner(self._entity, key.partition)
            since_ms = None if owner is None else owner.session_offer(key)
            if since_ms is None:
                del self._offers[key]  # says ready when it has one to give
            elif oldest is None or since_ms < oldest_ms:
                oldest, oldest_ms = key, since_ms
        return oldest

    def _claim(self, key: SubQueueKey, link: SessionReceiverEndpoint) -> SessionLock | None:
        owner = self._gateway.router.owner(self._entity, key.partition)
        if owner is None or not owner.available:
            return None  # says ready when it is back
        try:
            return owner.accept_session(key, None, link)
        except BusError:
            return None

    def _hand_over(self, lock: SessionLock, link: SessionReceiverEndpoint) -> None:
        try:
            link.accepted(lock)
        except Exception:
            # The others that wait have nothing to do with it.
            log.exception("a session could not be given", extra=link.connection.named(link.link))
            link.connection.fail()


class SessionWaits:
    """All links of a gateway that wait for a session, and the one timer of their deadlines."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._offers: dict[int, SessionOffers] = {}
        self._deadlines: list[tuple[int, int, SessionReceiverEndpoint]] = []
        self._next = 0
        self._compact_at = COMPACT_MIN
        self._timer: Timer | None = None
        self._timer_due_ms = 0

    def wait(self, link: SessionReceiverEndpoint) -> SessionOffers:
        entity = link.entity
        offers = self._offers.get(entity.incarnation)
        if offers is None:
            offers = SessionOffers(self._gateway, entity, self._left)
            self._offers[entity.incarnation] = offers
        offers.join(link)
        self._next += 1
        heappush(self._deadlines, (link.deadline_ms, self._next, link))
        if len(self._deadlines) >= self._compact_at:
            # Who got a session long before its deadline need not be remembered until then.
            self._deadlines = [each for each in self._deadlines if each[2].is_waiting]
            heapify(self._deadlines)
            self._compact_at = 2 * len(self._deadlines) + COMPACT_MIN
        self._arm()
        return offers

    def is_awaited(self, incarnation: int) -> bool:
        return incarnation in self._offers

    def _left(self, entity: Entity) -> None:
        self._offers.pop(entity.incarnation, None)

    def _arm(self) -> None:
        deadlines = self._deadlines
        while deadlines and not deadlines[0][2].is_waiting:
            heappop(deadlines)
        if not deadlines or (self._timer is not None and self._timer_due_ms <= deadlines[0][0]):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_ms = deadlines[0][0]
        self._timer = self._gateway.host.at(self._timer_due_ms, self._due)

    def _due(self) -> None:
        self._timer = None
        now_ms = self._gateway.host.now_ms()
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            link = heappop(self._deadlines)[2]
            if link.is_waiting:
                link.wait_is_over()
        self._arm()
