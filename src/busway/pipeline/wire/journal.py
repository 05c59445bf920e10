"""The journal of one entity, as a broker serves it over HTTP.

One connection is kept open and opened again when it breaks. What may be asked twice is: a broker
that is being restarted is waited for, up to a deadline, because a query that fails costs its user
more than one that is late.
"""

from __future__ import annotations

import http.client
import json
import logging
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from busway.pipeline.wire.offsets import Offset, Span
from busway.remote.connection import Pass
from busway.remote.trust import dial

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

REQUEST_WAIT_S = 60.0
PATIENCE_S = 120.0
"""How long a broker that does not answer is asked again: longer than a restart takes."""
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 5.0
BUSY = (408, 429, 500, 502, 503, 504)


class JournalError(Exception):
    """The journal cannot be read, with what to do about it."""


class GapError(JournalError):
    """What was asked for is not kept any more."""

    def __init__(self, entity: str, partition: int, asked: int, earliest: int) -> None:
        super().__init__(
            f"The journal of '{entity}' no longer has the offsets {asked} to {earliest - 1} of "
            f"partition {partition}: its retention has passed them. {earliest - asked} events are "
            "lost to this reader. To go on without them set failOnDataLoss=false, or start from "
            "startingPosition=earliest with a new checkpoint; a consumer with a hold (option "
            "'consumer') keeps the journal from passing it by."
        )
        self.partition = partition
        self.asked = asked
        self.earliest = earliest


class DamagedError(JournalError):
    """What was asked for is damaged on the broker's disk."""

    def __init__(self, entity: str, partition: int, asked: int, following: int) -> None:
        super().__init__(
            f"{following - asked} events in the journal of '{entity}', offsets {asked} to "
            f"{following - 1} of partition {partition}, are damaged on the broker's disk, and are "
            "not handed out. To go on without them set failOnDataLoss=false, or put back a backup "
            "of the broker's data; 'busway verify' says what is damaged."
        )
        self.partition = partition
        self.asked = asked
        self.following = following


class UnreachableError(JournalError):
    """The broker does not answer."""


class NotFoundError(JournalError):
    """There is no such entity."""


class NotCapturedError(JournalError):
    """The entity is there, and has no journal."""


class EpochError(JournalError):
    """The entity was migrated, or deleted and made again: offsets of the old mean nothing now."""

    def __init__(self, entity: str, asked: str, epoch: str) -> None:
        super().__init__(
            f"'{entity}' was migrated, or deleted and created again, since this reader started "
            f"(epoch {asked}, now {epoch}). Its old journal is gone. Start with a new checkpoint."
        )
        self.epoch = epoch


@dataclass(frozen=True, slots=True)
class PartitionHead:
    partition: int
    earliest: int
    next: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Heads:
    entity: str
    subscription: str | None
    epoch: str
    capture: bool
    since: str | None
    """From when on it captures without a break."""
    partitions: tuple[PartitionHead, ...]

    @property
    def earliest(self) -> Offset:
        return Offset(self.epoch, {each.partition: each.earliest for each in self.partitions})

    @property
    def latest(self) -> Offset:
        return Offset(self.epoch, {each.partition: each.next for each in self.partitions})


@dataclass(frozen=True, slots=True)
class Consumer:
    """A reader with a hold."""

    name: str
    lag_rows: int
    """How many events it has still to read."""
    next: Mapping[int, int] = field(default_factory=dict)
    """By partition: what it reads next."""


