"""From tokens to trees: the grammar of filters and actions with its precedence (SQL-1, ACT-1).

One pass by precedence climbing, without going back: `(` may open a predicate or an expression, so
both are read by the same loop, and every operator checks which of the two it was given. Nesting is
bounded, so no text can exhaust the stack.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from busway.filters.errors import FilterSyntaxError
from busway.filters.lexer import (
    ACTION_KEYWORDS,
    FILTER_KEYWORDS,
    Token,
    TokenKind,
    tokenize,
)
from busway.filters.syntax import (
    And,
    Arithmetic,
    ArithmeticOperator,
    Comparator,
    Comparison,
    Constant,
    Exists,
    Expression,
    In,
    IsNull,
    Like,
    NamedProperty,
    NewId,
    Not,
    Or,
    Parameter,
    Predicate,
    Property,
    Remove,
    Scope,
    Set,
    Sign,
    Statement,
)
from busway.filters.values import INT64_MAX
from busway.model.limits import ACTION_MAX_CHARS, ACTION_MAX_STATEMENTS, FILTER_MAX_CHARS

NESTING_MAX = 64
"""Parentheses, NOTs, signs and functions inside each other. Ours; people stay below ten."""

Node = Predicate | Expression

OR, AND, NOT, COMPARISON, SUM, PRODUCT, UNARY = range(7)
"""The levels of precedence, loosest first."""

BINARY_LEVELS: dict[object, int] = {
    "OR": OR,
    "AND": AND,
    "=": COMPARISON,
    "<>": COMPARISON,
    "!=": COMPARISON,
    ">": COMPARISON,
    ">=": COMPARISON,
    "<": COMPARISON,
    "<=": COMPARISON,
    "IS": COMPARISON,
    "IN": COMPARISON,
    "LIKE": COMPARISON,
    "NOT": COMPARISON,  # behind an expression: NOT IN, NOT LIKE
    "BETWEEN": COMPARISON,  # a keyword of selectors only
    "+": SUM,
    "-": SUM,
    "*": PRODUCT,
    "/": PRODUCT,
    "%": PRODUCT,
}

COMPARATORS: dict[str, Comparator] = {
    "=": "=",
    "<>": "<>",
    "!=": "<>",
    ">": ">",
    ">=": ">=",
    "<": "<",
    "<=": "<=",
}
ARITHMETIC: dict[str, ArithmeticOperator] = {"+": "+", "-": "-", "*": "*", "/": "/", "%": "%"}

SCOPES: dict[str, Scope] = {"sys": "sys", "user": "user"}


def parse_filter(source: str) -> Predicate:
    """Raises `FilterSyntaxError` (SQL-11)."""
    check_length(source, FILTER_MAX_CHARS)
    parser = Parser(source, FILTER_KEYWORDS)
    predicate = parser.predicate(OR)
    parser.expect_end("AND, OR or the end of the text")
    return predicate


def parse_action(source: str) -> tuple[Statement, ...]:
    """Raises `FilterSyntaxError` (SQL-11, ACT-1)."""
    check_length(source, ACTION_MAX_CHARS)
    return Parser(source, ACTION_KEYWORDS).statements()


def check_length(source: str, max_chars: int) -> None:
    """LIM-8"""
    if len(source) > max_chars:
        raise FilterSyntaxError(
            source, max_chars, f"{len(source)} characters", f"at most {max_chars}"
        )


class Parser:
    def __init__(self, source: str, keywords: frozenset[str]) -> None:
        self.source = source
        self.tokens = tokenize(source, keywords)
        self.at = 0
        self.nesting = 0

    # Tokens

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def advance(self) -> Token:
        token = self.tokens[self.at]
        if token.kind is not TokenKind.END:
            self.at += 1
        return token

    def sees(self, value: str, kind: TokenKind = TokenKind.MARK, ahead: int = 0) -> bool:
        token = self.tokens[min(self.at + ahead, len(self.tokens) - 1)]
        return token.kind is kind and token.value == value

    def accept(self, value: str, kind: TokenKind = TokenKind.MARK) -> bool:
        found = self.sees(value, kind)
        if found:
            self.at += 1
        return found

    def expect(self, value: str, kind: TokenKind = TokenKind.MARK) -> None:
        if not self.accept(value, kind):
            raise self.error(value)

    def expect_end(self, expected: str) -> None:
        if self.token.kind is not TokenKind.END:
            raise self.error(expected)

    def error(self, expected: str, token: Token | None = None) -> FilterSyntaxError:
        token = token or self.token
        return FilterSyntaxError(self.source, token.position, str(token), expected)

    # Statements (ACT-1)

    def statements(self) -> tuple[Statement, ...]:
        found: list[Statement] = []
        while True:
            if len(found) == ACTION_MAX_STATEMENTS and self.token.kind is not TokenKind.END:
                raise self.error(f"at most {ACTION_MAX_STATEMENTS} statements")
            found.append(self.statement())
            separated = self.accept(";")
            if self.accept(","):
                continue
            if self.token.kind is TokenKind.END:
                return tuple(found)
            if not separated and self.token.kind is not TokenKind.KEYWORD:
                raise self.error("an operator, ';', SET, REMOVE or the end of the text")

    def statement(self) -> Statement:
        if self.accept("SET", TokenKind.KEYWORD):
            target = self.property_name()
            self.expect("=")
            return Set(target, self.expression(SUM))
        if self.accept("REMOVE", TokenKind.KEYWORD):
            return Remove(self.property_name())
        raise self.error("SET or REMOVE")

    # Predicates and expressions

    def predicate(self, level: int) -> Predicate:
        return self.as_predicate(self.node(level))

    def expression(self, level: int) -> Expression:
        start = self.token
        node = self.node(level)
        return self.as_expression(node, start)

    def as_predicate(self, node: Node) -> Predicate:
        if isinstance(node, Predicate):
            return node
        raise self.error("a comparison, IN, LIKE or IS")

    def as_expression(self, node: Node, start: Token) -> Expression:
        if isinstance(node, Predicate):
            raise self.error("a value, not a condition", start)
        return node

    def node(self, level: int) -> Node:
        """Whatever begins here, with all operators behind it that bind no looser than `level`."""
        start = self.token
        node = self.prefix(level)
        while (found := self.binary_level()) is not None and found >= level:
            if found == OR:
                node = Or(self.operands("OR", node, AND))
            elif found == AND:
                node = And(self.operands("AND", node, NOT))
            elif found == COMPARISON:
                node = self.comparison(self.as_expression(node, start))
            else:
                node = self.arithmetic(self.as_expression(node, start), found)
        return node

    def binary_level(self) -> int | None:
        token = self.token
        if token.kind not in (TokenKind.MARK, TokenKind.KEYWORD):
            return None
        return BINARY_LEVELS.get(token.value)

    def operands(self, keyword: str, first: Node, level: int) -> tuple[Predicate, ...]:
        found = [self.as_predicate(first)]
        while self.accept(keyword, TokenKind.KEYWORD):
            found.append(self.predicate(level))
        return tuple(found)

    def arithmetic(self, first: Expression, level: int) -> Arithmetic:
        rest = []
        while self.binary_level() == level:
            operator = ARITHMETIC[self.advance().value]
            rest.append((operator, self.expression(level + 1)))
        return Arithmetic(first, tuple(rest))

    def comparison(self, left: Expression) -> Predicate:
        token = self.advance()
        if token.kind is TokenKind.MARK:
            return Comparison(COMPARATORS[token.value], left, self.expression(SUM))
        if token.value == "IS":
            negated = self.accept("NOT", TokenKind.KEYWORD)
            if not isinstance(left, Property):
                raise self.error("a property before IS", token)
            self.expect("NULL", TokenKind.KEYWORD)
            return IsNull(left, negated)
        negated = token.value == "NOT"
        if negated:
            token = self.advance()
        if token.value == "IN" and token.kind is TokenKind.KEYWORD:
            return In(left, self.options(), negated)
        if token.value == "LIKE" and token.kind is TokenKind.KEYWORD:
            pattern = self.expression(SUM)
            escape = self.expression(SUM) if self.accept("ESCAPE", TokenKind.KEYWORD) else None
            return Like(left, pattern, escape, negated)
        if token.value == "BETWEEN" and token.kind is TokenKind.KEYWORD:
            least = self.expression(SUM)
            self.expect("AND", TokenKind.KEYWORD)
            most = self.expression(SUM)
            between = And((Comparison(">=", left, least), Comparison("<=", left, most)))
            return Not(between) if negated else between
        raise self.error("IN or LIKE", token)

    def options(self) -> tuple[Expression, ...]:
        self.expect("(")
        found = [self.expression(SUM)]
        while self.accept(","):
            found.append(self.expression(SUM))
        if not self.accept(")"):
            raise self.error("an operator, ',' or ')'")
        return tuple(found)

    # What stands before operators

    def prefix(self, level: int) -> Node:
        token = self.token
        if token.kind is TokenKind.KEYWORD and token.value == "NOT" and level <= NOT:
            self.advance()
            return self.nested(token, lambda: Not(self.predicate(NOT)))
        if self.sees("-") and self.tokens[self.at + 1].kind in (
            TokenKind.INTEGER,
            TokenKind.DOUBLE,
        ):
            self.advance()
            return Constant(-self.advance().value)
        if self.sees("+") or self.sees("-"):
            self.advance()
            sign: Literal["+", "-"] = "-" if token.value == "-" else "+"
            return self.nested(token, lambda: Sign(sign, self.expression(UNARY)))
        if self.accept("("):
            return self.nested(token, self.group)
        if self.accept("EXISTS", TokenKind.KEYWORD):
            self.expect("(")
            target = self.property_name()
            self.expect(")")
            return Exists(target)
        return self.primary()

    def nested(self, opening: Token, read: Callable[[], Node]) -> Node:
        self.nesting += 1
        if self.nesting > NESTING_MAX:
            raise self.error(f"at most {NESTING_MAX} levels of nesting", opening)
        node = read()
        self.nesting -= 1
        return node

    def group(self) -> Node:
        node = self.node(OR)
        if not self.accept(")"):
            raise self.error("an operator or ')'")
        return node

    def primary(self) -> Expression:
        token = self.token
        match token.kind:
            case TokenKind.STRING | TokenKind.DOUBLE:
                return Constant(self.advance().value)
            case TokenKind.INTEGER:
                if token.value > INT64_MAX:
                    raise self.error("an integer of 64 bits")
                return Constant(self.advance().value)
            case TokenKind.PARAMETER:
                return Parameter(self.advance().value)
            case TokenKind.NAME if self.sees("(", ahead=1):
                return self.function()
            case TokenKind.NAME | TokenKind.DELIMITED:
                return self.property_name()
            case TokenKind.KEYWORD if token.value in CONSTANT_KEYWORDS:
                return CONSTANT_KEYWORDS[self.advance().value]
        raise self.error("a value")

    def function(self) -> Expression:
        token = self.advance()
        match token.value.lower():
            case "newid":
                self.expect("(")
                self.expect(")")
                return NewId()
            case "property" | "p":
                self.expect("(")
                node = self.nested(token, lambda: NamedProperty(self.expression(SUM)))
                self.expect(")")
                return self.as_expression(node, token)
        raise self.error("one of the functions newid, property and p", token)

    def property_name(self) -> Property:
        token = self.token
        if token.kind not in (TokenKind.NAME, TokenKind.DELIMITED):
            raise self.error("the name of a property")
        self.advance()
        if not self.accept("."):
            return Property("user", token.value)
        scope = SCOPES.get(token.value.lower()) if token.kind is TokenKind.NAME else None
        if scope is None:
            raise self.error("the scope sys or user before '.'", token)
        if self.token.kind not in (TokenKind.NAME, TokenKind.DELIMITED):
            raise self.error(f"the name of a property after '{scope}.'")
        return Property(scope, self.advance().value)


CONSTANT_KEYWORDS = {"TRUE": Constant(True), "FALSE": Constant(False), "NULL": Constant(None)}
