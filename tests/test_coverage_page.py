"""Every rule has a test that cites it, or a reason; and the page that says so is up to date."""

from __future__ import annotations

import pytest

from tools import coverage_page


@pytest.fixture(scope="module")
def rules() -> coverage_page.Rules:
    return coverage_page.read_rules()


@pytest.fixture(scope="module")
def found() -> dict[str, list[str]]:
    return coverage_page.citations()


def test_every_rule_has_a_test_or_a_reason(
    rules: coverage_page.Rules, found: dict[str, list[str]]
) -> None:
    assert coverage_page.problems(rules, found) == []


def test_the_page_is_up_to_date(rules: coverage_page.Rules, found: dict[str, list[str]]) -> None:
    written = coverage_page.PAGE.read_text(encoding="utf-8")
    assert written == coverage_page.page(rules, found), f"run: {coverage_page.COMMAND}"


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        ("def test_ses_4_order(): ...", {"SES-4"}),
        ("def test_d_27_once(): ...", {"D-27"}),
        ('"""LOCK-1, LOCK-2: and P-3."""', {"LOCK-1", "LOCK-2", "P-3"}),
        ("# DFT", {"DFT"}),
        ("def test_dft_of_a_queue(): ...", {"DFT"}),
        ("def test_p_value(): ...", set()),
        ("UTF-8, HTTP-2, XP-3", set()),
    ],
)
def test_a_citation_is_a_name_or_an_id(text: str, cited: set[str]) -> None:
    assert coverage_page.cited_in(text) == cited


def test_a_rule_without_test_and_reason_is_said() -> None:
    rules = coverage_page.Rules({"P-1": "first", "P-2": "second", "P-3": "third"}, {}, {})
    found = {"P-1": ["tests/test_a.py"], "P-9": ["tests/test_a.py"]}
    rules.open["P-3"] = "later"
    first, second = coverage_page.problems(rules, found)
    assert first.startswith("P-2 (second) has no test")
    assert "P-9" in second


def test_a_reason_that_is_no_longer_needed_is_said() -> None:
    rules = coverage_page.Rules({"P-1": "first"}, {}, {"P-1": "later"})
    (said,) = coverage_page.problems(rules, {"P-1": ["tests/test_a.py"]})
    assert "take the line out" in said
