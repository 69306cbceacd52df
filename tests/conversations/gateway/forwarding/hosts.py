"""A host that records what it is sent, and the gateway before it, in one process."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib.auth.models import User

from conversations.gateway import loop_resources
from conversations.models import AccessToken
from conversations.models.access_token import Scope
from llm.models import ApiKey, LanguageModel, Provider
from project.server.application import application

PATHS = {
    "chat": "/v1/chat/completions",
    "messages": "/v1/messages",
    "responses": "/v1/responses",
}
#: Whose bodies are forwarded.
FORWARDED = ("chat", "messages", "responses")
CODECS = {
    "chat": "openai_chat",
    "messages": "anthropic",
    "responses": "openai_responses",
}
KEY = "sk-host-secret"


@dataclass
class Received:
    """One request, as the host has read it."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


#: Status, content type and body of an answer.
Reply = tuple[int, str, bytes]


@dataclass
class Host:
    """Listens while it is entered; `reply` makes each answer."""

    reply: Callable[[Received], Reply]
    received: list[Received] = field(default_factory=list)
    url: str = ""

    def __enter__(self) -> Host:
        host = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["content-length"])
                body = json.loads(self.rfile.read(length))
                names = {name.lower(): value for name, value in self.headers.items()}
                received = Received(self.path, names, body)
                host.received.append(received)
                status, kind, data = host.reply(received)
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *values: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.01,), daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Client:
    """Calls the gateway with an administrator's token."""

    secret: str = ""

    async def open(self) -> Client:
        user, _ = await User.objects.aget_or_create(
            username="root", is_superuser=True, is_staff=True
        )
        row, self.secret = await sync_to_async(AccessToken.issue)(
            user, "t", scopes=Scope.values
        )
        row.declares_any_tool = True
        await row.asave()
        return self

    async def post(
        self,
        path: str,
        body: Mapping[str, Any],
        headers: Mapping[str, str] | None = None,
        *more: tuple[str, str],
    ) -> Answer:
        """`more`: headers that may have the name of another."""
        named = {"authorization": f"Bearer {self.secret}", **(headers or {})}
        content = json.dumps(body).encode()
        return await self._send("POST", path, [*named.items(), *more], content)

    async def post_bytes(self, path: str, content: bytes) -> Answer:
        """For JSON that Python's encoder does not write."""
        headers = [("authorization", f"Bearer {self.secret}")]
        return await self._send("POST", path, headers, content)

    async def get(self, path: str) -> Answer:
        headers = [("authorization", f"Bearer {self.secret}")]
        return await self._send("GET", path, headers, b"")

    async def _send(
        self, method: str, path: str, headers: list[tuple[str, str]], content: bytes
    ) -> Answer:
        asking = [{"type": "http.request", "body": content}]
        waiting, pieces, answer = asyncio.Event(), [], Answer(0, {}, b"")

        async def receive() -> dict[str, Any]:
            if asking:
                return asking.pop()
            await waiting.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.headers = {k.decode(): v.decode() for k, v in message["headers"]}
                assert len(answer.headers) == len(message["headers"]), "sent twice"
            else:
                pieces.append(message["body"])

        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": b"",
            "headers": [(k.lower().encode(), v.encode()) for k, v in headers],
            "client": ["127.0.0.1", 1],
        }
        async with asyncio.timeout(60):
            await application(scope, receive, send)
        answer.body = b"".join(pieces)
        return answer

    async def close(self) -> None:
        await loop_resources.close()


@sync_to_async
def add_model(kind: str, codec: str, url: str, model: str, **fields: Any) -> str:
    """The public name of a model at the host `url`, of a provider of this kind in this
    wire format."""
    provider, is_new = Provider.objects.get_or_create(
        name=f"{kind}-{codec}",
        kind=kind,
        codec=codec,
        defaults={"base_url": url, "allow_private_network": True},
    )
    if is_new:
        ApiKey.objects.create(provider=provider, secret=KEY)
    LanguageModel.objects.get_or_create(provider=provider, name=model, defaults=fields)
    return f"{provider.name}/{model}"


# Answers in each API


def canned_reply(api: str, received: Received) -> Reply:
    """A short answer, streamed if the body asks for it."""
    streams = received.body.get("stream") is True
    frames = {"chat": _chat, "messages": _messages, "responses": _responses}[api]
    whole, streamed = frames(received.body.get("model", ""))
    if streams:
        return 200, "text/event-stream", streamed
    return 200, "application/json", json.dumps(whole).encode()


def data(value: Any) -> bytes:
    return b"data: %b\n\n" % json.dumps(value).encode()


def named(value: Mapping[str, Any]) -> bytes:
    return b"event: %b\n%b" % (str(value["type"]).encode(), data(value))


def _chat(model: str) -> tuple[Any, bytes]:
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}
    head = {
        "id": "chatcmpl-host",
        "created": 1,
        "model": f"{model}-0926",
        "system_fingerprint": "fp_host",
        "service_tier": "priority",
    }
    message = {"role": "assistant", "content": "Hi"}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "news": 1}
    whole = {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
    chunk = {**head, "object": "chat.completion.chunk"}
    start = {"index": 0, "delta": message, "finish_reason": None, "news": 1}
    end = {"index": 0, "delta": {}, "finish_reason": "stop"}
    frames = [
        data({**chunk, "choices": [start]}),
        data({**chunk, "choices": [end]}),
        data({**chunk, "choices": [], "usage": usage}),
        b"data: [DONE]\n\n",
    ]
    return whole, b"".join(frames)


def _messages(model: str) -> tuple[Any, bytes]:
    usage = {
        "input_tokens": 3,
        "cache_creation_input_tokens": 40,
        "cache_read_input_tokens": 50,
        "cache_creation": {
            "ephemeral_5m_input_tokens": 10,
            "ephemeral_1h_input_tokens": 30,
        },
        "output_tokens": 2,
        "service_tier": "priority",
        "server_tool_use": {"web_search_requests": 1},
    }
    head = {"id": "msg_host", "type": "message", "role": "assistant", "model": model}
    block = {"type": "text", "text": "Hi", "news": 1}
    ended = {"stop_reason": "end_turn", "stop_sequence": None}
    whole = {**head, "content": [block], **ended, "usage": usage}
    started = {**head, "content": [], "stop_reason": None, "usage": usage}
    opened = {"type": "content_block_start", "index": 0}
    text = {"type": "text_delta", "text": "Hi"}
    frames = [
        named({"type": "message_start", "message": started}),
        named({**opened, "content_block": {**block, "text": ""}}),
        named({"type": "content_block_delta", "index": 0, "delta": text}),
        named({"type": "content_block_stop", "index": 0}),
        named({"type": "message_delta", "delta": ended, "usage": usage}),
        named({"type": "message_stop"}),
    ]
    return whole, b"".join(frames)


def _responses(model: str) -> tuple[Any, bytes]:
    usage = {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": 11,
    }
    part = {"type": "output_text", "text": "Hi", "annotations": [], "news": 1}
    item = {"type": "message", "id": "msg_host", "role": "assistant"}
    item |= {"status": "completed", "content": [part]}
    head = {"id": "resp_host", "object": "response", "created_at": 1, "model": model}
    head |= {"status": "in_progress", "output": [], "news": 1}
    whole = {**head, "status": "completed", "output": [item], "usage": usage}
    at = {"output_index": 0, "item_id": "msg_host", "content_index": 0}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": head},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_text.delta", **at, "delta": "Hi"},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": whole},
    ]
    numbered = [{**each, "sequence_number": n} for n, each in enumerate(events)]
    return whole, b"".join(map(named, numbered))
