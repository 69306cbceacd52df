"""ASGI application of the demo provider, called over real HTTP like other providers.

It serves `responses`, `chat/completions` and `models` below `/demo/v1`. It stores and
logs nothing, and requires `demo_key()`. It reads and writes concurrently, so that it
notices a disconnect at once.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping
from typing import Any

import orjson

from llm.demo.api_interface import Wire
from llm.demo.chat import ChatWire
from llm.demo.disconnect import CLOSES, UNREACHED_LENGTH, Send, break_off
from llm.demo.key import demo_key
from llm.demo.problem import Problem
from llm.demo.responses import ResponsesWire
from llm.demo.script import script_for
from llm.wire.items import new_id

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Headers = list[tuple[bytes, bytes]]

ROOT = "/demo/v1"
MAX_BODY = 32 * 1024 * 1024  # bytes
#: Seconds for each word, by model.
PACES = {"demo": 0.03, "demo-slow": 0.15, "demo-fast": 0.0}
CREATED_AT = 1_767_225_600  # Unix time, sent as `created` by `/models`
WIRES: dict[str, type[Wire]] = {
    f"{ROOT}/responses": ResponsesWire,
    f"{ROOT}/chat/completions": ChatWire,
}
MODELS_PATH = f"{ROOT}/models"


class _HungUp(Exception):
    """The client disconnected."""


class DemoApplication:
    def __init__(self, paces: Mapping[str, float] = PACES) -> None:
        self._paces = paces

    async def __call__(
        self, scope: MutableMapping[str, Any], receive: Receive, send: Send
    ) -> None:
        if scope["type"] != "http":
            raise ValueError(f"the demo speaks HTTP, not {scope['type']!r}.")
        answer = _Answer(send)
        try:
            await self._serve(scope, receive, answer)
        except _HungUp:
            return
        except Problem as problem:
            await answer.refuse(problem)

    async def _serve(
        self, scope: MutableMapping[str, Any], receive: Receive, answer: _Answer
    ) -> None:
        method, path = scope["method"], scope["path"]
        _check_key(scope["headers"])
        if path in WIRES and method == "POST":
            body = await _body(receive)
            await _while_connected(receive, self._ask(WIRES[path], body, answer))
        elif path == MODELS_PATH and method == "GET":
            models = [_model(name) for name in self._paces]
            await answer.json({"object": "list", "data": models})
        elif path.startswith(f"{MODELS_PATH}/") and method == "GET":
            await answer.json(
                _model(self._check_model(path.removeprefix(f"{MODELS_PATH}/")))
            )
        elif path in WIRES or path == MODELS_PATH:
            raise Problem(405, f"Not allowed to {method} on {path}.")
        else:
            raise Problem(404, f"Invalid URL ({method} {path}).")

    async def _ask(self, wire: type[Wire], body: Any, answer: _Answer) -> None:
        request = wire(body)
        pace = self._paces[self._check_model(request.model)]
        script = script_for(request.prompt)
        if request.stream:
            is_whole = script.ending != "cut"
            await answer.begin(whole=is_whole)
            await asyncio.sleep(script.delay)
            for frame in request.frames(script):
                await answer.write(frame.data)
                # At pace 0 too: other tasks run, and a disconnect is noticed.
                await asyncio.sleep(pace if frame.is_word else 0)
            await answer.end(whole=is_whole)
        else:
            await asyncio.sleep(script.delay)
            await answer.json(
                request.response_body(script), whole=script.ending != "cut"
            )

    def _check_model(self, model: str) -> str:
        if model not in self._paces:
            raise Problem(
                404,
                f"The model '{model[:100]}' does not exist.",
                code="model_not_found",
                param="model",
            )
        return model


application = DemoApplication()


class _Answer:
    """One HTTP answer: an error, a JSON object, or a stream."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def refuse(self, problem: Problem) -> None:
        headers: Headers = []
        if problem.retry_after is not None:
            headers.append((b"retry-after", str(problem.retry_after).encode()))
        await self.json({"error": problem.error}, problem.status, headers)

    async def json(
        self,
        value: Any,
        status: int = 200,
        headers: Headers | None = None,
        *,
        whole: bool = True,
    ) -> None:
        body = orjson.dumps(value)
        length = (b"content-length", str(len(body)).encode())
        more = [length, *(headers or [])]
        if not whole:
            more.append(CLOSES)
        await self._start(status, b"application/json", more)
        if not whole:
            await self.write(body[: len(body) // 2])
            await break_off(self._send)
            return
        await self._send({"type": "http.response.body", "body": body})

    async def begin(self, *, whole: bool) -> None:
        """Start the stream; the headers are sent before the first word."""
        more = [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
        if not whole:
            more += [UNREACHED_LENGTH, CLOSES]
        await self._start(200, b"text/event-stream; charset=utf-8", more)
        await self.write(b"")

    async def write(self, data: bytes) -> None:
        await self._send(
            {"type": "http.response.body", "body": data, "more_body": True}
        )

    async def end(self, *, whole: bool) -> None:
        if whole:
            await self._send({"type": "http.response.body"})
        else:
            await break_off(self._send)

    async def _start(self, status: int, type: bytes, headers: Headers) -> None:
        common = [
            (b"content-type", type),
            (b"x-request-id", new_id("req").encode()),
        ]
        await self._send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [*common, *headers],
            }
        )


async def _body(receive: Receive) -> Any:
    pieces, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _HungUp
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if size > MAX_BODY:
            raise Problem(413, "The request is too large.", code="request_too_large")
        more = message.get("more_body", False)
    try:
        return orjson.loads(b"".join(pieces))
    except orjson.JSONDecodeError as exc:
        raise Problem(400, "We could not parse the JSON body of your request.") from exc


async def _while_connected(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Await `work`; cancel it when the client disconnects."""
    working = asyncio.create_task(work)
    listening = asyncio.create_task(_wait_for_disconnect(receive))
    tasks = (working, listening)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    if not working.cancelled():
        working.result()


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _check_key(headers: Headers) -> None:
    authorization = next(
        (value for name, value in headers if name == b"authorization"), b""
    )
    scheme, _, key = authorization.partition(b" ")
    if not key:
        raise Problem(
            401, "You did not provide an API key, as 'Authorization: Bearer KEY'."
        )
    expected = demo_key().encode()
    if scheme.lower() != b"bearer" or not hmac.compare_digest(key, expected):
        raise Problem(401, "Incorrect API key provided.", code="invalid_api_key")


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": CREATED_AT, "owned_by": "parley"}
