# Part of _fast.pyx: writing values, as _pure_encoding.py does.

cdef class Buffer:
    """Octets that grow at their end."""

    cdef unsigned char* p
    cdef Py_ssize_t size
    cdef Py_ssize_t room

    def __dealloc__(self):
        free(self.p)

    cdef unsigned char* grow(self, Py_ssize_t count) except NULL:
        """Where the next `count` octets go."""
        cdef Py_ssize_t room
        cdef void* moved
        if count > self.room - self.size:
            room = 2 * (self.size + count) + 64
            moved = realloc(self.p, room)
            if moved == NULL:
                raise MemoryError
            self.p = <unsigned char*>moved
            self.room = room
        self.size += count
        return self.p + self.size - count


def encode_value(value):
    """The value in its shortest encoding."""
    cdef Buffer out = Buffer()
    write(out, value, 0)
    return PyBytes_FromStringAndSize(<char*>out.p, out.size)


cdef int write_variable(Buffer out, int code, bytes content) except -1:
    cdef Py_ssize_t size = PyBytes_GET_SIZE(content)
    cdef unsigned char* p
    if size < 256:
        p = out.grow(2 + size)
        p[0] = <unsigned char>code
        p[1] = <unsigned char>size
        memcpy(p + 2, start_of(content), size)
    else:
        if size > 0xFFFFFFFF:
            raise ValueError("a value has less than 4 GiB")
        p = out.grow(5 + size)
        p[0] = <unsigned char>(code | 0x10)
        store32(p + 1, <uint32_t>size)
        memcpy(p + 5, start_of(content), size)
    return 0


cdef int close_compound(Buffer out, Py_ssize_t start, int code, Py_ssize_t count) except -1:
    """Write the head of a list or map into the three octets that were left free at `start`."""
    cdef Py_ssize_t size = out.size - start - 3
    cdef unsigned char* p
    if size + 1 < 256 and count < 256:
        p = out.p + start
        p[0] = <unsigned char>code
        p[1] = <unsigned char>(size + 1)
        p[2] = <unsigned char>count
    else:
        if size + 4 > 0xFFFFFFFF:
            raise ValueError("a value has less than 4 GiB")
        out.grow(6)
        p = out.p + start
        memmove(p + 9, p + 3, size)
        p[0] = <unsigned char>(code | 0x10)
        store32(p + 1, <uint32_t>(size + 4))
        store32(p + 5, <uint32_t>count)
    return 0


cdef int write_long(Buffer out, int narrow, int wide, int64_t value) except -1:
    cdef unsigned char* p
    if -128 <= value < 128:
        p = out.grow(2)
        p[0] = <unsigned char>narrow
        p[1] = <unsigned char>value
    else:
        p = out.grow(9)
        p[0] = <unsigned char>wide
        store64(p + 1, <uint64_t>value)
    return 0


cdef int write(Buffer out, object value, int depth) except -1:
    cdef object kind = type(value)
    cdef Py_ssize_t start
    cdef int64_t number
    cdef unsigned char* p
    if value is None:
        out.grow(1)[0] = 0x40
    elif kind is str:
        write_variable(out, 0xA1, (<str>value).encode())
    elif kind is bool:
        out.grow(1)[0] = 0x41 if value is True else 0x42
    elif kind is int and -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF:
        write_long(out, 0x55, 0x81, value)
    elif kind is Symbol:
        write_variable(out, 0xA3, value.encode())
    elif kind is bytes:
        write_variable(out, 0xA0, value)
    elif kind is Timestamp and -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF:
        number = value
        p = out.grow(9)
        p[0] = 0x83
        store64(p + 1, <uint64_t>number)
    elif kind is UUID:
        p = out.grow(17)
        p[0] = 0x98
        put(p + 1, value.bytes)
    elif kind is list and value and depth < 1000:
        start = out.size
        out.grow(3)
        for item in <list>value:
            write(out, item, depth + 1)
        close_compound(out, start, 0xC0, len(<list>value))
    elif kind is dict and depth < 1000:
        start = out.size
        out.grow(3)
        for key, item in (<dict>value).items():
            write(out, key, depth + 1)
            write(out, item, depth + 1)
        close_compound(out, start, 0xC1, 2 * len(<dict>value))
    else:
        encoded = encode_purely(value)
        put(out.grow(PyBytes_GET_SIZE(encoded)), encoded)
    return 0
