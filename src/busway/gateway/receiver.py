"""The endpoint behind a client's receiver link (amqp.md 9 and 10).

It lends the link's credit to partitions through the fan-in (D-22), writes what they deliver, and
passes the client's outcomes on to the partition that the lock token names (D-23). Answers go back
after the commit, coalesced by outcome once per turn.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from busway.amqp.events import Disposed
from busway.amqp.link import Link
from busway.amqp.performatives import Accepted, Outcome, Rejected, TransactionalState
from busway.broker.locks import token_partition
from busway.broker.seams import Grant, SettlementKind, Timer
from busway.gateway import envelope, settlement
from busway.gateway.fanin import LENT_CREDIT_MAX, CreditLink
from busway.model.entities import Entity
from busway.model.errors import ARGUMENT_ERROR, LOCK_LOST, BusError, ErrorKind
from busway.model.message import Message
from busway.model.names import Address
from busway.store.base import SubQueueKey

if TYPE_CHECKING:
    from busway.gateway.connection import GatewayConnection

log = logging.getLogger("busway.gateway")

ACCEPTED = Accepted()
DRAIN_ANSWER_MS = 50
"""A drain waits this long for grants that are out, no longer (D-22)."""


class Acknowledgements:
    """Collects what is committed with one outcome, for one disposition per turn."""

    __slots__ = ("delivery_ids", "receiver", "state")

    def __init__(self, receiver: ReceiverEndpoint, state: Outcome) -> None:
        self.receiver = receiver
        self.state = state
        self.delivery_ids: list[int] = []

    def committed(self, tags: list[int]) -> None:
        self.delivery_ids.extend(tags)
        self.receiver.gateway.at_turn_end(self.receiver)

    def failed(self, tag: int, error: BusError) -> None:
        self.receiver.fail_at_turn_end(tag, error)


class Feed(Protocol):
    """Where a link's messages come from: the fan-in of all partitions, or one session."""

    def join(self, link: CreditLink) -> None: ...

    def leave(self, link: CreditLink) -> None: ...

    def hungry(self, link: CreditLink) -> None:
        """The link may have free credit."""

    def returned(self, key: SubQueueKey, *, empty: bool) -> None:
        """A grant has come back from a partition that is empty, or may have more."""

    def turn(self) -> None:
        """Lend what can be lent now."""


