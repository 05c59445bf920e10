# Part of _fast.pyx: frames and the performatives that are many, as _pure_frames.py does.

# Fields of composites


cdef inline int read_integer(
    octets p, Py_ssize_t* offset, Py_ssize_t end, int64_t least, int64_t most, int64_t* value
) except -1:
    """1 and the integer, of whatever width it is written; 0 for null."""
    cdef Py_ssize_t at = offset[0]
    cdef int code, width
    cdef int64_t read
    if at >= end:
        fail_truncated()
    code = p[at]
    at += 1
    if code == 0x40:
        offset[0] = at
        return 0
    width = width_of(code)
    if width > end - at:
        fail_truncated()
    if code == 0x52 or code == 0x53 or code == 0x50:
        read = p[at]
    elif code == 0x70:
        read = load32(p + at)
    elif code == 0x43 or code == 0x44:
        read = 0
    elif code == 0x54 or code == 0x55 or code == 0x51:
        read = <int8_t>p[at]
    elif code == 0x60:
        read = load16(p + at)
    elif code == 0x61:
        read = <int16_t>load16(p + at)
    elif code == 0x71:
        read = <int32_t>load32(p + at)
    elif code == 0x80:
        read = <int64_t>load64(p + at)
        if read < 0:
            raise ProtocolError(INVALID_FIELD, "An unsigned long does not fit its field.")
    elif code == 0x81 or code == 0x83:
        read = <int64_t>load64(p + at)
    else:
        raise wrong(Kind.UINT, code)
    if read < least or read > most:
        raise ProtocolError(INVALID_FIELD, f"{read} does not fit its field.")
    offset[0] = at + width
    value[0] = read
    return 1


cdef inline object read_uint(octets p, Py_ssize_t* offset, Py_ssize_t end):
    cdef int64_t value
    if read_integer(p, offset, end, 0, 0xFFFFFFFF, &value):
        return value
    return None


cdef inline object read_timestamp(octets p, Py_ssize_t* offset, Py_ssize_t end):
    cdef int64_t value
    if read_integer(p, offset, end, INT64_MIN, INT64_MAX, &value):
        return value
    return None


cdef inline object read_boolean(octets p, Py_ssize_t* offset, Py_ssize_t end, object default):
    cdef Py_ssize_t at = offset[0]
    if at >= end:
        fail_truncated()
    cdef int code = p[at]
    offset[0] = at + 1
    if code == 0x41:
        return True
    if code == 0x42:
        return False
    if code == 0x40:
        return default
    if code == 0x56:
        if at + 1 >= end:
            fail_truncated()
        if p[at + 1] > 1:
            raise malformed("A boolean is 0 or 1.")
        offset[0] = at + 2
        return p[at + 1] == 1
    raise wrong(Kind.BOOLEAN, code)


cdef inline object read_text(octets p, Py_ssize_t* offset, Py_ssize_t end):
    cdef Py_ssize_t at = offset[0]
    cdef Py_ssize_t start, stop
    if at >= end:
        fail_truncated()
    cdef int code = p[at]
    cdef int narrow = code & 0xEF
    if code == 0x40:
        offset[0] = at + 1
        return None
    if narrow != 0xA1 and narrow != 0xA3:
        raise wrong(Kind.STRING, code)
    stop = extent(p, at + 1, end, code & 0x10, &start)
    offset[0] = stop
    return decode_text(p, start, stop)


cdef inline object read_binary(octets p, Py_ssize_t* offset, Py_ssize_t end):
    cdef Py_ssize_t at = offset[0]
    cdef Py_ssize_t start, stop
    if at >= end:
        fail_truncated()
    cdef int code = p[at]
    cdef int narrow = code & 0xEF
    if code == 0x40:
        offset[0] = at + 1
        return None
    if narrow != 0xA0 and narrow != 0xA1 and narrow != 0xA3:
        raise wrong(Kind.BINARY, code)
    stop = extent(p, at + 1, end, code & 0x10, &start)
    offset[0] = stop
    return cut(p, start, stop)


