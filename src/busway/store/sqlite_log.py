"""SQLite's write-ahead log as bytes: what it holds, and whether it ends where it should.

SQLite takes a log up to its first frame that is not valid, and what is behind that is gone without
a word. After a crash that is right: the last commit may be half written. After damage it is not:
commits that were acknowledged lie behind the bad frame. Each commit is synced before the next one
is written, so a whole frame behind another commit's end proves that all before it was on the disk.

Frames are checked one by one: the checksum of a frame starts from the one that is stored with the
frame before it, so one bad frame does not hide those behind it. The format is that of SQLite's
"WAL-mode File Format", sections 1 to 3.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from operator import mul
from pathlib import Path
from typing import BinaryIO, Final

HEADER: Final = struct.Struct(">8I")
"""Magic number, format, page size, checkpoint, salts, checksum."""
FRAME_HEADER: Final = struct.Struct(">6I")
"""Page, size of the database for a commit's last frame, else 0, salts, checksum."""
INDEX_HEADER: Final = struct.Struct("=I12xI")
"""Of SQLite's index of the log, in the byte order of the machine: version, and frames taken."""
INDEX_VERSION: Final = 3_007_000
MAGIC_LITTLE_ENDIAN: Final = 0x377F0682
MAGIC_BIG_ENDIAN: Final = 0x377F0683
CHECKED_OF_HEADER: Final = 24
CHECKED_OF_FRAME_HEADER: Final = 8
WORD_MASK: Final = 0xFFFF_FFFF
PAGE_SIZES: Final = frozenset(1 << bits for bits in range(9, 17))

Checksum = tuple[int, int]


@dataclass(slots=True)
class LogScan:
    """What a log holds. Frames are counted from 1."""

    header_is_valid: bool = True
    frames: int = 0
    """Whole frames in the file that belong to this life of the log."""
    valid_frames: int = 0
    """Those in front of the first bad one: what SQLite takes, up to the last commit in it."""
    committed_frames: int = 0
    """Up to the end of the last commit that SQLite takes."""
    lost_commits: int = 0
    """Commits behind the first bad frame whose end can still be read."""
    is_damaged: bool = False
    """A bad frame lies in front of commits that were certainly on the disk."""
    has_torn_end: bool = False
    """The end cannot be read. A crash of the machine leaves that, and so does damage to the last
    commit: only the mark beside the store can tell which (`commit_mark.py`)."""
    database_pages: int | None = None
    """The size of the database after the last commit that SQLite takes."""
    pages: set[int] = field(default_factory=set)
    """The database's pages that are in it, up to that commit."""


@dataclass(frozen=True, slots=True)
class _Frame:
    page: int
    commit_size: int
    salts: tuple[int, int]
    checksum: Checksum
    is_valid: bool
    """Its checksum follows from that of the frame before, as it is stored."""


def log_of(database: Path) -> Path:
    return database.with_name(database.name + "-wal")


def shared_memory_of(database: Path) -> Path:
    return database.with_name(database.name + "-shm")


def frames_taken(database: Path) -> int:
    """How many frames of the log SQLite takes, by its index of the log; 0 if there is none.

    Some connection must have read the database: that is when SQLite looks through the log.
    """
    try:
        with shared_memory_of(database).open("rb") as file:
            header = file.read(INDEX_HEADER.size)
    except FileNotFoundError:
        return 0
    if len(header) < INDEX_HEADER.size:
        return 0
    version, frames = INDEX_HEADER.unpack(header)
    return int(frames) if version == INDEX_VERSION else 0


def scan_log(log: Path, trusted_frames: int = 0) -> LogScan | None:
    """What is in the log; None if there is none, or nothing in it.

    The checksums of `trusted_frames` are not computed again: SQLite has done so. It takes Python
    half a millisecond for a page.
    """
    try:
        file = log.open("rb")
    except FileNotFoundError:
        return None
    with file:
        header = file.read(HEADER.size)
        if not header:
            return None
        return _scan(file, header, trusted_frames)


