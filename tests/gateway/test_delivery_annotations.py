"""Delivery annotations: the sender's own come back, with the lock token beside them (N-8)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from busway.amqp import codec
from busway.amqp.performatives import Modified, Rejected
from busway.amqp.types import Described, Symbol, ULong
from busway.model.entities import Rule
from tests.gateway.world import Client, Receiver, World, longs, message, sections

OWN = {"x-opt-way": "by air", "nothing": None}


def annotated(text: str = "hello", **options: Any) -> bytes:
    own = {Symbol(name): value for name, value in OWN.items()}
    return codec.encode_value(Described(ULong(0x71), own)) + message(text, **options)


def annotations(payload: bytes) -> dict[str, Any]:
    return {str(key): value for key, value in sections(payload)[0x71].items()}


def token_of(receiver: Receiver) -> dict[str, Any]:
    return {"x-opt-lock-token": UUID(bytes_le=receiver.deliveries[-1].tag)}


def test_a_locked_delivery_has_its_token_and_what_the_sender_wrote(
    client: Client, queue: str
) -> None:
    client.sender(queue).send(annotated())
    receiver = client.receiver(queue, credit=1)
    assert annotations(receiver.deliveries[0].payload) == OWN | token_of(receiver)


def test_a_delivery_without_any_has_the_token_alone(client: Client, queue: str) -> None:
    client.sender(queue).send(message())
    receiver = client.receiver(queue, credit=1)
    assert annotations(receiver.deliveries[0].payload) == token_of(receiver)


@pytest.mark.parametrize("own", [OWN, {}], ids=["some", "none"])
def test_received_and_deleted_or_peeked_there_is_no_token(
    client: Client, queue: str, own: dict[str, Any]
) -> None:
    client.sender(queue).send(annotated() if own else message())
    manage = client.requests(f"{queue}/$management")
    _, peeked = manage.manage("peek-message", from_sequence_number=0, message_count=1)
    assert annotations(peeked["messages"][0]["message"]) == own
    receiver = client.receiver(queue, credit=1, delete=True)
    assert annotations(receiver.deliveries[0].payload) == own


def test_a_message_without_an_id_is_given_one_behind_them(client: Client, queue: str) -> None:
    client.sender(queue).send(annotated(message_id=None))
    (delivery,) = client.receiver(queue, credit=1).deliveries
    assert len(sections(delivery.payload)[0x73][0]) == 32


def test_they_survive_deferral_and_the_dead_letter_queue(client: Client, queue: str) -> None:
    client.sender(queue).send(annotated())
    receiver = client.receiver(queue, credit=1)
    (delivery,) = receiver.deliveries
    number = sections(delivery.payload)[0x72]["x-opt-sequence-number"]
    receiver.settle([delivery], Modified(undeliverable_here=True))
    manage = client.requests(f"{queue}/$management")
    status, found = manage.manage(
        "receive-by-sequence-number", sequence_numbers=longs(number), receiver_settle_mode=ULong(1)
    )
    assert status == 200
    token = found["messages"][0]["lock-token"]
    assert annotations(found["messages"][0]["message"]) == OWN | {"x-opt-lock-token": token}
    manage.manage("update-disposition", disposition_status="suspended", lock_tokens=[token])
    dead = client.receiver(f"{queue}/$DeadLetterQueue", "dead", credit=1)
    assert annotations(dead.deliveries[0].payload) == OWN | token_of(dead)


@pytest.mark.parametrize("partitioned", [False, True])
def test_copies_and_forwarded_messages_have_them(
    world: World, client: Client, partitioned: bool
) -> None:
    world.topic("news", enable_partitioning=partitioned)
    world.queue("end", enable_partitioning=partitioned)
    world.subscription("news", "plain")
    acted = Rule(name="acted", action="SET seen = 1; SET sys.Label = 'new'")
    world.subscription("news", "acted", rules=[acted])
    world.subscription("news", "forwarded", forward_to="end")
    client.sender("news").send(annotated())
    for number, path in enumerate(("news/Subscriptions/plain", "news/Subscriptions/acted", "end")):
        receiver = client.receiver(path, f"r{number}", credit=5)
        (delivery,) = receiver.deliveries
        assert annotations(delivery.payload) == OWN | token_of(receiver)
        receiver.settle([delivery], Rejected())
        dead = client.receiver(f"{path}/$DeadLetterQueue", f"d{number}", credit=5)
        assert annotations(dead.deliveries[0].payload) == OWN | token_of(dead)
