"""The entities of a namespace in memory, by incarnation and by name (NAM-2, D-16)."""

from __future__ import annotations

from collections.abc import Iterator

from busway.model.entities import Entity, Queue, Subscription, Topic
from busway.model.names import SUBSCRIPTIONS_NODE, Address, SubQueueKind, name_key


class EntityIndex:
    """What can be asked without a change; `Catalog` is one that changes."""

    def __init__(self) -> None:
        self._by_incarnation: dict[int, Entity] = {}
        self._by_key: dict[str, Entity] = {}
        """By path in lower case: a subscription's is below that of its topic."""
        self._subscriptions: dict[int, dict[str, Subscription]] = {}
        """By incarnation of their topic, then by name."""

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

    def queues(self) -> list[Queue]:
        """All of them, in the order of their names; so are those of the other kinds."""
        return [each for _, each in sorted(self._by_key.items()) if isinstance(each, Queue)]

    def topics(self) -> list[Topic]:
        return [each for _, each in sorted(self._by_key.items()) if isinstance(each, Topic)]

    def subscriptions(self, topic: Topic) -> list[Subscription]:
        return [each for _, each in sorted(self._subscriptions.get(topic.incarnation, {}).items())]

    def queues_and_topics(self) -> Iterator[Queue | Topic]:
        """In no order."""
        return (each for each in self._by_key.values() if not isinstance(each, Subscription))

    def subscription_count(self, topic: Topic) -> int:
        return len(self._subscriptions.get(topic.incarnation, ()))

    # For those who change it

    def _clear(self) -> None:
        self._by_incarnation.clear()
        self._by_key.clear()
        self._subscriptions.clear()

    def _remember(self, entity: Entity) -> None:
        self._by_incarnation[entity.incarnation] = entity
        self._by_key[entity.key] = entity
        if isinstance(entity, Subscription):
            siblings = self._subscriptions.setdefault(entity.topic_incarnation, {})
            siblings[name_key(entity.name)] = entity

    def _forget(self, entity: Entity) -> None:
        del self._by_incarnation[entity.incarnation]
        del self._by_key[entity.key]
        if isinstance(entity, Topic):
            self._subscriptions.pop(entity.incarnation, None)
        elif isinstance(entity, Subscription):
            del self._subscriptions[entity.topic_incarnation][name_key(entity.name)]
