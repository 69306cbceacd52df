"""Normal forms of request bodies: equivalent requests become equal.

In: a body as it is sent to a provider, and its `api` as the recordings name it. Out:
the body without differences that have no effect. Each function below removes some of
them; `docs/fidelity.md` gives the reasons.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from llm.wire.codecs.gemini.contents import NO_SIGNATURE
from llm.wire.facades.generate_content_request import camel, in_json_schema

Body = dict[str, Any]


def normalize(api: str, body: Mapping[str, Any]) -> Body:
    forms: dict[str, Callable[[Body], Body]] = {
        "chat": _chat,
        "generateContent": _generate_content,
        "messages": _messages,
        "responses": _responses,
    }
    result: Body = _without_empty(forms[api](json.loads(json.dumps(body))))
    return result


def differences(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    """The paths at which two bodies differ, without the values."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in sorted({*ours, *theirs}):
            inner = f"{path}.{name}" if path else name
            if name in ours and name in theirs:
                yield from differences(ours[name], theirs[name], inner)
            else:
                yield f"{'+' if name in ours else '-'}{inner}"
    elif isinstance(ours, list) and isinstance(theirs, list):
        if len(ours) != len(theirs):
            yield f"{path}[{len(theirs)} -> {len(ours)}]"
            return
        for n, pair in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(*pair, f"{path}[{n}]")
    elif ours != theirs:
        yield path


def _without_empty(value: Any) -> Any:
    """Remove null, {} and [], which have no effect, except in arguments and schemas."""
    if isinstance(value, list):
        return [_without_empty(each) for each in value]
    if not isinstance(value, dict):
        return value
    result = {
        name: each if name in _OPAQUE else _without_empty(each)
        for name, each in value.items()
    }
    return {n: v for n, v in result.items() if v not in (None, {}, [])}


#: Names of fields with user-defined JSON, in which empty values have a meaning.
_OPAQUE = frozenset(
    {"args", "arguments", "input_schema", "parameters", "parametersJsonSchema"}
)


# Chat Completions


def _chat(body: Body) -> Body:
    for name in ("store", "stream_options", "usage"):
        body.pop(name, None)  # Parley sets storage and usage reports itself
    body["stream"] = body.get("stream") or None
    _rename(body, "max_completion_tokens", "max_tokens")
    _rename(body, "random_seed", "seed")
    if body.get("tool_choice") == "auto":
        del body["tool_choice"]
    if body.get("tool_choice") == "any":
        body["tool_choice"] = "required"  # for Mistral both mean the same
    if body.get("response_format") == {"type": "text"}:
        del body["response_format"]
    if isinstance(body.get("stop"), str):
        body["stop"] = [body["stop"]]
    for tool in body.get("tools") or ():
        _normalize_function(tool.get("function") or {})
    ids: dict[str, str] = {}
    body["messages"] = [_chat_message(message, ids) for message in body["messages"]]
    return body


def _chat_message(message: Body, ids: dict[str, str]) -> Body:
    for name in ("annotations", "parsed", "prefix", "reasoning_content", "refusal"):
        if not message.get(name):
            message.pop(name, None)
    if message["role"] == "developer":
        message["role"] = "system"
    message["content"] = _chat_content(message.get("content"))
    for call in message.get("tool_calls") or ():
        call.pop("index", None)
        call["id"] = ids.setdefault(call["id"], f"call {len(ids)}")
        call["function"].pop("parsed_arguments", None)
        call["function"]["arguments"] = _parse_json(call["function"]["arguments"])
    if "tool_call_id" in message:
        message["tool_call_id"] = ids.get(message["tool_call_id"])
    return message


def _chat_content(content: Any) -> Any:
    """Join adjacent texts; a text of white space alone is None."""
    if isinstance(content, list) and all(p.get("type") == "text" for p in content):
        content = "\n".join(part["text"] for part in content)
    if isinstance(content, str):
        return content if content.strip() else None
    for part in content or ():
        image = part.get("image_url")
        if isinstance(image, dict) and image.get("detail") == "auto":
            del image["detail"]
    return content


def _normalize_function(function: Body) -> None:
    function["strict"] = function.get("strict") or None
    parameters = function.get("parameters") or {}
    if not parameters.get("properties") and not parameters.get("$ref"):
        function["parameters"] = {}


# Responses


