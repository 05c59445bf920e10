"""JSON as people write it: with `//` and `/* */` comments, and commas after the last item.

Microsoft's emulator is shipped with such a file. What is not JSON is replaced by spaces, line by
line, so that the places which the parser names are those of the file.
"""

from __future__ import annotations

import json
import re
from typing import Any

TOKEN = re.compile(
    r"""
      (?P<text>"(?:\\.|[^"\\\n])*"?)        # a string, or the rest of the line if it has no end
    | (?P<comment>//[^\n]*|/\*.*?\*/)
    | (?P<unclosed>/\*.*)
    | (?P<comma>,)
    | (?P<close>[\]}])
    | (?P<space>\s+)
    | (?P<other>[^"/,\]}\s]+|/)
    """,
    re.VERBOSE | re.DOTALL,
)
BEGINNING = re.compile(r"\s*(?:{|//|/\*)")
NOT_A_LINE_END = re.compile(r"[^\n]")


def looks_like_json(text: str) -> bool:
    """Of the two kinds of files only this one begins with a brace or a comment with slashes."""
    return BEGINNING.match(text) is not None


def plain(text: str) -> str:
    """The same without comments and needless commas, every other character in its place."""
    parts: list[str] = []
    comma: int | None = None
    """Where in `parts` the last comma is, while nothing but space has followed it."""
    for match in TOKEN.finditer(text):
        kind, found = match.lastgroup, match.group()
        if kind == "unclosed":
            raise ValueError(
                f"a comment is not closed: line {text.count(chr(10), 0, match.start()) + 1}"
            )
        if kind == "comment":
            found = NOT_A_LINE_END.sub(" ", found)
        elif kind == "close" and comma is not None:
            parts[comma] = " "
        if kind not in ("comment", "space"):
            comma = len(parts) if kind == "comma" and _ends_an_item(parts) else None
        parts.append(found)
    return "".join(parts)


def _ends_an_item(parts: list[str]) -> bool:
    """A comma with nothing before it is a mistake, and stays one."""
    before = next((part for part in reversed(parts) if part.strip()), "")
    return bool(before) and before[-1] not in ",[{:"


def loads(text: str) -> Any:
    """Raises `ValueError` with the place of what is wrong."""
    return json.loads(plain(text))
