"""Writer of Gemini's generateContent answers, streamed or complete.

In: canonical events, or a response. Out: chunks, frames or one answer.

Text and reasoning are sent as they arrive, as parts of chunks. A function call is one
part, so it is sent when it is complete, or with the end of the answer if calls are held
back. The last chunk has the finish reason, the usage and the sources. This API has no
refusals: they become text.

`proofs` are the parts that an upstream with this same API wants back
(`ResponseBuilder.proofs`): signatures, calls and hosted tools are sent unchanged. A
signature of a text follows it in an empty part, as Gemini sends it too.

Content that this API does not have is left out. Calls that are held back are announced
in the field `parley` of a chunk.

Source: https://ai.google.dev/api/generate-content#v1beta.GenerateContentResponse
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any

from llm.wire.facades.chat_writer import announcement
from llm.wire.facades.client_visibility import (
    Audience,
    Ending,
    ending,
    picture_of,
    thought_of,
)
from llm.wire.facades.errors import google_error_of
from llm.wire.facades.messages_blocks import input_of, is_whole
from llm.wire.facades.sse_frames import data_frame
from llm.wire.items import Event, Item

Chunk = dict[str, Any]
Part = dict[str, Any]
#: A provider's original parts, by item id.
Proofs = Mapping[str, Any]

_GAP = "\n\n"
_FINISH: dict[Ending, str] = {
    "stop": "STOP",
    "tool_calls": "STOP",
    "length": "MAX_TOKENS",
    "content_filter": "SAFETY",
    "paused": "MAX_TOKENS",  # cut off, from the client's view
}
_CALLS = frozenset({"function_call", "custom_tool_call"})


class GenerateContentWriter:
    """One response as a stream. `feed` returns chunks, `feed_bytes` the same as frames.

    `buffer_tool_calls` holds calls back until the response has ended with complete
    calls; calls of a response that was cut off are not sent.
    """

    def __init__(
        self,
        *,
        model: str,
        id: str,
        include_usage: bool = True,
        buffer_tool_calls: bool = False,
        announce: bool = True,
        proofs: Proofs | None = None,
        custom_tools: Container[str] = (),
    ) -> None:
        self.ended = False
        self._tail = {"modelVersion": model, "responseId": id}
        self._include_usage = include_usage
        self._buffer = buffer_tool_calls
        self._announce = announce
        self._proofs = {} if proofs is None else proofs  # filled during the stream
        self._audience = Audience(custom_tools=custom_tools)
        self._out: list[Chunk] = []
        self._gap = False  # tools ran after the last text
        self._text = _Text()
        self._thought_at: tuple[Any, ...] | None = None  # the latest part
        self._calls = 0  # begun
        self._whole: list[Item] = []  # complete calls
        self._error: Mapping[str, Any] | None = None

    def feed(self, events: Iterable[Event]) -> list[Chunk]:
        """The chunks of these events. The last one has the finish reason."""
        for event in events:
            if handler := self._HANDLERS.get(event["type"]):
                handler(self, event)
        chunks, self._out = self._out, []
        return chunks

    def feed_bytes(self, events: Iterable[Event]) -> bytes:
        """The frames of `feed`'s chunks. The stream ends without a last frame."""
        return b"".join(map(data_frame, self.feed(events)))

    # Events

    def _on_text(self, event: Event) -> None:
        text = event["delta"]
        if self._gap and self._text:
            text = _GAP + text
            self._text.begin_part(len(_GAP))
        self._gap = False
        self._text.append(text)
        self._write({"text": text})

    def _on_part(self, event: Event) -> None:
        self._text.begin_part()

    def _on_annotation(self, event: Event) -> None:
        self._text.cite(event["annotation"])

    def _on_reasoning(self, event: Event) -> None:
        text = event["delta"]
        number = event.get("summary_index", event.get("content_index"))
        at = (event["output_index"], event["type"], number)
        if self._thought_at not in (None, at):
            text = _GAP + text
        self._thought_at = at
        self._write({"text": text, "thought": True})

    def _on_item_added(self, event: Event) -> None:
        item = event["item"]
        if item["type"] == "function_call_output":
            self._gap = True
        elif self._audience.kind(item) in _CALLS:
            self._calls += 1
            if self._buffer and self._announce:
                self._extension(announcement(item))

    def _on_item_done(self, event: Event) -> None:
        item = event["item"]
        kind = self._audience.kind(item)
        if kind in _CALLS:
            self._on_call(item)
        elif parts := signed_parts(item, self._proofs):
            self._write(*parts)

    def _on_call(self, item: Item) -> None:
        if not is_whole(item):
            return
        self._whole.append(item)
        if not self._buffer:
            self._write(*call_parts(item, self._proofs))

    def _on_error(self, event: Event) -> None:
        self._error = event["error"]

    def _on_failed(self, event: Event) -> None:
        self.ended = True
        self._out.append(google_error_of(event["response"], self._error))

    def _on_end(self, event: Event) -> None:
        self.ended = True
        response = event["response"]
        why = ending(response, self._calls, len(self._whole))
        if self._buffer and why == "tool_calls":
            self._write(
                *(p for call in self._whole for p in call_parts(call, self._proofs))
            )
        candidate: dict[str, Any] = {
            "content": {"role": "model", "parts": [{"text": ""}]},
            "finishReason": _FINISH[why],
            "index": 0,
        }
        if grounding := self._text.grounding():
            candidate["groundingMetadata"] = grounding
        usage = response.get("usage") if self._include_usage else None
        counts = {"usageMetadata": usage_of(usage)} if usage else {}
        self._out.append({"candidates": [candidate], **counts, **self._tail})

    _HANDLERS: dict[str, Callable[[GenerateContentWriter, Event], None]] = {
        "response.output_text.delta": _on_text,
        "response.refusal.delta": _on_text,
        "response.content_part.added": _on_part,
        "response.output_text.annotation.added": _on_annotation,
        "response.reasoning.delta": _on_reasoning,
        "response.reasoning_summary_text.delta": _on_reasoning,
        "response.output_item.added": _on_item_added,
        "response.output_item.done": _on_item_done,
        "error": _on_error,
        "response.failed": _on_failed,
        "response.completed": _on_end,
        "response.incomplete": _on_end,
    }

    # Chunks

    def _write(self, *parts: Part) -> None:
        content = {"role": "model", "parts": list(parts)}
        candidate = {"content": content, "index": 0}
        self._out.append({"candidates": [candidate], **self._tail})

    def _extension(self, event: Event) -> None:
        self._out.append({"candidates": [], **self._tail, "parley": event})


