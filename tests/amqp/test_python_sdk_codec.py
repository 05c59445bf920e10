"""The codec against the one inside the Python SDK: what one writes, the other reads.

Its decoder is positional and minimal, which is why the encoding profile exists (amqp.md,
section 3); its encoder puts delivery annotations last.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any
from uuid import UUID

import pytest

from busway.amqp.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Composite,
    Detach,
    End,
    Error,
    Flow,
    Modified,
    Open,
    Properties,
    Rejected,
    SaslMechanisms,
    SaslOutcome,
    Source,
    Target,
)
from busway.amqp.sections import encode_message, pack_header
from busway.amqp.types import Int, UInt, ULong
from tests.amqp.codecs_at_hand import each_codec

pytest.importorskip("azure.servicebus")

from azure.servicebus._pyamqp import performatives as sdk_performatives
from azure.servicebus._pyamqp._decode import decode_frame, decode_payload
from azure.servicebus._pyamqp._encode import encode_frame, encode_payload
from azure.servicebus._pyamqp.message import Header as SdkHeader
from azure.servicebus._pyamqp.message import Message as SdkMessage
from azure.servicebus._pyamqp.message import Properties as SdkProperties

pytestmark = each_codec

TOKEN = UUID("00112233-4455-6677-8899-aabbccddeeff")


def read_by_sdk(codec: ModuleType, performative: Composite, payload: bytes = b"") -> list[Any]:
    frame = codec.encode_frame(1, performative, payload)
    code, fields = decode_frame(memoryview(frame)[8:])
    assert code == performative.CODE
    return list(fields)


@pytest.mark.parametrize(
    "performative",
    [
        Open("container", None, 65536, 4999, 120000),
        Begin(1, 0, 5000, 5000, 255),
        Flow(1, 5000, 2, 5000, 3, 4, 1000, 0, True, False),
        End(),
        Close(),
        SaslOutcome(0, b"Welcome!"),
    ],
    ids=lambda performative: type(performative).__name__,
)
def test_the_sdk_reads_our_fields_where_it_expects_them(
    codec: ModuleType, performative: Composite
) -> None:
    fields = read_by_sdk(codec, performative)
    ours = [getattr(performative, field.name) for field in performative.FIELDS]
    assert fields == [value.encode() if isinstance(value, str) else value for value in ours]


def test_the_sdk_reads_our_attach_with_its_termini(codec: ModuleType) -> None:
    fields = read_by_sdk(
        codec, Attach("l", 1, False, 0, 1, Source("q"), Target("t"), initial_delivery_count=0)
    )
    assert len(fields) == 14
    assert fields[0] == b"l"
    assert fields[5][0] == b"q"
    assert fields[6][0] == b"t"


def test_the_sdk_reads_our_errors_with_three_elements(codec: ModuleType) -> None:
    fields = read_by_sdk(codec, Detach(1, True, Error("amqp:not-found", "gone")))
    assert fields[2] == [b"amqp:not-found", b"gone", None]


@pytest.mark.parametrize(
    ("state", "read"),
    [
        (Accepted(), {"accepted": []}),
        (Rejected(), {"rejected": [None]}),
        (Rejected(Error("a:b", "c")), {"rejected": [[b"a:b", b"c", None]]}),
        (Modified(True, False), {"modified": [True, False, None]}),
    ],
    ids=["accepted", "rejected", "rejected with error", "modified"],
)
def test_the_sdk_knows_our_outcomes_by_name(
    codec: ModuleType, state: Accepted | Rejected | Modified, read: dict[str, Any]
) -> None:
    frame = codec.encode_disposition(1, False, 300, 300, True, state)
    _, fields = decode_frame(memoryview(frame)[8:])
    assert fields == [False, 300, 300, True, read, False]


def test_the_sdk_reads_our_mechanisms(codec: ModuleType) -> None:
    frame = codec.encode_sasl_frame(SaslMechanisms(["MSSBCBS", "ANONYMOUS"]))
    assert decode_frame(memoryview(frame)[8:]) == (0x40, [[b"MSSBCBS", b"ANONYMOUS"]])


def test_the_sdk_reads_our_deliveries(codec: ModuleType) -> None:
    message = codec.encode_delivery(
        header=pack_header(True, None, 4),
        ttl_ms=60000,
        delivery_count=1,
        lock_token=TOKEN.bytes_le,
        number=1 << 49,
        enqueued_ms=1_700_000_000_000,
        locked_until_ms=1_700_000_060_000,
        state=0,
        partition=3,
        annotations=b"",
        annotation_items=0,
        bare=encode_message(properties=Properties("id"), data=b"body"),
    )
    frame = codec.encode_transfer(1, 2, 300, TOKEN.bytes_le, 0, False, False, message)
    code, fields = decode_frame(memoryview(frame)[8:])
    assert (code, fields[:6]) == (0x14, [2, 300, TOKEN.bytes_le, 0, False, False])
    read = decode_payload(fields[-1])
    assert read.header == SdkHeader(True, 4, 60000, None, 1)
    assert read.delivery_annotations == {b"x-opt-lock-token": TOKEN}
    assert read.message_annotations == {
        b"x-opt-sequence-number": 1 << 49,
        b"x-opt-enqueued-time": 1_700_000_000_000,
        b"x-opt-locked-until": 1_700_000_060_000,
        b"x-opt-message-state": 0,
        b"x-opt-enqueue-sequence-number": 0,
        b"x-opt-partition-id": 3,
    }
    assert read.properties.message_id == b"id"
    assert read.data == [b"body"]


def test_the_sdk_reads_our_replies(codec: ModuleType) -> None:
    reply = encode_message(
        properties=Properties(correlation_id=TOKEN),
        application_properties={"status-code": Int(202), "status-description": "Accepted"},
        body={"expirations": [UInt(1), ULong(2)]},
    )
    read = decode_payload(memoryview(reply))
    assert read.properties.correlation_id == TOKEN
    assert read.application_properties == {
        b"status-code": 202,
        b"status-description": b"Accepted",
    }
    assert read.value == {b"expirations": [1, 2]}


def test_we_read_a_message_of_the_sdk_with_all_its_sections(codec: ModuleType) -> None:
    message = SdkMessage(
        header=SdkHeader(durable=True, ttl=5000),
        delivery_annotations={b"d": 1},
        message_annotations={b"x-opt-partition-key": "key", b"mine": 3},
        properties=SdkProperties(message_id=TOKEN, group_id="session"),
        application_properties={"a": 1},
        data=[b"one", b"two"],
        footer={b"f": 1},
    )
    encoded = bytes(encode_payload(bytearray(), message))
    found = codec.scan_message(encoded)
    assert found.header == pack_header(True, None, None)
    assert (found.ttl_ms, found.message_id, found.group_id) == (5000, TOKEN, "session")
    assert (found.partition_key, found.annotation_items) == ("key", 4)
    read = decode_payload(memoryview(found.bare))
    assert (read.data, read.footer) == ([b"one", b"two"], {b"f": 1})
    assert read.delivery_annotations == {b"d": 1}


def test_we_read_the_frames_of_the_sdk(codec: ModuleType) -> None:
    header, body = encode_frame(
        sdk_performatives.OpenFrame(
            container_id="c",
            hostname="h",
            max_frame_size=1048576,
            channel_max=65535,
            idle_timeout=None,
            outgoing_locales=["en-US"],
            incoming_locales=None,
            offered_capabilities=None,
            desired_capabilities=None,
            properties={b"product": "p"},
        )
    )
    ((kind, _, read, _),), _ = codec.decode_frames(bytes(header) + b"\0\0" + bytes(body), 0, 65536)
    assert kind == 0
    assert read == Open("c", "h", 1048576, outgoing_locales=["en-US"], properties={"product": "p"})

    header, body = encode_frame(
        sdk_performatives.TransferFrame(
            handle=3,
            delivery_id=1,
            delivery_tag=b"\0\0\0\1",
            message_format=0,
            settled=False,
            more=False,
            rcv_settle_mode=None,
            state=None,
            resume=None,
            aborted=None,
            batchable=None,
            payload=b"xyz",
        )
    )
    ((_, _, read, payload),), _ = codec.decode_frames(header + b"\0\0" + bytes(body), 0, 65536)
    assert (read.handle, read.delivery_id, read.delivery_tag) == (3, 1, b"\0\0\0\1")
    assert payload == b"xyz"
