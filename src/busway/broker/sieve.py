"""Which digests only the store still has: *certainly not*, or *perhaps* (DUP, P-21).

A history that outgrew its share of memory must ask its store before it calls an id new, and an
answer takes as long as what is before it in the store's line. A sieve keeps that rare: it is a
Bloom filter, so it never says *not* of an id that was put in. Its bits for one digest lie in one
word, which is one look into an array in Python. Measured with 10 bits for each id: 2 % of new ids
are taken for *perhaps*, with 5 bits 11 %. Fuller still, it is of less and less use, never wrong.
"""

from __future__ import annotations

from array import array

SIEVE_BYTES = 512 * 1024
"""Of each of the two sieves of a history: good for about 400,000 ids."""
_WORD_MASK = SIEVE_BYTES // 8 - 1
assert SIEVE_BYTES & (SIEVE_BYTES - 1) == 0, "the mask takes a power of two"


class Sieve:
    __slots__ = ("_words", "until_ms")

    def __init__(self) -> None:
        self._words = array("Q", bytes(SIEVE_BYTES))
        self.until_ms = 0
        """When the last id in it is over."""

    def add(self, digest: bytes, until_ms: int) -> None:
        self._words[_place(digest)] |= _bits(digest)
        if until_ms > self.until_ms:
            self.until_ms = until_ms

    def may_hold(self, digest: bytes) -> bool:
        bits = _bits(digest)
        return self._words[_place(digest)] & bits == bits


class SieveBudget:
    """How many sieves the histories of one broker may have together."""

    __slots__ = ("left",)

    def __init__(self, sieves_max: int) -> None:
        self.left = sieves_max

    def make(self) -> Sieve | None:
        if self.left == 0:
            return None
        self.left -= 1
        return Sieve()

    def give_back(self) -> None:
        self.left += 1


class StoredOnly:
    """The ids of one history that are not in memory any more.

    What is put into a sieve cannot be taken out, so there are two: a new one is begun when the ids
    of the older are over, and by the time the older is thrown away every id that counts is in the
    other. Where there is no room for a sieve, every id is one that the store perhaps has.
    """

    __slots__ = ("_blind_until_ms", "_budget", "_old", "_young")

    def __init__(self, budget: SieveBudget) -> None:
        self._budget = budget
        self._young: Sieve | None = None
        self._old: Sieve | None = None
        self._blind_until_ms = 0

    def add(self, digest: bytes, until_ms: int, now_ms: int) -> None:
        self._turn(now_ms)
        if self._young is None:
            self._young = self._budget.make()
        if self._young is None:
            self._blind_until_ms = max(self._blind_until_ms, until_ms)
        else:
            self._young.add(digest, until_ms)

    def may_hold(self, digest: bytes, now_ms: int) -> bool:
        if self._blind_until_ms > now_ms:
            return True
        young, old = self._young, self._old
        return (young is not None and young.until_ms > now_ms and young.may_hold(digest)) or (
            old is not None and old.until_ms > now_ms and old.may_hold(digest)
        )

    def clear(self) -> None:
        for sieve in (self._young, self._old):
            if sieve is not None:
                self._budget.give_back()
        self._young = self._old = None

    def _turn(self, now_ms: int) -> None:
        if self._old is not None and self._old.until_ms <= now_ms:
            self._old = None
            self._budget.give_back()
        if self._old is None:
            self._old, self._young = self._young, None


def _place(digest: bytes) -> int:
    return int.from_bytes(digest[:4], "big") & _WORD_MASK


def _bits(digest: bytes) -> int:
    return (
        1 << (digest[4] & 63)
        | 1 << (digest[5] & 63)
        | 1 << (digest[6] & 63)
        | 1 << (digest[7] & 63)
    )
