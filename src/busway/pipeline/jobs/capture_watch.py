"""Which entities a capture follows, and how each of them stands. Each has a life of its own.

One that is deleted is waited for; one that is made again, or migrated, goes on with its new
journal; one that cannot be read says why, and the others go on. Patterns find new entities while
the capture runs.
"""

from __future__ import annotations

import fnmatch
import re
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode

from busway.pipeline.wire.journal import (
    Heads,
    HttpLine,
    Journal,
    JournalError,
    NotCapturedError,
    NotFoundError,
    UnreachableError,
)
from busway.pipeline.wire.offsets import Span
from busway.remote.client import RemoteError, RemoteServer
from busway.remote.connection import Credentials

FIRST_PATIENCE_S = 10.0
"""For a broker that was never reached: the user may have mistyped where it is."""
PATIENCE_S = 120.0
"""For one that was: longer than a restart takes."""
LIST_EVERY_S = 10.0
LISTED_AT_ONCE = 1_000
SEEN_MAX = 1_000
PATTERN = re.compile(r"[*?\[]")
EVERYTHING = "*"
TWIN = re.compile(r"\.migration-\d+(/|$)", re.IGNORECASE)
"""Of an entity that is being migrated: it is captured by the name that it will take."""

READING, WAITING, FAILED = "reading", "waiting", "failed"


class NothingToCaptureError(JournalError):
    """No entity is there, and none can come."""


@dataclass(slots=True)
class Captured:
    """What a run did with one entity, for its summary."""

    entity: str
    epoch: str = ""
    batches: int = 0
    rows: int = 0
    state: str = WAITING
    """`reading`, `waiting` for the entity to be there, or `failed`."""
    problem: str = ""
    behind: dict[int, int] = field(default_factory=dict)
    """By partition: how many events are still to be captured."""


@dataclass(slots=True)
class Followed:
    """One entity."""

    name: str
    """As the user or the broker writes it."""
    captured: Captured
    heads: Heads | None = None
    marks: dict[int, int] = field(default_factory=dict)
    """By partition: what the lake has of this incarnation, and so what is read next."""
    marked: dict[int, int] = field(default_factory=dict)
    """By partition: the mark in the table's log, where there is one."""
    seen: deque[tuple[float, dict[int, int]]] = field(default_factory=deque)
    """When what was there, oldest first, from before what is still to be read."""
    held: dict[int, int] = field(default_factory=dict)
    """Where its hold at the broker is."""

    @property
    def key(self) -> str:
        return self.name.lower()

    def spans(self) -> list[Span]:
        """What there is to read."""
        if self.heads is None or self.captured.state != READING:
            return []
        ends = self.heads.latest.next
        between = [Span(part, self.marks.get(part, 0), end) for part, end in sorted(ends.items())]
        return [span for span in between if span.rows > 0]


InLake = Callable[[Heads], tuple[Mapping[int, int], Mapping[int, int]]]


