"""The administration clients of the Python SDK, over TLS: what they make is what they read back."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
    ServiceRequestError,
)
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.management import (
    AccessRights,
    ApiVersion,
    AuthorizationRule,
    CorrelationRuleFilter,
    EntityStatus,
    FalseRuleFilter,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)

from busway.remote.connection import VARIABLE
from busway.testing import Server
from tests.sdk.faces import FACES

NEVER_ENDING = timedelta(days=10675199, seconds=10085, microseconds=477581)
"""What the client makes of the longest span of the service."""
TRUST = {"sync": "REQUESTS_CA_BUNDLE", "async": "SSL_CERT_FILE"}
TOUR = Path(__file__).with_name("administration_tour.py")
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "manage-entities.md"


@pytest.fixture(scope="module")
def managed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(data=tmp_path_factory.mktemp("data"), arguments=["--tls"]) as running:
        yield running


@pytest.fixture(scope="module")
def authority(managed: Server) -> str:
    assert managed.data is not None
    return str(managed.data / "tls" / "authority.pem")


@pytest.fixture
def client(face: str, managed: Server, authority: str) -> Iterator[Any]:
    """With a session of its own for each test; `connection_verify` is documented as well."""
    sdk = FACES[face]()
    with sdk.administer(
        managed.tls_connection_string, connection_verify=authority, retry_total=0
    ) as administration:
        yield administration
    sdk.close()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Of the entities of this test."""
    return request.node.name.replace("[", "-").rstrip("]")


# --- As it comes from the package index ----------------------------------------------------------


def run_the_tour(
    face: str, server: Server, authority: str | None
) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k not in TRUST.values()}
    if authority is not None:
        environment[TRUST[face]] = authority
    return subprocess.run(
        [sys.executable, str(TOUR), face, server.tls_connection_string],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_an_unmodified_client_needs_one_variable(
    face: str, managed: Server, authority: str
) -> None:
    """Nothing but `REQUESTS_CA_BUNDLE`, or `SSL_CERT_FILE` for the asynchronous one (http.md 1)."""
    tour = run_the_tour(face, managed, authority)
    assert (tour.returncode, tour.stdout) == (0, "done\n"), tour.stderr


def test_the_page_of_the_documentation_does_what_it_says(
    managed: Server, authority: str, tmp_path: Path
) -> None:
    """`docs/how-to/manage-entities.md`."""
    (written,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    program = tmp_path / "page.py"
    program.write_text(written)
    done = subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, TRUST["sync"]: authority, VARIABLE: managed.tls_connection_string},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "0 0 0\n"), done.stderr


def test_the_certificate_is_not_taken_on_faith(managed: Server) -> None:
    sdk = FACES["sync"]()
    with (
        sdk.administer(managed.tls_connection_string, retry_total=0) as stranger,
        pytest.raises(ServiceRequestError, match="CERTIFICATE_VERIFY_FAILED"),
    ):
        stranger.get_namespace_properties()


# --- Queues --------------------------------------------------------------------------------------


def test_a_queue_has_the_defaults_of_the_service(client: Any, name: str) -> None:
    client.create_queue(name)
    queue = client.get_queue(name)
    assert queue.name == name
    assert queue.lock_duration == timedelta(minutes=1)
    assert queue.default_message_time_to_live == NEVER_ENDING
    assert queue.auto_delete_on_idle == NEVER_ENDING
    assert queue.duplicate_detection_history_time_window == timedelta(minutes=10)
    assert queue.max_size_in_megabytes == 1024
    assert queue.max_delivery_count == 10
    assert queue.enable_batched_operations is True
    assert queue.requires_session is queue.requires_duplicate_detection is False
    assert queue.enable_partitioning is queue.enable_express is False
    assert queue.dead_lettering_on_message_expiration is False
    assert (queue.status, queue.availability_status) == ("Active", "Available")
    assert queue.forward_to is queue.forward_dead_lettered_messages_to is None
    assert queue.user_metadata is None
    assert queue.max_message_size_in_kilobytes == 256


