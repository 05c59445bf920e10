"""Plain AMQP 1.0: SASL PLAIN, links, credit, drain and outcomes, without anything of Azure's."""

from __future__ import annotations

import pytest
from conversation import ACCEPTED, MODIFIED, REJECTED, RELEASED, Conversation, keyed
from proton import ConnectionException, Message, symbol
from proton.utils import LinkDetached


def test_a_message_is_accepted_delivered_and_settled(client: Conversation, queue: str) -> None:
    sent = Message(body="hello", id="m-1", subject="greeting", properties={"a": 1, "b": "ä"})
    assert client.send(client.sender(queue), sent).state == ACCEPTED
    receiver = client.receiver(queue)
    [(message, delivery)] = receiver.receive()
    assert (message.body, message.id, message.subject) == ("hello", "m-1", "greeting")
    assert message.properties == {"a": 1, "b": "ä"}
    assert symbol("x-opt-sequence-number") in message.annotations
    assert receiver.settle(delivery).state == ACCEPTED
    assert receiver.is_empty()


def test_no_more_is_delivered_than_there_is_credit(client: Conversation, queue: str) -> None:
    sender = client.sender(queue)
    for number in range(5):
        client.send(sender, keyed(f"m{number}"))
    receiver = client.receiver(queue)
    assert [message.body for message, _ in receiver.receive(2)] == ["m0", "m1"]
    # Whatever the broker would send beyond the credit came before the answer to this one.
    client.send(sender, keyed("m5"))
    assert receiver.inbox.arrived == []
    assert [message.body for message, _ in receiver.receive(4)] == ["m2", "m3", "m4", "m5"]


def test_drain_gives_credit_back(client: Conversation, queue: str) -> None:
    receiver = client.receiver(queue)
    assert receiver.is_empty()
    assert receiver.link.credit == 0
    client.send(client.sender(queue), keyed("after"))
    assert not receiver.inbox.arrived
    assert receiver.receive()[0][0].body == "after"


def test_release_gives_back_uncounted_and_modified_counts(client: Conversation, queue: str) -> None:
    client.send(client.sender(queue), Message(body="again"))
    receiver = client.receiver(queue)
    counts = []
    for state in (RELEASED, MODIFIED, ACCEPTED):
        [(message, delivery)] = receiver.receive()
        counts.append(message.delivery_count)
        assert receiver.settle(delivery, state).state == state
    assert counts == [0, 0, 1]
    assert receiver.is_empty()


def test_rejected_goes_to_the_dead_letter_queue(client: Conversation, queue: str) -> None:
    client.send(client.sender(queue), Message(body="bad"))
    receiver = client.receiver(queue)
    [(_, delivery)] = receiver.receive()
    assert receiver.settle(delivery, REJECTED).state == REJECTED
    dead = client.receiver(f"{queue}/$DeadLetterQueue")
    [(message, delivery)] = dead.receive()
    assert message.body == "bad"
    dead.settle(delivery)


def test_a_message_larger_than_a_frame_passes(client: Conversation, queue: str) -> None:
    body = b"x" * 200_000
    assert client.send(client.sender(queue), Message(body=body)).state == ACCEPTED
    assert client.receiver(queue).receive()[0][0].body == body


def test_a_wrong_key_is_refused() -> None:
    with pytest.raises(ConnectionException, match=r"(?i)auth|unauthorized"):
        Conversation(password="wrong")


def test_an_unknown_queue_is_not_found(client: Conversation) -> None:
    with pytest.raises(LinkDetached) as refused:
        client.sender("no-such-queue")
    assert refused.value.condition == "amqp:not-found"
