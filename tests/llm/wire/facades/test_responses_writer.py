from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from llm.errors import ProviderDown
from llm.wire.codecs.openai_responses.codec import OpenAIResponsesCodec
from llm.wire.deltas import ItemDelta, ReasoningDelta, TextDelta
from llm.wire.facades.responses_writer import ResponsesWriter
from llm.wire.facades.sse_frames import DONE
from llm.wire.sse import SSEDecoder
from tests.llm.answers import OURS, STOP, USAGE, Answer, answers, call
from tests.openresponses import problems


def events(answer: Answer, **options: Any) -> list[dict[str, Any]]:
    return ResponsesWriter(**options).feed(answer.events)


def rounds() -> Answer:
    """Two rounds, one of a tool that runs here, and two calls side by side."""
    answer = Answer().say(TextDelta("t", "Let me see."), *call("a", name=OURS))
    answer.round(("call_a", "42")).say(ReasoningDelta("r", "Hm."))
    return answer.say(*call("b"), *call("c"), USAGE, STOP).end()


def test_server_side_calls_are_omitted_without_a_gap():
    answer = rounds()
    got = events(answer, server_tools=[OURS])
    assert [event["sequence_number"] for event in got] == list(range(len(got)))
    assert not any(event["type"].startswith("parley:") for event in got)
    added = [e for e in got if e["type"] == "response.output_item.added"]
    assert [event["output_index"] for event in added] == [0, 1, 2, 3]
    output = got[-1]["response"]["output"]
    kinds = [item["type"] for item in output]
    assert kinds == ["message", "reasoning", "function_call", "function_call"]
    assert [item["id"] for item in output] == [event["item"]["id"] for event in added]
    for event in got:
        if "item_id" in event:
            assert output[event["output_index"]]["id"] == event["item_id"]
    assert ResponsesWriter(server_tools=[OURS]).whole(answer.response)["output"] == (
        output
    )


@given(answers())
def test_every_event_is_one_of_the_standard(answer: Answer):
    for event in events(answer, server_tools=[OURS]):
        if '"web_search_call"' not in orjson.dumps(event).decode():
            assert problems(event) == []


@given(answers())
def test_bytes_are_the_same_events(answer: Answer):
    expected = events(answer)
    writer = ResponsesWriter()
    body = b"".join(writer.feed_bytes(batch) for batch in answer.batches)
    frames = SSEDecoder().feed(body)
    assert body.endswith(DONE)
    assert [frame.json() for frame in frames[:-1]] == expected
    assert [frame.event for frame in frames[:-1]] == [e["type"] for e in expected]


@dataclass
class Encoded:
    """A delta as the event log has it. Counts how often it is decoded."""

    event_: dict[str, Any]
    decoded: int = 0

    @property
    def type(self) -> str:
        return str(self.event_["type"])

    @property
    def sequence(self) -> int:
        return int(self.event_["sequence_number"])

    @property
    def data(self) -> bytes:
        return orjson.dumps(self.event_)

    @property
    def event(self) -> dict[str, Any]:
        self.decoded += 1
        return self.event_


def encoded(events: list[dict[str, Any]]) -> list[Any]:
    return [
        Encoded(event) if event["type"].endswith(".delta") else event
        for event in events
    ]


OPTIONS = st.fixed_dictionaries(
    {
        "server_tools": st.sampled_from([[], [OURS]]),
        "receipts": st.booleans(),
        "buffer_tool_calls": st.booleans(),
        "starting_after": st.integers(-1, 12),
    }
)
RESET = {"type": "parley:step.reset", "sequence_number": 0, "output_index": 0}


@given(answers(), OPTIONS, st.none() | st.integers(0, 20))
def test_encoded_deltas_give_the_same_bytes(
    answer: Answer, options: dict[str, Any], reset_at: int | None
):
    """Also where tools are hidden, and where an epoch began anew."""
    batches = [list(batch) for batch in answer.batches]
    if reset_at is not None:
        batches.insert(reset_at, [RESET])
    one, other = ResponsesWriter(**options), ResponsesWriter(**options)
    for batch in batches:
        assert one.feed_bytes(encoded(batch)) == other.feed_bytes(batch)
    assert one.feed_bytes([]) == other.feed_bytes([])


