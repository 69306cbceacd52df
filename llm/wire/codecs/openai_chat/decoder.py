"""Decoder of Chat Completions answers: chunks, or one complete message, to deltas.

Theory of operation: choice 0 is emitted as it arrives (`message_decoder`). Three things
wait for the end, because hosts send them early, twice, wrongly or never: the finish
reason, which calls were cut off, and whether the answer is complete.

Each rule here handles some host's behaviour: `finish_reason` may be "stop" with tool
calls, may come twice or with more text after it; usage may be in any chunk, or in all
of them; an error may have any shape and come with other fields.

Source: https://platform.openai.com/docs/api-reference/chat/streaming
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import orjson

from llm.errors import BadResponse, CutOff, ProviderDown
from llm.wire.bounded_json import MAX_VALUES, check_values
from llm.wire.classify_errors import classify_error, is_error_list
from llm.wire.codecs.openai_chat.message_decoder import TEXT, MessageDecoder
from llm.wire.codecs.openai_chat.usage import usage_of
from llm.wire.deltas import (
    NATURAL_ENDS,
    Delta,
    FinishDelta,
    FinishReason,
    ItemDelta,
    RefusalDelta,
    StartDelta,
    TextDelta,
    ToolCallDelta,
)
from llm.wire.sse import ServerSentEvent

_TEXT_DELTA = partial(TextDelta, TEXT)

#: Keys of a delta that holds plain text, or nothing.
_PLAIN = frozenset({"content", "role", "token_id"})
_FINISH: dict[str, FinishReason] = {
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_length": "length",
    "content_filter": "content_filter",
    "sensitive": "content_filter",
    "refusal": "content_filter",
    # Gemini's own words, which some gateways forward.
    "blocklist": "content_filter",
    "prohibited_content": "content_filter",
    "recitation": "content_filter",
    "safety": "content_filter",
    "spii": "content_filter",
}
#: Prefixes of Gemini's own reason at its compatible endpoint.
_FILTERED = "content_filter:"
_UNREADABLE_CALL = "function_call_filter:"
#: Its reasons beside calls that are complete and can be answered.
_UNWANTED_CALLS = frozenset({"UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"})
#: Reasons that mean that the answer failed although the stream ended normally.
_FAILED = frozenset({"error", "abort", "insufficient_system_resource", "network_error"})


#: What MiniMax's codes in `base_resp` mean, of answers without choices.
_MINIMAX = {
    1001: "timeout",
    1002: "rate_limited",
    1004: "invalid_api_key",
    1008: "insufficient_quota",
    1026: "content_filter",
    1027: "content_filter",
    1039: "context_length_exceeded",
}


class ChatDecoder:
    """Decodes one answer. `echo` names the field in which plain reasoning is sent back.

    With `think_tags`, an answer that begins with "<think>" is read as reasoning up to
    "</think>": servers without a reasoning parser send such text unchanged. With
    `think_begun` it need not begin so, because the template has put the tag into the
    prompt.
    """

    __slots__ = (
        "_done",
        "_finish",
        "_garbled",
        "_has_answer",
        "_message",
        "_native",
        "_notice",
        "_start",
        "_takes_whole",
        "_unread",
    )

    def __init__(
        self, *, echo: str = "", think_tags: bool = False, think_begun: bool = False
    ) -> None:
        self._message = MessageDecoder(
            echo=echo, think_tags=think_tags, think_begun=think_begun
        )
        self._start: StartDelta | None = StartDelta()  # None: both known
        self._finish: str | None = None
        self._native: str | None = None  # the upstream's own finish reason
        self._done = False
        self._garbled = b""
        self._has_answer = False  # any text, refusal or call has arrived
        self._takes_whole = True  # no delta has had content
        self._unread: dict[str, Any] = {}  # a whole message in its place
        self._notice: dict[str, Any] = {}  # the error, if there is no answer

    def feed(self, event: ServerSentEvent) -> Iterable[Delta]:
        """Raises LLMError for an error inside the stream."""
        if self._done:
            return self._read_late_usage(event.data)
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
        if event.event == "error" or (type(chunk) is list and is_error_list(chunk)):
            raise classify_error(chunk)
        if not isinstance(chunk, dict):
            if isinstance(chunk, str):
                self._garbled = event.data or b"?"  # an error if more follows
            return ()
        text = self._plain_text(chunk) if self._message.in_text else None
        if text is None:
            return self._note_answer(self._chunk(chunk))
        return (TextDelta(TEXT, text),) if text else ()

    def match_plain_text(self, data: Any) -> tuple[str, Callable[[str], Delta]] | None:
        """See `codec.PlainTextMatcher`."""
        if not self._message.in_text or not isinstance(data, dict):
            return None
        text = self._plain_text(data)
        return None if text is None else (text, _TEXT_DELTA)

    def close(self) -> Iterator[Delta]:
        """Raises ProviderDown if the host has not ended the answer: by a finish reason,
        or by the stream's end marker, which a complete message does not have."""
        if self._unread and self._takes_whole:
            yield from self._read_unread()
        yield from self._message.close()
        if calls := self._message.calls:
            ended = bool(self._finish) and self._reason() in NATURAL_ENDS
            yield from calls.close(ended=ended)
        if self._finish is None:
            self._check_end(has_answer=self._has_answer or bool(calls))
        if self._finish in _FAILED:
            yield FinishDelta(self._reason(), self._finish)
            raise ProviderDown(detail=f"finish_reason: {self._finish}")
        if self._finish is not None and self._finish.startswith(_UNREADABLE_CALL):
            self._refuse_unreadable(self._finish.removeprefix(_UNREADABLE_CALL).strip())
        yield FinishDelta(self._reason(), self._finish)

    def answer(self, body: dict[str, Any]) -> Iterator[Delta]:
        """Decode a complete `chat.completion`. Raises LLMError if it is an error
        instead."""
        self._raise_error(body)
        if _is_notice(body):
            raise classify_error(body)
        choices = body.get("choices")
        if not isinstance(choices, list) or not choices:
            raise BadResponse(detail="An answer without choices.")
        yield from self._head(body)
        choice = choices[0] if isinstance(choices[0], dict) else {}
        self._message.is_whole = True
        message = choice.get("message") or _completion(choice)
        yield from self._message.feed(message)
        _raise_error_of(choice)
        self._finish = _reason_of(choice, "finish_reason")  # Snowflake's is ""
        self._native = _reason_of(choice, "native_finish_reason")
        yield from self.close()

    def _check_end(self, *, has_answer: bool) -> None:
        """Raises LLMError unless the end marker follows an answer."""
        if self._notice and not has_answer:
            raise classify_error(self._notice)
        if not self._done:
            raise CutOff(detail="The answer ended without a finish_reason.")
        if not has_answer:
            raise BadResponse(detail="The stream ended without an answer.")

    def _refuse_unreadable(self, reason: str) -> None:
        """Raises BadResponse if Gemini tried to call a tool and there is no valid
        call."""
        if reason in _UNWANTED_CALLS and self._message.calls:
            return
        raise BadResponse(
            "The model wrote a tool call that cannot be read; try again.",
            upstream_code=reason,
        )

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
        if type(choice) is not dict:
            return None
        delta = choice.get("delta")
        if (
            not delta
            or choice.get("index")
            or choice.get("finish_reason") is not None
            or (len(delta) > 1 and not delta.keys() <= _PLAIN)
        ):
            return None
        text = delta.get("content")
        return text if type(text) is str and self._message.is_plain else None

    def _chunk(self, chunk: dict[str, Any]) -> Iterator[Delta]:
        self._raise_error(chunk)
        if _is_notice(chunk):  # an error, or a status such as "queued"
            self._notice = chunk
        yield from self._head(chunk)
        for position, choice in enumerate(chunk.get("choices") or ()):
            if not _is_first(choice, position):
                continue  # of n choices only the first is used
            if delta := choice.get("delta") or _completion(choice):
                yield from self._message.feed(delta)
                if self._takes_whole:
                    is_empty = not any(v for k, v in delta.items() if k != "role")
                    self._takes_whole = is_empty
            # Perplexity's `message` repeats the whole text; only `delta` is new. Some
            # hosts answer a stream with one whole message.
            if self._takes_whole and isinstance(choice.get("message"), dict):
                self._unread = choice["message"]
            _raise_error_of(choice)
            if "native_finish_reason" in choice:
                native = _reason_of(choice, "native_finish_reason")
                self._native = native or self._native
            if reason := _reason_of(choice, "finish_reason"):
                self._finish = reason
                yield FinishDelta(self._reason(), reason)  # provisional

    def _read_late_usage(self, data: bytes) -> Iterator[Delta]:
        """Only the counts of what follows the end marker, at which an SDK stops."""
        try:
            chunk = orjson.loads(data) if len(data) <= MAX_VALUES else None
        except orjson.JSONDecodeError:
            return
        if not isinstance(chunk, dict):
            return
        if isinstance(usage := chunk.get("usage"), dict) and usage:
            yield usage_of(usage, chunk.get("service_tier"))

    def _read_unread(self) -> Iterator[Delta]:
        self._message.is_whole = True
        yield from self._note_answer(self._message.feed(self._unread))

    def _note_answer(self, deltas: Iterable[Delta]) -> Iterator[Delta]:
        """The deltas one by one, so that those before an error count."""
        for delta in deltas:
            self._has_answer = self._has_answer or _is_answer(delta)
            yield delta

    def _raise_error(self, body: dict[str, Any]) -> None:
        groq = body.get("x_groq")
        if body.get("error") or body.get("object") == "error":
            raise classify_error(body)
        if isinstance(groq, dict) and groq.get("error"):
            raise classify_error(groq)
        if body.get("choices"):
            return
        if "choices" not in body and ("detail" in body or "errors" in body):
            raise classify_error(body)
        if self._finish:  # whole: a chunk after it may name how the host's job ended
            return
        base = body.get("base_resp")
        if isinstance(base, dict) and (code := base.get("status_code")):
            fields = {"code": code, "message": base.get("status_msg") or ""}
            raise classify_error({"type": _MINIMAX.get(code), **fields})

    def _head(self, body: dict[str, Any]) -> Iterator[Delta]:
        """Response id and model, usage, and sources."""
        if self._start is not None:
            yield from self._begin(body)
        usage = body.get("usage")
        if not usage and isinstance(groq := body.get("x_groq"), dict):
            usage = groq.get("usage")
        if isinstance(usage, dict) and usage:
            yield usage_of(usage, body.get("service_tier"))
        sources = body.get("search_results") or body.get("citations")
        if isinstance(sources, list) and sources:
            self._message.sources = sources  # the same list in every chunk

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

    def _reason(self) -> FinishReason:
        raw = self._finish or ""
        calls = self._message.calls
        if self._native and calls and not calls.are_whole():
            # OpenRouter reports "tool_calls" though the length limit cut the arguments.
            raw = self._native if _finish(self._native) == "length" else raw
        return _finish(raw) or ("tool_calls" if calls else "stop")


