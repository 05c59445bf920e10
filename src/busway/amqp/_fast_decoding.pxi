# Part of _fast.pyx: reading values, as _pure_decoding.py does.

def decode_value(data, Py_ssize_t offset=0):
    """The value at `offset`, and the offset after it."""
    if offset < 0:
        raise ValueError("an offset is not negative")
    cdef bytes held = data if type(data) is bytes else bytes(data)
    value = decode_at(held, start_of(held), &offset, PyBytes_GET_SIZE(held), 0)
    return value, offset


cdef object decode_text(octets p, Py_ssize_t start, Py_ssize_t stop):
    try:
        return PyUnicode_DecodeUTF8(<char*>(p + start), stop - start, NULL)
    except UnicodeDecodeError:
        raise malformed("A string is not UTF-8.") from None


cdef object decode_at(
    bytes data, octets p, Py_ssize_t* offset, Py_ssize_t end, int depth
):
    """The value at `offset`, which moves behind it."""
    cdef Py_ssize_t at = offset[0]
    cdef Py_ssize_t start, stop
    cdef int code, width
    cdef object value
    if at >= end:
        fail_truncated()
    code = p[at]
    at += 1
    width = width_of(code)
    if width >= 0:
        if width > end - at:
            fail_truncated()
        offset[0] = at + width
        if code == 0x40:
            return None
        if code == 0x41:
            return True
        if code == 0x42:
            return False
        if code == 0x43:
            return UInt(0)
        if code == 0x44:
            return ULong(0)
        if code == 0x52:
            return UInt(p[at])
        if code == 0x53:
            return ULong(p[at])
        if code == 0x54:
            return Int(<int8_t>p[at])
        if code == 0x55:
            return <int8_t>p[at]
        if code == 0x70:
            return UInt(load32(p + at))
        if code == 0x71:
            return Int(<int32_t>load32(p + at))
        if code == 0x80:
            return ULong(load64(p + at))
        if code == 0x81:
            return <int64_t>load64(p + at)
        if code == 0x83:
            return Timestamp(<int64_t>load64(p + at))
        if code == 0x98:
            return UUID(bytes=cut(p, at, at + 16))
    elif has_size(code):
        if code < 0xC0:
            stop = extent(p, at, end, code & 0x10, &start)
            offset[0] = stop
            if code == 0xA1 or code == 0xB1:
                return decode_text(p, start, stop)
            if code == 0xA3 or code == 0xB3:
                return Symbol(decode_text(p, start, stop))
            return cut(p, start, stop)
        if code < 0xE0:
            if depth >= MAX_DEPTH:
                _pure_decoding.deeper(depth)
            if code & 0x01:
                return decode_map(data, p, at, offset, end, code & 0x10, depth + 1)
            return decode_list(data, p, at, offset, end, code & 0x10, depth + 1)
    elif code == 0x00:
        if depth >= MAX_DEPTH:
            _pure_decoding.deeper(depth)
        offset[0] = at
        descriptor = decode_at(data, p, offset, end, depth + 1)
        value = decode_at(data, p, offset, end, depth + 1)
        return Described(descriptor, value)
    decoder = DECODERS.get(code)
    if decoder is None:
        fail_code(code)
    value, at = decoder(data, at, end, depth)
    offset[0] = at
    return value


cdef list decode_list(
    bytes data, octets p, Py_ssize_t at, Py_ssize_t* offset, Py_ssize_t end, bint wide, int depth
):
    cdef uint32_t count, index
    cdef Py_ssize_t stop = compound(p, at, end, wide, &at, &count)
    cdef list items = []
    for index in range(count):
        items.append(decode_at(data, p, &at, stop, depth))
    if at != stop:
        fail_unfilled()
    offset[0] = stop
    return items


cdef dict decode_map(
    bytes data, octets p, Py_ssize_t at, Py_ssize_t* offset, Py_ssize_t end, bint wide, int depth
):
    cdef uint32_t count, index
    cdef Py_ssize_t stop = compound(p, at, end, wide, &at, &count)
    cdef dict pairs = {}
    if count & 1:
        raise malformed("A map has a key without a value.")
    for index in range(count // 2):
        key = decode_at(data, p, &at, stop, depth)
        value = decode_at(data, p, &at, stop, depth)
        try:
            if key in pairs:
                raise malformed("A map has a key twice.")
        except TypeError:
            raise malformed("A key of a map is a list, map or array.") from None
        pairs[key] = value
    if at != stop:
        fail_unfilled()
    offset[0] = stop
    return pairs
