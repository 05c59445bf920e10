"""`$management` requests that come with a transaction (TXN-1): part of it, or as if outside."""

from __future__ import annotations

from typing import Any

import pytest

from busway.amqp.performatives import (
    Accepted,
    Modified,
)
from busway.amqp.types import Timestamp, UInt
from busway.model.entities import SqlFilter
from busway.store.faults import CommitOutcome
from tests.gateway.test_sessions import ask
from tests.gateway.transacting import Control, condition
from tests.gateway.world import (
    Client,
    Receiver,
    Requests,
    World,
    longs,
    message,
    message_annotations,
    uuids,
)


def number_of(payload: bytes) -> int:
    return int(message_annotations(payload)["x-opt-sequence-number"])


def test_schedule_in_a_transaction(
    world: World, client: Client, control: Control, queue: str
) -> None:
    requests = client.requests(f"{queue}/$management")
    due = Timestamp(world.scheduler.now_ms() + 30_000)
    text = message("later", partition_key="k", annotations={"x-opt-scheduled-enqueue-time": due})
    for fail in (True, False):
        txn = control.declare()
        requests.state = txn.state
        status, answer = requests.manage("schedule-message", messages=[{"message": text}])
        assert status == 200
        requests.state = None
        (number,) = answer["sequence-numbers"]
        cancel = {"sequence_numbers": longs(number)}
        assert requests.manage("cancel-scheduled-message", **cancel)[0] == 404
        assert isinstance(txn.discharge(fail=fail), Accepted)
    peek = requests.manage("peek-message", from_sequence_number=0, message_count=5)[1]
    (peeked,) = [message_annotations(each["message"]) for each in peek["messages"]]
    assert peeked["x-opt-sequence-number"] == number  # the one that the client was told
    assert requests.manage("cancel-scheduled-message", **cancel)[0] == 200


def test_update_disposition_in_a_transaction(client: Client, control: Control, queue: str) -> None:
    client.sender(queue).fill(1)
    receiver = client.receiver(queue, credit=1)
    requests = client.requests(f"{queue}/$management")
    txn = control.declare()
    requests.state = txn.state
    complete = {
        "disposition_status": "completed",
        "lock_tokens": uuids(receiver.deliveries[0].tag),
    }
    assert requests.manage("update-disposition", **complete) == (200, {})
    requests.state = None
    peek = {"from_sequence_number": 0, "message_count": 5}
    assert requests.manage("peek-message", **peek)[0] == 200
    txn.commit()
    assert requests.manage("peek-message", **peek)[0] == 204


def test_rules_change_with_a_transaction_on_a_conventional_topic(
    world: World, client: Client, control: Control
) -> None:
    world.topic("news")
    subscription = world.subscription("news", "s")
    requests = client.requests(f"{subscription.path}/$management")
    for fail in (True, False):
        txn = control.declare()
        requests.state = txn.state
        described = {"sql-filter": {"expression": "1=0"}}
        added = requests.manage("add-rule", rule_name="r", rule_description=described)
        assert added == (200, {})
        assert requests.manage("remove-rule", rule_name="$Default") == (200, {})
        assert [rule.name for rule in world.catalog.rules(subscription)] == ["$Default"]
        assert isinstance(txn.discharge(fail=fail), Accepted)
    assert [rule.name for rule in world.catalog.rules(subscription)] == ["r"]  # D-28


def test_a_rule_can_be_replaced_in_one_transaction(
    world: World, client: Client, control: Control
) -> None:
    """D-28: what comes later in a transaction sees what came before."""
    world.topic("news")
    subscription = world.subscription("news", "s")
    requests = client.requests(f"{subscription.path}/$management")
    txn = control.declare()
    requests.state = txn.state
    described = {"sql-filter": {"expression": "1=0"}}
    replace = {"rule_name": "$Default", "rule_description": described}
    assert requests.manage("remove-rule", rule_name="$default") == (200, {})
    assert requests.manage("add-rule", **replace) == (200, {})
    txn.commit()
    (rule,) = world.catalog.rules(subscription)
    assert rule.filter == SqlFilter("1=0")


def test_a_rule_cannot_be_added_or_removed_twice_in_one_transaction(
    world: World, client: Client, control: Control
) -> None:
    world.topic("news")
    requests = client.requests(f"{world.subscription('news', 's').path}/$management")
    described = {"sql-filter": {"expression": "1=0"}}
    for call, status in (
        (("add-rule", {"rule_name": "r", "rule_description": described}), 409),
        (("remove-rule", {"rule_name": "$Default"}), 404),
    ):
        operation, arguments = call
        requests.state = control.declare().state
        assert requests.manage(operation, **arguments)[0] == 200
        assert requests.manage(operation, **arguments)[0] == status


def test_rules_of_a_partitioned_topic_do_not_change_in_a_transaction(
    world: World, client: Client, control: Control
) -> None:
    world.topic("news", enable_partitioning=True)
    subscription = world.subscription("news", "s")
    requests = client.requests(f"{subscription.path}/$management")
    requests.state = control.declare().state
    assert requests.manage("remove-rule", rule_name="$Default")[0] == 400
    assert requests.condition == "amqp:not-allowed"  # P-44