def generate_content_of(
    response: Mapping[str, Any],
    *,
    id: str = "",
    model: str = "",
    proofs: Proofs | None = None,
    custom_tools: Container[str] = (),
) -> dict[str, Any]:
    """A whole `GenerateContentResponse`.

    Raises ValueError for a failed response, which must be sent as an error.
    """
    if response["status"] == "failed":
        raise ValueError("A failed response must be sent as an error.")
    audience = Audience(custom_tools=custom_tools)
    answer = _Answer(audience, proofs or {})
    for item in response["output"]:
        answer.add(item)
    why = ending(response, answer.calls, answer.whole_calls)
    candidate: dict[str, Any] = {
        "content": {"role": "model", "parts": answer.parts},
        "finishReason": _FINISH[why],
        "index": 0,
    }
    if grounding := answer.text.grounding():
        candidate["groundingMetadata"] = grounding
    usage = response.get("usage")
    return {
        "candidates": [candidate],
        **({"usageMetadata": usage_of(usage)} if usage else {}),
        "modelVersion": model or response["model"],
        "responseId": id or response["id"],
    }


class _Answer:
    """Collects a whole response as the parts of one candidate."""

    def __init__(self, audience: Audience, proofs: Proofs) -> None:
        self.parts: list[Part] = []
        self.text = _Text()
        self.calls = 0
        self.whole_calls = 0
        self._audience = audience
        self._proofs = proofs

    def add(self, item: Item) -> None:
        match self._audience.kind(item):
            case "message":
                self._add_message(item)
            case "reasoning":
                self._add_reasoning(item)
            case "":
                self.parts += signed_parts(item, self._proofs)
            case _:
                self._add_call(item)

    def _add_message(self, item: Item) -> None:
        texts: list[str] = []
        for part in item["content"]:
            text = part.get("text") or part.get("refusal") or ""
            self.text.begin_part()
            self.text.append(text)
            for annotation in part.get("annotations") or ():
                self.text.cite(annotation)
            texts.append(text)
        own = _own_parts(item, self._proofs)
        self.parts += own or [{"text": text} for text in texts if text]

    def _add_reasoning(self, item: Item) -> None:
        thought = thought_of(item)
        plain = [{"text": thought, "thought": True}] if thought else []
        self.parts += _own_parts(item, self._proofs) or plain

    def _add_call(self, item: Item) -> None:
        self.calls += 1
        if is_whole(item):
            self.whole_calls += 1
            self.parts += call_parts(item, self._proofs)


