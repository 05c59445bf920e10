"""A session's link that is attached again under its name, while the old one is being detached.

The Java SDK names the link after the session (amqp.md 11), so closing a receiver and accepting the
session again puts a detach and an attach of one name behind each other, often in one write.
"""

from __future__ import annotations

import pytest

from busway.amqp.events import Settled
from busway.amqp.link import LinkRole
from busway.amqp.performatives import Accepted, Source, Target
from busway.amqp.types import Symbol
from tests.gateway.world import Client, Receiver, Requests, World, message, uuids

TURNS = 20
SESSION = "talk"


def source() -> Source:
    return Source("talks", filter={Symbol("com.microsoft:session-filter"): SESSION})


def attach(client: Client, *, in_new_session: bool = False) -> Receiver:
    """The frame is written, and nothing is carried yet."""
    session = client.engine.begin() if in_new_session else client.session
    link = session.attach(
        SESSION,
        LinkRole.RECEIVER,
        source=source(),
        target=Target("talks"),
        snd_settle_mode=0,
        rcv_settle_mode=1,
    )
    return Receiver(client, link)


def ask(manage: Requests, operation: str, **body: object) -> tuple[int, object]:
    named = {name.replace("_", "-"): value for name, value in body.items()}
    properties, answer = manage.call(
        {"operation": f"com.microsoft:{operation}", "associated-link-name": SESSION},
        {"session-id": SESSION, **named},
    )
    return properties["statusCode"], answer


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("ended_by", ["detach", "end", "steal"])
def test_requests_and_settlements_find_the_link_that_is_there_now(
    world: World, client: Client, partitioned: bool, ended_by: str
) -> None:
    world.queue("talks", requires_session=True, enable_partitioning=partitioned)
    sender = client.sender("talks")
    for turn in range(TURNS):
        sender.send(message(f"m{turn}", session_id=SESSION))
    manage = client.requests("talks/$management")
    receiver = attach(client, in_new_session=True)
    for turn in range(TURNS):
        world.settle()
        assert client.is_attached(receiver.link)
        receiver.credit(1)
        (delivery,) = receiver.deliveries
        assert receiver.bodies == [f"m{turn}"]
        state = bytes((turn,)) if turn else None
        assert ask(manage, "get-session-state") == (200, {"session-state": state})
        assert ask(manage, "set-session-state", session_state=bytes((turn + 1,)))[0] == 200
        assert ask(manage, "renew-session-lock")[0] == 200
        renewed, _ = manage.manage("renew-lock", lock_tokens=uuids(delivery.tag))
        assert renewed in (200, 410)  # a session's messages have its lock
        assert receiver.settle([delivery], Accepted()) == Accepted()
        # The end of the old link and the attach of the new one go out in one write.
        if ended_by == "detach":
            receiver.link.detach()
        elif ended_by == "end":
            receiver.link.session.end()  # "steal": it is there when its name is used again
        # The client's engine would wait for the answer; the SDK's does not.
        client.engine.links_by_name.pop((SESSION, LinkRole.RECEIVER), None)
        receiver = attach(client, in_new_session=ended_by != "detach")
        world.settle()
        assert client.is_attached(receiver.link)


def test_a_settlement_of_the_old_link_is_not_taken_for_the_new_ones(
    world: World, client: Client
) -> None:
    world.queue("talks", requires_session=True)
    client.sender("talks").send(message("m", session_id=SESSION))
    first = attach(client)
    world.settle()
    first.credit(1)
    (delivery,) = first.deliveries
    first.link.detach()
    client.engine.links_by_name.pop((SESSION, LinkRole.RECEIVER), None)
    second = attach(client)
    world.settle()
    second.credit(1)
    (again,) = second.deliveries
    assert again.tag != delivery.tag
    assert second.settle([again], Accepted()) == Accepted()
    assert client.of(Settled)[-1].link is second.link
