"""D-32: AMQP, HTTP and TLS on one port, told apart by how they begin; strangers who do not begin
are dropped. The gateway and HTTP are played by the tests, on both event loops."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable

import pytest

from busway.runtime import sniffing
from busway.runtime.certificates import CertificateFolder
from busway.runtime.sniffing import Speech, speech_of
from busway.runtime.tls import server_context
from tests.runtime.played import HELLO, Port, read_to_end, until
from tests.runtime.wire import WAIT_S

pytestmark = pytest.mark.usefixtures("quick_ticks")

AMQP = b"AMQP\x00\x01\x00\x00"
REQUEST = b"GET /orders HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def tls(certificates: CertificateFolder) -> ssl.SSLContext:
    return server_context(certificates.server, certificates.server_key)


@pytest.fixture(params=["plain", "TLS"])
def coat(request: pytest.FixtureRequest, trusting: ssl.SSLContext) -> ssl.SSLContext | None:
    """What a client wears."""
    return trusting if request.param == "TLS" else None


def hello_of_tls() -> bytes:
    """What a TLS client says first."""
    said = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(
        ssl.MemoryBIO(), said, server_hostname="localhost"
    )
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return said.read()


@pytest.mark.parametrize(
    ("first", "speech"),
    [(b"AMQP", Speech.AMQP), (b"\x16\x03\x01", Speech.TLS), (b"\x00", Speech.AMQP)]
    + [(b"hello", Speech.AMQP), (b"\xff", Speech.AMQP)]
    + [
        (method, Speech.HTTP)
        for method in (b"GET", b"PUT", b"POST", b"DELETE", b"HEAD", b"OPTIONS", b"PATCH", b"TRACE")
    ],
)
def test_one_byte_tells_what_is_spoken(first: bytes, speech: Speech) -> None:
    assert speech_of(first[0]) is speech


# --- who gets the connection ---------------------------------------------------------------------


async def test_amqp_goes_to_the_gateway(
    open_port: Callable[..., Port], tls: ssl.SSLContext, coat: ssl.SSLContext | None
) -> None:
    port = await open_port(tls=tls).open()
    reader, writer = await port.call(coat)
    writer.write(AMQP)
    await until(lambda: bool(port.clients) and port.clients[0].received == AMQP)
    port.clients[0].say(b"good day")
    assert await asyncio.wait_for(reader.readexactly(8), WAIT_S) == b"good day"
    assert port.clients[0].peer.encrypted is (coat is not None)
    assert port.clients[0].peer.loopback


async def test_after_the_choice_nothing_is_in_the_way(
    open_port: Callable[..., Port], tls: ssl.SSLContext, coat: ssl.SSLContext | None
) -> None:
    """D-10: AMQP pays for the look once, and not at each read."""
    port = await open_port(tls=tls).open()
    _, writer = await port.call(coat)
    writer.write(AMQP)
    await until(lambda: bool(port.clients))
    (wire,) = port.listener._wires
    assert wire._transport is not None
    assert wire._transport.get_protocol() is wire


async def test_requests_go_to_http(
    open_port: Callable[..., Port], tls: ssl.SSLContext, coat: ssl.SSLContext | None
) -> None:
    port = await open_port(tls=tls).open()
    _, writer = await port.call(coat)
    writer.write(REQUEST * 2)
    await until(lambda: bool(port.http.connections))
    await until(lambda: port.http.connections[0].received == REQUEST * 2)
    assert port.clients == []


@pytest.mark.parametrize(
    "said", [AMQP, REQUEST, b"\x00\x01\x02\x03"], ids=["AMQP", "HTTP", "zeros"]
)
async def test_bytes_may_come_one_by_one(
    open_port: Callable[..., Port], tls: ssl.SSLContext, coat: ssl.SSLContext | None, said: bytes
) -> None:
    port = await open_port(tls=tls).open()
    _, writer = await port.call(coat)

    def received() -> bytes:
        return b"".join(each.received for each in [*port.clients, *port.http.connections])

    for count in range(1, len(said) + 1):
        writer.write(said[count - 1 : count])
        await until(lambda so_far=said[:count]: received() == so_far)


async def test_a_tls_hello_may_come_one_by_one(
    open_port: Callable[..., Port], tls: ssl.SSLContext
) -> None:
    port = await open_port(tls=tls).open()
    reader, writer = await port.call()
    for byte in hello_of_tls():
        writer.write(bytes([byte]))
        await writer.drain()
    answer = await asyncio.wait_for(reader.readexactly(1), WAIT_S)
    assert answer == b"\x16", "a record of the handshake, as from any TLS server"


async def test_what_comes_while_http_is_made_ready_is_not_lost(
    open_port: Callable[..., Port], tls: ssl.SSLContext, coat: ssl.SSLContext | None
) -> None:
    """D-33: HTTP is imported when it is needed, and AMQP does not wait for it."""
    port = await open_port(tls=tls).open()
    port.http_is_ready.clear()
    _, writer = await port.call(coat)
    writer.write(REQUEST[:5])
    await writer.drain()
    _, _, client = await port.greet()
    writer.write(REQUEST[5:])
    await writer.drain()
    assert client.greeted
    assert port.http.connections == []
    port.http_is_ready.set()
    await until(lambda: bool(port.http.connections))
    await until(lambda: port.http.connections[0].received == REQUEST)


async def test_a_port_without_tls_says_so_in_the_words_of_tls(
    open_port: Callable[..., Port], trusting: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    port = await open_port().open()
    with caplog.at_level("INFO"), pytest.raises(ssl.SSLError, match=r"(?i)handshake.failure"):
        await port.call(trusting)
    assert "this server has no certificate; start it with --tls" in caplog.text


# --- strangers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [b"", b"\x16", hello_of_tls()[:100], REQUEST[:20], b"A", b"\x00\x00"],
    ids=["nothing", "a byte of TLS", "half a hello", "half a head", "an A", "rubbish"],
)
async def test_who_begins_and_does_not_go_on_is_dropped(
    open_port: Callable[..., Port], tls: ssl.SSLContext, said: bytes
) -> None:
    port = await open_port(tls=tls, silence_ms=50).open()
    reader, writer = await port.call()
    writer.write(said)
    assert await read_to_end(reader) == b""
    await until(lambda: port.listener.connection_count == 0)


@pytest.mark.parametrize("said", [b"", REQUEST[:20], b"A"], ids=["nothing", "half a head", "an A"])
async def test_who_agrees_on_tls_and_does_not_go_on_is_dropped(
    open_port: Callable[..., Port], tls: ssl.SSLContext, trusting: ssl.SSLContext, said: bytes
) -> None:
    port = await open_port(tls=tls, silence_ms=2_000).open()
    reader, writer = await port.call(trusting)
    writer.write(said)
    assert await read_to_end(reader) == b""
    await until(lambda: port.listener.connection_count == 0)


async def test_who_has_sent_a_whole_head_may_be_silent(
    open_port: Callable[..., Port], tls: ssl.SSLContext, coat: ssl.SSLContext | None
) -> None:
    port = await open_port(tls=tls, silence_ms=2_000).open()
    _, writer = await port.call(coat)
    writer.write(REQUEST)
    await until(lambda: bool(port.http.connections))
    stranger, _ = await port.call()
    await read_to_end(stranger)  # one who came later was dropped meanwhile
    assert port.listener.connection_count == 1


async def test_who_leaves_before_a_word_is_forgotten(
    open_port: Callable[..., Port], tls: ssl.SSLContext
) -> None:
    port = await open_port(tls=tls).open()
    for said in (b"", b"\x16\x03\x01"):
        _, writer = await port.call()
        writer.write(said)
        writer.close()
    with socket.create_connection(("127.0.0.1", port.port)) as rude:
        rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")  # a reset
    await port.greet()
    await until(lambda: port.listener.connection_count == 1)


@pytest.mark.parametrize("said", [b"", AMQP, REQUEST], ids=["nothing", "AMQP", "HTTP"])
async def test_every_socket_counts_whatever_is_spoken_on_it(
    open_port: Callable[..., Port], tls: ssl.SSLContext, coat: ssl.SSLContext | None, said: bytes
) -> None:
    port = await open_port(tls=tls, sockets_max=1).open()
    first, writer = await port.call(coat)
    writer.write(said)
    if said:
        await until(lambda: bool(port.clients) or bool(port.http.connections))
    await until(lambda: port.listener.connection_count == 1)
    second, _ = await port.call()
    assert await read_to_end(second) == b""
    writer.close()
    await read_to_end(first)
    await until(lambda: port.listener.connection_count == 0)
    await port.greet()


async def test_nobody_is_accepted_while_the_system_has_no_room_and_all_are_afterwards(
    open_port: Callable[..., Port], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sniffing, "REST_MS", 20)
    port = await open_port().open()
    (door,) = port.listener._entrance._doors

    class FullHouse:
        """The door of a process that has no file left, twice."""

        refusals = 2

        def fileno(self) -> int:
            return door.fileno()

        def accept(self) -> tuple[socket.socket, object]:
            if self.refusals:
                self.refusals -= 1
                raise OSError(errno.EMFILE, "Too many open files")
            return door.accept()

        def close(self) -> None:
            door.close()

    full: socket.socket = FullHouse()  # type: ignore[assignment]
    port.host.loop.remove_reader(door)
    port.listener._entrance._doors = [full]
    port.host.loop.add_reader(full, port.listener._entrance._accept, full)
    await port.greet()
    assert full.refusals == 0  # type: ignore[attr-defined]


async def test_closing_sends_away_who_was_not_placed_yet(
    open_port: Callable[..., Port], tls: ssl.SSLContext, trusting: ssl.SSLContext
) -> None:
    port = await open_port(tls=tls).open()
    calls = [await port.call(), await port.call(trusting), await port.call()]
    calls[-1][1].write(hello_of_tls()[:50])
    await until(lambda: port.listener.connection_count == 3)
    port.listener.stop_accepting()
    for reader, _ in calls:
        assert await read_to_end(reader) == b""
    with pytest.raises(OSError, match=r"refused|Connect call failed"):
        await port.call()


async def test_several_ports_are_one_listener(open_port: Callable[..., Port]) -> None:
    port = await open_port().open()
    first = port.port
    port.port = await port.listener.open("127.0.0.1", 0)
    assert port.port != first
    _, writer = await port.call()
    writer.write(HELLO)
    await until(lambda: len(port.clients) == 1 and port.clients[0].greeted)
    port.port = first
    await port.greet()
    assert port.listener.connection_count == 2


async def test_all_addresses_of_a_name_get_the_same_port(open_port: Callable[..., Port]) -> None:
    port = open_port()
    taken = await port.listener.open("localhost", 0)
    addresses = {info[4][:2] for info in socket.getaddrinfo("localhost", taken, type=1)}
    for address, number in addresses:
        _, writer = await asyncio.wait_for(asyncio.open_connection(address, number), WAIT_S)
        writer.close()
