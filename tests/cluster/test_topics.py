"""Topics, subscriptions and rules in the catalog (RUL-1, RUL-6, D-16, FWD-1, LIM-6 to LIM-8)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from busway.amqp.sections import encode_message
from busway.amqp.types import Int, Symbol, Timestamp
from busway.cluster import admission, rule_book
from busway.cluster.catalog import Catalog, CatalogError, Change, RuleChange
from busway.cluster.catalog_damage import seal
from busway.model.entities import (
    CorrelationFilter,
    EntityStatus,
    FalseFilter,
    Queue,
    Rule,
    SqlFilter,
    Subscription,
    Topic,
    TrueFilter,
)
from busway.model.errors import (
    ARGUMENT_ERROR,
    ENTITY_ALREADY_EXISTS,
    ENTITY_COUNT_EXCEEDED,
    NAME_INVALID,
    NOT_FOUND,
    PROPERTY_IMMUTABLE,
    PROPERTY_INVALID,
    SERVER_BUSY,
    TOPIC_COUNT_EXCEEDED,
    BusError,
    ErrorKind,
)
from busway.model.limits import (
    CORRELATION_FILTERS_PER_TOPIC_MAX,
    SQL_FILTERS_PER_TOPIC_MAX,
    SUBSCRIPTIONS_PER_TOPIC_MAX,
    TIERS,
    Tier,
)
from busway.model.message import Message
from busway.model.names import parse_address
from busway.store.commit_mark import mark_of

STORES = ["store-a", "store-b", "store-c"]
DEFAULT = Rule(name="$Default")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "catalog.db"


def opened(file: Path | None) -> Catalog:
    catalog = Catalog.open(file)
    catalog.stores.register(STORES)
    return catalog


@pytest.fixture
def catalog(file: Path) -> Iterator[Catalog]:
    catalog = opened(file)
    yield catalog
    catalog.close()


@pytest.fixture
def topic(catalog: Catalog) -> Topic:
    return catalog.create_topic(Topic(path="Events", enable_partitioning=True), now_ms=1)


@pytest.fixture
def audit(catalog: Catalog, topic: Topic) -> Subscription:
    return catalog.create_subscription(Subscription(topic="events", name="Audit"), now_ms=2)


def refused(kind: ErrorKind, attempt: object, *args: object) -> BusError:
    assert callable(attempt)
    with pytest.raises(BusError) as raised:
        attempt(*args)
    assert raised.value.kind is kind
    return raised.value


def receivers(catalog: Catalog, topic: Topic, **properties: object) -> list[int]:
    """The incarnations of the subscriptions that get a message with these properties."""
    bare = encode_message(application_properties=properties, data=b"body")
    message = Message(bare=bare, size=len(bare))
    return [copy.subscription for copy in catalog.topic_rules(topic.incarnation).route(message)]


class TestTopics:
    def test_are_made_placed_and_found_like_queues(self, catalog: Catalog, topic: Topic) -> None:
        """D-14, D-16, P-3."""
        assert (topic.version, topic.created_ms, len(topic.placement)) == (1, 1, 16)
        assert set(topic.placement) == set(STORES)
        assert catalog.get(topic.incarnation) is topic
        assert catalog.find("EVENTS") is topic
        assert catalog.topics() == [topic]
        assert catalog.queues() == []

    def test_share_one_name_space_with_queues(self, catalog: Catalog, topic: Topic) -> None:
        """NAM-2."""
        refused(ENTITY_ALREADY_EXISTS, catalog.create_queue, Queue(path="events"))
        catalog.create_queue(Queue(path="orders"))
        refused(ENTITY_ALREADY_EXISTS, catalog.create_topic, Topic(path="ORDERS"))

    def test_count_with_queues_against_the_quota(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """P-16: one quota for both; subscriptions do not count."""
        small = replace(TIERS[Tier.STANDARD], entities_max=3, partitioned_entities_max=1)
        monkeypatch.setattr(admission, "TIERS", {Tier.STANDARD: small})
        catalog = opened(None)
        catalog.create_topic(Topic(path="t", enable_partitioning=True))
        catalog.create_subscription(Subscription(topic="t", name="s"))
        partitioned = Queue(path="q", enable_partitioning=True)
        error = refused(ENTITY_COUNT_EXCEEDED, catalog.create_queue, partitioned)
        assert "maximum of 1 partitioned queues and topics" in error.text
        catalog.create_queue(Queue(path="q"))
        catalog.create_queue(Queue(path="r"))
        error = refused(ENTITY_COUNT_EXCEEDED, catalog.create_topic, Topic(path="u"))
        assert error.text.startswith("The topic 'u' cannot be created")

    def test_are_updated_as_topics(self, catalog: Catalog, topic: Topic) -> None:
        changed = catalog.update(replace(topic, status=EntityStatus.SEND_DISABLED), now_ms=5)
        assert (changed.version, changed.updated_ms) == (2, 5)
        assert catalog.find("events") == changed
        refused(PROPERTY_IMMUTABLE, catalog.update, replace(topic, enable_partitioning=False))
        refused(NOT_FOUND, catalog.update, Queue(path="events"))

    def test_that_are_partitioned_have_no_order(self, topic: Topic) -> None:
        """DFT."""
        assert not topic.support_ordering

    def test_take_their_subscriptions_with_them(
        self, catalog: Catalog, file: Path, topic: Topic, audit: Subscription
    ) -> None:
        """STA-4, D-16: a tombstone for each incarnation."""
        told: list[Change] = []
        seen: list[object] = []
        catalog.listen(told.append)
        catalog.listen(lambda change: seen.append(catalog.get(topic.incarnation)))
        catalog.delete("events")
        assert told == [Change(audit, None), Change(topic, None)]
        assert seen == [None, None]
        assert catalog.get(audit.incarnation) is None
        assert catalog.find_subscription("events", "audit") is None
        for each in (catalog, opened(file)):
            buried = {tombstone.incarnation: tombstone for tombstone in each.tombstones()}
            assert buried.keys() == {topic.incarnation, audit.incarnation}
            assert buried[audit.incarnation].path == "Events/Subscriptions/Audit"
            assert buried[audit.incarnation].stores == set(STORES)
        refused(NOT_FOUND, catalog.topic_rules, topic.incarnation)
        assert sqlite3.connect(file).execute("SELECT * FROM rules").fetchall() == []


class TestSubscriptions:
    def test_live_where_their_topic_does(self, topic: Topic, audit: Subscription) -> None:
        """P-2, P-3: a copy is stored where the message was sent to."""
        assert audit.placement == topic.placement
        assert audit.topic_incarnation == topic.incarnation
        assert audit.incarnation > topic.incarnation
        assert (audit.path, audit.version) == ("Events/Subscriptions/Audit", 1)

    def test_are_found_by_name_incarnation_and_address(
        self, catalog: Catalog, topic: Topic, audit: Subscription
    ) -> None:
        """NAM-2."""
        assert catalog.find_subscription("EVENTS", "audit") is audit
        assert catalog.get(audit.incarnation) is audit
        assert catalog.subscriptions(topic) == [audit]
        for text in ("events/Subscriptions/audit", "Events/subscriptions/AUDIT/$DeadLetterQueue"):
            assert catalog.find_entity(parse_address(text)) is audit
        assert catalog.find_entity(parse_address("events/Subscriptions/other")) is None

    def test_are_no_queues_or_topics(self, catalog: Catalog, audit: Subscription) -> None:
        assert catalog.find(audit.path) is None
        refused(NOT_FOUND, catalog.delete, audit.path)

    def test_of_no_topic_are_not_found(self, catalog: Catalog) -> None:
        catalog.create_queue(Queue(path="orders"))
        for name in ("orders", "nothing"):
            refused(NOT_FOUND, catalog.create_subscription, Subscription(topic=name, name="s"))

    def test_have_names_of_their_own_within_a_topic(
        self, catalog: Catalog, audit: Subscription
    ) -> None:
        """NAM-1, NAM-2."""
        again = Subscription(topic="EVENTS", name="AUDIT")
        refused(ENTITY_ALREADY_EXISTS, catalog.create_subscription, again)
        wrong = Subscription(topic="events", name="a/b")
        refused(NAME_INVALID, catalog.create_subscription, wrong)
        catalog.create_topic(Topic(path="other"))
        catalog.create_subscription(Subscription(topic="other", name="audit"))

    def test_beyond_two_thousand_are_refused(
        self, catalog: Catalog, audit: Subscription, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """LIM-6, with a smaller number."""
        assert SUBSCRIPTIONS_PER_TOPIC_MAX == 2_000
        monkeypatch.setattr(admission, "SUBSCRIPTIONS_PER_TOPIC_MAX", 1)
        error = refused(
            TOPIC_COUNT_EXCEEDED,
            catalog.create_subscription,
            Subscription(topic="events", name="more"),
        )
        assert error.text == (
            "The subscription 'Events/Subscriptions/more' cannot be created: the topic 'Events' "
            "already has its maximum of 1 subscriptions."
        )

    def test_are_updated_and_deleted(
        self, catalog: Catalog, topic: Topic, audit: Subscription
    ) -> None:
        """D-16."""
        changed = catalog.update(
            Subscription(topic="events", name="audit", max_delivery_count=3), now_ms=9
        )
        assert (changed.path, changed.version) == (audit.path, 2)
        assert (changed.placement, changed.topic_incarnation, changed.created_ms) == (
            audit.placement,
            topic.incarnation,
            2,
        )
        assert catalog.subscriptions(topic) == [changed]
        fixed = replace(audit, requires_session=True)
        refused(PROPERTY_IMMUTABLE, catalog.update, fixed)
        catalog.delete_subscription("events", "audit")
        assert catalog.subscriptions(topic) == []
        assert [each.incarnation for each in catalog.tombstones()] == [audit.incarnation]
        refused(NOT_FOUND, catalog.delete_subscription, "events", "audit")
        again = catalog.create_subscription(Subscription(topic="events", name="audit"))
        assert again.incarnation > audit.incarnation
        refused(NOT_FOUND, catalog.update, audit)

    def test_are_opened_by_the_access_rules_of_their_topic(self, catalog: Catalog) -> None:
        """D-34."""
        from busway.model.entities import AuthorizationRule

        rule = AuthorizationRule("reader", ("Listen",), "k")
        catalog.create_topic(Topic(path="news", authorization_rules=(rule,)))
        catalog.create_subscription(Subscription(topic="news", name="all"))
        assert catalog.entity_rule("news/Subscriptions/all", "reader") == ("news", rule)


def test_a_topic_has_no_dead_letters(catalog: Catalog, topic: Topic) -> None:
    """DLQ-6; what goes through it in transactions may fail on its way (FWD-5)."""
    assert catalog.find_entity(parse_address("events")) is topic
    assert catalog.find_entity(parse_address("events/$DeadLetterQueue")) is None
    assert catalog.find_entity(parse_address("events/$Transfer/$DeadLetterQueue")) is topic


class TestRules:
    def test_a_new_subscription_lets_everything_in(
        self, catalog: Catalog, topic: Topic, audit: Subscription
    ) -> None:
        """RUL-1."""
        assert catalog.rules(audit) == [replace(DEFAULT, created_ms=2)]
        assert catalog.rules(audit)[0].filter == TrueFilter()
        assert receivers(catalog, topic) == [audit.incarnation]

    def test_unless_another_rule_is_given(self, catalog: Catalog, topic: Topic) -> None:
        """RUL-1."""
        red = Rule(name="red", filter=SqlFilter("color = 'red'"))
        subscription = catalog.create_subscription(
            Subscription(topic="events", name="red"), rules=[red]
        )
        assert catalog.rules(subscription) == [red]
        assert receivers(catalog, topic, color="red") == [subscription.incarnation]
        assert receivers(catalog, topic, color="blue") == []

    def test_without_rules_there_are_no_messages(self, catalog: Catalog, topic: Topic) -> None:
        """RUL-1."""
        catalog.create_subscription(Subscription(topic="events", name="none"), rules=[])
        assert receivers(catalog, topic) == []

    def test_come_and_go_for_the_messages_that_follow(
        self, catalog: Catalog, topic: Topic, audit: Subscription
    ) -> None:
        """RUL-6, D-16: each is a new version of the subscription."""
        rule = Rule(name="Red", filter=CorrelationFilter(properties={"color": "red"}))
        assert catalog.add_rule(audit, rule, now_ms=7) == replace(rule, created_ms=7)
        catalog.remove_rule(audit, "$DEFAULT")
        assert receivers(catalog, topic, color="red") == [audit.incarnation]
        assert receivers(catalog, topic, color="blue") == []
        changed = catalog.update_rule(audit, Rule(name="RED", filter=FalseFilter()), now_ms=8)
        assert (changed.name, changed.created_ms) == ("Red", 7)
        assert receivers(catalog, topic, color="red") == []
        catalog.remove_rule(audit, "red")
        assert catalog.rules(audit) == []
        newest = catalog.get(audit.incarnation)
        assert newest is not None
        assert newest.version == 5

    def test_have_one_name_each(self, catalog: Catalog, audit: Subscription) -> None:
        """NAM-1, NAM-2."""
        catalog.add_rule(audit, Rule(name="mine"))
        error = refused(ENTITY_ALREADY_EXISTS, catalog.add_rule, audit, Rule(name="MINE"))
        assert "'Events/Subscriptions/Audit/Rules/MINE'" in error.text
        refused(NAME_INVALID, catalog.add_rule, audit, Rule(name="$Other"))
        assert catalog.find_rule(audit, "Mine") is not None
        twice = [Rule(name="a"), Rule(name="A")]
        with pytest.raises(BusError):
            catalog.create_subscription(Subscription(topic="events", name="s"), rules=twice)
        assert catalog.find_subscription("events", "s") is None

    def test_that_are_not_there_are_not_found(self, catalog: Catalog, audit: Subscription) -> None:
        refused(NOT_FOUND, catalog.remove_rule, audit, "nothing")
        refused(NOT_FOUND, catalog.update_rule, audit, Rule(name="nothing"))

    def test_of_an_old_incarnation_are_not_found(
        self, catalog: Catalog, audit: Subscription
    ) -> None:
        """D-16."""
        catalog.delete_subscription("events", "audit")
        catalog.create_subscription(Subscription(topic="events", name="audit"))
        refused(NOT_FOUND, catalog.add_rule, audit, Rule(name="late"))
        refused(NOT_FOUND, catalog.remove_rule, audit, "$Default")

    @pytest.mark.parametrize(
        "rule",
        [
            Rule(name="r", filter=SqlFilter("color =")),
            Rule(name="r", filter=SqlFilter("a = 1 OR " * 200 + "b = 2")),
            Rule(name="r", filter=CorrelationFilter()),
            Rule(name="r", action="SET"),
            Rule(name="r", filter=CorrelationFilter(properties={"a": object()})),
        ],
        ids=["syntax", "too long", "no condition", "action", "no value of AMQP"],
    )
    def test_that_cannot_be_are_refused_and_change_nothing(
        self, catalog: Catalog, file: Path, audit: Subscription, rule: Rule
    ) -> None:
        """SQL-11, COR-3, LIM-8."""
        refused(ARGUMENT_ERROR, catalog.add_rule, audit, rule)
        assert catalog.get(audit.incarnation) is audit
        assert opened(file).rules(audit) == catalog.rules(audit)

    def test_beyond_the_limit_of_the_topic_are_refused(
        self, catalog: Catalog, audit: Subscription, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """LIM-7, with smaller numbers; true and false filters are SQL filters."""
        assert SQL_FILTERS_PER_TOPIC_MAX == 2_000
        assert CORRELATION_FILTERS_PER_TOPIC_MAX == 100_000
        monkeypatch.setattr(rule_book, "SQL_FILTERS_PER_TOPIC_MAX", 1)
        monkeypatch.setattr(rule_book, "CORRELATION_FILTERS_PER_TOPIC_MAX", 1)
        sql, label = SqlFilter("a = 1"), CorrelationFilter(label="x")
        error = refused(TOPIC_COUNT_EXCEEDED, catalog.add_rule, audit, Rule(name="b", filter=sql))
        assert "the topic 'Events' already has its maximum of 1 SQL filters" in error.text
        other = Subscription(topic="events", name="other")
        refused(TOPIC_COUNT_EXCEEDED, catalog.create_subscription, other)
        catalog.add_rule(audit, Rule(name="c", filter=label))
        refused(TOPIC_COUNT_EXCEEDED, catalog.add_rule, audit, Rule(name="d", filter=label))
        catalog.update_rule(audit, Rule(name="$Default", filter=sql))
        refused(
            TOPIC_COUNT_EXCEEDED, catalog.update_rule, audit, Rule(name="$Default", filter=label)
        )

    def test_are_told_to_listeners_as_what_they_are(
        self, catalog: Catalog, audit: Subscription
    ) -> None:
        """STA-2 does not hold for them: `rule` says that links stay."""
        told: list[Change] = []
        catalog.listen(told.append)
        rule = catalog.add_rule(audit, Rule(name="mine"))
        second = replace(audit, version=2)
        catalog.remove_rule(audit, "mine")
        assert told == [
            Change(audit, second, RuleChange(None, rule)),
            Change(second, replace(audit, version=3), RuleChange(rule, None)),
        ]

    def test_an_action_makes_a_copy_of_its_own(
        self, catalog: Catalog, topic: Topic, audit: Subscription
    ) -> None:
        """RUL-2, in the words of the broker's seam."""
        rule = Rule(name="tag", action="SET sys.SessionId = 's1'; SET seen = TRUE")
        catalog.add_rule(audit, rule)
        bare = encode_message(data=b"body")
        copies = catalog.topic_rules(topic.incarnation).route(Message(bare=bare, size=len(bare)))
        assert [copy.subscription for copy in copies] == [audit.incarnation] * 2
        unchanged, tagged = copies
        assert (unchanged.rewritten, unchanged.error) == (None, None)
        assert tagged.rewritten is not None
        assert b"RuleName" in tagged.rewritten.bare
        assert (tagged.rewritten.session_id, tagged.error) == ("s1", None)

    def test_a_filter_that_fails_says_why(
        self, catalog: Catalog, topic: Topic, audit: Subscription
    ) -> None:
        """RUL-4."""
        rule = Rule(name="wrong", filter=SqlFilter("a / 0 = 1"))
        catalog.update_rule(audit, replace(rule, name="$Default"))
        bare = encode_message(application_properties={"a": 1}, data=b"")
        (copy,) = catalog.topic_rules(topic.incarnation).route(Message(bare=bare, size=len(bare)))
        assert copy.rewritten is None
        assert copy.error is not None
        assert copy.error[0] == "FilterException"

    def test_new_ids_come_from_where_the_catalog_is_told(self) -> None:
        wanted = UUID(int=77)
        catalog = Catalog.open(None, new_id=lambda: wanted)
        catalog.stores.register(STORES)
        topic = catalog.create_topic(Topic(path="t"))
        rule = Rule(name="id", filter=SqlFilter("newid() = @id", {"@id": wanted}))
        catalog.create_subscription(Subscription(topic="t", name="s"), rules=[rule])
        assert len(receivers(catalog, topic)) == 1


