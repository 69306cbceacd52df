"""HTTP calls to a provider, independent of the provider's format.

A call has four parts: `outgoing` builds the request, `connections` sends it, `exchange`
reads the response under our time limits, and `wire.reading` decodes the bytes into
deltas. Each event loop has its own HTTP clients, opened when first needed and closed by
`aclose`. All errors leave as an LLMError, whose text contains neither the key nor a
body.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Literal

from llm.concurrency.worker_thread import run_off_loop
from llm.db.encrypted_field import scrub
from llm.errors import (
    BadResponse,
    ConnectTimeout,
    InvalidKey,
    LLMError,
    NoFreeConnection,
    ProviderTimeout,
    TryAgain,
)
from llm.http import connections, exchange, token_issuer
from llm.http import request as outgoing
from llm.http.address_problems import REDIRECT, WEB_PAGE
from llm.http.exchange import MAX_BODY, MAX_ERROR_BODY, UpstreamResponse
from llm.http.recording import Recording
from llm.http.streamed_deltas import StreamedDeltas
from llm.pricing.usage_estimate import measure_answer, measure_prompt
from llm.provider import Endpoint, Route, bearer
from llm.telemetry import tracing
from llm.wire.classify_errors import request_id
from llm.wire.codec import Decoder
from llm.wire.delta_reader import DeltaReader, decode_body
from llm.wire.deltas import (
    Delta,
    FinishDelta,
    FrameDelta,
    ItemDelta,
    ReasoningDelta,
    RefusalDelta,
    StartDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
)
from llm.wire.forwarding.forwarded_body import ForwardedBody
from llm.wire.request import BackgroundResponse, Request

if TYPE_CHECKING:
    from llm.telemetry.spans import ModelCallSpan

__all__ = [
    "ProviderCall",
    "aclose",
    "get",
    "post",
    "stream",
    "upload",
]

#: How an event stream begins; JSON never begins like this.
_EVENT_STREAM_START = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:data|event|id|retry)?:")
_BOM = b"\xef\xbb\xbf"
MAX_DELTAS = 500  # that are yielded before the event loop runs other tasks

#: What a call is made for; "summary" is one of a conversation's earlier items.
Purpose = Literal[
    "answer", "correction", "dictation", "test", "probe", "summary", "title", "trial"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheUse:
    """Whether a stored answer was used instead of a request to the provider."""

    is_hit: bool
    stored_at: datetime | None = None
    saved_cost: Decimal | None = None  # USD; None if unknown, 0 without a hit


@dataclass(slots=True)
class ProviderCall:
    """Metadata of one provider call; `stream` fills it in."""

    started_at: float = 0.0  # time.monotonic(); 0 if no request was sent
    ttft: float | None = None  # seconds to the first delta with content
    latency: float | None = None  # seconds to the end, after an error too
    has_slot: bool = False  # has a connection slot; it may still be connecting
    http_status: int | None = None
    request_id: str = ""  # the provider's, for its support
    error: LLMError | None = None
    purpose: Purpose = "answer"
    # Filled in by `llm.generation.retries`; empty for a call made without it.
    attempt: int = 1
    continues: bool = False  # its answer continues that of the call before
    route: Route | None = None
    earlier: Sequence[ProviderCall] = ()  # earlier attempts and portions
    degraded: list[str] = field(default_factory=list)  # what differs from the request
    prefill: str = ""  # start of the answer, as sent; the answer does not repeat it
    background: BackgroundResponse | None = None  # set once the response has begun
    cache: CacheUse | None = None  # None if the cache was not asked
    recording: Recording | None = None  # None if the provider keeps no exchanges
    #: For an estimate of tokens that the host does not report; 0 if it refused the
    #: request or has not received it.
    prompt_tokens: int = 0
    answer_bytes: int = 0
    is_usage_estimated: bool = False  # by the caller, who has ended the answer early
    chunks: int = 0  # reads of the stream
    span: ModelCallSpan | None = None  # None without traces
    # Set only if the caller did not receive these deltas, or received those of several
    # calls in one.
    start: StartDelta | None = None
    usage: UsageDelta | None = None
    finish: FinishDelta | None = None

    def note_slot(self) -> None:
        self.has_slot = True

    def note_deltas(self, deltas: list[Delta]) -> None:
        """Call this with each batch of deltas."""
        if self.ttft is None and any(map(_has_content, deltas)):
            self.ttft = time.monotonic() - self.started_at
        self.answer_bytes += measure_answer(deltas)
        if self.span is not None:
            self.span.note(deltas)

    def note_end(self) -> None:
        """Call this at the end, also after an error."""
        if self.started_at:
            self.latency = time.monotonic() - self.started_at
        if self.span is not None:
            self.span.end(self)


#: Makes a provider call for a request, and yields its deltas.
Stream = Callable[[Request, ProviderCall], AsyncGenerator[list[Delta], None]]


async def stream(
    endpoint: Endpoint,
    request: Request,
    call: ProviderCall | None = None,
    *,
    decoder: Decoder | None = None,
) -> AsyncGenerator[list[Delta], None]:
    """Make one provider call and yield a list of deltas for each read from the network.

    Raises LLMError and nothing else. Read it inside `aclosing`: closing it closes the
    connection. A request without `stream` yields one list, after the whole answer; if
    that ends in an error, `call.error` is set before. A `decoder` of the endpoint's
    codec may already have read the beginning of this answer.
    """
    call = call or ProviderCall()
    call.started_at = time.monotonic()
    answer: UpstreamResponse | None = None
    if tracing.spans is not None:
        call.span = tracing.spans.start_model_call(endpoint, request, call)
    try:
        answer = await _open_response(endpoint, request, call)
        streams, resumes = request.stream, request.resumes is not None
        forwarded = request.forwarded
        del request  # it may be large, and the answer may take long
        start = await _read_start(answer) if streams else b""
        if not streams or _is_whole(start):
            if resumes:  # the JSON may be half of the response
                raise BadResponse(detail="The response to resume was not streamed.")
            wants_body = bool(not streams and forwarded and forwarded.wants_frames)
            del forwarded
            whole = await _read_whole(endpoint, answer, start, wants_body, call)
            for portion in _split_deltas(whole):
                yield portion
                if len(whole) > MAX_DELTAS:
                    await asyncio.sleep(0)
            if call.error is not None:
                raise call.error
            return
        decoder = decoder or endpoint.codec.decoder()
        streamed = StreamedDeltas(answer, decoder, start, forwarded)
        del forwarded
        while (deltas := await streamed.read()) is not None:
            call.note_deltas(deltas)
            call.chunks += 1
            if len(deltas) > MAX_DELTAS:
                for portion in _split_deltas(deltas):
                    yield portion
                    await asyncio.sleep(0)
            elif deltas:
                yield deltas
            del deltas  # freed because the next read may take a while
    except LLMError as exc:
        _annotate_error(exc, endpoint, call)
        raise
    finally:
        try:
            if answer is not None:
                await answer.aclose()
        finally:
            call.note_end()


async def get(endpoint: Endpoint, path: str) -> bytes:
    """GET `path`, which may include a query, and return the body.

    Raises LLMError and nothing else.
    """
    return await _request(endpoint, path, "GET")


async def post(
    endpoint: Endpoint,
    path: str,
    body: bytes = b"",
    forwarded: ForwardedBody | None = None,
    *,
    limit: int = MAX_BODY,
) -> bytes:
    """Like `get`, as a POST of `body`, which is JSON, with the client's headers. An
    answer of more than `limit` bytes is a BadResponse."""
    return await _request(endpoint, path, "POST", body, forwarded, limit=limit)


async def upload(
    endpoint: Endpoint,
    path: str,
    form: Mapping[str, str],
    file: outgoing.FormFile,
    call: ProviderCall,
) -> bytes:
    """POST a form with a file, fill in `call`, and return the body.

    Raises LLMError and nothing else.
    """
    call.started_at = time.monotonic()
    try:
        return await _upload(endpoint, path, form, file, call)
    except LLMError as exc:
        _annotate_error(exc, endpoint, call)
        raise
    finally:
        call.note_end()


async def _upload(
    endpoint: Endpoint,
    path: str,
    form: Mapping[str, str],
    file: outgoing.FormFile,
    call: ProviderCall,
) -> bytes:
    auth_headers = await _auth_headers(endpoint)
    message, allow_private = outgoing.build_upload(
        endpoint, path, auth_headers, form, file
    )
    transport = connections.transport(private=allow_private)
    answer = await exchange.send_request(
        transport, message, streams=False, on_slot=call.note_slot
    )
    try:
        response = answer.response
        call.http_status = response.status_code
        call.request_id = (request_id(response.headers) or "")[:200]
        if not response.is_success:
            raise await _provider_error(endpoint, answer, auth_headers)
        body = await answer.read_rest()
    finally:
        await answer.aclose()
    _check_size(body)
    return body


async def _request(
    endpoint: Endpoint,
    path: str,
    method: str,
    body: bytes = b"",
    forwarded: ForwardedBody | None = None,
    *,
    limit: int = MAX_BODY,
) -> bytes:
    auth_headers = await _auth_headers(endpoint)
    message, allow_private = outgoing.build_path_request(
        endpoint, path, auth_headers, method=method, body=body, forwarded=forwarded
    )
    transport = connections.transport(private=allow_private)
    answer = await exchange.send_request(transport, message, streams=False)
    try:
        if not answer.response.is_success:
            raise await _provider_error(endpoint, answer, auth_headers)
        answered = await answer.read_rest(limit=limit)
    finally:
        await answer.aclose()
    _check_size(answered, limit)
    return answered


async def aclose() -> None:
    """Close this event loop's connections. A later call opens new ones."""
    await connections.aclose()


