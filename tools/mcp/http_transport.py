"""HTTP transport for the MCP SDK, with the address checks of `guarded_client`.

Every connection, to the server itself or to an authorization server that it names, is
made here: host names are resolved once and all their addresses are checked before a
connection is opened. Loads the SDK's HTTP libraries: import it late.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Iterator
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from typing import Any

import httpcore2
import httpx2
import orjson
from yarl import URL

from llm.concurrency.worker_thread import run_off_loop
from llm.db.encrypted_field import SecretUnavailable
from llm.telemetry import tracing
from llm.wire import bounded_json
from llm.wire.sse import SSEDecoder
from tools.errors import (
    AnswerTooLarge,
    BrokenAnswer,
    FetchError,
    FetchTimeout,
    ToolError,
    Unreachable,
)
from tools.http.exchange import Limits
from tools.http.guarded_client import (
    Resolve,
    check_url,
    lookup,
    resolve_name,
    ssl_context,
)
from tools.mcp.errors import McpConnectFailed, McpError
from tools.mcp.server_spec import ServerSpec
from tools.mcp.startup_output import StartupOutput

#: Bytes of one answer, event or line. The SDK parses each at once on the event loop.
MAX_MESSAGE = 8 * 1024 * 1024
_LIMITS = Limits()
_SESSION_ID = "mcp-session-id"


class Health:
    """What the server's answers show about one call, or about a session apart from its
    calls: calls share a session, and the failure of one says nothing of the others."""

    def __init__(self) -> None:
        self.status = 0  # of the last error answer
        #: The server does not know the session, so it has run no request of the call.
        self.is_gone = False
        #: Why a request was not sent; the SDK only reports that the session has ended.
        self.sign_in_failure: McpError | None = None
        #: Set if an answer was cut off; the SDK only reports that it ended early.
        self.too_large: AnswerTooLarge | None = None
        #: Of a program, until the session is open.
        self.startup_output: StartupOutput | None = None

    def explain(self, failure: ToolError) -> ToolError:
        """A failure to connect, with what the program wrote."""
        if isinstance(failure, McpConnectFailed) and self.startup_output is not None:
            failure.startup_output = self.startup_output.text
        return failure

    @property
    def is_doubtful(self) -> bool:
        """True if the session may be gone: some servers send 400 or an error of theirs
        instead of 404."""
        return self.is_gone or self.status == 400 or self.status >= 500


#: The SDK sends the requests of a call in the context of its caller.
_of_call: ContextVar[Health | None] = ContextVar("health of a call", default=None)


@contextmanager
def watch_call() -> Iterator[Health]:
    """The health of the call that the block sends."""
    token = _of_call.set(health := Health())
    try:
        yield health
    finally:
        _of_call.reset(token)


def current_health(session: Health) -> Health:
    """That of the call that is being sent, otherwise that of the session."""
    return _of_call.get() or session


def http_client(
    server: ServerSpec,
    health: Health,
    auth: httpx2.Auth | None = None,
    resolve: Resolve = resolve_name,
) -> httpx2.AsyncClient:
    """The caller must close it. Raises McpConnectFailed if secrets are lost."""
    return httpx2.AsyncClient(
        transport=GuardedTransport(server, health, resolve),
        headers={
            "User-Agent": "parley",
            **server.headers,
            **_reveal_headers(server),
            "Accept-Encoding": "identity",  # the size limit counts unpacked bytes
        },
        auth=auth,
        trust_env=False,
        # Callers limit how long an answer may take.
        timeout=httpx2.Timeout(None, connect=_LIMITS.connect),
    )


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Transport with checked addresses and limited sizes. Raises only FetchError."""

    def __init__(
        self, server: ServerSpec, health: Health, resolve: Resolve = resolve_name
    ) -> None:
        self._health = health
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=ssl_context(),
            network_backend=_GuardedBackend(server, resolve),
            max_connections=None,
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        check_url(str(request.url))
        if tracing.spans is not None:  # the SDK sends it in the context of its caller
            tracing.spans.add_trace_headers(request.headers)
        with _convert_errors():
            answer = await self._pool.handle_async_request(_to_httpcore(request))
        response = httpx2.Response(
            status_code=answer.status,
            headers=answer.headers,
            stream=_LimitedBody(answer, current_health(self._health)),
            extensions=answer.extensions,
        )
        self._note(request, response)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise BrokenAnswer(
                "the web server compressed its response, which is not supported."
            )
        return response

    async def aclose(self) -> None:
        await self._pool.aclose()

    def _note(self, request: httpx2.Request, response: httpx2.Response) -> None:
        if request.method != "POST" or response.status_code < 400:
            return
        health = current_health(self._health)
        health.status = response.status_code
        if response.status_code == 404 and _SESSION_ID in request.headers:
            health.is_gone = health.is_gone or _asks_something(request)


