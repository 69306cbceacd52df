from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm.errors import ProviderDown, RateLimited
from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec
from llm.wire.deltas import (
    AnnotationDelta,
    FinishDelta,
    ItemDelta,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
)
from llm.wire.facades.chat_writer import ChatWriter, chat_completion_of
from llm.wire.facades.sse_frames import DONE, data_frame
from llm.wire.sse import SSEDecoder
from tests.llm.answers import OURS, STOP, URL, USAGE, Answer, answers, call, of_client


def writer(**options: Any) -> ChatWriter:
    return ChatWriter(model="m", id="chatcmpl-1", created=1, **options)


def chunks(answer: Answer, **options: Any) -> list[dict[str, Any]]:
    return writer(**options).feed(answer.events)


def deltas(answer: Answer, **options: Any) -> list[dict[str, Any]]:
    """The content of each chunk but the first one, which has the role."""
    choices = [c["choices"][0] for c in chunks(answer, **options) if c.get("choices")]
    return [choice["delta"] for choice in choices if choice["delta"]][1:]


def finish(answer: Answer, **options: Any) -> str:
    return chunks(answer, **options)[-1]["choices"][0]["finish_reason"]


def assembled(sent: list[dict[str, Any]]) -> dict[str, Any]:
    """As a client puts a stream together."""
    message: dict[str, Any] = {"content": "", "refusal": "", "reasoning_content": ""}
    calls: dict[int, dict[str, Any]] = {}
    notes: list[Any] = []
    for chunk in sent:
        for choice in chunk["choices"]:
            delta = choice["delta"]
            for name in message:
                message[name] += delta.get(name) or ""
            for note in delta.get("annotations", ()):
                assert note["index"] == len(notes)
                notes.append({k: v for k, v in note.items() if k != "index"})
            for piece in delta.get("tool_calls", ()):
                known = calls.setdefault(piece["index"], piece)
                if known is not piece:
                    known["function"]["arguments"] += piece["function"]["arguments"]
    assert sorted(calls) == list(range(len(calls)))
    entries = [{k: v for k, v in calls[n].items() if k != "index"} for n in calls]
    return {**message, "annotations": notes, "tool_calls": entries}


@given(answers())
def test_a_stream_comes_to_the_same_as_the_whole_answer(answer: Answer):
    sent_chunks = chunks(answer, server_tools=[OURS], include_usage=True)
    whole = chat_completion_of(answer.response, server_tools=[OURS])
    [choice] = whole["choices"]
    message = choice["message"]
    got = assembled(sent_chunks)
    for name in ("content", "refusal", "reasoning_content"):
        assert got[name] == (message.get(name) or "")
    assert got["annotations"] == message["annotations"]
    assert len(got["tool_calls"]) == len(message.get("tool_calls", ()))
    for ours, theirs in zip(got["tool_calls"], message.get("tool_calls", ()), strict=1):
        assert same_call(ours, theirs)
    last = [c for c in sent_chunks if c["choices"]][-1]
    assert last["choices"][0]["finish_reason"] == choice["finish_reason"]
    assert sent_chunks[-1].get("usage") == whole["usage"]


def same_call(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """A call of nothing but blanks has an empty object in the end."""
    partial, whole = one["function"]["arguments"], other["function"]["arguments"]
    return (partial == whole) and one["id"] == other["id"]


@given(answers(), st.booleans(), st.booleans())
def test_bytes_are_the_same_chunks(answer: Answer, usage: bool, buffered: bool):
    options = {"include_usage": usage, "buffer_tool_calls": buffered, "receipts": True}
    expected = b"".join(map(data_frame, chunks(answer, **options)))
    by_bytes = writer(**options)
    frames = [by_bytes.feed_bytes(batch) for batch in answer.batches]
    assert b"".join(frames) == expected + DONE
    assert by_bytes.ended


@given(answers())
def test_our_decoder_reads_back_the_content(answer: Answer):
    body = writer(include_usage=True).feed_bytes(answer.events)
    decoder = OpenAIChatCodec().decoder()
    heard = Answer()
    for frame in SSEDecoder().feed(body):
        heard.say(*decoder.feed(frame))
    heard.say(*decoder.close()).end()
    text = chat_completion_of(answer.response)["choices"][0]["message"]
    again = chat_completion_of(heard.response)["choices"][0]["message"]
    assert again["content"] == text["content"]
    assert again["refusal"] == text["refusal"]
    assert len(again.get("tool_calls", ())) == len(text.get("tool_calls", ()))
    assert heard.builder.usage == answer.builder.usage


@given(answers())
def test_buffered_calls_are_sent_whole_or_not_at_all(answer: Answer):
    sent_chunks = chunks(answer, buffer_tool_calls=True, server_tools=[OURS])
    entries = assembled(sent_chunks)["tool_calls"]
    if finish(answer, buffer_tool_calls=True, server_tools=[OURS]) == "tool_calls":
        whole = of_client(answer.response["output"])
        ids = [i["call_id"] for i in whole if i["status"] == "completed"]
        assert [entry["id"] for entry in entries] == ids
    else:
        assert entries == []


def test_a_text_has_openais_format():
    answer = Answer().say(TextDelta("t", "Hi")).say(TextDelta("t", "!")).say(USAGE)
    sent_chunks = chunks(answer.say(STOP).end(), include_usage=True)
    first, *rest, last, usage = sent_chunks
    assert first == {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "delta": {"role": "assistant", "content": "", "refusal": None},
                "logprobs": None,
                "finish_reason": None,
            }
        ],
        "usage": None,
    }
    assert [c["choices"][0]["delta"] for c in rest] == [
        {"content": "Hi"},
        {"content": "!"},
    ]
    assert last["choices"][0] == {
        "index": 0,
        "delta": {},
        "logprobs": None,
        "finish_reason": "stop",
    }
    assert usage["choices"] == []
    assert usage["usage"] == {
        "prompt_tokens": 10,
        "completion_tokens": 7,
        "total_tokens": 17,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }


