"""Real traffic of many hosts, against what the vendors' own SDKs make of it."""

from __future__ import annotations

import importlib.util
import os
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from llm.errors import LLMError
from llm.management.commands.replay_recordings import (
    ReplayedCall,
    body_of,
    endpoint_of,
    pieces,
    recordings,
    replay,
)
from llm.wire.classify_errors import request_id
from llm.wire.items import Item, function_call_output, user_message
from llm.wire.request import Request
from llm.wire.sse import ServerSentEvent, SSEDecoder

ROOT = Path(__file__).parents[3]
FOLDER = Path(
    os.environ.get("RECORDINGS_DIR", ROOT.parent / "shared" / "recordings" / "open")
)
RECORDINGS = {
    recording["id"]: recording
    for recording in recordings(FOLDER)
    if endpoint_of(recording)
}
ISSUER = {"provider": "p", "model": "m", "route": "1:1"}

pytestmark = pytest.mark.skipif(
    not RECORDINGS, reason="no recordings here; set RECORDINGS_DIR"
)
#: A test for each provider and API, which names the recordings that fail.
GROUPS: dict[str, list[str]] = {}
for _recording in RECORDINGS.values():
    _group = f"{_recording['provider']} {_recording['api']}"
    GROUPS.setdefault(_group, []).append(_recording["id"])
each_group = pytest.mark.parametrize("group", GROUPS)


