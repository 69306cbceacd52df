"""Decoder of Responses answers: events, or one complete response, to deltas.

* Items are found by their ids, else by their index (`output_items`).
* `output_item.done` is authoritative for an item. Content that no delta had (text of
  servers that do not stream, arguments sent whole) is emitted then, and never twice;
  so is what only the `done` event of a part has;
  deltas of a call's arguments that disagree with it are discarded.
* The terminal event is authoritative for the rest, but its `output` may be empty
  (ChatGPT-Codex); then the streamed items count. A call that is neither in it nor in
  a `done` event is never run.
* Each finished item is its own proof and is sent back unchanged.

Source: https://platform.openai.com/docs/api-reference/responses-streaming
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeGuard

from llm.errors import BadResponse, CutOff, LLMError, ProviderDown
from llm.wire.classify_errors import classify_error
from llm.wire.codecs.event_json import parse_event_object
from llm.wire.codecs.openai_responses.item_content import (
    arguments_of,
    call_rest,
    citation_of,
    close_open_call,
    correct_arguments,
    is_cut_call,
    message_rest,
    reasoning_rest,
    receipt_of,
)
from llm.wire.codecs.openai_responses.output_items import OutputItem, OutputItems
from llm.wire.codecs.openai_responses.usage import usage_of
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
)
from llm.wire.sse import ServerSentEvent

_INCOMPLETE: dict[str, FinishReason] = {
    "max_output_tokens": "length",
    "max_messages": "length",
    "content_filter": "content_filter",
    "steered": "stop",
}
#: Events that end a part, with its type.
_PART_ENDS = {
    "response.output_text.done": "output_text",
    "response.refusal.done": "refusal",
    "response.reasoning_text.done": "reasoning_text",
    "response.reasoning.done": "reasoning_text",
    "response.reasoning_summary_text.done": "summary_text",
}
#: By the type of a part: what its deltas are noted as, and the field with all of it.
_PARTS: dict[Any, tuple[str, str]] = {
    "output_text": ("text", "text"),
    "text": ("text", "text"),
    "refusal": ("refusal", "refusal"),
    "reasoning_text": ("reasoning", "text"),
    "summary_text": ("summary", "text"),
}
#: The kinds of deltas that may have streamed a part: some hosts stream reasoning as a
#: summary and end it as text.
_ALIKE = {
    "text": {"text"},
    "refusal": {"refusal"},
    "reasoning": {"reasoning", "summary"},
    "summary": {"reasoning", "summary"},
}
_BAD_ENDS = ("failed", "cancelled", "incomplete")


@dataclass(slots=True, eq=False, repr=False)
class ResponsesDecoder:
    """Events of one response in, deltas out."""

    _items: OutputItems = field(default_factory=OutputItems)
    _current: OutputItem | None = None  # the current message or reasoning item
    _streamed: set[str] = field(default_factory=set)  # kinds of text that had deltas
    _start: StartDelta = field(default_factory=StartDelta)
    _ended: bool = False

    def feed(self, event: ServerSentEvent) -> list[Delta] | Iterator[Delta]:
        if self._ended or event.data == b"[DONE]":
            return []
        data = parse_event_object(event, self._NAMES)
        type = data.get("type")
        if type == "response.output_text.delta":  # the usual delta, without detours
            items = self._items
            item = items.by_id.get(data.get("item_id", "")) or items.get_or_add(data)
            text = data.get("delta") or ""
            if self._current is not item:
                self._go_on(item)
                self._streamed.add("text")
            item.received["text", data.get("content_index") or 0].append(text)
            return [TextDelta(item.key, text, item.phase)]
        if type in ("error", "response.error") or (
            not type and (event.event == "error" or "error" in data)
        ):
            raise _error_of(data)
        handler = self._EVENTS.get(type)
        return handler(self, data) if handler else []

    def close(self) -> list[Delta]:
        if not self._ended:
            raise CutOff(detail="The stream ended before the response was complete.")
        return []

    def answer(self, body: bytes) -> Iterator[Delta]:
        """Decode a response that was not streamed."""
        response = parse_event_object(ServerSentEvent(body))
        failed = response.get("status") == "failed"
        if not failed and (response.get("error") or "output" not in response):
            raise _error_of(response)
        yield from self._whole(response)

    def _whole(self, response: dict[str, Any]) -> Iterator[Delta]:
        """Decode a complete response: an unstreamed one, or a terminal event's."""
        self._ended = True
        yield from self._update_start(response)
        output = response.get("output")
        yield from self._emit_unsent(
            [
                fields
                for fields in (output if isinstance(output, list) else ())
                if _is_item(fields)
            ],
            is_cut=response.get("status") == "incomplete",
        )
        usage = response.get("usage")
        if usage and isinstance(usage, dict):
            yield usage_of(usage, response)
        yield self._finish(response)

    # Events

    def _on_created(self, data: dict[str, Any]) -> list[Delta]:
        response = data.get("response")
        return self._update_start(response) if isinstance(response, dict) else []

    def _on_item_added(self, data: dict[str, Any]) -> list[Delta]:
        fields = data.get("item")
        if not _is_item(fields):
            return []  # some hosts send events with a null item
        item = self._items.find_by_id(fields)
        if item and item.done and item.index != data.get("output_index", 0):
            item = None  # another item with the same id
        if item is not None and item.type:
            return []  # announced already
        if item is None:
            item = self._items.find_announced(data)
        self._items.begin(item, fields)
        match item.type:
            case "message":
                return []
            case "reasoning":
                self._current = item
                return [ReasoningDelta(item.key, "")]
            case "function_call":
                return self._announce_call(item, fields)
        return [ItemDelta(item.key, receipt_of(fields, done=False))]

    def _refusal(self, data: dict[str, Any]) -> list[Delta]:
        item = self._record_delta(data, "refusal", data.get("content_index") or 0)
        return [RefusalDelta(item.key, data.get("delta") or "")]

    def _on_annotation(self, data: dict[str, Any]) -> list[Delta]:
        if not isinstance(data.get("annotation"), dict):
            return []
        item = self._items.get_or_add(data)
        item.annotations += 1
        start = item.length_before(data.get("content_index") or 0)
        return [AnnotationDelta(item.key, citation_of(data["annotation"], start))]

    def _summary(self, data: dict[str, Any]) -> list[Delta]:
        part = data.get("summary_index") or 0
        item = self._record_delta(data, "summary", part)
        return [ReasoningDelta(item.key, data.get("delta") or "", "summary", part)]

    def _reasoning(self, data: dict[str, Any]) -> list[Delta]:
        part = data.get("content_index") or 0
        item = self._record_delta(data, "reasoning", part)
        return [ReasoningDelta(item.key, data.get("delta") or "", "text", part)]

    def _arguments(self, data: dict[str, Any]) -> list[Delta]:
        item = self._items.get_or_add(data)
        text = data.get("delta") or ""
        if item.done:
            return []
        if self._items.indexes_repeat:
            item.unsent_arguments.append(text)
            return []
        item.received["arguments", 0].append(text)
        return [ToolCallDelta(item.key, arguments=text)]

    def _arguments_done(self, data: dict[str, Any]) -> list[Delta]:
        """LM Studio sends the arguments only here."""
        item = self._items.get_or_add(data)
        whole = arguments_of(data)
        if self._items.indexes_repeat:
            item.unsent_arguments = [whole] if whole else item.unsent_arguments
            return []
        rest = item.missing("arguments", whole)
        return self._arguments({**data, "delta": rest}) if rest else []

    def _part_done(self, data: dict[str, Any]) -> list[Delta]:
        """What no delta had of a finished part, if its item is not over."""
        part = data.get("part")
        if not isinstance(part, dict):
            part = {**data, "type": _PART_ENDS.get(data["type"])}
        if (known := _PARTS.get(part.get("type"))) is None:
            return []
        kind, field = known
        in_message = kind in ("text", "refusal")
        name = "summary_index" if kind == "summary" else "content_index"
        number, whole = data.get(name) or 0, part.get(field)
        if self._streamed & _ALIKE[kind] and not self._has_deltas(data, kind, number):
            return []  # its deltas named another item or index
        item = self._items.find_of_type(data, "message" if in_message else "reasoning")
        if item is None or item.done or self._is_over(item):
            return []
        if not isinstance(whole, str) or not (
            rest := item.missing(kind, whole, number)
        ):
            return []
        item.received[kind, number].append(rest)
        self._current = item
        match kind:
            case "text":
                return [TextDelta(item.key, rest, item.phase)]
            case "refusal":
                return [RefusalDelta(item.key, rest)]
            case "summary":
                return [ReasoningDelta(item.key, rest, "summary", number)]
        return [ReasoningDelta(item.key, rest, "text", number)]

    def _has_deltas(self, data: dict[str, Any], kind: str, number: int) -> bool:
        item = self._items.find_addressed(data)
        return item is not None and (kind, number) in item.received

    def _input_done(self, data: dict[str, Any]) -> list[Delta]:
        item = self._items.find_of_type(data, "custom_tool_call")
        if item is not None and isinstance(data.get("input"), str):
            item.input = data["input"]
        return []

    def _on_item_done(self, data: dict[str, Any]) -> list[Delta]:
        fields = data.get("item")
        if not _is_item(fields):
            return []
        item = (
            self._items.find_by_id(fields)
            or self._items.find_by_index(data, fields)
            or self._items.add(data)
        )
        return [] if item.done else self._complete(item, fields)

    def _terminal(self, data: dict[str, Any]) -> Iterator[Delta]:
        """The event's type decides how the response ended: its body may repeat an
        earlier status, or none. A body may only say that it ended worse."""
        response = data.get("response")
        if not isinstance(response, dict):
            response = {"error": data.get("error")}
        status = data["type"].removeprefix("response.")
        if status in ("completed", "done"):  # "done": an early version of xAI
            own = response.get("status")
            status = own if own in _BAD_ENDS else "completed"
        return self._whole({**response, "status": status})

    _EVENTS: ClassVar[
        dict[
            Any,
            Callable[[ResponsesDecoder, dict[str, Any]], list[Delta] | Iterator[Delta]],
        ]
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
        "response.custom_tool_call_input.done": _input_done,
        "response.content_part.done": _part_done,
        "response.reasoning_summary_part.done": _part_done,
        **dict.fromkeys(_PART_ENDS, _part_done),
        "response.output_item.done": _on_item_done,
        "response.completed": _terminal,
        "response.incomplete": _terminal,
        "response.failed": _terminal,
        "response.cancelled": _terminal,
        "response.done": _terminal,
        # Other events (keepalives, progress of hosted tools) add nothing to
        # `output_item.done`.
    }

    _NAMES = frozenset({*_EVENTS, "response.output_text.delta"})

    # Items

    def _record_delta(self, data: dict[str, Any], kind: str, part: int) -> OutputItem:
        item = self._items.get_or_add(data)
        self._go_on(item)
        self._streamed.add(kind)
        item.received[kind, part].append(data.get("delta") or "")
        return item

    def _go_on(self, item: OutputItem) -> None:
        """Make `item` the current one. If another came between two of its deltas, it
        becomes several items, of which none is the host's whole one."""
        if self._current is not item:
            item.is_split = item.is_split or bool(item.received)
            self._current = item

    def _announce_call(self, item: OutputItem, fields: dict[str, Any]) -> list[Delta]:
        name = fields.get("name")
        if item.is_announced or not name:
            return []
        item.is_announced, self._current = True, None
        namespace = fields.get("namespace") or ""
        call_id = fields.get("call_id") or ""
        return [ToolCallDelta(item.key, call_id, name, namespace=namespace)]

    def _complete(
        self, item: OutputItem, fields: dict[str, Any], *, is_cut: bool = False
    ) -> list[Delta]:
        """Emit the missing content of a finished item, its proof and its end."""
        self._items.begin(item, fields)
        item.raw = fields
        proof = ProofDelta(item.key, fields)
        match item.type:
            case "message" | "reasoning" if self._is_over(item):
                deltas = []
            case "message":
                self._current, deltas = item, message_rest(item, fields)
            case "reasoning":
                self._current, deltas = item, reasoning_rest(item, fields)
            case "function_call":
                deltas = self._announce_call(item, fields) + call_rest(item, fields)
            case _:
                receipt = receipt_of(fields, done=True)
                opened = ItemDelta(item.key, receipt_of(fields, done=False))
                return [opened, proof, ItemDelta(item.key, receipt, done=True)]
        complete = fields.get("status") != "incomplete" and not is_cut
        corrected = correct_arguments(item, fields)
        if item.is_split and not fields.get("encrypted_content"):
            return [*deltas, CloseDelta(item.key, complete)]  # sent back piece by piece
        return [*deltas, proof, CloseDelta(item.key, complete, corrected)]

    def _is_over(self, item: OutputItem) -> bool:
        """True if another item has begun since: this one takes no more text.

        OpenRouter sends the reasoning's `done` event after the message's.
        """
        return bool(item.received) and self._current is not item

    # The response

    def _update_start(self, response: dict[str, Any]) -> list[Delta]:
        start = StartDelta(response.get("id") or "", response.get("model") or "")
        if start == self._start:
            return []
        self._start = start
        return [start]

    def _emit_unsent(
        self, output: list[dict[str, Any]], *, is_cut: bool
    ) -> list[Delta]:
        """Emit items of the finished response that were not streamed completely."""
        streamed, deltas = list(self._items.all), list[Delta]()
        all_done = len(streamed) >= len(output) and all(i.done for i in streamed)
        repeated: set[int] = set()
        for position, fields in enumerate(output):
            item = self._items.find_repeated(position, fields, streamed, repeated)
            if item is None and all_done and fields["type"] != "function_call":
                continue  # it was streamed with another id and index
            item = item or self._items.add({"output_index": -1})
            repeated.add(item.key)
            if not item.done:
                is_call_cut = is_cut and is_cut_call(fields)
                deltas += self._complete(item, fields, is_cut=is_call_cut)
        for item in self._items.all:
            if item.type == "function_call" and not item.done:
                deltas += close_open_call(item, complete=not output)
            elif item.type == "custom_tool_call" and not item.done:
                ended: dict[str, Any] = {"type": item.type, "status": "incomplete"}
                if item.input is not None and not output:
                    ended = {"type": item.type, "input": item.input}
                deltas.append(ItemDelta(item.key, ended, done=True))
        return deltas

    def _finish(self, response: dict[str, Any]) -> FinishDelta:
        """The finish reason. Raises LLMError if the response failed."""
        match response.get("status"):
            case None | "":
                raise CutOff(detail="The answer has no status.")
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
                calls = any(item.type == "function_call" for item in self._items.all)
                return FinishDelta("tool_calls" if calls else "stop", "completed")
            case status:  # queued, in_progress: it continues in the background
                return FinishDelta("stop", str(status))


def _is_item(fields: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(fields, dict) and isinstance(fields.get("type"), str)


def _error_of(data: dict[str, Any]) -> LLMError:
    """An error object: nested, or flat beside the event's own `type`."""
    if isinstance(data.get("error"), dict):
        return classify_error(data["error"])
    if not data.get("error") and "message" not in data:
        return BadResponse(detail="The body is neither a response nor an error.")
    return classify_error({k: v for k, v in data.items() if v != "error"})
