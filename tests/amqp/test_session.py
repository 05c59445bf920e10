"""Sessions: channels, windows, handles, dispositions (AMQP 2.5)."""

from __future__ import annotations

import pytest

from busway.amqp.events import (
    AttachRequested,
    Begun,
    Closed,
    Detached,
    Disposed,
    Ended,
    Settled,
    TransferReceived,
    UnknownDisposed,
)
from busway.amqp.link import LinkRole
from busway.amqp.performatives import (
    Accepted,
    Attach,
    Begin,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    Rejected,
    Source,
    Target,
    Transfer,
)
from busway.amqp.states import SessionState
from tests.amqp.pair import Pair, RawClient, every, frames, only, settings

BEGIN = Begin(None, 0, 5000, 5000)
ATTACH_SENDER = Attach("out", 0, False, target=Target("queue"))


def raw_session(channel: int = 1, **changes: int) -> RawClient:
    raw = RawClient(settings("server", **changes))
    raw.send(BEGIN, channel=channel)
    raw.answers()
    return raw


def test_begin_is_answered_with_the_peers_channel_and_our_windows() -> None:
    raw = RawClient()
    raw.send(BEGIN, channel=7)
    [(_, answer, _)] = raw.answers()
    assert answer == Begin(7, 0, 5_000, 5_000, 255)
    assert only(raw.events, Begun).session.remote_channel == 7


def test_the_client_learns_that_its_session_has_begun() -> None:
    pair = Pair()
    session = pair.open()
    assert only(pair.client_events, Begun).session is session
    assert session.state is SessionState.MAPPED


def test_a_clients_end_is_answered() -> None:
    raw = raw_session()
    raw.send(End(), channel=1)
    assert [(channel, frame) for channel, frame, _ in raw.answers()] == [(1, End())]
    only(raw.events, Ended)


def test_end_closes_the_links_of_the_session_without_detach_frames() -> None:
    raw = raw_session()
    raw.send(ATTACH_SENDER, channel=1)
    only(raw.events, AttachRequested).link.accept()
    raw.answers()
    raw.events.clear()
    raw.send(End(Error("amqp:internal-error")), channel=1)
    assert [type(event) for event in raw.events] == [Detached, Ended]
    assert [type(frame) for _, frame, _ in raw.answers()] == [End]


def test_a_channel_can_be_used_again_after_its_end() -> None:
    raw = raw_session()
    raw.send(End(), channel=1)
    raw.send(BEGIN, channel=1)
    assert len(every(raw.events, Begun)) == 2


def test_ending_a_session_leaves_the_others_alone() -> None:
    pair = Pair()
    pair.open()
    other = pair.client.begin()
    pair.settle_wire()
    link, server_link = pair.link(LinkRole.RECEIVER, session=other)
    pair.client.sessions[0].end()
    pair.settle_wire()
    link.set_credit(1)
    pair.settle_wire()
    server_link.send(b"still here", b"tag")
    pair.settle_wire()
    only(pair.client_events, TransferReceived)


def test_a_session_that_we_end_is_gone_when_the_peer_has_answered() -> None:
    pair = Pair()
    pair.open()
    session = only(pair.server_events, Begun).session
    session.end("amqp:internal-error", "why")
    assert not every(pair.server_events, Ended)
    pair.settle_wire()
    assert only(pair.client_events, Ended).error == Error("amqp:internal-error", "why")
    assert only(pair.server_events, Ended).session is session


def test_after_our_end_the_peers_frames_are_discarded() -> None:
    raw = raw_session()
    only(raw.events, Begun).session.end("amqp:internal-error")
    raw.answers()
    raw.events.clear()
    raw.send(ATTACH_SENDER, channel=1)
    raw.send(Transfer(9, 0, b"t"), b"x", channel=1)
    raw.send(End(), channel=1)
    assert [type(event) for event in raw.events] == [Ended]
    assert raw.answers() == []


def test_a_client_may_end_a_session_before_it_was_answered() -> None:
    pair = Pair()
    pair.open()
    session = pair.client.begin()
    session.end()
    pair.settle_wire()
    assert session not in pair.client.sessions
    assert len(pair.server.sessions) == 1


