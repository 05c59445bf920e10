"""What can be said of an entity: one row for each option, in the order of the service's elements.

The service passes over elements that are out of their order, so descriptions are written in this
one. A test holds the table to `model/properties.py` and to `http/atom/descriptions.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

QUEUE, TOPIC, SUBSCRIPTION = "queue", "topic", "subscription"
KINDS = (QUEUE, TOPIC, SUBSCRIPTION)
ELEMENTS = {
    QUEUE: "QueueDescription",
    TOPIC: "TopicDescription",
    SUBSCRIPTION: "SubscriptionDescription",
}


class Value(Enum):
    """What an option takes."""

    FLAG = "true or false"
    COUNT = "a whole number"
    SPAN = "a duration"
    STATUS = "a status"
    TEXT = "text"
    PATH = "the name of a queue or topic"


STATUSES = ("Active", "Disabled", "SendDisabled", "ReceiveDisabled")
NOTHING = "none"
"""What takes a text or a destination away in an update."""


@dataclass(frozen=True, slots=True)
class Option:
    name: str
    """As in configuration files, and with dashes on the command line."""
    element: str
    value: Value
    kinds: tuple[str, ...]
    help: str
    fixed: bool = False
    """Chosen when the entity is created, and never changed."""

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")


_Q, _T, _S = (QUEUE,), (TOPIC,), (SUBSCRIPTION,)
_QT, _QS, _QTS = (QUEUE, TOPIC), (QUEUE, SUBSCRIPTION), (QUEUE, TOPIC, SUBSCRIPTION)

OPTIONS = (
    Option("lock_duration", "LockDuration", Value.SPAN, _QS,
           "How long a message is locked for its receiver: 5s to 5m."),
    Option("max_size_mb", "MaxSizeInMegabytes", Value.COUNT, _QT,
           "Largest size in MB, of each partition: 1024, 2048, 3072, 4096 or 5120."),
    Option("requires_duplicate_detection", "RequiresDuplicateDetection", Value.FLAG, _QT,
           "Drop messages whose id was seen before.", True),
    Option("requires_session", "RequiresSession", Value.FLAG, _QS,
           "Every message belongs to a session.", True),
    Option("default_message_time_to_live", "DefaultMessageTimeToLive", Value.SPAN, _QTS,
           "How long messages live, at most: 14d, PT1H, unlimited."),
    Option("dead_lettering_on_message_expiration", "DeadLetteringOnMessageExpiration", Value.FLAG,
           _QS, "Messages whose time is over become dead letters."),
    Option("dead_lettering_on_filter_evaluation_exceptions",
           "DeadLetteringOnFilterEvaluationExceptions", Value.FLAG, _S,
           "Messages that a rule fails for become dead letters."),
    Option("duplicate_detection_history_time_window", "DuplicateDetectionHistoryTimeWindow",
           Value.SPAN, _QT, "How long ids are remembered: 20s to 7d."),
    Option("max_delivery_count", "MaxDeliveryCount", Value.COUNT, _QS,
           "Deliveries after which a message becomes a dead letter."),
    Option("enable_batched_operations", "EnableBatchedOperations", Value.FLAG, _QTS,
           "As the service has it; without effect here."),
    Option("status", "Status", Value.STATUS, _QTS, f"One of {', '.join(STATUSES)}."),
    Option("forward_to", "ForwardTo", Value.PATH, _QS,
           "A queue or topic that messages go on to; 'none' for no more."),
    Option("user_metadata", "UserMetadata", Value.TEXT, _QTS,
           "A text of yours, kept with it; 'none' for none."),
    Option("support_ordering", "SupportOrdering", Value.FLAG, _T,
           "Subscriptions get messages in their order; not if partitioned."),
    Option("auto_delete_on_idle", "AutoDeleteOnIdle", Value.SPAN, _QTS,
           "Deleted when nobody has used it for so long: 5m or longer, unlimited."),
    Option("partitioned", "EnablePartitioning", Value.FLAG, _QT,
           "Spread it over partitions.  [default: partitioned, where the tier leaves a choice]",
           True),
    Option("enable_express", "EnableExpress", Value.FLAG, _QT,
           "As the service has it; without effect here."),
    Option("forward_dead_lettered_messages_to", "ForwardDeadLetteredMessagesTo", Value.PATH, _QS,
           "A queue or topic that dead letters go on to; 'none' for no more."),
    Option("max_message_size_in_kilobytes", "MaxMessageSizeInKilobytes", Value.COUNT, _QT,
           "Largest message in KB; only in the tier Premium."),
)  # fmt: skip
BY_NAME = {each.name: each for each in OPTIONS}

ORDER = {
    QUEUE: (
        "LockDuration", "MaxSizeInMegabytes", "RequiresDuplicateDetection", "RequiresSession",
        "DefaultMessageTimeToLive", "DeadLetteringOnMessageExpiration",
        "DuplicateDetectionHistoryTimeWindow", "MaxDeliveryCount", "EnableBatchedOperations",
        "AuthorizationRules", "Status", "ForwardTo", "UserMetadata", "AutoDeleteOnIdle",
        "EnablePartitioning", "EnableExpress", "ForwardDeadLetteredMessagesTo",
        "MaxMessageSizeInKilobytes",
    ),
    TOPIC: (
        "DefaultMessageTimeToLive", "MaxSizeInMegabytes", "RequiresDuplicateDetection",
        "DuplicateDetectionHistoryTimeWindow", "EnableBatchedOperations", "AuthorizationRules",
        "Status", "UserMetadata", "SupportOrdering", "AutoDeleteOnIdle", "EnablePartitioning",
        "EnableExpress", "MaxMessageSizeInKilobytes",
    ),
    SUBSCRIPTION: (
        "LockDuration", "RequiresSession", "DefaultMessageTimeToLive",
        "DeadLetteringOnMessageExpiration", "DeadLetteringOnFilterEvaluationExceptions",
        "MaxDeliveryCount", "EnableBatchedOperations", "Status", "ForwardTo", "UserMetadata",
        "ForwardDeadLetteredMessagesTo", "AutoDeleteOnIdle",
    ),
}  # fmt: skip
"""What a request may say, in the order of the service; the default rule of a new subscription goes
before `Status`."""


def options_of(kind: str) -> tuple[Option, ...]:
    return tuple(each for each in OPTIONS if kind in each.kinds)
