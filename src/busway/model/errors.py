"""The table of errors: condition on the wire, status, sub-code, text, whether to try again.

The texts are the service's own where it has been heard saying them (amqp.md section 15); client
libraries match some of them by regular expression, so they are data, not prose. `# ours` marks the
ones whose words are not known from the service. `status` is what `$management` and `$cbs` answer
with (management-amqp.md section 3); `sub_code` is for the details of HTTP errors.

The `{fields}` of a text are filled by `BusError(NOT_FOUND, uri=...)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from string import Formatter

NOT_FOUND_CONDITION = "amqp:not-found"
UNAUTHORIZED_CONDITION = "amqp:unauthorized-access"
NOT_ALLOWED_CONDITION = "amqp:not-allowed"
RESOURCE_LIMIT_CONDITION = "amqp:resource-limit-exceeded"
DETACH_FORCED_CONDITION = "amqp:link:detach-forced"
SERVER_BUSY_CONDITION = "com.microsoft:server-busy"
TIMEOUT_CONDITION = "com.microsoft:timeout"
ENTITY_DISABLED_CONDITION = "com.microsoft:entity-disabled"
ARGUMENT_CONDITION = "com.microsoft:argument-error"
OUT_OF_RANGE_CONDITION = "com.microsoft:argument-out-of-range"
MESSAGE_NOT_FOUND_CONDITION = "com.microsoft:message-not-found"


@dataclass(frozen=True, slots=True)
class ErrorKind:
    name: str
    condition: str
    status: int
    sub_code: int
    text: str
    """With `{fields}` that `BusError` fills."""
    retryable: bool = False

    @property
    def fields(self) -> frozenset[str]:
        """The names that `BusError` must be given for this kind."""
        return frozenset(name for _, name, _, _ in Formatter().parse(self.text) if name)


class BusError(Exception):
    """An error that a client is told about."""

    def __init__(self, kind: ErrorKind, *, refused: bool = False, **fields: object) -> None:
        self.kind = kind
        self.text = kind.text.format(**fields)
        self.refused = refused
        """Certainly nothing was stored: an unkeyed send may try another partition (D-4)."""
        super().__init__(self.text)

    @property
    def condition(self) -> str:
        return self.kind.condition


def with_tracking(text: str, tracking_id: str, system_tracker: str, timestamp_text: str) -> str:
    """A description with what support would ask for, as the service appends it (amqp.md 15)."""
    return (
        f"{text} TrackingId:{tracking_id}, SystemTracker:{system_tracker}, "
        f"Timestamp:{timestamp_text}"
    )


# --- Entities: there, allowed, enabled, with room ------------------------------------------------

NOT_FOUND = ErrorKind(
    # JS and Java recognise it by "The messaging entity '...' could not be found".
    "MessagingEntityNotFound",
    NOT_FOUND_CONDITION,
    404,
    40400,
    "The messaging entity '{uri}' could not be found. To know more visit "
    "https://aka.ms/sbResourceMgrExceptions.",
)
ENTITY_ALREADY_EXISTS = ErrorKind(
    "MessagingEntityAlreadyExists",
    "com.microsoft:entity-already-exists",
    409,
    40900,
    "The messaging entity '{uri}' already exists. To know more visit "
    "https://aka.ms/sbResourceMgrExceptions.",
)
ENTITY_DISABLED = ErrorKind(
    "MessagingEntityDisabled",
    ENTITY_DISABLED_CONDITION,
    400,
    40000,
    "Messaging entity '{uri}' is currently disabled.",
)
SEND_DISABLED = ErrorKind(
    "MessagingEntitySendDisabled",
    ENTITY_DISABLED_CONDITION,
    400,
    40000,
    "Messaging entity '{uri}' is currently disabled for Send operations.",
)
RECEIVE_DISABLED = ErrorKind(  # by analogy with the one above
    "MessagingEntityReceiveDisabled",
    ENTITY_DISABLED_CONDITION,
    400,
    40000,
    "Messaging entity '{uri}' is currently disabled for Receive operations.",
)
QUOTA_EXCEEDED = ErrorKind(
    "QuotaExceeded",
    RESOURCE_LIMIT_CONDITION,
    403,
    40300,
    "The maximum entity size has been reached or exceeded for {entity_type}: '{name}'. "
    "Size of entity in bytes:{size_bytes}, Max entity size in bytes:{max_bytes}.",
)
ENTITY_COUNT_EXCEEDED = ErrorKind(  # ours (P-16)
    "EntityCountExceeded",
    RESOURCE_LIMIT_CONDITION,
    403,
    40300,
    "The {what} '{path}' cannot be created: the namespace '{namespace}' already has its maximum of "
    "{limit} {counted}.",
)
TOPIC_COUNT_EXCEEDED = ErrorKind(  # ours (LIM-6, LIM-7)
    "TopicCountExceeded",
    RESOURCE_LIMIT_CONDITION,
    403,
    40300,
    "The {what} '{path}' cannot be created: the topic '{topic}' already has its maximum of "
    "{limit} {counted}.",
)
ENTITY_CHANGED = ErrorKind(  # ours (STA-2)
    "EntityChanged",
    DETACH_FORCED_CONDITION,
    503,
    50300,
    "The link is detached because the messaging entity '{uri}' was changed. Attach again.",
    retryable=True,
)

# --- Access --------------------------------------------------------------------------------------

UNAUTHORIZED = ErrorKind(
    "Unauthorized",
    UNAUTHORIZED_CONDITION,
    401,
    40100,
    "Unauthorized access. '{claim}' claim(s) are required to perform this operation. "
    "Resource: '{uri}'.",
)
TOKEN_SIGNATURE_INVALID = ErrorKind(
    "TokenSignatureInvalid",
    UNAUTHORIZED_CONDITION,
    401,
    40103,
    "InvalidSignature: The token has an invalid signature.",
)
TOKEN_EXPIRED = ErrorKind(
    "TokenExpired",
    UNAUTHORIZED_CONDITION,
    401,
    40103,
    "ExpiredToken: The token is expired. Expiration time: '{expired_text}'.",
)
TOKEN_MALFORMED = ErrorKind(  # ours
    "TokenMalformed",
    UNAUTHORIZED_CONDITION,
    401,
    40103,
    "MalformedToken: The token cannot be read: {detail}.",
)
TOKEN_SCOPE_INVALID = ErrorKind(  # ours (D-34)
    "TokenScopeInvalid",
    UNAUTHORIZED_CONDITION,
    401,
    40103,
    "InvalidAudience: The token is for '{scope}' and does not cover '{uri}'.",
)
TOKEN_MISSING = ErrorKind(  # ours; the service drops a connection without one after 20 s
    "TokenMissing",
    UNAUTHORIZED_CONDITION,
    401,
    40102,
    "MissingToken: No valid token was put for '{uri}' on this connection.",
)

HOST_CHANGED = ErrorKind(  # ours (D-34)
    "HostChanged",
    UNAUTHORIZED_CONDITION,
    401,
    40103,
    "The password was checked for the host '{asked}', and the connection is opened to '{opened}', "
    "which is another namespace. Name the same host in sasl-init and open.",
)

# --- Locks and sessions --------------------------------------------------------------------------

LOCK_LOST = ErrorKind(
    "MessageLockLost",
    "com.microsoft:message-lock-lost",
    410,
    41000,
    "The lock supplied is invalid. Either the lock expired, or the message has already been "
    "removed from the queue.",
)
SESSION_LOCK_LOST = ErrorKind(
    "SessionLockLost",
    "com.microsoft:session-lock-lost",
    410,
    41000,
    "The session lock has expired on the MessageSession. Accept a new MessageSession.",
)
SESSION_CANNOT_BE_LOCKED = ErrorKind(
    "SessionCannotBeLocked",
    "com.microsoft:session-cannot-be-locked",
    410,
    41000,
    "The requested session '{session_id}' cannot be accepted. It may be locked by another "
    "receiver.",
)
RECEIVE_FROM_TOPIC = ErrorKind(  # the service's condition, our text
    "ReceiveFromTopic",
    NOT_FOUND_CONDITION,
    404,
    40400,
    "'{uri}' is a topic, and has no messages to receive. Receive from one of its subscriptions: "
    "'{uri}/Subscriptions/<name>'.",
)
SESSION_NOT_FOUND = ErrorKind(  # ours
    "SessionNotFound",
    "com.microsoft:session-not-found",
    404,
    40400,
    "No session was found in the messaging entity '{uri}'.",
)
SESSION_ID_MISSING = ErrorKind(
    "SessionIdMissing",
    NOT_ALLOWED_CONDITION,
    400,
    40000,
    "The SessionId was not set on a message, and it cannot be sent to the entity. Entities that "
    "have session support enabled can only receive messages that have the SessionId set to a "
    "valid value.",
)
SESSION_REQUIRED = ErrorKind(
    "SessionRequired",
    NOT_ALLOWED_CONDITION,
    400,
    40000,
    "It is not possible for an entity that requires sessions to create a non-sessionful message "
    "receiver.",
)
SESSION_NOT_ALLOWED = ErrorKind(
    "SessionNotAllowed",
    NOT_ALLOWED_CONDITION,
    400,
    40000,
    "A sessionful message receiver cannot be created on an entity that does not require sessions. "
    "Ensure RequiresSession is set to true when creating a Queue or Subscription to enable "
    "sessionful behavior.",
)

# --- Messages ------------------------------------------------------------------------------------

MESSAGE_SIZE_EXCEEDED = ErrorKind(
    "MessageSizeExceeded",
    "amqp:link:message-size-exceeded",
    403,
    40300,
    "The received message (delivery-id:{delivery_id}, size:{size_bytes} bytes) exceeds the limit "
    "({max_bytes} bytes) currently allowed on the link.",
)
MESSAGE_NOT_FOUND = ErrorKind(
    "MessageNotFound",
    MESSAGE_NOT_FOUND_CONDITION,
    404,
    40400,
    "Failed to lock one or more specified messages. Either the message is already locked or does "
    "not exist",
)
CANCEL_NOT_FOUND = ErrorKind(
    "ScheduledMessageNotFound",
    MESSAGE_NOT_FOUND_CONDITION,
    404,
    40400,
    "Messages not found. Missing sequence numbers: {numbers}",
)
CANCEL_IN_PROGRESS = ErrorKind(
    "ScheduledMessageBeingCancelled",
    ARGUMENT_CONDITION,
    400,
    40000,
    "The scheduled message with SequenceNumber = {number} is already being cancelled.",
)
SEND_TO_SUB_QUEUE = ErrorKind(  # ours (DLQ-1)
    "SendToSubQueue",
    NOT_ALLOWED_CONDITION,
    400,
    40000,
    "Messages cannot be sent to '{uri}'. Send to its queue or topic instead.",
)
DEAD_LETTER_TWICE = ErrorKind(  # ours (DLQ-1)
    "DeadLetterTwice",
    NOT_ALLOWED_CONDITION,
    400,
    40000,
    "A message of a dead-letter queue cannot be dead-lettered again.",
)

# --- Partitions ----------------------------------------------------------------------------------

PARTITION_KEY_MISMATCH = ErrorKind(  # ours (P-20)
    "PartitionKeyMismatch",
    NOT_ALLOWED_CONDITION,
    400,
    40000,
    "The SessionId '{session_id}' and the PartitionKey '{partition_key}' of a message must be the "
    "same when both are set.",
)
BATCH_KEYS_DIFFER = ErrorKind(
    "BatchKeysDiffer",
    NOT_ALLOWED_CONDITION,
    400,
    40000,
    "Batching brokered messages with distinct SessionId or PartitionKey is not supported for an "
    "entity with partitioning enabled.",
)
PARTITION_KEY_MISSING = ErrorKind(
    "PartitionKeyMissing",
    NOT_ALLOWED_CONDITION,
    400,
    40000,
    "Message to a partitioned entity with duplicate detection enabled must have either "
    "PartitionKey or MessageId",
)
NUMBERS_OF_SEVERAL_PARTITIONS = ErrorKind(  # ours (DEF-7)
    "NumbersOfSeveralPartitions",
    NOT_ALLOWED_CONDITION,
    400,
    40000,
    "The sequence numbers of one request must belong to the same partition of '{uri}'.",
)

# --- Transactions --------------------------------------------------------------------------------

TRANSACTION_UNKNOWN = ErrorKind(
    "TransactionUnknown",
    "amqp:transaction:unknown-id",
    400,
    40000,
    "Transaction hasn't been declared yet, or has already been discharged",
)
TRANSACTION_ROLLBACK = ErrorKind(  # ours (D-28)
    "TransactionRollback",
    "amqp:transaction:rollback",
    400,
    40000,
    "The transaction was rolled back: {reason}",
)
TRANSACTION_TIMEOUT = ErrorKind(  # ours (TXN-4)
    "TransactionTimeout",
    "amqp:transaction:timeout",
    408,
    40800,
    "The transaction was rolled back because it was not discharged within {timeout}.",
)
TRANSACTION_SPANS_ENTITIES = ErrorKind(
    "TransactionSpansEntities",
    NOT_ALLOWED_CONDITION,
    400,
    40000,
    "Local transactions cannot span multiple top-level entities such as queue or topic. {detail}",
)
TRANSACTION_SPANS_PARTITIONS = ErrorKind(
    "TransactionSpansPartitions",
    NOT_ALLOWED_CONDITION,
    400,
    40000,
    "Local transactions cannot span multiple entities or partitions. {detail}",
)
RECEIVER_NOT_OF_VIA_ENTITY = ErrorKind(  # ours (TXN-3)
    "ReceiverNotOfViaEntity",
    NOT_ALLOWED_CONDITION,
    400,
    40000,
    "A receiver of '{entity}' cannot be in this AMQP session: its transactions go through '{via}', "
    "the entity of its first link, and settle messages of that one only. Receive from '{entity}' "
    "before anything else is opened, or with another client.",
)
TRANSACTION_KEY_MISSING = ErrorKind(  # ours (P-33)
    "TransactionKeyMissing",
    NOT_ALLOWED_CONDITION,
    400,
    40000,
    "A message that is sent to the partitioned entity '{entity}' in a transaction must have a "
    "SessionId or a PartitionKey, the same for all messages of the transaction.",
)
TRANSACTION_TOO_LARGE = ErrorKind(  # ours but for its end (LIM-5)
    "TransactionTooLarge",
    NOT_ALLOWED_CONDITION,
    403,
    40300,
    "Transaction size exceeded: can't send more than {limit} messages in a single transaction.",
)

# --- Requests ------------------------------------------------------------------------------------

INVALID_OPERATION = ErrorKind("InvalidOperation", NOT_ALLOWED_CONDITION, 400, 40000, "{detail}")
NOT_IMPLEMENTED = ErrorKind(  # ours
    "NotImplemented",
    "amqp:not-implemented",
    501,
    50100,
    "The operation '{operation}' is not supported.",
)
NOT_SUPPORTED = ErrorKind(  # ours
    "NotSupported", "amqp:not-implemented", 501, 50100, "{detail}"
)
INVALID_FIELD = ErrorKind(  # ours
    "InvalidField", "amqp:invalid-field", 400, 40000, "{detail}"
)
ARGUMENT_ERROR = ErrorKind("ArgumentError", ARGUMENT_CONDITION, 400, 40000, "{detail}")
ARGUMENT_OUT_OF_RANGE = ErrorKind(
    "ArgumentOutOfRange", OUT_OF_RANGE_CONDITION, 400, 40000, "{detail}"
)
ACCESS_RULE_NOT_FOUND = ErrorKind(  # ours
    "AccessRuleNotFound",
    NOT_FOUND_CONDITION,
    404,
    40400,
    "The namespace '{namespace}' has no access rule '{name}'.",
)
ACCESS_RULE_FIXED = ErrorKind(  # ours
    "AccessRuleFixed", NOT_ALLOWED_CONDITION, 409, 40900, "{detail}"
)
NAME_INVALID = ErrorKind("NameInvalid", ARGUMENT_CONDITION, 400, 40000, "{detail}")
PROPERTY_INVALID = ErrorKind(  # ours (DFT)
    "PropertyInvalid",
    OUT_OF_RANGE_CONDITION,
    400,
    40000,
    "The {entity_type} '{path}' cannot have {property}={value}: {allowed}.",
)
PROPERTY_IMMUTABLE = ErrorKind(  # ours (P-10)
    "PropertyImmutable",
    NOT_ALLOWED_CONDITION,
    400,
    40000,
    "{property} of the {entity_type} '{path}' is {old} and cannot be changed to {new}: it is fixed "
    "when the entity is created. Nothing was changed.",
)
PRECONDITION_FAILED = ErrorKind(
    "PreconditionFailed", "amqp:precondition-failed", 412, 41200, "{detail}"
)

# --- The state of the service --------------------------------------------------------------------

SERVER_BUSY = ErrorKind(  # ours
    "ServerBusy",
    SERVER_BUSY_CONDITION,
    503,
    50009,
    "The server is busy. Please wait 2 seconds and try again.",
    retryable=True,
)
OVERLOADED = ErrorKind(  # ours (D-8)
    "BrokerOverloaded",
    SERVER_BUSY_CONDITION,
    503,
    50009,
    "The server is busy: its messaging store has too many messages to write. Please wait 2 seconds "
    "and try again.",
    retryable=True,
)
PARTITION_UNAVAILABLE = ErrorKind(  # ours (P-24, P-41)
    # Not *server busy*: at that .NET pauses the whole sender for 10 s, its other keys as well. This
    # condition every SDK takes as passing, and tries this one operation again.
    "PartitionUnavailable",
    TIMEOUT_CONDITION,
    503,
    50300,
    "Partition {partition} of the messaging entity '{uri}' is temporarily unavailable. Please try "
    "again.",
    retryable=True,
)
STORE_FULL = ErrorKind(  # ours (D-9)
    "StoreFull",
    SERVER_BUSY_CONDITION,
    503,
    50009,
    "The messaging store has too little room left on its disk to take messages. Receiving goes on; "
    "free some space, or receive messages, and send again.",
    retryable=True,
)
THROTTLED = ErrorKind(
    "Throttled",
    SERVER_BUSY_CONDITION,
    503,
    50009,
    "The request was terminated because the namespace {namespace} is being throttled. "
    "Error code : 50009. Please wait 2 seconds and try again. To know more visit "
    "https://aka.ms/sbResourceMgrExceptions",
    retryable=True,
)
TIMEOUT = ErrorKind(
    "Timeout",
    TIMEOUT_CONDITION,
    408,
    40800,
    "The operation did not complete within the allotted timeout of {timeout}. The time allotted "
    "to this operation may have been a portion of a longer timeout.",
    retryable=True,
)
CONNECTION_QUOTA_EXCEEDED = ErrorKind(  # ours (LIM-9)
    "ConnectionQuotaExceeded",
    RESOURCE_LIMIT_CONDITION,
    403,
    40300,
    "The namespace '{namespace}' has its maximum of {limit} concurrent connections.",
)
STRANGERS_EXCEEDED = ErrorKind(  # ours
    "StrangersExceeded",
    RESOURCE_LIMIT_CONDITION,
    403,
    40300,
    "Too many connections have shown no valid token, and this one is the oldest of them. Put a "
    "token on $cbs as soon as the connection is open.",
)
REPLIES_NOT_TAKEN = ErrorKind(  # ours
    "RepliesNotTaken",
    RESOURCE_LIMIT_CONDITION,
    403,
    40300,
    "{count} requests wait until this client takes the replies to earlier ones. Give credit to the "
    "link of the replies and open the window of its session before asking more.",
)
COPIES_EXCEEDED = ErrorKind(  # ours
    "CopiesExceeded",
    NOT_ALLOWED_CONDITION,
    400,
    40000,
    "The {count} messages of this batch would become more than {limit} copies in the "
    "subscriptions of '{uri}'. Send fewer messages in a batch; one alone is always taken.",
)
RECEIVERS_EXCEEDED = ErrorKind(  # ours (LIM-10)
    "ReceiversExceeded",
    RESOURCE_LIMIT_CONDITION,
    403,
    40300,
    "The messaging entity '{uri}' has its maximum of {limit} concurrent receivers.",
)
LINK_IDLE = ErrorKind(  # ours
    "LinkIdle",
    DETACH_FORCED_CONDITION,
    503,
    50300,
    "The link '{link}' is force detached: it was idle for {idle_ms} milliseconds.",
    retryable=True,
)
CONNECTION_IDLE = ErrorKind(
    "ConnectionIdle",
    "amqp:connection:forced",
    503,
    50300,
    "The connection was inactive for more than the allowed {idle_ms} milliseconds and is closed by "
    "container '{container}'.",
    retryable=True,
)
SHUTTING_DOWN = ErrorKind(  # ours
    "ShuttingDown",
    "amqp:connection:forced",
    503,
    50300,
    "The server is shutting down. Connect again.",
    retryable=True,
)
OPERATION_CANCELLED = ErrorKind(  # ours
    "OperationCancelled",
    "com.microsoft:operation-cancelled",
    503,
    50300,
    "The operation was cancelled because the server is shutting down.",
    retryable=True,
)
DATA_DAMAGED = ErrorKind(  # ours
    "DataDamaged", "amqp:internal-error", 500, 50000, "Damaged on the disk: {detail}.", False
)
INTERNAL_ERROR = ErrorKind(
    "InternalError",
    "amqp:internal-error",
    500,
    50000,
    "The service was unable to process the request; please retry the operation.",
    retryable=True,
)

KINDS = tuple(kind for kind in list(globals().values()) if isinstance(kind, ErrorKind))
"""Every kind of the table, in its order."""
