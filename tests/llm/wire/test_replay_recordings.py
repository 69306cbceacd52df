from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import orjson
import pytest
from django.core.management import CommandError, call_command

from tests.llm.chat import DONE, chunk, frames

USAGE = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
ANSWER = frames(chunk({"content": "Grüß Gott"}, "stop", usage=USAGE), DONE)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "INDEX.json").write_bytes(b"{}")
    return tmp_path


def record(folder: Path, id: str, body: bytes = ANSWER, **fields: Any) -> None:
    response = {
        "status": fields.pop("status", 200),
        "headers": {"X-Request-Id": f"req_{id}", "Content-Length": "7"},
        "body_text": body.decode(),
    }
    recording = {
        "id": id,
        "provider": "groq",
        "api": "chat",
        "stream": True,
        "model": "m",
        "response": response,
        **fields,
    }
    (folder / f"{id}.json").write_bytes(orjson.dumps(recording))


def replayed(folder: Path, **options: Any) -> tuple[dict[str, Any], str]:
    out, printed = folder / "results.txt", StringIO()
    call_command("replay_recordings", folder, out=out, stdout=printed, **options)
    return orjson.loads(out.read_bytes()), printed.getvalue()


def test_a_recording_is_described_in_its_own_terms(folder: Path):
    record(folder, "a")
    results, _ = replayed(folder)
    assert results["a"] == {
        "outcome": "completed",
        "text": "Grüß Gott",
        "refusal": "",
        "reasoning_present": False,
        "reasoning_text": "",
        "signatures": 0,
        "tool_calls": [],
        "items": ["message"],
        "finish": "stop",
        "usage": {
            "input": 9,
            "output": 3,
            "total": 12,
            "cached": None,
            "reasoning": None,
            "cache_write": None,
            "raw": USAGE,
        },
        "request_id": "req_a",
        "response_id": "chatcmpl-1",
        "model": "m-1",
        "error": None,
    }


@pytest.mark.parametrize(
    ("recording", "outcome"),
    [
        ({"body": ANSWER[:60], "cut": True}, "connection_lost"),
        ({"body": frames(chunk({"content": "a"}))}, "no_finish"),
        ({"body": frames({"error": {"code": "server_error"}})}, "stream_error"),
        ({"body": b'{"error":{"message":"no"}}', "stream": False}, "no_finish"),
        ({"body": b"<html>", "status": 502}, "error"),
    ],
)
def test_a_failed_recording_is_described_as_such(folder: Path, recording, outcome):
    record(folder, "a", **recording)
    results, _ = replayed(folder)
    assert results["a"]["outcome"] == outcome
    assert results["a"]["error"]


def test_googles_counts_are_known_without_a_total(folder: Path):
    part = {"content": {"parts": [{"text": "Hi"}]}, "finishReason": "STOP"}
    usage = {"promptTokenCount": 3, "candidatesTokenCount": 1}
    body = frames({"candidates": [part], "usageMetadata": usage})
    record(folder, "a", body, provider="gemini", api="generateContent")
    [result] = replayed(folder)[0].values()
    assert (result["usage"]["input"], result["usage"]["output"]) == (3, 1)


def test_notes_of_what_cannot_be_shown_are_no_text(folder: Path):
    sound = {"inlineData": {"mimeType": "audio/wav", "data": "A" * 4000}}
    film = {"fileData": {"mimeType": "video/mp4", "fileUri": "x"}}
    part = {"content": {"parts": [{"text": "Hi"}, sound, film]}, "finishReason": "STOP"}
    body = frames({"candidates": [part]})
    record(folder, "a", body, provider="gemini", api="generateContent")
    assert replayed(folder)[0]["a"]["text"] == "Hi"


def test_only_anthropics_refusals_are_left_out(folder: Path):
    record(
        folder, "a", frames(chunk({"refusal": "No."}), chunk(finish="refusal"), DONE)
    )
    message = {"type": "message", "id": "m", "model": "c", "content": []}
    details = {"stop_reason": "refusal", "stop_details": {"explanation": "No."}}
    body = orjson.dumps({**message, **details})
    about = {"provider": "anthropic", "api": "messages", "stream": False}
    record(folder, "b", body, **about)
    results, _ = replayed(folder)
    assert (results["a"]["refusal"], results["b"]["refusal"]) == ("No.", "")


def test_unsupported_recordings_are_skipped_and_reported(folder: Path):
    record(folder, "a")
    record(folder, "b", api="telegraph")
    results, printed = replayed(folder)
    assert results.keys() == {"a"}
    assert "1 recordings replayed" in printed
    assert "1 of the api 'telegraph' skipped: no codec yet." in printed


def test_one_provider_or_one_api_can_be_chosen(folder: Path):
    record(folder, "a")
    record(folder, "b", provider="unheard-of")
    assert replayed(folder, provider="groq")[0].keys() == {"a"}
    assert replayed(folder, provider="unheard-of")[0].keys() == {"b"}
    assert replayed(folder, api="responses")[0] == {}


def test_another_seed_cuts_elsewhere_and_changes_nothing(folder: Path):
    record(folder, "a")
    assert replayed(folder, seed=1) == replayed(folder, seed=2)


def test_a_folder_that_is_none_is_refused(tmp_path: Path):
    with pytest.raises(CommandError, match=r"There is no folder '.+/nowhere'\."):
        call_command("replay_recordings", tmp_path / "nowhere", out=tmp_path / "x")
