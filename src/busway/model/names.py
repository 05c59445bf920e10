"""Names of entities, and the addresses by which clients reach them (NAM, amqp.md sections 5 and 6).

Owns which names are legal, when two names are the same, and how every form of an address that the
client libraries write is read. Nothing here knows whether an entity exists.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from urllib.parse import unquote

from busway.model.errors import NAME_INVALID, NOT_FOUND, BusError

MANAGEMENT_NODE = "$management"
CBS_NODE = "$cbs"
DEAD_LETTER_NODE = "$DeadLetterQueue"
TRANSFER_NODE = "$Transfer"
SUBSCRIPTIONS_NODE = "Subscriptions"
DEFAULT_RULE = "$Default"


class SubQueueKind(IntEnum):
    """The message queues that one entity has. The numbers are those that stores keep."""

    MAIN = 0
    DEAD_LETTER = 1
    TRANSFER = 2
    TRANSFER_DEAD_LETTER = 3


SUB_QUEUE_PATHS = {
    SubQueueKind.MAIN: "",
    SubQueueKind.DEAD_LETTER: f"/{DEAD_LETTER_NODE}",
    SubQueueKind.TRANSFER: f"/{TRANSFER_NODE}",
    SubQueueKind.TRANSFER_DEAD_LETTER: f"/{TRANSFER_NODE}/{DEAD_LETTER_NODE}",
}
_SUB_QUEUES_BY_SEGMENTS = {
    tuple(path.lower().split("/")[1:]): kind for kind, path in SUB_QUEUE_PATHS.items()
}

# --- Names ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NameRule:
    """What a kind of name may look like (NAM-1)."""

    what: str
    max_chars: int
    slashes: bool = False
    also: frozenset[str] = frozenset()
    """Names that are legal although they break the pattern, in lower case."""
    label: bool = False
    """Whether it must be able to begin a host name."""


QUEUE_NAME = NameRule("queue", 260, slashes=True)
TOPIC_NAME = NameRule("topic", 260, slashes=True)
SUBSCRIPTION_NAME = NameRule("subscription", 50)
RULE_NAME = NameRule("rule", 50, also=frozenset({DEFAULT_RULE.lower()}))
NAMESPACE_NAME = NameRule("namespace", 50, label=True)
LOCALHOST = "localhost"

_FOREIGN = re.compile(r"[^A-Za-z0-9._/-]")
_FOREIGN_IN_LABEL = re.compile(r"[^A-Za-z0-9-]")
_ALPHANUMERIC = re.compile(r"[A-Za-z0-9]")
_ENDING = re.compile(r"[A-Za-z0-9_-]")


def check_name(rule: NameRule, name: str) -> None:
    """Raise `BusError` (`NAME_INVALID`) with the reason if the name is not legal (NAM-1)."""
    if name.lower() not in rule.also and (reason := _objection(rule, name)) is not None:
        shown = name if len(name) <= 80 else f"{name[:77]}..."
        raise BusError(NAME_INVALID, detail=f"'{shown}' is not a valid {rule.what} name: {reason}.")


def _objection(rule: NameRule, name: str) -> str | None:
    letters = "letters, digits, '.', '-', '_'" + (" and '/'" if rule.slashes else "")
    if rule.label:
        letters = "letters, digits and '-'"
    if not name:
        return "it is empty"
    if len(name) > rule.max_chars:
        return f"it has {len(name)} characters and at most {rule.max_chars} are allowed"
    foreign = (_FOREIGN_IN_LABEL if rule.label else _FOREIGN).search(name)
    if foreign is not None or (not rule.slashes and "/" in name):
        culprit = foreign.group() if foreign is not None else "/"
        return f"it contains {culprit!r} and only {letters} are allowed"
    if not _ALPHANUMERIC.match(name[0]):
        return "it must start with a letter or a digit"
    if rule.label and not _ALPHANUMERIC.match(name[-1]):
        return "it must end with a letter or a digit"
    if not _ENDING.match(name[-1]):  # MassTransit makes topics such as `Fault--Orders/Paid--`
        return "it must end with a letter, a digit, '-' or '_'"
    if rule.label and name[0].isdigit():
        return "it must start with a letter"  # or 127.0.0.1 might be one
    if rule.label and name.lower() == LOCALHOST:
        return "that name means the default namespace"
    segments = name.lower().split("/")
    if "" in segments:
        return "it contains an empty part between two '/'"
    if SUBSCRIPTIONS_NODE.lower() in segments[1:]:
        # Otherwise its address would read as that of a topic's subscription.
        return f"the part '{SUBSCRIPTIONS_NODE}' is reserved for the subscriptions of a topic"
    return None


def name_key(name: str) -> str:
    """What two names have in common if they are the same name (NAM-2)."""
    return name.lower()


# --- Addresses -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Address:
    """A node as a link names it. Names keep the case in which the client wrote them."""

    path: str
    """The queue or topic; empty for `$cbs` and for the namespace's own `$management`."""
    subscription: str | None = None
    sub_queue: SubQueueKind = SubQueueKind.MAIN
    management: bool = False
    cbs: bool = False

    @property
    def entity(self) -> str:
        """The queue, topic or subscription, without sub-queue and `$management`."""
        if self.subscription is None:
            return self.path
        return f"{self.path}/{SUBSCRIPTIONS_NODE}/{self.subscription}"

    @property
    def node(self) -> str:
        """The entity with its sub-queue: where messages are."""
        return self.entity + SUB_QUEUE_PATHS[self.sub_queue]

    @property
    def key(self) -> str:
        """Equal for two addresses of the same node (NAM-2)."""
        return name_key(str(self))

    def __str__(self) -> str:
        if self.cbs:
            return CBS_NODE
        if self.management:
            return f"{self.node}/{MANAGEMENT_NODE}".lstrip("/")
        return self.node


