"""Every recorded answer, relayed to every API, as that API's own SDK hears it."""

from __future__ import annotations

import random
from typing import Any

import anthropic
import openai
import orjson
import pytest

from llm.management.commands.replay_recordings import body_of, endpoint_of, pieces
from llm.relay import SOURCES, TARGETS, Relay, relay
from llm.wire.codec import Codec
from llm.wire.deltas import Delta
from llm.wire.facades.audience import thought_of
from llm.wire.items import Item
from llm.wire.response import ResponseBuilder
from llm.wire.sse import SSEDecoder
from tests.llm.sdks import Heard, heard, parsed
from tests.llm.test_recordings import RECORDINGS
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
#: Where a model refuses in silence, our decoder says so.
DECLINED = "The model declined to answer this request."
DOES_NOT_END = ("error", "stream_error", "connection_lost", "no_finish", "error_in_200")


def relayed(recording: dict[str, Any], target: str, **options: Any) -> Relay:
    endpoint = endpoint_of(recording)
    assert endpoint
    source = pieces(body_of(recording), random.Random(0))
    return relay(source, endpoint.codec, target, **options)


def told(stream: Relay) -> tuple[bytes, dict[str, Any]]:
    """What the client got, and the response as the program saw it."""
    lines, events = zip(*stream, strict=True)
    return b"".join(lines), events[-1]["response"]


def ours(response: dict[str, Any]) -> Heard:
    """Our own result in the SDKs' common words."""
    result = Heard()
    for item in response["output"]:
        if item["type"] == "message":
            result.text += said(item, "text")
            result.refusal += said(item, "refusal")
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


def said(item: Item, field: str) -> str:
    return "".join(part.get(field) or "" for part in item["content"])


@each_target
@each_group
def test_the_targets_sdk_hears_what_we_heard_errors_included(group: str, target: str):
    failures: dict[str, Any] = {}
    for recording in GROUPS[group]:
        stream = relayed(recording, target)
        body, response = told(stream)
        assert (stream.error is not None) == fails(recording), recording["id"]
        assert (response["status"] == "failed") == fails(recording)
        try:
            sdk = heard(target, body)
        except (openai.APIError, anthropic.APIError) as exc:
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
    if target == "anthropic":  # it has no refusals but as text
        expected.text += expected.refusal
        expected.refusal = ""
    if target == "responses":  # tells cut calls too, and that they are cut
        cut = {i["call_id"] for i in response["output"] if i["type"] == "function_call"}
        sdk.calls = [c for c in sdk.calls if c in expected.calls or c[0] not in cut]
    elif response["status"] == "incomplete":  # which tells no calls
        expected.calls = []
    wanted = [expected.text, expected.refusal, expected.calls]
    got = [sdk.text, sdk.refusal, sdk.calls]
    if expected.usage or target != "anthropic":  # which has counts, or 0
        wanted, got = [*wanted, expected.usage], [*got, sdk.usage]
    return [] if wanted == got else [wanted, got]


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
        body, response = told(stream)
        if stream.error is not None:
            with pytest.raises(type(stream.error)):
                relayed(recording, target).collect()
            continue
        codec = SOURCES[target]()
        wanted = same(response, target)
        assert same(read(codec, body), target) == wanted, recording["id"]
        whole = orjson.dumps(relayed(recording, target).collect())
        assert same(built(codec.decode(whole)), target) == wanted, recording["id"]


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
        cut |= bool(result.refusal)  # which it tells by how it ended
        result.text = (result.text + result.refusal).replace(DECLINED, "")
        result.refusal = ""
    thoughts = [thought_of(i) for i in response["output"] if i["type"] == "reasoning"]
    # Thoughts before and after a text are set apart twice: told so, and then read so.
    thought = "".join(thoughts).replace("\n", "")
    calls = [call[1:] for call in result.calls]
    usage = result.usage or (0, 0, 0, 0)
    return [result.text, result.refusal, thought, calls, usage, cut]


@each_group
def test_relayed_events_are_those_of_the_standard(group: str):
    for recording in GROUPS[group]:
        body, response = told(relayed(recording, "responses"))
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
        given = orjson.loads(body_of(recording))
        answer = relayed(recording, "anthropic").collect()
        assert answer["content"] == given["content"], recording["id"]
        assert answer["stop_reason"] == given["stop_reason"]
        assert answer["stop_sequence"] == given.get("stop_sequence")
        checked += 1
    assert checked > 5
