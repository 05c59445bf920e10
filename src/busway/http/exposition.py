"""Writing down what was collected, as Prometheus reads it. This file owns names and help texts.

Runs in a thread, and touches nothing but the figures that it is given.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from busway import __version__
from busway.broker.counting import COMMIT_BOUNDS_MS
from busway.http.census import (
    Census,
    EntityFigures,
    Figures,
    Links,
    NodeFigures,
    StoreFigures,
    Totals,
)
from busway.http.depths import STATES

TOTALS = {
    "messages_in": "Messages taken in: sent, forwarded here, or copied for a subscription.",
    "messages_out": "Messages completed, or received and deleted.",
    "dead_letters_out": "Dead letters completed, or received and deleted.",
    "forwarded": "Messages handed over to the entity that they are forwarded to.",
    "dead_lettered": "Messages that became dead letters, whatever the reason.",
    "expired": "Messages whose time to live was over.",
    "abandoned": "Deliveries that a client has given back.",
    "locks_expired": "Deliveries that came back because the lock had run out.",
    "activated": "Scheduled messages whose time had come.",
    "discarded": "Scheduled messages that were cancelled, and messages deleted in bulk.",
    "duplicates": "Messages accepted and dropped as duplicates.",
}
assert tuple(TOTALS) == Totals._fields

OF_PARTITIONS = ("messages_in", "messages_out", "dead_lettered", "expired")
"""Totals that partitions have series for, too."""

ENTITY = ["namespace", "entity", "subscription"]
PARTITION = [*ENTITY, "partition", "store"]

COMPRESSION = 4
"""Metrics are the same words again and again: more costs time and saves little."""


def written(figures: NodeFigures, accept: str, *, compress: bool) -> tuple[bytes, str, str | None]:
    """The text, its type, and how it is compressed."""
    encode, content_type = choose_encoder(accept)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Exposition(figures))
    text: bytes = encode(registry)
    if compress:
        return gzip.compress(text, COMPRESSION), content_type, "gzip"
    return text, content_type, None


class _Exposition(Collector):
    def __init__(self, figures: NodeFigures) -> None:
        self._figures = figures

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        figures = self._figures
        yield InfoMetricFamily("busway", "This server.", value={"version": __version__})
        yield from ProcessCollector(registry=None).collect()
        yield _gauge(
            "busway_uncommitted_bytes",
            "What clients have sent and no store has committed yet.",
            figures.uncommitted_bytes,
        )
        yield _gauge(
            "busway_uncommitted_bytes_max",
            "At so many uncommitted bytes nothing more is read from any client.",
            figures.uncommitted_bytes_max,
        )
        yield from _of_stores(figures.stores)
        yield from _of_namespaces(figures.censuses)
        yield from _of_entities(figures.censuses)
        yield from _of_partitions(figures.censuses)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _of_stores(stores: Sequence[StoreFigures]) -> Iterator[Metric]:
    up = GaugeMetricFamily("busway_store_up", "1 while the store serves.", labels=["store"])
    state = GaugeMetricFamily(
        "busway_store_state", "1 for the state that the store is in.", labels=["store", "state"]
    )
    uncommitted = GaugeMetricFamily(
        "busway_store_uncommitted_bytes", "What waits for the store's commits.", labels=["store"]
    )
    failed = CounterMetricFamily(
        "busway_store_commits_failed", "Commits that failed.", labels=["store"]
    )
    commits = HistogramMetricFamily(
        "busway_store_commit_seconds",
        "How long commits took, from handing over to their outcome.",
        labels=["store"],
    )
    for store in stores:
        up.add_metric([store.name], int(store.serves))
        state.add_metric([store.name, store.state], 1)
        uncommitted.add_metric([store.name], store.uncommitted_bytes)
        failed.add_metric([store.name], store.commits_failed)
        commits.add_metric([store.name], _buckets(store), store.commit_total_ms / 1000)
    yield from (up, state, uncommitted, failed, commits)


def _buckets(store: StoreFigures) -> list[tuple[str, float]]:
    bounds = [*(str(bound_ms / 1000) for bound_ms in COMMIT_BOUNDS_MS), "+Inf"]
    total = 0
    buckets: list[tuple[str, float]] = []
    for bound, count in zip(bounds, store.commit_counts, strict=True):
        total += count
        buckets.append((bound, total))
    return buckets


def _of_namespaces(censuses: Sequence[Census]) -> Iterator[Metric]:
    entities = GaugeMetricFamily(
        "busway_entities", "Queues, topics and subscriptions.", labels=["namespace"]
    )
    connections = GaugeMetricFamily(
        "busway_connections", "AMQP connections of clients.", labels=["namespace"]
    )
    for census in censuses:
        entities.add_metric([census.namespace], census.entity_count)
        connections.add_metric([census.namespace], census.connections)
    yield from (entities, connections)


def _of_entities(censuses: Sequence[Census]) -> Iterator[Metric]:
    rows = [
        ([census.namespace, row.entity, row.subscription], row)
        for census in censuses
        for row in census.entities
    ]
    whole = [(labels, row.whole) for labels, row in rows]
    yield from _of_figures("busway", ENTITY, whole, tuple(TOTALS), censuses)
    size = GaugeMetricFamily("busway_size_bytes", "Size of all messages.", labels=ENTITY)
    missing = GaugeMetricFamily(
        "busway_partitions_unavailable",
        "Partitions whose store does not serve; their messages are not in the other figures.",
        labels=ENTITY,
    )
    for labels, figures in whole:
        size.add_metric(labels, figures.depth.bytes)
        missing.add_metric(labels, figures.unavailable)
    yield from (size, missing)
    yield from _of_links(censuses, rows)


def _of_links(
    censuses: Sequence[Census], rows: Sequence[tuple[list[str], EntityFigures]]
) -> Iterator[Metric]:
    count = GaugeMetricFamily(
        "busway_links", "AMQP links, by what the client does.", labels=[*ENTITY, "role"]
    )
    credit = GaugeMetricFamily(
        "busway_link_credit",
        "Messages that receivers still take, and that senders may still send.",
        labels=[*ENTITY, "role"],
    )
    places: list[tuple[list[str], dict[str, Links]]] = [
        *(([census.namespace, "", ""], census.links) for census in censuses),
        *((labels, row.links) for labels, row in rows),
    ]
    for labels, links in places:
        for role, each in links.items():
            count.add_metric([*labels, role], each.count)
            credit.add_metric([*labels, role], each.credit)
    yield from (count, credit)


def _of_partitions(censuses: Sequence[Census]) -> Iterator[Metric]:
    rows = [
        ([census.namespace, row.entity, row.subscription, str(index), store], figures)
        for census in censuses
        for row in census.entities
        for index, store, figures in row.partitions
    ]
    yield from _of_figures("busway_partition", PARTITION, rows, OF_PARTITIONS, censuses)


def _of_figures(
    prefix: str,
    labels: list[str],
    rows: Sequence[tuple[list[str], Figures]],
    totals: Sequence[str],
    censuses: Sequence[Census],
) -> Iterator[Metric]:
    depth = GaugeMetricFamily(f"{prefix}_messages", "Messages by state.", labels=[*labels, "state"])
    age = GaugeMetricFamily(
        f"{prefix}_oldest_message_age_seconds",
        "How long ago the oldest active message was enqueued; none where there is none.",
        labels=[*labels, "sub_queue"],
    )
    now_ms = {census.namespace: census.now_ms for census in censuses}
    for values, figures in rows:
        for state in STATES:
            depth.add_metric([*values, state], getattr(figures.depth, state))
        for sub_queue, oldest_ms in (
            ("main", figures.oldest_ms),
            ("dead_letter", figures.oldest_dead_letter_ms),
        ):
            if oldest_ms is not None:
                age_s = max(0, now_ms[values[0]] - oldest_ms) / 1000
                age.add_metric([*values, sub_queue], age_s)
    yield from (depth, age)
    for name in totals:
        counter = CounterMetricFamily(f"{prefix}_{name}", TOTALS[name], labels=labels)
        for values, figures in rows:
            counter.add_metric(values, getattr(figures.totals, name))
        yield counter
