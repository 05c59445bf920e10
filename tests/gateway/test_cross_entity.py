"""Transactions that touch more than one entity: by send-via, and in one AMQP session (TXN-3)."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from busway.amqp.performatives import Accepted
from busway.amqp.types import Symbol, Timestamp
from busway.model.entities import EntityStatus, Queue
from tests.gateway.test_sessions import ask
from tests.gateway.transacting import Control, condition, error, other_session
from tests.gateway.world import Client, World, message


@pytest.fixture(params=[False, True], ids=["conventional", "partitioned"])
def partitioned(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


# --- One session for all -------------------------------------------------------------------------


def test_outside_the_coordinator_s_session_a_transaction_has_one_entity(
    world: World, client: Client
) -> None:
    world.queue("a")
    world.queue("b")
    control = Control(client, session=other_session(client))
    txn = control.declare()
    txn.send(client.sender("a", "a"), message())
    state = txn.send(client.sender("b", "b"), message())
    assert condition(state) == "amqp:not-allowed"
    assert str(error(state).description).startswith(
        "Local transactions cannot span multiple top-level entities such as queue or topic"
    )


@pytest.mark.parametrize("partitioned", [False, True])
def test_links_of_the_coordinator_s_session_may_be_combined(
    world: World, client: Client, control: Control, partitioned: bool
) -> None:
    world.queue("in", enable_partitioning=partitioned)
    world.queue("out", enable_partitioning=partitioned)
    client.sender("in").send(message("work", partition_key="k"))
    receiver = client.receiver("in", credit=1)
    sender = client.sender("out", "out")
    txn = control.declare()
    assert isinstance(txn.settle(receiver, receiver.deliveries, Accepted()), Accepted)
    assert isinstance(txn.send(sender, message("done")), Accepted)
    results = world.connect().receiver("out", "results", credit=5)
    world.settle(for_ms=1_000)
    assert results.deliveries == []
    txn.commit()
    world.settle(for_ms=1_000)
    assert results.bodies == ["done"]  # TXN-3
    assert client.receiver("in", "again", credit=5).deliveries == []


@pytest.mark.parametrize("sender_attached", ["before", "in the transaction"])
def test_what_is_sent_before_the_message_is_settled_goes_through_its_queue(
    world: World, client: Client, control: Control, queue: str, sender_attached: str
) -> None:
    """TXN-3: the via entity is that of the session's first link, not of the first operation. So a
    program may send first and complete then; and on a partitioned queue without a key."""
    world.queue("out")
    outside = world.connect()
    outside.sender(queue).send(message("work"))
    receiver = client.receiver(queue, credit=1)
    if sender_attached == "before":
        sender = client.sender("out", "out")
    txn = control.declare()
    if sender_attached != "before":
        sender = client.sender("out", "out")
    assert isinstance(txn.send(sender, message("done")), Accepted)
    assert isinstance(txn.settle(receiver, receiver.deliveries, Accepted()), Accepted)
    txn.commit()
    world.settle(for_ms=1_000)
    assert outside.receiver("out", "out", credit=5).bodies == ["done"]
    assert outside.receiver(queue, "in", credit=5).deliveries == []


def test_what_is_only_sent_goes_through_the_first_link_s_entity_as_well(
    world: World, client: Client, control: Control, queue: str
) -> None:
    world.queue("out")
    client.receiver(queue)
    txn = control.declare()
    assert isinstance(txn.send(client.sender("out", "out"), message("done")), Accepted)
    txn.commit()
    world.settle(for_ms=1_000)
    assert world.connect().receiver("out", credit=5).bodies == ["done"]


def test_rolled_back_nothing_was_sent_first(
    world: World, client: Client, control: Control, queue: str
) -> None:
    world.queue("out")
    outside = world.connect()
    outside.sender(queue).send(message("work"))
    receiver = client.receiver(queue, credit=1)
    txn = control.declare()
    txn.send(client.sender("out", "out"), message("never"))
    txn.settle(receiver, receiver.deliveries, Accepted())
    assert isinstance(txn.discharge(fail=True), Accepted)
    world.settle(for_ms=1_000)
    assert outside.receiver("out", credit=5).deliveries == []
    assert isinstance(receiver.settle(receiver.deliveries, Accepted()), Accepted)


@pytest.mark.parametrize("with_sessions", [False, True])
def test_a_receiver_of_another_entity_than_the_first_link_s_is_refused(
    world: World, client: Client, control: Control, queue: str, with_sessions: bool
) -> None:
    """It would say that messages are received by way of another queue."""
    world.queue("b")
    world.queue("talks", requires_session=True)
    client.sender("b", "first")
    receiver = ask(client, "talks", None) if with_sessions else client.receiver(queue, credit=5)
    refusal = client.refusal(receiver.link)
    assert refusal is not None
    assert refusal.condition == "amqp:not-allowed"
    assert "its transactions go through 'b'" in str(refusal.description)
    assert client.is_attached(client.receiver("b", "of the first").link)
    assert client.is_attached(client.receiver("b/$DeadLetterQueue", "its dead letters").link)
    assert client.is_attached(client.sender(queue, "another").link)


def test_in_a_new_session_it_can_be_the_first(
    world: World, client: Client, control: Control
) -> None:
    """As .NET goes on after such a refusal: with a session of its own for B, to C by way of B."""
    for path in "abc":
        world.queue(path)
    client.sender("b", "first").send(message("work"))
    assert client.refusal(client.receiver("a", "refused").link) is not None
    session = other_session(client)
    second = Control(client, "second", session)
    receiver = client.receiver("b", "from b", credit=1, session=session)
    sender = client.sender("c", "to c", session=session)
    txn = second.declare()
    assert isinstance(txn.settle(receiver, receiver.deliveries, Accepted()), Accepted)
    assert isinstance(txn.send(sender, message("done")), Accepted)
    txn.commit()
    world.settle(for_ms=1_000)
    assert world.connect().receiver("c", credit=5).bodies == ["done"]


@pytest.mark.parametrize("coordinator", ["none", "in another session", "attached later"])
def test_without_a_coordinator_before_it_a_session_has_receivers_of_many_entities(
    world: World, client: Client, coordinator: str
) -> None:
    """As SDKs have that use one session for several entities, and no transactions."""
    for path in "abc":
        world.queue(path)
    if coordinator == "in another session":
        Control(client, session=other_session(client))
    client.sender("a", "first").send(message("one"))
    if coordinator == "attached later":
        Control(client)
    for path in "abc":
        assert client.is_attached(client.receiver(path, f"from {path}").link)


def test_messages_of_another_entity_cannot_be_settled_in_a_transaction(
    world: World, client: Client
) -> None:
    world.queue("a")
    world.queue("b")
    client.sender("a", "a").send(message("in a"))
    client.sender("b", "b").send(message("in b"))
    receiver = client.receiver("b", credit=1)
    txn = Control(client).declare()  # after the others: so the receiver was not refused
    state = txn.settle(receiver, receiver.deliveries, Accepted())
    assert condition(state) == "amqp:not-allowed"
    text = str(error(state).description)
    assert "send via 'a'" in text
    assert "EnableCrossEntityTransactions" in text
    txn.is_doomed()
    assert isinstance(receiver.settle(receiver.deliveries, Accepted()), Accepted)


def test_who_waits_for_a_session_is_the_first_unless_none_comes(
    world: World, client: Client, control: Control
) -> None:
    world.queue("talks", requires_session=True)
    world.queue("b")
    waiting = ask(client, "talks", None, timeout_ms=5_000)
    client.sender("b", "second")
    refused = client.receiver("b", "too early")
    assert client.refusal(refused.link) is not None
    world.settle(for_ms=6_000)
    assert client.refusal(waiting.link) is not None
    assert client.is_attached(client.receiver("b", "now").link)


def test_a_session_accepted_first_is_what_transactions_go_through(
    world: World, client: Client, control: Control, partitioned: bool
) -> None:
    world.queue("talks", requires_session=True, enable_partitioning=partitioned)
    world.queue("out", requires_session=True, enable_partitioning=partitioned)
    receiver = ask(client, "talks", None)  # its attach is answered when there is a session
    sender = client.sender("out", "out")
    world.connect().sender("talks").send(message("work", session_id="s"))
    receiver.credit(5)
    assert receiver.bodies == ["work"]
    txn = control.declare()
    keyed = message("done", session_id="s", annotations={"x-opt-via-partition-key": "s"})
    assert isinstance(txn.send(sender, keyed), Accepted)
    assert isinstance(txn.settle(receiver, receiver.deliveries, Accepted()), Accepted)
    txn.commit()
    world.settle(for_ms=1_000)
    assert ask(world.connect(), "out", "s", credit=5).bodies == ["done"]


def test_a_via_key_of_another_partition_than_the_settled_message_s_is_refused(
    world: World, client: Client, control: Control
) -> None:
    """TXN-5: the text names the key."""
    world.queue("in", enable_partitioning=True)
    world.queue("out")
    world.connect().sender("in").send(message("work", partition_key="k"))
    receiver = client.receiver("in", credit=1)
    sender = client.sender("out", "out")
    txn = control.declare()
    assert isinstance(txn.settle(receiver, receiver.deliveries, Accepted()), Accepted)
    state = txn.send(sender, message("done", annotations={"x-opt-via-partition-key": "another"}))
    assert condition(state) == "amqp:not-allowed"
    text = str(error(state).description)
    assert text.startswith("Local transactions cannot span multiple entities or partitions")
    assert "ViaPartitionKey (TransactionPartitionKey) 'another'" in text
    txn.is_doomed()


def test_what_is_sent_with_a_via_key_is_completed_and_sent_on_with_it(
    world: World, client: Client, control: Control
) -> None:
    """As .NET does with TransactionPartitionKey alone: a direct send goes by it, too."""
    world.queue("in", enable_partitioning=True)
    world.queue("out", enable_partitioning=True)
    keyed = {"annotations": {"x-opt-via-partition-key": "k"}}
    world.connect().sender("in").send(message("work", **keyed))
    receiver = client.receiver("in", credit=1)
    txn = control.declare()
    assert isinstance(txn.settle(receiver, receiver.deliveries, Accepted()), Accepted)
    assert isinstance(txn.send(client.sender("out", "out"), message("done", **keyed)), Accepted)
    txn.commit()
    world.settle(for_ms=1_000)
    assert world.connect().receiver("out", credit=5).bodies == ["done"]


def test_a_subscription_and_its_topic_are_one_top_level_entity(
    world: World, client: Client
) -> None:
    world.topic("news")
    world.subscription("news", "s")
    sender = client.sender("news")
    sender.send(message("first"))
    receiver = client.receiver("news/Subscriptions/s", credit=5)
    txn = Control(client, session=other_session(client)).declare()
    txn.settle(receiver, receiver.deliveries, Accepted())
    assert isinstance(txn.send(sender, message("second")), Accepted)
    txn.commit()
    assert receiver.bodies == ["first", "second"]  # TXN-3


# --- Send-via ------------------------------------------------------------------------------------

VIA = Symbol("com.microsoft:transfer-destination-address")


@pytest.mark.parametrize("partitioned", [False, True])
def test_send_via_another_entity(world: World, client: Client, partitioned: bool) -> None:
    world.queue("in", enable_partitioning=partitioned)
    world.queue("out")
    client.sender("in").send(message("work", partition_key="k"))
    receiver = client.receiver("in", credit=1)
    via = client.sender("in", "via", properties={VIA: "out"})
    assert via.link.properties is not None
    assert via.link.properties[VIA] == "out"
    txn = Control(client, session=other_session(client)).declare()
    txn.settle(receiver, receiver.deliveries, Accepted())
    keyed = message("done", annotations={"x-opt-via-partition-key": "k"})
    assert isinstance(txn.send(via, keyed), Accepted)  # TXN-5
    txn.commit()
    world.settle(for_ms=1_000)
    assert client.receiver("out", "out", credit=5).bodies == ["done"]


def test_send_via_without_a_transaction(world: World, client: Client) -> None:
    world.queue("in")
    world.queue("out")
    via = client.sender("in", "via", properties={VIA: "out"})
    assert isinstance(via.send(message("hello")), Accepted)
    world.settle(for_ms=1_000)
    assert client.receiver("out", "out", credit=5).bodies == ["hello"]
    assert client.receiver("in", "in", credit=5).deliveries == []


def test_what_is_scheduled_stays_scheduled_where_it_is_sent_via(
    world: World, client: Client
) -> None:
    world.queue("in")
    world.queue("out")
    via = client.sender("in", "via", properties={VIA: "out"})
    due = Timestamp(world.scheduler.now_ms() + 60_000)
    via.send(message("later", annotations={"x-opt-scheduled-enqueue-time": due}))
    receiver = client.receiver("out", "out", credit=5)
    world.settle(for_ms=10_000)
    assert receiver.deliveries == []
    world.settle(for_ms=60_000)
    assert receiver.bodies == ["later"]


def test_what_cannot_be_transferred_is_a_transfer_dead_letter(world: World, client: Client) -> None:
    world.queue("in")
    world.queue("out", status=EntityStatus.SEND_DISABLED)
    via = client.sender("in", "via", properties={VIA: "out"})
    assert isinstance(via.send(message("lost")), Accepted)
    world.settle(for_ms=1_000)
    dead = client.receiver("in/$Transfer/$DeadLetterQueue", "dead", credit=5)
    assert dead.bodies == ["lost"]  # FWD-5
    world.catalog.delete("out")
    assert condition(via.send(message("nowhere"))) == "amqp:not-found"


def test_fwd_5_a_full_destination_is_an_error_for_who_sends_via(
    world: World, client: Client
) -> None:
    """And nothing of it is in a dead-letter queue."""
    world.queue("in")
    world.queue("out")
    client.sender("out").fill(1)
    via = client.sender("in", "via", properties={VIA: "out"})
    with patch.object(Queue, "max_size_bytes", 200):
        refused = via.send(message("x" * 200))
        assert condition(refused) == "amqp:resource-limit-exceeded"
    world.settle(for_ms=1_000)
    assert client.receiver("in/$Transfer/$DeadLetterQueue", "tdlq", credit=5).bodies == []
    assert client.receiver("in/$DeadLetterQueue", "dlq", credit=5).bodies == []
    assert isinstance(via.send(message("fits")), Accepted)


@pytest.mark.parametrize("partitioned", [False, True])
def test_fwd_5_a_full_destination_rolls_a_transaction_back(
    world: World, client: Client, control: Control, partitioned: bool
) -> None:
    """D-28: quotas are looked at when it is discharged. What it settled is still there."""
    world.queue("in")
    world.queue("out", enable_partitioning=partitioned)
    client.sender("in").fill(1)
    receiver = client.receiver("in", credit=1)
    via = client.sender("in", "via", properties={VIA: "out"})
    txn = control.declare()
    txn.settle(receiver, receiver.deliveries, Accepted())
    assert isinstance(txn.send(via, message("x" * 300, partition_key="k")), Accepted)
    with patch.object(Queue, "max_size_bytes", 200):
        client.sender("out", "fills it").send(message("y" * 100, partition_key="k"))
        outcome = txn.discharge()
    assert condition(outcome) == "amqp:transaction:rollback"
    assert "The maximum entity size has been reached" in outcome.error.description
    world.settle(for_ms=1_000)
    requests = client.requests("in/$management")
    status, _ = requests.manage("peek-message", from_sequence_number=0, message_count=5)
    assert status == 200


def test_fwd_5_a_destination_that_was_deleted_rolls_a_transaction_back(
    world: World, client: Client, control: Control
) -> None:
    world.queue("in")
    world.queue("out")
    via = client.sender("in", "via", properties={VIA: "out"})
    txn = control.declare()
    assert isinstance(txn.send(via, message("x")), Accepted)
    world.catalog.delete("out")
    assert condition(txn.discharge()) == "amqp:transaction:rollback"
    assert client.receiver("in/$Transfer/$DeadLetterQueue", "tdlq", credit=5).bodies == []


def test_send_via_takes_the_right_to_send_to_both(world: World) -> None:
    world.queue("in")
    world.queue("out")
    client = world.connect(token=False)
    client.put_token("in")
    link = client.sender("in", "via", properties={VIA: "out"}).link
    refusal = client.refusal(link)
    assert refusal is not None
    assert refusal.condition == "amqp:unauthorized-access"  # amqp.md 18
