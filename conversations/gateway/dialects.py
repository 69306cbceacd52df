"""One `Dialect` for each client API: parses bodies, writes answers and errors."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from conversations.gateway import encrypted_reasoning
from conversations.gateway.echo import echo_of
from conversations.turns.history import estimate_tokens
from llm.errors import BadRequest, LLMError
from llm.provider import Route
from llm.wire.codecs.anthropic.codec import VERSION_WITH_SAMPLING
from llm.wire.facades import (
    body_checks,
    chat_request,
    errors,
    messages_request,
    responses_request,
)
from llm.wire.facades.chat_writer import ChatWriter, chat_completion_of
from llm.wire.facades.messages_writer import MessagesWriter, message_of
from llm.wire.facades.responses_writer import ResponsesWriter
from llm.wire.items import Event
from llm.wire.request import Request

if TYPE_CHECKING:
    from conversations.gateway.request import GatewayRequest
    from conversations.gateway.stateless import StatelessResponse


class ThreadNotFound(BadRequest):
    """Threads are not held here; send the whole conversation.

    Anthropic's SDKs do so on this error.
    """

    code, status = "E_THREAD_NOT_FOUND", 404


class Writer(Protocol):
    """Encodes an answer's events for the stream of the client's API."""

    def feed_bytes(self, events: Iterable[Event]) -> bytes: ...


class _MessagesWriter(MessagesWriter):
    """Reports the stop sequence that ended the answer once it is found."""

    def __init__(self, answer: StatelessResponse, **options: Any) -> None:
        super().__init__(**options)
        self._answer = answer

    def feed_bytes(self, events: Iterable[Event]) -> bytes:
        self.stop_sequence = self._answer.stop_sequence
        return super().feed_bytes(events)


class Dialect:
    """Base class with OpenAI's error format."""

    name = ""
    codec_prefix = ""  # the beginning of the names of this API's codecs
    errors: errors.Dialect = "openai"
    is_open_responses = False  # tools and items already have the canonical shape
    reports_stop_sequence = False  # answers name the stop sequence that ended them
    returns_failed_output = False  # a failed answer includes the output so far

    def wants_older_version(
        self, body: Mapping[str, Any], headers: Mapping[bytes, bytes]
    ) -> bool:
        """True if the headers ask for the API's previous version and the body needs it.

        The body needs it if it has options that later versions dropped.
        """
        return False

    def check(self, body: dict[str, Any], own_tools: Collection[str]) -> None:
        """Raises BadRequest for malformed or unsupported fields."""
        raise NotImplementedError

    def request_of(self, body: dict[str, Any], route: Route) -> Request:
        """Raises BadRequest."""
        raise NotImplementedError

    def writer(
        self,
        gateway_request: GatewayRequest,
        answer: StatelessResponse,
        request_id: str,
    ) -> Writer:
        raise NotImplementedError

    def response_body(
        self, gateway_request: GatewayRequest, answer: StatelessResponse
    ) -> dict[str, Any]:
        raise NotImplementedError

    def echo(self, body: Mapping[str, Any], request: Request) -> dict[str, Any]:
        """The fields of the request that an answer repeats; only Responses has them."""
        return {}

    def error(self, exc: LLMError, request_id: str) -> dict[str, Any]:
        return errors.body_of(exc, self.errors, request_id)


class Chat(Dialect):
    """Chat Completions."""

    name, codec_prefix = "chat", "openai_chat"

    def check(self, body: dict[str, Any], own_tools: Collection[str]) -> None:
        body_checks.check_chat(body, server_tools=own_tools)

    def request_of(self, body: dict[str, Any], route: Route) -> Request:
        return chat_request.request_of(body)

    def writer(
        self,
        gateway_request: GatewayRequest,
        answer: StatelessResponse,
        request_id: str,
    ) -> Writer:
        options = gateway_request.body.get("stream_options") or {}
        response = answer.builder.response([])
        return ChatWriter(
            model=response["model"],
            id=_chat_id(response["id"]),
            created=response["created_at"],
            include_usage=options.get("include_usage") is True,
            buffer_tool_calls=gateway_request.parley_options.buffer_tool_calls,
            server_tools=gateway_request.server_tools,
            custom_tools=gateway_request.custom_tools,
            receipts=gateway_request.parley_options.receipts,
        )

    def response_body(
        self, gateway_request: GatewayRequest, answer: StatelessResponse
    ) -> dict[str, Any]:
        response = answer.builder.response()
        return chat_completion_of(
            response,
            id=_chat_id(response["id"]),
            server_tools=gateway_request.server_tools,
            custom_tools=gateway_request.custom_tools,
            receipts=gateway_request.parley_options.receipts,
        )