class Watch:
    """All of them. `in_lake` tells what the lake has of an incarnation, and its marks."""

    def __init__(
        self,
        credentials: Credentials,
        names: Sequence[str],
        in_lake: InLake,
        say: Callable[[str], None] = lambda text: None,
        *,
        accept_loss: bool = False,
    ) -> None:
        self._credentials = credentials
        self._plain = [name for name in names if not PATTERN.search(name)]
        self._patterns = [name for name in names if PATTERN.search(name)]
        self._in_lake = in_lake
        self._say = say
        self._accept_loss = accept_loss
        self._line = HttpLine()
        self._listed_at = float("-inf")
        self._unreachable_since: float | None = None
        self.followed: dict[str, Followed] = {}
        for name in self._plain:
            self._follow(name)

    def close(self) -> None:
        self._line.close()

    @property
    def captured(self) -> dict[str, Captured]:
        return {each.name: each.captured for each in self.followed.values()}

    @property
    def reading(self) -> list[Followed]:
        return [each for each in self.followed.values() if each.captured.state == READING]

    @property
    def can_go_on(self) -> bool:
        """Whether there is anything to read or to wait for."""
        if self._patterns or not self.followed:
            return True
        return any(each.captured.state != FAILED for each in self.followed.values())

    # --- looking ---------------------------------------------------------------------------------

    def begin(self, *, once: bool) -> None:
        """The first look. Raises what the user has to know before Spark is started."""
        missing: dict[str, NotFoundError] = {}
        self._discover(FIRST_PATIENCE_S)
        for each in self.followed.values():
            try:
                self._see(each, self._heads(each, FIRST_PATIENCE_S))
            except NotFoundError as error:
                missing[each.name] = error
            except UnreachableError:
                raise
            except JournalError as error:
                if len(self.followed) == 1 and not self._patterns:
                    raise
                self._fail(each, str(error))
        if missing and (once or len(missing) == len(self.followed)) and not self._patterns:
            name, problem = next(iter(missing.items()))
            raise self.nearest(name, problem) from problem
        for name, problem in missing.items():
            self._say(f"{self.nearest(name, problem)} Waiting until it is made")
        if self._patterns and not self.followed:
            told = f"Nothing at {self._credentials.endpoint} is called {self._pattern_text()}."
            if once:
                raise NothingToCaptureError(told)
            self._say(f"{told} Waiting")

    def look(self) -> None:
        """How everything stands now. A broker that does not answer is waited for."""
        try:
            self._discover(0.0)
            for each in list(self.followed.values()):
                if each.captured.state != FAILED:
                    self._look_at(each)
        except UnreachableError as error:
            self._wait(error)
        else:
            if self._unreachable_since is not None:
                self._say("the broker answers again")
            self._unreachable_since = None

    def _wait(self, error: UnreachableError) -> None:
        now = time.monotonic()
        if self._unreachable_since is None:
            self._unreachable_since = now
            self._say("the broker does not answer; waiting")
        elif now - self._unreachable_since > PATIENCE_S:
            raise error

    def _look_at(self, each: Followed) -> None:
        try:
            heads = self._heads(each, 0.0)
        except NotFoundError:
            self.gone(each)
        except UnreachableError:
            raise
        except JournalError as error:
            self._fail(each, str(error))
        else:
            self._see(each, heads)

    def _heads(self, each: Followed, patience_s: float) -> Heads:
        journal = self.journal(each, patience_s)
        try:
            heads = journal.heads()
        except NotCapturedError:
            heads = journal.capture(True)
            self._say(f"{each.name}: captured from now on")
            return heads
        known = each.heads is not None and each.heads.epoch == heads.epoch
        if not heads.capture and not known:
            heads = journal.capture(True)
            self._say(f"{each.name}: captured from now on")
        elif each.heads is None:
            self._say(f"{each.name}: captured since {heads.since}")
        return heads

    def _see(self, each: Followed, heads: Heads) -> None:
        before = each.heads
        if before is None or before.epoch != heads.epoch:
            if each.captured.epoch not in ("", heads.epoch):
                self._say(
                    f"{each.name}: it was migrated, or made anew, and has a new journal: going on "
                    "with that"
                )
            there, marked = self._in_lake(heads)
            each.marks, each.marked = self._beginning(each, heads, there), dict(marked)
            each.held = {}
            each.seen.clear()
        each.heads = heads
        each.captured.epoch = heads.epoch
        if each.captured.state != FAILED:
            each.captured.state, each.captured.problem = READING, ""
        self._measure(each)

    def _beginning(self, each: Followed, heads: Heads, there: Mapping[int, int]) -> dict[int, int]:
        """After what the lake has; an incarnation that it knows nothing of from its beginning."""
        earliest = heads.earliest.next
        lost = {
            part: earliest[part] - mark
            for part, mark in there.items()
            if mark < earliest.get(part, 0)
        }
        if lost and not self._accept_loss:
            self._fail(
                each,
                f"The journal of '{each.name}' no longer has {sum(lost.values()):,} events that "
                f"the lake does not have either (partitions {', '.join(map(str, sorted(lost)))}): "
                "its retention has passed them. To go on without them say --accept-loss; "
                f"'busway capture {each.name} --held-size-mb N' lets the journal wait for more.",
            )
        elif lost:
            self._say(f"{each.name}: going on without {sum(lost.values()):,} events that are lost")
        return {part: max(first, there.get(part, 0)) for part, first in earliest.items()}

    def _measure(self, each: Followed) -> None:
        each.captured.behind = {span.partition: span.rows for span in each.spans()}
        seen = each.seen
        if each.heads is not None:
            ends = dict(each.heads.latest.next)
            if not seen or seen[-1][1] != ends:
                seen.append((time.monotonic(), ends))
        while seen and all(end <= each.marks.get(part, 0) for part, end in seen[0][1].items()):
            seen.popleft()
        while len(seen) > SEEN_MAX:  # the first says since when, the last what is there
            del seen[1]

    # --- what is told of them --------------------------------------------------------------------

    @property
    def unreachable(self) -> bool:
        return self._unreachable_since is not None

    def partitions(self, name: str) -> list[int]:
        heads = self.followed[name.lower()].heads
        return [] if heads is None else [each.partition for each in heads.partitions]

    def waiting_s(self, name: str) -> float:
        """How long the oldest event that is not in the lake was seen waiting; 0 for none."""
        each = self.followed[name.lower()]
        if not each.captured.behind or not each.seen:
            return 0.0
        return time.monotonic() - each.seen[0][0]

    # --- what becomes of one ---------------------------------------------------------------------

    def gone(self, each: Followed) -> None:
        if each.captured.state != WAITING:
            self._say(f"{each.name}: was deleted; waiting until it is made again")
        each.captured.state = WAITING
        each.captured.behind = {}
        each.heads = None

    def failed(self, name: str, problem: str) -> None:
        self._fail(self.followed[name.lower()], problem)

    def _fail(self, each: Followed, problem: str) -> None:
        each.captured.state, each.captured.problem = FAILED, problem
        self._say(f"{each.name}: is no longer captured. {problem}")

    def advance(self, each: Followed, spans: Sequence[Span]) -> None:
        """These are in the lake."""
        ends = {span.partition: span.end for span in spans}
        each.marks |= ends
        each.marked = dict(each.marks)
        each.captured.rows += sum(span.rows for span in spans)
        each.captured.batches += 1
        self._measure(each)

    def refresh(self, each: Followed) -> None:
        """Another one, or a commit without an answer, may have moved its marks."""
        assert each.heads is not None
        there, marked = self._in_lake(each.heads)
        each.marked = dict(marked)
        for part, mark in there.items():
            each.marks[part] = max(each.marks.get(part, 0), mark)
        self._measure(each)

    # --- finding ---------------------------------------------------------------------------------

    def journal(self, each: Followed, patience_s: float) -> Journal:
        allowed = self._credentials.pass_for(each.name)
        return Journal(each.name, allowed, patience_s=patience_s, line=self._line)

    def nearest(self, name: str, error: NotFoundError) -> NotFoundError:
        """The error, with what the user may have meant."""
        near = RemoteServer(self._credentials).nearest(name)
        return error if near is None else NotFoundError(f"{error} Is it '{near}'?")

    def _follow(self, name: str) -> None:
        self.followed.setdefault(name.lower(), Followed(name, Captured(name)))

    def _discover(self, patience_s: float) -> None:
        now = time.monotonic()
        if not self._patterns or now - self._listed_at < LIST_EVERY_S:
            return
        until = now + patience_s
        while True:
            try:
                names = [name for pattern in self._patterns for name in self._listed(pattern)]
                break
            except RemoteError as error:
                if error.word is not None or "does not accept" in str(error):
                    raise JournalError(
                        f"Patterns take a key that may manage the namespace. {error}"
                    ) from error
                if time.monotonic() >= until:
                    raise UnreachableError(str(error)) from error
                time.sleep(0.2)
        for name in names:
            if name.lower() not in self.followed and self._listed_at > float("-inf"):
                self._say(f"{name}: is new")
            self._follow(name)
        self._listed_at = now

    def _listed(self, pattern: str) -> list[str]:
        server = RemoteServer(self._credentials)
        # A topic's own name stands for its subscriptions, too, so what comes is looked at here.
        query = urlencode({"entity": pattern, "top": str(LISTED_AT_ONCE)}, quote_via=quote)
        path: str | None = f"/$busway/map?{query}"
        found: list[str] = []
        while path is not None:
            page = server.get(path)
            found += [str(each["name"]) for each in page["entities"]]
            path = page["next"]
        return [name for name in found if _matches(name, pattern)]

    def _pattern_text(self) -> str:
        return " or ".join(f"'{each}'" for each in self._patterns)


def _matches(name: str, pattern: str) -> bool:
    """`*` alone is everything. A pattern without a slash is of queues and topics alone."""
    if TWIN.search(name):
        return False
    if pattern == EVERYTHING:
        return True
    same_depth = name.count("/") == pattern.count("/")
    return same_depth and fnmatch.fnmatchcase(name.lower(), pattern.lower())