def _is_first(choice: Any, position: int) -> bool:
    if not isinstance(choice, dict):
        return False
    index = choice.get("index")
    return index in (0, "0") if index is not None else position == 0


def _is_notice(body: dict[str, Any]) -> bool:
    """Whether the host says something of its own, beside any answer."""
    message = body.get("message")
    return "choices" not in body and isinstance(message, str) and bool(message)


def _raise_error_of(choice: dict[str, Any]) -> None:
    """OpenRouter reports the error of an upstream in the choice."""
    error = choice.get("error")
    if isinstance(error, dict) and (error.get("message") or error.get("code")):
        raise classify_error(error)


def _completion(choice: dict[str, Any]) -> dict[str, Any]:
    """The message of a `text_completion`, which some servers send."""
    text = choice.get("text")
    return {"content": text} if isinstance(text, str) and text else {}


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


def _reason_of(choice: dict[str, Any], name: str) -> str | None:
    """The reason as text; a value of another type counts as an unknown reason."""
    value = choice.get(name)
    return None if value is None else str(value or "")


def _finish(raw: str) -> FinishReason | None:
    word = raw.lower()
    return "content_filter" if word.startswith(_FILTERED) else _FINISH.get(word)


def _excerpt(data: bytes) -> str:
    return f"Not JSON: {data[:200].decode(errors='replace')}"