class TestSurviving:
    def test_everything_is_there_again(
        self, catalog: Catalog, file: Path, topic: Topic, audit: Subscription
    ) -> None:
        """D-16, RUL-6: rules are compiled again at start, with the types of their values."""
        moment = datetime(2024, 1, 2, tzinfo=UTC)
        rules = [
            Rule(
                name="all",
                filter=CorrelationFilter(
                    label="x",
                    properties={"n": Int(3), "id": UUID(int=5), "at": moment, "b": b"\0"},
                ),
                action="SET a = 1",
            ),
            Rule(name="sql", filter=SqlFilter("a > @least", {"@least": 4, "@s": Symbol("s")})),
            Rule(name="span", filter=CorrelationFilter(properties={"t": timedelta(seconds=1)})),
            Rule(name="false", filter=FalseFilter()),
        ]
        for rule in rules:
            catalog.add_rule(audit, rule, now_ms=3)
        catalog.update_rule(audit, Rule(name="$Default", filter=SqlFilter("a > 10")))
        kept = catalog.rules(audit)
        first = kept[1].filter
        assert isinstance(first, CorrelationFilter)
        assert first.properties["at"] == Timestamp(1_704_153_600_000)

        again = opened(file)
        assert again.topics() == [topic]
        assert again.subscriptions(topic) == catalog.subscriptions(topic)
        assert again.rules(audit) == kept
        found = again.rules(audit)[1].filter
        assert isinstance(found, CorrelationFilter)
        assert [type(value) for value in found.properties.values()] == [Int, UUID, Timestamp, bytes]
        assert receivers(again, topic, a=5) == [audit.incarnation]
        assert receivers(again, topic, a=3) == []

    def test_a_write_that_fails_changes_no_rule(
        self, catalog: Catalog, file: Path, topic: Topic, audit: Subscription
    ) -> None:
        other = sqlite3.connect(file, isolation_level=None)
        other.execute(
            "CREATE TRIGGER full BEFORE INSERT ON rules BEGIN SELECT raise(FAIL, 'full'); END"
        )
        refused(SERVER_BUSY, catalog.add_rule, audit, Rule(name="r"))
        late = Subscription(topic="events", name="late")
        refused(SERVER_BUSY, catalog.create_subscription, late)
        other.close()
        assert catalog.rules(audit) == [replace(DEFAULT, created_ms=2)]
        assert catalog.get(audit.incarnation) == audit
        assert catalog.subscriptions(topic) == [audit]
        assert receivers(catalog, topic) == [audit.incarnation]

    def test_a_file_of_the_first_format_learns_of_rules(self, file: Path) -> None:
        catalog = opened(file)
        queue = catalog.create_queue(Queue(path="orders"))
        catalog.close()
        database = sqlite3.connect(file, isolation_level=None)
        database.execute("DROP TABLE rules")
        database.execute("DROP TABLE carried_out")
        database.execute("DROP TABLE declared_access")
        database.execute("DROP TABLE catalog")
        for table in ("entities", "namespaces", "stores", "tombstones"):
            database.execute(f"ALTER TABLE {table} DROP COLUMN checksum")
        database.execute("PRAGMA user_version = 1")
        database.close()
        mark_of(file).unlink()
        again = opened(file)
        assert again.queues() == [queue]
        again.create_topic(Topic(path="t"))
        again.create_subscription(Subscription(topic="t", name="s"))

    def test_a_rule_that_is_not_understood_stops_the_start(
        self, catalog: Catalog, file: Path, audit: Subscription
    ) -> None:
        catalog.add_rule(audit, Rule(name="r", filter=SqlFilter("a = 1")))
        database = sqlite3.connect(file, isolation_level=None)
        database.execute("UPDATE rules SET description = replace(description, 'a = 1', 'a ~ 1')")
        seal(database, "rules", again=True)
        database.close()
        with pytest.raises(CatalogError, match="'Events/Subscriptions/Audit' has a rule that"):
            opened(file)


