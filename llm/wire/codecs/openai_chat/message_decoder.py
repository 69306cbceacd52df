"""Decoder of the assistant's message: text, reasoning, calls, annotations and images.

In: the `delta` of a chunk, or a complete `message`. Out: deltas under the key of the
text, of the reasoning or of the call. Fields that the host wants back unchanged are
collected in `_raw` and emitted as one proof when the reasoning is over.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import orjson

from llm.wire.codecs.openai_chat.citations import citation_of, source_citation
from llm.wire.codecs.openai_chat.hosted_results import receipt_of, search_receipt
from llm.wire.codecs.openai_chat.reasoning import (
    BLOCK_FIELDS,
    OPAQUE_FIELDS,
    REASONING_FIELDS,
    ReasoningBlocks,
    ThinkTags,
    blocks_of,
    join_late,
    text_in,
    thought_of,
)
from llm.wire.codecs.openai_chat.tool_calls import ToolCallAssembler
from llm.wire.codecs.unshown_media import media_note
from llm.wire.deltas import (
    AnnotationDelta,
    Delta,
    ItemDelta,
    ProofDelta,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
)
from llm.wire.sanitize import sanitize_text

TEXT, REASONING = "text", "reasoning"

#: Fields that arrive in pieces and are sent back complete; "content" holds Mistral's
#: thinking parts.
_PIECED = {*BLOCK_FIELDS, "content"}
#: An address that can stand in Markdown.
_ADDRESS = re.compile(r"https?://[^\s<>]{1,4000}")
_IMAGE = re.compile(r"data:image/([a-z0-9.+-]{1,40})", re.IGNORECASE)


class MessageDecoder:
    """Decodes one message. For the options see `decoder.ChatDecoder`."""

    __slots__ = (
        "_annotations",
        "_echo",
        "_images",
        "_is_written",
        "_raw",
        "_sent",
        "_sound",
        "_tags",
        "_thought",
        "calls",
        "in_text",
        "is_plain",
        "is_whole",
        "sources",
    )

    def __init__(self, *, echo: str, think_tags: bool, think_begun: bool) -> None:
        self.in_text = False  # the last delta was text
        self.is_plain = not think_tags  # text is emitted as it is
        self.is_whole = False  # the message comes at once, not in pieces
        self.calls: ToolCallAssembler | None = None  # None without calls
        self.sources: Sequence[Any] = ()  # of the answer as a whole
        self._echo = echo
        self._tags = ThinkTags(begun=think_begun) if think_tags else None
        self._raw: dict[str, Any] = {}  # fields of the next proof
        self._sent: dict[str, Any] = {}  # the latest reasoning's proof so far
        self._images: set[int] | None = None  # hashes of their addresses
        self._is_written = False  # the content has had text
        self._sound = 0  # characters of it, while it has no transcript
        self._thought: list[str] | None = None
        self._annotations: list[dict[str, Any]] | None = None  # before the text

    def feed(self, message: dict[str, Any]) -> Iterator[Delta]:
        if not message.keys().isdisjoint(REASONING_FIELDS):
            yield from self._reasoning(message)
        for entry in _list_in(message, "executed_tools"):  # Groq
            yield from self._emit_receipt(entry)
        content = message.get("content")
        if content or type(content) in (int, float):
            yield from self._content(content, message.get("extra_content"))
            self._is_written |= self.in_text
        if (refusal := message.get("refusal")) and isinstance(refusal, str):
            yield from self._begin_text()
            yield RefusalDelta(TEXT, refusal)
        if annotations := _list_in(message, "annotations"):
            yield from self._annotate(annotations)
        if extra := message.get("extra_content"):
            yield from self._opaque(extra)
        for number, entry in enumerate(message.get("tool_calls") or ()):
            yield from self._call(entry, is_first=number == 0)
        if legacy := message.get("function_call"):
            yield from self._legacy(legacy)
        for image in _list_in(message, "images"):
            yield from self._image(image)
        if isinstance(audio := message.get("audio"), dict):
            yield from self._audio(audio)

    def close(self) -> Iterator[Delta]:
        if self._tags is not None:
            yield from self._split_tags(self._tags.close())
        if self._sound > 0:
            yield from self._emit_text(media_note("audio", self._sound))
        yield from self._emit_sources()
        yield from self._emit_proof()

    def _content(self, content: Any, extra: Any) -> Iterator[Delta]:
        if not isinstance(content, str) and not _has_parts(content):
            # Cloudflare parses structured output.
            content = orjson.dumps(content).decode()
        if isinstance(content, str):
            if _of_google(extra).get("thought"):
                yield from self._emit_thinking(content)
            elif self._tags is None:
                yield from self._emit_text(content)
            else:
                yield from self._split_tags(self._tags.feed(content))
            return
        for part in content if isinstance(content, list) else ():
            if isinstance(part, str):
                yield from self._emit_text(part)
            elif not isinstance(part, dict):
                continue
            elif part.get("type") == "thinking":  # Mistral
                self._add_block("content", part)
                yield from self._emit_thinking(text_in(part.get("thinking")))
            elif part.get("type") == "reasoning":  # Databricks
                summary = text_in(part.get("summary"))
                yield from self._emit_thinking(summary, "summary")
            elif part.get("type") == "refusal" and part.get("refusal"):
                yield from self._begin_text()
                yield RefusalDelta(TEXT, part["refusal"])
            elif part.get("type") in ("text", "output_text", None):
                yield from self._emit_text(text_in(part.get("text")))
            elif part.get("type") == "image_url":
                yield from self._image(part)

    def _emit_text(self, text: str) -> Iterator[Delta]:
        if not text:
            return
        yield from self._begin_text()
        yield TextDelta(TEXT, text)
        for annotation in self._annotations or ():
            yield AnnotationDelta(TEXT, annotation)
        self._annotations = None

    def _begin_text(self) -> Iterator[Delta]:
        """Begin text; a proof between two texts is held back, so that they stay one
        message."""
        if not self.in_text:
            yield from self._emit_proof()
            self.in_text = True

    def _emit_thinking(
        self, text: str, kind: Literal["text", "summary"] = "text"
    ) -> Iterator[Delta]:
        if text:
            self.in_text = False
            if self._thought is None:
                self._thought, self._sent = [], {}
            self._thought.append(text)
            yield ReasoningDelta(REASONING, text, kind)

    def _split_tags(self, pieces: Iterable[tuple[bool, str]]) -> Iterator[Delta]:
        for is_thought, text in pieces:
            yield from (
                self._emit_thinking(text) if is_thought else self._emit_text(text)
            )

    def _reasoning(self, message: dict[str, Any]) -> Iterator[Delta]:
        for name, block in blocks_of(message):
            self._add_block(name, block)
        for name in OPAQUE_FIELDS:
            if value := message.get(name):
                self._raw[name] = value
        text, kind = thought_of(message)
        if text:
            yield from self._emit_thinking(text, kind)

    def _add_block(self, name: str, piece: dict[str, Any]) -> None:
        self._raw.setdefault(name, ReasoningBlocks()).add(piece)

    def _opaque(self, extra: Any) -> Iterator[Delta]:
        """Gemini's signature, beside its text."""
        if not _of_google(extra).get("thought_signature"):
            return
        if self.in_text:
            yield ProofDelta(TEXT, {"extra_content": extra})
        else:
            self._raw["extra_content"] = extra

    def _emit_proof(self) -> Iterator[Delta]:
        """Emit the collected proof before another item begins. It has all fields of
        its reasoning, because hosts send some of them after the text."""
        if not self._raw and not (self._echo and self._thought):
            return
        raw, self._raw = self._raw, {}
        thought, self._thought = sanitize_text("".join(self._thought or ())), None
        if self._echo != "content":
            raw.pop("content", None)  # only Mistral takes its thinking parts back
        for name in raw.keys() & _PIECED:
            raw[name] = raw[name].whole()
        if self._echo and self._echo != "content" and thought:
            raw[self._echo] = thought
        if "reasoning_opaque" in raw and thought:
            raw["reasoning_text"] = thought
        if raw:
            self._sent = _join_proofs(self._sent, raw)
            yield ProofDelta(REASONING, self._sent)

    # Annotations and pictures

    def _annotate(self, annotations: Iterable[Any]) -> Iterator[Delta]:
        for annotation in annotations:
            if not isinstance(annotation, dict):
                continue
            if (citation := citation_of(annotation)) is None:
                continue
            if self.in_text:
                yield AnnotationDelta(TEXT, citation)
            else:
                self._annotations = self._annotations or []
                self._annotations.append(citation)

    def _emit_sources(self) -> Iterator[Delta]:
        """Sources of Perplexity and xAI, which apply to the answer as a whole. Where
        something follows the text, its item has ended, and a receipt has them."""
        found = [fields for each in self.sources if (fields := _source(each))]
        if self.in_text:
            for fields in found:
                yield AnnotationDelta(TEXT, source_citation(fields, fields["url"]))
        elif found := [*(self._annotations or ()), *found]:
            yield ItemDelta("sources", search_receipt(found), done=True)

    def _audio(self, audio: dict[str, Any]) -> Iterator[Delta]:
        """What the model says, unless its content has it too; the sound is only for
        clients of this same API."""
        if text := text_in(audio.get("transcript")):
            self._sound = -sys.maxsize
            if not self._is_written:
                yield from self._emit_text(text)
        self._sound += len(audio.get("data") or "")

    def _image(self, image: Any) -> Iterator[Delta]:
        """A picture at an address goes into the text, any other is an item, which its
        host gets back as it came."""
        url = _address_of(image)
        if _ADDRESS.fullmatch(url):
            yield from self._emit_text(f"![image](<{url}>)")
        if not url.startswith("data:"):
            return
        self._images = set() if self._images is None else self._images
        if (key := hash(url)) in self._images:  # a host's last chunk repeats them
            return
        self._images.add(key)
        self.in_text = False
        head, _, data = url.partition(",")
        kind = _IMAGE.match(head)
        form = {"output_format": kind[1]} if kind else {}
        item = {"type": "image_generation_call", "result": data, **form}
        yield ItemDelta(("image", key), {**item, "status": "completed"}, True)
        yield ProofDelta(("image", key), {"images": [image]})

    def _emit_receipt(self, entry: Any) -> Iterator[Delta]:
        if isinstance(entry, dict):
            item, whole = receipt_of(entry)
            yield ItemDelta(("executed", entry.get("index") or 0), item, whole)

    # Calls

    def _call(self, entry: Any, *, is_first: bool = True) -> Iterator[Delta]:
        if not isinstance(entry, dict):
            return
        yield from self._emit_proof()
        self.in_text = False
        if self.calls is None:
            self.calls = ToolCallAssembler(is_whole=self.is_whole)
        yield from self.calls.feed(entry, is_first=is_first)

    def _legacy(self, function: dict[str, Any]) -> Iterator[Delta]:
        """The single call of the API before tools; Snowflake sends an empty one."""
        if function.get("name") or function.get("arguments"):
            yield from self._call({"index": "legacy", "function": function})


