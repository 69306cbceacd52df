"""Errors that gateway clients see while a provider fails.

`retries`: one key; the provider answers 5 % of the requests with 429 or 503 and closes
idle connections at random, also while a request is under way. `keys`: 50 requests a
second over five keys: one is rate limited (429 and `Retry-After: 7`), one unpaid (402)
and one forbidden for the model (403). Half of these are stored responses, which the
engine runs. Both deliveries; the scaled one needs PostgreSQL and Redis, as its tests do
(`TEST_POSTGRES_URL`, `TEST_REDIS_URL`).
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
from django.core.management import call_command
from django.db import connections

from benchmarks.table import show
from tests.scaled import Cluster, absent, migrated
from tests.serving import ServerProcess, free_port

REQUESTS, AT_ONCE = 10_000, 40
SECONDS, PACE = 30, 50  # of the measurement `keys`; requests per second
REST = 7.0  # seconds, the limited key's Retry-After
IN_FLIGHT = 0.25  # seconds that a request may have been under way
FLAKY, MODEL = "flaky", "model-x"
KEYS = ("limited", "unpaid", "half", "good", "better")
_ROWS = """
from llm.models import Provider
address = "http://127.0.0.1:{port}/v1"
def provider(name, model, keys):
    row = Provider.objects.create(name=name, kind="openai_compatible",
        base_url=address, allow_private_network=True)
    for key in keys:
        row.keys.create(label=key, secret="sk-" + key)
    row.models.create(name=model)
provider("Flaky", "flaky", ["good"])
provider("Keys", "model-x", {keys})
"""


class FailingHost:
    """A Chat Completions host; key and model of a request decide how it fails."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.requests: list[tuple[str, float]] = []  # key and time, of MODEL
        self.refused = Counter[str]()
        self.cut_off = 0  # connections closed while a request was under way
        self._dice = random.Random(14)

    @asynccontextmanager
    async def listening(self) -> Any:
        server = await asyncio.start_server(
            self._serve, "127.0.0.1", self.port, backlog=1000
        )
        async with server:
            yield self

    def count_requests_while_resting(self) -> tuple[int, int]:
        """Count requests with resting keys: all, and those sent after the refusal.

        A request within `IN_FLIGHT` of the refusal may have been sent before it.
        """
        first: dict[str, float] = {}
        total = late = 0
        for key, at in self.requests:
            rests = {"limited": REST, "unpaid": 1e9, "half": 300.0}.get(key)
            if rests is None:
                continue
            since = first.get(key)
            if since is None or at >= since + rests:
                first[key] = at
                continue
            total += 1
            late += at > since + IN_FLIGHT
        return total, late

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        served = 0
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode("latin-1").lower().split("\r\n")
                fields = dict(line.split(": ", 1) for line in lines[1:] if line)
                body = json.loads(
                    await reader.readexactly(int(fields["content-length"]))
                )
                if served and body["model"] == FLAKY and self._dice.random() < 0.02:
                    self.cut_off += 1
                    return
                writer.write(self._answer(fields["authorization"][10:], body))
                await writer.drain()
                served += 1
                if body["model"] == FLAKY and self._dice.random() < 0.05:
                    await asyncio.sleep(self._dice.random() * 0.02)
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the server under test has closed it
        except asyncio.CancelledError:
            pass  # the measurement is over; asyncio would log one per connection
        finally:
            writer.close()

    def _answer(self, key: str, body: dict[str, Any]) -> bytes:
        if body["model"] == FLAKY:
            refused = self._dice.random() < 0.05
            status = self._dice.choice((429, 503)) if refused else 200
        else:
            self.requests.append((key, time.monotonic()))
            status = {"limited": 429, "unpaid": 402, "half": 403}.get(key, 200)
        if status != 200:
            self.refused[str(status)] += 1
            after = f"Retry-After: {REST:.0f}\r\n" if key == "limited" else ""
            return _http(status, "application/json", b'{"error": {}}', after)
        if not body.get("stream"):
            message = {"role": "assistant", "content": "Hello."}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            body_bytes = json.dumps({"id": "c", "choices": [choice]}).encode()
            return _http(200, "application/json", body_bytes)
        delta = {"index": 0, "delta": {"content": "Hello."}, "finish_reason": None}
        end = {"index": 0, "delta": {}, "finish_reason": "stop"}
        frames = b"".join(
            b"data: %b\n\n" % json.dumps({"id": "c", "choices": [choice]}).encode()
            for choice in (delta, end)
        )
        return _http(200, "text/event-stream", frames + b"data: [DONE]\n\n")


def _http(status: int, kind: str, body: bytes, more: str = "") -> bytes:
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\n{more}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


