"""Mutates a kept corpus and feeds it to both codecs.

    python tests/fuzz/fuzz_codec.py --seconds 60 --seed 1

The law: only `ProtocolError` comes out, memory stays within a multiple of the input, both codecs
agree, and what was read can be written and read again. An input that breaks it is kept in
`tests/fuzz/crashes/` and replayed by `test_corpus.py` from then on.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from busway.amqp import _pure
from busway.amqp.errors import ProtocolError
from busway.amqp.performatives import Composite
from busway.amqp.sections import (
    Sections,
    apply_changes,
    drop_body,
    merge_changes,
    read_application_properties,
    read_properties,
)

HERE = Path(__file__).parent
CORPUS = HERE / "corpus" / "codec"
CRASHES = HERE / "crashes"

MAX_FRAME_SIZE = 65536
MEMORY_PER_INPUT_BYTE = 300
"""An empty list costs one byte on the wire and 56 in Python, its place in a list 8 more."""
MEMORY_FLOOR_BYTES = 256 * 1024

CODECS: list[ModuleType] = [_pure]
try:
    from busway.amqp import _fast

    CODECS.append(_fast)
except ImportError:
    pass

INTERESTING = (0x00, 0x01, 0x40, 0x43, 0x45, 0x53, 0x70, 0x7F, 0x80, 0x98, 0xA0, 0xA1, 0xA3)
INTERESTING += (0xB0, 0xB1, 0xB3, 0xC0, 0xC1, 0xD0, 0xD1, 0xE0, 0xF0, 0xFE, 0xFF)


def corpus() -> list[bytes]:
    return [path.read_bytes() for path in sorted(CORPUS.iterdir())]


def crashes() -> list[Path]:
    return sorted(CRASHES.glob("*.bin"))


def mutate(chance: random.Random, seeds: list[bytes]) -> bytes:
    data = bytearray(chance.choice(seeds))
    for _ in range(chance.choice((0, 1, 1, 1, 2, 2, 3, 5, 8, 20))):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(8):
            case 0 if data:
                data[at % len(data)] ^= 1 << chance.randrange(8)
            case 1 if data:
                data[at % len(data)] = chance.choice(INTERESTING)
            case 2:
                data[at:at] = bytes((chance.choice(INTERESTING),)) * chance.choice((1, 1, 4, 64))
            case 3:
                del data[at : at + chance.choice((1, 1, 2, 4, 16))]
            case 4:
                del data[at:]
            case 5:
                other = chance.choice(seeds)
                start = chance.randrange(len(other) + 1)
                data[at:at] = other[start : start + chance.randrange(64)]
            case 6:
                data[at : at + 4] = chance.choice(
                    (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\0")
                )
            case _ if data:
                data[at % len(data)] = chance.randrange(256)
    return bytes(data)


def observe(action: Callable[[], Any]) -> Any:
    """What came out, as something that can be compared; NaN differs from itself, its text not."""
    try:
        return repr(_typed(action()))
    except ProtocolError:
        return ProtocolError


def _typed(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value).__name__, [_typed(item) for item in value]
    if isinstance(value, dict):
        return "map", [(_typed(key), _typed(item)) for key, item in value.items()]
    if isinstance(value, Composite | Sections):
        names = value.__dataclass_fields__  # type: ignore[union-attr]
        return type(value).__name__, [_typed(getattr(value, name)) for name in names]
    return type(value).__name__, repr(value)


def check(data: bytes) -> None:
    """Raise AssertionError, or whatever escaped, if `data` breaks the law."""
    for name, arguments in (
        ("decode_value", (data,)),
        ("decode_composite", (data,)),
        ("decode_frames", (data, 0, MAX_FRAME_SIZE)),
        ("decode_frames", (bytearray(data), 0, MAX_FRAME_SIZE)),
        ("scan_message", (data,)),
        ("split_batch", (data,)),
    ):
        seen = [observe(lambda c=codec: getattr(c, name)(*arguments)) for codec in CODECS]  # type: ignore[misc]  # noqa: B023
        assert all(outcome == seen[0] for outcome in seen), (name, seen)
    _check_round_trip(data)
    _check_edits(data)


def _check_round_trip(data: bytes) -> None:
    try:
        value, _ = _pure.decode_value(data)
    except ProtocolError:
        return
    again = [codec.encode_value(value) for codec in CODECS]
    assert all(encoded == again[0] for encoded in again)
    assert repr(_typed(_pure.decode_value(again[0])[0])) == repr(_typed(value))


def _check_edits(data: bytes) -> None:
    try:
        bare = _pure.scan_message(data).bare
    except ProtocolError:
        return
    changes = merge_changes(None, {"DeadLetterReason": "fuzz"})
    for edit in (drop_body, read_properties, read_application_properties):
        observe(lambda edit=edit: edit(bare))  # type: ignore[misc]
    observe(lambda: _pure.scan_message(apply_changes(bare, changes)))


def check_memory(data: bytes) -> None:
    limit = MEMORY_FLOOR_BYTES + MEMORY_PER_INPUT_BYTE * len(data)
    tracemalloc.start()
    try:
        check(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= limit, f"{peak} bytes for an input of {len(data)}"


def run(seconds: float, seed: int) -> Iterator[int]:
    """Fuzz until the time is over; yields the count of inputs now and then."""
    chance = random.Random(seed)
    seeds = corpus()
    deadline = time.monotonic() + seconds
    count = 0
    while time.monotonic() < deadline:
        data = mutate(chance, seeds)
        try:
            # Tracing memory is slow, so it looks at some of them.
            (check_memory if count % 50 == 0 else check)(data)
        except Exception as problem:
            name = hashlib.sha256(data).hexdigest()[:16]
            CRASHES.mkdir(exist_ok=True)
            (CRASHES / f"{name}.bin").write_bytes(data)
            raise AssertionError(f"seed {seed}, input {count}, kept as {name}.bin") from problem
        count += 1
        if count % 1000 == 0:
            yield count
    yield count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    *_, count = run(options.seconds, options.seed)
    print(f"{count} inputs, {len(CODECS)} codecs, nothing but protocol errors")


if __name__ == "__main__":
    sys.exit(main())
