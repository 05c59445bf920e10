"""Frames (AMQP 1.0, section 2.3): cut from a stream, wherever it is cut."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway.amqp.errors import DECODE_ERROR, FRAMING_ERROR, ProtocolError
from busway.amqp.performatives import (
    Accepted,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    Open,
    Rejected,
    SaslInit,
    SaslOutcome,
    Transfer,
)
from tests.amqp.codecs_at_hand import CODECS, both_codecs, each_codec, octets

MAX = 512
EMPTY = octets("00 00 00 08 02 00 00 00")


@each_codec
def test_an_empty_frame_keeps_a_connection_alive(codec: ModuleType) -> None:
    assert codec.encode_frame(0, None) == EMPTY
    assert codec.decode_frames(EMPTY, 0, MAX) == ([(0, 0, None, b"")], 8)


@each_codec
def test_a_frame_says_its_size_and_channel(codec: ModuleType) -> None:
    frame = octets("00 00 00 0f 02 00 00 05 00 53 17 c0 02 01 40")
    assert codec.encode_frame(5, End()) == frame
    assert codec.decode_frames(frame, 0, MAX) == ([(0, 5, End(), b"")], 15)


@each_codec
def test_sasl_has_frames_of_its_own(codec: ModuleType) -> None:
    frame = octets("00 00 00 11 02 01 00 00 00 53 44 c0 04 02 50 00 40")
    assert codec.encode_sasl_frame(SaslOutcome(0)) == frame
    assert codec.decode_frames(frame, 0, MAX) == ([(1, 0, SaslOutcome(0), b"")], 17)


@each_codec
def test_what_follows_a_transfer_in_its_frame_is_payload(codec: ModuleType) -> None:
    frame = codec.encode_frame(1, Transfer(0, 1, b"t", 0), b"payload")
    ((_, _, transfer, payload),), _ = codec.decode_frames(frame, 0, MAX)
    assert transfer == Transfer(0, 1, b"t", 0)
    assert payload == b"payload"
    assert type(payload) is bytes


@each_codec
def test_an_extended_header_is_passed_over(codec: ModuleType) -> None:
    frame = octets("00 00 00 13 03 00 00 05 'ext.' 00 53 17 c0 02 01 40")
    assert codec.decode_frames(frame, 0, MAX) == ([(0, 5, End(), b"")], 19)


@each_codec
def test_whole_frames_are_taken_and_the_rest_is_left(codec: ModuleType) -> None:
    end = codec.encode_frame(1, End())
    frames, after = codec.decode_frames(b"junk" + EMPTY + end + end[:-1], 4, MAX)
    assert [frame[2] for frame in frames] == [None, End()]
    assert after == 4 + len(EMPTY) + len(end)


@each_codec
@pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview])
def test_any_buffer_will_do(codec: ModuleType, buffer: type) -> None:
    frame = codec.encode_frame(1, Transfer(0, 1, b"t", 0), b"payload")
    frames, after = codec.decode_frames(buffer(frame + EMPTY[:5]), 0, MAX)
    assert frames == [(0, 1, Transfer(0, 1, b"t", 0), b"payload")]
    assert type(frames[0][3]) is bytes
    assert after == len(frame)


@each_codec
def test_a_stream_gives_the_same_however_it_is_cut(codec: ModuleType) -> None:
    stream = b"".join(
        (
            codec.encode_frame(0, Open("c", properties={"a": "b"})),
            EMPTY,
            codec.encode_frame(1, Flow(0, 1, 2, 3, 4, 5, 6)),
            codec.encode_frame(1, Transfer(0, 1, b"t", 0), b"x" * 300),
            codec.encode_frame(1, Disposition(True, 1, 2, False, Modified(True, True, {"a": 1}))),
        )
    )
    whole, after = codec.decode_frames(stream, 0, MAX)
    assert after == len(stream)
    pieces = []
    buffer = bytearray()
    for octet in stream:
        buffer.append(octet)
        frames, after = codec.decode_frames(buffer, 0, MAX)
        pieces += frames
        del buffer[:after]
    assert pieces == whole


BAD_FRAMES = {
    "smaller than a header": ("00 00 00 07", FRAMING_ERROR),
    "larger than agreed": ("00 00 02 01", FRAMING_ERROR),
    "a body inside the header": ("00 00 00 08 01 00 00 00", FRAMING_ERROR),
    "a body behind the frame": ("00 00 00 08 03 00 00 00", FRAMING_ERROR),
    "of an unknown type": ("00 00 00 08 02 02 00 00", FRAMING_ERROR),
    "with a SASL performative": ("00 00 00 10 02 00 00 00 00 53 43 c0 03 01 a0 00", DECODE_ERROR),
    "of SASL with an AMQP performative": ("00 00 00 0c 02 01 00 00 00 53 17 45", DECODE_ERROR),
    "with an outcome alone": ("00 00 00 0c 02 00 00 00 00 53 24 45", DECODE_ERROR),
    "with half a performative": ("00 00 00 0b 02 00 00 00 00 53 17", DECODE_ERROR),
    "with a list beyond its end": ("00 00 00 0e 02 00 00 00 00 53 14 c0 20 01", DECODE_ERROR),
    "a protocol header": ("'AMQP' 00 01 00 00", FRAMING_ERROR),
}


@each_codec
@pytest.mark.parametrize(("frame", "condition"), BAD_FRAMES.values(), ids=BAD_FRAMES.keys())
def test_a_bad_frame_is_an_error_after_the_frames_before_it(
    codec: ModuleType, frame: str, condition: str
) -> None:
    stream = EMPTY + octets(frame)
    assert codec.decode_frames(stream, 0, MAX) == ([(0, 0, None, b"")], 8)
    with pytest.raises(ProtocolError) as caught:
        codec.decode_frames(stream, 8, MAX)
    assert caught.value.condition == condition
    with pytest.raises(ProtocolError):
        codec.decode_frames(bytearray(octets(frame)), 0, MAX)


@each_codec
def test_a_frame_that_waits_for_its_rest_costs_nothing(codec: ModuleType) -> None:
    begun = octets("ff ff ff fe 02 00 00 00") + bytes(1000)
    assert codec.decode_frames(begun, 0, 0xFFFFFFFF) == ([], 0)
    assert codec.decode_frames(bytearray(begun), 0, 0xFFFFFFFF) == ([], 0)


@each_codec
def test_a_protocol_header_after_sasl_is_left_alone(codec: ModuleType) -> None:
    init = codec.encode_sasl_frame(SaslInit("ANONYMOUS"))
    frames, after = codec.decode_frames(init + b"AMQP\x00\x01\x00\x00", 0, MAX)
    assert (len(frames), after) == (1, len(init))


@each_codec
@pytest.mark.parametrize("handle", [0, 1, 300])
@pytest.mark.parametrize("delivery_id", [None, 0, 255, 256, 0xFFFFFFFF])
@pytest.mark.parametrize("tag", [None, b"", b"t" * 16, b"t" * 32, b"t" * 255, b"t" * 300])
@pytest.mark.parametrize("message_format", [None, 0, 0x80013700])
def test_the_short_way_to_a_transfer_leads_to_the_same_bytes(
    codec: ModuleType,
    handle: int,
    delivery_id: int | None,
    tag: bytes | None,
    message_format: int | None,
) -> None:
    for settled, more in ((True, False), (False, True)):
        short = codec.encode_transfer(
            7, handle, delivery_id, tag, message_format, settled, more, b"payload"
        )
        transfer = Transfer(handle, delivery_id, tag, message_format, settled, more, batchable=True)
        assert short == codec.encode_frame(7, transfer, b"payload")


@each_codec
@pytest.mark.parametrize("last", [None, 0, 300])
@pytest.mark.parametrize("first", [0, 255, 256])
@pytest.mark.parametrize(
    "state",
    [None, Accepted(), Rejected(), Rejected(Error("a", "b" * 300)), Modified(True, False)],
    ids=["none", "accepted", "rejected", "rejected at length", "modified"],
)
def test_the_short_way_to_a_disposition_leads_to_the_same_bytes(
    codec: ModuleType, first: int, last: int | None, state: Accepted | Rejected | Modified | None
) -> None:
    for role, settled in ((True, False), (False, True)):
        short = codec.encode_disposition(7, role, first, last, settled, state)
        assert short == codec.encode_frame(7, Disposition(role, first, last, settled, state))


@both_codecs
@given(data=st.binary(max_size=80))
def test_both_codecs_agree_on_garbage_in_a_frame(data: bytes) -> None:
    for descriptor in (b"", b"\x00\x53\x13", b"\x00\x53\x14", b"\x00\x53\x15", b"\x00\x53\x12"):
        body = descriptor + data
        frame = (8 + len(body)).to_bytes(4, "big") + octets("02 00 00 00") + body
        seen = []
        for codec in CODECS.values():
            try:
                seen.append(codec.decode_frames(frame, 0, MAX))
            except ProtocolError as problem:
                seen.append(problem.condition)
        assert seen[0] == seen[1] or {*map(type, seen)} == {str}
