"""Strangers at the door: garbage and mutated conversations against a server's connection.

    python tests/fuzz/fuzz_connection.py --seconds 60 --seed 7

Whatever comes, nothing is raised, what is kept stays within the limits, what began also ends, and
what is written can be read. An input that breaks one of these is kept in `corpus/connection/` and
is run by the test suite from then on.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from busway.amqp import codec
from busway.amqp.connection import AMQP_HEADER, Connection, Role
from busway.amqp.events import (
    AttachRequested,
    Begun,
    Closed,
    Detached,
    Ended,
    Event,
    TransferReceived,
)
from busway.amqp.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Composite,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    Open,
    Released,
    Source,
    Target,
    Transfer,
)
from tests.amqp.conversations import NAMES, SERVER, answer, converse
from tests.amqp.pair import frames

CORPUS = Path(__file__).parent / "corpus" / "connection"
# A flow of 30 bytes can ask for two messages of up to 700.
MAX_AMPLIFICATION = 100
MAX_OUTPUT_AT_REST = 10_000
# SASL frames come before anything was agreed on.
MAX_FRAME_SIZE = max(SERVER.max_frame_size, 4_096)


def check(data: bytes, cuts: random.Random) -> None:
    """Feed it in random chunks to a server that answers; every promise is an assertion."""
    server = Connection(SERVER, role=Role.SERVER)
    told: list[Event] = []
    output = b""
    offset = 0
    while offset < len(data):
        size = cuts.choice((1, 7, 64, 1_000, 100_000))
        events = server.receive(data[offset : offset + size])
        offset += size
        answer(events)
        told += events
        output += server.take_output()
        check_limits(server, told)
    told += server.eof()
    output += server.take_output()
    assert server.closed
    check_ends(told)
    frames(output)
    assert len(output) <= MAX_OUTPUT_AT_REST + MAX_AMPLIFICATION * len(data)
    assert server.receive(data) == []
    assert server.link_count == server._partial_bytes == 0
    assert not server.links_by_name


def check_limits(server: Connection, told: list[Event]) -> None:
    assert len(server._input._rest) <= MAX_FRAME_SIZE
    assert 0 <= server._partial_bytes <= SERVER.max_partial_bytes
    assert server.link_count <= SERVER.max_links
    assert len(server.sessions) <= SERVER.channel_max + 1
    for session in server.sessions:
        assert all(link.credit >= 0 for link in session.links)
    assert server.closed == any(isinstance(event, Closed) for event in told[-1:])


def check_ends(told: list[Event]) -> None:
    links: dict[int, int] = {}
    sessions: dict[int, int] = {}
    for event in told:
        if isinstance(event, AttachRequested):
            links[id(event.link)] = 1
        elif isinstance(event, Detached):
            links[id(event.link)] -= 1
        elif isinstance(event, Begun):
            sessions[id(event.session)] = 1
        elif isinstance(event, Ended):
            sessions[id(event.session)] -= 1
        elif isinstance(event, TransferReceived):
            assert len(event.payload) <= SERVER.max_message_size
    refused = sum(
        1 for e in told if isinstance(e, AttachRequested) and e.link.name.startswith("no")
    )
    assert sum(links.values()) <= refused
    assert set(links.values()) <= {0, 1}
    assert set(sessions.values()) <= {0}
    assert [type(event) for event in told].count(Closed) == 1
    assert isinstance(told[-1], Closed)


def any_frame(chance: random.Random) -> bytes:
    """A frame that can be read but makes no promise of making sense."""
    small = chance.choice((0, 0, 1, 2, 255, 256, 70_000, 0xFFFF_FFFF))
    number = chance.choice((0, 1, 2, 5, small))
    name = chance.choice(("in", "out", "rpc", "no such", ""))
    error = chance.choice((None, Error("amqp:internal-error", "x")))
    state = chance.choice((None, Accepted(), Released(), Modified(True, True)))
    yes = chance.random() < 0.5
    performative: Composite = chance.choice(
        (
            Open("fuzz", max_frame_size=chance.choice((511, 512, 65_536)), idle_time_out=small),
            Begin(
                chance.choice((None, None, None, 0)), small, number, small, chance.choice((0, 9))
            ),
            Attach(name, number, yes, source=Source("q"), initial_delivery_count=small),
            Attach(name, number, yes, target=Target("q")),
            Flow(number, small, small, small, chance.choice((None, 0, 1)), number, small, 0, yes),
            Flow(None, 100, 0, 100, number, None, 5, echo=yes),
            Transfer(number, small, b"tag", 0, yes, more=chance.random() < 0.3),
            Transfer(number, None, None, more=yes, aborted=chance.random() < 0.2),
            Disposition(yes, number, chance.choice((None, small)), chance.random() < 0.5, state),
            Detach(number, yes, error),
            End(error),
            Close(error) if chance.random() < 0.1 else End(),
        )
    )
    payload = b"" if not isinstance(performative, Transfer) else bytes(chance.choice((0, 1, 900)))
    return codec.encode_frame(chance.choice((0, 0, 0, 1, 2, 5_000)), performative, payload)


def mutate(data: bytes, other: bytes, chance: random.Random) -> bytes:
    """One small harm."""
    at = chance.randrange(len(data) + 1)
    length = chance.choice((1, 2, 4, 8, 30, 200))
    match chance.randrange(7):
        case 0:  # Turn a bit.
            at = min(at, len(data) - 1)
            return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
        case 1:  # Lose some.
            return data[:at] + data[at + length :] or b"A"
        case 2:  # Say it twice.
            return data[: at + length] + data[at:]
        case 3:  # Put garbage in.
            return data[:at] + chance.randbytes(length) + data[at:]
        case 4:  # Change over to another conversation.
            return data[:at] + other[chance.randrange(len(other)) :] or b"A"
        case 5:  # Put a frame in, most likely in the wrong place.
            return data[:at] + any_frame(chance) + data[at:]
        case _:  # A number at its edge.
            return data[:at] + chance.choice((b"\xff", b"\x00")) * 4 + data[at + 4 :]


def make(seeds: list[bytes], chance: random.Random) -> bytes:
    match chance.randrange(6):
        case 0:
            return chance.choice((b"", AMQP_HEADER)) + chance.randbytes(chance.randrange(1, 400))
        case 1 | 2:
            count = chance.randrange(1, 60)
            opening = codec.encode_frame(0, Open("fuzz")) + codec.encode_frame(
                0, Begin(None, 0, 9, 9)
            )
            return AMQP_HEADER + opening + b"".join(any_frame(chance) for _ in range(count))
        case _:
            data = chance.choice(seeds)
            for _ in range(chance.choice((1, 1, 2, 5))):
                data = mutate(data, chance.choice(seeds), chance)
            return data


def seed_inputs() -> list[bytes]:
    kept = [path.read_bytes() for path in sorted(CORPUS.glob("*.bin"))]
    return kept + [converse(name) for name in NAMES]


def fuzz(seconds: float, seed: int) -> int:
    """Run until the time is up; returns how many inputs were tried."""
    chance = random.Random(seed)
    seeds = seed_inputs()
    until = time.monotonic() + seconds
    tried = 0
    while time.monotonic() < until:
        data = make(seeds, chance)
        cuts = chance.getrandbits(32)
        try:
            check(data, random.Random(cuts))
        except BaseException:
            path = CORPUS / f"found-{hashlib.sha256(data).hexdigest()[:12]}.bin"
            path.write_bytes(data)
            print(f"seed {seed}, input {tried}, cuts {cuts}: kept as {path}", file=sys.stderr)
            raise
        tried += 1
    return tried


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    print(f"{fuzz(arguments.seconds, arguments.seed)} inputs, nothing found")