@pytest.mark.parametrize(
    ("frame", "condition"),
    [
        pytest.param(Transfer(5, 0, b"t"), "amqp:session:unattached-handle", id="transfer"),
        pytest.param(Detach(5, True), "amqp:session:unattached-handle", id="detach"),
        pytest.param(Flow(0, 1, 0, 1, handle=5), "amqp:session:unattached-handle", id="flow"),
        pytest.param(ATTACH_SENDER, "amqp:session:handle-in-use", id="attach"),
    ],
)
def test_a_handle_used_wrongly_ends_the_session_only(frame: Transfer, condition: str) -> None:
    raw = raw_session()
    raw.send(ATTACH_SENDER, channel=1)
    raw.send(frame, channel=1)
    error = only(raw.events, Ended).error
    assert error is not None
    assert error.condition == condition
    assert only(raw.events, Detached).error == error
    [(channel, end, _)] = raw.answers()
    assert (channel, end) == (1, End(error))
    raw.send(End(), channel=1)
    raw.send(BEGIN, channel=1)
    assert not raw.server.closed
    assert len(every(raw.events, Begun)) == 2


def test_a_transfer_to_a_link_on_which_we_send_ends_the_session() -> None:
    raw = raw_session()
    raw.send(Attach("in", 0, True, source=Source("queue")), channel=1)
    raw.send(Transfer(0, 0, b"t"), channel=1)
    error = only(raw.events, Ended).error
    assert error is not None
    assert error.condition == "amqp:illegal-state"


def test_a_handle_above_the_maximum_closes_the_connection() -> None:
    raw = raw_session(handle_max=255)
    raw.send(Attach("a", 255, False, target=Target("q")), channel=1)
    assert not raw.server.closed
    raw.send(Attach("b", 256, False, target=Target("q")), channel=1)
    error = only(raw.events, Closed).error
    assert error is not None
    assert error.condition == "amqp:connection:framing-error"


def test_the_number_of_links_of_a_connection_is_limited() -> None:
    raw = raw_session(max_links=2)
    for handle in range(3):
        raw.send(Attach(f"l{handle}", handle, False, target=Target("q")), channel=1)
    error = only(raw.events, Ended).error
    assert error is not None
    assert error.condition == "amqp:resource-limit-exceeded"
    assert raw.server.link_count == 0


def test_delivery_ids_are_contiguous_over_all_links_of_a_session() -> None:
    pair = Pair()
    one, server_one = pair.link(LinkRole.RECEIVER, "one")
    two, server_two = pair.link(LinkRole.RECEIVER, "two")
    one.set_credit(10)
    two.set_credit(10)
    pair.settle_wire()
    ids = [link.send(b"m", b"t") for link in (server_one, server_two, server_two, server_one)]
    assert ids == [0, 1, 2, 3]
    pair.settle_wire()
    assert [e.delivery_id for e in every(pair.client_events, TransferReceived)] == ids


def test_every_flow_carries_all_session_fields() -> None:
    pair = Pair()
    _, server_link = pair.link(LinkRole.SENDER)
    server_link.set_credit(1000)
    [(_, flow, _)] = frames(pair.server.take_output())
    assert flow == Flow(0, 5_000, 0, 5_000, server_link.handle, 0, 1_000)


def test_a_flow_that_asks_for_an_echo_is_answered() -> None:
    raw = raw_session()
    raw.send(Flow(0, 10, 0, 10, echo=True), channel=1)
    [(_, flow, _)] = raw.answers()
    assert flow == Flow(0, 5_000, 0, 5_000)


def test_an_echo_for_a_link_tells_about_the_link() -> None:
    raw = raw_session()
    raw.send(Attach("in", 4, True, source=Source("queue")), channel=1)
    only(raw.events, AttachRequested).link.accept()
    raw.answers()
    raw.send(Flow(0, 10, 0, 10, 4, 0, 7, echo=True), channel=1)
    [(_, flow, _)] = raw.answers()
    assert isinstance(flow, Flow)
    assert (flow.handle, flow.delivery_count, flow.link_credit) == (4, 0, 7)


def test_an_echo_for_a_link_that_is_not_answered_yet_tells_about_the_session() -> None:
    raw = raw_session()
    raw.send(Attach("in", 4, True, source=Source("queue")), channel=1)
    raw.send(Flow(0, 10, 0, 10, 4, 0, 7, echo=True), channel=1)
    [(_, flow, _)] = raw.answers()
    assert isinstance(flow, Flow)
    assert flow.handle is None


def test_transfers_wait_for_the_peers_window_and_keep_their_order() -> None:
    pair = Pair(client=settings("client", incoming_window=4))
    link, server_link = pair.link(LinkRole.RECEIVER)
    link.set_credit(100)
    pair.settle_wire()
    for number in range(20):
        server_link.send(b"%d" % number, b"t")
    pair.to_client()
    assert len(every(pair.client_events, TransferReceived)) == 4
    assert server_link.pending_bytes > 0
    pair.settle_wire()
    received = [e.payload for e in every(pair.client_events, TransferReceived)]
    assert received == [b"%d" % number for number in range(20)]
    assert server_link.pending_bytes == 0


