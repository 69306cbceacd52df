"""Every recorded answer, relayed to every API, as that API's own SDK reads it."""

from __future__ import annotations

import random
import re
from typing import Any

import anthropic
import openai
import orjson
import pytest
from google.genai import errors as genai_errors

from llm.management.commands.replay_recordings import body_of, endpoint_of, pieces
from llm.relay import SOURCES, TARGETS, Relay, relay
from llm.wire.codec import Codec
from llm.wire.codecs.gemini.original_parts import merge_parts
from llm.wire.deltas import Delta
from llm.wire.facades.client_visibility import thought_of
from llm.wire.items import Item
from llm.wire.response_builder import ResponseBuilder
from llm.wire.sse import SSEDecoder
from tests.llm.sdks import Heard, heard, parsed
from tests.llm.wire.test_recordings import RECORDINGS
from tests.openresponses import problems

pytestmark = pytest.mark.skipif(
    not RECORDINGS, reason="no recordings here; set RECORDINGS_DIR"
)
#: Recordings by provider and API: a test each, which names those that fail.
GROUPS: dict[str, list[dict[str, Any]]] = {}
for recording in RECORDINGS.values():
    GROUPS.setdefault(f"{recording['provider']} {recording['api']}", []).append(
        recording
    )
each_group = pytest.mark.parametrize("group", GROUPS)
each_target = pytest.mark.parametrize("target", TARGETS)
#: If a model refuses without text, our decoder reports it.
DECLINED = "The model declined to answer this request."
#: What Claude's clients see of an answer that is only a picture.
PICTURE_NOTE = re.compile(r"^\[image/\w+, \d+ kB: cannot be shown here\]$")
DOES_NOT_END = ("error", "stream_error", "connection_lost", "no_finish", "error_in_200")


def relayed(recording: dict[str, Any], target: str, **options: Any) -> Relay:
    endpoint = endpoint_of(recording)
    assert endpoint
    source = pieces(body_of(recording), random.Random(0))
    return relay(source, endpoint.codec, target, **options)


def relay_result(stream: Relay) -> tuple[bytes, dict[str, Any]]:
    """The bytes for the client, and the response as the program saw it."""
    lines, events = zip(*stream, strict=True)
    return b"".join(lines), events[-1]["response"]


def ours(response: dict[str, Any]) -> Heard:
    """Our own result in the SDKs' common words."""
    result = Heard()
    for item in response["output"]:
        if item["type"] == "message":
            result.text += text_of_parts(item, "text")
            result.refusal += text_of_parts(item, "refusal")
        elif item["type"] == "function_call":
            call = item["call_id"], item["name"], parsed(item["arguments"])
            if item["status"] == "completed":
                result.calls.append(call)
    if usage := response["usage"]:
        result.usage = (
            usage["input_tokens"],
            usage["input_tokens_details"]["cached_tokens"],
            usage["output_tokens"],
            usage["output_tokens_details"]["reasoning_tokens"],
        )
    return result


def text_of_parts(item: Item, field: str) -> str:
    return "".join(part.get(field) or "" for part in item["content"])


@pytest.mark.slow
@each_target
@each_group
def test_the_targets_sdk_reads_the_same_content_and_errors(group: str, target: str):
    failures: dict[str, Any] = {}
    for recording in GROUPS[group]:
        stream = relayed(recording, target)
        body, response = relay_result(stream)
        assert (stream.error is not None) == fails(recording), recording["id"]
        assert (response["status"] == "failed") == fails(recording)
        try:
            sdk = heard(target, body)
        except (openai.APIError, anthropic.APIError, genai_errors.APIError) as exc:
            if stream.error is None:
                failures[recording["id"]] = exc
            continue
        if stream.error is not None:
            failures[recording["id"]] = "the SDK has seen no error"
        elif wrong := differences(ours(response), sdk, response, target):
            failures[recording["id"]] = wrong
    assert failures == {}


def differences(
    expected: Heard, sdk: Heard, response: dict[str, Any], target: str
) -> list[Any]:
    if target == "anthropic":
        sdk.text = PICTURE_NOTE.sub("", sdk.text)
    if target in ("anthropic", "gemini"):  # their only refusals are text
        expected.text += expected.refusal
        expected.refusal = ""
    if target == "responses":  # sends truncated calls too, marked as such
        cut = {i["call_id"] for i in response["output"] if i["type"] == "function_call"}
        sdk.calls = [c for c in sdk.calls if c in expected.calls or c[0] not in cut]
    elif response["status"] == "incomplete":  # which sends no calls
        expected.calls = []
    if target == "gemini" and expected.usage:
        expected.usage = gemini_usage(*expected.usage)
    if target == "gemini" and not all(id for id, *_ in sdk.calls):
        # Gemini numbers calls not always, and its own parts are sent as they were.
        expected.calls = [("", *call) for _, *call in expected.calls]
    wanted = [expected.text, expected.refusal, expected.calls]
    got = [sdk.text, sdk.refusal, sdk.calls]
    if expected.usage or target != "anthropic":  # which has counts, or 0
        wanted, got = [*wanted, expected.usage], [*got, sdk.usage]
    return [] if wanted == got else [wanted, got]


