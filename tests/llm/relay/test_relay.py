from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import anthropic
import httpx
import httpx2
import openai
import orjson
import pytest
from django.core.management import CommandError, call_command

from llm.errors import LLMError, ProviderDown, RateLimited
from llm.management.commands.replay_recordings import pieces
from llm.relay import TARGETS, relay, relay_chunks
from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec
from llm.wire.sse import SSEDecoder
from tests.llm import chat
from tests.llm.claude import CALL, START, STOP, TEXT, ended, frames, streamed

CLAUDE = frames(
    START, *streamed(TEXT, CALL), ended("tool_use", usage={"output_tokens": 5}), STOP
)
CUT = frames(START, *streamed(TEXT, CALL)[:-3])


def body(stream: Any, source: str = "anthropic", target: str = "openai", **options):
    return b"".join(line for line, _ in relay(stream, source, target, **options))


def chat_chunks(stream: Any, source: str = "anthropic", **options: Any) -> list[Any]:
    """The chunks of Chat."""
    frames = SSEDecoder().feed(body(stream, source, **options))
    assert frames.pop().data == b"[DONE]"
    return [frame.json() for frame in frames]


def text(chunks: list[Any]) -> str:
    choices = [choice for chunk in chunks for choice in chunk.get("choices", ())]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


def test_the_text_goes_out_at_once_and_the_call_at_the_end():
    chunks = chat_chunks([CLAUDE])
    assert text(chunks) == "Hello."
    *_, announced, whole, last, usage = chunks
    assert announced["parley"]["name"] == "look"
    [call] = whole["choices"][0]["delta"]["tool_calls"]
    assert call["function"] == {"name": "look", "arguments": '{"at":"it"}'}
    assert last["choices"][0]["finish_reason"] == "tool_calls"
    assert usage["usage"]["total_tokens"] == 15


def test_each_pair_is_an_event_and_what_the_client_gets_for_it():
    source = iter([frames(START), *map(frames, streamed(TEXT))])
    pairs = iter(relay(source))
    deltas = [pair for pair in pairs if pair[1]["type"] == "response.output_text.delta"]
    assert "".join(event["delta"] for _, event in deltas) == "Hello."
    for line, event in deltas:
        assert orjson.dumps(event["delta"]) in line


def test_nothing_waits_for_what_has_not_come():
    read: list[int] = []

    def source() -> Iterator[bytes]:
        for number, event in enumerate([START, *streamed(TEXT)]):
            read.append(number)
            yield frames(event)

    for _, event in relay(source()):
        if event["type"] == "response.output_text.delta":
            break
    assert read == [0, 1, 2]


def test_announcements_usage_and_holding_back_can_be_switched_off():
    chunks = chat_chunks(
        [CLAUDE],
        relay_tool_use_events=False,
        relay_usage_events=False,
    )
    assert not any("parley" in chunk or "usage" in chunk for chunk in chunks)
    fragments = chat_chunks([CLAUDE], buffer_tool_calls=False)
    calls = [c["choices"][0]["delta"].get("tool_calls") for c in fragments[:-1]]
    assert len([call for call in calls if call]) == 2


@pytest.mark.parametrize("target", TARGETS)
def test_a_stream_that_breaks_off_is_an_error_and_contains_no_call(target: str):
    stream = relay([CUT], "anthropic", target)
    sent = b"".join(line for line, _ in stream)
    assert isinstance(stream.error, ProviderDown)
    assert b"error" in sent
    if target != "responses":  # which sends it as an incomplete call
        assert b'"tool_calls"' not in sent
        assert b'"tool_use"' not in sent
    with pytest.raises(ProviderDown):
        relay([CUT], "anthropic", target).collect()


def test_an_error_of_the_provider_has_the_clients_format():
    error = {"type": "error", "error": {"type": "rate_limit_error", "message": "x"}}
    stream = relay([frames(START, error)])
    lines = [line for line, _ in stream if line]
    assert isinstance(stream.error, RateLimited)
    assert b'"code":"rate_limit_exceeded"' in lines[-1]
    assert lines[-1].endswith(b"data: [DONE]\n\n")


