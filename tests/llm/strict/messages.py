"""The Messages API, thinking bound to everything before it.

A signature vouches for the thinking, for its place in the message and for the prefix:
system, tools and all earlier messages, without the marks of the cache. The id of a call
shows whether it was made by this account after a thought.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import orjson

from llm.wire.items import Issuer

from .rules import (
    PLACES,
    Body,
    Mark,
    Refusal,
    Rule,
    digest,
    doubles,
    event,
    refusal,
    seal,
    wish,
)

_ID = re.compile(r"[a-zA-Z0-9_-]+")
_THINKING = ("thinking", "redacted_thinking")
_MAX_CACHED = 4  # blocks with `cache_control`


def answer(body: Body, issuer: Issuer) -> Refusal | bytes:
    if refused := refusal(RULES, body, issuer):
        return refused
    blocks, stop = _content(body, issuer)
    return b"".join(_stream(blocks, stop, issuer))


def assistant_content(body: Body) -> list[Any]:
    return [
        [_unmarked(block) for block in message["content"]]
        for message in body["messages"]
        if message["role"] == "assistant"
    ]


def issued(stream: bytes) -> list[Any]:
    """Whole blocks, as the last event of the fake carries them."""
    last = orjson.loads(stream.rpartition(b"data: ")[2])
    return [last["issued"]]


# Answers


def _marks(body: Body) -> Iterator[Mark]:
    for message in body["messages"]:
        kinds = {block["type"] for block in message["content"]}
        if message["role"] == "assistant" and "tool_use" in kinds:
            yield "calls", ""
        for block in message["content"]:
            if message["role"] == "user" and block["type"] == "text":
                yield "user", block["text"]


def _content(body: Body, issuer: Issuer) -> tuple[list[dict[str, Any]], str]:
    answer = digest(issuer, body["messages"])
    prefix = _prefix(body, len(body["messages"]))
    thought = f"Thinking about {answer}."
    blocks: list[dict[str, Any]] = [
        _thinking(issuer, thought, prefix, 0),
        {"type": "redacted_thinking", "data": seal(issuer, prefix, 1)},
    ]
    match wish(list(_marks(body))):
        case "tools":
            return [*blocks, *(_use(answer, p, issuer) for p in PLACES)], "tool_use"
        case "screen":
            return [*blocks, _action(answer, issuer)], "tool_use"
        case "cut":
            calls = [_use(answer, city, issuer) for city in PLACES]
            return [*blocks, calls[0], {**calls[1], "input": None}], "max_tokens"
        case "halt":
            call = {**_use(answer, PLACES[0], issuer), "input": None}
            return [*blocks, call], "max_tokens"
        case "think":
            return blocks, "max_tokens"
        case "refuse":
            return [], "refusal"
    # A second thought between two texts is not the message's first block.
    text = [{"type": "text", "text": f"{part} {answer}."} for part in ("Said", "More")]
    between = _thinking(issuer, thought, prefix, 3)
    return [*blocks, text[0], between, text[1]], "end_turn"


def _thinking(issuer: Issuer, thought: str, *bound_to: Any) -> dict[str, Any]:
    signature = seal(issuer, thought, *bound_to)
    return {"type": "thinking", "thinking": thought, "signature": signature}


def _use(answer: str, city: str, issuer: Issuer) -> dict[str, Any]:
    id = f"toolu_{digest(issuer)}_{digest(answer, city)}"
    return {"type": "tool_use", "id": id, "name": "look", "input": {"at": city}}


def _action(answer: str, issuer: Issuer) -> dict[str, Any]:
    id = f"toolu_{digest(issuer)}_{digest(answer)}"
    block = {"type": "tool_use", "id": id, "name": "screenshot", "input": {}}
    return {**block, "toolset_name": "computer"}


def _stream(blocks: list[Any], stop: str, issuer: Issuer) -> Iterator[bytes]:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "content": []}
    start_message = {**message, "model": issuer["model"], "usage": {"input_tokens": 1}}
    yield event({"type": "message_start", "message": start_message})
    for index, block in enumerate(blocks):
        begun, deltas = _pieces(block)
        at = {"index": index}
        yield event({"type": "content_block_start", **at, "content_block": begun})
        for delta in deltas:
            yield event({"type": "content_block_delta", **at, "delta": delta})
        yield event({"type": "content_block_stop", **at})
    ended = {"stop_reason": stop}
    yield event({"type": "message_delta", "delta": ended, "usage": {}})
    yield event({"type": "message_stop", "issued": blocks})


def _pieces(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    match block:
        case {"type": "text", "text": text}:
            pieces = [{"type": "text_delta", "text": t} for t in (text[:4], text[4:])]
            return {**block, "text": ""}, pieces
        case {"type": "thinking", "thinking": thought, "signature": signature}:
            return {**block, "thinking": "", "signature": ""}, [
                {"type": "thinking_delta", "thinking": thought},
                {"type": "signature_delta", "signature": signature},
            ]
        case {"type": "tool_use", "input": arguments}:
            text = (
                '{"at": "so' if arguments is None else orjson.dumps(arguments).decode()
            )
            pieces = [
                {"type": "input_json_delta", "partial_json": t} for t in ("", text)
            ]
            return {**block, "input": {}}, pieces
    return block, []


# Rules


def _unmarked(block: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in block.items() if name != "cache_control"}


def _prefix(body: Body, end: int) -> str:
    """All messages before `end`; neighbours of one role are one."""
    messages: list[tuple[str, list[Any]]] = []
    for message in body["messages"][:end]:
        blocks = [_unmarked(block) for block in message["content"]]
        if messages and messages[-1][0] == message["role"]:
            messages[-1][1].extend(blocks)
        else:
            messages.append((message["role"], blocks))
    fixed = [[_unmarked(b) for b in body.get(name, [])] for name in ("system", "tools")]
    return digest(fixed, messages)


def _blocks(body: Body, role: str) -> Iterator[tuple[int, int, dict[str, Any]]]:
    for number, message in enumerate(body["messages"]):
        if message["role"] == role:
            for index, block in enumerate(message["content"]):
                yield number, index, block


def _wrong_order(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    roles = [message["role"] for message in body["messages"]]
    if roles[0] != "user":
        yield {"problem": "first message must use the user role"}
    if roles[-1] == "assistant":
        yield {"problem": "the conversation must end with a user message"}
    for before, role in pairwise(roles):
        if role == before == "assistant":
            yield {"problem": "an answer of two messages"}


def _empty(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    for number, message in enumerate(body["messages"]):
        if not message["content"]:
            yield {"number": number}


def _blank(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    for role in ("user", "assistant"):
        for _, _, block in _blocks(body, role):
            parts = block.get("content") if block["type"] == "tool_result" else [block]
            for part in parts if isinstance(parts, list) else ():
                if part["type"] == "text" and not part["text"].strip():
                    yield {}


def _rounds(body: Body) -> Iterator[tuple[int, list[str], list[str], bool]]:
    """Calls of each message, the results in the next one, and whether they lead it."""
    messages = body["messages"]
    for number, message in enumerate(messages):
        following = messages[number + 1 : number + 2] or [{"content": []}]
        calls = [b["id"] for b in message["content"] if b["type"] == "tool_use"]
        results = [
            b["tool_use_id"]
            for b in following[0]["content"]
            if b["type"] == "tool_result"
        ]
        first = following[0]["content"][: len(results)]
        yield number, calls, results, all(b["type"] == "tool_result" for b in first)


def _unanswered(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    for number, calls, results, led in _rounds(body):
        missing = [id for id in calls if id not in results or not led]
        if missing:
            yield {"number": number, "ids": ", ".join(missing)}


def _uncalled(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    for number, calls, results, _ in _rounds(body):
        for id in results:
            if id not in calls:
                yield {"number": number + 1, "id": id}


def _bad_ids(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    for number, calls, _, _ in _rounds(body):
        if any(not _ID.fullmatch(id) for id in calls):
            yield {"number": number}


def _same_ids(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    calls = [id for _, calls, _, _ in _rounds(body) for id in calls]
    results = [id for _, _, results, _ in _rounds(body) for id in results]
    yield from ({"id": id} for id in [*doubles(calls), *doubles(results)])


def _other_toolset(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    """The result of a toolset's call names the toolset."""
    uses = {
        block["id"]: block.get("toolset_name")
        for _, _, block in _blocks(body, "assistant")
        if block["type"] == "tool_use"
    }
    for number, _, block in _blocks(body, "user"):
        answered = block.get("tool_use_id")
        if answered in uses and block.get("toolset_name") != uses[answered]:
            yield {"number": number}