class ReceiverEndpoint:
    """One receiver link on one sub-queue. `delete` is receive-and-delete (D-6)."""

    __slots__ = (
        "_acknowledgements",
        "_deciding",
        "_drain_is_overdue",
        "_drain_timer",
        "_failures",
        "_frames",
        "_grants",
        "_lent",
        "_origin",
        "_recalled",
        "address",
        "closed",
        "connection",
        "delete",
        "entity",
        "feed",
        "gateway",
        "kind",
        "link",
        "turn_is_due",
    )

    lost: ErrorKind = LOCK_LOST
    """What a settlement with an invalid token is answered."""

    def __init__(
        self,
        connection: GatewayConnection,
        link: Link,
        entity: Entity,
        address: Address,
        feed: Feed,
        *,
        delete: bool,
    ) -> None:
        self.connection = connection
        self.gateway = connection.gateway
        self.link = link
        self.entity = entity
        self.kind = address.sub_queue
        self.address = address
        self.feed = feed
        self.delete = delete
        self.closed = False
        self.turn_is_due = False
        self._grants: dict[Grant, int] = {}
        """Every grant that is out, and how much of it was not delivered yet."""
        self._recalled: set[Grant] = set()
        self._lent = 0
        """The sum of what is not delivered yet: lent and in flight never exceed credit (D-22)."""
        self._drain_timer: Timer | None = None
        self._drain_is_overdue = False
        self._acknowledgements: dict[SettlementKind, Acknowledgements] = {}
        self._origin = envelope.Origin(entity, self.kind)
        self._frames = self._frames_of_a_delivery()
        self._deciding: set[int] = set()
        """Deliveries that the client has decided about and that are not answered yet."""
        self._failures: dict[str, tuple[BusError, list[int]]] = {}
        """Settlements that failed in this turn, by the text of the error."""
        self.gateway.idle.used(entity)
        self.gateway.receivers.joined(entity)
        feed.join(self)

    # --- Credit ----------------------------------------------------------------------------------

    def free_credit(self) -> int:
        if self.closed or self._drain_is_overdue:
            return 0
        free = min(self.link.credit, LENT_CREDIT_MAX) - self._lent
        return min(free, self.connection.room(self.link, self._frames)) if free > 0 else 0

    def _frames_of_a_delivery(self) -> int:
        """How much of the session's window is set apart for each delivery that is asked for.

        A locked message that does not fit comes back when the link is gone, so that one frame may
        stand for any size. What is removed cannot come back: the largest must fit (D-6).
        """
        if not self.delete:
            return 1
        size_max = self.gateway.message_bytes_max(self.entity)
        return 1 + size_max // (self.connection.engine.remote_max_frame_size // 2)

    def lend(self, grant: Grant) -> None:
        self._grants[grant] = grant.left
        self._claim(grant.left)

    def _claim(self, deliveries: int) -> None:
        """Credit and room in the session's window, lent (above 0) or back (below)."""
        self._lent += deliveries
        self.link.session.outgoing.claimed += deliveries * self._frames

    def flow(self) -> None:
        """The client has said something about credit."""
        if self.link.drain:
            self._drain()
            return
        self._end_drain()
        if self.link.credit < self._lent:
            self._recall()
        else:
            self.feed.hungry(self)

    def resume(self) -> None:
        """The connection can take deliveries again."""
        if self.closed:
            return
        self.feed.hungry(self)
        if self.link.drain:
            self.gateway.at_turn_end(self)

    def _drain(self) -> None:
        """Deliver what is there, then give the credit back (amqp.md 9)."""
        self._drain_is_overdue = False
        if self.link.credit < self._lent:
            self._recall()
        self._go_on_draining()
        if self.link.drain and self._drain_timer is None:
            due_ms = self.gateway.host.now_ms() + DRAIN_ANSWER_MS
            self._drain_timer = self.gateway.host.at(due_ms, self._drain_is_due)

    def _go_on_draining(self) -> None:
        """Ask the partitions; once they have all answered, so can we."""
        self.feed.hungry(self)
        self.feed.turn()
        if not self._grants and not self._is_held_up:
            self._answer_drain()

    @property
    def _is_held_up(self) -> bool:
        """There may be more, and neither socket nor session window takes it now."""
        return self.link.credit > 0 and self.connection.room(self.link, self._frames) <= 0

    def _drain_is_due(self) -> None:
        self._drain_timer = None
        if self.closed or not self.link.drain:
            return
        self._drain_is_overdue = True
        self._recall()
        # Messages being removed for this link are on their way to it: wait for them (D-6). Locked
        # ones that come later are handed back.
        if not self.delete or not self._grants:
            self._answer_drain()

    def _answer_drain(self) -> None:
        self._end_drain()
        if not self.closed and self.link.drain:
            self.link.drained()

    def _end_drain(self) -> None:
        """It is answered, or the client wants none any more."""
        if self._drain_timer is not None:
            self._drain_timer.cancel()
            self._drain_timer = None
        self._drain_is_overdue = False

    def _recall(self) -> None:
        for grant in [grant for grant in self._grants if grant not in self._recalled]:
            self._recalled.add(grant)
            owner = self.gateway.router.owner(self.entity, grant.key.partition)
            if owner is not None:
                owner.recall(grant)

    # --- Deliveries ------------------------------------------------------------------------------

    def deliver(self, grant: Grant, messages: list[Message]) -> None:
        try:
            self._deliver(grant, messages)
        except Exception:
            # Never into the partition that delivers: it serves others.
            log.exception("a delivery failed", extra=self.connection.named(self.link))
            self.connection.fail()

    def _deliver(self, grant: Grant, messages: list[Message]) -> None:
        link = self.link
        self._grants[grant] -= len(messages)
        self._claim(-len(messages))
        too_many: list[Message] = []
        if self.closed or (link.credit < len(messages) and not self.delete):
            room = 0 if self.closed else link.credit
            messages, too_many = messages[:room], messages[room:]
        origin = self._origin
        if self.delete:
            for message in messages:
                payload = envelope.encode(message, origin)
                # Removed for this link while it had credit: it comes, also if that is gone (D-6).
                tag = message.number.to_bytes(16, "big")
                link.send(payload, tag, settled=True, promised=True)
        else:
            for message in messages:
                assert message.lock_token is not None
                payload = envelope.encode_locked(message, origin)
                link.send(payload, message.lock_token, settled=False)
        if messages:
            self.connection.delivered_to(self)
        if too_many:
            self._hand_back(grant, too_many)

    def _hand_back(self, grant: Grant, messages: list[Message]) -> None:
        """Release what came after the credit was gone; what was removed is gone with it (D-6)."""
        if self.delete:
            log.warning(
                "%d messages were removed for a link that was gone when they came",
                len(messages),
                extra=self.connection.named(self.link),
            )
            return
        # First the grants: what is released would else come by them again.
        self._recall()
        settlement.hand_back(self.gateway.router, self.entity, grant.key, messages)

    def finished(self, grant: Grant) -> None:
        unused = self._grants.pop(grant, None)
        if unused is None:
            log.error("a grant came back twice: %s", grant.key, extra=self.connection.named())
            return
        self._claim(-unused)
        recalled = grant in self._recalled
        self._recalled.discard(grant)
        # Something unused and not asked back: there is no more.
        self.feed.returned(grant.key, empty=unused > 0 and not recalled)
        if unused:
            self.connection.room_returned()  # other links of the session may have waited for it
        if self.closed:
            return
        self.feed.hungry(self)
        if self.link.drain and not self._grants:
            # Not from here: the fan-in may be in the middle of asking the other partitions.
            self.gateway.at_turn_end(self)

    # --- Settlements -----------------------------------------------------------------------------

    def disposed(self, event: Disposed) -> None:
        """The client has decided about some of what it holds."""
        if isinstance(event.state, TransactionalState):
            self._settle_in_transaction(event, event.state)
            return
        decision = settlement.from_outcome(event.state)
        if decision is None:
            if not event.settled:
                return  # `received` and null say nothing
            # Settled without an outcome: whatever was meant, the message must not be lost.
            decision = settlement.RELEASE
        if self.delete:
            return
        router, entity, kind = self.gateway.router, self.entity, self.kind
        replies: Acknowledgements | settlement.Unanswered = (
            settlement.UNANSWERED if event.settled else self._acknowledge(decision.kind)
        )
        incarnation = entity.incarnation
        deciding = self._deciding
        for delivery_id, token in zip(event.delivery_ids, event.tags, strict=True):
            if not event.settled:
                if delivery_id in deciding:
                    continue  # the first decision counts, and its answer is on the way (D-1)
                deciding.add(delivery_id)
            partition = token_partition(token)
            try:
                if partition is None:
                    raise BusError(self.lost)
                owner = router.available_owner(entity, partition)
            except BusError as error:
                replies.failed(delivery_id, error)
                continue
            owner.settle(
                SubQueueKey(incarnation, partition, kind), token, decision, replies, delivery_id
            )

    def _acknowledge(self, kind: SettlementKind) -> Acknowledgements:
        replies = self._acknowledgements.get(kind)
        if replies is None:
            replies = Acknowledgements(self, settlement.ACKNOWLEDGEMENTS[kind])
            self._acknowledgements[kind] = replies
        return replies

    def _settle_in_transaction(self, event: Disposed, state: TransactionalState) -> None:
        """Kept until the discharge, and the lock with it; answered now, and not settled before it
        is carried out (amqp.md 14). After a rollback the client may decide again."""
        decision = settlement.from_outcome(state.outcome)
        if self.delete:
            return
        for delivery_id, token in zip(event.delivery_ids, event.tags, strict=True):
            partition = token_partition(token)
            try:
                transaction = self.connection.transaction(state.txn_id)
                with transaction.operation():
                    if decision is None:
                        problem = "The transactional state has no outcome."
                        raise BusError(ARGUMENT_ERROR, detail=problem)
                    if partition is None:
                        raise BusError(self.lost)
                    if self.connection.is_settling(token):
                        raise BusError(LOCK_LOST)  # of two transactions, one can have it
                    key = SubQueueKey(self.entity.incarnation, partition, self.kind)
                    session = self.link.session
                    transaction.settle(self.entity, key, token, decision, session)
            except BusError as error:
                if not event.settled:
                    self.reject(delivery_id, error, settled=False)
                continue
            if not event.settled:
                assert decision is not None
                transaction.tell(self, delivery_id)
                outcome = settlement.ACKNOWLEDGEMENTS[decision.kind]
                answer = TransactionalState(state.txn_id, outcome)
                self.link.settle_sent([delivery_id], answer, settled=False)

    def settled_in_transaction(self, delivery_ids: list[int]) -> None:
        """Accepted, whatever the client had decided (amqp.md 14): Java cannot take a rejection."""
        if not self.closed:
            self.link.settle_sent(delivery_ids, ACCEPTED)

    def reject(self, delivery_id: int, error: BusError, *, settled: bool = True) -> None:
        if not self.closed:
            state = Rejected(self.gateway.wire_error(error))
            self.link.settle_sent([delivery_id], state, settled=settled)

    def fail_at_turn_end(self, delivery_id: int, error: BusError) -> None:
        """A settlement has failed: one disposition tells all that failed for the same reason."""
        self._failures.setdefault(error.text, (error, []))[1].append(delivery_id)
        self.gateway.at_turn_end(self)

    def turn(self) -> None:
        """Acknowledge what was committed since the last turn; answer a drain that is done."""
        for replies in self._acknowledgements.values():
            if replies.delivery_ids:
                delivery_ids, replies.delivery_ids = replies.delivery_ids, []
                self._answer(delivery_ids, replies.state)
        if self._failures:
            failures, self._failures = self._failures, {}
            for error, delivery_ids in failures.values():
                self._answer(delivery_ids, Rejected(self.gateway.wire_error(error)))
        if not self.closed and self.link.drain and not self._grants:
            self._go_on_draining()

    def _answer(self, delivery_ids: list[int], state: Outcome) -> None:
        self._deciding.difference_update(delivery_ids)
        if not self.closed:
            self.link.settle_sent(delivery_ids, state)

    # --- The end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """The link is gone. What the client holds stays locked (LOCK-7); the rest goes back."""
        if self.closed:
            return
        self.closed = True
        if self._drain_timer is not None:
            self._drain_timer.cancel()
        self._recall()
        self._hand_back_unwritten()
        self.feed.leave(self)
        self.gateway.receivers.left(self.entity)
        self.gateway.idle.used(self.entity)

    def _hand_back_unwritten(self) -> None:
        """Nobody has seen the whole of these: they return at once, uncounted (D-22)."""
        by_partition: dict[int, list[bytes]] = {}
        for token in self.link.take_back():
            by_partition.setdefault(token_partition(token) or 0, []).append(token)
        for partition, tokens in by_partition.items():
            key = SubQueueKey(self.entity.incarnation, partition, self.kind)
            settlement.release(self.gateway.router, self.entity, key, tokens)