class Messages(Dialect):
    """Anthropic's Messages."""

    name, codec_prefix, reports_stop_sequence = "messages", "anthropic", True
    errors = "anthropic"

    def wants_older_version(
        self, body: Mapping[str, Any], headers: Mapping[bytes, bytes]
    ) -> bool:
        version = headers.get(b"anthropic-version", b"").decode("latin-1")
        return version == VERSION_WITH_SAMPLING and any(
            body.get(name) is not None for name in ("temperature", "top_k", "top_p")
        )

    def check(self, body: dict[str, Any], own_tools: Collection[str]) -> None:
        body_checks.check_messages(body, server_tools=own_tools)
        if (body.get("thread") or {}).get("type") == "continue":
            raise ThreadNotFound(param="thread")

    def request_of(self, body: dict[str, Any], route: Route) -> Request:
        issuer = route.endpoint.issuer(route.model, any_key=route.key_id is not None)
        is_native = route.endpoint.codec.name.startswith(self.codec_prefix)
        return messages_request.request_of(body, issuer=issuer if is_native else None)

    def writer(
        self,
        gateway_request: GatewayRequest,
        answer: StatelessResponse,
        request_id: str,
    ) -> Writer:
        response, request = answer.builder.response([]), gateway_request.request
        tokens = estimate_tokens(request.instructions, request.items, request.tools)
        return _MessagesWriter(
            answer,
            model=response["model"],
            id=_message_id(response["id"]),
            input_tokens=tokens,
            request_id=request_id,
            buffer_tool_calls=gateway_request.parley_options.buffer_tool_calls,
            proofs=answer.builder.proofs
            if gateway_request.host_speaks_dialect
            else None,
            server_tools=gateway_request.server_tools,
            custom_tools=gateway_request.custom_tools,
            receipts=gateway_request.parley_options.receipts,
        )

    def response_body(
        self, gateway_request: GatewayRequest, answer: StatelessResponse
    ) -> dict[str, Any]:
        response = answer.builder.response()
        return message_of(
            response,
            id=_message_id(response["id"]),
            proofs=answer.builder.proofs
            if gateway_request.host_speaks_dialect
            else None,
            server_tools=gateway_request.server_tools,
            custom_tools=gateway_request.custom_tools,
            receipts=gateway_request.parley_options.receipts,
            stop_sequence=answer.stop_sequence,
        )

    def error(self, exc: LLMError, request_id: str) -> dict[str, Any]:
        body = super().error(exc, request_id)
        if isinstance(exc, ThreadNotFound):
            body["error"]["details"] = {"error_code": "thread_not_found"}
        return body


class Responses(Dialect):
    """Open Responses, which is also the server's internal format."""

    name, codec_prefix, is_open_responses = "responses", "openai_responses", True
    returns_failed_output = True

    def check(self, body: dict[str, Any], own_tools: Collection[str]) -> None:
        body_checks.check_responses(body, server_tools=own_tools)

    def request_of(self, body: dict[str, Any], route: Route) -> Request:
        issuer = route.endpoint.issuer(route.model)
        is_native = route.endpoint.codec.name.startswith(self.codec_prefix)
        return responses_request.request_of(body, issuer=issuer if is_native else None)

    def writer(
        self,
        gateway_request: GatewayRequest,
        answer: StatelessResponse,
        request_id: str,
    ) -> ResponsesWriter:
        options: dict[str, Any] = {
            "server_tools": gateway_request.server_tools,
            "receipts": gateway_request.parley_options.receipts,
            "buffer_tool_calls": gateway_request.parley_options.buffer_tool_calls,
        }
        if encrypted_reasoning.wants_encrypted_reasoning(gateway_request.body):
            return encrypted_reasoning.EncryptedReasoningWriter(
                answer, gateway_request.token.user_id, **options
            )
        return ResponsesWriter(**options)

    def response_body(
        self, gateway_request: GatewayRequest, answer: StatelessResponse
    ) -> dict[str, Any]:
        return self.writer(gateway_request, answer, "").whole(answer.builder.response())

    def error(self, exc: LLMError, request_id: str) -> dict[str, Any]:
        body = super().error(exc, request_id)
        if exc.status == 404:
            body["error"]["type"] = "not_found"  # of the standard; OpenAI has none
        return body

    def echo(self, body: Mapping[str, Any], request: Request) -> dict[str, Any]:
        return echo_of(body, request)


CHAT, MESSAGES, RESPONSES = Chat(), Messages(), Responses()


def _chat_id(response_id: str) -> str:
    return f"chatcmpl-{response_id.partition('_')[2]}"


def _message_id(response_id: str) -> str:
    return f"msg_{response_id.partition('_')[2]}"


def unreadable_body(exc: Exception) -> BadRequest:
    """The error for a body that passed the checks but cannot be parsed."""
    return BadRequest(
        f"The body is not as its API documents it ({type(exc).__name__})."
    )
