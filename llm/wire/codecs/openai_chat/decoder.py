"""Decoder of Chat Completions answers: chunks, or one complete message, to deltas.

Theory of operation: choice 0 is emitted as it arrives, under the key of the text, of
the reasoning or of the call. Fields that the host wants back unchanged are collected in
`_raw` and emitted as one proof when the reasoning is over. Three things wait for the
end, because hosts send them early, twice, wrongly or never: the finish reason, which
calls were cut off, and whether the answer is complete.

Each rule here handles some host's behaviour: `finish_reason` may be "stop" with tool
calls, may come twice or with more text after it; usage may be in any chunk, or in all
of them; an error may have any shape and come with other fields.

Source: https://platform.openai.com/docs/api-reference/chat/streaming
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Literal

import orjson

from llm.errors import BadResponse, CutOff, ProviderDown
from llm.wire.bounded_json import MAX_VALUES, check_values
from llm.wire.classify_errors import classify_error
from llm.wire.codecs.openai_chat.reasoning import (
    BLOCK_FIELDS,
    OPAQUE_FIELDS,
    REASONING_FIELDS,
    ThinkTags,
    blocks_of,
    join_pieces,
    text_in,
    thought_of,
)
from llm.wire.codecs.openai_chat.receipts import receipt_of
from llm.wire.codecs.openai_chat.tool_calls import ToolCallAssembler
from llm.wire.deltas import (
    NATURAL_ENDS,
    AnnotationDelta,
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
from llm.wire.sanitize import sanitize_text
from llm.wire.sse import ServerSentEvent
from llm.wire.usage_counts import amount, count

TEXT, REASONING = "text", "reasoning"
_TEXT_DELTA = partial(TextDelta, TEXT)

#: Keys of a delta that holds plain text, or nothing.
_PLAIN = frozenset({"content", "role", "token_id"})
#: Fields that arrive in pieces and are sent back complete; "content" holds Mistral's
#: thinking parts.
_PIECED = {*BLOCK_FIELDS, "content"}

_FINISH: dict[str, FinishReason] = {
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_length": "length",
    "content_filter": "content_filter",
    "sensitive": "content_filter",
}
#: Reasons that mean that the answer failed although the stream ended normally.
_FAILED = frozenset({"error", "abort", "insufficient_system_resource", "network_error"})


class ChatDecoder:
    """Decodes one answer. `echo` names the field in which plain reasoning is sent back.

    With `think_tags`, an answer that begins with "<think>" is read as reasoning up to
    "</think>": servers without a reasoning parser send such text unchanged.
    """

    __slots__ = (
        "_annotations",
        "_calls",
        "_done",
        "_echo",
        "_finish",
        "_garbled",
        "_has_answer",
        "_in_text",
        "_native",
        "_raw",
        "_sources",
        "_start",
        "_tags",
        "_thought",
    )

    def __init__(self, *, echo: str = "", think_tags: bool = False) -> None:
        self._echo = echo
        self._tags = ThinkTags() if think_tags else None
        self._start: StartDelta | None = StartDelta()  # None: both known
        self._in_text = False  # the last delta was text
        self._calls: ToolCallAssembler | None = None  # None without calls
        self._raw: dict[str, Any] = {}  # fields of the next proof
        self._thought: list[str] | None = None
        self._annotations: Sequence[dict[str, Any]] = ()
        self._sources: Sequence[Any] = ()
        self._finish: str | None = None
        self._native: str | None = None  # the upstream's own finish reason
        self._done = False
        self._garbled = b""
        self._has_answer = False  # any text, refusal or call has arrived

    def feed(self, event: ServerSentEvent) -> Iterable[Delta]:
        """Raises LLMError for an error inside the stream."""
        if self._garbled:
            raise BadResponse(detail=_excerpt(self._garbled))
        if len(event.data) > MAX_VALUES:
            check_values(event.data)
        try:
            chunk = orjson.loads(event.data)
        except orjson.JSONDecodeError:
            if event.data.startswith(b"[DONE]"):
                self._done = True
                return ()
            chunk = _json_or_text(event)
        if event.event == "error":
            raise classify_error(chunk)
        if not isinstance(chunk, dict):
            if isinstance(chunk, str):
                self._garbled = event.data or b"?"  # an error if more follows
            return ()
        text = self._plain_text(chunk) if self._in_text else None
        if text is None:
            deltas = list(self._chunk(chunk))
            self._has_answer = self._has_answer or any(map(_is_answer, deltas))
            return deltas
        return (TextDelta(TEXT, text),) if text else ()

    def match_plain_text(self, data: Any) -> tuple[str, Callable[[str], Delta]] | None:
        """See `codec.PlainTextMatcher`."""
        if not self._in_text or not isinstance(data, dict):
            return None
        text = self._plain_text(data)
        return None if text is None else (text, _TEXT_DELTA)

    def close(self) -> Iterator[Delta]:
        """Raises ProviderDown if the answer is not complete."""
        yield from self._flush_tags()
        yield from self._emit_sources()
        yield from self._emit_proof()
        if self._calls:
            ended = bool(self._finish) and self._reason() in NATURAL_ENDS
            yield from self._calls.close(ended=ended)
        if self._finish is None and not self._done:
            raise CutOff(detail="The stream ended before its finish_reason.")
        if self._finish is None and not self._has_answer:
            raise BadResponse(detail="The stream ended without an answer.")
        if self._finish in _FAILED:
            raise ProviderDown(detail=f"finish_reason: {self._finish}")
        yield FinishDelta(self._reason(), self._finish)

    def answer(self, body: dict[str, Any]) -> Iterator[Delta]:
        """Decode a complete `chat.completion`. Raises LLMError if it is an error
        instead."""
        self._raise_error(body)
        choices = body.get("choices")
        if not isinstance(choices, list) or not choices:
            raise BadResponse(detail="An answer without choices.")
        yield from self._head(body)
        choice = choices[0]
        yield from self._message(choice.get("message") or {})
        self._finish = _reason_of(choice, "finish_reason")
        self._native = _reason_of(choice, "native_finish_reason")
        self._done = self._has_answer = True
        yield from self.close()

    # Chunks

    def _plain_text(self, chunk: dict[str, Any]) -> str | None:
        """The text of a chunk that holds nothing else; None for any other chunk."""
        choices = chunk.get("choices")
        if (
            not choices
            or len(choices) > 1
            or chunk.get("usage") is not None
            or "error" in chunk
            or "x_groq" in chunk
            or "citations" in chunk
            or "search_results" in chunk
        ):
            return None
        choice = choices[0]
        delta = choice.get("delta")
        if (
            not delta
            or choice.get("index")
            or choice.get("finish_reason") is not None
            or (len(delta) > 1 and not delta.keys() <= _PLAIN)
        ):
            return None
        text = delta.get("content")
        return text if type(text) is str and self._tags is None else None

    def _chunk(self, chunk: dict[str, Any]) -> Iterator[Delta]:
        self._raise_error(chunk)
        yield from self._head(chunk)
        for choice in chunk.get("choices") or ():
            if choice.get("index"):
                continue  # of n choices only the first is used
            # Perplexity's `message` repeats the whole text; only `delta` is new.
            yield from self._message(choice.get("delta") or {})
            self._native = _reason_of(choice, "native_finish_reason") or self._native
            if reason := _reason_of(choice, "finish_reason"):
                self._finish = reason
                yield FinishDelta(self._reason(), reason)  # provisional

    def _raise_error(self, body: dict[str, Any]) -> None:
        groq = body.get("x_groq")
        if body.get("error") or body.get("object") == "error":
            raise classify_error(body)
        if isinstance(groq, dict) and groq.get("error"):
            raise classify_error(groq)
        if "choices" not in body and ("detail" in body or "errors" in body):
            raise classify_error(body)

    def _head(self, body: dict[str, Any]) -> Iterator[Delta]:
        """Response id and model, usage, and sources."""
        if self._start is not None:
            yield from self._begin(body)
        usage = body.get("usage")
        if not usage and isinstance(groq := body.get("x_groq"), dict):
            usage = groq.get("usage")
        if isinstance(usage, dict) and usage:
            yield usage_of(usage)
        sources = body.get("search_results") or body.get("citations")
        if isinstance(sources, list) and sources:
            self._sources = sources  # the same list in every chunk

    def _begin(self, body: dict[str, Any]) -> Iterator[Delta]:
        """Emit the first id and model that are not empty; Azure's first chunk has
        none."""
        assert self._start is not None
        known = self._start
        start = StartDelta(
            known.response_id or str(body.get("id") or ""),
            known.model or str(body.get("model") or ""),
        )
        if start != known:
            yield start
        self._start = None if start.response_id and start.model else start

    # The assistant's output

    def _message(self, message: dict[str, Any]) -> Iterator[Delta]:
        yield from self._reasoning(message)
        for entry in message.get("executed_tools") or ():  # Groq
            yield from self._emit_receipt(entry)
        if content := message.get("content"):
            yield from self._content(content, message.get("extra_content"))
        if refusal := message.get("refusal"):
            yield from self._begin_text()
            yield RefusalDelta(TEXT, refusal)
        if extra := message.get("extra_content"):
            yield from self._opaque(extra)
        for entry in message.get("tool_calls") or ():
            yield from self._call(entry)
        if legacy := message.get("function_call"):
            yield from self._legacy(legacy)
        for image in message.get("images") or ():
            yield from self._image(image)
        if annotations := message.get("annotations"):
            yield from self._annotate(annotations)

    def _content(self, content: Any, extra: Any) -> Iterator[Delta]:
        if isinstance(content, dict):  # Cloudflare parses structured output
            content = orjson.dumps(content).decode()
        if isinstance(content, str):
            if isinstance(extra, dict) and (extra.get("google") or {}).get("thought"):
                yield from self._emit_thinking(content)
            elif self._tags is None:
                yield from self._emit_text(content)
            else:
                yield from self._split_tags(self._tags.feed(content))
            return
        for part in content if isinstance(content, list) else ():
            if not isinstance(part, dict):
                yield from self._emit_text(str(part))
            elif part.get("type") == "thinking":  # Mistral
                self._raw.setdefault("content", []).append(part)
                yield from self._emit_thinking(text_in(part.get("thinking")))
            elif part.get("type") in ("text", "output_text"):
                yield from self._emit_text(text_in(part.get("text")))

    def _emit_text(self, text: str) -> Iterator[Delta]:
        if not text:
            return
        yield from self._begin_text()
        yield TextDelta(TEXT, text)
        for annotation in self._annotations:
            yield AnnotationDelta(TEXT, annotation)
        self._annotations = ()

    def _begin_text(self) -> Iterator[Delta]:
        """Begin text; a proof between two texts is held back, so that they stay one
        message."""
        if not self._in_text:
            yield from self._emit_proof()
            self._in_text = True

    def _emit_thinking(
        self, text: str, kind: Literal["text", "summary"] = "text"
    ) -> Iterator[Delta]:
        if text:
            self._in_text = False
            if self._thought is None:
                self._thought = []
            self._thought.append(text)
            yield ReasoningDelta(REASONING, text, kind)

    def _split_tags(self, pieces: Iterable[tuple[bool, str]]) -> Iterator[Delta]:
        for is_thought, text in pieces:
            yield from (
                self._emit_thinking(text) if is_thought else self._emit_text(text)
            )

    def _flush_tags(self) -> Iterator[Delta]:
        if self._tags is not None:
            yield from self._split_tags(self._tags.close())

    def _reasoning(self, message: dict[str, Any]) -> Iterator[Delta]:
        if message.keys().isdisjoint(REASONING_FIELDS):
            return
        for name, block in blocks_of(message):
            self._raw.setdefault(name, []).append(block)
        for name in OPAQUE_FIELDS:
            if value := message.get(name):
                self._raw[name] = value
        text, kind = thought_of(message)
        if text:
            yield from self._emit_thinking(text, kind)

    def _opaque(self, extra: Any) -> Iterator[Delta]:
        """Gemini's signature, beside its text."""
        if not isinstance(extra, dict):
            return
        if not (extra.get("google") or {}).get("thought_signature"):
            return
        if self._in_text:
            yield ProofDelta(TEXT, {"extra_content": extra})
        else:
            self._raw["extra_content"] = extra

    def _emit_proof(self) -> Iterator[Delta]:
        """Emit the collected proof before another item begins."""
        if not self._raw and not (self._echo and self._thought):
            return
        raw, self._raw = self._raw, {}
        thought, self._thought = sanitize_text("".join(self._thought or ())), None
        if self._echo != "content":
            raw.pop("content", None)  # only Mistral takes its thinking parts back
        for name in raw.keys() & _PIECED:
            raw[name] = join_pieces(raw[name])
        if self._echo and self._echo != "content" and thought:
            raw[self._echo] = thought
        if "reasoning_opaque" in raw and thought:
            raw["reasoning_text"] = thought
        if raw:
            yield ProofDelta(REASONING, raw)

    # Annotations and pictures

    def _annotate(self, annotations: Iterable[Any]) -> Iterator[Delta]:
        for annotation in annotations:
            if not isinstance(annotation, dict):
                continue
            if (citation := _annotation(annotation)) is None:
                continue
            if self._in_text:
                yield AnnotationDelta(TEXT, citation)
            else:
                self._annotations = [*self._annotations, citation]

    def _emit_sources(self) -> Iterator[Delta]:
        """Sources of Perplexity and xAI, which apply to the answer as a whole."""
        if not self._in_text:
            return
        for source in self._sources:
            fields = source if isinstance(source, dict) else {"url": source}
            if url := fields.get("url"):
                yield AnnotationDelta(TEXT, _citation(fields, str(url)))

    def _image(self, image: Any) -> Iterator[Delta]:
        url = ((image or {}).get("image_url") or {}).get("url") or ""
        if not url.startswith("data:"):
            return
        self._in_text = False
        item = {"type": "image_generation_call", "result": url.partition(",")[2]}
        yield ItemDelta(("image", url[-32:]), {**item, "status": "completed"}, True)

    def _emit_receipt(self, entry: Any) -> Iterator[Delta]:
        if isinstance(entry, dict):
            item, whole = receipt_of(entry)
            yield ItemDelta(("executed", entry.get("index") or 0), item, whole)

    # Calls

    def _call(self, entry: Any) -> Iterator[Delta]:
        if not isinstance(entry, dict):
            return
        yield from self._emit_proof()
        self._in_text = False
        if self._calls is None:
            self._calls = ToolCallAssembler()
        yield from self._calls.feed(entry)

    def _legacy(self, function: dict[str, Any]) -> Iterator[Delta]:
        """The single call of the API before tools; Snowflake sends an empty one."""
        if function.get("name") or function.get("arguments"):
            yield from self._call({"index": "legacy", "function": function})

    def _reason(self) -> FinishReason:
        raw = self._finish or ""
        if self._native and self._calls and not self._calls.are_whole():
            # OpenRouter reports "tool_calls" though the length limit cut the arguments.
            raw = self._native if _finish(self._native) == "length" else raw
        return _finish(raw) or ("tool_calls" if self._calls else "stop")