@pytest.fixture(scope="session")
def compare() -> Callable[..., list[str]]:
    path = FOLDER.parent / "compare.py"
    if not path.exists():
        pytest.skip("no compare.py beside the recordings")
    spec = importlib.util.spec_from_file_location("recordings_compare", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.compare


def understood(recording: dict[str, Any], seed: int) -> ReplayedCall:
    """What the codec alone makes of the bytes, cut as `seed` has it."""
    transcript = ReplayedCall(recording["api"])
    try:
        decode(recording, transcript, seed)
    except LLMError as exc:
        # As the client does.
        exc.upstream_status = exc.upstream_status or recording["response"]["status"]
        transcript.error = exc
    return transcript


def decode(recording: dict[str, Any], transcript: ReplayedCall, seed: int) -> None:
    endpoint, body = endpoint_of(recording), body_of(recording)
    assert endpoint
    codec, response = endpoint.codec, recording["response"]
    if response["status"] >= 400:
        raise codec.error(response["status"], response["headers"], body)
    if not recording["stream"]:
        for delta in codec.decode(body):  # what comes before an error counts
            transcript.builder.feed([delta])
        return
    sse, decoder = SSEDecoder(), codec.decoder()
    for piece in pieces(body, random.Random(seed)):
        for event in sse.feed(piece):
            for delta in decoder.feed(event):  # what comes before an error counts
                transcript.builder.feed([delta])
    for event in () if recording.get("cut") else sse.close():
        for delta in decoder.feed(event):
            transcript.builder.feed([delta])
    for delta in decoder.close():
        transcript.builder.feed([delta])


def result(recording: dict[str, Any], seed: int) -> dict[str, Any]:
    response = recording["response"]
    headers = {name.lower(): value for name, value in response["headers"].items()}
    return understood(recording, seed).result(
        http_status=response["status"], request_id=request_id(headers)
    )


#: Finish reasons of an answer that failed although it ended in order.
FAULTS = frozenset(
    {
        "MALFORMED_FUNCTION_CALL",
        "MALFORMED_RESPONSE",
        "MISSING_THOUGHT_SIGNATURE",
        "TOO_MANY_TOOL_CALLS",
        "UNEXPECTED_TOOL_CALL",
        "abort",
        "cancelled",
        "error",
        "insufficient_system_resource",
        "network_error",
    }
)


def argued(recording: dict[str, Any], difference: str) -> bool:
    """The differences that docs/fidelity.md argues for, by rule."""
    if difference.startswith("tool_calls: expected"):
        return b'"partialArgs"' in body_of(recording)  # one call, sent in pieces
    if difference.startswith("outcome: expected"):
        return recording["expected"]["finish"] in FAULTS
    if not difference.startswith("text: expected ''") or recording["api"] != "chat":
        return False
    return any(map(_is_read_otherwise, _messages(recording)))


def _messages(recording: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The messages or deltas of a Chat Completions answer."""
    body = body_of(recording)
    events = SSEDecoder().feed(body) if recording["stream"] else [ServerSentEvent(body)]
    for event in events:
        data = event.json() if event.data.startswith(b"{") else {}
        for choice in data.get("choices") or ():
            yield choice.get("message") or choice.get("delta") or {}


def _is_read_otherwise(message: dict[str, Any]) -> bool:
    """Whether there is something for the text besides what the SDK takes for it: JSON,
    words that are spoken, or a picture at an address."""
    spoken = (message.get("audio") or {}).get("transcript")
    content = message.get("content")
    return bool(spoken or message.get("images")) or isinstance(content, dict | list)


def failures(
    ids: Iterable[str], check: Callable[[dict[str, Any]], None]
) -> dict[str, BaseException]:
    """What `check` raises, by recording."""
    found: dict[str, BaseException] = {}
    for id in ids:
        try:
            check(RECORDINGS[id])
        except Exception as exc:
            found[id] = exc
    return found


@each_group
def test_we_read_what_the_vendors_sdk_reads(group: str, compare):
    differences = {
        id: [
            each
            for each in compare(RECORDINGS[id]["expected"], result(RECORDINGS[id], 0))
            if not argued(RECORDINGS[id], each)
        ]
        for id in GROUPS[group]
    }
    assert {id: found for id, found in differences.items() if found} == {}


@each_group
def test_our_counts_are_the_vendors_unless_it_counts_something_apart(group: str):
    assert failures(GROUPS[group], _assert_same_counts) == {}


def _assert_same_counts(recording: dict[str, Any]) -> None:
    usage = recording["expected"]["usage"]
    ours = understood(recording, seed=0).builder.call_usage
    if not usage or usage["input"] is None:
        return
    read, written = usage["input"] or 0, usage["output"] or 0
    audio = (usage["raw"].get("prompt_tokens_details") or {}).get("audio_tokens")
    apart = sum(each for each in (usage["cached"] or 0, audio or 0) if each > read)
    if usage["total"] and read + written + apart > usage["total"]:
        apart = 0  # the vendor's total leaves them out
    if recording["api"] == "messages":  # counts the rest of what it read
        apart = (usage["cached"] or 0) + (usage["cache_write"] or 0)
    tools = usage["raw"].get("toolUsePromptTokenCount") or 0  # Gemini
    assert ours.input_tokens == read + apart + tools
    on_top = usage["total"] == read + tools + written + (usage["reasoning"] or 0)
    reasoned = (usage["reasoning"] or 0) if on_top else 0
    assert ours.output_tokens == written + reasoned


@each_group
def test_any_cut_of_the_bytes_gives_the_same_events(group: str):
    for id in GROUPS[group]:
        first = comparable(result(RECORDINGS[id], seed=0))
        for seed in (1, 2, 3):
            assert comparable(result(RECORDINGS[id], seed)) == first, (id, seed)


@pytest.mark.slow
async def test_the_http_client_and_the_vendors_sdk_decode_the_same():
    over_http = await replay(RECORDINGS.values(), seed=0)
    assert {id: heard(outcome) for id, outcome in over_http.items()} == {
        id: heard(result(recording, seed=0)) for id, recording in RECORDINGS.items()
    }


@each_group
def test_decoded_output_can_be_encoded_again(group: str):
    """With its proofs to its maker, without to anybody else; both are JSON."""
    assert failures(GROUPS[group], _assert_can_be_sent_again) == {}


def _assert_can_be_sent_again(recording: dict[str, Any]) -> None:
    endpoint, transcript = endpoint_of(recording), understood(recording, seed=0)
    assert endpoint
    transcript.builder.end_call(whole=transcript.error is None)
    items = conversation(transcript)
    bodies = [
        endpoint.codec.encode(Request(model="m", items=items, issuer=issuer))
        for issuer in (ISSUER, None)
    ]
    assert all(orjson.dumps(body) for body in bodies)
    if transcript.builder.proofs and recording["api"] == "chat" and spoken(items):
        assert bodies[0] != bodies[1]


def conversation(transcript: ReplayedCall) -> list[Item]:
    items = [user_message("The recorded question.")]
    proofs = transcript.builder.proofs
    for item in transcript.builder.output:
        proof = {"provider_data": {"issuer": ISSUER, "raw": proofs.get(item["id"])}}
        items.append({**item, **proof} if item["id"] in proofs else item)
    calls = [item for item in items if item["type"] == "function_call"]
    items += [function_call_output(call["call_id"], "ok") for call in calls]
    return [*items, user_message("And now?")]


def spoken(items: list[Item]) -> bool:
    """A thought that led to nothing is not sent."""
    return any(
        item["type"] == "function_call" or item.get("role") == "assistant"
        for item in items
    )


def comparable(outcome: dict[str, Any]) -> dict[str, Any]:
    """Without the ids that we made up because the provider sent none."""
    calls = [{**call, "id": ""} for call in outcome["tool_calls"]]
    return {**outcome, "tool_calls": calls}


def heard(outcome: dict[str, Any]) -> dict[str, Any]:
    """Without what only the client knows: how the connection ended."""
    left_out = {"outcome", "error"}
    return {k: v for k, v in comparable(outcome).items() if k not in left_out}


def vendor_total(raw: dict[str, Any]) -> int | None:
    """The sum that the vendor itself has; Anthropic's is that of its classes."""
    for name in ("total_tokens", "totalTokenCount"):
        if name in raw:
            return int(raw[name])
    if "cache_read_input_tokens" in raw or "output_tokens" in raw:
        classes = ("input_tokens", "output_tokens")
        cached = ("cache_read_input_tokens", "cache_creation_input_tokens")
        return sum(raw.get(name) or 0 for name in (*classes, *cached))
    return None


@each_group
def test_canonical_tokens_are_the_vendor_s_total(group: str):
    wrong = {}
    for name in GROUPS[group]:
        transcript = understood(RECORDINGS[name], seed=0)
        transcript.builder.end_call(whole=transcript.error is None)
        usage = transcript.builder.call_usage
        total = vendor_total(usage.raw) if isinstance(usage.raw, dict) else None
        if total is None or usage.input_tokens is None:
            continue
        found = usage.input_tokens + (usage.output_tokens or 0)
        if found != total:
            wrong[name] = (found, total)
        assert (usage.cached_tokens or 0) <= usage.input_tokens, name
    assert not wrong
