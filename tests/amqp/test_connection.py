"""Open, close, channels and output of a connection (AMQP 2.4)."""

from __future__ import annotations

import pytest

from busway.amqp import codec
from busway.amqp.connection import AMQP_HEADER, SASL_HEADER, Connection, Role
from busway.amqp.events import AttachRequested, Begun, Closed, Detached, Ended, Opened
from busway.amqp.link import LinkRole
from busway.amqp.performatives import (
    Attach,
    Begin,
    Close,
    Composite,
    End,
    Error,
    Open,
    SaslInit,
    Source,
    Target,
    Transfer,
)
from busway.amqp.states import ConnectionState, LocalError
from tests.amqp.pair import Pair, RawClient, every, only, settings

BEGIN = Begin(None, 0, 5000, 5000)


def condition(raw: RawClient) -> str:
    error = only(raw.events, Closed).error
    assert error is not None
    return error.condition


def test_both_sides_open() -> None:
    pair = Pair(client=settings("client", hostname="ns.example"))
    pair.open()
    assert only(pair.server_events, Opened).open.hostname == "ns.example"
    assert only(pair.client_events, Opened).open.container_id == "server"
    assert pair.server.remote_open is not None
    assert pair.server.remote_open.container_id == "client"
    assert pair.client.state is pair.server.state is ConnectionState.OPENED


def test_the_server_advertises_its_limits() -> None:
    raw = RawClient(settings("server", properties={"product": "Busway"}), is_open=False)
    raw.send_bytes(AMQP_HEADER)
    raw.send(Open("raw"))
    [(_, answer, _)] = raw.answers()
    assert isinstance(answer, Open)
    assert (answer.max_frame_size, answer.channel_max, answer.idle_time_out) == (
        65_536,
        4_999,
        120_000,
    )
    assert answer.properties == {"product": "Busway"}


def test_a_client_may_pipeline_everything_up_to_its_attaches() -> None:
    raw = RawClient(is_open=False)
    raw.send_bytes(
        SASL_HEADER
        + codec.encode_sasl_frame(SaslInit("ANONYMOUS", b""))
        + AMQP_HEADER
        + codec.encode_frame(0, Open("SBSender"))
        + codec.encode_frame(1, BEGIN)
        + codec.encode_frame(1, Attach("in", 2, True, source=Source("$cbs")))
        + codec.encode_frame(1, Attach("out", 1, False, target=Target("$cbs")))
    )
    assert [type(event) for event in raw.events] == [
        Opened,
        Begun,
        AttachRequested,
        AttachRequested,
    ]


def test_a_clients_close_is_answered() -> None:
    pair = Pair()
    pair.open()
    pair.client.close()
    pair.settle_wire()
    assert only(pair.server_events, Closed).error is None
    assert only(pair.client_events, Closed).error is None
    assert pair.client.closed
    assert pair.server.closed


def test_a_close_carries_its_reason() -> None:
    pair = Pair()
    pair.open()
    pair.server.close("amqp:connection:forced", "the server stops")
    pair.settle_wire()
    assert only(pair.client_events, Closed).error == Error(
        "amqp:connection:forced", "the server stops"
    )
    assert pair.server.closed


def test_the_server_waits_for_the_answer_to_its_close() -> None:
    pair = Pair()
    pair.open()
    pair.server.close("amqp:connection:forced")
    assert not pair.server.closed
    pair.settle_wire()
    assert pair.server.closed


def test_after_our_close_all_but_the_peers_close_is_discarded() -> None:
    raw = RawClient()
    raw.server.close("amqp:connection:forced")
    raw.answers()
    raw.send(BEGIN)
    raw.send(Close())
    assert [type(event) for event in raw.events] == [Closed]
    assert raw.answers() == []


def test_two_closes_that_cross_are_both_content() -> None:
    pair = Pair()
    pair.open()
    pair.client.close()
    pair.server.close()
    pair.settle_wire()
    only(pair.client_events, Closed)
    only(pair.server_events, Closed)


def test_links_and_sessions_are_gone_before_the_connection() -> None:
    pair = Pair()
    _, link = pair.link(LinkRole.SENDER)
    pair.client.close()
    pair.settle_wire()
    assert [type(event) for event in pair.server_events] == [Detached, Ended, Closed]
    assert only(pair.server_events, Detached).link is link


def test_a_transport_that_is_gone_ends_everything_once() -> None:
    pair = Pair()
    pair.link(LinkRole.SENDER)
    assert [type(event) for event in pair.server.eof()] == [Detached, Ended, Closed]
    assert pair.server.eof() == []
    assert pair.server.closed


