"""One partition that is unavailable, seen by a sender with other keys to send, too (N-14, P-41).

At *server busy* this SDK pauses a sender: for 10 s it sends nothing, and an operation whose time is
shorter than that fails without a frame. So a refusal of one partition must be another condition.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from partly_ill import QUEUE, PartlyIll, partly_ill
from sdk import result
from world import Address, message, refusal, seconds

# isort: split

from Azure.Messaging.ServiceBus import (
    ServiceBusFailureReason,
    ServiceBusRetryMode,
    ServiceBusRetryOptions,
)

BUSY_FOR_S = 10
"""How long the SDK pauses a sender that was told *server busy*."""


@pytest.fixture(scope="module")
def broker() -> Iterator[PartlyIll]:
    with partly_ill() as broker:
        yield broker


def test_p_41_a_refusal_of_one_partition_keeps_no_other_send_back(broker: PartlyIll) -> None:
    options = ServiceBusRetryOptions()
    options.MaxRetries = 0
    options.TryTimeout = seconds(BUSY_FOR_S - 3)  # a send that is held back fails by itself
    client = Address(broker.connection_string, "").connect("plain", RetryOptions=options)
    sender = client.CreateSender(QUEUE)
    broker.switch("gone")
    try:
        for key in broker.healthy_keys:
            ill = message("waits", PartitionKey=broker.ill_key)
            error = refusal(lambda ill=ill: result(sender.SendMessageAsync(ill)))
            assert error.IsTransient
            assert "is temporarily unavailable" in error.Message
            result(sender.SendMessageAsync(message("goes on", PartitionKey=key)))
            assert error.Reason == ServiceBusFailureReason.ServiceTimeout
    finally:
        broker.switch("none")
        result(client.DisposeAsync())


def test_p_24_a_send_that_is_tried_again_is_taken_when_the_partition_is_back(
    broker: PartlyIll,
) -> None:
    options = ServiceBusRetryOptions()
    options.Mode = ServiceBusRetryMode.Fixed
    options.MaxRetries, options.Delay = 100, seconds(0.25)
    client = Address(broker.connection_string, "").connect("plain", RetryOptions=options)
    sender = client.CreateSender(QUEUE)
    broker.switch("gone")
    try:
        waiting = sender.SendMessageAsync(message("waits", PartitionKey=broker.ill_key))
        for key in broker.healthy_keys:
            result(sender.SendMessageAsync(message("goes on", PartitionKey=key)))
        assert not waiting.IsCompleted
        broker.switch("none")
        result(waiting)
    finally:
        broker.switch("none")
        result(client.DisposeAsync())
