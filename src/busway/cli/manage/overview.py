"""An entity for a person: settings, what it holds, and how its partitions are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from busway.cli.manage import showing
from busway.remote.connection import Credentials
from busway.remote.console import coloured
from busway.remote.management.options import SUBSCRIPTION, TOPIC, Value, options_of

STATES = ("active", "scheduled", "deferred", "dead_letter", "transfer", "transfer_dead_letter")


def with_partitions(found: dict[str, Any], credentials: Credentials) -> dict[str, Any]:
    """With what only Busway tells: each partition, and which messages are deferred. The service
    counts those as active ones."""
    from urllib.parse import urlencode

    from busway.remote.client import RemoteError, RemoteServer

    if credentials.endpoint.is_azure:
        return found
    try:
        query = urlencode({"entity": found["name"].partition("/")[0]})
        page = RemoteServer(credentials).get(f"/$busway/map?{query}")
    except RemoteError:
        return found  # another server that speaks the service's protocols
    wanted = found["name"].lower()
    for each in page["entities"]:
        if each["name"].lower() == wanted:
            depths = [part["depth"] for part in each["partitions"] if part["depth"]]
            deferred = sum(depth["deferred"] for depth in depths)
            counts = found["counts"]
            counts = {**counts, "active": counts["active"] - deferred, "deferred": deferred}
            return {**found, "counts": counts, "partitions": each["partitions"]}
    return found


def draw(kind: str, found: dict[str, Any]) -> None:
    partitions = found.get("partitions")
    pairs: list[tuple[str, Any]] = [
        (kind, found["name"]),
        ("status", found["status"]),
        ("availability", found["availability"]),
    ]
    if partitions:
        pairs.append(("partitions", len(partitions)))
    if kind != SUBSCRIPTION:
        used = f"{showing.size(found['size_bytes'])} of {found['max_size_mb']:,} MB"
        pairs.append(("size", used))
    pairs += [
        ("created", showing.instant(found["created_at"])),
        ("changed", showing.instant(found["updated_at"])),
        ("used", showing.instant(found["accessed_at"])),
    ]
    if kind == TOPIC:
        pairs.append(("subscriptions", found["subscriptions"]))
    showing.facts(pairs)
    print()
    counts = [state for state in STATES if state in found["counts"]]
    titles = [state.replace("_", " ") for state in counts]
    showing.tabulate(titles, [[found["counts"][state] for state in counts]], right=titles)
    print()
    showing.facts(_settings(kind, found))
    if partitions and len(partitions) > 1:
        from busway.remote.drawing import PARTITION_HEAD, partition_row, table

        print()
        for line in table(PARTITION_HEAD, map(partition_row, partitions), coloured()):
            print(line)


def _settings(kind: str, found: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for option in options_of(kind):
        if option.name in ("status", "max_size_mb"):
            continue
        value = found[option.name]
        shown = showing.span(value) if option.value is Value.SPAN else value
        yield option.name.replace("_", " "), shown


def draw_list(kind: str, found: Sequence[dict[str, Any]]) -> None:
    if not found:
        print(f"There are no {kind}s to show. Make one with: busway {kind} create")
        return
    head = [kind, "status", "active", "scheduled", "dead letters", "size", "partitioned", ""]
    rows = [
        [
            each["name"].rpartition("/")[2] if kind == SUBSCRIPTION else each["name"],
            each["status"],
            each["counts"]["active"],
            each["counts"]["scheduled"],
            each["counts"]["dead_letter"],
            showing.size(each["size_bytes"]),
            each.get("partitioned"),
            "" if each["availability"] in (None, "Available") else each["availability"],
        ]
        for each in found
    ]
    if kind == SUBSCRIPTION:  # its size and its partitions are its topic's
        head = [*head[:5], head[7]]
        rows = [[*row[:5], row[7]] for row in rows]
    if kind == TOPIC:  # what is sent to it is in its subscriptions
        head[2] = "subscriptions"
        for row, each in zip(rows, found, strict=True):
            row[2] = each["subscriptions"]
    numbers = [name for name in head if name in (head[2], "scheduled", "dead letters", "size")]
    showing.tabulate(head, rows, right=numbers)
