# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The hot half of the codec in Cython: the same functions, the same results as `_pure*`.

Reads go through a pointer into a `bytes` object that the caller holds. The rule that keeps them
inside: no octet is read before its offset was compared with `end`, and `end` is never beyond the
object. What is rare (arrays, decimals, symbolic descriptors, sections out of order, performatives
that come once per link) is handed to the pure functions, so that it exists once.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memmove

from uuid import UUID

from busway.amqp import _pure_composites, _pure_decoding, _pure_encoding
from busway.amqp._pure_composites import READ, decode_composite, read_composite, wrong
from busway.amqp._pure_decoding import malformed, truncated
from busway.amqp._pure_frames import encode_frame, encode_sasl_frame
from busway.amqp._pure_messages import bare_of, dead_letter_annotation, split_batch
from busway.amqp.errors import DECODE_ERROR, FRAMING_ERROR, INVALID_FIELD, ProtocolError
from busway.amqp.performatives import (
    AMQP_PERFORMATIVES,
    SASL_PERFORMATIVES,
    Accepted,
    Disposition,
    Flow,
    Kind,
    Transfer,
)
from busway.amqp.sections import (
    BROKER_ANNOTATIONS,
    NO_DELIVERY_ANNOTATIONS,
    SECTION_SYMBOLS,
    TTL_MAX_MS,
    Parts,
    Sections,
    delivered_front,
    front_size,
    kept_front,
    long_ttl_ms,
    with_times,
)
from busway.amqp.texts import TextMisfitError, with_texts
from busway.amqp.types import Described, Int, Symbol, Timestamp, UInt, ULong

cdef extern from "<stdint.h>":
    const int64_t INT64_MIN
    const int64_t INT64_MAX

ctypedef const unsigned char* octets

cdef int MAX_DEPTH = _pure_decoding.MAX_DEPTH
cdef dict DECODERS = _pure_decoding.DECODERS
cdef object read_state = READ[Kind.STATE]
cdef object read_fields = READ[Kind.FIELDS]
cdef object read_descriptor = _pure_composites.read_descriptor
cdef object encode_purely = _pure_encoding.encode_value

include "_fast_octets.pxi"
include "_fast_decoding.pxi"
include "_fast_encoding.pxi"
include "_fast_frames.pxi"
include "_fast_messages.pxi"
include "_fast_reading.pxi"
