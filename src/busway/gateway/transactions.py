"""A transaction while it is open: what it will do, and where (TXN, P-33 to P-38, D-28).

Where it is is `transaction_place.py`'s. Sends, settlements and schedules of that partition are
collected; a send to another entity becomes a transfer of this one, where the client has asked for
that (*send-via*, or all links in the coordinator's own session). Nothing is handed to a broker
before the discharge: then all of it in one command, which is all or nothing. Until then the
deliveries that it settles are unsettled, and after a rollback they still are (TXN-2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Protocol

from busway.amqp.errors import ProtocolError
from busway.amqp.session import Session
from busway.broker.seams import SessionLock, Settlement
from busway.broker.transactions import Transaction
from busway.cluster.rule_orders import RuleOrder, encode_orders
from busway.gateway.envelope import Keyed
from busway.gateway.exchange import check_room
from busway.gateway.router import Destination
from busway.gateway.transaction_place import TransactionPlace, elsewhere
from busway.gateway.via_entity import via_entity
from busway.model.durations import format_timespan
from busway.model.entities import Entity, Queue, Rule, Subscription, Topic
from busway.model.errors import (
    ARGUMENT_ERROR,
    ENTITY_ALREADY_EXISTS,
    INVALID_OPERATION,
    LOCK_LOST,
    NOT_FOUND,
    TRANSACTION_ROLLBACK,
    TRANSACTION_TIMEOUT,
    TRANSACTION_TOO_LARGE,
    TRANSACTION_UNKNOWN,
    BusError,
)
from busway.model.limits import TRANSACTION_MAX_MESSAGES, TRANSACTION_MAX_MS
from busway.model.message import Message, MessageState
from busway.model.names import name_key
from busway.store.base import SubQueueKey, SubQueueKind

if TYPE_CHECKING:
    from busway.gateway.gateway import Gateway

RULES_OF_PARTITIONED = (
    "Rules of a subscription of a partitioned topic cannot be changed inside a transaction."
)


class Settler(Protocol):
    """A receiver link on which deliveries were settled in a transaction."""

    def settled_in_transaction(self, delivery_ids: list[int]) -> None:
        """It was carried out."""


class OpenTransaction:
    """Declared and not discharged. `session` is the one of its coordinator link."""

    def __init__(self, gateway: Gateway, transaction_id: bytes, session: Session) -> None:
        self.transaction_id = transaction_id
        self._gateway = gateway
        self._session = session
        self._place = TransactionPlace()
        self._messages = 0
        self._bytes = 0
        self._work = Transaction(transaction_id)
        self._rule_orders: list[RuleOrder] = []
        self._transfers: list[tuple[int, list[Message]]] = []
        """What goes to other entities, by their incarnation."""
        self._tokens: set[bytes] = set()
        """Of the messages that it settles."""
        self._deliveries: dict[Settler, list[int]] = {}
        """Of these, the ones whose links are told when it is carried out."""
        self.deadline_ms: int | None = None
        """None before the first operation (TXN-4)."""
        self._over: BusError | None = None
        """Why it cannot be committed any more."""

    # --- Operations ------------------------------------------------------------------------------

    @contextmanager
    def operation(self) -> Iterator[None]:
        """An operation that is refused ends the whole: it can only be rolled back.

        The Java SDK takes any answer to a send in a transaction for success, so a commit that went
        on without the refused message would lose it unseen.
        """
        self._check_open()
        try:
            yield
        except BusError as error:
            raise self._end(error) from None
        except ProtocolError as error:
            self._end(BusError(ARGUMENT_ERROR, detail=f"A message cannot be read: {error}"))
            raise

    def send(self, session: Session, entity: Destination, messages: list[Keyed]) -> None:
        """To this entity; by way of the one where the transaction is, if that is another."""
        self.check_count(len(messages))
        home = self._home_in(session, entity)
        if home.incarnation != entity.incarnation:
            self._enter(home)
            self._transfer(entity, messages)
            return
        self._enter(home)
        for _, key, _ in messages:
            self._place.pin_by_key(key)
        self._take([message for message, _, _ in messages])
        self._work.sends.append((self._main(), [message for message, _, _ in messages]))

    def send_via(self, via: Destination, entity: Destination, messages: list[Keyed]) -> None:
        """To an entity, by way of the one that the link is attached to."""
        self.check_count(len(messages))
        self._enter(via)
        self._transfer(entity, messages)

    def schedule(self, entity: Destination, messages: list[Keyed]) -> None:
        """As `send`; the numbers are given now, because the client is told them now."""
        self.check_count(len(messages))
        self._enter(entity)
        for _, partition_key, _ in messages:
            self._place.pin_by_key(partition_key)
        key = self._main()
        owner = self._gateway.router.available_owner(entity, key.partition)
        if self._work.epoch not in (None, owner.epoch):
            raise BusError(TRANSACTION_ROLLBACK, reason="its messaging store was lost.")
        found = [message for message, _, _ in messages]
        self._work.epoch = owner.epoch
        numbers = owner.reserve_numbers(key, len(found))
        for message, number in zip(found, numbers, strict=True):
            message.number = number
        self._take(found)
        self._work.schedules.append((key, found, numbers))

    def settle(
        self,
        entity: Entity,
        key: SubQueueKey,
        token: bytes,
        decision: Settlement,
        session: Session | None = None,
    ) -> None:
        """The lock is kept until the discharge (TXN-2). `session` is that of a receiver link."""
        top_level = self._top_level(entity)
        home = top_level if session is None else self._home_in(session, top_level)
        if home.incarnation != top_level.incarnation:
            raise elsewhere(home, top_level)
        if token in self._tokens:
            raise BusError(LOCK_LOST)
        self._enter(home)
        self._place.pin(key.partition, "a message that it settles")
        self._tokens.add(token)
        self._work.settlements.append((key, token, decision))

    def set_session_state(self, entity: Entity, lock: SessionLock, state: bytes | None) -> None:
        """The session's lock is looked at again at the discharge (SES-10)."""
        self._enter(self._top_level(entity))
        self._place.pin(lock.key.partition, "the session whose state it sets")
        self._charge(len(state or b""))
        self._work.session_states.append((lock, state))

    def cancel(self, entity: Destination, key: SubQueueKey, numbers: list[int]) -> None:
        """Whether they are still scheduled is looked at again at the discharge (SCH-2)."""
        self._enter(entity)
        self._place.pin(key.partition, "a scheduled message that it cancels")
        self._work.cancels.append((key, numbers))

    def refuse(self, error: BusError) -> None:
        """An operation that was taken turned out to be impossible."""
        if self._over is None:
            self._end(error)

    def settles(self, token: bytes) -> bool:
        return token in self._tokens

    def tell(self, settler: Settler, delivery_id: int) -> None:
        """This delivery is settled once the transaction is carried out."""
        self._deliveries.setdefault(settler, []).append(delivery_id)

    def add_rule(self, subscription: Subscription, rule: Rule) -> None:
        from busway.filters.rules import check_rule

        topic = self._topic_of_rules(subscription)
        check_rule(rule)
        if self._has_rule(subscription, rule.name):
            raise BusError(ENTITY_ALREADY_EXISTS, uri=f"{subscription.path}/Rules/{rule.name}")
        self._enter(topic)
        self._rule_orders.append(RuleOrder(subscription.incarnation, rule.name, rule))

    def remove_rule(self, subscription: Subscription, name: str) -> None:
        topic = self._topic_of_rules(subscription)
        if not self._has_rule(subscription, name):
            raise BusError(NOT_FOUND, uri=f"{subscription.path}/Rules/{name}")
        self._enter(topic)
        self._rule_orders.append(RuleOrder(subscription.incarnation, name, None))

    def _has_rule(self, subscription: Subscription, name: str) -> bool:
        """As it will be, after what this transaction has ordered already."""
        for order in reversed(self._rule_orders):
            if (order.subscription, name_key(order.name)) == (
                subscription.incarnation,
                name_key(name),
            ):
                return order.rule is not None
        return self._gateway.catalog.find_rule(subscription, name) is not None

    # --- Where it is -----------------------------------------------------------------------------

    def _enter(self, home: Destination) -> None:
        is_first = self._place.home is None
        self._place.enter(home)
        if is_first:
            self.deadline_ms = self._gateway.host.now_ms() + TRANSACTION_MAX_MS
            self._gateway.await_discharge(self)

    def _home_in(self, session: Session, entity: Destination) -> Destination:
        """TXN-3: in the coordinator's session all links go through one entity; a link of another
        session is for its own entity only."""
        if session is not self._session:
            return entity
        path = via_entity(session).path
        assert path is not None  # there is a link to an entity: this one
        home = self._gateway.catalog.find(path)
        if home is None:
            raise BusError(NOT_FOUND, uri=path)
        return home

    def _main(self) -> SubQueueKey:
        home, partition = self._place.home, self._place.partition
        assert home is not None
        assert partition is not None
        return SubQueueKey(home.incarnation, partition, SubQueueKind.MAIN)

    def _top_level(self, entity: Entity) -> Destination:
        found: Entity | None = entity
        if isinstance(entity, Subscription):
            found = self._gateway.catalog.get(entity.topic_incarnation)
        if not isinstance(found, Queue | Topic):
            raise BusError(NOT_FOUND, uri=entity.path)
        return found

    def _topic_of_rules(self, subscription: Subscription) -> Destination:
        topic = self._top_level(subscription)
        if topic.enable_partitioning:
            raise BusError(INVALID_OPERATION, detail=RULES_OF_PARTITIONED)  # P-44
        return topic

    # --- What it holds ---------------------------------------------------------------------------

    def _transfer(self, entity: Destination, messages: list[Keyed]) -> None:
        for _, _, via_key in messages:
            self._place.pin_by_via_key(via_key)
        found = [message for message, _, _ in messages]
        for message in found:
            to_be_transferred(message, entity)
        self._take(found)
        self._transfers.append((entity.incarnation, found))

    def check_count(self, count: int) -> None:
        """Whether it can have so many messages more (LIM-5)."""
        if self._messages + count > TRANSACTION_MAX_MESSAGES:
            raise BusError(TRANSACTION_TOO_LARGE, limit=TRANSACTION_MAX_MESSAGES)

    def _take(self, messages: list[Message]) -> None:
        self._messages += len(messages)
        self._charge(sum(message.size for message in messages))

    def _charge(self, size: int) -> None:
        self._bytes += size
        self._gateway.budget.take(size)

    def _check_open(self) -> None:
        if self._over is not None:
            raise self._over

    def _end(self, error: BusError) -> BusError:
        """It cannot be committed any more (P-33); the client learns it again at the discharge."""
        self._over = error
        self._drop()
        return error

    def _drop(self) -> None:
        self._gateway.budget.give(self._bytes)
        self._bytes = 0
        self._work = Transaction(self.transaction_id)
        self._rule_orders = []
        self._transfers = []
        self._tokens = set()
        self._deliveries = {}

    # --- The end ---------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        return self._over is not None

    def roll_back(self) -> None:
        """What was settled stays locked until its lock runs out (TXN-2)."""
        if self._over is None:
            self._over = BusError(TRANSACTION_UNKNOWN)
        self._drop()

    def time_out(self) -> None:
        if self._over is None:
            timeout = format_timespan(TRANSACTION_MAX_MS)
            self._end(BusError(TRANSACTION_TIMEOUT, timeout=timeout))

    def commit(self, done: Callable[[BusError | None], None]) -> None:
        """Hand everything to the owner of its partition; `done` with why not, if not."""
        if self._over is not None:
            over = self._over
            is_its_own = over.kind in (TRANSACTION_TIMEOUT, TRANSACTION_ROLLBACK)
            done(over if is_its_own else BusError(TRANSACTION_ROLLBACK, reason=over.text))
            return
        self._over = BusError(TRANSACTION_UNKNOWN)
        work, home = self._work, self._place.home
        if self._rule_orders:
            work.orders = encode_orders(self._rule_orders)  # D-28: in the same commit
        if home is None or (work.is_empty and not self._transfers):
            self._finished(done, None)
            return
        try:
            self._check_destinations()
            if self._place.partition is None:
                self._place.partition = self._gateway.router.some_partition(home)
            owner = self._gateway.router.available_owner(home, self._place.partition)
        except BusError as error:
            self._finished(done, error)
            return
        work.transfers = [(self._main(), messages) for _, messages in self._transfers]
        owner.transact(work, Discharge(partial(self._finished, done)), 0)

    def _check_destinations(self) -> None:
        """FWD-5, D-28: one that is gone or full is an error now; later it could not be told."""
        by_destination: dict[int, list[Message]] = {}
        for incarnation, messages in self._transfers:
            by_destination.setdefault(incarnation, []).extend(messages)
        for incarnation, messages in by_destination.items():
            entity = self._gateway.catalog.get(incarnation)
            if not isinstance(entity, Queue | Topic):
                raise BusError(NOT_FOUND, uri=messages[0].destination)
            check_room(self._gateway.router, entity, messages)

    def _finished(self, done: Callable[[BusError | None], None], error: BusError | None) -> None:
        deliveries = self._deliveries
        self._drop()
        if error is None:
            for settler, delivery_ids in deliveries.items():
                settler.settled_in_transaction(delivery_ids)
        elif error.kind is not TRANSACTION_ROLLBACK:
            is_unknown = error.kind.retryable and not error.refused
            if not is_unknown:  # else it may have been carried out (D-3)
                error = BusError(TRANSACTION_ROLLBACK, reason=error.text)
        done(error)


class Discharge:
    """The `Replies` of one transaction."""

    __slots__ = ("_done",)

    def __init__(self, done: Callable[[BusError | None], None]) -> None:
        self._done = done

    def committed(self, tags: list[int]) -> None:
        self._done(None)

    def failed(self, tag: int, error: BusError) -> None:
        self._done(error)


def to_be_transferred(message: Message, entity: Destination) -> None:
    """As it lies in a transfer queue: when it is due is looked at where it arrives (RUL-7)."""
    message.destination = entity.path
    message.state = MessageState.ACTIVE
    message.expires_ms = None
