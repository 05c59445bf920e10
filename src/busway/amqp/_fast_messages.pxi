# Part of _fast.pyx: messages, as _pure_messages.py does.

cdef class Scan:
    """What is found on the way; an attribute of this class costs nothing, one of `Sections` does."""

    cdef int header
    cdef object ttl_ms
    cdef bytes annotations
    cdef long annotation_items
    cdef object partition_key
    cdef object via_partition_key
    cdef object scheduled_ms
    cdef object message_id
    cdef object group_id
    cdef object absolute_expiry_ms
    cdef object creation_ms
    cdef object application_properties
    cdef bint mended


def scan_message(payload):
    """One pass over a message; see the pure function."""
    cdef bytes data = payload if type(payload) is bytes else bytes(payload)
    try:
        return scan_sections(data, False)
    except TextMisfitError:
        return scan_sections(with_texts(data), True)


cdef object scan_sections(bytes data, bint mended):
    cdef octets p = start_of(data)
    cdef Py_ssize_t end = PyBytes_GET_SIZE(data)
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t value, stop
    cdef Py_ssize_t bare_start = 0
    cdef Py_ssize_t bare_stop = 0
    cdef int code, bit, rank
    cdef int seen = 0
    cdef int last_rank = 0
    cdef bint regular = True
    cdef bint small
    cdef Scan scan = Scan()
    cdef bytes front = b""
    cdef bytes bare
    scan.annotations = b""
    scan.mended = mended
    while at < end:
        small = end - at > 2 and p[at] == 0x00 and p[at + 1] == 0x53
        if small:
            code = p[at + 2]
            value = at + 3
        else:
            number, value = read_descriptor(data, at, end, SECTION_SYMBOLS)
            code = number if number < 256 else 0
        stop = skip(p, value, end)
        if code < 0x70 or code > 0x78:
            raise malformed(f"A message has no section 0x{code:02x}.")
        bit = 1 << (code - 0x70)
        check_section(code, p[value], seen, bit)
        seen |= bit
        if code == 0x70:
            scan_header(p, value, stop, scan)
        elif code == 0x72:
            scan_annotations(data, p, value, stop, scan)
        elif code == 0x71:
            front = kept_front(data, value, stop)
        elif code >= 0x73:
            rank = 0x75 if 0x75 <= code <= 0x77 else code
            if last_rank == 0:
                bare_start = bare_stop = at
            if at != bare_stop or not small or rank < last_rank:
                regular = False
            bare_stop = stop
            last_rank = rank
            if code == 0x73:
                scan_properties(data, p, value, stop, scan)
            elif code == 0x74:
                scan.application_properties = cut(p, value, stop)
        at = stop
    cdef object found = Sections.__new__(Sections)
    found.header = scan.header
    if scan.ttl_ms == TTL_MAX_MS:
        scan.ttl_ms = long_ttl_ms(scan.creation_ms, scan.absolute_expiry_ms)
    found.ttl_ms = scan.ttl_ms
    found.annotations = scan.annotations
    found.annotation_items = scan.annotation_items
    found.partition_key = scan.partition_key
    found.via_partition_key = scan.via_partition_key
    found.scheduled_ms = scan.scheduled_ms
    found.message_id = scan.message_id
    found.group_id = scan.group_id
    found.absolute_expiry_ms = scan.absolute_expiry_ms
    bare = cut(p, bare_start, bare_stop) if regular else bare_of(data)
    found.bare = front + bare if front else bare
    found.application_properties = scan.application_properties
    return found


cdef int check_section(int code, int constructor, int seen, int bit) except -1:
    cdef bint fits
    cdef int narrow = constructor & 0xEF
    cdef int bodies
    if code == 0x77:
        fits = True
    elif code == 0x75:
        fits = narrow == 0xA0
    elif code == 0x70 or code == 0x73 or code == 0x76:
        fits = constructor == 0x45 or narrow == 0xC0
    else:
        fits = narrow == 0xC1
    if not fits:
        raise malformed(
            f"A section 0x{code:02x} cannot have the format code 0x{constructor:02x}."
        )
    if 0x75 <= code <= 0x77:
        bodies = seen & 0xE0
        # Data and sequence sections may follow their like, a value nothing.
        if bodies and (bodies != bit or code == 0x77):
            raise malformed("A message has more than one body.")
    elif seen & bit:
        raise malformed(f"A message has the section 0x{code:02x} twice.")
    return 0


