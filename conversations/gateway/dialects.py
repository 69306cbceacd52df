"""One `Dialect` for each client API: parses bodies, writes answers and errors."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, ClassVar, Protocol

from conversations.gateway import encrypted_reasoning
from conversations.gateway.encrypted_reasoning import ProvenAnswer
from conversations.gateway.proofs.sealed_answers import AnswerSealing
from conversations.models.access_token import AccessToken
from conversations.turns.history import estimate_tokens
from llm.errors import BadRequest, BadResponse, LLMError
from llm.provider import Route
from llm.wire.codecs.anthropic.codec import VERSION_WITH_SAMPLING
from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec
from llm.wire.facades import (
    body_checks,
    chat_request,
    errors,
    messages_request,
    responses_request,
)
from llm.wire.facades.chat_writer import ChatWriter, chat_completion_of
from llm.wire.facades.client_visibility import Audience
from llm.wire.facades.common_shape import SERVER_TOOLS, parley, server_tool
from llm.wire.facades.messages_writer import MessagesWriter, message_of
from llm.wire.facades.proof_entries import OpenSeal
from llm.wire.facades.responses_writer import ResponsesWriter
from llm.wire.items import Event, Issuer
from llm.wire.request import Request

#: Exceptions of a reader at a body that passed the checks.
UNREADABLE = (BadResponse, LookupError, TypeError, ValueError, AttributeError)
_NO_FIELDS: frozenset[str] = frozenset()


class ThreadNotFound(BadRequest):
    """Threads are not held here; send the whole conversation.

    Anthropic's SDKs do so on this error.
    """

    code, status = "E_THREAD_NOT_FOUND", 404


class AnswerOptions(Protocol):
    """The client's options that change how an answer is written."""

    @property
    def receipts(self) -> bool: ...

    @property
    def buffer_tool_calls(self) -> bool: ...


class ClientRequest(Protocol):
    """What a writer reads of a request (`gateway_request.GatewayRequest`)."""

    @property
    def token(self) -> AccessToken: ...

    @property
    def body(self) -> Mapping[str, Any]: ...

    @property
    def request(self) -> Request: ...

    @property
    def parley_options(self) -> AnswerOptions: ...

    @property
    def host_speaks_dialect(self) -> bool: ...

    @property
    def hides_calls(self) -> bool: ...

    @property
    def server_tools(self) -> Collection[str]: ...

    @property
    def custom_tools(self) -> Collection[str]: ...


class Answer(ProvenAnswer, Protocol):
    """What a writer reads of a response (`stateless.StatelessResponse`)."""

    @property
    def stop_sequence(self) -> str | None: ...


class Writer(Protocol):
    """Encodes an answer's events for the stream of the client's API."""

    def feed_bytes(self, events: Iterable[Event]) -> bytes: ...


class BodyCheck(Protocol):
    """Raises BadRequest for malformed or unsupported fields. `server_tools` are names
    that `tool_choice` may use beside those of the body's own tools."""

    def __call__(self, body: Any, *, server_tools: Collection[str] = ()) -> None: ...


class _MessagesWriter(MessagesWriter):
    """Reports the stop sequence that ended the answer once it is found."""

    def __init__(self, answer: Answer, **options: Any) -> None:
        super().__init__(**options)
        self._answer = answer

    def feed_bytes(self, events: Iterable[Event]) -> bytes:
        self.stop_sequence = self._answer.stop_sequence
        return super().feed_bytes(events)


