"""What a request is about: its path, taken apart (http.md section 2).

Keywords are found before anything is decoded, because a `/` within a name may come as `%2F`, and
they compare without case. Nothing here knows whether an entity exists.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from urllib.parse import unquote

from busway.model.errors import NOT_FOUND, BusError
from busway.model.names import (
    SUB_QUEUE_PATHS,
    SUBSCRIPTIONS_NODE,
    Address,
    SubQueueKind,
    name_key,
)

SUBSCRIPTIONS = SUBSCRIPTIONS_NODE.lower()
RULES = "rules"
MESSAGES = "messages"
HEAD = "head"
JOURNAL = "$journal"
EXPLORER = "$explorer"
PORTAL = "portal"
IDENTITY_PATH = ("msi", "token")
"""As in App Service."""


class Kind(Enum):
    ROOT = auto()
    QUEUES = auto()
    TOPICS = auto()
    NAMESPACE = auto()
    ENTITY = auto()
    SUBSCRIPTIONS = auto()
    SUBSCRIPTION = auto()
    RULES = auto()
    RULE = auto()
    MESSAGES = auto()
    WEBSOCKET = auto()
    HEALTH = auto()
    METRICS = auto()
    JOURNAL = auto()
    """What happened to an entity's messages, with the rest of the path (D-31)."""
    EXPLORER = auto()
    """What people ask of an entity and its messages, with the rest of the path."""
    PORTAL = auto()
    """The web page, with the rest of the path."""
    IDENTITY = auto()
    """Where applications ask for tokens (`--dev-tokens`)."""
    BUSWAY = auto()
    """What is ours and not the service's: `/$busway/...`, with the rest of the path."""


@dataclass(frozen=True, slots=True)
class Target:
    kind: Kind
    raw: str
    """The path as it was requested: clients cut names out of it, case included."""
    path: str = ""
    """The queue or topic."""
    subscription: str | None = None
    rule: str | None = None
    sub_queue: SubQueueKind = SubQueueKind.MAIN
    rest: tuple[str, ...] = ()
    """What follows `messages`, `$journal`, `$explorer`, `$busway` or `portal`, decoded."""

    @property
    def address(self) -> Address:
        """Of the entity or sub-queue that a link would name."""
        return Address(self.path, self.subscription, self.sub_queue)

    @property
    def audience(self) -> str:
        """What a token must cover, in the form in which audiences are compared (D-34)."""
        return name_key(unquote(self.raw).strip("/"))


_FIXED: dict[tuple[str, ...], Kind] = {
    (): Kind.ROOT,
    ("$resources", "queues"): Kind.QUEUES,
    ("$resources", "topics"): Kind.TOPICS,
    ("$namespaceinfo",): Kind.NAMESPACE,
    ("$servicebus", "websocket"): Kind.WEBSOCKET,
}
_PAGES: dict[tuple[str, ...], Kind] = {
    ("health",): Kind.HEALTH,
    ("health", "live"): Kind.HEALTH,
    ("metrics",): Kind.METRICS,
}
_BELOW_ENTITIES = {JOURNAL: Kind.JOURNAL, EXPLORER: Kind.EXPLORER}
_SUB_QUEUES = {
    tuple(name_key(path).split("/")[1:]): kind
    for kind, path in SUB_QUEUE_PATHS.items()
    if kind is not SubQueueKind.TRANSFER
}
_MESSAGE_METHODS = {
    # by how many segments follow `messages`; anything else is a name with that word in it
    0: {"POST"},
    1: {"POST", "DELETE"},
    2: {"POST", "PUT", "DELETE"},
}


_ORIGIN = re.compile(r"https?://[^/?#]*", re.IGNORECASE)


def path_of(request_target: str) -> str:
    """The path of a request line, which may name a host first and a query last."""
    return _ORIGIN.sub("", request_target, count=1).partition("?")[0] or "/"


