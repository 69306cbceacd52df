"""A host that writes down recordings, over HTTP, with OpenAI's form."""

from __future__ import annotations

import json
import threading
from email.parser import BytesParser
from email.policy import HTTP
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "sk-of-the-speech-host"
SPOKEN = "Wie spät ist es in Paris?"
USAGE = {"type": "tokens", "input_tokens": 14, "output_tokens": 9}


class SpeechHost:
    """Listens while it is entered. `answer` is what it says to the next requests."""

    def __init__(self) -> None:
        self.answer: tuple[int, bytes] = (200, said(SPOKEN, usage=USAGE))
        self.forms: list[dict[str, Any]] = []  # fields; of a file (name, type, bytes)
        self.keys: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True

    def __enter__(self) -> SpeechHost:
        threading.Thread(
            target=self._server.serve_forever, args=(0.01,), daemon=True
        ).start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"


def said(text: Any, **more: Any) -> bytes:
    return json.dumps({"text": text, **more}).encode()


def _handler(host: SpeechHost) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, answer = 404, b"{}"
            if self.path == "/v1/audio/transcriptions":
                host.keys.append(self.headers["Authorization"])
                host.forms.append(_form(self.headers["Content-Type"], body))
                status, answer = host.answer
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("x-request-id", "req-speech")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


def _form(content_type: str, body: bytes) -> dict[str, Any]:
    head = f"Content-Type: {content_type}\r\n\r\n".encode()
    fields: dict[str, Any] = {}
    for part in BytesParser(policy=HTTP).parsebytes(head + body).iter_parts():
        name = part.get_param("name", header="content-disposition")
        data = part.get_payload(decode=True)
        if (file := part.get_filename()) is not None:
            fields[name] = (file, part.get_content_type(), data)
        else:
            fields[name] = data.decode()
    return fields