# One answer


async def _auth_headers(endpoint: Endpoint) -> dict[str, str]:
    """The authentication headers: with the API key, or with a token issued for it.

    Raises InvalidKey for a key that no header can hold.
    """
    if endpoint.credentials is not None:
        key = await endpoint.credentials.token(
            partial(token_issuer.post_form, endpoint)
        )
    else:
        key = endpoint.api_key
    if not (key.isascii() and key.isprintable()) or key != key.strip():
        raise InvalidKey(
            "The API key contains a character that is not allowed; enter it again."
        )
    auth = bearer(key) if endpoint.credentials else endpoint.auth_headers
    return {**auth, **endpoint.secret_headers}


async def _open_response(
    endpoint: Endpoint, request: Request, call: ProviderCall
) -> UpstreamResponse:
    """Send the request and return a success response, which the caller closes. Raises
    LLMError."""
    auth_headers = await _auth_headers(endpoint)
    message, allow_private = outgoing.build_request(endpoint, request, auth_headers)
    if call.span is not None:
        url = message.url
        call.span.add_headers(message.headers, url.scheme, url.host, url.port)
    if endpoint.keeps_exchanges:
        call.recording = Recording.of(message, endpoint.api_key, auth_headers)
    transport = connections.transport(private=allow_private)
    try:
        answer = await exchange.send_request(
            transport,
            message,
            streams=request.stream,
            on_slot=call.note_slot,
            recording=call.recording,
        )
    except (ProviderTimeout, asyncio.CancelledError) as exc:
        # The host may be processing it, and bill it.
        if call.has_slot and not isinstance(exc, ConnectTimeout):
            call.prompt_tokens = measure_prompt(message.content)
        raise
    try:
        response = answer.response
        call.http_status = response.status_code
        call.request_id = (request_id(response.headers) or "")[:200]
        if not response.is_success:
            raise await _provider_error(endpoint, answer, auth_headers)
    except BaseException:
        await answer.aclose()
        raise
    answer.discard_head()
    call.prompt_tokens = measure_prompt(message.content)
    return answer


