"""AMQP over WebSocket (amqp.md 17): one more transport, to which everything applies that applies to
TCP. HTTP is the real one, the gateway is played by the tests, on both event loops."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType, WSServerHandshakeError

from busway.cluster.catalogs import Catalogs
from busway.gateway.gateway import Gateway
from busway.http import websocket
from busway.http.server import HttpServer
from busway.http.services import Services
from busway.runtime.certificates import CertificateFolder
from busway.runtime.journal_readers import JournalReaders
from busway.runtime.reports import Reports
from busway.runtime.tls import server_context
from tests.runtime.played import HELLO, FakeClient, Port, read_to_end, until
from tests.runtime.wire import WAIT_S

pytestmark = pytest.mark.usefixtures("quick_ticks")

PATH = "/$servicebus/websocket"


class WebPort(Port):
    """A port with the real HTTP behind it, and clients that speak WebSocket to it."""

    session: ClientSession

    async def load_http(self) -> HttpServer:  # type: ignore[override]
        gateway = Gateway(self.host, Catalogs.open(None).default, {})
        services = Services(
            host=self.host,
            gateway_of=lambda hostname: gateway,
            gateways=lambda: (gateway,),
            stores=lambda: (),
            journals=JournalReaders({}),
            reports=Reports(None, self.host),
            amqp=self.listener.wire_in_http,
        )
        return HttpServer(services)

    async def upgrade(
        self, tls: ssl.SSLContext | None = None, path: str = PATH, **options: Any
    ) -> ClientWebSocketResponse:
        options = {"protocols": ["AMQPWSB10"], "max_msg_size": 0, **options}
        scheme = "ws" if tls is None else "wss"
        url = f"{scheme}://127.0.0.1:{self.port}{path}"
        return await self.session.ws_connect(url, ssl=tls or True, **options)

    async def greet_in_websocket(
        self, tls: ssl.SSLContext | None = None, **options: Any
    ) -> tuple[ClientWebSocketResponse, FakeClient]:
        before = len(self.clients)
        socket = await self.upgrade(tls, **options)
        await socket.send_bytes(HELLO)
        await until(lambda: len(self.clients) > before and self.clients[before].greeted)
        return socket, self.clients[before]


@pytest.fixture
async def web(certificates: CertificateFolder, request: Any) -> AsyncIterator[WebPort]:
    marker = request.node.get_closest_marker("limits")
    limits = marker.kwargs if marker else {}
    port = WebPort(tls=server_context(certificates.server, certificates.server_key), **limits)
    await port.open()
    async with ClientSession() as port.session:
        yield port
    await port.listener.close("amqp:connection:forced", "the test is over", wait_s=0)


@pytest.fixture(params=["plain", "TLS"])
def coat(request: pytest.FixtureRequest, trusting: ssl.SSLContext) -> ssl.SSLContext | None:
    return trusting if request.param == "TLS" else None


def transport_of(socket: ClientWebSocketResponse) -> asyncio.Transport:
    connection = socket._response.connection
    assert connection is not None
    assert connection.transport is not None
    return connection.transport


async def fill(client: FakeClient, socket: ClientWebSocketResponse) -> int:
    """Say as much as fits to a client that does not read, until no more does for many ticks."""
    transport_of(socket).pause_reading()
    written = paused_since = 0
    while client.ticks < paused_since + 20 or not client.paused:
        if not client.paused:
            client.say(b"x" * 100_000)
            written += 100_000
            paused_since = client.ticks
        await asyncio.sleep(0)
    return written


async def read(socket: ClientWebSocketResponse, count: int) -> bytes:
    """So many bytes, from as many messages as it takes."""
    said = b""
    while len(said) < count:
        said += await socket.receive_bytes(timeout=WAIT_S)
    return said


# --- the upgrade ---------------------------------------------------------------------------------


@pytest.mark.parametrize("sub_protocol", ["AMQPWSB10", "amqp"])
async def test_both_names_of_the_sub_protocol_are_taken(
    web: WebPort, coat: ssl.SSLContext | None, sub_protocol: str
) -> None:
    socket = await web.upgrade(coat, protocols=["other", sub_protocol])
    assert socket.protocol == sub_protocol


@pytest.mark.parametrize("path", [f"{PATH}/", "/$ServiceBus/WebSocket", "/%24servicebus/websocket"])
async def test_the_path_may_be_written_otherwise(web: WebPort, path: str) -> None:
    assert (await web.upgrade(path=path)).protocol == "AMQPWSB10"


@pytest.mark.parametrize("offered", [[], ["mqtt"]], ids=["nothing", "mqtt"])
async def test_another_sub_protocol_is_refused(web: WebPort, offered: list[str]) -> None:
    with pytest.raises(WSServerHandshakeError) as refused:
        await web.upgrade(protocols=offered)
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ({}, "This is the address of AMQP over WebSocket."),
        ({"Upgrade": "websocket", "Connection": "upgrade"}, "must be AMQPWSB10 or amqp"),
        (
            {
                "Upgrade": "websocket",
                "Connection": "upgrade",
                "Sec-WebSocket-Protocol": "amqp",
                "Sec-WebSocket-Version": "13",
                "Sec-WebSocket-Key": "too short",
            },
            "The request for a WebSocket is not complete",
        ),
    ],
    ids=["no upgrade", "no sub-protocol", "no key"],
)
async def test_what_is_wrong_is_said(web: WebPort, headers: dict[str, str], text: str) -> None:
    url = f"http://127.0.0.1:{web.port}{PATH}"
    async with web.session.get(url, headers=headers) as reply:
        assert reply.status == 400
        assert text in await reply.text()
    assert web.clients == []


# --- bytes ---------------------------------------------------------------------------------------


async def test_bytes_go_in_and_answers_come_out(web: WebPort, coat: ssl.SSLContext | None) -> None:
    socket, client = await web.greet_in_websocket(coat)
    client.say(b"good day")
    assert await socket.receive_bytes(timeout=WAIT_S) == b"good day"
    assert client.peer.encrypted is (coat is not None)
    assert client.peer.loopback


async def test_bytes_may_be_split_over_messages_as_the_client_likes(web: WebPort) -> None:
    socket = await web.upgrade()
    for byte in HELLO:
        await socket.send_bytes(bytes([byte]))
    await until(lambda: bool(web.clients) and web.clients[0].received == HELLO)
    web.clients[0].answer = b"a"
    await socket.send_bytes(b"x" * 100_000)
    assert await read(socket, 100_000) == b"a" * 100_000


async def test_much_is_said_in_several_messages(web: WebPort) -> None:
    """A client may have a limit for one; the default of aiohttp's is 4 MiB."""
    socket, client = await web.greet_in_websocket(max_msg_size=4 * 1024 * 1024)
    client.say(b"x" * 10_000_000)
    assert await read(socket, 10_000_000) == b"x" * 10_000_000


