from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm.errors import ProviderDown, RateLimited
from llm.wire.codecs.anthropic.codec import AnthropicCodec
from llm.wire.codecs.anthropic.forwarding import fit_body
from llm.wire.deltas import (
    AnnotationDelta,
    FinishDelta,
    ItemDelta,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
)
from llm.wire.facades.messages_blocks import usage_of
from llm.wire.facades.messages_writer import MessagesWriter, message_of
from llm.wire.facades.sse_frames import event_frame
from llm.wire.items import CITED_TEXT
from llm.wire.sse import SSEDecoder
from tests.llm.answers import OURS, STOP, URL, USAGE, Answer, answers, call
from tests.llm.claude import (
    CALL,
    FOUND,
    REDACTED,
    SEARCH,
    THOUGHT,
    decoded_deltas,
    frames,
    streamed,
)
from tests.llm.claude import START as STARTED
from tests.llm.claude import STOP as STOPPED
from tests.llm.claude import TEXT as HELLO
from tests.llm.claude import ended as delta_of


def writer(**options: Any) -> MessagesWriter:
    return MessagesWriter(model="m", id="msg_1", **options)


def events(answer: Answer, **options: Any) -> list[dict[str, Any]]:
    return writer(**options).feed(answer.events)


def assembled(decoded_deltas: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The blocks, as a client puts them together; they must not overlap."""
    blocks: list[dict[str, Any]] = []
    opened, pieces = False, ""
    for event in decoded_deltas:
        match event["type"]:
            case "content_block_start":
                assert not opened
                assert event["index"] == len(blocks)
                opened, pieces = True, ""
                blocks.append(dict(event["content_block"]))
            case "content_block_delta":
                assert opened
                assert event["index"] == len(blocks) - 1
                pieces = lengthened(blocks[-1], event["delta"], pieces)
            case "content_block_stop":
                assert opened
                assert event["index"] == len(blocks) - 1
                opened = False
                if pieces:
                    blocks[-1]["input"] = parsed(pieces)
    assert not opened
    return blocks


def lengthened(block: dict[str, Any], delta: dict[str, Any], pieces: str) -> str:
    match delta["type"]:
        case "text_delta":
            block["text"] += delta["text"]
        case "thinking_delta":
            block["thinking"] += delta["thinking"]
        case "signature_delta":
            block["signature"] = delta["signature"]
        case "citations_delta":
            block["citations"] = [*block.get("citations", ()), delta["citation"]]
        case "input_json_delta":
            return pieces + delta["partial_json"]
    return pieces


def parsed(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def stop(answer: Answer, **options: Any) -> str | None:
    [changed] = [e for e in events(answer, **options) if e["type"] == "message_delta"]
    return changed["delta"]["stop_reason"]


@given(answers())
def test_a_stream_comes_to_the_same_as_the_whole_message(answer: Answer):
    got = events(answer, server_tools=[OURS])
    whole = message_of(answer.response, server_tools=[OURS])
    blocks = [b for b in assembled(got) if isinstance(b.get("input", {}), dict)]
    if any(item["type"] == "function_call" for item in answer.response["output"]):
        # One that was cut shows as far as it came, and is left out of a whole message.
        blocks = [block for block in blocks if block["type"] != "tool_use"]
        whole["content"] = [b for b in whole["content"] if b["type"] != "tool_use"]
    assert blocks == whole["content"]
    changed, stopped = got[-2:]
    assert stopped == {"type": "message_stop"}
    assert changed["delta"]["stop_reason"] == whole["stop_reason"]
    assert changed["usage"] == whole["usage"]


@given(answers(), st.booleans())
def test_bytes_are_the_same_events(answer: Answer, buffered: bool):
    options = {"buffer_tool_calls": buffered, "receipts": True}
    expected = b"".join(map(event_frame, events(answer, **options)))
    by_bytes = writer(**options)
    frames = [by_bytes.feed_bytes(batch) for batch in answer.batches]
    assert b"".join(frames) == expected
    assert by_bytes.ended


@given(answers())
def test_our_decoder_reads_back_the_content(answer: Answer):
    decoder = AnthropicCodec().decoder()
    heard = Answer()
    for frame in SSEDecoder().feed(writer().feed_bytes(answer.events)):
        heard.say(*decoder.feed(frame))
    heard.say(*decoder.close()).end()
    texts = [b["text"] for b in content(answer) if b["type"] == "text"]
    again = [b["text"] for b in content(heard) if b["type"] == "text"]
    if heard.builder.finish and heard.builder.finish.raw == "refusal" and not texts:
        again = []  # our decoder puts a refusal without words into words
    assert "".join(again) == "".join(texts)
    if answer.builder.usage:
        assert heard.builder.usage == answer.builder.usage


def content(answer: Answer) -> list[dict[str, Any]]:
    return message_of(answer.response)["content"]


def test_a_text_has_anthropics_format():
    answer = Answer().say(TextDelta("t", "Hi")).say(TextDelta("t", "!"), USAGE, STOP)
    got = events(answer.end(), input_tokens=9)
    assert [event["type"] for event in got] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    message = got[0]["message"]
    assert (message["id"], message["model"], message["content"]) == ("msg_1", "m", [])
    assert message["usage"]["input_tokens"] == 9
    assert got[-2] == {
        "type": "message_delta",
        "delta": {
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "stop_details": None,
        },
        "usage": {
            "input_tokens": 6,  # those from the cache are counted apart
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 4,
            "output_tokens": 7,
            "output_tokens_details": {"thinking_tokens": 3},
        },
    }


def test_tokens_that_were_written_to_the_cache_are_counted_apart():
    details = {"cached_tokens": 4, "cache_write_tokens": 5}
    found = usage_of({"input_tokens": 10, "input_tokens_details": details})
    assert found["input_tokens"] == 1
    assert found["cache_read_input_tokens"] == 4
    assert found["cache_creation_input_tokens"] == 5


def test_nothing_is_sent_before_there_is_content():
    assert events(Answer()) == []
    assert [e["type"] for e in events(Answer().fail(ProviderDown()))] == ["error"]


def test_items_that_are_open_side_by_side_become_blocks_one_after_another():
    answer = Answer().say(ToolCallDelta("a", "call_a", "look", '{"at":'))
    answer.say(ToolCallDelta("b", "call_b", "look", '{"at":'))
    answer.say(TextDelta("t", "Meanwhile."))
    answer.say(ToolCallDelta("b", arguments=" 2}"))
    answer.say(ToolCallDelta("a", arguments=" 1}")).end()
    assert assembled(events(answer)) == [
        {"type": "tool_use", "id": "call_a", "name": "look", "input": {"at": 1}},
        {"type": "tool_use", "id": "call_b", "name": "look", "input": {"at": 2}},
        {"type": "text", "text": "Meanwhile."},
    ]
    assert stop(answer) == "tool_use"


@pytest.mark.parametrize(
    "pieces", [("[1", ",2]"), (" ", '"Paris"'), ("Paris", " {}"), ("12",)]
)
def test_arguments_that_are_no_object_are_sent_in_one(pieces: tuple[str, ...]):
    """A client returns them as the call's input, which has to be an object."""
    answer = Answer().say(ToolCallDelta("a", "call_a", "look"))
    for piece in pieces:
        answer.say(ToolCallDelta("a", arguments=piece))
    answer.end()
    [block] = assembled(events(answer))
    assert block["input"] == {"_raw": "".join(pieces)}
    assert message_of(answer.response)["content"] == [block]


def test_nothing_is_sent_of_a_call_that_was_cut_before_its_arguments():
    answer = Answer().say(ToolCallDelta("a", "call_a", "look", " "))
    answer.say(FinishDelta("length")).end()
    [block] = assembled(events(answer))
    assert block["input"] == {}


def from_claude(*blocks: dict[str, Any], reason: str = "end_turn") -> Answer:
    body = frames(STARTED, *streamed(*blocks), delta_of(reason), STOPPED)
    return Answer().say(*decoded_deltas(body)).end()


def test_claudes_signed_thinking_is_passed_on_unchanged():
    blocks = [
        THOUGHT,
        REDACTED,
        {"type": "thinking", "thinking": "", "signature": "b21pdHRlZA=="},
        SEARCH,
        FOUND,
        HELLO,
        CALL,
    ]
    answer = from_claude(*blocks, reason="tool_use")
    proofs = answer.builder.proofs
    assert assembled(events(answer, proofs=proofs)) == blocks
    assert message_of(answer.response, proofs=proofs)["content"] == blocks


def test_a_search_at_another_host_has_anthropics_blocks():
    sources = [{"type": "url", "url": "https://x.test/", "title": "X"}]
    sources.append({"type": "url", "url": "https://y.test/"})
    action = {"type": "search", "query": "cats", "sources": sources}
    visit = {"type": "open_page", "url": "https://x.test/"}
    answer = Answer()
    for key, each in enumerate((action, visit)):
        item = {"type": "web_search_call", "action": each}
        answer.say(ItemDelta(key, item), ItemDelta(key, item, done=True))
    answer.say(TextDelta(2, "Cats purr."), FinishDelta("stop")).end()
    whole = message_of(answer.response, searches=True)["content"]
    assert assembled(events(answer, searches=True)) == whole
    used, found, text = whole
    assert (used["type"], used["input"]) == ("server_tool_use", {"query": "cats"})
    assert (used["name"], found["tool_use_id"]) == ("web_search", used["id"])
    assert [(each["title"], each["url"]) for each in found["content"]] == [
        ("X", "https://x.test/"),
        ("https://y.test/", "https://y.test/"),
    ]
    assert message_of(answer.response)["content"] == [text]
    assert assembled(events(answer)) == [text]
    body = {"messages": [{"role": "assistant", "content": whole}]}
    assert fit_body(body)["messages"] == [{"role": "assistant", "content": [text]}]


def test_claudes_citations_go_on_as_they_came():
    citation = {
        "type": "web_search_result_location",
        "url": "https://cats.test/",
        "title": "Cats",
        "cited_text": "Cats purr.",
        "encrypted_index": "ZW5j",
    }
    cited = {**HELLO, "citations": [citation]}
    answer = from_claude(cited)
    assert assembled(events(answer, proofs=answer.builder.proofs)) == [cited]


def test_thinking_of_other_models_has_a_placeholder_signature():
    answer = Answer().say(ReasoningDelta("r", "Hm."), TextDelta("t", "Hi")).end()
    thought = {"type": "thinking", "thinking": "Hm.", "signature": ""}
    assert assembled(events(answer))[0] == thought


def test_no_signature_is_passed_on_once_a_call_was_withheld_from_the_client():
    """What it speaks for is no longer what the client will send."""
    ours = {**CALL, "name": OURS}
    first = frames(STARTED, *streamed(THOUGHT, ours), delta_of("tool_use"), STOPPED)
    last = frames(STARTED, *streamed(THOUGHT, HELLO), delta_of(), STOPPED)
    answer = (
        Answer()
        .say(*decoded_deltas(first))
        .round(("toolu_1", "42"))
        .say(*decoded_deltas(last))
        .end()
    )
    options = {"proofs": answer.builder.proofs, "server_tools": [OURS]}
    unsigned = {**THOUGHT, "signature": ""}
    assert assembled(events(answer, **options)) == [THOUGHT, unsigned, HELLO]
    assert message_of(answer.response, **options)["content"] == [
        THOUGHT,
        unsigned,
        HELLO,
    ]
    assert stop(answer, **options) == "end_turn"


def test_what_a_page_says_is_quoted_where_the_host_has_sent_it():
    note = {**URL, CITED_TEXT: "The page's own words"}
    answer = Answer().say(TextDelta("t", "abc"), AnnotationDelta("t", note)).end()
    [block] = assembled(events(answer))
    assert block["citations"][0]["cited_text"] == "The page's own words"


def test_pages_that_others_have_found_are_cited():
    answer = Answer().say(TextDelta("t", "abc"), AnnotationDelta("t", URL)).end()
    [block] = assembled(events(answer))
    assert block["citations"] == [
        {
            "type": "web_search_result_location",
            "url": "https://x.test/",
            "title": "X",
            "cited_text": "ab",
            "encrypted_index": "",
        }
    ]


def test_buffered_calls_are_announced_and_follow_at_the_end():
    answer = Answer().say(*call("a")).say(TextDelta("t", "Looking.")).end()
    got = events(answer, buffer_tool_calls=True)
    [ping] = [event for event in got if event["type"] == "ping"]
    assert ping["parley"]["name"] == "look"
    assert [block["type"] for block in assembled(got)] == ["text", "tool_use"]
    assert assembled(got)[1]["input"] == {"at": 1}
    cut = Answer().say(ToolCallDelta("a", "call_a", "look", '{"at'))
    cut.say(FinishDelta("length")).end()
    got = events(cut, buffer_tool_calls=True, announce=False)
    assert [event["type"] for event in got] == [
        "message_start",
        "message_delta",
        "message_stop",
    ]
    assert stop(cut, buffer_tool_calls=True) == "max_tokens"


@pytest.mark.parametrize("text", ["", "Look."])
def test_an_answer_of_nothing_but_a_picture_names_it(text):
    drawn = {"type": "image_generation_call", "result": "A" * 40_000}
    answer = Answer().say(ItemDelta("h", drawn, done=True))
    if text:
        answer.say(TextDelta("t", text))
    shown = text or "[image/png, 30 kB: cannot be shown here]"
    blocks = [{"type": "text", "text": shown}]
    assert assembled(events(answer.end())) == blocks
    assert message_of(answer.response)["content"] == blocks


def test_receipts_come_in_pings():
    hosted = ItemDelta("h", {"type": "web_search_call", "action": {}}, done=True)
    answer = Answer().say(hosted).say(*call("a", name=OURS)).round(("call_a", "42"))
    got = events(answer.end(), receipts=True, server_tools=[OURS])
    shown = [event["parley"]["type"] for event in got if event["type"] == "ping"]
    assert shown == [
        "response.output_item.done",
        "response.output_item.done",
        "parley:tool_call.started",
        "response.output_item.done",
    ]
    whole = message_of(answer.response, receipts=True, server_tools=[OURS])
    assert len(whole["parley"]["output"]) == 3


def test_a_call_of_free_text_has_it_as_its_input():
    item = {"type": "custom_tool_call", "call_id": "c1", "name": "say", "input": "A"}
    answer = Answer().say(ItemDelta("c", item, done=True)).end()
    block = {"type": "tool_use", "id": "c1", "name": "say", "input": {"input": "A"}}
    assert assembled(events(answer, custom_tools=["say"])) == [block]
    assert message_of(answer.response, custom_tools=["say"])["content"] == [block]
    assert assembled(events(answer)) == []


@pytest.mark.parametrize(
    ("finish", "reason", "stopped"),
    [
        (FinishDelta("stop"), None, "end_turn"),
        (FinishDelta("length"), None, "max_tokens"),
        (FinishDelta("content_filter"), None, "refusal"),
        (FinishDelta("stop"), "max_steps", "max_tokens"),
        (FinishDelta("pause"), "paused", "pause_turn"),
    ],
)
def test_the_stop_reason_has_anthropics_names(finish, reason, stopped):
    assert stop(Answer().say(TextDelta("t", "Hi"), finish).end(reason)) == stopped


def test_a_refusal_is_a_text_that_ends_as_one():
    answer = Answer().say(RefusalDelta("t", "No.")).say(STOP).end()
    assert assembled(events(answer)) == [{"type": "text", "text": "No."}]
    assert stop(answer) == "refusal"


def test_the_stop_sequence_is_named_where_known():
    answer = Answer().say(TextDelta("t", "alpha ")).say(STOP).end()
    one = writer()
    one.stop_sequence = "beta"
    changed = one.feed(answer.events)[-2]["delta"]
    assert (changed["stop_reason"], changed["stop_sequence"]) == (
        "stop_sequence",
        "beta",
    )
    whole = message_of(answer.response, stop_sequence="beta")
    assert (whole["stop_reason"], whole["stop_sequence"]) == ("stop_sequence", "beta")


def test_a_failure_is_an_error_event_and_the_last():
    answer = Answer().say(TextDelta("t", "Hi")).fail(RateLimited())
    got = events(answer, request_id="req_1")
    assert got[-1] == {
        "type": "error",
        "error": {
            "type": "rate_limit_error",
            "message": "The provider's rate limit is reached; try again in a moment.",
        },
        "request_id": "req_1",
    }
    assert "message_delta" not in [event["type"] for event in got]
    with pytest.raises(ValueError, match="must be sent as an error"):
        message_of(answer.response)
