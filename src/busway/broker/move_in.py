"""How a twin takes what is moved to it: each message once, as it was, in the order handed over.

Neither quota nor duplicates are looked at: all of it was accepted once, and refusing some of it now
would lose it. A twin that is fuller than it may be refuses sends until it has been emptied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import Protocol

from busway.broker.intake import Intake
from busway.broker.partition import Partition
from busway.broker.seams import SessionStateMove, TransferSource
from busway.broker.staging import Stage
from busway.model.entities import Subscription
from busway.model.errors import NOT_FOUND, BusError
from busway.model.message import Message
from busway.store.base import SubQueueKey, SubQueueKind, TransferMark

Done = Callable[[BusError | None], None]


class MoveInOwner(Protocol):
    def take_work(self) -> None: ...

    def now_ms(self) -> int: ...

    def stage(self, records: int, size: int = 0) -> Stage: ...

    def partition(self, incarnation: int, index: int) -> Partition: ...

    def transfer_mark(self, slot: int, source: TransferSource) -> int: ...

    def transferred(self, slot: int, source: TransferSource, number: int) -> None: ...


class MoveIn:
    def __init__(self, owner: MoveInOwner, intake: Intake) -> None:
        self._owner = owner
        self._intake = intake
        self._under_way: dict[tuple[int, TransferSource], Stage] = {}

    def messages(
        self, key: SubQueueKey, source: TransferSource, messages: Sequence[Message], done: Done
    ) -> None:
        """Those with a number above the last that was taken; all others are here already (D-27)."""
        try:
            self._owner.take_work()
            partition = self._twin(key, source)
        except BusError as error:
            done(error)
            return
        sub_queue = partition.sub_queue(key.kind)
        again = partial(self.messages, key, source, messages, done)
        under_way = self._under_way.get((sub_queue.slot, source))
        if under_way is not None:
            under_way.waiting.append(again)  # the first outcome decides (D-1)
            return
        last = self._owner.transfer_mark(sub_queue.slot, source)
        new = [message for message in messages if message.number > last]
        if not new:
            done(None)
            return
        knowing = self._knowing(partition)
        if self._intake.waits_for_history(knowing, messages, new, again):
            return
        stage = self._owner.stage(len(new), sum(message.size for message in new))
        for message in new:
            arriving = self._place(stage, partition, key.kind, message)
            self._intake.remember_id(stage, knowing, arriving)
        number = new[-1].number
        stage.transfers.append(TransferMark(sub_queue.slot, *source, number))

        def committed(error: BusError | None) -> None:
            del self._under_way[sub_queue.slot, source]
            if error is None:
                self._owner.transferred(sub_queue.slot, source, number)
            done(error)

        self._under_way[sub_queue.slot, source] = stage
        stage.after.append(committed)

    def _twin(self, key: SubQueueKey, source: TransferSource) -> Partition:
        partition = self._owner.partition(key.incarnation, key.partition)
        entity = partition.entity
        migration = entity.migration
        if migration is None or migration.giver != source.incarnation:
            raise BusError(NOT_FOUND, uri=entity.path)
        return partition

    def _knowing(self, partition: Partition) -> Partition:
        """The partition that knows duplicates: of a subscription's messages it is the topic's."""
        entity = partition.entity
        if not isinstance(entity, Subscription):
            return partition
        return self._owner.partition(entity.topic_incarnation, partition.index)

    def _place(
        self, stage: Stage, partition: Partition, kind: SubQueueKind, message: Message
    ) -> Message:
        """FWD-2: it keeps its first number; all else of it is as it was."""
        arriving = copy(message)
        arriving.staged = arriving.body_id = None
        arriving.number = partition.next_number(stage)
        arriving.enqueued_number = message.enqueued_number or message.number
        stage.put(partition.sub_queue(kind), arriving)
        if partition.journal is not None:
            partition.journal.arrived(stage, kind, arriving, message.number)
        return arriving

    def states(
        self,
        key: SubQueueKey,
        source: TransferSource,
        states: Sequence[SessionStateMove],
        done: Done,
    ) -> None:
        try:
            self._owner.take_work()
            partition = self._twin(key, source)
        except BusError as error:
            done(error)
            return
        main = partition.sub_queue(SubQueueKind.MAIN)
        stage = self._owner.stage(len(states), sum(len(each.state or b"") for each in states))
        for each in states:
            stage.set_session_state(main, each.session_id, each.state, each.updated_ms, each.name)
        stage.touched[main] = None
        stage.after.append(done)
