# Part of _fast.pyx: octets, and where a value ends before anything of it is read.

cdef inline uint16_t load16(octets p) noexcept:
    return <uint16_t>((<uint32_t>p[0] << 8) | p[1])


cdef inline uint32_t load32(octets p) noexcept:
    return (<uint32_t>p[0] << 24) | (<uint32_t>p[1] << 16) | (<uint32_t>p[2] << 8) | p[3]


cdef inline uint64_t load64(octets p) noexcept:
    return (<uint64_t>load32(p) << 32) | load32(p + 4)


cdef inline void store16(unsigned char* p, uint32_t value) noexcept:
    p[0] = <unsigned char>(value >> 8)
    p[1] = <unsigned char>value


cdef inline void store32(unsigned char* p, uint32_t value) noexcept:
    p[0] = <unsigned char>(value >> 24)
    p[1] = <unsigned char>(value >> 16)
    p[2] = <unsigned char>(value >> 8)
    p[3] = <unsigned char>value


cdef inline void store64(unsigned char* p, uint64_t value) noexcept:
    store32(p, <uint32_t>(value >> 32))
    store32(p + 4, <uint32_t>value)


cdef inline octets start_of(bytes data) noexcept:
    return <octets>PyBytes_AS_STRING(data)


cdef inline bytes cut(octets p, Py_ssize_t start, Py_ssize_t stop):
    return PyBytes_FromStringAndSize(<const char*>(p + start), stop - start)


cdef int fail_truncated() except -1:
    raise truncated()


cdef int fail_unfilled() except -1:
    raise malformed("The items of a list, map or array do not fill its size.")


cdef int fail_code(int code) except -1:
    raise malformed(f"There is no format code 0x{code:02x}.")


# Extents: where a value ends, before anything of it is read


cdef inline int width_of(int code) noexcept:
    """Octets after a format code of fixed width; -1 if it has no fixed width or is none."""
    if code < 0x40 or code > 0x98:
        return -1
    if code <= 0x45:
        return 0
    if code >= 0x50 and code <= 0x56:
        return 1
    if code == 0x60 or code == 0x61:
        return 2
    if code >= 0x70 and code <= 0x74:
        return 4
    if code >= 0x80 and code <= 0x84:
        return 8
    if code == 0x94 or code == 0x98:
        return 16
    return -1


cdef inline bint has_size(int code) noexcept:
    """Binary, string, symbol, list, map, array: a size of one or four octets comes first."""
    cdef int narrow = code & 0xEF
    return (
        narrow == 0xA0 or narrow == 0xA1 or narrow == 0xA3
        or narrow == 0xC0 or narrow == 0xC1 or narrow == 0xE0
    )


cdef inline Py_ssize_t extent(
    octets p, Py_ssize_t offset, Py_ssize_t end, bint wide, Py_ssize_t* start
) except -1:
    """The end of what follows a size at `offset`; `start` is where it begins."""
    cdef Py_ssize_t size
    if wide:
        if end - offset < 4:
            fail_truncated()
        size = load32(p + offset)
        start[0] = offset + 4
    else:
        if offset >= end:
            fail_truncated()
        size = p[offset]
        start[0] = offset + 1
    if size > end - start[0]:
        fail_truncated()
    return start[0] + size


cdef inline Py_ssize_t compound(
    octets p, Py_ssize_t offset, Py_ssize_t end, bint wide, Py_ssize_t* items, uint32_t* count
) except -1:
    """The end of a list, map or array; `items` is where its items begin."""
    cdef Py_ssize_t start
    cdef Py_ssize_t stop = extent(p, offset, end, wide, &start)
    if wide:
        if stop - start < 4:
            fail_truncated()
        count[0] = load32(p + start)
        items[0] = start + 4
    else:
        if stop <= start:
            fail_truncated()
        count[0] = p[start]
        items[0] = start + 1
    return stop


cdef Py_ssize_t list_extent(
    octets p, Py_ssize_t offset, Py_ssize_t end, Py_ssize_t* items, uint32_t* count
) except -1:
    if offset >= end:
        fail_truncated()
    cdef int code = p[offset]
    if code == 0xC0 or code == 0xD0:
        return compound(p, offset + 1, end, code == 0xD0, items, count)
    if code == 0x45:
        count[0] = 0
        items[0] = offset + 1
        return offset + 1
    raise malformed("A list was expected.")


cdef Py_ssize_t skip(octets p, Py_ssize_t offset, Py_ssize_t end) except -1:
    cdef int code, width
    cdef int pending = 1
    cdef int described = 0
    cdef Py_ssize_t start
    while pending:
        if offset >= end:
            fail_truncated()
        code = p[offset]
        offset += 1
        width = width_of(code)
        if width >= 0:
            if width > end - offset:
                fail_truncated()
            offset += width
        elif code == 0x00:
            if described >= MAX_DEPTH:
                _pure_decoding.deeper(described)
            described += 1
            pending += 2
        elif has_size(code):
            offset = extent(p, offset, end, code & 0x10, &start)
        else:
            fail_code(code)
        pending -= 1
    return offset
