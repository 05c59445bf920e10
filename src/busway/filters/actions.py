"""SQL actions: SET and REMOVE on the copy of a message that a rule lets in (ACT-1 to ACT-4).

A `Draft` is the copy while statements work on it, so that each sees what those before it did. Only
what changed is encoded anew: other properties keep their bytes, and with them their AMQP types; the
body is not touched.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from busway.amqp.codec import encode_value
from busway.amqp.errors import ProtocolError
from busway.amqp.sections import (
    APPLICATION_PROPERTIES,
    LATEST_MS,
    PROPERTIES,
    apply_changes,
    encode_message,
    front_size,
    walk_pairs,
    walk_sections,
)
from busway.amqp.types import (
    Byte,
    Char,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from busway.filters.errors import FilterError, RuleActionError
from busway.filters.evaluator import Compiler, Evaluate
from busway.filters.facts import (
    SYSTEM_BY_KEY,
    MessageFacts,
    property_key,
    unknown_system_property,
)
from busway.filters.syntax import Parameter, Property, Remove, Set, Statement
from busway.filters.values import (
    DATETIME_OFFSET_SYMBOL,
    TIMESPAN_SYMBOL,
    UNKNOWN,
    DateTime,
    TimeSpan,
    Value,
    from_amqp,
    kind_name,
    on_the_wire,
    text_of,
    to_amqp,
)
from busway.model.limits import KEY_MAX_CHARS, PROPERTY_SIZE_MAX_BYTES


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What is different about a copy. Settlements' `changes` of the original are part of `bare`."""

    bare: bytes
    session_id: str | None
    """For the reader of the copy; its partition stays what it is (RUL-7)."""
    ttl_ms: int | None
    size: int


class Draft(MessageFacts):
    """The copy of a message that an action works on."""

    def __init__(self, facts: MessageFacts) -> None:
        super().__init__(facts.message)
        self.properties = facts.properties
        self.encoded_user = dict(facts.encoded_user)
        self.user = dict(facts.user)
        self.changed_properties = False
        self.changed_user: dict[str, None] = {}
        """Keys, in the order in which they were changed."""

    def set_user(self, name: str, value: Any) -> None:
        """A user property of this name and AMQP value, in place of those that are called so."""
        if len(encode_value(value)) > PROPERTY_SIZE_MAX_BYTES:
            raise RuleActionError(
                f"The property '{name}' would be larger than {PROPERTY_SIZE_MAX_BYTES} bytes."
            )
        key = property_key(name)
        self.encoded_user[key] = name, value
        self.user[key] = from_amqp(value)
        self.changed_user[key] = None

    def remove_user(self, name: str) -> None:
        key = property_key(name)
        if self.encoded_user.pop(key, None) is not None:
            del self.user[key]
            self.changed_user[key] = None

    def set_text(self, field: str, text: str | None) -> None:
        """A field of the properties section."""
        fields: dict[str, Any] = {field: text}
        self.properties = dataclasses.replace(self.properties, **fields)
        self.changed_properties = True

    def finish(self) -> Rewritten:
        message = self.message
        bare = message.bare
        if message.changes is not None:
            bare = apply_changes(bare, message.changes)
        if self.changed_properties:
            bare = _with_properties(bare, encode_message(properties=self.properties))
        if self.changed_user:
            put = [self.encoded_user[key] for key in self.changed_user if key in self.encoded_user]
            bare = _with_user_properties(bare, self.changed_user.keys(), put)
        size = message.size + len(bare) - len(message.bare)
        return Rewritten(bare, self.session_id, self.ttl_ms, size)


# --- Actions -------------------------------------------------------------------------------------

Step = Callable[[Draft], None]


class Action:
    """The statements of an action, compiled."""

    def __init__(self, statements: tuple[Statement, ...], compiler: Compiler) -> None:
        self._steps = tuple(_step(statement, compiler) for statement in statements)

    def apply(self, draft: Draft) -> None:
        """Carries out all statements, in order (ACT-2). Raises `RuleActionError` (ACT-3)."""
        try:
            for step in self._steps:
                step(draft)
        except FilterError as problem:
            raise RuleActionError(str(problem)) from None


