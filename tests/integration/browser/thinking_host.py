"""A host of the chat completions API, unlike the demo.

It thinks before it answers, uses other words for each request, calls several tools in
parallel, pauses before each piece, and can be stopped in the middle of an answer.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any

KEY = "sk-thinking"
MODEL = "thinker"
WORDS = ["amber", "birch", "cedar", "delta", "ember", "fjord", "grove"]

#: Makes it the default model of a server.
ROWS = f"""
from llm.models import ApiKey, LanguageModel, Provider
from tools.models import Tool
row = Provider.objects.create(name="Thinking", kind="openai_compatible",
    base_url="{{url}}", allow_private_network=True)
ApiKey.objects.create(provider=row, secret="{KEY}")
LanguageModel.objects.update(is_default=False)
LanguageModel.objects.create(provider=row, name="{MODEL}", is_default=True)
"""


class ThinkingHost:
    """Listens while it is entered.

    A message with "calculate 1+1; 2+2" makes it call the calculator for each; one with
    "use NAME {…}" a tool of that name; "at length N" makes an answer of N words; "hold"
    makes it stop in the middle of its answer until `go_on` is set; "spell TEXT" makes
    it say TEXT.
    """

    def __init__(self, pause: float = 0.01) -> None:
        self.requests: list[dict[str, Any]] = []
        self.go_on = threading.Event()
        self.pause = self._usual_pause = pause  # seconds before each piece
        self._numbers = count(1)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True

    def __enter__(self) -> ThinkingHost:
        serve = self._server.serve_forever
        threading.Thread(target=serve, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.go_on.set()
        self._server.shutdown()
        self._server.server_close()

    def begin_anew(self) -> None:
        """As a new host, for the next test: its first answer has the number 1."""
        self.requests.clear()
        self.go_on.clear()
        self._numbers = count(1)
        self.pause = self._usual_pause

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def answer(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The deltas of an answer."""
        self.requests.append(body)
        number = next(self._numbers)
        said = _last_words(body["messages"])
        for word in ("Let", " me", " think", f" ({number})."):
            yield {"reasoning_content": word}
        is_first = body["messages"][-1]["role"] == "user"
        if is_first and (calls := _calls(said, number)):
            for index, call in enumerate(calls):
                yield {"tool_calls": [{"index": index, **call}]}
            return
        if spelled := re.search(r"spell (.+)", said, re.DOTALL):
            for piece in re.findall(r"\s*\S+\s*", spelled[1]):
                yield {"content": piece}
            return
        length = re.search(r"at length (\d+)", said)
        total = int(length[1]) if length else 12
        for at in range(total):
            if at == 6 and "hold" in said and is_first:
                self.go_on.wait(60)
            yield {"content": f"{WORDS[(number + at) % len(WORDS)]}-{number} "}


def _last_words(messages: list[dict[str, Any]]) -> str:
    said = [each["content"] for each in messages if each["role"] == "user"]
    last = said[-1] if said else ""
    if isinstance(last, list):
        return " ".join(part.get("text", "") for part in last)
    return last


def _calls(said: str, number: int) -> list[dict[str, Any]]:
    found: list[tuple[str, str]] = []
    if sums := re.search(r"calculate (.+)", said):
        for each in sums[1].split(";"):
            found.append(("calculator", json.dumps({"expression": each.strip()})))
    if used := re.search(r"use (\w+) (\{.*\})", said):
        found.append((used[1], used[2]))
    return [
        {
            "id": f"call_{number}_{at}",
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }
        for at, (name, arguments) in enumerate(found)
    ]


def _handler(host: ThinkingHost) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers["Content-Length"])
            body = json.loads(self.rfile.read(size))
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            finish = "stop"
            try:
                for delta in host.answer(body):
                    finish = "tool_calls" if "tool_calls" in delta else finish
                    threading.Event().wait(host.pause)
                    self._send({"index": 0, "delta": delta})
                self._send({"index": 0, "delta": {}, "finish_reason": finish})
                self.wfile.write(b"data: [DONE]\n\n")
            except OSError:  # the caller has stopped it
                return

        def _send(self, choice: dict[str, Any]) -> None:
            chunk = json.dumps({"id": "c", "model": MODEL, "choices": [choice]})
            self.wfile.write(f"data: {chunk}\n\n".encode())
            self.wfile.flush()

        def log_message(self, format: str, *values: object) -> None:
            pass

    return Handler