def _asks_something(request: httpx2.Request) -> bool:
    """False for a notification, and for the answer to a question of the server, which a
    call sends that has begun."""
    message = orjson.loads(request.content)
    return "method" in message and "id" in message


class _GuardedBackend(httpcore2.AsyncNetworkBackend):
    def __init__(self, server: ServerSpec, resolve: Resolve) -> None:
        self._allow = server.networks
        self._resolve = resolve
        self._sockets = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  (required by the interface)
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        url = URL.build(scheme="https", host=host, port=port)
        addresses = await lookup(url, self._allow, _LIMITS, self._resolve)
        for number, address in enumerate(addresses, 1):
            try:
                return await self._sockets.connect_tcp(
                    str(address), port, timeout, None, socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                if number == len(addresses):
                    raise
        raise Unreachable

    async def sleep(self, seconds: float) -> None:
        await self._sockets.sleep(seconds)


class _LimitedBody(httpx2.AsyncByteStream):
    """An answer's body with limits; only an event stream may be endless.

    The SDK parses messages on the event loop, so their values are counted before.
    """

    def __init__(self, answer: httpcore2.Response, health: Health) -> None:
        self._answer = answer
        self._health = health
        self._is_endless = any(
            name.lower() == b"content-type" and value.startswith(b"text/event-stream")
            for name, value in answer.headers
        )

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        check = _check_whole_body if not self._is_endless else _check_event_stream
        with _convert_errors():
            async with aclosing(_chunks(self._answer.stream)) as chunks:
                try:
                    async for chunk in check(chunks):
                        yield chunk
                except AnswerTooLarge as exc:
                    self._health.too_large = exc
                    raise

    async def aclose(self) -> None:
        await self._answer.aclose()


async def _check_whole_body(
    chunks: AsyncIterable[bytes],
) -> AsyncGenerator[bytes, None]:
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > MAX_MESSAGE:
            raise too_large()
    whole = bytes(body)
    await check_message(whole)
    yield whole


def too_large() -> AnswerTooLarge:
    return AnswerTooLarge(f"the answer is larger than {MAX_MESSAGE:,} bytes.")


async def check_message(message: bytes) -> None:
    """Raises AnswerTooLarge if the message has too many JSON values."""
    await run_off_loop(len(message), _check_values, message)


async def _check_event_stream(
    chunks: AsyncIterable[bytes],
) -> AsyncGenerator[bytes, None]:
    decoder = SSEDecoder()
    async for chunk in chunks:
        await run_off_loop(decoder.waiting, _check_events, decoder, chunk)
        if decoder.waiting > MAX_MESSAGE:
            raise too_large()
        yield chunk


def _check_events(decoder: SSEDecoder, chunk: bytes) -> None:
    for event in decoder.feed(chunk):
        _check_values(event.data)


def _check_values(message: bytes) -> None:
    try:
        bounded_json.check_values(message)
    except bounded_json.TooManyValues as exc:
        raise AnswerTooLarge(f"the answer is too large: {exc.msg}.") from exc


async def _chunks(stream: Any) -> AsyncGenerator[bytes, None]:
    assert isinstance(stream, AsyncIterable)
    async for chunk in stream:
        yield chunk


def _to_httpcore(request: httpx2.Request) -> httpcore2.Request:
    url = request.url
    return httpcore2.Request(
        method=request.method,
        url=httpcore2.URL(
            scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
        ),
        headers=request.headers.raw,
        content=request.stream,
        extensions=request.extensions,
    )


def _reveal_headers(server: ServerSpec) -> dict[str, str]:
    if server.secret_headers is None:
        return {}
    try:
        headers: dict[str, str] = orjson.loads(server.secret_headers.reveal())
    except SecretUnavailable as exc:
        raise McpConnectFailed(
            "the secret headers of this MCP server cannot be decrypted; ask the staff"
            " to enter them again."
        ) from exc
    return headers


@contextmanager
def _convert_errors() -> Iterator[None]:
    """Convert exceptions of the libraries to FetchError, without addresses."""
    try:
        yield
    except FetchError:
        raise
    except (TimeoutError, httpcore2.TimeoutException) as exc:
        raise FetchTimeout("the web server could not be reached in time.") from exc
    except socket.gaierror as exc:
        raise Unreachable("the web server's name cannot be resolved.") from exc
    except httpcore2.ConnectError as exc:
        if isinstance(exc.__cause__, ssl.SSLError):
            raise Unreachable("the web server's certificate is invalid.") from exc
        raise Unreachable from exc
    except (httpcore2.NetworkError, httpcore2.ProtocolError, OSError) as exc:
        raise BrokenAnswer(
            f"the web server's answer cannot be read ({type(exc).__name__})."
        ) from exc
