"""What one client can make the broker keep or say has a bound, whatever it asks for."""

from __future__ import annotations

import pytest

from busway.amqp.performatives import Accepted, Source
from busway.amqp.types import Symbol
from busway.broker.broker import Broker
from busway.broker.seams import Grant
from busway.gateway.fanin import GRANT_MESSAGES_MAX, LENT_CREDIT_MAX
from busway.gateway.session_receiver import SESSION_FILTER
from tests.gateway.world import World

ALL_CREDIT = 2**32 - 1
DEPTH = 1_300
"""More than a window holds, so that some of it has to be read from the store."""


@pytest.fixture
def grants(monkeypatch: pytest.MonkeyPatch) -> list[Grant]:
    """Every grant that is made from now on."""
    made: list[Grant] = []
    grant_of_broker = Broker.grant

    def grant(broker: Broker, grant: Grant) -> None:
        made.append(grant)
        grant_of_broker(broker, grant)

    monkeypatch.setattr(Broker, "grant", grant)
    return made


@pytest.mark.parametrize("delete", [False, True], ids=["peek-lock", "receive-and-delete"])
def test_one_grant_waits_for_a_page_however_much_credit_there_is(
    world: World, grants: list[Grant], delete: bool
) -> None:
    world.queue("deep")
    sender = world.connect().sender("deep")
    sender.fill(DEPTH)
    for disk in world.disks.values():
        disk.pause()
    receiver = world.connect().receiver("deep", credit=ALL_CREDIT, delete=delete)
    waiting = [grant for grant in grants if grant.left > 0]
    assert len(waiting) <= 1
    assert sum(grant.left + grant.reserved for grant in grants) <= LENT_CREDIT_MAX
    for disk in world.disks.values():
        disk.resume()
    world.settle()
    assert len(receiver.deliveries) == DEPTH
    assert len(grants) <= 3 * DEPTH // GRANT_MESSAGES_MAX + 10


def test_one_grant_of_a_session_waits_for_a_page(world: World, grants: list[Grant]) -> None:
    world.queue("deep", requires_session=True)
    sender = world.connect().sender("deep")
    sender.fill(DEPTH, session_id="s")
    source = Source("deep", filter={Symbol(SESSION_FILTER): "s"})
    receiver = world.connect().receiver("deep", source=source)
    for disk in world.disks.values():
        disk.pause()
    receiver.credit(ALL_CREDIT)
    assert len([grant for grant in grants if grant.left > 0]) <= 1
    for disk in world.disks.values():
        disk.resume()
    world.settle()
    assert len(receiver.deliveries) == DEPTH
    assert isinstance(receiver.settle(receiver.deliveries[:1], Accepted()), Accepted)
