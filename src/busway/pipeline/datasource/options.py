"""What a user may say to `format("busway")`, checked before Spark starts anything.

Names compare without case, as everywhere in Spark; one that is unknown is an error, because an
option that is silently ignored costs a day.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from busway.model.journal import BY_NAME, COLUMNS, JournalEvent
from busway.model.names import SUBSCRIPTIONS_NODE
from busway.pipeline.wire.offsets import Offset, OffsetError
from busway.remote import connection
from busway.remote.connection import Credentials, Pass

TRUE_WORDS = {"true": True, "false": False}
_RELATIVE = re.compile(r"-(\d+)\s*(s|m|h|d)$")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class OptionError(Exception):
    """An option of the user's, and what it should be."""


@dataclass(frozen=True, slots=True)
class Option:
    name: str
    meaning: str
    default: str | None = None


READ_OPTIONS = (
    Option("entity", "the queue or topic"),
    Option("subscription", "a subscription of the topic"),
    Option("credentialsFrom", "where the connection string is: env:NAME or file:PATH",
           f"env:{connection.VARIABLE}"),
    Option("httpEndpoint", "where the broker serves HTTP, if not on the connection string's port"),
    Option("columns", "a list with commas; without it all but raw"),
    Option("includeRaw", "also the encoded message, as it was sent", "false"),
    Option("events", "only these kinds of events; a list with commas"),
    Option("startingPosition",
           "earliest, latest, a time (2026-11-16T12:00:00Z), -10m, an offset as JSON", "earliest"),
    Option("endingPosition", "the same, for batches", "latest"),
    Option("maxEventsPerTrigger", "at most so many events in a batch"),
    Option("maxBytesPerTrigger", "at most about so many bytes in a batch"),
    Option("minEventsPerTrigger", "wait for so many events"),
    Option("maxTriggerDelay", "but no longer than this (10s, 5m)", "5m"),
    Option("tasks", "how many tasks read a batch", "as many as this machine has cores"),
    Option("consumer", "a name: the broker keeps what this reader has still to read"),
    Option("failOnDataLoss", "whether to fail when events are forgotten or damaged", "true"),
)  # fmt: skip
WRITE_OPTIONS = (
    *READ_OPTIONS[0:1],
    *READ_OPTIONS[2:4],
    Option("messageIdFrom", "the column whose values are message ids; or several with commas, "
           "whose SHA-256 is the id; or * for all of them, so that equal rows are one message",
           "message_id, or the place in a journal if the rows have one"),
    Option("sessionIdFrom", "the column whose values are session ids", "session_id"),
    Option("partitionKeyFrom", "the column whose values are partition keys", "partition_key"),
    Option("bodyFrom", "the column whose values are bodies, text or binary", "body"),
    Option("requireDuplicateDetection", "whether to refuse a target that would store a message "
           "twice that has to be sent again", "true"),
)  # fmt: skip
_READ_NAMES = {option.name.lower(): option.name for option in READ_OPTIONS}
_WRITE_NAMES = {option.name.lower(): option.name for option in WRITE_OPTIONS}
_OF_SPARK = ("checkpointlocation", "queryname")
"""What Spark hands on to sinks of streams, though it is for itself."""
_SECRETS = ("connectionstring", "sharedaccesskey", "key")


@dataclass(frozen=True, slots=True)
class Position:
    """Where to begin or to end: one of these."""

    word: str | None = None
    time: datetime | None = None
    offset: Offset | None = None


@dataclass(frozen=True, slots=True)
class ReadOptions:
    entity: str
    credentials_from: str
    http_endpoint: str | None
    columns: tuple[str, ...]
    events: tuple[str, ...]
    start: Position
    end: Position
    max_events: int | None
    max_bytes: int | None
    min_events: int | None
    max_delay_s: float
    tasks: int
    consumer: str | None
    fail_on_data_loss: bool

    def credentials(self) -> Credentials:
        """Read where they are needed: these options travel to executors, and a key must not."""
        return connection.read(connection.found(self.credentials_from), self.http_endpoint)

    def pass_for_entity(self) -> Pass:
        return self.credentials().pass_for(self.entity)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    entity: str
    credentials_from: str
    http_endpoint: str | None
    message_id_from: tuple[str, ...]
    session_id_from: str | None
    partition_key_from: str | None
    body_from: str | None
    require_duplicate_detection: bool

    def pass_for_entity(self) -> Pass:
        found = connection.found(self.credentials_from)
        return connection.read(found, self.http_endpoint).pass_for(self.entity)


def check_options(given: Mapping[str, str]) -> None:
    """What can be said before it is known whether it is to read or to write."""
    names = {name.lower() for name in given} - set(_OF_SPARK)
    for name in names:
        _check_name(name, _READ_NAMES | _WRITE_NAMES, "source or sink")
    if names & (_WRITE_NAMES.keys() - _READ_NAMES.keys()):
        write_options(given)
    else:
        read_options({name: each for name, each in given.items() if name.lower() not in _OF_SPARK})


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """Raises `OptionError` or `ConnectionStringError`."""
    options = {name.lower(): value for name, value in given.items()}
    for name in options:
        if name not in _OF_SPARK:
            _check_name(name, _WRITE_NAMES, "sink")
    chosen = WriteOptions(
        entity=_entity(options),
        credentials_from=options.get("credentialsfrom") or f"env:{connection.VARIABLE}",
        http_endpoint=options.get("httpendpoint"),
        message_id_from=_list(options.get("messageidfrom")),
        session_id_from=options.get("sessionidfrom") or None,
        partition_key_from=options.get("partitionkeyfrom") or None,
        body_from=options.get("bodyfrom") or None,
        require_duplicate_detection=_flag(options, "requireDuplicateDetection", default=True),
    )
    chosen.pass_for_entity()
    return chosen


