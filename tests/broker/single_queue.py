"""One store, one conventional queue, virtual time: the world of the broker's tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from busway.amqp.codec import decode_value
from busway.amqp.sections import APPLICATION_PROPERTIES, DATA
from busway.amqp.types import Described
from busway.broker.broker import Broker
from busway.broker.seams import Grant, Settlement, SettlementKind
from busway.model.entities import Queue
from busway.model.errors import BusError
from busway.model.message import Message
from busway.sim.world import World
from busway.store.base import Counters, SubQueueKey, SubQueueKind

COMPLETE = Settlement(SettlementKind.COMPLETE)
ABANDON = Settlement(SettlementKind.ABANDON)
RELEASE = Settlement(SettlementKind.RELEASE)
DEFER = Settlement(SettlementKind.DEFER)
DEAD_LETTER = Settlement(SettlementKind.DEAD_LETTER)

ACCEPTED = "accepted"


class Answers:
    """A `Replies` that keeps what it was told, by tag."""

    def __init__(self) -> None:
        self.outcomes: dict[int, BusError | str] = {}

    def committed(self, tags: list[int]) -> None:
        for tag in tags:
            assert tag not in self.outcomes, "answered twice"
            self.outcomes[tag] = ACCEPTED

    def failed(self, tag: int, error: BusError) -> None:
        assert tag not in self.outcomes, "answered twice"
        self.outcomes[tag] = error


class Command:
    """A send or settlement under way: `outcome` is None until it is answered."""

    def __init__(self, answers: Answers, tag: int) -> None:
        self._answers = answers
        self._tag = tag

    @property
    def outcome(self) -> str | None:
        """`accepted`, or the name of the error."""
        outcome = self._answers.outcomes.get(self._tag)
        return outcome.kind.name if isinstance(outcome, BusError) else outcome

    @property
    def error(self) -> BusError:
        outcome = self._answers.outcomes[self._tag]
        assert isinstance(outcome, BusError)
        return outcome


class Delivered:
    """A message as it looked when it was delivered; the broker's own object goes on changing."""

    def __init__(self, message: Message) -> None:
        self.text, sent = read_bare(message.bare)
        self.number = message.number
        self.enqueued_number = message.enqueued_number
        self.session_id = message.session_id
        self.expires_ms = message.expires_ms
        self.dead_letter_source = message.dead_letter_source
        self.delivery_count = message.delivery_count
        self.token = message.lock_token or b""
        self.locked_until_ms = message.locked_until_ms
        self.enqueued_ms = message.enqueued_ms
        self.state = message.state
        self.properties: dict[str, Any] = sent | (
            dict(decode_value(message.changes)[0]) if message.changes else {}
        )


def read_bare(bare: bytes) -> tuple[str, dict[str, Any]]:
    """Body and application properties; a bare message without sections is all body."""
    if not bare.startswith(b"\x00"):
        return bare.decode(), {}
    text, properties, offset = "", {}, 0
    while offset < len(bare):
        section, offset = decode_value(bare, offset)
        assert isinstance(section, Described)
        if section.descriptor == APPLICATION_PROPERTIES:
            properties = dict(section.value)
        elif section.descriptor == DATA:
            text = section.value.decode()
    return text, properties


class Hand:
    """A `Receiver` and `Watcher`: a link with a hand open for so many messages."""

    def __init__(self) -> None:
        self.delivered: list[Delivered] = []
        self.finished_grants: list[Grant] = []
        self.ready_calls = 0

    def deliver(self, grant: Grant, messages: list[Message]) -> None:
        assert grant not in self.finished_grants, "delivered on a grant that is finished"
        self.delivered.extend(Delivered(message) for message in messages)

    def finished(self, grant: Grant) -> None:
        assert grant not in self.finished_grants, "finished twice"
        self.finished_grants.append(grant)

    def ready(self, key: SubQueueKey) -> None:
        self.ready_calls += 1

    @property
    def texts(self) -> list[str]:
        return [each.text for each in self.delivered]