CBS_ADDRESS = Address("", cbs=True)

_SCHEME_AND_AUTHORITY = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")


def resource_path(text: str) -> str:
    """The path within a namespace: no scheme, host, query, percent signs or outer slashes.

    `amqps://ns:5671/queue`, `/queue`, `queue/` and `sb://ns/que%75e?api-version=1` are all `queue`;
    the case is kept.
    """
    match = _SCHEME_AND_AUTHORITY.match(text)
    if match is not None:
        text = text[match.end() :]
    for end in "?#":
        text = text.partition(end)[0]
    return unquote(text).strip("/")


def parse_address(text: str) -> Address:
    """Read any form of amqp.md section 6. What cannot be an address is `NOT_FOUND`, as a wrong
    one is."""
    segments = resource_path(text).split("/")
    lowered = [segment.lower() for segment in segments]
    if lowered == [CBS_NODE]:
        return CBS_ADDRESS
    management = lowered[-1] == MANAGEMENT_NODE
    if management:
        del segments[-1], lowered[-1]
    if management and not segments:
        return Address("", management=True)

    names_end = next((i for i, part in enumerate(lowered) if part.startswith("$")), len(lowered))
    sub_queue = _SUB_QUEUES_BY_SEGMENTS.get(tuple(lowered[names_end:]))
    names = segments[:names_end]
    if sub_queue is None or not names or "" in names:
        raise BusError(NOT_FOUND, uri=text)
    if len(names) >= 3 and lowered[names_end - 2] == SUBSCRIPTIONS_NODE.lower():
        return Address("/".join(names[:-2]), names[-1], sub_queue, management)
    return Address("/".join(names), None, sub_queue, management)


# --- Audiences -----------------------------------------------------------------------------------


def audience_key(text: str) -> str:
    """What a token is for, in the one form in which audiences are compared (amqp.md section 5).

    Empty for the whole namespace. A token for an entity serves its `$management` as well.
    """
    path = resource_path(text).lower()
    if path == MANAGEMENT_NODE:
        return ""
    return path.removesuffix(f"/{MANAGEMENT_NODE}")


def scope_covers(scope_key: str, resource_key: str) -> bool:
    """Whether a token for one `audience_key` opens another (D-34)."""
    return not scope_key or resource_key == scope_key or resource_key.startswith(f"{scope_key}/")


# --- Host names ----------------------------------------------------------------------------------


def host_name(authority: str) -> str:
    """Without port, brackets and the dot at the end, in lower case: `contoso.localhost:5672`,
    `[::1]:5672`."""
    name, colon, port = authority.rpartition(":")
    if not colon or not port.isdigit() or (":" in name and not name.endswith("]")):
        name = authority  # there is no port, or it is the last group of an IPv6 address
    return name.strip("[]").rstrip(".").lower()


def is_loopback(name: str) -> bool:
    """Of a `host_name`."""
    return name in ("localhost", "::1") or name.startswith("127.")


def is_same_host(one: str, other: str) -> bool:
    return host_name(one) == host_name(other)
