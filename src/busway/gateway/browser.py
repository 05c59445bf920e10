"""The endpoint behind a receiver link that browses: distribution-mode copy (AMQP 3.5.3).

Shows what a peek shows, every message once, partition after partition and in the order of numbers
within one (D-26, P-30 to P-32). Nothing is locked, counted or removed, and whatever the client says
about a delivery changes nothing. It remembers one number for each partition: where to go on.

A page is read when there is credit for it and the connection can take more. At the end a drain is
answered; later credit, or a message that comes, goes on from there. A partition that is ill is
passed over, and logged.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from busway.amqp.events import Disposed
from busway.amqp.link import Link
from busway.amqp.performatives import TransactionalState
from busway.filters.selectors import Selector
from busway.gateway import envelope, settlement
from busway.model.entities import Entity, Queue
from busway.model.errors import BusError
from busway.model.message import Message, sequence_number
from busway.model.names import Address
from busway.model.partitioning import partition_of_key
from busway.store.base import SubQueueKey

if TYPE_CHECKING:
    from busway.gateway.connection import GatewayConnection

log = logging.getLogger("busway.gateway")

PAGE_MESSAGES = 128
PAGE_BYTES = 512 * 1024
"""Of one read: others of the same store have their turn between two."""
UNSETTLED_MAX = 1_000
"""A client that settles nothing of what it is shown must not fill our memory: of older deliveries
we forget that they were not settled."""


class BrowserEndpoint:
    """One browsing link on one sub-queue, or on one session of it."""

    __slots__ = (
        "_is_reading",
        "_keys",
        "_more_came",
        "_next",
        "_origin",
        "_selector",
        "_session_id",
        "_settled",
        "_unread",
        "_unsettled",
        "address",
        "closed",
        "connection",
        "entity",
        "gateway",
        "link",
        "turn_is_due",
    )

    def __init__(
        self,
        connection: GatewayConnection,
        link: Link,
        entity: Entity,
        address: Address,
        *,
        session_id: str | None,
        selector: Selector | None,
    ) -> None:
        self.connection = connection
        self.gateway = connection.gateway
        self.link = link
        self.entity = entity
        self.address = address
        self.closed = False
        self.turn_is_due = False
        self._session_id = session_id
        self._selector = selector
        self._origin = envelope.Origin(entity, address.sub_queue)
        self._settled = link.snd_settle_mode != 0  # unsettled only for who insists on it
        self._keys = self._keys_of_partitions()
        self._next = {partition: sequence_number(partition, 0) for partition in self._keys}
        """By partition, the number from which on nothing was shown yet."""
        self._unread: dict[int, None] = {}
        """The partitions that may have more."""
        self._is_reading = False
        self._more_came = False
        """Since the read that is under way began."""
        self._unsettled: deque[int] = deque()
        self.gateway.idle.used(entity)
        self.gateway.receivers.joined(entity)
        for key in self._keys.values():
            owner = self.gateway.router.owner(entity, key.partition)
            if owner is not None:
                owner.watch(key, self)

    def _keys_of_partitions(self) -> dict[int, SubQueueKey]:
        entity = self.entity
        partitions = range(len(entity.placement))
        if self._session_id is not None and isinstance(entity, Queue):
            # Copies of a topic may have another session id by an action (RUL-7): for those all
            # partitions are looked through.
            only = partition_of_key(self._session_id, len(entity.placement))
            partitions = range(only, only + 1)
        kind = self.address.sub_queue
        return {each: SubQueueKey(entity.incarnation, each, kind) for each in partitions}

    # --- Credit ----------------------------------------------------------------------------------

    def flow(self) -> None:
        """The client has said something about credit. At the end, what came since is looked for."""
        if not self._unread:
            self._look_into(*self._next)
        self._go_on()

    def resume(self) -> None:
        """The connection can take deliveries again."""
        self._go_on()

    def ready(self, key: SubQueueKey) -> None:
        """A partition may have something new. Not from here: it serves others."""
        self._look_into(key.partition)
        self.gateway.at_turn_end(self)

    def turn(self) -> None:
        self._go_on()

    def _look_into(self, *partitions: int) -> None:
        self._unread.update(dict.fromkeys(partitions))
        self._more_came = True

    # --- Reading ---------------------------------------------------------------------------------

    def _go_on(self) -> None:
        while not self.closed and not self._is_reading:
            if self.link.credit > 0 and self._unread:
                if self._room() <= 0:
                    return
                self._read(min(self._unread))
            else:
                if self.link.drain:
                    self.link.drained()
                return

    def _room(self) -> int:
        """How many deliveries the client and the connection take now."""
        credit = self.link.credit
        return min(credit, self.connection.room(self.link, 1)) if credit > 0 else 0

    def _read(self, partition: int) -> None:
        owner = self.gateway.router.owner(self.entity, partition)
        if owner is None or not owner.available:
            self._pass_over(partition, "it is unavailable")
            return
        # With a selector most of a page may be left out.
        rows = PAGE_MESSAGES if self._selector else min(self._room(), PAGE_MESSAGES)
        self._is_reading, self._more_came = True, False
        done = partial(self._have_read, partition, rows)
        key, start = self._keys[partition], self._next[partition]
        owner.peek(key, start, rows, PAGE_BYTES, done, self._session_id)

    def _have_read(self, partition: int, rows: int, outcome: list[Message] | BusError) -> None:
        self._is_reading = False
        if self.closed:
            return
        if isinstance(outcome, BusError):
            self._pass_over(partition, str(outcome))
        else:
            try:
                self._show(partition, rows, outcome)
            except Exception:
                # Never into the partition that answers: it serves others.
                log.exception("a browse failed", extra=self.connection.named(self.link))
                self.connection.fail()
        self.gateway.at_turn_end(self)

    def _pass_over(self, partition: int, why: str) -> None:
        """It says *ready* when it is back."""
        log.warning("browse skips partition %d of %s: %s", partition, self.entity.path, why)
        self._unread.pop(partition, None)

    def _show(self, partition: int, rows: int, page: list[Message]) -> None:
        for message in page:
            if self._selector is None or self._selector(message):
                if self._room() <= 0:
                    return
                self._send(message)
            self._next[partition] = message.number + 1
        size = sum(message.size for message in page)
        if len(page) < rows and size < PAGE_BYTES and not self._more_came:
            # Neither the rows nor the bytes ran out, so the partition did.
            self._unread.pop(partition, None)

    def _send(self, message: Message) -> None:
        payload = envelope.encode_peeked(message, self._origin, omit_body=False)
        tag = message.number.to_bytes(16, "big")
        delivery_id = self.link.send(payload, tag, settled=self._settled)
        if not self._settled:
            self._unsettled.append(delivery_id)
            if len(self._unsettled) > UNSETTLED_MAX:
                self.link.forget([self._unsettled.popleft()])

    # --- What the client says about it -----------------------------------------------------------

    def disposed(self, event: Disposed) -> None:
        """Answered as if it meant something."""
        state = event.state
        outcome = state.outcome if isinstance(state, TransactionalState) else state
        if not event.settled and settlement.from_outcome(outcome) is not None:
            self.link.settle_sent(event.delivery_ids, outcome)

    # --- The end ---------------------------------------------------------------------------------

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        for key in self._keys.values():
            owner = self.gateway.router.owner(self.entity, key.partition)
            if owner is not None:
                owner.unwatch(key, self)
        self.gateway.receivers.left(self.entity)
        self.gateway.idle.used(self.entity)
