"""What transactions want done in the catalog: carried out after their commit, once (D-28, P-44).

The catalog is not in the store, so one commit cannot change both. A transaction's orders are in its
own commit. Then the catalog carries them out, and remembers that in the same commit; then the store
forgets the orders; then the catalog forgets that it has carried them out. Whatever comes between,
the orders that a store still has when it is opened are asked for again, before it serves anybody.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from busway.broker.seams import Entities, Host
from busway.broker.staging import Stage
from busway.model.errors import BusError
from busway.store.base import TransactionMark

log = logging.getLogger("busway.broker")

RETRY_MS = 500


class OrdersOwner(Protocol):
    store_id: str | None

    def stage(self, records: int, size: int = 0) -> Stage: ...


class Orders:
    """Outlives the memory of the store: what is under way goes on when that is read anew."""

    def __init__(self, owner: OrdersOwner, host: Host, entities: Entities) -> None:
        self._owner = owner
        self._host = host
        self._entities = entities
        self._open: dict[bytes, list[Callable[[], None]]] = {}
        """By transaction: who waits until the catalog has carried it out."""
        self._confirming: dict[bytes, TransactionMark] = {}
        """Carried out, and the store has still to forget it."""
        self._stopped = False

    def opened(self, marks: Sequence[TransactionMark]) -> None:
        """The store was opened, and has these."""
        ordering = [mark for mark in marks if mark.orders is not None]
        try:
            ids = {mark.transaction_id for mark in ordering}
            self._entities.keep_carried_out(self._store_id, ids)
        except BusError as error:
            log.info("the catalog remembers more than it must: %s", error)
        for mark in ordering:
            self.carry_out(mark, _nothing)

    def carry_out(self, mark: TransactionMark, done: Callable[[], None]) -> None:
        """`done` when rules are as the transaction wants them."""
        id_ = mark.transaction_id
        if id_ in self._confirming:
            done()
        elif id_ in self._open:
            self._open[id_].append(done)
        else:
            self._open[id_] = [done]
            self._try(mark)

    def when_done(self, transaction_id: bytes, done: Callable[[], None]) -> None:
        """`done` at once, unless the transaction has orders that are not carried out yet."""
        waiting = self._open.get(transaction_id)
        if waiting is None:
            done()
        else:
            waiting.append(done)

    @property
    def under_way(self) -> bool:
        """Whether the catalog has still to carry something out."""
        return bool(self._open)

    def stop(self) -> None:
        """The store has another owner, who asks for what it finds."""
        self._stopped = True

    @property
    def _store_id(self) -> str:
        assert self._owner.store_id is not None
        return self._owner.store_id

    def _try(self, mark: TransactionMark) -> None:
        if self._stopped:
            return
        assert mark.orders is not None
        now_ms, id_ = self._host.now_ms(), mark.transaction_id
        try:
            self._entities.carry_out(self._store_id, id_, mark.orders, now_ms)
        except BusError as error:
            log.warning("rules of a transaction wait for the catalog: %s", error)
            self._host.at(now_ms + RETRY_MS, partial(self._try, mark))
            return
        waiting = self._open.pop(id_)
        self._confirming[id_] = mark
        self._confirm(mark)
        for done in waiting:
            done()

    def _confirm(self, mark: TransactionMark) -> None:
        if not self._stopped:
            stage = self._owner.stage(1)
            stage.mark_transaction(mark._replace(orders=None))
            stage.after.append(partial(self._confirmed, mark))

    def _confirmed(self, mark: TransactionMark, error: BusError | None) -> None:
        if error is not None:
            self._host.at(self._host.now_ms() + RETRY_MS, partial(self._confirm, mark))
            return
        del self._confirming[mark.transaction_id]
        try:
            self._entities.forget_carried_out(self._store_id, mark.transaction_id)
        except BusError as problem:
            log.info("the catalog forgets when the store is opened next: %s", problem)


def _nothing() -> None:
    """Nobody waits for what a crash has left."""
