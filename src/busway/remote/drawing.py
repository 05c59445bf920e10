"""Drawing the map of a server for a terminal: stores, and how the partitions lie on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import log10
from typing import Any

HEAT = ".:-=+*%#@"
"""From nothing to the fullest partition of all that are shown, by orders of magnitude."""
UNREACHABLE = "x"

RED, YELLOW, GREEN, FAINT = "\x1b[31m", "\x1b[33m", "\x1b[32m", "\x1b[2m"
END = "\x1b[0m"

Cell = tuple[str, str]
"""A text and its colour, which may be none."""


def draw(found: dict[str, Any], *, partitions: bool, colour: bool) -> Iterator[str]:
    """Line by line. `partitions`: one line for each partition as well."""
    stores, entities = found["stores"], found["entities"]
    yield from table(
        ["store", "health", "state", "commit", "fault", ""], map(_store_row, stores), colour
    )
    if not entities:
        yield ""
        yield "There are no entities to show."
        return
    yield ""
    fullest = fullest_of(entities)
    names = [store["name"] for store in stores]
    rows = [_entity_row(entity, names, fullest) for entity in entities]
    yield from table(["entity", "type", "messages", "", *names], rows, colour)
    yield ""
    yield f"{HEAT}  empty to full, a sign for each partition; {UNREACHABLE}  cannot be reached"
    if partitions:
        for entity in entities:
            yield ""
            yield f"{entity['name']}:"
            yield from table(PARTITION_HEAD, map(partition_row, entity["partitions"]), colour)


def fullest_of(entities: Iterable[dict[str, Any]]) -> int:
    """The messages of the fullest partition of all."""
    return max(
        (part["depth"]["messages"] for each in entities for part in each["partitions"]
         if part["depth"]),
        default=0,
    )  # fmt: skip


def _store_row(store: dict[str, Any]) -> list[Cell]:
    well = store["status"] == "ok"
    commit_ms = store["round_trip_ms"]
    fault = store["fault"]
    if fault == "slow":
        fault = f"slow, {store['delay_ms']} ms"
    return [
        (store["name"], ""),
        (store["status"], GREEN if well else RED),
        (store["state"], "" if well else RED),
        ("-" if commit_ms is None else f"{commit_ms} ms", ""),
        ("-" if fault == "none" else fault, YELLOW),
        (store["problem"] or store["reason"] or "", ""),
    ]


def _entity_row(entity: dict[str, Any], stores: Sequence[str], fullest: int) -> list[Cell]:
    total = sum(part["depth"]["messages"] for part in entity["partitions"] if part["depth"])
    limited = entity["availability"] != "Available"
    cells = []
    for store in stores:
        here = [part for part in entity["partitions"] if part["store"] == store]
        signs = "".join(sign(part, fullest) for part in here)
        cells.append((signs, RED if UNREACHABLE in signs else ""))
    kind = entity["type"]
    return [
        (entity["name"], ""),
        (f"{kind}, partitioned" if entity["partitioned"] else kind, FAINT),
        (f"{total:,}{'+' if limited else ''}", ""),
        (entity["availability"], RED if limited else GREEN),
        *cells,
    ]


def sign(partition: dict[str, Any], fullest: int) -> str:
    """How full it is, beside the fullest that is shown."""
    if partition["depth"] is None or partition["state"] != "serving":
        return UNREACHABLE
    messages = partition["depth"]["messages"]
    if not messages:
        return HEAT[0]
    share = log10(messages + 1) / log10(fullest + 1)
    return HEAT[max(1, round(share * (len(HEAT) - 1)))]


PARTITION_HEAD = [
    "partition", "store", "state", "active", "scheduled", "deferred", "dead letters", "bytes",
]  # fmt: skip


def partition_row(partition: dict[str, Any]) -> list[Cell]:
    depth = partition["depth"]
    fields = ("active", "scheduled", "deferred", "dead_letter", "bytes")
    return [
        (str(partition["partition"]), ""),
        (partition["store"] or "-", ""),
        (partition["state"], "" if partition["state"] == "serving" else RED),
        *(("?" if depth is None else f"{depth[field]:,}", "") for field in fields),
    ]


def table(head: Sequence[str], rows: Iterable[list[Cell]], colour: bool) -> Iterator[str]:
    cells = [[(title, FAINT) for title in head], *rows]
    widths = [max(len(row[column][0]) for row in cells) for column in range(len(head))]
    for row in cells:
        line = "  ".join(
            _coloured(text.ljust(width), tint if colour else "")
            for (text, tint), width in zip(row, widths, strict=True)
        )
        yield line.rstrip()


def _coloured(text: str, tint: str) -> str:
    return f"{tint}{text}{END}" if tint else text
