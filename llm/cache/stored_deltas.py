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
    FrameDelta,
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
    "frame": FrameDelta,
    "item": ItemDelta,
    "proof": ProofDelta,
    "reasoning": ReasoningDelta,
    "refusal": RefusalDelta,
    "start": StartDelta,
    "text": TextDelta,
    "tool_call": ToolCallDelta,
    "usage": UsageDelta,
}
#: Deltas that are stored beside an answer in its host's own bytes, which have the rest.
_BESIDE_FRAMES = (FinishDelta, StartDelta, UsageDelta)
_NAMES = {kind: name for name, kind in _KINDS.items()}


def to_json(deltas: Sequence[Delta]) -> list[dict[str, Any]]:
    """JSON objects for `from_json`. Pieces of one text are joined, and the keys of the
    provider's blocks become numbers. Raises UnicodeDecodeError."""
    if any(type(delta) is FrameDelta for delta in deltas):
        deltas = _join_frames(deltas)
    numbers: dict[Key, int] = {}
    objects = []
    for delta in merge(list(deltas)):
        fields = asdict(delta)
        fields.pop("apart", None)  # a stored answer is not billed again
        if "key" in fields:
            fields["key"] = numbers.setdefault(fields["key"], len(numbers))
        if isinstance(delta, FrameDelta):
            fields["data"] = delta.data.decode()
        objects.append({"delta": _NAMES[type(delta)], "fields": fields})
    return objects


def from_json(objects: Sequence[dict[str, Any]]) -> list[Delta]:
    return [_delta_of(_KINDS[each["delta"]], each["fields"]) for each in objects]


def _delta_of(kind: type[Delta], fields: dict[str, Any]) -> Delta:
    if kind is FrameDelta:
        return FrameDelta(fields["data"].encode(), fields["has_content"])
    return kind(**fields)


def _join_frames(deltas: Sequence[Delta]) -> list[Delta]:
    """Puts the bytes first: the kind of the first delta tells how the answer is
    stored."""
    whole = b"".join(delta.data for delta in deltas if isinstance(delta, FrameDelta))
    rest = [delta for delta in deltas if isinstance(delta, _BESIDE_FRAMES)]
    return [FrameDelta(whole, has_content=True), *rest]
