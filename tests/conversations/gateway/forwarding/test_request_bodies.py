"""No field of a client's body is lost or changed on its way to a host of the same API.

The bodies are those of recorded traffic, which SDKs and agents have sent, and one for
each documented feature. `published` is the list of exceptions in `docs/gateway.md`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llm.capabilities import capabilities_of
from llm.providers import all_providers
from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec
from llm.wire.codecs.openai_chat.forwarding import REASONING_FIELDS
from llm.wire.codecs.openai_chat.messages import wire_call_id
from tests.conversations.gateway.forwarding import newest_features
from tests.conversations.gateway.forwarding.features import (
    CHAT,
    MESSAGES,
    RESPONSES,
)
from tests.conversations.gateway.forwarding.hosts import (
    CODECS,
    FORWARDED,
    PATHS,
    Client,
    Host,
    add_model,
    canned_reply,
)

pytestmark = pytest.mark.django_db(transaction=True)

_RECORDINGS = os.environ.get("RECORDINGS_DIR", "")
_CAPTURED = Path(__file__).parents[3] / "integration" / "gateway" / "captured"
_HI = [{"role": "user", "content": "Hi"}]
_KINDS = {"alibaba": "openai_compatible"}
LEAST = 60  # bodies of each API


def bodies(api: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """A name, the provider's kind and the body."""
    for path in sorted(Path(_RECORDINGS).glob("*.json")) if _RECORDINGS else ():
        if path.name == "INDEX.json":
            continue
        recorded = json.loads(path.read_bytes())
        body = recorded["request"].get("json")
        if recorded["api"] == api and isinstance(body, dict) and "model" in body:
            yield path.stem, _kind_of(recorded["provider"], api), body
    newest = newest_features
    features = {
        "chat": [*CHAT, *(("openai", body) for body in newest.CHAT)],
        "messages": [("anthropic", body) for body in [*MESSAGES, *newest.MESSAGES]],
        "responses": [("openai", body) for body in [*RESPONSES, *newest.RESPONSES]],
    }
    for number, (kind, fields) in enumerate(features[api]):
        usual: dict[str, Any] = {"messages": _HI}
        if api == "messages":
            usual["max_tokens"] = 100
        if api == "responses":
            usual = {"input": "Hi"}
        body = {"model": "new-model", **usual, **fields}
        yield f"feature {number}", kind, body
    for path in sorted(_CAPTURED.glob("*.json")):
        body = {**json.loads(path.read_bytes()), "model": "new-model"}
        if "item_reference" in path.read_text():
            continue  # of an item that this server has stored
        items = body.get("input", [])
        for item in items:  # the ids are those of this server, which a host has not
            item.pop("id", None)
        if api == ("responses" if "input" in body else "messages"):
            yield path.stem, "anthropic" if api == "messages" else "openai", body


def _kind_of(provider: str, api: str) -> str:
    known = all_providers().get(provider)
    if known is not None and CODECS[api] in known.codecs and provider != "azure":
        return provider
    usual = {"messages": "anthropic", "responses": "openai"}
    return usual.get(api, "openai_compatible")


# The published exceptions


def published(
    api: str, kind: str, sent: dict[str, Any], received: dict[str, Any]
) -> dict[str, Any]:
    """`sent`, with what the published list says is changed for this host."""
    wanted = {**sent, "model": received.get("model")}
    if api == "messages":
        wanted.pop("betas", None)
        wanted["messages"] = [_without_empty(m) for m in wanted["messages"]]
    if api == "responses":
        wanted["store"] = False
        if kind == "xai":
            wanted = _of_xai(wanted)
    if api == "chat":
        codec = all_providers()[kind].codecs["openai_chat"]
        assert isinstance(codec, OpenAIChatCodec)
        wanted = _of_chat(wanted, codec)
        if capabilities_of(kind, sent_model(sent)).stop is False:
            wanted.pop("stop", None)
        for name, value in codec.defaults.items():
            wanted.setdefault(name, value)
    return wanted


def sent_model(sent: dict[str, Any]) -> str:
    return str(sent["model"]).partition("/")[2]


def _without_empty(message: dict[str, Any]) -> dict[str, Any]:
    if message["role"] != "assistant" or not isinstance(message["content"], list):
        return message
    kept = [b for b in message["content"] if b.get("signature", "x") or "text" in b]
    return {**message, "content": kept}