class Dialect:
    """Base class with OpenAI's error format."""

    name = ""
    proof_field = ""  # in which a client returns proofs, for `x-parley-degraded`
    codec_prefix = ""  # the beginning of the names of this API's codecs
    errors: errors.Dialect = "openai"
    is_open_responses = False  # tools and items already have the canonical shape
    declares_searches = False  # with a type and a name of Anthropic's
    reports_stop_sequence = False  # answers name the stop sequence that ended them
    returns_failed_output = False  # a failed answer includes the output so far
    check: ClassVar[BodyCheck]

    def wants_older_version(
        self, body: Mapping[str, Any], headers: Mapping[bytes, bytes]
    ) -> bool:
        """True if the headers ask for the API's previous version and the body needs it.

        The body needs it if it has options that later versions dropped.
        """
        return False

    def refuse_served(self, body: Mapping[str, Any]) -> None:
        """Raise BadRequest for what this server would have to serve itself, whatever
        the model's host has."""

    def check_own_fields(self, body: Mapping[str, Any]) -> None:
        """Check the field `parley`, and the tools of its kind. Raises BadRequest."""
        if (value := body.get("parley")) is not None:
            parley(value, "parley")
        tools = body.get("tools")
        for number, tool in enumerate(tools if isinstance(tools, list) else ()):
            if isinstance(tool, dict) and tool.get("type") == SERVER_TOOLS:
                server_tool(tool, f"tools[{number}]")

    def check_answer(self, body: Mapping[str, Any]) -> None:
        """Check what `body` asks of an answer that this server writes anew, although
        the host has read the body. Raises BadRequest."""

    def request_of(
        self, body: dict[str, Any], route: Route, open_seal: OpenSeal
    ) -> Request:
        """`open_seal` reads the proofs that a client returns. Raises BadRequest."""
        raise NotImplementedError

    def writer(
        self,
        gateway_request: ClientRequest,
        answer: Answer,
        request_id: str,
    ) -> Writer:
        raise NotImplementedError

    def response_body(
        self, gateway_request: ClientRequest, answer: Answer
    ) -> dict[str, Any]:
        raise NotImplementedError

    def status(self, exc: LLMError) -> int:
        return errors.status_of(exc, self.errors)

    def error(self, exc: LLMError, request_id: str) -> dict[str, Any]:
        return errors.body_of(exc, self.errors, request_id)


class Chat(Dialect):
    """Chat Completions."""

    name, codec_prefix = "chat", "openai_chat"
    proof_field = chat_request.PROOF_FIELD
    check = staticmethod(body_checks.check_chat)

    def check_answer(self, body: Mapping[str, Any]) -> None:
        body_checks.check_chat_answer(body)

    def request_of(
        self, body: dict[str, Any], route: Route, open_seal: OpenSeal
    ) -> Request:
        codec, issuer = route.endpoint.codec, None
        if not isinstance(codec, OpenAIChatCodec):
            gemini = route.issuer if codec.name == "gemini" else None
            return chat_request.request_of(body, open_seal=open_seal, gemini=gemini)
        if codec.reasoning_fields != _NO_FIELDS:
            issuer = route.endpoint.issuer(
                route.model, any_key=route.key_id is not None
            )
        return chat_request.request_of(body, codec, issuer, open_seal)

    def writer(
        self,
        gateway_request: ClientRequest,
        answer: Answer,
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
            sealing=_sealing(gateway_request, answer),
            proofs=_open_proofs(gateway_request, answer),
        )

    def response_body(
        self, gateway_request: ClientRequest, answer: Answer
    ) -> dict[str, Any]:
        response = answer.builder.response()
        return chat_completion_of(
            response,
            id=_chat_id(response["id"]),
            server_tools=gateway_request.server_tools,
            custom_tools=gateway_request.custom_tools,
            receipts=gateway_request.parley_options.receipts,
            sealing=_sealing(gateway_request, answer),
            proofs=_open_proofs(gateway_request, answer),
        )


