"""The composite types of AMQP 1.0: a class each, whose fields are the standard's tables.

Performatives (section 2.7), delivery states (3.4), termini (3.5), transactions (4.5), SASL (5.3),
and the two sections of a message that are composite (3.2). A field line gives the Python type, the
AMQP type and the default; the codec reads and writes by these lines and knows nothing else.

Field values are plain Python: an integer of any width arrives as `int`, symbols and strings as
`str`; maps keep the classes of `types.py`, so that they can be echoed with their types.
"""

# ruff: noqa: RUF009  (`optional` and `mandatory` are field specifiers, as `field` is)

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, TypeVar


class Kind(Enum):
    """How a field is read and written."""

    BOOLEAN = "boolean"
    UBYTE = "ubyte"
    USHORT = "ushort"
    UINT = "uint"
    ULONG = "ulong"
    TIMESTAMP = "timestamp"
    BINARY = "binary"
    STRING = "string"
    SYMBOL = "symbol"
    SYMBOLS = "symbol, multiple"
    FIELDS = "map with symbol keys"
    MAP = "map"
    ANY = "*"
    ERROR = "error"
    SOURCE = "source"
    TARGET = "target or coordinator"
    STATE = "delivery state"
    OUTCOME = "outcome"


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    kind: Kind
    mandatory: bool
    default: Any


class Composite:
    """A described list: `CODE` and `SYMBOL` name it on the wire, `FIELDS` are its positions."""

    __slots__ = ()
    CODE: ClassVar[int]
    SYMBOL: ClassVar[str]
    FIELDS: ClassVar[tuple[Field, ...]]

    def __repr__(self) -> str:
        said = (
            f"{field.name}={getattr(self, field.name)!r}"
            for field in self.FIELDS
            if getattr(self, field.name) != field.default
        )
        return f"{type(self).__name__}({', '.join(said)})"


BY_CODE: dict[int, type[Composite]] = {}
BY_SYMBOL: dict[bytes, int] = {}

C = TypeVar("C", bound=Composite)


def composite(code: int, symbol: str) -> Callable[[type[C]], type[C]]:
    """Register a class under its descriptors and make its table from its fields."""

    def register(cls: type[C]) -> type[C]:
        cls.CODE = code
        cls.SYMBOL = symbol
        cls.FIELDS = tuple(
            Field(field.name, field.metadata["kind"], field.metadata["mandatory"], field.default)
            for field in dataclasses.fields(cls)  # type: ignore[arg-type]
        )
        BY_CODE[code] = cls
        BY_SYMBOL[symbol.encode()] = code
        return cls

    return register


def optional(kind: Kind, default: Any = None) -> Any:
    return dataclasses.field(default=default, metadata={"kind": kind, "mandatory": False})


def mandatory(kind: Kind) -> Any:
    """None is not a value of this field: the codec refuses to read or write it."""
    return dataclasses.field(default=None, metadata={"kind": kind, "mandatory": True})


# Errors (2.8.14) and connections (2.7.1, 2.7.9)


@composite(0x1D, "amqp:error:list")
@dataclass(slots=True, repr=False)
class Error(Composite):
    condition: str = mandatory(Kind.SYMBOL)
    description: str | None = optional(Kind.STRING)
    info: dict[Any, Any] | None = optional(Kind.FIELDS)


@composite(0x10, "amqp:open:list")
@dataclass(slots=True, repr=False)
class Open(Composite):
    container_id: str = mandatory(Kind.STRING)
    hostname: str | None = optional(Kind.STRING)
    max_frame_size: int = optional(Kind.UINT, 4294967295)
    channel_max: int = optional(Kind.USHORT, 65535)
    idle_time_out: int | None = optional(Kind.UINT)
    outgoing_locales: list[str] | None = optional(Kind.SYMBOLS)
    incoming_locales: list[str] | None = optional(Kind.SYMBOLS)
    offered_capabilities: list[str] | None = optional(Kind.SYMBOLS)
    desired_capabilities: list[str] | None = optional(Kind.SYMBOLS)
    properties: dict[Any, Any] | None = optional(Kind.FIELDS)


