"""Switches for hosts that differ from what their kind expects of Chat Completions.

In: a codec, and switches by name. Out: the codec that encodes and decodes accordingly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec


@dataclass(frozen=True, slots=True)
class Quirk:
    description: str  # of the switch that is on
    fields: Callable[[bool], dict[str, Any]]  # of `HostOptions`


QUIRKS: Mapping[str, Quirk] = {
    "max_completion_tokens": Quirk(
        "the limit of output tokens is sent as max_completion_tokens",
        lambda on: {
            "max_tokens_field": "max_completion_tokens" if on else "max_tokens"
        },
    ),
    "stream_options": Quirk(
        "token counts of a stream are requested by stream_options",
        lambda on: {"stream_options": {"include_usage": True} if on else {}},
    ),
    "developer_role": Quirk(
        "instructions have the role developer",
        lambda on: {"system_role": "developer" if on else "system"},
    ),
    "one_system_message": Quirk(
        "all instructions are one message, in front",
        lambda on: {"merge_system": on},
    ),
    "image_urls": Quirk(
        "images may be sent as addresses", lambda on: {"image_urls": on}
    ),
    "files": Quirk("files may be sent", lambda on: {"files": on}),
    "tool_choice": Quirk(
        "tool_choice may be sent", lambda on: {"takes_tool_choice": on}
    ),
    "strict_tools": Quirk(
        "strict may be sent with a tool", lambda on: {"strict_tools": on}
    ),
    "inline_refs": Quirk(
        "references in schemas are expanded", lambda on: {"inline_refs": on}
    ),
    "think_tags": Quirk(
        "reasoning arrives in the text, between <think> tags",
        lambda on: {"think_tags": on},
    ),
    "think_begun": Quirk(
        "the text begins with reasoning, up to </think>; the prompt has <think>",
        lambda on: {"think_begun": on} | ({"think_tags": True} if on else {}),
    ),
}


def apply_quirks(codec: OpenAIChatCodec, switches: Mapping[str, bool]) -> Any:
    fields: dict[str, Any] = {"switched": frozenset(switches)}
    for name, is_on in switches.items():
        fields |= QUIRKS[name].fields(is_on)
    return replace(codec, **fields)


def quirk_problem(switches: Any) -> str:
    """Validation error of the switches; "" for none."""
    if not isinstance(switches, dict):
        return "'quirks' must be an object of names and true or false."
    for name, value in switches.items():
        if name not in QUIRKS:
            return f"There is no quirk {name!r}; use {', '.join(QUIRKS)}."
        if not isinstance(value, bool):
            return f"The quirk {name!r} must be true or false."
    return ""
