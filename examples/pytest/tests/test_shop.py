"""Each test has a broker of its own, as far as it can tell, and opens its own links."""

from __future__ import annotations

from datetime import timedelta

from azure.servicebus import ServiceBusMessage
from shop import place, remind, waiting, work


def test_an_order_is_taken_twice_only_after_its_window(busway, client) -> None:
    window = timedelta(hours=1)
    queue = busway.queue(
        requires_duplicate_detection=True, duplicate_detection_history_time_window=window
    )
    with client.get_queue_sender(queue) as sender:
        for passing in (0, 0.5, 1):
            busway.clock.advance(window * passing)
            place(sender, "book")
    assert waiting(client, queue) == ["book", "book"]


def test_a_session_is_free_again_when_its_worker_is_too_slow(busway, client) -> None:
    queue = busway.queue(requires_session=True, lock_duration=timedelta(minutes=5))
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("book", session_id="reader"))
    with client.get_queue_receiver(queue, session_id="reader") as slow:
        slow.receive_messages(max_wait_time=20)
        busway.clock.advance(minutes=5)
        with client.get_queue_receiver(queue, session_id="reader") as receiver:
            (message,) = receiver.receive_messages(max_wait_time=20)
            assert str(message) == "book"


def test_a_reminder_reaches_every_department(busway, client) -> None:
    topic = busway.topic(subscriptions=["sales", "stock"])
    with client.get_topic_sender(topic) as sender:
        remind(sender, "book", busway.clock.now() + timedelta(days=7))
    busway.clock.advance(days=7)
    for department in ("sales", "stock"):
        with client.get_subscription_receiver(topic, department) as receiver:
            assert work(receiver, lambda order: None)


def test_a_queue_that_nobody_uses_goes(busway, client) -> None:
    queue = busway.queue(auto_delete_on_idle=timedelta(minutes=5))
    busway.clock.advance(minutes=6)
    busway.queue(queue)  # the name is free


def test_an_order_survives_a_crash(busway, client) -> None:
    queue = busway.queue()
    with client.get_queue_sender(queue) as sender:
        place(sender, "book")
    busway.server.kill()
    busway.server.restart()
    assert waiting(client, queue) == ["book"]