def _of_xai(body: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps(body).replace('"role": "developer"', '"role": "system"')
    return dict(_open(json.loads(text)))


def _open(value: Any) -> Any:
    if isinstance(value, list):
        return [_open(each) for each in value]
    if not isinstance(value, dict):
        return value
    opened = {
        name: _open(each)
        for name, each in value.items()
        if not (name == "additionalProperties" and each is False)
    }
    if opened.get("type") == "function" and opened.get("strict"):
        opened["strict"] = False
    return opened


def _of_chat(body: dict[str, Any], codec: OpenAIChatCodec) -> dict[str, Any]:
    body = dict(body)
    if body.get("stream"):
        if codec.stream_options:
            options = body.get("stream_options") or {}
            body["stream_options"] = {**options, "include_usage": True}
        else:
            body.pop("stream_options", None)
    if codec.reasoning_fields is not None and "max_completion_tokens" in body:
        body[codec.max_tokens_field] = body.pop("max_completion_tokens")
    if codec.seed_field != "seed" and "seed" in body:
        body[codec.seed_field] = body.pop("seed")
    thinks = body.get("thinking") != {"type": "disabled"}
    messages = [_message_of_chat(m, codec, thinks=thinks) for m in body["messages"]]
    if codec.merge_system:
        first = [m for m in messages if m["role"] == "system"]
        if len(first) > 1 or (first and messages[0]["role"] != "system"):
            rest = [m for m in messages if m["role"] != "system"]
            text = "\n\n".join(m["content"] for m in first)
            messages = [{**first[0], "content": text}, *rest]
    body["messages"] = messages
    return body


def _message_of_chat(
    message: dict[str, Any], codec: OpenAIChatCodec, *, thinks: bool
) -> dict[str, Any]:
    message = dict(message)
    if message["role"] == "developer" and codec.system_role == "system":
        message["role"] = "system"
    if codec.reasoning_fields is None:
        return message
    if message["role"] == "tool" and message.get("tool_call_id"):
        id = wire_call_id(message["tool_call_id"], codec.call_id_length)
        message["tool_call_id"] = id
    if message["role"] == "assistant":
        for name in REASONING_FIELDS - codec.reasoning_fields:
            message.pop(name, None)
        if calls := message.get("tool_calls"):
            length = codec.call_id_length
            message["tool_calls"] = [
                {**call, "id": wire_call_id(call["id"], length)} for call in calls
            ]
        if codec.reasoning_echo == "reasoning_content" and thinks:
            message.setdefault("reasoning_content", "")
    return message


@pytest.mark.parametrize("api", FORWARDED)
async def test_the_host_gets_every_field_as_the_client_sent_it(
    api: str, client: Client
):
    differing: dict[str, list[str]] = {}
    count = 0
    with Host(lambda received: canned_reply(api, received)) as host:
        for name, kind, body in bodies(api):
            model = await add_model(kind, CODECS[api], host.url, body["model"])
            sent = {**body, "model": model}
            if api == "responses":
                sent = {**sent, "store": False}
                for served in ("background", "conversation", "previous_response_id"):
                    sent.pop(served, None)
            host.received.clear()
            answer = await client.post(PATHS[api], sent)
            if answer.status == 400 and "-400-" in name and not host.received:
                continue  # an image for a model that is known to see none
            assert answer.status == 200, (name, answer.body)
            (received,) = host.received
            count += 1
            wanted = published(api, kind, sent, received.body)
            if found := list(differences(wanted, received.body)):
                differing[f"{name} ({kind})"] = found
    assert not differing, json.dumps(differing, indent=1)
    assert count >= LEAST


#: What this server serves itself of a stored response, and what of it is refused.
_STORED = {"background", "conversation", "previous_response_id", "store", "stream"}
_REFUSED = ("log probabilities", "not made by this", "not be fetched")


#: Items that only the host of a stored response knows, and fields of calls: the
#: published exceptions for those. A screen becomes a message with its picture.
_OF_ITS_HOST = {
    "code_interpreter_call",
    "computer_call",
    "computer_call_output",
    "file_search_call",
    "image_generation_call",
    "mcp_approval_request",
    "mcp_call",
    "mcp_list_tools",
    "reasoning",
    "web_search_call",
}
_OF_ITS_CALLS = {"async", "caller", "namespace"}


def _open_items(value: Any) -> list[dict[str, Any]]:
    """Items as Open Responses writes them: a message has a type and parts, and ids and
    states are this server's own."""
    entries = [{"role": "user", "content": value}] if isinstance(value, str) else value
    items: list[dict[str, Any]] = []
    for entry in entries:
        ignored = {"id", "status", *_OF_ITS_CALLS}
        item = {n: v for n, v in _effective(entry).items() if n not in ignored}
        if item.setdefault("type", "message") == "message":
            kind = "output_text" if item["role"] == "assistant" else "input_text"
            if isinstance(text := item["content"], str):
                item["content"] = [{"type": kind, "text": text}]
        items.append(item)
    return items


def _system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def _effective(value: Any) -> Any:
    """Without what says nothing: null and empty lists."""
    if isinstance(value, list):
        return [_effective(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {n: _effective(v) for n, v in value.items() if v is not None and v != []}


def _published_of_stored(sent: dict[str, Any]) -> dict[str, Any]:
    """`sent`, with what the published list says of stored responses."""
    items = _open_items(sent["input"])
    wanted = {name: value for name, value in sent.items() if value != ""}
    if not sent.get("tools"):
        wanted.pop("parallel_tool_calls", None)
        wanted.pop("tool_choice", None)
    wanted["input"] = [
        _without_file_ids(item)
        for item in items
        if item["type"] not in _OF_ITS_HOST
        and not _lacks_output(item, items)
        and item.get("content") != [{"type": "output_text", "text": ""}]
    ]
    return dict(_effective(wanted))


def _lacks_output(item: dict[str, Any], items: list[dict[str, Any]]) -> bool:
    """Calls without an output are left out; a host would wait for it."""
    outputs = {e.get("call_id") for e in items if e["type"].endswith("_output")}
    return item["type"].endswith("tool_call") and item["call_id"] not in outputs


def _without_file_ids(item: dict[str, Any]) -> dict[str, Any]:
    """A file that only the host has, in an output, is named in words."""
    if not isinstance(parts := item.get("output"), list):
        return item
    note = {
        "type": "input_text",
        "text": "[A file stood here that is no longer kept.]",
    }
    return {**item, "output": [note if "file_id" in p else p for p in parts]}


async def test_the_host_of_a_stored_response_gets_its_fields_too(
    client: Client, running: None
):
    differing: dict[str, list[str]] = {}
    count = 0
    with Host(lambda received: canned_reply("responses", received)) as host:
        for name, kind, body in bodies("responses"):
            model = await add_model(kind, CODECS["responses"], host.url, body["model"])
            sent = {n: v for n, v in body.items() if n not in _STORED}
            host.received.clear()
            answer = await client.post(
                PATHS["responses"], {**sent, "model": model, "stream": True}
            )
            if answer.status == 400 and any(w in str(answer.body) for w in _REFUSED):
                continue
            assert answer.status == 200, (name, answer.body)
            received = host.received[0].body
            got = {**received, "input": _open_items(received["input"])}
            included = got.get("include", [])  # proofs and sources are added to it
            got["include"] = [e for e in included if e in sent.get("include", [])]
            if (text := got.get("instructions")) and "instructions" not in sent:
                # The first system message.
                got["input"] = [*_open_items([_system(text)]), *got["input"]]
            if "computer_call_output" in json.dumps(sent):
                got["input"] = [i for i in got["input"] if "the screen" not in str(i)]
            wanted = _published_of_stored(_of_xai(sent) if kind == "xai" else sent)
            found = list(differences(wanted, dict(_effective(got))))
            if found := [each for each in found if not each.endswith(" added")]:
                differing[f"{name} ({kind})"] = found
            count += 1
    assert not differing, json.dumps(differing, indent=1)
    assert count >= LEAST


def differences(wanted: Any, found: Any, path: str = "") -> Iterator[str]:
    if isinstance(wanted, dict) and isinstance(found, dict):
        for name in wanted.keys() | found.keys():
            at = f"{path}.{name}"
            if name not in found:
                yield f"{at} lost"
            elif name not in wanted:
                yield f"{at} added"
            else:
                yield from differences(wanted[name], found[name], at)
    elif isinstance(wanted, list) and isinstance(found, list):
        if len(wanted) != len(found):
            yield f"{path} has {len(found)} entries, not {len(wanted)}"
        for number, (one, other) in enumerate(zip(wanted, found, strict=False)):
            yield from differences(one, other, f"{path}[{number}]")
    elif wanted != found:
        yield f"{path} changed"


@pytest.mark.parametrize("api", FORWARDED)
@pytest.mark.parametrize("stream", [False, True])
async def test_the_client_gets_every_byte_of_the_answer(
    api: str, stream: bool, client: Client
):
    with Host(lambda received: canned_reply(api, received)) as host:
        kind = "anthropic" if api == "messages" else "openai"
        model = await add_model(kind, CODECS[api], host.url, "new-model")
        body: dict[str, Any] = {"model": model, "stream": stream}
        body |= {"input": "Hi", "store": False} if api == "responses" else {}
        body |= {"messages": _HI} if api != "responses" else {}
        body |= {"max_tokens": 9} if api == "messages" else {}
        if api == "chat" and stream:
            body["stream_options"] = {"include_usage": True}
        answer = await client.post(PATHS[api], body)
        reply = canned_reply(api, host.received[0])[2]
        if api == "responses" and stream:
            reply += b"data: [DONE]\n\n"  # as Open Responses ends a stream
        assert answer.body == reply


async def test_usage_that_the_client_has_not_asked_for_stays_here(client: Client):
    with Host(lambda received: canned_reply("chat", received)) as host:
        model = await add_model("openai", "openai_chat", host.url, "new-model")
        body = {"model": model, "stream": True, "messages": _HI}
        answer = await client.post(PATHS["chat"], body)
    assert host.received[0].body["stream_options"] == {"include_usage": True}
    assert b'"usage"' not in answer.body
    assert answer.body.endswith(b"data: [DONE]\n\n")


async def test_betas_reach_anthropic_as_one_header(client: Client):
    with Host(lambda received: canned_reply("messages", received)) as host:
        model = await add_model("anthropic", "anthropic", host.url, "new-model")
        body = {"model": model, "messages": _HI, "max_tokens": 9}
        headers = {"anthropic-beta": "a-1,b-2", "anthropic-version": "2023-06-01"}
        await client.post(PATHS["messages"], {**body, "betas": ["c-3"]}, headers)
    assert host.received[0].headers["anthropic-beta"] == "a-1,b-2,c-3"
    assert host.received[0].headers["anthropic-version"] == "2023-06-01"
    assert "betas" not in host.received[0].body