cdef object read_delivery_state(bytes data, octets p, Py_ssize_t* offset, Py_ssize_t end):
    cdef Py_ssize_t at = offset[0]
    if at >= end:
        fail_truncated()
    if p[at] == 0x40:
        offset[0] = at + 1
        return None
    # Accepted, as list0 or as an empty list8: what nearly every settlement says.
    if end - at >= 4 and memcmp(p + at, b"\x00\x53\x24\x45", 4) == 0:
        offset[0] = at + 4
        return Accepted()
    if end - at >= 6 and memcmp(p + at, b"\x00\x53\x24\xc0\x01\x00", 6) == 0:
        offset[0] = at + 6
        return Accepted()
    state, at = read_state(data, at, end, 1)
    offset[0] = at
    return state


# Performatives. The compiled readers stand for the tables of these three classes; whatever is odd
# about one (a field missing, too many of them) is left to the pure reader and its error.


cdef object read_transfer(bytes data, octets p, Py_ssize_t at, Py_ssize_t stop, uint32_t count):
    cdef object transfer = Transfer.__new__(Transfer)
    cdef int64_t value
    handle = read_uint(p, &at, stop) if count > 0 else None
    if handle is None:
        raise ProtocolError(INVALID_FIELD, "amqp:transfer:list lacks its mandatory field handle.")
    transfer.handle = handle
    transfer.delivery_id = read_uint(p, &at, stop) if count > 1 else None
    transfer.delivery_tag = read_binary(p, &at, stop) if count > 2 else None
    transfer.message_format = read_uint(p, &at, stop) if count > 3 else None
    transfer.settled = read_boolean(p, &at, stop, None) if count > 4 else None
    transfer.more = read_boolean(p, &at, stop, False) if count > 5 else False
    transfer.rcv_settle_mode = None
    if count > 6 and read_integer(p, &at, stop, 0, 0xFF, &value):
        transfer.rcv_settle_mode = value
    transfer.state = read_delivery_state(data, p, &at, stop) if count > 7 else None
    transfer.resume = read_boolean(p, &at, stop, False) if count > 8 else False
    transfer.aborted = read_boolean(p, &at, stop, False) if count > 9 else False
    transfer.batchable = read_boolean(p, &at, stop, False) if count > 10 else False
    if at != stop:
        fail_unfilled()
    return transfer


cdef object read_disposition(bytes data, octets p, Py_ssize_t at, Py_ssize_t stop, uint32_t count):
    cdef object disposition = Disposition.__new__(Disposition)
    role = read_boolean(p, &at, stop, None) if count > 0 else None
    first = read_uint(p, &at, stop) if count > 1 else None
    if role is None or first is None:
        raise ProtocolError(INVALID_FIELD, "amqp:disposition:list lacks a mandatory field.")
    disposition.role = role
    disposition.first = first
    disposition.last = read_uint(p, &at, stop) if count > 2 else None
    disposition.settled = read_boolean(p, &at, stop, False) if count > 3 else False
    disposition.state = read_delivery_state(data, p, &at, stop) if count > 4 else None
    disposition.batchable = read_boolean(p, &at, stop, False) if count > 5 else False
    if at != stop:
        fail_unfilled()
    return disposition


cdef object read_flow(bytes data, octets p, Py_ssize_t at, Py_ssize_t stop, uint32_t count):
    cdef object flow = Flow.__new__(Flow)
    flow.next_incoming_id = read_uint(p, &at, stop) if count > 0 else None
    incoming_window = read_uint(p, &at, stop) if count > 1 else None
    next_outgoing_id = read_uint(p, &at, stop) if count > 2 else None
    outgoing_window = read_uint(p, &at, stop) if count > 3 else None
    if incoming_window is None or next_outgoing_id is None or outgoing_window is None:
        raise ProtocolError(INVALID_FIELD, "amqp:flow:list lacks a mandatory field.")
    flow.incoming_window = incoming_window
    flow.next_outgoing_id = next_outgoing_id
    flow.outgoing_window = outgoing_window
    flow.handle = read_uint(p, &at, stop) if count > 4 else None
    flow.delivery_count = read_uint(p, &at, stop) if count > 5 else None
    flow.link_credit = read_uint(p, &at, stop) if count > 6 else None
    flow.available = read_uint(p, &at, stop) if count > 7 else None
    flow.drain = read_boolean(p, &at, stop, False) if count > 8 else False
    flow.echo = read_boolean(p, &at, stop, False) if count > 9 else False
    flow.properties = None
    if count > 10:
        flow.properties, at = read_fields(data, at, stop, 1)
    if at != stop:
        fail_unfilled()
    return flow


