"""The one place that talks HTTP to a provider. It knows no provider's format.

A call in four parts: `outgoing` says what is sent, `connections` sends it, `exchange`
reads the answer under our time limits, and `wire.reading` makes deltas of the bytes.
Each event loop has its own HTTP clients, opened when first needed and shut by `aclose`.
Whatever goes wrong leaves as an LLMError, whose text holds neither the key nor a body.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import httpx

from llm import connections, exchange, outgoing
from llm.errors import BadResponse, InvalidKey, LLMError, NoFreeConnection, TryAgain
from llm.exchange import MAX_WHOLE_ANSWER, Answer
from llm.off_loop import LARGE, run_off_loop
from llm.provider import Endpoint, Route, bearer
from llm.wire.classify import request_id
from llm.wire.codec import Decoder
from llm.wire.deltas import (
    Delta,
    FinishDelta,
    ItemDelta,
    ReasoningDelta,
    RefusalDelta,
    StartDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
)
from llm.wire.reading import Reader, whole
from llm.wire.request import BackgroundResponse, Request

__all__ = ["Call", "aclose", "get", "outside", "post", "stream"]

#: How a stream of events begins, and JSON never does.
_STREAMED = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:data|event|id|retry)?:")
_BOM = b"\xef\xbb\xbf"
MAX_ERROR_BODY = 1024 * 1024  # bytes; what comes after them is not read
#: What is decoded and told between two turns of the event loop: bytes of one read, and
#: deltas. Most reads hold one frame; a host that sends 20 MB of the smallest frames
#: there are would hold up everybody else for as long as its reads take.
MAX_PIECE = 16 * 1024
MAX_DELTAS = 500


@dataclass(slots=True)
class Call:
    """What there is to tell about one provider call; `stream` fills it in."""

    started_at: float = 0.0  # time.monotonic(); 0 where there was no request
    ttft: float | None = None  # seconds to the first delta with content
    latency: float | None = None  # seconds to the end, whatever it was
    has_slot: bool = False  # it waits for no other request; it may be connecting
    http_status: int | None = None
    request_id: str = ""  # the provider's, for its support
    error: LLMError | None = None
    # What `llm.policy` adds; a call made without it has none of these.
    attempt: int = 1
    continues: bool = False  # tells the rest of what the call before it began to
    route: Route | None = None
    earlier: Sequence[Call] = ()  # attempts that came to nothing
    degraded: list[str] = field(default_factory=list)  # what was asked differently
    prefill: str = ""  # with which the answer had begun; it is not said again
    background: BackgroundResponse | None = None  # known as soon as it has begun
    start: StartDelta | None = None  # these where the caller did not hear them, or
    usage: UsageDelta | None = None  # heard more than this call said
    finish: FinishDelta | None = None

    def note_slot(self) -> None:
        self.has_slot = True

    def saw(self, deltas: list[Delta]) -> None:
        """To be told until `ttft` is known."""
        if any(map(_has_content, deltas)):
            self.ttft = time.monotonic() - self.started_at


async def stream(
    endpoint: Endpoint,
    request: Request,
    call: Call | None = None,
    *,
    decoder: Decoder | None = None,
) -> AsyncGenerator[list[Delta], None]:
    """One provider call: a list of deltas for each read from the network.

    Raises LLMError and nothing else. Read it inside `aclosing`: closing it hangs up. A
    request that is not to stream gives one list, once the whole answer is there. A
    `decoder` of the endpoint's codec may have heard the beginning of this answer.
    """
    call = call or Call()
    call.started_at = time.monotonic()
    answer: Answer | None = None
    try:
        answer = await _asked(endpoint, request, call)
        streams, resumes = request.stream, request.resumes is not None
        del request  # which may be large; the answer may take long
        chunk = await _beginning(answer) if streams else b""
        # Some hosts stream as application/json, others answer a stream with one JSON
        # object (an error as a rule): what comes first tells them apart, and not the
        # header.
        if not streams or chunk.lstrip()[:1] in (b"{", b"[", b"<"):
            if resumes:  # which may be half of it
                raise BadResponse(detail="A kept response was not streamed.")
            body = await answer.rest(chunk)
            deltas = await run_off_loop(len(body), _whole, endpoint, body)
            del body
            call.saw(deltas)
            for portion in _portions(deltas):
                yield portion
                if len(deltas) > MAX_DELTAS:
                    await asyncio.sleep(0)
            return
        reader = Reader(decoder or endpoint.codec.decoder())
        lost: TryAgain | None = None
        rest = b""  # of a read that holds more than a piece
        while chunk:
            if len(chunk) > MAX_PIECE:
                chunk, rest = _cut(chunk)
            if reader.waiting > LARGE:
                deltas = await asyncio.to_thread(reader.feed, chunk)
            else:
                deltas = reader.feed(chunk)
            if deltas:
                if call.ttft is None:
                    call.saw(deltas)
                if len(deltas) <= MAX_DELTAS:
                    yield deltas
                else:
                    for portion in _portions(deltas):
                        yield portion
                        await asyncio.sleep(0)
            if reader.error:
                raise reader.error
            try:
                del chunk, deltas  # what comes next may take a while
                if rest:
                    await asyncio.sleep(0)
                    chunk, rest = rest, b""
                else:
                    chunk = await answer.read()
            except TryAgain as exc:
                chunk, lost = b"", exc
        if deltas := await run_off_loop(reader.waiting, reader.close, lost):
            if call.ttft is None:
                call.saw(deltas)
            for portion in _portions(deltas):
                yield portion
                if len(deltas) > MAX_DELTAS:
                    await asyncio.sleep(0)
        if reader.error:
            raise reader.error
    except LLMError as exc:
        _note(exc, endpoint, call)
        raise
    finally:
        try:
            if answer is not None:
                await answer.aclose()
        finally:
            if call.started_at:
                call.latency = time.monotonic() - call.started_at


async def get(endpoint: Endpoint, path: str) -> bytes:
    """What the provider has at `path`, which may hold a query.

    Raises LLMError and nothing else.
    """
    return await _at(endpoint, path, "GET")


async def post(endpoint: Endpoint, path: str) -> bytes:
    """As `get`, of a POST that says nothing but its path."""
    return await _at(endpoint, path, "POST")


async def _at(endpoint: Endpoint, path: str, method: str) -> bytes:
    proof = await _proof(endpoint)
    message, ours = outgoing.look(endpoint, path, proof, method=method)
    http = connections.client(private=ours)
    answer = await exchange.ask(http, message, streams=False)
    try:
        if not answer.response.is_success:
            raise await _refusal(endpoint, answer, proof)
        body = await answer.rest()
    finally:
        await answer.aclose()
    _check_size(body)
    return body


def outside() -> httpx.AsyncClient:
    """This event loop's client for the open web.

    It connects to no private address, whatever a name leads to: its resolver raises
    BadRequest. What looks like an address is not resolved: ask `addresses` about it.
    """
    return connections.client(private=False)


async def aclose() -> None:
    """Shut this event loop's connections. A later call opens new ones."""
    await connections.aclose()


