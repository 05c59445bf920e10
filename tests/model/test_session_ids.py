"""Which session ids are the same (SES-13)."""

from __future__ import annotations

import sys
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway.model.entities import Queue
from busway.model.partitioning import partition_of_key
from busway.model.session_ids import fold, session_key


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("SessionId", "sessionid"),
        ("ÄÖÜ-é", "äöü-É"),
        ("ΣΊΣΥΦΟΣ", "σίσυφος"),  # each sigma is one, also at the end of a word
        ("ᾀ", "ᾈ"),
        ("ǆ", "ǅ"),
        ("\U00010428", "\U00010400"),
    ],
)
def test_ids_that_differ_only_in_case_are_one(one: str, other: str) -> None:
    assert fold(one) == fold(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("straße", "STRASSE"),
        ("\u0131", "I"),  # without a dot
        ("\u212a", "K"),  # of Kelvin
        ("\u017f", "S"),  # a long one
        ("é", "e\u0301"),
        ("a ", "a"),
    ],
)
def test_others_are_not(one: str, other: str) -> None:
    """As `OrdinalIgnoreCase` has it: no language, no length, no context."""
    assert fold(one) != fold(other)


@given(st.text())
def test_folding_again_changes_nothing(text: str) -> None:
    assert fold(fold(text)) == fold(text)
    assert len(fold(text)) == len(text)


def test_every_character_folds_as_it_always_did() -> None:
    """D-15: a partition follows from it, so it is the same in every version of Python."""
    folded = ((chr(code), fold(chr(code))) for code in range(sys.maxunicode + 1))
    pairs = [f"{ord(each):x}>{ord(other):x}" for each, other in folded if each != other]
    assert (len(pairs), sha256(" ".join(pairs).encode()).hexdigest()[:16]) == FROZEN


FROZEN = (756, "608dfa53249bbef1")


def test_an_entity_that_is_older_than_the_rule_tells_them_apart() -> None:
    old, new = Queue(path="q"), Queue(path="q", folds_session_ids=True)
    assert session_key(old, "Order-7") == "Order-7"
    assert session_key(new, "Order-7") == "order-7"
    assert partition_of_key(session_key(old, "Order-7"), 16) == 12
    assert partition_of_key(session_key(new, "Order-7"), 16) == 14
