"""Writer of Chat Completions answers, streamed or complete, from canonical events.

All messages of a response become one text, and all reasoning one `reasoning_content`; a
blank line separates messages between which Parley's own tools ran, and parts of the
reasoning. The first chunk waits for the first output that the client can see, so that
an error before it can still become an HTTP status.

`images` has drawn pictures. What this API does not have is left out; with `receipts`
both are in an extension field, `parley`: in a chunk a canonical or `parley:` event, in
a complete answer the items (`{"output": [...]}`). Calls that are held back are
announced in the same field. With `sealing` the proofs of a host of another API are in
`reasoning_details`, which clients return; `proofs` are those of a host of this same API
(`ResponseBuilder.proofs`), which are sent as they are until a call is hidden.

Source: https://platform.openai.com/docs/api-reference/chat/streaming
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

import orjson

from llm.wire.facades.chat_proofs import (
    merge,
    number,
    open_fields,
    sealed_detail,
    signature_field,
)
from llm.wire.facades.client_visibility import (
    ANNOUNCED,
    Arguments,
    Audience,
    Ending,
    ending,
    picture_of,
    thought_of,
)
from llm.wire.facades.errors import openai_error_of
from llm.wire.facades.proof_entries import Sealing
from llm.wire.facades.sse_frames import DONE, data_frame, dumps
from llm.wire.items import Event, Item

Chunk = dict[str, Any]

_TEXT = "response.output_text.delta"
_GAP = "\n\n"
_FINISH: dict[Ending, str] = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "length": "length",
    "content_filter": "content_filter",
    "paused": "length",  # cut off, from the client's view
}
_MARK = "\0"


class _Call:
    """One of the client's calls."""

    __slots__ = ("arguments", "id", "index", "kind", "name")

    def __init__(self, index: int, kind: str, item: Item) -> None:
        self.index = index
        self.kind = kind  # "function" or "custom"
        self.id: str = item["call_id"]
        self.name: str = item["name"]
        self.arguments = Arguments()

    def entry(self, arguments: str) -> dict[str, Any]:
        field = "input" if self.kind == "custom" else "arguments"
        fields = {"name": self.name, field: arguments}
        return {"id": self.id, "type": self.kind, self.kind: fields}