# One answer


async def _asked(endpoint: Endpoint, request: Request, call: Call) -> Answer:
    """An answer that is no refusal; the caller closes it. Raises LLMError."""
    proof = await _proof(endpoint)
    message, ours = outgoing.question(endpoint, request, proof)
    http = connections.client(private=ours)
    answer = await exchange.ask(
        http, message, streams=request.stream, on_slot=call.note_slot
    )
    try:
        response = answer.response
        call.http_status = response.status_code
        call.request_id = (request_id(response.headers) or "")[:200]
        if not response.is_success:
            raise await _refusal(endpoint, answer, proof)
    except BaseException:
        await answer.aclose()
        raise
    answer.forget_head()
    return answer


async def _refusal(
    endpoint: Endpoint, answer: Answer, proof: Mapping[str, str]
) -> LLMError:
    response = answer.response
    if response.status_code == 401 and endpoint.credentials:
        shown = proof.get("Authorization", "")
        endpoint.credentials.forget(shown.removeprefix("Bearer "))
    if response.is_redirect:
        return BadResponse(
            "The provider's address leads elsewhere; the staff must correct it."
        )
    try:
        body = await answer.rest(limit=MAX_ERROR_BODY)
    except (TryAgain, BadResponse):
        body = b""  # the status alone must do
    body = body[:MAX_ERROR_BODY]
    return endpoint.codec.error(response.status_code, response.headers, body)


