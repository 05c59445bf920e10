"""Bugs on purpose: what checkers are worth is shown by what they catch.

Each is a broker that breaks one promise. They live here and nowhere near the product; `--bug`
puts one into a simulation, and a test holds the checkers to finding it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from busway.broker.broker import Broker
from busway.broker.intake import Intake
from busway.broker.partition import Partition
from busway.broker.seams import (
    Entities,
    Host,
    Replies,
    SessionHolder,
    SessionLock,
    Settlement,
    SettlementKind,
    StorePort,
    TransferSource,
)
from busway.broker.transactions import Transaction
from busway.filters.rules import Copy, TopicRules
from busway.model.entities import Entity
from busway.model.errors import BusError
from busway.model.message import Message
from busway.store.base import SubQueueKey


class _FirstAnswerOnly:
    """Tells the sender at once, and whatever the commit says later, no more."""

    def __init__(self, replies: Replies, tag: int) -> None:
        self._replies = replies
        self._tag = tag
        self._answered = False

    def acknowledge(self) -> None:
        if not self._answered:
            self._answered = True
            self._replies.committed([self._tag])

    def committed(self, tags: list[int]) -> None:
        self.acknowledge()

    def failed(self, tag: int, error: BusError) -> None:
        if not self._answered:
            self._answered = True
            self._replies.failed(tag, error)


class AcknowledgeBeforeCommit(Broker):
    """Answers a send when it is staged (against D-5)."""

    def send(
        self, key: SubQueueKey, messages: Sequence[Message], replies: Replies, tag: int
    ) -> None:
        first = _FirstAnswerOnly(replies, tag)
        super().send(key, messages, first, tag)
        first.acknowledge()


class ReturnWithoutCounting(Broker):
    """Gives an abandoned message out again without counting the delivery (against DLV-1)."""

    def settle(
        self, key: SubQueueKey, token: bytes, settlement: Settlement, replies: Replies, tag: int
    ) -> None:
        if settlement.kind is SettlementKind.ABANDON:
            settlement = Settlement(SettlementKind.RELEASE)
        super().settle(key, token, settlement, replies, tag)


class CompleteInMemoryOnly(Broker):
    """Acknowledges a completion without removing anything: it comes back (against MSG-3)."""

    def settle(
        self, key: SubQueueKey, token: bytes, settlement: Settlement, replies: Replies, tag: int
    ) -> None:
        if settlement.kind is SettlementKind.COMPLETE and token[-1] % 16 == 0:
            settlement = Settlement(SettlementKind.RELEASE)
        super().settle(key, token, settlement, replies, tag)


class ForwardWithoutMark(Broker):
    """Forgets which transfers it has taken, and takes them again when asked to (against D-27)."""

    def transfer_mark(self, slot: int, source: TransferSource) -> int:
        return 0


class _Unheard:
    """Nobody is told."""

    def committed(self, tags: list[int]) -> None:
        pass

    def failed(self, tag: int, error: BusError) -> None:
        pass


class TransactionInParts(Broker):
    """Sends what a transaction sends, whatever becomes of its settlements (against TXN-2)."""

    def transact(self, transaction: Transaction, replies: Replies, tag: int) -> None:
        sends, transaction.sends = transaction.sends, []
        if not self.was_carried_out(transaction.transaction_id):
            for key, messages in sends:
                self.send(key, messages, _Unheard(), tag)
        super().transact(transaction, replies, tag)


class SessionsForAll(Broker):
    """Gives a session that somebody holds to the next who asks for it by its id (against SES-3)."""

    def __init__(self, port: StorePort, host: Host, entities: Entities) -> None:
        super().__init__(port, host, entities)
        accept = self.accept_session

        def accept_anyway(
            key: SubQueueKey, session_id: str | None, holder: SessionHolder
        ) -> SessionLock | None:
            sub_queue = self.find_sub_queue(key)
            if session_id is not None and sub_queue is not None and sub_queue.sessions is not None:
                sub_queue.sessions.get(session_id).lock = None
            return accept(key, session_id, holder)

        self.accept_session = accept_anyway


class CompleteUntold(Broker):
    """Now and then removes a message and does not say so in the journal (against D-31)."""

    def settle(
        self, key: SubQueueKey, token: bytes, settlement: Settlement, replies: Replies, tag: int
    ) -> None:
        partition = self.partition(key.incarnation, key.partition)
        journal = partition.journal
        if settlement.kind is SettlementKind.COMPLETE and token[-1] % 16 == 0:
            partition.journal = None
        super().settle(key, token, settlement, replies, tag)
        partition.journal = journal


class OffsetsBeforeCommit(Broker):
    """Gives offsets that a failed commit does not give back (against D-31)."""

    def __init__(self, port: StorePort, host: Host, entities: Entities) -> None:
        super().__init__(port, host, entities)
        submit = self._way._submit_next

        def submit_and_count_on() -> None:
            submit()
            stage = self._way._in_flight
            if stage is not None:
                for journal, head in stage._heads.items():
                    journal.head = head

        self._way._submit_next = submit_and_count_on  # type: ignore[method-assign]


class CancelUnheard(Broker):
    """Says that a scheduled message is cancelled, and lets it come (against SCH-2)."""

    def __init__(self, port: StorePort, host: Host, entities: Entities) -> None:
        super().__init__(port, host, entities)

        def cancel(
            key: SubQueueKey, numbers: Sequence[int], done: Callable[[BusError | None], None]
        ) -> None:
            done(None)

        self.cancel_scheduled = cancel


class StateUnheard(Broker):
    """Says that a session's state is kept, and keeps the old one (against SES-10)."""

    def __init__(self, port: StorePort, host: Host, entities: Entities) -> None:
        super().__init__(port, host, entities)

        def set_state(lock: SessionLock, state: bytes | None, replies: Replies, tag: int) -> None:
            replies.committed([tag])

        self.set_session_state = set_state


