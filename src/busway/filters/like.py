"""LIKE in linear time (SQL-8): `%` is any run of characters, `_` any one, the rest is itself.

A pattern is cut at its `%` into pieces. The first and the last are anchored; each piece between
them is looked for from where the one before ended, and its leftmost place is as good as any. So the
text is passed once. A piece without `_` is found by `str.find`, one with `_` by the shift-and
method, whose cost per character does not depend on what was seen before: no text and no pattern
makes it go back.
"""

from __future__ import annotations

from collections.abc import Callable

ANY_ONE = None
"""The place of a `_` in a piece."""

Piece = tuple[str | None, ...]
Matcher = Callable[[str], bool]


class PatternError(ValueError):
    """An escape character that is none, or that escapes nothing."""


def compile_like(pattern: str, escape: str | None = None) -> Matcher:
    """A function that says whether a text is like the pattern."""
    pieces = _pieces(pattern, escape)
    if len(pieces) == 1:
        return _whole(pieces[0])
    first, *middle, last = pieces
    starts, ends = _anchored(first), _anchored(last)
    head, tail = len(first), len(last)
    # Two % in a row have nothing between them.
    searches = [(_searcher(piece), len(piece)) for piece in middle if piece]
    shortest = head + tail + sum(length for _, length in searches)

    def matches(text: str) -> bool:
        if len(text) < shortest or not starts(text, 0) or not ends(text, len(text) - tail):
            return False
        at, stop = head, len(text) - tail
        for search, length in searches:
            found = search(text, at, stop)
            if found < 0:
                return False
            at = found + length
        return True

    return matches


def _pieces(pattern: str, escape: str | None) -> list[Piece]:
    if escape is not None and len(escape) != 1:
        raise PatternError("ESCAPE takes a string of one character")
    pieces: list[list[str | None]] = [[]]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            literal = next(characters, None)
            if literal is None:
                raise PatternError("the pattern ends with its escape character")
            pieces[-1].append(literal)
        elif character == "%":
            pieces.append([])
        else:
            pieces[-1].append(ANY_ONE if character == "_" else character)
    return [tuple(piece) for piece in pieces]


def _literal(piece: Piece) -> str | None:
    """The piece as a string, if it has no `_`."""
    characters = [character for character in piece if character is not None]
    return "".join(characters) if len(characters) == len(piece) else None


def _whole(piece: Piece) -> Matcher:
    literal = _literal(piece)
    if literal is not None:
        return literal.__eq__
    fits = _anchored(piece)
    return lambda text: len(text) == len(piece) and fits(text, 0)


def _anchored(piece: Piece) -> Callable[[str, int], bool]:
    """Whether the piece stands at a place of a text that is long enough."""
    literal = _literal(piece)
    if literal is not None:
        return lambda text, at: text.startswith(literal, at)
    fixed = [(place, character) for place, character in enumerate(piece) if character is not None]
    return lambda text, at: all(text[at + place] == character for place, character in fixed)


def _searcher(piece: Piece) -> Callable[[str, int, int], int]:
    """The leftmost place of the piece between two places of a text, or -1."""
    literal = _literal(piece)
    if literal is not None:
        return lambda text, start, stop: text.find(literal, start, stop)
    anywhere = sum(1 << place for place, character in enumerate(piece) if character is None)
    masks: dict[str, int] = {}
    for place, character in enumerate(piece):
        if character is not None:
            masks[character] = masks.get(character, anywhere) | 1 << place
    complete = 1 << (len(piece) - 1)

    def search(text: str, start: int, stop: int) -> int:
        # Bit i of `alive`: the last i + 1 characters are like the first i + 1 of the piece.
        alive = 0
        for at in range(start, stop):
            alive = (alive << 1 | 1) & masks.get(text[at], anywhere)
            if alive & complete:
                return at - len(piece) + 1
        return -1

    return search
