"""Moving everything that an entity holds to its twin, exactly once and in order (D-27).

`migrate` empties a stopped entity into a twin that is partitioned where it is not; a topic with
each of its subscriptions, which hold what was sent to it, while it holds what is scheduled. Called
off, the twin is emptied into the entity.

Each partition of the one that gives has a `Mover`. It reads from the front of a sub-queue in the
order of numbers, in whatever state the messages are, and hands them over by partition of the other
one. That remembers the last number of each source, so what is handed over again after a crash is
*done*; then the source forgets it. Nothing overtakes: the next page is read when the last one is
gone, and a message that somebody has locked is waited for.

This is the protocol of `forwarding.py` without a transfer queue: that exists so that an arrival can
be acknowledged before its destination is asked, and here nothing arrives. So no message is written
an additional time, and it arrives in the state in which it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from busway.broker.partition import Partition
from busway.broker.seams import Exchange, Host, SessionStateMove, TransferSource
from busway.broker.staging import Stage
from busway.broker.sub_queue import SubQueue
from busway.model.entities import Entity, stands_still
from busway.model.errors import BusError
from busway.model.message import Message
from busway.store.base import MessagingStore, SubQueueKey, SubQueueKind

T = TypeVar("T")

STEP_MESSAGES_MAX = 512
STEP_BYTES_MAX = 1024 * 1024
STEP_STATES_MAX = 64
RETRY_MS = 250
"""After this a message that was locked, or a store that was not there, is looked at again."""

MAIN, TRANSFER = SubQueueKind.MAIN, SubQueueKind.TRANSFER
ORDER = (MAIN, TRANSFER, SubQueueKind.DEAD_LETTER, SubQueueKind.TRANSFER_DEAD_LETTER)
"""Dead letters come from the two before them with the numbers that they had: only when those are
empty is the order of what arrives there final."""


class MovingOwner(Protocol):
    exchange: Exchange | None

    @property
    def available(self) -> bool: ...

    @property
    def has_orders(self) -> bool: ...

    def entity(self, incarnation: int) -> Entity: ...

    def stage(self, records: int, size: int = 0) -> Stage: ...

    def partition(self, incarnation: int, index: int) -> Partition: ...

    def stored_sub_queue(self, key: SubQueueKey) -> SubQueue | None: ...

    def read(
        self, operation: Callable[[MessagingStore], T], done: Callable[[T | BusError], None]
    ) -> None: ...


class Standing(NamedTuple):
    """How far a partition's move is."""

    finished: bool
    locked: int = 0
    """Messages that receivers have locked: they are waited for."""
    problem: str | None = None
    """Why the twin did not take the last that it was handed."""


