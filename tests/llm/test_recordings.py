"""Real traffic of many hosts, against what the vendors' own SDKs make of it."""

from __future__ import annotations

import importlib.util
import os
import random
from collections.abc import Callable
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
from llm.wire.sse import SSEDecoder

ROOT = Path(__file__).parents[2]
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
each_recording = pytest.mark.parametrize("id", RECORDINGS)


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
    transcript = ReplayedCall()
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
        transcript.builder.feed(codec.decode(body))
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


def argued(recording: dict[str, Any], difference: str) -> bool:
    """The differences that docs/fidelity.md argues for, by rule."""
    if difference.startswith("tool_calls: expected"):
        return b'"partialArgs"' in body_of(recording)  # one call, told in pieces
    if not difference.startswith("text: expected ''") or recording["stream"]:
        return False
    answer = orjson.loads(body_of(recording))
    message = (answer.get("choices") or [{}])[0].get("message") or {}
    return isinstance(message.get("content"), dict)


@each_recording
def test_we_read_what_the_vendors_sdk_reads(id: str, compare):
    recording = RECORDINGS[id]
    differences = compare(recording["expected"], result(recording, seed=0))
    assert [d for d in differences if not argued(recording, d)] == []


@each_recording
def test_our_counts_are_the_vendors_unless_it_counts_something_apart(id: str):
    recording = RECORDINGS[id]
    told = recording["expected"]["usage"]
    ours = understood(recording, seed=0).builder.call_usage
    if not told or told["input"] is None:
        return
    read, written = told["input"] or 0, told["output"] or 0
    apart = told["cached"] or 0 if (told["cached"] or 0) > read else 0
    if recording["api"] == "messages":  # counts the rest of what it read
        apart = (told["cached"] or 0) + (told["cache_write"] or 0)
    tools = told["raw"].get("toolUsePromptTokenCount") or 0  # Gemini
    assert ours.input_tokens == read + apart + tools
    on_top = told["total"] == read + tools + written + (told["reasoning"] or 0)
    reasoned = (told["reasoning"] or 0) if on_top else 0
    assert ours.output_tokens == written + reasoned


@each_recording
def test_any_cut_of_the_bytes_says_the_same(id: str):
    recording = RECORDINGS[id]
    first = comparable(result(recording, seed=0))
    for seed in (1, 2, 3):
        assert comparable(result(recording, seed)) == first


async def test_http_and_the_real_client_say_the_same():
    over_http = await replay(RECORDINGS.values(), seed=0)
    assert {id: heard(told) for id, told in over_http.items()} == {
        id: heard(result(recording, seed=0)) for id, recording in RECORDINGS.items()
    }


@each_recording
def test_what_a_model_said_can_be_said_to_it_again(id: str):
    """With its proofs to its maker, without to anybody else; both are JSON."""
    recording = RECORDINGS[id]
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


def comparable(told: dict[str, Any]) -> dict[str, Any]:
    """Without the ids that we made up because the provider sent none."""
    calls = [{**call, "id": ""} for call in told["tool_calls"]]
    return {**told, "tool_calls": calls}


def heard(told: dict[str, Any]) -> dict[str, Any]:
    """Without what only the client knows: how the connection ended."""
    left_out = {"outcome", "error"}
    return {k: v for k, v in comparable(told).items() if k not in left_out}
