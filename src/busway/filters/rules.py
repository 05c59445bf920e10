"""The rules of a topic: which subscriptions get which copies of a message (RUL-1 to RUL-7).

`TopicRules` holds the compiled rules of all subscriptions of one topic. It knows nothing of
partitions, so all partitions of a topic on a node can share one. Rules come and go between two
messages; what was routed before is not touched (RUL-6).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from busway.filters.actions import Action, Rewritten, rewrite
from busway.filters.correlation import Conditions, CorrelationIndex, conditions_of
from busway.filters.errors import FilterError, FilterSyntaxError, RuleActionError
from busway.filters.evaluator import Compiler, Decide, NewIdSource, ParameterError
from busway.filters.facts import MessageFacts
from busway.filters.operators import COMPARERS
from busway.filters.parser import parse_action, parse_filter
from busway.filters.syntax import Comparison, Constant, Predicate
from busway.model.entities import (
    CorrelationFilter,
    FalseFilter,
    Rule,
    SqlFilter,
    TrueFilter,
)
from busway.model.errors import ARGUMENT_ERROR, BusError
from busway.model.limits import DEAD_LETTER_TEXT_MAX_CHARS
from busway.model.message import Message
from busway.model.names import RULE_NAME, check_name, name_key

RULE_NAME_PROPERTY = "RuleName"
"""The application property of copies that an action made (RUL-2)."""


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy of a message for a subscription."""

    subscription: int
    """The incarnation of the subscription."""
    rule_name: str | None = None
    """The rule that made it, if by its action or its failure; None for an unchanged copy."""
    rewritten: Rewritten | None = None
    """What the action made of it; None: as the topic got it."""
    error: tuple[str, str] | None = None
    """Reason and description if a rule failed: for the dead-letter queue or for nobody (RUL-4)."""


# --- One rule ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class CompiledRule:
    """A rule, ready to be asked. Exactly one of `constant`, `decide` and `conditions` is set."""

    name: str
    action: Action | None = None
    constant: bool | None = None
    """The same for every message."""
    decide: Decide | None = None
    """An SQL filter."""
    conditions: Conditions | None = None
    """A correlation filter."""


def compile_rule(rule: Rule, new_id: NewIdSource) -> CompiledRule:
    """Raises `BusError` (ARGUMENT_ERROR) for a rule that cannot be (SQL-11, COR-3, LIM-8)."""
    action = None
    if rule.action is not None:
        try:
            compiler = Compiler(new_id, rule.action_parameters)
            action = Action(parse_action(rule.action), compiler)
        except (FilterSyntaxError, ParameterError, FilterError) as problem:
            raise _refused(rule, "SQL action", problem) from None
    match rule.filter:
        case TrueFilter():
            return CompiledRule(rule.name, action, constant=True)
        case FalseFilter():
            return CompiledRule(rule.name, action, constant=False)
        case CorrelationFilter():
            conditions = conditions_of(rule.filter)
            if not conditions:
                raise _refused(rule, "correlation filter", "it has no condition, and needs one")
            return CompiledRule(rule.name, action, conditions=conditions)
        case SqlFilter(expression, parameters):
            try:
                predicate = parse_filter(expression)
                truth = _truth_of_constants(predicate)
                if truth is not None:
                    return CompiledRule(rule.name, action, constant=truth)
                decide = Compiler(new_id, parameters).predicate(predicate)
            except (FilterSyntaxError, ParameterError, FilterError) as problem:
                raise _refused(rule, "SQL filter", problem) from None
            return CompiledRule(rule.name, action, decide=decide)


def check_rule(rule: Rule) -> None:
    """Raise `BusError` if the rule cannot be created: name, syntax, lengths, conditions."""
    check_name(RULE_NAME, rule.name)
    compile_rule(rule, new_id=lambda: UUID(int=0))


def _refused(rule: Rule, what: str, problem: object) -> BusError:
    return BusError(
        ARGUMENT_ERROR, detail=f"The {what} of the rule '{rule.name}' is not valid. {problem}"
    )


def _truth_of_constants(predicate: Predicate) -> bool | None:
    """Of `1=1` and the like, which client libraries write for true and false filters."""
    match predicate:
        case Comparison(operator, Constant(left), Constant(right)) if type(left) is type(right):
            return COMPARERS[operator](left, right) is True
    return None


# --- All rules of a topic ------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Place:
    """A rule of a subscription. Hashed by identity: it is its own key in every collection."""

    subscription: int
    order: int
    rule: CompiledRule


@dataclass(slots=True)
class _Subscription:
    unchanged: Copy
    """The copy that most messages get, made once."""
    rules: dict[str, _Place] = field(default_factory=dict)


