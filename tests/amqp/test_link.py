"""Links: attach, credit, transfers, settlement, detach (AMQP 2.6)."""

from __future__ import annotations

import pytest

from busway.amqp import codec
from busway.amqp.events import (
    Attached,
    AttachRequested,
    Closed,
    Detached,
    Disposed,
    Ended,
    FlowReceived,
    Settled,
    TransferReceived,
    TransferTooLarge,
)
from busway.amqp.link import Link, LinkRole
from busway.amqp.performatives import (
    Accepted,
    Attach,
    Begin,
    Coordinator,
    Detach,
    Disposition,
    Error,
    Flow,
    Rejected,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from busway.amqp.states import LinkState, LocalError
from busway.amqp.types import Symbol
from tests.amqp.pair import Pair, RawClient, every, frames, only, settings

REJECTED = Rejected(Error("amqp:not-allowed", "no"))


def raw_link(attach: Attach, **changes: int) -> tuple[RawClient, Link]:
    """A link that a raw client asked for and the server has accepted."""
    raw = RawClient(settings("server", **changes))
    raw.send(Begin(None, 0, 5000, 5000), channel=1)
    raw.send(attach, channel=1)
    link = only(raw.events, AttachRequested).link
    link.accept()
    raw.answers()
    raw.events.clear()
    return raw, link


def raw_sender(**changes: int) -> tuple[RawClient, Link]:
    return raw_link(Attach("out", 0, False, target=Target("queue")), **changes)


def raw_receiver(**changes: int) -> tuple[RawClient, Link]:
    return raw_link(Attach("in", 0, True, source=Source("queue")), **changes)


# Attach


def test_accept_echoes_what_the_client_asked_for() -> None:
    source = Source("amqps://ns:5673/queue", filter={Symbol("com.microsoft:session-filter"): "s"})
    raw = RawClient()
    raw.send(Begin(None, 0, 1, 1), channel=1)
    raw.send(Attach("name", 2, True, 0, 1, source, Target("me")), channel=1)
    event = only(raw.events, AttachRequested)
    event.link.accept(properties={Symbol("com.microsoft:locked-until-utc"): 1})
    answer = raw.answers()[-1][1]
    assert isinstance(answer, Attach)
    assert (answer.name, answer.role) == ("name", False)
    assert (answer.snd_settle_mode, answer.rcv_settle_mode) == (0, 1)
    assert codec.encode_value(answer.source) == codec.encode_value(source)
    assert answer.target == Target("me")
    assert answer.initial_delivery_count == 0
    assert answer.properties == {"com.microsoft:locked-until-utc": 1}


def test_accept_can_name_other_termini() -> None:
    pair = Pair()
    link, request = pair.ask_for_link(LinkRole.RECEIVER)
    request.accept(source=Source("queue", filter={Symbol("f"): "granted"}))
    pair.settle_wire()
    assert link.source == Source("queue", filter={Symbol("f"): "granted"})


def test_a_link_on_which_the_client_sends_has_a_size_limit() -> None:
    pair = Pair(server=settings("server", max_message_size=262_144))
    link, _ = pair.link(LinkRole.SENDER)
    assert link.remote_max_message_size == 262_144


def test_accept_can_name_the_size_limit() -> None:
    pair = Pair()
    link, request = pair.ask_for_link(LinkRole.SENDER)
    request.accept(max_message_size=(1 << 64) - 1)
    pair.settle_wire()
    assert link.remote_max_message_size == (1 << 64) - 1


def test_a_coordinator_is_echoed() -> None:
    pair = Pair()
    link, _ = pair.link(LinkRole.SENDER, target=Coordinator())
    assert link.target == Coordinator()


def test_the_clients_wishes_can_be_read_from_the_link() -> None:
    pair = Pair()
    session = pair.open()
    session.attach(
        "name",
        LinkRole.RECEIVER,
        source=Source("queue"),
        snd_settle_mode=1,
        properties={Symbol("com.microsoft:timeout"): 5},
    )
    pair.settle_wire()
    event = only(pair.server_events, AttachRequested)
    link = event.link
    assert (link.name, link.role, link.is_sender) == ("name", LinkRole.SENDER, True)
    assert (link.snd_settle_mode, link.rcv_settle_mode) == (1, 0)
    assert link.source == Source("queue")
    assert link.properties == {"com.microsoft:timeout": 5}
    assert event.attach.name == "name"
    assert link.session.links == [link]


def test_an_attach_may_be_answered_later() -> None:
    pair = Pair()
    link, request = pair.ask_for_link(LinkRole.RECEIVER)
    assert pair.client_events == []
    request.accept()
    pair.settle_wire()
    assert only(pair.client_events, Attached).link is link


def test_refuse_attaches_without_termini_then_detaches() -> None:
    raw = RawClient()
    raw.send(Begin(None, 0, 1, 1), channel=1)
    raw.send(Attach("name", 0, False, source=Source("me"), target=Target("queue")), channel=1)
    raw.answers()
    only(raw.events, AttachRequested).link.refuse("amqp:not-found", "no such queue")
    (_, attach, _), (_, detach, _) = raw.answers()
    assert isinstance(attach, Attach)
    assert (attach.role, attach.source, attach.target) == (True, None, None)
    assert detach == Detach(0, True, Error("amqp:not-found", "no such queue"))


def test_the_client_learns_why_it_was_refused() -> None:
    pair = Pair()
    link, request = pair.ask_for_link(LinkRole.SENDER)
    request.refuse("amqp:not-found", "no such queue")
    pair.settle_wire()
    assert pair.client_events == [Detached(link, Error("amqp:not-found", "no such queue"))]
    assert every(pair.server_events, Detached) == []
    assert pair.server.link_count == pair.client.link_count == 0


def test_a_handle_is_free_again_after_a_refusal() -> None:
    pair = Pair()
    for _ in range(3):
        _, request = pair.ask_for_link(LinkRole.SENDER)
        request.refuse("amqp:not-found")
        pair.settle_wire()
    pair.link(LinkRole.SENDER)


def test_a_client_may_give_up_before_its_attach_is_answered() -> None:
    pair = Pair()
    link, request = pair.ask_for_link(LinkRole.RECEIVER)
    link.detach()
    pair.settle_wire()
    assert only(pair.server_events, Detached).link is request
    assert pair.client_events == [Detached(link, None)]
    request.accept()
    request.refuse("amqp:not-found")
    assert pair.server.output_size == 0
    assert pair.server.link_count == pair.client.link_count == 0


def test_the_same_name_may_be_used_in_both_directions() -> None:
    pair = Pair()
    pair.link(LinkRole.SENDER, "both")
    pair.link(LinkRole.RECEIVER, "both")
    assert len(pair.server.sessions[0].links) == 2


@pytest.mark.parametrize("channel", [1, 2], ids=["same session", "other session"])
def test_a_name_attached_again_steals_the_link(channel: int) -> None:
    raw, old = raw_sender()
    raw.send(Begin(None, 0, 1, 1), channel=2)
    raw.answers()
    raw.events.clear()
    raw.send(Attach("out", 1, False, target=Target("queue")), channel=channel)
    detached, requested = raw.events
    assert isinstance(detached, Detached)
    assert detached.link is old
    assert detached.error is not None
    assert detached.error.condition == "amqp:link:stolen"
    assert isinstance(requested, AttachRequested)
    requested.link.accept()
    assert [type(frame) for _, frame, _ in raw.answers()] == [Detach, Attach]
    raw.send(Detach(0, True), channel=1)
    assert len(raw.events) == 2


def test_a_client_cannot_ask_for_the_same_link_twice() -> None:
    pair = Pair()
    link, _ = pair.link(LinkRole.SENDER, "once")
    with pytest.raises(LocalError):
        link.session.attach("once", LinkRole.SENDER)


def test_our_handles_stay_within_what_the_peer_allows() -> None:
    raw = RawClient()
    raw.send(Begin(None, 0, 1, 1, handle_max=1), channel=1)
    raw.send(Attach("a", 7, False, target=Target("q")), channel=1)
    raw.send(Attach("b", 8, False, target=Target("q")), channel=1)
    handles = [event.link.handle for event in every(raw.events, AttachRequested)]
    assert handles == [0, 1]
    raw.send(Attach("c", 9, False, target=Target("q")), channel=1)
    error = only(raw.events, Ended).error
    assert error is not None
    assert error.condition == "amqp:resource-limit-exceeded"


def test_a_client_that_has_no_handle_left_is_told_so() -> None:
    pair = Pair(server=settings("server", handle_max=0))
    link, _ = pair.link(LinkRole.SENDER, "first")
    with pytest.raises(LocalError, match="no handle is left"):
        link.session.attach("second", LinkRole.SENDER)


# Credit


def test_credit_is_absolute() -> None:
    pair = Pair()
    link, server_link = pair.link(LinkRole.RECEIVER)
    link.set_credit(5)
    pair.settle_wire()
    assert only(pair.server_events, FlowReceived).link is server_link
    server_link.send(b"m", b"t")
    server_link.send(b"m", b"t")
    assert server_link.credit == 3
    pair.settle_wire()
    assert link.credit == 3
    link.set_credit(5)
    pair.settle_wire()
    assert server_link.credit == 5


def test_credit_counts_from_what_the_receiver_has_seen() -> None:
    raw, link = raw_receiver()
    raw.send(Flow(0, 100, 0, 1, 0, 0, 5), channel=1)
    for _ in range(3):
        link.send(b"m", b"t")
    raw.send(Flow(1, 100, 0, 1, 0, 1, 5), channel=1)
    assert link.credit == 3


def test_credit_is_never_negative() -> None:
    raw, link = raw_receiver()
    raw.send(Flow(0, 100, 0, 1, 0, 0, 5), channel=1)
    for _ in range(3):
        link.send(b"m", b"t")
    raw.send(Flow(0, 100, 0, 1, 0, 0, 1), channel=1)
    assert link.credit == 0


def test_a_receiver_that_does_not_know_our_count_yet_counts_from_zero() -> None:
    raw, link = raw_receiver()
    raw.send(Flow(None, 100, 0, 1, 0, None, 5), channel=1)
    assert link.credit == 5


def test_credit_sent_along_with_the_attach_is_there_after_accept() -> None:
    raw = RawClient()
    raw.send(Begin(None, 0, 100, 1), channel=1)
    raw.send(Attach("in", 0, True, source=Source("queue")), channel=1)
    raw.send(Flow(None, 100, 0, 1, 0, None, 5, drain=True), channel=1)
    link = only(raw.events, AttachRequested).link
    with pytest.raises(LocalError):
        link.send(b"early", b"t")
    link.accept()
    assert (link.credit, link.drain) == (5, True)
    assert every(raw.events, FlowReceived) == []


def test_nothing_is_sent_without_credit() -> None:
    pair = Pair()
    _, server_link = pair.link(LinkRole.RECEIVER)
    with pytest.raises(LocalError, match="no credit"):
        server_link.send(b"m", b"t")


def test_a_drain_is_answered_with_the_credit_used_up() -> None:
    raw, link = raw_receiver()
    raw.send(Flow(0, 100, 0, 1, 0, 0, 5, drain=True), channel=1)
    assert link.drain
    link.send(b"m", b"t")
    link.drained()
    flow = raw.answers()[-1][1]
    assert isinstance(flow, Flow)
    assert (flow.delivery_count, flow.link_credit, flow.drain) == (5, 0, True)
    assert flow.next_outgoing_id == 1
    assert (link.credit, link.drain) == (0, False)


def test_a_drain_is_counted_although_its_credit_was_taken_back_meanwhile() -> None:
    """Else both ends would count deliveries differently, and later credit be worth less."""
    pair = Pair()
    receiver, sender = pair.link(LinkRole.RECEIVER)
    receiver.set_credit(5, drain=True)
    pair.to_server()
    sender.drained()
    receiver.set_credit(0)
    pair.settle_wire()
    receiver.set_credit(1)
    pair.settle_wire()
    assert (receiver.credit, sender.credit) == (1, 1)
    assert receiver.delivery_count == sender.delivery_count == 5


def test_a_drain_without_credit_is_answered_too() -> None:
    raw, link = raw_receiver()
    raw.send(Flow(0, 100, 0, 1, 0, 0, 0, drain=True), channel=1)
    link.drained()
    [(_, flow, _)] = raw.answers()
    assert isinstance(flow, Flow)
    assert (flow.delivery_count, flow.link_credit, flow.drain) == (0, 0, True)


def test_a_receiver_sees_its_credit_drained_and_can_give_more() -> None:
    pair = Pair()
    link, server_link = pair.link(LinkRole.RECEIVER)
    link.set_credit(10, drain=True)
    pair.settle_wire()
    server_link.send(b"m", b"t")
    server_link.drained()
    pair.settle_wire()
    assert link.credit == 0
    only(pair.client_events, FlowReceived)
    link.set_credit(2)
    pair.settle_wire()
    assert server_link.credit == 2


def test_a_flow_from_a_sending_client_changes_nothing() -> None:
    raw, link = raw_sender()
    link.set_credit(100)
    raw.send(Flow(0, 65_535, 0, 65_535, 0, 0, 10_000), channel=1)
    assert only(raw.events, FlowReceived).link is link
    assert link.credit == 100


def test_a_client_that_ignores_credit_is_tolerated() -> None:
    raw, link = raw_sender()
    for number in range(3):
        raw.send(Transfer(0, number, b"t"), b"m", channel=1)
    assert len(every(raw.events, TransferReceived)) == 3
    assert link.credit == 0


# Transfers


def test_a_delivery_arrives_as_it_was_sent() -> None:
    pair = Pair()
    link, server_link = pair.link(LinkRole.SENDER)
    server_link.set_credit(10)
    pair.settle_wire()
    delivery_id = link.send(b"payload", b"tag", settled=True, message_format=0x80013700)
    pair.settle_wire()
    assert only(pair.server_events, TransferReceived) == TransferReceived(
        server_link, delivery_id, b"tag", b"payload", 0x80013700, True, None
    )


def test_our_transfers_name_format_zero_and_are_batchable() -> None:
    raw, link = raw_receiver()
    raw.send(Flow(0, 100, 0, 1, 0, 0, 5), channel=1)
    link.send(b"m", b"0123456789abcdef")
    assert raw.answers() == [
        (1, Transfer(0, 0, b"0123456789abcdef", 0, False, batchable=True), b"m")
    ]


def test_a_transfer_can_carry_a_transaction() -> None:
    pair = Pair()
    link, server_link = pair.link(LinkRole.SENDER)
    server_link.set_credit(1)
    pair.settle_wire()
    link.send(b"m", b"t", state=TransactionalState(b"txn"))
    pair.settle_wire()
    assert only(pair.server_events, TransferReceived).state == TransactionalState(b"txn")


@pytest.mark.parametrize("role", list(LinkRole), ids=["to the server", "to the client"])
@pytest.mark.parametrize("size", [0, 1, 415, 416, 417, 500, 5_000, 100_000])
def test_a_delivery_of_any_size_is_split_and_joined(role: LinkRole, size: int) -> None:
    small = {"max_frame_size": 512}
    pair = Pair(client=settings("client", **small), server=settings("server", **small))
    link, server_link = pair.link(role)
    sender, receiver = (server_link, link) if role is LinkRole.RECEIVER else (link, server_link)
    receiver.set_credit(2)
    pair.settle_wire()
    payload = bytes(i % 251 for i in range(size))
    sender.send(payload, b"x" * 32)
    sender.send(b"next", b"t")
    for _, frame, piece in frames((pair.client if sender is link else pair.server).take_output()):
        receiver_events = pair.server_events if sender is link else pair.client_events
        connection = receiver.session.connection
        encoded = codec.encode_frame(sender.session.channel, frame, piece)
        assert len(encoded) <= 512
        receiver_events += connection.receive(encoded)
    received = every(pair.server_events + pair.client_events, TransferReceived)
    assert [event.payload for event in received] == [payload, b"next"]


def test_only_the_first_frame_says_which_delivery_it_is() -> None:
    raw, link = raw_receiver()
    raw.server.remote_max_frame_size = 512
    raw.send(Flow(0, 100, 0, 1, 0, 0, 5), channel=1)
    link.send(bytes(1_000), b"tag")
    transfers = [frame for _, frame, _ in raw.answers() if isinstance(frame, Transfer)]
    assert [t.delivery_id for t in transfers] == [0, None, None]
    assert [t.delivery_tag for t in transfers] == [b"tag", None, None]
    assert [t.more for t in transfers] == [True, True, False]


def test_continuations_may_repeat_the_delivery_id() -> None:
    raw, _ = raw_sender()
    raw.send(Transfer(0, 3, b"t", 0, False, more=True), b"one ", channel=1)
    raw.send(Transfer(0, 3, b"t", 0, False, more=True), b"two ", channel=1)
    raw.send(Transfer(0, 3, b"t", 0, True, state=TransactionalState(b"x")), b"three", channel=1)
    event = only(raw.events, TransferReceived)
    assert (event.payload, event.delivery_id, event.settled) == (b"one two three", 3, True)
    assert event.state == TransactionalState(b"x")


def test_an_aborted_delivery_is_forgotten() -> None:
    raw, _ = raw_sender()
    raw.send(Transfer(0, 0, b"t", more=True), b"half", channel=1)
    raw.send(Transfer(0, aborted=True), channel=1)
    raw.send(Transfer(0, 1, b"t"), b"whole", channel=1)
    assert only(raw.events, TransferReceived).payload == b"whole"
    assert raw.server._partial_bytes == 0


def test_a_delivery_aborted_at_once_is_forgotten() -> None:
    raw, _ = raw_sender()
    raw.send(Transfer(0, 0, b"t", aborted=True), b"x", channel=1)
    assert raw.events == []


@pytest.mark.parametrize("more", [False, True], ids=["one frame", "two frames"])
def test_a_delivery_that_is_too_large_is_drained_and_reported(more: bool) -> None:
    raw, link = raw_sender(max_message_size=100)
    raw.send(Transfer(0, 0, b"big", more=more), bytes(101), channel=1)
    if more:
        assert raw.events == []
        raw.send(Transfer(0), bytes(101), channel=1)
    assert raw.events == [TransferTooLarge(link, 0, b"big", False, None)]
    assert raw.server._partial_bytes == 0
    raw.send(Transfer(0, 1, b"t"), bytes(100), channel=1)
    assert len(only(raw.events, TransferReceived).payload) == 100
    link.settle([0], REJECTED)
    assert raw.answers()[-1][1] == Disposition(True, 0, 0, True, REJECTED)


def test_a_links_own_limit_counts_if_it_is_lower() -> None:
    pair = Pair(client=settings("client"), server=settings("server", max_message_size=100))
    link, request = pair.ask_for_link(LinkRole.SENDER)
    request.accept(max_message_size=10)
    request.set_credit(5)
    pair.settle_wire()
    link.send(bytes(11), b"t")
    link.send(bytes(10), b"t")
    pair.settle_wire()
    assert only(pair.server_events, TransferTooLarge).delivery_id == 0
    only(pair.server_events, TransferReceived)


def test_a_link_may_take_more_than_the_settings_allow_to_any() -> None:
    server = settings("server", max_message_size=100, max_partial_bytes=1_000)
    pair = Pair(client=settings("client", max_frame_size=512), server=server)
    link, request = pair.ask_for_link(LinkRole.SENDER)
    request.accept(max_message_size=5_000, receive_limit=5_000)
    request.set_credit(5)
    pair.settle_wire()
    link.send(bytes(5_000), b"t")
    link.send(bytes(5_001), b"t")
    pair.settle_wire()
    assert len(only(pair.server_events, TransferReceived).payload) == 5_000
    assert only(pair.server_events, TransferTooLarge).delivery_id == 1


def test_incomplete_deliveries_of_a_connection_are_limited() -> None:
    raw, _ = raw_sender(max_message_size=1 << 20, max_partial_bytes=10_000)
    for _ in range(100):
        raw.send(Transfer(0, 0, b"t", more=True), bytes(100), channel=1)
    error = only(raw.events, Closed).error
    assert error is not None
    assert error.condition == "amqp:resource-limit-exceeded"
    assert raw.server._partial_bytes == 0


def test_small_pieces_cost_more_than_their_bytes() -> None:
    raw, _ = raw_sender(max_partial_bytes=10_000)
    for _ in range(200):
        raw.send(Transfer(0, 0, b"t", more=True), b"x", channel=1)
    assert raw.server.closed


def test_empty_pieces_cost_nothing() -> None:
    raw, _ = raw_sender(max_partial_bytes=100)
    for _ in range(1000):
        raw.send(Transfer(0, 0, b"t", more=True), channel=1)
    raw.send(Transfer(0), b"x", channel=1)
    assert only(raw.events, TransferReceived).payload == b"x"


@pytest.mark.parametrize(
    "transfers",
    [
        pytest.param([Transfer(0)], id="no delivery-id"),
        pytest.param([Transfer(0, 0, b"t", more=True), Transfer(0, 1, b"t")], id="interleaved"),
    ],
)
def test_a_malformed_delivery_costs_the_link(transfers: list[Transfer]) -> None:
    raw, link = raw_sender()
    for transfer in transfers:
        raw.send(transfer, b"x", channel=1)
    detached = only(raw.events, Detached)
    assert detached.link is link
    assert detached.error is not None
    assert detached.error.condition == "amqp:invalid-field"
    [(_, frame, _)] = raw.answers()
    assert frame == Detach(0, True, detached.error)
    raw.send(Transfer(0, 2, b"t"), b"under way", channel=1)
    raw.send(Detach(0, True), channel=1)
    assert raw.events == [detached]
    assert raw.server.link_count == 0


def test_a_transfer_before_the_attach_is_answered_costs_the_link() -> None:
    raw = RawClient()
    raw.send(Begin(None, 0, 1, 1), channel=1)
    raw.send(Attach("out", 0, False, target=Target("queue")), channel=1)
    raw.send(Transfer(0, 0, b"t"), b"early", channel=1)
    detached = only(raw.events, Detached)
    assert detached.error is not None
    assert detached.error.condition == "amqp:link:transfer-limit-exceeded"
    assert [type(frame) for _, frame, _ in raw.answers()] == [Begin, Attach, Detach]


def test_a_tag_has_32_bytes_at_most() -> None:
    pair = Pair()
    link, server_link = pair.link(LinkRole.RECEIVER)
    link.set_credit(1)
    pair.settle_wire()
    with pytest.raises(LocalError, match="33 bytes"):
        server_link.send(b"m", b"x" * 33)


# Settlement


def test_settling_coalesces_consecutive_deliveries() -> None:
    raw, link = raw_sender()
    link.settle([5, 1, 2, 3, 7], Accepted())
    assert [frame for _, frame, _ in raw.answers()] == [
        Disposition(True, 1, 3, True, Accepted()),
        Disposition(True, 5, 5, True, Accepted()),
        Disposition(True, 7, 7, True, Accepted()),
    ]


def test_the_outcome_of_a_send_reaches_the_sender() -> None:
    pair = Pair()
    link, server_link = pair.link(LinkRole.SENDER)
    server_link.set_credit(2)
    pair.settle_wire()
    ids = [link.send(b"m", b"a"), link.send(b"m", b"b")]
    pair.settle_wire()
    server_link.settle(ids, Accepted())
    pair.settle_wire()
    assert pair.client_events[-1] == Disposed(link, ids, [b"a", b"b"], Accepted(), True)
    assert link.unsettled == 0


def test_peek_lock_settles_in_two_steps() -> None:
    pair = Pair()
    link, server_link = pair.link(LinkRole.RECEIVER, rcv_settle_mode=1)
    link.set_credit(3)
    pair.settle_wire()
    ids = [server_link.send(b"m", b"t") for _ in range(3)]
    pair.settle_wire()
    link.settle(ids, Accepted(), settled=False)
    pair.settle_wire()
    assert only(pair.server_events, Disposed).settled is False
    assert server_link.unsettled == 3
    server_link.settle_sent(ids, Accepted())
    assert len(frames(pair.server.take_output())) == 1
    assert server_link.unsettled == 0


def test_the_client_learns_that_its_settlement_was_confirmed() -> None:
    pair = Pair()
    link, server_link = pair.link(LinkRole.RECEIVER, rcv_settle_mode=1)
    link.set_credit(2)
    pair.settle_wire()
    ids = [server_link.send(b"m", b"t") for _ in range(2)]
    pair.settle_wire()
    link.settle(ids, Accepted(), settled=False)
    pair.settle_wire()
    server_link.settle_sent([ids[1]], REJECTED)
    server_link.settle_sent([ids[0]], Accepted())
    pair.settle_wire()
    assert every(pair.client_events, Settled) == [
        Settled(link, [ids[1]], REJECTED),
        Settled(link, [ids[0]], Accepted()),
    ]


def test_a_disposition_may_be_repeated_until_it_is_confirmed() -> None:
    raw, link = raw_receiver()
    raw.send(Flow(0, 100, 0, 1, 0, 0, 5), channel=1)
    link.send(b"m", b"t")
    for _ in range(2):
        raw.send(Disposition(True, 0, 0, False, Accepted()), channel=1)
    assert len(every(raw.events, Disposed)) == 2


def test_a_settled_delivery_is_not_on_record() -> None:
    raw, link = raw_receiver()
    raw.send(Flow(0, 100, 0, 1, 0, 0, 5), channel=1)
    link.send(b"m", b"t", settled=True)
    assert link.unsettled == 0


# Detach


def test_a_clients_detach_is_answered_with_closed() -> None:
    raw, link = raw_sender()
    raw.send(Detach(0, False, Error("amqp:internal-error")), channel=1)
    [(_, frame, _)] = raw.answers()
    assert frame == Detach(0, True)
    assert only(raw.events, Detached) == Detached(link, Error("amqp:internal-error"))
    assert link.state is LinkState.DETACHED


def test_our_detach_says_why_and_is_over_when_answered() -> None:
    pair = Pair()
    link, server_link = pair.link(LinkRole.SENDER)
    server_link.detach("amqp:link:detach-forced", "idle")
    assert pair.server_events == []
    pair.settle_wire()
    assert pair.client_events == [Detached(link, Error("amqp:link:detach-forced", "idle"))]
    assert pair.server_events == [Detached(server_link, None)]


def test_two_detaches_that_cross_are_both_content() -> None:
    pair = Pair()
    link, server_link = pair.link(LinkRole.SENDER)
    link.detach()
    server_link.detach()
    pair.settle_wire()
    only(pair.client_events, Detached)
    only(pair.server_events, Detached)
    pair.link(LinkRole.SENDER)


def test_a_half_delivery_is_dropped_with_its_link() -> None:
    raw, _ = raw_sender()
    raw.send(Transfer(0, 0, b"t", more=True), b"half", channel=1)
    raw.send(Detach(0, True), channel=1)
    assert raw.server._partial_bytes == 0


def test_answers_to_a_link_that_is_gone_do_nothing() -> None:
    pair = Pair()
    link, server_link = pair.link(LinkRole.RECEIVER)
    link.set_credit(2)
    pair.settle_wire()
    delivery_id = server_link.send(b"m", b"t")
    link.detach()
    pair.settle_wire()
    server_link.settle_sent([delivery_id], Accepted())
    server_link.settle([delivery_id], Accepted())
    server_link.set_credit(5)
    server_link.drained()
    server_link.detach("amqp:internal-error")
    assert pair.server.output_size == 0
    assert not server_link.is_attached
    assert server_link.credit == 0
    with pytest.raises(LocalError):
        server_link.send(b"m", b"t")


def test_nothing_is_written_on_a_link_after_the_connection_was_closed() -> None:
    pair = Pair()
    link, server_link = pair.link(LinkRole.RECEIVER)
    link.set_credit(2)
    pair.settle_wire()
    pair.server.close()
    pair.server.take_output()
    server_link.drained()
    server_link.detach()
    assert pair.server.output_size == 0
    assert server_link.credit == 0