def test_a_queue_with_everything(client: Any, name: str) -> None:
    client.create_queue("a-target")
    created = client.create_queue(
        name,
        auto_delete_on_idle="PT10M1S",
        dead_lettering_on_message_expiration=True,
        default_message_time_to_live=timedelta(minutes=11),
        duplicate_detection_history_time_window=timedelta(minutes=12),
        enable_batched_operations=False,
        enable_express=True,
        enable_partitioning=True,
        forward_dead_lettered_messages_to="a-target",
        forward_to="a-target",
        lock_duration=timedelta(seconds=13),
        max_delivery_count=14,
        max_size_in_megabytes=3072,
        requires_session=True,
        user_metadata="<mine> & yours",
        status=EntityStatus.DISABLED,
    )
    for queue in (created, client.get_queue(name), *client.list_queues()):
        if queue.name != name:
            continue
        assert queue.auto_delete_on_idle == timedelta(minutes=10, seconds=1)
        assert queue.dead_lettering_on_message_expiration is True
        assert queue.default_message_time_to_live == timedelta(minutes=11)
        assert queue.duplicate_detection_history_time_window == timedelta(minutes=12)
        assert queue.enable_batched_operations is False
        assert queue.enable_express is queue.enable_partitioning is True
        assert queue.forward_to.endswith("/a-target")
        assert queue.forward_to.startswith("sb://localhost:")
        assert queue.forward_dead_lettered_messages_to == queue.forward_to
        assert queue.lock_duration == timedelta(seconds=13)
        assert queue.max_delivery_count == 14
        assert queue.max_size_in_megabytes == 16 * 3072  # P-15
        assert queue.requires_session is True
        assert queue.user_metadata == "<mine> & yours"
        assert queue.status == "Disabled"
    client.delete_queue("a-target")


def test_what_was_got_can_be_sent_back(client: Any, name: str) -> None:
    """Read-only elements, a size that is multiplied, and a span that has lost some digits."""
    client.create_queue(name, enable_partitioning=True, max_size_in_megabytes=2048)
    queue = client.get_queue(name)
    for _ in range(2):
        client.update_queue(queue)
        queue = client.get_queue(name)
        assert queue.max_size_in_megabytes == 16 * 2048
        assert queue.default_message_time_to_live == NEVER_ENDING


def test_a_queue_is_changed_one_by_one_and_all_at_once(client: Any, name: str) -> None:
    queue = client.create_queue(name)
    queue.lock_duration = timedelta(minutes=2)
    client.update_queue(queue)
    queue = client.get_queue(name)
    assert queue.lock_duration == timedelta(minutes=2)

    queue.forward_to = queue.forward_dead_lettered_messages_to = name
    queue.auto_delete_on_idle = timedelta(minutes=10)
    queue.enable_express = True
    queue.max_size_in_megabytes = 3072
    client.update_queue(dict(queue))
    queue = client.get_queue(name)
    assert queue.forward_to.endswith(f"/{name}")
    assert queue.auto_delete_on_idle == timedelta(minutes=10)
    assert queue.enable_express is True

    client.update_queue(
        queue, forward_to=None, forward_dead_lettered_messages_to=None, enable_express=False
    )
    queue = client.get_queue(name)
    assert queue.forward_to is queue.forward_dead_lettered_messages_to is None
    assert queue.enable_express is False


def test_mistakes_raise_what_the_service_makes_the_client_raise(client: Any, name: str) -> None:
    queue = client.create_queue(name)
    with pytest.raises(ResourceExistsError, match="SubCode=40900"):
        client.create_queue(name)
    with pytest.raises(ResourceExistsError):
        client.create_topic(name.upper())
    with pytest.raises(ResourceNotFoundError):
        client.get_queue(f"{name}-missing")
    with pytest.raises(ResourceNotFoundError):
        client.delete_queue(f"{name}-missing")
    with pytest.raises(ResourceNotFoundError):
        client.get_queue_runtime_properties("")
    for wrong in ({"requires_session": True}, {"lock_duration": timedelta(days=25)}):
        with pytest.raises(HttpResponseError, match=r"SubCode=40000\.") as raised:
            client.update_queue(queue, **wrong)
        assert raised.value.status_code == 400
    with pytest.raises(HttpResponseError, match="MaxMessageSizeInKilobytes=1024: it must be 256"):
        client.create_queue(f"{name}-large", max_message_size_in_kilobytes=1024)
    with pytest.raises(HttpResponseError):
        client.create_queue("")
    client.delete_queue(name)
    with pytest.raises(ResourceNotFoundError):
        client.update_queue(queue)


def test_names_may_have_slashes_and_any_case(client: Any) -> None:
    name = "Txt/.-_123"
    client.create_queue(name)
    assert client.get_queue(name.lower()).name == name.lower()
    assert name in [queue.name for queue in client.list_queues()]
    client.delete_queue(name)


def test_lists_come_in_pages(client: Any, name: str) -> None:
    client.create_topic(name)
    names = [f"s{number:03d}" for number in range(103)]
    for each in names:
        client.create_subscription(name, each)
    assert [each.name for each in client.list_subscriptions(name)] == names
    pages = client.list_subscriptions(name, max_page_size=40)
    assert [each.name for each in pages] == names
    client.delete_topic(name)


