"""What a running capture tells over HTTP: `/metrics` for Prometheus, and `/health`.

Health is 200 while every entity is read or waited for, and 503 with the reasons while one is not,
or while the broker does not answer.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from busway.pipeline.commands.console import refuse, say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

    from busway.pipeline.jobs.capture_watch import Watch

LOOPBACK = "127.0.0.1"
STATES = ("reading", "waiting", "failed")


class Monitor:
    """Serves as long as it is entered."""

    def __init__(self, address: str, watch: Watch) -> None:
        host, colon, port = address.rpartition(":")
        if not port.isdigit() or int(port) > 65535:
            refuse(f"--metrics is '{address}', and must be like 9400 or 0.0.0.0:9400.")
        self._address = (host.strip("[]") if colon else LOOPBACK, int(port))
        self._watch = watch

    def __enter__(self) -> Monitor:
        from prometheus_client import CollectorRegistry

        registry = CollectorRegistry()
        registry.register(_Collector(self._watch))
        watch = self._watch

        class Answers(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                match self.path.partition("?")[0]:
                    case "/metrics":
                        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

                        self._answer(200, CONTENT_TYPE_LATEST, generate_latest(registry))
                    case "/health":
                        told = health(watch)
                        status = 200 if told["status"] == "well" else 503
                        self._answer(status, "application/json", json.dumps(told).encode())
                    case _:
                        self._answer(404, "text/plain", b"/metrics and /health are here\n")

            def _answer(self, status: int, kind: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: Any) -> None:
                """Each scrape would be a line."""

        self._server = ThreadingHTTPServer(self._address, Answers)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        host, port = self._server.server_address[:2]
        say(f"metrics and health at http://{host!s}:{port}")
        return self

    def __exit__(self, *problem: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def health(watch: Watch) -> dict[str, Any]:
    captured = watch.captured
    problems = {name: each.problem for name, each in captured.items() if each.problem}
    if watch.unreachable:
        problems["broker"] = "It does not answer."
    return {
        "status": "ill" if problems else "well",
        "problems": problems,
        "entities": {
            name: {"state": each.state, "behind": sum(each.behind.values())}
            for name, each in captured.items()
        },
    }


class _Collector:
    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        rows = CounterMetricFamily(
            "busway_capture_events", "Events that this process has captured", labels=["entity"]
        )
        batches = CounterMetricFamily(
            "busway_capture_batches", "Batches that this process has committed", labels=["entity"]
        )
        behind = GaugeMetricFamily(
            "busway_capture_behind_events",
            "Events that are still to be captured",
            labels=["entity", "partition"],
        )
        oldest = GaugeMetricFamily(
            "busway_capture_oldest_seconds",
            "Age of the oldest event that is still to be captured, as far as it was seen waiting",
            labels=["entity"],
        )
        state = GaugeMetricFamily(
            "busway_capture_state", "1 for the state of the entity", labels=["entity", "state"]
        )
        for name, each in list(self._watch.captured.items()):
            rows.add_metric([name], each.rows)
            batches.add_metric([name], each.batches)
            for partition in self._watch.partitions(name):
                behind.add_metric([name, str(partition)], each.behind.get(partition, 0))
            oldest.add_metric([name], self._watch.waiting_s(name))
            for word in STATES:
                state.add_metric([name, word], float(each.state == word))
        broker = GaugeMetricFamily("busway_capture_broker_up", "Whether the broker answers")
        broker.add_metric([], float(not self._watch.unreachable))
        yield from (rows, batches, behind, oldest, state, broker)
