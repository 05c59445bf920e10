"""The sink of the data source `busway`: rows to messages of a queue or topic (P-47).

    frame.write.format("busway").option("entity", "orders").mode("append").save()
    stream.writeStream.format("busway").option("entity", "orders").start()

Spark runs a task again when it fails, and a job is run again when it was killed; what the first
attempt had sent is then sent a second time. A message is stored once all the same if it has the
same id each time and the target detects duplicates: so ids come out of the rows, and a target
without is refused unless the user says otherwise. This holds within the target's window.

A task answers for its rows when each of them is acknowledged. Rows of a task go out in their order
over one link, so a session keeps its order if its rows are in one task.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DayTimeIntervalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from busway.amqp import types as amqp
from busway.pipeline.datasource.options import OptionError, WriteOptions
from busway.pipeline.lake.tables import EVENTS
from busway.pipeline.wire.messages import MessageError, encode, timestamp
from busway.remote.connection import Pass
from busway.remote.wire import target
from busway.remote.wire.copies import hashed
from busway.remote.wire.sender import Sender

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

TEXT = (StringType,)
COLUMNS: dict[str, tuple[type[DataType], ...]] = {
    "body": (StringType, BinaryType),
    "body_type": TEXT,
    "message_id": (StringType, LongType, IntegerType),
    "session_id": TEXT,
    "partition_key": TEXT,
    "correlation_id": TEXT,
    "subject": TEXT,
    "content_type": TEXT,
    "reply_to": TEXT,
    "reply_to_session_id": TEXT,
    "to": TEXT,
    "scheduled_time": (TimestampType,),
    "time_to_live": (DayTimeIntervalType, LongType, IntegerType),
    "application_properties": (MapType, StructType),
    "typed_properties": TEXT,
}
"""What becomes part of a message, and of which types it may be."""

IGNORED = {column.name for column in EVENTS.columns} - COLUMNS.keys()
"""What a journal tells beside the message. Any other column is a mistake, or of no use here."""

PLACE = ("entity", "subscription", "epoch", "partition", "journal_offset")
PLACE_NEEDS = {"entity", "partition", "journal_offset"}
"""A row's place in a journal: no other row has it."""

ALL_COLUMNS = "*"
ENCODED = "encoded"
"""The column, alone, of rows that are whole messages in AMQP's encoding."""

PROPERTY_VALUES: dict[type[DataType], Callable[[Any], Any]] = {
    StringType: str,
    BooleanType: bool,
    ByteType: amqp.Byte,
    ShortType: amqp.Short,
    IntegerType: amqp.Int,
    LongType: int,
    FloatType: amqp.Float,
    DoubleType: float,
    BinaryType: bytes,
    TimestampType: timestamp,
}
"""The AMQP types of application properties, by the types of their columns."""


class SinkError(Exception):
    """Rows that were not sent, or cannot be."""


@dataclass(frozen=True, slots=True)
class Sink:
    """All that a task needs: what it makes of rows, and a signature for one entity."""

    entity: str
    allowed: Pass
    columns: tuple[tuple[str, str], ...]
    """Part of the message, and the column that it is from."""
    identity: tuple[str, ...]
    """One column whose text is the id, or several that are hashed; none for no ids."""
    place: tuple[str, ...]
    """What an id is made of where that column has none."""
    properties: Mapping[str, Callable[[Any], Any]] | Callable[[Any], Any] | None
    """By name, or for all names: how a property's value is told in AMQP."""
    id_needed: bool
    """Whether a row without an id is an error, because nothing else keeps it from being twice."""
    exact: bool
    """Whether rows say of which type bodies are, and so whether there is one."""


