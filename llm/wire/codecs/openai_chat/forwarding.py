"""A client's Chat Completions body, as this host takes it.

In: the client's own JSON. Out: the same with what the host is known to refuse in
another form: names of a role and of two fields, ids of calls, reasoning of another
host, schemas with references; and changed as staff have switched it (`quirks.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from llm.wire.codecs.openai_chat.host_options import HostOptions
from llm.wire.codecs.openai_chat.messages import wire_call_id
from llm.wire.forwarding.codec import change_objects
from llm.wire.forwarding.sealed_text import is_sealed

#: Fields of an assistant message that hold reasoning, or the proof of it.
REASONING_FIELDS = frozenset(
    {
        "extra_content",
        "reasoning",
        "reasoning_content",
        "reasoning_details",
        "thinking_blocks",
    }
)
_SYSTEM = ("developer", "system")
_LIMITS = ("max_completion_tokens", "max_tokens")


def is_refused(fields: Mapping[str, Any], codec: HostOptions) -> bool:
    """Whether the body uses what staff have switched off for this host. Other names do
    not help then: the body must be translated."""
    off = {
        "tool_choice": not codec.takes_tool_choice,
        "image_urls": not codec.image_urls,
        "files": not codec.files,
    }
    wanted = {name for name in codec.switched if off.get(name)}
    if "tool_choice" in wanted and fields.get("tool_choice") not in (None, "auto"):
        return True
    return bool(wanted) and any(_kind_of(p) in wanted for p in _parts(fields))


def _parts(fields: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    messages = fields.get("messages")
    for message in messages if isinstance(messages, list) else ():
        content = message.get("content") if isinstance(message, dict) else None
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict):
                yield part


def _kind_of(part: Mapping[str, Any]) -> str:
    """The switch that lets a host take the part; "" for none."""
    if part.get("type") == "file":
        return "files"
    image = part.get("image_url")
    url = image.get("url") if isinstance(image, dict) else image
    is_address = isinstance(url, str) and not url.startswith("data:")
    return "image_urls" if is_address else ""


def fit_body(body: dict[str, Any], codec: HostOptions) -> dict[str, Any]:
    """Change `body` in place, and none of its values."""
    _fit_delivery(body, codec)
    if "max_completion_tokens" in codec.switched:
        for name in _LIMITS:
            _rename(body, name, codec.max_tokens_field)
    elif codec.reasoning_fields is not None:
        _rename(body, "max_completion_tokens", codec.max_tokens_field)
    if codec.seed_field != "seed":
        _rename(body, "seed", codec.seed_field)
    if "strict_tools" in codec.switched and not codec.strict_tools and "tools" in body:
        body["tools"] = change_objects(body["tools"], _without_strict)
    body["messages"] = _fit_messages(body.get("messages"), body, codec)
    if codec.inline_refs or not codec.closed_schemas:
        if "tools" in body:
            fit = partial(_fit_schema, name="function", codec=codec)
            body["tools"] = change_objects(body["tools"], fit)
        if isinstance(form := body.get("response_format"), dict):
            body["response_format"] = _fit_schema(form, "json_schema", codec)
    return body


def _fit_delivery(body: dict[str, Any], codec: HostOptions) -> None:
    """Request the usage of a stream, in the form of this host."""
    if not body.get("stream"):
        return
    if not codec.stream_options:  # it always sends the usage, or refuses the field
        body.pop("stream_options", None)
    elif codec.stream_options.get("include_usage"):
        options = body.get("stream_options")
        options = options if isinstance(options, dict) else {}
        body["stream_options"] = {**options, "include_usage": True}


def _rename(body: dict[str, Any], name: str, wanted: str) -> None:
    if name != wanted and name in body:
        value = body.pop(name)
        body.setdefault(wanted, value)


def _without_strict(tool: dict[str, Any]) -> dict[str, Any]:
    function = tool.get("function")
    if not isinstance(function, dict) or "strict" not in function:
        return tool
    rest = {name: value for name, value in function.items() if name != "strict"}
    return {**tool, "function": rest}


def _fit_schema(
    parent: dict[str, Any], name: str, codec: HostOptions
) -> dict[str, Any]:
    """`parent` with the schema inside its field `name` in the form of this host."""
    fields = parent.get(name)
    if not isinstance(fields, dict):
        return parent
    fitted = codec.fit_schema(fields)
    return parent if fitted == fields else {**parent, name: fitted}


# Messages


def _fit_messages(messages: Any, body: Mapping[str, Any], codec: HostOptions) -> Any:
    fitted = change_objects(messages, partial(_fit_message, codec=codec, body=body))
    return _merge_system(fitted) if codec.merge_system else fitted


def _fit_message(
    message: dict[str, Any], *, codec: HostOptions, body: Mapping[str, Any]
) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    if "reasoning_details" in message:
        message = _without_seals(message)
    if "tool_calls" in message:
        message = without_sealed_signatures(message)
    match message.get("role"):
        case "developer" if codec.system_role == "system":
            changed["role"] = "system"
        case "system" if _wants_developer(codec):
            changed["role"] = "developer"
        case "tool" if codec.reasoning_fields is not None:
            id = message.get("tool_call_id")
            if isinstance(id, str) and (own := _call_id(id, codec)) != id:
                changed["tool_call_id"] = own
        case "assistant" if codec.reasoning_fields is not None:
            return _fit_assistant(message, body, codec)
    return {**message, **changed} if changed else message


def _wants_developer(codec: HostOptions) -> bool:
    return "developer_role" in codec.switched and codec.system_role == "developer"


def _without_seals(message: dict[str, Any]) -> dict[str, Any]:
    """Without what this server has sealed of another host's answer."""
    details = message["reasoning_details"]
    own = change_objects(details, _unless_sealed)
    if own is details:
        return message
    rest = {n: value for n, value in message.items() if n != "reasoning_details"}
    return {**rest, "reasoning_details": own} if own else rest