def test_a_connection_closed_before_its_headers_says_so_at_the_end() -> None:
    server = Connection(settings(), role=Role.SERVER)
    server.close("amqp:connection:forced")
    assert server.closed
    assert [type(event) for event in server.eof()] == [Closed]


def test_input_after_the_end_is_ignored() -> None:
    raw = RawClient()
    raw.send(Close())
    raw.events.clear()
    raw.send(Open("again"))
    raw.send_bytes(b"garbage, which nobody reads")
    assert raw.events == []


@pytest.mark.parametrize(
    ("performative", "expected"),
    [
        pytest.param(Open("again"), "amqp:illegal-state", id="open twice"),
        pytest.param(End(), "amqp:connection:framing-error", id="end without begin"),
        pytest.param(Transfer(0, 0, b"t"), "amqp:connection:framing-error", id="no session"),
        pytest.param(Begin(7, 0, 1, 1), "amqp:invalid-field", id="answer to no question"),
    ],
)
def test_a_frame_out_of_order_closes_the_connection(performative: Composite, expected: str) -> None:
    raw = RawClient()
    raw.send(performative)
    assert condition(raw) == expected
    [(_, close, _)] = raw.answers()
    assert isinstance(close, Close)
    assert close.error is not None
    assert close.error.condition == expected
    assert raw.server.closed


@pytest.mark.parametrize("performative", [BEGIN, Close()], ids=["begin", "close"])
def test_what_comes_before_open_is_refused_with_open_and_close(performative: Composite) -> None:
    raw = RawClient(is_open=False)
    raw.send_bytes(AMQP_HEADER)
    raw.send(performative)
    assert condition(raw) == "amqp:illegal-state"
    assert [type(frame) for _, frame, _ in raw.answers()] == [Open, Close]


def test_a_channel_above_the_maximum_is_a_framing_error() -> None:
    raw = RawClient(settings(channel_max=9))
    raw.send(BEGIN, channel=9)
    assert not raw.server.closed
    raw.send(BEGIN, channel=10)
    assert condition(raw) == "amqp:connection:framing-error"


def test_a_channel_in_use_cannot_begin_again() -> None:
    raw = RawClient()
    raw.send(BEGIN, channel=3)
    raw.send(BEGIN, channel=3)
    assert condition(raw) == "amqp:illegal-state"


def test_a_frame_above_our_maximum_is_a_framing_error() -> None:
    raw = RawClient(settings(max_frame_size=512))
    raw.send_bytes((513).to_bytes(4, "big"))
    assert condition(raw) == "amqp:connection:framing-error"


def test_garbage_after_a_good_frame_does_not_undo_the_frame() -> None:
    raw = RawClient()
    raw.send_bytes(codec.encode_frame(0, BEGIN) + b"\x00\x00\x00\x00garbage")
    only(raw.events, Begun)
    only(raw.events, Closed)


def test_a_peer_cannot_ask_for_frames_below_512_bytes() -> None:
    raw = RawClient(is_open=False)
    raw.send_bytes(AMQP_HEADER)
    raw.send(Open("raw", max_frame_size=511))
    assert condition(raw) == "amqp:invalid-field"


def test_an_empty_frame_means_nothing() -> None:
    raw = RawClient()
    raw.send(None)
    assert raw.events == []
    assert raw.answers() == []


def test_output_calls_once_until_it_is_taken() -> None:
    calls = []
    client = Connection(settings(), role=Role.CLIENT)
    client.on_output = lambda: calls.append(client.output_size)
    client.open()
    client.begin()
    assert calls == [8]
    assert client.take_output() == SASL_HEADER
    assert client.output_size == 0
    assert client.take_output() == b""
    pair = Pair()
    pair.open()
    pair.server.on_output = lambda: calls.append(0)
    pair.server.close()
    assert calls == [8, 0]


def test_a_client_holds_its_frames_until_sasl_is_done() -> None:
    client = Connection(settings(), role=Role.CLIENT)
    client.open()
    client.begin()
    assert client.take_output() == SASL_HEADER


def test_a_session_cannot_begin_on_a_closed_connection() -> None:
    pair = Pair()
    pair.open()
    pair.client.close()
    with pytest.raises(LocalError):
        pair.client.begin()


def test_many_sessions_live_side_by_side() -> None:
    pair = Pair()
    pair.open()
    sessions = [pair.client.begin() for _ in range(20)]
    pair.settle_wire()
    assert len(every(pair.server_events, Begun)) == 21
    assert len({session.channel for session in sessions}) == 20
    assert len(pair.server.sessions) == 21
