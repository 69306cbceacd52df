"""Decoder of GenerateContentResponse: chunks, or one complete answer, to deltas.

Theory of operation: a part begins an item or extends the last one. The original parts
of an item are collected in order and emitted as its proof: the proofs of all items, one
after another, are the `parts` that Gemini wants back. Therefore a part without visible
content (an empty text with a signature, the result of a tool that Google ran) belongs
to the item before it. Plain text without a signature needs no proof.

Four things wait for the end, because they arrive early, several times or never: the
finish reason, usage (cumulative, but with gaps in the middle), the sources, and whether
the answer is complete. There is no last event: the bytes just end.

A long answer takes several requests. The finish reason CONTINUATION does not end the
answer: the decoder keeps its open items, returns the fields that the next request needs
(`continuation`), and is fed the next answer after `continue_answer`.

Source: https://ai.google.dev/api/generate-content#v1beta.GenerateContentResponse
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

from llm.errors import BadResponse, CutOff, LLMError
from llm.wire.classify_errors import classify_error
from llm.wire.codecs.event_json import parse_event
from llm.wire.codecs.gemini.hosted_results import (
    Receipts,
    citations,
    image_of,
    media_of,
    recitations,
    uses_maps,
)
from llm.wire.codecs.gemini.original_parts import Part, Parts
from llm.wire.codecs.gemini.tool_calls import (
    MAX_CALLS,
    StreamedCall,
    call_name,
    json_text,
)
from llm.wire.codecs.unshown_media import media_note
from llm.wire.deltas import (
    MAX_ITEMS,
    AnnotationDelta,
    CloseDelta,
    Delta,
    FinishDelta,
    FinishReason,
    ItemDelta,
    ProofDelta,
    ReasoningDelta,
    StartDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
    too_many_items,
)
from llm.wire.sse import ServerSentEvent
from llm.wire.usage_numbers import count, name_tier

#: The model tried to call a tool but wrote an invalid call: there is nothing to run.
_UNREADABLE = frozenset(
    {"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "MISSING_THOUGHT_SIGNATURE"}
)
#: Also errors, but the calls that arrived are complete and can be answered.
_UNWANTED = frozenset({"UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"})
_GOES_ON = "CONTINUATION"
_CUT = frozenset({"MAX_TOKENS", _GOES_ON})
_FILTERED = frozenset(
    {
        "BLOCKLIST",
        "ESCALATION",
        "IMAGE_OTHER",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
        "IMAGE_SAFETY",
        "LANGUAGE",
        "MODEL_ARMOR",
        "NO_IMAGE",
        "OTHER",
        "PROHIBITED_CONTENT",
        "PUP_LIMITED_DISABLED",
        "RECITATION",
        "SAFETY",
        "SPII",
    }
)
#: Names of the numbers that `$alt=json;enum-encoding=int` has in their place.
_FINISH_NUMBERS = {
    1: "STOP",
    2: "MAX_TOKENS",
    3: "SAFETY",
    4: "RECITATION",
    5: "OTHER",
    6: "LANGUAGE",
    7: "BLOCKLIST",
    8: "PROHIBITED_CONTENT",
    9: "SPII",
    10: "MALFORMED_FUNCTION_CALL",
    11: "IMAGE_SAFETY",
    12: "UNEXPECTED_TOOL_CALL",
    13: "TOO_MANY_TOOL_CALLS",
}
_BLOCK_NUMBERS = {
    1: "SAFETY",
    2: "OTHER",
    3: "BLOCKLIST",
    4: "PROHIBITED_CONTENT",
    5: "IMAGE_SAFETY",
}
#: Models whose searches cost as much for many queries as for one.
_BILLED_BY_PROMPT = ("gemini-1", "gemini-2")
#: Prefix of the reason why the prompt itself was refused; such an answer has no
#: finishReason.
PROMPT_BLOCKED = "promptFeedback."


class GeminiDecoder:
    """Decodes one answer; of several candidates only the first."""

    __slots__ = (
        "_block",
        "_calls",
        "_citations",
        "_finish",
        "_goes_on",
        "_grounding",
        "_key",
        "_kind",
        "_message",
        "_parts",
        "_receipts",
        "_searched",
        "_start",
        "_streamed",
        "_unshown",
        "_urls",
        "_usage",
        "_usage_sent",
    )

    def __init__(self, *, goes_on: bool = True) -> None:
        self._goes_on = goes_on  # False if nobody requests the rest
        self._key = -1  # of the latest item
        self._kind: Literal["", "text", "thought"] = ""  # of its text while it grows
        self._parts = Parts()  # the parts of that item
        self._streamed: StreamedCall | None = None
        self._calls = 0
        self._unshown: dict[str, int] = {}  # characters of media, by their type
        self._receipts = Receipts()
        self._searched: set[str] = set()  # queries of earlier portions
        self._start = StartDelta()
        self._usage: dict[str, Any] | None = None
        self._usage_sent = False
        self._finish: dict[str, Any] | None = None  # the candidate with the reason
        self._block = ""
        self._grounding: dict[str, Any] = {}
        self._urls: dict[str, Any] = {}
        self._citations: dict[str, Any] = {}

    def feed(self, event: ServerSentEvent) -> Iterator[Delta]:
        if event.data == b"[DONE]":  # not Google's, but some gateways add it
            return
        yield from self.decode_chunks(parse_event(event))

    def decode_chunks(self, data: Any) -> Iterator[Delta]:
        """Decode one chunk, a complete answer, or a list of chunks (without
        `alt=sse`)."""
        for chunk in data if isinstance(data, list) else [data]:
            if not isinstance(chunk, dict):
                raise BadResponse(detail="The event is not a JSON object.")
            yield from self._chunk(chunk)

    @property
    def continuation(self) -> dict[str, Any]:
        """Fields to add to the same request to get the rest; {} when there is no
        rest."""
        finish = self._finish or {}
        token = finish.get("continuationToken")
        if not (self._goes_on and token and finish.get("finishReason") == _GOES_ON):
            return {}
        return {"continuationToken": token}

    def continue_answer(self) -> None:
        """Tell the decoder that the next bytes continue this answer."""
        self._finish, self._usage, self._usage_sent = None, None, False
        self._searched |= self._queries

    def close(self) -> Iterator[Delta]:
        if self.continuation:
            yield from self._final_deltas()
            return
        if self._streamed:
            yield from self._end_streamed(complete=False)
        yield from self._emit_notes()
        yield from self._emit_sources()
        yield from self._emit_proof()
        yield from self._search_receipts()
        yield from self._final_deltas()
        if self._finish is None and not self._block:
            raise CutOff(detail="The stream ended without a finishReason.")
        self._refuse_unreadable()

    # Chunks

    def _chunk(self, data: dict[str, Any]) -> Iterator[Delta]:
        if data.get("error"):
            yield from self._final_deltas()
            raise _error_of(data)
        yield from self._update_start(data)
        if isinstance(feedback := data.get("promptFeedback"), dict):
            block = _name(feedback.get("blockReason"), _BLOCK_NUMBERS)
            self._block = block or self._block
        for position, candidate in enumerate(data.get("candidates") or ()):
            if not isinstance(candidate, dict):
                continue
            index = candidate.get("index")
            if index == 0 or (index is None and position == 0):
                yield from self._candidate(candidate)
        usage = data.get("usageMetadata")
        if isinstance(usage, dict) and any(
            name.endswith("TokenCount") for name in usage
        ):
            self._usage = usage
            if not self._usage_sent:  # for callers that stop early
                self._usage_sent = True
                yield usage_of(usage)

    def _update_start(self, data: dict[str, Any]) -> Iterator[Delta]:
        start = StartDelta(
            data.get("responseId") or self._start.response_id,
            data.get("modelVersion") or self._start.model,
        )
        if start != self._start:
            self._start = start
            yield start

    def _candidate(self, candidate: dict[str, Any]) -> Iterator[Delta]:
        content = candidate.get("content") or {}
        for part in content.get("parts") or ():
            if isinstance(part, dict):
                yield from self._part(part)
        if candidate.get("finishReason"):
            self._finish = candidate
        if isinstance(grounding := candidate.get("groundingMetadata"), dict):
            self._grounding = grounding or self._grounding
        if isinstance(urls := candidate.get("urlContextMetadata"), dict):
            self._urls = urls or self._urls
        if isinstance(cited := candidate.get("citationMetadata"), dict):
            self._citations = cited or self._citations

    def _part(self, part: Part) -> Iterable[Delta]:
        if None in part.values():  # gateways write every field that a part may have
            part = {name: value for name, value in part.items() if value is not None}
        if "text" in part:
            return self._text(part)
        if "functionCall" in part:
            return self._call(part)
        if "executableCode" in part or "toolCall" in part:
            return self._begin_hosted_call(part)
        if "codeExecutionResult" in part or "toolResponse" in part:
            return self._end_hosted_call(part)
        # An image among the thoughts is a draft, not part of the answer.
        if not part.get("thought") and (image := image_of(part)):
            return self._emit_item(part, ItemDelta(self._key + 1, image, done=True))
        if not part.get("thought") and (media := media_of(part)):
            kind, size = media
            self._unshown[kind] = self._unshown.get(kind, 0) + size
            # It would be sent back with every later message; its signature is.
            signature = part.get("thoughtSignature")
            part = {"text": "", "thoughtSignature": signature} if signature else {}
        return self._attach(part) if part else ()

    # Items

    def _begin(self, kind: Literal["", "text", "thought"]) -> Iterator[Delta]:
        """Begin a new item; the one before it is complete."""
        if self._streamed:  # the call was never ended
            yield from self._end_streamed(complete=False)
        if self._kind:
            yield from self._emit_proof()
            yield CloseDelta(self._key)
        self._key += 1
        if self._key >= MAX_ITEMS:
            raise too_many_items()
        self._kind, self._parts = kind, Parts()

    def _text(self, part: Part) -> Iterator[Delta]:
        text, kind = part["text"], "thought" if part.get("thought") else "text"
        if not text:
            if part.get("thoughtSignature"):
                yield from self._attach(part)
            return
        if kind != self._kind:
            yield from self._begin("thought" if part.get("thought") else "text")
        self._parts.add(part)
        if kind == "text":
            yield TextDelta(self._key, text)
        else:
            yield ReasoningDelta(self._key, text, "summary")

    def _attach(self, part: Part) -> Iterator[Delta]:
        """Add a part without visible content to the proof of the item before it."""
        if self._key < 0:
            yield from self._begin("thought")
        self._parts.add(part)
        if not self._kind:
            yield ProofDelta(self._key, self._parts.whole())

    def _emit_item(self, part: Part, *deltas: Delta) -> Iterator[Delta]:
        """Emit an item that is complete with its first part."""
        yield from self._begin("")
        self._parts.add(part)
        yield from deltas
        yield ProofDelta(self._key, self._parts.whole())

    def _emit_proof(self) -> Iterator[Delta]:
        """Emit the proof of a finished text or thought; other items already have
        theirs."""
        if self._kind and (self._kind == "thought" or not self._parts.is_plain()):
            yield ProofDelta(self._key, self._parts.whole())

    # Calls

    def _call(self, part: Part) -> Iterator[Delta]:
        call = part["functionCall"] or {}
        if self._streamed and not call.get("name"):
            yield from self._go_on(part)
            return
        if not call:
            return  # the end of a call whose beginning is missing
        self._calls += 1
        if self._calls > MAX_CALLS:
            raise BadResponse(detail=f"More than {MAX_CALLS:,} function calls.")
        name, id = call_name(call), call.get("id") or ""
        if "partialArgs" in call or call.get("willContinue"):
            yield from self._begin("")
            yield ToolCallDelta(self._key, id, name)
            self._streamed = StreamedCall(part)
            yield from self._go_on(part)
            return
        arguments = json_text(call.get("args") or {})
        key = self._key + 1
        yield from self._emit_item(part, ToolCallDelta(key, id, name, arguments))
        yield CloseDelta(key)

    def _go_on(self, part: Part) -> Iterator[Delta]:
        assert self._streamed is not None
        if self._streamed.feed(part):
            yield from self._end_streamed(complete=True)

    def _end_streamed(self, *, complete: bool) -> Iterator[Delta]:
        """Emit the complete arguments as one delta."""
        call, self._streamed = self._streamed, None
        assert call is not None
        yield ToolCallDelta(self._key, arguments=json_text(call.arguments))
        self._parts.add(call.part())
        yield ProofDelta(self._key, self._parts.whole())
        yield CloseDelta(self._key, complete)

    # Tools that Google runs

    def _begin_hosted_call(self, part: Part) -> Iterator[Delta]:
        key = self._key + 1
        yield from self._emit_item(
            part, ItemDelta(key, self._receipts.begin(key, part))
        )

    def _end_hosted_call(self, part: Part) -> Iterator[Delta]:
        found = self._receipts.end(part)
        if found is None:  # the result of an unknown call
            yield from self._attach(part)
            return
        key, item = found
        yield from self._attach(part)
        # The results of a file search arrive at the end of the answer.
        yield ItemDelta(key, item, done=item["type"] != "file_search_call")

    # The end

    def _emit_notes(self) -> Iterator[Delta]:
        """Name sound and video, which come in many parts, once for each type."""
        if not self._unshown:
            return
        notes = "\n\n".join(media_note(kind, n) for kind, n in self._unshown.items())
        if self._kind == "text":
            notes = "\n\n" + notes
        else:
            yield from self._begin("text")
        yield TextDelta(self._key, notes)

    def _emit_sources(self) -> Iterator[Delta]:
        """Emit the sources of the last message; earlier messages are closed already,
        and the receipt of the search has theirs."""
        if self._kind != "text":
            return
        text = self._parts.text()
        for annotation in citations(self._grounding, text):
            yield AnnotationDelta(self._key, annotation)
        for annotation in recitations(self._citations, text):
            yield AnnotationDelta(self._key, annotation)

    def _search_receipts(self) -> Iterator[Delta]:
        for key, item in self._receipts.of_file_searches(self._grounding):
            yield ItemDelta(key, item, done=True)
        found = self._receipts.of_searches(
            self._grounding, self._urls, is_cited=self._kind == "text"
        )
        for number, item in enumerate(found):
            yield ItemDelta(("search", number), item, done=True)

    def _final_deltas(self) -> Iterator[Delta]:
        """The latest usage and the finish reason."""
        if self._usage:
            usage = usage_of(self._usage)
            if self._grounding or self._receipts.queries:
                self._count_searches(usage)
            yield usage
        if self._finish:
            raw = self._finish["finishReason"]
            reason = self._finish_reason(_name(raw, _FINISH_NUMBERS))
            yield FinishDelta(reason, str(raw))
        elif self._block:
            yield FinishDelta("content_filter", PROMPT_BLOCKED + self._block)

    @property
    def _queries(self) -> set[str]:
        found = self._grounding.get("webSearchQueries") or self._receipts.queries
        return {query for query in found if query}

    def _count_searches(self, usage: UsageDelta) -> None:
        """Google bills a grounded prompt up to Gemini 2.5, and later each query.

        Source: https://ai.google.dev/gemini-api/docs/pricing
        """
        count = len(self._queries - self._searched)
        name = self._start.model.rpartition("/")[2]  # some begin with "models/"
        if name.startswith(_BILLED_BY_PROMPT):
            count = min(count, 1)
        usage.web_searches = count or None
        usage.has_other_prices = uses_maps(self._grounding) or None

    def _finish_reason(self, reason: str) -> FinishReason:
        if reason in _CUT:
            return "pause" if self.continuation else "length"
        unsaid = reason != "STOP" and self._key < 0
        if reason in _FILTERED or unsaid:
            return "content_filter"
        return "tool_calls" if self._calls else "stop"

    def _refuse_unreadable(self) -> None:
        """Raises BadResponse if the model tried to call a tool and there is no valid
        call."""
        finish = self._finish or {}
        reason = _name(finish.get("finishReason"), _FINISH_NUMBERS)
        if reason in _UNREADABLE or (reason in _UNWANTED and not self._calls):
            raise BadResponse(
                "The model wrote a tool call that cannot be read; try again.",
                detail=finish.get("finishMessage") or "",
                upstream_code=reason,
            )


def usage_of(usage: dict[str, Any]) -> UsageDelta:
    """All counts are set: a missing one is 0, not the earlier value; but a total alone
    does not tell what was read and what was written."""
    if usage.keys() <= {"totalTokenCount"}:
        return UsageDelta(raw=usage)
    return UsageDelta(
        input_tokens=_sum(usage, "promptTokenCount", "toolUsePromptTokenCount"),
        output_tokens=_sum(usage, "candidatesTokenCount", "thoughtsTokenCount"),
        cached_tokens=_sum(usage, "cachedContentTokenCount"),
        reasoning_tokens=_sum(usage, "thoughtsTokenCount"),
        raw=usage,
        tier=name_tier(usage.get("serviceTier")) or name_tier(usage.get("trafficType")),
    )


def _sum(usage: dict[str, Any], *names: str) -> int | None:
    """The sum of these counts; None if one of them cannot be read."""
    counts = [count(usage, name) for name in names if usage.get(name) is not None]
    known = [each for each in counts if each is not None]
    return sum(known) if len(known) == len(counts) else None


def _name(value: Any, numbers: dict[int, str]) -> str:
    """A word that may come as its number."""
    if isinstance(value, int):
        return numbers.get(value, str(value)) if value else ""
    return str(value or "")


def _error_of(data: dict[str, Any]) -> LLMError:
    error = data["error"]
    return classify_error(error if isinstance(error, dict) else data)