class _AllIn:
    """Rules that let every message in everywhere."""

    def __init__(self, rules: TopicRules) -> None:
        self._rules = rules
        self.subscription_count = rules.subscription_count

    def route(self, message: Message) -> list[Copy]:
        return [Copy(subscription) for subscription in self._rules._subscriptions]


class RulesIgnored(Broker):
    """Gives every subscription a copy, whatever its rules say (against RUL-1)."""

    def topic_rules(self, incarnation: int) -> TopicRules:
        return cast(TopicRules, _AllIn(super().topic_rules(incarnation)))


class _Boundless(Intake):
    def check_room(self, partition: Partition, entity: Entity, size: int) -> None:
        pass


class QuotaForgotten(Broker):
    """Takes what does not fit (against LIM-4)."""

    def __init__(self, port: StorePort, host: Host, entities: Entities) -> None:
        super().__init__(port, host, entities)
        self._intake = _Boundless(self, self._fan_outs)


class _NeverFreed(Intake):
    """Counts everything that it ever took."""

    def __init__(self, owner: Broker) -> None:
        super().__init__(owner, owner._fan_outs)
        self._ever: dict[Partition, int] = {}

    def check_room(self, partition: Partition, entity: Entity, size: int) -> None:
        taken = self._ever.get(partition, 0)
        super().check_room(partition, entity, taken - partition.tally.total + size)
        self._ever[partition] = taken + size


class QuotaKept(Broker):
    """Refuses what fits, once it was full: nothing is taken off when it goes (against LIM-4)."""

    def __init__(self, port: StorePort, host: Host, entities: Entities) -> None:
        super().__init__(port, host, entities)
        self._intake = _NeverFreed(self)


BUGS: dict[str, type[Broker]] = {
    "acknowledge-before-commit": AcknowledgeBeforeCommit,
    "return-without-counting": ReturnWithoutCounting,
    "complete-in-memory-only": CompleteInMemoryOnly,
    "forward-without-mark": ForwardWithoutMark,
    "transaction-in-parts": TransactionInParts,
    "sessions-for-all": SessionsForAll,
    "complete-untold": CompleteUntold,
    "offsets-before-commit": OffsetsBeforeCommit,
    "cancel-unheard": CancelUnheard,
    "state-unheard": StateUnheard,
    "rules-ignored": RulesIgnored,
    "quota-forgotten": QuotaForgotten,
    "quota-kept": QuotaKept,
}

OF_PLAIN_QUEUES = {
    "acknowledge-before-commit",
    "return-without-counting",
    "complete-in-memory-only",
}
"""Bugs that need nothing else to be seen."""

OF_QUOTAS = {"quota-forgotten", "quota-kept"}
"""Bugs that need an entity that is soon full."""
