"""The kept inputs of the fuzzer, and a short run of it. `make fuzz` runs it for longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from busway.amqp import _pure
from tests.fuzz import fuzz_codec

CORPUS = sorted(fuzz_codec.CORPUS.iterdir())


@pytest.mark.parametrize("path", [*CORPUS, *fuzz_codec.crashes()], ids=lambda path: path.stem)
def test_a_kept_input_obeys_the_law(path: Path) -> None:
    fuzz_codec.check_memory(path.read_bytes())


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_a_seed_of_the_corpus_is_sound_so_that_its_mutants_are_nearly_so(path: Path) -> None:
    data = path.read_bytes()
    kind = path.stem.split("-")[0]
    if kind == "value":
        assert _pure.decode_value(data)[1] == len(data)
    elif kind in ("frame", "frames"):
        frames, after = _pure.decode_frames(data, 0, fuzz_codec.MAX_FRAME_SIZE)
        assert frames
        assert after == len(data)
    else:
        _pure.scan_message(data)


@pytest.mark.parametrize("size", [100, 10_000])
@pytest.mark.parametrize(
    "bomb",
    [b"\x45", b"\x40", b"\xe0\x02\x01\x40", b"\xe0\x02\xff\x40", b"\xc1\x01\x00", b"\x43"],
    ids=["lists", "nulls", "arrays", "arrays of nulls", "maps", "numbers"],
)
def test_memory_stays_within_a_multiple_of_the_input(bomb: bytes, size: int) -> None:
    items = bomb * size
    fuzz_codec.check_memory(
        b"\xd0" + (len(items) + 4).to_bytes(4, "big") + size.to_bytes(4, "big") + items
    )


def test_a_short_run_finds_nothing_new() -> None:
    for _ in fuzz_codec.run(seconds=3, seed=20261115):
        pass