class HttpLine:
    """One connection, which the journals of several entities may use in turns."""

    def __init__(self) -> None:
        self._connection: http.client.HTTPConnection | None = None

    def open(self, allowed: Pass) -> http.client.HTTPConnection:
        if self._connection is None:
            self._connection = dial(allowed.endpoint, REQUEST_WAIT_S)
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Journal:
    """Requests of one reader. Not for several threads at once."""

    def __init__(
        self,
        entity: str,
        allowed: Pass,
        *,
        patience_s: float = PATIENCE_S,
        line: HttpLine | None = None,
    ) -> None:
        self.entity = entity
        self._allowed = allowed
        self._patience_s = patience_s
        self._base = f"/{quote(entity, safe='/')}/$journal"
        self._line = line or HttpLine()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def close(self) -> None:
        self._line.close()

    # --- what can be asked -----------------------------------------------------------------------

    def heads(self) -> Heads:
        return _heads(self._json("GET", ""))

    def heads_or_none(self) -> Heads | None:
        """None for an entity that was never captured."""
        try:
            return self.heads()
        except NotCapturedError:
            return None

    def capture(self, on: bool) -> Heads:
        """Switch it; needs a pass with the right to manage."""
        return _heads(self._json("PUT", "", body={"capture": on}))

    def plan(self, start: Offset, rows: int | None = None, max_bytes: int | None = None) -> Offset:
        """The end of the next batch: at most so much, fair over partitions."""
        query: dict[str, Any] = {"from": start.to_json()}
        if rows is not None:
            query["rows"] = rows
        if max_bytes is not None:
            query["bytes"] = max_bytes
        return Offset.from_dict(self._json("GET", "/plan", query)["to"])

    def at(self, when: datetime) -> Offset:
        return Offset.from_dict(self._json("GET", "/at", {"time": when.isoformat()}))

    def hold(self, consumer: str, offset: Offset, expires_s: int | None = None) -> None:
        """Keep what is at and after this offset, up to the broker's cap; as long as the broker
        lets holds last, if it is not said."""
        body = {"offset": offset.to_dict(), "expires_s": expires_s}
        self._json("PUT", f"/consumers/{quote(consumer, safe='')}", body=body)

    def consumers(self) -> list[Consumer]:
        """Who follows it, by their holds."""
        return [
            Consumer(each["name"], each["lag_rows"], _places(each["offset"]))
            for each in self._json("GET", "/consumers")
        ]

    def release(self, consumer: str) -> None:
        """And no longer."""
        self._json("DELETE", f"/consumers/{quote(consumer, safe='')}")

    def read(
        self, epoch: str, span: Span, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a range, in order.

        A connection that breaks in the middle is taken up again after the last whole batch, so that
        what was handed out is not handed out twice.
        """
        start, until = span.start, time.monotonic() + self._patience_s
        pause_s = FIRST_PAUSE_S
        while start < span.end:
            try:
                for batch in self._stream(epoch, Span(span.partition, start, span.end), columns):
                    start += batch.num_rows
                    until, pause_s = time.monotonic() + self._patience_s, FIRST_PAUSE_S
                    yield batch
                if start < span.end:
                    raise ConnectionError(f"the reply ended at offset {start} of {span.end}")
            except (OSError, http.client.HTTPException) as problem:
                self.close()
                pause_s = self._pause(problem, until, pause_s)

    def _stream(
        self, epoch: str, span: Span, columns: Sequence[str] | None
    ) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        query: dict[str, Any] = {
            "epoch": epoch,
            "partition": span.partition,
            "from": span.start,
            "to": span.end,
        }
        if columns is not None:
            query["columns"] = ",".join(columns)
        response = self._request("GET", "/read", query)
        try:
            with pa.ipc.open_stream(response) as batches:
                yield from batches
        except pa.ArrowInvalid as error:
            raise ConnectionError(f"the reply broke off: {error}") from error
        finally:
            if not response.isclosed() and response.read(1):
                self.close()  # left in the middle: what follows on it is not ours

    # --- requests --------------------------------------------------------------------------------

    def _json(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: object = None,
    ) -> Any:
        until, pause_s = time.monotonic() + self._patience_s, FIRST_PAUSE_S
        while True:
            try:
                return json.loads(self._request(method, path, query, body).read())
            except (OSError, http.client.HTTPException) as problem:
                self.close()
                pause_s = self._pause(problem, until, pause_s)

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: object = None,
    ) -> http.client.HTTPResponse:
        url = self._base + path + (f"?{urlencode(query)}" if query else "")
        headers = {"Authorization": self._allowed.token}
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        connection = self._line.open(self._allowed)
        connection.request(method, url, data, headers)
        response = connection.getresponse()
        if response.status < 300:
            return response
        raise self._error(response.status, response.read())

    def _error(self, status: int, body: bytes) -> Exception:
        try:
            told = json.loads(body)
        except ValueError:
            told = {}
        detail = told.get("detail") if isinstance(told, dict) else None
        match told:
            case {"error": "gap", "partition": partition, "asked": asked, "earliest": earliest}:
                return GapError(self.entity, partition, asked, earliest)
            case {"error": "damaged", "partition": partition, "asked": asked, "next": following}:
                return DamagedError(self.entity, partition, asked, following)
            case {"error": "epoch", "asked": asked, "epoch": epoch}:
                return EpochError(self.entity, asked, epoch)
            case {"error": "not-found"}:
                return NotFoundError(
                    f"There is no queue, topic or subscription '{self.entity}' at "
                    f"{self._allowed.endpoint}."
                )
            case {"error": "not-captured"}:
                return NotCapturedError(
                    f"'{self.entity}' is not captured, so it has no journal. Switch it on with "
                    f"'busway capture {self.entity} on', or 'capture = true' in the broker's "
                    "configuration."
                )
            case _ if status in BUSY:
                return ConnectionError(detail or f"the broker answered {status}")
            case _ if status == 401:
                return JournalError(
                    f"The broker at {self._allowed.endpoint} does not let this key read the "
                    f"journal of '{self.entity}'. It needs the right to listen there, and to "
                    "manage where capture is to be switched."
                )
        return JournalError(
            detail
            or f"The broker at {self._allowed.endpoint} answered {status} for '{self.entity}'."
        )

    def _pause(self, problem: Exception, until: float, pause_s: float) -> float:
        """Wait before the next attempt; the pause after that. Raises when patience is over."""
        if time.monotonic() + pause_s > until:
            raise UnreachableError(
                f"The broker at {self._allowed.endpoint} cannot be reached "
                f"({problem or type(problem).__name__}). Is it running, and is this its port for "
                "HTTP? (--http-endpoint names another one.)"
            ) from problem
        log.info("asking the broker again in %.1f s: %s", pause_s, problem)
        time.sleep(pause_s * random.uniform(0.5, 1.0))
        return min(pause_s * 2, LONGEST_PAUSE_S)


def _places(offset: Mapping[str, Any]) -> dict[int, int]:
    return {int(part): place for part, place in offset["p"].items() if place is not None}


def _heads(told: Mapping[str, Any]) -> Heads:
    return Heads(
        told["entity"],
        told.get("subscription"),
        told["epoch"],
        told["capture"],
        told.get("since"),
        tuple(
            PartitionHead(each["partition"], each["earliest"], each["next"], each["bytes"])
            for each in told["partitions"]
        ),
    )