@composite(0x18, "amqp:close:list")
@dataclass(slots=True, repr=False)
class Close(Composite):
    error: Error | None = optional(Kind.ERROR)


# Sessions (2.7.2, 2.7.8)


@composite(0x11, "amqp:begin:list")
@dataclass(slots=True, repr=False)
class Begin(Composite):
    remote_channel: int | None = optional(Kind.USHORT)
    next_outgoing_id: int = mandatory(Kind.UINT)
    incoming_window: int = mandatory(Kind.UINT)
    outgoing_window: int = mandatory(Kind.UINT)
    handle_max: int = optional(Kind.UINT, 4294967295)
    offered_capabilities: list[str] | None = optional(Kind.SYMBOLS)
    desired_capabilities: list[str] | None = optional(Kind.SYMBOLS)
    properties: dict[Any, Any] | None = optional(Kind.FIELDS)


@composite(0x17, "amqp:end:list")
@dataclass(slots=True, repr=False)
class End(Composite):
    error: Error | None = optional(Kind.ERROR)


# Links (2.7.3 to 2.7.7)


@composite(0x12, "amqp:attach:list")
@dataclass(slots=True, repr=False)
class Attach(Composite):
    name: str = mandatory(Kind.STRING)
    handle: int = mandatory(Kind.UINT)
    role: bool = mandatory(Kind.BOOLEAN)
    snd_settle_mode: int = optional(Kind.UBYTE, 2)
    rcv_settle_mode: int = optional(Kind.UBYTE, 0)
    source: Source | None = optional(Kind.SOURCE)
    target: Target | Coordinator | None = optional(Kind.TARGET)
    unsettled: dict[Any, Any] | None = optional(Kind.MAP)
    incomplete_unsettled: bool = optional(Kind.BOOLEAN, False)
    initial_delivery_count: int | None = optional(Kind.UINT)
    max_message_size: int | None = optional(Kind.ULONG)
    offered_capabilities: list[str] | None = optional(Kind.SYMBOLS)
    desired_capabilities: list[str] | None = optional(Kind.SYMBOLS)
    properties: dict[Any, Any] | None = optional(Kind.FIELDS)


@composite(0x13, "amqp:flow:list")
@dataclass(slots=True, repr=False)
class Flow(Composite):
    next_incoming_id: int | None = optional(Kind.UINT)
    incoming_window: int = mandatory(Kind.UINT)
    next_outgoing_id: int = mandatory(Kind.UINT)
    outgoing_window: int = mandatory(Kind.UINT)
    handle: int | None = optional(Kind.UINT)
    delivery_count: int | None = optional(Kind.UINT)
    link_credit: int | None = optional(Kind.UINT)
    available: int | None = optional(Kind.UINT)
    drain: bool = optional(Kind.BOOLEAN, False)
    echo: bool = optional(Kind.BOOLEAN, False)
    properties: dict[Any, Any] | None = optional(Kind.FIELDS)


@composite(0x14, "amqp:transfer:list")
@dataclass(slots=True, repr=False)
class Transfer(Composite):
    handle: int = mandatory(Kind.UINT)
    delivery_id: int | None = optional(Kind.UINT)
    delivery_tag: bytes | None = optional(Kind.BINARY)
    message_format: int | None = optional(Kind.UINT)
    settled: bool | None = optional(Kind.BOOLEAN)
    more: bool = optional(Kind.BOOLEAN, False)
    rcv_settle_mode: int | None = optional(Kind.UBYTE)
    state: DeliveryState | None = optional(Kind.STATE)
    resume: bool = optional(Kind.BOOLEAN, False)
    aborted: bool = optional(Kind.BOOLEAN, False)
    batchable: bool = optional(Kind.BOOLEAN, False)