def test_what_changes_nothing_is_done_as_if_outside(
    client: Client, control: Control, queue: str
) -> None:
    """TXN-1: .NET marks nearly every request inside a scope; a rollback has nothing to undo."""
    client.sender(queue).fill(1)
    receiver = client.receiver(queue, credit=1)
    number = number_of(receiver.deliveries[0].payload)
    requests = client.requests(f"{queue}/$management")
    txn = control.declare()
    requests.state = txn.state
    peek = {"from_sequence_number": 0, "message_count": 5}
    assert requests.manage("peek-message", **peek)[0] == 200
    tokens = uuids(receiver.deliveries[0].tag)
    assert requests.manage("renew-lock", lock_tokens=tokens)[0] == 200
    receiver.settle(receiver.deliveries, Modified(undeliverable_here=True))
    fetch = {"sequence_numbers": longs(number), "receiver_settle_mode": UInt(1)}
    status, answer = requests.manage("receive-by-sequence-number", **fetch)
    assert status == 200
    (item,) = answer["messages"]
    assert requests.manage("receive-by-sequence-number", **fetch)[0] == 404  # locked: and
    assert isinstance(txn.discharge(fail=True), Accepted)  # no failure of it ends a transaction
    requests.state = None
    tokens = uuids(item["lock-token"].bytes_le)
    assert requests.manage("renew-lock", lock_tokens=tokens)[0] == 200  # received all the same


def test_a_batch_delete_is_refused_in_a_transaction(
    client: Client, control: Control, queue: str
) -> None:
    client.sender(queue).fill(3)
    requests = client.requests(f"{queue}/$management")
    txn = control.declare()
    requests.state = txn.state
    assert requests.manage("batch-delete-messages", message_count=3)[0] == 400
    assert "cannot be undone" in requests.description
    txn.commit()
    assert len(client.receiver(queue, credit=5).deliveries) == 3


def talk(
    world: World, client: Client, partitioned: bool, **properties: Any
) -> tuple[Receiver, Requests]:
    """A held session, and its management."""
    world.queue("talks", requires_session=True, enable_partitioning=partitioned, **properties)
    return ask(client, "talks", "a"), client.requests("talks/$management")


def state_of(requests: Requests) -> Any:
    return requests.manage("get-session-state", session_id="a")[1]["session-state"]


@pytest.mark.parametrize("partitioned", [False, True])
def test_a_session_s_state_is_set_with_the_transaction(
    world: World, client: Client, control: Control, partitioned: bool
) -> None:
    _, requests = talk(world, client, partitioned)
    requests.manage("set-session-state", session_id="a", session_state=b"before")
    for fail, after in ((True, b"before"), (False, b"in it")):
        txn = control.declare()
        requests.state = txn.state
        for state in (b"first", b"in it"):
            set_it = {"session_id": "a", "session_state": state}
            assert requests.manage("set-session-state", **set_it) == (200, {})
        assert state_of(requests) == b"before"  # TXN-2
        until = requests.manage("renew-session-lock", session_id="a")
        assert until[0] == 200
        assert isinstance(txn.discharge(fail=fail), Accepted)
        requests.state = None
        assert state_of(requests) == after
    txn = control.declare()
    requests.state = txn.state
    assert requests.manage("set-session-state", session_id="a", session_state=None)[0] == 200
    txn.commit()
    assert state_of(requests) is None
    assert world.gateway.budget.used_bytes == 0


@pytest.mark.parametrize("partitioned", [False, True])
def test_a_session_s_message_and_state_are_one(
    world: World, client: Client, control: Control, partitioned: bool
) -> None:
    receiver, requests = talk(world, client, partitioned)
    sender = client.sender("talks")
    sender.send(message("in", session_id="a"))
    receiver.credit(5)
    for fail in (True, False):
        txn = control.declare()
        requests.state = txn.state
        txn.settle(receiver, receiver.deliveries, Accepted())
        requests.manage("set-session-state", session_id="a", session_state=b"one done")
        txn.send(sender, message("out", session_id="a"))
        assert isinstance(txn.discharge(fail=fail), Accepted)
        requests.state = None
        assert state_of(requests) == (None if fail else b"one done")
    assert receiver.bodies == ["in", "out"]


@pytest.mark.parametrize("partitioned", [False, True])
def test_a_state_of_a_session_that_was_lost_rolls_back(
    world: World, client: Client, control: Control, partitioned: bool
) -> None:
    receiver, requests = talk(world, client, partitioned)
    sender = client.sender("talks")
    txn = control.declare()
    requests.state = txn.state
    requests.manage("set-session-state", session_id="a", session_state=b"never")
    txn.send(sender, message("never", session_id="a"))
    receiver.link.detach()
    world.settle()
    assert condition(txn.discharge()) == "amqp:transaction:rollback"
    again = ask(client, "talks", "a", "again", credit=5)
    requests.state = None
    assert state_of(requests) is None
    assert again.deliveries == []


