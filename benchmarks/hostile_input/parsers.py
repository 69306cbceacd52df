"""The parsers that get hostile input, each called through its public entry."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from functools import partial
from ipaddress import ip_network
from itertools import count
from pathlib import Path
from typing import Any

import orjson

from benchmarks.hostile_input.hosts import (
    BODIES,
    FEW,
    MEGABYTE,
    SIZE,
    deep,
    filled,
    text,
    values,
)

Reader = Callable[[], Awaitable[object]]
_LOOPBACK = (ip_network("127.0.0.0/8"),)
_ROOT = Path(__file__).parent.parent
_OVER_HTTP = ("values", "values-sse", "few", "small", "most", "text", "text-sse")
_OVER_PIPES = ("values", "few", "small", "most", "text", "notes", "blank", "endless")
#: Code that is slow to lex, and languages that a model may name.
_CODE = (
    "\n",
    "a.",
    "a",
    "(",
    "[",
    "{",
    '"',
    "'",
    "<",
    "/",
    "\\",
    " ",
    "`",
    "#",
    "0",
    "a ",
    "a\n",
)
_LANGUAGES: tuple[str, ...] = (
    "python",
    "javascript",
    "html",
    "bash",
    "c++",
    "markdown",
    "rst",
    "perl",
)
_LANGUAGES += ("java", "csharp", "typescript", "make", "kotlin")


@asynccontextmanager
async def readers(port: int) -> AsyncGenerator[dict[str, Reader], None]:
    """Readers by name; the hostile hosts listen on `port`."""
    from asgiref.sync import sync_to_async

    from project.server import lifespan

    dataset = await sync_to_async(_rows)(port)
    await lifespan.start()
    try:
        yield {
            "nothing, for 2 s": lambda: asyncio.sleep(2),
            **_providers(port),
            **_http_tools(port),
            **_mcp(port),
            **_gateway(dataset.token),
            **_sockets(dataset),
            **_threaded(),
        }
    finally:
        await lifespan.drain()
        await lifespan.close()


def _rows(port: int) -> Any:
    from django.core.management import call_command

    from benchmarks.dataset import make_dataset
    from llm.models import LanguageModel, Provider

    call_command("migrate", verbosity=0)
    dataset = make_dataset(port, conversations=1, earlier=())
    provider = Provider.objects.get()
    provider.base_url = f"http://127.0.0.1:{port}/short"
    provider.save()
    LanguageModel.objects.update(capabilities={})
    return dataset


# Answers of providers


def _providers(port: int) -> dict[str, Reader]:
    found: dict[str, Reader] = {}
    for name, (_, kind, _) in BODIES.items():
        if not name.startswith("tool-"):
            read = _provider(port, name, streams=kind == "sse")
            found[f"provider: {name}"] = read
    for name in ("headers", "packed"):
        found[f"provider: {name}"] = _provider(port, name, streams=True)
    url = "data:image/png;base64," + "A" * (SIZE - 100)
    image = {"type": "input_image", "image_url": url}
    item = {"type": "message", "role": "user", "content": [image]}
    request = _provider(port, "short", streams=True, items=[item])
    found["provider: data: URL in a request"] = request
    return found


def _provider(
    port: int, name: str, *, streams: bool, items: list[Any] | None = None
) -> Reader:
    from llm.http.client import stream
    from llm.provider import Endpoint, Provider
    from llm.wire.codecs.anthropic.codec import AnthropicCodec
    from llm.wire.codecs.gemini.codec import GeminiCodec
    from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec
    from llm.wire.codecs.openai_responses.codec import OpenAIResponsesCodec
    from llm.wire.items import user_message
    from llm.wire.request import Request
    from llm.wire.response_builder import ResponseBuilder

    address = f"http://127.0.0.1:{port}/{name}"
    codecs = {
        "responses": OpenAIResponsesCodec(),
        "gemini": GeminiCodec(),
        "anthropic": AnthropicCodec(),
    }
    codec = codecs.get(name.partition("-")[0]) or OpenAIChatCodec()
    provider = Provider(name="h", label="H", base_url=address, codecs={"chat": codec})
    endpoint = Endpoint(
        provider=provider,
        codec=codec,
        api_key="k",
        base_url=address,
        allow_private_network=True,
    )
    given = items or [user_message("hi")]

    async def read() -> None:
        builder = ResponseBuilder(id="resp_1", model="m")
        builder.begin_call()
        request = Request(model="m", items=given, stream=streams)
        async with aclosing(stream(endpoint, request)) as answer:
            async for deltas in answer:
                builder.feed(deltas)

    return read


# Answers of tools


def _http_tools(port: int) -> dict[str, Reader]:
    from tools.http.call import HttpCall
    from tools.http.exchange import Limits
    from tools.http.request_template import RequestTemplate
    from tools.http.result import ReadOptions
    from tools.registry import Context

    found: dict[str, Reader] = {}
    for name in (name for name in BODIES if name.startswith("tool-")):
        address = f"http://127.0.0.1:{port}/{name}"
        call = HttpCall(
            name="t",
            definition=RequestTemplate(method="GET", url=address),
            read_options=ReadOptions(),
            limits=Limits(),
            networks=_LOOPBACK,
        )
        found[f"HTTP tool: {name}"] = partial(call, Context(), {})
    return found


def _mcp(port: int) -> dict[str, Reader]:
    from tools.mcp.server_spec import Program, ServerSpec

    found: dict[str, Reader] = {}
    for name in _OVER_HTTP:
        address = f"http://127.0.0.1:{port}/mcp-{name}"
        web = ServerSpec(name=f"web-{name}", url=address, networks=_LOOPBACK)
        found[f"MCP over HTTP: {name}"] = partial(_called, web)
    for name in _OVER_PIPES:
        program = Program(
            command=sys.executable,
            arguments=("-m", "benchmarks.hostile_input.hosts", name),
            environment={},
            folder=str(_ROOT),
        )
        local = ServerSpec(name=f"local-{name}", program=program)
        found[f"MCP over pipes: {name}"] = partial(_called, local)
    return found


async def _called(server: Any) -> None:
    from tools.mcp.client import temporary_session
    from tools.registry import Context

    async with temporary_session(server) as session:
        await session.call("t", {}, Context())


# Requests of clients


def _gateway(token: str) -> dict[str, Reader]:
    message = {"role": "user", "content": "a"}
    items = [message] * 80_000
    tool: Any = {"type": "function", "name": "f", "parameters": {"type": "object"}}
    bodies = {
        "values": values(),
        "deep": deep(),
        "text": text(),
        "NULs": b'{"a":"%b"}' % filled(rb"\u0000", SIZE - 10),
        "250,000 values": values(FEW),
        "80,000 messages": orjson.dumps({"model": "bench-c1-d0", "input": items}),
        "40,000 tools": orjson.dumps(
            {"model": "bench-c1-d0", "input": "a", "tools": [tool] * 40_000}
        ),
        "one text": orjson.dumps({"model": "bench-c1-d0", "input": "x" * (SIZE - 99)}),
    }
    return {
        f"gateway: {name}": partial(_post, "/v1/responses", token, body)
        for name, body in bodies.items()
    }


async def _post(path: str, token: str, body: bytes) -> str:
    """Status and error code with which the whole application answers."""
    from project.asgi import application

    pieces = [body[at : at + 65_536] for at in range(0, len(body), 65_536)]
    messages = [{"type": "http.request", "body": p, "more_body": True} for p in pieces]
    messages.append({"type": "http.request", "body": b"", "more_body": False})
    unread, sent = iter(messages), []

    async def receive() -> Any:
        await asyncio.sleep(0)
        if (message := next(unread, None)) is None:
            await asyncio.Future()
        return message

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [
        (b"host", b"localhost"),
        (b"content-type", b"application/json"),
        (b"authorization", f"Bearer {token}".encode()),
        (b"content-length", str(len(body)).encode()),
    ]
    scope = {"type": "http", "method": "POST", "path": path, "headers": headers}
    scope |= {"query_string": b"", "client": ("127.0.0.1", 1), "scheme": "http"}
    await application(scope, receive, send)
    return f"HTTP {sent[0]['status']}"


def _sockets(dataset: Any) -> dict[str, Reader]:
    from django.conf import settings

    size = settings.MAX_WEBSOCKET_MESSAGE
    frames = {
        "values": values(size),
        "deep": deep(size),
        "text": text(size),
        "NULs": b'{"a":"%b"}' % filled(rb"\u0000", size - 10),
        "250,000 values": values(FEW),
        "message": orjson.dumps({"type": "turn.create", "text": "x" * (size - 50)}),
    }
    return {
        f"WebSocket: {name}": partial(_frame, dataset, frame.decode())
        for name, frame in frames.items()
    }


async def _frame(dataset: Any, frame: str) -> str:
    """The type of the server's first event."""
    from project.asgi import application

    given: asyncio.Queue[Any] = asyncio.Queue()
    sent: asyncio.Queue[Any] = asyncio.Queue()
    headers = [
        (b"host", b"localhost"),
        (b"origin", b"http://localhost"),
        (b"cookie", dataset.cookie.encode()),
    ]
    path = f"/ws/conversations/{dataset.conversations[0]}/"
    scope = {"type": "websocket", "path": path, "headers": headers, "scheme": "ws"}
    scope |= {"query_string": b"", "client": ("127.0.0.1", 1), "subprotocols": []}
    given.put_nowait({"type": "websocket.connect"})
    socket = asyncio.ensure_future(application(scope, given.get, sent.put))
    try:
        if (accepted := await sent.get())["type"] != "websocket.accept":
            return str(accepted)
        given.put_nowait({"type": "websocket.receive", "text": frame})
        answer = await sent.get()
        return str(orjson.loads(answer["text"])["type"])
    finally:
        given.put_nowait({"type": "websocket.disconnect", "code": 1000})
        await socket


