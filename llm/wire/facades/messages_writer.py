"""Writer of Messages answers, streamed or complete, from canonical events.

Theory of operation: canonical items may be open side by side, content blocks may not.
So one item, the *head*, is sent as it arrives; events of later items wait until the
head is done, and are then sent at once. Text parts and calls are a block each, a
reasoning item is one block. `message_start` waits for the first block, so that an error
before it can still become an HTTP status.

`proofs` are the blocks that an upstream with this same API wants back
(`ResponseBuilder.proofs`): its signatures, redacted thinking, citations and the blocks
of its hosted tools are sent unchanged. Without a proof, thinking has an empty
signature, which no provider accepts. A signature covers everything before it: once a
call has been hidden from the client, no more signatures are sent.

With `sealing` the proofs of a host of another API are in the signatures of thinking
that the client is shown, and the rest in `redacted_thinking` at the end of answers with
calls. Others end with their text, as simple clients expect, unless `sealing.at_end`.

With `searches` the searches of a host of another API are blocks as Anthropic's.

An answer of pictures names them. Other content that this API does not have is left out.
With `receipts` it is sent in the field `parley` of a `ping`, which clients skip: a
canonical or `parley:` event. Calls that are held back are announced in the same field.
In a complete answer the field `parley` has the items, `{"output": [...]}`.

Source: https://platform.claude.com/docs/en/build-with-claude/streaming
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

import orjson

from llm.wire.facades.chat_writer import announcement
from llm.wire.facades.client_visibility import (
    Audience,
    Ending,
    ending,
)
from llm.wire.facades.errors import anthropic_error_of
from llm.wire.facades.messages_blocks import (
    Block,
    ObjectArguments,
    Proofs,
    WholeContent,
    arguments_of,
    citations_of,
    empty_message,
    free_text,
    is_whole,
    json_text,
    own_blocks,
    picture_blocks,
    sealed_block,
    search_blocks,
    stop_of,
    tool_use,
    usage_of,
)
from llm.wire.facades.proof_entries import Sealing
from llm.wire.facades.sse_frames import dumps, event_frame
from llm.wire.items import Event, Item

_TEXT = "response.output_text.delta"
_CALLS = frozenset({"function_call", "custom_tool_call"})
_MARK = "\0"


class MessagesWriter:
    """One response as a stream. `feed` returns events, `feed_bytes` the same as frames.

    Use only one of the two for a stream. `input_tokens` is an estimate for
    `message_start`; the exact counts come with `message_delta`. A caller that knows
    which stop sequence ended the answer sets `stop_sequence` before the last event.
    """

    def __init__(
        self,
        *,
        model: str,
        id: str,
        input_tokens: int = 0,
        request_id: str = "",
        buffer_tool_calls: bool = False,
        announce: bool = True,
        proofs: Proofs | None = None,
        server_tools: Container[str] = (),
        custom_tools: Container[str] = (),
        receipts: bool = False,
        sealing: Sealing | None = None,
        searches: bool = False,
    ) -> None:
        self.ended = False
        self.stop_sequence: str | None = None
        self._sealing = sealing
        self._sealed: list[str] = []  # ids of items whose proofs were sent
        self._message = empty_message(id, model, input_tokens)
        self._request_id = request_id
        self._buffer = buffer_tool_calls
        self._announce = announce
        self._own_api = proofs is not None
        self._searches = searches  # the client reads blocks of a web search
        self._proofs = {} if proofs is None else proofs  # filled during the stream
        self._audience = Audience(server_tools=server_tools, custom_tools=custom_tools)
        self._receipts = receipts
        self._out: list[Event] = []
        self._started = False
        self._sends_proofs = True  # no call has been hidden from the client so far
        self._refused = False
        self._head: int | None = None  # output_index of the item being sent
        self._hidden: set[int] = set()
        self._waiting: dict[int, list[Event]] = {}  # of items after the head
        self._calls: list[Item] = []  # finished calls
        self._buffered_calls: list[Item] = []  # finished calls that wait for the end
        self._index = 0  # of the open block, or of the next one
        self._block = ""  # type of the open block
        self._block_text: list[str] = []  # its text
        self._thought_at: Any = None  # the latest part of the reasoning
        self._notes: list[Mapping[str, Any]] = []  # annotations of the open text
        self._arguments = ObjectArguments()
        self._before_text = b""

    def feed(self, events: Iterable[Event]) -> list[Event]:
        """The response's last event becomes `message_stop`, or `error`."""
        for event in events:
            self._route(event)
        output, self._out = self._out, []
        return output

    def feed_bytes(self, events: Iterable[Event]) -> bytes:
        """The frames of `feed`'s events."""
        frames: list[bytes] = []
        for event in events:
            if (
                event["type"] == _TEXT
                and self._block == "text"
                and event["output_index"] == self._head
            ):
                text = event["delta"]  # the usual event, without detours
                self._block_text.append(text)
                frames += (self._before_text, orjson.dumps(text), b"}}\n\n")
            else:
                frames += map(event_frame, self.feed((event,)))
        return b"".join(frames)

    # The choice of the head

    def _route(self, event: Event) -> None:
        index = event.get("output_index")
        if index is None:
            self._whole_response(event)
        elif index == self._head:
            self._dispatch(event)
        elif index in self._hidden:
            self._hide(event)
        elif index in self._waiting:
            self._waiting[index].append(event)
        elif event["type"] == "response.output_item.added":
            self._begin(index, event)

    def _begin(self, index: int, event: Event) -> None:
        item = event["item"]
        if not self._is_shown(item) or (self._buffer and item["type"] in _CALLS):
            self._hidden.add(index)
            self._hide(event)
        elif self._head is None:
            self._head = index
            self._dispatch(event)
        else:
            self._waiting[index] = [event]

    def _is_shown(self, item: Item) -> bool:
        """Whether the item is sent. A hosted tool of this same API may have blocks,
        which are known when it is done."""
        if self._audience.kind(item):
            return True
        is_ours = item["type"] == "function_call_output" or item["type"] in _CALLS
        return (self._own_api or self._searches) and not is_ours

    def _hide(self, event: Event) -> None:
        """Handle an event of an item that is hidden, or held back until the end."""
        if (item := event.get("item")) is None:
            return
        done = event["type"] == "response.output_item.done"
        if not self._audience.kind(item):
            self._sends_proofs &= item["type"] != "function_call"
            if done and self._receipts:
                self._extension(event)
        elif done:
            self._buffered_calls.append(item)
        elif self._announce:
            self._extension(announcement(item))

    def _next(self) -> None:
        """The head is done: send the waiting events, up to the next open item."""
        self._head = None
        while self._head is None and self._waiting:
            self._head = min(self._waiting)
            for event in self._waiting.pop(self._head):
                self._dispatch(event)

    # The head

    def _dispatch(self, event: Event) -> None:
        if handler := self._HANDLERS.get(event["type"]):
            handler(self, event)

    def _on_item_added(self, event: Event) -> None:
        item = event["item"]
        if item["type"] in _CALLS:
            self._arguments = ObjectArguments()
            self._open(tool_use(item, {}))

    def _text(self, event: Event) -> None:
        text = event["delta"]
        if self._block != "text":
            self._open({"type": "text", "text": ""})
        self._block_text.append(text)
        self._delta({"type": "text_delta", "text": text})

    def _refusal(self, event: Event) -> None:
        self._refused = True
        self._text(event)

    def _on_annotation(self, event: Event) -> None:
        self._notes.append(event["annotation"])

    def _part_done(self, event: Event) -> None:
        if self._block != "text":
            self._notes = []
            return
        own = self._proof_blocks(event["item_id"])
        cited = [c for block in own for c in block.get("citations") or ()]
        made = () if own else citations_of(self._notes, "".join(self._block_text))
        for citation in (*cited, *made):
            self._delta({"type": "citations_delta", "citation": citation})
        self._close()

    def _reasoning(self, event: Event) -> None:
        text = event["delta"]
        number = event.get("summary_index", event.get("content_index"))
        if self._block != "thinking":
            self._open({"type": "thinking", "thinking": "", "signature": ""})
        elif self._thought_at != (event["type"], number):
            text = f"\n\n{text}"
        self._thought_at = event["type"], number
        self._block_text.append(text)
        self._delta({"type": "thinking_delta", "thinking": text})

    def _call_delta(self, event: Event) -> None:
        if text := self._arguments.feed(event["delta"]):
            self._input(text)

    def _call_done(self, event: Event) -> None:
        if text := self._arguments.close(event["arguments"]):
            self._input(text)

    def _input(self, text: str) -> None:
        self._delta({"type": "input_json_delta", "partial_json": text})

    def _on_item_done(self, event: Event) -> None:
        item = event["item"]
        match item["type"]:
            case "reasoning":
                self._write_signatures(item)
                self._seal_thinking(item, event["output_index"])
            case "function_call":
                self._calls.append(item)
            case "custom_tool_call" if self._audience.kind(item):
                self._calls.append(item)
                self._input(json_text(free_text(item)))
            case "message":
                pass
            case _:
                own = self._proof_blocks(item["id"]) if self._sends_proofs else []
                made = search_blocks(item) if self._searches else ()
                self._whole_blocks(own or made)
        self._close()
        self._next()

    def _write_signatures(self, item: Item) -> None:
        for block in self._proof_blocks(item["id"]) if self._sends_proofs else ():
            if block["type"] == "redacted_thinking":
                self._close()
                self._open(block)
            elif block["type"] == "thinking" and block.get("signature"):
                if self._block != "thinking" and not block.get("thinking"):
                    self._open({**block, "signature": ""})
                if "".join(self._block_text) == block.get("thinking", ""):
                    signature = block["signature"]
                    self._delta({"type": "signature_delta", "signature": signature})

    def _seal_thinking(self, item: Item, at: int) -> None:
        if self._sealing is None or self._block != "thinking":
            return
        if self._sends_proofs and (
            text := self._sealing.seal_item(at, item, self._audience)
        ):
            self._sealed.append(item["id"])
            self._delta({"type": "signature_delta", "signature": text})

    def _seal_rest(self, output: list[Item], why: Ending) -> None:
        if self._sealing is None or not (why == "tool_calls" or self._sealing.at_end):
            return
        if text := self._sealing.seal(output, self._audience, skipped=self._sealed):
            self._open(sealed_block(text))
            self._close()

    def _whole_blocks(self, blocks: Iterable[Block]) -> None:
        for block in blocks:
            if block["type"] == "server_tool_use":  # its input arrives like a call's
                self._open({**block, "input": {}})
                self._input(json_text(block.get("input") or {}))
            else:
                self._open(block)
            self._close()

    _HANDLERS: dict[str, Callable[[MessagesWriter, Event], None]] = {
        "response.output_item.added": _on_item_added,
        _TEXT: _text,
        "response.refusal.delta": _refusal,
        "response.output_text.annotation.added": _on_annotation,
        "response.content_part.done": _part_done,
        "response.reasoning.delta": _reasoning,
        "response.reasoning_summary_text.delta": _reasoning,
        "response.function_call_arguments.delta": _call_delta,
        "response.function_call_arguments.done": _call_done,
        "response.output_item.done": _on_item_done,
    }

    # The response

    def _whole_response(self, event: Event) -> None:
        match event["type"]:
            case "response.completed" | "response.incomplete":
                self._end(event["response"])
            case "response.failed":
                self.ended = True
                error = anthropic_error_of(event["response"], self._request_id)
                self._out.append(error)
            case str(kind) if self._receipts and kind.startswith("parley:"):
                self._extension(event)

    def _end(self, response: Mapping[str, Any]) -> None:
        self.ended = True
        self._start()
        calls = [*self._calls, *self._buffered_calls]
        why = ending(response, len(calls), sum(map(is_whole, calls)))
        released = self._buffered_calls if why == "tool_calls" else ()
        for call in filter(is_whole, released):
            self._open(tool_use(call, {}))
            self._input(arguments_of(call))
            self._close()
        if not self._index:
            self._whole_blocks(picture_blocks(response["output"]))
        self._seal_rest(response["output"], why)
        self._out += (
            {
                "type": "message_delta",
                "delta": stop_of(why, self._refused, self.stop_sequence),
                "usage": usage_of(response.get("usage")),
            },
            {"type": "message_stop"}
            if "parley" not in response
            else {"type": "message_stop", "parley": response["parley"]},
        )

    # Events

    def _start(self) -> None:
        if not self._started:
            self._started = True
            self._out.append({"type": "message_start", "message": self._message})

    def _open(self, block: Block) -> None:
        self._start()
        self._close()
        self._block, self._block_text = block["type"], []
        started = {"type": "content_block_start", "index": self._index}
        self._out.append({**started, "content_block": block})
        if self._block == "text":
            frame = event_frame(self._piece({"type": "text_delta", "text": _MARK}))
            self._before_text = frame.rpartition(dumps(_MARK))[0]

    def _delta(self, delta: Mapping[str, Any]) -> None:
        self._out.append(self._piece(delta))

    def _piece(self, delta: Mapping[str, Any]) -> Event:
        piece = {"type": "content_block_delta", "index": self._index}
        return {**piece, "delta": delta}

    def _close(self) -> None:
        if self._block:
            self._out.append({"type": "content_block_stop", "index": self._index})
            self._block, self._block_text, self._notes = "", [], []
            self._index += 1

    def _extension(self, event: Event) -> None:
        self._start()
        self._out.append({"type": "ping", "parley": event})

    def _proof_blocks(self, item_id: str) -> list[Block]:
        return own_blocks(self._proofs, item_id)


