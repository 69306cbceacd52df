"""Reader of request bodies of `POST /responses`; `Request` has the same fields.

Source: https://platform.openai.com/docs/api-reference/responses/create
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

import orjson

from llm.wire.codecs.openai_responses.codec import OpenAIResponsesCodec
from llm.wire.facades.request_reading import assistant_items, unread_fields
from llm.wire.items import Issuer, Item, user_message
from llm.wire.request import Request

_SAME = (
    "frequency_penalty",
    "max_output_tokens",
    "metadata",
    "parallel_tool_calls",
    "presence_penalty",
    "prompt_cache_key",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "temperature",
    "text",
    "tool_choice",
    "top_logprobs",
    "top_p",
)
#: `store` and `include` are set by the codec, as we keep no state at the provider.
_READ = frozenset(
    {
        *_SAME,
        "include",
        "input",
        "instructions",
        "model",
        "parley",
        "store",
        "stream",
        "tools",
    }
)


def request_of(
    body: Mapping[str, Any],
    codec: OpenAIResponsesCodec | None = None,
    issuer: Issuer | None = None,
) -> Request:
    codec = codec or OpenAIResponsesCodec()
    entries = body.get("input") or ()
    entries = [user_message(entries)] if isinstance(entries, str) else entries
    items: list[Item] = []
    for from_assistant, run in groupby(map(_with_type, entries), _is_from_assistant):
        run_items = list(run)
        items += (
            _decode_assistant(run_items, codec, issuer) if from_assistant else run_items
        )
    same: dict[str, Any] = {name: body.get(name) for name in _SAME}
    return Request(
        model=body["model"],
        items=items,
        instructions=body.get("instructions") or "",
        tools=[
            tool
            for tool in body.get("tools") or ()
            if not tool["type"].startswith("parley:")
        ],
        stream=bool(body.get("stream")),
        issuer=issuer,
        extra=unread_fields(body, _READ),
        **same,
    )


def _with_type(item: Mapping[str, Any]) -> Item:
    return {"type": "message", **item}


def _is_from_assistant(item: Item) -> bool:
    """Whether the assistant made the item, rather than a user, program or tool."""
    if item["type"] == "message":
        return bool(item["role"] == "assistant")
    return not str(item["type"]).endswith(("_output", "_response"))


def _decode_assistant(
    run: Iterable[Item], codec: OpenAIResponsesCodec, issuer: Issuer | None
) -> list[Item]:
    output = [_in_parts(item) for item in run]
    answer = {"status": "completed", "output": output}
    return assistant_items(codec.decode(orjson.dumps(answer)), issuer)


def _in_parts(item: Item) -> Item:
    """Convert the short form of a message, which has a string as content."""
    if not isinstance(content := item.get("content"), str):
        return item
    return {**item, "content": [{"type": "output_text", "text": content}]}