class Messages(Dialect):
    """Anthropic's Messages."""

    name, codec_prefix, reports_stop_sequence = "messages", "anthropic", True
    declares_searches = True
    proof_field = messages_request.PROOF_FIELD
    errors = "anthropic"

    @staticmethod
    def check(body: Any, *, server_tools: Collection[str] = ()) -> None:
        body_checks.check_messages(body, server_tools=server_tools)
        if body.get("thread"):
            MESSAGES.refuse_served(body)

    def refuse_served(self, body: Mapping[str, Any]) -> None:
        thread = body.get("thread")
        if isinstance(thread, dict) and thread.get("type") == "continue":
            raise ThreadNotFound(param="thread")

    def wants_older_version(
        self, body: Mapping[str, Any], headers: Mapping[bytes, bytes]
    ) -> bool:
        version = headers.get(b"anthropic-version", b"").decode("latin-1")
        return version == VERSION_WITH_SAMPLING and any(
            body.get(name) is not None for name in ("temperature", "top_k", "top_p")
        )

    def request_of(
        self, body: dict[str, Any], route: Route, open_seal: OpenSeal
    ) -> Request:
        issuer: Issuer | None = None
        if route.endpoint.codec.name.startswith(self.codec_prefix):
            has_key = route.key_id is not None
            issuer = route.endpoint.issuer(route.model, any_key=has_key)
        return messages_request.request_of(body, issuer=issuer, open_seal=open_seal)

    def writer(
        self,
        gateway_request: ClientRequest,
        answer: Answer,
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
            proofs=_open_proofs(gateway_request, answer),
            server_tools=gateway_request.server_tools,
            custom_tools=gateway_request.custom_tools,
            receipts=gateway_request.parley_options.receipts,
            sealing=_sealing(gateway_request, answer),
            searches=_reads_searches(gateway_request),
        )

    def response_body(
        self, gateway_request: ClientRequest, answer: Answer
    ) -> dict[str, Any]:
        response = answer.builder.response()
        return message_of(
            response,
            id=_message_id(response["id"]),
            proofs=_open_proofs(gateway_request, answer),
            server_tools=gateway_request.server_tools,
            custom_tools=gateway_request.custom_tools,
            receipts=gateway_request.parley_options.receipts,
            stop_sequence=answer.stop_sequence,
            sealing=_sealing(gateway_request, answer),
            searches=_reads_searches(gateway_request),
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
    check = staticmethod(body_checks.check_responses)

    def request_of(
        self, body: dict[str, Any], route: Route, open_seal: OpenSeal
    ) -> Request:
        is_native = route.endpoint.codec.name.startswith(self.codec_prefix)
        issuer = route.issuer if is_native else None
        return responses_request.request_of(body, issuer=issuer)

    def writer(
        self,
        gateway_request: ClientRequest,
        answer: Answer,
        request_id: str,
    ) -> ResponsesWriter:
        options: dict[str, Any] = {
            "server_tools": gateway_request.server_tools,
            "receipts": gateway_request.parley_options.receipts,
            "buffer_tool_calls": gateway_request.parley_options.buffer_tool_calls,
        }
        wants_all = encrypted_reasoning.wants_encrypted_reasoning(gateway_request.body)
        sealing = _sealing(gateway_request, answer)
        if not (wants_all or sealing):
            return ResponsesWriter(**options)
        audience = Audience(
            server_tools=gateway_request.server_tools,
            custom_tools=gateway_request.custom_tools,
        )
        return encrypted_reasoning.EncryptedReasoningWriter(
            answer,
            gateway_request.token.user_id,
            sealing=sealing,
            audience=audience,
            wants_all=wants_all,
            **options,
        )

    def response_body(
        self, gateway_request: ClientRequest, answer: Answer
    ) -> dict[str, Any]:
        return self.writer(gateway_request, answer, "").whole(answer.builder.response())

    def error(self, exc: LLMError, request_id: str) -> dict[str, Any]:
        body = super().error(exc, request_id)
        if exc.status == 404:
            body["error"]["type"] = "not_found"  # of the standard; OpenAI has none
        return body


CHAT, MESSAGES, RESPONSES = Chat(), Messages(), Responses()


def _sealing(gateway_request: ClientRequest, answer: Answer) -> AnswerSealing | None:
    """None for a host of the client's API, whose proofs have fields of their own; they
    have none for calls of this server's tools that the client does not see."""
    if gateway_request.host_speaks_dialect and not gateway_request.hides_calls:
        return None
    return AnswerSealing(
        answer, gateway_request.token.user_id, at_end=gateway_request.hides_calls
    )


def _open_proofs(
    gateway_request: ClientRequest, answer: Answer
) -> Mapping[str, Any] | None:
    """Those that a client gets as they are, filled while the answer arrives."""
    if gateway_request.hides_calls or not gateway_request.host_speaks_dialect:
        return None
    return answer.builder.proofs


def _reads_searches(gateway_request: ClientRequest) -> bool:
    """Whether a client of Messages has declared a search, which another host runs."""
    tools = gateway_request.request.tools
    return any(tool.get("type") == "web_search" for tool in tools)


def _chat_id(response_id: str) -> str:
    return f"chatcmpl-{response_id.partition('_')[2]}"


def _message_id(response_id: str) -> str:
    return f"msg_{response_id.partition('_')[2]}"


def unreadable_body(exc: Exception) -> BadRequest:
    """The error for a body that passed the checks but cannot be parsed."""
    if isinstance(exc, BadResponse):  # the decoders read the client's history too
        return BadRequest(
            "An answer in the conversation has too many items or calls, or cannot be"
            " read."
        )
    return BadRequest(
        f"The body does not match the API's documentation ({type(exc).__name__})."
    )
