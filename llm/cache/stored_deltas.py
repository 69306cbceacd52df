"""Deltas of a finished answer as JSON, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from llm.wire.deltas import (
    AnnotationDelta,
    CloseDelta,
    Delta,
    FinishDelta,
    ItemDelta,
    Key,
    ProofDelta,
    ReasoningDelta,
    RefusalDelta,
    StartDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
    merge,
)

_KINDS: dict[str, type[Delta]] = {
    "annotation": AnnotationDelta,
    "close": CloseDelta,
    "finish": FinishDelta,
    "item": ItemDelta,
    "proof": ProofDelta,
    "reasoning": ReasoningDelta,
    "refusal": RefusalDelta,
    "start": StartDelta,
    "text": TextDelta,
    "tool_call": ToolCallDelta,
    "usage": UsageDelta,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def to_json(deltas: Sequence[Delta]) -> list[dict[str, Any]]:
    """JSON objects for `from_json`. Pieces of one text are joined, and the keys of the
    provider's blocks become numbers."""
    numbers: dict[Key, int] = {}
    objects = []
    for delta in merge(list(deltas)):
        fields = asdict(delta)
        fields.pop("apart", None)  # a stored answer is not billed again
        if "key" in fields:
            fields["key"] = numbers.setdefault(fields["key"], len(numbers))
        objects.append({"delta": _NAMES[type(delta)], "fields": fields})
    return objects


def from_json(objects: Sequence[dict[str, Any]]) -> list[Delta]:
    return [_KINDS[each["delta"]](**each["fields"]) for each in objects]
