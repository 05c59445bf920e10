"""Ninety-five tests of minutes to days over two links; none of them waits for any of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

import pytest
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
    ServiceBusSender,
)
from azure.servicebus.exceptions import MessageLockLostError
from shop import place, remind, work

from busway.testing import Clock

LOCK = timedelta(minutes=5)
MINUTES = [10, 12, 15, 20, 25, 30, 40, 50, 60, 90, 120, 180, 240, 360, 720, 1440, 2880, 5760, 10080]


@dataclass
class Shop:
    clock: Clock
    sender: ServiceBusSender
    receiver: ServiceBusReceiver
    dead_letters: ServiceBusReceiver

    def states(self) -> list[str]:
        return [each.state.name for each in self.receiver.peek_messages(max_message_count=10)]

    def take(self) -> ServiceBusReceivedMessage:
        (message,) = self.receiver.receive_messages(max_message_count=1, max_wait_time=20)
        return message


@pytest.fixture(scope="module")
def links(busway_module) -> Iterator[Shop]:
    queue = busway_module.queue(lock_duration=LOCK, dead_lettering_on_message_expiration=True)
    with (
        ServiceBusClient.from_connection_string(busway_module.connection_string) as client,
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue) as receiver,
        client.get_queue_receiver(queue, sub_queue="deadletter") as dead_letters,
    ):
        yield Shop(busway_module.clock, sender, receiver, dead_letters)


@pytest.fixture
def shop(links: Shop) -> Iterator[Shop]:
    yield links
    assert links.states() == [], "a test has left something behind for the next"


@pytest.mark.parametrize("minutes", MINUTES)
def test_a_reminder_comes_at_its_time(shop: Shop, minutes: int) -> None:
    handled: list[str] = []
    remind(shop.sender, "book", shop.clock.now() + timedelta(minutes=minutes))
    assert shop.states() == ["SCHEDULED"]
    shop.clock.advance(minutes=minutes)
    assert work(shop.receiver, handled.append)
    assert handled == ["remind book"]


@pytest.mark.parametrize("minutes", MINUTES)
def test_a_cancelled_reminder_never_comes(shop: Shop, minutes: int) -> None:
    number = remind(shop.sender, "book", shop.clock.now() + timedelta(minutes=minutes))
    shop.clock.advance(minutes=minutes / 2)
    assert shop.states() == ["SCHEDULED"]
    shop.sender.cancel_scheduled_messages(number)
    shop.clock.advance(minutes=minutes)
    assert shop.states() == []


@pytest.mark.parametrize("minutes", MINUTES)
def test_a_worker_that_is_too_slow_loses_its_order(shop: Shop, minutes: int) -> None:
    place(shop.sender, "book")
    first = shop.take()
    shop.clock.advance(LOCK + timedelta(minutes=minutes))
    with pytest.raises(MessageLockLostError):
        shop.receiver.complete_message(first)
    again = shop.take()
    assert again.delivery_count == 1
    shop.receiver.complete_message(again)


@pytest.mark.parametrize("times", range(1, 20))
def test_a_renewed_lock_holds(shop: Shop, times: int) -> None:
    place(shop.sender, "book")
    message = shop.take()
    for _ in range(times):
        shop.clock.advance(LOCK * 0.6)
        shop.receiver.renew_message_lock(message)
    shop.receiver.complete_message(message)


@pytest.mark.parametrize("minutes", MINUTES)
def test_an_order_that_nobody_handles_is_dead_lettered(shop: Shop, minutes: int) -> None:
    handled: list[str] = []
    place(shop.sender, "book", valid_for=timedelta(minutes=minutes))
    shop.clock.advance(minutes=minutes)
    assert shop.states() == []
    assert work(shop.dead_letters, handled.append)
    assert handled == ["book"]