def _list_in(message: dict[str, Any], name: str) -> list[Any]:
    value = message.get(name)
    return value if isinstance(value, list) else []


def _of_google(extra: Any) -> dict[str, Any]:
    """Google's own fields in `extra_content`."""
    fields = extra.get("google") if isinstance(extra, dict) else None
    return fields if isinstance(fields, dict) else {}


def _address_of(image: Any) -> str:
    """The address of a picture, which some hosts send without an object around it."""
    for name in ("image_url", "url"):
        image = image.get(name) if isinstance(image, dict) else image
    return image if isinstance(image, str) else ""


def _has_parts(content: Any) -> bool:
    """Whether this is a list of texts or has parts, and is not the value of an answer
    in JSON."""
    return isinstance(content, list) and (
        any(map(_is_part, content)) or all(isinstance(part, str) for part in content)
    )


def _is_part(part: Any) -> bool:
    return isinstance(part, dict) and any(
        isinstance(part.get(name), str) for name in ("type", "text")
    )


def _source(source: Any) -> dict[str, Any]:
    """The fields of a source; {} if it has no address."""
    fields = source if isinstance(source, dict) else {"url": source}
    return {**fields, "url": str(fields["url"])} if fields.get("url") else {}


def _join_proofs(sent: dict[str, Any], raw: dict[str, Any]) -> dict[str, Any]:
    """The fields of a proof with those that came after it was emitted."""
    joined = {**sent, **raw}
    for name in sent.keys() & raw.keys() & _PIECED:
        joined[name] = join_late([*sent[name]], raw[name])
    return joined
