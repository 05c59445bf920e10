"""An entity takes what fits and refuses what does not, by what is in it then (LIM-4, D-17).

Nobody outside knows what is in an entity at the moment in which a broker decides; but it is at
least what was acknowledged before the send began and nobody has begun to remove, and at most
everything that was ever sent and is not certainly gone.
"""

from __future__ import annotations

from dataclasses import dataclass

from busway.broker.seams import SettlementKind
from busway.model.entities import Queue
from busway.sim.history import (
    Answer,
    Delivered,
    Event,
    QueueCreated,
    SendEnded,
    SendStarted,
    SettleEnded,
    SettleStarted,
    Violation,
)

NAME = "quotas"

Place = tuple[int, int]
"""An incarnation and one of its partitions."""


@dataclass(slots=True)
class Weight:
    """One message: what it counts, and whether it does."""

    place: Place
    size: int
    acknowledged: bool = False
    touched: bool = False
    """Somebody has begun to remove it."""
    possible: bool = True
    """It is not known to be gone, or never to have been."""

    @property
    def certain(self) -> bool:
        return self.acknowledged and self.possible and not self.touched


@dataclass(slots=True)
class SendUnderWay:
    started: SendStarted
    size: int
    floor: set[int]
    """Those that were certainly there when it began."""
    most: int
    """The most that there may have been since."""


class Quotas:
    """Of queues that are named: they have no other way in, nothing in them expires, and nobody
    receives and deletes there."""

    def __init__(self, *small: str) -> None:
        self._small = small
        self._limits: dict[int, Queue] = {}
        self._weights: dict[int, Weight] = {}
        self._sends: dict[int, SendUnderWay] = {}
        self._settlements: dict[int, SettleStarted] = {}
        self.refused = 0
        self.taken_again = 0
        """Sends that were accepted after one had been refused."""

    def see(self, now_ms: int, event: Event) -> None:
        match event:
            case QueueCreated(queue=Queue() as queue) if queue.path in self._small:
                self._limits[queue.incarnation] = queue
            case SendStarted() if event.incarnation in self._limits:
                self._began(event)
            case SendEnded(send) if send in self._sends:
                self._ended(self._sends.pop(send), event)
            case Delivered(token=None) if event.body in self._weights:
                self._weights[event.body].possible = False
            case SettleStarted() if event.body in self._weights and _removes(event):
                self._weights[event.body].touched = True
                self._settlements[event.settlement] = event
            case SettleEnded(settlement, answer) if settlement in self._settlements:
                weight = self._weights[self._settlements.pop(settlement).body]
                if answer is Answer.DONE:
                    weight.possible = False

    def _began(self, event: SendStarted) -> None:
        place = self._place(event)
        assert event.ttl_ms is None, "what expires is not judged here"
        floor = {
            body
            for body, weight in self._weights.items()
            if weight.certain and weight.place == place
        }
        for body, size in zip(event.bodies, event.sizes, strict=True):
            self._weights[body] = Weight(place, size)
        size = sum(event.sizes)
        self._sends[event.send] = SendUnderWay(event, size, floor, 0)
        for under_way in self._sends.values():
            # Of itself, too: its own bytes count once, so they are taken off again.
            under_way.most = max(under_way.most, self._possible(under_way) - under_way.size)

    def _place(self, event: SendStarted) -> Place:
        partitions = len(self._limits[event.incarnation].placement)
        assert event.partition is not None or partitions == 1, "it is full when all of them are"
        return (event.incarnation, event.partition or 0)

    def _possible(self, under_way: SendUnderWay) -> int:
        place = self._place(under_way.started)
        return sum(
            weight.size
            for weight in self._weights.values()
            if weight.possible and weight.place == place
        )

    def _ended(self, under_way: SendUnderWay, event: SendEnded) -> None:
        started, size = under_way.started, under_way.size
        queue = self._limits[started.incarnation]
        weights = [self._weights[body] for body in started.bodies]
        if event.answer is Answer.REFUSED:
            for weight in weights:
                weight.possible = False
            self.refused += event.is_over_quota
            if event.is_over_quota and under_way.most + size <= queue.max_size_bytes:
                raise Violation(
                    NAME,
                    f"{queue.path} refused {started.bodies} of {size} B with at most "
                    f"{under_way.most} B in it; it takes {queue.max_size_bytes} B",
                )
        elif event.answer is Answer.DONE:
            self.taken_again += self.refused > 0
            least = sum(
                self._weights[body].size for body in under_way.floor if self._weights[body].certain
            )
            if least + size > queue.max_size_bytes:
                raise Violation(
                    NAME,
                    f"{queue.path} took {started.bodies} of {size} B with at least {least} B in "
                    f"it; it takes {queue.max_size_bytes} B",
                )
            for weight in weights:
                weight.acknowledged = True


def _removes(event: SettleStarted) -> bool:
    return event.kind is SettlementKind.COMPLETE
