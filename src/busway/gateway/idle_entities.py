"""Entities that go when nobody uses them: who uses them, and when to look (STA-4).

Links tell of use once a turn, not once a message. What is no event is asked for before anything is
deleted: a receiver that is there, a scheduled message that waits.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from busway.broker.seams import Timer
from busway.model.entities import Entity, Subscription, Topic
from busway.model.errors import BusError
from busway.store.base import SubQueueKind

if TYPE_CHECKING:
    from busway.gateway.gateway import Gateway

log = logging.getLogger("busway.gateway")

LOOK_MS = 15_000
"""AutoDeleteOnIdle is at least five minutes."""


class IdleEntities:
    """Looks now and then, while there is any entity that may have to go."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._timer: Timer | None = None
        self._used_ms: dict[int, int] = {}

    def used(self, entity: Entity) -> None:
        now_ms = self._gateway.host.now_ms()
        self._used_ms[entity.incarnation] = now_ms
        if entity.auto_delete_on_idle_ms is not None:
            self._gateway.catalog.touch(entity.incarnation, now_ms)

    def last_used_ms(self, entity: Entity) -> int | None:
        """By messages, since this node was started (STA-6)."""
        return self._used_ms.get(entity.incarnation)

    def forget(self, incarnation: int) -> None:
        self._used_ms.pop(incarnation, None)

    def start(self) -> None:
        if self._gateway.catalog.some_may_go:
            self._arm()

    def expect(self, entity: Entity) -> None:
        if entity.auto_delete_on_idle_ms is not None:
            self._arm()

    def _arm(self) -> None:
        if self._timer is None:
            host = self._gateway.host
            self._timer = host.at(host.now_ms() + LOOK_MS, self._look)

    def look(self) -> None:
        """Look now, and as often as ever after."""
        if self._timer is not None:
            self._timer.cancel()
        self._look()

    def _look(self) -> None:
        self._timer = None
        try:
            for entity in self._gateway.catalog.delete_idle(
                self._gateway.host.now_ms(), self._is_in_use
            ):
                log.info("deleted '%s', which nobody used", entity.path)
        except BusError as error:
            log.warning("idle entities are not deleted now: %s", error)
        self.start()

    def _is_in_use(self, entity: Entity) -> bool:
        if self._gateway.has_receivers(entity) and not isinstance(entity, Topic):
            return True
        if isinstance(entity, Subscription):
            return False
        for partition in range(len(entity.placement)):
            owner = self._gateway.router.owner(entity, partition)
            if owner is None or not owner.available:
                return True  # nobody can tell
            counters = owner.counters(entity.incarnation, partition).get(SubQueueKind.MAIN)
            if counters is not None and counters.scheduled:
                return True
        return False
