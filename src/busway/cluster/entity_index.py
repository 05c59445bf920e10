"""The entities of a namespace in memory, by incarnation, by name and in the order of names (NAM-2,
D-16)."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from busway.model.entities import Entity, Queue, Subscription, Topic
from busway.model.names import SUBSCRIPTIONS_NODE, Address, SubQueueKind, name_key


class EntityIndex:
    """What can be asked without a change; `Catalog` is one that changes."""

    def __init__(self) -> None:
        self._by_incarnation: dict[int, Entity] = {}
        self._by_key: dict[str, Entity] = {}
        """By path in lower case: a subscription's is below that of its topic."""
        # Kept in order, so that a page of ten thousand costs what a page does.
        self._queue_keys: list[str] = []
        self._topic_keys: list[str] = []
        self._subscription_keys: dict[int, list[str]] = {}
        """By incarnation of their topic."""
        self._partitioned = 0

    def get(self, incarnation: int) -> Entity | None:
        """The newest version of an incarnation, None once it is deleted (D-16)."""
        return self._by_incarnation.get(incarnation)

    def find(self, path: str) -> Queue | Topic | None:
        """By name, in any case; queues and topics share one name space (NAM-2)."""
        entity = self._by_key.get(name_key(path))
        return None if isinstance(entity, Subscription) else entity

    def find_beside(self, incarnation: int, path: str) -> Queue | Topic | None:
        """In the namespace of that incarnation, which is this one (FWD-1)."""
        return self.find(path)

    def find_subscription(self, topic: str, name: str) -> Subscription | None:
        entity = self._by_key.get(name_key(f"{topic}/{SUBSCRIPTIONS_NODE}/{name}"))
        return entity if isinstance(entity, Subscription) else None

    def find_entity(self, address: Address) -> Entity | None:
        """What an address names, whichever sub-queue it is; a topic has no dead letters (DLQ-6)."""
        if address.subscription is not None:
            return self.find_subscription(address.path, address.subscription)
        entity = self.find(address.path)
        if isinstance(entity, Topic) and address.sub_queue is SubQueueKind.DEAD_LETTER:
            return None
        return entity

    def queues(self, skip: int = 0, top: int | None = None) -> list[Queue]:
        """A page of them in the order of their names, all without `top`; so are those of the other
        kinds."""
        page = (self._by_key[key] for key in _page(self._queue_keys, skip, top))
        return [each for each in page if isinstance(each, Queue)]

    def topics(self, skip: int = 0, top: int | None = None) -> list[Topic]:
        page = (self._by_key[key] for key in _page(self._topic_keys, skip, top))
        return [each for each in page if isinstance(each, Topic)]

    def subscriptions(
        self, topic: Topic, skip: int = 0, top: int | None = None
    ) -> list[Subscription]:
        keys = _page(self._subscription_keys.get(topic.incarnation, []), skip, top)
        page = (self._by_key[key] for key in keys)
        return [each for each in page if isinstance(each, Subscription)]

    def queues_and_topics(self) -> Iterator[Queue | Topic]:
        """In no order."""
        return (each for each in self._by_key.values() if not isinstance(each, Subscription))

    @property
    def queue_count(self) -> int:
        return len(self._queue_keys)

    @property
    def topic_count(self) -> int:
        return len(self._topic_keys)

    @property
    def partitioned_count(self) -> int:
        """Queues and topics that are partitioned (P-16)."""
        return self._partitioned

    def subscription_count(self, topic: Topic) -> int:
        return len(self._subscription_keys.get(topic.incarnation, ()))

    # For those who change it

    def _clear(self) -> None:
        self._by_incarnation.clear()
        self._by_key.clear()
        self._queue_keys.clear()
        self._topic_keys.clear()
        self._subscription_keys.clear()
        self._partitioned = 0

    def _remember(self, entity: Entity) -> None:
        key = entity.key
        if key not in self._by_key:
            insort(self._keys(entity), key)
            self._partitioned += _is_partitioned(entity)
        self._by_incarnation[entity.incarnation] = entity
        self._by_key[key] = entity

    def _forget(self, entity: Entity) -> None:
        key = entity.key
        del self._by_incarnation[entity.incarnation]
        del self._by_key[key]
        keys = self._keys(entity)
        del keys[bisect_left(keys, key)]
        self._partitioned -= _is_partitioned(entity)
        if isinstance(entity, Topic):
            self._subscription_keys.pop(entity.incarnation, None)

    def _rename(self, before: Entity, after: Entity) -> None:
        """The same incarnation under another path; what belongs to it stays."""
        keys = self._keys(before)
        del keys[bisect_left(keys, before.key)]
        del self._by_key[before.key]
        insort(keys, after.key)
        self._by_key[after.key] = after
        self._by_incarnation[after.incarnation] = after

    def _keys(self, entity: Entity) -> list[str]:
        match entity:
            case Queue():
                return self._queue_keys
            case Topic():
                return self._topic_keys
            case Subscription(topic_incarnation=topic):
                return self._subscription_keys.setdefault(topic, [])


def _page(keys: list[str], skip: int, top: int | None) -> list[str]:
    return keys[skip:] if top is None else keys[skip : skip + top]


def _is_partitioned(entity: Entity) -> bool:
    return not isinstance(entity, Subscription) and bool(entity.enable_partitioning)
