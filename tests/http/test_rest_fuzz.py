"""Requests on messages of any kind, and messages of any kind for requests: none is our mistake."""

from __future__ import annotations

import json
import socket
import string
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from busway.amqp import codec
from busway.amqp.errors import ProtocolError
from busway.amqp.performatives import Header, Properties
from busway.amqp.sections import encode_message
from busway.amqp.types import Symbol, Timestamp, ULong
from busway.gateway.envelope import Origin
from busway.http.rest import messages, values
from busway.http.rest.names import is_reserved
from busway.model.entities import Queue
from busway.model.message import Message
from busway.model.names import SubQueueKind
from busway.testing import Server
from tests.http.rest_client import ANSWER_S, Rest, open_socket, token

FUZZ = settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
CONFIG = """
[[queues]]
name = "plain"
lock_duration = "5s"

[[queues]]
name = "parts"
partitioned = true
requires_duplicate_detection = true

[[queues]]
name = "echo"

[[queues]]
name = "sessions"
requires_session = true

[[topics]]
name = "news"

[[topics.subscriptions]]
name = "all"
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(config=CONFIG) as running:
        yield running
        assert "unforeseen" not in running.log
        assert "Traceback" not in running.log


@pytest.fixture(scope="module")
def rest(server: Server) -> Iterator[Rest]:
    client = Rest(server)
    yield client
    client.close()


# --- Any request ---------------------------------------------------------------------------------

NAMES = st.sampled_from(
    ["plain", "parts", "sessions", "news", "PLAIN", "nowhere", "plain%2Fmessages", "a/b"]
)
BELOW = st.sampled_from(
    ["", "/subscriptions/all", "/Subscriptions/x", "/$DeadLetterQueue", "/$Transfer", "//", "/$x"]
)
TOKENS = st.one_of(
    st.uuids().map(str),
    st.text(max_size=20).map(lambda text: quote(text, safe="", errors="surrogatepass")),
    st.just("ffffffff-ffff-ffff-ffff-ffffffffffff"),
)
PATHS = st.one_of(
    st.builds(
        lambda name, below, rest: f"/{name}{below}/messages{rest}",
        NAMES,
        BELOW,
        st.one_of(
            st.sampled_from(["", "/", "/head", "/HEAD", "/head/", "/head/head", "/1/2/3"]),
            st.builds(lambda number, lock: f"/{number}/{lock}", st.integers(), TOKENS),
            st.builds(lambda name, lock: f"/{name}/{lock}", TOKENS, TOKENS),
        ),
    ),
    st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=40).map("/{}".format),
)
QUERIES = st.one_of(
    st.sampled_from(["?timeout=0", "?timeout=0.001", "?timeout=0&timeout=60"]),
    st.text(max_size=10).map(
        lambda text: f"?timeout={quote(f'x{text}', safe='', errors='surrogatepass')}"
    ),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
KNOWN = st.sampled_from(
    [
        *messages.PROPERTY_FIELDS,
        *messages.ANNOTATIONS,
        "ScheduledEnqueueTimeUtc",
        "TimeToLive",
        "TimeToLiveTimeSpan",
        "ContentType",
        "ForcePersistence",
    ]
)
DESCRIBED = st.one_of(st.dictionaries(KNOWN, JSON, max_size=5), JSON).map(json.dumps)
LINES = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF), max_size=40).map(
    lambda text: text.encode().replace(b"\x7f", b"")
)
HEADERS = st.dictionaries(
    st.one_of(
        st.sampled_from(["BrokerProperties", "BuswayProperties", "Content-Type", "Date", "X"]),
        st.text(string.ascii_letters + "-_.!", min_size=1, max_size=12).filter(
            lambda name: (
                name.lower() not in ("host", "content-length", "transfer-encoding")
                and name.lower() not in ("connection", "upgrade", "expect", "authorization")
            )
        ),
    ),
    st.one_of(
        LINES,
        DESCRIBED.map(str.encode),
        st.just(b"application/vnd.microsoft.servicebus.json; charset=utf-8"),
    ),
    max_size=5,
)
ITEMS = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {"Body": st.one_of(st.text(), JSON)},
            optional={
                "BrokerProperties": st.one_of(st.dictionaries(KNOWN, JSON), JSON),
                "UserProperties": st.one_of(st.dictionaries(st.text(), JSON), JSON),
            },
        ),
        JSON,
    ),
    max_size=4,
)
BODIES = st.one_of(st.binary(max_size=200), ITEMS.map(lambda items: json.dumps(items).encode()))


class Wire:
    """One connection, opened anew when the server has closed it."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._socket: socket.socket | None = None
        self._authorization = token(server).encode()

    def exchange(self, method: str, path: str, headers: dict[str, bytes], body: bytes) -> int:
        if self._socket is None:
            self._socket = open_socket(self._server)
            self._socket.settimeout(ANSWER_S)
        lines = [
            f"{method} {path} HTTP/1.1".encode(),
            b"Host: localhost",
            b"Authorization: " + self._authorization,
            b"Content-Length: %d" % len(body),
            *(name.encode() + b": " + value for name, value in headers.items()),
        ]
        self._socket.sendall(b"\r\n".join([*lines, b"", body]))
        said = b""
        while b"\r\n\r\n" not in said:
            piece = self._socket.recv(65536)
            assert piece, said
            said += piece
        head, _, rest = said.partition(b"\r\n\r\n")
        fields = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(b":") for line in head.split(b"\r\n")[1:])
        }
        length = int(fields.get(b"content-length", 0))
        while len(rest) < length:
            rest += self._socket.recv(65536)
        assert len(rest) == length
        if fields.get(b"connection") == b"close":
            self._socket.close()
            self._socket = None
        return int(head.split(b" ")[1])


