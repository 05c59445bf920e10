"""The codec that this process runs: Cython if it was built, else pure Python.

Both have the same interface and the same results; `BUSWAY_CODEC=pure` in the environment forces
the reference. Only `errors.ProtocolError` comes out for bad input.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING or os.environ.get("BUSWAY_CODEC") == "pure":
    from busway.amqp import _pure as implementation

    IMPLEMENTATION = "pure"
else:
    try:
        from busway.amqp import _fast as implementation

        IMPLEMENTATION = "cython"
    except ImportError:
        from busway.amqp import _pure as implementation

        IMPLEMENTATION = "pure"

decode_composite = implementation.decode_composite
decode_frames = implementation.decode_frames
decode_value = implementation.decode_value
encode_delivery = implementation.encode_delivery
encode_disposition = implementation.encode_disposition
encode_frame = implementation.encode_frame
encode_sasl_frame = implementation.encode_sasl_frame
encode_transfer = implementation.encode_transfer
encode_value = implementation.encode_value
read_messages = implementation.read_messages
scan_message = implementation.scan_message
split_batch = implementation.split_batch
