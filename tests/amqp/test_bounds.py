"""What a peer can make an engine do, say or keep has a bound (the budgets of connections)."""

from __future__ import annotations

import pytest

from busway.amqp import codec
from busway.amqp.errors import RESOURCE_LIMIT_EXCEEDED
from busway.amqp.events import Closed, Disposed, Ended, UnknownDisposed
from busway.amqp.link import LinkRole
from busway.amqp.performatives import (
    Accepted,
    Attach,
    Begin,
    Detach,
    Disposition,
    Flow,
    Source,
    Target,
)
from busway.amqp.settings import StrangerLimits
from tests.amqp.pair import Pair, RawClient, every, only, settings

BEGIN = Begin(None, 0, 100, 100)
WINDOW_SHUT = {
    "next_incoming_id": 0,
    "incoming_window": 0,
    "next_outgoing_id": 0,
    "outgoing_window": 100,
}


def delivered(count: int) -> tuple[Pair, object]:
    """So many deliveries, unsettled on both sides."""
    pair = Pair()
    link, server_link = pair.link(LinkRole.RECEIVER)
    link.set_credit(count)
    pair.settle_wire()
    for _ in range(count):
        server_link.send(b"m", b"tag")
    pair.settle_wire()
    return pair, server_link


def test_a_range_with_many_gaps_is_answered_once() -> None:
    pair, server_link = delivered(1_000)
    server_link.forget(range(0, 1_000, 2))  # type: ignore[attr-defined]
    data = codec.encode_frame(0, Disposition(True, 0, 999, False, Accepted()))
    events = pair.server.receive(data)
    assert len(every(events, UnknownDisposed)) == 1
    assert len(only(events, Disposed).delivery_ids) == 500


def test_a_disposition_counts_by_the_deliveries_that_it_decides_about() -> None:
    pair, _ = delivered(1_000)
    data = codec.encode_frame(0, Disposition(True, 0, 999, False, Accepted()))
    pair.server.feed(data * 10)
    assert len(every(pair.server.advance(16), Disposed)) == 1
    assert pair.server.has_input


def test_a_step_handles_so_many_frames_and_no_more() -> None:
    raw = RawClient()
    raw.send(BEGIN, channel=1)
    raw.answers()
    echo = codec.encode_frame(1, Flow(0, 100, 0, 100, echo=True))
    raw.server.feed(echo * 1_000)
    raw.server.advance(16)
    assert len(raw.answers()) == 16


def test_one_flow_waits_behind_a_shut_window_however_often_it_is_asked_for() -> None:
    pair = Pair()
    link, server_link = pair.link(LinkRole.RECEIVER)
    link.set_credit(5)
    pair.settle_wire()
    handle = link.handle
    pair.server.receive(codec.encode_frame(0, Flow(**WINDOW_SHUT)))  # type: ignore[arg-type]
    server_link.send(b"m", b"tag")
    asked = Flow(**WINDOW_SHUT, handle=handle, delivery_count=0, link_credit=7, echo=True)  # type: ignore[arg-type]
    pair.server.receive(codec.encode_frame(0, asked) * 1_000)
    assert pair.server.output_size == 0
    window_open = Flow(0, 100, 0, 100)
    pair.server.receive(codec.encode_frame(0, window_open))
    frames, _ = codec.decode_frames(pair.server.take_output(), 0, 65_536)
    kinds = [type(frame[2]).__name__ for frame in frames]
    assert kinds == ["Transfer", "Flow"]
    answer = frames[1][2]
    assert isinstance(answer, Flow)
    assert (answer.delivery_count, answer.link_credit) == (1, 6)


def test_a_drain_that_waits_behind_a_shut_window_stays_answered() -> None:
    pair = Pair()
    link, server_link = pair.link(LinkRole.RECEIVER)
    link.set_credit(5)
    pair.settle_wire()
    pair.server.receive(codec.encode_frame(0, Flow(**WINDOW_SHUT)))  # type: ignore[arg-type]
    server_link.send(b"m", b"tag")
    server_link.drained()
    asked = Flow(**WINDOW_SHUT, handle=link.handle, delivery_count=5, link_credit=0, echo=True)  # type: ignore[arg-type]
    pair.server.receive(codec.encode_frame(0, asked))
    pair.server.receive(codec.encode_frame(0, Flow(0, 100, 0, 100)))
    frames, _ = codec.decode_frames(pair.server.take_output(), 0, 65_536)
    answer = frames[-1][2]
    assert isinstance(answer, Flow)
    assert (answer.drain, answer.delivery_count, answer.link_credit) == (True, 5, 0)


def test_what_waits_for_windows_is_known_for_the_whole_connection() -> None:
    pair = Pair()
    link, server_link = pair.link(LinkRole.RECEIVER)
    link.set_credit(5)
    pair.settle_wire()
    pair.server.receive(codec.encode_frame(0, Flow(**WINDOW_SHUT)))  # type: ignore[arg-type]
    server_link.send(b"x" * 10, b"tag")
    server_link.send(b"x" * 20, b"tag")
    assert pair.server.pending_bytes == 30
    pair.server.receive(codec.encode_frame(0, Flow(0, 1, 0, 100)))
    assert pair.server.pending_bytes == 20
    pair.server.receive(codec.encode_frame(0, Detach(link.handle, closed=True)))
    assert pair.server.pending_bytes == 0


# --- Strangers -----------------------------------------------------------------------------------

LIMITS = StrangerLimits(bytes_max=20_000, frames_max=50, links_max=4)


def stranger() -> RawClient:
    raw = RawClient(settings("server", stranger=LIMITS))
    raw.send(BEGIN, channel=1)
    raw.answers()
    return raw


def attach(handle: int) -> Attach:
    return Attach(f"l{handle}", handle, False, source=Source("s"), target=Target("$cbs"))


def test_a_stranger_may_send_so_many_frames() -> None:
    raw = stranger()
    echo = codec.encode_frame(1, Flow(0, 100, 0, 100, echo=True))
    events = raw.server.receive(echo * 1_000)
    error = only(events, Closed).error
    assert error is not None
    assert error.condition == RESOURCE_LIMIT_EXCEEDED
    assert "put a token on $cbs" in (error.description or "")
    assert len(raw.answers()) <= LIMITS.frames_max


def test_a_stranger_may_send_so_many_bytes() -> None:
    raw = stranger()
    large = Attach("l", 0, False, source=Source("s" * 15_000), target=Target("$cbs"))
    assert not every(raw.server.receive(codec.encode_frame(1, large)), Closed)
    events = raw.server.receive(codec.encode_frame(1, Flow(0, 1, 0, 1)) * 200)
    assert only(events, Closed).error is not None


def test_a_stranger_has_few_links_at_a_time() -> None:
    raw = stranger()
    for handle in range(LIMITS.links_max):
        raw.send(attach(handle), channel=1)
    assert not every(raw.events, Ended)
    raw.send(attach(9), channel=1)
    error = only(raw.events, Ended).error
    assert error is not None
    assert "without a valid token" in (error.description or "")


@pytest.mark.parametrize("frames", [1_000])
def test_who_is_trusted_has_none_of_these_limits(frames: int) -> None:
    raw = stranger()
    raw.server.trust()
    echo = codec.encode_frame(1, Flow(0, 100, 0, 100, echo=True))
    assert not every(raw.server.receive(echo * frames), Closed)
    for handle in range(20):
        raw.send(attach(handle), channel=1)
    assert not every(raw.events, Ended)
