"""Gemini's content in recorded traffic goes back to it unchanged."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from llm.wire.codecs.gemini.contents import NO_SIGNATURE
from llm.wire.codecs.gemini.original_parts import merge_parts
from llm.wire.items import function_call_output, user_message
from llm.wire.sse import SSEDecoder
from tests.llm.gemini import ISSUER, encode, with_proofs
from tests.llm.wire.test_recordings import RECORDINGS, body_of, understood

ANSWERS = {
    id: recording
    for id, recording in RECORDINGS.items()
    if recording["api"] == "generateContent"
    and recording["expected"]["outcome"] == "completed"
    and recording["expected"]["items"]
    and b'"partialArgs"' not in body_of(recording)
}
pytestmark = pytest.mark.skipif(
    not ANSWERS, reason="no recordings here; set RECORDINGS_DIR"
)
each_answer = pytest.mark.parametrize("id", ANSWERS)


def recorded_parts(recording: dict[str, Any]) -> list[dict[str, Any]]:
    body = body_of(recording)
    if recording["stream"]:
        sse = SSEDecoder()
        chunks = [event.json() for event in [*sse.feed(body), *sse.close()]]
    else:
        chunks = [orjson.loads(body)]
    parts = [
        part
        for chunk in chunks
        for candidate in chunk.get("candidates") or ()
        for part in (candidate.get("content") or {}).get("parts") or ()
    ]
    return merge_parts(part for part in parts if part)


def body_to(recording: dict[str, Any], issuer: dict[str, str] | None) -> dict[str, Any]:
    """The next request: what was answered, the outputs of its calls, and a word."""
    transcript = understood(recording, seed=0)
    transcript.builder.end_call()
    items = with_proofs(transcript.builder)
    calls = [item for item in items if item["type"] == "function_call"]
    outputs = [function_call_output(item["call_id"], "ok") for item in calls]
    model = recording["model"] or ""
    return encode(
        user_message("The recorded question."),
        *items,
        *outputs,
        user_message("And now?"),
        model=model if model.startswith("gemini-") else "gemini-2.5-flash",
        issuer=issuer,
    )


def of_the_model(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        part
        for content in body["contents"]
        if content["role"] == "model"
        for part in content["parts"]
    ]


@each_answer
def test_the_same_parts_go_back_in_the_same_order(id: str):
    recording = ANSWERS[id]
    assert of_the_model(body_to(recording, ISSUER)) == recorded_parts(recording)


@each_answer
def test_every_call_has_its_output_with_its_name_and_id(id: str):
    body = body_to(ANSWERS[id], ISSUER)
    calls = [p["functionCall"] for p in of_the_model(body) if "functionCall" in p]
    outputs = [
        part["functionResponse"]
        for content in body["contents"]
        for part in content["parts"]
        if "functionResponse" in part
    ]
    assert [(c["name"], c.get("id")) for c in calls] == [
        (r["name"], r.get("id")) for r in outputs
    ]


@each_answer
@pytest.mark.parametrize("issuer", [None, {**ISSUER, "route": "1:2"}])
def test_no_signature_and_no_thought_goes_to_anybody_else(id: str, issuer: Any):
    parts = of_the_model(body_to(ANSWERS[id], issuer))
    signatures = {part.get("thoughtSignature") for part in parts}
    assert signatures <= {None, NO_SIGNATURE}
    assert not any(part.get("thought") for part in parts)
    assert all("text" in part or "functionCall" in part for part in parts)
