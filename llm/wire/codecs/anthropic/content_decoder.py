"""Decoder of an answer's content blocks.

Theory of operation: a message is a list of content blocks, each of which starts, grows
and ends. Most blocks are an item of their own. Neighbouring text blocks, into which
citations split a sentence, are one message; a hosted tool's call and its result are one
receipt; and a block without visible content (the switch to a fallback model, for
example) is added to the proof of the item before it, or of the first one. Each item's
proof is its original blocks, so the proofs of all items, one after another, are the
answer's `content`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from llm.errors import BadResponse
from llm.wire.codecs.anthropic.blocks import Block
from llm.wire.codecs.anthropic.computer_use import computer_call, is_action
from llm.wire.codecs.anthropic.hosted_results import (
    call_receipt,
    citation,
    compaction_item,
    finish_receipt,
    receipt_without_call,
    tool_list_item,
    upload_item,
)
from llm.wire.deltas import (
    AnnotationDelta,
    CloseDelta,
    Delta,
    ItemDelta,
    ProofDelta,
    ReasoningDelta,
    StartDelta,
    TextDelta,
    ToolCallDelta,
)
from llm.wire.items import Item


class ContentDecoder:
    """Decodes the content of one answer. An item's key is the index of its first
    block."""

    __slots__ = (
        "_late_blocks",
        "_latest",
        "_leading_blocks",
        "_length",
        "_message",
        "_proof_blocks",
        "_receipts",
        "_unreadable_calls",
        "container",
        "has_text",
        "open_blocks",
    )

    def __init__(self) -> None:
        self.open_blocks: dict[int, Block] = {}  # by index
        self.has_text = False
        self.container: str | None = None  # id, which proofs include
        self._message: int | None = None  # key of the message being written
        self._length = 0  # characters of its ended blocks
        self._late_blocks = 0  # begun by a delta alone
        self._receipts: dict[str, tuple[int, Item]] = {}  # without a result, by call id
        self._latest: int | None = None  # the item whose proof takes further blocks
        self._proof_blocks: list[dict[str, Any]] = []  # blocks of its proof
        self._leading_blocks: list[dict[str, Any]] = []  # blocks before the first item
        self._unreadable_calls: list[int] = []  # calls whose input is not an object

    def begin(self, index: int, raw: Any, key: int | None = None) -> Iterator[Delta]:
        """Begin a block; nothing happens if it is no object with a type. `key`: of its
        item, if that is not the index."""
        if not isinstance(raw, dict) or not isinstance(raw.get("type"), str):
            return
        key = index if key is None else key
        block = self.open_blocks[index] = Block(key, raw)
        if raw["type"] == "text":
            if self._message is None:
                self._message, self._length = key, 0
            block.key = self._message
            if text := raw.get("text"):
                yield from self.add_piece(block, {"type": "text_delta", "text": text})
            return
        yield from self._end_message()
        match raw["type"]:
            case "thinking":
                block.pieces.append(raw.get("thinking") or "")
                yield ReasoningDelta(key, block.pieces[0], "summary")
            case "tool_use" if not is_action(raw):
                yield ToolCallDelta(key, raw.get("id") or "", raw.get("name") or "")

    def add_piece(self, block: Block, delta: dict[str, Any]) -> Iterator[Delta]:
        """Decode a block's delta; after one of unknown type the block is not whole."""
        raw = block.raw
        match delta.get("type"):
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
                if not isinstance(raw.get("citations"), list):
                    raw["citations"] = []
                raw["citations"].append(delta["citation"])
            case "compaction_delta":
                block.compact(delta)
            case _:
                block.is_whole = False

    def add_late_piece(self, index: Any, delta: dict[str, Any]) -> Iterator[Delta]:
        """A delta of a block that has ended or never began: text and thinking become a
        block of their own. Raises BadResponse for one of a call."""
        match delta.get("type"):
            case "text_delta":
                block = {"type": "text", "text": ""}
            case "thinking_delta":
                block = {"type": "thinking", "thinking": "", "signature": ""}
            case "input_json_delta":
                raise BadResponse(detail="An input without its call.")
            case _:
                return
        index = index if isinstance(index, int) else -1
        if index not in self.open_blocks:
            self._late_blocks += 1  # its index may be the key of an ended item
            yield from self.begin(index, block, -1 - self._late_blocks)
        yield from self.add_piece(self.open_blocks[index], delta)

    def end(self, index: int) -> Iterator[Delta]:
        if (block := self.open_blocks.pop(index, None)) is None:
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
            case "container_upload":
                yield from self._emit_item(block, upload_item(raw))
            case "compaction":
                yield from self._emit_item(block, compaction_item(raw))
            case "fallback":  # another model continues from here
                yield StartDelta(model=(raw.get("to") or {}).get("model") or "")
                yield from self._extend_proof(block)
            case _ if block.is_whole and not block.pieces:
                yield from self._extend_proof(block)

    def close(self, *, are_calls_complete: bool) -> Iterator[Delta]:
        """End what is open: blocks, the message, calls and receipts.

        `are_calls_complete`: whether a call with unreadable input counts as complete.
        """
        for index in list(self.open_blocks):
            yield from self.end(index)
        yield from self._end_message()
        for key in self._unreadable_calls:
            yield CloseDelta(key, complete=are_calls_complete)
        if self.container and self._latest is not None:
            yield self._proof(self._latest)
        for key, receipt in self._receipts.values():
            yield ItemDelta(key, {**receipt, "status": "incomplete"}, done=True)

    def _text(self, block: Block) -> Iterator[Delta]:
        if not (text := block.text):
            return  # it opens no message, and would be refused when it is sent back
        self.has_text = True
        start, self._length = self._length, self._length + len(text)
        for raw in block.raw.get("citations") or ():
            annotation = isinstance(raw, dict) and citation(raw, start, self._length)
            if annotation:
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
        """A client's call. Only the end of the answer shows why an input is
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
        if block.raw.get("id"):  # otherwise its output would have another id
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
        self._receipts[block.raw.get("id") or ""] = block.key, receipt
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
        if self.container:
            raw["container"] = self.container
        return ProofDelta(key, raw)
