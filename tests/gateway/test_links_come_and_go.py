"""Links that come and go while grants are out: nothing stays behind, nobody else notices (D-22)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from busway.amqp.link import LinkRole
from busway.amqp.performatives import Released, Source
from busway.amqp.session import Session
from busway.amqp.types import Symbol
from busway.broker.window import WINDOW_MESSAGES
from busway.gateway.session_receiver import SESSION_FILTER
from tests.gateway.world import Client, Receiver, World, header

DEEPER_THAN_A_WINDOW = WINDOW_MESSAGES + 100


def send_many(client: Client, path: str, count: int, **options: object) -> None:
    """All to one partition, if the options name a key or a session."""
    sender = client.sender(path, f"sender-{len(client.events)}")
    sender.fill(count, **options)
    sender.link.detach()
    client.world.settle()


def credit_in_window(receiver: Receiver, credit: int, window: int) -> None:
    """A flow whose session window is small. The client's engine does not open it by itself: it
    believes that it has said another."""
    receiver.link.credit = credit
    flow = receiver.link.flow()
    flow.incoming_window = window
    receiver.link.session.write(flow)
    receiver.client.world.settle()


def cut(world: World, client: Client) -> None:
    """The socket is gone without a word."""
    world.clients.remove(client)
    client.server.lost()
    world.settle()


# --- A release in the same write as what ends the credit -----------------------------------------


def no_credit(receiver: Receiver) -> None:
    receiver.link.set_credit(0)


def drain(receiver: Receiver) -> None:
    receiver.link.set_credit(0, drain=True)


def detach(receiver: Receiver) -> None:
    receiver.link.detach()


def end(receiver: Receiver) -> None:
    receiver.link.session.end()


@pytest.mark.parametrize("last_word", [no_credit, drain, detach, end])
def test_d_22_a_release_together_with_the_end_of_credit_wakes_nobody_who_has_none(
    world: World, client: Client, queue: str, last_word: Callable[[Receiver], None]
) -> None:
    """.NET's client releases what it has cached and closes its link in one write."""
    send_many(client, queue, DEEPER_THAN_A_WINDOW, partition_key="k")
    session = client.engine.begin()
    bystander = client.receiver(queue, "bystander")
    receiver = client.receiver(queue, session=session)
    for disk in world.disks.values():
        disk.pause()  # a page is asked for and does not come: the grant waits
    receiver.link.set_credit(DEEPER_THAN_A_WINDOW)
    world.settle()
    taken = receiver.deliveries
    assert 0 < len(taken) < DEEPER_THAN_A_WINDOW
    receiver.link.settle([each.delivery_id for each in taken[:10]], Released(), settled=True)
    last_word(receiver)
    world.settle()
    assert client.closed_with is None
    for disk in world.disks.values():
        disk.resume()
    world.settle()
    bystander.credit(10)
    assert [header(each.payload).delivery_count for each in bystander.deliveries] == [0] * 10
    assert {each.payload for each in bystander.deliveries} <= {each.payload for each in taken} or (
        bystander.bodies == [f"m{n}" for n in range(10)]
    )


def ask_session(client: Client, path: str, session_id: str, session: Session) -> Receiver:
    link = client.attach(
        f"holder-{session_id}",
        LinkRole.RECEIVER,
        source=Source(path, filter={Symbol(SESSION_FILTER): session_id}),
        rcv_settle_mode=1,
        session=session,
    )
    return Receiver(client, link)


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("last_word", [no_credit, drain, detach, end])
def test_a_release_in_a_session_together_with_its_end_leaves_nothing_behind(
    world: World, client: Client, partitioned: bool, last_word: Callable[[Receiver], None]
) -> None:
    path = world.queue("talks", requires_session=True, enable_partitioning=partitioned).path
    send_many(client, path, DEEPER_THAN_A_WINDOW, session_id="a")
    receiver = ask_session(client, path, "a", client.engine.begin())
    for disk in world.disks.values():
        disk.pause()
    receiver.link.set_credit(DEEPER_THAN_A_WINDOW)
    world.settle()
    taken = receiver.deliveries
    assert 0 < len(taken) < DEEPER_THAN_A_WINDOW
    receiver.link.settle([each.delivery_id for each in taken[:10]], Released(), settled=True)
    last_word(receiver)
    world.settle()
    for disk in world.disks.values():
        disk.resume()
    world.settle()
    assert client.closed_with is None
    if last_word in (no_credit, drain):
        receiver.link.detach()
        world.settle()
    again = ask_session(world.connect(), path, "a", world.clients[-1].session)
    again.credit(20)
    assert again.bodies == [f"m{n}" for n in range(20)]  # SES-4, SES-9
    assert {header(each.payload).delivery_count for each in again.deliveries} == {0}


# --- A drain that is overdue ---------------------------------------------------------------------


def test_a_link_goes_on_after_a_drain_that_it_took_back(
    world: World, client: Client, queue: str
) -> None:
    client.sender(queue).fill(20)
    receiver = client.receiver(queue, delete=True)
    for disk in world.disks.values():
        disk.pause()
    receiver.credit(5)
    receiver.credit(5, drain=True)
    world.settle(for_ms=1_000)  # longer than a drain is waited for
    receiver.credit(10)
    for disk in world.disks.values():
        disk.resume()
    world.settle()
    while receiver.link.credit == 0 and len(receiver.deliveries) < 20:
        receiver.credit(10)
    assert sorted(receiver.bodies) == sorted(f"m{n}" for n in range(20))


