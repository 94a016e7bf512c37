"""A collector: an HTTP server that decodes OTLP, answers by orders, and keeps what it receives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status


class SentSpan:
    """A received span."""

    def __init__(self, span: Span) -> None:
        self.name, self.kind = span.name, Span.SpanKind.Name(span.kind)
        self.trace, self.id, self.parent = span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
        self.start, self.end = span.start_time_unix_nano, span.end_time_unix_nano
        self.is_error = span.status.code == Status.STATUS_CODE_ERROR
        self.events = [event.name for event in span.events]
        self.attributes: dict[str, Any] = {
            pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in span.attributes
        }

    def __repr__(self) -> str:
        return f"{self.name} {self.id} in {self.parent or '-'} {self.attributes}"


class Collector(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.sent: list[SentSpan] = []
        self.resources: list[dict[str, str]] = []
        self.status, self.may_answer = 200, Event()
        self.may_answer.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def spans(self) -> dict[str, SentSpan]:
        """The spans by id, the last one if sent twice."""
        return {span.id: span for span in self.sent}

    def named(self, name: str) -> list[SentSpan]:
        return [span for span in self.spans.values() if span.name == name]


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        request = ExportTraceServiceRequest()
        request.ParseFromString(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.may_answer.wait(60)
        if self.server.status == 200:
            assert self.path == "/v1/traces"
            for part in request.resource_spans:
                self.server.resources.append({pair.key: pair.value.string_value for pair in part.resource.attributes})
                self.server.sent += [SentSpan(span) for scope in part.scope_spans for span in scope.spans]
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def collector(port: int = 0) -> Iterator[Collector]:
    server = Collector(port)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.may_answer.set()
        server.shutdown()
        server.server_close()
