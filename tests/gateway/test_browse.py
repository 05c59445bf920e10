"""Receivers with distribution-mode copy: every message once, and nothing changes (D-26, P-30)."""

from __future__ import annotations

from typing import Any

import pytest

from busway.amqp.events import TransferReceived
from busway.amqp.performatives import Accepted, Modified, Rejected, Released, Source
from busway.amqp.types import Described, Symbol, ULong
from busway.gateway.browser import UNSETTLED_MAX
from tests.gateway.world import Client, Receiver, World, header, message, message_annotations

SELECTOR = Symbol("jms-selector")
SELECTOR_CODE = ULong(0x0000_468C_0000_0004)
SESSION_FILTER = Symbol("com.microsoft:session-filter")


def browser(
    client: Client,
    path: str,
    name: str = "browser",
    *,
    credit: int = 0,
    filters: dict[Any, Any] | None = None,
    **options: Any,
) -> Browser:
    source = Source(path, distribution_mode="copy", filter=filters)
    found = Browser(client, client.receiver(path, name, source=source, **options).link)
    if credit:
        found.credit(credit)
    return found


def selector(text: str) -> dict[Any, Any]:
    return {SELECTOR: Described(SELECTOR_CODE, text)}


class Browser(Receiver):
    def credit(self, credit: int, *, drain: bool = False) -> None:
        """It reads partition after partition, which takes time that nobody hears of."""
        super().credit(credit, drain=drain)
        self.client.world.settle(for_ms=1000)


def counts(world: World, path: str) -> list[Any]:
    entity = world.catalog.find(path)
    assert entity is not None
    return [
        world.gateway.router.available_owner(entity, partition).counters(
            entity.incarnation, partition
        )
        for partition in range(len(entity.placement))
    ]


def test_every_message_is_shown_once_and_stays(world: World, client: Client, queue: str) -> None:
    client.sender(queue).fill(300)
    before = counts(world, queue)
    found = browser(client, queue, credit=1000)
    assert sorted(found.bodies) == sorted(f"m{n}" for n in range(300))
    assert counts(world, queue) == before
    taken = client.receiver(queue, credit=300, delete=True)
    assert sorted(taken.bodies) == sorted(found.bodies)
    assert {header(each.payload).delivery_count for each in taken.deliveries} == {0}


def test_the_answer_confirms_the_mode(client: Client, queue: str) -> None:
    link = browser(client, queue).link
    assert client.is_attached(link)
    assert link.source is not None
    assert link.source.distribution_mode == "copy"


def test_credit_is_kept_to_and_gone_on_from(client: Client, queue: str) -> None:
    client.sender(queue).fill(30)
    found = browser(client, queue, credit=7)
    assert len(found.deliveries) == 7
    while found.link.credit == 0 and len(found.deliveries) < 30:
        found.credit(7)
    assert sorted(found.bodies) == sorted(f"m{n}" for n in range(30))


def test_a_drain_ends_it_and_later_credit_shows_what_came_since(client: Client, queue: str) -> None:
    sender = client.sender(queue)
    sender.fill(5)
    found = browser(client, queue)
    found.credit(100, drain=True)
    assert len(found.deliveries) == 5
    assert found.link.credit == 0
    sender.send(message("late"))
    assert len(found.deliveries) == 5
    found.credit(100, drain=True)
    assert found.bodies[5:] == ["late"]
    found.credit(1, drain=True)
    assert (len(found.deliveries), found.link.credit) == (6, 0)


def test_a_drain_of_nothing_is_answered(client: Client, queue: str) -> None:
    found = browser(client, queue)
    found.credit(10, drain=True)
    assert (found.deliveries, found.link.credit) == ([], 0)


def test_what_comes_while_there_is_credit_is_shown(client: Client, queue: str) -> None:
    found = browser(client, queue, credit=10)
    client.sender(queue).fill(3)
    assert sorted(found.bodies) == ["m0", "m1", "m2"]


def test_nothing_is_locked(client: Client, queue: str) -> None:
    client.sender(queue).fill(10)
    browser(client, queue, credit=100)
    assert len(client.receiver(queue, credit=100).deliveries) == 10


def test_what_others_hold_or_have_put_aside_is_shown(client: Client, queue: str) -> None:
    """PEEK-1."""
    client.sender(queue).fill(2)
    receiver = client.receiver(queue, credit=2)
    receiver.settle(receiver.deliveries[:1], Modified(undeliverable_here=True))
    found = browser(client, queue, credit=10)
    assert sorted(found.bodies) == ["m0", "m1"]
    states = [message_annotations(each.payload)["x-opt-message-state"] for each in found.deliveries]
    assert sorted(states) == [0, 1]


@pytest.mark.parametrize("outcome", [Accepted(), Released(), Rejected(), Modified(True, True)])
@pytest.mark.parametrize("settled", [True, False])
def test_whatever_is_said_about_a_copy_changes_nothing(
    world: World, client: Client, queue: str, outcome: Any, settled: bool
) -> None:
    client.sender(queue).fill(4)
    found = browser(client, queue, credit=10)
    assert not any(each.settled for each in found.deliveries)
    answer = found.settle(found.deliveries, outcome, settled=settled)
    assert settled or type(answer) is type(outcome)
    world.settle(for_ms=120_000)
    assert sorted(browser(client, queue, "again", credit=10).bodies) == sorted(found.bodies)
    taken = client.receiver(queue, "taker", credit=10)
    assert {header(each.payload).delivery_count for each in taken.deliveries} == {0}
    dead = client.receiver(f"{queue}/$DeadLetterQueue", "dead", credit=10)
    assert dead.deliveries == []


