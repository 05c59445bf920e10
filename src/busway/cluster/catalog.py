"""The catalog of a namespace: entities, rules and access rules, durable and in memory at once.

Owns how entities are created, changed and removed (P-10, D-14, D-16). Every change is one commit,
then visible here, then told to the listeners; one that is refused changes nothing. Reads are
look-ups in dictionaries, because every send and settlement makes one.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from busway.cluster.admission import (
    check_forwards,
    check_goes_on,
    check_name_is_free,
    check_quota,
    check_subscription_quota,
    check_topics,
    completed,
    partitions_in,
)
from busway.cluster.catalog_file import CatalogError, CatalogFile, CatalogLocked, Tombstone
from busway.cluster.entity_index import EntityIndex
from busway.cluster.idleness import Idleness
from busway.cluster.namespace_access import KeepKeys, NamespaceAccess, named
from busway.cluster.rule_book import DEFAULT_RULES, NewIdSource, RuleBook
from busway.cluster.rule_orders import RuleOrder, decode_orders
from busway.cluster.store_register import StoreRegister, StoreStanding
from busway.model.access import checked_access_rules
from busway.model.entities import (
    AuthorizationRule,
    Entity,
    Namespace,
    Queue,
    Rule,
    Subscription,
    Topic,
    stands_still,
)
from busway.model.errors import NOT_FOUND, SERVER_BUSY, BusError
from busway.model.names import SUBSCRIPTIONS_NODE
from busway.model.partitioning import place
from busway.model.properties import AnyEntity, check_update, normalise, validate

if TYPE_CHECKING:
    from busway.filters.rules import TopicRules

log = logging.getLogger("busway.cluster")

__all__ = ["Catalog", "CatalogError", "Change", "RuleChange", "StoreStanding", "Tombstone"]


@dataclass(frozen=True, slots=True)
class RuleChange:
    """A rule that was added (no `before`), changed, or removed (no `after`)."""

    before: Rule | None
    after: Rule | None


@dataclass(frozen=True, slots=True)
class Change:
    """What listeners are told: created (no `before`), updated, or deleted (no `after`)."""

    before: Entity | None
    after: Entity | None
    rule: RuleChange | None = None
    """Set if a rule of a subscription is all that changed: its links stay (RUL-6)."""


KEPT_BY_UPDATES = (
    "path",
    "topic",
    "name",
    "incarnation",
    "topic_incarnation",
    "placement",
    "created_ms",
    "folds_session_ids",
)
"""Fields that an update leaves as they are, whatever the description says."""


class Catalog(EntityIndex):
    """Of one namespace, which is in the file. Several of them share a file, its stores and
    `owners`, which tells by incarnation whose an entity is; `Catalogs` has them all.

    Satisfies `Entities` of the broker and `AccessRules` of the gateway.
    """

    def __init__(
        self,
        file: CatalogFile,
        namespace: Namespace,
        stores: StoreRegister,
        owners: dict[int, Catalog],
        new_id: NewIdSource,
    ) -> None:
        super().__init__()
        self._file = file
        self._namespace = namespace
        self.stores = stores
        self._owners = owners
        self._new_id = new_id
        self._listeners: list[Callable[[Change], None]] = []
        self._untold: list[Change] | None = None
        """While several changes are one commit: what listeners are told once it is done."""
        self.access = NamespaceAccess(file, namespace, self._writing)
        self._rules = RuleBook(new_id)
        self._idleness = Idleness()
        self._load()

    @classmethod
    def open(cls, path: Path | None, *, new_id: NewIdSource | None = None) -> Catalog:
        """That of the default namespace, where no other one matters."""
        from busway.cluster.catalogs import Catalogs

        return Catalogs.open(path, new_id=new_id).default

    def close(self) -> None:
        self._file.close()

    def _load(self) -> None:
        name = self._namespace.name
        self._clear()
        self._rules = RuleBook(self._new_id)
        for entity in self._file.entities(name):
            self._remember(entity)
            self._idleness.watch(entity)
        for incarnation, rule in self._file.rules(name):
            subscription = self._by_incarnation[incarnation]
            assert isinstance(subscription, Subscription)
            try:
                self._rules.put(subscription, rule)
            except BusError as error:
                raise CatalogError(
                    f"The subscription '{subscription.path}' has a rule that this version of "
                    f"Busway does not understand. {error.text}"
                ) from error

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A write that fails leaves nobody with a wrong picture: read again what is there."""
        try:
            yield
        except CatalogLocked as error:
            raise self._locked(error) from error
        except sqlite3.Error as error:
            self._load()
            raise BusError(SERVER_BUSY, refused=True) from error

    def _locked(self, error: CatalogLocked) -> BusError:
        log.warning("nothing was changed in the catalog %s: %s", self._file.path, error)
        return BusError(SERVER_BUSY, refused=True)

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is changed in here is one commit. Listeners hear of it when it is done; after an
        error nothing has changed."""
        self._untold = []
        try:
            with self._file.together():
                yield
        except BaseException as error:
            self._untold = None
            if isinstance(error, CatalogLocked):
                raise self._locked(error) from error
            self._load()
            if isinstance(error, sqlite3.Error):
                raise BusError(SERVER_BUSY, refused=True) from error
            raise
        told, self._untold = self._untold, None
        self._tell(told)

    # --- Creating --------------------------------------------------------------------------------

    def create_queue(
        self, description: Queue, now_ms: int = 0, *, folds_session_ids: bool = True
    ) -> Queue:
        """A new incarnation with its placement, in one commit. The description's own incarnation,
        version and placement do not matter. A twin takes the session ids of its source (SES-13).
        """
        return self._create(replace(description, folds_session_ids=folds_session_ids), now_ms)

    def create_topic(
        self, description: Topic, now_ms: int = 0, *, folds_session_ids: bool = True
    ) -> Topic:
        check_topics(self._namespace, description)
        return self._create(replace(description, folds_session_ids=folds_session_ids), now_ms)

    def _create(self, description: AnyEntity, now_ms: int) -> AnyEntity:
        assert not isinstance(description, Subscription)
        description = self._checked(completed(self._namespace, description))
        check_quota(self, self._namespace, description)
        if not self.stores.well:
            raise BusError(SERVER_BUSY, refused=True)
        partitions = partitions_in(self._namespace, description.enable_partitioning)
        access = checked_access_rules(description.authorization_rules, (), now_ms)
        entity = replace(
            description,
            version=1,
            authorization_rules=access,
            placement=place(description.path, self.stores.choices(partitions), partitions),
            created_ms=now_ms,
            updated_ms=now_ms,
            captured_ms=now_ms if description.capture else 0,
        )
        with self._writing():
            entity = self._file.insert(self._namespace.name, entity)
        self._announce(Change(None, entity))
        return entity

    def create_subscription(
        self, description: Subscription, now_ms: int = 0, rules: Sequence[Rule] | None = None
    ) -> Subscription:
        """With these rules, or `$Default` for None (RUL-1): all in one commit."""
        check_topics(self._namespace, description)
        validate(description, self._namespace.tier)
        topic = self._topic(description.topic)
        if description.migration is None:
            check_goes_on(topic)
        subscription = self._checked(
            replace(
                description,
                topic=topic.path,
                incarnation=0,
                version=1,
                topic_incarnation=topic.incarnation,
                placement=topic.placement,
                folds_session_ids=topic.folds_session_ids,
                created_ms=now_ms,
                updated_ms=now_ms,
                captured_ms=now_ms if description.capture else 0,
            )
        )
        check_subscription_quota(self, topic, subscription)
        first = DEFAULT_RULES if rules is None else rules
        prepared = self._rules.prepare(topic, subscription, first, now_ms)
        with self._writing():
            subscription = self._file.insert(self._namespace.name, subscription, prepared)
        self._announce(Change(None, subscription), rules=prepared)
        return subscription

    def _checked(self, description: AnyEntity) -> AnyEntity:
        """The entity that is described, if it can be made."""
        description = normalise(description)
        validate(description, self._namespace.tier)
        check_name_is_free(self, description)
        check_forwards(self, description)
        return description

    # --- Changing and deleting -------------------------------------------------------------------

    def update(self, description: AnyEntity, now_ms: int = 0) -> AnyEntity:
        """A new version of the entity of this path. A description of an older incarnation is not
        found; one that changes what is fixed is refused and changes nothing (P-10)."""
        old = self._by_key.get(description.key)
        if (
            old is None
            or type(old) is not type(description)
            or description.incarnation not in (0, old.incarnation)
        ):
            raise BusError(NOT_FOUND, uri=description.path)
        check_goes_on(old)
        description = normalise(completed(self._namespace, description, old))
        check_update(old, description, self._namespace.tier)
        check_forwards(self, description, old)
        kept: dict[str, Any] = {
            name: getattr(old, name)
            for name in KEPT_BY_UPDATES
            if name in description.__dataclass_fields__
        }
        if not isinstance(description, Subscription):
            assert not isinstance(old, Subscription)
            kept["authorization_rules"] = checked_access_rules(
                description.authorization_rules, old.authorization_rules, now_ms
            )
        kept["captured_ms"] = _captured_ms(old, description, now_ms)
        entity = replace(description, version=old.version + 1, updated_ms=now_ms, **kept)
        with self._writing():
            self._file.update(entity)
        self._announce(Change(old, entity))
        return entity

    def delete(self, path: str, now_ms: int = 0) -> Queue | Topic:
        """The queue or topic is gone at once, a topic with its subscriptions (STA-4); their stores
        forget them in small steps (`tombstones`)."""
        entity = self.find(path)
        if entity is None:
            raise BusError(NOT_FOUND, uri=path)
        check_goes_on(entity)
        subscriptions = self.subscriptions(entity) if isinstance(entity, Topic) else []
        self._delete([*subscriptions, entity], now_ms)
        return entity

    def delete_subscription(self, topic: str, name: str, now_ms: int = 0) -> Subscription:
        subscription = self.find_subscription(topic, name)
        if subscription is None:
            raise BusError(NOT_FOUND, uri=f"{topic}/{SUBSCRIPTIONS_NODE}/{name}")
        check_goes_on(subscription)
        self._delete([subscription], now_ms)
        return subscription

    def _delete(self, entities: Sequence[Entity], now_ms: int) -> None:
        with self._writing():
            self._file.delete(entities, now_ms)
        self._announce(*(Change(entity, None) for entity in entities))

    def change(self, *changes: Change, now_ms: int = 0) -> None:
        """Several entities become others, or go, in one commit; what they become is the caller's to
        know (`migrations.py`). One may take the path of another that goes before it."""
        with self._writing():
            self._file.write_changes([(each.before, each.after) for each in changes], now_ms)
        self._announce(*changes)

    def _topic(self, path: str) -> Topic:
        topic = self.find(path)
        if not isinstance(topic, Topic):
            raise BusError(NOT_FOUND, uri=path)
        return topic

    def tombstones(self) -> list[Tombstone]:
        """Deleted incarnations that some store has still to purge (D-16)."""
        return self._file.tombstones()

    def purged(self, incarnation: int, store_id: str | None = None) -> None:
        """This store, or every store for None, holds nothing of the incarnation any more."""
        with self._writing():
            self._file.delete_tombstones(incarnation, store_id)

    # --- Rules of subscriptions ------------------------------------------------------------------

    def topic_rules(self, incarnation: int) -> TopicRules:
        """The rules of all subscriptions of this topic, compiled, as they are now (RUL-6)."""
        return self._rules.topic_rules(incarnation)

    def rules(self, subscription: Subscription) -> list[Rule]:
        """In the order in which they were made."""
        return self._rules.rules(subscription)

    def find_rule(self, subscription: Subscription, name: str) -> Rule | None:
        return self._rules.find(subscription, name)

    def add_rule(self, subscription: Subscription, rule: Rule, now_ms: int = 0) -> Rule:
        """Raises `BusError` for a name that is taken, a filter that cannot be (SQL-11, COR-3), or
        one too many (LIM-7)."""
        check_goes_on(self._of_rules(subscription)[1])
        return self._add_rule(subscription, rule, now_ms)

    def _add_rule(self, subscription: Subscription, rule: Rule, now_ms: int) -> Rule:
        topic, old = self._of_rules(subscription)
        (rule,) = self._rules.prepare(topic, old, [rule], now_ms)
        self._put_rule(old, RuleChange(None, rule), now_ms)
        return rule

    def update_rule(self, subscription: Subscription, rule: Rule, now_ms: int = 0) -> Rule:
        """Another filter and action for the rule of this name."""
        topic, old = self._of_rules(subscription)
        check_goes_on(old)
        before = self._rules.existing(old, rule.name)
        rule = self._rules.prepare_change(topic, old, rule, now_ms)
        self._put_rule(old, RuleChange(before, rule), now_ms)
        return rule

    def remove_rule(self, subscription: Subscription, name: str, now_ms: int = 0) -> Rule:
        """`$Default` is a rule like others; a subscription without rules gets nothing (RUL-1)."""
        check_goes_on(self._of_rules(subscription)[1])
        return self._remove_rule(subscription, name)

    def _remove_rule(self, subscription: Subscription, name: str) -> Rule:
        _, old = self._of_rules(subscription)
        rule = self._rules.existing(old, name)
        new = replace(old, version=old.version + 1)
        with self._writing():
            self._file.delete_rule(new, rule.name)
        self._rules.remove(new, rule)
        self._announce(Change(old, new, RuleChange(rule, None)))
        return rule

    def _put_rule(self, old: Subscription, change: RuleChange, now_ms: int) -> None:
        assert change.after is not None
        new = replace(old, version=old.version + 1)
        with self._writing():
            self._file.put_rule(new, change.after)
        self._rules.put(new, change.after)
        if change.before is None:
            self._idleness.touch(new.incarnation, now_ms)
        self._announce(Change(old, new, change))

    def _of_rules(self, subscription: Subscription) -> tuple[Topic, Subscription]:
        """The newest version of a subscription, with its topic; an old incarnation is not found."""
        topic = self.get(subscription.topic_incarnation)
        newest = self.get(subscription.incarnation)
        if not isinstance(topic, Topic) or not isinstance(newest, Subscription):
            raise BusError(NOT_FOUND, uri=subscription.path)
        return topic, newest

    # --- Rule changes of transactions (D-28) -----------------------------------------------------

    def carry_out(
        self, store_id: str, transaction_id: bytes, orders: bytes, now_ms: int = 0
    ) -> None:
        """What a transaction of this store wants done here: all in one commit, and once, however
        often it is asked for. What cannot be done any more is left out: the messages of the
        transaction are there, and it cannot be taken back."""
        if transaction_id in self._file.carried_out(store_id):
            return
        with self.together():
            self._file.mark_carried_out(store_id, transaction_id)
            for order in decode_orders(orders):
                ordered = self.get(order.subscription)
                migration = None if ordered is None else ordered.migration
                both = (migration.source, migration.twin) if migration else (order.subscription,)
                for incarnation in both:  # one that stands still since then, and its twin
                    self._carry_out_one(order, incarnation, now_ms)

    def _carry_out_one(self, order: RuleOrder, incarnation: int, now_ms: int) -> None:
        subscription = self.get(incarnation)
        try:
            if not isinstance(subscription, Subscription):
                raise BusError(NOT_FOUND, uri=f"subscription {incarnation}")
            if order.rule is None:
                self._remove_rule(subscription, order.name)
            else:
                self._add_rule(subscription, order.rule, now_ms)
        except BusError as error:
            if error.kind is SERVER_BUSY:
                raise
            log.warning("a rule could not be changed after its transaction: %s", error)

    def forget_carried_out(self, store_id: str, transaction_id: bytes) -> None:
        """The store does not ask for it any more."""
        with self._writing():
            self._file.forget_carried_out(store_id, [transaction_id])

    def keep_carried_out(self, store_id: str, asked_for: Collection[bytes]) -> None:
        """The store was opened, and will ask for these alone."""
        over = self._file.carried_out(store_id).difference(asked_for)
        if over:
            with self._writing():
                self._file.forget_carried_out(store_id, over)

    # --- Idle entities (STA-4) -------------------------------------------------------------------

    def touch(self, incarnation: int, now_ms: int) -> None:
        """The entity is in use. Costs nothing where AutoDeleteOnIdle is not set."""
        self._idleness.touch(incarnation, now_ms)

    @property
    def some_may_go(self) -> bool:
        """Whether there is any entity that goes when nobody uses it."""
        return bool(self._idleness.watched())

    def next_idle_ms(self) -> int | None:
        """When the first of them has been idle for long enough, as far as is known."""
        dues = []
        for incarnation in self._idleness.watched():
            entity = self._by_incarnation.get(incarnation)
            used_ms = self._idleness.used_ms(incarnation)
            if entity is not None and entity.auto_delete_on_idle_ms and used_ms is not None:
                dues.append(used_ms + entity.auto_delete_on_idle_ms)
        return min(dues, default=None)

    def delete_idle(
        self, now_ms: int, in_use: Callable[[Entity], bool] = lambda entity: False
    ) -> list[Entity]:
        """Delete what has been idle for its AutoDeleteOnIdle.

        `in_use` is asked about each that seems idle, for what is no event: a scheduled message that
        waits, a receiver that is there.
        """
        deleted: list[Entity] = []
        for incarnation in self._idleness.watched():
            entity = self._by_incarnation.get(incarnation)
            if entity is None or entity.auto_delete_on_idle_ms is None:
                continue  # It went with its topic.
            if self._idleness.idle_ms(incarnation, now_ms) < entity.auto_delete_on_idle_ms:
                continue
            if stands_still(entity) or in_use(entity):
                self._idleness.touch(incarnation, now_ms)
            elif isinstance(entity, Subscription):
                deleted.append(self.delete_subscription(entity.topic, entity.name, now_ms))
            else:
                deleted.append(self.delete(entity.path, now_ms))
        return deleted

    # --- Listeners -------------------------------------------------------------------------------

    def listen(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Call `listener` after every change, in order (STA-2, STA-5). Returns how to stop it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _announce(self, *changes: Change, rules: Sequence[Rule] = ()) -> None:
        """All of one commit becomes visible before anybody is told of it."""
        for change in changes:
            if change.after is not None:
                if change.before is not None and change.before.key != change.after.key:
                    self._rename(change.before, change.after)
                else:
                    self._remember(change.after)
                if change.rule is None:
                    self._idleness.changed(change.after)
            elif change.before is not None:
                self._forget(change.before)
            if isinstance(change.after, Subscription):
                for rule in rules:
                    self._rules.put(change.after, rule)
        if self._untold is not None:
            self._untold.extend(changes)
        else:
            self._tell(changes)

    def _tell(self, changes: Sequence[Change]) -> None:
        for change in changes:
            for listener in tuple(self._listeners):
                listener(change)

    def _clear(self) -> None:
        for incarnation in self._by_incarnation:
            self._owners.pop(incarnation, None)
        super()._clear()

    def _remember(self, entity: Entity) -> None:
        super()._remember(entity)
        self._owners[entity.incarnation] = self
        if isinstance(entity, Topic):
            self._rules.add_topic(entity)

    def _forget(self, entity: Entity) -> None:
        super()._forget(entity)
        self._owners.pop(entity.incarnation, None)
        self._idleness.forget(entity.incarnation)
        if isinstance(entity, Topic):
            self._rules.drop_topic(entity)
        elif isinstance(entity, Subscription):
            self._rules.drop(entity)

    # --- Access ----------------------------------------------------------------------------------

    @property
    def namespace(self) -> Namespace:
        """With the root rule first, if its key is known."""
        return self.access.namespace

    def set_root_key(
        self, key: str, secondary_key: str | None = None, keep: KeepKeys | None = None
    ) -> None:
        """The root rule is not stored here: its key has a file of its own (`root_key.py`)."""
        self.access.set_root_key(key, secondary_key, keep)

    def update_namespace(self, namespace: Namespace, now_ms: int = 0) -> Namespace:
        """New access rules. All else is fixed, and the root rule is left as it is."""
        self.access.update(namespace, now_ms)
        return self.namespace

    def namespace_rule(self, name: str) -> AuthorizationRule | None:
        return self.access.find(name)

    def entity_rule(self, path: str, name: str) -> tuple[str, AuthorizationRule] | None:
        """The rule of the entity that `path` names or lies in, with that entity's path (D-34).

        Subscriptions have none of their own: they lie in their topic.
        """
        segments = path.strip("/").split("/")
        for end in range(len(segments), 0, -1):
            entity = self.find("/".join(segments[:end]))
            if entity is not None:
                rule = named(entity.authorization_rules, name)
                return None if rule is None else (entity.path, rule)
        return None


def _captured_ms(old: Entity, new: Entity, now_ms: int) -> int:
    """Since when the journal of the changed entity is without a break (D-31)."""
    if not new.capture:
        return 0
    return old.captured_ms if old.capture else now_ms