def without_sealed_signatures(message: dict[str, Any]) -> dict[str, Any]:
    """`message` without the signatures of calls that this server has sealed."""
    before = message.get("tool_calls")
    calls = change_objects(before, _without_sealed_signature)
    if calls is before:
        return message
    return {**message, "tool_calls": calls}


def _without_sealed_signature(call: dict[str, Any]) -> dict[str, Any]:
    match call.get("extra_content"):
        case {"google": {"thought_signature": text}} if is_sealed(text):
            return {n: value for n, value in call.items() if n != "extra_content"}
    return call


def _unless_sealed(detail: dict[str, Any]) -> dict[str, Any] | None:
    return None if is_sealed(detail.get("data")) else detail


def _fit_assistant(
    message: dict[str, Any], body: Mapping[str, Any], codec: HostOptions
) -> dict[str, Any]:
    calls = change_objects(message.get("tool_calls"), partial(_fit_call, codec=codec))
    foreign = REASONING_FIELDS - (codec.reasoning_fields or frozenset())
    lost = foreign.intersection(message)
    must_think = (
        codec.reasoning_echo == "reasoning_content"
        and "reasoning_content" not in message
        and body.get("thinking") != {"type": "disabled"}
    )
    if calls is message.get("tool_calls") and not lost and not must_think:
        return message
    fitted = {name: value for name, value in message.items() if name not in lost}
    if "tool_calls" in message:
        fitted["tool_calls"] = calls
    if must_think:  # DeepSeek refuses an assistant's message without this field
        fitted["reasoning_content"] = ""
    return fitted


def _fit_call(call: dict[str, Any], *, codec: HostOptions) -> dict[str, Any]:
    id = call.get("id")
    changed: dict[str, Any] = {}
    if isinstance(id, str) and (own := _call_id(id, codec)) != id:
        changed["id"] = own
    lost = (REASONING_FIELDS - (codec.reasoning_fields or frozenset())) & call.keys()
    if not changed and not lost:
        return call
    return {n: v for n, v in call.items() if n not in lost} | changed


def _call_id(id: str, codec: HostOptions) -> str:
    return wire_call_id(id, codec.call_id_length)


def _merge_system(messages: Any) -> Any:
    """One system message in front, where the host's template takes no others."""
    if not isinstance(messages, list):
        return messages
    found = [m for m in messages if isinstance(m, dict) and m.get("role") in _SYSTEM]
    if not found or (len(found) == 1 and messages[0] is found[0]):
        return messages
    texts = [text for m in found for text in _texts(m.get("content"))]
    front = {**found[0], "role": "system", "content": "\n\n".join(texts)}
    return [front, *(m for m in messages if not any(m is each for each in found))]


def _texts(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    parts = content if isinstance(content, list) else ()
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return [text for text in texts if isinstance(text, str)]