def test_an_exception_of_the_source_is_sent_and_raised():
    def source() -> Iterator[bytes]:
        yield CUT
        raise httpx.ReadError("gone")

    lines: list[bytes] = []
    with pytest.raises(httpx.ReadError):
        lines.extend(line for line, _ in relay(source()))
    assert b'"type":"server_error"' in b"".join(lines)
    with pytest.raises(httpx.ReadError):
        relay(source()).collect()


def test_a_source_is_closed_with_its_relay():
    closed: list[bool] = []

    def source() -> Iterator[bytes]:
        try:
            yield CLAUDE
            yield b""
        finally:
            closed.append(True)

    pairs = iter(relay(source()))
    next(pairs)
    pairs.close()
    assert closed == [True]


async def test_an_asynchronous_source_is_read_as_it_is():
    closed: list[bool] = []

    async def source() -> AsyncIterator[bytes]:
        try:
            for piece in pieces(CLAUDE, random.Random(1)):
                yield piece
        finally:
            closed.append(True)

    lines = [line async for line, _ in relay(source(), "anthropic", "anthropic")]
    assert b"".join(lines).endswith(b'data: {"type":"message_stop"}\n\n')
    answer = await relay(source()).acollect()
    assert answer["choices"][0]["message"]["content"] == "Hello."
    assert closed == [True, True]
    with pytest.raises(TypeError, match="with `async for`"):
        next(iter(relay(source())))
    assert [pair async for pair in relay([CLAUDE], model="m", id="1")]


async def test_an_exception_of_an_asynchronous_source_is_sent_and_raised():
    async def source() -> AsyncIterator[bytes]:
        yield CUT
        raise httpx.ReadError("gone")

    lines: list[bytes] = []

    async def read() -> None:
        async for line, _ in relay(source()):
            lines.append(line)

    with pytest.raises(httpx.ReadError):
        await read()
    assert b'"error"' in b"".join(lines)


def test_the_whole_answer_can_be_collected():
    answer = relay([CLAUDE], "anthropic", "openai", model="mine", id="1").collect()
    assert (answer["id"], answer["model"]) == ("1", "mine")
    assert answer["choices"][0]["finish_reason"] == "tool_calls"
    message = relay([CLAUDE], "anthropic", "anthropic").collect()
    assert message["content"] == [TEXT, CALL]
    assert message["model"] == "claude-sonnet-5-5-20261001"
    response = relay([CLAUDE], "anthropic", "responses").collect()
    assert [item["type"] for item in response["output"]] == ["message", "function_call"]
    assert response["id"].startswith("resp_")