def _is_answer(delta: Delta) -> bool:
    match delta:
        case TextDelta(text=text) | RefusalDelta(text=text):
            return bool(text)
        case ToolCallDelta() | ItemDelta():
            return True
    return False


def _json_or_text(event: ServerSentEvent) -> Any:
    """The data as JSON if a lenient parser can read it, else as text."""
    try:
        return event.json()
    except ValueError:
        return event.data.decode(errors="replace")


def usage_of(usage: dict[str, Any]) -> UsageDelta:
    """A host's `usage` in canonical meaning; the original object stays in `raw`."""
    into = usage.get("prompt_tokens_details")
    out = usage.get("completion_tokens_details")
    read, written = count(usage, "prompt_tokens"), count(usage, "completion_tokens")
    cached = _first(
        count(into, "cached_tokens"),
        count(usage, "prompt_cache_hit_tokens"),  # DeepSeek
        count(usage, "cached_tokens"),  # Together
        count(usage, "cache_read_input_tokens"),
    )
    reasoned = _first(count(out, "reasoning_tokens"), count(usage, "reasoning_tokens"))
    if read is not None and cached and cached > read:
        read += cached  # Grok on Azure counts cached tokens separately
    total = count(usage, "total_tokens")
    if written is not None and total is None and reasoned and reasoned > written:
        written += reasoned  # reasoning is counted separately, and there is no total
    elif written is not None and total is not None:
        # xAI counts reasoning separately; Gemini's copy of this API reports it only in
        # the total. Mistral counts audio input separately from the prompt; it is not
        # output.
        audio = count(into, "audio_tokens") or 0
        audio = audio if audio > (read or 0) else 0
        written += max(0, total - (read or 0) - audio - written)
    return UsageDelta(
        input_tokens=read,
        output_tokens=written,
        cached_tokens=cached,
        cache_write_tokens=_first(
            count(into, "cache_write_tokens"),
            count(usage, "cache_creation_input_tokens"),
        ),
        reasoning_tokens=reasoned,
        cost=_cost(usage),
        raw=usage,
    )


