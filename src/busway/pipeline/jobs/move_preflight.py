"""What somebody wants to know before a queue or topic is stopped to be migrated.

What is there and how large it is, about how long it takes, who sends to it by forwarding, and which
readers of its journal have not read it to its end. Those are waited for while it still serves: the
old journal goes with the switch, and a stopped queue is no place to find that out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

from busway.pipeline.wire.journal import Journal, NotCapturedError
from busway.pipeline.wire.offsets import Span
from busway.remote.client import RemoteServer
from busway.remote.connection import Credentials

MOVED_PER_S = 1_500
COMPARED_PER_S = 8_000
AT_LEAST_S = 15
"""What a move and Spark's comparison took on two cores with nothing else to do; an estimate."""
MOVED = "moved"


@dataclass(frozen=True, slots=True)
class Reader:
    """Of a journal, by its hold."""

    entity: str
    name: str
    events: int
    """That it has still to read."""
    only_moved: bool
    """Whether all of them tell of messages that this migration has moved. The new journal tells of
    their arrival, so nobody misses them who is there after the switch."""
    offset: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.name} has {self.events:,} events of '{self.entity}' to read"


@dataclass(slots=True)
class Preflight:
    bytes: int = 0
    estimated_s: int = 0
    """For how long it would be stopped, about."""
    refusal: str | None = None
    """Why the server would not migrate it."""
    forwarded_by: list[str] = field(default_factory=list)
    """Entities whose messages wait while it is stopped."""
    readers: list[str] = field(default_factory=list)
    """Who follows its journal; who is behind, and by how much."""
    behind: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        told = [f"It is {_size(self.bytes)}, and would be stopped for about {self.estimated_s} s."]
        if self.refusal:
            told.append(f"It would be refused: {self.refusal}")
        if self.forwarded_by:
            waits = "waits" if len(self.forwarded_by) == 1 else "wait"
            told.append(
                f"What {', '.join(self.forwarded_by)} forward to it {waits} there meanwhile."
            )
        if self.readers:
            told.append(f"Its journal is followed by {', '.join(self.readers)}.")
        if self.behind:
            told.append("These have to read it to its end first:")
            told += [f"  {each}" for each in self.behind]
        return told


def look(
    credentials: Credentials, entity: str, messages: int, told: Mapping[str, Any], own: str
) -> Preflight:
    """`told` is what the server says of the migration; `own` the name of a hold that is ours."""
    there = _entities(credentials, entity)
    found = Preflight(
        bytes=sum(size for _, size in there),
        estimated_s=AT_LEAST_S + messages // MOVED_PER_S + messages // COMPARED_PER_S,
        refusal=told.get("refusal"),
        forwarded_by=list(told.get("forwarded_by", ())),
    )
    for name, _ in there:
        for reader in readers(credentials, name, own):
            found.readers.append(f"{reader.name} ('{name}')")
            if reader.events:
                found.behind.append(str(reader))
    return found


def _entities(credentials: Credentials, entity: str) -> list[tuple[str, int]]:
    """The queue; or the topic and its subscriptions. With their bytes."""
    query = urlencode({"entity": entity, "top": "1000"}, quote_via=quote)
    path: str | None = f"/$busway/map?{query}"
    found: list[tuple[str, int]] = []
    while path is not None:
        page = RemoteServer(credentials).get(path)
        for each in page["entities"]:
            depths = [part["depth"] for part in each["partitions"] if part["depth"] is not None]
            found.append((str(each["name"]), sum(int(depth["bytes"]) for depth in depths)))
        path = page["next"]
    return found


def readers(credentials: Credentials, entity: str, own: str) -> list[Reader]:
    """All of its journal; none if it has none."""
    found = []
    with Journal(entity, credentials.pass_for(entity)) as journal:
        try:
            heads = journal.heads()
        except NotCapturedError:
            return []
        for each in journal.consumers():
            if each.name == own:
                continue
            only_moved = False
            if each.lag_rows:
                ends = heads.latest.next
                rest = [
                    Span(part, each.next.get(part, end), end) for part, end in sorted(ends.items())
                ]
                only_moved = _only_moved(journal, heads.epoch, rest)
            offset = {str(part): value for part, value in each.next.items()}
            found.append(Reader(entity, each.name, each.lag_rows, only_moved, offset))
    return found


def _only_moved(journal: Journal, epoch: str, rest: Sequence[Span]) -> bool:
    import pyarrow.compute as pc

    for span in rest:
        for batch in journal.read(epoch, span, ["event"]):
            if not pc.all(pc.equal(batch["event"], MOVED)).as_py():
                return False
    return True


def _size(count: int) -> str:
    size, unit = float(count), "bytes"
    for larger in ("KiB", "MiB", "GiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{count} bytes" if unit == "bytes" else f"{size:,.1f} {unit}"