def prepare(options: WriteOptions, schema: StructType, *, overwrite: bool) -> Sink:
    """Check rows and target, before anything is sent."""
    if overwrite:
        raise OptionError("Messages that were sent cannot be overwritten: use mode('append').")
    encoded = schema.names == [ENCODED] and isinstance(schema[ENCODED].dataType, BinaryType)
    columns = {ENCODED: ENCODED} if encoded else _columns(options, schema)
    identity = () if encoded else _identity(options, schema)
    allowed = options.pass_for_entity()
    entity = options.entity
    try:
        found = target.check(entity, allowed, once=options.require_duplicate_detection)
    except target.TargetError as error:
        hint = (
            " (.option('requireDuplicateDetection', 'false'))" if "duplicates" in str(error) else ""
        )
        raise target.TargetError(f"{error}{hint}") from error
    if found is not None and found.requires_session and "session_id" not in columns and not encoded:
        raise OptionError(
            f"'{entity}' requires sessions, and the rows have no column 'session_id'. Name theirs: "
            ".option('sessionIdFrom', 'customer')."
        )
    if found is None or not found.requires_duplicate_detection:
        log.warning(
            "'%s' may not detect duplicates: what has to be sent again may be stored twice", entity
        )
    properties = (
        _property_values(schema[columns["application_properties"]].dataType)
        if "application_properties" in columns
        else None
    )
    place = tuple(name for name in PLACE if name in schema.names)
    return Sink(
        entity,
        allowed,
        tuple(columns.items()),
        identity,
        place if set(place) >= PLACE_NEEDS else (),
        properties,
        options.require_duplicate_detection,
        "body_type" in columns,
    )


def _columns(options: WriteOptions, schema: StructType) -> dict[str, str]:
    """By part of the message: the column that it is from."""
    named = {
        "session_id": ("sessionIdFrom", options.session_id_from),
        "partition_key": ("partitionKeyFrom", options.partition_key_from),
        "body": ("bodyFrom", options.body_from),
    }
    columns = {name: name for name in COLUMNS if name in schema.names}
    for part, (option, column) in named.items():
        if column is not None:
            _there(column, option, schema)
            columns[part] = column
    if "body" not in columns:
        raise OptionError(
            "The rows have no column 'body'. Name theirs: .option('bodyFrom', 'text'); several "
            "columns become one with to_json(struct(...))."
        )
    for part, column in columns.items():
        kind = schema[column].dataType
        if not isinstance(kind, COLUMNS[part]):
            allowed = " or ".join(each.typeName() for each in COLUMNS[part])
            raise OptionError(
                f"The column '{column}' is of type {kind.simpleString()}, and {part} must be "
                f"{allowed}."
            )
    used = {*columns.values(), *options.message_id_from}
    if ALL_COLUMNS not in used:
        _refuse_unknown(schema, used)
    return columns


def _refuse_unknown(schema: StructType, used: set[str]) -> None:
    for name in schema.names:
        if name in used or name in IGNORED or name in COLUMNS:
            continue
        near = difflib.get_close_matches(name, COLUMNS, 1)
        hint = f"Is it '{near[0]}'? " if near else ""
        raise OptionError(
            f"The column '{name}' is no part of a message. {hint}Leave it out with .drop('{name}')"
            ", or put it into application_properties. Parts are: "
            f"{', '.join(COLUMNS)}."
        )


def _identity(options: WriteOptions, schema: StructType) -> tuple[str, ...]:
    given = options.message_id_from
    if given == (ALL_COLUMNS,):
        # One name alone would be taken for the id itself.
        return (*schema.names, "") if len(schema.names) == 1 else tuple(schema.names)
    if given:
        for column in given:
            _there(column, "messageIdFrom", schema)
        return given
    if "message_id" in schema.names:
        return ("message_id",)
    if set(schema.names) >= PLACE_NEEDS or not options.require_duplicate_detection:
        return ()
    raise OptionError(
        "The rows have no column 'message_id', and nothing else says when two of them are the same "
        "message. Name the columns that do: .option('messageIdFrom', 'order_id') for an id, "
        "'order_id,line' for several, '*' for all (rows that are equal are one message then)."
    )


