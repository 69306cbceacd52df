"""Instructions of this server around those of a client's own body.

They join the client's: hosts differ in how many system messages they take.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SYSTEM = ("developer", "system")
_FIELDS = {"anthropic": "system", "openai_responses": "instructions"}


def surround(
    api: str, fields: Mapping[str, Any], before: str = "", after: str = ""
) -> Mapping[str, Any]:
    """The body of `api` with the texts around its instructions. What is no instruction
    stays as it is, for the host to refuse."""
    if not (before or after):
        return fields
    if (name := _FIELDS.get(api)) is not None:
        return {**fields, name: _join(before, fields.get(name), after)}
    messages = fields.get("messages")
    if not isinstance(messages, list):
        return fields
    first = messages[0] if messages else None
    if isinstance(first, dict) and first.get("role") in _SYSTEM:
        joined = {**first, "content": _join(before, first.get("content"), after)}
        return {**fields, "messages": [joined, *messages[1:]]}
    added = {"role": "system", "content": _join(before, None, after)}
    return {**fields, "messages": [added, *messages]}


def _join(before: str, content: Any, after: str) -> Any:
    if isinstance(content, list):
        return [*_parts(before), *content, *_parts(after)]
    if content is None or isinstance(content, str):
        return "\n\n".join(filter(None, [before, content, after]))
    return content


def _parts(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}] if text else []
