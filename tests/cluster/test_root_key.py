"""The root key: made once, from randomness that is passed in, for its owner's eyes only."""

from __future__ import annotations

import base64
import stat
from pathlib import Path

import pytest

from busway.cluster.root_key import RootKeyError, keep, read, root_keys

RANDOM = bytes(range(32))
KEY = base64.b64encode(RANDOM).decode()


def test_is_made_at_first_start_and_then_kept(tmp_path: Path) -> None:
    file = tmp_path / "root.key"
    assert root_keys(file, RANDOM) == (KEY, None)
    assert root_keys(file, bytes(32)) == (KEY, None)
    assert list(tmp_path.iterdir()) == [file]


def test_can_be_read_by_its_owner_only(tmp_path: Path) -> None:
    file = tmp_path / "root.key"
    root_keys(file, RANDOM)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_file_that_others_can_read_is_closed_to_them(tmp_path: Path) -> None:
    file = tmp_path / "root.key"
    file.write_text("chosen-by-a-person\n")
    file.chmod(0o644)
    assert root_keys(file, RANDOM) == ("chosen-by-a-person", None)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_second_line_is_the_secondary_key(tmp_path: Path) -> None:
    """So that a key can be changed while clients still use the old one."""
    file = tmp_path / "root.key"
    root_keys(file, RANDOM)
    file.write_text(f"a-new-key\n{file.read_text()}")
    assert root_keys(file, RANDOM) == ("a-new-key", KEY)
    assert read(file) == "a-new-key"


@pytest.mark.parametrize("content", ["", "\n", "two words", "a\nb\nc", "a\n\nb"])
def test_a_file_without_a_key_is_not_replaced(tmp_path: Path, content: str) -> None:
    file = tmp_path / "root.key"
    file.write_text(content)
    with pytest.raises(RootKeyError, match="should hold one line"):
        root_keys(file, RANDOM)
    assert file.read_text() == content


def test_needs_enough_randomness(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs 32 random bytes, not 31"):
        root_keys(tmp_path / "root.key", bytes(31))


def test_other_keys_take_its_place(tmp_path: Path) -> None:
    file = tmp_path / "root.key"
    root_keys(file, RANDOM)
    keep(file, "first", "second")
    assert root_keys(file, RANDOM) == ("first", "second")
    keep(file, "third", None)
    assert root_keys(file, RANDOM) == ("third", None)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [file]
