"""Keys, partitions and placement (P-17 to P-22, D-14, D-15)."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway.model.errors import PARTITION_KEY_MISMATCH, PARTITION_KEY_MISSING, BusError
from busway.model.partitioning import (
    MessageId,
    message_id_text,
    partition_key,
    partition_of_key,
    place,
    stable_hash,
)

FROZEN = [
    # Checked with `b2sum`. A change here would lose the messages of every session.
    ("", 0x786A02F742015903, 3, 4),
    ("a", 0x333FCB4EE1AA7C11, 1, 1),
    ("orders", 0x9D76F3171970F186, 6, 3),
    ("customer-42", 0x8A71DBB2E377CFA9, 9, 0),
    ("Zürich", 0xC6D7D8B21D02F72E, 14, 1),
    ("漢字", 0xE2D52B78523151B1, 1, 1),
    ("00000000-0000-0000-0000-000000000001", 0xADD51726F4689FF1, 1, 0),
]


@pytest.mark.parametrize(("key", "digest", "of_16", "of_5"), FROZEN)
def test_a_key_finds_its_partition_for_ever(key: str, digest: int, of_16: int, of_5: int) -> None:
    assert stable_hash(key) == digest
    assert partition_of_key(key, 16) == of_16
    assert partition_of_key(key, 5) == of_5


@given(st.text(), st.integers(1, 32))
def test_every_key_has_a_partition(key: str, partitions: int) -> None:
    assert 0 <= partition_of_key(key, partitions) < partitions


def test_a_lone_surrogate_is_a_key_too() -> None:
    assert 0 <= partition_of_key("\ud800", 16) < 16


def test_keys_spread_evenly() -> None:
    counts = Counter(partition_of_key(f"customer-{i}", 16) for i in range(16_000))
    assert len(counts) == 16
    assert all(850 < count < 1150 for count in counts.values())


@pytest.mark.parametrize(
    ("message_id", "text"),
    [
        ("Order-1", "Order-1"),
        (UUID("{ABCDEF01-2345-6789-ABCD-EF0123456789}"), "abcdef01-2345-6789-abcd-ef0123456789"),
        (2**64 - 1, "18446744073709551615"),
        (b"\x00\xff", "00ff"),
    ],
)
def test_a_message_id_of_any_type_has_one_text(message_id: MessageId, text: str) -> None:
    assert message_id_text(message_id) == text


class TestTheKeyOfAMessage:
    def test_is_its_session_id(self) -> None:
        """P-18."""
        assert partition_key("s", None, "m", duplicate_detection=True) == "s"

    def test_is_its_partition_key_if_it_has_no_session(self) -> None:
        """P-19."""
        assert partition_key(None, "k", "m", duplicate_detection=True) == "k"

    def test_may_be_given_twice_if_it_is_the_same(self) -> None:
        """P-20."""
        assert partition_key("k", "k", None, duplicate_detection=False) == "k"

    def test_must_not_be_given_twice_differently(self) -> None:
        """P-20."""
        with pytest.raises(BusError, match=r"SessionId 's' .* PartitionKey 'k'") as raised:
            partition_key("s", "k", None, duplicate_detection=False)
        assert raised.value.kind is PARTITION_KEY_MISMATCH

    def test_is_its_message_id_under_duplicate_detection(self) -> None:
        """P-21."""
        assert partition_key(None, None, "m", duplicate_detection=True) == "m"
        assert partition_key(None, "", 7, duplicate_detection=True) == "7"

    def test_is_never_its_message_id_otherwise(self) -> None:
        """P-21, P-22: the service chooses."""
        assert partition_key(None, None, "m", duplicate_detection=False) is None

    @pytest.mark.parametrize("message_id", [None, "", b""])
    def test_must_be_there_under_duplicate_detection(self, message_id: MessageId | None) -> None:
        """P-21."""
        with pytest.raises(BusError, match="must have either PartitionKey or MessageId") as raised:
            partition_key(None, None, message_id, duplicate_detection=True)
        assert raised.value.kind is PARTITION_KEY_MISSING

    def test_of_an_empty_session_keeps_that_session_together(self) -> None:
        assert partition_key("", None, None, duplicate_detection=False) == ""


class TestPlacement:
    def test_is_frozen(self) -> None:
        assert place("orders", ["A", "B", "C"], 4) == ("A", "B", "C", "A")

    def test_does_not_depend_on_the_case_of_the_name(self) -> None:
        assert place("Orders", ["A", "B"], 16) == place("orders", ["A", "B"], 16)

    @given(st.text(), st.integers(1, 9), st.integers(1, 32))
    def test_spreads_partitions_evenly(self, entity: str, stores: int, partitions: int) -> None:
        """P-3."""
        counts = Counter(place(entity, [str(i) for i in range(stores)], partitions))
        assert sum(counts.values()) == partitions
        assert max(counts.values()) - min(counts.values()) <= 1
        assert len(counts) == min(stores, partitions)

    def test_of_conventional_queues_uses_all_stores(self) -> None:
        """P-2: each in one store, but not all in the same."""
        used = {place(f"queue-{i}", ["A", "B", "C"], 1) for i in range(30)}
        assert used == {("A",), ("B",), ("C",)}
