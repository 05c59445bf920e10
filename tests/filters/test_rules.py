"""The rules of a topic: who gets which copies (RUL-1 to RUL-7, COR-3, SQL-11)."""

from __future__ import annotations

from typing import Any

import pytest

from busway.amqp.sections import read_application_properties
from busway.filters.rules import Copy, TopicRules, check_rule
from busway.model.entities import (
    CorrelationFilter,
    FalseFilter,
    Rule,
    RuleFilter,
    SqlFilter,
    TrueFilter,
)
from busway.model.errors import BusError
from busway.model.message import Message
from tests.filters.messages import NEW_ID, message

ALICE, BOB, CAROL = 11, 12, 13


def sql(name: str, expression: str, action: str | None = None, **parameters: object) -> Rule:
    return Rule(name=name, filter=SqlFilter(expression, parameters), action=action)


def topic(*rules: tuple[int, Rule]) -> TopicRules:
    made = TopicRules(lambda: NEW_ID)
    for subscription, rule in rules:
        made.add(subscription, rule)
    return made


def receivers(rules: TopicRules, user: dict[str, Any] | None = None, **fields: Any) -> list[int]:
    return [copy.subscription for copy in rules.route(message(user, **fields))]


def properties_of(copy: Copy) -> dict[str, Any]:
    assert copy.rewritten is not None
    return read_application_properties(copy.rewritten.bare)


class TestWhoGetsAMessage:
    def test_the_default_rule_lets_all_in(self) -> None:
        """RUL-1"""
        assert receivers(topic((ALICE, Rule(name="$Default")), (BOB, Rule(name="$Default")))) == [
            ALICE,
            BOB,
        ]

    def test_a_subscription_without_rules_gets_nothing(self) -> None:
        """RUL-1"""
        rules = topic((ALICE, Rule(name="$Default")))
        rules.remove(ALICE, "$default")
        assert receivers(rules) == []

    def test_a_message_that_nobody_wants_is_no_error(self) -> None:
        """RUL-5"""
        assert receivers(topic((ALICE, Rule(name="none", filter=FalseFilter())))) == []
        assert receivers(topic()) == []

    def test_only_what_is_true_matches_not_what_is_unknown(self) -> None:
        """SQL-4"""
        rules = topic((ALICE, sql("a", "n = 1")), (BOB, sql("b", "NOT n = 1")))
        assert receivers(rules, {"n": 1}) == [ALICE]
        assert receivers(rules, {"n": 2}) == [BOB]
        assert receivers(rules, {}) == []

    def test_filters_of_all_kinds_work_side_by_side(self) -> None:
        rules = topic(
            (ALICE, sql("a", "n > @least", least=3)),
            (BOB, Rule(name="b", filter=CorrelationFilter(label="x"))),
            (CAROL, sql("c", "1=1")),
        )
        assert receivers(rules, {"n": 5}, subject="x") == [ALICE, BOB, CAROL]
        assert receivers(rules, {"n": 2}, subject="y") == [CAROL]


class TestCopies:
    def test_matching_rules_without_action_yield_one_copy_together(self) -> None:
        """RUL-2"""
        rules = topic(
            (ALICE, sql("one", "n > 1")),
            (ALICE, sql("two", "n > 2")),
            (ALICE, Rule(name="three", filter=CorrelationFilter(properties={"n": 5}))),
            (ALICE, Rule(name="four")),
        )
        assert rules.route(message({"n": 5})) == [Copy(ALICE)]

    def test_each_matching_rule_with_action_yields_its_own_copy_with_its_name(self) -> None:
        """RUL-2"""
        rules = topic(
            (ALICE, sql("second", "n > 1", "SET m = 2")),
            (ALICE, sql("plain", "n > 1")),
            (ALICE, sql("third", "n > 2", "SET m = 3")),
            (ALICE, sql("no", "n > 9", "SET m = 9")),
        )
        plain, *acted = rules.route(message({"n": 5}))
        assert plain == Copy(ALICE)
        assert [properties_of(copy) for copy in acted] == [
            {"n": 5, "m": 2, "RuleName": "second"},
            {"n": 5, "m": 3, "RuleName": "third"},
        ]
        assert [copy.rule_name for copy in acted] == ["second", "third"]

    def test_the_name_of_the_rule_wins_over_a_property_of_that_name(self) -> None:
        """RUL-2"""
        rules = topic((ALICE, Rule(name="R", action="SET RuleName = 'x'")))
        (copy,) = rules.route(message({"rulename": "y"}))
        assert properties_of(copy) == {"RuleName": "R"}

    def test_actions_are_private_to_the_subscription(self) -> None:
        """RUL-7"""
        rules = topic(
            (ALICE, Rule(name="r", action="SET n = 9; SET sys.SessionId = 'other'")),
            (BOB, sql("r", "n = 5")),
        )
        sent = message({"n": 5}, group_id="mine")
        before = sent.bare
        alice, bob = rules.route(sent)
        assert alice.rewritten is not None
        assert (alice.rewritten.session_id, sent.session_id) == ("other", "mine")
        assert (bob, sent.bare) == (Copy(BOB), before)


