"""Stored answers for equal requests, with a model that uses other words each time."""

from __future__ import annotations

import copy
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from llm.wire.sse import SSEDecoder
from tests.integration.gateway.programs import CHECK, PATIENCE, Gateway

pytestmark = pytest.mark.slow

MODEL = "wordy"
CACHED = {"parley": {"cache_seconds": 600}}
#: How many requests reached the provider.
requests: list[dict[str, Any]] = []


class Wordy(BaseHTTPRequestHandler):
    """Thinks first, and names the number of the request in its answer."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        requests.append(body)
        number = len(requests)
        ask = json.dumps(body["messages"])
        finish = "length" if "cut" in ask else "stop"
        deltas: list[dict[str, Any]] = [
            {"reasoning_content": f"Thought {number}."},
            {"content": "Answer "},
            {"content": f"{number}."},
        ]
        if body.get("tools") and "stock" in ask:
            finish = "tool_calls"
            calls = [
                {
                    "index": index,
                    "id": f"call_{number}_{index}",
                    "type": "function",
                    "function": {
                        "name": "check_stock",
                        "arguments": json.dumps({"article": f"{index}"}),
                    },
                }
                for index in range(2)
            ]
            deltas = [{"tool_calls": calls}]
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for delta in deltas:
            self._send({"choices": [{"index": 0, "delta": delta}]})
        self._send({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        usage = {"prompt_tokens": 1000, "completion_tokens": 500, "total_tokens": 1500}
        self._send({"choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")

    def _send(self, chunk: dict[str, Any]) -> None:
        chunk = {"id": "c", "object": "chat.completion.chunk", "model": MODEL} | chunk
        self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Wordy)
    threading.Thread(target=server.serve_forever, args=(0.01,)).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def own_model(gateway: Gateway, upstream: str) -> None:
    gateway.rows(
        "[LanguageModel.objects.create(name=name, options=options, provider=provider,"
        " prices={'input': 1, 'output': 2}) for provider in [Provider.objects.create("
        "name='wordy', kind='openai_compatible', allow_private_network=True,"
        f" base_url={upstream!r})] for name, options in"
        " [('wordy', {}), ('wordy-cached', {'cache_seconds': 60})]]"
    )


@pytest.fixture
def wordy(gateway: Gateway, own_model: None) -> Gateway:
    """With no request made so far, and a token that a test may replace."""
    requests.clear()
    return copy.copy(gateway)


def respond(gateway: Gateway, input: Any, **fields: Any) -> dict[str, Any]:
    body = {"model": MODEL, "input": input, "store": False, **fields}
    answer = gateway.post("/responses", body)
    assert answer.status_code == 200, gateway.server.log()[-3000:]
    found: dict[str, Any] = answer.json()
    return found


def content(response: dict[str, Any]) -> list[Any]:
    """The output without the ids, which each response makes anew."""
    ignored = ("id",)
    return [
        {name: value for name, value in item.items() if name not in ignored}
        for item in response["output"]
    ]


@pytest.mark.smoke
def test_an_equal_request_gets_the_stored_answer_on_every_api(wordy: Gateway):
    first = respond(wordy, "Say something.", **CACHED)
    assert first["parley:cache"] == {"hits": 0}
    for fields in ({}, {"store": True}, {"temperature": None}):
        again = respond(wordy, "Say something.", **CACHED, **fields)
        assert again["parley:cache"] == {"hits": 1}
        assert content(again) == content(first)
        assert again["usage"] == first["usage"]
        assert again["id"] != first["id"]
    assert len(requests) == 1

    messages = [{"role": "user", "content": "Say something."}]
    chat = {"model": MODEL, "messages": messages, **CACHED}
    # Another API may leave out other options, so its answers are its own.
    for expected in ("miss", "hit"):
        answer = wordy.post("/chat/completions", chat)
        assert answer.headers["x-parley-cache"] == expected
        assert answer.json()["choices"][0]["message"]["content"] == "Answer 2."
    other = wordy.post("/messages", {**chat, "max_tokens": 50})
    assert other.headers["x-parley-cache"] == "miss"  # another option, another answer
    streamed = list(wordy.stream("/messages", {**chat, "max_tokens": 50}))
    texts = [json.loads(e.data).get("delta", {}).get("text", "") for e in streamed]
    assert "".join(texts) == "Answer 3."
    assert len(requests) == 3

    saved = "[(str(c.cost.normalize()), str((c.saved_cost or 0))[:5], c.input_tokens)"
    rows = wordy.rows(
        f"{saved} for c in ModelCall.objects.filter(is_cached=True).order_by('id')[:1]]"
    )
    assert rows == "[('0', '0.002', None)]"


def test_answers_are_not_shared_or_stored_where_they_must_not_be(wordy: Gateway):
    def ask(*, text: str = "Who am I?", **fields: Any) -> int:
        before = len(requests)
        respond(wordy, text, **{**CACHED, **fields})
        return len(requests) - before

    assert ask() == 1
    assert ask() == 0
    assert ask(parley={}) == 1  # nobody switched it on for this one
    assert ask(parley={"cache_seconds": 0}) == 1
    assert ask(instructions="Be brief.") == 1
    assert ask(temperature=0.3) == 1
    assert ask(safety_identifier="customer-2") == 1
    assert ask(safety_identifier="customer-2") == 0

    # Another person, and a token that is limited to the first one's model.
    wordy.server.manage(
        "shell",
        "-c",
        "from django.contrib.auth.models import User;"
        " User.objects.create_user('second')",
    )
    own, wordy.token = wordy.token, wordy.server.create_token("second")
    assert ask() == 1
    assert ask() == 0
    wordy.token = own

    # A cut answer, and calls of tools with side effects.
    for _ in range(2):
        assert ask(text="Be cut off.") == 1
    tools = [{**CHECK}]
    calls = [ask(text="How much stock?", tools=tools) for _ in range(2)]
    assert calls == [1, 0]  # the client's own function, and the request asks for it
    by_model = {"text": "Model?", "parley": {}, "model": "wordy-cached"}
    assert [ask(**by_model) for _ in range(2)] == [1, 0]
    assert [ask(**by_model, tools=tools) for _ in range(2)] == [1, 1]
    shell = [{"type": "parley:tools", "names": ["remember"]}]
    wordy.rows(
        "__import__('tools.models').models.Tool.objects.filter("
        "name='remember').update(enabled=True, approval='never',"
        " only_in_presets=False)"
    )
    assert [ask(text="Keep it.", tools=shell) for _ in range(2)] == [1, 1]


def test_a_stored_response_read_again_equals_the_one_at_its_creation(wordy: Gateway):
    text = f"Read me again. {time.time_ns()}"  # another in a second try
    for fields in (CACHED, CACHED, {}):
        created = respond(wordy, text, store=True, **fields)
        read = wordy.get(f"/responses/{created['id']}").json()
        assert read == created
        assert read.get("parley:cache") == created.get("parley:cache")
        assert ("parley:cache" in read) == bool(fields)
    assert len(requests) == 2


def test_what_continues_a_stored_response_is_asked_anew(wordy: Gateway):
    first = respond(wordy, "Begin.", store=True, **CACHED)
    for number in (2, 3):
        again = respond(
            wordy,
            "Go on.",
            store=True,
            previous_response_id=first["id"],
            **CACHED,
        )
        assert "parley:cache" not in again
        assert len(requests) == number


def test_a_conversation_and_a_token_use_the_cache(wordy: Gateway):
    label = "a token that caches"
    token = wordy.server.manage(
        "create_token", "admin", "--label", label, "--cache-seconds", "600"
    )
    wordy.token = token.splitlines()[-1]
    with httpx.Client(
        base_url=wordy.server.url,
        headers={"Authorization": f"Bearer {wordy.token}"},
        timeout=PATIENCE,
    ) as http:
        outputs = [say_hello(http) for _ in range(2)]
    assert outputs == [["Answer 1."], ["Answer 1."]]
    hits = [respond(wordy, "Token?")["parley:cache"]["hits"] for _ in range(2)]
    assert hits == [0, 1]


def say_hello(http: httpx.Client) -> list[str]:
    """The texts of the first answer in a new conversation."""
    made = http.post("/api/conversations/", json={"model": MODEL}).json()
    path = f"/api/conversations/{made['id']}/turns/"
    turn = http.post(
        path, json={"input": "Hello.", "options": {"server_tools": []}}
    ).json()
    with http.stream("GET", f"/api/turns/{turn['id']}/events/") as answer:
        decoder, texts = SSEDecoder(), []
        for chunk in answer.iter_bytes():
            for event in decoder.feed(chunk):
                if event.event == "response.output_text.done":
                    texts.append(json.loads(event.data)["text"])
    return texts


def test_wrong_seconds_are_refused(wordy: Gateway):
    for wrong in (-1, 2_592_001, "60", True, 1.5):
        body = {
            "model": MODEL,
            "input": "x",
            "parley": {"cache_seconds": wrong},
        }
        answer = wordy.post("/responses", body)
        assert answer.status_code == 400
        assert "cache_seconds" in answer.json()["error"]["message"]
    assert not requests
