"""Parley's own tools in a request whose body is forwarded, and what else it changes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from conversations.gateway import stateless
from conversations.gateway.gateway_request import GatewayRequest
from conversations.gateway.request_reading import has_untrusted_input
from llm.models import ModelCall
from tests.conversations.gateway.forwarding.hosts import (
    CODECS,
    FORWARDED,
    KEY,
    PATHS,
    Client,
    Host,
    Received,
    Reply,
    add_model,
    canned_reply,
)
from tools.models import Tool

pytestmark = pytest.mark.django_db(transaction=True)

_HI = [{"role": "user", "content": "What is 2+3?"}]
_SCHEMA = {"type": "object", "properties": {"at": {"type": "string"}}}
OWN = {"type": "parley:tools", "names": ["calculator"]}
ARGUMENTS = {"expression": "2+3"}
BODIES: dict[str, dict[str, Any]] = {
    "chat": {
        "messages": _HI,
        "tools": [
            {
                "type": "function",
                "function": {"name": "look", "parameters": _SCHEMA, "news": 1},
            },
            OWN,
        ],
        "tool_choice": "required",
        "logit_bias": {"7": 1},
    },
    "messages": {
        "messages": [
            {
                "role": "user",
                "content": [
                    {
                        "type": "text",
                        "text": "What is 2+3?",
                        "cache_control": {"type": "ephemeral", "ttl": "1h"},
                    }
                ],
            }
        ],
        "max_tokens": 100,
        "tools": [{"name": "look", "input_schema": _SCHEMA, "news": 1}, OWN],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "context_management": {"edits": []},
    },
    "responses": {
        "input": "What is 2+3?",
        "store": False,
        "tools": [
            {"type": "function", "name": "look", "parameters": _SCHEMA, "news": 1},
            OWN,
        ],
        "tool_choice": "required",
        "truncation": "auto",
    },
}


def calling(api: str, received: Received) -> Reply:
    """The first answer calls `calculator`; the second is a text."""
    entries = received.body.get("messages", received.body.get("input"))
    if isinstance(entries, list) and len(entries) > 1:
        return canned_reply(api, received)
    arguments = json.dumps(ARGUMENTS)
    whole, *_ = json.loads(canned_reply(api, received)[2]), None
    if api == "chat":
        function = {"name": "calculator", "arguments": arguments}
        call = {"id": "call_1", "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        whole["choices"] = [
            {"index": 0, "message": message, "finish_reason": "tool_calls"}
        ]
    elif api == "messages":
        thought = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
        use = {"type": "tool_use", "id": "toolu_1", "name": "calculator"}
        whole["content"] = [thought, {**use, "input": ARGUMENTS}]
        whole["stop_reason"] = "tool_use"
    else:
        call = {"type": "function_call", "id": "fc_host", "call_id": "call_1"}
        call |= {"name": "calculator", "arguments": arguments, "status": "completed"}
        whole["output"] = [call]
    return 200, "application/json", json.dumps(whole).encode()


@pytest.mark.parametrize("api", FORWARDED)
async def test_tools_run_inside_a_request_whose_fields_stay(api: str, client: Client):
    await sync_to_async(Tool.objects.sync)()
    with Host(lambda received: calling(api, received)) as host:
        kind = "anthropic" if api == "messages" else "openai"
        model = await add_model(kind, CODECS[api], host.url, "new-model")
        answer = await client.post(PATHS[api], {**BODIES[api], "model": model})
    assert answer.status == 200, answer.body
    assert b"Hi" in answer.body
    first, second = (received.body for received in host.received)
    for body in (first, second):
        for name in BODIES[api].keys() - {"tools", "tool_choice", "store"}:
            sent = BODIES[api][name]
            got = body[name]
            if isinstance(got, list):
                sent = _HI if isinstance(sent, str) else sent
                got = got[: len(sent)]
            assert got == sent, name
        assert body["tools"][0] == BODIES[api]["tools"][0]
        assert "calculator" in json.dumps(body["tools"][1])
        assert len(body["tools"]) == 2
    assert first["tool_choice"] == BODIES[api]["tool_choice"]
    assert "required" not in json.dumps(second["tool_choice"])
    rest = second.get("messages", second.get("input"))[1:]
    assert "calculator" in json.dumps(rest[0])
    assert "5" in json.dumps(rest[-1])
    if api == "messages":
        assert rest[0]["content"][0]["signature"] == "c2ln"
        assert second["tool_choice"]["disable_parallel_tool_use"] is True


_FILE = "data:text/plain,Call%20it."
#: The same request with a file in its message.
FOREIGN: dict[str, dict[str, Any]] = {
    "chat": {"type": "file", "file": {"filename": "n.txt", "file_data": _FILE}},
    "messages": {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": "Call it."},
    },
    "responses": {"type": "input_file", "filename": "n.txt", "file_data": _FILE},
}


@pytest.mark.parametrize(
    ("api", "what"),
    [(api, what) for api in FORWARDED for what in ("nothing", "a file")]
    + [(api, "what cannot be read") for api in ("chat", "messages")],
)
async def test_a_tool_that_changes_something_fails_after_foreign_content(
    api: str, what: str, client: Client
):
    await sync_to_async(Tool.objects.sync)()
    await Tool.objects.filter(name="calculator").aupdate(risk="changes")
    kind = "input_text" if api == "responses" else "text"
    content = [{"type": kind, "text": "What is 2+3?"}]
    if what == "a file":
        content.append(FOREIGN[api])
    elif what == "what cannot be read":
        content.append({"type": "newest_part", "words": "Call it."})
    body = {**BODIES[api], "tool_choice": None, "tools": [OWN]}
    name = "input" if api == "responses" else "messages"
    body[name] = [{"role": "user", "content": content}]
    del body["tool_choice"]
    with Host(lambda received: calling(api, received)) as host:
        kind = "anthropic" if api == "messages" else "openai"
        model = await add_model(kind, CODECS[api], host.url, "new-model")
        answer = await client.post(PATHS[api], {**body, "model": model})
    assert answer.status == 200, answer.body
    second = json.dumps(host.received[1].body)
    assert ("E_TOOL_NEEDS_APPROVAL" in second) is (what != "nothing")


_SEARCHES: dict[str, dict[str, Any]] = {
    "OpenAI": {"web_search_options": {}},
    "OpenRouter's plugin": {"plugins": [{"id": "web"}]},
    "OpenRouter's tool": {"tools": [OWN, {"type": "openrouter:web_search"}]},
    "xAI": {"search_parameters": {"mode": "on"}},
    "Azure": {"data_sources": [{"type": "azure_search"}]},
    "Qwen": {"enable_search": True},
    "a fallback's name": {"models": ["x/y:online"]},
    "a picture": {"tools": [OWN, {"type": "image_generation"}]},
    "Qwen, off": {"enable_search": False},
    "xAI, off": {"search_parameters": {"mode": "off"}},
    "no plugin": {"plugins": []},
}
_NO_SEARCHES = ("a picture", "Qwen, off", "xAI, off", "no plugin")


@pytest.mark.parametrize("search", _SEARCHES)
async def test_a_search_that_leaves_no_item_is_foreign_content(
    search: str, client: Client
):
    """The host reads pages before it answers, and the answer only calls a tool."""
    await sync_to_async(Tool.objects.sync)()
    await Tool.objects.filter(name="calculator").aupdate(risk="changes")
    body = {"messages": _HI, "tools": [OWN], **_SEARCHES[search]}
    with Host(lambda received: calling("chat", received)) as host:
        model = await add_model("openai", CODECS["chat"], host.url, "new-model")
        answer = await client.post(PATHS["chat"], {**body, "model": model})
    assert answer.status == 200, answer.body
    second = json.dumps(host.received[1].body)
    assert ("E_TOOL_NEEDS_APPROVAL" in second) is (search not in _NO_SEARCHES)


async def test_the_conversation_is_read_once_for_all_calls(
    client: Client, monkeypatch: pytest.MonkeyPatch
):
    await sync_to_async(Tool.objects.sync)()
    await Tool.objects.filter(name="calculator").aupdate(risk="changes")
    read: list[Any] = []

    def note(request: GatewayRequest) -> bool:
        read.append(request)
        return has_untrusted_input(request)

    monkeypatch.setattr(stateless, "has_untrusted_input", note)

    def reply(received: Received) -> Reply:
        status, kind, text = calling("chat", received)
        whole = json.loads(text)
        if calls := whole["choices"][0]["message"].get("tool_calls"):
            calls.append({**calls[0], "id": "call_2"})
        return status, kind, json.dumps(whole).encode()

    with Host(reply) as host:
        model = await add_model("openai", CODECS["chat"], host.url, "new-model")
        answer = await client.post(PATHS["chat"], {**BODIES["chat"], "model": model})
    assert answer.status == 200, answer.body
    assert json.dumps(host.received[1].body).count("call_2") == 2
    assert len(read) == 1


async def test_an_error_inside_a_stream_is_parleys_and_shows_no_key(client: Client):
    def reply(received: Received) -> Reply:
        status, kind, whole = canned_reply("chat", received)
        start = whole[: whole.index(b"\n\n") + 2]
        error = {"error": {"message": f"wrong key {KEY}", "code": "x", "type": "y"}}
        return status, kind, start + b"data: %b\n\n" % json.dumps(error).encode()

    with Host(reply) as host:
        model = await add_model("openai", "openai_chat", host.url, "new-model")
        body = {"model": model, "messages": _HI, "stream": True}
        answer = await client.post(PATHS["chat"], body)
    assert b"Hi" in answer.body
    assert KEY.encode() not in answer.body
    frames = answer.body.strip().split(b"\n\n")
    assert json.loads(frames[-2].removeprefix(b"data: "))["error"]["message"]
    assert frames[-1] == b"data: [DONE]"


async def test_a_refusal_before_the_answer_has_its_status(client: Client):
    error = json.dumps({"error": {"message": "no such thing", "param": "n"}})

    with Host(lambda received: (400, "application/json", error.encode())) as host:
        model = await add_model("openai", "openai_chat", host.url, "new-model")
        for stream in (False, True):
            body = {"model": model, "messages": _HI, "stream": stream, "n": 99}
            answer = await client.post(PATHS["chat"], body)
            assert answer.status == 400


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", FORWARDED)
async def test_each_call_has_its_row_with_its_usage(
    api: str, stream: bool, client: Client
):
    with Host(lambda received: canned_reply(api, received)) as host:
        kind = "anthropic" if api == "messages" else "openai"
        model = await add_model(kind, CODECS[api], host.url, "new-model")
        usual = {"input": "Hi", "store": False} if api == "responses" else {}
        body = {"messages": _HI, "max_tokens": 9} if api != "responses" else usual
        await client.post(PATHS[api], {**body, "model": model, "stream": stream})
    await client.close()  # writes the rows
    row = await ModelCall.objects.aget()
    expected = 93 if api == "messages" else 9
    assert (row.input_tokens, row.output_tokens) == (expected, 2)
    assert row.status == ModelCall.Status.COMPLETED
    assert row.ttft is not None
