"""ASGI middleware that makes a span of each HTTP request, in its caller's trace."""

from __future__ import annotations

from typing import Any

from llm.telemetry import log_context, tracing
from project.server.access_log import hide_secrets

#: Requests of supervisors and scrapers, of files, and of our own demo provider.
_UNTRACED = ("/healthz", "/readyz", "/metrics", "/static/", "/demo/v1/")
_HEADERS = (b"traceparent", b"tracestate")


class RequestSpans:
    def __init__(self, application: Any) -> None:
        self._application = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if tracing.spans is None or scope["path"].startswith(_UNTRACED):
            await self._application(scope, receive, send)
            return
        headers = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in scope["headers"]
            if name in _HEADERS
        }
        method = scope["method"] if scope["method"] in _METHODS else "_OTHER"
        attributes = {
            "http.request.method": method,
            "url.scheme": scope.get("scheme", "http"),
            "url.path": hide_secrets(scope["path"]),
            "parley.request.id": log_context.request_id.get(),
        }
        span = tracing.spans.start_request(method, headers, attributes)
        status = 0

        async def send_and_note(message: Any) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self._application(scope, receive, send_and_note)
        finally:
            if status:
                span.set_attribute("http.response.status_code", status)
            tracing.spans.end(span, str(status) if status >= 500 else "")


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
