from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from llm import errors
from llm.demo.app import DemoApplication
from llm.demo.key import demo_key
from llm.http import client as llm_client
from llm.provider import Endpoint
from llm.providers.demo import PROVIDER
from llm.wire.items import function_call_output, user_message
from llm.wire.request import Request
from llm.wire.response_builder import ResponseBuilder

MODEL = "demo-fast"
BOTH = "What is the weather in Paris, and what time is it there?"


def function(name: str, property: str) -> dict:
    schema = {
        "type": "object",
        "properties": {property: {"type": "string"}},
        "required": [property],
    }
    return {"type": "function", "name": name, "parameters": schema}


TOOLS = [
    function("weather_demo", "city"),
    function("current_time", "timezone"),
    function("calculator", "expression"),
]


# Time and hanging up


class Visitor:
    """An ASGI client that hangs up once it has seen enough."""

    def __init__(self, question: str, enough: int) -> None:
        self.scope = {
            "type": "http",
            "method": "POST",
            "path": "/demo/v1/responses",
            "headers": [(b"authorization", f"Bearer {demo_key()}".encode())],
        }
        body = {"model": "demo", "input": question, "stream": True}
        self.body = [json.dumps(body).encode()]
        self._enough = enough
        self.satisfied = asyncio.Event()
        self.seen: list[dict] = []

    async def receive(self) -> dict:
        if self.body:
            return {"type": "http.request", "body": self.body.pop()}
        await self.satisfied.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict) -> None:
        self.seen.append(message)
        if len(self.seen) >= self._enough:
            self.satisfied.set()


async def test_a_disconnect_is_noticed_during_a_long_pause():
    visitor = Visitor("Hello", enough=7)
    demo = DemoApplication({"demo": 3600.0})
    await asyncio.wait_for(demo(visitor.scope, visitor.receive, visitor.send), 10)
    assert len(visitor.seen) == 7
    assert b"response.output_text.delta" in visitor.seen[-1]["body"]


async def test_slow_sends_the_headers_and_then_nothing():
    visitor = Visitor("/slow 500 Hello", enough=2)
    demo = DemoApplication()
    await asyncio.wait_for(demo(visitor.scope, visitor.receive, visitor.send), 10)
    start, body = visitor.seen
    assert (start["status"], body["body"], body["more_body"]) == (200, b"", True)


async def test_a_cut_answer_stops_half_way_without_an_end():
    visitor = Visitor("/cut", enough=10_000)
    await DemoApplication({"demo": 0.0})(visitor.scope, visitor.receive, visitor.send)
    sent = b"".join(message.get("body", b"") for message in visitor.seen)
    bodies = [m for m in visitor.seen[1:] if m["type"] == "http.response.body"]
    assert all(message.get("more_body") for message in bodies[:-1])
    assert b'"delta":" 20"' in sent
    assert b'"delta":" 40"' not in sent
    assert b"response.completed" not in sent


async def test_a_client_that_leaves_during_its_request_gets_no_answer():
    visitor = Visitor("Hello", enough=0)
    visitor.body.clear()
    visitor.satisfied.set()
    await DemoApplication()(visitor.scope, visitor.receive, visitor.send)
    assert visitor.seen == []


# Over real HTTP, the way of every provider


@pytest.fixture(scope="module")
def demo_server() -> Iterator[str]:
    """The demo in a server process of its own; its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "--port", "0", "llm.demo.app:application"],
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    with process:
        address = re.compile(r"running on http://(\S+)")
        found = (address.search(line) for line in process.stderr)
        yield f"http://{next(filter(None, found))[1]}"
        process.kill()


@pytest.fixture
async def endpoint(demo_server, settings, request):
    settings.SELF_URL = demo_server
    yield Endpoint(
        provider=PROVIDER, codec=PROVIDER.codec(request.param), api_key=demo_key()
    )
    await llm_client.aclose()


over_both_wires = pytest.mark.parametrize("endpoint", PROVIDER.codecs, indirect=True)


async def call_provider(endpoint, items, **options) -> ResponseBuilder:
    builder = ResponseBuilder(id="resp_1", model=MODEL)
    builder.start()
    builder.begin_call()
    request = Request(model=MODEL, items=items, tools=TOOLS, **options)
    async with contextlib.aclosing(llm_client.stream(endpoint, request)) as batches:
        async for deltas in batches:
            builder.feed(deltas)
    builder.end_call()
    return builder


@pytest.mark.server
@over_both_wires
@pytest.mark.parametrize("stream", [True, False])
async def test_a_turn_goes_the_way_of_a_real_provider(endpoint, stream):
    question = user_message(BOTH)
    options = {"stream": stream, "reasoning": {"effort": "high"}}
    first = (await call_provider(endpoint, [question], **options)).output
    assert [item["type"] for item in first] == [
        "reasoning",
        "message",
        "function_call",
        "function_call",
    ]
    outputs = [function_call_output(call["call_id"], "fine") for call in first[2:]]
    second = (
        await call_provider(endpoint, [question, *first, *outputs], **options)
    ).output
    assert "**Time in Paris:** fine" in second[-1]["content"][0]["text"]


@pytest.mark.server
@over_both_wires
@pytest.mark.parametrize(
    ("question", "error"),
    [
        ("/fail 401", errors.InvalidKey),
        ("/fail 404", errors.ModelNotAvailable),
        ("/fail 429", errors.RateLimited),
        ("/fail 500", errors.ProviderDown),
        ("/fail quota", errors.QuotaExhausted),
        ("/fail context", errors.ContextTooLarge),
        ("/fail policy", errors.ContentPolicy),
        ("/fail stream", errors.ProviderDown),
        ("/cut", errors.CutOff),
    ],
)
async def test_each_failure_is_read_for_what_it_is(endpoint, question, error):
    with pytest.raises(error):
        await call_provider(endpoint, [user_message(question)])


@pytest.mark.server
@pytest.mark.parametrize("endpoint", ["openai_responses"], indirect=True)
async def test_the_server_lives_on_after_a_cut(endpoint):
    for stream in (True, False):
        with pytest.raises(errors.CutOff, match="answer ended too early"):
            await call_provider(endpoint, [user_message("/cut")], stream=stream)
    (item,) = (await call_provider(endpoint, [user_message("/echo alive")])).output
    assert item["content"][0]["text"] == "alive"


@pytest.mark.server
@over_both_wires
async def test_nothing_is_lost_or_repeated_on_the_way(endpoint):
    (item,) = (await call_provider(endpoint, [user_message("/long 5000")])).output
    assert item["content"][0]["text"].split() == [str(n) for n in range(1, 5001)]
