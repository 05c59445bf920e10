"""The endpoint behind a client's sender link (amqp.md 8 and 13).

A transfer is checked here, turned into messages, and handed to a partition by the router. It is
answered when it is committed: *accepted*, many in one disposition per turn, or *rejected* with a
full error. Never *released* or *modified*: Python would wait for ever.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from busway.amqp.errors import DECODE_ERROR, ProtocolError
from busway.amqp.events import TransferReceived
from busway.amqp.link import Link
from busway.amqp.performatives import Accepted, Error, Rejected, TransactionalState
from busway.amqp.sections import BATCH_FORMAT
from busway.broker.transactions import Transaction
from busway.gateway import envelope
from busway.gateway.batch_reading import BatchReading, memory_of
from busway.gateway.coordinator import TRANSACTION_ID_BYTES
from busway.gateway.envelope import Keyed, One, Part
from busway.gateway.exchange import check_room
from busway.gateway.router import Destination, Dispatch, PendingSend
from busway.gateway.transactions import to_be_transferred
from busway.model.durations import format_timespan
from busway.model.errors import (
    BATCH_KEYS_DIFFER,
    MESSAGE_SIZE_EXCEEDED,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    TIMEOUT,
    BusError,
)
from busway.model.limits import TIERS
from busway.model.names import Address
from busway.model.partitioning import partition_of_key
from busway.store.base import SubQueueKey, SubQueueKind

if TYPE_CHECKING:
    from busway.gateway.connection import GatewayConnection

T = TypeVar("T")

log = logging.getLogger("busway.gateway")

CREDIT = 1_000
"""At attach; JS and Go send nothing before it. Replenished at half (amqp.md 7.2)."""

ACCEPTED = Accepted()


class SenderEndpoint:
    """One sender link to one entity, and the `Replies` of its sends: tags are delivery ids."""

    __slots__ = (
        "_accepted",
        "_pending",
        "_settled",
        "address",
        "batch_max_bytes",
        "closed",
        "connection",
        "destination",
        "entity",
        "gateway",
        "link",
        "turn_is_due",
    )

    def __init__(
        self,
        connection: GatewayConnection,
        link: Link,
        entity: Destination,
        address: Address,
        destination: str | None = None,
    ) -> None:
        self.connection = connection
        self.gateway = connection.gateway
        self.link = link
        self.entity = entity
        self.destination = destination
        """The path of another entity: messages go there by way of this one."""
        self.address = address
        tier = TIERS[self.gateway.catalog.namespace.tier]
        self.batch_max_bytes = min(entity.max_message_size_bytes, tier.batch_max_bytes)
        """LIM-2: one message may be larger than a batch."""
        self.closed = False
        self.turn_is_due = False
        self._pending: dict[int, PendingSend] = {}
        """In the order of their deadlines, because each gets the same time."""
        self._settled: set[int] = set()
        """Those of them that the client sent settled: nobody waits for an answer."""
        self._accepted: list[int] = []

    def start(self) -> None:
        self.gateway.idle.used(self.entity)
        self.link.set_credit(self.gateway.budget.share(CREDIT))

    def transfer(self, event: TransferReceived) -> None:
        gateway = self.gateway
        gateway.at_turn_end(self)
        try:
            if event.message_format == BATCH_FORMAT and len(event.payload) > self.batch_max_bytes:
                size_bytes, max_bytes = len(event.payload), self.batch_max_bytes
                raise self._size_exceeded(event.delivery_id, str(size_bytes), max_bytes)
            if event.state is not None:
                self._send_in_transaction(event)
            elif self.destination is not None:
                entity, host = self._final_entity(), gateway.host
                self._read(event, lambda each: envelope.keyed(each, entity, host), self._send_via)
            elif event.message_format == BATCH_FORMAT:
                entity, host = self.entity, gateway.host
                read = self._send_batch
                self._read(event, lambda each: envelope.read_one(each, entity, host), read)
            else:
                part = envelope.read_single(event.payload, self.entity, gateway.host)
                self._send(event, [part], len(event.payload))
        except (BusError, ProtocolError) as error:
            self._refuse(event, error)

    def _refuse(self, event: TransferReceived, error: BusError | ProtocolError) -> None:
        if event.settled:
            return
        if isinstance(error, BusError):
            self._reject(event.delivery_id, error)
        else:
            fault = Error(DECODE_ERROR, f"The message cannot be read: {error}", None)
            self.link.settle([event.delivery_id], Rejected(fault))

    def _read(
        self,
        event: TransferReceived,
        read: Callable[[bytes], T],
        done: Callable[[TransferReceived, list[T]], None],
    ) -> None:
        """The messages of a transfer, in slices if they are many."""
        gateway = self.gateway
        payloads = envelope.split(event.payload, event.message_format)
        envelope.check_count(len(payloads), gateway.batch_max_messages)
        if len(payloads) <= gateway.settings.slice_messages:
            done(event, [read(payload) for payload in payloads])
            return
        size = memory_of(len(event.payload), len(payloads))
        gateway.budget.take(size)

        def all_read(found: list[T]) -> None:
            gateway.at_turn_end(self)
            try:
                done(event, found)
            except BusError as error:
                self._refuse(event, error)

        reading = BatchReading(
            payloads,
            read,
            all_read,
            partial(self._refuse, event),
            is_void=lambda: self.closed,
            dropped=lambda: gateway.budget.give(size),
            slice_messages=gateway.settings.slice_messages,
        )
        self.connection.begin(reading)

    def _send_batch(self, event: TransferReceived, ones: list[One]) -> None:
        parts = envelope.parts_of(ones, self.entity)
        self._send(event, parts, memory_of(len(event.payload), len(ones)))

    def _send(self, event: TransferReceived, parts: list[Part], size: int) -> None:
        gateway, delivery_id = self.gateway, event.delivery_id
        deadline_ms = gateway.host.now_ms() + gateway.settings.send_timeout_ms
        pending = PendingSend(*parts[0], size, deadline_ms)
        self._track(event, pending)
        if len(parts) > 1:
            self._split(delivery_id, [PendingSend(*part) for part in parts])
            return
        try:
            gateway.router.send(self.entity, pending, self, delivery_id)
        except BusError as error:
            self._finish(delivery_id, error)

    def _track(self, event: TransferReceived, pending: PendingSend) -> None:
        if not self._pending:
            self.gateway.await_sends(self)
        self._pending[event.delivery_id] = pending
        if event.settled:
            self._settled.add(event.delivery_id)
        self.gateway.budget.take(pending.size)

    def _send_in_transaction(self, event: TransferReceived) -> None:
        """Kept until the discharge; answered now (amqp.md 14)."""
        if not isinstance(event.state, TransactionalState):
            raise BusError(NOT_IMPLEMENTED, operation=f"a send with {event.state!r}")
        transaction = self.connection.transaction(event.state.txn_id)
        with transaction.operation():
            entity = self._final_entity()
            payloads = envelope.split(event.payload, event.message_format)
            transaction.check_count(len(payloads))
            messages = [envelope.keyed(each, entity, self.gateway.host) for each in payloads]
            if self.destination is None:
                transaction.send(self.link.session, entity, messages)
            else:
                transaction.send_via(self.entity, entity, messages)
        if not event.settled:
            state = TransactionalState(event.state.txn_id, ACCEPTED)
            self.link.settle([event.delivery_id], state)

    def _send_via(self, event: TransferReceived, messages: list[Keyed]) -> None:
        """To another entity by way of this one, outside a transaction: one of its own (TXN-3)."""
        via, entity = self.entity, self._final_entity()
        count = len(via.placement)
        keys = {via_key or key for _, key, via_key in messages}
        if len(keys) > 1 and count > 1:
            raise BusError(BATCH_KEYS_DIFFER, refused=True)
        key, random = keys.pop(), self.gateway.host.random_bytes
        partition = random(1)[0] % count if key is None else partition_of_key(key, count)
        found = [message for message, _, _ in messages]
        check_room(self.gateway.router, entity, found)
        for message in found:
            to_be_transferred(message, entity)
        deadline_ms = self.gateway.host.now_ms() + self.gateway.settings.send_timeout_ms
        size = memory_of(len(event.payload), len(found))
        self._track(event, PendingSend(found, partition, size, deadline_ms))
        work = Transaction(random(TRANSACTION_ID_BYTES))
        work.transfers.append((SubQueueKey(via.incarnation, partition, SubQueueKind.MAIN), found))
        try:
            owner = self.gateway.router.available_owner(via, partition)
        except BusError as error:
            self._finish(event.delivery_id, error)
            return
        owner.transact(work, self, event.delivery_id)

    def _final_entity(self) -> Destination:
        """Where the messages of this link end up; one that is gone is not found (FWD-5)."""
        if self.destination is None:
            return self.entity
        entity = self.gateway.catalog.find(self.destination)
        if entity is None:
            raise BusError(NOT_FOUND, uri=self.destination)
        return entity

    def too_large(self, delivery_id: int, settled: bool) -> None:
        """The link stays: only this message is refused."""
        self.gateway.at_turn_end(self)
        if not settled:
            limit = self.entity.max_message_size_bytes
            self._reject(delivery_id, self._size_exceeded(delivery_id, f"above {limit}", limit))

    @staticmethod
    def _size_exceeded(delivery_id: int, size_bytes: str, max_bytes: int) -> BusError:
        return BusError(
            MESSAGE_SIZE_EXCEEDED,
            delivery_id=delivery_id,
            size_bytes=size_bytes,
            max_bytes=max_bytes,
        )

    def _split(self, delivery_id: int, parts: list[PendingSend]) -> None:
        """A batch whose message ids say different partitions (D-29)."""
        done = partial(self._split_is_done, delivery_id)
        Dispatch(self.gateway.router, self.entity, parts, done).start()

    def _split_is_done(self, delivery_id: int, error: BusError | None) -> None:
        if error is None:
            self.committed([delivery_id])
        else:
            self._finish(delivery_id, error)

    # --- Answers of partitions -------------------------------------------------------------------

    def committed(self, tags: list[int]) -> None:
        pendings, accepted, released = self._pending, self._accepted, 0
        for tag in tags:
            pending = pendings.pop(tag, None)
            if pending is None:
                continue  # answered with a timeout already
            released += pending.size
            if not self._settled or tag not in self._settled:
                accepted.append(tag)
            else:
                self._settled.discard(tag)
        self.gateway.budget.give(released)
        self.gateway.at_turn_end(self)

    def failed(self, tag: int, error: BusError) -> None:
        pending = self._pending.get(tag)
        if pending is None:
            return
        try:
            self.gateway.router.send_elsewhere(self.entity, pending, error, self, tag)
        except BusError as final:
            self._finish(tag, final)

    def _finish(self, tag: int, error: BusError) -> None:
        pending = self._pending.pop(tag, None)
        if pending is None:
            return
        self.gateway.budget.give(pending.size)
        self.gateway.at_turn_end(self)
        if tag in self._settled:
            self._settled.discard(tag)
            named = self.connection.named(self.link)
            log.info("a settled message was refused: %s", error, extra=named)
        else:
            self._reject(tag, error)

    def _reject(self, delivery_id: int, error: BusError) -> None:
        self.link.settle([delivery_id], Rejected(self.gateway.wire_error(error)))

    # --- Turns and time --------------------------------------------------------------------------

    def turn(self) -> None:
        """Once per turn: acknowledge what was committed, then see about credit."""
        if self._accepted:
            delivery_ids, self._accepted = self._accepted, []
            self.gateway.idle.used(self.entity)
            self.link.settle(delivery_ids, ACCEPTED)
        self.replenish()

    def replenish(self) -> None:
        if self.closed:
            return
        budget, credit = self.gateway.budget, self.link.credit
        window = budget.share(CREDIT)
        target = max(0, window - len(self._pending))
        if window == 0 and credit:
            self.link.set_credit(0)
        elif target - credit >= (window + 1) // 2 and window:
            self.link.set_credit(target)
        if window < CREDIT:
            budget.starve(self)

    def sweep(self, now_ms: int) -> bool:
        """Give up what is past its deadline (D-4). True while there is more to wait for."""
        late = []
        for tag, pending in self._pending.items():
            if pending.deadline_ms > now_ms:
                break
            late.append(tag)
        timeout_ms = self.gateway.settings.send_timeout_ms
        for tag in late:
            self._finish(tag, BusError(TIMEOUT, timeout=format_timespan(timeout_ms)))
        return bool(self._pending)

    def close(self) -> None:
        """The link is gone; what was handed over is committed or not without anybody to tell."""
        self.closed = True
        self.gateway.budget.forget(self)
