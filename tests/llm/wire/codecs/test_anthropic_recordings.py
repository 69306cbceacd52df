"""Real conversations with Claude: its content, sent back to it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm.errors import LLMError
from llm.management.commands.replay_recordings import body_of, recordings
from llm.wire.facades.messages_request import request_of
from llm.wire.items import function_call_output, user_message
from llm.wire.request import Request
from llm.wire.sse import SSEDecoder
from tests.llm.claude import (
    BETA_SDK,
    CODEC,
    ISSUER,
    NEW,
    OTHER,
    bare,
    built,
    stored_items,
    validated,
)
from tests.llm.wire.test_recordings import FOLDER, understood

RECORDINGS = {r["id"]: r for r in recordings(FOLDER, api="messages")}
STREAMS = [id for id, recording in RECORDINGS.items() if recording["stream"]]
WHOLE = [
    id
    for id, recording in RECORDINGS.items()
    if recording["expected"]["outcome"] in ("completed", "incomplete")
    and recording["expected"]["finish"] != "refusal"  # of which we made the words
]
NO_HOUR = re.compile(r'("ephemeral_1h_input_tokens":\s*)0\b')
WRITTEN = [id for id in WHOLE if NO_HOUR.search(body_of(RECORDINGS[id]).decode())]
REQUESTS = [
    id
    for id, recording in RECORDINGS.items()
    if (recording["request"].get("json") or {}).get("messages")
]
#: Fields that only the maker of a block can read.
SEALED = ("signature", "data", "encrypted_content", "encrypted_index")

pytestmark = pytest.mark.skipif(
    not RECORDINGS, reason="no recordings here; set RECORDINGS_DIR"
)


def decoded(body: bytes, cuts: Any = ()) -> tuple[list[Any], str]:
    """The deltas of a stream cut at these places, and how it broke."""
    sse, decoder, deltas = SSEDecoder(), CODEC.decoder(), []
    try:
        for start, end in pairwise([0, *sorted(cuts), len(body)]):
            for event in sse.feed(body[start:end]):
                deltas += decoder.feed(event)
        for event in sse.close():
            deltas += decoder.feed(event)
        deltas += decoder.close()
    except LLMError as exc:
        return deltas, type(exc).__name__
    return deltas, ""


def blocks_of(recording: dict[str, Any]) -> list[dict[str, Any]]:
    """The content of the events, joined in the simplest way."""
    if not recording["stream"]:
        return orjson.loads(body_of(recording))["content"]
    blocks: list[dict[str, Any]] = []
    texts: dict[int, str] = {}
    for event in SSEDecoder().feed(body_of(recording) + b"\n\n"):
        data = event.json() if event.data.startswith(b"{") else {}
        match data:
            case {"type": "content_block_start", "content_block": block}:
                blocks.append(block)
            case {"type": "content_block_delta", "index": index, "delta": delta}:
                _apply(blocks[index], delta, texts, index)
    for index, text in texts.items():
        blocks[index]["input"] = orjson.loads(text or "{}")
    return blocks


def _apply(block: dict, delta: dict, texts: dict[int, str], index: int) -> None:
    match delta:
        case {"type": "text_delta", "text": text}:
            block["text"] += text
        case {"type": "thinking_delta", "thinking": text}:
            block["thinking"] += text
        case {"type": "signature_delta", "signature": signature}:
            block["signature"] = signature
        case {"type": "citations_delta", "citation": citation}:
            block["citations"] = [*(block.get("citations") or []), citation]
        case {"type": "compaction_delta", "content": content}:
            block["content"] = content
        case {"type": "input_json_delta", "partial_json": text}:
            if text:
                texts[index] = texts.get(index, "") + text


def sealed(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            yield from sealed(each)
    elif isinstance(value, dict):
        for name, each in value.items():
            if name in SEALED and isinstance(each, str) and len(each) > 40:
                yield each
            yield from sealed(each)


def replayed(recording: dict[str, Any], made_by: Any) -> dict[str, Any]:
    """The next request, to `ISSUER`, after an answer that `made_by` gave."""
    body = body_of(recording)
    deltas = decoded(body)[0] if recording["stream"] else list(CODEC.decode(body))
    items = stored_items(built(deltas), made_by)
    calls = [item for item in items if item["type"] == "function_call"]
    outputs = [function_call_output(call["call_id"], "ok") for call in calls]
    tail = outputs or [user_message("And now?")]
    if recording["expected"]["finish"] == "pause_turn":
        tail = []
    items = [user_message("The question."), *items, *tail]
    request = Request(model=NEW, items=items, issuer=ISSUER)
    return CODEC.encode(request)


@given(st.data())
def test_borders_between_reads_do_not_matter(data: st.DataObject):
    body = body_of(RECORDINGS[data.draw(st.sampled_from(STREAMS))])
    cuts = data.draw(st.sets(st.integers(1, len(body) - 1), max_size=200))
    assert decoded(body, cuts) == decoded(body)


@pytest.mark.parametrize("id", WRITTEN)
def test_cache_writes_of_an_hour_are_the_vendors(id: str):
    """Those of the recordings wrote for five minutes only, so each is changed, too, to
    have written all for an hour."""
    recording = RECORDINGS[id]
    response, body = recording["response"], body_of(recording).decode()
    for hour in (0, 7):
        text, count = NO_HOUR.subn(rf"\g<1>{hour}", body)
        assert count
        changed = {**recording, "response": {**response, "body_text": text}}
        used = understood(changed, seed=0).builder.call_usage
        assert used.cache_write_1h_tokens == hour


@pytest.mark.parametrize("id", WHOLE)
def test_claudes_content_goes_back_to_it_unchanged(id: str):
    recording = RECORDINGS[id]
    blocks = [
        b for b in blocks_of(recording) if b["type"] != "text" or b["text"].strip()
    ]
    if "toolu_REDACTED" in str(blocks):
        pytest.skip("its recorder gave the call and its result different ids")
    body = replayed(recording, ISSUER)
    validated(body, BETA_SDK)
    sent_contents = [m["content"] for m in body["messages"] if m["role"] == "assistant"]
    assert orjson.dumps(sent_contents) == orjson.dumps([blocks] if blocks else [])


@pytest.mark.parametrize("id", WHOLE)
def test_encrypted_content_goes_to_no_other_provider(id: str):
    recording = RECORDINGS[id]
    body = orjson.dumps(replayed(recording, OTHER))
    assert not [
        secret for secret in sealed(blocks_of(recording)) if secret in str(body)
    ]


@pytest.mark.parametrize("id", REQUESTS)
def test_a_recorded_conversation_is_written_again_as_it_was(id: str):
    """Ignored are marks of the cache, `is_error: false`, whether text is a string or a
    block, and whether documents are to be cited; uploads into a container, for which we
    have no item, are left out."""
    messages = RECORDINGS[id]["request"]["json"]["messages"]
    turns = [{**turn, "content": _blocks(turn["content"])} for turn in messages]
    read = request_of({"model": NEW, "messages": turns}, CODEC, ISSUER)
    body = CODEC.encode(read)
    assert [_plain(m) for m in body["messages"]] == [_plain(m) for m in messages]


def _blocks(content: Any) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [bare(b) for b in content if b["type"] != "container_upload"]


def _plain(turn: dict[str, Any]) -> dict[str, Any]:
    return {
        "role": turn["role"],
        "content": [_bare(b) for b in _blocks(turn["content"])],
    }


def _bare(block: dict[str, Any]) -> dict[str, Any]:
    match block["type"]:
        case "tool_result":
            bare = {**block, "content": _blocks(block.get("content", []))}
            return {name: value for name, value in bare.items() if value is not False}
        case "document":
            return {name: block[name] for name in block.keys() - {"citations"}}
    return block