def parse(
    method: str, raw_path: str, *, has_api_version: bool, has_resource: bool = False
) -> Target:
    """Raises *not found* for a path that names nothing that can be.

    Who asks for a token names a resource in the query, and nobody else does: `msi/token` may be a
    queue's name.

    `/health`, `/metrics` and `/portal` are also names that a queue may have. Clients that manage a
    queue say their api-version, who looks after a server does not.
    """
    segments = [part for part in raw_path.split("/") if part]
    lowered = tuple(unquote(part).lower() for part in segments)
    fixed = _FIXED.get(lowered) or (None if has_api_version else _PAGES.get(lowered))
    if fixed is not None:
        return Target(fixed, raw_path)
    if lowered == IDENTITY_PATH and has_resource:
        return Target(Kind.IDENTITY, raw_path)
    if lowered[0] == "$busway":
        return Target(Kind.BUSWAY, raw_path, rest=tuple(unquote(part) for part in segments[1:]))
    if lowered[0] == PORTAL and method in ("GET", "HEAD") and not has_api_version:
        return Target(Kind.PORTAL, raw_path, rest=tuple(unquote(part) for part in segments[1:]))
    word = next((each for each in _BELOW_ENTITIES if each in lowered), None)
    if word is not None:
        kind, position = _BELOW_ENTITIES[word], lowered.index(word)
    else:
        kind, found = Kind.MESSAGES, _position_of_messages(method, lowered)
        if found is None:
            return _managed(raw_path, segments, lowered)
        position = found
    path, subscription, sub_queue = _receivable(raw_path, segments[:position], lowered[:position])
    rest = tuple(unquote(part) for part in segments[position + 1 :])
    return Target(kind, raw_path, path, subscription, None, sub_queue, rest)


def _position_of_messages(method: str, lowered: tuple[str, ...]) -> int | None:
    for following, methods in _MESSAGE_METHODS.items():
        position = len(lowered) - 1 - following
        if position < 1 or lowered[position] != MESSAGES or method not in methods:
            continue
        if following != 1 or lowered[-1] == HEAD:
            return position
    return None


def _receivable(
    raw_path: str, segments: list[str], lowered: tuple[str, ...]
) -> tuple[str, str | None, SubQueueKind]:
    names_end = next((i for i, part in enumerate(lowered) if part.startswith("$")), len(lowered))
    sub_queue = _SUB_QUEUES.get(lowered[names_end:])
    if sub_queue is None or names_end == 0:
        raise BusError(NOT_FOUND, uri=unquote(raw_path))
    names = [unquote(part) for part in segments[:names_end]]
    if len(names) >= 3 and lowered[names_end - 2] == SUBSCRIPTIONS:
        return "/".join(names[:-2]), names[-1], sub_queue
    return "/".join(names), None, sub_queue


def _managed(raw_path: str, segments: list[str], lowered: tuple[str, ...]) -> Target:
    names = [unquote(part) for part in segments]
    keyword = next((i for i, part in enumerate(lowered) if i and part == SUBSCRIPTIONS), None)
    if keyword is None:
        return Target(Kind.ENTITY, raw_path, "/".join(names))
    path, below = "/".join(names[:keyword]), names[keyword + 1 :]
    match below:
        case []:
            return Target(Kind.SUBSCRIPTIONS, raw_path, path)
        case [subscription]:
            return Target(Kind.SUBSCRIPTION, raw_path, path, subscription)
        case [_, word, *_] if word.startswith("$"):  # a part of it: no name that can be there
            return Target(Kind.SUBSCRIPTION, raw_path, path, "/".join(below))
        case [subscription, word] if word.lower() == RULES:
            return Target(Kind.RULES, raw_path, path, subscription)
        case [subscription, word, rule] if word.lower() == RULES:
            return Target(Kind.RULE, raw_path, path, subscription, rule)
    raise BusError(NOT_FOUND, uri=unquote(raw_path))