def test_no_service_tier_is_made_up():
    answer = Answer().say(TextDelta("t", "Hi"), STOP).end()
    assert chat_completion_of(answer.response)["service_tier"] is None


def test_usage_is_sent_only_on_request():
    sent_chunks = chunks(Answer().say(TextDelta("t", "Hi"), USAGE, STOP).end())
    assert not any("usage" in chunk for chunk in sent_chunks)


def test_usage_and_explanation_are_in_the_last_chunk():
    answer = Answer().say(TextDelta("t", "Hi"), USAGE, STOP).end()
    last = answer.events[-1]
    explained = {**last["response"], "parley": {"explanation": {}}}
    events = [*answer.events[:-1], {**last, "response": explained}]
    *_, chunk = writer(include_usage=True).feed(events)
    assert chunk["choices"] == []
    assert chunk["parley"] == {"explanation": {}}
    assert chunk["usage"]["completion_tokens"]


def test_nothing_is_sent_before_there_is_content():
    answer = Answer()
    assert writer().feed_bytes(answer.events) == b""
    hidden = ItemDelta("h", {"type": "web_search_call", "action": {}}, done=True)
    assert writer().feed_bytes(answer.say(hidden).events) == b""


def test_calls_are_sent_in_fragments_by_index():
    answer = Answer().say(*call("a")).say(*call("b", "{}")).end()
    entries = [delta["tool_calls"][0] for delta in deltas(answer)]
    assert entries[0] == {
        "index": 0,
        "id": "call_a",
        "type": "function",
        "function": {"name": "look", "arguments": ""},
    }
    assert [entry["index"] for entry in entries] == [0, 0, 1, 1]
    assert finish(answer) == "tool_calls"


def test_a_call_of_nothing_has_an_empty_object():
    for nothing in ("", "null", " "):
        answer = Answer().say(*call("a", nothing)).end()
        [entry] = assembled(chunks(answer))["tool_calls"]
        assert entry["function"]["arguments"] == "{}"


def test_buffered_calls_are_announced_and_follow_at_the_end():
    answer = Answer().say(TextDelta("t", "Let me see.")).say(*call("a")).end()
    sent_chunks = chunks(answer, buffer_tool_calls=True)
    [announced] = [chunk for chunk in sent_chunks if "parley" in chunk]
    assert announced["parley"] == {
        "type": "parley:tool_call.announced",
        "call_id": "call_a",
        "name": "look",
    }
    assert announced["choices"][0]["delta"] == {}
    assert sent_chunks[-2]["choices"][0]["delta"]["tool_calls"] == [
        {
            "index": 0,
            "id": "call_a",
            "type": "function",
            "function": {"name": "look", "arguments": '{"at": 1}'},
        }
    ]
    assert finish(answer, buffer_tool_calls=True) == "tool_calls"


def test_tools_that_run_here_leave_no_more_than_a_blank_line():
    answer = Answer().say(TextDelta("t", "Let me see.")).say(*call("a", name=OURS))
    answer.round(("call_a", "42")).say(TextDelta("t", "It is 42.")).say(STOP).end()
    got = assembled(chunks(answer, server_tools=[OURS]))
    assert got["content"] == "Let me see.\n\nIt is 42."
    assert got["tool_calls"] == []
    assert finish(answer, server_tools=[OURS]) == "stop"


def test_a_drawn_picture_is_an_image_of_the_message():
    drawn = {"type": "image_generation_call", "result": "AAA", "output_format": "webp"}
    answer = Answer()
    for n in range(2):
        answer.say(ItemDelta(n, {**drawn, "result": f"A{n}"}, done=True))
    answer.end()
    images = [
        {"type": "image_url", "image_url": {"url": f"data:image/webp;base64,A{n}"}}
        for n in range(2)
    ]
    sent = [image for delta in deltas(answer) for image in delta.get("images", ())]
    assert sent == [{"index": n, **image} for n, image in enumerate(images)]
    message = chat_completion_of(answer.response)["choices"][0]["message"]
    assert message["images"] == images


