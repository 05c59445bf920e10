"""The rules of all subscriptions: as they were given, and compiled for each topic (RUL-1 to RUL-7).

Kept up to date with every change, so that a send finds the rules of its topic in one look-up. What
a rule may be is asked here before anything is written (SQL-11, COR-3, LIM-7, LIM-8). The filter
language is imported when the first topic is there (D-33).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from busway.model.entities import CorrelationFilter, Rule, SqlFilter, Subscription, Topic
from busway.model.errors import (
    ARGUMENT_ERROR,
    ENTITY_ALREADY_EXISTS,
    NOT_FOUND,
    TOPIC_COUNT_EXCEEDED,
    BusError,
)
from busway.model.limits import CORRELATION_FILTERS_PER_TOPIC_MAX, SQL_FILTERS_PER_TOPIC_MAX
from busway.model.names import DEFAULT_RULE, name_key

if TYPE_CHECKING:
    from busway.filters.rules import TopicRules

NewIdSource = Callable[[], UUID]
"""Where `newid()` gets its values from."""

DEFAULT_RULES = (Rule(name=DEFAULT_RULE),)
"""Of a subscription that is created without others (RUL-1)."""


class RuleBook:
    def __init__(self, new_id: NewIdSource) -> None:
        self._new_id = new_id
        self._rules: dict[int, dict[str, Rule]] = {}
        """By incarnation of the subscription, then by name, in the order of their making."""
        self._topics: dict[int, TopicRules] = {}

    # --- Looking up ------------------------------------------------------------------------------

    def topic_rules(self, topic: int) -> TopicRules:
        rules = self._topics.get(topic)
        if rules is None:
            raise BusError(NOT_FOUND, uri=f"topic {topic}")
        return rules

    def rules(self, subscription: Subscription) -> list[Rule]:
        return list(self._rules.get(subscription.incarnation, {}).values())

    def find(self, subscription: Subscription, name: str) -> Rule | None:
        return self._rules.get(subscription.incarnation, {}).get(name_key(name))

    # --- Before something is written -------------------------------------------------------------

    def prepare(
        self, topic: Topic, subscription: Subscription, rules: Sequence[Rule], now_ms: int
    ) -> list[Rule]:
        """New rules as they will be kept. Raises `BusError` if the subscription cannot get them."""
        prepared = [_prepared(rule, now_ms) for rule in rules]
        names: set[str] = set()
        for rule in prepared:
            if name_key(rule.name) in names or self.find(subscription, rule.name) is not None:
                raise BusError(ENTITY_ALREADY_EXISTS, uri=rule_uri(subscription, rule.name))
            names.add(name_key(rule.name))
        self._check_room(topic, subscription, prepared)
        return prepared

    def prepare_change(
        self, topic: Topic, subscription: Subscription, rule: Rule, now_ms: int
    ) -> Rule:
        """A rule that takes the place of the one of its name."""
        old = self.existing(subscription, rule.name)
        prepared = replace(_prepared(rule, now_ms), name=old.name, created_ms=old.created_ms)
        if _is_correlation(old) != _is_correlation(prepared):
            self._check_room(topic, subscription, [prepared])
        return prepared

    def existing(self, subscription: Subscription, name: str) -> Rule:
        rule = self.find(subscription, name)
        if rule is None:
            raise BusError(NOT_FOUND, uri=rule_uri(subscription, name))
        return rule

    def _check_room(self, topic: Topic, subscription: Subscription, rules: Sequence[Rule]) -> None:
        """LIM-7."""
        there = self.topic_rules(topic.incarnation)
        correlated = sum(map(_is_correlation, rules))
        sql = len(rules) - correlated
        for counted, new, count, limit in (
            ("SQL filters", sql, there.sql_filters, SQL_FILTERS_PER_TOPIC_MAX),
            (
                "correlation filters",
                correlated,
                there.correlation_filters,
                CORRELATION_FILTERS_PER_TOPIC_MAX,
            ),
        ):
            if new and count + new > limit:
                raise BusError(
                    TOPIC_COUNT_EXCEEDED,
                    what="rule",
                    path=rule_uri(subscription, rules[-1].name),
                    topic=topic.path,
                    limit=limit,
                    counted=counted,
                )

    # --- After it was written --------------------------------------------------------------------

    def add_topic(self, topic: Topic) -> None:
        from busway.filters.rules import TopicRules

        self._topics.setdefault(topic.incarnation, TopicRules(self._new_id))

    def drop_topic(self, topic: Topic) -> None:
        self._topics.pop(topic.incarnation, None)

    def drop(self, subscription: Subscription) -> None:
        self._rules.pop(subscription.incarnation, None)
        if (rules := self._topics.get(subscription.topic_incarnation)) is not None:
            rules.drop(subscription.incarnation)

    def put(self, subscription: Subscription, rule: Rule) -> None:
        incarnation = subscription.incarnation
        self.topic_rules(subscription.topic_incarnation).add(incarnation, rule)
        self._rules.setdefault(incarnation, {})[name_key(rule.name)] = rule

    def remove(self, subscription: Subscription, rule: Rule) -> None:
        incarnation = subscription.incarnation
        self.topic_rules(subscription.topic_incarnation).remove(incarnation, rule.name)
        del self._rules[incarnation][name_key(rule.name)]


def rule_uri(subscription: Subscription, name: str) -> str:
    return f"{subscription.path}/Rules/{name}"


def _is_correlation(rule: Rule) -> bool:
    return isinstance(rule.filter, CorrelationFilter)


def _prepared(rule: Rule, now_ms: int) -> Rule:
    """With values in the types of AMQP, as they come back after a restart; checked as a whole."""
    from busway.filters.rules import check_rule

    match rule.filter:
        case CorrelationFilter() as correlation:
            properties = {
                name: _in_amqp(rule, value) for name, value in correlation.properties.items()
            }
            rule = replace(rule, filter=replace(correlation, properties=properties))
        case SqlFilter(expression, parameters):
            values = {name: _in_amqp(rule, value) for name, value in parameters.items()}
            rule = replace(rule, filter=SqlFilter(expression, values))
    values = {name: _in_amqp(rule, value) for name, value in rule.action_parameters.items()}
    rule = replace(
        rule,
        action=rule.action or None,
        action_parameters=values,
        created_ms=rule.created_ms or now_ms,  # one that is copied is as old as it was
    )
    check_rule(rule)
    return rule


def _in_amqp(rule: Rule, value: object) -> object:
    from busway.amqp.codec import encode_value
    from busway.filters.values import from_amqp, to_amqp

    if isinstance(value, datetime | timedelta):
        value = to_amqp(from_amqp(value))
    try:
        encode_value(value)
    except Exception as problem:
        raise BusError(
            ARGUMENT_ERROR,
            detail=f"The rule '{rule.name}' has a value that no message can have: {problem}",
        ) from problem
    return value
