"""Models that are called in each of the four wire formats.

The demo speaks OpenAI's two itself; `Hosts` speaks Anthropic's and Gemini's. All of
them reason, write text and call `look` if it is offered.
"""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import orjson

from tests.integration.gateway.programs import Gateway
from tests.llm import claude, gemini
from tests.llm.canned import Canned, canned

#: Names of the models, by the format of their host.
MODELS = {
    "openai_chat": "demo-chat/demo-fast",
    "openai_responses": "demo/demo-fast",
    "anthropic": f"claude-host/{claude.OLD}",
    "gemini": f"gemini-host/{gemini.MODEL}",
}
LOOK = {
    "type": "function",
    "name": "look",
    "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
}
TOOL_PROMPT = "/tool look"  # what the demo understands
_NAMES = ["demo-chat", "claude-host", "gemini-host"]
_ROWS = """
from llm.demo.key import demo_key
from llm.models import ApiKey, LanguageModel, Provider
chat = Provider.objects.create(name="demo-chat", kind="demo", codec="openai_chat")
ApiKey.objects.create(provider=chat, secret=demo_key())
LanguageModel.objects.create(provider=chat, name="demo-fast")
for kind, name, model in (
    ("anthropic", "claude-host", {claude!r}), ("gemini", "gemini-host", {gemini!r}),
):
    host = Provider.objects.create(
        name=name, kind=kind, base_url={url!r}, allow_private_network=True
    )
    ApiKey.objects.create(provider=host, secret="sk-test")
    LanguageModel.objects.create(provider=host, name=model)
"""


class Hosts:
    """Listens while it is entered."""

    def __init__(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)

    def __enter__(self) -> Hosts:
        threading.Thread(
            target=self._server.serve_forever, args=(0.01,), daemon=True
        ).start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def teach(self, gateway: Gateway) -> None:
        url = f"http://127.0.0.1:{self._server.server_port}"
        rows = _ROWS.format(claude=claude.OLD, gemini=gemini.MODEL, url=url)
        gateway.server.manage("shell", "-v0", "-c", rows)

    def forget(self, gateway: Gateway) -> None:
        """So that others find one `demo-fast` only."""
        rows = f"LanguageModel.objects.filter(provider__name__in={_NAMES!r}).delete()"
        gateway.rows(rows)


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = orjson.loads(self.rfile.read(int(self.headers["content-length"])))
        if "contents" in body:
            streams, reply = "streamGenerateContent" in self.path, _gemini(body)
        else:
            streams, reply = body.get("stream") is True, _anthropic(body)
        self.send_response(200)
        kind = "text/event-stream" if streams else "application/json"
        self.send_header("content-type", kind)
        self.end_headers()
        self.wfile.write(reply[0] if streams else reply[1])


def _anthropic(body: dict[str, Any]) -> tuple[bytes, bytes]:
    """Streamed and whole."""
    if not body.get("tools"):
        return _text(canned(claude.CODEC))
    blocks = [claude.THOUGHT, claude.TEXT, claude.CALL]
    message = {**claude.START["message"], "content": blocks, "stop_reason": "tool_use"}
    end = claude.ended("tool_use", {"output_tokens": 9})
    events = claude.START, *claude.streamed(*blocks), end, claude.STOP
    return claude.frames(*events), orjson.dumps(message)


def _gemini(body: dict[str, Any]) -> tuple[bytes, bytes]:
    if not body.get("tools"):
        return _text(canned(gemini.CODEC))
    parts = gemini.thought("Hm."), gemini.text("Hello."), gemini.call(args={"at": "it"})
    usage = {"promptTokenCount": 9, "candidatesTokenCount": 2, "totalTokenCount": 11}
    end = gemini.chunk(finish="STOP", usageMetadata=usage)
    whole = gemini.chunk(*parts, finish="STOP", usageMetadata=usage)
    return gemini.frames(*map(gemini.chunk, parts), end), orjson.dumps(whole)


def _text(recording: Canned) -> tuple[bytes, bytes]:
    return recording.stream, recording.whole
