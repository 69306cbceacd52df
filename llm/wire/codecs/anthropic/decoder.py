"""Decoder of Messages answers: events, or one complete message, to deltas.

Theory of operation: a message is a list of content blocks, each of which starts, grows
and ends. Most blocks are an item of their own. Neighbouring text blocks, into which
citations split a sentence, are one message; a hosted tool's call and its result are one
receipt; and a block without visible content (the switch to a fallback model, for
example) is added to the proof of the item before it, or of the first one. Each item's
proof is its original blocks, so the proofs of all items, one after another, are the
answer's `content`.

Usage counts are totals, of which the last that is not null counts. The finish reason is
emitted with the last event, or at the end of the bytes if the stop reason has arrived.

Source: https://platform.claude.com/docs/en/build-with-claude/streaming
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import orjson

from llm.errors import BadResponse, CutOff
from llm.wire.classify_errors import classify_error
from llm.wire.codecs.anthropic.blocks import Block, usage_of
from llm.wire.codecs.anthropic.computer_use import computer_call, is_action
from llm.wire.codecs.anthropic.receipts import (
    call_receipt,
    citation,
    compaction_item,
    finish_receipt,
    receipt_without_call,
    tool_list_item,
)
from llm.wire.deltas import (
    NATURAL_ENDS,
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
from llm.wire.items import Item
from llm.wire.sse import ServerSentEvent

#: The stop reason of a turn that continues once its content is sent back.
PAUSED = "pause_turn"

_FINISH: dict[str, FinishReason] = {
    PAUSED: "pause",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}
_REFUSED = "The model declined to answer this request."
_REFUSAL = "refusal"  # the key of the refusal's item


class AnthropicDecoder:
    """Decodes one answer. An item's key is the index of its first block."""

    __slots__ = (
        "_blocks",
        "_container",
        "_details",
        "_ended",
        "_has_text",
        "_latest",
        "_leading_blocks",
        "_length",
        "_message",
        "_proof_blocks",
        "_receipts",
        "_stop",
        "_unreadable_calls",
        "_usage",
    )

    def __init__(self) -> None:
        self._blocks: dict[int, Block] = {}  # open blocks, by index
        self._message: int | None = None  # key of the message being written
        self._length = 0  # characters of its ended blocks
        self._has_text = False
        self._receipts: dict[str, tuple[int, Item]] = {}  # without a result, by call id
        self._latest: int | None = None  # the item whose proof takes further blocks
        self._proof_blocks: list[dict[str, Any]] = []  # blocks of its proof
        self._leading_blocks: list[dict[str, Any]] = []  # blocks before the first item
        self._unreadable_calls: list[int] = []  # calls whose input is not an object
        self._container: str | None = None
        self._usage: dict[str, Any] = {}
        self._stop: str | None = None
        self._details: dict[str, Any] = {}
        self._ended = False

    def feed(self, event: ServerSentEvent) -> Iterable[Delta]:
        """Raises LLMError for an error inside the stream."""
        if self._ended or event.data.startswith(b"[DONE]"):
            return ()  # routers end with a line that is not part of this format
        data = _json(event)
        type = data.get("type")
        if type == "content_block_delta":
            delta = data["delta"]
            if delta["type"] == "text_delta":  # the usual delta, without detours
                block, text = self._blocks[data["index"]], delta.get("text") or ""
                block.pieces.append(text)
                return (TextDelta(block.key, text),) if text else ()
            return self._piece(self._blocks[data["index"]], delta)
        if type == "error" or event.event == "error":
            raise classify_error(data)
        handler = self._EVENTS.get(type)
        return handler(self, data) if handler else ()

    def match_plain_text(self, data: Any) -> tuple[str, Callable[[str], Delta]] | None:
        """See `codec.PlainTextMatcher`."""
        match data:
            case {
                "type": "content_block_delta",
                "index": int(index),
                "delta": {"type": "text_delta", "text": str(text)},
            } if index in self._blocks:
                return text, self._blocks[index].append_text
        return None

    def close(self) -> Iterator[Delta]:
        """Raises ProviderDown if the answer is not complete."""
        if self._ended:
            return
        if self._stop is None:
            raise CutOff(detail="The stream ended before its stop_reason.")
        yield from self._finish()

    def answer(self, body: dict[str, Any]) -> Iterator[Delta]:
        """Decode a complete message. Raises LLMError if the body is an error
        instead."""
        content = body.get("content")
        if body.get("type") == "error" or (content is None and "error" in body):
            raise classify_error(body)
        if not isinstance(content, list):
            raise BadResponse(detail="An answer without content.")
        yield from self._on_message_start({"message": body})
        for index, block in enumerate(content):
            yield from self._begin(index, block)
            yield from self._end(index)
        self._note_stop_reason(body)
        self._note_details(body)
        yield from self._finish()

    # Events

    def _on_message_start(self, data: dict[str, Any]) -> Iterator[Delta]:
        message = data["message"]
        yield StartDelta(message.get("id") or "", message.get("model") or "")
        yield from self._update_usage(message.get("usage"))

    def _on_block_start(self, data: dict[str, Any]) -> Iterator[Delta]:
        return self._begin(data["index"], data["content_block"])

    def _on_block_stop(self, data: dict[str, Any]) -> Iterator[Delta]:
        return self._end(data["index"])

    def _on_message_delta(self, data: dict[str, Any]) -> Iterator[Delta]:
        delta = data.get("delta") or {}
        self._note_stop_reason(delta)
        self._note_details(delta)
        yield from self._update_usage(data.get("usage"))

    def _on_message_stop(self, data: dict[str, Any]) -> Iterator[Delta]:
        return self._finish()

    _EVENTS: dict[
        Any, Callable[[AnthropicDecoder, dict[str, Any]], Iterator[Delta]]
    ] = {
        "message_start": _on_message_start,
        "content_block_start": _on_block_start,
        "content_block_stop": _on_block_stop,
        "message_delta": _on_message_delta,
        "message_stop": _on_message_stop,
        # Other events (ping, and future types) hold no data that we use.
    }

    # Blocks

    def _begin(self, index: int, raw: dict[str, Any]) -> Iterator[Delta]:
        block = self._blocks[index] = Block(index, raw)
        if raw["type"] == "text":
            if self._message is None:
                self._message, self._length = index, 0
            block.key = self._message
            if text := raw.get("text"):
                yield from self._piece(block, {"type": "text_delta", "text": text})
            return
        yield from self._end_message()
        match raw["type"]:
            case "thinking":
                block.pieces.append(raw.get("thinking") or "")
                yield ReasoningDelta(index, block.pieces[0], "summary")
            case "tool_use" if not is_action(raw):
                yield ToolCallDelta(index, raw["id"], raw["name"])

    def _piece(self, block: Block, delta: dict[str, Any]) -> Iterator[Delta]:
        """Decode a block's delta; after one of unknown type the block is not whole."""
        raw = block.raw
        match delta["type"]:
            case "text_delta":
                text = delta.get("text") or ""
                block.pieces.append(text)
                if text:
                    yield TextDelta(block.key, text)
            case "input_json_delta":
                text = delta.get("partial_json") or ""
                block.pieces.append(text)
                is_call = raw["type"] == "tool_use" and not is_action(raw)
                if is_call and text:
                    yield ToolCallDelta(block.key, arguments=text)
            case "thinking_delta":
                text = delta.get("thinking") or ""
                block.pieces.append(text)
                yield ReasoningDelta(block.key, text, "summary")
            case "signature_delta":
                raw["signature"] = delta["signature"]
            case "citations_delta":
                raw["citations"] = [*(raw.get("citations") or ()), delta["citation"]]
            case "compaction_delta":
                block.compact(delta)
            case _:
                block.is_whole = False

    def _end(self, index: int) -> Iterator[Delta]:
        if (block := self._blocks.pop(index, None)) is None:
            return
        raw = block.raw
        match raw["type"]:
            case "text":
                yield from self._text(block)
            case "thinking":
                raw["thinking"] = block.text
                if raw.get("signature"):  # a block without signature would be refused
                    yield self._start_proof(block)
                yield CloseDelta(block.key)
            case "redacted_thinking":
                yield self._start_proof(block)
                yield CloseDelta(block.key)
            case "tool_use" if is_action(raw):
                yield from self._emit_action(block)
            case "tool_use":
                yield from self._call(block)
            case "server_tool_use" | "mcp_tool_use":
                yield from self._begin_hosted_call(block)
            case str(kind) if kind.endswith("_tool_result"):
                yield from self._end_hosted_call(block)
            case "mcp_tool_listing":
                yield from self._emit_item(block, tool_list_item(raw))
            case "compaction":
                yield from self._emit_item(block, compaction_item(raw))
            case "fallback":  # another model continues from here
                yield StartDelta(model=(raw.get("to") or {}).get("model") or "")
                yield from self._extend_proof(block)
            case _ if block.is_whole and not block.pieces:
                yield from self._extend_proof(block)

    def _text(self, block: Block) -> Iterator[Delta]:
        if not (text := block.text):
            return  # it opens no message, and would be refused when it is sent back
        self._has_text = True
        start, self._length = self._length, self._length + len(text)
        for raw in block.raw.get("citations") or ():
            if annotation := citation(raw, start, self._length):
                yield AnnotationDelta(block.key, annotation)
        block.raw["text"] = text
        if self._latest == block.key:
            self._proof_blocks.append(block.raw)
        else:
            self._begin_proof(block)  # emitted when the message is complete

    def _end_message(self) -> Iterator[Delta]:
        key, self._message = self._message, None
        if key is None:
            return
        if self._latest == key:
            yield self._proof(key)
        yield CloseDelta(key)

    def _call(self, block: Block) -> Iterator[Delta]:
        """A client's call. Only the end of the answer tells why an input is
        unreadable."""
        if block.text:
            arguments = block.input()
            if arguments is None:
                self._unreadable_calls.append(block.key)
                return
            block.raw["input"] = arguments
        elif arguments := block.raw.get(
            "input"
        ):  # the complete input came at the start
            yield ToolCallDelta(block.key, arguments=orjson.dumps(arguments).decode())
        yield self._start_proof(block)
        yield CloseDelta(block.key)

    def _emit_action(self, block: Block) -> Iterator[Delta]:
        """A computer action for the client; nothing if its input was cut off."""
        if block.text:
            arguments = block.input()
            if arguments is None:
                return
            block.raw["input"] = arguments
        yield from self._emit_item(block, computer_call(block.raw))

    def _begin_hosted_call(self, block: Block) -> Iterator[Delta]:
        if block.text:
            arguments = block.input()
            if arguments is None:
                return
            block.raw["input"] = arguments
        receipt = call_receipt(block.raw)
        self._receipts[block.raw["id"]] = block.key, receipt
        yield ItemDelta(block.key, receipt)
        yield self._start_proof(block)

    def _end_hosted_call(self, block: Block) -> Iterator[Delta]:
        known = self._receipts.pop(block.raw.get("tool_use_id") or "", None)
        if known is None:
            yield from self._emit_item(
                block, finish_receipt(receipt_without_call(block.raw), block.raw)
            )
            return
        key, receipt = known
        yield from self._extend_proof(block)
        yield ItemDelta(key, finish_receipt(receipt, block.raw), done=True)

    def _emit_item(self, block: Block, item: Item) -> Iterator[Delta]:
        """Emit an item that is complete at once."""
        yield ItemDelta(block.key, item)
        yield self._start_proof(block)
        yield ItemDelta(block.key, item, done=True)

    # Proofs

    def _begin_proof(self, block: Block) -> None:
        """Make `block` the beginning of an item's proof."""
        self._latest = block.key
        self._proof_blocks, self._leading_blocks = (
            [*self._leading_blocks, block.raw],
            [],
        )

    def _start_proof(self, block: Block) -> ProofDelta:
        self._begin_proof(block)
        return self._proof(block.key)

    def _extend_proof(self, block: Block) -> Iterator[Delta]:
        if self._latest is None:
            self._leading_blocks.append(block.raw)
        else:
            self._proof_blocks.append(block.raw)
            yield self._proof(self._latest)

    def _proof(self, key: int) -> ProofDelta:
        raw: dict[str, Any] = {"content": list(self._proof_blocks)}
        if self._container:
            raw["container"] = self._container
        return ProofDelta(key, raw)

    # The end

    def _note_details(self, message: dict[str, Any]) -> None:
        self._details = message.get("stop_details") or self._details
        if container := message.get("container"):
            self._container = container.get("id")

    def _note_stop_reason(self, message: dict[str, Any]) -> None:
        if reason := message.get("stop_reason"):
            self._stop = str(reason)

    def _update_usage(self, usage: Any) -> Iterator[Delta]:
        if usage and isinstance(usage, dict):
            counts = {k: v for k, v in usage.items() if v is not None}
            self._usage = {**self._usage, **counts}
            yield usage_of(self._usage)

    def _finish(self) -> Iterator[Delta]:
        self._ended = True
        for index in list(self._blocks):
            yield from self._end(index)
        yield from self._end_message()
        yield from self._close_unreadable_calls()
        if self._container and self._latest is not None:
            yield self._proof(self._latest)
        for key, receipt in self._receipts.values():
            yield ItemDelta(key, {**receipt, "status": "incomplete"}, done=True)
        if self._stop == "refusal" and not self._has_text:
            yield RefusalDelta(_REFUSAL, self._details.get("explanation") or _REFUSED)
            yield CloseDelta(_REFUSAL)
        yield FinishDelta(self._reason(), self._stop)

    def _close_unreadable_calls(self) -> Iterator[Delta]:
        """Close calls with unreadable input.

        If the host has ended the answer by itself, this is the model's mistake: the
        call counts as complete, and its output will report the error. Otherwise the
        call was cut off.
        """
        complete = bool(self._stop) and self._reason() in NATURAL_ENDS
        for key in self._unreadable_calls:
            yield CloseDelta(key, complete=complete)

    def _reason(self) -> FinishReason:
        return _FINISH.get(self._stop or "", "stop")


def _json(event: ServerSentEvent) -> dict[str, Any]:
    try:
        data = event.json()
    except ValueError as exc:
        if event.event == "error":
            raise classify_error(event.data.decode(errors="replace")) from exc
        raise BadResponse(detail="What came is no JSON.") from exc
    if not isinstance(data, dict):
        raise BadResponse(detail="What came is no JSON object.")
    return data
