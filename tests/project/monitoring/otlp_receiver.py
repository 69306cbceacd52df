"""A collector of traces: an HTTP server that decodes what it is sent by OTLP."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SentSpan

PATIENCE = 60  # seconds


@dataclass(frozen=True)
class ReceivedSpan:
    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    is_error: bool
    description: str
    events: int
    scope: str
    schema: str
    resource: dict[str, Any]
    attributes: dict[str, Any] = field(default_factory=dict)


class Receiver:
    def __init__(self) -> None:
        self.spans: list[ReceivedSpan] = []
        self.bodies: list[bytes] = []
        self._changed = threading.Condition()

    def receive(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        with self._changed:
            self.bodies.append(body)
            for of_resource in request.resource_spans:
                resource = _read(of_resource.resource.attributes)
                for of_scope in of_resource.scope_spans:
                    name, schema = of_scope.scope.name, of_scope.schema_url
                    self.spans += [
                        _received(span, name, schema, resource)
                        for span in of_scope.spans
                    ]
            self._changed.notify_all()

    def wait_for(self, name: str, count: int = 1) -> list[ReceivedSpan]:
        """The spans whose name begins so, once there are as many."""

        def found() -> list[ReceivedSpan]:
            return [span for span in self.spans if span.name.startswith(name)]

        with self._changed:
            self._changed.wait_for(lambda: len(found()) >= count, PATIENCE)
            assert len(found()) >= count, [span.name for span in self.spans]
            return found()


def _received(
    span: SentSpan, scope: str, schema: str, resource: dict[str, Any]
) -> ReceivedSpan:
    return ReceivedSpan(
        name=span.name,
        kind=span.kind,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        is_error=span.status.code == 2,
        description=span.status.message,
        events=len(span.events),
        scope=scope,
        schema=schema,
        resource=resource,
        attributes=_read(span.attributes),
    )


def _read(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind)


@contextmanager
def receiving() -> Iterator[tuple[str, Receiver]]:
    """The address of a collector, and what it has received."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            assert self.path == "/v1/traces"
            receiver.receive(body)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            """Write no line for each request."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", receiver
        finally:
            server.shutdown()
            thread.join()
