"""Input of library code as canonical items. Pure.

In: text, messages, Responses items, and messages as other vendors' APIs have them. Out:
items. What has no canonical form is refused, with its place: nothing is left out here.
What the model's host then does not take, `llm.adaptation.dropped_input` names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, NoReturn

import orjson

from llm.errors import BadRequest
from llm.wire.facades import chat_request, messages_request
from llm.wire.items import Item, function_call_output, message, new_id

Role = Literal["system", "developer", "user", "assistant"]
InputValue = str | Mapping[str, Any] | Iterable[str | Mapping[str, Any]] | None

_ROLES = ("system", "developer", "user", "assistant")
#: The fields of each canonical part, one of which it must have.
_PARTS: Mapping[str, tuple[str, ...]] = {
    "input_text": ("text",),
    "output_text": ("text",),
    "refusal": ("refusal",),
    "input_image": ("image_url", "file_id"),
    "input_file": ("file_data", "file_url", "file_id"),
    "input_audio": ("input_audio",),
}
_OF_MESSAGES = {"type", "id", "status", "role", "content", "phase", "provider_data"}
#: Parts of other vendors, each with the function that converts it.
_FOREIGN: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "image_url": chat_request.input_part,
    "file": chat_request.input_part,
    "image": messages_request.input_part,
    "document": messages_request.input_part,
}
_REASONING = ("reasoning_content", "reasoning")  # fields of Chat Completions hosts
_OUTPUTS = ("function_call_output", "custom_tool_call_output")


def as_items(
    value: InputValue, role: Role = "user", where: str = "input"
) -> list[Item]:
    """Raises BadRequest, whose `param` is the place of what cannot be sent."""
    if value is None or value == "":
        return []
    if isinstance(value, str):
        return [message(role, value)]
    if isinstance(value, Mapping):
        return list(_items(value, where))
    items: list[Item] = []
    for index, each in enumerate(value):
        if isinstance(each, str):
            items.append(message(role, each))
        elif isinstance(each, Mapping):
            items += _items(each, f"{where}[{index}]")
        else:
            _refuse(f"{where}[{index}]", "write a text or a message")
    return items


def _items(value: Mapping[str, Any], where: str) -> Iterator[Item]:
    kind = _type_of({"type": "message", **value}, where)
    if kind in _OUTPUTS and isinstance(value.get("output"), list):
        yield {**value, "output": _parts(value["output"], f"{where}.output")}
    elif kind != "message":
        if kind in _PARTS or kind in _FOREIGN or kind in ("text", *_BLOCKS):
            _refuse(f"{where}.type", f"{kind!r} is a part of a message, not an item")
        yield dict(value)
    elif value.get("role") == "tool":
        yield _tool_message(value, where)
    else:
        yield from _message(value, where)


# Messages


def _message(value: Mapping[str, Any], where: str) -> Iterator[Item]:
    """The message, and what is an item of its own: reasoning, calls, outputs."""
    if (role := value.get("role")) not in _ROLES:
        _refuse(f"{where}.role", f"{role!r} is no role; use one of {_list(_ROLES)}")
    fields = {name: each for name, each in value.items() if each not in (None, [], "")}
    calls = fields.pop("tool_calls", ())
    refusal = fields.pop("refusal", None)
    if not isinstance(calls, list | tuple):
        _refuse(f"{where}.tool_calls", "write a list of calls")
    thoughts = [fields.pop(name) for name in _REASONING if name in fields]
    for name in fields:
        if name not in _OF_MESSAGES and not name.startswith("parley:"):
            _refuse(f"{where}.{name}", "a message has no such field")
    if role != "assistant" and (calls or refusal or thoughts):
        _refuse(f"{where}.role", "only the assistant thinks, refuses and calls tools")
    yield from (_reasoning(text, where) for text in thoughts[:1])
    content = value.get("content")
    if content is None and not calls and not refusal:
        _refuse(f"{where}.content", "the message has no content")
    if content or not calls:
        yield from _of_content(
            fields, "" if content is None else content, refusal, where
        )
    for index, call in enumerate(calls):
        yield _chat_call(call, f"{where}.tool_calls[{index}]")


def _of_content(
    fields: Mapping[str, Any], content: Any, refusal: Any, where: str
) -> Iterator[Item]:
    role = fields["role"]
    if content == [] and not refusal:
        yield {**message(role, ""), **fields, "content": []}
        return
    if isinstance(content, str):
        plain = message(role, content)
        if refusal:
            parts = plain["content"] if content else []
            plain["content"] = [*parts, {"type": "refusal", "refusal": refusal}]
        yield {**plain, **{n: v for n, v in fields.items() if n != "content"}}
        return
    blocks = [*_mappings(content, f"{where}.content")]
    kept: list[dict[str, Any]] = []
    before: list[Item] = []
    after: list[Item] = []
    for path, block in blocks:
        match _type_of(block, path):
            case "tool_use" if role == "assistant":
                after.append(_tool_use(block, path))
            case "tool_result" if role == "user":
                before.append(_tool_result(block, path))
            case "thinking" if role == "assistant":
                before.append(_reasoning(block.get("thinking"), f"{path}.thinking"))
            case _:
                kept.append(_part(block, path, role))
    yield from before
    if kept or refusal:
        last = [{"type": "refusal", "refusal": refusal}] if refusal else []
        yield {**message(role, ""), **fields, "content": [*kept, *last]}
    yield from after


def _tool_message(value: Mapping[str, Any], where: str) -> Item:
    """The output of a call as Chat Completions has it."""
    call_id, content = value.get("tool_call_id"), value.get("content")
    if not isinstance(call_id, str):
        _refuse(f"{where}.tool_call_id", "it names the call that is answered")
    if isinstance(content, str):
        return function_call_output(call_id, content)
    return function_call_output(call_id, _parts(content, f"{where}.content"))


def _chat_call(call: Any, where: str) -> Item:
    match call:
        case {"id": str(id), "function": {"name": str(name), "arguments": str(given)}}:
            return _call(id, name, given)
    _refuse(where, "a call has 'id' and 'function', with 'name' and 'arguments'")


# Parts


def _parts(content: Any, where: str) -> list[dict[str, Any]]:
    return [_part(part, path, "user") for path, part in _mappings(content, where)]


def _part(part: Mapping[str, Any], where: str, role: str) -> dict[str, Any]:
    kind = _type_of(part, where)
    if kind == "text" and isinstance(part.get("text"), str):
        text: dict[str, Any] = message(role, part["text"])["content"][0]
        return text
    if kind in _FOREIGN:
        try:
            return _FOREIGN[kind](part)
        except BadRequest as exc:
            _refuse(where, str(exc).removesuffix("."))
    if kind not in _PARTS:
        known = _list([*_PARTS, "text", *_FOREIGN])
        _refuse(f"{where}.type", f"{kind!r} cannot be sent here; use one of {known}")
    if all(part.get(name) is None for name in _PARTS[kind]):
        _refuse(where, f"this {kind!r} has no {_list(_PARTS[kind])}")
    return dict(part)


#: Blocks of Anthropic's messages that are items of their own.
_BLOCKS = ("tool_use", "tool_result", "thinking")


def _tool_use(block: Mapping[str, Any], where: str) -> Item:
    match block:
        case {"id": str(id), "name": str(name), "input": {} as given}:
            return _call(id, name, orjson.dumps(given).decode())
    _refuse(where, "a tool_use has 'id', 'name' and 'input'")


def _tool_result(block: Mapping[str, Any], where: str) -> Item:
    call_id, content = block.get("tool_use_id"), block.get("content") or ""
    if not isinstance(call_id, str):
        _refuse(f"{where}.tool_use_id", "it names the call that is answered")
    is_error = block.get("is_error") is True
    if isinstance(content, str):
        return function_call_output(
            call_id, f"Error: {content}" if is_error else content
        )
    parts = _parts(content, f"{where}.content")
    error = [{"type": "input_text", "text": "Error:"}] if is_error else []
    return function_call_output(call_id, [*error, *parts])


def _reasoning(text: Any, where: str) -> Item:
    if not isinstance(text, str):
        _refuse(where, "reasoning is a text")
    return {
        "type": "reasoning",
        "id": new_id("rs"),
        "summary": [],
        "content": [{"type": "reasoning_text", "text": text}],
    }


def _call(call_id: str, name: str, arguments: str) -> Item:
    return {
        "type": "function_call",
        "id": new_id("fc"),
        "status": "completed",
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
    }


def _type_of(value: Mapping[str, Any], where: str) -> str:
    if not isinstance(kind := value.get("type"), str):
        _refuse(f"{where}.type", "the type is missing")
    return kind


def _mappings(content: Any, where: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each part with its place; a bare text is a part, too."""
    if not isinstance(content, list | tuple):
        _refuse(where, "write a text or a list of parts")
    for index, part in enumerate(content):
        if isinstance(part, str):
            part = {"type": "text", "text": part}
        if not isinstance(part, Mapping):
            _refuse(f"{where}[{index}]", "write a text or a part")
        yield f"{where}[{index}]", part


def _list(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))


def _refuse(where: str, problem: str) -> NoReturn:
    raise BadRequest(f"{where}: {problem}.", param=where)