async def _provider_error(
    endpoint: Endpoint, answer: UpstreamResponse, auth_headers: Mapping[str, str]
) -> LLMError:
    response = answer.response
    if response.status_code == 401 and endpoint.credentials:
        authorization = auth_headers.get("Authorization", "")
        endpoint.credentials.forget(authorization.removeprefix("Bearer "))
    if response.is_redirect:
        return BadResponse(REDIRECT)
    try:
        body = await answer.read_rest(limit=MAX_ERROR_BODY)
    except (TryAgain, BadResponse):
        body = b""  # the status must be enough
    body = body[:MAX_ERROR_BODY]
    return endpoint.codec.error(response.status_code, response.headers, body)


async def _read_start(answer: UpstreamResponse) -> bytes:
    """Read up to the first byte that is not whitespace; leading whitespace is cut
    short."""
    start = b""
    while chunk := await answer.read():
        if chunk.lstrip(b"\xef\xbb\xbf \t\r\n"):
            return (start + chunk).removeprefix(_BOM)
        start = (start + chunk)[: len(_BOM)]
    return start.removeprefix(_BOM)


def _is_whole(start: bytes) -> bool:
    """Whether an answer with this start is one JSON object (usually an error) or a page
    of HTML, although a stream was requested. The header is no sign: some hosts send
    streams as application/json."""
    return start.lstrip()[:1] in (b"{", b"[", b"<")