# Requests


async def retries(webs: Sequence[ServerProcess], host: FailingHost) -> list[Any]:
    token, failed = webs[0].create_token(), Counter[str]()
    left = iter(range(REQUESTS))
    begun = time.monotonic()

    async def ask(http: httpx.AsyncClient) -> None:
        for number in left:
            body = {"model": FLAKY, "stream": number % 2 == 0}
            body |= {"messages": [{"role": "user", "content": f"Hi {number}"}]}
            failed[await _find_fault(http, "/chat/completions", body)] += 1

    async with host.listening(), _client(webs[0], token) as http:
        await asyncio.gather(*(ask(http) for _ in range(AT_ONCE)))
    succeeded = failed.pop("")
    return [
        REQUESTS,
        sum(host.refused.values()),
        host.cut_off,
        dict(failed) or "none",
        f"{100 * succeeded / REQUESTS:.3f} %",
        f"{time.monotonic() - begun:.0f} s",
    ]


async def keys(webs: Sequence[ServerProcess], host: FailingHost) -> list[Any]:
    token, outcomes = webs[0].create_token(), Counter[str]()
    number = SECONDS * PACE

    async def ask(http: httpx.AsyncClient, place: int) -> None:
        await asyncio.sleep(place / PACE)
        stored = place % 2 == 0
        if stored:
            path, body = "/responses", {"model": MODEL, "input": f"Hi {place}"}
        else:
            path, body = "/chat/completions", {"model": MODEL}
            body |= {"messages": [{"role": "user", "content": f"Hi {place}"}]}
        outcomes[await _find_fault(http, path, {**body, "stream": place % 4 < 2})] += 1

    async with host.listening():
        clients = [_client(web, token) for web in webs]
        await asyncio.gather(
            *(ask(clients[n % len(clients)], n) for n in range(number))
        )
        for http in clients:
            await http.aclose()
    outcomes.pop("", None)
    total, late = host.count_requests_while_resting()
    shares = Counter(key for key, _ in host.requests)
    return [number, dict(outcomes) or "none", total, late, dict(shares)]


async def _find_fault(http: httpx.AsyncClient, path: str, body: dict[str, Any]) -> str:
    """Send one request; return its fault, or "" if it was answered."""
    try:
        answer = await http.post(path, json=body)
    except httpx.HTTPError as exc:
        return type(exc).__name__
    if answer.status_code != 200:
        return str(answer.status_code)
    return "" if "Hello." in answer.text else "no answer"


def _client(web: ServerProcess, token: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=f"{web.url}/v1",
        headers={"Authorization": f"Bearer {token}"},
        limits=httpx.Limits(max_connections=None),
        timeout=120,
    )


# Servers


@contextmanager
def embedded(folder: Path) -> Iterator[list[ServerProcess]]:
    call_command("migrate", verbosity=0)
    connections.close_all()
    data = Path(os.environ["PARLEY_DATA"])
    server = ServerProcess(data, {"ENABLE_DEMO": "false"}).start()
    try:
        yield [server]
    finally:
        server.stop()


@contextmanager
def scaled(folder: Path) -> Iterator[list[ServerProcess]]:
    with migrated(folder) as template:
        cluster = Cluster(folder, template, webs=2, workers=2).start()
        try:
            yield cluster.webs
        finally:
            cluster.end()


def main() -> None:
    deliveries = {"embedded": embedded}
    if why := absent():
        print(f"scaled was not measured: {why}", file=sys.stderr)
    else:
        deliveries["scaled"] = scaled
    for name, serving in deliveries.items():
        with (
            tempfile.TemporaryDirectory(prefix="parley-bench-") as folder,
            serving(Path(folder)) as webs,
        ):
            port = free_port()
            rows = _ROWS.format(port=port, keys=list(KEYS))
            webs[0].manage("shell", "-v0", "-c", rows)
            _measure(name, webs, port)


def _measure(name: str, webs: Sequence[ServerProcess], port: int) -> None:
    print(f"measuring: {name} ...", file=sys.stderr)
    show(
        f"Five keys, {PACE} requests a second",
        [
            "delivery",
            "requests",
            "client errors",
            "with a resting key",
            f"of them after {IN_FLIGHT} s",
            "requests by key",
        ],
        [[name, *asyncio.run(keys(webs, FailingHost(port)))]],
    )
    if name == "embedded":  # retries run the same code in both deliveries
        show(
            "One key, 5 % refused, connections closed at random",
            [
                "delivery",
                "requests",
                "refused",
                "cut",
                "client errors",
                "succeeded",
                "took",
            ],
            [[name, *asyncio.run(retries(webs, FailingHost(port)))]],
        )
