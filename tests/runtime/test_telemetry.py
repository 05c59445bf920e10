"""Traces and metrics by OTLP: a real server sends them to a receiver that the test plays."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from busway.gateway.traced import contexts_in
from busway.testing import Server

WAIT_S = 60
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
OTHER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Collector:
    """What stands for OpenTelemetry's."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.services: set[str] = set()
        self.sums: dict[tuple[str, str], int] = {}
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.take(self.path, body)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, path: str, body: bytes) -> None:
        if path == "/v1/traces":
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                for attribute in resource.resource.attributes:
                    if attribute.key == "service.name":
                        self.services.add(attribute.value.string_value)
                for scope in resource.scope_spans:
                    self.spans += scope.spans
        elif path == "/v1/metrics":
            for each in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for metric in (m for scope in each.scope_metrics for m in scope.metrics):
                    for point in metric.sum.data_points:
                        labels = {a.key: a.value.string_value for a in point.attributes}
                        name = metric.name, labels["messaging.operation.type"]
                        self.sums[name] = int(point.as_int)

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]

    @property
    def environment(self) -> dict[str, str]:
        port = self.server.server_address[1]
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}"}


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.server.shutdown()


def attributes(span: Span) -> dict[str, str | int]:
    return {a.key: a.value.string_value or a.value.int_value for a in span.attributes}


def test_spans_of_sends_receives_and_settlements_belong_to_the_trace_of_the_message(
    collector: Collector,
) -> None:
    with Server("orders", arguments=["--otel"], environment=collector.environment) as server:
        with (
            ServiceBusClient.from_connection_string(server.connection_string) as client,
            client.get_queue_sender("orders") as sender,
            client.get_queue_receiver("orders") as receiver,
        ):
            properties = {"traceparent": PARENT, "Diagnostic-Id": PARENT, "amount": 3}
            sender.send_messages(ServiceBusMessage("x", application_properties=properties))
            (message,) = receiver.receive_messages(max_wait_time=WAIT_S)
            assert message.application_properties == {
                name.encode(): value.encode() if isinstance(value, str) else value
                for name, value in properties.items()
            }  # kept as they were
            receiver.complete_message(message)
        assert server.stop() == 0  # which sends what is left
    for name in ("send orders", "receive orders", "settle orders"):
        (span,) = collector.named(name)
        assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, SPAN), name
        assert span.end_time_unix_nano >= span.start_time_unix_nano
        assert attributes(span)["messaging.destination.name"] == "orders"
        assert attributes(span)["messaging.batch.message_count"] == 1
        assert span.kind == Span.SPAN_KIND_SERVER
    assert attributes(collector.named("settle orders")[0])["busway.outcome"] == "accepted"
    assert collector.services == {"busway"}
    for operation in ("send", "receive", "settle"):
        assert collector.sums["busway.operation.messages", operation] == 1


def test_a_batch_is_one_span_with_links_and_a_refusal_says_why(collector: Collector) -> None:
    config = '[[queues]]\nname = "sessions"\nrequires_session = true\n'
    environment = collector.environment
    with Server("orders", config=config, arguments=["--otel"], environment=environment) as server:
        with ServiceBusClient.from_connection_string(server.connection_string) as client:
            with client.get_queue_sender("orders") as sender:
                sender.send_messages(
                    [
                        ServiceBusMessage("x", application_properties={"traceparent": context})
                        for context in (PARENT, OTHER, PARENT)
                    ]
                )
            with (
                client.get_queue_sender("sessions") as sender,
                pytest.raises(Exception, match="ession"),
            ):
                sender.send_messages(ServiceBusMessage("without a session"))
        assert server.stop() == 0
    (span,) = collector.named("send orders")
    assert attributes(span)["messaging.batch.message_count"] == 3
    assert span.parent_span_id == b""
    assert {link.trace_id.hex() for link in span.links} == {PARENT[3:35], OTHER[3:35]}
    refused = collector.named("send sessions")[0]
    assert refused.status.code == Status.STATUS_CODE_ERROR
    assert "ession" in refused.status.message
    assert attributes(refused)["busway.outcome"] == "refused"


def test_sessions_are_traced_too(collector: Collector) -> None:
    config = '[[queues]]\nname = "sessions"\nrequires_session = true\n'
    with (
        Server(config=config, arguments=["--otel"], environment=collector.environment) as server,
        ServiceBusClient.from_connection_string(server.connection_string) as client,
    ):
        with client.get_queue_sender("sessions") as sender:
            properties = {"Diagnostic-Id": PARENT}
            sender.send_messages(
                ServiceBusMessage("x", session_id="s", application_properties=properties)
            )
        with client.get_queue_receiver("sessions", session_id="s") as receiver:
            (message,) = receiver.receive_messages(max_wait_time=WAIT_S)
            receiver.dead_letter_message(message)
        server.stop()
    (span,) = collector.named("settle sessions")
    assert span.trace_id.hex() == TRACE
    assert attributes(span)["busway.outcome"] == "rejected"


def test_nobody_who_takes_them_keeps_no_message_back() -> None:
    nowhere = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
    }
    with (
        Server("orders", arguments=["--otel"], environment=nowhere) as server,
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages(ServiceBusMessage("x"))


def test_without_it_nothing_of_opentelemetry_is_loaded() -> None:
    """What is off costs nothing: links are of the plain classes."""
    import subprocess
    import sys

    code = (
        "import sys, busway.runtime.node\n"
        "from busway.gateway.traced import Endpoints\n"
        "from busway.gateway.sender import SenderEndpoint\n"
        "assert Endpoints().sender is SenderEndpoint\n"
        "assert not any('opentelemetry' in name for name in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("body", [b"", b"\x00Sx\xa0", b"\x00St\xc1\x01\x00"])
def test_what_has_no_context_gives_none(body: bytes) -> None:
    assert contexts_in(body) == set()