def _responses(body: Body) -> Body:
    for name in ("include", "store", "stream_options"):
        body.pop(name, None)  # Parley stores no state at the host
    for name in ("instructions", "stream"):
        body[name] = body.get(name) or None
    if body.get("tool_choice") == "auto":
        del body["tool_choice"]
    for tool in body.get("tools") or ():
        if tool["type"] == "function":
            _normalize_function(tool)
    if isinstance(body["input"], str):
        body["input"] = [{"role": "user", "content": body["input"]}]
    body["input"] = [_responses_item(item) for item in body["input"]]
    return body


def _responses_item(item: Body) -> Body:
    item.setdefault("type", "message")
    if item["type"] == "message":
        item["content"] = _responses_content(item["content"])
        if item["role"] == "developer":
            item["role"] = "system"
    if item["type"].endswith("call_output"):
        item.pop("id", None)  # no other item refers to it
        item.pop("status", None)
        if isinstance(item.get("output"), list):
            item["output"] = _responses_content(item["output"])
    if isinstance(item.get("arguments"), str):
        item["arguments"] = _parse_json(item["arguments"])
    return item


def _responses_content(content: Any) -> Any:
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    for part in content:
        if part["type"] in ("input_text", "output_text"):
            part["type"] = "text"
        if part.get("detail") == "auto":
            del part["detail"]
    return content


# Messages


def _messages(body: Body) -> Body:
    body["stream"] = body.get("stream") or None
    choice = body.get("tool_choice") or {}
    if not choice.get("disable_parallel_tool_use", True):
        del choice["disable_parallel_tool_use"]
    if choice == {"type": "auto"}:
        del body["tool_choice"]
    body["system"] = _blocks(body.get("system"))
    for tool in body.get("tools") or ():
        tool.pop("cache_control", None)
        if not tool.get("description"):
            tool.pop("description", None)
        if tool.get("type") == "custom":
            del tool["type"]
    for turn in body["messages"]:
        turn["content"] = _blocks(turn["content"])
    return body


def _blocks(content: Any) -> list[Body]:
    """Content as blocks, without cache marks, which only affect the price."""
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    return [_block(block) for block in content or ()]


def _block(block: Body) -> Body:
    block.pop("cache_control", None)
    if block["type"] == "tool_result":
        block["content"] = _blocks(block.get("content"))
        block["is_error"] = block.get("is_error") or None
    return block


# generateContent


def _generate_content(body: Body) -> Body:
    body = camel(body)
    for content in [*body["contents"], body.get("systemInstruction") or {}]:
        content["parts"] = _parts(content.get("parts") or ())
    if instruction := body.get("systemInstruction"):
        instruction.pop("role", None)  # instructions have no role
    calling = (body.get("toolConfig") or {}).get("functionCallingConfig") or {}
    if calling == {"mode": "AUTO"}:
        del body["toolConfig"]["functionCallingConfig"]
    body["tools"] = _google_tools(body)
    return body


def _parts(parts: Any) -> list[Body]:
    """Join adjacent texts."""
    merged: list[Body] = []
    for part in parts:
        if not part.get("thought"):
            part.pop("thought", None)
        if part.get("thoughtSignature") == NO_SIGNATURE:
            del part["thoughtSignature"]
        if call := part.get("functionCall"):
            call.setdefault("args", {})
        if merged and merged[-1].keys() == part.keys() == {"text"}:
            merged[-1]["text"] += part["text"]
        else:
            merged.append(part)
    return merged


def _google_tools(body: Body) -> list[list[Any]]:
    """Tools sorted by name: their order and grouping have no effect."""
    named = [pair for group in body.get("tools") or () for pair in group.items()]
    tools = [
        [name, [_normal_declaration(f) for f in value] if name == _FUNCTIONS else value]
        for name, value in named
        if value is not None
    ]
    return sorted(tools, key=lambda pair: str(pair[0]))


def _normal_declaration(function: Body) -> Body:
    function = in_json_schema(function)
    function["description"] = function.get("description") or None
    schema = function.get("parametersJsonSchema") or {}
    if not schema.get("properties"):
        function["parametersJsonSchema"] = None  # takes no arguments
    return function


_FUNCTIONS = "functionDeclarations"


# All APIs


def _rename(body: Body, name: str, to: str) -> None:
    if name in body:
        body[to] = body.pop(name)


def _parse_json(text: Any) -> Any:
    try:
        return json.loads(text or "{}")
    except (TypeError, ValueError):
        return text
