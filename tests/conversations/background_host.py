"""A host of the Responses API that continues its responses without a connection.

It thinks before it answers, and uses other words for each request, which shows whether
an answer was continued or requested again.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

KEY = "sk-background"
INPUT_TOKENS, OUTPUT_TOKENS = 11, 7


@dataclass
class StoredResponse:
    """A response that the host stores, complete from the beginning."""

    id: str
    events: list[dict[str, Any]]
    is_cancelled: threading.Event = field(default_factory=threading.Event)


class Host:
    """Listens while it is entered. A stream stops before the event number `pause_at`
    until `go_on` is set; the response itself does not."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []  # bodies of POST /responses
        self.resumed: list[tuple[str, dict[str, list[str]]]] = []  # id and query
        self.cancelled: list[str] = []
        self.responses: dict[str, StoredResponse] = {}
        self.pause_at = 10_000
        self.go_on = threading.Event()
        self.paused = threading.Semaphore(0)  # released by each stream that stops
        self.refusal: int | None = None  # the status that a GET is answered with
        self.calls: list[str] = []  # names of tools that the first answers call
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True

    def __enter__(self) -> Host:
        threading.Thread(
            target=self._server.serve_forever, args=(0.01,), daemon=True
        ).start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.go_on.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def begin(self, body: dict[str, Any]) -> StoredResponse:
        self.requests.append(body)
        number = len(self.requests)
        tool = self.calls[number - 1] if number <= len(self.calls) else ""
        made = StoredResponse(f"resp_{number}", list(_events(number, tool)))
        if body.get("background") and body.get("store"):
            self.responses[made.id] = made
        return made


def thought_of(number: int) -> str:
    return f"Thinking for the {number}. time."


def text_of(number: int) -> str:
    return f"Take {number}: one, two, three."


def _events(number: int, tool: str) -> Iterator[dict[str, Any]]:
    response = {"id": f"resp_{number}", "model": "keeper", "status": "in_progress"}
    thought = {"type": "reasoning", "id": f"rs_{number}", "summary": []}
    yield {"type": "response.created", "response": response}
    yield {"type": "response.in_progress", "response": response}
    yield _added(0, thought)
    for piece in _pieces(thought_of(number)):
        kind = "response.reasoning_summary_text.delta"
        yield {"type": kind, **_at(0, thought), "summary_index": 0, "delta": piece}
    summary = [{"type": "summary_text", "text": thought_of(number)}]
    thought = {**thought, "summary": summary, "encrypted_content": f"secret {number}"}
    yield _done(0, thought)
    last = _call(number, tool) if tool else _message(number)
    yield _added(1, {**last, **({"arguments": ""} if tool else {"content": []})})
    for piece in [] if tool else _pieces(text_of(number)):
        kind = "response.output_text.delta"
        yield {"type": kind, **_at(1, last), "content_index": 0, "delta": piece}
    yield _done(1, last)
    usage = {"input_tokens": INPUT_TOKENS, "output_tokens": OUTPUT_TOKENS}
    whole = {**response, "status": "completed", "output": [thought, last]}
    yield {"type": "response.completed", "response": {**whole, "usage": usage}}


def _pieces(text: str) -> list[str]:
    return [text[at : at + 8] for at in range(0, len(text), 8)]


def _at(index: int, item: dict[str, Any]) -> dict[str, Any]:
    return {"output_index": index, "item_id": item["id"]}


def _added(index: int, item: dict[str, Any]) -> dict[str, Any]:
    item = {**item, "status": "in_progress"}
    return {
        "type": "response.output_item.added",
        "output_index": index,
        "item": item,
    }


def _done(index: int, item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def _message(number: int) -> dict[str, Any]:
    text = {"type": "output_text", "text": text_of(number), "annotations": []}
    return {
        "type": "message",
        "id": f"msg_{number}",
        "role": "assistant",
        "status": "completed",
        "content": [text],
    }


def _call(number: int, tool: str) -> dict[str, Any]:
    return {
        "type": "function_call",
        "id": f"fc_{number}",
        "call_id": f"call_{number}",
        "name": tool,
        "arguments": "{}",
        "status": "completed",
    }


def _handler(host: Host) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"] or 0))
            *_, last = parts = self.path.split("/")
            if last == "cancel":
                host.cancelled.append(parts[-2])
                self._send_json(200, {"id": parts[-2], "status": "cancelled"})
                return
            self._stream(host.begin(json.loads(body)).events)

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            id = url.path.rpartition("/")[2]
            query = parse_qs(url.query)
            host.resumed.append((id, query))
            if host.refusal or id not in host.responses:
                error = {"message": f"Response with id '{id}' not found."}
                self._send_json(host.refusal or 404, {"error": error})
                return
            after = int(query.get("starting_after", ["-1"])[0])
            self._stream(host.responses[id].events, after + 1)

        def _send_json(self, status: int, body: dict[str, Any]) -> None:
            encoded = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(encoded)))
            self.end_headers()
            self.wfile.write(encoded)

        def _stream(self, events: list[dict[str, Any]], first: int = 0) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            pause_at = host.pause_at
            for number, event in list(enumerate(events))[first:]:
                if number == pause_at:
                    self.wfile.flush()
                    host.paused.release()
                    host.go_on.wait()
                data = json.dumps({**event, "sequence_number": number})
                try:
                    self.wfile.write(f"data: {data}\n\n".encode())
                except OSError:
                    return  # the client has disconnected

    return Handler