def message_of(
    response: Mapping[str, Any],
    *,
    id: str = "",
    model: str = "",
    proofs: Proofs | None = None,
    server_tools: Container[str] = (),
    custom_tools: Container[str] = (),
    receipts: bool = False,
    stop_sequence: str | None = None,
    sealing: Sealing | None = None,
    searches: bool = False,
) -> dict[str, Any]:
    """A complete message. Raises ValueError for a failed response, which must be sent
    as an error."""
    if response["status"] == "failed":
        raise ValueError("A failed response must be sent as an error.")
    audience = Audience(server_tools=server_tools, custom_tools=custom_tools)
    content = WholeContent(audience, proofs, sealing, searches=searches)
    for at, item in enumerate(response["output"]):
        content.add(at, item)
    content.blocks += () if content.blocks else picture_blocks(response["output"])
    why = ending(response, len(content.calls), sum(map(is_whole, content.calls)))
    if why == "tool_calls" or (sealing and sealing.at_end):
        content.seal_rest(response["output"])
    message = {
        **empty_message(
            id or f"msg_{response['id'].partition('_')[2]}",
            model or response["model"],
            0,
        ),
        "content": content.blocks,
        **stop_of(why, content.refused, stop_sequence),
        "usage": usage_of(response.get("usage")),
    }
    own = {**(response.get("parley") or {})}
    if receipts:
        own["output"] = content.hidden
    return {**message, "parley": own} if own else message
