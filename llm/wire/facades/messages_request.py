"""Reader of request bodies of `POST /v1/messages`.

`thinking` stays in `extra`: its budgets and switches are finer than an effort.

Source: https://platform.claude.com/docs/en/api/messages
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import orjson

from llm.errors import BadRequest
from llm.wire.codecs.anthropic.codec import AnthropicCodec
from llm.wire.codecs.call_order import separate_equal_ids
from llm.wire.facades.field_checks import whole
from llm.wire.facades.messages_blocks import as_object
from llm.wire.facades.proof_entries import OpenSeal, restore
from llm.wire.facades.request_reading import (
    assistant_items,
    unknown_value,
)
from llm.wire.forwarding.sealed_text import is_sealed
from llm.wire.items import Issuer, Item, function_call_output, message
from llm.wire.request import Request

Block = Mapping[str, Any]

_READ = frozenset(
    {
        "max_tokens",
        "messages",
        "metadata",
        "model",
        "parley",
        "stop_sequences",
        "stream",
        "system",
        "temperature",
        "tool_choice",
        "tools",
        "top_p",
    }
)
#: Fields that a function can express; a tool with more fields stays unchanged.
_OF_FUNCTIONS = frozenset({"cache_control", "description", "input_schema", "name"})
#: Where a client returns proofs.
PROOF_FIELD = "messages.thinking"
_CHOICES = {"any": "required"}

_SEARCH = re.compile(r"web_search_20\d{6}")


def request_of(
    body: Mapping[str, Any],
    codec: AnthropicCodec | None = None,
    issuer: Issuer | None = None,
    open_seal: OpenSeal | None = None,
) -> Request:
    """`open_seal` reads what this server has sealed. Raises BadRequest for content that
    no item can hold."""
    codec = codec or AnthropicCodec()
    choice = body.get("tool_choice") or {}
    items = [message("system", block["text"]) for block in _blocks(body.get("system"))]
    for turn in body["messages"]:
        items += _items(turn, codec, issuer, open_seal)
    return Request(
        model=body["model"],
        items=separate_equal_ids(items) if len(items) > 1 else items,
        tools=[
            _tool(tool)
            for tool in body.get("tools") or ()
            if not str(tool.get("type")).startswith("parley:")
        ],
        tool_choice=_choice(choice),
        parallel_tool_calls=False if choice.get("disable_parallel_tool_use") else None,
        max_output_tokens=whole(body.get("max_tokens")),
        temperature=body.get("temperature"),
        top_p=body.get("top_p"),
        stop=body.get("stop_sequences") or (),
        safety_identifier=(body.get("metadata") or {}).get("user_id"),
        stream=bool(body.get("stream")),
        issuer=issuer,
        extra={
            name: value
            for name, value in body.items()
            if name not in _READ and value is not None
        },
    )


# Messages


def _items(
    turn: Mapping[str, Any],
    codec: AnthropicCodec,
    issuer: Issuer | None,
    open_seal: OpenSeal | None,
) -> Iterator[Item]:
    blocks = _blocks(turn["content"])
    if turn["role"] == "assistant":
        if issuer is None:
            _refuse_unreadable(blocks)
        sealed = sealed_texts(blocks)
        blocks = [
            _with_object_input(_without_our_citations(block))
            for block in blocks
            if not _is_sealed(block)
        ]
        answer = orjson.dumps({"content": blocks, "stop_reason": "end_turn"})
        answered = assistant_items(codec.decode(answer), issuer)
        if open_seal is not None and sealed:
            answered = restore(answered, map(open_seal, sealed))
        yield from answered
    elif turn["role"] == "system":
        yield message("system", "\n\n".join(block["text"] for block in blocks))
    else:
        yield from _user_items(blocks)


def _refuse_unreadable(blocks: Iterable[Block]) -> None:
    """Raise BadRequest for a summary that only its host can read: the client may have
    dropped all that it replaces."""
    for block in blocks:
        is_hidden = block.get("encrypted_content") and not block.get("content")
        if block["type"] == "compaction" and is_hidden:
            raise BadRequest(
                "This 'compaction' can only be read by the provider that made it.",
                param="messages",
            )


def sealed_texts(blocks: Sequence[Block]) -> list[str]:
    """What this server has sealed of an assistant's message."""
    return [_sealed_text(block) for block in blocks if _is_sealed(block)]


def _is_sealed(block: Block) -> bool:
    return is_sealed(_sealed_text(block))


def _sealed_text(block: Block) -> Any:
    match block["type"]:
        case "thinking":
            return block.get("signature")
        case "redacted_thinking":
            return block.get("data")
    return None


def _without_our_citations(block: dict[str, Any]) -> dict[str, Any]:
    """Remove citations that `messages_writer` made from another provider's annotations,
    because Anthropic would refuse them."""
    if block["type"] != "text" or not block.get("citations"):
        return block
    cited = [c for c in block["citations"] if c.get("encrypted_index") != ""]
    block = {name: value for name, value in block.items() if name != "citations"}
    return {**block, "citations": cited} if cited else block


