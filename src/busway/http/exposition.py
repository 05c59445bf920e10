"""Writing down what was collected, as Prometheus reads it. This file owns names and help texts.

Runs in a thread, and touches nothing but the figures that it is given.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, cast

from prometheus_client import ProcessCollector
from prometheus_client.core import HistogramMetricFamily, InfoMetricFamily, Metric, Sample
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from busway import __version__
from busway.broker.counting import COMMIT_BOUNDS_MS
from busway.http.census import Census, EntityFigures, Figures, NodeFigures, StoreFigures, Totals
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

ENTITY = ("namespace", "entity", "subscription")
PARTITION = (*ENTITY, "partition", "store")

COMPRESSION = 4
"""Metrics are the same words again and again: more costs time and saves little."""

Row = tuple[tuple[str, ...], float]
"""The values of the labels, and the number."""
Rows = Callable[[], Iterable[Row]]


def written(figures: NodeFigures, accept: str, *, compress: bool) -> tuple[bytes, str, str | None]:
    """The text, its type, and how it is compressed."""
    encode, content_type = choose_encoder(accept)
    text: bytes = encode(_Exposition(figures))
    if compress:
        return gzip.compress(text, COMPRESSION), content_type, "gzip"
    return text, content_type, None


class _Family(Metric):
    """A metric whose samples are made one by one, while they are written: all at once they would
    set the garbage collector on everything else that is in memory."""

    def __init__(self, kind: str, name: str, text: str, labels: Sequence[str], rows: Rows) -> None:
        super().__init__(name, text, kind)
        series = f"{name}_total" if kind == "counter" else name
        self.samples = cast(list[Any], _Samples(series, labels, rows))


class _Samples:
    def __init__(self, name: str, labels: Sequence[str], rows: Rows) -> None:
        self._name = name
        self._labels = labels
        self._rows = rows

    def __iter__(self) -> Iterator[Sample]:
        for values, number in self._rows():
            yield Sample(self._name, dict(zip(self._labels, values, strict=True)), number)


class _Waits(Metric):
    """How many there were, and their sum: what averages over any time are made from."""

    def __init__(self, whole: Callable[[], Iterable[tuple[tuple[str, ...], Figures]]]) -> None:
        text = "How long messages were in the entity, from enqueued until received for good."
        super().__init__("busway_wait_seconds", text, "summary")
        self.samples = cast(list[Any], _WaitSamples(whole))


class _WaitSamples:
    def __init__(self, whole: Callable[[], Iterable[tuple[tuple[str, ...], Figures]]]) -> None:
        self._whole = whole

    def __iter__(self) -> Iterator[Sample]:
        for values, figures in self._whole():
            if figures.waits is not None:
                labels = dict(zip(ENTITY, values, strict=True))
                yield Sample("busway_wait_seconds_count", labels, sum(figures.waits.counts))
                yield Sample("busway_wait_seconds_sum", labels, figures.waits.total_ms / 1000)


def _gauge(name: str, text: str, labels: Sequence[str], rows: Rows) -> Metric:
    return _Family("gauge", name, text, labels, rows)


def _counter(name: str, text: str, labels: Sequence[str], rows: Rows) -> Metric:
    return _Family("counter", name, text, labels, rows)


class _Exposition(Collector):
    def __init__(self, figures: NodeFigures) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        figures = self._figures
        yield InfoMetricFamily("busway", "This server.", value={"version": __version__})
        yield from ProcessCollector(registry=None).collect()
        yield _gauge(
            "busway_uncommitted_bytes",
            "What clients have sent and no store has committed yet.",
            (),
            lambda: [((), figures.uncommitted_bytes)],
        )
        yield _gauge(
            "busway_uncommitted_bytes_max",
            "At so many uncommitted bytes nothing more is read from any client.",
            (),
            lambda: [((), figures.uncommitted_bytes_max)],
        )
        yield _gauge(
            "busway_journal_damaged_rows",
            "Rows of journals that readers asked for and that are damaged, since the start.",
            (),
            lambda: [((), figures.damaged_journal_rows)],
        )
        yield from _of_stores(figures.stores)
        yield from _of_namespaces(figures.censuses)
        yield from _of_entities(figures.censuses)
        yield from _of_partitions(figures.censuses)


def _of_stores(stores: Sequence[StoreFigures]) -> Iterator[Metric]:
    yield _gauge(
        "busway_store_up",
        "1 while the store serves.",
        ("store",),
        lambda: (((store.name,), int(store.serves)) for store in stores),
    )
    yield _gauge(
        "busway_store_state",
        "1 for the state that the store is in.",
        ("store", "state"),
        lambda: (((store.name, store.state), 1) for store in stores),
    )
    yield _gauge(
        "busway_store_uncommitted_bytes",
        "What waits for the store's commits.",
        ("store",),
        lambda: (((store.name,), store.uncommitted_bytes) for store in stores),
    )
    yield _gauge(
        "busway_store_free_bytes",
        "Room on the store's disk after its last commit.",
        ("store",),
        lambda: (
            ((store.name,), store.free_bytes) for store in stores if store.free_bytes is not None
        ),
    )
    yield _counter(
        "busway_store_sends_refused",
        "Sends that were refused because the store's disk was full.",
        ("store",),
        lambda: (((store.name,), store.sends_refused) for store in stores),
    )
    yield _gauge(
        "busway_store_damaged_messages",
        "Damaged messages that were set aside.",
        ("store",),
        lambda: (((store.name,), store.damaged_messages) for store in stores),
    )
    yield _counter(
        "busway_store_commits_failed",
        "Commits that failed.",
        ("store",),
        lambda: (((store.name,), store.commits_failed) for store in stores),
    )
    commits = HistogramMetricFamily(
        "busway_store_commit_seconds",
        "How long commits took, from handing over to their outcome.",
        labels=["store"],
    )
    for store in stores:
        commits.add_metric([store.name], _buckets(store), store.commit_total_ms / 1000)
    yield commits


def _buckets(store: StoreFigures) -> list[tuple[str, float]]:
    bounds = [*(str(bound_ms / 1000) for bound_ms in COMMIT_BOUNDS_MS), "+Inf"]
    total = 0
    buckets: list[tuple[str, float]] = []
    for bound, count in zip(bounds, store.commit_counts, strict=True):
        total += count
        buckets.append((bound, total))
    return buckets


def _of_namespaces(censuses: Sequence[Census]) -> Iterator[Metric]:
    yield _gauge(
        "busway_entities",
        "Queues, topics and subscriptions.",
        ("namespace",),
        lambda: (((census.namespace,), census.entity_count) for census in censuses),
    )
    yield _gauge(
        "busway_connections",
        "Connections of clients: AMQP, AMQP over WebSocket, HTTP.",
        ("namespace", "kind"),
        lambda: (
            ((census.namespace, kind), count)
            for census in censuses
            for kind, count in census.connections.items()
        ),
    )


def _of_entities(censuses: Sequence[Census]) -> Iterator[Metric]:
    def rows() -> Iterator[tuple[tuple[str, ...], EntityFigures]]:
        for census in censuses:
            for row in census.entities:
                yield (census.namespace, row.entity, row.subscription), row

    def whole() -> Iterator[tuple[tuple[str, ...], Figures]]:
        return ((labels, row.whole) for labels, row in rows())

    yield from _of_figures("busway", ENTITY, whole, tuple(TOTALS), censuses)
    yield _gauge(
        "busway_size_bytes",
        "Size of all messages.",
        ENTITY,
        lambda: ((labels, figures.depth.bytes) for labels, figures in whole()),
    )
    yield _gauge(
        "busway_partitions_unavailable",
        "Partitions whose store does not serve; their messages are not in the other figures.",
        ENTITY,
        lambda: ((labels, figures.unavailable) for labels, figures in whole()),
    )

    yield _Waits(whole)

    def links(what: str) -> Iterator[Row]:
        """Of entities, and those for tokens and transactions, which belong to none."""
        for census in censuses:
            for role, each in census.links.items():
                yield (census.namespace, "", "", role), getattr(each, what)
        for labels, row in rows():
            for role, each in row.links.items():
                yield (*labels, role), getattr(each, what)

    yield _gauge(
        "busway_links",
        "AMQP links, by what the client does.",
        (*ENTITY, "role"),
        lambda: links("count"),
    )
    yield _gauge(
        "busway_link_credit",
        "Messages that receivers still take, and that senders may still send.",
        (*ENTITY, "role"),
        lambda: links("credit"),
    )


def _of_partitions(censuses: Sequence[Census]) -> Iterator[Metric]:
    def rows() -> Iterator[tuple[tuple[str, ...], Figures]]:
        for census in censuses:
            for row in census.entities:
                for index, store, figures in row.partitions:
                    labels = (census.namespace, row.entity, row.subscription, str(index), store)
                    yield labels, figures

    yield from _of_figures("busway_partition", PARTITION, rows, OF_PARTITIONS, censuses)


def _of_figures(
    prefix: str,
    labels: Sequence[str],
    rows: Callable[[], Iterable[tuple[tuple[str, ...], Figures]]],
    totals: Sequence[str],
    censuses: Sequence[Census],
) -> Iterator[Metric]:
    now_ms = {census.namespace: census.now_ms for census in censuses}

    def depths() -> Iterator[Row]:
        for values, figures in rows():
            for state, messages in zip(STATES, figures.depth, strict=False):
                yield (*values, state), messages

    def ages() -> Iterator[Row]:
        for values, figures in rows():
            for sub_queue, oldest_ms in (
                ("main", figures.oldest_ms),
                ("dead_letter", figures.oldest_dead_letter_ms),
            ):
                if oldest_ms is not None:
                    yield (*values, sub_queue), max(0, now_ms[values[0]] - oldest_ms) / 1000

    def counted(position: int) -> Iterator[Row]:
        return ((values, figures.totals[position]) for values, figures in rows())

    yield _gauge(f"{prefix}_messages", "Messages by state.", (*labels, "state"), depths)
    yield _gauge(
        f"{prefix}_oldest_message_age_seconds",
        "How long ago the oldest active message was enqueued; none where there is none.",
        (*labels, "sub_queue"),
        ages,
    )
    for name in totals:
        count = partial(counted, Totals._fields.index(name))
        yield _counter(f"{prefix}_{name}", TOTALS[name], labels, count)