def test_deltas_are_not_decoded_until_an_item_is_left_out():
    answer = Answer().say(TextDelta("t", "Let me see."), *call("a"), USAGE, STOP).end()
    plain = encoded(answer.events)
    ResponsesWriter(server_tools=[OURS]).feed_bytes(plain)
    deltas = [each for each in plain if isinstance(each, Encoded)]
    assert len(deltas) >= 2
    assert not any(each.decoded for each in deltas)
    hidden = encoded(rounds().events)
    ResponsesWriter(server_tools=[OURS]).feed_bytes(hidden)
    first, *others = [each for each in hidden if isinstance(each, Encoded)]
    assert not first.decoded
    assert all(each.decoded for each in others)


@given(answers())
def test_our_decoder_reads_back_the_content(answer: Answer):
    writer, decoder = ResponsesWriter(), OpenAIResponsesCodec().decoder()
    heard = Answer()
    for frame in SSEDecoder().feed(writer.feed_bytes(answer.events)):
        heard.say(*decoder.feed(frame))
    heard.say(*decoder.close()).end()
    assert output_summary(heard) == output_summary(answer)
    assert heard.builder.usage == answer.builder.usage


def output_summary(answer: Answer) -> list[Any]:
    return [
        (item["type"], item.get("arguments"), words(item))
        for item in answer.response["output"]
        if item["type"] in ("message", "function_call")
    ]


def words(item: dict[str, Any]) -> str:
    parts = item.get("content") or ()
    return "".join(part.get("text") or part.get("refusal") or "" for part in parts)


def test_with_receipts_nothing_is_left_out():
    answer = rounds()
    assert events(answer, receipts=True, server_tools=[OURS]) == answer.events


def test_a_client_that_comes_back_gets_the_rest():
    answer = rounds()
    whole = events(answer, server_tools=[OURS])
    for number in (-1, 0, 5, len(whole) - 2, len(whole) - 1):
        options = {"starting_after": number, "server_tools": [OURS]}
        assert events(answer, **options) == whole[number + 1 :]
    for number in (len(whole) - 1, 10**6):  # it has all: the stream ends properly
        writer = ResponsesWriter(starting_after=number, server_tools=[OURS])
        frames = [writer.feed_bytes([event]) for event in answer.events]
        assert b"".join(frames) == writer.feed_bytes([]) + DONE


def test_arguments_can_come_in_one_piece():
    got = events(Answer().say(*call("a")).end(), buffer_tool_calls=True)
    kinds = [event["type"] for event in got]
    at = kinds.index("response.function_call_arguments.delta")
    assert kinds.count("response.function_call_arguments.delta") == 1
    assert kinds[at + 1] == "response.function_call_arguments.done"
    assert got[at]["delta"] == got[at + 1]["arguments"] == '{"at": 1}'
    assert [event["sequence_number"] for event in got] == list(range(len(got)))


def test_another_makers_receipts_stay_and_extensions_go():
    hosted = ItemDelta("h", {"type": "web_search_call", "action": {}}, done=True)
    strange = ItemDelta("s", {"type": "parley:hosted_tool_call"}, done=True)
    answer = Answer().say(strange, hosted).end()
    [item] = events(answer)[-1]["response"]["output"]
    assert item["type"] == "web_search_call"


def test_a_failure_is_the_end_of_the_stream():
    writer = ResponsesWriter()
    answer = Answer().say(TextDelta("t", "Hi")).fail(ProviderDown())
    body = writer.feed_bytes(answer.events)
    kinds = [frame.event for frame in SSEDecoder().feed(body)]
    assert kinds[-3:] == ["error", "response.failed", "message"]
    assert body.endswith(DONE)
