"""Writes `docs/reference/coverage.md`: every rule, and the test files that cite it.

A test cites a rule by its name (`test_ses_4_...` cites SES-4), or in its docstring or a comment.
`tools/rules.toml` is the list of rules, and of those that are open, each with its reason.

    python tools/coverage_page.py           writes the page
    python tools/coverage_page.py --check   says what is wrong, and writes nothing
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RULES = ROOT / "tools" / "rules.toml"
PAGE = ROOT / "docs" / "reference" / "coverage.md"
COMMAND = "python tools/coverage_page.py"

FAMILIES = {
    "P": "Partitioned entities",
    "D": "The protocols inside",
    "MSG": "Messages",
    "LOCK": "Locks",
    "DLV": "Delivery count",
    "TTL": "Time to live",
    "SCH": "Scheduled messages",
    "DEF": "Deferred messages",
    "SES": "Sessions",
    "DUP": "Duplicate detection",
    "DLQ": "Dead letters",
    "FWD": "Forwarding",
    "RUL": "Topics and rules",
    "COR": "Correlation filters",
    "SQL": "SQL filters",
    "ACT": "SQL actions",
    "SEQ": "Sequence numbers",
    "PRT": "Partitions",
    "PEEK": "Peek",
    "TXN": "Transactions",
    "STA": "Status and life of entities",
    "NAM": "Names",
    "LIM": "Limits",
    "DFT": "Defaults",
}
LANGUAGES = (".py", ".js", ".mjs", ".ts", ".java")
INSTALLED = {"build", "node_modules", "target", ".venv", "__pycache__"}
"""Folders in which nothing is ours."""

_NAMES = "|".join(sorted(FAMILIES, key=len, reverse=True))
IN_TEXT = re.compile(rf"\b(?:(?:{_NAMES})-\d+|DFT)\b")
IN_A_NAME = re.compile(rf"\bdef test_(?:dft|({_NAMES})_(\d+))(?=_)", re.IGNORECASE)

HEADER = f"""# Coverage of the rules

Every rule that Busway is built by, with the tests that cite it. Written by `{COMMAND}` from
`tools/rules.toml`; `make test` fails when a rule has neither a test nor a reason.

"""


@dataclass(frozen=True)
class Rules:
    meanings: dict[str, str]
    same: dict[str, list[str]]
    """Rules that say nothing beyond others, whose tests are theirs."""
    open: dict[str, str]
    """Rules without a test, and why."""


def read_rules() -> Rules:
    with RULES.open("rb") as file:
        data = tomllib.load(file)
    return Rules(data["rules"], data["same"], data["open"])


def test_files() -> Iterator[Path]:
    """Python tests, and what tests Busway with other languages' clients."""
    yield from sorted((ROOT / "tests").rglob("test_*.py"))
    for folder, below, names in os.walk(ROOT / "compliance"):
        below[:] = sorted(set(below) - INSTALLED)
        for name in sorted(names):
            if name.endswith(LANGUAGES):
                yield Path(folder, name)


def cited_in(text: str) -> set[str]:
    cited = set(IN_TEXT.findall(text))
    for family, number in IN_A_NAME.findall(text):
        cited.add(f"{family.upper()}-{number}" if family else "DFT")
    return cited


def citations() -> dict[str, list[str]]:
    """By rule: the files that cite it, as paths from the root."""
    found: dict[str, list[str]] = {}
    for path in test_files():
        if path.name == "test_coverage_page.py":
            continue  # it is about rules, and tests none
        for rule in cited_in(path.read_text(encoding="utf-8")):
            found.setdefault(rule, []).append(path.relative_to(ROOT).as_posix())
    return found


def problems(rules: Rules, found: dict[str, list[str]]) -> list[str]:
    """What keeps the page from being true."""
    said = [
        f"{rule} ({meaning}) has no test that cites it, and no reason under [open]"
        for rule, meaning in rules.meanings.items()
        if rule not in found and rule not in rules.open and rule not in rules.same
    ]
    said += [
        f"{rule} has a line under [open], but {files[0]} cites it: take the line out"
        for rule in rules.open
        if (files := found.get(rule))
    ]
    said += [
        f"{rule} is said to be the same as {other}, which no test cites"
        for rule, others in rules.same.items()
        for other in others
        if other not in found
    ]
    said += [
        f"{rule} has a line under [open] or [same], but is no rule"
        for rule in (*rules.open, *rules.same)
        if rule not in rules.meanings
    ]
    said += [
        f"{files[0]} cites {rule}, which is no rule of {RULES.name}"
        for rule, files in sorted(found.items())
        if rule not in rules.meanings
    ]
    return said


def page(rules: Rules, found: dict[str, list[str]]) -> str:
    lines = [HEADER.rstrip("\n"), ""]
    for family, title in FAMILIES.items():
        of_family = [rule for rule in rules.meanings if rule.split("-")[0] == family]
        lines += [f"## {title}", "", "| rule | meaning | tests |", "|---|---|---|"]
        for rule in of_family:
            cell = ", ".join(f"[{_short(path)}](../../{path})" for path in found.get(rule, ()))
            cell = cell or _without_tests(rules, rule)
            lines.append(f"| {rule} | {rules.meanings[rule]} | {cell} |")
        lines.append("")
    return "\n".join(lines)


def _short(path: str) -> str:
    return path.removeprefix("tests/").removesuffix(".py")


def _without_tests(rules: Rules, rule: str) -> str:
    if rule in rules.same:
        return f"as {', '.join(rules.same[rule])}"
    return f"*open*: {rules.open.get(rule, 'no test, and no reason')}"


def main(arguments: list[str]) -> int:
    rules, found = read_rules(), citations()
    wrong = problems(rules, found)
    written = page(rules, found)
    if "--check" in arguments:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != written:
            wrong.append(f"{PAGE.relative_to(ROOT)} is out of date: {COMMAND}")
    else:
        PAGE.write_text(written, encoding="utf-8")
    for each in wrong:
        print(each)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