def _annotation(annotation: dict[str, Any]) -> dict[str, Any] | None:
    nested = annotation.get("url_citation")
    if annotation.get("type") != "url_citation":
        return None
    fields = nested if isinstance(nested, dict) else annotation
    return _citation(fields, str(fields.get("url") or ""))


def _citation(fields: dict[str, Any], url: str) -> dict[str, Any]:
    return {
        "type": "url_citation",
        "url": url,
        "title": fields.get("title") or "",
        "start_index": fields.get("start_index") or 0,
        "end_index": fields.get("end_index") or 0,
    }


def _reason_of(choice: dict[str, Any], name: str) -> str | None:
    """The reason as text; a value of another type counts as an unknown reason."""
    value = choice.get(name)
    return None if value is None else str(value or "")


def _finish(raw: str) -> FinishReason | None:
    return _FINISH.get(raw.lower())


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)


def _cost(usage: dict[str, Any]) -> float | None:
    """USD: OpenRouter's number, Perplexity's object, xAI's ticks of 1e-10."""
    reported = usage.get("cost")
    if isinstance(reported, dict):
        cost = amount(reported, "total_cost")
    else:
        cost = amount(usage, "cost")
    if cost is not None:
        return float(cost)
    ticks = amount(usage, "cost_in_usd_ticks")
    return ticks / 1e10 if ticks else None


def _excerpt(data: bytes) -> str:
    return f"Not JSON: {data[:200].decode(errors='replace')}"
