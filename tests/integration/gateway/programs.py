"""Programs that call the gateway of a real server: SDKs, and bare HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import anthropic
import httpx
import openai
from websockets.asyncio.client import connect

from llm.wire.sse import ServerSentEvent, SSEDecoder
from tests.serving import ServerProcess

PATIENCE = 60  # seconds
FAST = "demo-fast"
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
#: A tool that a client runs itself.
CHECK = {
    "type": "function",
    "name": "check_stock",
    "description": "How many of an article are in stock.",
    "parameters": {
        "type": "object",
        "properties": {"article": {"type": "string"}},
        "required": ["article"],
        "additionalProperties": False,
    },
    "strict": True,
}
_ROWS = """
from llm.models import LanguageModel, Provider
demo = Provider.objects.get(kind="demo")
for name in ("demo-fast", "demo-slow"):
    LanguageModel.objects.get_or_create(provider=demo, name=name)
"""


class Gateway:
    """A server's `/v1`, and a token for it."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        server.manage("shell", "-c", _ROWS)
        self.token = server.create_token()
        self._sdks: list[openai.OpenAI | anthropic.Anthropic] = []

    @property
    def url(self) -> str:
        return f"{self.server.url}/v1"

    def openai(self) -> openai.OpenAI:
        sdk = openai.OpenAI(
            base_url=self.url, api_key=self.token, max_retries=0, timeout=PATIENCE
        )
        self._sdks.append(sdk)
        return sdk

    def anthropic(self) -> anthropic.Anthropic:
        sdk = anthropic.Anthropic(
            base_url=self.server.url,
            api_key=self.token,
            max_retries=0,
            timeout=PATIENCE,
        )
        self._sdks.append(sdk)
        return sdk

    def close_sdks(self) -> None:
        """What a test leaves to the garbage collector may warn in another test."""
        while self._sdks:
            self._sdks.pop().close()

    def http(self, **headers: str) -> httpx.Client:
        headers_sent = {"Authorization": f"Bearer {self.token}", **headers}
        return httpx.Client(base_url=self.url, headers=headers_sent, timeout=PATIENCE)

    def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        with self.http(**headers) as http:
            if isinstance(body, bytes):
                return http.post(path, content=body)
            return http.post(path, json=body)

    def get(self, path: str, **headers: str) -> httpx.Response:
        with self.http(**headers) as http:
            return http.get(path)

    def respond(self, input: Any, **fields: Any) -> dict[str, Any]:
        answer = self.post("/responses", {"model": FAST, "input": input, **fields})
        assert answer.status_code == 200, answer.text
        response: dict[str, Any] = answer.json()
        return response

    def stream(
        self, path: str, body: dict[str, Any], **headers: str
    ) -> Iterator[ServerSentEvent]:
        method = "POST" if body else "GET"
        streamed_body = {**body, "stream": True} if body else None
        with (
            self.http(**headers) as http,
            http.stream(method, path, json=streamed_body) as answer,
        ):
            if answer.status_code != 200:
                raise AssertionError(answer.read().decode())
            decoder = SSEDecoder()
            for chunk in answer.iter_bytes():
                yield from decoder.feed(chunk)

    def socket(self) -> Any:
        return connect(
            f"{self.server.ws_url}/v1/responses",
            additional_headers={"Authorization": f"Bearer {self.token}"},
        )

    def rows(self, expression: str) -> str:
        """What `expression` over the server's models prints."""
        code = (
            "from llm.models import *; from conversations.models import *;"
            f" print({expression})"
        )
        return self.server.manage("shell", "-v", "0", "-c", code).strip()


def text_of(response: dict[str, Any]) -> str:
    return "".join(
        part["text"]
        for item in response["output"]
        if item["type"] == "message"
        for part in item["content"]
    )


async def events_of(socket: Any) -> AsyncIterator[dict[str, Any]]:
    """Up to the end of one response."""
    import json

    async for message in socket:
        event = json.loads(message)
        yield event
        ended = ("response.completed", "response.incomplete", "response.failed")
        if event["type"] in ended or (event["type"] == "error" and "status" in event):
            return
