"""How commands that manage show what they found, and how they ask before they destroy."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

from busway.remote.console import FAILED, USAGE_ERROR, coloured, end

Json = Annotated[bool, typer.Option("--json", help="For programs: JSON, and nothing else.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def tell(value: Any) -> None:
    """One JSON object."""
    print(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def tell_line(value: Any) -> None:
    """One JSON object in one line."""
    print(json.dumps(value, ensure_ascii=False, default=str), flush=True)


def tabulate(head: Sequence[str], rows: Iterable[Sequence[Any]], right: Sequence[str] = ()) -> None:
    """A table with aligned columns; those named in `right` are numbers."""
    from busway.remote.drawing import Cell, table

    texts = [[_text(each) for each in row] for row in rows]
    places = [head.index(name) for name in right]
    titles = list(head)
    for place in places:
        width = max([len(titles[place]), *(len(row[place]) for row in texts)])
        titles[place] = titles[place].rjust(width)
        for row in texts:
            row[place] = row[place].rjust(width)
    cells: list[list[Cell]] = [[(text, "") for text in row] for row in texts]
    for line in table(titles, cells, coloured()):
        print(line)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return "-" if value is None else str(value)


def facts(pairs: Iterable[tuple[str, Any]]) -> None:
    """Names on the left, values in a column."""
    known = [(name, _text(value)) for name, value in pairs]
    width = max((len(name) for name, _ in known), default=0)
    for name, value in known:
        print(f"{name.ljust(width)}  {value}")


def size(count: int | None) -> str:
    """Bytes as people say them."""
    if count is None:
        return "-"
    amount = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if amount < 1024 or unit == "GB":
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    raise AssertionError("unreachable")


def span(text: str | None) -> str:
    """`PT1M30S` as `1m30s`, the way people write it."""
    return "unlimited" if text is None else text.removeprefix("P").replace("T", "").lower()


def instant(text: str | None) -> str:
    """A time of the service to the second; the year 1 means never."""
    if text is None or text.startswith("0001"):
        return "-"
    return text[:19].replace("T", " ") + "Z"


def confirm(question: str, yes: bool) -> None:
    """Go on only if the user wants it; who cannot be asked must have said so."""
    if yes:
        return
    if not sys.stdin.isatty():
        end(USAGE_ERROR, f"{question} Nobody is there to be asked: say --yes.")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        end(FAILED, "Nothing was done.")
