"""A host of Chat Completions over real HTTP, faultless but for its quirks."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.llm.chat import DONE, call, chunk, frames

PROOF = [{"type": "reasoning.encrypted", "data": "cHJvb2Y=", "index": 0}]
USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
CODE = "VX-91"


class ProbedHost:
    """`quirks` is a set of names; `requests` are the bodies that it received."""

    def __init__(self, *quirks: str, models: Sequence[str] = ()) -> None:
        self.quirks = {*quirks}
        self.models = models
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.refused_keys: dict[str, int] = {}  # the status for each
        self.is_busy = False
        self.failures = 0

    @contextmanager
    def listening(self, context: ssl.SSLContext | None = None) -> Iterator[str]:
        """Yields the base URL."""
        host = self

        class Handler(_Handler):
            probed = host

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        if context:
            server.socket = context.wrap_socket(
                server.socket, server_side=True, do_handshake_on_connect=False
            )
        thread = threading.Thread(
            target=server.serve_forever, args=(0.01,), daemon=True
        )
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def answer(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """The deltas of the answer."""
        last = body["messages"][-1]
        text = _text(last)
        if last["role"] == "tool":
            return [{"content": f"It is {last['content']}."}]
        if _has_image(last):
            colour = "Blue" if "drops images" in self.quirks else "Red"
            return [{"content": colour}]
        if body.get("response_format") and self._is_first("writes loose JSON once"):
            return [{"content": '{"kestrel": "3"}'}]
        if body.get("response_format") and "ignores the schema" not in self.quirks:
            return [{"content": '{"kestrel": 3, "verdict": "aye7"}'}]
        if body.get("tools") and "writes calls as text" in self.quirks:
            return [{"content": '{"name": "look_up_code", "drawer": "north"}'}]
        is_free = body.get("tool_choice") != "required"
        if body.get("tools") and is_free and "must be told to call" in self.quirks:
            return [{"content": "The code is secret."}]
        if body.get("tools") and "ignores tools" not in self.quirks:
            return self._calls(text)
        if "27 * 43" in text and "does not reason" not in self.quirks:
            return [{"reasoning_details": PROOF}, {"content": "1161"}]
        if "1 to 20 " in text:
            return [{"content": f"{number} "} for number in range(1, 21)]
        return [{"content": "OK"}]

    def _calls(self, text: str) -> list[dict[str, Any]]:
        drawers = ["north", "south"] if "both at once" in text else ["north"]
        is_single = len(drawers) > 1 and self._is_first("calls one at first")
        if is_single or "calls one by one" in self.quirks:
            drawers = drawers[:1]
        arguments = (json.dumps({"drawer": drawer}) for drawer in drawers)
        return [
            call(index, f"call_{index}", "look_up_code", each)
            for index, each in enumerate(arguments)
        ]

    def _is_first(self, quirk: str) -> bool:
        """Whether the host has this quirk and shows it for the first time."""
        self.failures += quirk in self.quirks
        return quirk in self.quirks and self.failures == 1

    def refusal(self, body: dict[str, Any]) -> tuple[int, str] | None:
        """A status with a message."""
        last = body["messages"][-1]
        if "has another key" in self.quirks:
            return 401, "Incorrect API key provided: sk-planted-0123456789-wxyz."
        if "refuses schemas" in self.quirks and body.get("response_format"):
            return 400, "response_format json_schema is not supported"
        if "only streams" in self.quirks and not body.get("stream"):
            return 400, "only stream=true is supported"
        if "refuses streams" in self.quirks and body.get("stream"):
            return 400, "Your organization must be verified to stream this model."
        if "renamed the limit" in self.quirks and "max_tokens" in body:
            return 400, "Unsupported parameter: 'max_tokens' is not supported."
        if "filters tools" in self.quirks and body.get("tools"):
            return 403, "The request was flagged as potentially violating a policy."
        if "thinks of images until its limit" in self.quirks and _has_image(last):
            return (
                400,
                "Could not finish: max_tokens or model output limit was reached.",
            )
        if self._is_first("loads first"):
            return 400, "The model is being loaded."
        if _has_image(last) and self._is_first("fails once at images"):
            return 500, "try again"
        if _text(last).startswith("Add 1"):
            earlier = body["messages"][-2]
            if "refuses its reasoning" in self.quirks:
                return 400, "unexpected field reasoning_details"
            has_proof = "thinks until its limit" not in self.quirks
            if has_proof and earlier.get("reasoning_details") != PROOF:
                return 400, "the reasoning was changed"
        if self.is_busy:
            return 503, "the only slot is busy"
        return None


class _Handler(BaseHTTPRequestHandler):
    probed: ProbedHost
    protocol_version = "HTTP/1.0"

    def log_message(self, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        """The list of models, if it has one."""
        if not self.path.endswith("/models") or not self.probed.models:
            self._send(404, b"{}")
            return
        data = [{"id": name} for name in self.probed.models]
        self._send(200, json.dumps({"data": data}).encode())

    def do_POST(self) -> None:
        probed = self.probed
        size = int(self.headers["Content-Length"])
        body = json.loads(self.rfile.read(size))
        probed.requests.append(body)
        probed.headers.append(dict(self.headers))
        if "dies at images" in probed.quirks and _has_image(body["messages"][-1]):
            return  # closes the connection without an answer
        if "is silent at images" in probed.quirks and _has_image(body["messages"][-1]):
            self.rfile.read(1)  # until the client hangs up
            return
        key = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if status := probed.refused_keys.get(key):
            self._send(status, b'{"error": {"message": "not this key"}}')
        elif refusal := probed.refusal(body):
            status, message = refusal
            self._send(status, json.dumps({"error": {"message": message}}).encode())
        elif (
            "1 to 2000" in _text(body["messages"][-1])
            and "thinks until its limit" not in probed.quirks
        ):
            self._write_for_ever()
        else:
            self._send_answer(body, probed.answer(body))

    def _send_answer(self, body: dict[str, Any], deltas: list[dict[str, Any]]) -> None:
        finish = "tool_calls" if "tool_calls" in deltas[-1] else "stop"
        if "thinks until its limit" in self.probed.quirks:
            deltas, finish = [{"reasoning_content": "Hmm. " * 200}], "length"
        elif "thinks first" in self.probed.quirks:
            deltas = [*[{"reasoning_content": "Hmm. "}] * 200, *deltas]
        if body.get("stream") and "never streams" not in self.probed.quirks:
            self._stream(deltas, finish)
            return
        message: dict[str, Any] = {"role": "assistant", "content": ""}
        for delta in deltas:
            for name, value in delta.items():
                message[name] = message[name] + value if name in message else value
        choice = {"index": 0, "message": message, "finish_reason": finish}
        answer = {"id": "c", "model": "m", "choices": [choice], "usage": USAGE}
        self._send(200, json.dumps(answer).encode())

    def _stream(self, deltas: list[dict[str, Any]], finish: str) -> None:
        quirks, end = self.probed.quirks, [chunk(usage=USAGE), DONE]
        if "no usage in streams" in quirks:
            end = [DONE]
        if "usage behind the end" in quirks:
            end.reverse()
        counts = {"usage": USAGE} if "usage in each chunk" in quirks else {}
        answer = [chunk(delta, **counts) for delta in deltas]
        before = b": still working\n\n" * 50 if "comments first" in quirks else b""
        body = before + frames(*answer, chunk(finish=finish), *end)
        self._send(200, body, "text/event-stream")

    def _write_for_ever(self) -> None:
        """Until the client hangs up, and then at most in the host's own opinion."""
        self._send(200, frames(*(chunk({"content": f"{n}\n"}) for n in (1, 2, 3))))
        self.probed.is_busy = "writes on" in self.probed.quirks
        self.rfile.read(1)

    def _send(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)


def _has_image(message: dict[str, Any]) -> bool:
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    return any(part["type"] == "image_url" for part in parts)