async def test_pings_are_answered(web: WebPort) -> None:
    """Python's asynchronous client hangs up where they are not."""
    socket, _ = await web.greet_in_websocket(autoping=False)
    await socket.ping(b"there?")
    answer = await socket.receive(timeout=WAIT_S)
    assert (answer.type, answer.data) == (WSMsgType.PONG, b"there?")


async def test_text_is_no_amqp(web: WebPort) -> None:
    socket, client = await web.greet_in_websocket()
    await socket.send_str("hello")
    closing = await socket.receive(timeout=WAIT_S)
    assert (closing.type, closing.data) == (WSMsgType.CLOSE, 1003)
    await asyncio.wait_for(client.was_lost.wait(), WAIT_S)


async def test_a_message_has_a_limit(web: WebPort, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "MESSAGE_BYTES_MAX", 1000)
    socket, client = await web.greet_in_websocket()
    await socket.send_bytes(b"x" * 1001)
    closing = await socket.receive(timeout=WAIT_S)
    assert (closing.type, closing.data) == (WSMsgType.CLOSE, 1009)
    await asyncio.wait_for(client.was_lost.wait(), WAIT_S)


# --- backpressure --------------------------------------------------------------------------------


@pytest.mark.limits(output_high_bytes=1000, output_low_bytes=100)
async def test_a_client_that_does_not_read_is_given_and_asked_no_more(
    web: WebPort, coat: ssl.SSLContext | None
) -> None:
    socket, client = await web.greet_in_websocket(coat)
    written = await fill(client, socket)
    await socket.send_bytes(b"first")
    await socket.send_bytes(b"second")
    ticks = client.ticks
    await until(lambda: client.ticks > ticks + 5)
    assert client.received in (HELLO, HELLO + b"first"), "one was under way already"
    transport_of(socket).resume_reading()
    assert len(await read(socket, written)) == written
    await until(lambda: not client.paused and client.received.endswith(b"second"))