cdef int scan_header(octets p, Py_ssize_t value, Py_ssize_t end, Scan scan) except -1:
    cdef Py_ssize_t at
    cdef uint32_t count
    cdef int64_t number
    cdef int packed = 0
    cdef Py_ssize_t stop = list_extent(p, value, end, &at, &count)
    if count > 5:
        raise malformed(f"amqp:header:list has 5 fields, not {count}.")
    if count > 0:
        flag = read_boolean(p, &at, stop, None)
        if flag is not None:
            packed |= 2 if flag is True else 1
    if count > 1 and read_integer(p, &at, stop, 0, 0xFF, &number):
        packed |= (<int>number + 1) << 4
    if count > 2:
        scan.ttl_ms = read_uint(p, &at, stop)
    if count > 3:
        flag = read_boolean(p, &at, stop, None)
        if flag is not None:
            packed |= (2 if flag is True else 1) << 2
    if count > 4:
        read_uint(p, &at, stop)
    if at != stop:
        fail_unfilled()
    scan.header = packed
    return 0


cdef int scan_annotations(
    bytes data, octets p, Py_ssize_t value, Py_ssize_t end, Scan scan
) except -1:
    cdef Py_ssize_t at, start, content, first, last
    cdef uint32_t count, index
    cdef int code
    cdef long items = 0
    cdef Py_ssize_t run_start = 0
    cdef Py_ssize_t run_stop = 0
    cdef list runs = None
    cdef Py_ssize_t stop = compound(p, value + 1, end, p[value] & 0x10, &at, &count)
    if count & 1:
        raise malformed("A map has a key without a value.")
    for index in range(count // 2):
        start = at
        content = skip(p, start, stop)
        at = skip(p, content, stop)
        code = p[start] & 0xEF
        if code == 0xA1 or code == 0xA3:
            last = extent(p, start + 1, stop, p[start] & 0x10, &first)
            if last - first > 6 and memcmp(p + first, b"x-opt-", 6) == 0:
                if not keep_annotation(p, first, last, content, at, scan):
                    continue
        items += 2
        if start != run_stop:
            if runs is None:
                runs = []
            runs.append(cut(p, run_start, run_stop))
            run_start = start
        run_stop = at
    if at != stop:
        fail_unfilled()
    scan.annotation_items = items
    if runs is None:
        scan.annotations = cut(p, run_start, run_stop)
    else:
        runs.append(cut(p, run_start, run_stop))
        scan.annotations = b"".join(runs)
    return 0


cdef inline bint is_key(octets p, Py_ssize_t first, Py_ssize_t last, bytes key) noexcept:
    cdef Py_ssize_t size = PyBytes_GET_SIZE(key)
    return last - first == size and memcmp(p + first, start_of(key), size) == 0


cdef inline int check_text(octets p, Py_ssize_t at, Py_ssize_t end, int wanted, Scan scan) except -1:
    """Whether a text has its type, or one that is mended."""
    cdef int narrow
    if at < end and not scan.mended:
        narrow = p[at] & 0xEF
        if narrow != wanted and (narrow == 0xA0 or narrow == 0xA1 or narrow == 0xA3):
            raise TextMisfitError
    return 0


cdef bint keep_annotation(
    octets p, Py_ssize_t first, Py_ssize_t last, Py_ssize_t content, Py_ssize_t end, Scan scan
) except -1:
    if is_key(p, first, last, b"x-opt-partition-key"):
        check_text(p, content, end, 0xA1, scan)
        scan.partition_key = read_text(p, &content, end)
    elif is_key(p, first, last, b"x-opt-via-partition-key"):
        check_text(p, content, end, 0xA1, scan)
        scan.via_partition_key = read_text(p, &content, end)
    elif is_key(p, first, last, b"x-opt-scheduled-enqueue-time"):
        scan.scheduled_ms = read_timestamp(p, &content, end)
        return scan.scheduled_ms is not None
    else:
        return cut(p, first, last) not in BROKER_ANNOTATIONS
    return True


cdef int scan_properties(
    bytes data, octets p, Py_ssize_t value, Py_ssize_t end, Scan scan
) except -1:
    cdef Py_ssize_t at
    cdef uint32_t count, index
    cdef int code
    cdef Py_ssize_t stop = list_extent(p, value, end, &at, &count)
    if count > 13:
        raise malformed(f"amqp:properties:list has 13 fields, not {count}.")
    for index in range(count):
        if 1 << index & 0x143D:  # the places of strings
            check_text(p, at, stop, 0xA1, scan)
        elif index == 6 or index == 7:  # symbols
            check_text(p, at, stop, 0xA3, scan)
        if index == 0:
            if at < stop:
                code = p[at]
                if code == 0x00 or code == 0x45 or code >= 0xC0:
                    raise ProtocolError(INVALID_FIELD, "A message id is a single value.")
            scan.message_id = decode_at(data, p, &at, stop, 0)
        elif index == 8:
            scan.absolute_expiry_ms = read_timestamp(p, &at, stop)
        elif index == 9 and at < stop and p[at] == 0x83:  # any other is only passed on
            scan.creation_ms = read_timestamp(p, &at, stop)
        elif index == 10:
            scan.group_id = read_text(p, &at, stop)
        else:
            at = skip(p, at, stop)
    if at != stop:
        fail_unfilled()
    return 0


cdef bytes SEQUENCE_NUMBER = b"\xa3\x15x-opt-sequence-number\x81"
cdef bytes ENQUEUED_TIME = b"\xa3\x13x-opt-enqueued-time\x83"
cdef bytes MESSAGE_STATE = b"\xa3\x13x-opt-message-state\x54"
cdef bytes NO_ENQUEUE_SEQUENCE_NUMBER = b"\xa3\x1dx-opt-enqueue-sequence-number\x55\x00"
cdef bytes ENQUEUE_SEQUENCE_NUMBER = b"\xa3\x1dx-opt-enqueue-sequence-number\x81"
cdef bytes LOCKED_UNTIL = b"\xa3\x12x-opt-locked-until\x83"
cdef bytes PARTITION_ID = b"\xa3\x12x-opt-partition-id\x61"
cdef bytes ONLY_LOCK_TOKEN = b"\x00\x53\x71\xc1\x24\x02\xa3\x10x-opt-lock-token\x98"
cdef bytes FRONT = b"\x00\x53\x71"


cdef inline Py_ssize_t put(unsigned char* p, bytes piece) noexcept:
    cdef Py_ssize_t size = PyBytes_GET_SIZE(piece)
    memcpy(p, start_of(piece), size)
    return size


def encode_delivery(
    *,
    int header,
    ttl_ms,
    uint32_t delivery_count,
    lock_token,
    int64_t number,
    int64_t enqueued_ms,
    locked_until_ms,
    int8_t state,
    partition,
    bytes annotations not None,
    uint32_t annotation_items,
    bytes bare not None,
    int64_t enqueued_number=0,
    dead_letter_source=None,
    int64_t creation_ms=0,
    expiry_ms=None,
):
    """The message that a receiver gets; see the pure function."""
    # The broker's own sections take less than 300 octets, whatever is given.
    cdef unsigned char own[512]
    cdef Py_ssize_t at = 6
    cdef Py_ssize_t size_at
    cdef uint32_t items = 8 + annotation_items
    if dead_letter_source is not None:
        items += 2
        annotations = dead_letter_annotation(dead_letter_source) + annotations
    if expiry_ms is not None:
        bare = put_times(bare, creation_ms, expiry_ms)
    cdef Py_ssize_t annotations_size = PyBytes_GET_SIZE(annotations)
    cdef Py_ssize_t bare_start = 0
    cdef Py_ssize_t bare_size = PyBytes_GET_SIZE(bare)
    cdef bytes front = b""
    cdef Py_ssize_t front_at, sender_front_size
    cdef int64_t locked
    cdef int16_t partition_id
    cdef unsigned char* p
    memcpy(own, b"\x00\x53\x70\xc0\x00\x05", 6)
    at += put_flag(own + at, header & 3)
    if header >> 4:
        own[at] = 0x50
        own[at + 1] = <unsigned char>((header >> 4) - 1)
        at += 2
    else:
        own[at] = 0x40
        at += 1
    at += put_uint_or_null(own + at, ttl_ms)
    at += put_flag(own + at, header >> 2 & 3)
    at += put_uint(own + at, delivery_count)
    own[4] = <unsigned char>(at - 5)

    if lock_token is not None and (type(lock_token) is not bytes or len(lock_token) != 16):
        raise ValueError("a lock token has 16 bytes")
    front_at = at
    if bare_size >= 3 and memcmp(start_of(bare), start_of(FRONT), 3) == 0:
        front = delivered_front(bare, lock_token)
        bare_start = front_size(bare)
        bare_size -= bare_start
    elif lock_token is not None:
        at += put(own + at, ONLY_LOCK_TOKEN)
        put_network_order(own + at, start_of(lock_token))
        at += 16
    else:
        at += put(own + at, NO_DELIVERY_ANNOTATIONS)

    memcpy(own + at, b"\x00\x53\x72\xd1", 4)
    size_at = at + 4
    at += 12
    at += put(own + at, SEQUENCE_NUMBER)
    store64(own + at, <uint64_t>number)
    at += 8
    at += put(own + at, ENQUEUED_TIME)
    store64(own + at, <uint64_t>enqueued_ms)
    at += 8
    at += put(own + at, MESSAGE_STATE)
    own[at] = <unsigned char>state
    at += 1
    if enqueued_number:
        at += put(own + at, ENQUEUE_SEQUENCE_NUMBER)
        store64(own + at, <uint64_t>enqueued_number)
        at += 8
    else:
        at += put(own + at, NO_ENQUEUE_SEQUENCE_NUMBER)
    if locked_until_ms is not None:
        locked = locked_until_ms
        items += 2
        at += put(own + at, LOCKED_UNTIL)
        store64(own + at, <uint64_t>locked)
        at += 8
    if partition is not None:
        partition_id = partition
        items += 2
        at += put(own + at, PARTITION_ID)
        store16(own + at, <uint16_t>partition_id)
        at += 2
    if at - size_at - 4 + annotations_size > 0xFFFFFFFF:
        raise ValueError("annotations have less than 4 GiB")
    store32(own + size_at, <uint32_t>(at - size_at - 4 + annotations_size))
    store32(own + size_at + 4, items)

    sender_front_size = PyBytes_GET_SIZE(front)
    message = PyBytes_FromStringAndSize(
        NULL, at + sender_front_size + annotations_size + bare_size
    )
    p = <unsigned char*>PyBytes_AS_STRING(message)
    memcpy(p, own, front_at)
    memcpy(p + front_at, start_of(front), sender_front_size)
    memcpy(p + front_at + sender_front_size, own + front_at, at - front_at)
    p += at + sender_front_size
    memcpy(p, start_of(annotations), annotations_size)
    memcpy(p + annotations_size, start_of(bare) + bare_start, bare_size)
    return message


cdef inline void put_network_order(unsigned char* p, octets token) noexcept:
    """A GUID in the order of octets that .NET has, as AMQP writes a uuid."""
    cdef int index
    for index in range(4):
        p[index] = token[3 - index]
    p[4] = token[5]
    p[5] = token[4]
    p[6] = token[7]
    p[7] = token[6]
    memcpy(p + 8, token + 8, 8)


cdef inline Py_ssize_t put_flag(unsigned char* p, int flag) noexcept:
    p[0] = 0x40 if flag == 0 else 0x41 if flag == 2 else 0x42
    return 1


cdef bytes put_times(bytes bare, int64_t creation_ms, int64_t expiry_ms):
    """`with_times` for properties that come first, which they do unless there are none."""
    cdef octets p = start_of(bare)
    cdef Py_ssize_t end = PyBytes_GET_SIZE(bare)
    cdef Py_ssize_t at, first, before, after, stop
    cdef uint32_t count, index
    cdef uint32_t missing = 0
    cdef Py_ssize_t size
    cdef unsigned char* out
    if end < 4 or p[0] != 0x00 or p[1] != 0x53 or p[2] != 0x73:
        return with_times(bare, creation_ms, expiry_ms)
    stop = list_extent(p, 3, end, &at, &count)
    first = before = after = at
    for index in range(count):
        at = skip(p, at, stop)
        if index < 8:
            before = at
        if index < 10:
            after = at
    if at != stop:
        fail_unfilled()
    if count < 8:
        missing = 8 - count
    if count < 10:
        count = 10
    size = before - first + missing + 18 + stop - after + 1
    message = PyBytes_FromStringAndSize(
        NULL, (5 if size < 256 and count < 256 else 11) + size + end - stop
    )
    out = <unsigned char*>PyBytes_AS_STRING(message)
    memcpy(out, b"\x00\x53\x73", 3)
    out += 3
    if size < 256 and count < 256:
        out[0] = 0xC0
        out[1] = <unsigned char>size
        out[2] = <unsigned char>count
        out += 3
    else:
        out[0] = 0xD0
        store32(out + 1, <uint32_t>(size + 3))
        store32(out + 5, count)
        out += 9
    memcpy(out, p + first, before - first)
    out += before - first
    while missing:
        out[0] = 0x40
        out += 1
        missing -= 1
    out[0] = 0x83
    store64(out + 1, <uint64_t>expiry_ms)
    out[9] = 0x83
    store64(out + 10, <uint64_t>creation_ms)
    out += 18
    memcpy(out, p + after, end - after)
    return message
