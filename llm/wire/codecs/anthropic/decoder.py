"""Decoder of Messages answers: events, or one complete message, to deltas.

The content is decoded block by block (`content_decoder`). Usage counts are totals, of
which the last that is not null counts. The finish reason is emitted with the last
event, or at the end of the bytes if the stop reason has arrived.

Source: https://platform.claude.com/docs/en/build-with-claude/streaming
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from llm.errors import BadResponse, CutOff
from llm.wire.classify_errors import classify_error
from llm.wire.codecs.anthropic.blocks import usage_of
from llm.wire.codecs.anthropic.content_decoder import ContentDecoder
from llm.wire.codecs.event_json import parse_event_object
from llm.wire.deltas import (
    NATURAL_ENDS,
    CloseDelta,
    Delta,
    FinishDelta,
    FinishReason,
    RefusalDelta,
    StartDelta,
    TextDelta,
)
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
#: Names of the events that are read.
_NAMES = frozenset(
    {
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    }
)
_REFUSED = "The model declined to answer this request."
_REFUSAL = "refusal"  # the key of the refusal's item


class AnthropicDecoder:
    """Decodes one answer."""

    __slots__ = (
        "_content",
        "_details",
        "_ended",
        "_open",
        "_stop",
        "_usage",
    )

    def __init__(self) -> None:
        self._content = ContentDecoder()
        self._open = self._content.open_blocks  # for the usual delta
        self._usage: dict[str, Any] = {}
        self._stop: str | None = None
        self._details: dict[str, Any] = {}
        self._ended = False

    def feed(self, event: ServerSentEvent) -> Iterable[Delta]:
        """Raises LLMError for an error inside the stream."""
        if self._ended or event.data.startswith(b"[DONE]"):
            return ()  # routers end with a line that is not part of this format
        data = parse_event_object(event, _NAMES)
        type = data.get("type")
        if type == "content_block_delta":
            delta = data["delta"]
            block = self._open.get(data.get("index", -1))
            if block is None:
                return self._content.add_late_piece(data.get("index"), delta)
            if delta.get("type") == "text_delta":  # the usual delta, without detours
                text = delta.get("text") or ""
                block.pieces.append(text)
                return (TextDelta(block.key, text),) if text else ()
            return self._content.add_piece(block, delta)
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
            } if index in self._open:
                return text, self._open[index].append_text
        return None

    def close(self) -> Iterator[Delta]:
        """Raises ProviderDown if the answer is not complete."""
        if self._ended:
            return
        if self._stop is None:
            raise CutOff(detail="The answer ended without a stop_reason.")
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
            yield from self._content.begin(index, block)
            yield from self._content.end(index)
        self._note_stop_reason(body)
        self._note_details(body)
        yield from self.close()

    # Events

    def _on_message_start(self, data: dict[str, Any]) -> Iterator[Delta]:
        message = data["message"]
        yield StartDelta(message.get("id") or "", message.get("model") or "")
        yield from self._update_usage(message.get("usage"))

    def _on_block_start(self, data: dict[str, Any]) -> Iterator[Delta]:
        return self._content.begin(data["index"], data["content_block"])

    def _on_block_stop(self, data: dict[str, Any]) -> Iterator[Delta]:
        return self._content.end(data["index"])

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

    # The end

    def _note_details(self, message: dict[str, Any]) -> None:
        if isinstance(details := message.get("stop_details"), dict):
            self._details = details
        if isinstance(container := message.get("container"), dict):
            self._content.container = container.get("id")

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
        # If the host has ended the answer by itself, a call with unreadable input is
        # the model's mistake: it counts as complete, and its output will report the
        # error. Otherwise the call was cut off.
        is_complete = bool(self._stop) and self._reason() in NATURAL_ENDS
        yield from self._content.close(are_calls_complete=is_complete)
        if self._stop == "refusal":
            yield from self._refuse()
        yield FinishDelta(self._reason(), self._stop)

    def _refuse(self) -> Iterator[Delta]:
        """Explain a refusal, also after text: the text ends in the middle."""
        reason = self._details.get("explanation")
        if reason or not self._content.has_text:
            yield RefusalDelta(_REFUSAL, reason or _REFUSED)
            yield CloseDelta(_REFUSAL)

    def _reason(self) -> FinishReason:
        return _FINISH.get(self._stop or "", "stop")