@composite(0x15, "amqp:disposition:list")
@dataclass(slots=True, repr=False)
class Disposition(Composite):
    role: bool = mandatory(Kind.BOOLEAN)
    first: int = mandatory(Kind.UINT)
    last: int | None = optional(Kind.UINT)
    settled: bool = optional(Kind.BOOLEAN, False)
    state: DeliveryState | None = optional(Kind.STATE)
    batchable: bool = optional(Kind.BOOLEAN, False)


@composite(0x16, "amqp:detach:list")
@dataclass(slots=True, repr=False)
class Detach(Composite):
    handle: int = mandatory(Kind.UINT)
    closed: bool = optional(Kind.BOOLEAN, False)
    error: Error | None = optional(Kind.ERROR)


# Termini (3.5.3, 3.5.4, 4.5.1)


@composite(0x28, "amqp:source:list")
@dataclass(slots=True, repr=False)
class Source(Composite):
    address: str | None = optional(Kind.STRING)
    durable: int = optional(Kind.UINT, 0)
    expiry_policy: str = optional(Kind.SYMBOL, "session-end")
    timeout: int = optional(Kind.UINT, 0)
    dynamic: bool = optional(Kind.BOOLEAN, False)
    dynamic_node_properties: dict[Any, Any] | None = optional(Kind.FIELDS)
    distribution_mode: str | None = optional(Kind.SYMBOL)
    filter: dict[Any, Any] | None = optional(Kind.FIELDS)
    default_outcome: Outcome | None = optional(Kind.OUTCOME)
    outcomes: list[str] | None = optional(Kind.SYMBOLS)
    capabilities: list[str] | None = optional(Kind.SYMBOLS)


@composite(0x29, "amqp:target:list")
@dataclass(slots=True, repr=False)
class Target(Composite):
    address: str | None = optional(Kind.STRING)
    durable: int = optional(Kind.UINT, 0)
    expiry_policy: str = optional(Kind.SYMBOL, "session-end")
    timeout: int = optional(Kind.UINT, 0)
    dynamic: bool = optional(Kind.BOOLEAN, False)
    dynamic_node_properties: dict[Any, Any] | None = optional(Kind.FIELDS)
    capabilities: list[str] | None = optional(Kind.SYMBOLS)


@composite(0x30, "amqp:coordinator:list")
@dataclass(slots=True, repr=False)
class Coordinator(Composite):
    capabilities: list[str] | None = optional(Kind.SYMBOLS)


# Delivery states (3.4) and transactions (4.5)


@composite(0x23, "amqp:received:list")
@dataclass(slots=True, repr=False)
class Received(Composite):
    section_number: int = mandatory(Kind.UINT)
    section_offset: int = mandatory(Kind.ULONG)


@composite(0x24, "amqp:accepted:list")
@dataclass(slots=True, repr=False)
class Accepted(Composite):
    pass


@composite(0x25, "amqp:rejected:list")
@dataclass(slots=True, repr=False)
class Rejected(Composite):
    error: Error | None = optional(Kind.ERROR)


@composite(0x26, "amqp:released:list")
@dataclass(slots=True, repr=False)
class Released(Composite):
    pass


@composite(0x27, "amqp:modified:list")
@dataclass(slots=True, repr=False)
class Modified(Composite):
    delivery_failed: bool | None = optional(Kind.BOOLEAN)
    undeliverable_here: bool | None = optional(Kind.BOOLEAN)
    message_annotations: dict[Any, Any] | None = optional(Kind.FIELDS)


@composite(0x31, "amqp:declare:list")
@dataclass(slots=True, repr=False)
class Declare(Composite):
    global_id: Any = optional(Kind.ANY)


@composite(0x32, "amqp:discharge:list")
@dataclass(slots=True, repr=False)
class Discharge(Composite):
    txn_id: bytes = mandatory(Kind.BINARY)
    fail: bool = optional(Kind.BOOLEAN, False)


