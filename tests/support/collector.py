"""A receiver of OTLP over HTTP, which decodes by OpenTelemetry's own messages."""

from __future__ import annotations

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, NumberDataPoint

Attributes = dict[str, str | int]


class Received:
    """One push. resource: attributes of its sender."""

    def __init__(self, request: ExportMetricsServiceRequest) -> None:
        (whole,) = request.resource_metrics
        self.resource = attributes(whole.resource.attributes)
        self.scopes = {scope.scope.name for scope in whole.scope_metrics}
        self.metrics: dict[str, Metric] = {
            metric.name: metric for scope in whole.scope_metrics for metric in scope.metrics
        }

    def points(self, name: str) -> list[tuple[Attributes, float]]:
        """The values of a sum or a gauge, with their attributes."""
        metric = self.metrics[name]
        return [(attributes(one.attributes), _value(one)) for one in (metric.sum or metric.gauge).data_points]

    def value(self, name: str) -> float:
        """Of a metric with one value."""
        ((_, value),) = self.points(name)
        return value


class Collector:
    """Listens on loopback in a thread. refuse: answer 503 instead. For a ``with`` block."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.headers: list[dict[str, str]] = []
        self.refuse = False
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.headers.append(dict(self.headers))
                assert self.headers["Content-Type"] == "application/x-protobuf"
                if not collector.refuse:
                    collector.received.append(Received(ExportMetricsServiceRequest.FromString(body)))
                self.send_response(400 if collector.refuse else 200)
                self.send_header("Content-Type", "application/x-protobuf")
                answer = ExportMetricsServiceResponse().SerializeToString()
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}/v1/metrics"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Collector:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def attributes(each: Any) -> Attributes:
    """Attributes as a dictionary."""
    return {
        one.key: one.value.int_value if one.value.HasField("int_value") else one.value.string_value
        for one in each
    }


def _value(point: NumberDataPoint) -> float:
    return float(point.as_int if point.HasField("as_int") else point.as_double)
