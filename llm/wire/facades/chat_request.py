"""Reader of request bodies of `POST /chat/completions`.

Source: https://platform.openai.com/docs/api-reference/chat/create
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from llm.wire.codecs.call_order import separate_equal_ids
from llm.wire.codecs.file_data import media_type_of
from llm.wire.codecs.gemini.tool_calls import signed_call
from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec
from llm.wire.codecs.openai_chat.decoder import ChatDecoder
from llm.wire.codecs.openai_chat.forwarding import without_sealed_signatures
from llm.wire.facades.chat_proofs import (
    known_fields,
    signature_of,
)
from llm.wire.facades.field_checks import whole
from llm.wire.facades.proof_entries import OpenSeal, attach, restore
from llm.wire.facades.request_reading import (
    assistant_items,
    unknown_value,
)
from llm.wire.forwarding.sealed_text import is_sealed
from llm.wire.items import Issuer, Item, function_call_output, message
from llm.wire.request import Request

#: The types of tools in this API; other types are extensions.
_TOOLS = ("custom", "function")
#: Options with the same name and shape in `Request`.
_SAME = (
    "frequency_penalty",
    "metadata",
    "parallel_tool_calls",
    "presence_penalty",
    "prompt_cache_key",
    "safety_identifier",
    "service_tier",
    "temperature",
    "top_logprobs",
    "top_p",
)
#: Where a client returns proofs.
PROOF_FIELD = "messages.reasoning_details"
_CODEC = OpenAIChatCodec()
_READ = frozenset(
    {
        *_SAME,
        "logprobs",
        "max_completion_tokens",
        "max_tokens",
        "messages",
        "model",
        "parley",
        "random_seed",
        "reasoning_effort",
        "response_format",
        "seed",
        "stop",
        "stream",
        "stream_options",
        "tool_choice",
        "tools",
        "verbosity",
    }
)


def request_of(
    body: Mapping[str, Any],
    codec: OpenAIChatCodec | None = None,
    issuer: Issuer | None = None,
    open_seal: OpenSeal | None = None,
    gemini: Issuer | None = None,
) -> Request:
    """`codec` knows the host's fields for reasoning; `open_seal` reads those of this
    server; `gemini` is set for a Gemini model, to which signatures go back that clients
    have from Google's own Chat Completions. Raises BadRequest."""
    codec = codec or _CODEC
    stop = body.get("stop") or ()
    effort, seed = body.get("reasoning_effort"), whole(body.get("seed"))
    same: dict[str, Any] = {name: body.get(name) for name in _SAME}
    items = [
        item
        for chat_message in body["messages"]
        for item in _items(chat_message, codec, issuer, open_seal, gemini)
    ]
    return Request(
        model=body["model"],
        items=separate_equal_ids(items) if len(items) > 1 else items,
        tools=[
            _flatten_tool(t) for t in body.get("tools") or () if t["type"] in _TOOLS
        ],
        tool_choice=_choice(body.get("tool_choice")),
        max_output_tokens=whole(
            body.get("max_completion_tokens") or body.get("max_tokens")
        ),
        reasoning={"effort": effort} if effort else None,
        text=_text(body) or None,
        stop=[stop] if isinstance(stop, str) else stop,
        seed=whole(body.get("random_seed")) if seed is None else seed,
        stream=bool(body.get("stream")),
        issuer=issuer,
        extra={
            name: value
            for name, value in body.items()
            if name not in _READ and value is not None
        },
        **same,
    )


# Messages


def _items(
    chat_message: Mapping[str, Any],
    codec: OpenAIChatCodec,
    issuer: Issuer | None,
    open_seal: OpenSeal | None,
    gemini: Issuer | None,
) -> Iterator[Item]:
    content = chat_message.get("content")
    match chat_message["role"]:
        case "assistant":
            known = known_fields(
                without_sealed_signatures({**chat_message}), codec.reasoning_fields
            )
            choice = {"message": known, "finish_reason": _finish(chat_message)}
            # A client's text need not begin with reasoning, as an answer may.
            decoder = ChatDecoder(
                echo=codec.reasoning_echo, think_tags=codec.think_tags
            )
            items = assistant_items(decoder.answer({"choices": [choice]}), issuer)
            if open_seal is not None and chat_message.get("reasoning_details"):
                items = restore(items, map(open_seal, sealed_texts(chat_message)))
            yield from _with_signatures(items, chat_message, open_seal, gemini)
        case "tool":
            yield function_call_output(
                chat_message["tool_call_id"], _convert_content(content)
            )
        case "system" | "developer" | "user" as role:
            converted = _convert_content(content)
            plain = isinstance(converted, str)
            yield message(role, converted) if plain else _message(role, converted)
        case role:
            raise unknown_value(f"the role {role!r}", "messages")


