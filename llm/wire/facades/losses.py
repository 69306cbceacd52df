"""Parts of a request, beside options, that the API of another host cannot express.

In: the body of a request. Out: the names of fields inside it that no canonical form
has. `request_conversion.portable` names the options.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from llm.wire.facades import chat_request, messages_request
from llm.wire.facades.chat_proofs import signature_of
from llm.wire.facades.unread_fields import (
    unread_in_chat,
    unread_in_messages,
    unread_in_responses,
)
from llm.wire.forwarding.sealed_text import is_sealed

MAX_NAMES = 30  # that are reported
_MAX_NAME = 40  # characters
_THOUGHTS = ("redacted_thinking", "thinking")
_PROOFS = "reasoning.encrypted_content"  # which the server makes itself


def find_losses(api: str, body: Mapping[str, Any]) -> list[str]:
    """The names, each once; `api` is "chat", "messages" or "responses"."""
    find, find_unread = _FINDERS[api]
    return list(dict.fromkeys([*find(body), *find_unread(body)]))


def short_names(names: Iterator[str] | list[str]) -> list[str]:
    """Names for a header: clients choose some of them."""
    return [name[:_MAX_NAME] for name in names][:MAX_NAMES]


def has_seals(api: str, body: Mapping[str, Any]) -> bool:
    """Whether a client returns proofs that this server has sealed for it."""
    for message in _objects(body.get("messages")):
        if message.get("role") == "assistant":
            blocks = "reasoning_details" if api == "chat" else "content"
            if any(map(_is_sealed, _objects(message.get(blocks)))):
                return True
            calls = _objects(message.get("tool_calls"))
            if any(is_sealed(signature_of(call)) for call in calls):
                return True
    return False


def _is_sealed(block: Mapping[str, Any]) -> bool:
    return is_sealed(block.get("data")) or is_sealed(block.get("signature"))


def _is_foreign_proof(block: Mapping[str, Any]) -> bool:
    """Whether a host has proven a thought, without this server."""
    proof = block.get("data") or block.get("signature")
    return bool(proof) and not is_sealed(proof)


def _in_chat(body: Mapping[str, Any]) -> Iterator[str]:
    for message in _objects(body.get("messages")):
        if message.get("name"):
            yield "messages.name"
        if message.get("audio"):
            yield "messages.audio"
        if any(map(_is_foreign_proof, _objects(message.get("reasoning_details")))):
            yield chat_request.PROOF_FIELD
        if any("cache_control" in part for part in _objects(message.get("content"))):
            yield "cache_control"


def _in_messages(body: Mapping[str, Any]) -> Iterator[str]:
    if "cache_control" in body:
        yield "cache_control"
    for entry in (*_objects(body.get("system")), *_objects(body.get("tools"))):
        if entry.get("cache_control"):
            yield "cache_control"
    for message in _objects(body.get("messages")):
        for block in _objects(message.get("content")):
            yield from _in_block(block)
            for part in _objects(block.get("content")):
                yield from _in_block(part)


def _in_block(block: Mapping[str, Any]) -> Iterator[str]:
    if block.get("cache_control"):
        yield "cache_control"
    if block.get("type") in _THOUGHTS and _is_foreign_proof(block):
        yield messages_request.PROOF_FIELD
    if block.get("type") == "document":
        citations = block.get("citations")
        if isinstance(citations, dict) and citations.get("enabled"):
            yield "messages.citations"
        if block.get("context"):
            yield "messages.context"


def _in_responses(body: Mapping[str, Any]) -> Iterator[str]:
    if body.get("truncation") == "auto":
        yield "truncation"
    if any(each != _PROOFS for each in body.get("include") or ()):
        yield "include"


def _objects(value: Any) -> Iterator[Mapping[str, Any]]:
    for each in value if isinstance(value, list) else ():
        if isinstance(each, dict):
            yield each


_FINDERS = {
    "chat": (_in_chat, unread_in_chat),
    "messages": (_in_messages, unread_in_messages),
    "responses": (_in_responses, unread_in_responses),
}