class _Text:
    """The text of an answer and its citations, for offsets in UTF-8 bytes."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._length = 0  # characters
        self._part_at = 0  # offset of the current part
        self._citations: list[tuple[int, int, str, str]] = []  # start, end, URL, title

    def __bool__(self) -> bool:
        return self._length > 0

    def append(self, text: str) -> None:
        self._pieces.append(text)
        self._length += len(text)

    def begin_part(self, gap: int = 0) -> None:
        """Count annotations from here, and from behind `gap` characters."""
        self._part_at = self._length + gap

    def cite(self, annotation: Mapping[str, Any]) -> None:
        if annotation.get("type") != "url_citation":
            return
        start = (annotation.get("start_index") or 0) + self._part_at
        end = (annotation.get("end_index") or 0) + self._part_at
        url, title = annotation.get("url") or "", annotation.get("title") or ""
        self._citations.append((start, end, url, title))

    def grounding(self) -> dict[str, Any]:
        """The `groundingMetadata`; {} without citations."""
        if not self._citations:
            return {}
        text = "".join(self._pieces)
        chunks: dict[str, int] = {}
        titles: list[dict[str, Any]] = []
        supports = []
        for start, end, url, title in self._citations:
            if url not in chunks:
                chunks[url] = len(chunks)
                titles.append({"web": {"uri": url, "title": title}})
            segment = {
                "startIndex": len(text[:start].encode(errors="replace")),
                "endIndex": len(text[:end].encode(errors="replace")),
                "text": text[start:end],
            }
            supports.append(
                {"segment": segment, "groundingChunkIndices": [chunks[url]]}
            )
        return {"groundingChunks": titles, "groundingSupports": supports}


def call_parts(item: Item, proofs: Proofs) -> list[Part]:
    """The parts of a complete call: Gemini's own, or a new `functionCall`."""
    if own := _own_parts(item, proofs):
        return [part for part in own if part]
    call = {"id": item["call_id"], "name": item["name"], "args": input_of(item)}
    return [{"functionCall": call}]


def signed_parts(item: Item, proofs: Proofs) -> list[Part]:
    """Gemini's parts of `item` without the text that was sent already.

    Signatures of texts are sent in an empty text. Items that are no message, reasoning
    or call have all their parts, and a picture of another host becomes one.
    """
    if item["type"] not in ("message", "reasoning"):
        return list(_own_parts(item, proofs)) or _picture_parts(item)
    parts: list[Part] = []
    for part in _own_parts(item, proofs):
        if "text" not in part:
            parts.append(part)
        elif part.get("thoughtSignature"):
            parts.append({**part, "text": ""})
    return parts


def _picture_parts(item: Item) -> list[Part]:
    """A picture that another API's model has drawn."""
    if (picture := picture_of(item)) is None:
        return []
    return [{"inlineData": {"mimeType": picture[0], "data": picture[1]}}]


def _own_parts(item: Item, proofs: Proofs) -> Sequence[Part]:
    raw = proofs.get(item.get("id") or "")
    return raw if isinstance(raw, list) else ()


def usage_of(usage: Mapping[str, Any]) -> dict[str, Any]:
    """Canonical usage counts as `usageMetadata`."""
    cached = (usage.get("input_tokens_details") or {}).get("cached_tokens") or 0
    thoughts = (usage.get("output_tokens_details") or {}).get("reasoning_tokens") or 0
    return {
        "promptTokenCount": usage["input_tokens"],
        "cachedContentTokenCount": cached,
        "candidatesTokenCount": max(0, usage["output_tokens"] - thoughts),
        "thoughtsTokenCount": thoughts,
        "totalTokenCount": usage["total_tokens"],
    }