@composite(0x33, "amqp:declared:list")
@dataclass(slots=True, repr=False)
class Declared(Composite):
    txn_id: bytes = mandatory(Kind.BINARY)


@composite(0x34, "amqp:transactional-state:list")
@dataclass(slots=True, repr=False)
class TransactionalState(Composite):
    txn_id: bytes = mandatory(Kind.BINARY)
    outcome: Outcome | None = optional(Kind.OUTCOME)


Outcome = Accepted | Rejected | Released | Modified
DeliveryState = Received | Outcome | Declared | TransactionalState


# SASL (5.3.3)


@composite(0x40, "amqp:sasl-mechanisms:list")
@dataclass(slots=True, repr=False)
class SaslMechanisms(Composite):
    sasl_server_mechanisms: list[str] = mandatory(Kind.SYMBOLS)


@composite(0x41, "amqp:sasl-init:list")
@dataclass(slots=True, repr=False)
class SaslInit(Composite):
    mechanism: str = mandatory(Kind.SYMBOL)
    initial_response: bytes | None = optional(Kind.BINARY)
    hostname: str | None = optional(Kind.STRING)


@composite(0x42, "amqp:sasl-challenge:list")
@dataclass(slots=True, repr=False)
class SaslChallenge(Composite):
    challenge: bytes = mandatory(Kind.BINARY)


@composite(0x43, "amqp:sasl-response:list")
@dataclass(slots=True, repr=False)
class SaslResponse(Composite):
    response: bytes = mandatory(Kind.BINARY)


@composite(0x44, "amqp:sasl-outcome:list")
@dataclass(slots=True, repr=False)
class SaslOutcome(Composite):
    code: int = mandatory(Kind.UBYTE)
    additional_data: bytes | None = optional(Kind.BINARY)


# Sections of a message (3.2.1, 3.2.4)


@composite(0x70, "amqp:header:list")
@dataclass(slots=True, repr=False)
class Header(Composite):
    durable: bool | None = optional(Kind.BOOLEAN)
    priority: int | None = optional(Kind.UBYTE)
    ttl: int | None = optional(Kind.UINT)
    first_acquirer: bool | None = optional(Kind.BOOLEAN)
    delivery_count: int | None = optional(Kind.UINT)


@composite(0x73, "amqp:properties:list")
@dataclass(slots=True, repr=False)
class Properties(Composite):
    message_id: Any = optional(Kind.ANY)
    user_id: bytes | None = optional(Kind.BINARY)
    to: str | None = optional(Kind.STRING)
    subject: str | None = optional(Kind.STRING)
    reply_to: str | None = optional(Kind.STRING)
    correlation_id: Any = optional(Kind.ANY)
    content_type: str | None = optional(Kind.SYMBOL)
    content_encoding: str | None = optional(Kind.SYMBOL)
    absolute_expiry_time: int | None = optional(Kind.TIMESTAMP)
    creation_time: int | None = optional(Kind.TIMESTAMP)
    group_id: str | None = optional(Kind.STRING)
    group_sequence: int | None = optional(Kind.UINT)
    reply_to_group_id: str | None = optional(Kind.STRING)


NESTED: dict[Kind, frozenset[int]] = {
    Kind.ERROR: frozenset({0x1D}),
    Kind.SOURCE: frozenset({0x28}),
    Kind.TARGET: frozenset({0x29, 0x30}),
    Kind.STATE: frozenset({0x23, 0x24, 0x25, 0x26, 0x27, 0x33, 0x34}),
    Kind.OUTCOME: frozenset({0x24, 0x25, 0x26, 0x27}),
}
"""The composites that a field of these kinds may hold."""

AMQP_PERFORMATIVES = frozenset(range(0x10, 0x19))
"""What may stand in a frame of type 0."""

SASL_PERFORMATIVES = frozenset(range(0x40, 0x45))
"""What may stand in a frame of type 1."""
