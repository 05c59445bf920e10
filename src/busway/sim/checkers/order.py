"""First deliveries of a partition are in the order of numbers (MSG-6); numbers are as they must be.

Only messages that were never in anybody's hands are judged: what was returned comes whenever its
turn is. A store that failed meanwhile may have taken back what it had set aside for a client that
receives and deletes, so each disturbance begins a new count. The order within sessions is judged
by `sessions`.
"""

from __future__ import annotations

from busway.model.message import partition_of
from busway.model.partitioning import partition_of_key
from busway.sim.checkers.routes import Routes
from busway.sim.history import (
    Answer,
    Delivered,
    Event,
    SendEnded,
    SendStarted,
    TransactionStarted,
    Violation,
)
from busway.store.base import SubQueueKey, SubQueueKind

NAME = "order"


class Order:
    def __init__(self, *, per_receiver: bool = False) -> None:
        self._per_receiver = per_receiver
        """Over a network only what one link received has an order."""
        self._seen: set[tuple[int, int]] = set()
        """Bodies, and the incarnations that they came from."""
        self._last: dict[tuple[SubQueueKey, bool, str], tuple[int, int]] = {}

    def see(self, now_ms: int, event: Event) -> None:
        if not isinstance(event, Delivered):
            return
        first = (event.body, event.key.incarnation) not in self._seen
        self._seen.add((event.body, event.key.incarnation))
        if event.key.kind is not SubQueueKind.MAIN or event.deferred or not first:
            return
        if event.holding is not None:
            return
        if self._per_receiver and event.delivery_count > 0:
            return  # it was on its way to a connection that is gone
        receiver = event.receiver if self._per_receiver else ""
        line = (event.key, event.token is None, receiver)
        disturbances, last = self._last.get(line, (0, 0))
        if disturbances == event.disturbances and event.number < last:
            raise Violation(
                NAME, f"{event.body} (number {event.number}) was delivered after number {last}"
            )
        self._last[line] = (event.disturbances, event.number)


class Numbers:
    """SEQ-1, SEQ-2, MSG-7: unique, of the right partition, increasing, consecutive in a batch.

    A message has one number in each entity that it comes to, and goes by its key there, too
    (P-40, FWD-7).
    """

    def __init__(self) -> None:
        self._routes = Routes()
        self._number_of: dict[tuple[int, int], int] = {}
        """By incarnation and body."""
        self._owner_of: dict[tuple[int, int], int] = {}
        """By incarnation and number."""
        self._sends: dict[int, SendStarted] = {}
        self._send_of: dict[int, int] = {}
        self._transacted: set[int] = set()
        """Sends of transactions: they may go by way of another entity, and arrive later (TXN-3)."""
        self._begun: dict[int, int] = {}
        self._ended: dict[int, int] = {}
        """When a send began and was accepted, counted in events."""
        self._events = 0

    def see(self, now_ms: int, event: Event) -> None:
        self._events += 1
        self._routes.see(event)
        match event:
            case SendStarted():
                self._sends[event.send] = event
                self._begun[event.send] = self._events
                for body in event.bodies:
                    self._send_of[body] = event.send
            case TransactionStarted():
                self._transacted.update(event.sends)
            case SendEnded(send, Answer.DONE):
                self._ended[send] = self._events
            case Delivered():
                self._numbered(event)

    def _numbered(self, event: Delivered) -> None:
        body, number, incarnation = event.body, event.number, event.key.incarnation
        known = self._number_of.setdefault((incarnation, body), number)
        if known != number and not self._is_renumbered(event):
            raise Violation(NAME, f"{body} had the number {known} and now {number}")
        owner = self._owner_of.setdefault((incarnation, number), body)
        if owner != body:
            raise Violation(NAME, f"the number {number} was given to {owner} and {body}")
        if partition_of(number) != event.key.partition:
            raise Violation(NAME, f"number {number} came from partition {event.key.partition}")
        sent = self._sends[self._send_of[body]]
        if sent.incarnation == incarnation:
            if sent.destination is None:
                self._check_batch(event, sent)
        elif sent.key is not None:
            partitions = len(self._routes.queues[incarnation].placement)
            if event.key.partition != partition_of_key(sent.key, partitions):
                raise Violation(NAME, f"{body} was forwarded away from its key (P-40)")

    def _is_renumbered(self, event: Delivered) -> bool:
        """A dead letter that could not be forwarded has the number that it was to go with."""
        forwards = self._routes.queues[event.key.incarnation].forward_dead_letters_to
        return event.key.kind is SubQueueKind.DEAD_LETTER and forwards is not None

    def _check_batch(self, event: Delivered, sent: SendStarted) -> None:
        body, number, incarnation = event.body, event.number, event.key.incarnation
        if sent.partition is not None and sent.partition != event.key.partition:
            raise Violation(NAME, f"{body} left the partition {sent.partition} of its key (P-17)")
        if not self._may_be_judged(incarnation, body):
            return  # it need not be the whole batch, or not the numbers that it was sent with
        first = number - sent.bodies.index(body)
        for place, other in enumerate(sent.bodies):
            if self._number_of.get((incarnation, other), first + place) != first + place:
                raise Violation(NAME, f"the batch {sent.bodies} is not numbered in its order")

    def _may_be_judged(self, incarnation: int, body: int) -> bool:
        sent = self._sends[self._send_of[body]]
        straight = sent.incarnation == incarnation and sent.destination is None
        straight = straight and sent.send not in self._transacted
        forwards = self._routes.queues[incarnation].forward_dead_letters_to
        return straight and not sent.has_ids and sent.due_ms is None and forwards is None

    def check_increasing(self) -> None:
        """Of two sends to a partition, the one accepted before the other began has less."""
        by_partition: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for (incarnation, number), body in self._owner_of.items():
            if not self._may_be_judged(incarnation, body):
                continue
            line = by_partition.setdefault((incarnation, partition_of(number)), [])
            line.append((number, self._send_of[body]))
        for line in by_partition.values():
            latest_begin = 0
            for number, send in sorted(line):
                if self._ended.get(send, self._events) < latest_begin:
                    raise Violation(NAME, f"number {number} is above that of a later send")
                latest_begin = max(latest_begin, self._begun[send])
