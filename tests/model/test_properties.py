"""Defaults, bounds and what is fixed at creation (DFT, STA-1, P-10, P-12, P-15)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from busway.model.durations import DAY_MS, MINUTE_MS
from busway.model.entities import EntityStatus, Queue, Subscription, Topic
from busway.model.errors import PROPERTY_IMMUTABLE, PROPERTY_INVALID, BusError
from busway.model.limits import Tier
from busway.model.properties import (
    PROPERTIES,
    changed_immutable,
    check_update,
    normalise,
    properties_of,
    validate,
)

QUEUE = Queue(path="orders")

DEFAULTS = {
    # Service's name: queue, topic, subscription (... where it has none)
    "LockDuration": (MINUTE_MS, ..., MINUTE_MS),
    "MaxSizeInMegabytes": (1024, 1024, ...),
    "MaxMessageSizeInKilobytes": (None, None, ...),  # as the tier has it (LIM-1)
    "RequiresDuplicateDetection": (False, False, ...),
    "DuplicateDetectionHistoryTimeWindow": (10 * MINUTE_MS, 10 * MINUTE_MS, ...),
    "RequiresSession": (False, ..., False),
    "DefaultMessageTimeToLive": (None, None, None),
    "DeadLetteringOnMessageExpiration": (False, ..., False),
    "DeadLetteringOnFilterEvaluationExceptions": (..., ..., True),
    "MaxDeliveryCount": (10, ..., 10),
    "EnableBatchedOperations": (True, True, True),
    "EnablePartitioning": (None, None, ...),  # as the namespace has it (P-13, P-14)
    "EnableExpress": (False, False, ...),
    "SupportOrdering": (True, True, ...),
    "Status": (EntityStatus.ACTIVE,) * 3,
    "AutoDeleteOnIdle": (None, None, None),
    "ForwardTo": (None, ..., None),
    "ForwardDeadLetteredMessagesTo": (None, ..., None),
    "UserMetadata": (None, None, None),
}


@pytest.mark.parametrize("row", PROPERTIES, ids=lambda row: row.wire)
def test_defaults(row: Any) -> None:
    made = (QUEUE, Topic(path="news"), Subscription(topic="news", name="all"))
    assert tuple(getattr(each, row.field, ...) for each in made) == DEFAULTS[row.wire]


def test_every_property_of_the_service_is_there() -> None:
    assert {row.wire for row in PROPERTIES} == set(DEFAULTS)


def test_what_is_fixed_at_creation() -> None:
    assert {row.wire for row in PROPERTIES if not row.mutable} == {
        "EnablePartitioning",
        "RequiresSession",
        "RequiresDuplicateDetection",
    }


@pytest.mark.parametrize("entity", [QUEUE, Topic(path="n"), Subscription(topic="n", name="s")])
def test_defaults_are_valid(entity: Any) -> None:
    validate(entity)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"lock_duration_ms": 4_999}, "LockDuration=PT4.999S: it must be PT5S to PT5M"),
        ({"lock_duration_ms": 300_001}, "it must be PT5S to PT5M"),
        ({"max_delivery_count": 0}, "MaxDeliveryCount=0: it must be 1 to 2147483647"),
        ({"max_delivery_count": 2**31}, "it must be 1 to 2147483647"),
        ({"duplicate_window_ms": 19_999}, "it must be PT20S to P7D"),
        ({"duplicate_window_ms": 7 * DAY_MS + 1}, "it must be PT20S to P7D"),
        ({"default_ttl_ms": 0}, "DefaultMessageTimeToLive=PT0S: it must be at least PT0.001S"),
        ({"auto_delete_on_idle_ms": 299_999}, "it must be at least PT5M"),
        ({"max_size_mb": 1000}, "=1000: it may be 1024, 2048, 3072, 4096 or 5120"),
        ({"max_size_mb": 10_240}, "it may be 1024"),
        ({"max_message_size_kb": 1024}, "it must be 256"),
        ({"user_metadata": "x" * 1025}, "it must be at most 1024 characters long"),
    ],
)
def test_out_of_bounds(change: dict[str, Any], said: str) -> None:
    with pytest.raises(BusError) as raised:
        validate(replace(QUEUE, **change))
    assert raised.value.kind is PROPERTY_INVALID
    assert said in raised.value.text
    assert raised.value.text.startswith("The queue 'orders' cannot have ")


@pytest.mark.parametrize(
    "change",
    [
        {"lock_duration_ms": 5_000},
        {"lock_duration_ms": 300_000},
        {"max_delivery_count": 1},
        {"max_delivery_count": 2**31 - 1},
        {"default_ttl_ms": 1},
        {"default_ttl_ms": 900 * 365 * DAY_MS},
        {"auto_delete_on_idle_ms": 300_000},
        {"max_size_mb": 5120},
        {"user_metadata": "x" * 1024},
    ],
)
def test_at_the_bounds(change: dict[str, Any]) -> None:
    validate(replace(QUEUE, **change))


def test_premium_has_larger_sizes_and_messages() -> None:
    """P-13."""
    validate(replace(QUEUE, max_size_mb=81_920, max_message_size_kb=102_400), Tier.PREMIUM)


def test_a_subscription_cannot_be_disabled_for_sending() -> None:
    """STA-1."""
    wrong = Subscription(topic="n", name="s", status=EntityStatus.SEND_DISABLED)
    with pytest.raises(BusError, match="it may be Active, Disabled or ReceiveDisabled"):
        validate(wrong)


@pytest.mark.parametrize(
    ("status", "can_send", "can_receive"),
    [
        (EntityStatus.ACTIVE, True, True),
        (EntityStatus.DISABLED, False, False),
        (EntityStatus.SEND_DISABLED, False, True),
        (EntityStatus.RECEIVE_DISABLED, True, False),
    ],
)
def test_status(status: EntityStatus, can_send: bool, can_receive: bool) -> None:
    """STA-1."""
    assert (status.can_send, status.can_receive) == (can_send, can_receive)


class TestUpdates:
    def test_of_what_is_fixed_are_refused(self) -> None:
        """P-10."""
        new = replace(QUEUE, enable_partitioning=True, lock_duration_ms=5_000)
        assert [row.wire for row in changed_immutable(QUEUE, new)] == ["EnablePartitioning"]
        with pytest.raises(BusError) as raised:
            check_update(QUEUE, new)
        assert raised.value.kind is PROPERTY_IMMUTABLE
        assert raised.value.text == (
            "EnablePartitioning of the queue 'orders' is false and cannot be changed to true: it "
            "is fixed when the entity is created. Nothing was changed."
        )

    def test_of_the_rest_are_checked_like_a_new_entity(self) -> None:
        check_update(QUEUE, replace(QUEUE, max_delivery_count=3))
        with pytest.raises(BusError, match="MaxDeliveryCount=0"):
            check_update(QUEUE, replace(QUEUE, max_delivery_count=0))


class TestSizes:
    def test_of_a_conventional_queue(self) -> None:
        queue = replace(QUEUE, max_size_mb=5120, placement=("a",))
        assert (queue.partitions, queue.total_size_mb) == (1, 5120)
        assert queue.max_size_bytes == 5 * 1024**3

    def test_of_a_partitioned_queue_are_multiplied(self) -> None:
        """P-12, P-15: 5 GB in each of 16 partitions is 80 GB."""
        queue = replace(QUEUE, max_size_mb=5120, enable_partitioning=True)
        assert (queue.partitions, queue.total_size_mb) == (16, 81_920)
        assert queue.max_size_bytes == 5 * 1024**3
        assert not queue.support_ordering


def test_keys_are_not_shown() -> None:
    from busway.model.entities import AuthorizationRule

    assert "secret" not in repr(AuthorizationRule("r", ("Send",), "secret", "secret2"))


def test_each_property_has_one_name_per_face() -> None:
    rows = properties_of(Queue)
    names = [name for row in rows for name in row.names]
    assert len(names) == len(set(names))
    assert {"partitioned", "enable_partitioning", "max_size_mb", "lock_duration"} <= set(names)
    assert "default_message_time_to_live" in names


class TestWhatFollowsFromOtherProperties:
    @pytest.mark.parametrize("address", ["b", "/b/", "sb://ns.example/b", "amqps://ns:5671/b"])
    def test_a_forward_names_its_destination_by_path(self, address: str) -> None:
        """FWD-1."""
        queue = normalise(replace(QUEUE, forward_to=address, forward_dead_letters_to=address))
        assert (queue.forward_to, queue.forward_dead_letters_to) == ("b", "b")

    def test_a_partitioned_topic_has_no_order(self) -> None:
        """DFT."""
        topic = Topic(path="news", enable_partitioning=True)
        assert not normalise(topic).support_ordering
        assert normalise(Topic(path="news")).support_ordering

    def test_nothing_else_changes(self) -> None:
        subscription = Subscription(topic="news", name="all", max_delivery_count=3)
        assert normalise(QUEUE) == QUEUE
        assert normalise(subscription) == subscription


def test_express_entities_have_no_duplicate_detection() -> None:
    """DFT: what may be lost cannot be remembered."""
    validate(replace(QUEUE, enable_express=True))
    with pytest.raises(BusError, match="cannot be combined with RequiresDuplicateDetection"):
        validate(replace(QUEUE, enable_express=True, requires_duplicate_detection=True))


@pytest.mark.parametrize("field", ["requires_session", "requires_duplicate_detection"])
def test_the_basic_tier_has_no_sessions_or_duplicate_detection(field: str) -> None:
    asking: dict[str, Any] = {field: True}
    validate(replace(QUEUE, **asking))
    with pytest.raises(BusError, match="=true: the tier of the namespace does not have it"):
        validate(replace(QUEUE, **asking), Tier.BASIC)
