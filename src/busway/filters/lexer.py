"""Filter and action texts, cut into tokens: constants, names, keywords and marks (SQL-1).

Every character is looked at once. Positions count from 0 in the text as it was given.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Any

from busway.filters.errors import FilterSyntaxError
from busway.filters.values import INT64_MAX

FILTER_KEYWORDS = frozenset(
    {"AND", "ESCAPE", "EXISTS", "FALSE", "IN", "IS", "LIKE", "NOT", "NULL", "OR", "TRUE"}
)
ACTION_KEYWORDS = FILTER_KEYWORDS | {"REMOVE", "SET"}
"""In an action they begin a statement, wherever the one before ends; in a filter they are names."""

MARKS = ("<>", "!=", ">=", "<=", "=", ">", "<", "+", "-", "*", "/", "%", "(", ")", ",", ".", ";")
"""The longer ones first."""

DIGITS = frozenset("0123456789")


class TokenKind(Enum):
    NAME = "a name"
    """A regular name: it may turn out to be a scope or a function."""
    DELIMITED = "a delimited name"
    KEYWORD = "a keyword"
    INTEGER = "an integer"
    DOUBLE = "a number"
    STRING = "a string"
    PARAMETER = "a parameter"
    MARK = "a mark"
    END = "the end of the text"


@dataclass(frozen=True, slots=True)
class Token:
    kind: TokenKind
    value: Any
    """The keyword in upper case, the mark, the name, or the constant."""
    position: int
    source: str
    """As it was written."""

    def __str__(self) -> str:
        if self.kind is TokenKind.END:
            return str(self.kind.value)
        return self.source if len(self.source) <= 30 else f"{self.source[:27]}..."


def tokenize(source: str, keywords: frozenset[str]) -> list[Token]:
    """All tokens, with one of kind END behind them."""
    return list(_Lexer(source, keywords).tokens())


class _Lexer:
    def __init__(self, source: str, keywords: frozenset[str]) -> None:
        self.source = source
        self.keywords = keywords
        self.position = 0

    def tokens(self) -> list[Token]:
        found = []
        while (start := self._skip_space()) < len(self.source):
            kind, value = self._next(self.source[start])
            found.append(Token(kind, value, start, self.source[start : self.position]))
        found.append(Token(TokenKind.END, None, len(self.source), ""))
        return found

    def _skip_space(self) -> int:
        while self.position < len(self.source) and self.source[self.position].isspace():
            self.position += 1
        return self.position

    def _next(self, first: str) -> tuple[TokenKind, Any]:
        if first.isalpha():
            return self._word()
        if first in DIGITS or (first == "." and self._peek(1) in DIGITS):
            return self._number()
        if first == "'":
            return TokenKind.STRING, self._quoted("'", "a closing '")
        if first == "[":
            return TokenKind.DELIMITED, self._name("]", "a closing ]")
        if first == '"':
            return TokenKind.DELIMITED, self._name('"', 'a closing "')
        if first == "@":
            return TokenKind.PARAMETER, self._parameter()
        for mark in MARKS:
            if self.source.startswith(mark, self.position):
                self.position += len(mark)
                return TokenKind.MARK, mark
        raise FilterSyntaxError(
            self.source, self.position, repr(first), "a name, a constant or an operator"
        )

    def _peek(self, ahead: int = 0) -> str:
        at = self.position + ahead
        return self.source[at] if at < len(self.source) else ""

    def _word(self) -> tuple[TokenKind, Any]:
        word = self._run()
        if word.upper() in self.keywords:
            return TokenKind.KEYWORD, word.upper()
        return TokenKind.NAME, word

    def _run(self) -> str:
        """Letters, digits and underscores from here on: what a regular name may consist of."""
        start = self.position
        while (char := self._peek()) and is_name_char(char):
            self.position += 1
        return self.source[start : self.position]

    def _number(self) -> tuple[TokenKind, Any]:
        start = self.position
        self._digits()
        whole = True
        if self._peek() == ".":
            whole = False
            self.position += 1
            self._digits()
        if self._peek() in ("e", "E"):
            whole = False
            self.position += 1
            if self._peek() in ("+", "-"):
                self.position += 1
            if self._peek() not in DIGITS:
                raise self._error("the digits of an exponent")
            self._digits()
        if self._peek() and is_name_char(self._peek()):
            raise self._error("the end of the number or an operator")
        text = self.source[start : self.position]
        if not whole:
            if math.isinf(float(text)):
                raise FilterSyntaxError(self.source, start, text[:40], "a number within a double")
            return TokenKind.DOUBLE, float(text)
        # The sign of the smallest Int64 is a token of its own, so one more is let through here.
        if len(text.lstrip("0")) > 19 or int(text) > INT64_MAX + 1:
            raise FilterSyntaxError(self.source, start, text[:40], "an integer of 64 bits")
        return TokenKind.INTEGER, int(text)

    def _digits(self) -> None:
        while self._peek() in DIGITS:
            self.position += 1

    def _quoted(self, close: str, expected: str) -> str:
        """What stands up to `close`; `close` doubled stands for itself."""
        parts = []
        self.position += 1
        while True:
            stop = self.source.find(close, self.position)
            if stop < 0:
                self.position = len(self.source)
                raise self._error(expected)
            parts.append(self.source[self.position : stop])
            self.position = stop + 1
            if self._peek() != close:
                return "".join(parts)
            parts.append(close)
            self.position += 1

    def _name(self, close: str, expected: str) -> str:
        start = self.position
        name = self._quoted(close, expected)
        if not name:
            found = self.source[start : self.position]
            raise FilterSyntaxError(self.source, start, found, "a name between the delimiters")
        return name

    def _parameter(self) -> str:
        self.position += 1
        name = self._run()
        if not name:
            raise self._error("the name of a parameter")
        return name

    def _error(self, expected: str) -> FilterSyntaxError:
        found = repr(self._peek()) if self._peek() else TokenKind.END.value
        return FilterSyntaxError(self.source, self.position, found, expected)


def is_name_char(char: str) -> bool:
    return char == "_" or char.isalpha() or char.isdecimal()


def is_regular_name(name: str) -> bool:
    """Whether a name can be written without delimiters wherever a name may stand."""
    return (
        name[:1].isalpha()
        and all(is_name_char(char) for char in name)
        and name.upper() not in ACTION_KEYWORDS
    )