# Frames


def decode_frames(data, Py_ssize_t offset, unsigned long long max_frame_size):
    """Every whole frame from `offset` on; see the pure function for what a bad one does."""
    if offset < 0:
        raise ValueError("an offset is not negative")
    cdef bytes held
    cdef Py_ssize_t start = offset
    cdef Py_ssize_t end
    cdef uint32_t size
    cdef octets p
    cdef list frames = []
    if type(data) is bytes:
        held = data
    else:
        # As in the pure function, a copy only when there is a whole frame to take.
        end = len(data)
        if end - start < 4:
            return frames, start
        size = int.from_bytes(data[start : start + 4], "big")
        if 8 <= size <= max_frame_size and size > end - start:
            return frames, start
        held = bytes(data)
    p = start_of(held)
    end = PyBytes_GET_SIZE(held)
    while end - start >= 4:
        size = load32(p + start)
        try:
            if size < 8:
                raise ProtocolError(FRAMING_ERROR, f"A frame has at least 8 bytes, not {size}.")
            if size > max_frame_size:
                raise ProtocolError(
                    FRAMING_ERROR,
                    f"A frame of {size} bytes is larger than the {max_frame_size} agreed.",
                )
            if size > end - start:
                break
            frames.append(decode_frame(held, p, start, start + size))
        except ProtocolError:
            if frames:
                break
            raise
        start += size
    return frames, start


cdef tuple decode_frame(bytes data, octets p, Py_ssize_t start, Py_ssize_t end):
    """The caller has seen that the eight octets of the header are there."""
    cdef int words = p[start + 4]
    cdef int kind = p[start + 5]
    cdef uint32_t channel = load16(p + start + 6)
    cdef Py_ssize_t at = start + 4 * words
    cdef Py_ssize_t stop
    cdef uint32_t count
    cdef int code
    if words < 2 or at > end:
        raise ProtocolError(FRAMING_ERROR, f"A frame's body cannot begin at word {words}.")
    if kind > 1:
        raise ProtocolError(FRAMING_ERROR, f"There are no frames of type {kind}.")
    if at == end:
        return kind, channel, None, b""
    if kind == 0 and end - at > 3 and p[at] == 0x00 and p[at + 1] == 0x53:
        code = p[at + 2]
        if 0x13 <= code <= 0x15:
            stop = list_extent(p, at + 3, end, &at, &count)
            if code == 0x14:
                if count > 11:
                    raise malformed(f"amqp:transfer:list has 11 fields, not {count}.")
                performative = read_transfer(data, p, at, stop, count)
            elif code == 0x13:
                if count > 11:
                    raise malformed(f"amqp:flow:list has 11 fields, not {count}.")
                performative = read_flow(data, p, at, stop, count)
            else:
                if count > 6:
                    raise malformed(f"amqp:disposition:list has 6 fields, not {count}.")
                performative = read_disposition(data, p, at, stop, count)
            return kind, channel, performative, cut(p, stop, end)
    performative, at = read_composite(data, at, end, 0)
    if performative.CODE not in (SASL_PERFORMATIVES if kind else AMQP_PERFORMATIVES):
        raise ProtocolError(
            DECODE_ERROR, f"{performative.SYMBOL} cannot stand in a frame of type {kind}."
        )
    return kind, channel, performative, cut(p, at, end)


cdef inline Py_ssize_t put_uint(unsigned char* p, uint32_t value) noexcept:
    """Writes at most five octets; how many."""
    if value == 0:
        p[0] = 0x43
        return 1
    if value < 256:
        p[0] = 0x52
        p[1] = <unsigned char>value
        return 2
    p[0] = 0x70
    store32(p + 1, value)
    return 5


