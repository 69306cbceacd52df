"""Canonical items and events: the shapes of Open Responses, typed.

An item or event is the JSON that is stored, sent and replayed, so it is a plain dict. A
block that a provider wants back unchanged is in `provider_data` while the item is
inside `llm` and `conversations`; it is never part of an event.

Source: https://www.openresponses.org/specification
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any, NotRequired, TypedDict

Item = dict[str, Any]
Event = dict[str, Any]


class Issuer(TypedDict):
    """The provider, model and account that made a proof; it goes back only to these."""

    provider: str  # kind of the provider, e.g. "openai"
    model: str  # as the provider spells it
    route: str  # the account: "<provider row>:<key row>", "*" for any key


ANY_KEY = "*"

#: Field of an annotation: the words of the source, where the provider quotes them.
CITED_TEXT = "parley:cited_text"
LONGEST_QUOTATION = 1000  # characters of a source that are stored with an annotation

#: Types of calls of a client's tools.
CALLS = frozenset({"custom_tool_call", "function_call"})
#: Types of the items that answer a call.
CALL_OUTPUTS = frozenset({"custom_tool_call_output", "function_call_output"})

#: Field of a `compaction` of a host that others can read: its summary.
SUMMARY = "parley:summary"

#: Key of our own compaction items: the place of the last item that they cover.
THROUGH = "parley:through"


def add_quotation(annotation: dict[str, Any], words: Any) -> None:
    """Add the words of its source to an annotation, if the provider sent any."""
    if isinstance(words, str) and words.strip():
        annotation[CITED_TEXT] = words[:LONGEST_QUOTATION]


def proof_for(issuer: Issuer | None, item: Item) -> Any | None:
    """The raw block of `item` if a request to `issuer` may contain it, else None."""
    data = item.get("provider_data")
    if not data or issuer is None:
        return None
    return data["raw"] if is_issuer(issuer, data["issuer"]) else None


def is_issuer(issuer: Issuer, proof_issuer: Issuer) -> bool:
    """Whether `issuer` made the proof of `proof_issuer`. In a proof that a client
    stored itself, the key may be "*"."""
    if issuer == proof_issuer:
        return True
    provider, _, rest = proof_issuer["route"].partition(":")
    key, separator, codec = rest.partition(":")
    if key != ANY_KEY:
        return False
    own_provider, _, own_rest = issuer["route"].partition(":")
    own_key, own_separator, own_codec = own_rest.partition(":")
    return (
        (issuer["provider"], issuer["model"])
        == (proof_issuer["provider"], proof_issuer["model"])
        and (own_provider, own_separator, own_codec) == (provider, separator, codec)
        and own_key != ""
    )


class ProviderData(TypedDict):
    issuer: Issuer
    raw: Any  # the provider's own block(s), byte for byte as JSON values
    response_id: NotRequired[str]


#: Prefixes of item ids at OpenAI, which refuses any other prefix.
_PREFIXES = {
    "apply_patch_call": "apc",
    "code_interpreter_call": "ci",
    "compaction": "cmp",
    "computer_call": "cu",
    "custom_tool_call": "ctc",
    "file_search_call": "fs",
    "function_call": "fc",
    "image_generation_call": "ig",
    "local_shell_call": "lsh",
    "mcp_approval_request": "mcpr",
    "mcp_call": "mcp",
    "mcp_list_tools": "mcpl",
    "message": "msg",
    "reasoning": "rs",
    "shell_call": "sh",
    "tool_search_call": "tsc",
    "web_search_call": "ws",
}


def id_prefix(item_type: str) -> str:
    return _PREFIXES.get(item_type) or item_type.removesuffix("_call")


def new_id(prefix: str) -> str:
    """`prefix_` and 32 characters that sort by creation time."""
    return f"{prefix}_{time.time_ns() // 1_000_000:012x}{os.urandom(10).hex()}"


def user_message(text: str) -> Item:
    return message("user", text)


def message(role: str, text: str) -> Item:
    kind = "output_text" if role == "assistant" else "input_text"
    part: dict[str, Any] = {"type": kind, "text": text}
    if kind == "output_text":
        part |= {"annotations": [], "logprobs": []}
    return {
        "type": "message",
        "id": new_id("msg"),
        "status": "completed",
        "role": role,
        "content": [part],
    }


def function_call_output(call_id: str, output: str | list[dict[str, Any]]) -> Item:
    return {
        "type": "function_call_output",
        "id": new_id("fco"),
        "call_id": call_id,
        "output": output,
        "status": "completed",
    }


def text_of(item: Item) -> str:
    """The visible text of a message, refusals included; "" for any other item."""
    if item["type"] != "message":
        return ""
    if isinstance(item["content"], str):
        return item["content"]
    return "".join(
        part.get("text") or part.get("refusal") or "" for part in item["content"]
    )


def output_text(items: Iterable[Item]) -> str:
    """All text of the assistant in `items`."""
    return "".join(text_of(i) for i in items if i.get("role") == "assistant")


def is_compaction(item: Item) -> bool:
    """Whether it is our summary of earlier items, which names the last one that it
    covers; some providers have items of the same type."""
    return item["type"] == "compaction" and isinstance(item.get(THROUGH), Mapping)


def call_ids(items: Iterable[Item]) -> tuple[set[str], set[str]]:
    """The ids of calls, and those that have an output.

    A `custom_tool_call` without one was not meant for the client: xAI reports calls of
    its own tools so.
    """
    called: set[str] = set()
    answered: set[str] = set()
    for item in items:
        kind = item.get("type")
        if kind in CALLS:
            called.add(item["call_id"])
        elif kind in CALL_OUTPUTS:
            answered.add(item["call_id"])
    return called, answered


_STRICT_CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def is_portable_call_id(call_id: str) -> bool:
    """True if every provider accepts it; other ids are sent as `call_<hash>`."""
    return _STRICT_CALL_ID.fullmatch(call_id) is not None
