"""One partition that is unavailable, seen by a sender with other keys to send, too (N-14, P-41).

The same for .NET, JavaScript, Java and Go is in `compliance/`.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import OperationTimeoutError

from compliance.partly_ill import QUEUE, PartlyIll, partly_ill


@pytest.fixture(scope="module")
def broker() -> Iterator[PartlyIll]:
    with partly_ill() as broker:
        yield broker


def to(key: str) -> ServiceBusMessage:
    return ServiceBusMessage("x", partition_key=key)


def test_p_41_a_refusal_of_one_partition_keeps_no_other_send_back(broker: PartlyIll) -> None:
    with (
        ServiceBusClient.from_connection_string(broker.connection_string, retry_total=0) as client,
        client.get_queue_sender(QUEUE) as sender,
    ):
        broker.switch("gone")
        try:
            for key in broker.healthy_keys:
                with pytest.raises(OperationTimeoutError, match="is temporarily unavailable"):
                    sender.send_messages(to(broker.ill_key))
                sender.send_messages(to(key))
        finally:
            broker.switch("none")


def test_p_24_a_send_that_is_tried_again_is_taken_when_the_partition_is_back(
    broker: PartlyIll,
) -> None:
    patient = {"retry_total": 200, "retry_backoff_factor": 0.25, "retry_mode": "fixed"}
    with (
        ServiceBusClient.from_connection_string(broker.connection_string, **patient) as client,
        client.get_queue_sender(QUEUE) as sender,
        client.get_queue_sender(QUEUE) as other,
        ThreadPoolExecutor(1) as background,
    ):
        broker.switch("gone")
        try:
            waiting = background.submit(sender.send_messages, to(broker.ill_key))
            for key in broker.healthy_keys:
                other.send_messages(to(key))
            assert not waiting.done()
        finally:
            broker.switch("none")
        waiting.result(timeout=60)