# Markdown of pages and documents of staff, which threads read


def _threaded() -> dict[str, Reader]:
    from conversations.pages.markdown import render
    from tools.http.openapi_document import MAX_DOCUMENT, read_document

    found: dict[str, Reader] = {}
    for unit in ("[", "http://", "- [ ] ", "*a ", "`", "> ", "**", "_", "|", "| a |\n"):
        given = unit * (MEGABYTE // len(unit))
        found[f"Markdown: {unit!r}, 1 MB"] = _in_thread(render, given)
    for language in _LANGUAGES:
        found[f"code: {language}"] = _in_thread(_show_code, language)
    documents = {
        "values": values(MAX_DOCUMENT - 20).decode(),
        "YAML": "a: [" * (MAX_DOCUMENT // 4),
    }
    for name, document in documents.items():
        found[f"OpenAPI: {name}, 5 MB"] = _in_thread(read_document, document)
    return found


def _show_code(language: str) -> None:
    """Render code blocks that are new each time, because the renderer caches."""
    from conversations.pages.markdown import MAX_HIGHLIGHTED, render

    blocks = []
    for unit in _CODE:
        # Lines of different lengths, because uniform code is not highlighted.
        lines = (f"{unit * (1 + n % 7)}{n:x}\n" for n in range(MAX_HIGHLIGHTED))
        code = f"{next(_numbers)}\n{''.join(lines)}"[: MAX_HIGHLIGHTED - 1]
        blocks.append(f"```{language}\n{code}\n```\n\n")
    render("".join(blocks))


_numbers = count()
_left: set[asyncio.Task[object]] = set()  # tasks that outlive their reader


def _in_thread(function: Callable[[str], object], given: str) -> Reader:
    async def read() -> None:
        reading = asyncio.create_task(asyncio.to_thread(function, given))
        _left.add(reading)
        reading.add_done_callback(_left.discard)
        await asyncio.shield(reading)

    return read


async def settle() -> None:
    """A thread cannot be stopped, and would hold up the next reader too."""
    if _left:
        await asyncio.wait(_left)