def _thinking_last(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    for number, message in enumerate(body["messages"]):
        if message["content"][-1]["type"] in _THINKING:
            yield {"number": number, "kind": message["content"][-1]["type"]}


def _unsigned(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    for number, index, block in _blocks(body, "assistant"):
        prefix = _prefix(body, number)
        match block:
            case {"type": "thinking", "thinking": thought, "signature": signature}:
                good = signature == seal(issuer, thought, prefix, index)
            case {"type": "redacted_thinking", "data": data}:
                good = data == seal(issuer, prefix, index)
            case {"type": kind}:
                good = kind not in _THINKING
        if not good:
            yield {"number": number, "place": index, "kind": block["type"]}


def _thoughtless(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    """Of this account's own calls, which all came after a thought."""
    for number, message in enumerate(body["messages"]):
        for block in message["content"]:
            own = block.get("id", "").startswith(f"toolu_{digest(issuer)}_")
            if own and message["content"][0]["type"] != "thinking":
                yield {"number": number, "kind": message["content"][0]["type"]}


def _begun_without(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    """With a budget, the turn that is going on begins with a thought."""
    if (body.get("thinking") or {}).get("type") != "enabled":
        return
    begun: list[tuple[int, str]] = []
    for number, message in enumerate(body["messages"]):
        if message["role"] == "assistant":
            begun.append((number, message["content"][0]["type"]))
        elif any(block["type"] != "tool_result" for block in message["content"]):
            begun = []
    if begun and begun[0][1] not in _THINKING:
        yield {"number": begun[0][0], "kind": begun[0][1]}


def _too_cached(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    if (count := orjson.dumps(body).count(b"cache_control")) > _MAX_CACHED:
        yield {"count": count}


RULES = [
    Rule(
        "messages.{number}: `toolset_name` must be that of the tool use.",
        _other_toolset,
    ),
    Rule("messages: {problem}", _wrong_order),
    Rule("messages.{number}: content must be non-empty", _empty),
    Rule("messages: text content blocks must contain non-whitespace text", _blank),
    Rule(
        "messages.{number}.content.0.tool_use.id: String should match pattern"
        " '^[a-zA-Z0-9_-]+$'",
        _bad_ids,
    ),
    Rule("messages: `tool_use` ids must be unique: {id}", _same_ids),
    Rule(
        "messages.{number}: `tool_use` ids were found without `tool_result` blocks"
        " immediately after: {ids}.",
        _unanswered,
    ),
    Rule(
        "messages.{number}: unexpected `tool_use_id` found in `tool_result` blocks:"
        " {id}.",
        _uncalled,
    ),
    Rule(
        "messages.{number}: The final block in an assistant message cannot be"
        " `{kind}`.",
        _thinking_last,
    ),
    Rule(
        "messages.{number}.content.{place}: Invalid `signature` in `{kind}` block, or"
        " the block is bound to a different conversation.",
        _unsigned,
    ),
    Rule(
        "messages.{number}.content.0.type: Expected `thinking` or `redacted_thinking`,"
        " but found `{kind}`. `thinking` blocks in the latest assistant message cannot"
        " be modified.",
        _thoughtless,
    ),
    Rule(
        "messages.{number}.content.0.type: Expected `thinking` or `redacted_thinking`,"
        " but found `{kind}`. When `thinking` is enabled, a final `assistant` message"
        " must start with a thinking block.",
        _begun_without,
    ),
    Rule(
        "A maximum of 4 blocks with cache_control may be provided, found {count}.",
        _too_cached,
    ),
]