@pytest.fixture(scope="module")
def wire(server: Server) -> Wire:
    return Wire(server)


@FUZZ
@given(st.sampled_from(["POST", "PUT", "DELETE"]), PATHS, QUERIES, HEADERS, BODIES)
def test_no_request_is_our_mistake(
    wire: Wire, method: str, path: str, query: str, headers: dict[str, bytes], body: bytes
) -> None:
    assert 200 <= wire.exchange(method, path.replace("?", "") + query, headers, body) < 500


@FUZZ
@given(
    st.sampled_from(["plain", "parts", "sessions", "news"]),
    st.booleans(),
    st.one_of(st.dictionaries(KNOWN, JSON, max_size=4), JSON),
    BODIES,
)
def test_no_message_that_is_sent_is_our_mistake(
    wire: Wire, entity: str, batch: bool, described: Any, body: bytes
) -> None:
    kind = b"application/vnd.microsoft.servicebus.json" if batch else b"any/thing"
    headers = {"Content-Type": kind, "BrokerProperties": json.dumps(described).encode()}
    status = wire.exchange("POST", f"/{entity}/messages", headers, body)
    assert status in (201, 400)
    for place in ("plain", "parts", "news/subscriptions/all", "plain/$DeadLetterQueue"):
        assert wire.exchange("DELETE", f"/{place}/messages/head?timeout=0", {}, b"") in (200, 204)


# --- What is sent is what is received ------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
PROPERTIES = st.dictionaries(
    st.text(string.ascii_letters + string.digits + "-_", min_size=1, max_size=12).filter(
        lambda name: not is_reserved(name)
    ),
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | TEXT | st.floats(-1e9, 1e9),
    max_size=5,
).filter(lambda found: len({name.lower() for name in found}) == len(found))


@FUZZ
@given(
    st.binary(max_size=300),
    st.dictionaries(st.sampled_from([*messages.PROPERTY_FIELDS]), TEXT, max_size=7),
    PROPERTIES,
    st.dictionaries(TEXT, TEXT, max_size=2),
)
def test_what_is_sent_is_what_is_received(
    rest: Rest,
    body: bytes,
    described: dict[str, str],
    properties: dict[str, Any],
    others: dict[str, str],
) -> None:
    headers = {name: values.to_header(value) for name, value in properties.items()}
    headers["BuswayProperties"] = values.to_header_of_names(others)
    assert rest.send("echo", body, described, headers).status == 201
    reply = rest.delete("echo", timeout=0)
    assert reply.status == 200
    assert reply.body == body
    assert {name: reply.broker[name] for name in described} == described
    known = {name.lower(): value for name, value in properties.items()}
    for name, value in known.items():
        if name not in {each.lower() for each in others}:
            assert values.from_header(reply.headers[name]) == value
    for name, value in others.items():
        in_header = reply.headers.get(name.lower())
        found = json.loads(reply.headers.get("buswayproperties", "{}"))
        assert found.get(name) == value or json.loads(in_header or "null") == value


# --- Any message ---------------------------------------------------------------------------------

AMQP = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.integers(0, 2**64 - 1).map(ULong)
    | st.integers(-(2**63), 2**63 - 1).map(Timestamp)
    | st.floats()
    | TEXT
    | st.binary(max_size=20)
    | st.uuids(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
IDS = st.none() | TEXT | st.binary(max_size=8) | st.uuids() | st.integers(0, 2**64 - 1).map(ULong)
SYMBOLS = st.text(string.printable, max_size=20)
PAYLOADS = st.builds(
    encode_message,
    header=st.none() | st.builds(Header, ttl=st.integers(1, 2**32 - 1)),
    annotations=st.none()
    | st.dictionaries(
        st.sampled_from(["x-opt-partition-key", "x-opt-via-partition-key", "x"]).map(Symbol), TEXT
    ),
    properties=st.none()
    | st.builds(
        Properties,
        message_id=IDS,
        correlation_id=st.one_of(IDS, AMQP),
        subject=st.none() | TEXT,
        content_type=st.none() | SYMBOLS,
        to=st.none() | TEXT,
    ),
    application_properties=st.none() | st.dictionaries(TEXT, AMQP, max_size=4),
    body=AMQP,
)


ORIGIN = Origin(Queue(path="orders"), SubQueueKind.MAIN)


def check(payload: bytes) -> None:
    sections = codec.scan_message(payload)
    message = Message(
        bare=sections.bare,
        size=len(payload),
        ttl_ms=sections.ttl_ms,
        annotations=sections.annotations,
        annotation_items=sections.annotation_items,
    )
    message.lock_token = UUID(int=5).bytes_le
    for locked in (False, True):
        headers = messages.headers_of(message, message.bare, ORIGIN, locked=locked)
        for name, value in headers.items():
            assert name.isascii()
            assert value.isascii()
            assert value.isprintable()
        json.loads(headers["BrokerProperties"])
    assert isinstance(messages.body_of(message.bare), bytes)


@FUZZ
@given(PAYLOADS)
def test_every_message_can_be_shown(payload: bytes) -> None:
    check(payload)


@settings(FUZZ, max_examples=600)
@given(PAYLOADS, st.integers(0, 10_000), st.integers(1, 255), st.binary(max_size=6))
def test_and_so_can_one_that_is_no_amqp_inside(
    payload: bytes, place: int, change: int, inserted: bytes
) -> None:
    """What a broker has let in because it only passes it on."""
    changed = bytearray(payload)
    changed[place % len(changed)] ^= change
    changed[place % len(changed) : place % len(changed)] = inserted
    try:
        codec.scan_message(bytes(changed))
    except ProtocolError:
        return
    check(bytes(changed))
