"""What a filter says of a message: one sentence of the rules SQL-2 to SQL-10 each."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from busway.amqp.types import Described, Int, Short, Symbol, Timestamp, UByte
from busway.filters.errors import FilterError
from busway.filters.evaluator import Compiler, ParameterError
from busway.filters.operators import AND, NOT, OR
from busway.filters.parser import parse_filter
from busway.filters.values import UNKNOWN, TimeSpan
from tests.filters.messages import NEW_ID, decide, evaluate


def span(ticks: int) -> Described:
    return Described(Symbol("com.microsoft:timespan"), ticks)


class TestProperties:
    def test_names_of_properties_are_the_same_in_any_case(self) -> None:
        """SQL-2"""
        assert decide("COLOR = 'red'", {"Color": "red"}) is True
        assert decide("sys.LABEL = 'x'", subject="x") is True

    def test_of_two_names_that_differ_only_by_case_the_first_counts(self) -> None:
        """SQL-2"""
        assert decide("color = 1", {"Color": 1, "color": 2}) is True

    def test_a_missing_user_property_is_unknown(self) -> None:
        """SQL-3"""
        assert evaluate("missing") is UNKNOWN
        assert decide("missing = 1") is None
        assert decide("missing <> 1") is None

    def test_a_system_property_that_does_not_exist_is_an_error(self) -> None:
        """SQL-3"""
        for text in ("sys.Nope = 1", "sys.Nope IS NULL", "EXISTS(sys.Nope)", "p('sys.Nope') = 1"):
            with pytest.raises(FilterError, match="no system property 'Nope'"):
                decide(text)

    def test_a_known_system_property_without_a_value_is_null(self) -> None:
        """SQL-3"""
        assert evaluate("sys.Label") is None
        assert decide("sys.Label IS NULL") is True
        assert decide("sys.Label = 'x'") is None

    def test_subject_is_another_name_of_label(self) -> None:
        """SQL-3"""
        assert decide("sys.Subject = sys.Label", subject="x") is True

    def test_a_system_property_is_not_a_user_property(self) -> None:
        assert decide("Label = 'x'", subject="x") is None
        assert decide("sys.Label = 'x'", {"Label": "x"}, subject="y") is False

    def test_a_property_can_be_named_by_a_value(self) -> None:
        assert decide("property('col' + 'or') = 'red'", {"color": "red"}) is True
        assert decide("p(which) = 'red'", {"which": "color", "color": "red"}) is True
        assert decide("p('sys.Label') = 'x'", subject="x") is True
        assert decide("p(missing) = 1") is None
        with pytest.raises(FilterError, match="takes a String"):
            decide("p(5) = 1")

    def test_newid_is_a_guid(self) -> None:
        assert evaluate("newid()") == NEW_ID

    def test_parameters_are_given_with_the_filter(self) -> None:
        assert decide("n > @Limit", {"n": 5}, {"@limit": 4}) is True
        assert decide("n > @Limit", {"n": 5}, {"limit": Int(6)}) is False
        with pytest.raises(ParameterError, match="@other"):
            Compiler(lambda: NEW_ID, {"@limit": 1}).predicate(parse_filter("a = @other"))


class TestLogic:
    """SQL-4"""

    @pytest.mark.parametrize("right", [True, False, None])
    @pytest.mark.parametrize("left", [True, False, None])
    def test_the_tables_are_those_of_three_valued_logic(
        self, left: bool | None, right: bool | None
    ) -> None:
        rank = {False: 0, None: 1, True: 2}
        assert rank[AND[left][right]] == min(rank[left], rank[right])
        assert rank[OR[left][right]] == max(rank[left], rank[right])
        assert rank[NOT[left]] == 2 - rank[left]

    @pytest.mark.parametrize(
        ("text", "truth"),
        [
            ("missing = 1 AND 1 = 0", False),
            ("missing = 1 AND 1 = 1", None),
            ("missing = 1 OR 1 = 1", True),
            ("missing = 1 OR 1 = 0", None),
            ("NOT missing = 1", None),
            ("missing + 1 = 1", None),
            ("-missing = 1", None),
            ("missing LIKE '%'", None),
            ("missing NOT LIKE '%'", None),
            ("missing IN (1)", None),
            ("missing NOT IN (1)", None),
            ("1 IN (missing)", None),
            ("1 IN (missing, 1)", True),
            ("1 NOT IN (missing, 1)", False),
        ],
    )
    def test_unknown_stays_unknown_unless_the_rest_decides(
        self, text: str, truth: bool | None
    ) -> None:
        assert decide(text) is truth

    def test_operands_that_cannot_matter_any_more_are_not_looked_at(self) -> None:
        assert decide("1 = 1 OR sys.Nope = 1") is True
        assert decide("1 = 0 AND sys.Nope = 1") is False
        with pytest.raises(FilterError):
            decide("sys.Nope = 1 OR 1 = 1")


class TestNull:
    def test_is_null_is_true_of_what_is_missing_or_null(self) -> None:
        """SQL-5"""
        assert decide("a IS NULL") is True
        assert decide("a IS NULL", {"a": None}) is True
        assert decide("a IS NULL", {"a": 0}) is False
        assert decide("a IS NOT NULL", {"a": 0}) is True

    def test_exists_is_true_of_what_is_there(self) -> None:
        """SQL-5"""
        assert decide("EXISTS(a)") is False
        assert decide("EXISTS(a)", {"a": None}) is True
        assert decide("EXISTS(sys.Label)", subject="x") is True
        assert decide("EXISTS(sys.Label)") is False

    @pytest.mark.parametrize("sign", ["=", "<>", "<", "<=", ">", ">="])
    def test_a_comparison_with_null_is_unknown(self, sign: str) -> None:
        """SQL-6"""
        assert decide(f"a {sign} NULL", {"a": 1}) is None
        assert decide(f"NULL {sign} NULL") is None

    def test_arithmetic_with_null_is_null(self) -> None:
        """SQL-6"""
        assert evaluate("a + NULL", {"a": 1}) is None
        assert evaluate("-a", {"a": None}) is None
        assert evaluate("missing + NULL") is UNKNOWN


class TestTypes:
    """SQL-7"""

    @pytest.mark.parametrize("one", [1, Int(1), Short(1), UByte(1), 1.0])
    def test_numbers_of_all_widths_compare_by_value(self, one: Any) -> None:
        assert decide("a = 1", {"a": one}) is True
        assert decide("a < 1.5", {"a": one}) is True
        assert decide("a IN (0, 1)", {"a": one}) is True

    def test_an_integer_that_meets_a_double_becomes_one(self) -> None:
        assert decide("9007199254740993 = 9007199254740992.0") is True
        assert evaluate("7 / 2.0") == 3.5

    @pytest.mark.parametrize(
        ("text", "user"),
        [
            ("a = '1'", {"a": 1}),
            ("a = 1", {"a": "1"}),
            ("a = TRUE", {"a": 1}),
            ("a > FALSE", {"a": True}),
            ("a = b", {"a": Timestamp(0), "b": span(0)}),
            ("a > b", {"a": UUID(int=1), "b": UUID(int=0)}),
            ("a = 1", {"a": [1]}),
            ("a = a", {"a": [1]}),
            ("a LIKE '1'", {"a": 1}),
            ("a LIKE b", {"a": "x", "b": 1}),
            ("a IN ('x', 1)", {"a": "y"}),
            ("a + 'x' = 'x'", {"a": 1}),
            ("a - 'x' = 'x'", {"a": "x"}),
            ("-a = 1", {"a": "1"}),
            ("a + a > b", {"a": Timestamp(0), "b": span(0)}),
        ],
    )
    def test_kinds_that_do_not_go_together_are_an_error(
        self, text: str, user: dict[str, Any]
    ) -> None:
        with pytest.raises(FilterError):
            decide(text, user)

    def test_an_error_names_operator_and_kinds(self) -> None:
        with pytest.raises(FilterError) as caught:
            decide("a < 'x'", {"a": 1})
        assert str(caught.value) == (
            "The operator '<' cannot be applied to operands of type Int64 and String."
        )
        assert caught.value.reason == "FilterException"

    def test_dates_spans_and_guids_compare_with_their_own_kind(self) -> None:
        assert decide("a < b", {"a": Timestamp(1), "b": Timestamp(2)}) is True
        assert decide("a > b", {"a": span(5), "b": span(2)}) is True
        assert decide("a = b", {"a": UUID(int=5), "b": UUID(int=5)}) is True

    def test_the_difference_of_two_dates_is_a_span(self) -> None:
        times = {"a": Timestamp(5000), "b": Timestamp(2000), "three": span(30_000_000)}
        assert evaluate("a - b", times) == TimeSpan(30_000_000)
        assert decide("a - b = three AND b + three = a AND a - three = b", times) is True
        assert decide("three + three > three AND -three < three - three", times) is True

    def test_dates_outside_of_the_calendar_are_an_error(self) -> None:
        with pytest.raises(FilterError, match="years 1 to 9999"):
            decide("a - b > a", {"a": Timestamp(0), "b": span(2**62)})

    def test_a_boolean_compares_with_a_boolean(self) -> None:
        assert decide("a = TRUE", {"a": True}) is True
        assert decide("a <> TRUE", {"a": True}) is False


class TestArithmetic:
    """SQL-9"""

    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("7 / 2", 3),
            ("-7 / 2", -3),
            ("7 / -2", -3),
            ("7 % 3", 1),
            ("-7 % 3", -1),
            ("7 % -3", 1),
            ("-7.5 % 2", -1.5),
            ("1 + 2 * 3 - 4", 3),
            ("'a' + 'b'", "ab"),
            ("+(5)", 5),
        ],
    )
    def test_it_goes_as_in_c_sharp(self, text: str, value: object) -> None:
        assert evaluate(text) == value

    @pytest.mark.parametrize("text", ["1 / 0", "1 % 0", "1.0 / 0", "1 % 0.0"])
    def test_division_by_zero_is_an_error(self, text: str) -> None:
        with pytest.raises(FilterError, match="divide by zero"):
            evaluate(text)

    @pytest.mark.parametrize(
        "text",
        [
            "9223372036854775807 + 1",
            "-9223372036854775808 - 1",
            "9223372036854775807 * 2",
            "-(-9223372036854775808)",
            "-9223372036854775808 / -1",
        ],
    )
    def test_what_leaves_64_bits_is_an_error(self, text: str) -> None:
        with pytest.raises(FilterError, match="overflow"):
            evaluate(text)

    def test_texts_grow_no_longer_than_a_property_may_be(self) -> None:
        """LIM-3"""
        with pytest.raises(FilterError, match="32768"):
            decide("a + a = 'x'", {"a": "x" * 20_000})

    def test_a_long_sum_needs_no_deep_stack(self) -> None:
        assert evaluate("n" + "+n" * 500, {"n": 1}) == 501


class TestTexts:
    def test_texts_compare_by_their_characters_and_case_counts(self) -> None:
        """SQL-10"""
        assert decide("a = 'RED'", {"a": "red"}) is False
        assert decide("a < 'a'", {"a": "Z"}) is True

    def test_like_is_case_sensitive(self) -> None:
        """SQL-8"""
        assert decide("a LIKE 'r%'", {"a": "red"}) is True
        assert decide("a LIKE 'R%'", {"a": "red"}) is False
        assert decide("a NOT LIKE 'R%'", {"a": "red"}) is True

    def test_like_takes_its_pattern_from_anywhere(self) -> None:
        """SQL-8"""
        assert decide("a LIKE p + '%'", {"a": "red", "p": "r"}) is True
        assert decide("a LIKE '!%' ESCAPE e", {"a": "%", "e": "!"}) is True
        assert decide("a LIKE NULL", {"a": "red"}) is None
        assert decide("a LIKE 'x' ESCAPE NULL", {"a": "x"}) is None

    @pytest.mark.parametrize("escape", ["''", "'ab'", "5"])
    def test_the_escape_is_one_character(self, escape: str) -> None:
        """SQL-8"""
        with pytest.raises(FilterError):
            decide(f"a LIKE 'x' ESCAPE {escape}", {"a": "x"})
