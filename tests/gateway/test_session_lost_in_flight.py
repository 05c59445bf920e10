"""A session's lock runs out while a settlement under it is being committed (SES-8, D-1).

Whoever settled is told that the session is lost, and not how the settlement ended: it may be done.
"""

from __future__ import annotations

import pytest

from busway.amqp.events import Settled
from busway.amqp.performatives import Accepted
from tests.gateway.test_sessions import ask, fill, refusal
from tests.gateway.world import Client, World

LOCK_MS = 5_000
HANGS_MS = 4_000
"""Less than a broker is patient (D-8), and enough for the lock to run out meanwhile."""


@pytest.fixture(params=[False, True], ids=["conventional", "partitioned"])
def queue(request: pytest.FixtureRequest, world: World) -> str:
    options = {"requires_session": True, "lock_duration_ms": LOCK_MS}
    return world.queue("talks", enable_partitioning=request.param, **options).path


def test_a_completion_that_the_lock_did_not_wait_for_is_done(
    world: World, client: Client, queue: str
) -> None:
    fill(client, queue, a=1)
    receiver = ask(client, queue, "a", credit=1)
    (delivery,) = receiver.deliveries
    world.settle(for_ms=LOCK_MS - HANGS_MS // 2)
    for disk in world.disks.values():
        disk.pause()
    receiver.link.settle([delivery.delivery_id], Accepted(), settled=False)
    world.settle(for_ms=HANGS_MS)
    assert refusal(client, receiver).condition == "com.microsoft:session-lock-lost"
    for disk in world.disks.values():
        disk.resume()
    world.settle(for_ms=1_000)
    assert client.of(Settled) == []  # nobody is left to be told
    again = ask(client, queue, "a", "again", credit=10)
    assert again.deliveries == []  # and it is gone