# --- Topics and subscriptions --------------------------------------------------------------------


def test_a_topic_with_everything(client: Any, name: str) -> None:
    client.create_topic(
        name,
        auto_delete_on_idle=timedelta(minutes=10),
        default_message_time_to_live="PT11M",
        duplicate_detection_history_time_window=timedelta(minutes=12),
        enable_batched_operations=False,
        enable_partitioning=True,
        max_size_in_megabytes=5120,
        requires_duplicate_detection=True,
        user_metadata="mine",
    )
    topic = client.get_topic(name)
    assert topic.auto_delete_on_idle == timedelta(minutes=10)
    assert topic.default_message_time_to_live == timedelta(minutes=11)
    assert topic.duplicate_detection_history_time_window == timedelta(minutes=12)
    assert topic.enable_batched_operations is topic.support_ordering is False
    assert topic.enable_partitioning is topic.requires_duplicate_detection is True
    assert topic.max_size_in_megabytes == 81920
    assert topic.user_metadata == "mine"

    client.update_topic(topic, status=EntityStatus.SEND_DISABLED)
    assert client.get_topic(name).status == "SendDisabled"
    with pytest.raises(HttpResponseError, match="EnablePartitioning of the topic"):
        client.update_topic(topic, enable_partitioning=False)


def test_a_subscription_with_everything(client: Any, name: str) -> None:
    client.create_topic(name)
    client.create_queue(f"{name}-target")
    client.create_subscription(
        name,
        "all",
        auto_delete_on_idle="PT10M",
        dead_lettering_on_message_expiration=True,
        dead_lettering_on_filter_evaluation_exceptions=False,
        default_message_time_to_live=timedelta(minutes=11),
        enable_batched_operations=False,
        forward_dead_lettered_messages_to=f"{name}-target",
        lock_duration=timedelta(seconds=13),
        max_delivery_count=14,
        requires_session=True,
        user_metadata="mine",
        status=EntityStatus.RECEIVE_DISABLED,
    )
    found = client.get_subscription(name, "all")
    assert found.auto_delete_on_idle == timedelta(minutes=10)
    assert found.dead_lettering_on_message_expiration is True
    assert found.dead_lettering_on_filter_evaluation_exceptions is False
    assert found.default_message_time_to_live == timedelta(minutes=11)
    assert found.enable_batched_operations is False
    assert found.forward_dead_lettered_messages_to.endswith(f"/{name}-target")
    assert found.lock_duration == timedelta(seconds=13)
    assert found.max_delivery_count == 14
    assert found.requires_session is True
    assert found.user_metadata == "mine"
    assert (found.status, found.availability_status) == ("ReceiveDisabled", "Available")

    found.forward_to = found.forward_dead_lettered_messages_to
    found.forward_dead_lettered_messages_to = None
    client.update_subscription(name, found)
    found = client.get_subscription(name, "all")
    assert found.forward_to.endswith(f"/{name}-target")
    assert found.forward_dead_lettered_messages_to is None
    client.delete_subscription(name, "all")
    with pytest.raises(ResourceNotFoundError):
        client.get_subscription(name, "all")
    with pytest.raises(ResourceNotFoundError):
        client.create_subscription(f"{name}-missing", "all")


# --- Rules ---------------------------------------------------------------------------------------

VALUES = {
    "text": "a < b & 'c'",
    "int": 2,
    "long": 2147483650,
    "double": 2.5,
    "bool": False,
    "moment": datetime(2020, 7, 5, 11, 12, 13),
    "instant": datetime(2020, 7, 5, 11, 12, 13, tzinfo=UTC),
    "span": timedelta(days=1, hours=2, minutes=3),
}


@pytest.fixture
def subscription(client: Any, name: str) -> str:
    """The topic of a subscription `all`."""
    client.create_topic(name)
    client.create_subscription(name, "all")
    return name


def test_rules_keep_the_types_of_their_values(client: Any, subscription: str) -> None:
    client.create_rule(
        subscription,
        "all",
        "r",
        filter=CorrelationRuleFilter(correlation_id="x", label="y", properties=VALUES),
        action=SqlRuleAction(
            "SET a = @text; SET b = @moment", parameters={f"@{k}": v for k, v in VALUES.items()}
        ),
    )
    for rule in (
        client.get_rule(subscription, "all", "r"),
        list(client.list_rules(subscription, "all"))[1],
    ):
        assert type(rule.filter) is CorrelationRuleFilter
        assert (rule.filter.correlation_id, rule.filter.label) == ("x", "y")
        assert rule.filter.message_id is None
        assert dict(rule.filter.properties) == VALUES
        assert rule.action.sql_expression == "SET a = @text; SET b = @moment"
        assert dict(rule.action.parameters) == {f"@{k}": v for k, v in VALUES.items()}
        assert datetime.now(UTC) - rule.created_at_utc < timedelta(minutes=2)


