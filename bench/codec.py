"""Microseconds per message in the codec, for both implementations.

    python bench/codec.py [--rounds 20]

Ingest is one read chunk of 190 transfers of 1 KiB bodies through `decode_frames` and
`scan_message`; outgoing is `encode_delivery` and `encode_transfer`. The best round counts: on a
shared machine the others measure the neighbours.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from types import ModuleType

from busway.amqp import _pure
from busway.amqp.performatives import Accepted, Flow, Header, Properties
from busway.amqp.sections import encode_message
from busway.amqp.types import Symbol

FRAMES = 190
MAX_FRAME_SIZE = 65536


def codecs() -> dict[str, ModuleType]:
    found = {"pure": _pure}
    try:
        from busway.amqp import _fast
    except ImportError:
        print("(the compiled codec is not built: python setup.py build_ext --inplace)")
    else:
        found["cython"] = _fast
    return found


def message() -> bytes:
    header = _pure.encode_value(Header(durable=True, ttl=3_600_000))
    annotations = b"\x00\x53\x72" + _pure.encode_value({Symbol("x-opt-partition-key"): "key-17"})
    return (
        header
        + annotations
        + encode_message(
            properties=Properties(
                message_id="0123456789abcdef0123456789abcdef",
                subject="order",
                content_type="application/json",
                group_id="key-17",
            ),
            application_properties={"region": "eu", "attempt": 3, "express": True},
            data=b"x" * 1024,
        )
    )


def best(rounds: int, per_round: int, action: Callable[[], object]) -> float:
    """Microseconds for one of the `per_round` things that `action` does."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times) / per_round * 1e6


def measure(codec: ModuleType, rounds: int) -> dict[str, float]:
    encoded = message()
    tag = bytes(range(16))
    chunk = b"".join(
        codec.encode_transfer(1, 1, 1000 + index, tag, 0, False, False, encoded)
        for index in range(FRAMES)
    )
    acks = b"".join(
        codec.encode_disposition(1, True, 1000 + index, 1000 + index, True, Accepted())
        for index in range(FRAMES)
    )
    flows = FRAMES * codec.encode_frame(1, Flow(0, 5000, 0, 5000, 1, 1000, 1000, 0))
    sections = codec.scan_message(encoded)

    def ingest() -> None:
        for _, _, _, payload in codec.decode_frames(chunk, 0, MAX_FRAME_SIZE)[0]:
            codec.scan_message(payload)

    def outgoing() -> None:
        for index in range(FRAMES):
            delivery = codec.encode_delivery(
                header=sections.header,
                ttl_ms=sections.ttl_ms,
                delivery_count=0,
                lock_token=None,
                number=1 << 48 | index,
                enqueued_ms=1_700_000_000_000,
                locked_until_ms=1_700_000_060_000,
                state=0,
                partition=1,
                annotations=sections.annotations,
                annotation_items=sections.annotation_items,
                bare=sections.bare,
            )
            codec.encode_transfer(1, 1, 1000 + index, tag, 0, False, False, delivery)

    def encode_acks() -> None:
        state = Accepted()
        for index in range(FRAMES):
            codec.encode_disposition(1, True, 1000 + index, 1000 + index, True, state)

    return {
        "frames of transfers": best(
            rounds, FRAMES, lambda: codec.decode_frames(chunk, 0, MAX_FRAME_SIZE)
        ),
        "ingest (frames and sections)": best(rounds, FRAMES, ingest),
        "outgoing (delivery and transfer)": best(rounds, FRAMES, outgoing),
        "disposition, encode": best(rounds, FRAMES, encode_acks),
        "disposition, decode": best(
            rounds, FRAMES, lambda: codec.decode_frames(acks, 0, MAX_FRAME_SIZE)
        ),
        "flow, decode": best(rounds, FRAMES, lambda: codec.decode_frames(flows, 0, MAX_FRAME_SIZE)),
        "application properties, decode": best(
            rounds, 1, lambda: codec.decode_value(sections.application_properties)
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Microseconds per message in the codec.")
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    results = {name: measure(codec, options.rounds) for name, codec in codecs().items()}
    print(
        f"{'us per message, best of ' + str(options.rounds):36}"
        + "".join(f"{name:>10}" for name in results)
    )
    for row in next(iter(results.values())):
        print(f"{row:36}" + "".join(f"{result[row]:10.2f}" for result in results.values()))


if __name__ == "__main__":
    main()
