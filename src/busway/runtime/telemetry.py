"""OpenTelemetry: spans and metrics of what passes through links, sent by OTLP over HTTP.

Only where `--otel` asks for it, and with the extra `otel` installed. Where it goes, how often and
how much of it is said by OpenTelemetry's own variables (`OTEL_EXPORTER_OTLP_ENDPOINT`,
`OTEL_SERVICE_NAME`, `OTEL_TRACES_SAMPLER`, ...). Spans are handed to its thread and sent from
there; if nobody takes them they are dropped, and messages go on.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from busway import __version__

LINKS_MAX = 128
"""Of one span; OpenTelemetry keeps no more by default."""


class Telemetry:
    """A `gateway.traced.Tracer` that exports."""

    def __init__(self) -> None:
        resource = Resource.create({"service.version": __version__})
        if "unknown_service" in str(resource.attributes.get("service.name", "unknown_service")):
            resource = resource.merge(Resource({"service.name": "busway"}))
        self._spans = TracerProvider(resource=resource)
        self._spans.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        reader = PeriodicExportingMetricReader(OTLPMetricExporter())
        self._metrics = MeterProvider(resource=resource, metric_readers=[reader])
        self._tracer = self._spans.get_tracer("busway", __version__)
        meter = self._metrics.get_meter("busway", __version__)
        self._duration = meter.create_histogram(
            "busway.operation.duration", "s", "From the arrival of a run to its answer."
        )
        self._messages = meter.create_counter(
            "busway.operation.messages", "{message}", "Messages sent, received and settled."
        )

    def now_ns(self) -> int:
        return time.time_ns()

    def record(
        self,
        operation: str,
        entity: str,
        start_ns: int,
        contexts: Iterable[str],
        *,
        messages: int,
        outcome: str = "ok",
        error: str | None = None,
    ) -> None:
        end_ns = time.time_ns()
        labels = {
            "messaging.system": "servicebus",
            "messaging.operation.type": operation,
            "messaging.destination.name": entity,
            "busway.outcome": outcome,
        }
        found = [_context(each) for each in sorted(contexts)]
        one = found[0] if len(found) == 1 else None
        span = self._tracer.start_span(
            f"{operation} {entity}",
            context=None if one is None else set_span_in_context(NonRecordingSpan(one)),
            kind=SpanKind.SERVER,
            attributes={**labels, "messaging.batch.message_count": messages},
            links=[] if one is not None else [Link(each) for each in found[:LINKS_MAX]],
            start_time=start_ns,
        )
        if error is not None:
            span.set_status(StatusCode.ERROR, error)
        span.end(end_ns)
        self._duration.record(max(0, end_ns - start_ns) / 1e9, labels)
        self._messages.add(messages, labels)

    def close(self) -> None:
        """Send what is left; blocks for as long as the exporters may take."""
        self._spans.shutdown()
        self._metrics.shutdown()


def _context(text: str) -> SpanContext:
    """`00-<trace>-<span>-<flags>`; the gateway lets no other text through."""
    _, trace_id, span_id, flags = text.split("-")
    return SpanContext(
        int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16))
    )