def test_a_drained_flow_does_not_overtake_waiting_transfers() -> None:
    pair = Pair(client=settings("client", incoming_window=1))
    link, server_link = pair.link(LinkRole.RECEIVER)
    link.set_credit(10)
    pair.settle_wire()
    for _ in range(3):
        server_link.send(b"m", b"t")
    server_link.drained()
    pair.settle_wire()
    assert len(every(pair.client_events, TransferReceived)) == 3
    assert (link.credit, link.delivery_count) == (0, 10)


def test_our_detach_does_not_overtake_waiting_transfers() -> None:
    pair = Pair(client=settings("client", incoming_window=1))
    link, server_link = pair.link(LinkRole.RECEIVER)
    link.set_credit(10)
    pair.settle_wire()
    for _ in range(3):
        server_link.send(b"m", b"t")
    server_link.detach("amqp:link:detach-forced")
    pair.settle_wire()
    kinds = [type(event) for event in pair.client_events]
    assert kinds == [TransferReceived] * 3 + [Detached]


def test_a_detach_that_waits_is_sent_at_once_when_the_peer_detaches() -> None:
    raw = RawClient()
    raw.send(Begin(None, 0, 0, 5000), channel=1)
    raw.send(Attach("in", 0, True, source=Source("queue")), channel=1)
    link = only(raw.events, AttachRequested).link
    link.accept()
    raw.send(Flow(0, 0, 0, 10, 0, 0, 5), channel=1)
    link.send(b"stuck", b"t")
    link.detach("amqp:link:detach-forced")
    assert [type(frame) for _, frame, _ in raw.answers()] == [Begin, Attach]
    raw.send(Detach(0, True), channel=1)
    [(_, detach, _)] = raw.answers()
    assert detach == Detach(0, True, Error("amqp:link:detach-forced"))
    only(raw.events, Detached)
    assert link.pending_bytes == 0


def test_the_window_is_opened_again_before_the_peer_has_used_it_up() -> None:
    pair = Pair(server=settings("server", incoming_window=10, max_message_size=1 << 20))
    link, server_link = pair.link(LinkRole.SENDER)
    server_link.set_credit(1000)
    pair.settle_wire()
    for _ in range(100):
        link.send(b"m", b"t")
    pair.settle_wire()
    assert len(every(pair.server_events, TransferReceived)) == 100


def test_a_peer_that_ignores_the_window_is_tolerated() -> None:
    raw = raw_session(incoming_window=2)
    raw.send(ATTACH_SENDER, channel=1)
    only(raw.events, AttachRequested).link.accept()
    for number in range(10):
        raw.send(Transfer(0, number, b"t"), b"m", channel=1)
    assert len(every(raw.events, TransferReceived)) == 10


def test_a_disposition_without_last_is_about_one_delivery() -> None:
    raw = raw_session()
    raw.send(Attach("in", 0, True, source=Source("queue")), channel=1)
    link = only(raw.events, AttachRequested).link
    link.accept()
    raw.send(Flow(0, 100, 0, 10, 0, 0, 5), channel=1)
    link.send(b"m", b"tag")
    raw.send(Disposition(True, 0, None, False, Accepted()), channel=1)
    assert only(raw.events, Disposed) == Disposed(link, [0], [b"tag"], Accepted(), False)
    assert link.unsettled == 1


def test_a_disposition_of_a_range_is_grouped_by_link() -> None:
    pair = Pair()
    one, server_one = pair.link(LinkRole.RECEIVER, "one")
    two, server_two = pair.link(LinkRole.RECEIVER, "two")
    for link in (one, two):
        link.set_credit(10)
    pair.settle_wire()
    for link in (server_one, server_two, server_one):
        link.send(b"m", b"tag")
    pair.settle_wire()
    one.settle([0, 1, 2], Accepted())
    pair.settle_wire()
    assert every(pair.server_events, Disposed) == [
        Disposed(server_one, [0, 2], [b"tag", b"tag"], Accepted(), True),
        Disposed(server_two, [1], [b"tag"], Accepted(), True),
    ]
    assert server_one.unsettled == server_two.unsettled == 0