@pytest.mark.parametrize(
    "rule_filter",
    [
        SqlRuleFilter("a = @b", parameters={"@b": 1}),
        SqlRuleFilter("1=1"),
        TrueRuleFilter(),
        FalseRuleFilter(),
    ],
    ids=["parameters", "sql", "true", "false"],
)
def test_rules_of_all_kinds(client: Any, subscription: str, rule_filter: Any) -> None:
    client.create_rule(subscription, "all", "r", filter=rule_filter)
    rule = client.get_rule(subscription, "all", "r")
    assert type(rule.filter) is type(rule_filter)
    if type(rule_filter) is SqlRuleFilter:
        assert rule.filter.sql_expression == rule_filter.sql_expression
        assert dict(rule.filter.parameters) == (rule_filter.parameters or {})
    assert rule.action is None
    with pytest.raises(ResourceExistsError):
        client.create_rule(subscription, "all", "r")


def test_a_rule_is_changed_as_a_whole(client: Any, subscription: str) -> None:
    rule = client.create_rule(subscription, "all", "r", action=SqlRuleAction("SET a = 1"))
    client.update_rule(
        subscription, "all", rule, filter=CorrelationRuleFilter(to="there"), action=None
    )
    rule = client.get_rule(subscription, "all", "r")
    assert (rule.filter.to, rule.action) == ("there", None)
    rule.name = "missing"
    with pytest.raises(ResourceNotFoundError):
        client.update_rule(subscription, "all", rule)
    with pytest.raises(HttpResponseError, match="SQL filter"):
        client.create_rule(subscription, "all", "bad", filter=SqlRuleFilter("a ="))


# --- Access rules, versions, the namespace -------------------------------------------------------


def test_access_rules_of_an_entity(client: Any, name: str) -> None:
    """LIM-12. Missing keys are made."""
    given = AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        rights=[AccessRights.MANAGE, AccessRights.SEND, AccessRights.LISTEN],
        key_name="mine",
        primary_key="a-key",
    )
    client.create_queue(name, authorization_rules=[given])
    (rule,) = client.get_queue(name).authorization_rules
    assert (rule.key_name, rule.primary_key) == ("mine", "a-key")
    assert rule.rights == ["Manage", "Send", "Listen"]
    assert len(rule.secondary_key) == 44
    client.update_queue(client.get_queue(name))
    (again,) = client.get_queue(name).authorization_rules
    assert again.secondary_key == rule.secondary_key


def test_keys_that_nobody_knows_are_refused(face: str, managed: Server, authority: str) -> None:
    wrong = managed.tls_connection_string.replace("SharedAccessKey=", "SharedAccessKey=x")
    sdk = FACES[face]()
    with (
        sdk.administer(wrong, connection_verify=authority, retry_total=0) as stranger,
        pytest.raises(ClientAuthenticationError, match="InvalidSignature"),
    ):
        stranger.get_namespace_properties()
    sdk.close()


@pytest.mark.parametrize("version", list(ApiVersion))
def test_all_versions_of_the_client(
    face: str, managed: Server, authority: str, name: str, version: ApiVersion
) -> None:
    sdk = FACES[face]()
    with sdk.administer(
        managed.tls_connection_string,
        connection_verify=authority,
        api_version=version,
        retry_total=0,
    ) as client:
        client.create_topic(name)
        client.create_subscription(name, "all")
        topic = client.get_topic(name)
        client.update_topic(topic)
        counts = client.get_topic_runtime_properties(name)
        assert counts.subscription_count == 1
        knows_sizes = version is not ApiVersion.V2017_04
        assert topic.max_message_size_in_kilobytes == (256 if knows_sizes else None)
    sdk.close()


def test_the_namespace(client: Any) -> None:
    namespace = client.get_namespace_properties()
    assert (namespace.name, namespace.messaging_sku) == ("busway", "Standard")
    assert namespace.namespace_type == "Messaging"
    assert namespace.created_at_utc <= namespace.modified_at_utc


# --- What is there just now ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def messaging(managed: Server) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(managed.connection_string) as connected:
        yield connected


