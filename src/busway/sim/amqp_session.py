"""A session receiver of a simulated AMQP client: one link, one session, then another (SES, D-24).

It asks for a session by its id or for the next that is free, works in it, renews its lock, keeps a
state, leaves it, loses it, or is refused; then it asks again, until it is closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from busway.amqp.events import Attached, Detached, Event
from busway.amqp.link import Link
from busway.amqp.types import Symbol, UInt
from busway.gateway.session_receiver import (
    LOCKED_UNTIL,
    TICKS_AT_1970,
    TICKS_PER_MS,
    TIMEOUT_PROPERTY,
)
from busway.gateway.source_filters import SESSION_FILTER
from busway.model.partitioning import partition_of_key
from busway.sim.amqp_answers import OK, answer_of_status
from busway.sim.amqp_receiver import AmqpReceiver, HeldDelivery, ReceivingClient
from busway.sim.direct_session import STATES
from busway.sim.habits import Habits
from busway.sim.history import (
    Answer,
    Holder,
    SessionAccepted,
    SessionLeft,
    SessionLost,
    SessionRenewed,
    StateRead,
    StateReadStarted,
    StateSetEnded,
    StateSetStarted,
    Violation,
)
from busway.sim.wire_messages import WireMessage
from busway.store.base import SubQueueKey, SubQueueKind

WAIT_MS = 3_000
"""How long it waits for the next session that is free."""
LATE_MS = 1_000
"""No delivery is under way for longer."""
QUIET_MS = 2_000


class AmqpSessionReceiver(AmqpReceiver):
    def __init__(
        self,
        client: ReceivingClient,
        name: str,
        queue: Holder,
        habits: Habits,
        session_ids: Sequence[str],
        *,
        delete: bool,
        drains: bool = False,
    ) -> None:
        super().__init__(client, name, queue, SubQueueKind.MAIN, habits, delete=delete)
        self._session_ids = session_ids
        self._drains = drains
        """Asks for whatever is next, stays until nothing comes any more, and only receives."""
        self._held: SessionAccepted | None = None
        self._heard_ms = 0
        self._seeking = False
        self._asked = 0
        self.keeps_credit = 100 if drains else self._random.choice((1, 2, 5, 20))

    @property
    def _holding(self) -> int | None:
        return None if self._held is None else self._held.holding

    @property
    def session_id(self) -> str | None:
        return None if self._held is None else self._held.session_id

    @property
    def held_key(self) -> SubQueueKey | None:
        return None if self._held is None else self._held.key

    @property
    def idle(self) -> bool:
        return super().idle and not self._asked

    # Getting one.

    def attach(self) -> None:
        by_id = not self._drains and self._random.randrange(5) < 2
        wish = self._random.choice(self._session_ids) if by_id else None
        timeout_ms = WAIT_MS if self._drains else self._random.randint(1, WAIT_MS)
        filters = {Symbol(SESSION_FILTER): wish}
        self._attach(filters, {Symbol(TIMEOUT_PROPERTY): UInt(timeout_ms)})

    def take(self, event: Event) -> None:
        match event:
            case Attached(link=link):
                self._accepted(link)
                super().take(event)
            case Detached(error=error):
                if error is None:
                    self._let_go()  # by ourselves, or with the connection
                self._gone()
            case _:
                super().take(event)

    def _accepted(self, link: Link) -> None:
        source, properties = link.source, link.properties or {}
        assert source is not None
        found = {str(name): value for name, value in (source.filter or {}).items()}
        session_id = str(found[SESSION_FILTER])
        until = {str(name): value for name, value in properties.items()}[LOCKED_UNTIL]
        key = SubQueueKey(
            self.queue.incarnation,
            partition_of_key(session_id, len(self.queue.placement)),
            SubQueueKind.MAIN,
        )
        store = self._setting.world.stores[self.queue.placement[key.partition]]
        holding = self._setting.next_number()
        until_ms = (int(until) - TICKS_AT_1970) // TICKS_PER_MS
        self._held = SessionAccepted(
            holding,
            f"{self.name}-{self._lives}",
            key,
            session_id,
            until_ms,
            store.broker.epoch,
            self._disturbances(store, holding, until_ms - self.queue.lock_duration_ms),
        )
        self._setting.history.record(self._held)
        self._heard_ms = self._setting.world.now_ms()
        if self._drains:
            self._later(QUIET_MS, self._leave_if_quiet)
        else:
            self._plan()

    def _plan(self) -> None:
        random, duration_ms = self._random, self.queue.lock_duration_ms
        at_most = {
            self._renew_session: duration_ms,
            self._set_state: duration_ms // 2,
            self._read_state: duration_ms,
        }
        for what, latest_ms in at_most.items():
            for _ in range(random.randrange(3)):
                self._later(random.randint(0, latest_ms), what)
        if random.randrange(4):  # else it stays until the session is lost
            self._later(random.randint(0, 2 * duration_ms), self.leave)

    def _later(self, delay_ms: int, what: Any) -> None:
        """In this holding only."""
        held = self._held

        def do() -> None:
            if self._held is held:
                what()

        self._setting.world.scheduler.after(delay_ms, do)

    # Having one.

    def _ran_out_on_the_way(self, message: WireMessage) -> bool:
        """The lock is the session's, and may be over when a message of it arrives: then this is
        in nobody's hands."""
        self._heard_ms = now_ms = self._setting.world.now_ms()
        if message.locked_until_ms + LATE_MS <= now_ms:
            raise Violation("sessions", f"{message.body} came after its session's lock ran out")
        return message.locked_until_ms <= now_ms

    def _renew(self, held: HeldDelivery) -> bool:
        """SES-5: a message of a session has no lock of its own to renew."""
        return False

    def _renew_session(self) -> None:
        held = self._held
        assert held is not None

        def done(status: int | None, body: dict[str, Any]) -> None:
            if status == OK and self._held is held:
                until_ms = int(body["expiration"])
                self._setting.history.record(SessionRenewed(held.holding, until_ms))

        self._client.manage(self.queue, self.kind).renew_session(held.session_id, done)

    def _set_state(self) -> None:
        held, record = self._held, self._setting.history.record
        assert held is not None
        change, state = self._setting.next_number(), self._random.choice(STATES)

        def done(status: int | None, body: dict[str, Any]) -> None:
            self._asked -= 1
            record(StateSetEnded(change, answer_of_status(status)))

        # Recorded first, because a lost connection may answer at once.
        self._asked += 1
        record(StateSetStarted(change, held.holding, state))
        requests = self._client.manage(self.queue, self.kind)
        if not requests.set_state(held.session_id, state, done):
            self._asked -= 1
            record(StateSetEnded(change, Answer.REFUSED))

    def _read_state(self) -> None:
        held, record = self._held, self._setting.history.record
        assert held is not None
        read = self._setting.next_number()

        def done(status: int | None, body: dict[str, Any]) -> None:
            if status == OK:
                state = body["session-state"]
                record(StateRead(read, None if state is None else bytes(state)))

        record(StateReadStarted(read, held.holding))
        self._client.manage(self.queue, self.kind).read_state(held.session_id, done)

    # Having none any more.

    def leave(self) -> None:
        """SES-9. The broker's answer is the `Detached` that comes back."""
        self._let_go()
        if self._link is not None:
            self._credit_lost()
            self._link.detach()

    def _leave_if_quiet(self) -> None:
        quiet = self._setting.world.now_ms() - self._heard_ms >= QUIET_MS
        if quiet and not self._settling and not self._in_hand:
            self.leave()
        else:
            self._later(QUIET_MS, self._leave_if_quiet)

    def detach(self) -> None:
        self._let_go()
        super().detach()

    def lost(self) -> None:
        """The connection is gone: whoever had a session there has it no more."""
        self._let_go()
        super().lost()

    def _let_go(self) -> None:
        held, self._held = self._held, None
        self._in_hand.clear()
        if held is not None:
            self._setting.history.record(SessionLeft(held.holding))

    def _gone(self) -> None:
        """The link is. If there is still a session, it was taken from us."""
        held, self._held = self._held, None
        self._in_hand.clear()
        if held is not None:
            store = self._setting.world.stores[self.queue.placement[held.key.partition]]
            self._setting.history.record(SessionLost(held.holding, store.disturbances))
        super().lost()
        if not self._seeking:
            self._seeking = True
            delay_ms = self._random.randint(0, 1_000)
            self._setting.world.scheduler.after(delay_ms, self._seek)

    def _seek(self) -> None:
        self._seeking = False
        if self._link is None:
            self.attach()
