# Part of _fast.pyx: reading many messages at once, as _pure_reading.py does.

def read_messages(bares, places, text_of, *, bint user, bint body):
    """The parts of many messages; see the pure function."""
    cdef Py_ssize_t count = len(bares)
    cdef Py_ssize_t index
    cdef list columns = [None] * 13
    cdef list fields = [[None] * count for _ in places]
    cdef list users = [None] * count
    cdef list bodies = [None] * count
    cdef list types = [None] * count
    cdef list unreadable = []
    cdef list column
    cdef bint properties = len(places) > 0
    for column, place in zip(fields, places):
        columns[place] = column
    for index in range(count):
        bare = bares[index]
        if bare is None:
            continue
        try:
            read_sections(
                bare, index, columns if properties else None, text_of,
                users if user else None, bodies if body else None, types,
            )
        except ProtocolError:
            unreadable.append(index)
            for column in fields:
                column[index] = None
            users[index] = bodies[index] = types[index] = None
    return Parts(fields, users, bodies, types, unreadable)


cdef int read_sections(
    bytes data, Py_ssize_t index, list columns, text_of, list users, list bodies, list types
) except -1:
    cdef octets p = start_of(data)
    cdef Py_ssize_t end = PyBytes_GET_SIZE(data)
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t value, stop
    cdef int code
    cdef list pieces = None
    cdef object piece
    cdef object only = None
    while at < end:
        if end - at > 2 and p[at] == 0x00 and p[at + 1] == 0x53:
            code = p[at + 2]
            value = at + 3
        else:
            number, value = read_descriptor(data, at, end, SECTION_SYMBOLS)
            code = number if number < 256 else 0
        stop = skip(p, value, end)
        if code == 0x73 and columns is not None:
            read_fields_as_text(data, p, value, stop, index, columns, text_of)
        elif code == 0x74 and users is not None:
            users[index] = read_section(data, p, value, stop, dict)
        elif 0x75 <= code <= 0x77:
            if bodies is None:
                return 0
            piece = read_body(data, p, code, value, stop, index, types)
            if only is None:
                only = piece
            elif pieces is None:
                pieces = [only, piece]
            else:
                pieces.append(piece)
        at = stop
    if pieces is not None:
        bodies[index] = b"".join(pieces)
    elif only is not None:
        bodies[index] = only
    return 0


cdef int read_fields_as_text(
    bytes data, octets p, Py_ssize_t value, Py_ssize_t end, Py_ssize_t index, list columns, text_of
) except -1:
    cdef Py_ssize_t at
    cdef uint32_t count, place
    cdef Py_ssize_t stop = list_extent(p, value, end, &at, &count)
    for place in range(count):
        if at < stop and p[at] == 0x40:
            at += 1
            continue
        field = decode_at(data, p, &at, stop, 2)
        if place < 13 and columns[place] is not None and field is not None:
            (<list>columns[place])[index] = field if type(field) is str else text_of(field)
    if at != stop:
        fail_unfilled()
    return 0


cdef object read_body(
    bytes data, octets p, int code, Py_ssize_t value, Py_ssize_t end, Py_ssize_t index, list types
):
    cdef Py_ssize_t start, stop
    cdef int constructor = p[value]
    cdef int narrow = constructor & 0xEF
    if (narrow == 0xA0 and code != 0x76) or (narrow == 0xA1 and code == 0x77):
        stop = extent(p, value + 1, end, constructor & 0x10, &start)
        if code == 0x75:
            types[index] = "data"
        elif narrow == 0xA0:
            types[index] = "binary"
        else:
            decode_text(p, start, stop)  # what is no text is not told as one
            types[index] = "string"
        return cut(p, start, stop)
    if code == 0x77:
        types[index] = "value"
        return encode_value(decode_at(data, p, &value, end, 1))
    if code == 0x75:
        return read_section(data, p, value, end, bytes)  # it is none, and that is said there
    types[index] = "sequence"
    return encode_value(read_section(data, p, value, end, list))


cdef object read_section(bytes data, octets p, Py_ssize_t value, Py_ssize_t end, kind):
    section = decode_at(data, p, &value, end, 1)
    if type(section) is not kind:
        raise malformed(f"A section is a {type(section).__name__}, not a {kind.__name__}.")
    return section
