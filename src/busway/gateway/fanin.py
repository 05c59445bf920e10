"""The fan-in of one entity's sub-queue: links with credit meet partitions with messages (P-26).

Two rings, paired round robin: the links that have credit to give, and the partitions that may have
something. A pair is a `Grant` (D-22): part of a link's credit, lent to one partition. A partition
leaves its ring when a grant comes back with something left on it, and enters again when it says
*ready*; a link leaves when its credit is lent out. So no partition and no link starves; and the
order of partitions outlives the links (`partition_turns.py`), which may come and go.

While a grant waits for a page of the store, its partition is out of the ring: it has nothing in
memory, and whatever comes goes to the grant that waits. So one grant waits at a partition, however
much credit the links have.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

from busway.broker.seams import Grant, Receiver
from busway.gateway.router import Router
from busway.model.entities import Entity
from busway.store.base import SubQueueKey, SubQueueKind

GRANT_MESSAGES_MAX = 64
"""One grant is never larger, so that links that share a partition take turns (P-26) and a link's
connection is looked at again before the next: it may have enough to write."""
LENT_CREDIT_MAX = 1_024
"""What one link has lent at a time, of whatever credit it gave: a full grant in each of sixteen
partitions, or as many removals as one commit takes. Credit costs a client nothing, grants cost us
memory."""


class CreditLink(Receiver, Protocol):
    """A receiving link as the fan-in sees it."""

    @property
    def delete(self) -> bool: ...

    def free_credit(self) -> int:
        """Credit that is not lent out; 0 while its connection has enough to write."""

    def lend(self, grant: Grant) -> None:
        """Remember a grant that is being made for this link."""


class Turns(Protocol):
    """Who runs what is due at the end of this turn."""

    def at_turn_end(self, due: FanIn) -> None: ...

    def is_left(self, fan_in: FanIn) -> None:
        """Its last link is gone."""


class FanIn:
    """All links of this gateway that receive from one sub-queue of one entity."""

    def __init__(
        self,
        entity: Entity,
        kind: SubQueueKind,
        router: Router,
        turns: Turns,
        order: Sequence[int],
    ) -> None:
        """`order`: the partitions, whose turn it is first."""
        self.kind = kind
        self.links: dict[CreditLink, None] = {}
        self.turn_is_due = False
        self._router = router
        self._turns = turns
        self._entity = entity
        self._keys = {SubQueueKey(entity.incarnation, partition, kind): None for partition in order}
        """Of all partitions; who was asked longest ago is first."""
        self._ready: dict[SubQueueKey, None] = {}
        self._waiting: dict[SubQueueKey, Grant] = {}
        """The grant that waits at a partition for a page of its store."""
        self._hungry: OrderedDict[CreditLink, None] = OrderedDict()
        self._pairing = False

    @property
    def incarnation(self) -> int:
        return self._entity.incarnation

    @property
    def order(self) -> list[int]:
        """The partitions, whose turn it is first."""
        return [key.partition for key in self._keys]

    def join(self, link: CreditLink) -> None:
        if not self.links:
            # Whatever was said while nobody listened: every partition is asked once.
            for key in self._keys:
                self._ready[key] = None
                owner = self._router.owner(self._entity, key.partition)
                if owner is not None:
                    owner.watch(key, self)
        self.links[link] = None

    def leave(self, link: CreditLink) -> None:
        self.links.pop(link, None)
        self._hungry.pop(link, None)
        if not self.links:
            for key in self._keys:
                owner = self._router.owner(self._entity, key.partition)
                if owner is not None:
                    owner.unwatch(key, self)
            self._turns.is_left(self)

    def hungry(self, link: CreditLink) -> None:
        """The link may have free credit."""
        self._hungry[link] = None
        if self._ready:
            self._turns.at_turn_end(self)

    def ready(self, key: SubQueueKey) -> None:
        """The partition may have something to give."""
        waiting = self._waiting.get(key)
        if waiting is not None:
            if waiting.left > 0:
                return  # that grant is served first, and comes back when it is
            del self._waiting[key]
        self._ready[key] = None
        if self._hungry:
            self._turns.at_turn_end(self)

    def returned(self, key: SubQueueKey, *, empty: bool) -> None:
        """A grant has come back from a partition that is empty, or may have more."""
        if empty:
            self._ready.pop(key, None)
        else:
            self.ready(key)

    def turn(self) -> None:
        """Pair until one of the rings is empty."""
        if self._pairing:
            return  # an answer that came at once: the loop below goes on with it
        self._pairing = True
        try:
            while self._ready and self._hungry:
                self._pair()
        finally:
            self._pairing = False

    def _pair(self) -> None:
        link = next(iter(self._hungry))
        free = link.free_credit()
        if free <= 0:
            del self._hungry[link]
            return
        key = next(iter(self._ready))
        del self._ready[key]
        owner = self._router.owner(self._entity, key.partition)
        if owner is None or not owner.available:
            return  # says ready when it is back
        del self._keys[key]
        self._keys[key] = None
        share = free // (len(self._ready) + 1)
        grant = Grant(link, key, max(1, min(share, GRANT_MESSAGES_MAX)), delete=link.delete)
        self._ready[key] = None  # at the ring's end, until the grant says that it is empty
        link.lend(grant)
        owner.grant(grant)
        if grant.left > 0:
            self._ready.pop(key, None)
            self._waiting[key] = grant
        # A link that got nothing keeps its place: among three that take one message at a time, the
        # second would otherwise lose its turn again and again.
        if link in self._hungry and link.free_credit() != free:
            self._hungry.move_to_end(link)