class TopicRules:
    """Routes messages. Subscriptions are named by their incarnations."""

    def __init__(self, new_id: NewIdSource) -> None:
        self._new_id = new_id
        self._subscriptions: dict[int, _Subscription] = {}
        self._order = 0
        self._true: dict[_Place, None] = {}
        self._sql: dict[_Place, None] = {}
        self._correlation: CorrelationIndex[_Place] = CorrelationIndex()
        self._correlated_rules: dict[int, int] = {}
        """How many correlation filters each subscription has, of those that have any."""
        self._false = 0

    @property
    def subscription_count(self) -> int:
        """Of those with rules."""
        return len(self._subscriptions)

    @property
    def sql_filters(self) -> int:
        """For the quota LIM-7; true and false filters are SQL filters (http.md, section 6)."""
        return len(self._sql) + len(self._true) + self._false

    @property
    def correlation_filters(self) -> int:
        return len(self._correlation)

    def add(self, subscription: int, rule: Rule) -> None:
        """A rule of the same name is replaced. Raises `BusError`, then nothing has changed."""
        compiled = compile_rule(rule, self._new_id)
        self.remove(subscription, rule.name)
        self._order += 1
        place = _Place(subscription, self._order, compiled)
        entry = self._subscriptions.setdefault(
            subscription, _Subscription(unchanged=Copy(subscription))
        )
        entry.rules[name_key(rule.name)] = place
        if compiled.conditions is not None:
            self._correlation.add(place, compiled.conditions)
            self._correlated_rules[subscription] = self._correlated_rules.get(subscription, 0) + 1
        elif compiled.decide is not None:
            self._sql[place] = None
        elif compiled.constant:
            self._true[place] = None
        else:
            self._false += 1

    def remove(self, subscription: int, rule_name: str) -> bool:
        """Whether there was such a rule."""
        entry = self._subscriptions.get(subscription)
        place = entry.rules.pop(name_key(rule_name), None) if entry is not None else None
        if place is None:
            return False
        rule = place.rule
        if rule.conditions is not None:
            self._correlation.remove(place)
            self._correlated_rules[subscription] -= 1
            if not self._correlated_rules[subscription]:
                del self._correlated_rules[subscription]
        elif rule.decide is not None:
            del self._sql[place]
        elif rule.constant:
            del self._true[place]
        else:
            self._false -= 1
        return True

    def drop(self, subscription: int) -> None:
        """The subscription is gone, with all its rules."""
        entry = self._subscriptions.get(subscription)
        for name in list(entry.rules) if entry is not None else ():
            self.remove(subscription, name)
        self._subscriptions.pop(subscription, None)

    def route(self, message: Message) -> list[Copy]:
        """Every copy that the message becomes, subscription by subscription (RUL-2).

        All rules are asked, also after one has matched, so that what comes out does not depend on
        the order in which they were made.
        """
        facts = MessageFacts(message)
        hits = dict.fromkeys(self._true)
        failures: dict[int, tuple[_Place | None, FilterError]] = {}
        for place in self._sql:
            decide = place.rule.decide
            assert decide is not None
            try:
                if decide(facts) is True:
                    hits[place] = None
            except FilterError as error:
                failures.setdefault(place.subscription, (place, error))
        if self._correlated_rules:
            try:
                hits.update(dict.fromkeys(self._correlation.matches(facts.correlated)))
            except FilterError as error:
                # What the message carries cannot be read: then no filter that asks for it can.
                for subscription in self._correlated_rules:
                    failures.setdefault(subscription, (None, error))
        return self._copies(facts, hits, failures)

    def _copies(
        self,
        facts: MessageFacts,
        hits: dict[_Place, None],
        failures: dict[int, tuple[_Place | None, FilterError]],
    ) -> list[Copy]:
        unchanged: dict[int, Copy] = {}
        changed: list[tuple[int, int, Copy]] = []
        for place in hits:
            subscription = place.subscription
            if place.rule.action is None:
                unchanged[subscription] = self._subscriptions[subscription].unchanged
            else:
                changed.append((subscription, place.order, _acted(facts, place)))
        for subscription, (failed, error) in failures.items():
            rule_name = failed.rule.name if failed is not None else None
            changed.append((subscription, 0, _failed(subscription, rule_name, error)))
        if not changed:
            return [unchanged[subscription] for subscription in sorted(unchanged)]
        # One subscription after the other: what failed, the unchanged copy, then those of actions.
        every = [(subscription, 0, copy) for subscription, copy in unchanged.items()] + changed
        every.sort(key=lambda item: (item[0], item[1], item[2].error is None))
        return [copy for _, _, copy in every]


def _acted(facts: MessageFacts, place: _Place) -> Copy:
    rule = place.rule
    assert rule.action is not None
    try:
        rewritten = rewrite(facts, rule.action, marks={RULE_NAME_PROPERTY: rule.name})
    except RuleActionError as error:
        return _failed(place.subscription, rule.name, error)
    return Copy(place.subscription, rule.name, rewritten)


def _failed(subscription: int, rule_name: str | None, error: FilterError | RuleActionError) -> Copy:
    description = str(error) if rule_name is None else f"Rule '{rule_name}': {error}"
    return Copy(
        subscription, rule_name, error=(error.reason, description[:DEAD_LETTER_TEXT_MAX_CHARS])
    )
