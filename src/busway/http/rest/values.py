"""Application properties as headers and as JSON, and their AMQP types (http.md section 9).

One form for both: what a header holds is a JSON value, so that no text can break out of its
header and every type that has a form keeps it. A client may also write text without quotes.

| AMQP | header | read back as |
|---|---|---|
| string, symbol, char | `"text"`, beyond ASCII and control characters as `\\uXXXX` | string |
| boolean, null | `true`, `false`, `null` | the same |
| any integer | `12` | int, or long, or double, the first that holds it |
| float, double | `1.5`, `1e+300`; `"NaN"`, `"Infinity"`, `"-Infinity"` | double; string |
| timestamp | `"Sun, 06 Nov 1994 08:49:37 GMT"`: whole seconds | timestamp |
| uuid | `"6a8e..."` | string |
| binary, decimals, lists, maps, arrays | `"base64"`, of all but binary its AMQP encoding | string |
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from typing import Any
from uuid import UUID

from busway.amqp import codec
from busway.amqp.types import Decimal32, Decimal64, Decimal128, Int, Timestamp

_RFC_1123 = re.compile(r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT")
_DECIMALS = (Decimal32, Decimal64, Decimal128)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


def parse_json(text: str | bytes) -> Any:
    """`ValueError` for whatever is not JSON, nested too deeply or with numbers that are none."""
    try:
        return json.loads(text, strict=False, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _no_number(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


# --- In ------------------------------------------------------------------------------------------


def from_header(text: str) -> Any:
    """The value that a header means; what is no JSON value is text as it stands."""
    lowered = text.lower()
    if lowered in ("true", "false"):  # Python and .NET write them with a capital
        return lowered == "true"
    try:
        return from_json(parse_json(text))
    except ValueError:
        return text


def from_json(value: Any) -> Any:
    """The AMQP value of a JSON value; `ValueError` for one that no property can have."""
    if isinstance(value, str):
        return _from_text(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if -(2**31) <= value < 2**31:
            return Int(value)
        if -(2**63) <= value < 2**63:
            return value
    if isinstance(value, int | float):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
        raise ValueError("the number is too large")
    raise ValueError("a property cannot be a list or an object")


def _from_text(text: str) -> str | Timestamp:
    if _RFC_1123.fullmatch(text):
        try:
            return Timestamp(instant_ms(text))
        except ValueError:
            return text  # the 31st of February is just text
    return text


def instant_ms(text: str) -> int:
    """Milliseconds since 1970 of an instant in RFC 1123 or ISO 8601; UTC if it does not say."""
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        try:
            instant = parsedate_to_datetime(text)
        except (ValueError, TypeError, IndexError, OverflowError):
            raise ValueError(f"'{text[:80]}' is not an instant") from None
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=UTC)
    return (instant - _EPOCH) // _MS


# --- Out -----------------------------------------------------------------------------------------


def to_header(value: Any) -> str:
    """One line of printable ASCII, and a JSON value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Timestamp):
        return instant_text(value)
    if isinstance(value, int):
        return format(value, "d")
    if isinstance(value, float):
        return repr(float(value)) if math.isfinite(value) else _quoted(_non_finite(value))
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, UUID):
        return _quoted(str(value))
    octets = value if _is_binary(value) else codec.encode_value(value)
    return _quoted(base64.b64encode(octets).decode())


def to_header_of_names(values: Mapping[str, Any]) -> str:
    """Several, with their names, as one JSON object."""
    pairs = (f"{_quoted(name)}:{to_header(value)}" for name, value in values.items())
    return f"{{{','.join(pairs)}}}"


def instant_text(at_ms: int) -> str:
    return f'"{http_date(at_ms)}"'


def http_date(at_ms: int) -> str:
    """RFC 1123, as far as its four digits for a year go."""
    try:
        return format_datetime(_EPOCH + timedelta(seconds=at_ms // 1000), usegmt=True)
    except OverflowError:
        return http_date(0 if at_ms < 0 else 253_402_300_799_000)


def _quoted(text: str) -> str:
    return json.dumps(text).replace("\x7f", "\\u007f")


def _is_binary(value: Any) -> bool:
    return isinstance(value, bytes) and not isinstance(value, _DECIMALS)


def _non_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