class TestForwarding:
    @pytest.mark.parametrize("field", ["forward_to", "forward_dead_letters_to"])
    def test_needs_a_destination_that_is_there(
        self, catalog: Catalog, topic: Topic, field: str
    ) -> None:
        """FWD-1, DLQ-4."""
        forward: dict[str, Any] = {field: "b"}
        away = Queue(path="a", **forward)
        error = refused(PROPERTY_INVALID, catalog.create_queue, away)
        assert error.text.endswith("=b: there is no queue or topic of that name.")
        lost = Subscription(topic="events", name="s", **forward)
        refused(PROPERTY_INVALID, catalog.create_subscription, lost)
        catalog.create_queue(Queue(path="b"))
        assert getattr(catalog.create_queue(away), field) == "b"
        assert getattr(catalog.create_subscription(lost), field) == "b"

    def test_goes_to_queues_and_topics_by_any_form_of_their_name(
        self, catalog: Catalog, topic: Topic, audit: Subscription
    ) -> None:
        """FWD-1: client libraries write the whole address."""
        queue = catalog.create_queue(Queue(path="a", forward_to="sb://ns.example/EVENTS/"))
        assert queue.forward_to == "EVENTS"
        refused(PROPERTY_INVALID, catalog.create_queue, Queue(path="b", forward_to=audit.path))
        cleared = catalog.update(replace(queue, forward_to=""))
        assert cleared.forward_to is None

    def test_is_for_entities_with_sessions_too(self, catalog: Catalog, topic: Topic) -> None:
        """FWD-1: documents say no, and the service takes it from the Python SDK."""
        sessions = Queue(path="a", requires_session=True, forward_to="events")
        assert catalog.create_queue(sessions).forward_to == "events"

    def test_in_a_circle_is_stopped_by_hops_only(self, catalog: Catalog) -> None:
        """FWD-3."""
        first = catalog.create_queue(Queue(path="a"))
        catalog.create_queue(Queue(path="b", forward_to="a"))
        assert catalog.update(replace(first, forward_to="b")).forward_to == "b"

    def test_outlives_its_destination(self, catalog: Catalog) -> None:
        """FWD-4: what it cannot hand over goes to the dead letters; other updates still work."""
        catalog.create_queue(Queue(path="b"))
        source = catalog.create_queue(Queue(path="a", forward_to="b"))
        catalog.delete("b")
        changed = catalog.update(replace(source, max_delivery_count=3))
        assert changed.forward_to == "b"
        gone = replace(changed, forward_to="c")
        refused(PROPERTY_INVALID, catalog.update, gone)

    def test_keeps_its_source_from_being_idle(self, catalog: Catalog) -> None:
        """FWD-6; what was said stays, and holds again without the forward. To forward dead letters
        only is something else."""
        span_ms = 300_000
        catalog.create_queue(Queue(path="b"))
        idle = Queue(path="a", auto_delete_on_idle_ms=span_ms, forward_dead_letters_to="b")
        source = catalog.create_queue(replace(idle, forward_to="b"), 1)
        assert source.auto_delete_on_idle_ms == span_ms
        assert not catalog.some_may_go
        assert catalog.delete_idle(10 * span_ms) == []
        catalog.update(idle, 10 * span_ms)
        assert catalog.delete_idle(11 * span_ms - 1) == []
        assert [each.path for each in catalog.delete_idle(11 * span_ms)] == ["a"]