def test_receipts_show_what_was_left_out():
    answer = Answer().say(*call("a", name=OURS)).round(("call_a", "42")).end()
    sent_chunks = chunks(answer, server_tools=[OURS], receipts=True)
    shown = [chunk["parley"]["type"] for chunk in sent_chunks if "parley" in chunk]
    assert shown == [
        "response.output_item.done",
        "parley:tool_call.started",
        "response.output_item.done",
    ]
    whole = chat_completion_of(answer.response, server_tools=[OURS], receipts=True)
    kinds = [item["type"] for item in whole["parley"]["output"]]
    assert kinds == ["function_call", "function_call_output"]


def test_a_custom_call_is_sent_where_the_client_declared_it():
    item = {"type": "custom_tool_call", "call_id": "c1", "name": "say", "input": "A"}
    answer = Answer().say(ItemDelta("c", item, done=True)).end()
    assert deltas(answer) == []
    sent_call = {"id": "c1", "type": "custom", "custom": {"name": "say", "input": "A"}}
    whole = chat_completion_of(answer.response, custom_tools=["say"])
    assert whole["choices"][0]["message"]["tool_calls"] == [sent_call]
    assert whole["choices"][0]["finish_reason"] == "tool_calls"
    [begun, rest] = deltas(answer, custom_tools=["say"])
    assert begun["tool_calls"][0]["custom"] == {"name": "say", "input": ""}
    assert rest["tool_calls"] == [{"index": 0, "custom": {"input": "A"}}]


def test_parts_of_reasoning_are_set_apart():
    answer = Answer().say(
        ReasoningDelta("r", "One.", "summary", 0),
        ReasoningDelta("r", "Two.", "summary", 1),
        TextDelta("t", "Hi"),
        ReasoningDelta("s", "Three."),
    )
    got = assembled(chunks(answer.end()))
    assert got["reasoning_content"] == "One.\n\nTwo.\n\nThree."


def test_a_citation_points_into_the_whole_text():
    answer = Answer().say(TextDelta("t", "abc"), ReasoningDelta("r", "Hm."))
    answer.say(TextDelta("u", "def"), AnnotationDelta("u", URL)).end()
    [note] = assembled(chunks(answer))["annotations"]
    assert note["url_citation"]["start_index"] == 3
    assert note["url_citation"]["end_index"] == 5


@pytest.mark.parametrize(
    ("finish_delta", "reason", "expected"),
    [
        (FinishDelta("stop"), None, "stop"),
        (FinishDelta("length"), None, "length"),
        (FinishDelta("content_filter"), None, "content_filter"),
        (FinishDelta("stop"), "max_steps", "length"),
        (FinishDelta("pause"), "paused", "length"),
    ],
)
def test_the_finish_reason_has_openais_names(finish_delta, reason, expected):
    answer = Answer().say(TextDelta("t", "Hi"), finish_delta).end(reason)
    assert finish(answer) == expected


def test_a_call_that_was_cut_is_never_a_reason_to_call():
    answer = Answer().say(ToolCallDelta("a", "call_a", "look", '{"at'))
    answer.say(FinishDelta("length")).end()
    assert finish(answer) == "length"


def test_a_refusal_has_its_own_place():
    answer = Answer().say(RefusalDelta("t", "No.")).say(STOP).end()
    message = chat_completion_of(answer.response)["choices"][0]["message"]
    assert (message["content"], message["refusal"]) == (None, "No.")
    assert deltas(answer) == [{"refusal": "No."}]


def test_a_failure_is_an_error_in_the_stream_and_no_answer():
    answer = Answer().say(TextDelta("t", "Hi")).fail(RateLimited())
    error = {
        "message": "The provider's rate limit is reached; try again in a moment.",
        "type": "too_many_requests",
        "param": None,
        "code": "rate_limit_exceeded",
    }
    assert chunks(answer)[-1] == {"error": error}
    body = writer().feed_bytes(answer.events)
    assert body.endswith(data_frame({"error": error}) + DONE)
    assert b'"finish_reason":"' not in body
    with pytest.raises(ValueError, match="must be sent as an error"):
        chat_completion_of(answer.response)


def test_a_failure_before_any_content_is_sent_alone():
    assert [*chunks(Answer().fail(ProviderDown()))[0]] == ["error"]


def test_half_a_pair_in_an_id_does_not_end_the_stream():
    answer = Answer().say(ToolCallDelta("a", "\ud83d", "look", "{}")).end()
    body = writer().feed_bytes(answer.events)
    frames = [orjson.loads(frame.data) for frame in SSEDecoder().feed(body)[:-1]]
    assert frames[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_half_a_pair_waits_for_its_other_half():
    answer = Answer().say(TextDelta("t", "a\ud83d")).say(TextDelta("t", "\ude00b"))
    texts = [delta["content"] for delta in deltas(answer.say(STOP).end())]
    assert texts == ["a", "😀b"]
