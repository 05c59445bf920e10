"""What the grammar takes and refuses, and how a refusal reads (SQL-1, SQL-11, ACT-1, LIM-8)."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from busway.filters.errors import FilterSyntaxError
from busway.filters.parser import NESTING_MAX, parse_action, parse_filter
from busway.filters.syntax import (
    And,
    Arithmetic,
    Comparison,
    Constant,
    Exists,
    In,
    IsNull,
    Like,
    NamedProperty,
    NewId,
    Not,
    Or,
    Parameter,
    Property,
    Remove,
    Set,
    Sign,
)

A, B, C = (Property("user", name) for name in "abc")
ONE = Constant(1)

FRAGMENTS = re.findall(
    r"\S+",
    """a sys. user. . = <> >= ( ( ) , + - * / % NOT AND OR IN LIKE ESCAPE IS NULL EXISTS
    'x' 1 1.5 @p [a] "b" newid() property( p( TRUE ; SET REMOVE ' ]""",
)


def is_one(name: str) -> Comparison:
    return Comparison("=", Property("user", name), ONE)


class TestPrecedence:
    """SQL-1: unary, * / %, + -, comparison/IN/LIKE/IS, NOT, AND, OR."""

    def test_and_binds_tighter_than_or(self) -> None:
        assert parse_filter("a=1 OR b=1 AND c=1") == Or(
            (is_one("a"), And((is_one("b"), is_one("c"))))
        )

    def test_not_binds_tighter_than_and(self) -> None:
        assert parse_filter("NOT a=1 AND b=1") == And((Not(is_one("a")), is_one("b")))

    def test_not_takes_a_whole_comparison(self) -> None:
        assert parse_filter("NOT a = 1") == Not(is_one("a"))

    def test_parentheses_change_it(self) -> None:
        assert parse_filter("(a=1 OR b=1) AND c=1") == And(
            (Or((is_one("a"), is_one("b"))), is_one("c"))
        )

    def test_products_bind_tighter_than_sums(self) -> None:
        assert parse_filter("a + b * c = 1") == Comparison(
            "=", Arithmetic(A, (("+", Arithmetic(B, (("*", C),))),)), ONE
        )

    def test_operators_of_one_level_go_from_left_to_right(self) -> None:
        assert parse_filter("a - b + c = 1") == Comparison(
            "=", Arithmetic(A, (("-", B), ("+", C))), ONE
        )

    def test_a_sign_binds_tightest(self) -> None:
        assert parse_filter("-a * b = 1") == Comparison(
            "=", Arithmetic(Sign("-", A), (("*", B),)), ONE
        )

    def test_arithmetic_stands_on_both_sides_of_a_comparison(self) -> None:
        assert parse_filter("a + 1 > b - 1") == Comparison(
            ">", Arithmetic(A, (("+", ONE),)), Arithmetic(B, (("-", ONE),))
        )


class TestForms:
    @pytest.mark.parametrize(
        ("text", "tree"),
        [
            ("a != 1", Comparison("<>", A, ONE)),
            ("a IS NULL", IsNull(A)),
            ("sys.Label is not null", IsNull(Property("sys", "Label"), negated=True)),
            ("a IN (1)", In(A, (ONE,))),
            ("a not in (1, b, 'x')", In(A, (ONE, B, Constant("x")), negated=True)),
            ("a LIKE 'x%'", Like(A, Constant("x%"))),
            ("a NOT LIKE b ESCAPE '!'", Like(A, B, Constant("!"), negated=True)),
            ("EXISTS (user.a)", Exists(A)),
            ("newid() = a", Comparison("=", NewId(), A)),
            ("property('a') = 1", Comparison("=", NamedProperty(Constant("a")), ONE)),
            ("p(a + b) = 1", Comparison("=", NamedProperty(Arithmetic(A, (("+", B),))), ONE)),
            ("p = property", Comparison("=", Property("user", "p"), Property("user", "property"))),
            ("a = @Limit", Comparison("=", A, Parameter("Limit"))),
            ("((a)) = (1)", Comparison("=", A, ONE)),
            ("sys = user", Comparison("=", Property("user", "sys"), Property("user", "user"))),
            ("USER.a = 1", Comparison("=", A, ONE)),
            ("set = 1", Comparison("=", Property("user", "set"), ONE)),
        ],
    )
    def test_every_form_of_the_grammar_is_read(self, text: str, tree: object) -> None:
        assert parse_filter(text) == tree

    @pytest.mark.parametrize(
        ("text", "name"),
        [
            ("größe_2", "größe_2"),
            ("[my-name]", "my-name"),
            ("[a ]] b]", "a ] b"),
            ('"say ""hi"""', 'say "hi"'),
            ("user.[and]", "and"),
            ('"sys.Label"', "sys.Label"),
        ],
    )
    def test_names_are_regular_delimited_or_quoted(self, text: str, name: str) -> None:
        assert parse_filter(f"{text} = 1") == Comparison("=", Property("user", name), ONE)

    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("12", 12),
            ("9223372036854775807", 2**63 - 1),
            ("-9223372036854775808", -(2**63)),
            ("1.5", 1.5),
            ("1.5E-2", 0.015),
            ("2e3", 2000.0),
            ("TRUE", True),
            ("false", False),
            ("Null", None),
            ("'it''s'", "it's"),
            ("''", ""),
        ],
    )
    def test_constants_have_their_types(self, text: str, value: object) -> None:
        tree = parse_filter(f"a = {text}")
        assert isinstance(tree, Comparison)
        assert isinstance(tree.right, Constant)
        assert (tree.right.value, type(tree.right.value)) == (value, type(value))