def _with_signatures(
    items: Sequence[Item],
    chat_message: Mapping[str, Any],
    open_seal: OpenSeal | None,
    gemini: Issuer | None,
) -> Iterator[Item]:
    """`items`, with the signatures of Gemini that a client returns in its calls."""
    found = {
        call["id"]: text
        for call in chat_message.get("tool_calls") or ()
        if (text := signature_of(call)) and call.get("id")
    }
    for item in items:
        text = found.get(item.get("call_id", ""), "")
        if not text or "provider_data" in item:
            yield item
        elif is_sealed(text):
            yield attach(item, open_seal(text) if open_seal else None)
        elif gemini is not None and item["type"] == "function_call":
            data = {"issuer": gemini, "raw": signed_call(item, text)}
            yield {**item, "provider_data": data}
        else:
            yield item


def sealed_texts(chat_message: Mapping[str, Any]) -> list[str]:
    """What this server has sealed of an assistant's message."""
    details = chat_message.get("reasoning_details")
    return [
        detail["data"]
        for detail in (details if isinstance(details, list) else ())
        if isinstance(detail, dict) and is_sealed(detail.get("data"))
    ]


def _finish(chat_message: Mapping[str, Any]) -> str:
    return "tool_calls" if chat_message.get("tool_calls") else "stop"


def _message(role: str, parts: list[dict[str, Any]]) -> Item:
    return {**message(role, ""), "content": parts}


def _convert_content(content: Any) -> Any:
    """A string, or a list of input parts."""
    if isinstance(content, str):
        return content
    return [input_part(part) for part in content or ()]


def input_part(part: Mapping[str, Any]) -> dict[str, Any]:
    """A part of a message in canonical form. Raises BadRequest."""
    match part:
        case {"type": "text", "text": text}:
            return {"type": "input_text", "text": text}
        case {"type": "image_url", "image_url": {"url": str(url)} as image}:
            detail = {"detail": image["detail"]} if image.get("detail") else {}
            return {"type": "input_image", "image_url": url, **detail}
        case {"type": "image_url", "image_url": str(url)}:  # Mistral's
            return {"type": "input_image", "image_url": url}
        case {"type": "file", "file": {} as file}:
            return {"type": "input_file", **_file_fields(file)}
        case {"type": "video_url", "video_url": {"url": str(url)}}:
            return _video(url)
        case {"type": "video_url", "video_url": str(url)}:
            return _video(url)
        case {"type": "input_audio", "input_audio": audio}:
            return {"type": "input_audio", "input_audio": audio}
    raise unknown_value(f"a part of the type {part.get('type')!r}", "messages")


def _video(url: str) -> dict[str, Any]:
    """A file whose name says that it is a video: an address, or data of an unknown
    type, need not."""
    path = url.partition("?")[0].partition("#")[0]
    if url.startswith("data:"):
        return {"type": "input_file", "filename": "video.mp4", "file_data": url}
    is_named = media_type_of(path, "").startswith("video/")
    name = path.rpartition("/")[2] if is_named else "video.mp4"
    return {"type": "input_file", "filename": name, "file_url": url}


def _file_fields(file: Mapping[str, Any]) -> dict[str, Any]:
    names = ("file_data", "file_id", "filename")
    return {name: file[name] for name in names if file.get(name) is not None}


# Tools and options


def _flatten_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A tool, or a choice of one, in the flat form of the Responses API."""
    kind = tool["type"]
    if kind not in _TOOLS:
        raise unknown_value(f"a tool of the type {kind!r}", "tools")
    flat = {"type": kind, **tool[kind]}
    match flat.get("format"):
        case {"type": "grammar", "grammar": grammar}:
            flat["format"] = {"type": "grammar", **grammar}
    return flat


def _choice(choice: Any) -> str | dict[str, Any] | None:
    match choice:
        case None:
            return None
        case "any":  # Mistral's
            return "required"
        case str():
            return choice
        case {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}:
            allowed = [_flatten_tool(tool) for tool in tools]
            return {"type": "allowed_tools", "mode": mode, "tools": allowed}
    return _flatten_tool(choice)


def _text(body: Mapping[str, Any]) -> dict[str, Any]:
    form: Mapping[str, Any] = body.get("response_format") or {}
    if form.get("type") == "json_schema":
        form = {"type": "json_schema", **form["json_schema"]}
    settings = {"format": dict(form) or None, "verbosity": body.get("verbosity")}
    return {name: value for name, value in settings.items() if value is not None}
