"""The codec in pure Python: the reference, and what runs where nothing could be compiled."""

from busway.amqp._pure_composites import decode_composite
from busway.amqp._pure_decoding import decode_value
from busway.amqp._pure_encoding import encode_value
from busway.amqp._pure_frames import (
    decode_frames,
    encode_disposition,
    encode_frame,
    encode_sasl_frame,
    encode_transfer,
)
from busway.amqp._pure_messages import encode_delivery, scan_message, split_batch
from busway.amqp._pure_reading import read_messages

__all__ = [
    "decode_composite",
    "decode_frames",
    "decode_value",
    "encode_delivery",
    "encode_disposition",
    "encode_frame",
    "encode_sasl_frame",
    "encode_transfer",
    "encode_value",
    "read_messages",
    "scan_message",
    "split_batch",
]
