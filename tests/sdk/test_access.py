"""Who is let in, and what the SDK says to who is not."""

from __future__ import annotations

import time
from urllib.parse import quote_plus

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    ServiceBusAuthenticationError,
    ServiceBusConnectionError,
    ServiceBusError,
)

from busway.gateway import auth
from tests.sdk.conftest import WAIT_S, QueueUnderTest

RULE = "RootManageSharedAccessKey"
LONG_ENOUGH_S = 1.0
"""To hear of a refusal that comes after the link; who is let in waits so long for nothing."""

pytestmark = pytest.mark.parametrize("kind", ["conventional"])
"""Who may do what is decided before partitions are thought of."""


def fields(connection_string: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in connection_string.strip(";").split(";"))


def with_key(connection_string: str, key: str, rule: str = RULE) -> str:
    endpoint = fields(connection_string)["Endpoint"]
    return (
        f"Endpoint={endpoint};SharedAccessKeyName={rule};SharedAccessKey={key};"
        "UseDevelopmentEmulator=true;"
    )


def with_token(connection_string: str, path: str, *, lasts_s: int) -> str:
    """A connection string with a token made beforehand, for one path."""
    parts = fields(connection_string)
    resource = quote_plus(f"{parts['Endpoint'].rstrip('/')}/{path}")
    expiry = str(int(time.time()) + lasts_s)
    signature = quote_plus(auth.sign(resource, expiry, parts["SharedAccessKey"]))
    token = f"SharedAccessSignature sr={resource}&sig={signature}&se={expiry}&skn={RULE}"
    return (
        f"Endpoint={parts['Endpoint']};SharedAccessSignature={token};UseDevelopmentEmulator=true;"
    )


def send(queue: QueueUnderTest, connection_string: str, name: str | None = None) -> None:
    client = queue.connect(connection_string)
    with client.get_queue_sender(name or queue.name) as sender:
        sender.send_messages(ServiceBusMessage("let me in"))


def receive(queue: QueueUnderTest, connection_string: str, name: str | None = None) -> None:
    client = queue.connect(connection_string)
    with client.get_queue_receiver(name or queue.name) as receiver:
        receiver.receive_messages(max_wait_time=LONG_ENOUGH_S)


USES = pytest.mark.parametrize("use", [send, receive])


@USES
def test_a_wrong_key_is_not_let_in(queue: QueueUnderTest, use) -> None:
    with pytest.raises(ServiceBusAuthenticationError):
        use(queue, with_key(queue.server.connection_string, "not-the-key-of-this-server"))


@USES
def test_a_rule_that_does_not_exist_is_not_let_in(queue: QueueUnderTest, use) -> None:
    key = fields(queue.server.connection_string)["SharedAccessKey"]
    with pytest.raises(ServiceBusAuthenticationError):
        use(queue, with_key(queue.server.connection_string, key, "NoSuchRule"))


@USES
def test_a_queue_that_does_not_exist_is_not_found(queue: QueueUnderTest, use) -> None:
    """amqp.md 5: the service says so when the token is put, and Python speaks of authentication."""
    with pytest.raises(ServiceBusAuthenticationError):
        use(queue, queue.server.connection_string, "no-such-queue")


@USES
def test_a_token_for_the_queue_lets_in(queue: QueueUnderTest, use) -> None:
    """D-34."""
    use(queue, with_token(queue.server.connection_string, queue.name, lasts_s=600))


@USES
def test_a_token_for_another_queue_does_not(queue: QueueUnderTest, use) -> None:
    """D-34."""
    with pytest.raises(ServiceBusAuthenticationError):
        use(queue, with_token(queue.server.connection_string, "another", lasts_s=600))


@USES
def test_an_expired_token_does_not(queue: QueueUnderTest, use) -> None:
    with pytest.raises((ServiceBusAuthenticationError, ServiceBusConnectionError)):
        use(queue, with_token(queue.server.connection_string, queue.name, lasts_s=-60))


def test_a_refusal_does_not_disturb_who_is_in(queue: QueueUnderTest) -> None:
    queue.send("before")
    with pytest.raises(ServiceBusAuthenticationError):
        send(queue, with_key(queue.server.connection_string, "not-the-key-of-this-server"))
    queue.send("after")
    assert sorted(map(str, queue.receive(2))) == ["after", "before"]


@USES
@pytest.mark.queue(status="Disabled")
def test_a_disabled_queue_takes_and_gives_nothing(queue: QueueUnderTest, use) -> None:
    """STA-1, STA-2."""
    with pytest.raises(MessagingEntityDisabledError):
        use(queue, queue.server.connection_string)


@pytest.mark.queue(status="SendDisabled")
def test_a_queue_disabled_for_sending_still_gives(queue: QueueUnderTest) -> None:
    """STA-1, STA-2."""
    with pytest.raises(MessagingEntityDisabledError):
        send(queue, queue.server.connection_string)
    receive(queue, queue.server.connection_string)


@pytest.mark.queue(status="ReceiveDisabled")
def test_a_queue_disabled_for_receiving_still_takes(queue: QueueUnderTest) -> None:
    """STA-1, STA-2."""
    with pytest.raises(MessagingEntityDisabledError):
        receive(queue, queue.server.connection_string)
    send(queue, queue.server.connection_string)


def test_a_session_receiver_needs_a_queue_with_sessions(queue: QueueUnderTest) -> None:
    """amqp.md 11 and 15."""
    with (
        pytest.raises(ServiceBusError, match="sessionful"),
        queue.client.get_queue_receiver(queue.name, session_id="one") as receiver,
    ):
        receiver.receive_messages(max_wait_time=WAIT_S)
