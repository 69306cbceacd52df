"""Spans of OpenTelemetry by the semantic conventions for generative AI, version 1.37.0.

They have names, ids, numbers and codes: no content, and no text of an error, which may
quote it. Each span is started and ended explicitly, as the code between is partly in
generators, whose context variables are those of their callers.

Source: https://github.com/open-telemetry/semantic-conventions/tree/v1.37.0/docs/gen-ai
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from opentelemetry.context import Context, attach, get_value, set_value
from opentelemetry.trace import (
    Span,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    TracerProvider,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from llm.errors import LLMError
from llm.wire.deltas import Delta, FinishDelta, StartDelta, UsageDelta

if TYPE_CHECKING:
    from llm.provider import Endpoint
    from llm.wire.request import Request

SCHEMA = "https://opentelemetry.io/schemas/1.37.0"
AGENT = "parley"
MAX_STATE = 512  # characters of a `tracestate` that is passed on
#: The names of the conventions for kinds of providers; others have their own.
PROVIDERS: Mapping[str, str] = {
    "azure_openai": "azure.ai.openai",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "vertex": "gcp.vertex_ai",
    "xai": "x_ai",
}

_PORTS = {"http": 80, "https": 443}
_CONVERSATION = "gen_ai.conversation.id"  # an attribute, and its key in the context
_propagator = TraceContextTextMapPropagator()


class TracedCall(Protocol):
    """A `ProviderCall`."""

    purpose: Any
    attempt: int
    request_id: str
    http_status: int | None
    ttft: float | None
    error: LLMError | None


class Spans:
    """Starts the spans of this process."""

    def __init__(self, provider: TracerProvider) -> None:
        self._tracer: Tracer = provider.get_tracer("parley", schema_url=SCHEMA)

    def start_request(
        self, name: str, headers: Mapping[str, str], attributes: Mapping[str, str]
    ) -> Span:
        """The span of an HTTP request to this server, current from now on in this
        task."""
        span = self._tracer.start_span(
            name,
            _read_parent(headers),
            SpanKind.SERVER,
            attributes=dict(attributes),
        )
        attach(set_span_in_context(span))
        return span

    def start_turn(
        self,
        trace_parent: str,
        attributes: Mapping[str, AttributeValue],
        *,
        conversation_id: str,
        kind: str,
    ) -> Span:
        """The span of a turn's run, current from now on in this task. `kind`: of the
        provider."""
        span = self._tracer.start_span(
            f"invoke_agent {AGENT}",
            _read_parent({"traceparent": trace_parent}),
            attributes={
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": AGENT,
                "gen_ai.provider.name": PROVIDERS.get(kind, kind),
                _CONVERSATION: conversation_id,
                **attributes,
            },
        )
        context = set_value(_CONVERSATION, conversation_id)
        attach(set_span_in_context(span, context))
        return span

    def continue_trace(self, trace_parent: str) -> None:
        """Spans of this task continue that trace from now on."""
        attach(_read_parent({"traceparent": trace_parent}))

    def start_tool_call(self, name: str, call_id: str) -> Span:
        """The span of a tool call, current from now on in this task."""
        span = self._tracer.start_span(
            f"execute_tool {name}",
            attributes={
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": name,
                "gen_ai.tool.call.id": call_id,
                "gen_ai.tool.type": "function",
            },
        )
        attach(set_span_in_context(span))
        return span

    def start_model_call(
        self, endpoint: Endpoint, request: Request, call: TracedCall
    ) -> ModelCallSpan:
        """The span of a request to a provider; its parent is the current one."""
        kind = endpoint.provider.name
        attributes: dict[str, AttributeValue] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": PROVIDERS.get(kind, kind),
            "gen_ai.request.model": request.model,
            "parley.purpose": call.purpose,
            "parley.attempt": call.attempt,
        }
        optional: dict[str, Any] = {
            _CONVERSATION: get_value(_CONVERSATION),
            "gen_ai.output.type": _output_type(request),
            "gen_ai.request.frequency_penalty": request.frequency_penalty,
            "gen_ai.request.max_tokens": request.max_output_tokens,
            "gen_ai.request.presence_penalty": request.presence_penalty,
            "gen_ai.request.seed": request.seed,
            "gen_ai.request.temperature": request.temperature,
            "gen_ai.request.top_p": request.top_p,
        }
        attributes |= {name: n for name, n in optional.items() if n is not None}
        span = self._tracer.start_span(
            f"chat {request.model}", kind=SpanKind.CLIENT, attributes=attributes
        )
        return ModelCallSpan(span)

    @staticmethod
    def current_traceparent() -> str:
        """The header that continues the current trace; "" outside of one."""
        headers: dict[str, str] = {}
        _propagator.inject(headers)
        return headers.get("traceparent", "")

    @staticmethod
    def add_trace_headers(headers: MutableMapping[str, str]) -> None:
        """Add the headers by which a host continues the current trace."""
        _propagator.inject(headers)

    @staticmethod
    def current_ids() -> tuple[str, str]:
        """The ids of the current trace and span; empty outside of one."""
        context = get_current_span().get_span_context()
        if not context.is_valid:
            return "", ""
        return f"{context.trace_id:032x}", f"{context.span_id:016x}"

    @staticmethod
    def end(span: Span, error_type: str = "") -> None:
        """End it, as failed if there is a type of error."""
        if error_type:
            span.set_attribute("error.type", error_type)
            span.set_status(Status(StatusCode.ERROR))
        span.end()


class ModelCallSpan:
    """The span of a request to a provider, and what its answer has said so far."""

    __slots__ = ("_finish", "_span", "_start", "_usage")

    def __init__(self, span: Span) -> None:
        self._span = span
        self._start = StartDelta()
        self._usage: list[UsageDelta] = []
        self._finish: FinishDelta | None = None

    def add_headers(
        self,
        headers: MutableMapping[str, str],
        scheme: str,
        host: str,
        port: int | None,
    ) -> None:
        """Name the host, and add the headers by which it continues the trace."""
        self._span.set_attribute("server.address", host)
        if (known := port or _PORTS.get(scheme)) is not None:
            self._span.set_attribute("server.port", known)
        _propagator.inject(headers, set_span_in_context(self._span))

    def note(self, deltas: Sequence[Delta]) -> None:
        for delta in deltas:
            match delta:
                case StartDelta():
                    self._start = delta
                case UsageDelta():
                    self._usage.append(delta)
                case FinishDelta():
                    self._finish = delta

    def end(self, call: TracedCall) -> None:
        span, finish = self._span, self._finish
        texts = {
            "gen_ai.response.id": self._start.response_id,
            "gen_ai.response.model": self._start.model,
            "parley.provider_request_id": call.request_id,
        }
        span.set_attributes({name: text for name, text in texts.items() if text})
        for usage in self._usage:
            counts = {
                "gen_ai.usage.input_tokens": usage.input_tokens,
                "gen_ai.usage.output_tokens": usage.output_tokens,
            }
            known = {name: n for name, n in counts.items() if n is not None}
            span.set_attributes(known)
        if finish is not None:
            span.set_attribute("gen_ai.response.finish_reasons", [finish.reason])
        if call.http_status is not None:
            span.set_attribute("http.response.status_code", call.http_status)
        if call.ttft is not None:
            span.set_attribute("parley.time_to_first_token", call.ttft)
        Spans.end(span, _error_type(call.error, finish))


def _read_parent(headers: Mapping[str, str]) -> Context:
    """The context of a caller's trace; an empty one if the headers are none of it. The
    empty one also keeps a span from being a child of the current one."""
    state = headers.get("tracestate", "")
    carrier = {"traceparent": headers.get("traceparent", "")}
    if len(state) <= MAX_STATE:
        carrier["tracestate"] = state
    return _propagator.extract(carrier, Context())


def _output_type(request: Request) -> str | None:
    """The form of the answer that was asked for, if any."""
    kind = ((request.text or {}).get("format") or {}).get("type")
    return "json" if kind in ("json_schema", "json_object") else kind and "text"


def _error_type(error: LLMError | None, finish: FinishDelta | None) -> str:
    if error is not None:
        return error.code
    return "" if finish is not None else "cancelled"
