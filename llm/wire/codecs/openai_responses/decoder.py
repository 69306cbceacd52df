"""Decoder of Responses answers: events, or one complete response, to deltas.

* Items are found by `item_id`, then by `call_id`, then by `output_index`: GitHub
  Copilot changes ids with every event, OGX gives parallel calls one index. An id or
  index of an item of another type, or of another call, is ignored.
* `output_item.done` is authoritative for an item. Content that no delta had (text of
  servers that do not stream, arguments sent whole) is emitted then, and never twice;
  deltas of a call's arguments that disagree with it are discarded.
* The terminal event is authoritative for the rest, but its `output` may be empty
  (ChatGPT-Codex); then the streamed items count. A call that is neither in it nor in
  a `done` event is never run.
* Each finished item is its own proof and is sent back unchanged.

Source: https://platform.openai.com/docs/api-reference/responses-streaming
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from llm.errors import BadResponse, CutOff, LLMError, ProviderDown
from llm.wire.classify_errors import classify_error
from llm.wire.deltas import (
    AnnotationDelta,
    CloseDelta,
    Delta,
    FinishDelta,
    FinishReason,
    ItemDelta,
    ProofDelta,
    ReasoningDelta,
    RefusalDelta,
    StartDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
)
from llm.wire.items import Item
from llm.wire.sse import ServerSentEvent
from llm.wire.usage_counts import amount, count

_INCOMPLETE: dict[str, FinishReason] = {
    "max_output_tokens": "length",
    "max_messages": "length",
    "content_filter": "content_filter",
    "steered": "stop",
}
_USD_PER_TICK = 1e-10  # xAI bills in ticks


@dataclass(slots=True)
class _Item:
    """An output item as far as it has arrived."""

    key: int
    type: str = ""  # empty until the item's own event arrives
    call_id: str = ""
    is_confirmed: bool = False  # its id has occurred in a second event
    raw: dict[str, Any] | None = None  # its final form
    phase: str | None = None
    is_announced: bool = False  # the call's name has been emitted
    #: Arguments that may belong to another call, and are not emitted yet.
    unsent_arguments: list[str] = field(default_factory=list)
    annotations: int = 0  # emitted so far
    #: Text of the deltas, by kind and part.
    received: defaultdict[tuple[str, int], list[str]] = field(
        default_factory=lambda: defaultdict(list)
    )

    @property
    def done(self) -> bool:
        return self.raw is not None

    def fits(self, fields: Mapping[str, Any]) -> bool:
        """Whether `fields` may be this item.

        OpenAI changes the call_id of a tool_search_call when it is done.
        """
        if self.type != fields["type"]:
            return not self.type
        theirs = fields.get("call_id")
        is_call = self.type == "function_call" and theirs and self.call_id
        return not is_call or theirs == self.call_id

    def missing(self, kind: str, whole: str, part: int | None = None) -> str:
        """The rest of `whole` after the deltas of this kind (and part)."""
        keys = sorted(at for at in self.received if at[0] == kind)
        sent = "".join(
            "".join(self.received[at]) for at in keys if part is None or at[1] == part
        )
        return whole[len(sent) :] if whole.startswith(sent) else ""


_EventHandler = Callable[
    ["ResponsesDecoder", dict[str, Any]], list[Delta] | Iterator[Delta]
]


class ResponsesDecoder:
    """Events of one response in, deltas out."""

    def __init__(self) -> None:
        self._items: dict[int, _Item] = {}  # by output_index, the latest of each
        self._ids: dict[str, _Item] = {}  # the latest of each
        self._indexes_repeat = False  # several open items have the same index
        self._all: list[_Item] = []
        self._current: _Item | None = None  # the current message or reasoning item
        self._start = StartDelta()
        self._ended = False

    def feed(self, event: ServerSentEvent) -> list[Delta] | Iterator[Delta]:
        if self._ended or event.data == b"[DONE]":
            return []
        data = _json(event)
        type = data.get("type")
        if type == "response.output_text.delta":  # the usual delta, without detours
            item = self._ids.get(data.get("item_id", "")) or self._item(data)
            text = data.get("delta") or ""
            item.received["text", data.get("content_index", 0)].append(text)
            self._current = item
            return [TextDelta(item.key, text, item.phase)]
        if type == "error" or (
            not type and (event.event == "error" or "error" in data)
        ):
            raise _error_of(data)
        handler = self._EVENTS.get(type)
        return handler(self, data) if handler else []

    def close(self) -> list[Delta]:
        if not self._ended:
            raise CutOff(detail="The stream ended before the response did.")
        return []

    def answer(self, body: bytes) -> Iterator[Delta]:
        """Decode a response that was not streamed."""
        response = _json(ServerSentEvent(body))
        failed = response.get("status") == "failed"
        if not failed and (response.get("error") or "output" not in response):
            raise _error_of(response)
        yield from self._whole(response)

    def _whole(self, response: dict[str, Any]) -> Iterator[Delta]:
        """Decode a complete response: an unstreamed one, or a terminal event's."""
        self._ended = True
        yield from self._update_start(response)
        yield from self._emit_unsent(response.get("output") or [])
        usage = response.get("usage")
        if usage and isinstance(usage, dict):
            yield _usage(usage)
        yield self._finish(response)

    # Events

    def _on_created(self, data: dict[str, Any]) -> list[Delta]:
        return self._update_start(data["response"])

    def _on_item_added(self, data: dict[str, Any]) -> list[Delta]:
        fields = data.get("item")
        if not fields or "type" not in fields:
            return []  # some hosts send events with a null item
        item = self._find_by_id(fields)
        if item is not None and item.type:
            return []  # announced already
        if item is None:
            item = self._find_announced(data)
        self._begin(item, fields)
        match item.type:
            case "message":
                return []
            case "reasoning":
                self._current = item
                return [ReasoningDelta(item.key, "")]
            case "function_call":
                return self._announce_call(item, fields)
        return [ItemDelta(item.key, _receipt(fields, done=False))]

    def _refusal(self, data: dict[str, Any]) -> list[Delta]:
        item = self._record_delta(data, "refusal", data.get("content_index", 0))
        self._current = item
        return [RefusalDelta(item.key, data.get("delta") or "")]

    def _on_annotation(self, data: dict[str, Any]) -> list[Delta]:
        item = self._item(data)
        item.annotations += 1
        return [AnnotationDelta(item.key, _annotation(data["annotation"]))]

    def _summary(self, data: dict[str, Any]) -> list[Delta]:
        part = data.get("summary_index", 0)
        item = self._record_delta(data, "summary", part)
        self._current = item
        return [ReasoningDelta(item.key, data.get("delta") or "", "summary", part)]

    def _reasoning(self, data: dict[str, Any]) -> list[Delta]:
        part = data.get("content_index", 0)
        item = self._record_delta(data, "reasoning", part)
        self._current = item
        return [ReasoningDelta(item.key, data.get("delta") or "", "text", part)]

    def _arguments(self, data: dict[str, Any]) -> list[Delta]:
        item = self._item(data)
        text = data.get("delta") or ""
        if item.done:
            return []
        if self._indexes_repeat:
            item.unsent_arguments.append(text)
            return []
        item.received["arguments", 0].append(text)
        return [ToolCallDelta(item.key, arguments=text)]

    def _arguments_done(self, data: dict[str, Any]) -> list[Delta]:
        """LM Studio sends the arguments only here."""
        item = self._item(data)
        whole = data.get("arguments") or ""
        if self._indexes_repeat:
            item.unsent_arguments = [whole] if whole else item.unsent_arguments
            return []
        rest = item.missing("arguments", whole)
        return self._arguments({**data, "delta": rest}) if rest else []

    def _on_item_done(self, data: dict[str, Any]) -> list[Delta]:
        fields = data.get("item")
        if not fields or "type" not in fields:
            return []
        item = (
            self._find_by_id(fields)
            or self._find_by_index(data, fields)
            or self._new(data)
        )
        return [] if item.done else self._complete(item, fields)

    def _terminal(self, data: dict[str, Any]) -> Iterator[Delta]:
        status = data["type"].removeprefix("response.")
        status = "completed" if status == "done" else status  # an early version of xAI
        return self._whole({"status": status, **data["response"]})

    _EVENTS: dict[
        Any,
        Callable[[ResponsesDecoder, dict[str, Any]], list[Delta] | Iterator[Delta]],
    ] = {
        "response.created": _on_created,
        "response.queued": _on_created,
        "response.in_progress": _on_created,
        "response.output_item.added": _on_item_added,
        "response.refusal.delta": _refusal,
        "response.output_text.annotation.added": _on_annotation,
        "response.reasoning_summary_text.delta": _summary,
        "response.reasoning_text.delta": _reasoning,
        "response.reasoning.delta": _reasoning,
        "response.function_call_arguments.delta": _arguments,
        "response.function_call_arguments.done": _arguments_done,
        "response.output_item.done": _on_item_done,
        "response.completed": _terminal,
        "response.incomplete": _terminal,
        "response.failed": _terminal,
        "response.cancelled": _terminal,
        "response.done": _terminal,
        # Other events (keepalives, progress of hosted tools, `*.done` of parts) add
        # nothing to `output_item.done`.
    }

    # Items

    def _new(self, data: Mapping[str, Any]) -> _Item:
        item = _Item(len(self._all))
        self._all.append(item)
        self._items[data.get("output_index", 0)] = item
        if id := _name(data, "item_id"):
            self._ids[id] = item
        return item

    def _item(self, data: Mapping[str, Any]) -> _Item:
        """The item that an event without its own `item` refers to."""
        id = _name(data, "item_id")
        if id and (item := self._ids.get(id)):
            item.is_confirmed = True
            return item
        item = self._items.get(data.get("output_index", 0))
        if item is None or (id and item.is_confirmed and item.type):
            return self._new(data)  # that item has another, stable id
        return item

    def _find_by_id(self, fields: Mapping[str, Any]) -> _Item | None:
        """The item that `fields` describes, found by its id or its call id."""
        item = self._ids.get(_name(fields, "id"))
        if item is not None and item.fits(fields):
            item.is_confirmed = True
            return item
        if call_id := _name(fields, "call_id"):
            same = (each for each in self._all if each.call_id == call_id)
            return next((each for each in same if each.fits(fields)), None)
        return None

    def _find_by_index(
        self, data: Mapping[str, Any], fields: Mapping[str, Any]
    ) -> _Item | None:
        item = self._items.get(data.get("output_index", 0))
        if item is None or not item.fits(fields):
            return None
        if item.raw is not None:
            return item if _same(item.raw, fields) else None
        is_another = item.is_confirmed and item.type and fields.get("id")
        return None if is_another else item

    def _find_announced(self, data: Mapping[str, Any]) -> _Item:
        """The item for an `added` event; deltas may have created it already."""
        item = self._items.get(data.get("output_index", 0))
        if item is None:
            return self._new(data)
        if not item.type and item.fits(data["item"]):
            return item
        self._indexes_repeat |= not item.done and item.type == "function_call"
        return self._new(data)

    def _record_delta(self, data: dict[str, Any], kind: str, part: int) -> _Item:
        item = self._item(data)
        item.received[kind, part].append(data.get("delta") or "")
        return item

    def _begin(self, item: _Item, fields: dict[str, Any]) -> None:
        item.type = fields["type"]
        if id := _name(fields, "id"):
            self._ids[id] = item
        item.call_id = _name(fields, "call_id") or item.call_id
        item.phase = fields.get("phase") or item.phase

    def _announce_call(self, item: _Item, fields: dict[str, Any]) -> list[Delta]:
        name = fields.get("name")
        if item.is_announced or not name:
            return []
        item.is_announced, self._current = True, None
        return [ToolCallDelta(item.key, fields.get("call_id") or "", name)]

    def _complete(self, item: _Item, fields: dict[str, Any]) -> list[Delta]:
        """Emit the missing content of a finished item, its proof and its end."""
        self._begin(item, fields)
        item.raw = fields
        proof = ProofDelta(item.key, fields)
        match item.type:
            case "message":
                deltas = self._message_rest(item, fields)
            case "reasoning":
                deltas = self._reasoning_rest(item, fields)
            case "function_call":
                deltas = self._call_rest(item, fields)
            case _:
                receipt = _receipt(fields, done=True)
                opened = ItemDelta(item.key, _receipt(fields, done=False))
                return [opened, proof, ItemDelta(item.key, receipt, done=True)]
        complete = fields.get("status") != "incomplete"
        corrected = _correct_arguments(item, fields)
        return [*deltas, proof, CloseDelta(item.key, complete, corrected)]

    def _is_over(self, item: _Item) -> bool:
        """True if another item has begun since: this one takes no more text.

        OpenRouter sends the reasoning's `done` event after the message's.
        """
        return bool(item.received) and self._current is not item

    def _message_rest(self, item: _Item, fields: dict[str, Any]) -> list[Delta]:
        if self._is_over(item):
            return []
        parts = fields.get("content") or []
        if isinstance(parts, str):
            parts = [{"type": "output_text", "text": parts}]
        texts = [part for part in parts if part.get("type") == "output_text"]
        text = item.missing("text", "".join(part.get("text") or "" for part in texts))
        refusal = item.missing(
            "refusal", "".join(part.get("refusal") or "" for part in parts)
        )
        deltas: list[Delta] = []
        if text or not item.received:  # an empty message is still a message
            deltas.append(TextDelta(item.key, text, item.phase))
        if refusal:
            deltas.append(RefusalDelta(item.key, refusal))
        notes = [note for part in texts for note in part.get("annotations") or []]
        for note in notes[item.annotations :]:
            deltas.append(AnnotationDelta(item.key, _annotation(note)))
        self._current = item
        return deltas

    def _reasoning_rest(self, item: _Item, fields: dict[str, Any]) -> list[Delta]:
        if self._is_over(item):
            return []
        self._current = item
        deltas: list[Delta] = [] if item.received else [ReasoningDelta(item.key, "")]
        for index, part in enumerate(fields.get("summary") or []):
            if rest := item.missing("summary", part.get("text") or "", index):
                deltas.append(ReasoningDelta(item.key, rest, "summary", index))
        content = fields.get("content") or []
        raw = "".join(part.get("text") or "" for part in content)
        if rest := item.missing("reasoning", raw):
            deltas.append(ReasoningDelta(item.key, rest))
        return deltas

    def _call_rest(self, item: _Item, fields: dict[str, Any]) -> list[Delta]:
        deltas = self._announce_call(item, fields)
        whole = fields.get("arguments") or "".join(item.unsent_arguments)
        if rest := item.missing("arguments", whole):
            item.received["arguments", 0].append(rest)
            deltas.append(ToolCallDelta(item.key, arguments=rest))
        return deltas

    # The response

    def _update_start(self, response: dict[str, Any]) -> list[Delta]:
        start = StartDelta(response.get("id") or "", response.get("model") or "")
        if start == self._start:
            return []
        self._start = start
        return [start]

    def _emit_unsent(self, output: list[dict[str, Any]]) -> list[Delta]:
        """Emit items of the finished response that were not streamed completely."""
        streamed, deltas = list(self._all), list[Delta]()
        all_done = len(streamed) >= len(output) and all(i.done for i in streamed)
        repeated: list[_Item] = []
        for position, fields in enumerate(output):
            item = self._find_repeated(position, fields, streamed, repeated)
            if item is None and all_done and fields["type"] != "function_call":
                continue  # it was streamed with another id and index
            item = item or self._new({"output_index": -1})
            repeated.append(item)
            if not item.done:
                deltas += self._complete(item, fields)
        for item in self._all:
            if item.type == "function_call" and not item.done:
                deltas += self._close_open_call(item, complete=not output)
        return deltas

    def _find_repeated(
        self,
        position: int,
        fields: dict[str, Any],
        streamed: list[_Item],
        repeated: list[_Item],
    ) -> _Item | None:
        """The streamed item that equals `fields`, by its ids, else by its position."""
        if (item := self._find_by_id(fields)) is not None and item not in repeated:
            return item
        if position < len(streamed):
            item = streamed[position]
            if item.fits(fields) and item not in repeated:
                return item
        return None

    def _close_open_call(self, item: _Item, *, complete: bool) -> list[Delta]:
        """Close a call without a `done` event: some hosts send none; else it was cut
        off."""
        deltas: list[Delta] = []
        if item.unsent_arguments:
            deltas.append(
                ToolCallDelta(item.key, arguments="".join(item.unsent_arguments))
            )
        if not complete:
            deltas.append(CloseDelta(item.key, complete=False))
        return deltas

    def _finish(self, response: dict[str, Any]) -> FinishDelta:
        """The finish reason. Raises LLMError if the response failed."""
        match response.get("status") or "completed":
            case "failed":
                raise _error_of(response)
            case "cancelled":
                raise ProviderDown(detail="The provider cancelled the response.")
            case "incomplete":
                details = response.get("incomplete_details")
                reason = details.get("reason") if isinstance(details, dict) else None
                meaning = _INCOMPLETE.get(str(reason), "length")
                return FinishDelta(meaning, "incomplete")
            case "completed":
                calls = any(item.type == "function_call" for item in self._all)
                return FinishDelta("tool_calls" if calls else "stop", "completed")
            case status:  # queued, in_progress: it continues in the background
                return FinishDelta("stop", str(status))