def gemini_usage(read: int, cached: int, written: int, thought: int) -> Any:
    """Gemini counts thoughts apart; some hosts count more thoughts than output."""
    return read, cached, max(written, thought), thought


def fails(recording: dict[str, Any]) -> bool:
    expected = recording["expected"]
    if expected["outcome"] == "no_finish" and recording["api"] == "chat":
        return not expected.get("done_marker")
    return expected["outcome"] in DOES_NOT_END


@each_target
@each_group
def test_our_own_decoder_reads_what_we_wrote_streamed_or_whole(group: str, target: str):
    for recording in GROUPS[group]:
        stream = relayed(recording, target, buffer_tool_calls=False)
        body, response = relay_result(stream)
        if stream.error is not None:
            with pytest.raises(type(stream.error)):
                relayed(recording, target).collect()
            continue
        codec = SOURCES[target]()
        wanted = same(response, target)
        assert same(read(codec, body), target) == wanted, recording["id"]
        whole = orjson.dumps(relayed(recording, target).collect())
        assert same(built(list(codec.decode(whole))), target) == wanted, recording["id"]


def read(codec: Codec, body: bytes) -> dict[str, Any]:
    decoder = codec.decoder()
    frames = SSEDecoder().feed(body)
    deltas = [delta for frame in frames for delta in decoder.feed(frame)]
    return built([*deltas, *decoder.close()])


def built(deltas: list[Delta]) -> dict[str, Any]:
    builder = ResponseBuilder(id="resp_1", model="m")
    builder.begin_call()
    builder.feed(deltas)
    builder.end_call()
    assert builder.finish
    builder.complete("paused" if builder.finish.reason == "pause" else None)
    return builder.response()


def same(response: dict[str, Any], target: str) -> list[Any]:
    """What must survive; ids are made anew where a provider has none."""
    result = ours(response)
    cut = response["status"] == "incomplete"
    if target == "anthropic":
        cut |= bool(result.refusal)  # which its finish reason shows
        result.text = (result.text + result.refusal).replace(DECLINED, "")
        result.text = PICTURE_NOTE.sub("", result.text)
        result.refusal = ""
    if target == "gemini":
        result.text, result.refusal = result.text + result.refusal, ""
        if result.usage:
            result.usage = gemini_usage(*result.usage)
    thoughts = [thought_of(i) for i in response["output"] if i["type"] == "reasoning"]
    # Reasoning before and after a text is separated twice: when sent, and when read.
    thought = "".join(thoughts).replace("\n", "")
    calls = [call[1:] for call in result.calls]
    usage = result.usage or (0, 0, 0, 0)
    return [result.text, result.refusal, thought, calls, usage, cut]


@each_group
def test_relayed_events_are_those_of_the_standard(group: str):
    for recording in GROUPS[group]:
        body, response = relay_result(relayed(recording, "responses"))
        frames = SSEDecoder().feed(body)
        assert frames.pop().data == b"[DONE]"
        for frame in frames:
            event = orjson.loads(frame.data)
            assert frame.event == event["type"]
            if is_of_the_standard(response):
                assert problems(event) == []


def is_of_the_standard(response: dict[str, Any]) -> bool:
    """It knows no receipts of hosted tools and few annotations."""
    return {"message", "reasoning", "function_call"}.issuperset(
        item["type"] for item in response["output"]
    ) and not any(
        part.get("annotations")
        for item in response["output"]
        for part in item.get("content", ())
    )


@pytest.mark.parametrize("api", ["messages"])
def test_to_its_own_api_an_answer_comes_back_as_it_was(api: str):
    """Signatures, redacted thinking, the hosted tools' blocks: byte for byte."""
    checked = 0
    for recording in RECORDINGS.values():
        if recording["api"] != api or recording["expected"]["outcome"] != "completed":
            continue
        if recording["stream"]:
            continue
        recorded = orjson.loads(body_of(recording))
        answer = relayed(recording, "anthropic").collect()
        assert answer["content"] == recorded["content"], recording["id"]
        assert answer["stop_reason"] == recorded["stop_reason"]
        assert answer["stop_sequence"] == recorded.get("stop_sequence")
        checked += 1
    assert checked > 5


def test_to_gemini_parts_come_back_as_they_were():
    """Signatures, calls and parts of Google's tools, each in its place."""
    checked = 0
    for recording in RECORDINGS.values():
        outcome = recording["expected"]["outcome"]
        if recording["api"] != "generateContent" or outcome != "completed":
            continue
        recorded = orjson.loads(body_of(recording)) if not recording["stream"] else {}
        candidates = (
            recorded.get("candidates") or [] if isinstance(recorded, dict) else []
        )
        if not candidates or "content" not in candidates[0]:
            continue
        parts = filter(None, candidates[0]["content"].get("parts") or ())
        answer = relayed(recording, "gemini").collect()
        [candidate] = answer["candidates"]
        assert merge_parts(candidate["content"]["parts"]) == merge_parts(parts)
        checked += 1
    assert checked > 5