class Mover:
    """Empties one partition."""

    def __init__(
        self, owner: MovingOwner, host: Host, exchange: Exchange, source: TransferSource
    ) -> None:
        self._owner = owner
        self._host = host
        self._exchange = exchange
        self._source = source
        self._kinds = list(ORDER)
        self._sure = False
        """Whether all that was staged before the entity stood still has been committed."""
        self._open = 0
        """Groups that are on their way."""
        self._failed = False
        self._idle = False
        self._dropped = False
        self.finished = False
        self.problem: str | None = None

    def start(self) -> None:
        self._host.soon(self._step)

    def resume(self) -> None:
        """The store serves again."""
        if self._idle:
            self._idle = False
            self.start()

    def stop(self) -> None:
        """The memory of the partition is being dropped."""
        self._dropped = True

    @property
    def _goes_on(self) -> bool:
        if self._dropped:
            return False
        try:
            return is_giver(self._owner.entity(self._source.incarnation))
        except BusError:
            return False  # deleted: its messages are purged (D-16)

    @property
    def _partition(self) -> Partition:
        return self._owner.partition(*self._source)

    def _sub_queue(self, kind: SubQueueKind) -> SubQueue | None:
        return self._owner.stored_sub_queue(SubQueueKey(*self._source, kind))

    # One step: a page of the sub-queue whose turn it is.

    def _step(self) -> None:
        if not self._goes_on:
            return
        if not self._owner.available:
            self._idle = True
            return
        if not self._kinds:
            self._move_states()
            return
        kind = self._kinds[0]
        sub_queue = self._sub_queue(kind)
        if sub_queue is None:
            self._found_nothing()
        elif kind is TRANSFER:
            # What is on its way to other entities goes there from here.
            empty = not sub_queue.committed.active
            self._found_nothing() if empty else self._later()
        else:
            self._owner.read(
                lambda store: store.read_page(
                    sub_queue.slot, 0, state=None, rows=STEP_MESSAGES_MAX, size=STEP_BYTES_MAX
                ),
                partial(self._paged, sub_queue),
            )

    def _found_nothing(self) -> None:
        """Look once more, behind everything that was staged until now; then go to the next."""
        if not self._sure:
            self._sure = True
            self._owner.stage(0).after.append(self._again)
            return
        self._sure = False
        if self._kinds:
            del self._kinds[0]
            self._step()
        else:
            self.finished = True

    def _again(self, error: BusError | None) -> None:
        if error is not None:
            self._sure = False
        self._later() if error is not None else self._step()

    def _later(self) -> None:
        self._host.at(self._host.now_ms() + RETRY_MS, self._step)

    def _paged(self, sub_queue: SubQueue, found: list[Message] | BusError) -> None:
        if not self._goes_on:
            return
        if isinstance(found, BusError):
            self._later()
            return
        if not found:
            self._found_nothing()
            return
        self._sure = False
        taken = self._take(sub_queue, found)
        if taken:
            self._hand_over(sub_queue, taken)
        else:
            self._later()

    def _take(self, sub_queue: SubQueue, found: Sequence[Message]) -> list[Message]:
        """Mark those before the first that somebody has locked, or whose fate is not decided."""
        taken: list[Message] = []
        for message in found:
            known = sub_queue.known.get(message.number)
            if known is None:
                sub_queue.adopt(message)
                known = message
            elif known.lock_token is not None or known.staged is not None:
                break
            known.staged = self
            taken.append(known)
        return taken

    # Handing over.

    def _hand_over(self, sub_queue: SubQueue, messages: Sequence[Message]) -> None:
        groups: dict[SubQueueKey, list[Message]] = {}
        try:
            for message in messages:
                key = self._exchange.in_twin(self._source, sub_queue.key.kind, message)
                groups.setdefault(key, []).append(message)
        except BusError as error:
            self.problem = error.text
            self._release(sub_queue, messages)
            self._later()
            return
        self._open, self._failed = len(groups), False
        for key, group in groups.items():
            answered = partial(self._answered, sub_queue, group)
            self._exchange.move(key, self._source, group, answered)

    def _answered(
        self, sub_queue: SubQueue, group: Sequence[Message], error: BusError | None
    ) -> None:
        if self._dropped:
            return
        if error is None and self._goes_on:
            self.problem = None
            self._forget(sub_queue, group)
            return
        # Not lost and not doubled: it is read again from the front, and what the twin has of it
        # is answered *done*.
        if error is not None:
            self.problem = error.text
        self._release(sub_queue, group)
        self._group_done(error)

    def _release(self, sub_queue: SubQueue, messages: Sequence[Message]) -> None:
        for message in messages:
            message.staged = None
            sub_queue.released(message)
        sub_queue.wake()

    def _forget(self, sub_queue: SubQueue, group: Sequence[Message]) -> None:
        journal = self._partition.journal
        twin = self._exchange.twin_path(self._source)
        stage = self._owner.stage(len(group))
        for message in group:
            message.staged = None
            if journal is not None:
                journal.moved(stage, sub_queue.key.kind, message, twin)
            stage.delete(sub_queue, message)
        stage.after.append(self._group_done)

    def _group_done(self, error: BusError | None) -> None:
        self._open -= 1
        self._failed = self._failed or error is not None
        if self._open == 0:
            self._later() if self._failed else self._host.soon(self._step)

    # States of sessions (SES-10): setting one again changes nothing, so they need no numbers.

    def _move_states(self) -> None:
        main = self._sub_queue(MAIN)
        sessions = None if main is None else main.sessions
        named = [] if sessions is None else sessions.listed(-1)[:STEP_STATES_MAX]
        if main is None or sessions is None or not named:
            self._found_nothing()
            return
        self._sure = False
        slot = main.slot
        known = [(each.session_id, each.updated_ms or 0, each.shown) for each in named]

        def read(store: MessagingStore) -> list[SessionStateMove]:
            return [
                SessionStateMove(
                    session_id, store.read_session_state(slot, session_id), set_ms, name
                )
                for session_id, set_ms, name in known
            ]

        self._owner.read(read, partial(self._states_read, main))

    def _states_read(self, main: SubQueue, found: list[SessionStateMove] | BusError) -> None:
        if not self._goes_on:
            return
        if isinstance(found, BusError):
            self._later()
            return
        groups: dict[SubQueueKey, list[SessionStateMove]] = {}
        try:
            for state in found:
                key = self._exchange.session_in_twin(self._source, state.session_id)
                groups.setdefault(key, []).append(state)
        except BusError as error:
            self.problem = error.text
            self._later()
            return
        self._open, self._failed = len(groups), False
        for key, group in groups.items():
            answered = partial(self._states_answered, main, group)
            self._exchange.move_states(key, self._source, group, answered)

    def _states_answered(
        self, main: SubQueue, group: Sequence[SessionStateMove], error: BusError | None
    ) -> None:
        if self._dropped:
            return
        if error is not None or not self._goes_on:
            self.problem = None if error is None else error.text
            self._group_done(error)
            return
        stage = self._owner.stage(len(group))
        for state in group:
            stage.set_session_state(main, state.session_id, None, self._host.now_ms())
        stage.after.append(self._group_done)