class TestIdleEntities:
    """STA-4."""

    SPAN_MS = 300_000

    def test_are_deleted_when_their_time_is_over(self, catalog: Catalog) -> None:
        queue = catalog.create_queue(
            Queue(path="q", auto_delete_on_idle_ms=self.SPAN_MS), now_ms=1_000
        )
        catalog.create_queue(Queue(path="stays"), now_ms=1_000)
        assert catalog.delete_idle(1_000 + self.SPAN_MS - 1) == []
        assert catalog.delete_idle(1_000 + self.SPAN_MS) == [queue]
        assert catalog.find("q") is None
        assert [each.path for each in catalog.queues()] == ["stays"]

    def test_are_not_idle_when_touched_or_updated(self, catalog: Catalog) -> None:
        queue = catalog.create_queue(Queue(path="q", auto_delete_on_idle_ms=self.SPAN_MS), 1_000)
        catalog.touch(queue.incarnation, 2_000)
        assert catalog.delete_idle(1_000 + self.SPAN_MS) == []
        changed = catalog.update(replace(queue, max_delivery_count=3), 3_000)
        assert catalog.delete_idle(2_000 + self.SPAN_MS) == []
        assert catalog.delete_idle(3_000 + self.SPAN_MS) == [changed]

    def test_a_new_rule_is_use_of_a_subscription(self, catalog: Catalog, topic: Topic) -> None:
        subscription = catalog.create_subscription(
            Subscription(topic="events", name="s", auto_delete_on_idle_ms=self.SPAN_MS), 1_000
        )
        catalog.add_rule(subscription, Rule(name="r"), 2_000)
        catalog.remove_rule(subscription, "r", 9_000)
        assert catalog.delete_idle(1_000 + self.SPAN_MS) == []
        (deleted,) = catalog.delete_idle(2_000 + self.SPAN_MS)
        assert deleted.incarnation == subscription.incarnation
        assert catalog.find("events") is topic

    def test_a_topic_goes_with_its_subscriptions(self, catalog: Catalog) -> None:
        topic = catalog.create_topic(Topic(path="t", auto_delete_on_idle_ms=self.SPAN_MS), 1)
        catalog.create_subscription(
            Subscription(topic="t", name="s", auto_delete_on_idle_ms=self.SPAN_MS), 1
        )
        assert catalog.delete_idle(1 + self.SPAN_MS) == [topic]
        assert catalog.find_subscription("t", "s") is None
        assert catalog.delete_idle(2 + self.SPAN_MS) == []

    def test_have_their_whole_time_again_after_a_restart(
        self, catalog: Catalog, file: Path
    ) -> None:
        catalog.create_queue(Queue(path="q", auto_delete_on_idle_ms=self.SPAN_MS), 1_000)
        again = opened(file)
        assert again.delete_idle(10 * self.SPAN_MS) == []
        assert len(again.delete_idle(11 * self.SPAN_MS)) == 1

    def test_that_are_used_without_an_event_stay(self, catalog: Catalog) -> None:
        queue = catalog.create_queue(Queue(path="q", auto_delete_on_idle_ms=self.SPAN_MS), 1_000)
        late = 1_000 + self.SPAN_MS
        assert catalog.delete_idle(late, in_use=lambda entity: entity == queue) == []
        assert catalog.delete_idle(late + self.SPAN_MS - 1) == []
        assert catalog.delete_idle(late + self.SPAN_MS) == [queue]

    def test_no_longer_count_once_the_property_is_taken_away(self, catalog: Catalog) -> None:
        queue = catalog.create_queue(Queue(path="q", auto_delete_on_idle_ms=self.SPAN_MS), 1_000)
        catalog.update(replace(queue, auto_delete_on_idle_ms=None), 1_001)
        catalog.touch(queue.incarnation, 1_002)
        assert catalog.delete_idle(9 * self.SPAN_MS) == []
