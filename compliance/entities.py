"""The entities that the suites find on their server.

Every test takes entities of its own from a pool, so that what one leaves behind is not another's
trouble, and a suite needs no way to create them. `queue-3` is the third conventional queue of its
kind, `queue-partitioned-3` the third partitioned one. The kinds and how they are meant:

| kind | is |
|---|---|
| `queue` | a queue; expired messages are dead-lettered, as are those delivered three times |
| `short` | a queue with the shortest lock there is, five seconds |
| `session` | a queue that requires sessions |
| `unique` | a queue with duplicate detection |
| `forward` | a queue that forwards to the `target` of its number |
| `mourned` | a queue that forwards its dead letters to the `grave` of its number |
| `topic` | subscriptions `all`, `rules` (both with `$Default`), `red` (SQL filter and action), |
| | `urgent` (correlation filter), `sessions` (requires sessions) |

The names are in the format of Microsoft's emulator, which Busway reads as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

POOLS = {"queue": 30, "short": 4, "session": 16, "unique": 3, "forward": 2, "topic": 10}
"""Partitioned entities are at most 100 in a namespace (P-16), so the pools cannot be any size."""

QUEUES: dict[str, dict[str, Any]] = {
    "queue": {"MaxDeliveryCount": 3, "DeadLetteringOnMessageExpiration": True},
    "short": {"LockDuration": "PT5S"},
    "session": {"RequiresSession": True},
    "unique": {"RequiresDuplicateDetection": True},
}

FORWARDS = (
    ("forward", "ForwardTo", "target"),
    ("mourned", "ForwardDeadLetteredMessagesTo", "grave"),
)

SUBSCRIPTIONS: list[dict[str, Any]] = [
    {"Name": "all"},
    {"Name": "rules"},
    {
        "Name": "red",
        "Rules": [
            {
                "Name": "red",
                "Properties": {
                    "FilterType": "Sql",
                    "SqlFilter": {"SqlExpression": "colour = 'red'"},
                    "Action": {"SqlExpression": "SET painted = 'yes'"},
                },
            }
        ],
    },
    {
        "Name": "urgent",
        "Rules": [
            {
                "Name": "urgent",
                "Properties": {
                    "FilterType": "Correlation",
                    "CorrelationFilter": {"Label": "urgent", "Properties": {"level": "high"}},
                },
            }
        ],
    },
    {"Name": "sessions", "Properties": {"RequiresSession": True}},
]


def configuration() -> str:
    """A configuration file with all of them."""
    namespace = {"Name": "compliance", "Queues": list(_queues()), "Topics": list(_topics())}
    return json.dumps({"UserConfig": {"Namespaces": [namespace]}}, indent=1)


def _queues() -> Iterator[dict[str, Any]]:
    for infix, partitioned in (("", {}), ("-partitioned", {"EnablePartitioning": True})):
        for kind, properties in QUEUES.items():
            for number in range(1, POOLS[kind] + 1):
                yield _entity(f"{kind}{infix}-{number}", properties | partitioned)
        for number in range(1, POOLS["forward"] + 1):
            for source, forward, target in FORWARDS:
                destination = f"{target}{infix}-{number}"
                yield _entity(destination, partitioned)
                yield _entity(f"{source}{infix}-{number}", {forward: destination} | partitioned)


def _topics() -> Iterator[dict[str, Any]]:
    for infix, partitioned in (("", {}), ("-partitioned", {"EnablePartitioning": True})):
        for number in range(1, POOLS["topic"] + 1):
            topic = _entity(f"topic{infix}-{number}", partitioned)
            yield {**topic, "Subscriptions": SUBSCRIPTIONS}


def _entity(name: str, properties: dict[str, Any]) -> dict[str, Any]:
    return {"Name": name, "Properties": properties}