cdef inline Py_ssize_t put_uint_or_null(unsigned char* p, object value) except -1:
    if value is None:
        p[0] = 0x40
        return 1
    return put_uint(p, value)


def encode_transfer(
    uint16_t channel,
    uint32_t handle,
    delivery_id,
    tag,
    message_format,
    bint settled,
    bint more,
    payload,
):
    """The frame of `Transfer(..., batchable=True)`."""
    cdef bytes held_tag = b"" if tag is None else bytes(tag)
    cdef bytes held = payload if type(payload) is bytes else bytes(payload)
    cdef Py_ssize_t tag_size = PyBytes_GET_SIZE(held_tag)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(held)
    # The longest list: three uints of 5 octets, the tag with its size, seven fields of one.
    cdef unsigned char list8[3 * 5 + 2 + 64 + 7]
    cdef Py_ssize_t at = 0
    cdef unsigned char* p
    if tag_size > 64:
        return encode_frame(
            channel,
            Transfer(handle, delivery_id, tag, message_format, settled, more, batchable=True),
            held,
        )
    at += put_uint(list8, handle)
    at += put_uint_or_null(list8 + at, delivery_id)
    if tag is None:
        list8[at] = 0x40
        at += 1
    else:
        list8[at] = 0xA0
        list8[at + 1] = <unsigned char>tag_size
        memcpy(list8 + at + 2, start_of(held_tag), tag_size)
        at += 2 + tag_size
    at += put_uint_or_null(list8 + at, message_format)
    list8[at] = 0x41 if settled else 0x42
    list8[at + 1] = 0x41 if more else 0x42
    memcpy(list8 + at + 2, b"\x40\x40\x42\x42\x41", 5)
    at += 7
    if 14 + at + size > 0xFFFFFFFF:
        raise ValueError("a frame has less than 4 GiB")
    frame = PyBytes_FromStringAndSize(NULL, 14 + at + size)
    p = <unsigned char*>PyBytes_AS_STRING(frame)
    put_frame_head(p, <uint32_t>(14 + at + size), channel, 0x14, at, 11)
    memcpy(p + 14, list8, at)
    memcpy(p + 14 + at, start_of(held), size)
    return frame


cdef inline void put_frame_head(
    unsigned char* p, uint32_t size, uint16_t channel, int code, Py_ssize_t items, int count
) noexcept:
    """Fourteen octets: frame header, descriptor, and the head of a list8."""
    store32(p, size)
    p[4] = 2
    p[5] = 0
    store16(p + 6, channel)
    p[8] = 0x00
    p[9] = 0x53
    p[10] = <unsigned char>code
    p[11] = 0xC0
    p[12] = <unsigned char>(items + 1)
    p[13] = <unsigned char>count


def encode_disposition(uint16_t channel, bint role, uint32_t first, last, bint settled, state):
    """The frame of `Disposition(...)`."""
    cdef bytes outcome
    if state is None:
        outcome = b"\x40"
    elif type(state) is Accepted:
        outcome = b"\x00\x53\x24\x45"
    else:
        outcome = encode_purely(state)
    cdef Py_ssize_t outcome_size = PyBytes_GET_SIZE(outcome)
    cdef unsigned char list8[14 + 13 + 200]
    cdef Py_ssize_t at = 14
    if outcome_size > 200:
        return encode_frame(channel, Disposition(role, first, last, settled, state))
    list8[at] = 0x41 if role else 0x42
    at += 1
    at += put_uint(list8 + at, first)
    at += put_uint_or_null(list8 + at, last)
    list8[at] = 0x41 if settled else 0x42
    at += 1
    memcpy(list8 + at, start_of(outcome), outcome_size)
    at += outcome_size
    list8[at] = 0x42
    at += 1
    put_frame_head(list8, <uint32_t>at, channel, 0x15, at - 14, 6)
    return PyBytes_FromStringAndSize(<char*>list8, at)