def _scan(file: BinaryIO, header: bytes, trusted_frames: int) -> LogScan:
    fields = HEADER.unpack(header) if len(header) == HEADER.size else (0,) * 8
    magic, _, page_size, _, *rest = fields
    salts, checksum = (rest[0], rest[1]), (rest[2], rest[3])
    big_endian = magic == MAGIC_BIG_ENDIAN
    if (
        magic not in (MAGIC_LITTLE_ENDIAN, MAGIC_BIG_ENDIAN)
        or page_size not in PAGE_SIZES
        or checksum_of(header[:CHECKED_OF_HEADER], (0, 0), big_endian) != checksum
    ):
        # The header is synced before the first frame: a log with frames has had a whole one.
        has_frames = bool(file.read(FRAME_HEADER.size))
        return LogScan(header_is_valid=False, is_damaged=has_frames, has_torn_end=not has_frames)
    scan = LogScan()
    committed_behind = False
    unsettled: set[int] = set()
    for frame in _frames(file, page_size, checksum, big_endian, trusted_frames):
        ours = frame.salts == salts
        good = ours and frame.is_valid and frame.page > 0
        scan.frames += 1
        if scan.valid_frames == scan.frames - 1 and good:
            scan.valid_frames += 1
            unsettled.add(frame.page)
            if frame.commit_size:
                scan.committed_frames = scan.frames
                scan.database_pages = frame.commit_size
                scan.pages |= unsettled
                unsettled.clear()
            continue
        # From here on SQLite sees nothing. What is of a former life has other salts.
        if good and committed_behind:
            scan.is_damaged = True
        if ours:
            scan.has_torn_end = True
            if frame.commit_size:
                committed_behind = True
                scan.lost_commits += 1
    return scan


def _frames(
    file: BinaryIO, page_size: int, checksum: Checksum, big_endian: bool, trusted: int
) -> Iterator[_Frame]:
    length = FRAME_HEADER.size + page_size
    while len(data := file.read(length)) == length:
        page, commit_size, salt_1, salt_2, sum_1, sum_2 = FRAME_HEADER.unpack_from(data)
        if trusted > 0:
            trusted -= 1
            is_valid = True
        else:
            checked = data[:CHECKED_OF_FRAME_HEADER] + data[FRAME_HEADER.size :]
            is_valid = checksum_of(checked, checksum, big_endian) == (sum_1, sum_2)
        checksum = (sum_1, sum_2)
        yield _Frame(page, commit_size, (salt_1, salt_2), checksum, is_valid)


def checksum_of(data: bytes, start: Checksum, big_endian: bool) -> Checksum:
    """SQLite's: for each pair of words, `s0 += x + s1` and `s1 += y + s0`, modulo 2^32.

    That is linear, so both sums are a product of the words with Fibonacci numbers: a fifth of the
    time that the loop takes in Python.
    """
    words = array("I", data)
    if big_endian != (sys.byteorder == "big"):
        words.byteswap()
    first, second, (from_0, from_1) = _coefficients(len(words))
    s0, s1 = start
    sum_0 = sum(map(mul, words, first)) + from_0[0] * s0 + from_0[1] * s1
    sum_1 = sum(map(mul, words, second)) + from_1[0] * s0 + from_1[1] * s1
    return sum_0 & WORD_MASK, sum_1 & WORD_MASK


@lru_cache(maxsize=8)
def _coefficients(
    words: int,
) -> tuple[list[int], list[int], tuple[tuple[int, int], tuple[int, int]]]:
    """What each word, and each of the two sums at the start, adds to the two sums at the end."""
    first: list[int] = []
    second: list[int] = []
    a, b, c, d = 1, 0, 0, 1  # what the sums behind the current pair add to the final ones
    for _ in range(words // 2):
        # y is added to s1 only; x to s0, which is then added to s1.
        first += (b, a + b)
        second += (d, c + d)
        a, b = a + b, (a + 2 * b)
        c, d = c + d, (c + 2 * d)
        a, b, c, d = a & WORD_MASK, b & WORD_MASK, c & WORD_MASK, d & WORD_MASK
    first.reverse()
    second.reverse()
    return [each & WORD_MASK for each in first], second, ((a, b), (c, d))