class SingleQueue:
    """A world of one queue, with the verbs of a client."""

    def __init__(self, *, seed: int = 1, **properties: Any) -> None:
        self.world = World(seed, stores=1)
        (self.store,) = self.world.stores.values()
        self.queue = self.world.create_queue(Queue(path="orders", **properties))
        self._answers = Answers()
        self._tags = 0
        self.world.settle_down()

    # Parts.

    @property
    def broker(self) -> Broker:
        return self.store.broker

    def key(self, kind: SubQueueKind = SubQueueKind.MAIN) -> SubQueueKey:
        return SubQueueKey(self.queue.incarnation, 0, kind)

    def counters(self, kind: SubQueueKind = SubQueueKind.MAIN) -> Counters:
        return self.broker.counters(self.queue.incarnation, 0).get(kind, Counters())

    def now_ms(self) -> int:
        return self.world.now_ms()

    def run(self, duration_ms: int = 100) -> None:
        self.world.run_for(duration_ms)

    # Verbs that leave the outcome open.

    def _command(self, give: Callable[[Answers, int], None]) -> Command:
        self._tags += 1
        give(self._answers, self._tags)
        return Command(self._answers, self._tags)

    def start_send(self, *texts: str, ttl_ms: int | None = None, size: int = 100) -> Command:
        messages = [Message(bare=text.encode(), size=size, ttl_ms=ttl_ms) for text in texts]
        return self._command(
            lambda answers, tag: self.broker.send(self.key(), messages, answers, tag)
        )

    def start_settle(
        self,
        delivered: Delivered,
        settlement: Settlement = COMPLETE,
        kind: SubQueueKind = SubQueueKind.MAIN,
    ) -> Command:
        key, token = self.key(kind), delivered.token
        return self._command(
            lambda answers, tag: self.broker.settle(key, token, settlement, answers, tag)
        )

    # Verbs that wait for it.

    def send(self, *texts: str, ttl_ms: int | None = None, size: int = 100) -> None:
        """One atomic send; its messages have the texts as bodies."""
        command = self.start_send(*texts, ttl_ms=ttl_ms, size=size)
        self.run()
        assert command.outcome == ACCEPTED

    def settle(
        self,
        delivered: Delivered,
        settlement: Settlement = COMPLETE,
        kind: SubQueueKind = SubQueueKind.MAIN,
    ) -> str | None:
        command = self.start_settle(delivered, settlement, kind)
        self.run()
        return command.outcome

    def grant(
        self,
        hand: Hand,
        limit: int = 100,
        *,
        delete: bool = False,
        kind: SubQueueKind = SubQueueKind.MAIN,
    ) -> Grant:
        grant = Grant(hand, self.key(kind), limit, delete=delete)
        self.broker.grant(grant)
        return grant

    def receive(
        self,
        limit: int = 100,
        *,
        delete: bool = False,
        kind: SubQueueKind = SubQueueKind.MAIN,
    ) -> list[Delivered]:
        """What there is, up to the limit; then the grant is called back."""
        hand = Hand()
        grant = self.grant(hand, limit, delete=delete, kind=kind)
        self.run()
        self.broker.recall(grant)
        self.run()
        assert hand.finished_grants == [grant]
        return hand.delivered

    def receive_one(self, kind: SubQueueKind = SubQueueKind.MAIN) -> Delivered:
        (delivered,) = self.receive(1, kind=kind)
        return delivered

    def dead_letters(self, limit: int = 100) -> list[Delivered]:
        return self.receive(limit, kind=SubQueueKind.DEAD_LETTER)

    def receive_deferred(self, *numbers: int, delete: bool = False) -> list[Delivered] | str:
        """The messages, or the name of the error."""
        found: list[list[Message] | BusError] = []
        self.broker.receive_deferred(self.key(), numbers, delete, found.append)
        self.run()
        (answer,) = found
        if isinstance(answer, BusError):
            return answer.kind.name
        return [Delivered(message) for message in answer]

    def lock_deferred(self, number: int) -> Delivered:
        found = self.receive_deferred(number)
        assert not isinstance(found, str), found
        (delivered,) = found
        return delivered

    def peek(
        self,
        from_number: int = 0,
        count: int = 100,
        size: int = 262_144,
        kind: SubQueueKind = SubQueueKind.MAIN,
    ) -> list[Delivered]:
        found: list[list[Message] | BusError] = []
        self.broker.peek(self.key(kind), from_number, count, size, found.append)
        self.run()
        (answer,) = found
        assert not isinstance(answer, BusError)
        return [Delivered(message) for message in answer]

    # Events.

    def crash(self, *, finish_commit: bool = False) -> None:
        self.store.crash(finish_commit=finish_commit)
        self.store.restart()
        self.world.settle_down()