async def test_nothing_is_read_while_the_node_holds_too_much(web: WebPort) -> None:
    socket, client = await web.greet_in_websocket()
    web.full = True
    await socket.send_bytes(b"first")
    await until(lambda: client.received.endswith(b"first"))
    await socket.send_bytes(b"second")
    ticks = client.ticks
    await until(lambda: client.ticks > ticks + 5)
    assert client.received.endswith(b"first")
    web.full = False
    await until(lambda: client.received.endswith(b"second"))


# --- the end -------------------------------------------------------------------------------------


async def test_a_connection_that_is_finished_closes_its_websocket(
    web: WebPort, coat: ssl.SSLContext | None
) -> None:
    socket, client = await web.greet_in_websocket(coat)
    client.finished = True
    client.say(b"the end")
    assert await socket.receive_bytes(timeout=WAIT_S) == b"the end"
    closing = await socket.receive(timeout=WAIT_S)
    assert (closing.type, closing.data) == (WSMsgType.CLOSE, 1000)
    await asyncio.wait_for(client.was_lost.wait(), WAIT_S)


async def test_a_client_may_close(web: WebPort, coat: ssl.SSLContext | None) -> None:
    socket, client = await web.greet_in_websocket(coat)
    await socket.close()
    assert socket.close_code == 1000
    await asyncio.wait_for(client.was_lost.wait(), WAIT_S)
    await until(lambda: web.listener.connection_count == 0)


@pytest.mark.limits(output_high_bytes=1000, output_low_bytes=100)
@pytest.mark.parametrize("full", [False, True], ids=["idle", "not reading"])
async def test_a_client_may_vanish(web: WebPort, full: bool) -> None:
    socket, client = await web.greet_in_websocket()
    if full:
        await fill(client, socket)
    transport_of(socket).abort()
    await asyncio.wait_for(client.was_lost.wait(), WAIT_S)
    await until(lambda: web.listener.connection_count == 0)


@pytest.mark.limits(silence_ms=2_000)
async def test_a_stranger_who_says_nothing_in_it_is_dropped(web: WebPort) -> None:
    socket = await web.upgrade()
    assert (await socket.receive(timeout=WAIT_S)).type in (WSMsgType.CLOSED, WSMsgType.ERROR)
    await until(lambda: web.listener.connection_count == 0)


@pytest.mark.limits(leaving_ms=20, output_high_bytes=1000, output_low_bytes=100)
async def test_who_does_not_take_our_last_words_is_cut_off(web: WebPort) -> None:
    socket, client = await web.greet_in_websocket()
    await fill(client, socket)
    client.finished = True
    client.say(b"the end")
    await asyncio.wait_for(client.was_lost.wait(), WAIT_S)


async def test_a_mistake_ends_its_own_connection_only(web: WebPort) -> None:
    socket, client = await web.greet_in_websocket()
    other_socket, other = await web.greet_in_websocket()
    await socket.send_bytes(b"mistake")
    await asyncio.wait_for(client.was_lost.wait(), WAIT_S)
    other.say(b"fine")
    assert await other_socket.receive_bytes(timeout=WAIT_S) == b"fine"


@pytest.mark.limits(sockets_max=2)
async def test_a_websocket_counts_once(web: WebPort) -> None:
    first, _ = await web.greet_in_websocket()
    second, client = await web.greet_in_websocket()
    assert web.listener.connection_count == 2
    third, _ = await web.call()
    assert await read_to_end(third) == b""
    await second.close()
    await asyncio.wait_for(client.was_lost.wait(), WAIT_S)
    await until(lambda: web.listener.connection_count == 1)
    await web.greet()
    await first.close()


async def test_closing_the_listener_says_goodbye_in_it(web: WebPort) -> None:
    socket, client = await web.greet_in_websocket()
    closing = asyncio.ensure_future(
        web.listener.close("amqp:connection:forced", "stopping", wait_s=WAIT_S)
    )
    said = await socket.receive_bytes(timeout=WAIT_S)
    assert said == b"closed: amqp:connection:forced: stopping"
    assert (await socket.receive(timeout=WAIT_S)).type is WSMsgType.CLOSE
    await asyncio.wait_for(closing, WAIT_S)
    assert client.was_lost.is_set()
    assert web.listener.connection_count == 0


async def test_closing_the_listener_cuts_off_who_does_not_leave(web: WebPort) -> None:
    socket, client = await web.greet_in_websocket()
    await fill(client, socket)
    await web.listener.close("amqp:connection:forced", "stopping", wait_s=0.1)
    assert client.was_lost.is_set()
    assert web.listener.connection_count == 0