@pytest.mark.parametrize("partitioned", [False, True], ids=["conventional", "partitioned"])
def test_runtime_properties_of_a_queue(
    client: Any, messaging: ServiceBusClient, name: str, partitioned: bool
) -> None:
    """Exact, over all partitions (P-43)."""
    client.create_queue(name, enable_partitioning=partitioned)
    empty = client.get_queue_runtime_properties(name)
    assert (empty.size_in_bytes, empty.total_message_count) == (0, 0)
    assert empty.accessed_at_utc.year == 1
    with messaging.get_queue_sender(name) as sender, messaging.get_queue_receiver(name) as receiver:
        for number in range(8):
            sender.send_messages(ServiceBusMessage(f"message {number}"))
        sender.schedule_messages(ServiceBusMessage("later"), datetime.now(UTC) + timedelta(hours=1))
        received: list[Any] = []
        while len(received) < 4:
            received += receiver.receive_messages(4 - len(received), max_wait_time=60)
        receiver.dead_letter_message(received[0])
        receiver.defer_message(received[1])
        receiver.complete_message(received[2])
        found = client.get_queue_runtime_properties(name)
        listed = next(each for each in client.list_queues_runtime_properties() if each.name == name)
    for runtime in (found, listed):
        assert runtime.active_message_count == 6  # one of them deferred, one locked
        assert runtime.dead_letter_message_count == 1
        assert runtime.scheduled_message_count == 1
        assert runtime.transfer_message_count == runtime.transfer_dead_letter_message_count == 0
        assert runtime.total_message_count == 8
        assert runtime.size_in_bytes > 0
        assert runtime.created_at_utc <= runtime.updated_at_utc <= runtime.accessed_at_utc


def test_runtime_properties_of_a_topic_and_its_subscriptions(
    client: Any, messaging: ServiceBusClient, name: str
) -> None:
    client.create_topic(name)
    for each in ("all", "none"):
        client.create_subscription(name, each)
    client.delete_rule(name, "none", "$Default")
    client.create_rule(name, "none", "red", filter=CorrelationRuleFilter(label="red"))
    with messaging.get_topic_sender(name) as sender:
        sender.send_messages(ServiceBusMessage("blue", subject="blue"))
        sender.schedule_messages(ServiceBusMessage("later"), datetime.now(UTC) + timedelta(hours=1))
    topic = client.get_topic_runtime_properties(name)
    assert (topic.subscription_count, topic.scheduled_message_count) == (2, 1)
    assert (topic.sql_filter_count, topic.correlation_filter_count) == (1, 1)
    assert topic.size_in_bytes > 0
    counts = {
        each.name: (each.total_message_count, each.active_message_count)
        for each in client.list_subscriptions_runtime_properties(name)
    }
    assert counts == {"all": (1, 1), "none": (0, 0)}
    one = client.get_subscription_runtime_properties(name, "all")
    assert (one.total_message_count, one.transfer_message_count) == (1, 0)
    assert one.created_at_utc <= one.updated_at_utc <= one.accessed_at_utc


def test_what_was_made_can_be_used_at_once(
    client: Any, messaging: ServiceBusClient, name: str
) -> None:
    """An action with parameters does its work, and a queue with sessions forwards (FWD-1)."""
    client.create_queue(f"{name}-end")
    client.create_queue(name, requires_session=True, forward_to=f"{name}-end")
    client.create_topic(f"{name}-topic")
    client.create_subscription(f"{name}-topic", "s", forward_to=f"{name}-end")
    client.delete_rule(f"{name}-topic", "s", "$Default")
    client.create_rule(
        f"{name}-topic",
        "s",
        "mark",
        filter=SqlRuleFilter("n > @least", parameters={"@least": 5}),
        action=SqlRuleAction("SET marked = @mark", parameters={"@mark": "yes"}),
    )
    with messaging.get_queue_sender(name) as sender:
        sender.send_messages(ServiceBusMessage("of a session", session_id="s"))
    with messaging.get_topic_sender(f"{name}-topic") as sender:
        for number in (5, 6):
            sender.send_messages(
                ServiceBusMessage(f"number {number}", application_properties={"n": number})
            )
    received: dict[str, Any] = {}
    with messaging.get_queue_receiver(f"{name}-end") as receiver:
        while len(received) < 2:
            for message in receiver.receive_messages(2, max_wait_time=60):
                received[str(message)] = message.application_properties
                receiver.complete_message(message)
    assert set(received) == {"of a session", "number 6"}
    assert received["number 6"][b"marked"] == b"yes"
