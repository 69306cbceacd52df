"""Content blocks, usage and stop reasons of Messages answers, streamed or complete.

Source: https://platform.claude.com/docs/en/api/messages
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

from llm.wire.codecs.anthropic.forwarding import OUR_SEARCH
from llm.wire.codecs.unshown_media import media_note
from llm.wire.facades.client_visibility import (
    Arguments,
    Audience,
    Ending,
    picture_of,
    thought_of,
)
from llm.wire.facades.proof_entries import Sealing
from llm.wire.facades.sse_frames import dumps
from llm.wire.items import CALLS, CITED_TEXT, Item

Block = dict[str, Any]
#: Blocks that an upstream with this same API wants back, by item id.
Proofs = Mapping[str, Any]

_STOP: dict[Ending, str] = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
    "paused": "pause_turn",
}


def usage_of(usage: Mapping[str, Any] | None) -> dict[str, Any]:
    """Canonical counts with this API's names, which counts input that is cached, or
    written to the cache, separately."""
    usage = usage or {}
    details = usage.get("input_tokens_details") or {}
    cached = details.get("cached_tokens") or 0
    cached_anew = details.get("cache_write_tokens") or 0
    thought = (usage.get("output_tokens_details") or {}).get("reasoning_tokens") or 0
    return {
        "input_tokens": max(0, usage.get("input_tokens", 0) - cached - cached_anew),
        "cache_creation_input_tokens": cached_anew,
        "cache_read_input_tokens": cached,
        "output_tokens": usage.get("output_tokens", 0),
        "output_tokens_details": {"thinking_tokens": thought},
    }


def empty_message(id: str, model: str, input_tokens: int) -> dict[str, Any]:
    return {
        "id": id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**usage_of(None), "input_tokens": input_tokens},
    }


def stop_of(why: Ending, refused: bool, sequence: str | None) -> dict[str, Any]:
    reason = _STOP[why]
    if why == "stop" and (refused or sequence is not None):
        reason = "refusal" if refused else "stop_sequence"
    stop = {"stop_reason": reason, "stop_sequence": None, "stop_details": None}
    if reason == "stop_sequence":
        return {**stop, "stop_sequence": sequence}
    if reason == "refusal":
        details = {"type": "refusal", "category": None, "explanation": None}
        return {**stop, "stop_details": details}
    return stop


def own_blocks(proofs: Proofs, item_id: str) -> list[Block]:
    raw = proofs.get(item_id)
    return list(raw.get("content") or ()) if isinstance(raw, dict) else []


def sealed_block(text: str) -> Block:
    """What this server has sealed, in a block that clients return unread."""
    return {"type": "redacted_thinking", "data": text}


def tool_use(call: Item, arguments: dict[str, Any]) -> Block:
    return {
        "type": "tool_use",
        "id": call["call_id"],
        "name": call["name"],
        "input": arguments,
    }


def input_of(call: Item) -> dict[str, Any] | None:
    """None for a call that was cut off and cannot be read."""
    if call["type"] == "custom_tool_call":
        return free_text(call)
    try:
        parsed = orjson.loads(call["arguments"] or "{}")
    except orjson.JSONDecodeError:
        parsed = None
    if isinstance(parsed, dict):
        return parsed
    return as_object(call["arguments"]) if is_whole(call) else None


def arguments_of(call: Item) -> str:
    return json_text(input_of(call))


class ObjectArguments(Arguments):
    """The arguments of a call of this API, which are always an object.

    Some models write a list, a number or broken JSON. A client would return it in the
    input of its next request, where no host takes it, so that is sent as `_raw`. Not
    what begins with a brace and breaks later: its beginning has been sent by then.
    """

    __slots__ = ("_is_other",)

    def __init__(self) -> None:
        super().__init__()
        self._is_other = False

    def feed(self, text: str) -> str:
        if self._is_sending:
            return text
        if not self._is_other and (begun := text.lstrip()):
            self._is_sending = begun.startswith("{")
            self._is_other = not self._is_sending
        return text if self._is_sending else ""

    def close(self, whole: str) -> str:
        if self._is_sending or not whole.strip():
            return ""
        is_object = whole.lstrip().startswith("{")
        return whole if is_object else json_text(as_object(whole))


def as_object(value: Any) -> dict[str, Any]:
    """The input of a call: `value` itself, or in an object if it is none."""
    return value if isinstance(value, dict) else {"_raw": value}


def free_text(call: Item) -> dict[str, Any]:
    return {"input": call.get("input") or ""}


def json_text(value: Any) -> str:
    return dumps(value).decode()


def is_whole(call: Item) -> bool:
    return call.get("status") == "completed"


def citations_of(
    annotations: Iterable[Mapping[str, Any]], text: str
) -> Iterator[dict[str, Any]]:
    """Citations of pages that another provider's search found. The empty index marks
    them for removal by the reader of the next request."""
    for annotation in annotations:
        if annotation.get("type") == "url_citation":
            start, end = annotation.get("start_index"), annotation.get("end_index")
            yield {
                "type": "web_search_result_location",
                "url": annotation.get("url") or "",
                "title": annotation.get("title") or "",
                "cited_text": annotation.get(CITED_TEXT) or text[start or 0 : end or 0],
                "encrypted_index": "",
            }


def picture_blocks(output: Iterable[Item]) -> list[Block]:
    """Notes that pictures were drawn, which no block of this API can show."""
    notes = [media_note(p[0], len(p[1])) for item in output if (p := picture_of(item))]
    return [{"type": "text", "text": note} for note in notes]


def text_blocks(item: Item) -> Iterator[Block]:
    """The parts of a message, refusals included."""
    for part in item["content"]:
        if text := part.get("text") or part.get("refusal"):
            block = {"type": "text", "text": text}
            cited = list(citations_of(part.get("annotations") or (), text))
            yield {**block, "citations": cited} if cited else block


def is_refusal(item: Item) -> bool:
    return any(part.get("refusal") for part in item["content"])


def search_blocks(item: Item) -> list[Block]:
    """A finished search of the web at another API's host, as Anthropic reports one.

    The empty `encrypted_content` marks the results for removal, like the index of a
    citation.
    """
    action = item.get("action") or {}
    if item["type"] != "web_search_call" or action.get("type") != "search":
        return []
    queries = [*(action.get("queries") or ()), action.get("query") or ""]
    id = f"{OUR_SEARCH}{item['id']}"
    return [
        {
            "type": "server_tool_use",
            "id": id,
            "name": "web_search",
            "input": {"query": str(queries[0])},
        },
        {
            "type": "web_search_tool_result",
            "tool_use_id": id,
            "content": _found(item, action.get("sources") or ()),
        },
    ]


def _found(item: Item, sources: Iterable[Any]) -> Any:
    if item.get("status") == "failed":
        return {"type": "web_search_tool_result_error", "error_code": "unavailable"}
    return [
        {
            "type": "web_search_result",
            "url": source["url"],
            "title": source.get("title") or source["url"],
            "encrypted_content": "",
            "page_age": None,
        }
        for source in sources
        if isinstance(source, dict) and source.get("url")
    ]


class WholeContent:
    """The blocks of a complete answer; those of this same API are unchanged."""

    def __init__(
        self,
        audience: Audience,
        proofs: Proofs | None,
        sealing: Sealing | None,
        *,
        searches: bool = False,
    ) -> None:
        self.blocks: list[Block] = []
        self.calls: list[Item] = []
        self.hidden: list[Item] = []
        self.refused = False
        self._audience = audience
        self._proofs = proofs or {}
        self._sends_proofs = True
        self._sealing = sealing
        self._searches = searches
        self._sealed: list[str] = []  # ids of items whose proofs are in the blocks

    def add(self, at: int, item: Item) -> None:
        own = own_blocks(self._proofs, item["id"]) if self._sends_proofs else []
        match self._audience.kind(item):
            case "message":
                self.refused |= not own and is_refusal(item)
                self.blocks += own or text_blocks(item)
            case "reasoning":
                if text := thought_of(item):
                    signature = "" if own else self._seal_item(at, item)
                    thinking = {"thinking": text, "signature": signature}
                    own = own or [{"type": "thinking", **thinking}]
                self.blocks += own
            case "":
                self._hide(item, own)
            case _:
                self.calls.append(item)
                if (arguments := input_of(item)) is not None:
                    same = any(b.get("id") == item["call_id"] for b in own)
                    self.blocks += own if same else [tool_use(item, arguments)]

    def _seal_item(self, at: int, item: Item) -> str:
        if self._sealing is None or not self._sends_proofs:
            return ""
        if text := self._sealing.seal_item(at, item, self._audience):
            self._sealed.append(item["id"])
        return text

    def seal_rest(self, output: list[Item]) -> None:
        if self._sealing is None:
            return
        if text := self._sealing.seal(output, self._audience, skipped=self._sealed):
            self.blocks.append(sealed_block(text))

    def _hide(self, item: Item, own: list[Block]) -> None:
        if self._searches and not own:
            own = search_blocks(item)
        self._sends_proofs &= item["type"] != "function_call"
        if own and item["type"] not in CALLS:
            self.blocks += own
        else:
            self.hidden.append(item)
