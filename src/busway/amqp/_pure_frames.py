"""Frames in pure Python (AMQP 1.0, section 2.3; SASL frames, section 5.3.1)."""

from __future__ import annotations

import struct

from busway.amqp._pure_composites import encode_composite, read_composite
from busway.amqp.errors import DECODE_ERROR, FRAMING_ERROR, ProtocolError
from busway.amqp.performatives import (
    AMQP_PERFORMATIVES,
    SASL_PERFORMATIVES,
    Accepted,
    Composite,
    DeliveryState,
    Disposition,
    Transfer,
)

Frame = tuple[int, int, Composite | None, bytes]
"""`(frame type, channel, performative or None if the frame is empty, payload)`"""

AMQP_FRAME = 0
SASL_FRAME = 1

_HEADER = struct.Struct(">IBBH")
_ALLOWED = {AMQP_FRAME: AMQP_PERFORMATIVES, SASL_FRAME: SASL_PERFORMATIVES}

EMPTY_FRAME = bytes.fromhex("0000000802000000")


def decode_frames(
    data: bytes | bytearray, offset: int, max_frame_size: int
) -> tuple[list[Frame], int]:
    """Every whole frame from `offset` on, and the offset of what is not a whole frame yet.

    A frame that is malformed is an error only when it comes first: those before it are returned,
    and the call that begins at it raises. So the same stream gives the same frames and the same
    error however it is cut, and a protocol header after SASL frames is left to the caller.
    Call until no frame comes.
    """
    if offset < 0:
        raise ValueError("an offset is not negative")
    frames: list[Frame] = []
    start = offset
    end = len(data)
    while end - start >= 4:
        try:
            size = int.from_bytes(data[start : start + 4], "big")
            _check_size(size, max_frame_size)
            if end - start < size:
                break
            if type(data) is not bytes:
                # Once per call, and only when there is a frame to take: bytes that trickle in
                # are not copied again and again.
                data = bytes(data)
            frames.append(_decode_frame(data, start, start + size))
        except ProtocolError:
            if frames:
                break
            raise
        start += size
    return frames, start


def _check_size(size: int, max_frame_size: int) -> None:
    if size < 8:
        raise ProtocolError(FRAMING_ERROR, f"A frame has at least 8 bytes, not {size}.")
    if size > max_frame_size:
        raise ProtocolError(
            FRAMING_ERROR, f"A frame of {size} bytes is larger than the {max_frame_size} agreed."
        )


def _decode_frame(data: bytes, start: int, end: int) -> Frame:
    _, words, kind, channel = _HEADER.unpack_from(data, start)
    body = start + 4 * words
    if words < 2 or body > end:
        raise ProtocolError(FRAMING_ERROR, f"A frame's body cannot begin at word {words}.")
    allowed = _ALLOWED.get(kind)
    if allowed is None:
        raise ProtocolError(FRAMING_ERROR, f"There are no frames of type {kind}.")
    if body == end:
        return kind, channel, None, b""
    performative, offset = read_composite(data, body, end, 0)
    if performative.CODE not in allowed:
        raise ProtocolError(
            DECODE_ERROR, f"{performative.SYMBOL} cannot stand in a frame of type {kind}."
        )
    return kind, channel, performative, data[offset:end]


def encode_frame(channel: int, performative: Composite | None, payload: bytes = b"") -> bytes:
    """One frame; without a performative the empty one that keeps a connection alive (2.4.5)."""
    return _encode_frame(AMQP_FRAME, channel, performative, payload)


def encode_sasl_frame(performative: Composite) -> bytes:
    return _encode_frame(SASL_FRAME, 0, performative, b"")


def _encode_frame(kind: int, channel: int, performative: Composite | None, payload: bytes) -> bytes:
    body = bytearray()
    if performative is not None:
        encode_composite(body, performative)
    return b"".join((_HEADER.pack(8 + len(body) + len(payload), 2, kind, channel), body, payload))


# size, doff, type, channel | descriptor | list8, size, count | handle | delivery-id | tag |
# message-format 0 | settled | more | null null false false true
_TRANSFER = struct.Struct(">IBBH3sBBBBBBIBB16sBBB5s")
_TRANSFER_TAIL = b"\x40\x40\x42\x42\x41"


def encode_transfer(
    channel: int,
    handle: int,
    delivery_id: int | None,
    tag: bytes | None,
    message_format: int | None,
    settled: bool,
    more: bool,
    payload: bytes,
) -> bytes:
    """The frame of `Transfer(..., batchable=True)`: a broker writes nothing else so often."""
    if (
        delivery_id is not None
        and 255 < delivery_id <= 0xFFFFFFFF
        and 0 < handle < 256
        and tag is not None
        and len(tag) == 16
        and message_format == 0
    ):
        head = _TRANSFER.pack(
            _TRANSFER.size + len(payload),
            2,
            AMQP_FRAME,
            channel,
            b"\x00\x53\x14",
            0xC0,
            _TRANSFER.size - 13,
            11,
            0x52,
            handle,
            0x70,
            delivery_id,
            0xA0,
            16,
            tag,
            0x43,
            0x41 if settled else 0x42,
            0x41 if more else 0x42,
            _TRANSFER_TAIL,
        )
        return head + payload
    transfer = Transfer(
        handle, delivery_id, tag, message_format, settled, more, None, None, False, False, True
    )
    return encode_frame(channel, transfer, payload)


_DISPOSITION = struct.Struct(">IBBH3sBBBBBIBIB5s")
_ACCEPTED_AND_NOT_BATCHABLE = b"\x00\x53\x24\x45\x42"


def encode_disposition(
    channel: int,
    role: bool,
    first: int,
    last: int | None,
    settled: bool,
    state: DeliveryState | None,
) -> bytes:
    """The frame of `Disposition(...)`: one for every range of settled deliveries."""
    if (
        type(state) is Accepted
        and last is not None
        and 255 < first <= 0xFFFFFFFF
        and 255 < last <= 0xFFFFFFFF
    ):
        return _DISPOSITION.pack(
            _DISPOSITION.size,
            2,
            AMQP_FRAME,
            channel,
            b"\x00\x53\x15",
            0xC0,
            _DISPOSITION.size - 13,
            6,
            0x41 if role else 0x42,
            0x70,
            first,
            0x70,
            last,
            0x41 if settled else 0x42,
            _ACCEPTED_AND_NOT_BATCHABLE,
        )
    return encode_frame(channel, Disposition(role, first, last, settled, state))