def _entity(options: Mapping[str, str]) -> str:
    entity = options.get("entity", "").strip("/ ")
    if not entity:
        raise OptionError("Say which queue or topic: .option('entity', 'orders').")
    return entity


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """Raises `OptionError` or `ConnectionStringError`."""
    options = {name.lower(): value for name, value in given.items()}
    for name in options:
        _check_name(name, _READ_NAMES, "source")
    entity = _entity(options)
    if subscription := options.get("subscription", "").strip("/ "):
        entity = f"{entity}/{SUBSCRIPTIONS_NODE}/{subscription}"
    chosen = ReadOptions(
        entity=entity,
        credentials_from=options.get("credentialsfrom") or f"env:{connection.VARIABLE}",
        http_endpoint=options.get("httpendpoint"),
        columns=_columns(options),
        events=_events(options.get("events")),
        start=position(options.get("startingposition") or "earliest", "startingPosition"),
        end=position(options.get("endingposition") or "latest", "endingPosition"),
        max_events=_count(options, "maxEventsPerTrigger"),
        max_bytes=_count(options, "maxBytesPerTrigger"),
        min_events=_count(options, "minEventsPerTrigger"),
        max_delay_s=_delay_s(options.get("maxtriggerdelay") or "5m"),
        tasks=_count(options, "tasks") or os.cpu_count() or 1,
        consumer=options.get("consumer") or None,
        fail_on_data_loss=_flag(options, "failOnDataLoss", default=True),
    )
    chosen.credentials()  # what is wrong with them is said now, not in the middle of a query
    return chosen


def _check_name(name: str, names: Mapping[str, str], kind: str) -> None:
    if name in names:
        return
    if name in _SECRETS:
        raise OptionError(
            f"'{name}' is not an option: Spark shows options in plans and logs, and a key must not "
            f"be there. Put the connection string into the variable {connection.VARIABLE}, or say "
            "where it is with .option('credentialsFrom', 'file:...')."
        )
    near = difflib.get_close_matches(name, names, 1)
    hint = (
        f"Did you mean '{names[near[0]]}'?" if near else f"There are: {', '.join(names.values())}."
    )
    raise OptionError(f"'{name}' is not an option of this {kind}. {hint}")


def _columns(options: Mapping[str, str]) -> tuple[str, ...]:
    names = _list(options.get("columns")) or tuple(column.name for column in COLUMNS)
    for name in names:
        if name not in BY_NAME:
            raise OptionError(f"columns: there is no '{name}'. There are: {', '.join(BY_NAME)}.")
    wanted = {*names, *(["raw"] if _flag(options, "includeRaw", default=False) else [])}
    return tuple(name for name in BY_NAME if name in wanted)


def _events(text: str | None) -> tuple[str, ...]:
    words = tuple(event.word for event in JournalEvent)
    chosen = tuple(name.lower() for name in _list(text))
    for name in chosen:
        if name not in words:
            raise OptionError(f"events: there is no '{name}'. There are: {', '.join(words)}.")
    return chosen


def _list(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def _count(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise OptionError(f"{name} is '{text}', and must be a whole number above zero.")
    return int(text)


def _flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name.lower())
    if text is None:
        return default
    if text.lower() not in TRUE_WORDS:
        raise OptionError(f"{name} is '{text}', and must be true or false.")
    return TRUE_WORDS[text.lower()]


def _delay_s(text: str) -> float:
    match = _RELATIVE.match(f"-{text}")
    if match is None:
        raise OptionError(f"maxTriggerDelay is '{text}', and must be like 10s, 5m or 1h.")
    return timedelta(**{_UNITS[match.group(2)]: int(match.group(1))}).total_seconds()


def position(text: str, name: str) -> Position:
    """`earliest`, `latest`, a time, a time before now, or an offset."""
    text = text.strip()
    if text.lower() in ("earliest", "latest"):
        return Position(word=text.lower())
    if match := _RELATIVE.match(text):
        ago = timedelta(**{_UNITS[match.group(2)]: int(match.group(1))})
        return Position(time=datetime.now(UTC) - ago)
    if text.startswith("{"):
        try:
            return Position(offset=Offset.from_dict(json.loads(text)))
        except (ValueError, OffsetError) as error:
            raise OptionError(f"{name}: {error}") from error
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise OptionError(
            f"{name} is '{text}', and must be earliest, latest, a time like 2026-11-16T12:00:00Z, "
            "a time before now like -10m, or an offset as JSON."
        ) from None
    return Position(time=when if when.tzinfo is not None else when.replace(tzinfo=UTC))