class TestRefusals:
    """SQL-11: a refusal names the column, what was found there and what was expected."""

    @pytest.mark.parametrize(
        ("text", "column", "found", "expected"),
        [
            ("", 1, "the end of the text", "a value"),
            ("a =", 4, "the end of the text", "a value"),
            ("a = 1 b", 7, "b", "AND, OR or the end of the text"),
            ("a", 2, "the end of the text", "a comparison, IN, LIKE or IS"),
            ("(a = 1", 7, "the end of the text", "an operator or ')'"),
            ("a = (b = 1)", 5, "(", "a value, not a condition"),
            ("a AND b = 1", 3, "AND", "a comparison, IN, LIKE or IS"),
            ("a IS 5", 6, "5", "NULL"),
            ("1 IS NULL", 3, "IS", "a property before IS"),
            ("a NOT 5", 7, "5", "IN or LIKE"),
            ("a IN 5", 6, "5", "("),
            ("a IN ()", 7, ")", "a value"),
            ("a IN (1 2)", 9, "2", "an operator, ',' or ')'"),
            ("foo(1) = 1", 1, "foo", "one of the functions newid, property and p"),
            ("x.a = 1", 1, "x", "the scope sys or user before '.'"),
            ("sys. = 1", 6, "=", "the name of a property after 'sys.'"),
            ("EXISTS (1)", 9, "1", "the name of a property"),
            ("a = 'x", 7, "the end of the text", "a closing '"),
            ("[] = 1", 1, "[]", "a name between the delimiters"),
            ("a = 9223372036854775808", 5, "9223372036854775808", "an integer of 64 bits"),
            ("a = 1e999", 5, "1e999", "a number within a double"),
            ("1x = 1", 2, "'x'", "the end of the number or an operator"),
            ("a = 1e", 7, "the end of the text", "the digits of an exponent"),
            ("a ? 1", 3, "'?'", "a name, a constant or an operator"),
            ("a = @", 6, "the end of the text", "the name of a parameter"),
            ("_a = 1", 1, "'_'", "a name, a constant or an operator"),
        ],
    )
    def test_a_refusal_names_the_place(
        self, text: str, column: int, found: str, expected: str
    ) -> None:
        with pytest.raises(FilterSyntaxError) as caught:
            parse_filter(text)
        error = caught.value
        assert (error.column, error.found, error.expected) == (column, found, expected)

    def test_a_refusal_points_at_the_place(self) -> None:
        with pytest.raises(FilterSyntaxError) as caught:
            parse_filter("color = 'red' AND size >")
        assert str(caught.value) == (
            "Column 25: found the end of the text, expected a value.\n"
            "  color = 'red' AND size >\n"
            "                          ^"
        )

    def test_of_a_long_text_only_the_neighbourhood_is_shown(self) -> None:
        text = "a = 1 AND " * 50 + "? = 1" + " AND a = 1" * 30
        with pytest.raises(FilterSyntaxError) as caught:
            parse_filter(text)
        _, shown, caret = str(caught.value).split("\n")
        assert shown[caret.index("^")] == "?"
        assert len(shown) < 100

    def test_a_filter_has_at_most_1024_characters(self) -> None:
        """LIM-8"""
        assert parse_filter("a = '" + "x" * 1018 + "'")
        with pytest.raises(FilterSyntaxError, match="1025 characters, expected at most 1024"):
            parse_filter("a = '" + "x" * 1019 + "'")

    @pytest.mark.parametrize("opening", ["(", "NOT ", "-", "+", "p(", "a IN (", "NOT("])
    def test_deep_nesting_is_refused_before_it_exhausts_anything(self, opening: str) -> None:
        with pytest.raises(FilterSyntaxError):
            parse_filter((opening * 1024)[:1024])

    def test_nesting_is_allowed_as_deep_as_anyone_needs(self) -> None:
        depth = NESTING_MAX
        assert parse_filter("(" * depth + "a = 1" + ")" * depth) == is_one("a")

    @pytest.mark.parametrize(
        "text", ["a=1" + " OR a=1" * 140, "1" + "+1" * 500 + "=a", "a IN (1" + ",1" * 500 + ")"]
    )
    def test_long_runs_are_no_nesting(self, text: str) -> None:
        assert parse_filter(text)

    @settings(max_examples=500, deadline=None)
    @given(
        st.one_of(
            st.text(max_size=60),
            st.lists(
                st.sampled_from(FRAGMENTS),
                max_size=12,
            ).map(" ".join),
        )
    )
    def test_whatever_is_written_only_syntax_errors_come_out(self, text: str) -> None:
        for parse in (parse_filter, parse_action):
            try:
                parse(text)
            except FilterSyntaxError as error:
                assert 0 <= error.position <= len(text)  # noqa: PT017