class TestFailures:
    def test_a_filter_error_is_reported_for_its_subscription_only(self) -> None:
        """RUL-4"""
        rules = topic((ALICE, sql("bad", "n > 'x'")), (BOB, Rule(name="$Default")))
        assert rules.route(message({"n": 5})) == [
            Copy(
                ALICE,
                "bad",
                error=(
                    "FilterException",
                    "Rule 'bad': The operator '>' cannot be applied to operands of type Int64 and "
                    "String.",
                ),
            ),
            Copy(BOB),
        ]

    def test_other_rules_of_the_subscription_still_match(self) -> None:
        """RUL-4"""
        rules = topic((ALICE, sql("good", "n = 5")), (ALICE, sql("bad", "sys.Nope = 1")))
        failed, good = rules.route(message({"n": 5}))
        assert failed.error is not None
        assert good == Copy(ALICE)

    def test_several_errors_make_one_dead_letter(self) -> None:
        """RUL-4"""
        rules = topic((ALICE, sql("bad", "sys.Nope = 1")), (ALICE, sql("worse", "1/0 = 1")))
        (failed,) = rules.route(message())
        assert failed.rule_name == "bad"

    def test_an_action_that_fails_is_reported_too(self) -> None:
        """ACT-3, RUL-4"""
        rules = topic((ALICE, Rule(name="bad", action="SET sys.Size = 1")))
        (failed,) = rules.route(message())
        assert failed.rewritten is None
        assert failed.error == (
            "RuleActionException",
            "Rule 'bad': The system property 'Size' cannot be changed.",
        )

    def test_a_message_that_cannot_be_read_fails_what_looks_at_it(self) -> None:
        """RUL-4"""
        rules = topic(
            (ALICE, Rule(name="c", filter=CorrelationFilter(label="x"))),
            (BOB, Rule(name="$Default")),
            (CAROL, Rule(name="r", action="SET a = 1")),
        )
        copies = rules.route(Message(bare=b"\x00\x53\x73\xff", size=4))
        assert [(copy.subscription, copy.error and copy.error[0]) for copy in copies] == [
            (ALICE, "FilterException"),
            (BOB, None),
            (CAROL, "RuleActionException"),
        ]


KINDS: list[RuleFilter] = [
    TrueFilter(),
    SqlFilter("n = 5"),
    CorrelationFilter(properties={"n": 5}),
]


class TestChanges:
    """RUL-6"""

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_rule_holds_from_when_it_is_added_until_it_is_removed(self, kind: RuleFilter) -> None:
        rules = topic()
        assert receivers(rules, {"n": 5}) == []
        rules.add(ALICE, Rule(name="r", filter=kind))
        assert receivers(rules, {"n": 5}) == [ALICE]
        assert rules.remove(ALICE, "R") is True
        assert rules.remove(ALICE, "r") is False
        assert receivers(rules, {"n": 5}) == []

    def test_a_rule_of_the_same_name_replaces_the_one_before(self) -> None:
        rules = topic((ALICE, sql("r", "n = 5")), (ALICE, sql("R", "n = 6")))
        assert receivers(rules, {"n": 5}) == []
        assert receivers(rules, {"n": 6}) == [ALICE]
        assert rules.sql_filters == 1

    def test_a_rule_that_is_refused_changes_nothing(self) -> None:
        rules = topic((ALICE, sql("r", "n = 5")))
        with pytest.raises(BusError):
            rules.add(ALICE, sql("r", "n ="))
        assert receivers(rules, {"n": 5}) == [ALICE]

    def test_a_subscription_that_is_dropped_takes_its_rules_along(self) -> None:
        rules = topic(
            *(
                (who, Rule(name=str(n), filter=k))
                for who in (ALICE, BOB)
                for n, k in enumerate([*KINDS, FalseFilter()])
            )
        )
        assert (rules.sql_filters, rules.correlation_filters) == (6, 2)
        rules.drop(ALICE)
        rules.drop(CAROL)
        assert (rules.sql_filters, rules.correlation_filters) == (3, 1)
        assert receivers(rules, {"n": 5}) == [BOB]
        rules.drop(BOB)
        assert (rules.sql_filters, rules.correlation_filters) == (0, 0)


class TestCreation:
    @pytest.mark.parametrize(
        "rule",
        [
            Rule(name="$Default"),
            Rule(name="r", filter=FalseFilter(), action="REMOVE a"),
            sql("r", "a = @p", **{"@p": 1}),
            sql("r", "sys.Nope = 1"),
            Rule(name="r", filter=CorrelationFilter(properties={"a": None})),
        ],
    )
    def test_these_can_be_created(self, rule: Rule) -> None:
        check_rule(rule)

    @pytest.mark.parametrize(
        ("rule", "text"),
        [
            (
                sql("r", "a ="),
                "The SQL filter of the rule 'r' is not valid. Column 4: found the end",
            ),
            (sql("r", "a = '" + "x" * 1024), "expected at most 1024"),
            (sql("r", "a = @p"), "The parameter @p has no value"),
            (sql("r", "a LIKE 'x' ESCAPE 'yz'"), "ESCAPE takes a string of one character"),
            (Rule(name="r", action="SET a"), "The SQL action of the rule 'r' is not valid"),
            (Rule(name="r", action="SET a = @p"), "The parameter @p has no value"),
            (Rule(name="r", filter=CorrelationFilter()), "it has no condition, and needs one"),
            (Rule(name="r?"), "not a valid rule name"),
        ],
    )
    def test_these_are_refused_as_wrong_arguments(self, rule: Rule, text: str) -> None:
        """SQL-11, COR-3, LIM-8, NAM-1"""
        with pytest.raises(BusError) as caught:
            check_rule(rule)
        assert caught.value.condition == "com.microsoft:argument-error"
        assert text in str(caught.value)