def _with_object_input(block: dict[str, Any]) -> dict[str, Any]:
    """A call whose input is no object has it as `_raw`, like in a codec."""
    if block["type"] != "tool_use" or block.get("input") is None:
        return block
    return {**block, "input": as_object(block["input"])}


def _user_items(blocks: Sequence[Block]) -> Iterator[Item]:
    """The outputs of calls, which come first, and the user's message."""
    for block in blocks:
        if block["type"] == "tool_result":
            yield function_call_output(block["tool_use_id"], _output(block))
    parts = [
        part
        for block in blocks
        if block["type"] != "tool_result"
        for part in _input_parts(block)
    ]
    if parts:
        yield {**message("user", ""), "content": parts}


def _output(result: Block) -> list[dict[str, Any]]:
    blocks = _blocks(result.get("content"))
    parts = [part for block in blocks for part in _input_parts(block)]
    first = parts[0] if parts else {}
    text = first.get("text", "")
    if result.get("is_error") and not text.startswith(("Error:", "ERROR:")):
        others = parts[1:] if "text" in first else parts
        parts = [{"type": "input_text", "text": f"Error: {text}"}, *others]
    return parts


def _input_parts(block: Block) -> Iterator[dict[str, Any]]:
    """Raises BadRequest."""
    match block:
        case {"type": "text", "text": text}:
            yield {"type": "input_text", "text": text}
        case {"type": "search_result"}:
            yield _text_part(_heading(block, block.get("source")))
            yield from map(input_part, _blocks(block.get("content")))
        case {"type": "document", "source": {"type": "content", "content": content}}:
            if title := _heading(block, None):
                yield _text_part(title)
            yield from map(input_part, _blocks(content))
        case {"type": "tool_reference"}:
            yield _text_part(str(block["tool_name"]))
        case {"type": "container_upload"}:  # only its host has the file
            return
        case _:
            yield input_part(block)


def _heading(block: Block, address: Any) -> str:
    title = block.get("title") or address or ""
    return f"[{title}]({address})" if address else title


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "input_text", "text": text}


def input_part(block: Mapping[str, Any]) -> dict[str, Any]:
    """A block in canonical form. Raises BadRequest."""
    match block:
        case {"type": "text", "text": text}:
            return {"type": "input_text", "text": text}
        case {"type": "image", "source": {} as source}:
            return {"type": "input_image", "image_url": _address(source)}
        case {"type": "document", "source": {} as source}:
            return {"type": "input_file", **_file(source), **_file_name(block)}
    raise unknown_value(f"a block of the type {block['type']!r}", "messages")


def _address(source: Mapping[str, Any]) -> str:
    match source:
        case {"type": "url", "url": str(url)}:
            return url
        case {"type": "base64", "media_type": kind, "data": data}:
            return f"data:{kind};base64,{data}"
    raise unknown_value(f"an image by its {source.get('type')!r}", "messages")


def _file(source: Mapping[str, Any]) -> dict[str, Any]:
    match source:
        case {"type": "url", "url": str(url)}:
            return {"file_url": url}
        case {"type": "text", "data": str(text)}:
            return {"file_data": f"data:text/plain,{quote(text)}"}
        case {"type": "base64", "media_type": kind, "data": data}:
            return {"file_data": f"data:{kind};base64,{data}"}
    raise unknown_value(f"a document by its {source.get('type')!r}", "messages")


def _file_name(block: Mapping[str, Any]) -> dict[str, Any]:
    return {"filename": block["title"]} if block.get("title") else {}


def _blocks(content: Any) -> list[dict[str, Any]]:
    """The content blocks, without cache marks, which the codec sets anew."""
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    return [
        {name: value for name, value in block.items() if name != "cache_control"}
        for block in content or ()
    ]


# Tools


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    is_ours = tool.get("type") in (None, "custom")
    if not is_ours or not tool.keys() - {"type"} <= _OF_FUNCTIONS:
        return {"type": "custom", **tool}
    function = {"type": "function", "name": tool["name"]}
    if description := tool.get("description"):
        function["description"] = description
    return {**function, "parameters": tool["input_schema"]}


SEARCH_NAME = "web_search"  # of Anthropic's search, which takes no other


def search_of(tool: Mapping[str, Any]) -> dict[str, Any] | None:
    """Anthropic's search of the web as other hosts declare theirs; None for another
    tool."""
    if not _SEARCH.fullmatch(str(tool.get("type"))):
        return None
    names = ("allowed_domains", "blocked_domains")
    filters = {name: tool[name] for name in names if tool.get(name)}
    search: dict[str, Any] = {"type": "web_search"}
    if filters:
        search["filters"] = filters
    if tool.get("user_location"):
        search["user_location"] = tool["user_location"]
    return search


def _choice(choice: Mapping[str, Any]) -> str | dict[str, Any] | None:
    match choice:
        case {"type": "tool", "name": name}:
            return {"type": "function", "name": name}
        case {"type": str(kind)}:
            return _CHOICES.get(kind, kind)
    return None
