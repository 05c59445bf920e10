"""Idle time-outs (AMQP 2.4.5): empty frames from us, patience with the peer."""

from __future__ import annotations

from busway.amqp import codec
from busway.amqp.connection import AMQP_HEADER, Connection, Role
from busway.amqp.events import Closed
from busway.amqp.performatives import Close, Open
from tests.amqp.pair import RawClient, frames, only, settings

EMPTY = bytes.fromhex("0000000802000000")


def opened(peer_timeout_ms: int | None, own_timeout_ms: int = 0) -> Connection:
    server = Connection(settings(idle_timeout_ms=own_timeout_ms), role=Role.SERVER)
    server.receive(AMQP_HEADER + codec.encode_frame(0, Open("c", idle_time_out=peer_timeout_ms)))
    server.take_output()
    return server


def run(server: Connection, until_ms: int) -> list[int]:
    """Tick whenever it is due; returns when empty frames went out."""
    sent = []
    now = 0
    while (due := server.next_tick_ms(now)) is not None and due <= until_ms:
        now = due
        server.tick(now)
        if server.take_output() == EMPTY:
            sent.append(now)
    return sent


def test_without_time_outs_there_are_no_ticks() -> None:
    assert opened(None).next_tick_ms(0) is None


def test_a_zero_time_out_means_none() -> None:
    assert opened(0).next_tick_ms(0) is None


def test_empty_frames_go_out_at_least_every_half_of_the_peers_time_out() -> None:
    sent = run(opened(30_000), 120_000)
    gaps = [after - before for before, after in zip([0, *sent], sent, strict=False)]
    assert gaps
    assert max(gaps) <= 15_000


def test_the_gap_after_a_frame_is_no_longer_than_half() -> None:
    server = opened(30_000)
    server.next_tick_ms(0)
    server.tick(7_500)
    server.take_output()
    server._write(b"frame")  # Right after a check: the worst case.
    server.take_output()
    assert run(server, 60_000)[0] <= 7_500 + 15_000


def test_a_connection_that_talks_sends_no_empty_frames() -> None:
    server = opened(30_000)
    now = 0
    for _ in range(20):
        due = server.next_tick_ms(now)
        assert due is not None
        now = due
        server._write(b"frame")
        server.take_output()
        server.tick(now)
        assert server.take_output() == b""


def test_a_silent_peer_is_closed_after_the_time_out_and_not_before() -> None:
    server = opened(None, own_timeout_ms=120_000)
    now = 0
    events = []
    while not server.closed:
        due = server.next_tick_ms(now)
        assert due is not None
        now = due
        events += server.tick(now)
    assert 120_000 < now <= 180_000
    error = only(events, Closed).error
    assert error is not None
    assert error.condition == "amqp:resource-limit-exceeded"
    [(_, close, _)] = frames(server.take_output())
    assert isinstance(close, Close)
    assert close.error == error


def test_an_empty_frame_from_the_peer_keeps_it_alive() -> None:
    server = opened(None, own_timeout_ms=120_000)
    now = 0
    for _ in range(50):
        due = server.next_tick_ms(now)
        assert due is not None
        now = due
        assert server.receive(EMPTY) == []
        server.tick(now)
    assert not server.closed


def test_a_process_that_stood_still_does_not_blame_its_peer() -> None:
    server = opened(None, own_timeout_ms=120_000)
    server.next_tick_ms(0)
    server.tick(3_600_000)
    assert not server.closed


def test_a_peer_that_never_opens_is_dropped_too() -> None:
    server = Connection(settings(idle_timeout_ms=1_000), role=Role.SERVER)
    run(server, 10_000)
    assert server.closed


def test_a_time_out_that_nobody_can_keep_is_refused() -> None:
    raw = RawClient(is_open=False)
    raw.send_bytes(AMQP_HEADER)
    raw.send(Open("raw", idle_time_out=1))
    error = only(raw.events, Closed).error
    assert error is not None
    assert error.condition == "amqp:not-allowed"