def rewrite(facts: MessageFacts, action: Action, marks: dict[str, str]) -> Rewritten:
    """The copy after the action, with `marks` among its user properties (RUL-2)."""
    try:
        draft = Draft(facts)
        action.apply(draft)
        for name, text in marks.items():
            draft.remove_user(name)
            draft.set_user(name, text)
        return draft.finish()
    except (FilterError, ProtocolError) as problem:
        raise RuleActionError(str(problem)) from None


def _step(statement: Statement, compiler: Compiler) -> Step:
    match statement:
        case Remove(Property("user", name)):
            return lambda draft: draft.remove_user(name)
        case Remove(Property(_, name)):
            return _system_step(name, lambda draft: None)
        case Set(Property("user", name), value):
            source = value if isinstance(value, Property) and value.scope == "user" else None
            evaluate = compiler.expression(value)
            typed = None
            if isinstance(value, Parameter):
                # A parameter that is only copied keeps its type, too: a client's cast expects it.
                typed = on_the_wire(compiler.given[property_key(value.name)])
            return _user_step(name, evaluate, source, typed)
        case Set(Property(_, name), value):
            return _system_step(name, compiler.expression(value))


def _user_step(name: str, evaluate: Evaluate, source: Property | None, typed: Any) -> Step:
    key = property_key(name)

    def step(draft: Draft) -> None:
        value = evaluate(draft)
        if value is UNKNOWN:
            return
        existing = draft.encoded_user.get(key)
        if existing is not None:
            draft.set_user(existing[0], convert_like(existing[1], value))
        elif source is not None:
            # A property that is only copied keeps its AMQP type.
            draft.set_user(name, draft.encoded_user[property_key(source.name)][1])
        else:
            draft.set_user(name, to_amqp(value) if typed is None else typed)

    return step


# --- System properties (ACT-4) -------------------------------------------------------------------


def _text_setter(field: str, max_chars: int | None = None) -> Callable[[Draft, str, Value], None]:
    def put(draft: Draft, name: str, value: Value) -> None:
        try:
            text = None if value is None else text_of(value)
        except ValueError:
            raise RuleActionError(f"{name} cannot be set to {kind_name(value)}.") from None
        if text is not None and max_chars is not None and len(text) > max_chars:
            raise RuleActionError(f"{name} has at most {max_chars} characters.")
        draft.set_text(field, text)

    return put


def _set_session_id(draft: Draft, name: str, value: Value) -> None:
    _text_setter("group_id", KEY_MAX_CHARS)(draft, name, value)
    draft.session_id = draft.properties.group_id


def _set_time_to_live(draft: Draft, name: str, value: Value) -> None:
    if value is None:
        draft.ttl_ms = None
    elif type(value) is TimeSpan and value.ms > 0:
        draft.ttl_ms = min(value.ms, LATEST_MS)
    else:
        raise RuleActionError(f"{name} takes a TimeSpan of at least 1 ms, not {kind_name(value)}.")


SETTABLE: dict[str, Callable[[Draft, str, Value], None]] = {
    "contenttype": _text_setter("content_type"),
    "correlationid": _text_setter("correlation_id"),
    "label": _text_setter("subject"),
    "messageid": _text_setter("message_id", KEY_MAX_CHARS),
    "replyto": _text_setter("reply_to"),
    "replytosessionid": _text_setter("reply_to_group_id", KEY_MAX_CHARS),
    "sessionid": _set_session_id,
    "subject": _text_setter("subject"),
    "timetolive": _set_time_to_live,
    "to": _text_setter("to"),
}
"""By key. Whatever is not a text becomes one, as a session id must (ACT-4)."""


def _system_step(name: str, evaluate: Evaluate) -> Step:
    key = property_key(name)
    put = SETTABLE.get(key)

    def step(draft: Draft) -> None:
        if put is None:
            if key not in SYSTEM_BY_KEY:
                raise unknown_system_property(name)
            raise RuleActionError(f"The system property '{name}' cannot be changed.")
        value = evaluate(draft)
        if value is not UNKNOWN:
            put(draft, name, value)

    return step


# --- Conversion to the type that is there (ACT-3) ------------------------------------------------

INTEGER_RANGES: dict[type, tuple[int, int]] = {
    UByte: (0, (1 << 8) - 1),
    UShort: (0, (1 << 16) - 1),
    UInt: (0, (1 << 32) - 1),
    ULong: (0, (1 << 64) - 1),
    Byte: (-(1 << 7), (1 << 7) - 1),
    Short: (-(1 << 15), (1 << 15) - 1),
    Int: (-(1 << 31), (1 << 31) - 1),
    int: (-(1 << 63), (1 << 63) - 1),
}


