"""A small application: orders are placed, held for a while, and handled by a worker."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceiver,
    ServiceBusSender,
)

Handle = Callable[[str], None]


def place(sender: ServiceBusSender, order: str, *, valid_for: timedelta | None = None) -> None:
    sender.send_messages(ServiceBusMessage(order, message_id=order, time_to_live=valid_for))


def remind(sender: ServiceBusSender, order: str, at: datetime) -> int:
    """A reminder that comes at a time, unless it is cancelled with the number given here."""
    (number,) = sender.schedule_messages(ServiceBusMessage(f"remind {order}"), at)
    return number


def work(receiver: ServiceBusReceiver, handle: Handle, *, wait_s: float = 20) -> bool:
    """Handle one message. One that fails is given back, and whether there was one is told."""
    for message in receiver.receive_messages(max_message_count=1, max_wait_time=wait_s):
        try:
            handle(str(message))
        except Exception:
            receiver.abandon_message(message)
        else:
            receiver.complete_message(message)
        return True
    return False


def waiting(client: ServiceBusClient, queue: str) -> list[str]:
    with client.get_queue_receiver(queue) as receiver:
        return [str(each) for each in receiver.peek_messages(max_message_count=50)]
