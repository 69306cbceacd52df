"""Content of finished items that no delta had: text, reasoning, arguments, receipts.

In: an item and its final fields. Out: the deltas that are missing, so that nothing is
emitted twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from llm.wire.codecs.openai_responses.output_items import OutputItem
from llm.wire.deltas import (
    AnnotationDelta,
    CloseDelta,
    Delta,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
)
from llm.wire.items import CITED_TEXT, Item, add_quotation

_TEXTS = ("output_text", "text")
_POSITIONS = ("start_index", "end_index")


def message_rest(item: OutputItem, fields: dict[str, Any]) -> list[Delta]:
    parts = _parts(fields.get("content"), "output_text")
    if not item.received and not item.annotations:
        return _whole_message(item, parts)
    texts = [part for part in parts if part.get("type") in _TEXTS]
    text = item.missing("text", "".join(part.get("text") or "" for part in texts))
    refusal = item.missing(
        "refusal", "".join(part.get("refusal") or "" for part in parts)
    )
    deltas: list[Delta] = []
    if text:
        deltas.append(TextDelta(item.key, text, item.phase))
    if refusal:
        deltas.append(RefusalDelta(item.key, refusal))
    notes: list[Delta] = []
    start = 0
    for part in texts:
        notes += _citations(item, part, start)
        start += len(part.get("text") or "")
    return deltas + notes[item.annotations :]


def _whole_message(item: OutputItem, parts: list[dict[str, Any]]) -> list[Delta]:
    """A message that was not streamed, with its parts in their order. Texts between
    refusals become one."""
    deltas: list[Delta] = []
    start = 0
    for part in parts:
        if part.get("type") in _TEXTS:
            text = part.get("text") or ""
            deltas.append(TextDelta(item.key, text, item.phase))
            deltas += _citations(item, part, start)
            start += len(text)
        elif refusal := part.get("refusal"):
            # Only a text names the phase.
            opening = [] if deltas else [TextDelta(item.key, "", item.phase)]
            deltas += [*opening, RefusalDelta(item.key, refusal)]
            start = 0
    # An empty message is still a message.
    return deltas or [TextDelta(item.key, "", item.phase)]


def _citations(item: OutputItem, part: dict[str, Any], start: int) -> list[Delta]:
    notes = part.get("annotations")
    return [
        AnnotationDelta(item.key, citation_of(note, start))
        for note in (notes if isinstance(notes, list) else ())
        if isinstance(note, dict)
    ]


def _parts(value: Any, type: str) -> list[dict[str, Any]]:
    """The parts of a content or summary, which may be one text. What is no part is
    left out."""
    if isinstance(value, str):
        return [{"type": type, "text": value}]
    parts = value if isinstance(value, list) else ()
    return [part for part in parts if isinstance(part, dict)]


def reasoning_rest(item: OutputItem, fields: dict[str, Any]) -> list[Delta]:
    deltas: list[Delta] = [] if item.received else [ReasoningDelta(item.key, "")]
    for index, part in enumerate(_parts(fields.get("summary"), "summary_text")):
        if rest := item.missing("summary", part.get("text") or "", index):
            deltas.append(ReasoningDelta(item.key, rest, "summary", index))
    content = _parts(fields.get("content"), "reasoning_text")
    raw = "".join(part.get("text") or "" for part in content)
    if rest := item.missing("reasoning", raw):
        deltas.append(ReasoningDelta(item.key, rest))
    return deltas


def arguments_of(fields: Mapping[str, Any]) -> str:
    """The arguments as JSON text; some hosts send the object itself."""
    value = fields.get("arguments")
    if value is None or isinstance(value, str):
        return value or ""
    return orjson.dumps(value).decode()


def call_rest(item: OutputItem, fields: dict[str, Any]) -> list[Delta]:
    whole = arguments_of(fields) or "".join(item.unsent_arguments)
    if not (rest := item.missing("arguments", whole)):
        return []
    item.received["arguments", 0].append(rest)
    return [ToolCallDelta(item.key, arguments=rest)]


def close_open_call(item: OutputItem, *, complete: bool) -> list[Delta]:
    """Close a call without a `done` event: hosts send none, or it was cut off."""
    deltas: list[Delta] = []
    if item.unsent_arguments:
        deltas.append(ToolCallDelta(item.key, arguments="".join(item.unsent_arguments)))
    if not complete:
        deltas.append(CloseDelta(item.key, complete=False))
    return deltas


def is_cut_call(fields: Mapping[str, Any]) -> bool:
    """Whether a call of a response that was cut off was cut too: it has no status,
    and its arguments are no JSON."""
    if fields["type"] != "function_call" or fields.get("status"):
        return False
    try:
        orjson.loads(arguments_of(fields))
    except orjson.JSONDecodeError:
        return True
    return False


def correct_arguments(item: OutputItem, fields: Mapping[str, Any]) -> str | None:
    """The arguments of a call if its deltas were different, else None."""
    whole = arguments_of(fields)
    sent = "".join(item.received.get(("arguments", 0), ()))
    if item.type != "function_call" or not whole or whole == sent:
        return None
    try:
        return None if orjson.loads(whole) == orjson.loads(sent) else whole
    except (orjson.JSONDecodeError, TypeError):
        return whole


def citation_of(annotation: dict[str, Any], start: int = 0) -> dict[str, Any]:
    """Fill in the positions that the standard requires and xAI omits for some pages,
    and count them from `start`, where the annotation's part begins.
    A quotation of another Parley is checked as those of other hosts are."""
    if start:
        spans = {n: v for n in _POSITIONS if isinstance(v := annotation.get(n), int)}
        annotation = {**annotation, **{n: v + start for n, v in spans.items()}}
    if CITED_TEXT in annotation:
        words = annotation[CITED_TEXT]
        annotation = {k: v for k, v in annotation.items() if k != CITED_TEXT}
        add_quotation(annotation, words)
    if annotation.get("type") != "url_citation":
        return annotation
    whole = {"start_index": 0, "end_index": 0, "title": ""}
    return {**whole, **{k: v for k, v in annotation.items() if v is not None}}


def receipt_of(fields: dict[str, Any], *, done: bool) -> Item:
    """A hosted tool's item without the provider's id, as clients receive it."""
    item = {k: v for k, v in fields.items() if k not in ("id", "status")}
    if done and fields.get("status") in ("incomplete", "failed"):
        item["status"] = fields["status"]
    return item
