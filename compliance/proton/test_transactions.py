"""Transactions by coordinator link, as the AMQP standard has them (part 4) and TXN limits them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from conversation import ACCEPTED, MODIFIED, REJECTED, Conversation, Coordinator, keyed, take
from proton import Message
from proton.utils import LinkDetached

UNKNOWN = "amqp:transaction:unknown-id"


@pytest.fixture
def coordinator(client: Conversation) -> Coordinator:
    return client.coordinator()


def test_ids_differ(coordinator: Coordinator) -> None:
    first, second = coordinator.declare(), coordinator.declare()
    assert first != second
    assert coordinator.commit(first).state == ACCEPTED
    assert coordinator.roll_back(second).state == ACCEPTED


def test_what_is_sent_is_there_after_the_commit(
    client: Conversation, coordinator: Coordinator, queue: str
) -> None:
    sender, receiver = client.sender(queue), client.receiver(queue)
    transaction = coordinator.declare()
    for number in range(3):
        outcome = client.send(sender, keyed(f"m{number}"), transaction)
        assert (outcome.state, outcome.transaction) == (ACCEPTED, transaction)
    assert receiver.is_empty()
    assert coordinator.commit(transaction).state == ACCEPTED
    assert [message.body for message, _ in receiver.receive(3)] == ["m0", "m1", "m2"]


def test_what_is_rolled_back_never_was(
    client: Conversation, coordinator: Coordinator, queue: str
) -> None:
    transaction = coordinator.declare()
    client.send(client.sender(queue), keyed("never"), transaction)
    assert coordinator.roll_back(transaction).state == ACCEPTED
    assert client.receiver(queue).is_empty()


def test_settling_and_sending_are_one(
    client: Conversation, coordinator: Coordinator, queue: str
) -> None:
    sender, receiver = client.sender(queue), client.receiver(queue)
    client.send(sender, keyed("request"))
    [(_, delivery)] = receiver.receive()
    transaction = coordinator.declare()
    outcome = receiver.settle(delivery, ACCEPTED, transaction)
    assert (outcome.state, outcome.transaction) == (ACCEPTED, transaction)
    client.send(sender, keyed("answer"), transaction)
    assert receiver.is_empty()
    assert coordinator.commit(transaction).state == ACCEPTED
    [(message, delivery)] = receiver.receive()
    assert message.body == "answer"
    receiver.settle(delivery)
    assert receiver.is_empty()


def test_all_outcomes_take_part(client: Conversation, coordinator: Coordinator, queue: str) -> None:
    sender, receiver = client.sender(queue), client.receiver(queue)
    for body in ("abandoned", "rejected"):
        client.send(sender, keyed(body))
    (_, first), (_, second) = receiver.receive(2)
    transaction = coordinator.declare()
    assert receiver.settle(first, MODIFIED, transaction).state == MODIFIED
    assert receiver.settle(second, REJECTED, transaction).state == REJECTED
    assert receiver.is_empty()
    assert coordinator.commit(transaction).state == ACCEPTED
    [(message, _)] = receiver.receive()
    assert (message.body, message.delivery_count) == ("abandoned", 1)
    assert client.receiver(f"{queue}/$DeadLetterQueue").receive()[0][0].body == "rejected"


def test_a_settlement_rolled_back_leaves_the_message_locked(
    client: Conversation, coordinator: Coordinator, entity: Callable[[str], str]
) -> None:
    """TXN-2: it comes back when its lock ends, of five seconds here."""
    queue = entity("short")
    receiver = client.receiver(queue)
    client.send(client.sender(queue), keyed("kept"))
    [(_, delivery)] = receiver.receive()
    transaction = coordinator.declare()
    receiver.settle(delivery, ACCEPTED, transaction)
    assert coordinator.roll_back(transaction).state == ACCEPTED
    assert receiver.is_empty()
    assert receiver.receive()[0][0].body == "kept"


def test_a_commit_settles_the_delivery(
    client: Conversation, coordinator: Coordinator, queue: str
) -> None:
    receiver = client.receiver(queue)
    client.send(client.sender(queue), keyed("done"))
    [(_, delivery)] = receiver.receive()
    transaction = coordinator.declare()
    receiver.settle(delivery, ACCEPTED, transaction)
    assert coordinator.commit(transaction).state == ACCEPTED
    assert client.outcome(delivery).state == ACCEPTED


def test_after_a_rollback_the_delivery_is_settled_again(
    client: Conversation, coordinator: Coordinator, queue: str
) -> None:
    receiver = client.receiver(queue)
    client.send(client.sender(queue), keyed("again"))
    [(_, delivery)] = receiver.receive()
    transaction = coordinator.declare()
    receiver.settle(delivery, ACCEPTED, transaction)
    assert coordinator.roll_back(transaction).state == ACCEPTED
    assert not delivery.settled
    assert receiver.settle(delivery).state == ACCEPTED
    assert receiver.is_empty()


@pytest.mark.parametrize("discharge", [Coordinator.commit, Coordinator.roll_back])
def test_an_unknown_transaction_is_said_to_be_unknown(
    coordinator: Coordinator, discharge: Callable[..., object]
) -> None:
    outcome = discharge(coordinator, b"no such transaction")
    assert (outcome.state, outcome.condition) == (REJECTED, UNKNOWN)  # type: ignore[attr-defined]


def test_a_discharged_transaction_is_unknown(
    client: Conversation, coordinator: Coordinator, queue: str
) -> None:
    sender = client.sender(queue)
    transaction = coordinator.declare()
    client.send(sender, keyed("one"), transaction)
    assert coordinator.commit(transaction).state == ACCEPTED
    again = coordinator.commit(transaction)
    assert (again.state, again.condition) == (REJECTED, UNKNOWN)
    late = client.send(sender, keyed("late"), transaction)
    assert (late.state, late.condition) == (REJECTED, UNKNOWN)


@pytest.mark.parametrize("loss", ["link", "connection"])
def test_losing_the_coordinator_rolls_back(queue: str, loss: str) -> None:
    with Conversation() as lost:
        coordinator = lost.coordinator()
        lost.send(lost.sender(queue), keyed("never"), coordinator.declare())
        if loss == "link":
            coordinator.link.close()
            lost.send(lost.sender(queue), keyed("plain"))
    with Conversation() as client:
        receiver = client.receiver(queue)
        if loss == "link":
            [(message, delivery)] = receiver.receive()
            assert message.body == "plain"
            receiver.settle(delivery)
        assert receiver.is_empty()


def test_one_entity_only(
    client: Conversation, coordinator: Coordinator, entity: Callable[[str], str]
) -> None:
    """TXN-3, unless all links are in the session of the coordinator (cross-entity mode)."""
    first, second = client.sender(entity("queue")), _in_another_session(client, entity("queue"))
    transaction = coordinator.declare()
    assert client.send(first, keyed("one"), transaction).state == ACCEPTED
    refused = client.send(second, keyed("two"), transaction)
    assert (refused.state, refused.condition) == (REJECTED, "amqp:not-allowed")
    coordinator.roll_back(transaction)


def test_a_partitioned_queue_wants_one_key(client: Conversation, coordinator: Coordinator) -> None:
    """P-33 and P-34."""
    sender = client.sender(take("queue", "partitioned"))
    transaction = coordinator.declare()
    without = client.send(sender, Message(body="no key"), transaction)
    assert (without.state, without.condition) == (REJECTED, "amqp:not-allowed")
    coordinator.roll_back(transaction)
    transaction = coordinator.declare()
    client.send(sender, keyed("a", "a"), transaction)
    other = client.send(sender, keyed("b", "b"), transaction)
    assert (other.state, other.condition) == (REJECTED, "amqp:not-allowed")
    coordinator.roll_back(transaction)


def test_send_via_moves_on_after_the_commit(
    client: Conversation, coordinator: Coordinator, entity: Callable[[str], str]
) -> None:
    via, destination = entity("queue"), entity("queue")
    receiver = client.receiver(via)
    client.send(client.sender(via), keyed("request"))
    [(_, delivery)] = receiver.receive()
    sender = client.sender(via, destination=destination)
    transaction = coordinator.declare()
    receiver.settle(delivery, ACCEPTED, transaction)
    message = keyed("answer")
    message.annotations["x-opt-via-partition-key"] = "key"
    assert client.send(sender, message, transaction).state == ACCEPTED
    with Conversation() as outside:  # TXN-3: a coordinator's session receives from one entity
        target = outside.receiver(destination)
        assert target.is_empty()
        assert coordinator.commit(transaction).state == ACCEPTED
        assert target.receive()[0][0].body == "answer"
    assert receiver.is_empty()


def test_a_receiver_of_another_entity_is_refused(
    client: Conversation, coordinator: Coordinator, entity: Callable[[str], str]
) -> None:
    """TXN-3: where the coordinator came first, all goes through the first link's entity."""
    client.sender(entity("queue"))
    with pytest.raises(LinkDetached, match="its transactions go through"):
        client.receiver(entity("queue"))


def _in_another_session(client: Conversation, address: str) -> object:
    session = client.connection.conn.session()
    session.open()
    link = session.sender(f"another-{address}")
    link.target.address = address
    link.open()
    client.wait(lambda: link.credit > 0, "the link is open")
    return link