def scheduled(world: World, requests: Requests, text: str, **options: Any) -> int:
    due = Timestamp(world.scheduler.now_ms() + 30_000)
    later = message(text, annotations={"x-opt-scheduled-enqueue-time": due}, **options)
    status, answer = requests.manage("schedule-message", messages=[{"message": later}])
    assert status == 200
    return int(answer["sequence-numbers"][0])


def test_a_cancel_takes_part_in_a_transaction(
    world: World, client: Client, control: Control, queue: str
) -> None:
    requests = client.requests(f"{queue}/$management")
    number = scheduled(world, requests, "later", partition_key="k")
    cancel = {"sequence_numbers": longs(number)}
    for fail in (True, False):
        txn = control.declare()
        requests.state = txn.state
        assert requests.manage("cancel-scheduled-message", **cancel) == (200, {})
        txn.send(client.sender(queue, f"{fail}"), message("instead", partition_key="k"))
        requests.state = None
        peek = {"from_sequence_number": 0, "message_count": 5}
        assert len(requests.manage("peek-message", **peek)[1]["messages"]) == 1  # TXN-2
        assert isinstance(txn.discharge(fail=fail), Accepted)
    world.settle(for_ms=60_000)
    assert client.receiver(queue, credit=5).bodies == ["instead"]


def test_a_cancel_that_is_rolled_back_leaves_the_message_scheduled(
    world: World, client: Client, control: Control, queue: str
) -> None:
    requests = client.requests(f"{queue}/$management")
    number = scheduled(world, requests, "later", partition_key="k")
    txn = control.declare()
    requests.state = txn.state
    assert requests.manage("cancel-scheduled-message", sequence_numbers=longs(number))[0] == 200
    txn.discharge(fail=True)
    receiver = client.receiver(queue, credit=5)
    assert receiver.deliveries == []
    world.settle(for_ms=60_000)
    assert receiver.bodies == ["later"]


def test_what_is_not_there_cannot_be_cancelled_and_ends_the_transaction(
    world: World, client: Client, control: Control, queue: str
) -> None:
    requests = client.requests(f"{queue}/$management")
    txn = control.declare()
    requests.state = txn.state
    assert requests.manage("cancel-scheduled-message", sequence_numbers=longs(77))[0] == 404
    txn.is_doomed()


def test_what_became_active_before_the_discharge_rolls_back(
    world: World, client: Client, control: Control, queue: str
) -> None:
    """And of two numbers the other one, that was found, is free again."""
    requests = client.requests(f"{queue}/$management")
    first = scheduled(world, requests, "first", partition_key="k")
    world.settle(for_ms=20_000)
    second = scheduled(world, requests, "second", partition_key="k")
    txn = control.declare()
    requests.state = txn.state
    for number in (first, second):
        cancel = {"sequence_numbers": longs(number)}
        assert requests.manage("cancel-scheduled-message", **cancel)[0] == 200
    txn.send(client.sender(queue), message("never", partition_key="k"))
    world.settle(for_ms=15_000)
    txn.is_doomed()
    receiver = client.receiver(queue, credit=5)
    assert receiver.bodies == ["first"]
    world.settle(for_ms=30_000)
    assert receiver.bodies == ["first", "second"]


def test_a_cancel_whose_transaction_fails_otherwise_leaves_the_message_scheduled(
    world: World, client: Client, control: Control, queue: str
) -> None:
    sender = client.sender(queue)
    sender.send(message("in", partition_key="k"))
    receiver = client.receiver(queue, credit=1)
    requests = client.requests(f"{queue}/$management")
    world.settle(for_ms=35_000)
    number = scheduled(world, requests, "later", partition_key="k")
    txn = control.declare()
    requests.state = txn.state
    requests.manage("cancel-scheduled-message", sequence_numbers=longs(number))
    txn.settle(receiver, receiver.deliveries, Accepted())
    world.settle(for_ms=26_000)  # its lock runs out first
    txn.is_doomed()
    assert receiver.deliveries  # the only one so far
    again = client.receiver(queue, "again", credit=5)
    world.settle(for_ms=10_000)
    assert again.bodies == ["in", "later"]


@pytest.mark.parametrize("outcome", [CommitOutcome.REFUSED, CommitOutcome.UNKNOWN_NOT_DONE])
def test_a_cancel_whose_commit_failed_leaves_the_message_scheduled(
    world: World, client: Client, control: Control, outcome: CommitOutcome
) -> None:
    entity = world.queue("orders")
    requests = client.requests("orders/$management")
    number = scheduled(world, requests, "later")
    txn = control.declare()
    requests.state = txn.state
    requests.manage("cancel-scheduled-message", sequence_numbers=longs(number))
    world.stores[entity.placement[0]].script(outcome)
    txn.discharge()
    world.settle(for_ms=60_000)
    assert client.receiver("orders", credit=5).bodies == ["later"]
