"""Mutates a kept corpus of filters and actions and feeds it to the parser and the evaluator.

    python tests/fuzz/fuzz_filters.py --seconds 60 --seed 1

The law: only `FilterSyntaxError` comes out of the parser, at a place within the text; what it read
can be written and read again; and what was read can be asked about any message, with nothing but
`FilterError` and `RuleActionError` coming out. An input that breaks it is kept in
`tests/fuzz/crashes/` and replayed by `tests/filters/test_fuzz_corpus.py` from then on.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from uuid import UUID

HERE = Path(__file__).parent
if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent.parent))

from busway.amqp.codec import scan_message  # noqa: E402
from busway.amqp.types import Described, Int, Symbol, Timestamp  # noqa: E402
from busway.filters.actions import Action, rewrite  # noqa: E402
from busway.filters.errors import (  # noqa: E402
    FilterError,
    FilterSyntaxError,
    RuleActionError,
)
from busway.filters.evaluator import Compiler, ParameterError  # noqa: E402
from busway.filters.facts import MessageFacts  # noqa: E402
from busway.filters.parser import parse_action, parse_filter  # noqa: E402
from busway.filters.syntax import Predicate, Statement  # noqa: E402
from tests.filters.messages import message  # noqa: E402
from tests.filters.writing import write, write_action  # noqa: E402

T = TypeVar("T")

CORPUS = HERE / "corpus" / "filters"
CRASHES = HERE / "crashes"

MARKS = "().,;=<>!+-*/%'\"[]@_019ant"
FRAGMENTS = (
    *MARKS,
    *("1.5", "1e9", "9223372036854775807", "NULL", "TRUE", "\n", "é", "😀"),
    *(" NOT ", " AND ", " OR ", " IN (", " LIKE '", " ESCAPE '", " IS NULL", "EXISTS(", "newid()"),
    *("property(", "p('", "sys.", "user.", "SET ", "REMOVE ", "<>", ">="),
)

MESSAGES = [
    message(),
    message({"a": 1, "n": Int(-7), "t": "text%_", "color": "red"}, subject="a", group_id="s"),
    message({"a": None, "n": 2.5, "t": [1], "color": True}, message_id=UUID(int=5), ttl_ms=5),
    message(
        {"a": Timestamp(5), "n": Described(Symbol("com.microsoft:timespan"), 2**63 - 1), "t": b"x"},
        content_type="json",
    ),
]


def corpus() -> list[str]:
    return [path.read_text() for path in sorted(CORPUS.iterdir())]


def crashes() -> list[Path]:
    return sorted(CRASHES.glob("filter-*.txt"))


def mutate(chance: random.Random, seeds: list[str]) -> str:
    text = chance.choice(seeds)
    for _ in range(chance.choice((0, 1, 1, 1, 2, 2, 3, 5, 8))):
        at = chance.randrange(len(text) + 1)
        match chance.randrange(5):
            case 0:
                text = text[:at] + chance.choice(FRAGMENTS) + text[at:]
            case 1:
                text = text[:at] + text[at + chance.choice((1, 1, 2, 5)) :]
            case 2:
                other = chance.choice(seeds)
                start = chance.randrange(len(other) + 1)
                text = text[:at] + other[start : start + chance.randrange(40)] + text[at:]
            case 3:
                text = (
                    text[:at] + chance.choice(FRAGMENTS) * chance.choice((2, 40, 300)) + text[at:]
                )
            case _:
                text = text[:at] + chr(chance.choice((9, 34, 39, 91, 95, 955, 0x2028))) + text[at:]
    return text[:1100]


def check(text: str) -> None:
    """Raise AssertionError, or whatever escaped, if the text breaks the law."""
    compiler = Compiler(lambda: UUID(int=1), {"p": 1, "q": "x"})
    predicate = read(parse_filter, text)
    if predicate is not None:
        check_same(parse_filter, write(predicate), predicate)
        check_filter(compiler, predicate)
    statements = read(parse_action, text)
    if statements is not None:
        check_same(parse_action, write_action(statements), statements)
        check_action(compiler, statements)


def read(parse: Callable[[str], T], text: str) -> T | None:
    try:
        return parse(text)
    except FilterSyntaxError as error:
        place = error.position
    assert 0 <= place <= len(text)
    return None


def check_same(parse: Callable[[str], T], written: str, tree: T) -> None:
    """The writer's parentheses may be too many or too deep; else the tree is the same."""
    try:
        again = parse(written)
    except FilterSyntaxError as error:
        if "nesting" in error.expected or "at most 1024" in error.expected:
            return
        raise
    assert repr(again) == repr(tree)


def check_filter(compiler: Compiler, predicate: Predicate) -> None:
    try:
        decide = compiler.predicate(predicate)
    except (ParameterError, FilterError):
        return
    for sent in MESSAGES:
        try:
            assert decide(MessageFacts(sent)) in (True, False, None)
        except FilterError:
            continue


def check_action(compiler: Compiler, statements: tuple[Statement, ...]) -> None:
    try:
        action = Action(statements, compiler)
    except (ParameterError, FilterError):
        return
    for sent in MESSAGES:
        try:
            rewritten = rewrite(MessageFacts(sent), action, {"RuleName": "r"})
        except RuleActionError:
            continue
        assert scan_message(rewritten.bare).bare == rewritten.bare


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--seconds", type=float, default=60)
    arguments.add_argument("--seed", type=int, default=1)
    chosen = arguments.parse_args()
    chance = random.Random(chosen.seed)
    seeds = corpus()
    stop = time.monotonic() + chosen.seconds
    count = 0
    while time.monotonic() < stop:
        text = mutate(chance, seeds)
        try:
            check(text)
        except BaseException:
            CRASHES.mkdir(exist_ok=True)
            name = f"filter-{hashlib.sha256(text.encode()).hexdigest()[:12]}.txt"
            (CRASHES / name).write_text(text)
            print(f"after {count} inputs, kept as tests/fuzz/crashes/{name}", file=sys.stderr)
            raise
        count += 1
    print(f"filters: {count} inputs, seed {chosen.seed}: the law holds")


if __name__ == "__main__":
    main()