class ChatWriter:
    """One response as a stream. `feed` returns chunks, `feed_bytes` the same as frames.

    Use only one of the two for a stream. `buffer_tool_calls` holds calls back until the
    response has ended with complete calls; calls of a response that was cut off are not
    sent.
    """

    def __init__(
        self,
        *,
        model: str,
        id: str,
        created: int,
        include_usage: bool = False,
        buffer_tool_calls: bool = False,
        announce: bool = True,
        server_tools: Container[str] = (),
        custom_tools: Container[str] = (),
        receipts: bool = False,
        sealing: Sealing | None = None,
        proofs: Mapping[str, Any] | None = None,
    ) -> None:
        self.ended = False
        self._sealing = sealing
        self._proofs = proofs  # filled during the stream; None: none are sent
        self._numbers: set[int] = set()  # of blocks of proofs
        self._head: Chunk = {
            "id": id,
            "object": "chat.completion.chunk",
            "created": created,
            "model": model,
        }
        self._include_usage = include_usage
        self._buffer = buffer_tool_calls
        self._announce = announce
        self._audience = Audience(server_tools=server_tools, custom_tools=custom_tools)
        self._receipts = receipts
        self._out: list[Chunk] = []
        self._started = False
        self._length = 0  # characters of text sent
        self._part_at = 0  # offset of the current part in the text
        self._gap = False  # tools ran after the last text
        self._cited = self._pictures = 0  # annotations and pictures sent
        self._thought_at: tuple[Any, ...] | None = None  # the latest part
        self._calls: dict[int, _Call] = {}  # by output_index
        self._items: dict[int, Item] = {}  # the finished ones of them
        self._error: Mapping[str, Any] | None = None
        before, _, after = data_frame(self._delta({"content": _MARK})).rpartition(
            dumps(_MARK)
        )
        self._before_text, self._after_text = before, after

    def feed(self, events: Iterable[Event]) -> list[Chunk]:
        """The chunks of these events. The response's last event adds the finish
        reason."""
        for event in events:
            if handler := self._HANDLERS.get(event["type"]):
                handler(self, event)
            elif self._receipts and event["type"].startswith("parley:"):
                self._extension(event)
        chunks, self._out = self._out, []
        return chunks

    def feed_bytes(self, events: Iterable[Event]) -> bytes:
        """The frames of `feed`'s chunks; the last is `[DONE]`."""
        frames: list[bytes] = []
        for event in events:
            if event["type"] == _TEXT and self._started and not self._gap:
                text = event["delta"]  # the usual event, without detours
                self._length += len(text)
                frames += (self._before_text, orjson.dumps(text), self._after_text)
            else:
                frames += map(data_frame, self.feed((event,)))
                if self.ended:
                    frames.append(DONE)
                    break
        return b"".join(frames)

    # Events

    def _text(self, event: Event) -> None:
        text = event["delta"]
        if self._gap and self._length:
            text = _GAP + text
            self._part_at += len(_GAP)
        self._gap = False
        self._length += len(text)
        self._write({"content": text})

    def _refusal(self, event: Event) -> None:
        self._write({"refusal": event["delta"]})

    def _part_added(self, event: Event) -> None:
        self._part_at = self._length

    def _on_annotation(self, event: Event) -> None:
        if citation := _annotation(event["annotation"], self._part_at):
            # OpenAI's SDK merges lists by `index`, and raises if there is none.
            self._write({"annotations": [{"index": self._cited, **citation}]})
            self._cited += 1

    def _reasoning(self, event: Event) -> None:
        text = event["delta"]
        at = (event["output_index"], event["type"], _part_number(event))
        if self._thought_at not in (None, at):
            text = _GAP + text
        self._thought_at = at
        self._write({"reasoning_content": text})

    def _on_item_added(self, event: Event) -> None:
        item = event["item"]
        if item["type"] == "function_call_output":
            self._gap = True
            self._proofs = None  # they cover the hidden call too
            return
        kind = self._audience.kind(item)
        if kind not in ("function_call", "custom_tool_call"):
            return
        call = _Call(len(self._calls), kind.partition("_")[0], item)
        self._calls[event["output_index"]] = call
        if self._buffer:
            if self._announce:
                self._extension(announcement(item))
        else:
            self._write({"tool_calls": [{"index": call.index, **call.entry("")}]})

    def _arguments(self, event: Event) -> None:
        call = self._calls.get(event["output_index"])
        if call is not None and not self._buffer:
            self._lengthen(call, call.arguments.feed(event["delta"]))

    def _arguments_done(self, event: Event) -> None:
        call = self._calls.get(event["output_index"])
        if call is not None and not self._buffer:
            self._lengthen(call, call.arguments.close(event["arguments"]))

    def _lengthen(self, call: _Call, text: str, field: str = "arguments") -> None:
        if text:
            self._write(
                {"tool_calls": [{"index": call.index, call.kind: {field: text}}]}
            )

    def _on_item_done(self, event: Event) -> None:
        item = event["item"]
        call = self._calls.get(event["output_index"])
        if call is not None:
            self._items[event["output_index"]] = item
            if call.kind == "custom" and not self._buffer:
                self._lengthen(call, item.get("input") or "", "input")
        elif self._receipts and not self._audience.kind(item):
            self._extension(event)
        elif image := _image(item):
            self._write({"images": [{"index": self._pictures, **image}]})
            self._pictures += 1
        if self._proofs:
            self._write_proof(item, call)
        if self._sealing is not None and call is not None and not self._buffer:
            self._write_signature(self._sealing, event["output_index"], item, call)

    def _write_proof(self, item: Item, call: _Call | None) -> None:
        fields = open_fields(self._proofs or {}, item["id"])
        if not fields or (call is not None and self._buffer):
            return
        if call is not None:
            same: dict[str, Any] = {"index": call.index, call.kind: {}}
            self._write({"tool_calls": [{**same, **fields}]})
        else:
            self._write(number(fields, self._numbers))

    def _write_signature(
        self, sealing: Sealing, at: int, item: Item, call: _Call
    ) -> None:
        if text := sealing.seal_signature(at, item, self._audience):
            same: dict[str, Any] = {"index": call.index, call.kind: {}}
            self._write({"tool_calls": [{**same, **signature_field(text)}]})

    def _on_error(self, event: Event) -> None:
        self._error = event["error"]

    def _on_failed(self, event: Event) -> None:
        self.ended = True
        response = event["response"]
        self._out.append({"error": openai_error_of(response, self._error)})
        self._explain(response)

    def _on_end(self, event: Event) -> None:
        self.ended = True
        response = event["response"]
        whole = [c for n, c in self._calls.items() if _is_whole(self._items.get(n))]
        why = ending(response, len(self._calls), len(whole))
        if self._buffer and why == "tool_calls":
            self._write_calls()
        if self._sealing is not None:
            self._write_sealed(self._sealing.seal(response["output"], self._audience))
        self._write({}, _FINISH[why])
        self._explain(response, response.get("usage") if self._include_usage else None)

    def _write_sealed(self, text: str) -> None:
        if text:
            self._write({"reasoning_details": [sealed_detail(text)]})

    def _explain(
        self, response: Mapping[str, Any], usage: Mapping[str, Any] | None = None
    ) -> None:
        """A last chunk without choices, if the client wants usage or an explanation:
        one for both, because OpenAI's helper takes the usage of the last."""
        fields: dict[str, Any] = {"usage": usage_of(usage)} if usage else {}
        if parley := response.get("parley"):
            fields["parley"] = parley
        if fields:
            self._out.append({**self._head, "choices": [], **fields})

    def _write_calls(self) -> None:
        """Send the complete calls, numbered without those that were cut off."""
        items = [item for _, item in sorted(self._items.items()) if _is_whole(item)]
        for index, item in enumerate(items):
            entry = {**_entry(item), **open_fields(self._proofs or {}, item["id"])}
            self._write({"tool_calls": [{"index": index, **entry}]})

    _HANDLERS: dict[str, Callable[[ChatWriter, Event], None]] = {
        _TEXT: _text,
        "response.refusal.delta": _refusal,
        "response.content_part.added": _part_added,
        "response.output_text.annotation.added": _on_annotation,
        "response.reasoning.delta": _reasoning,
        "response.reasoning_summary_text.delta": _reasoning,
        "response.output_item.added": _on_item_added,
        "response.function_call_arguments.delta": _arguments,
        "response.function_call_arguments.done": _arguments_done,
        "response.output_item.done": _on_item_done,
        "error": _on_error,
        "response.failed": _on_failed,
        "response.completed": _on_end,
        "response.incomplete": _on_end,
    }

    # Chunks

    def _write(self, delta: dict[str, Any], finish: str | None = None) -> None:
        if not self._started:
            self._started = True
            content = "" if "content" in delta or finish else None
            first = {"role": "assistant", "content": content, "refusal": None}
            self._out.append(self._delta(first))
        self._out.append(self._delta(delta, finish))

    def _extension(self, event: Event) -> None:
        self._write({})
        self._out[-1]["parley"] = event

    def _delta(self, delta: dict[str, Any], finish: str | None = None) -> Chunk:
        choice = {
            "index": 0,
            "delta": delta,
            "logprobs": None,
            "finish_reason": finish,
        }
        usage = {"usage": None} if self._include_usage else {}
        return {**self._head, "choices": [choice], **usage}