def _there(column: str, option: str, schema: StructType) -> None:
    if column not in schema.names:
        raise OptionError(
            f"{option}: the rows have no column '{column}'. There are: {', '.join(schema.names)}."
        )


def _property_values(
    kind: DataType,
) -> Mapping[str, Callable[[Any], Any]] | Callable[[Any], Any]:
    if isinstance(kind, StructType):
        return {field.name: _property_value(field.dataType, field.name) for field in kind.fields}
    assert isinstance(kind, MapType)
    if not isinstance(kind.keyType, StringType):
        raise OptionError("The keys of application_properties must be texts.")
    return _property_value(kind.valueType, "values")


def _property_value(kind: DataType, name: str) -> Callable[[Any], Any]:
    for known, value_of in PROPERTY_VALUES.items():
        if isinstance(kind, known):
            return value_of
    raise OptionError(
        f"application_properties: {name} is of type {kind.simpleString()}, which a property cannot "
        f"be. It can be: {', '.join(each.typeName() for each in PROPERTY_VALUES)}."
    )


# --- In tasks ------------------------------------------------------------------------------------


@dataclass
class Sent(WriterCommitMessage):
    """What a task has done."""

    rows: int
    accepted: int


def send_rows(sink: Sink, batches: Iterator[pa.RecordBatch]) -> Sent:
    sender = Sender(sink.entity, sink.allowed)
    rows = 0
    try:
        for batch in batches:
            for row in batch.to_pylist(maps_as_pydicts="strict"):
                rows += 1
                sender.send(message_of(sink, row))
        return Sent(rows, sender.finish())
    finally:
        sender.close()


def message_of(sink: Sink, row: Mapping[str, Any]) -> bytes:
    parts = {part: row[column] for part, column in sink.columns}
    if ENCODED in parts:
        return bytes(parts[ENCODED])
    if sink.identity or sink.place:
        parts["message_id"] = _message_id(sink, row)
    plain = parts.get("application_properties")
    if plain is not None and parts.get("typed_properties") is None:
        parts["application_properties"] = _user(sink, plain)
    if parts["body"] is None and not sink.exact:
        parts["body"] = b""
    try:
        return encode(parts)
    except MessageError as error:
        raise SinkError(f"The row with message id '{parts.get('message_id')}': {error}") from error


def _user(sink: Sink, plain: Mapping[str, Any]) -> dict[str, Any]:
    kinds = sink.properties
    assert kinds is not None
    return {
        name: None if value is None else (kinds if callable(kinds) else kinds[name])(value)
        for name, value in plain.items()
    }


def _message_id(sink: Sink, row: Mapping[str, Any]) -> str | None:
    if len(sink.identity) > 1:
        return hashed([row.get(column) for column in sink.identity])
    if sink.identity and (value := row[sink.identity[0]]) is not None:
        return str(value)
    if sink.place:
        return hashed([row.get(column) for column in sink.place])
    if not sink.id_needed:
        return None
    raise SinkError(
        f"A row has nothing in '{sink.identity[0]}', so that it has no message id. Fill it, or "
        "name other columns with messageIdFrom."
    )


# --- What Spark calls ----------------------------------------------------------------------------


def reconcile(entity: str, told: Sequence[WriterCommitMessage | None]) -> None:
    """Every row was acknowledged, or the job fails."""
    tasks = [each for each in told if isinstance(each, Sent)]
    rows, accepted = sum(each.rows for each in tasks), sum(each.accepted for each in tasks)
    if len(tasks) != len(told) or rows != accepted:
        raise SinkError(
            f"'{entity}' has acknowledged {accepted} of {rows} messages, in {len(tasks)} of "
            f"{len(told)} tasks. Run the job again: what is stored is not stored twice within the "
            "target's window for duplicates."
        )
    log.info("'%s' has taken %d messages", entity, accepted)


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        return send_rows(self._sink, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        reconcile(self._sink.entity, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        return send_rows(self._sink, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        reconcile(self._sink.entity, messages)
