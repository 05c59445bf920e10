"""Who may connect, attach and stay (amqp.md 2, 5, 6, 7, 16 and 18)."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pytest

from busway.amqp.events import Closed, Detached, TransferReceived
from busway.amqp.link import LinkRole
from busway.amqp.performatives import Accepted, Properties, Source, Target
from busway.amqp.sections import encode_message
from busway.amqp.types import Int, ULong
from busway.gateway.gateway import GatewaySettings
from busway.model.entities import (
    ALL_RIGHTS,
    ROOT_RULE_NAME,
    AuthorizationRule,
    EntityStatus,
)
from tests.gateway.world import HOST, KEY, Client, SomePeer, World, message, sas


def rule(world: World, name: str, *rights: str) -> dict[str, str]:
    """A new namespace rule; returns what `put_token` needs to use it."""
    namespace = world.catalog.namespace
    rules = (*namespace.authorization_rules, AuthorizationRule(name, rights, f"key-of-{name}"))
    world.catalog.update_namespace(replace(namespace, authorization_rules=rules))
    return {"rule": name, "key": f"key-of-{name}"}


# --- put-token -----------------------------------------------------------------------------------


def test_a_good_token_is_accepted_with_the_types_of_the_service(world: World, queue: str) -> None:
    answer = world.connect(token=False).put_token(queue)
    assert answer == {"status-code": 202, "status-description": "Accepted"}
    assert type(answer["status-code"]) is Int


@pytest.mark.parametrize(
    ("path", "options", "status"),
    [
        ("orders", {"key": "wrong"}, 401),
        ("orders", {"rule": "nobody"}, 401),
        ("orders", {"life_s": -10}, 401),
        ("orders", {"text": "eyJ.jwt.token"}, 401),
        ("nothere", {}, 404),
        ("nothere", {"key": "wrong"}, 401),
        ("orders/$management", {}, 202),
        ("orders/$DeadLetterQueue", {}, 202),
        ("", {}, 202),
    ],
)
def test_put_token_answers_as_the_service_does(
    world: World, queue: str, path: str, options: dict[str, Any], status: int
) -> None:
    answer = world.connect(token=False).put_token(path, **options)
    assert answer["status-code"] == status
    assert "error-condition" not in answer
    if status == 404:
        text = f"The messaging entity 'sb://{HOST}/nothere' could not be found"
        assert text in answer["status-description"]


def test_a_client_that_asks_for_a_missing_entity_again_is_answered_a_moment_later(
    world: World, queue: str
) -> None:
    """.NET asks again without a pause: one host did so more than a thousand times a second."""
    client = world.connect(token=False)
    cbs = client.requests("$cbs", name="cbs")

    def ask(path: str) -> UUID:
        properties = {"operation": "put-token", "type": "jwt", "name": f"sb://{HOST}/{path}"}
        return cbs.ask(properties, sas(path, world))

    def status(asked: UUID) -> int | None:
        answer = cbs.reply(asked)
        return None if answer is None else answer[0]["status-code"]

    answered, began_ms, waiting = 0, world.scheduler.now_ms(), ask("nothere")
    assert status(waiting) == 404  # the first at once
    while world.scheduler.now_ms() - began_ms < 10_000:
        if status(waiting) is not None:
            answered += 1
            waiting = ask("nothere")
        world.settle()
    assert 10 <= answered <= 21

    assert status(ask(queue)) == 202  # what is there is not kept waiting
    together = [ask("nothere"), ask("nor-this")]
    assert [status(asked) for asked in together] == [None, None]
    world.settle(for_ms=1_000)
    assert [status(asked) for asked in together] == [404, 404]
    world.settle(for_ms=2_000)
    assert status(ask("nothere")) == 404  # after a pause it is a first one again


def test_answers_that_are_held_back_are_bounded_and_end_with_their_connection(
    world: World,
) -> None:
    client = world.connect(token=False)
    cbs = client.requests("$cbs", name="cbs", credit=300)
    request = encode_message(
        properties=Properties(message_id="asked"),
        application_properties={"operation": "put-token", "name": f"sb://{HOST}/nothere"},
        body=sas("nothere", world),
    )

    def answered() -> int:
        return sum(event.link is cbs.replies for event in client.of(TransferReceived))

    for number in range(90):
        cbs.link.send(request, number.to_bytes(4, "big"))
    world.settle()
    assert answered() == 1  # 89 are held
    for number in range(90, 160):
        cbs.link.send(request, number.to_bytes(4, "big"))
    world.settle()
    assert answered() == 60  # 100 are held
    client.server.lost()
    world.settle(for_ms=1_000)
    assert answered() == 60
    assert world.connect(token=False).put_token("nothere")["status-code"] == 404


def test_a_token_for_one_entity_opens_no_other(world: World, queue: str) -> None:
    world.queue("other")
    client = world.connect(token=False)
    client.put_token(queue)
    assert client.is_attached(client.sender(queue).link)
    refusal = client.refusal(client.sender("other", "second").link)
    assert refusal is not None
    assert refusal.condition == "amqp:unauthorized-access"


def test_a_rule_of_an_entity_opens_that_entity_only(world: World) -> None:
    own = (AuthorizationRule("own", ("Send",), "own-key"),)
    world.queue("orders", authorization_rules=own)
    world.queue("orders/new")
    client = world.connect(token=False)
    assert client.put_token("orders", rule="own", key="own-key")["status-code"] == 202  # D-34
    assert client.is_attached(client.sender("orders").link)
    assert not client.is_attached(client.sender("orders/new", "second").link)
    assert not client.is_attached(client.receiver("orders").link)
    for path in ("", "orders/new"):
        text = sas("", world, rule="own", key="own-key")
        assert client.put_token(path, text)["status-code"] == 401


@pytest.mark.parametrize(
    ("rights", "may_send", "may_receive"),
    [(("Send",), True, False), (("Listen",), False, True), (ALL_RIGHTS, True, True)],
)
def test_a_link_needs_its_right(
    world: World, queue: str, rights: tuple[str, ...], may_send: bool, may_receive: bool
) -> None:
    client = world.connect(token=False)
    client.put_token(queue, **rule(world, "limited", *rights))
    assert client.is_attached(client.sender(queue).link) == may_send
    assert client.is_attached(client.receiver(queue).link) == may_receive


def test_without_a_token_only_cbs_can_be_attached(world: World, queue: str) -> None:
    client = world.connect(token=False)
    for node in (queue, f"{queue}/$management", "nothere"):
        link = client.attach(node, LinkRole.SENDER, target=Target(node))
        refusal = client.refusal(link)
        assert refusal is not None
        assert refusal.condition == "amqp:unauthorized-access"


def test_an_expired_token_detaches_the_links_that_lived_on_it(world: World, queue: str) -> None:
    client = world.connect(token=False)
    client.put_token(queue, life_s=30)
    sender = client.sender(queue)
    receiver = client.receiver(queue)
    world.settle(for_ms=32_000)
    for link in (sender.link, receiver.link):
        refusal = client.refusal(link)
        assert refusal is not None
        assert refusal.condition == "amqp:unauthorized-access"
    assert client.closed_with is None


def test_a_token_put_again_extends(world: World, queue: str) -> None:
    client = world.connect(token=False)
    client.put_token(queue, life_s=30)
    sender = client.sender(queue)
    world.settle(for_ms=20_000)
    client.put_token(queue, life_s=300)
    world.settle(for_ms=40_000)
    assert isinstance(sender.send(message()), Accepted)


def test_a_connection_without_a_token_is_dropped_after_20_s(world: World, queue: str) -> None:
    idle, busy = world.connect(token=False), world.connect(token=False)
    busy.put_token(queue)
    world.settle(for_ms=18_000)
    assert not idle.of(Closed)
    world.settle(for_ms=4_000)
    assert idle.closed_with is not None
    assert idle.closed_with.condition == "amqp:unauthorized-access"
    assert not busy.of(Closed)


NINE_DAYS_MS = 9 * 24 * 3_600_000
YEAR_MS = 365 * 24 * 3_600_000


@pytest.mark.parametrize("error_ms", [-YEAR_MS, -NINE_DAYS_MS, NINE_DAYS_MS, YEAR_MS])
def test_tokens_are_judged_by_the_clock_and_not_by_broker_time(
    world: World, queue: str, error_ms: int
) -> None:
    """Broker time is ahead of the clock for good after one start with a wrong date (D-25)."""
    world.scheduler.clock_error_ms = error_ms
    clock_s = world.scheduler.clock_ms() // 1000 - world.scheduler.now_ms() // 1000
    client = world.connect(token=False)
    assert client.put_token(queue, life_s=clock_s - 1)["status-code"] == 401
    assert client.put_token(queue, life_s=clock_s + 60)["status-code"] == 202
    assert isinstance(client.sender(queue).send(message()), Accepted)


def test_a_token_that_the_clock_has_passed_ends_its_links_though_no_broker_time_has(
    world: World, queue: str
) -> None:
    client = world.connect(token=False)
    client.put_token(queue, life_s=3600)
    sender = client.sender(queue)
    management = client.requests(f"{queue}/$management")
    world.scheduler.clock_error_ms = NINE_DAYS_MS  # the clock had been behind, and was set right
    answer, _ = management.call({"operation": "com.microsoft:peek-message"}, {})
    assert answer["statusCode"] == 401
    world.settle(for_ms=2_000)
    refusal = client.refusal(sender.link)
    assert refusal is not None
    assert refusal.condition == "amqp:unauthorized-access"


def test_setting_the_clock_does_not_shorten_the_time_to_show_a_token(world: World) -> None:
    idle = world.connect(token=False)
    world.scheduler.clock_error_ms = YEAR_MS
    world.settle(for_ms=18_000)
    assert not idle.of(Closed)


# --- SASL PLAIN ----------------------------------------------------------------------------------


def test_a_password_opens_the_namespace(world: World, queue: str) -> None:
    client = world.connect(password=(ROOT_RULE_NAME, KEY))
    assert isinstance(client.sender(queue).send(message()), Accepted)
    world.settle(for_ms=30_000)
    assert not client.of(Closed)


def test_a_wrong_password_ends_the_connection(world: World) -> None:
    client = world.connect(password=(ROOT_RULE_NAME, "wrong"))
    assert client.of(Closed)


@pytest.mark.parametrize(("encrypted", "welcome"), [(False, False), (True, True)])
def test_a_password_is_not_taken_in_clear_from_afar(
    world: World, encrypted: bool, welcome: bool
) -> None:
    client = world.connect(
        password=(ROOT_RULE_NAME, KEY), peer=SomePeer(loopback=False), encrypted=encrypted
    )  # D-34
    assert (not client.of(Closed)) == welcome


# --- Attaching -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("role", "path", "condition"),
    [
        (LinkRole.SENDER, "nothere", "amqp:not-found"),
        (LinkRole.RECEIVER, "nothere", "amqp:not-found"),
        (LinkRole.RECEIVER, "nothere/$management", "amqp:not-found"),
        (LinkRole.RECEIVER, "orders/Subscriptions/s", "amqp:not-found"),
        (LinkRole.RECEIVER, "orders/$nonsense", "amqp:not-found"),
        (LinkRole.SENDER, "orders/$DeadLetterQueue", "amqp:not-allowed"),
    ],
)
def test_what_cannot_be_attached_is_refused_with_its_condition(
    client: Client, queue: str, role: LinkRole, path: str, condition: str
) -> None:
    link = client.attach("link", role, source=Source(path), target=Target(path))
    refusal = client.refusal(link)
    assert refusal is not None
    assert refusal.condition == condition
    description = refusal.description or ""
    assert "TrackingId:" in description
    if condition == "amqp:not-found":
        assert "The messaging entity '" in description
        assert "could not be found" in description


@pytest.mark.parametrize(
    "form",
    [
        "orders",
        "/orders",
        "ORDERS",
        f"amqps://{HOST}/orders",
        f"amqps://{HOST}:5673/orders",
        "orders/",
        "%6Frders",
    ],
)
def test_every_form_of_an_address_is_understood_and_echoed(
    client: Client, queue: str, form: str
) -> None:
    receiver = client.receiver(form)
    assert client.is_attached(receiver.link)
    assert receiver.link.source is not None
    assert receiver.link.source.address == form


def test_a_sender_is_told_its_limits(client: Client, queue: str) -> None:
    link = client.sender(queue).link
    assert link.remote_max_message_size == 262_144
    assert link.properties is not None
    batch = link.properties["com.microsoft:max-message-batch-size"]
    assert type(batch) is ULong  # Go takes no other type
    assert batch == 262_144


@pytest.mark.parametrize(
    ("status", "may_send", "may_receive"),
    [
        (EntityStatus.DISABLED, False, False),
        (EntityStatus.SEND_DISABLED, False, True),
        (EntityStatus.RECEIVE_DISABLED, True, False),
    ],
)
def test_a_disabled_entity_is_refused(
    world: World, client: Client, status: EntityStatus, may_send: bool, may_receive: bool
) -> None:
    world.queue("orders", status=status)  # STA-1, STA-2
    for link, may in (
        (client.sender("orders").link, may_send),
        (client.receiver("orders").link, may_receive),
    ):
        assert client.is_attached(link) == may
        if not may:
            refusal = client.refusal(link)
            assert refusal is not None
            assert refusal.condition == "com.microsoft:entity-disabled"


@pytest.mark.parametrize(
    ("change", "condition"),
    [
        ("delete", "amqp:not-found"),
        ("disable", "com.microsoft:entity-disabled"),
        ("update", "amqp:link:detach-forced"),
    ],
)
def test_links_of_a_changed_entity_are_detached(
    world: World, client: Client, queue: str, change: str, condition: str
) -> None:
    links = [client.sender(queue).link, client.receiver(queue, credit=5).link]
    entity = world.catalog.find(queue)
    assert entity is not None
    if change == "delete":
        world.catalog.delete(queue)
    elif change == "disable":
        world.catalog.update(replace(entity, status=EntityStatus.DISABLED))
    else:
        world.catalog.update(replace(entity, max_delivery_count=3))
    world.settle()
    for link in links:
        refusal = client.refusal(link)
        assert refusal is not None
        assert refusal.condition == condition
    assert not client.of(Closed)


def test_a_queue_made_again_is_another_queue(world: World, client: Client) -> None:
    world.queue("orders")
    client.sender("orders").fill(3)
    world.catalog.delete("orders")
    world.queue("orders")  # D-16
    world.settle()
    assert client.receiver("orders", credit=5).deliveries == []


# --- The end -------------------------------------------------------------------------------------


def test_a_session_that_ends_takes_its_links_along(
    world: World, client: Client, queue: str
) -> None:
    """Go ends sessions without detaching."""
    client.receiver(queue, credit=5)
    client.session.end()
    world.settle()
    assert world.gateway._fan_ins == {}
    assert client.of(Detached)


def test_a_peer_that_does_not_answer_our_close_is_not_waited_for(world: World) -> None:
    client = world.connect()
    client.server.close("amqp:connection:forced", "goodbye")
    world.clients.remove(client)  # it hears nothing and says nothing
    client.server.tick(world.scheduler.now_ms())
    assert not client.server.finished
    client.server.tick(world.scheduler.now_ms() + 6_000)
    assert client.server.finished


def test_too_many_connections_are_told_so() -> None:
    world = World(settings=GatewaySettings(connections_max=1))
    assert not world.connect().of(Closed)
    refused = world.connect(token=False)
    assert refused.closed_with is not None
    assert refused.closed_with.condition == "amqp:resource-limit-exceeded"  # LIM-9


@pytest.mark.parametrize("broken", ["transfer", "deliver"])
def test_a_mistake_of_ours_ends_one_connection_only(
    world: World, queue: str, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    victim, other = world.connect(), world.connect()
    sender = victim.sender(queue)
    if broken == "deliver":
        victim.receiver(queue, credit=5)
    function = {"transfer": "read_single", "deliver": "encode_locked"}[broken]
    with (
        patch(f"busway.gateway.envelope.{function}", side_effect=RuntimeError("our mistake")),
        caplog.at_level(logging.ERROR, "busway.gateway"),
    ):
        sender.put(message())
        world.settle()
    assert victim.closed_with is not None
    assert victim.closed_with.condition == "amqp:internal-error"
    assert any(record.exc_info for record in caplog.records)  # never silently
    assert isinstance(other.sender(queue).send(message()), Accepted)


def test_a_token_text_never_reaches_the_log(
    world: World, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        client = world.connect(token=False)
        client.put_token(queue, text=sas(queue, world, key="wrong"))
        client.put_token(queue)
    assert "sig=" not in caplog.text
    assert KEY not in caplog.text
