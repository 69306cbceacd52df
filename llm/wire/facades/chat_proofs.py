"""Proofs of a host of Chat Completions, in an answer of this same API.

In: the proof of an item, as the codec has collected it. Out: the fields of the message,
or of its call, that the host had sent and wants back; and for its next request, a
client's message with those fields only that this host knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llm.wire.codecs.openai_chat.forwarding import REASONING_FIELDS
from llm.wire.codecs.openai_chat.reasoning import BLOCK_FIELDS, OPAQUE_FIELDS

_SIGNED = "extra_content"
_FIELDS = (
    *BLOCK_FIELDS,
    *OPAQUE_FIELDS,
    _SIGNED,
    "provider_specific_fields",
)


def sealed_detail(text: str) -> dict[str, Any]:
    """A text that this server has sealed, in an entry of `reasoning_details`."""
    # OpenAI's SDK merges lists by `index`.
    return {"type": "reasoning.encrypted", "index": 0, "format": "parley", "data": text}


def signature_field(text: str) -> dict[str, Any]:
    """The field in which Google's own Chat Completions signs a call. Clients that do
    not know `reasoning_details` return it too."""
    return {_SIGNED: {"google": {"thought_signature": text}}} if text else {}


def signature_of(call: Any) -> str:
    """What a client returns in this field; "" for nothing."""
    match call:
        case {"extra_content": {"google": {"thought_signature": str(text)}}}:
            return text
    return ""


def open_fields(proofs: Mapping[str, Any], item_id: str) -> dict[str, Any]:
    raw = proofs.get(item_id)
    if not isinstance(raw, dict):  # of another API
        return {}
    return {name: raw[name] for name in _FIELDS if raw.get(name)}


def merge(message: dict[str, Any], fields: Mapping[str, Any]) -> None:
    """Add `fields` to a complete message; lists of several items become one."""
    for name, value in fields.items():
        if isinstance(value, list):
            message[name] = [*(message.get(name) or ()), *value]
        else:
            message[name] = value


def number(fields: Mapping[str, Any], taken: set[int]) -> dict[str, Any]:
    """`fields` for a stream, whose lists OpenAI's SDK merges by `index`. A block whose
    index is missing or `taken` gets another one."""
    numbered = dict(fields)
    for name in BLOCK_FIELDS:
        if name in fields:
            numbered[name] = [_number(block, taken) for block in fields[name]]
    return numbered


def _number(block: dict[str, Any], taken: set[int]) -> dict[str, Any]:
    index = block.get("index")
    if isinstance(index, int) and index not in taken:
        taken.add(index)
        return block
    free = max(taken, default=-1) + 1
    taken.add(free)
    return {**block, "index": free}


def known_fields(
    message: Mapping[str, Any], known: frozenset[str] | None
) -> Mapping[str, Any]:
    """A client's message without the proofs of other hosts; `known` are the fields of
    this one, None if it takes all."""
    if known is None or REASONING_FIELDS.isdisjoint(message):
        return message
    lost = REASONING_FIELDS - known
    return {name: value for name, value in message.items() if name not in lost}
