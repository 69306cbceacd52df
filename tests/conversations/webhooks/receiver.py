"""A receiver of webhooks: a real HTTP server that checks signatures with its own code,
written from the specification."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PATIENCE = 20.0  # seconds


@dataclass(frozen=True)
class Answer:
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    waits_for: threading.Event | None = None


@dataclass(frozen=True)
class Received:
    path: str
    headers: dict[str, str]  # names in lower case
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def event(self) -> dict[str, Any]:
        return json.loads(self.body)

    def is_signed_with(self, secret: str) -> bool:
        kind, _, coded = secret.partition("_")
        assert kind == "whsec"
        signed = b".".join(
            [self.id.encode(), self.headers["webhook-timestamp"].encode(), self.body]
        )
        key = base64.b64decode(coded, validate=True)
        wanted = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest())
        is_fresh = abs(time.time() - int(self.headers["webhook-timestamp"])) < 300
        return is_fresh and any(
            hmac.compare_digest(signature.encode(), wanted)
            for signature in self.signatures
        )

    @property
    def signatures(self) -> list[str]:
        """Without their version."""
        found = []
        for each in self.headers["webhook-signature"].split(" "):
            version, _, signature = each.partition(",")
            assert version == "v1"
            found.append(signature)
        return found


class Receiver:
    def __init__(self) -> None:
        self.answers: list[Answer] = []  # the next ones; then 200
        self.received: queue.Queue[Received] = queue.Queue()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {n.lower(): text for n, text in self.headers.items()}
                answer = receiver.answers.pop(0) if receiver.answers else Answer()
                receiver.received.put(Received(self.path, headers, body))
                if answer.waits_for is not None:
                    answer.waits_for.wait(PATIENCE)
                self.send_response(answer.status)
                length = {"content-length": str(len(answer.body))}
                for name, text in {**length, **answer.headers}.items():
                    self.send_header(name, text)
                self.end_headers()
                self.wfile.write(answer.body)

            do_GET = do_POST

            def log_message(self, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_: Any) -> None:
                """The other side has hung up."""

        self.server = Server(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/hook"

    def get(self) -> Received:
        return self.received.get(timeout=PATIENCE)

    def rest(self) -> list[Received]:
        """What came besides, as far as it has come."""
        found = []
        while not self.received.empty():
            found.append(self.received.get_nowait())
        return found


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()
    thread = threading.Thread(
        target=receiver.server.serve_forever, args=(0.01,), daemon=True
    )
    thread.start()
    yield receiver
    receiver.server.shutdown()
    receiver.server.server_close()