def test_unknown_delivery_ids_are_reported_and_can_be_answered() -> None:
    pair = Pair()
    link, server_link = pair.link(LinkRole.RECEIVER)
    link.set_credit(5)
    pair.settle_wire()
    for _ in range(3):
        server_link.send(b"m", b"tag")
    server_link.forget([1])
    assert server_link.unsettled == 2
    pair.settle_wire()
    link.settle([0, 1, 2, 3], Modified(True), settled=False)
    pair.settle_wire()
    assert only(pair.server_events, Disposed).delivery_ids == [0, 2]
    # One frame is answered by one: the second gap of the range is not told of.
    unknown = only(pair.server_events, UnknownDisposed)
    assert (unknown.first, unknown.last, unknown.settled) == (1, 1, False)
    refusal = Rejected(Error("com.microsoft:message-lock-lost", "gone"))
    unknown.session.settle_unknown(unknown.first, unknown.last, refusal)
    pair.settle_wire()
    assert every(pair.client_events, Settled) == [Settled(link, [1], refusal)]


def test_a_single_unknown_delivery_id_is_reported() -> None:
    raw = raw_session()
    raw.send(Disposition(True, 9, None, False, Accepted()), channel=1)
    event = only(raw.events, UnknownDisposed)
    assert (event.first, event.last, event.state) == (9, 9, Accepted())


def test_deliveries_of_a_detached_link_are_unknown() -> None:
    pair = Pair()
    link, server_link = pair.link(LinkRole.RECEIVER)
    link.set_credit(2)
    pair.settle_wire()
    for _ in range(2):
        server_link.send(b"m", b"t")
    link.detach()
    pair.settle_wire()
    link.session.write(Disposition(True, 0, 1, True, Accepted()))
    pair.settle_wire()
    unknown = only(pair.server_events, UnknownDisposed)
    assert (unknown.first, unknown.last) == (0, 1)


def test_a_disposition_as_wide_as_the_numbers_allow_is_harmless() -> None:
    raw = raw_session()
    raw.send(Disposition(True, 0, (1 << 31) - 1, True, Accepted()), channel=1)
    only(raw.events, UnknownDisposed)
    assert not raw.server.closed


def test_a_senders_disposition_about_nothing_proposed_is_ignored() -> None:
    raw = raw_session()
    raw.events.clear()
    raw.send(Disposition(False, 0, 1 << 30, True, Accepted()), channel=1)
    assert raw.events == []


@pytest.mark.parametrize(
    "late",
    [
        Detach(0, closed=True),
        Flow(0, 5_000, 0, 5_000, handle=0, delivery_count=0, link_credit=1),
        Disposition(True, 0, 0, settled=True, state=Accepted()),
        Transfer(0, 0, b"0", 0, settled=True),
        End(),
    ],
    ids=lambda late: type(late).__name__,
)
def test_what_comes_late_on_a_channel_that_was_ended_is_passed_over(late: object) -> None:
    """The Python SDK ends its session, then detaches the links that are left in it."""
    raw = raw_session()
    raw.send(ATTACH_SENDER, channel=1)
    raw.send(End(), channel=1)
    raw.answers()
    raw.events.clear()
    raw.send(late, channel=1)  # type: ignore[arg-type]
    assert (raw.answers(), raw.events) == ([], [])
    raw.send(BEGIN, channel=1)
    raw.send(ATTACH_SENDER, channel=1)
    assert only(raw.events, AttachRequested).link.name == "out", "and the channel is of use again"


def test_what_comes_late_on_a_channel_that_we_ended_is_passed_over_too() -> None:
    """AMQP 2.5.5: also when the peer has ended it as well."""
    raw = raw_session()
    only(raw.events, Begun).session.end("amqp:internal-error")
    raw.send(Detach(0, closed=True), channel=1)
    raw.send(End(), channel=1)
    raw.send(Detach(1, closed=True), channel=1)
    assert not every(raw.events, Closed)


@pytest.mark.parametrize("begun", [False, True])
def test_an_attach_without_a_session_ends_the_connection(begun: bool) -> None:
    """It wants an answer, and there is no session to give it in."""
    raw = RawClient()
    if begun:
        raw.send(BEGIN, channel=1)
        raw.send(End(), channel=1)
    raw.send(ATTACH_SENDER, channel=1)
    assert only(raw.events, Closed).error == Error(
        "amqp:connection:framing-error", "Attach on channel 1 before begin"
    )


def test_a_detach_on_a_channel_that_never_was_ends_the_connection() -> None:
    raw = raw_session(channel=1)
    raw.send(Detach(0, closed=True), channel=2)
    assert only(raw.events, Closed).error is not None