class TestActions:
    """ACT-1"""

    TWO = (Set(A, ONE), Remove(B))

    @pytest.mark.parametrize(
        "text",
        [
            "SET a = 1; REMOVE b",
            "SET a = 1; REMOVE b;",
            "set a = 1, remove b",
            "SET a = 1 REMOVE b",
            "SET user.a = 1;, REMOVE [b]",
        ],
    )
    def test_statements_are_separated_by_semicolons_commas_or_space(self, text: str) -> None:
        assert parse_action(text) == self.TWO

    @pytest.mark.parametrize(
        ("text", "column", "expected"),
        [
            ("", 1, "SET or REMOVE"),
            ("SET a = 1,", 11, "SET or REMOVE"),
            ("SET a = 1;;", 11, "SET or REMOVE"),
            ("a = 1", 1, "SET or REMOVE"),
            ("SET a 1", 7, "="),
            ("SET a = b = 1", 11, "an operator, ';', SET, REMOVE or the end of the text"),
            ("SET a = (b = 1)", 9, "a value, not a condition"),
            ("SET set = 1", 5, "the name of a property"),
            ("REMOVE 5", 8, "the name of a property"),
        ],
    )
    def test_a_refusal_names_the_place(self, text: str, column: int, expected: str) -> None:
        with pytest.raises(FilterSyntaxError) as caught:
            parse_action(text)
        assert (caught.value.column, caught.value.expected) == (column, expected)

    def test_an_action_has_at_most_32_statements(self) -> None:
        """LIM-8"""
        assert len(parse_action("REMOVE a;" * 32)) == 32
        with pytest.raises(FilterSyntaxError, match="at most 32 statements"):
            parse_action("REMOVE a;" * 33)

    def test_an_action_has_at_most_1024_characters(self) -> None:
        with pytest.raises(FilterSyntaxError, match="at most 1024"):
            parse_action("SET a = '" + "x" * 1024 + "'")