def chat_completion_of(
    response: Mapping[str, Any],
    *,
    id: str = "",
    model: str = "",
    server_tools: Container[str] = (),
    custom_tools: Container[str] = (),
    receipts: bool = False,
    sealing: Sealing | None = None,
    proofs: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A `chat.completion`. Raises ValueError for a failed response, which must be sent
    as an error."""
    if response["status"] == "failed":
        raise ValueError("A failed response must be sent as an error.")
    audience = Audience(server_tools=server_tools, custom_tools=custom_tools)
    message = _Message(audience, proofs or {})
    for at, item in enumerate(response["output"]):
        signed = sealing.seal_signature(at, item, audience) if sealing else ""
        message.add(item, signature_field(signed))
    why = ending(response, len(message.calls), message.whole_calls)
    fields = message.message()
    if sealing and (text := sealing.seal(response["output"], audience)):
        fields["reasoning_details"] = [sealed_detail(text)]
    choice = {
        "index": 0,
        "message": fields,
        "logprobs": None,
        "finish_reason": _FINISH[why],
    }
    usage = response.get("usage")
    answer = {
        "id": id or f"chatcmpl-{response['id'].partition('_')[2]}",
        "object": "chat.completion",
        "created": int(response["created_at"]),
        "model": model or response["model"],
        "choices": [choice],
        "usage": usage_of(usage) if usage else None,
        "service_tier": None,  # which one the host has used is not known here
    }
    own = {**(response.get("parley") or {})}
    if receipts:
        own["output"] = message.hidden
    elif images := [image for item in message.hidden if (image := _image(item))]:
        fields["images"] = images
    return {**answer, "parley": own} if own else answer


class _Message:
    """Collects a whole response as the one message of this API."""

    def __init__(self, audience: Audience, proofs: Mapping[str, Any]) -> None:
        self.calls: list[dict[str, Any]] = []
        self.whole_calls = 0
        self.hidden: list[Item] = []
        self._audience = audience
        self._proofs = proofs
        self._proven: dict[str, Any] = {}  # fields of the message
        self._text = ""
        self._refusals: list[str] = []
        self._thoughts: list[str] = []
        self._annotations: list[dict[str, Any]] = []
        self._gap = False

    def add(self, item: Item, signed: Mapping[str, Any]) -> None:
        proven = open_fields(self._proofs, item["id"]) if self._proofs else {}
        kind = self._audience.kind(item)
        if kind in ("message", "reasoning"):
            merge(self._proven, proven)
        match kind:
            case "message":
                for part in item["content"]:
                    self._part(part)
            case "reasoning":
                self._thoughts.append(thought_of(item))
            case "":
                self.hidden.append(item)
                if item["type"] == "function_call_output":
                    self._gap, self._proofs = True, {}
            case _:
                self.calls.append({**_entry(item), **proven, **signed})
                self.whole_calls += _is_whole(item)

    def _part(self, part: Mapping[str, Any]) -> None:
        if refusal := part.get("refusal"):
            self._refusals.append(refusal)
        text = part.get("text") or ""
        if text and self._gap:
            self._text += _GAP if self._text else ""
            self._gap = False
        for annotation in part.get("annotations") or ():
            if citation := _annotation(annotation, len(self._text)):
                self._annotations.append(citation)
        self._text += text

    def message(self) -> dict[str, Any]:
        empty = None if self.calls or self._refusals else ""
        message: dict[str, Any] = {
            "role": "assistant",
            "content": self._text or empty,
            "refusal": "".join(self._refusals) or None,
            "annotations": self._annotations,
        }
        if thought := _GAP.join(filter(None, self._thoughts)):
            message["reasoning_content"] = thought
        message |= self._proven
        return {**message, "tool_calls": self.calls} if self.calls else message


def announcement(item: Item) -> Event:
    """The event for a call whose arguments have not arrived yet."""
    return {"type": ANNOUNCED, "call_id": item["call_id"], "name": item["name"]}


def usage_of(usage: Mapping[str, Any]) -> dict[str, Any]:
    """Canonical usage counts with the names of Chat Completions."""
    read = usage.get("input_tokens_details") or {}
    written = usage.get("output_tokens_details") or {}
    prompt = {"cached_tokens": read.get("cached_tokens") or 0}
    if cached_anew := read.get("cache_write_tokens"):
        prompt["cache_write_tokens"] = cached_anew
    return {
        "prompt_tokens": usage["input_tokens"],
        "completion_tokens": usage["output_tokens"],
        "total_tokens": usage["total_tokens"],
        "prompt_tokens_details": prompt,
        "completion_tokens_details": {
            "reasoning_tokens": written.get("reasoning_tokens") or 0
        },
    }


def _entry(item: Item) -> dict[str, Any]:
    custom = item["type"] == "custom_tool_call"
    call = _Call(0, "custom" if custom else "function", item)
    return call.entry(item.get("input") or "" if custom else item["arguments"])


def _is_whole(item: Item | None) -> bool:
    return item is not None and item.get("status") == "completed"


def _image(item: Item) -> dict[str, Any] | None:
    """A drawn picture in the field that OpenRouter has for it."""
    if (picture := picture_of(item)) is None:
        return None
    url = f"data:{picture[0]};base64,{picture[1]}"
    return {"type": "image_url", "image_url": {"url": url}}


def _part_number(event: Event) -> Any:
    return event.get("summary_index", event.get("content_index"))


def _annotation(annotation: Mapping[str, Any], offset: int) -> dict[str, Any] | None:
    """A nested `url_citation`, the only annotation type of this API, else None."""
    if annotation.get("type") != "url_citation":
        return None
    citation = {
        "start_index": (annotation.get("start_index") or 0) + offset,
        "end_index": (annotation.get("end_index") or 0) + offset,
        "url": annotation.get("url") or "",
        "title": annotation.get("title") or "",
    }
    return {"type": "url_citation", "url_citation": citation}
