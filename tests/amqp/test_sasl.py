"""Protocol headers and SASL (AMQP 2.2 and 5.3, amqp.md 2)."""

from __future__ import annotations

import pytest

from busway.amqp import codec
from busway.amqp.connection import AMQP_HEADER, SASL_HEADER
from busway.amqp.events import Closed, Opened
from busway.amqp.performatives import Open, SaslInit, SaslMechanisms, SaslOutcome
from busway.amqp.sasl import plain_credentials
from tests.amqp.pair import Pair, RawClient, every, frames, only, settings

INIT = codec.encode_sasl_frame(SaslInit("ANONYMOUS", b""))


def check_plain(mechanism: str, initial_response: bytes | None) -> bool:
    return mechanism == "PLAIN" and plain_credentials(initial_response) == ("root", "key")


def test_the_server_answers_the_header_and_offers_its_mechanisms() -> None:
    raw = RawClient(
        settings(mechanisms=("MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL")), is_open=False
    )
    raw.send_bytes(SASL_HEADER)
    output = raw.server.take_output()
    assert output.startswith(SASL_HEADER)
    [(_, offer, _)] = frames(output)
    assert isinstance(offer, SaslMechanisms)
    assert offer.sasl_server_mechanisms == ["MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL"]


@pytest.mark.parametrize("hostname", [None, "contoso.localhost"])
def test_the_host_that_sasl_init_names_is_known_before_it_is_judged(hostname: str | None) -> None:
    seen: list[str | None] = []

    def judge(mechanism: str, initial_response: bytes | None) -> bool:
        seen.append(raw.server.sasl_hostname)
        return True

    raw = RawClient(settings(authenticate=judge), is_open=False)
    assert raw.server.sasl_hostname is None
    init = SaslInit("PLAIN", b"\0root\0key", hostname)
    raw.send_bytes(SASL_HEADER + codec.encode_sasl_frame(init))
    assert seen == [hostname]


def test_external_is_not_offered_unless_asked_for() -> None:
    assert "EXTERNAL" not in settings().mechanisms


@pytest.mark.parametrize("mechanism", ["ANONYMOUS", "MSSBCBS"])
@pytest.mark.parametrize("trace", [None, b"", b"RootManageSharedAccessKey"])
def test_a_client_without_proof_is_welcome_whatever_it_calls_itself(
    mechanism: str, trace: bytes | None
) -> None:
    raw = RawClient(is_open=False)
    raw.send_bytes(SASL_HEADER + codec.encode_sasl_frame(SaslInit(mechanism, trace)))
    _, (_, outcome, _) = raw.answers()
    assert outcome == SaslOutcome(0, b"Welcome!")
    assert raw.server.sasl_mechanism == mechanism


def test_what_follows_sasl_init_in_the_same_chunk_is_not_lost() -> None:
    raw = RawClient(is_open=False)
    opening = codec.encode_frame(0, Open("raw", "ns.example"))
    raw.send_bytes(SASL_HEADER + INIT + AMQP_HEADER + opening)
    assert only(raw.events, Opened).open.hostname == "ns.example"
    output = raw.server.take_output()
    assert AMQP_HEADER in output
    assert isinstance(frames(output)[-1][1], Open)


def test_plain_with_the_right_key_is_welcome() -> None:
    pair = Pair(
        client=settings("client", credentials=("root", "key")),
        server=settings("server", authenticate=check_plain),
    )
    pair.open()
    only(pair.client_events, Opened)
    assert pair.server.sasl_mechanism == "PLAIN"


def test_plain_with_a_wrong_key_is_told_so_and_closed() -> None:
    pair = Pair(
        client=settings("client", credentials=("root", "wrong")),
        server=settings("server", authenticate=check_plain),
    )
    pair.open()
    for events in (pair.client_events, pair.server_events):
        error = only(events, Closed).error
        assert error is not None
        assert error.condition == "amqp:unauthorized-access"
        assert not every(events, Opened)
    assert pair.server.closed


def test_nobody_is_known_by_default() -> None:
    pair = Pair(client=settings("client", credentials=("root", "key")))
    pair.open()
    assert pair.server.closed


def test_a_mechanism_that_was_not_offered_fails() -> None:
    raw = RawClient(settings(mechanisms=("PLAIN",)), is_open=False)
    raw.send_bytes(SASL_HEADER + INIT)
    _, (_, outcome, _) = raw.answers()
    assert outcome == SaslOutcome(1)
    assert raw.server.closed


def test_a_client_that_finds_no_mechanism_gives_up() -> None:
    pair = Pair(server=settings("server", mechanisms=("PLAIN",)))
    pair.open()
    assert pair.client.closed


def test_a_second_sasl_init_is_no_header() -> None:
    raw = RawClient(is_open=False)
    raw.send_bytes(SASL_HEADER + INIT + INIT)
    assert raw.server.closed


def test_an_amqp_frame_is_no_sasl_frame() -> None:
    raw = RawClient(is_open=False)
    raw.send_bytes(SASL_HEADER + codec.encode_frame(0, Open("raw")))
    error = only(raw.events, Closed).error
    assert error is not None
    assert error.condition == "amqp:connection:framing-error"


def test_a_sasl_frame_is_no_amqp_frame() -> None:
    raw = RawClient()
    raw.send_bytes(INIT)
    error = only(raw.events, Closed).error
    assert error is not None
    assert error.condition == "amqp:connection:framing-error"


def test_a_client_that_skips_sasl_counts_as_anonymous() -> None:
    pair = Pair(client=settings("client", skip_sasl=True))
    pair.open()
    only(pair.server_events, Opened)
    assert pair.server.sasl_mechanism is None


def test_skipping_sasl_can_be_forbidden() -> None:
    raw = RawClient(settings(allow_without_sasl=False), is_open=False)
    raw.send_bytes(AMQP_HEADER)
    assert raw.server.take_output() == SASL_HEADER
    assert raw.server.closed


@pytest.mark.parametrize(
    "header", [b"AMQP\x00\x00\x09\x01", b"AMQP\x02\x01\x00\x00", b"GET / HT"], ids=str
)
def test_a_wrong_header_is_answered_with_the_right_one(header: bytes) -> None:
    raw = RawClient(is_open=False)
    raw.send_bytes(header)
    assert raw.server.take_output() == SASL_HEADER
    assert raw.server.closed
    only(raw.events, Closed)


@pytest.mark.parametrize("response", [None, b"", b"root\0key", b"\0\xff\0key", b"a\0b\0c\0d"])
def test_what_is_not_a_plain_response_gives_no_credentials(response: bytes | None) -> None:
    assert plain_credentials(response) is None
