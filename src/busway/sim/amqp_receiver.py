"""A receiving link of a simulated AMQP client: credit, deliveries, and what it decides about them.

What it holds may also be renewed and settled by token on `$management`, and what was deferred is
fetched there by number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from busway.amqp.events import (
    Attached,
    Detached,
    Event,
    Settled,
    TransferReceived,
)
from busway.amqp.link import Link, LinkRole
from busway.amqp.performatives import (
    Accepted,
    DeliveryState,
    Error,
    Modified,
    Outcome,
    Rejected,
    Released,
    Source,
    Target,
    TransactionalState,
)
from busway.amqp.session import Session
from busway.amqp.types import Symbol
from busway.broker.seams import SettlementKind
from busway.model.message import partition_of
from busway.sim import habits
from busway.sim.amqp_answers import OK, answer_of, answer_of_status
from busway.sim.amqp_requests import AmqpRequests
from busway.sim.direct import Setting
from busway.sim.habits import Habits
from busway.sim.history import (
    Answer,
    Delivered,
    DeliveriesUnseen,
    Holder,
    RemovalUnknown,
    Renewed,
    SettleEnded,
    SettleStarted,
    Violation,
)
from busway.sim.network import DELAY_MAX_MS
from busway.sim.wire_messages import WireMessage
from busway.sim.world import StoreAndBroker
from busway.store.base import SubQueueKey, SubQueueKind


class Transactor(Protocol):
    def begin(self, receiver: AmqpReceiver, held: list[HeldDelivery]) -> bool:
        """Settle these in a transaction, with sends; False if that cannot be now."""


class ReceivingClient(Protocol):
    """The connection that it is on, whichever that is by now."""

    @property
    def setting(self) -> Setting: ...

    @property
    def session(self) -> Session | None: ...

    @property
    def transactor(self) -> Transactor | None: ...

    def manage(self, entity: Holder, kind: SubQueueKind) -> AmqpRequests: ...


@dataclass(slots=True)
class HeldDelivery:
    delivery_id: int
    body: int
    number: int
    key: SubQueueKey
    token: bytes
    link: Link | None
    """None if it was fetched by its number."""


class AmqpReceiver:
    def __init__(
        self,
        client: ReceivingClient,
        name: str,
        queue: Holder,
        kind: SubQueueKind,
        habits: Habits,
        *,
        delete: bool,
    ) -> None:
        self._client = client
        self._setting = client.setting
        self._random = client.setting.world.random
        self._habits = habits
        self.name = name
        self.queue = queue
        self.kind = kind
        self.delete = delete
        self.closed = False
        self.keeps_credit = 0
        """Filled up again whenever half of it is used."""
        self._lives = 0
        self._last_credit = 0
        self._link: Link | None = None
        self._settling: dict[int, tuple[int, HeldDelivery, SettlementKind]] = {}
        """By delivery id: the settlement under way."""
        self._in_hand: dict[bytes, HeldDelivery] = {}
        """Nothing was decided about them yet, by token."""

    @property
    def _holding(self) -> int | None:
        """Of a session, if it has one."""
        return None

    @property
    def session_id(self) -> str | None:
        return None

    def some_outcome(self) -> SettlementKind | None:
        """What it would do with a message."""
        return self._habits.outcome(self._random)

    @property
    def idle(self) -> bool:
        return not self._settling

    # The link.

    def attach(self) -> None:
        self._attach(None, None)

    def _attach(self, filters: dict[Any, Any] | None, properties: dict[Any, Any] | None) -> None:
        session = None if self.closed else self._session_of_link()
        if session is None:
            return
        self._lives += 1
        dead = self.kind is SubQueueKind.DEAD_LETTER
        path = f"{self.queue.path}/$DeadLetterQueue" if dead else self.queue.path
        self._link = session.attach(
            f"{self.name}-{self._lives}",
            LinkRole.RECEIVER,
            source=Source(path, filter=filters),
            target=Target(self.name),
            snd_settle_mode=1 if self.delete else 0,
            rcv_settle_mode=0 if self.delete else 1,
            properties=properties,
        )
        self._link.context = self

    def _session_of_link(self) -> Session | None:
        """The AMQP session that its next link is in; None while there is no connection."""
        return self._client.session

    def detach(self) -> None:
        self.closed = True
        if self._link is not None:
            self._credit_lost()
            self._link.detach()

    def lost(self) -> None:
        if self._link is not None:
            self._credit_lost()
        self._link = None
        settling, self._settling = self._settling, {}
        for settlement, _, _ in settling.values():
            self._setting.history.record(SettleEnded(settlement, Answer.UNKNOWN))

    def _credit_lost(self) -> None:
        """What was being removed for the link may be lost with it, and what was on its way locked
        until that runs out: at most its credit (D-6, D-22)."""
        count, self._last_credit = self._under_way_max(), 0
        if not count:
            return
        incarnation = self.queue.incarnation
        if self.delete:
            self._setting.history.record(RemovalUnknown(incarnation, (), count))
        else:
            self._setting.history.record(DeliveriesUnseen(incarnation, count))

    def _under_way_max(self) -> int:
        """So many deliveries may be on their way to it."""
        return self._last_credit

    # Credit.

    def set_credit(self, credit: int, *, drain: bool = False) -> None:
        link = self._link
        if link is None or not link.is_attached:
            return
        link.set_credit(credit, drain=drain)
        self._last_credit = max(self._last_credit, link.credit)

    # What arrives.

    def take(self, event: Event) -> None:
        match event:
            case Attached():
                if self.keeps_credit:
                    self.set_credit(self.keeps_credit)
            case TransferReceived():
                self._received(event)
            case Settled():
                for delivery_id in event.delivery_ids:
                    self._settled(delivery_id, event.state)
            case Detached():
                self.lost()
            case _:
                pass

    def _received(self, event: TransferReceived) -> None:
        message = WireMessage.read(event.payload, self._setting.higher(self.queue.incarnation))
        if event.settled is not self.delete:
            raise Violation("answers", f"{self.name}: {message} is settled: {event.settled}")
        # Credit that was taken back may have been used before: what is under way still counts.
        self._last_credit = max(event.link.credit, self._last_credit - 1)
        if self.keeps_credit and event.link.credit < self.keeps_credit // 2:
            self.set_credit(self.keeps_credit)
        token = None if event.settled else event.tag
        if token is not None and self._ran_out_on_the_way(message):
            self._setting.history.record(DeliveriesUnseen(self.queue.incarnation, 1))
            return
        key = self._record(message, token, deferred=False)
        if token is not None:
            held = HeldDelivery(
                event.delivery_id, message.body, message.number, key, token, event.link
            )
            self._decide_later(held)

    def _record(self, message: WireMessage, token: bytes | None, *, deferred: bool) -> SubQueueKey:
        key = SubQueueKey(self.queue.incarnation, partition_of(message.number), self.kind)
        store = self._setting.world.stores[self.queue.placement[key.partition]]
        self._setting.history.record(
            Delivered(
                receiver=f"{self.name}-{self._lives}",
                key=key,
                body=message.body,
                number=message.number,
                delivery_count=message.delivery_count,
                enqueued_ms=message.enqueued_ms,
                token=token,
                locked_until_ms=message.locked_until_ms,
                epoch=int.from_bytes(token[2:6], "little") if token else store.broker.epoch,
                disturbances=self._disturbances(store, message.body),
                deferred=deferred,
                properties=message.properties,
                holding=self._holding,
            )
        )
        return key

    def _disturbances(self, store: StoreAndBroker, number: int, sent_ms: int | None = None) -> int:
        """What was sent before a disturbance may arrive after it: then it compares with nothing."""
        if sent_ms is None:
            sent_ms = self._setting.world.now_ms() - 2 * DELAY_MAX_MS
        return -number if store.disturbed_ms >= sent_ms else store.disturbances

    def _ran_out_on_the_way(self, message: WireMessage) -> bool:
        """A lock of its own lasts for longer than anything is under way."""
        return False

    # What is done with it.

    def _decide_later(self, held: HeldDelivery) -> None:
        self._in_hand[held.token] = held
        delay_ms = self._habits.delay_ms(self._random, self.queue.lock_duration_ms)
        self._setting.world.scheduler.after(delay_ms, lambda: self._decide(held))

    def _decide(self, held: HeldDelivery) -> None:
        if self._in_hand.get(held.token) is not held:
            return  # in a transaction, together with another
        if self._random.randrange(100) < self._habits.renews_percent and self._renew(held):
            return
        if self._random.randrange(100) < self._habits.transacts_percent and self._transact(held):
            return
        del self._in_hand[held.token]
        kind = self.some_outcome()
        if kind is None:
            return
        if kind is SettlementKind.DEAD_LETTER and self.kind is not SubQueueKind.MAIN:
            kind = SettlementKind.COMPLETE
        if held.link is None or self._random.randrange(10) == 0:
            self._settle_by_request(held, kind)
        else:
            self._settle_on_link(held, kind)

    def _renew(self, held: HeldDelivery) -> bool:
        def done(status: int | None, body: dict[str, Any]) -> None:
            if status == OK:
                (until_ms,) = body["expirations"]
                self._setting.history.record(Renewed(held.body, held.token, int(until_ms)))
            self._decide_later(held)

        if not self._client.manage(self.queue, self.kind).renew(held.token, done):
            return False
        del self._in_hand[held.token]
        return True

    def _transact(self, held: HeldDelivery) -> bool:
        """Together with others of the same partition, and with sends (TXN-1)."""
        others = [
            each
            for each in self._in_hand.values()
            if each is not held and (each.key, each.link) == (held.key, held.link)
        ]
        chosen = [held, *others[: self._random.randrange(3)]]
        transactor = self._client.transactor
        if held.link is None or transactor is None or not transactor.begin(self, chosen):
            return False
        for each in chosen:
            del self._in_hand[each.token]
        return True

    def can_settle(self, held: HeldDelivery) -> bool:
        """Whether it is still on a link of this client."""
        link = held.link
        return link is not None and link is self._link and link.is_attached

    def decide_again(self, held: HeldDelivery) -> None:
        """A transaction was rolled back, and what it would have settled is locked still (TXN-2)."""
        if self.can_settle(held):
            self._decide_later(held)

    def settle_in(self, transaction_id: bytes, held: HeldDelivery, outcome: Outcome) -> None:
        """What was said to be settled by whoever has the transaction."""
        assert held.link is not None
        state = TransactionalState(transaction_id, outcome)
        held.link.settle([held.delivery_id], state, settled=False)

    def _settle_by_request(self, held: HeldDelivery, kind: SettlementKind) -> None:
        """LOCK-6: a token is good on any connection."""
        _, reason = habits.settlement(kind, self._random)
        number = self._setting.next_number()

        def done(status: int | None, body: dict[str, Any]) -> None:
            self._ended(number, held, kind, answer_of_status(status))

        # Recorded first, because a lost connection may answer at once.
        requests = self._client.manage(self.queue, self.kind)
        self._setting.history.record(
            SettleStarted(number, held.key, held.body, held.token, kind, reason)
        )
        if not requests.settle(held.token, kind, reason, self.session_id, done):
            self._setting.history.record(SettleEnded(number, Answer.REFUSED))

    def _settle_on_link(self, held: HeldDelivery, kind: SettlementKind) -> None:
        link = held.link
        if link is None or not self.can_settle(held) or held.delivery_id in self._settling:
            return
        settlement, reason = habits.settlement(kind, self._random)
        number = self._setting.next_number()
        self._settling[held.delivery_id] = (number, held, kind)
        self._setting.history.record(
            SettleStarted(number, held.key, held.body, held.token, kind, reason)
        )
        link.settle([held.delivery_id], outcome(kind, settlement.changes), settled=False)

    def _settled(self, delivery_id: int, state: DeliveryState | None) -> None:
        found = self._settling.pop(delivery_id, None)
        if found is None:
            return  # of a link that is gone
        number, held, kind = found
        error = state.error if isinstance(state, Rejected) else None
        answer = Answer.DONE if error is None else answer_of(error)
        if error is None and type(state) is not type(outcome(kind, {})):
            raise Violation("answers", f"{kind} of {held.body} was answered with {state}")
        self._ended(number, held, kind, answer)

    def _ended(
        self, settlement: int, held: HeldDelivery, kind: SettlementKind, answer: Answer
    ) -> None:
        self._setting.history.record(SettleEnded(settlement, answer))
        if answer is Answer.DONE:
            self.was_settled(held, kind)

    def was_settled(self, held: HeldDelivery, kind: SettlementKind) -> None:
        if kind is SettlementKind.DEFER:
            self._setting.deferred.setdefault(held.key, {})[held.number] = held.body

    def fetch_deferred(self, key: SubQueueKey, number: int, *, delete: bool) -> None:
        """DEF-2, DEF-3: by its number, through `$management`."""
        body = self._setting.deferred[key][number]
        holding = self._holding

        def done(status: int | None, answer: dict[str, Any]) -> None:
            if status == OK:
                higher = self._setting.higher(key.incarnation)
                for each in answer["messages"]:
                    message = WireMessage.read(bytes(each["message"]), higher)
                    token = None if delete else each["lock-token"].bytes_le
                    if self._holding != holding and token is not None:
                        continue  # its session is over, and the lock with it
                    self._record(message, token, deferred=True)
                    if token is not None:
                        held = HeldDelivery(-1, message.body, message.number, key, token, None)
                        self._decide_later(held)
            elif delete and answer_of_status(status) is Answer.UNKNOWN:
                self._setting.history.record(RemovalUnknown(key.incarnation, (body,), 0))

        requests = self._client.manage(self.queue, self.kind)
        requests.fetch(number, self.session_id, delete=delete, done=done)


def outcome(kind: SettlementKind, changes: dict[str, Any]) -> Outcome:
    """As the client libraries say it (amqp.md 10)."""
    symbols = {Symbol(key): value for key, value in changes.items()} or None
    if kind is SettlementKind.COMPLETE:
        return Accepted()
    if kind is SettlementKind.RELEASE:
        return Released()
    if kind is SettlementKind.DEAD_LETTER:
        return Rejected(Error("com.microsoft:dead-letter", None, symbols))
    defers = kind is SettlementKind.DEFER
    return Modified(
        delivery_failed=not defers, undeliverable_here=defers, message_annotations=symbols
    )