def _json(event: ServerSentEvent) -> dict[str, Any]:
    try:
        data = event.json()
    except ValueError as exc:
        raise BadResponse(detail="What came is no JSON.") from exc
    if not isinstance(data, dict):
        raise BadResponse(detail="What came is no JSON object.")
    return data


def _error_of(data: dict[str, Any]) -> LLMError:
    """An error object: nested, or flat beside the event's own `type`."""
    if isinstance(data.get("error"), dict):
        return classify_error(data["error"])
    if not data.get("error") and "message" not in data:
        return BadResponse(detail="The answer is neither a response nor an error.")
    return classify_error({k: v for k, v in data.items() if v != "error"})


def _name(fields: Mapping[str, Any], kind: str) -> str:
    """An id; "" if it is missing or not a string."""
    value = fields.get(kind)
    return value if isinstance(value, str) else ""


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether both are the same item except for the id."""
    return {**one, "id": ""} == {**other, "id": ""}


def _correct_arguments(item: _Item, fields: Mapping[str, Any]) -> str | None:
    """The arguments of a call if its deltas were different, else None."""
    whole: str | None = fields.get("arguments")
    sent = "".join(item.received.get(("arguments", 0), ()))
    if item.type != "function_call" or not whole or whole == sent:
        return None
    try:
        return None if orjson.loads(whole) == orjson.loads(sent) else whole
    except (orjson.JSONDecodeError, TypeError):
        return whole


def _annotation(annotation: Any) -> Any:
    """Fill in the positions that the standard requires and xAI omits for some pages."""
    if not isinstance(annotation, dict) or annotation.get("type") != "url_citation":
        return annotation
    whole = {"start_index": 0, "end_index": 0, "title": ""}
    return {**whole, **{k: v for k, v in annotation.items() if v is not None}}


def _receipt(fields: dict[str, Any], *, done: bool) -> Item:
    """A hosted tool's item without the provider's id, as clients receive it."""
    item = {k: v for k, v in fields.items() if k not in ("id", "status")}
    if done and fields.get("status") in ("incomplete", "failed"):
        item["status"] = fields["status"]
    return item


def _usage(usage: dict[str, Any]) -> UsageDelta:
    read = usage.get("input_tokens_details")
    written = usage.get("output_tokens_details")
    cost = amount(usage, "cost")
    if (ticks := amount(usage, "cost_in_usd_ticks")) is not None:
        cost = ticks * _USD_PER_TICK
    prompt, output = count(usage, "input_tokens"), count(usage, "output_tokens")
    total = count(usage, "total_tokens")
    if output is not None and total is not None:  # some tokens are only in the total
        output = max(output, total - (prompt or 0))
    return UsageDelta(
        input_tokens=prompt,
        output_tokens=output,
        cached_tokens=count(read, "cached_tokens"),
        cache_write_tokens=count(read, "cache_write_tokens"),
        reasoning_tokens=count(written, "reasoning_tokens"),
        cost=cost,
        raw=usage,
    )
