"""Properties of messages as headers: types that survive, and texts that cannot break out."""

from __future__ import annotations

import base64
import json
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway.amqp import codec
from busway.amqp.types import (
    Byte,
    Char,
    Decimal32,
    Described,
    Float,
    Int,
    Symbol,
    Timestamp,
    UInt,
    ULong,
)
from busway.http.rest import values
from busway.http.rest.names import can_be_header, is_reserved


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ('"text"', "text"),
        ('"a \\"quoted\\" word"', 'a "quoted" word'),
        ('"Gr\\u00fc\\u00dfe"', "Grüße"),
        ('""', ""),
        ("true", True),
        ("False", False),
        ("null", None),
        ("5", Int(5)),
        ("-7", Int(-7)),
        ("2147483648", 2147483648),
        ("9223372036854775808", 9223372036854775808.0),
        ("1.5", 1.5),
        ("-2e3", -2000.0),
        ('"Wed, 02 Jul 2014 01:32:27 GMT"', Timestamp(1404264747000)),
    ],
)
def test_a_header_has_the_type_that_it_is_written_in(header: str, value: Any) -> None:
    found = values.from_header(header)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        "plain words",
        "C:\\temp",
        '"half',
        '"Chromium";v="1"',
        "007",
        "+5",
        "0x10",
        "1e999",
        "NaN",
        "[1, 2]",
        '{"a": 1}',
        "[" * 100_000,
        "9" * 5_000,
        "",
    ],
)
def test_what_is_no_value_is_text_as_it_stands(text: str) -> None:
    assert values.from_header(text) == text


def test_a_day_that_never_was_is_text() -> None:
    assert values.from_header('"Mon, 31 Feb 2014 01:32:27 GMT"') == "Mon, 31 Feb 2014 01:32:27 GMT"


@pytest.mark.parametrize(
    ("value", "header"),
    [
        ("text", '"text"'),
        (Symbol("name"), '"name"'),
        (Char("ü"), '"\\u00fc"'),
        ("line\r\nSet-Cookie: a=b", '"line\\r\\nSet-Cookie: a=b"'),
        ("\x7f\x00", '"\\u007f\\u0000"'),
        ("\U0001f600", '"\\ud83d\\ude00"'),
        (True, "true"),
        (None, "null"),
        (Byte(-3), "-3"),
        (UInt(4294967295), "4294967295"),
        (ULong(18446744073709551615), "18446744073709551615"),
        (1e300, "1e+300"),
        (Float(0.5), "0.5"),
        (float("nan"), '"NaN"'),
        (float("-inf"), '"-Infinity"'),
        (Timestamp(1404264747999), '"Wed, 02 Jul 2014 01:32:27 GMT"'),
        (Timestamp(-(2**62)), '"Thu, 01 Jan 1970 00:00:00 GMT"'),
        (Timestamp(2**62), '"Fri, 31 Dec 9999 23:59:59 GMT"'),
        (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (b"\x00\xff", '"AP8="'),
        (Decimal32(b"\x01\x02\x03\x04"), '"dAECAwQ="'),
        ([1, "a"], '"wAYCVQGhAWE="'),
    ],
)
def test_every_amqp_type_has_a_form(value: Any, header: str) -> None:
    assert values.to_header(value) == header


def test_what_has_no_form_of_its_own_comes_in_its_encoding() -> None:
    value = Described(Symbol("x"), {"a": [1]})
    encoded = base64.b64decode(json.loads(values.to_header(value)))
    assert encoded == codec.encode_value(value)


amqp_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.integers(0, 2**64 - 1).map(ULong)
    | st.integers(-(2**63), 2**63 - 1).map(Timestamp)
    | st.floats()
    | st.text()
    | st.binary()
    | st.uuids(),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)


@given(amqp_values)
def test_nothing_breaks_out_of_its_header(value: Any) -> None:
    header = values.to_header(value)
    assert header.isascii()
    assert header.isprintable()
    json.loads(header)


@given(st.dictionaries(st.text(), amqp_values, max_size=4))
def test_nor_do_names(properties: dict[str, Any]) -> None:
    header = values.to_header_of_names(properties)
    assert header.isascii()
    assert header.isprintable()
    assert set(json.loads(header)) == set(properties)


@given(st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text())
def test_what_has_a_form_comes_back(value: Any) -> None:
    assert values.from_header(values.to_header(value)) == value


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_comes_back_as_it_was(value: float) -> None:
    assert values.from_header(values.to_header(value)) == value


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("Sun, 06 Nov 1994 08:49:37 GMT", 784111777000),
        ("1994-11-06T08:49:37Z", 784111777000),
        ("1994-11-06T09:49:37.25+01:00", 784111777250),
        ("1994-11-06T08:49:37", 784111777000),
        ("1994-11-06", 784080000000),
    ],
)
def test_an_instant_may_be_written_in_two_ways(text: str, at_ms: int) -> None:
    assert values.instant_ms(text) == at_ms


@pytest.mark.parametrize("text", ["", "soon", "1994-13-01", "Sun, 06 Nov", "5", "\x00"])
def test_what_is_no_instant_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an instant"):
        values.instant_ms(text)


@pytest.mark.parametrize("value", [[], {}, [1], {"a": 1}, 10**400])
def test_a_property_is_one_value(value: Any) -> None:
    with pytest.raises(ValueError, match=r"list or an object|too large"):
        values.from_json(value)


@pytest.mark.parametrize(
    "name",
    [
        "Host",
        "content-type",
        "Content-Anything",
        "Transfer-Encoding",
        "X-MS-RetryPolicy",
        "accept",
        "Set-Cookie",
        "Set-Cookie2",
        "LOCATION",
        "BrokerProperties",
        "Date",
        "If-Match",
    ],
)
def test_headers_of_http_are_no_properties(name: str) -> None:
    assert is_reserved(name)
    assert not can_be_header(name)


@pytest.mark.parametrize("name", ["", "two words", "naïve", "a:b", "a\r\nb", "(x)", "a/b"])
def test_some_names_cannot_be_headers(name: str) -> None:
    assert not can_be_header(name)


@pytest.mark.parametrize("name", ["Priority", "my.key", "a_b", "x-custom", "5"])
def test_others_can(name: str) -> None:
    assert can_be_header(name)