# --- A session window that is smaller than the credit --------------------------------------------


@pytest.mark.parametrize("leave", ["detach", "end", "cut"])
@pytest.mark.parametrize("delete", [False, True])
def test_d_22_no_more_is_taken_than_the_session_window_holds(
    world: World, client: Client, queue: str, leave: str, delete: bool
) -> None:
    send_many(client, queue, 50, partition_key="k")
    leaving = world.connect()
    receiver = leaving.receiver(queue, delete=delete)
    credit_in_window(receiver, 50, window=5)
    assert len(receiver.deliveries) == 5
    if leave == "cut":
        cut(world, leaving)
    else:
        (detach if leave == "detach" else end)(receiver)
        world.settle()
    others = client.receiver(queue, credit=50)
    assert others.bodies == [f"m{n}" for n in range(5, 50)]
    assert {header(each.payload).delivery_count for each in others.deliveries} == {0}


def test_a_window_that_opens_again_lets_the_rest_through(
    world: World, client: Client, queue: str
) -> None:
    send_many(client, queue, 50, partition_key="k")
    receiver = client.receiver(queue)
    credit_in_window(receiver, 50, window=5)
    for _ in range(9):
        credit_in_window(receiver, receiver.link.credit, window=5)
    assert receiver.bodies == [f"m{n}" for n in range(50)]


def test_links_of_one_session_share_its_window(world: World, client: Client, queue: str) -> None:
    send_many(client, queue, 50, partition_key="k")
    first, second = client.receiver(queue, "first"), client.receiver(queue, "second")
    credit_in_window(first, 50, window=5)
    credit_in_window(second, 50, window=0)
    for _ in range(4):
        credit_in_window(second, second.link.credit, window=5)
    assert (len(first.deliveries), len(second.deliveries)) == (15, 10)
    first.link.detach()
    second.link.detach()
    world.settle()
    others = world.connect().receiver(queue, credit=50)
    assert others.bodies == [f"m{n}" for n in range(25, 50)]


@pytest.mark.parametrize("leave", ["detach", "end", "cut"])
def test_d_22_what_is_written_in_part_comes_back_uncounted(
    world: World, client: Client, queue: str, leave: str
) -> None:
    """A message of several frames may be larger than the window; nobody has seen the whole."""
    send_many(client, queue, 3, partition_key="k", size=200_000)
    leaving = world.connect()
    receiver = leaving.receiver(queue)
    credit_in_window(receiver, 50, window=2)
    assert receiver.deliveries == []
    if leave == "cut":
        cut(world, leaving)
    else:
        (detach if leave == "detach" else end)(receiver)
        world.settle()
    others = client.receiver(queue, credit=50)
    assert others.bodies == ["m0", "m1", "m2"]
    assert {header(each.payload).delivery_count for each in others.deliveries} == {0}


def test_a_message_that_is_larger_than_the_window_comes_as_it_opens(
    world: World, client: Client, queue: str
) -> None:
    send_many(client, queue, 3, partition_key="k", size=200_000)
    receiver = client.receiver(queue)
    credit_in_window(receiver, 50, window=2)
    for _ in range(10):
        credit_in_window(receiver, 50 - len(receiver.deliveries), window=2)
    assert receiver.bodies == ["m0", "m1", "m2"]


def test_a_link_that_we_detach_takes_back_what_waits_for_its_window(
    world: World, client: Client, queue: str
) -> None:
    """Nobody gets a message after its lock was given back."""
    send_many(client, queue, 3, partition_key="k", size=200_000)
    leaving = world.connect()
    receiver = leaving.receiver(queue)
    credit_in_window(receiver, 50, window=2)
    entity = world.catalog.find(queue)
    assert entity is not None
    world.catalog.update(dataclasses.replace(entity, max_delivery_count=7))  # type: ignore[arg-type]
    world.settle()
    assert leaving.refusal(receiver.link) is not None
    credit_in_window(receiver, 50, window=100)
    assert receiver.deliveries == []
    others = client.receiver(queue, credit=50)
    assert others.bodies == ["m0", "m1", "m2"]
    assert {header(each.payload).delivery_count for each in others.deliveries} == {0}


def test_a_drain_behind_a_shut_window_is_answered_in_time(
    world: World, client: Client, queue: str
) -> None:
    send_many(client, queue, 50, partition_key="k")
    receiver = client.receiver(queue)
    credit_in_window(receiver, 20, window=5)
    receiver.link.set_credit(15, drain=True)
    flow = receiver.link.flow(drain=True)
    flow.incoming_window = 0
    receiver.link.session.write(flow)
    world.settle(for_ms=1_000)
    assert receiver.link.credit == 0
    assert client.closed_with is None


# --- A deleted entity ----------------------------------------------------------------------------


def test_a_broker_forgets_who_watched_what_was_deleted(world: World, client: Client) -> None:
    for number in range(3):
        path = world.queue(f"q{number}", enable_partitioning=True).path
        if number:
            client.sender(path, f"s{number}").fill(20)
        client.receiver(path, f"r{number}", credit=5)
        world.catalog.delete(path)
        for broker in world.brokers.values():
            broker.purge(number + 1, lambda: None)
        world.settle(for_ms=2_000)
    watched = {key for broker in world.brokers.values() for key in broker._watchers}
    assert watched == set()