class Movers:
    """Those of a broker: one for each partition of an entity that is being emptied."""

    def __init__(self, owner: MovingOwner, host: Host) -> None:
        self._owner = owner
        self._host = host
        self._movers: dict[TransferSource, Mover] = {}
        self._still: set[int] = set()

    def clear(self) -> None:
        for mover in self._movers.values():
            mover.stop()
        self._movers = {}

    def entity_changed(self, entity: Entity, partitions: Sequence[Partition]) -> bool:
        """Begin with what has begun to stand still; True where time goes on again."""
        if stands_still(entity):
            self._still.add(entity.incarnation)
            for partition in partitions:
                for kind, sub_queue in partition.sub_queues.items():
                    if kind is not TRANSFER:
                        sub_queue.finish_all()
                self._begin(entity, partition)
            return False
        went_on = entity.incarnation in self._still
        self.forget(entity.incarnation)
        return went_on

    def forget(self, incarnation: int) -> None:
        """It goes on, or is gone; its movers see that by themselves."""
        for source in [each for each in self._movers if each.incarnation == incarnation]:
            del self._movers[source]
        self._still.discard(incarnation)

    def _begin(self, entity: Entity, partition: Partition) -> None:
        source = TransferSource(partition.incarnation, partition.index)
        exchange = self._owner.exchange
        if not is_giver(entity) or exchange is None:
            return
        mover = self._movers.get(source)
        if mover is None:
            mover = self._movers[source] = Mover(self._owner, self._host, exchange, source)
            mover.start()
        else:
            mover.resume()

    def standing(self, incarnation: int, index: int) -> Standing:
        """A partition that nobody has used has nothing to move. Rules that a transaction of it has
        changed are changed first (D-28): its twin must have them too."""
        mover = self._movers.get(TransferSource(incarnation, index))
        is_ready = self._owner.available and not self._owner.has_orders
        if mover is None:
            return Standing(finished=is_ready)
        partition = self._owner.partition(incarnation, index)
        locked = sum(
            len(sub_queue.locks)
            for kind, sub_queue in partition.sub_queues.items()
            if kind is not TRANSFER
        )
        return Standing(mover.finished and is_ready, locked, mover.problem)


def is_giver(entity: Entity) -> bool:
    """Whether it is to be emptied, and not the one that is filled."""
    return entity.migration is not None and entity.migration.giver == entity.incarnation
