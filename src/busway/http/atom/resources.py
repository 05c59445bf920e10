"""What can be done to queues, topics, subscriptions and rules: one class each, all alike.

`operations` knows methods and statuses, these know the catalog. Each change is one commit of it, so
it holds for all partitions of an entity or for none, and can be repeated after a failure (D-16,
P-42).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar
from xml.etree.ElementTree import Element

from busway.cluster.catalog import Catalog
from busway.http.atom import descriptions
from busway.http.atom.descriptions import (
    QUEUE,
    SUBSCRIPTION,
    TOPIC,
    Circumstances,
    Shown,
    service_element,
)
from busway.http.atom.feeds import Entry
from busway.http.atom.forward_tokens import check_destinations
from busway.http.atom.instants import ticks_of
from busway.http.atom.live import look_at
from busway.http.atom.reading import bad, children, local_name
from busway.http.atom.rules import (
    DEFAULT_RULE_DESCRIPTION,
    RULE,
    read_default_rule,
    read_rule,
    write_rule,
)
from busway.http.calls import Call
from busway.model.entities import Entity, Queue, Rule, Subscription, Topic
from busway.model.errors import NOT_FOUND, BusError

Thing = TypeVar("Thing")


class Visit:
    """One request to the catalog: who asks, as of which api-version, when."""

    def __init__(self, call: Call, version: str) -> None:
        self.call = call
        self.version = version
        self.catalog: Catalog = call.gateway.catalog

    @property
    def address(self) -> str:
        """Of what was asked for, as it was asked for."""
        return f"{self.call.base}{self.call.target.raw}"

    def now_ms(self) -> int:
        return self.call.now_ms()

    def circumstances(self) -> Circumstances:
        random = self.call.services.host.random_bytes
        return Circumstances(self.version, random, self.catalog.namespace.tier)

    def missing(self) -> BusError:
        return BusError(NOT_FOUND, uri=self.call.uri)

    def entity_entry(self, entity: Entity, address: str, *, after_put: bool = False) -> Entry:
        shown = Shown(entity, look_at(self.call.gateway, entity), self.call.authority)
        content = descriptions.write(shown, self.version, after_put=after_put)
        times = entity.created_ms, entity.updated_ms
        if isinstance(entity, Subscription):
            return Entry(address, entity.name, *times, content)
        return Entry(address, entity.path, *times, content, self.catalog.namespace.name)

    def rule_entry(self, rule: Rule, address: str) -> Entry:
        content = service_element(RULE, write_rule(rule))
        return Entry(address, rule.name, rule.created_ms, rule.created_ms, content)


def etag_of(entity: Entity) -> str:
    """Its last update in ticks; the version is in them, so that two within a millisecond differ."""
    return str(ticks_of(entity.updated_ms) + entity.version % 10_000)


class Resource(Protocol[Thing]):
    @property
    def elements(self) -> tuple[str, ...]:
        """The descriptions that it may be given."""

    def find(self) -> Thing | None: ...
    def etag(self, found: Thing) -> str: ...
    def create(self, description: Element) -> Thing: ...
    def update(self, description: Element, old: Thing) -> Thing: ...
    def delete(self, found: Thing) -> None: ...
    def entry(self, found: Thing, *, after_put: bool) -> Entry: ...


@dataclass(frozen=True, slots=True)
class QueueOrTopic:
    """One name space, so what is there is what a path means, whoever asks (NAM-2)."""

    visit: Visit
    elements = (QUEUE.element, TOPIC.element)

    def find(self) -> Queue | Topic | None:
        return self.visit.catalog.find(self.visit.call.target.path)

    def etag(self, found: Queue | Topic) -> str:
        return etag_of(found)

    def create(self, description: Element) -> Queue | Topic:
        visit, names = self.visit, {"path": self.visit.call.target.path}
        request = visit.circumstances()
        if local_name(description) == TOPIC.element:
            topic = descriptions.read(description, TOPIC, names, request)
            return visit.catalog.create_topic(topic, visit.now_ms())
        queue = descriptions.read(description, QUEUE, names, request)
        check_destinations(visit.call, queue)
        return visit.catalog.create_queue(queue, visit.now_ms())

    def update(self, description: Element, old: Queue | Topic) -> Queue | Topic:
        visit, names = self.visit, {"path": old.path}
        request = visit.circumstances()
        wanted = local_name(description)
        if wanted != descriptions.DESCRIPTIONS[type(old)].element:
            raise bad(f"'{old.path}' is a {old.entity_type.lower()}, and {wanted} is for another.")
        if isinstance(old, Topic):
            topic = descriptions.read(description, TOPIC, names, request, old)
            return visit.catalog.update(topic, visit.now_ms())
        queue = descriptions.read(description, QUEUE, names, request, old)
        check_destinations(visit.call, queue, old)
        return visit.catalog.update(queue, visit.now_ms())

    def delete(self, found: Queue | Topic) -> None:
        self.visit.catalog.delete(found.path, self.visit.now_ms())

    def entry(self, found: Queue | Topic, *, after_put: bool) -> Entry:
        return self.visit.entity_entry(found, self.visit.address, after_put=after_put)


@dataclass(frozen=True, slots=True)
class OneSubscription:
    visit: Visit
    elements = (SUBSCRIPTION.element,)

    def find(self) -> Subscription | None:
        target = self.visit.call.target
        return self.visit.catalog.find_subscription(target.path, target.subscription or "")

    def etag(self, found: Subscription) -> str:
        return etag_of(found)

    def create(self, description: Element) -> Subscription:
        visit, target = self.visit, self.visit.call.target
        names = {"topic": target.path, "name": target.subscription or ""}
        request = visit.circumstances()
        subscription = descriptions.read(description, SUBSCRIPTION, names, request)
        first = children(description).get(DEFAULT_RULE_DESCRIPTION)
        rules = None if first is None else [read_default_rule(first)]
        check_destinations(visit.call, subscription)
        made = visit.catalog.create_subscription(subscription, visit.now_ms(), rules)
        topic = visit.catalog.get(made.topic_incarnation)
        if topic is not None:
            visit.call.gateway.idle.used(topic)  # it is what AccessedAt of a topic tells (STA-6)
        return made

    def update(self, description: Element, old: Subscription) -> Subscription:
        visit, names = self.visit, {"topic": old.topic, "name": old.name}
        request = visit.circumstances()
        subscription = descriptions.read(description, SUBSCRIPTION, names, request, old)
        check_destinations(visit.call, subscription, old)
        return visit.catalog.update(subscription, visit.now_ms())

    def delete(self, found: Subscription) -> None:
        self.visit.catalog.delete_subscription(found.topic, found.name, self.visit.now_ms())

    def entry(self, found: Subscription, *, after_put: bool) -> Entry:
        return self.visit.entity_entry(found, self.visit.address, after_put=after_put)


@dataclass(frozen=True, slots=True)
class OneRule:
    visit: Visit
    elements = (RULE,)

    def subscription(self) -> Subscription:
        subscription = OneSubscription(self.visit).find()
        if subscription is None:
            raise self.visit.missing()
        return subscription

    @property
    def _name(self) -> str:
        return self.visit.call.target.rule or ""

    def find(self) -> Rule | None:
        return self.visit.catalog.find_rule(self.subscription(), self._name)

    def etag(self, found: Rule) -> str:
        """Its subscription's: a rule has no version of its own, and each change makes one there."""
        return etag_of(self.subscription())

    def create(self, description: Element) -> Rule:
        rule = read_rule(self._name, description)
        return self.visit.catalog.add_rule(self.subscription(), rule, self.visit.now_ms())

    def update(self, description: Element, old: Rule) -> Rule:
        rule = read_rule(old.name, description)
        return self.visit.catalog.update_rule(self.subscription(), rule, self.visit.now_ms())

    def delete(self, found: Rule) -> None:
        self.visit.catalog.remove_rule(self.subscription(), found.name, self.visit.now_ms())

    def entry(self, found: Rule, *, after_put: bool) -> Entry:
        return self.visit.rule_entry(found, self.visit.address)
