"""Sockets and what the listener makes of them, with a gateway that the tests play themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from busway.runtime.listener import Wire
from tests.runtime.played import HELLO, Port, read_to_end, until
from tests.runtime.wire import WAIT_S

pytestmark = pytest.mark.usefixtures("quick_ticks")


async def test_bytes_go_in_and_answers_come_out(open_port: Callable[..., Port]) -> None:
    port = await open_port().open()
    reader, _, client = await port.greet()
    client.say(b"good day")
    assert await asyncio.wait_for(reader.readexactly(8), WAIT_S) == b"good day"
    assert client.peer.connection_id == "c1"
    assert client.peer.loopback


async def test_there_is_one_write_per_connection_and_iteration(
    open_port: Callable[..., Port], monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[bytes] = []
    really_made = Wire.connection_made

    class CountingTransport:
        def __init__(self, transport: asyncio.Transport) -> None:
            self.transport = transport

        def write(self, data: bytes) -> None:
            writes.append(data)
            self.transport.write(data)

        def __getattr__(self, name: str) -> object:
            return getattr(self.transport, name)

    def connection_made(self: Wire, transport: asyncio.BaseTransport) -> None:
        really_made(self, transport)
        self._transport = CountingTransport(transport)  # type: ignore[assignment, arg-type]

    monkeypatch.setattr(Wire, "connection_made", connection_made)
    port = await open_port().open()
    reader, writer, client = await port.greet()
    client.answer = b"a"
    writer.write(b"x" * 100)
    assert await asyncio.wait_for(reader.readexactly(100), WAIT_S) == b"a" * 100
    assert writes == [b"a" * 100]

    def answer_in_two_turns() -> None:
        client.say(b"1")
        port.host.soon(lambda: client.say(b"2"))

    port.host.soon(answer_in_two_turns)
    assert await asyncio.wait_for(reader.readexactly(2), WAIT_S) == b"12"
    assert writes[1:] == [b"12"]


async def test_a_silent_stranger_is_dropped(open_port: Callable[..., Port]) -> None:
    port = await open_port(silence_ms=20).open()
    reader, _ = await port.call()
    assert await read_to_end(reader) == b""
    await until(lambda: port.listener.connection_count == 0)


async def test_a_stranger_who_trickles_rubbish_is_dropped(open_port: Callable[..., Port]) -> None:
    port = await open_port(silence_ms=50).open()
    reader, writer = await port.call()
    for byte in b"AMQQ\x00\x01":
        writer.write(bytes([byte]))
    assert await read_to_end(reader) == b""


async def test_who_has_greeted_may_be_silent(open_port: Callable[..., Port]) -> None:
    port = await open_port(silence_ms=2_000).open()
    _, writer, client = await port.greet()
    stranger, _ = await port.call()
    await read_to_end(stranger)  # one who came later was dropped meanwhile
    assert not client.was_lost.is_set()
    writer.close()


async def test_every_connection_is_ticked_by_one_timer(open_port: Callable[..., Port]) -> None:
    port = await open_port().open()
    kept = [await port.greet() for _ in range(3)]
    await until(lambda: all(client.ticks > 1 for _, _, client in kept))


async def test_connections_do_not_notice_when_the_clock_is_moved(
    open_port: Callable[..., Port],
) -> None:
    """Neither a stranger who has an hour left, nor one who is to be heard every minute."""
    hour_ms = 3_600_000
    port = await open_port(silence_ms=hour_ms).open()
    _, _writer, client = await port.greet()
    _stranger = await port.call()
    await until(lambda: port.listener.connection_count == 2)
    ticked: list[int] = []
    client.tick = ticked.append  # type: ignore[method-assign]
    await until(lambda: len(ticked) == 1)
    port.host.move(24 * hour_ms)
    await until(lambda: len(ticked) == 4)
    assert port.listener.connection_count == 2
    assert ticked[-1] - ticked[0] < hour_ms


async def test_one_too_many_is_cut_off_and_the_others_go_on(
    open_port: Callable[..., Port],
) -> None:
    port = await open_port(sockets_max=1).open()
    first = await port.greet()
    second = await port.call()
    assert await read_to_end(second[0]) == b""
    assert len(port.clients) == 1
    first[2].say(b"still here")
    assert await asyncio.wait_for(first[0].readexactly(10), WAIT_S) == b"still here"


async def test_a_place_that_is_given_up_can_be_taken(open_port: Callable[..., Port]) -> None:
    port = await open_port(sockets_max=1).open()
    _, writer, client = await port.greet()
    writer.close()
    await asyncio.wait_for(client.was_lost.wait(), WAIT_S)
    reader, _, second = await port.greet()
    second.say(b"welcome")
    assert await asyncio.wait_for(reader.readexactly(7), WAIT_S) == b"welcome"


async def test_a_client_that_does_not_read_is_given_and_asked_no_more(
    open_port: Callable[..., Port],
) -> None:
    port = await open_port(output_high_bytes=1000, output_low_bytes=100).open()
    reader, writer, client = await port.greet()
    written = 0
    while not client.paused:
        client.say(b"x" * 100_000)
        written += 100_000
        await asyncio.sleep(0)
    received = len(client.received)
    writer.write(b"more")
    ticks = client.ticks
    await until(lambda: client.ticks > ticks + 5)
    assert len(client.received) == received
    await asyncio.wait_for(reader.readexactly(written), WAIT_S)
    await until(lambda: not client.paused and client.received.endswith(b"more"))


async def test_nothing_is_read_while_the_node_holds_too_much(
    open_port: Callable[..., Port],
) -> None:
    port = await open_port().open()
    _, writer, client = await port.greet()
    port.full = True
    writer.write(b"first")
    await until(lambda: client.received.endswith(b"first"))
    writer.write(b"second")
    ticks = client.ticks
    await until(lambda: client.ticks > ticks + 5)
    assert client.received.endswith(b"first")
    port.full = False
    await until(lambda: client.received.endswith(b"second"))


async def test_a_mistake_ends_its_own_connection_only(open_port: Callable[..., Port]) -> None:
    port = await open_port().open()
    reader, writer, client = await port.greet()
    other_reader, _, other = await port.greet()
    writer.write(b"mistake")
    assert await read_to_end(reader) == b""
    await asyncio.wait_for(client.was_lost.wait(), WAIT_S)
    other.say(b"fine")
    assert await asyncio.wait_for(other_reader.readexactly(4), WAIT_S) == b"fine"


async def test_closing_says_why_and_waits_for_the_last_words_to_be_taken(
    open_port: Callable[..., Port],
) -> None:
    port = await open_port().open()
    reader, _, client = await port.greet()
    await port.listener.close("amqp:connection:forced", "stopping", wait_s=WAIT_S)
    assert await read_to_end(reader) == b"closed: amqp:connection:forced: stopping"
    assert client.was_lost.is_set()
    with pytest.raises(OSError, match=r"refused|Connect call failed"):
        await port.call()


async def test_what_is_in_flight_is_answered_while_nothing_new_is_read(
    open_port: Callable[..., Port],
) -> None:
    port = await open_port().open()
    reader, writer, client = await port.greet()
    port.listener.stop_reading()
    writer.write(b"new work")
    ticks = client.ticks
    await until(lambda: client.ticks > ticks + 5)
    assert client.received == HELLO
    client.say(b"answer")
    assert await asyncio.wait_for(reader.readexactly(6), WAIT_S) == b"answer"


async def test_who_does_not_leave_in_time_is_cut_off(open_port: Callable[..., Port]) -> None:
    port = await open_port(leaving_ms=20, output_high_bytes=1000, output_low_bytes=100).open()
    _, _, client = await port.greet()
    while not client.paused:
        client.say(b"x" * 100_000)
        await asyncio.sleep(0)
    client.finished = True
    client.say(b"the end")
    await asyncio.wait_for(client.was_lost.wait(), WAIT_S)
