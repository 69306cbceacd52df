"""What of a conversation does not reach this provider. Pure.

In: the request as it goes to its codec. Out: names for `degraded`. Codecs leave out
what means nothing to their host: thoughts and receipts that another provider signed,
marks that only one API has. None of it costs an answer, and all of it is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from llm.wire.codec import Codec
from llm.wire.items import Item
from llm.wire.request import Request

REASONING = "input (reasoning of another model)"
RECEIPTS = "input (what another provider's tools found)"
PHASES = "input (phases of messages)"
SOURCES = "input (sources of another model's text)"
SHOWN_LATER = "input (images of tools, shown after their outputs)"

_SPOKEN = frozenset({"message", "function_call", "custom_tool_call"})


def losses(request: Request, codec: Codec) -> list[str]:
    """Each once, in the order in which they are found."""
    takes_phases = "phase" in getattr(codec, "options", ())
    by_text = codec.name.startswith("openai_chat")
    found = dict.fromkeys(
        name
        for item in request.items
        for name in _of(item, request, takes_phases, by_text)
    )
    return list(found)


def _of(
    item: Item, request: Request, takes_phases: bool, by_text: bool
) -> Iterator[str]:
    kind = item.get("type", "message")
    if by_text and kind == "function_call_output" and _has_media(item["output"]):
        yield SHOWN_LATER
    if request.proof(item) is not None:
        return
    if kind == "reasoning":
        if item.get("provider_data") or item.get("summary") or item.get("content"):
            yield REASONING
    elif kind.endswith("_call") and kind not in _SPOKEN and "provider_data" in item:
        yield RECEIPTS
    elif kind == "message" and item.get("role") == "assistant":
        if item.get("phase") and not takes_phases:
            yield PHASES
        if _has_sources(item):
            yield SOURCES


def _has_media(output: Any) -> bool:
    return isinstance(output, list) and any(
        part.get("type") in ("input_image", "input_file") for part in output
    )


def _has_sources(item: Mapping[str, Any]) -> bool:
    content = item.get("content")
    return isinstance(content, list) and any(
        part.get("annotations") for part in content
    )
