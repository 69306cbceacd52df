"""One `Dialect` for each client API: parses bodies, writes answers and errors."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from conversations.gateway import proofs
from conversations.gateway.echo import echo_of
from conversations.history import estimate
from llm.errors import BadRequest, LLMError
from llm.provider import Route
from llm.wire.codecs.anthropic import VERSION_WITH_SAMPLING
from llm.wire.facades import chat, checks, errors, messages, responses
from llm.wire.facades.chat_writer import ChatWriter, chat_completion_of
from llm.wire.facades.messages_writer import MessagesWriter, message_of
from llm.wire.facades.responses_writer import ResponsesWriter
from llm.wire.items import Event
from llm.wire.request import Request

if TYPE_CHECKING:
    from conversations.gateway.asked import Asked
    from conversations.gateway.light import Answer


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

    def __init__(self, answer: Answer, **told: Any) -> None:
        super().__init__(**told)
        self._answer = answer

    def feed_bytes(self, events: Iterable[Event]) -> bytes:
        self.stop_sequence = self._answer.stop_sequence
        return super().feed_bytes(events)


class Dialect:
    """Base class with OpenAI's error format."""

    name = ""
    wire = ""  # the beginning of the names of this API's codecs
    errors: errors.Dialect = "openai"
    wire_is_ours = False  # tools and items already have the canonical shape
    names_stops = False  # answers name the stop sequence that ended them
    tells_failures = False  # a failed answer includes the output so far

    def wants_older(
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

    def writer(self, asked: Asked, answer: Answer, request_id: str) -> Writer:
        raise NotImplementedError

    def whole(self, asked: Asked, answer: Answer) -> dict[str, Any]:
        raise NotImplementedError

    def echo(self, body: Mapping[str, Any], request: Request) -> dict[str, Any]:
        """The fields of the request that an answer repeats; only Responses has them."""
        return {}

    def error(self, exc: LLMError, request_id: str) -> dict[str, Any]:
        return errors.body_of(exc, self.errors, request_id)


class Chat(Dialect):
    """Chat Completions."""

    name, wire = "chat", "openai_chat"

    def check(self, body: dict[str, Any], own_tools: Collection[str]) -> None:
        checks.check_chat(body, server_tools=own_tools)

    def request_of(self, body: dict[str, Any], route: Route) -> Request:
        return chat.request_of(body)

    def writer(self, asked: Asked, answer: Answer, request_id: str) -> Writer:
        options = asked.body.get("stream_options") or {}
        response = answer.builder.response([])
        return ChatWriter(
            model=response["model"],
            id=_chat_id(response["id"]),
            created=response["created_at"],
            include_usage=options.get("include_usage") is True,
            buffer_tool_calls=asked.wishes.buffer_tool_calls,
            server_tools=asked.server_tools,
            custom_tools=asked.custom_tools,
            receipts=asked.wishes.receipts,
        )

    def whole(self, asked: Asked, answer: Answer) -> dict[str, Any]:
        response = answer.builder.response()
        return chat_completion_of(
            response,
            id=_chat_id(response["id"]),
            server_tools=asked.server_tools,
            custom_tools=asked.custom_tools,
            receipts=asked.wishes.receipts,
        )


class Messages(Dialect):
    """Anthropic's Messages."""

    name, wire, names_stops = "messages", "anthropic", True
    errors = "anthropic"

    def wants_older(
        self, body: Mapping[str, Any], headers: Mapping[bytes, bytes]
    ) -> bool:
        version = headers.get(b"anthropic-version", b"").decode("latin-1")
        return version == VERSION_WITH_SAMPLING and any(
            body.get(name) is not None for name in ("temperature", "top_k", "top_p")
        )

    def check(self, body: dict[str, Any], own_tools: Collection[str]) -> None:
        checks.check_messages(body, server_tools=own_tools)
        if (body.get("thread") or {}).get("type") == "continue":
            raise ThreadNotFound(param="thread")

    def request_of(self, body: dict[str, Any], route: Route) -> Request:
        issuer = route.endpoint.issuer(route.model, any_key=route.key_id is not None)
        own = route.endpoint.codec.name.startswith(self.wire)
        return messages.request_of(body, issuer=issuer if own else None)

    def writer(self, asked: Asked, answer: Answer, request_id: str) -> Writer:
        response, request = answer.builder.response([]), asked.request
        tokens = estimate(request.instructions, request.items, request.tools)
        return _MessagesWriter(
            answer,
            model=response["model"],
            id=_message_id(response["id"]),
            input_tokens=tokens,
            request_id=request_id,
            buffer_tool_calls=asked.wishes.buffer_tool_calls,
            proofs=answer.builder.proofs if asked.is_spoken_there else None,
            server_tools=asked.server_tools,
            custom_tools=asked.custom_tools,
            receipts=asked.wishes.receipts,
        )

    def whole(self, asked: Asked, answer: Answer) -> dict[str, Any]:
        response = answer.builder.response()
        return message_of(
            response,
            id=_message_id(response["id"]),
            proofs=answer.builder.proofs if asked.is_spoken_there else None,
            server_tools=asked.server_tools,
            custom_tools=asked.custom_tools,
            receipts=asked.wishes.receipts,
            stop_sequence=answer.stop_sequence,
        )

    def error(self, exc: LLMError, request_id: str) -> dict[str, Any]:
        body = super().error(exc, request_id)
        if isinstance(exc, ThreadNotFound):
            body["error"]["details"] = {"error_code": "thread_not_found"}
        return body


class Responses(Dialect):
    """Open Responses, which is also the server's internal format."""

    name, wire, wire_is_ours = "responses", "openai_responses", True
    tells_failures = True

    def check(self, body: dict[str, Any], own_tools: Collection[str]) -> None:
        checks.check_responses(body, server_tools=own_tools)

    def request_of(self, body: dict[str, Any], route: Route) -> Request:
        issuer = route.endpoint.issuer(route.model)
        own = route.endpoint.codec.name.startswith(self.wire)
        return responses.request_of(body, issuer=issuer if own else None)

    def writer(self, asked: Asked, answer: Answer, request_id: str) -> ResponsesWriter:
        told: dict[str, Any] = {
            "server_tools": asked.server_tools,
            "receipts": asked.wishes.receipts,
            "buffer_tool_calls": asked.wishes.buffer_tool_calls,
        }
        if proofs.wanted(asked.body):
            return proofs.ProvingWriter(answer, asked.token.user_id, **told)
        return ResponsesWriter(**told)

    def whole(self, asked: Asked, answer: Answer) -> dict[str, Any]:
        return self.writer(asked, answer, "").whole(answer.builder.response())

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


def unreadable(exc: Exception) -> BadRequest:
    """The error for a body that passed the checks but cannot be parsed."""
    return BadRequest(
        f"The body is not as its API documents it ({type(exc).__name__})."
    )