def test_a_stop_sequence_is_named_where_the_target_supports_it():
    ending = ended("stop_sequence") | {
        "delta": {"stop_reason": "stop_sequence", "stop_sequence": "END"}
    }
    stream = frames(START, *streamed(TEXT), ending, STOP)
    message = relay([stream], "anthropic", "anthropic").collect()
    assert (message["stop_reason"], message["stop_sequence"]) == (
        "stop_sequence",
        "END",
    )
    answer = relay([stream], "anthropic", "openai").collect()
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_a_hosts_own_ways_are_in_its_codec():
    thought = chat.chunk({"content": "<think>Hm.</think>Hi"})
    stream = chat.frames(thought, chat.chunk(finish="stop"), chat.DONE)
    answer = relay([stream], OpenAIChatCodec(think_tags=True)).collect()
    message = answer["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("Hm.", "Hi")


def test_a_format_that_is_none_is_refused():
    with pytest.raises(ValueError, match="There is no format 'telegraph'; choose"):
        relay([], "telegraph")
    with pytest.raises(ValueError, match="There is no format 'bedrock'; choose"):
        relay([], "openai", "bedrock")


def test_a_stream_without_an_answer_is_an_error():
    for source in (b"", b"<html>", b'{"error": {"message": "no"}}', b"[1]", b"[{}]"):
        stream = relay([source], "openai")
        assert b'"error"' in b"".join(line for line, _ in stream)
        assert isinstance(stream.error, LLMError)


# Pairs of text and chunk


@pytest.mark.parametrize("source", ["anthropic", "gemini", "openai", "responses"])
def test_each_pair_is_a_frame_and_its_chunk(source: str):
    frames_sent = body([CLAUDE], target=source)
    *pairs, last = relay_chunks([frames_sent], source, model="m", id="chatcmpl-1")
    for line, chunk in pairs:
        assert line == f"data: {orjson.dumps(chunk).decode()}\n\n"
        assert chunk["object"] == "chat.completion.chunk"
        assert (chunk["id"], chunk["model"]) == ("chatcmpl-1", "m")
        assert "parley" not in chunk
    assert last == ("data: [DONE]\n\n", {})
    chunks = [chunk for _, chunk in pairs]
    assert text(chunks) == "Hello."
    *_, whole, final, usage = chunks
    [call] = whole["choices"][0]["delta"]["tool_calls"]
    assert call["function"] == {"name": "look", "arguments": '{"at":"it"}'}
    assert final["choices"][0]["finish_reason"] == "tool_calls"
    assert usage["usage"]["total_tokens"] == 15


def test_pairs_of_an_answer_that_fails_end_with_its_error():
    stream = relay_chunks([CUT])
    *_, (line, error), last = stream
    assert line.startswith('data: {"error":')
    assert error["error"]["code"] == ProviderDown.code
    assert last == ("data: [DONE]\n\n", {})
    assert isinstance(stream.error, ProviderDown)


async def test_pairs_of_an_asynchronous_source_and_the_final_completion():
    async def source() -> AsyncIterator[bytes]:
        yield CLAUDE

    pairs = [pair async for pair in relay_chunks(source())]
    assert text([chunk for _, chunk in pairs]) == "Hello."
    whole = await relay_chunks(source()).acollect()
    assert whole["object"] == "chat.completion"
    assert whole["choices"][0]["finish_reason"] == "tool_calls"
    assert relay_chunks([CLAUDE], id="1").collect()["id"] == "1"


@pytest.mark.parametrize("source", [None, 5, object(), len])
def test_a_source_that_cannot_be_iterated_is_refused_by_name(source: Any):
    for function in (relay, relay_chunks):
        with pytest.raises(TypeError, match=f"not '{type(source).__name__}'"):
            function(source)


def test_one_piece_is_a_source():
    message = {**START["message"], "content": [TEXT, CALL], "stop_reason": "x"}
    for piece in (CLAUDE, CLAUDE.decode(), bytearray(CLAUDE), message):
        answer = relay(piece).collect()
        assert answer["choices"][0]["message"]["content"] == "Hello."


# What a source may be


LINES = CLAUDE.decode().split("\n")
EVENTS = [frame.json() for frame in SSEDecoder().feed(CLAUDE)]
SOURCES = {
    "bytes": [CLAUDE],
    "a byte at a time": [bytes([byte]) for byte in CLAUDE],
    "lines": LINES,
    "lines of bytes": [line.encode() for line in LINES],
    "lines with their ends": [f"{line}\n" for line in LINES],
    "lines without the blank ones": [line for line in LINES if line],
    "data lines alone": [line for line in LINES if line.startswith("data:")],
    "events": EVENTS,
    "frames": SSEDecoder().feed(CLAUDE),
    "a whole message": [
        orjson.dumps({**START["message"], "content": [TEXT, CALL], "stop_reason": "x"})
    ],
    "a parsed message": [
        {**START["message"], "content": [TEXT, CALL], "stop_reason": "x"}
    ],
    "the standard's line ends": [CLAUDE.replace(b"\n", b"\r\n")],
}


@pytest.mark.parametrize("form", SOURCES)
def test_a_source_may_come_in_any_form(form: str):
    answer = relay(SOURCES[form], "anthropic").collect()
    message = answer["choices"][0]["message"]
    assert message["content"] == "Hello."
    assert message["tool_calls"][0]["function"]["name"] == "look"


@pytest.mark.parametrize("seed", range(20))
def test_any_cut_of_the_bytes_gives_the_same_events(seed: int):
    cut = list(pieces(CLAUDE, random.Random(seed)))
    whole = relay([CLAUDE], "anthropic", "anthropic", id="1").collect()
    assert relay(cut, "anthropic", "anthropic", id="1").collect() == whole
    assert text(chat_chunks(cut)) == "Hello."


def test_an_unknown_source_event_raises_a_program_error():
    with pytest.raises(TypeError, match="not 'int'"):
        list(relay([1]))


def test_an_sdks_own_events_are_a_source():
    def answer(request: httpx2.Request) -> httpx2.Response:
        headers = {"content-type": "text/event-stream"}
        content = CLAUDE if "messages" in request.url.path else CHAT
        return httpx2.Response(200, headers=headers, content=content)

    http = httpx2.Client(transport=httpx2.MockTransport(answer))
    claude = anthropic.Anthropic(api_key="x", base_url="http://a", http_client=http)
    messages: Any = [{"role": "user", "content": "?"}]
    with claude.messages.create(
        model="m", max_tokens=9, messages=messages, stream=True
    ) as events:
        assert relay(events, "anthropic").collect()["choices"][0]["message"][
            "tool_calls"
        ]
    gpt = openai.OpenAI(api_key="x", base_url="http://a", http_client=http)
    with gpt.chat.completions.create(
        model="m", messages=messages, stream=True
    ) as chunks:
        message = relay(chunks, "openai", "anthropic").collect()
    assert message["content"] == [{"type": "text", "text": "Hi"}]


CHAT = chat.frames(
    {**chat.chunk({"content": "Hi"}), "object": "chat.completion.chunk", "created": 1},
    {**chat.chunk(finish="stop"), "object": "chat.completion.chunk", "created": 1},
    chat.DONE,
)


def test_a_list_of_geminis_chunks_is_a_stream():
    parts = [{"text": "Hel"}, {"text": "lo."}]
    chunks = [{"candidates": [{"content": {"parts": [part]}}]} for part in parts]
    chunks[-1]["candidates"][0]["finishReason"] = "STOP"
    answer = relay([orjson.dumps(chunks)], "gemini").collect()
    assert answer["choices"][0]["message"]["content"] == "Hello."


# The command


def printed(*arguments: Any, **options: Any) -> str:
    out = StringIO()
    call_command("relay", *arguments, stdout=out, **options)
    return out.getvalue()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "stream.sse"
    path.write_bytes(CLAUDE)
    return path


def test_the_command_shows_what_a_client_would_get(file: Path):
    shown = printed("--from=anthropic", "--to=openai", file)
    assert shown.endswith("data: [DONE]\n\n")
    assert '"finish_reason":"tool_calls"' in shown
    events = printed("--from=anthropic", "--to=openai", file, "--events")
    assert '{"type":"response.completed"' in events
    whole = printed("--from=anthropic", "--to=openai", file, "--collect")
    assert orjson.loads(whole)["object"] == "chat.completion"
    fragments = printed("--from=anthropic", "--to=openai", file, "--fragments")
    assert fragments.count('"tool_calls":[') == 2


def test_the_command_reads_recordings_too(tmp_path: Path):
    path = tmp_path / "recording.json"
    path.write_bytes(orjson.dumps({"response": {"body_text": CLAUDE.decode()}}))
    shown = printed("--from=anthropic", "--to=anthropic", path)
    assert '"type":"tool_use","id":"toolu_1"' in shown


def test_the_command_reports_its_error(file: Path, tmp_path: Path):
    with pytest.raises(CommandError, match=r"nowhere' cannot be read: No such file"):
        printed("--from=anthropic", "--to=openai", tmp_path / "nowhere")
    file.write_bytes(CUT)
    with pytest.raises(CommandError, match="The answer failed: The provider's answer"):
        printed("--from=anthropic", "--to=openai", file)
    with pytest.raises(CommandError, match="The answer failed: The provider's answer"):
        printed("--from=anthropic", "--to=openai", file, "--collect")