async def _read_whole(
    endpoint: Endpoint,
    answer: UpstreamResponse,
    start: bytes,
    wants_body: bool,
    call: ProviderCall,
) -> list[Delta]:
    """The deltas of an answer that is no stream and begins with `start`; before them
    the whole body, if it is wanted and no stream either. Sets `call.error` to the error
    after them."""
    body = await answer.read_rest(start)
    deltas, call.error = await run_off_loop(len(body), _decode_whole, endpoint, body)
    if wants_body and call.error is None and not _EVENT_STREAM_START.match(body):
        deltas.insert(0, FrameDelta(body))
    call.note_deltas(deltas)
    return deltas


def _split_deltas(deltas: list[Delta]) -> Iterator[list[Delta]]:
    """Yields at least one list, which may be empty."""
    yield deltas[:MAX_DELTAS]
    for start in range(MAX_DELTAS, len(deltas), MAX_DELTAS):
        yield deltas[start : start + MAX_DELTAS]


def web_page_error() -> BadResponse:
    return BadResponse(WEB_PAGE)


def _decode_whole(
    endpoint: Endpoint, body: bytes
) -> tuple[list[Delta], LLMError | None]:
    _check_size(body)
    if _EVENT_STREAM_START.match(body):
        return _decode_stream(endpoint, body)
    if body.lstrip()[:1] == b"<":
        raise web_page_error()
    return decode_body(endpoint.codec.decode, body)


def _decode_stream(
    endpoint: Endpoint, body: bytes
) -> tuple[list[Delta], LLMError | None]:
    """Decode the answer of a host that streams although it was not asked to."""
    reader = DeltaReader(endpoint.codec.decoder())
    deltas = reader.feed(body)
    if reader.error is None:
        deltas += reader.close()
    return deltas, reader.error


def _check_size(body: bytes, limit: int = MAX_BODY) -> None:
    if len(body) > limit:
        raise BadResponse(detail="The answer is too large.")


def _has_content(delta: Delta) -> bool:
    match delta:
        case TextDelta(text=text) | RefusalDelta(text=text) | ReasoningDelta(text=text):
            return bool(text)
        case ToolCallDelta() | ItemDelta():
            return True
    return False


def _annotate_error(exc: LLMError, endpoint: Endpoint, call: ProviderCall) -> None:
    if isinstance(exc, NoFreeConnection):
        call.started_at = 0.0  # no request was sent, so there is nothing to record
        call.error = exc
        return
    exc.provider = exc.provider or endpoint.provider.name
    exc.upstream_status = exc.upstream_status or call.http_status
    exc.request_id = exc.request_id or call.request_id or None
    if exc.detail:  # some hosts quote the key
        exc.detail = scrub(exc.detail, endpoint.secrets)
    call.error = exc