def test_who_wants_them_settled_gets_them_so(client: Client, queue: str) -> None:
    client.sender(queue).fill(2)
    found = browser(client, queue, credit=10, delete=True)
    assert all(each.settled for each in found.deliveries)
    assert len(client.receiver(queue, credit=10).deliveries) == 2


def test_copies_that_are_never_settled_are_forgotten_in_time(world: World, client: Client) -> None:
    world.queue("long")
    client.sender("long").fill(UNSETTLED_MAX + 200)
    found = browser(client, "long", credit=UNSETTLED_MAX + 500)
    assert len(found.deliveries) == UNSETTLED_MAX + 200
    (link,) = [each.link for each in client.server.endpoints if each.link.name == "browser"]
    assert link.unsettled == UNSETTLED_MAX


def test_sub_queues_and_subscriptions_are_browsed_too(world: World, client: Client) -> None:
    world.topic("news", enable_partitioning=True)
    world.subscription("news", "s")
    client.sender("news").fill(5)
    path, dead = "news/Subscriptions/s", "news/Subscriptions/s/$DeadLetterQueue"
    receiver = client.receiver(path, credit=2)
    receiver.settle(receiver.deliveries, Rejected())
    for n in range(2):
        assert len(browser(client, path, f"main-{n}", credit=10).bodies) == 3
        assert len(browser(client, dead, f"dead-{n}", credit=10).bodies) == 2


@pytest.mark.parametrize("partitioned", [False, True])
def test_sessions_are_browsed_without_being_held(
    world: World, client: Client, partitioned: bool
) -> None:
    world.queue("talks", requires_session=True, enable_partitioning=partitioned)
    sender = client.sender("talks")
    for n in range(6):
        sender.send(message(f"m{n}", session_id="ab"[n % 2]))
    assert len(browser(client, "talks", "all", credit=10).bodies) == 6
    one = browser(client, "talks", "one", credit=10, filters={SESSION_FILTER: "b"})
    assert one.bodies == ["m1", "m3", "m5"]
    assert one.link.source is not None
    assert one.link.source.filter == {SESSION_FILTER: "b"}
    source = Source("talks", filter={SESSION_FILTER: "b"})
    held = client.receiver("talks", "holder", source=source, credit=10)
    assert held.bodies == ["m1", "m3", "m5"]
    anyone = browser(client, "talks", "next", filters={SESSION_FILTER: None})
    refusal = client.refusal(anyone.link)
    assert refusal is not None
    assert refusal.condition == "amqp:invalid-field"


def test_a_selector_chooses_what_is_shown(client: Client, queue: str) -> None:
    sender = client.sender(queue)
    for n in range(300):
        sender.put(message(f"m{n}", application_properties={"n": n, "even": n % 2 == 0}))
    client.world.settle()
    found = browser(client, queue, filters=selector("even AND n BETWEEN 100 AND 199"))
    found.credit(20)
    assert len(found.deliveries) == 20
    found.credit(1000, drain=True)
    assert sorted(found.bodies) == sorted(f"m{n}" for n in range(100, 200, 2))
    assert found.link.credit == 0
    assert found.link.source is not None
    assert found.link.source.filter == selector("even AND n BETWEEN 100 AND 199")


def test_an_ill_partition_is_passed_over_and_shown_when_it_is_back(
    world: World, client: Client
) -> None:
    world.queue("spread", enable_partitioning=True)
    client.sender("spread").fill(200)
    whole = len(browser(client, "spread", "whole", credit=500).bodies)
    assert whole == 200
    world.make_ill("store-1")
    found = browser(client, "spread")
    found.credit(500, drain=True)
    part = len(found.bodies)
    assert 0 < part < 200
    assert found.link.credit == 0
    world.disks["store-1"].resume()
    world.settle(for_ms=10_000)
    found.credit(500, drain=True)
    assert sorted(found.bodies) == sorted(f"m{n}" for n in range(200))


def test_a_closed_session_window_holds_pages_back(world: World, client: Client) -> None:
    """A browser with much credit does not fill the broker's memory."""
    world.queue("large")
    sender = client.sender("large")
    for n in range(64):
        sender.put(message(f"m{n}", size=60_000))
    world.settle()
    found = browser(client, "large")
    found.link.set_credit(1000)
    up = client.engine.take_output()
    client.server.receive(up)
    waiting = 0
    for _ in range(200):  # nothing is read from the socket
        world.scheduler.run_for(5)
        waiting = max(waiting, client.server.engine.output_size)
    assert waiting < client.server.gateway.settings.output_high_bytes + 1_000_000
    world.settle()
    assert len(found.deliveries) == 64


def test_a_browser_that_leaves_while_a_page_is_read_is_gone(world: World, client: Client) -> None:
    world.queue("long")
    client.sender("long").fill(500)
    found = browser(client, "long")
    found.link.set_credit(500)
    found.link.detach()
    world.settle()
    assert [each for each in client.of(TransferReceived) if each.link is found.link] == []
    assert len(browser(client, "long", "again", credit=600).bodies) == 500


def test_an_entity_that_goes_takes_its_browsers_along(world: World, client: Client) -> None:
    world.queue("short-lived")
    client.sender("short-lived").fill(3)
    found = browser(client, "short-lived", credit=1)
    world.gateway.catalog.delete("short-lived")
    world.settle()
    refusal = client.refusal(found.link)
    assert refusal is not None
    assert refusal.condition == "amqp:not-found"
