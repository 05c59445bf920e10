"""A discharge whose outcome nobody can tell is not said to be rolled back (TXN-2, D-3)."""

from __future__ import annotations

import pytest

from busway.amqp.events import Disposed
from busway.amqp.performatives import Accepted
from busway.store.faults import Fault
from tests.gateway.transacting import Control, condition
from tests.gateway.world import Client, World, message


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (Fault.GONE, "com.microsoft:server-busy"),  # lost in the commit: it may be there
        (Fault.ILL, "amqp:transaction:rollback"),  # the commit was refused
    ],
)
def test_only_what_was_certainly_not_done_is_said_to_be_rolled_back(
    world: World, client: Client, queue: str, fault: Fault, expected: str
) -> None:
    """The store fails with the commit, and the broker is stopped before it is back."""
    control = Control(client)
    txn = control.declare()
    assert isinstance(txn.send(client.sender(queue), message(partition_key="k")), Accepted)
    for store in world.stores.values():
        store.be(fault)
    txn.discharge()
    for broker in world.brokers.values():
        broker.stop(lambda: None)
    world.settle(for_ms=2_000)
    answers = [event.state for event in client.of(Disposed) if event.link is control.link]
    assert condition(answers[-1]) == expected