def convert_like(existing: Any, value: Value) -> Any:
    """The value in the AMQP type of the existing one if it can be, else in a type of its own."""
    if value is None:
        return None
    kind = type(existing)
    try:
        if kind in INTEGER_RANGES:
            return _as_integer(kind, value)
        if kind in CONVERSIONS:
            return CONVERSIONS[kind](value)
        if kind is Described and existing.descriptor in DESCRIBED:
            return Described(existing.descriptor, DESCRIBED[existing.descriptor](value))
    except (ValueError, OverflowError):
        pass
    return to_amqp(value)


def _numeric(value: Value) -> Any:
    # Python would read 1_000 as a number, which no client does.
    if type(value) not in (int, float, str) or (type(value) is str and "_" in value):
        raise ValueError
    return value


def _as_integer(kind: type, value: Value) -> Any:
    number = int(_numeric(value))
    lowest, highest = INTEGER_RANGES[kind]
    if not lowest <= number <= highest or (type(value) is float and number != value):
        raise ValueError
    return kind(number)


def _as_float(kind: Callable[[Any], Any]) -> Callable[[Value], Any]:
    def convert(value: Value) -> Any:
        number = float(_numeric(value))
        struct.pack(">f" if kind is Float else ">d", number)  # does it fit?
        return kind(number)

    return convert


def _as_boolean(value: Value) -> bool:
    if type(value) is bool:
        return value
    if type(value) is str and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise ValueError


def _as_uuid(value: Value) -> UUID:
    if type(value) is UUID:
        return value
    if type(value) is str:
        return UUID(value)
    raise ValueError


def _as_timestamp(value: Value) -> Timestamp:
    if type(value) is DateTime:
        return Timestamp(value.ms)
    raise ValueError


def _as_char(value: Value) -> Char:
    if type(value) is str and len(value) == 1:
        return Char(value)
    raise ValueError


def _ticks(kind: type[DateTime] | type[TimeSpan]) -> Callable[[Value], int]:
    def convert(value: Value) -> int:
        if isinstance(value, kind):
            return value.ticks
        raise ValueError

    return convert


CONVERSIONS: dict[type, Callable[[Value], Any]] = {
    str: text_of,
    Symbol: lambda value: Symbol(text_of(value)),
    Char: _as_char,
    float: _as_float(float),
    Float: _as_float(Float),
    bool: _as_boolean,
    UUID: _as_uuid,
    Timestamp: _as_timestamp,
}
DESCRIBED: dict[str, Callable[[Value], Any]] = {
    TIMESPAN_SYMBOL: _ticks(TimeSpan),
    DATETIME_OFFSET_SYMBOL: _ticks(DateTime),
}


# --- Splicing ------------------------------------------------------------------------------------


def _with_properties(bare: bytes, section: bytes) -> bytes:
    """`bare` with this properties section in place of its own."""
    for code, start, _, stop in walk_sections(bare):
        if code == PROPERTIES:
            return b"".join((bare[:start], section, bare[stop:]))
    front = front_size(bare)
    return b"".join((bare[:front], section, bare[front:]))


def _with_user_properties(bare: bytes, drop: Collection[str], put: list[tuple[str, Any]]) -> bytes:
    """`bare` without the application properties of these keys, and with those of these names."""
    place = rest = front_size(bare)
    pieces: list[bytes] = []
    count = 0
    for code, start, value, stop in walk_sections(bare):
        if code == PROPERTIES:
            place = rest = stop
        elif code == APPLICATION_PROPERTIES:
            place, rest = start, stop
            for octets, first, _, last in walk_pairs(bare, value, stop):
                if octets is None or property_key(octets.decode()) not in drop:
                    pieces.append(bare[first:last])
                    count += 2
            break
    for name, item in put:
        pieces += (encode_value(name), encode_value(item))
        count += 2
    items = b"".join(pieces)
    head = bytes((0x00, 0x53, APPLICATION_PROPERTIES)) + struct.pack(
        ">BII", 0xD1, len(items) + 4, count
    )
    return b"".join((bare[:place], head, items, bare[rest:]))
