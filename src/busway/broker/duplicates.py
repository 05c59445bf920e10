"""Duplicate detection: which message ids a partition has accepted lately (DUP, P-21).

The history of a partition is in its store, as long as its window. Memory has the newest ids of all
partitions of a broker, so many and no more, and of those that it let go a sieve (`sieve.py`). An id
that may be in the store only is looked up there before it is called new.

Whoever cannot be told yet waits, and whoever comes after it to the same partition waits behind it:
the messages of a sender or a session keep their order (MSG-7).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from busway.broker.sieve import SieveBudget, StoredOnly
from busway.broker.staging import Stage
from busway.model.errors import BusError
from busway.model.message import Message
from busway.store.base import READ_ROWS_MAX, DuplicateMark, MessagingStore

if TYPE_CHECKING:
    from busway.broker.sub_queue import SubQueue

T = TypeVar("T")

IDS_MAX = 128 * 1024
"""Ids that a broker keeps in memory, over all partitions; 205 bytes each (measured), so 26 MiB. The
duplicates of a sender that tries again come within seconds, and are found here."""
SIEVES_MAX = 64
"""For the ids beyond: 32 MiB in all, two for each partition that needs them."""


class DuplicatesOwner(Protocol):
    def now_ms(self) -> int: ...

    def read(
        self, operation: Callable[[MessagingStore], T], done: Callable[[T | BusError], None]
    ) -> None: ...


class Duplicates:
    """The histories of a broker, and what they keep in memory together."""

    def __init__(self, owner: DuplicatesOwner) -> None:
        self.now_ms = owner.now_ms
        self.read = owner.read
        self.sieves = SieveBudget(SIEVES_MAX)
        self._histories: dict[int, DuplicateHistory] = {}
        """By slot."""
        self._order: deque[DuplicateMark] = deque()
        """The ids in memory, those that came first to the left."""

    def __iter__(self) -> Iterator[DuplicateHistory]:
        return iter(self._histories.values())

    def __len__(self) -> int:
        """How many ids are in memory."""
        return len(self._order)

    def history(self, sub_queue: SubQueue) -> DuplicateHistory:
        history = self._histories.get(sub_queue.slot)
        if history is None:
            history = self._histories[sub_queue.slot] = DuplicateHistory(self, sub_queue)
        return history

    def forget(self, sub_queue: SubQueue) -> None:
        history = self._histories.pop(sub_queue.slot, None)
        if history is not None:
            history.stored_only.clear()

    def give_up(self) -> None:
        """The store is not well: whoever waits is told so."""
        for history in list(self._histories.values()):
            history.give_up()

    # What histories ask.

    def keep(self, mark: DuplicateMark) -> None:
        """The newest of all; the oldest go, if there are too many or their time is over."""
        order, now_ms = self._order, self.now_ms()
        order.append(mark)
        while len(order) > IDS_MAX or (order and order[0].until_ms <= now_ms):
            self._let_go(order.popleft(), now_ms)

    def keep_older(self, mark: DuplicateMark) -> bool:
        """Whether there is room for one from before the broker opened its store."""
        if len(self._order) >= IDS_MAX:
            return False
        self._order.appendleft(mark)
        return True

    def _let_go(self, mark: DuplicateMark, now_ms: int) -> None:
        history = self._histories.get(mark.slot)
        if history is not None:
            history.let_go(mark, now_ms)


class Waiting(NamedTuple):
    command: object
    digests: list[bytes]
    again: Callable[[], None]


class DuplicateHistory:
    """The digests of one partition. 16 bytes each: two different ids never meet by chance."""

    __slots__ = (
        "_answers",
        "_held",
        "_house",
        "_loading",
        "_looking_up",
        "_recent",
        "_running",
        "_slot",
        "_staged",
        "_unread_after",
        "_waiting",
        "stored_only",
    )

    def __init__(self, house: Duplicates, sub_queue: SubQueue) -> None:
        self._house = house
        self._slot = sub_queue.slot
        self._recent: dict[bytes, int] = {}
        """Until when each counts."""
        self.stored_only = StoredOnly(house.sieves)
        self._staged: dict[bytes, Stage] = {}
        self._unread_after: bytes | None = b"" if sub_queue.stored else None
        """How far the store's history was read since it was opened; None: to its end (D-13)."""
        self._loading = False
        self._waiting: deque[Waiting] = deque()
        self._running: object | None = None
        """The first of those that wait, while it is tried again; `_held` if it has to go on."""
        self._held = False
        self._looking_up = False
        self._answers: dict[bytes, int] = {}
        """What the store said last, until when each counts; 0 if it does not have it. Good while
        somebody waits: nothing is staged past those that do, and `let_go` keeps it true."""

    # Commands.

    def waits(
        self, command: object, messages: Sequence[Message], again: Callable[[], None]
    ) -> bool:
        """Whether duplicates can only be told later; then `again` is called, in the order of the
        commands (D-1, MSG-7). `command` is what stays the same when it comes again."""
        is_first = self.is_trying(command)
        if self._waiting and not is_first:
            self._wait(command, messages, again)
            return True
        uncertain, unknown = None, False
        now_ms = self._house.now_ms()
        for message in messages:
            digest = message.digest
            if digest is not None:
                uncertain = uncertain or self._staged.get(digest)
                unknown = unknown or self._is_unknown(digest, now_ms)
        if uncertain is None and not unknown:
            return False
        if is_first:
            self._held = True
        else:
            self._wait(command, messages, again)
        if uncertain is not None:
            uncertain.waiting.append(self.go_on)
        else:
            self._look_up()
        return True

    def fresh(self, messages: Sequence[Message], now_ms: int) -> list[Message]:
        """Without those that were here before, or twice among themselves (DUP-3, DUP-4).

        Asked at once after `waits` had nothing to wait for.
        """
        first: dict[bytes, None] = {}
        kept = []
        for message in messages:
            digest = message.digest
            if digest is not None:
                # What is staged here is in the same transaction: `waits` was asked before.
                if digest in first or digest in self._staged:
                    continue
                until_ms = self._recent.get(digest)
                if until_ms is None:
                    until_ms = self._answers.get(digest, 0)
                if until_ms > now_ms:
                    continue
                first[digest] = None
            kept.append(message)
        return kept

    def stage(self, stage: Stage, messages: Sequence[Message], until_ms: int) -> None:
        for message in messages:
            if message.digest is not None:
                self._staged[message.digest] = stage
                mark = DuplicateMark(self._slot, message.digest, until_ms)
                stage.duplicates.append((self, mark))

    # Outcomes.

    def committed(self, mark: DuplicateMark) -> None:
        self._staged.pop(mark.digest, None)
        self._recent[mark.digest] = mark.until_ms
        self._house.keep(mark)

    def undone(self, mark: DuplicateMark) -> None:
        self._staged.pop(mark.digest, None)

    def let_go(self, mark: DuplicateMark, now_ms: int) -> None:
        """Of this one memory knows no more than that the store has it."""
        if self._recent.get(mark.digest) == mark.until_ms:
            del self._recent[mark.digest]
            if mark.digest in self._answers:
                self._answers[mark.digest] = mark.until_ms
            if mark.until_ms > now_ms:
                self.stored_only.add(mark.digest, mark.until_ms, now_ms)

    # Those that wait.

    @property
    def is_at_rest(self) -> bool:
        return not (self._staged or self._waiting or self._answers)

    def give_up(self) -> None:
        """Whoever waits tries again, and learns from the broker what is wrong."""
        waiting, self._waiting = self._waiting, deque()
        self._answers = {}
        for each in waiting:
            each.again()

    def is_trying(self, command: object) -> bool:
        return self._running is not None and self._running is command

    def hold(self, command: object) -> None:
        """It is being tried again, and has to wait for something else: it keeps its place."""
        if self.is_trying(command):
            self._held = True

    def _wait(
        self, command: object, messages: Sequence[Message], again: Callable[[], None]
    ) -> None:
        digests = [message.digest for message in messages if message.digest is not None]
        self._waiting.append(Waiting(command, digests, again))

    def go_on(self) -> None:
        """Try those that wait again, one after the other, up to the first that still has to."""
        if self._running is not None:
            return
        while self._waiting:
            first = self._waiting[0]
            self._running, self._held = first.command, False
            first.again()
            self._running = None
            if self._held:
                return
            if self._waiting and self._waiting[0] is first:
                self._waiting.popleft()
        self._answers = {}

    # What only the store knows.

    def _is_unknown(self, digest: bytes, now_ms: int) -> bool:
        if digest in self._recent or digest in self._answers:
            return False
        return self._unread_after is not None or self.stored_only.may_hold(digest, now_ms)

    def _look_up(self) -> None:
        """Ask the store for what the first needs, and those behind it as far as a page goes."""
        if self._looking_up:
            return
        self._looking_up = True
        slot, now_ms = self._slot, self._house.now_ms()
        asked: dict[bytes, int] = {}
        for each in self._waiting:
            unknown = [digest for digest in each.digests if self._is_unknown(digest, now_ms)]
            if asked and len(asked) + len(unknown) > READ_ROWS_MAX:
                break
            asked.update(dict.fromkeys(unknown, 0))
        # What is staged now may be committed, and let go, before the answer is there.
        digests = [digest for digest in asked if digest not in self._staged]

        def done(outcome: list[DuplicateMark] | BusError) -> None:
            self._looking_up = False
            if isinstance(outcome, BusError):
                self.give_up()
                return
            if not self._waiting:
                return  # they were told meanwhile that the store is not well
            self._answers = dict.fromkeys(digests, 0)
            self._answers.update((mark.digest, mark.until_ms) for mark in outcome)
            self.go_on()

        self._house.read(lambda store: store.find_duplicates(slot, digests, now_ms), done)
        self._load()

    def _load(self) -> None:
        """Read the store's own history, page by page, behind the look-ups of those that wait: a
        history may be long, and nobody waits for its end (D-13)."""
        after = self._unread_after
        if after is None or self._loading:
            return
        self._loading = True
        slot, now_ms = self._slot, self._house.now_ms()

        def done(outcome: list[DuplicateMark] | BusError) -> None:
            self._loading = False
            if isinstance(outcome, BusError):
                return  # the next look-up begins where this one was
            self._unread_after = outcome[-1].digest if outcome else None
            self._loaded(outcome)
            self._load()

        self._house.read(lambda store: store.read_duplicates(slot, after, now_ms), done)

    def _loaded(self, marks: Sequence[DuplicateMark]) -> None:
        now_ms = self._house.now_ms()
        for mark in marks:
            if mark.digest in self._recent or mark.until_ms <= now_ms:
                continue  # what was committed since is newer
            if self._house.keep_older(mark):
                self._recent[mark.digest] = mark.until_ms
            else:
                self.stored_only.add(mark.digest, mark.until_ms, now_ms)