async def _beginning(answer: Answer) -> bytes:
    """Enough to see the first byte that is not blank; of the blanks a few."""
    begun = b""
    while chunk := await answer.read():
        if chunk.lstrip(b"\xef\xbb\xbf \t\r\n"):
            return (begun + chunk).removeprefix(_BOM)
        begun = (begun + chunk)[: len(_BOM)]
    return begun.removeprefix(_BOM)


def _cut(read: bytes) -> tuple[bytes, bytes]:
    """A piece of the read that ends with a frame, where one does, and what is left."""
    end = read.rfind(b"\n\n", 0, MAX_PIECE) + 2
    if end < 2:
        end = MAX_PIECE
    return read[:end], read[end:]


def _portions(deltas: list[Delta]) -> Iterator[list[Delta]]:
    """At least one, which may be empty."""
    yield deltas[:MAX_DELTAS]
    for start in range(MAX_DELTAS, len(deltas), MAX_DELTAS):
        yield deltas[start : start + MAX_DELTAS]


def _whole(endpoint: Endpoint, body: bytes) -> list[Delta]:
    _check_size(body)
    if _STREAMED.match(body):
        return _streamed(endpoint, body)
    if body.lstrip()[:1] == b"<":
        raise BadResponse(
            "The provider's address answers with a web page; the staff must correct it."
        )
    return whole(endpoint.codec.decode, body)


def _streamed(endpoint: Endpoint, body: bytes) -> list[Delta]:
    """The answer of a host that streams whatever it is asked."""
    reader = Reader(endpoint.codec.decoder())
    deltas = reader.feed(body)
    if reader.error is None:
        deltas += reader.close()
    if reader.error is not None:
        raise reader.error
    return deltas


def _check_size(body: bytes) -> None:
    if len(body) > MAX_WHOLE_ANSWER:
        raise BadResponse(detail="The answer is too large.")


def _has_content(delta: Delta) -> bool:
    match delta:
        case TextDelta(text=text) | RefusalDelta(text=text) | ReasoningDelta(text=text):
            return bool(text)
        case ToolCallDelta() | ItemDelta():
            return True
    return False


def _note(exc: LLMError, endpoint: Endpoint, call: Call) -> None:
    if isinstance(exc, NoFreeConnection):
        call.started_at = 0.0  # there was no request, and so there is nothing to record
        call.error = exc
        return
    exc.provider = exc.provider or endpoint.provider.name
    exc.upstream_status = exc.upstream_status or call.http_status
    exc.request_id = exc.request_id or call.request_id or None
    call.error = exc


# Who we are


async def _proof(endpoint: Endpoint) -> dict[str, str]:
    """The headers that show who we are: with our key, or with a token for it."""
    if endpoint.credentials is not None:
        return bearer(await endpoint.credentials.token(partial(_post, endpoint)))
    key = endpoint.api_key
    if not (key.isascii() and key.isprintable()) or key != key.strip():
        raise InvalidKey("The API key has a character no key has; enter it anew.")
    return endpoint.provider.auth(key)


async def _post(
    endpoint: Endpoint, text: str, form: Mapping[str, str]
) -> tuple[int, bytes]:
    """What somebody who issues tokens for this account answers. Raises LLMError."""
    private = endpoint.allow_private_network
    message = httpx.Request(
        "POST",
        outgoing.url(text, private=private),
        data=form,
        headers={"Accept": "application/json", "User-Agent": "parley"},
        extensions={"timeout": outgoing.timeouts()},
    )
    http = connections.client(private=private)
    answer = await exchange.ask(http, message, streams=True)
    try:
        body = await answer.rest(limit=MAX_ERROR_BODY)
    finally:
        await answer.aclose()
    return answer.response.status_code, body
