from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from pydantic import ConfigDict, TypeAdapter

from llm.errors import (
    BadRequest,
    BadResponse,
    ContextTooLarge,
    InvalidKey,
    LLMError,
    ModelNotAvailable,
    ProviderDown,
    QuotaExhausted,
    RateLimited,
)
from llm.providers.azure_openai import PROVIDER as AZURE
from llm.providers.openai import PROVIDER as OPENAI
from llm.providers.xai import PROVIDER as XAI
from llm.wire.codecs.openai_responses.codec import OpenAIResponsesCodec
from llm.wire.deltas import (
    AnnotationDelta,
    CloseDelta,
    Delta,
    FinishDelta,
    ItemDelta,
    ProofDelta,
    ReasoningDelta,
    RefusalDelta,
    StartDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
)
from llm.wire.items import (
    CITED_TEXT,
    Issuer,
    Item,
    function_call_output,
    message,
    user_message,
)
from llm.wire.request import Request
from llm.wire.response_builder import ResponseBuilder
from llm.wire.sse import ServerSentEvent, SSEDecoder

CODEC = OPENAI.codec("openai_responses")
PLAIN = OpenAIResponsesCodec()
ISSUER: Issuer = {"provider": "openai", "model": "gpt-6-luna", "route": "1:1"}
OTHER: Issuer = {**ISSUER, "provider": "azure_openai"}

MESSAGE = {
    "type": "message",
    "id": "msg_1",
    "status": "completed",
    "role": "assistant",
    "phase": "final_answer",
    "content": [{"type": "output_text", "text": "Hello", "annotations": []}],
}
REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [
        {"type": "summary_text", "text": "First"},
        {"type": "summary_text", "text": "Second"},
    ],
    "encrypted_content": "gAAA==",
}
CALL = {
    "type": "function_call",
    "id": "fc_1",
    "status": "completed",
    "call_id": "call_1",
    "name": "weather",
    "arguments": '{"city":"Paris"}',
}
SEARCH = {
    "type": "web_search_call",
    "id": "ws_1",
    "status": "completed",
    "action": {"type": "search", "query": "Paris"},
}
USAGE = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 8},
    "output_tokens": 50,
    "output_tokens_details": {"reasoning_tokens": 32},
    "total_tokens": 150,
}
START = {"type": "response.created", "response": {"id": "resp_1", "model": "gpt-x"}}


def end(
    status: str = "completed", output: Iterable[Any] = (), **fields: Any
) -> dict[str, Any]:
    response = {"id": "resp_1", "model": "gpt-x", "status": status, **fields}
    response["output"] = list(output)
    return {"type": f"response.{status}", "response": response}


def added(index: int, item: dict[str, Any]) -> dict[str, Any]:
    empty = {"content": [], "summary": [], "arguments": ""}
    skeleton = {name: empty.get(name, value) for name, value in item.items()}
    type = "response.output_item.added"
    return {"type": type, "output_index": index, "item": skeleton}


def done(index: int, item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def text(index: int, delta: str) -> dict[str, Any]:
    return {
        "type": "response.output_text.delta",
        "output_index": index,
        "content_index": 0,
        "item_id": "msg_1",
        "delta": delta,
    }


def event(data: Any) -> ServerSentEvent:
    return ServerSentEvent(data if isinstance(data, bytes) else orjson.dumps(data))


def decoded_deltas(*events: Any) -> list[Delta]:
    decoder = PLAIN.decoder()
    deltas = [delta for data in events for delta in decoder.feed(event(data))]
    return deltas + list(decoder.close())


def only(deltas: Iterable[Delta], kind: type) -> list[Any]:
    return [delta for delta in deltas if isinstance(delta, kind)]


def built(deltas: list[Delta]) -> ResponseBuilder:
    builder = ResponseBuilder(id="resp", model="m")
    builder.begin_call()
    builder.feed(deltas)
    builder.end_call()
    return builder


# Decoding: text


def test_text_is_decoded_as_it_arrives_and_not_repeated():
    deltas = decoded_deltas(
        START,
        added(0, MESSAGE),
        text(0, "Hel"),
        text(0, "lo"),
        {
            "type": "response.output_text.done",
            "output_index": 0,
            "content_index": 0,
            "text": "Hello",
        },
        done(0, MESSAGE),
        end(output=[MESSAGE], usage=USAGE),
    )
    assert deltas == [
        StartDelta("resp_1", "gpt-x"),
        TextDelta(0, "Hel", "final_answer"),
        TextDelta(0, "lo", "final_answer"),
        ProofDelta(0, MESSAGE),
        CloseDelta(0),
        UsageDelta(100, 50, 64, 8, reasoning_tokens=32, raw=USAGE),
        FinishDelta("stop", "completed"),
    ]


@pytest.mark.parametrize(
    "events",
    [
        [added(0, MESSAGE), done(0, MESSAGE), end(output=[MESSAGE])],
        [done(0, MESSAGE), end()],
        [end(output=[MESSAGE])],
        [added(0, MESSAGE), text(0, "Hel"), done(0, MESSAGE), end()],
        [added(0, MESSAGE), text(0, "Hel"), end(output=[MESSAGE])],
        [text(0, "Hel"), text(0, "lo"), done(0, MESSAGE), end(output=[MESSAGE])],
        [added(0, MESSAGE), text(0, "Hello"), end(output=[])],
    ],
)
def test_text_is_complete_whichever_event_carries_it(events: list[dict[str, Any]]):
    [item] = built(decoded_deltas(START, *events)).output
    assert item["content"][0]["text"] == "Hello"


def part_done(type: str, index: int = 0, **fields: Any) -> dict[str, Any]:
    at = {"output_index": index, "content_index": 0, "item_id": "msg_1"}
    return {"type": f"response.{type}", **at, **fields}


WHOLE = {"type": "output_text", "text": "Hello"}


@pytest.mark.parametrize(
    "events",
    [
        [added(0, MESSAGE), part_done("output_text.done", text="Hello")],
        [part_done("output_text.done", text="Hello")],
        [added(0, MESSAGE), part_done("content_part.done", part=WHOLE)],
        [
            added(0, MESSAGE),
            text(0, "Hel"),
            part_done("output_text.done", text="Hello"),
        ],
        [
            added(0, MESSAGE),
            text(0, "Hel"),
            part_done("output_text.done", text="Hello", item_id="changed"),
            part_done("content_part.done", part=WHOLE, item_id="changed"),
        ],
    ],
)
@pytest.mark.parametrize("ends", [True, False])
def test_text_may_be_in_the_end_of_its_part_alone(
    events: list[dict[str, Any]], ends: bool
):
    ended = [done(0, {**MESSAGE, "content": []})] if ends else []
    answer = built(decoded_deltas(START, *events, *ended, end()))
    [item] = answer.output
    assert [part["text"] for part in item["content"]] == ["Hello"]


@pytest.mark.parametrize(
    "other", [{"output_index": 1, "item_id": "msg_2"}, {"content_index": 1}]
)
def test_the_end_of_a_part_at_another_place_than_its_deltas_adds_nothing(
    other: dict[str, Any],
):
    events = [
        added(0, MESSAGE),
        text(0, "Hello"),
        part_done("output_text.done", text="Hello") | other,
        part_done("content_part.done", part=WHOLE) | other,
    ]
    answer = built(decoded_deltas(START, *events, end()))
    assert "".join(
        part["text"] for item in answer.output for part in item["content"]
    ) == ("Hello")


def test_a_refusal_and_thoughts_may_be_in_the_end_of_their_part_alone():
    ends = [
        added(0, {**REASONING, "summary": []}),
        part_done("reasoning_summary_text.done", item_id="rs_1", text="S")
        | {"summary_index": 0},
        part_done("reasoning_text.done", item_id="rs_1", text="T"),
        added(1, MESSAGE),
        part_done("refusal.done", 1, refusal="No."),
    ]
    thought, answer = built(decoded_deltas(START, *ends, end())).output
    assert [part["text"] for part in thought["summary"]] == ["S"]
    assert [part["text"] for part in thought["content"]] == ["T"]
    assert answer["content"] == [{"type": "refusal", "refusal": "No."}]


def test_a_part_that_ends_late_or_under_a_foreign_index_adds_nothing():
    events = [
        added(0, MESSAGE),
        text(0, "Hello"),
        done(0, MESSAGE),
        added(1, CALL),
        part_done("output_text.done", text="Hello again"),
        part_done("output_text.done", 1, item_id="other", text="Hello again"),
        done(1, CALL),
    ]
    message_item, call = built(decoded_deltas(START, *events, end())).output
    assert message_item["content"][0]["text"] == "Hello"
    assert call["type"] == "function_call"


ANNOTATED = "response.output_text.annotation.added"


@pytest.mark.parametrize(
    "odd",
    [
        {"type": ANNOTATED, "output_index": 0, "annotation": None},
        {"type": ANNOTATED, "output_index": 0, "annotation": "x"},
        {"type": "response.in_progress"},
        {"type": "response.created", "response": None},
        {**text(0, ""), "content_index": None},
        {"type": "response.output_item.added", "output_index": 7, "item": "x"},
        {"type": "response.output_item.done", "output_index": 7, "item": {"type": 1}},
    ],
)
def test_odd_events_cost_no_text(odd: dict[str, Any]):
    events = [START, added(0, MESSAGE), text(0, "Hel"), odd, text(0, "lo")]
    answer = built(decoded_deltas(*events, end(output=[None, {}, MESSAGE])))
    [item] = answer.output
    assert item["content"][0]["text"] == "Hello"
    assert item["content"][0]["annotations"] == []


@pytest.mark.parametrize(
    "content",
    [
        [None, *MESSAGE["content"]],
        [{**MESSAGE["content"][0], "annotations": [None, "x"]}],
        [{**MESSAGE["content"][0], "annotations": "x"}],
    ],
)
def test_odd_parts_cost_no_text(content: Any):
    odd = {**MESSAGE, "content": content}
    [item] = built(decoded_deltas(START, added(0, MESSAGE), end(output=[odd]))).output
    assert item["content"][0]["text"] == "Hello"


def test_reasoning_may_be_one_text():
    odd = {"type": "reasoning", "id": "r", "summary": "S", "content": "T"}
    [item] = built(decoded_deltas(START, end(output=[odd]))).output
    assert [part["text"] for part in item["summary"]] == ["S"]
    assert [part["text"] for part in item["content"]] == ["T"]


def test_a_completed_event_needs_no_response():
    last = {"type": "response.completed", "response": None}
    answer = built(decoded_deltas(START, text(0, "Hello"), last))
    assert answer.output[0]["content"][0]["text"] == "Hello"


def test_an_event_that_nobody_reads_need_be_no_json():
    decoder = PLAIN.decoder()
    idle = ServerSentEvent(b"keep", "keepalive")
    assert list(decoder.feed(idle)) == []
    with pytest.raises(BadResponse):
        decoder.feed(ServerSentEvent(b"keep", "response.created"))


def test_items_are_known_by_index_where_ids_change():
    changed = {**MESSAGE, "id": "msg_2"}
    final = end(output=[{**MESSAGE, "id": "msg_3"}])
    deltas = decoded_deltas(
        START, added(0, MESSAGE), text(0, "Hello"), done(0, changed), final
    )
    assert [d.text for d in only(deltas, TextDelta)] == ["Hello"]


def test_items_missing_from_the_stream_are_taken_from_its_end():
    deltas = decoded_deltas(
        START, added(0, REASONING), done(0, REASONING), end(output=[REASONING, MESSAGE])
    )
    items = built(deltas).output
    assert [item["type"] for item in items] == ["reasoning", "message"]


def test_interleaved_messages_are_sent_back_once():
    one = {**MESSAGE, "content": [{"type": "output_text", "text": "AB"}]}
    other = {**one, "id": "msg_2", "content": [{"type": "output_text", "text": "ab"}]}
    second = [{**text(1, delta), "item_id": "msg_2"} for delta in "ab"]
    events = [
        *(added(0, one), added(1, other)),
        *(text(0, "A"), second[0], text(0, "B"), second[1]),
        *(done(0, one), done(1, other)),
    ]
    answer = built(decoded_deltas(START, *events, end(output=[one, other])))
    sent = [part["content"] for part in wire(*answer.output)]
    assert "".join(str(words) for words in sent).count("A") == 1
    assert answer.proofs == {}


@pytest.mark.parametrize("ends", [True, False])
def test_two_messages_may_have_one_id(ends: bool):
    one = MESSAGE
    other = {**MESSAGE, "content": [{"type": "output_text", "text": "Bye"}]}
    events = [
        *(added(0, one), text(0, "Hel"), text(0, "lo"), done(0, one)),
        *(added(1, other), text(1, "Bye")),
        *([done(1, other)] if ends else []),
    ]
    answer = built(decoded_deltas(START, *events, end(output=[one, other])))
    assert [item["content"][0]["text"] for item in answer.output] == ["Hello", "Bye"]
    assert [*answer.proofs.values()] == [one, other]


def test_an_index_used_again_is_another_item():
    second = {**CALL, "id": "fc_2", "call_id": "call_2"}
    deltas = decoded_deltas(
        START, added(0, CALL), done(0, CALL), added(0, second), done(0, second), end()
    )
    assert [i["call_id"] for i in built(deltas).output] == ["call_1", "call_2"]


def test_parts_of_an_older_name_are_text():
    parts = [{"type": "text", "text": "Hel"}, {"type": "output_text", "text": "lo"}]
    whole = {"type": "message", "role": "assistant", "content": parts}
    deltas = decoded_deltas(done(0, whole), end(output=[whole]))
    assert "".join(each.text for each in only(deltas, TextDelta)) == "Hello"


def test_an_empty_message_is_a_message():
    empty = {**MESSAGE, "content": []}
    [item] = built(decoded_deltas(START, added(0, empty), done(0, empty), end())).output
    assert (item["type"], item["phase"]) == ("message", "final_answer")


def test_annotations_are_decoded_once():
    note, late = {"type": "url_citation", "url": "a"}, {"type": "file_path"}
    item = {
        **MESSAGE,
        "content": [{**MESSAGE["content"][0], "annotations": [note, late]}],
    }
    streamed = {
        "type": "response.output_text.annotation.added",
        "output_index": 0,
        "annotation": note,
    }
    deltas = decoded_deltas(
        START, added(0, item), text(0, "Hello"), streamed, done(0, item), end()
    )
    nowhere = {"start_index": 0, "end_index": 0, "title": ""}  # xAI sends no more
    assert only(deltas, AnnotationDelta) == [
        AnnotationDelta(0, {**nowhere, **note}),
        AnnotationDelta(0, late),
    ]


@pytest.mark.parametrize("streams", [False, True])
def test_citations_of_a_second_part_point_at_its_words(streams):
    note = {"type": "url_citation", "url": "a", "start_index": 0, "end_index": 6}
    content = [
        {"type": "output_text", "text": "First. ", "annotations": []},
        {"type": "output_text", "text": "Second", "annotations": [note]},
    ]
    item = {**MESSAGE, "content": content}
    at = {"output_index": 0, "content_index": 1}
    streamed = [
        text(0, "First. "),
        {"type": "response.output_text.delta", **at, "delta": "Second"},
        {"type": "response.output_text.annotation.added", **at, "annotation": note},
    ]
    events = [added(0, item), *(streamed if streams else ()), done(0, item)]
    [message] = built(decoded_deltas(START, *events, end())).output
    [part] = message["content"]
    [cited] = part["annotations"]
    assert part["text"][cited["start_index"] : cited["end_index"]] == "Second"


def test_parts_that_were_not_streamed_stay_in_their_order():
    content = [{"type": "refusal", "refusal": "no"}, *MESSAGE["content"]]
    item = {**MESSAGE, "content": content}
    [message] = built(
        decoded_deltas(START, added(0, item), done(0, item), end())
    ).output
    types = [part["type"] for part in message["content"]]
    assert (types, message["phase"]) == (["refusal", "output_text"], "final_answer")


@pytest.mark.parametrize("kind", ["url_citation", "file_citation"])
@pytest.mark.parametrize(
    ("words", "stored"), [(5, None), ({"a": 1}, None), ("x" * 5000, "x" * 1000)]
)
def test_a_quotation_of_another_parley_is_checked(
    kind: str, words: object, stored: str | None
):
    note = {"type": kind, "url": "https://a.test", "filename": "a", CITED_TEXT: words}
    content = [{**MESSAGE["content"][0], "annotations": [note]}]
    item = {**MESSAGE, "content": content}
    deltas = decoded_deltas(START, added(0, item), done(0, item), end())
    [delta] = only(deltas, AnnotationDelta)
    assert delta.annotation.get(CITED_TEXT) == stored


def test_a_refusal_is_no_text():
    refusal = {**MESSAGE, "content": [{"type": "refusal", "refusal": "I cannot."}]}
    delta = {"type": "response.refusal.delta", "output_index": 0, "delta": "I "}
    deltas = decoded_deltas(START, added(0, refusal), delta, done(0, refusal), end())
    assert only(deltas, RefusalDelta) == [
        RefusalDelta(0, "I "),
        RefusalDelta(0, "cannot."),
    ]
    assert not only(deltas, TextDelta)


# Decoding: reasoning


def summary(part: int, delta: str) -> dict[str, Any]:
    return {
        "type": "response.reasoning_summary_text.delta",
        "output_index": 0,
        "summary_index": part,
        "delta": delta,
    }


def test_a_summary_has_several_parts():
    deltas = decoded_deltas(
        START,
        added(0, REASONING),
        summary(0, "First"),
        summary(1, "Sec"),
        done(0, REASONING),
        end(),
    )
    assert only(deltas, ReasoningDelta) == [
        ReasoningDelta(0, ""),
        ReasoningDelta(0, "First", "summary", 0),
        ReasoningDelta(0, "Sec", "summary", 1),
        ReasoningDelta(0, "ond", "summary", 1),
    ]


def test_raw_reasoning_has_names_old_and_new():
    item = {
        **REASONING,
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "Hm, so"}],
    }
    old = {"type": "response.reasoning_text.delta", "output_index": 0, "delta": "Hm"}
    new = {"type": "response.reasoning.delta", "output_index": 0, "delta": ", "}
    [built_item] = built(
        decoded_deltas(START, added(0, item), old, new, done(0, item), end())
    ).output
    assert built_item["content"] == [{"type": "reasoning_text", "text": "Hm, so"}]


def test_only_the_finished_item_is_proof():
    early = {**added(0, REASONING)["item"], "encrypted_content": "partial"}
    start = {"type": "response.output_item.added", "output_index": 0, "item": early}
    builder = built(decoded_deltas(START, start, done(0, REASONING), end()))
    assert list(builder.proofs.values()) == [REASONING]


def test_reasoning_proved_after_its_message_stays_one_item():
    """OpenRouter sends `done` of the reasoning last."""
    events = [
        added(0, REASONING),
        summary(0, "First"),
        added(1, MESSAGE),
        text(1, "Hello"),
        done(1, MESSAGE),
        done(0, REASONING),
    ]
    builder = built(decoded_deltas(START, *events, end(output=[REASONING, MESSAGE])))
    assert [item["type"] for item in builder.output] == ["reasoning", "message"]
    assert builder.proofs[builder.output[0]["id"]] == REASONING


# Decoding: calls


def arguments(delta: str, index: int = 0) -> dict[str, Any]:
    type = "response.function_call_arguments.delta"
    return {"type": type, "output_index": index, "delta": delta}


def test_calls_may_be_open_side_by_side():
    second = {
        **CALL,
        "id": "fc_2",
        "call_id": "call_2",
        "name": "time",
        "arguments": "{}",
    }
    deltas = decoded_deltas(
        START,
        added(0, CALL),
        added(1, second),
        arguments("{}", 1),
        arguments('{"city":'),
        arguments('"Paris"}'),
        done(1, second),
        done(0, CALL),
        end(output=[CALL, second]),
    )
    items = built(deltas).output
    assert [(i["call_id"], i["name"], i["arguments"]) for i in items] == [
        ("call_1", "weather", '{"city":"Paris"}'),
        ("call_2", "time", "{}"),
    ]
    assert deltas[-1] == FinishDelta("tool_calls", "completed")


def test_arguments_may_be_an_object():
    whole = {**CALL, "arguments": {"city": "Paris"}}
    answer = end(output=[whole])
    streams = [
        decoded_deltas(START, added(0, CALL), done(0, whole), answer),
        decoded_deltas(
            START,
            added(0, CALL),
            {
                "type": "response.function_call_arguments.done",
                "item_id": "fc_1",
                "output_index": 0,
                "arguments": whole["arguments"],
            },
            end(),
        ),
        list(PLAIN.decode(orjson.dumps(answer["response"]))),
    ]
    for deltas in streams:
        [item] = built(deltas).output
        assert (item["arguments"], item["status"]) == (CALL["arguments"], "completed")


def test_arguments_may_come_only_when_done():
    whole = {
        "type": "response.function_call_arguments.done",
        "output_index": 0,
        "arguments": CALL["arguments"],
    }
    deltas = decoded_deltas(START, added(0, CALL), whole, done(0, CALL), end())
    assert only(deltas, ToolCallDelta) == [
        ToolCallDelta(0, "call_1", "weather"),
        ToolCallDelta(0, arguments='{"city":"Paris"}'),
    ]


@pytest.mark.parametrize(
    ("pieces", "status"), [('{"a":', "incomplete"), ('{"a":1}', "completed")]
)
def test_a_call_without_a_status_in_a_cut_response(pieces: str, status: str):
    bare = {k: v for k, v in CALL.items() if k != "status"} | {"arguments": pieces}
    reason = {"reason": "max_output_tokens"}
    cut = end("incomplete", output=[bare], incomplete_details=reason)
    deltas = decoded_deltas(START, added(0, CALL), arguments(pieces), cut)
    [item] = built(deltas).output
    assert (item["arguments"], item["status"]) == (pieces, status)


def test_a_call_cut_short_is_never_run():
    half = {**CALL, "status": "incomplete", "arguments": '{"ci'}
    details = {"reason": "max_output_tokens"}
    deltas = decoded_deltas(
        START,
        added(0, half),
        arguments('{"ci'),
        done(0, half),
        end("incomplete", incomplete_details=details),
    )
    [item] = built(deltas).output
    assert item["status"] == "incomplete"
    assert deltas[-1] == FinishDelta("length", "incomplete")


@pytest.mark.parametrize(
    "item",
    [
        SEARCH,
        {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "s", "tools": []},
        {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAA"},
        {
            "type": "custom_tool_call",
            "id": "ctc_1",
            "call_id": "c",
            "name": "sql",
            "input": "SELECT 1",
        },
        {
            "type": "shell_call",
            "id": "sh_1",
            "call_id": "c",
            "action": {"commands": ["ls"]},
        },
        {"type": "never_seen", "id": "x_1", "field": [1, {"a": None}]},
    ],
)
def test_an_item_of_any_other_type_is_carried_whole(item: dict[str, Any]):
    streamed = decoded_deltas(START, added(0, item), done(0, item), end(output=[item]))
    [carried] = built(streamed).output
    assert only(streamed, ProofDelta) == [ProofDelta(0, item)]
    assert only(streamed, ItemDelta)[-1].done
    assert {**carried, "id": item["id"]} == {**item, "status": "completed"}


# Decoding: the rest


def test_a_resumed_stream_starts_anywhere():
    deltas = decoded_deltas(text(0, "lo"), done(0, {**MESSAGE, "content": []}), end())
    assert StartDelta("resp_1", "gpt-x") in deltas
    assert [d.text for d in only(deltas, TextDelta)] == ["lo"]


def test_events_without_content_are_skipped():
    noise = [
        {"type": "keepalive"},
        {"type": "response.reasoning_part.added", "output_index": 0},
        {"type": "response.web_search_call.searching", "output_index": 0},
        {"type": "response.output_item.added", "output_index": 7, "item": None},
        {"type": "response.output_item.done", "output_index": 7, "item": None},
        {"type": "never.seen"},
        {},
        b"[DONE]",
    ]
    quiet = [START, added(0, MESSAGE), text(0, "Hello"), done(0, MESSAGE), end()]
    loud = [part for data in quiet for part in (data, *noise)]
    assert decoded_deltas(*loud) == decoded_deltas(*quiet)


@pytest.mark.parametrize(
    ("details", "reason"),
    [
        ({"reason": "max_output_tokens"}, "length"),
        ({"reason": "max_messages"}, "length"),
        ({"reason": "content_filter"}, "content_filter"),
        ({"reason": "steered"}, "stop"),
        ({"reason": "yet_to_come"}, "length"),
        (None, "length"),
    ],
)
def test_every_reason_to_stop_early(details: dict[str, str] | None, reason: str):
    assert decoded_deltas(START, end("incomplete", incomplete_details=details)) == [
        StartDelta("resp_1", "gpt-x"),
        FinishDelta(reason, "incomplete"),
    ]


@pytest.mark.parametrize(
    ("usage", "cost"),
    [({"cost": 0.25}, 0.25), ({"cost_in_usd_ticks": 12_500_000}, 0.00125), ({}, None)],
)
def test_a_billed_cost_is_decoded(usage: dict[str, Any], cost: float | None):
    [delta] = only(decoded_deltas(START, end(usage={**USAGE, **usage})), UsageDelta)
    assert delta.cost == cost


@pytest.mark.parametrize(
    "error",
    [
        {
            "type": "error",
            "error": {
                "type": "tokens",
                "code": "rate_limit_exceeded",
                "message": "Slow.",
            },
        },
        {
            "type": "error",
            "code": "rate_limit_exceeded",
            "message": "Slow.",
            "param": None,
        },
        {"error": {"code": "rate_limit_exceeded", "message": "Slow."}},
        {
            "type": "response.error",
            "error": {"code": "rate_limit_exceeded", "message": "Slow."},
        },
        end("failed", error={"code": "rate_limit_exceeded", "message": "Slow."}),
    ],
)
def test_every_shape_of_error_in_a_stream(error: dict[str, Any]):
    with pytest.raises(RateLimited) as caught:
        decoded_deltas(START, error)
    assert caught.value.detail == "Slow."
    assert caught.value.upstream_code == "rate_limit_exceeded"


def test_a_failure_reports_its_usage_first():
    heard: list[Delta] = []
    failed = end("failed", error={"code": "server_error", "message": ""}, usage=USAGE)
    with pytest.raises(ProviderDown):
        heard.extend(PLAIN.decoder().feed(event(failed)))
    assert only(heard, UsageDelta)


@pytest.mark.parametrize("status", [None, "in_progress", "completed"])
def test_the_terminal_event_tells_the_end_whatever_its_body_repeats(status: Any):
    failed = end("failed", error={"code": "server_error", "message": "Oh."})
    failed["response"]["status"] = status
    with pytest.raises(ProviderDown):
        decoded_deltas(START, text(0, "Hel"), failed)
    cut = end("incomplete", incomplete_details={"reason": "max_output_tokens"})
    cut["response"]["status"] = status
    finish = decoded_deltas(START, text(0, "Hel"), cut)[-1]
    assert finish == FinishDelta("length", "incomplete")


@pytest.mark.parametrize(
    ("status", "finish"),
    [
        (None, FinishDelta("stop", "completed")),
        ("in_progress", FinishDelta("stop", "completed")),
        ("incomplete", FinishDelta("length", "incomplete")),
    ],
)
def test_a_completed_event_may_say_that_the_response_is_cut(
    status: Any, finish: FinishDelta
):
    last = end()
    last["response"]["status"] = status
    assert decoded_deltas(START, text(0, "Hel"), last)[-1] == finish


@pytest.mark.parametrize("events", [[], [START], [START, text(0, "Hel")]])
def test_an_end_without_a_terminal_event_is_a_loss(events: list[dict[str, Any]]):
    with pytest.raises(ProviderDown):
        decoded_deltas(*events)


@pytest.mark.parametrize("data", [b"{half", b"[1]", b'"text"'])
def test_an_event_that_is_no_json_object_is_a_bad_response(data: bytes):
    with pytest.raises(BadResponse):
        decoded_deltas(START, data)


STREAM = b"".join(
    b"event: %b\ndata: %b\n\n" % (data["type"].encode(), orjson.dumps(data))
    for data in [
        START,
        added(0, REASONING),
        summary(0, "Fir🌍st"),
        done(0, REASONING),
        added(1, MESSAGE),
        text(1, "Hello"),
        done(1, MESSAGE),
        added(2, CALL),
        arguments('{"city":"Paris"}', 2),
        done(2, CALL),
        end(output=[REASONING, MESSAGE, CALL], usage=USAGE),
    ]
)


def decoded(pieces: Iterable[bytes]) -> list[Delta]:
    sse, decoder = SSEDecoder(), PLAIN.decoder()
    events = [e for piece in pieces for e in sse.feed(piece)] + sse.close()
    return [d for e in events for d in decoder.feed(e)] + list(decoder.close())


@given(st.sets(st.integers(1, len(STREAM) - 1)))
def test_chunk_borders_do_not_matter(cuts: set[int]):
    borders = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[a:b] for a, b in pairwise(borders)]
    assert decoded(pieces) == decoded([STREAM])


def test_a_whole_answer_decodes_as_its_stream():
    response = end(output=[REASONING, MESSAGE, CALL], usage=USAGE)["response"]
    whole = built(list(PLAIN.decode(orjson.dumps(response))))
    streamed = built(decoded([STREAM.replace("🌍".encode(), b"")]))
    for one, other in zip(whole.output, streamed.output, strict=True):
        assert {**one, "id": ""} == {**other, "id": ""}
    assert list(whole.proofs.values()) == [REASONING, MESSAGE, CALL]
    assert whole.finish == streamed.finish
    assert whole.call_usage == streamed.call_usage


def test_an_answer_that_goes_on_in_the_background_is_not_completed():
    queued = end("queued")["response"]
    assert list(PLAIN.decode(orjson.dumps(queued)))[-1] == FinishDelta("stop", "queued")


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", BadResponse),
        (b"[]", BadResponse),
        (b'{"hello": 1}', BadResponse),
        (b'{"error": {"code": "insufficient_quota"}}', QuotaExhausted),
        (
            b'{"code": "x", "error": "The service is currently unavailable"}',
            ProviderDown,
        ),
        (b'{"status": "failed", "error": {"code": "server_error"}}', ProviderDown),
        (b'{"status": "cancelled", "output": []}', ProviderDown),
    ],
)
def test_an_answer_that_is_none(body: bytes, error: type[LLMError]):
    with pytest.raises(error):
        list(PLAIN.decode(body))


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (400, {"error": {"code": "context_length_exceeded"}}, ContextTooLarge),
        (
            400,
            {"error": {"code": "model_not_found", "param": "model"}},
            ModelNotAvailable,
        ),
        (
            400,
            {"code": "invalid-argument", "error": "Incorrect API key provided."},
            InvalidKey,
        ),
        (429, {"error": {"code": "insufficient_quota"}}, QuotaExhausted),
        (503, {}, ProviderDown),
    ],
)
def test_error_answers(status: int, body: Any, error: type[LLMError]):
    assert type(PLAIN.error(status, {}, orjson.dumps(body))) is error


# Encoding


def request(*items: Item, **fields: Any) -> Request:
    options = {"model": "gpt-4.1", "issuer": ISSUER, **fields}
    return Request(items=items or [user_message("Hi")], **options)


def wire(*items: Item, codec: Any = CODEC, **fields: Any) -> list[dict[str, Any]]:
    return list(codec.encode(request(*items, **fields))["input"])


def issued(raw: dict[str, Any], issuer: Issuer = ISSUER, **fields: Any) -> Item:
    """Our item of the provider's `raw` one."""
    provider_data = {"issuer": issuer, "raw": raw}
    return {**raw, "id": "item_0", **fields, "provider_data": provider_data}


def test_the_least_request():
    assert CODEC.encode(request(stream=False)) == {
        "model": "gpt-4.1",
        "input": [
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "Hi"}],
            }
        ],
        "store": False,
        "stream": False,
    }


TOOL = {
    "type": "function",
    "name": "f",
    "description": "d",
    "parameters": {"type": "object", "additionalProperties": False},
}
FULL = {
    "model": "gpt-6-luna",
    "instructions": "Be brief.",
    "tools": [TOOL, {"type": "web_search"}],
    "tool_choice": {"type": "function", "name": "f"},
    "parallel_tool_calls": False,
    "max_output_tokens": 64,
    "temperature": 0.0,
    "top_p": 0.5,
    "top_logprobs": 2,
    "reasoning": {"effort": "max", "summary": "auto"},
    "text": {
        "format": {
            "type": "json_schema",
            "name": "n",
            "schema": {"type": "object", "additionalProperties": False},
            "strict": True,
        },
        "verbosity": "low",
    },
    "metadata": {"a": "b"},
    "service_tier": "flex",
    "prompt_cache_key": "k",
    "safety_identifier": "s",
    "seed": 7,
}
OPTIONS = [
    message("developer", "Speak French."),
    {
        "type": "message",
        "role": "user",
        "content": [
            {"type": "input_text", "text": "What is this?", "parley:pasted": True},
            {"type": "input_image", "image_url": "data:image/png;base64,AA=="},
            {
                "type": "input_file",
                "file_data": "data:,x",
                "filename": "x",
                "file_id": None,
            },
        ],
    },
]
STEP = [issued(REASONING), issued(CALL), function_call_output("call_1", "22 °C")]
REBUILT = [issued(raw, OTHER) for raw in (REASONING, MESSAGE, CALL)]


@pytest.mark.parametrize("choice", ["auto", "none", "required", FULL["tool_choice"]])
@pytest.mark.parametrize("provider", [OPENAI, AZURE, XAI], ids=lambda p: p.name)
def test_every_body_is_what_openais_own_types_allow(provider: Any, choice: Any):
    items = [
        *OPTIONS,
        *STEP,
        issued(MESSAGE),
        user_message("And?"),
        *REBUILT,
        function_call_output("call_1", [{"type": "input_text", "text": "x"}]),
    ]
    body = provider.codec("openai_responses").encode(
        request(*items, **{**FULL, "tool_choice": choice})
    )
    # A list, as pydantic takes no config beside a bare TypedDict.
    strict = ConfigDict(extra="forbid")
    adapter = TypeAdapter(list[ResponseCreateParamsStreaming], config=strict)
    [valid] = adapter.validate_python([json.loads(orjson.dumps(body))])
    assert len(list(valid["tools"])) == 2
    assert "parley" not in json.dumps(body)
    assert "provider_data" not in json.dumps(body)


def test_openai_receives_every_option():
    body = CODEC.encode(request(**FULL))
    described = FULL.keys() - {"seed", "tools", "temperature"}
    assert {name: body[name] for name in described} == {
        name: FULL[name] for name in described
    }
    assert body["temperature"] == 0
    assert body["tools"] == [{**TOOL, "strict": False}, {"type": "web_search"}]
    assert body["stream_options"] == {"include_obfuscation": False}


@pytest.mark.parametrize("strict", [True, False])
def test_a_tool_is_as_strict_as_the_caller_sets_it(strict: bool):
    body = CODEC.encode(request(**{**FULL, "tools": [{**TOOL, "strict": strict}]}))
    assert body["tools"] == [{**TOOL, "strict": strict}]


def test_xai_receives_only_supported_options():
    codec = XAI.codec("openai_responses")
    body = codec.encode(
        request(message("developer", "x"), **{**FULL, "model": "grok-4.7"})
    )
    assert not body.keys() & {
        "metadata",
        "prompt_cache_key",
        "safety_identifier",
        "service_tier",
        "stream_options",
        "top_logprobs",
    }
    assert body["input"][0]["role"] == "system"
    assert body["reasoning"]["effort"] == "high"
    assert body["tools"][0]["parameters"] == {"type": "object"}
    assert "verbosity" not in body["text"]
    assert body["text"]["format"]["schema"] == {"type": "object"}


def test_a_choice_without_tools_is_not_sent():
    body = CODEC.encode(request(tool_choice="required", parallel_tool_calls=True))
    assert not body.keys() & {"tools", "tool_choice", "parallel_tool_calls"}


@pytest.mark.parametrize(
    ("name", "value"),
    [("stop", ["x"]), ("presence_penalty", 0.5), ("frequency_penalty", -1.0)],
)
def test_unsupported_options_are_refused(name: str, value: Any):
    with pytest.raises(BadRequest) as caught:
        CODEC.encode(request(**{name: value}))
    assert caught.value.param == name


def test_neutral_options_are_not_refused():
    body = CODEC.encode(request(stop=(), presence_penalty=0.0, frequency_penalty=0))
    assert not body.keys() & {"stop", "presence_penalty", "frequency_penalty"}


@pytest.mark.parametrize(
    ("model", "fields", "included"),
    [
        ("gpt-4.1", {}, False),
        ("gpt-4o", {}, False),
        ("gpt-5-chat-latest", {}, False),
        ("gpt-5-mini", {}, True),
        ("gpt-6-luna", {}, True),
        ("o4-mini", {}, True),
        ("codex-mini-latest", {}, True),
        ("my-deployment", {}, False),
        ("my-deployment", {"reasoning": {"effort": "low"}}, True),
        ("my-deployment", {"reasoning": {"effort": "none"}}, False),
    ],
)
def test_encrypted_reasoning_is_requested_from_models_that_reason(
    model: str, fields: dict[str, Any], included: bool
):
    body = CODEC.encode(request(model=model, **fields))
    assert (body.get("include") == ["reasoning.encrypted_content"]) is included


def test_extras_have_the_last_word():
    body = CODEC.encode(request(extra={"store": True, "truncation": "auto"}))
    assert (body["store"], body["truncation"]) == (True, "auto")


def test_an_answer_that_would_not_be_read_is_not_requested():
    with pytest.raises(BadRequest, match="must be streamed"):
        CODEC.encode(request(stream=False, extra={"background": True}))


# Encoding: what an earlier answer left


def test_an_answer_goes_back_to_its_maker_as_it_came():
    items = [user_message("Hi"), *STEP, issued(MESSAGE), issued(SEARCH)]
    body = CODEC.encode(request(*items))
    assert body["input"][1:] == [
        REASONING,
        CALL,
        {"type": "function_call_output", "call_id": "call_1", "output": "22 °C"},
        MESSAGE,
        SEARCH,
    ]
    assert body["include"] == ["reasoning.encrypted_content"]


def test_another_makers_answer_is_rebuilt():
    items = [*REBUILT, function_call_output("call_1", "22 °C"), issued(SEARCH, OTHER)]
    assert wire(*items) == [
        {
            "type": "message",
            "role": "assistant",
            "content": "Hello",
            "phase": "final_answer",
        },
        {
            "type": "function_call",
            "call_id": "call_1",
            "name": "weather",
            "arguments": '{"city":"Paris"}',
        },
        {"type": "function_call_output", "call_id": "call_1", "output": "22 °C"},
    ]


def test_the_phase_goes_only_where_it_is_known():
    [item] = wire(issued(MESSAGE, OTHER), codec=PLAIN)
    assert item == {"type": "message", "role": "assistant", "content": "Hello"}


@pytest.mark.parametrize(
    "reasoning",
    [
        issued({**REASONING, "encrypted_content": None}),
        issued(REASONING, OTHER),
        {k: v for k, v in issued(REASONING).items() if k != "provider_data"},
    ],
)
def test_an_item_after_missing_reasoning_loses_its_id(reasoning: Item):
    sent = wire(reasoning, issued(CALL), issued(SEARCH), issued(MESSAGE), STEP[2])
    kinds = [item["type"] for item in sent]
    assert kinds == ["function_call", "message", "function_call_output"]
    assert not any("id" in item or "status" in item for item in sent)


def test_ids_are_good_again_in_the_next_answer():
    stripped = issued({**REASONING, "encrypted_content": None})
    sent = wire(stripped, issued(CALL), *STEP[2:], issued(REASONING), issued(MESSAGE))
    assert [item.get("id") for item in sent] == [None, None, "rs_1", "msg_1"]


@pytest.mark.parametrize(
    "following", [[], [user_message("x")], [issued(MESSAGE, OTHER)]]
)
def test_reasoning_does_not_go_without_what_it_led_to(following: list[Item]):
    sent = wire(issued(REASONING), *following)
    assert "reasoning" not in [item["type"] for item in sent]


def test_raw_reasoning_needs_no_encryption():
    raw = {"type": "reasoning", "id": "rs", "summary": [], "content": [{"text": "Hm"}]}
    assert wire(issued(raw), issued(MESSAGE), codec=PLAIN) == [raw, MESSAGE]


@pytest.mark.parametrize("theirs", ["functions.f:0", "x" * 65])
def test_call_ids_no_provider_takes_are_replaced_alike(theirs: str):
    call = {**CALL, "call_id": theirs}
    sent = wire(issued(call, OTHER), function_call_output(theirs, "x"))
    assert sent[0]["call_id"] == sent[1]["call_id"] != theirs
    assert len(sent[0]["call_id"]) <= 64
    assert wire(issued(call), function_call_output(theirs, "x"))[1]["call_id"] == theirs


def test_a_repeated_call_id_is_made_unique():
    first, second = issued(CALL), issued(CALL, call_id="call_ours")
    outputs = [function_call_output(id, id) for id in ("call_1", "call_ours")]
    sent = wire(first, second, *outputs)
    assert [item["call_id"] for item in sent] == ["call_1", "call_ours"] * 2


def test_a_hosted_pair_keeps_its_shared_call_id():
    call = {"type": "shell_call", "id": "sh_1", "call_id": "c", "action": {}}
    output = {"type": "shell_call_output", "id": "sho_1", "call_id": "c", "output": []}
    assert wire(issued(call), issued(output)) == [call, output]


def test_a_server_side_custom_call_of_another_maker_is_not_repeated():
    call = {
        "type": "custom_tool_call",
        "id": "ctc",
        "call_id": "c",
        "name": "x",
        "input": "",
    }
    assert wire(issued(call, OTHER)) == []
    output = {"type": "custom_tool_call_output", "call_id": "c", "output": "y"}
    assert len(wire(issued(call, OTHER), output)) == 2


def test_an_item_of_the_clients_own_passes():
    approval = {
        "type": "mcp_approval_response",
        "approval_request_id": "a",
        "approve": True,
    }
    note = {"type": "parley:note", "text": "not for models"}
    assert wire({**approval, "parley:by": "staff"}, note) == [approval]


def test_a_receipt_that_was_cut_short_is_no_part_of_the_history():
    search = {"type": "web_search_call", "id": "ws_1", "action": {"type": "search"}}
    cut, whole = {**search, "status": "incomplete"}, {**search, "status": "completed"}
    sent_items = CODEC.encode(request(user_message("Hi"), cut, whole))["input"]
    assert [item["status"] for item in sent_items if "action" in item] == ["completed"]


# Ids


def ogx(*calls: dict[str, Any]) -> list[dict[str, Any]]:
    """Parallel calls as OGX sends them: all at one index, interleaved."""
    pieces = [
        {**arguments(part), "item_id": call["id"]}
        for call in calls
        for part in (call["arguments"][:4], call["arguments"][4:])
    ]
    return [
        START,
        *(added(0, call) for call in calls),
        *pieces,
        *(done(0, call) for call in calls),
        end(output=calls),
    ]


def a_call(number: int, city: str = "Paris") -> dict[str, Any]:
    arguments = f'{{"city":"{city}"}}'
    call_id = f"call_{number}"
    return {**CALL, "id": f"fc_{number}", "call_id": call_id, "arguments": arguments}


def called(deltas: list[Delta]) -> list[tuple[str, str]]:
    """The calls that would be run."""
    return [
        (item["call_id"], item["arguments"])
        for item in built(deltas).output
        if item["type"] == "function_call" and item["status"] == "completed"
    ]


def test_parallel_calls_may_have_one_index():
    calls = [a_call(1, "Paris"), a_call(2, "Rome"), a_call(3, "Oslo")]
    deltas = decoded_deltas(*ogx(*calls))
    assert called(deltas) == [
        ("call_1", '{"city":"Paris"}'),
        ("call_2", '{"city":"Rome"}'),
        ("call_3", '{"city":"Oslo"}'),
    ]
    assert deltas[-1] == FinishDelta("tool_calls", "completed")


def test_the_pieces_of_a_call_are_those_of_its_end():
    wrong = [{**arguments('{"city":"Rome"}'), "item_id": "fc_1"}]
    deltas = decoded_deltas(
        START, added(0, a_call(1)), *wrong, done(0, a_call(1)), end()
    )
    assert called(deltas) == [("call_1", '{"city":"Paris"}')]


def test_a_call_that_the_end_does_not_know_is_never_run():
    deltas = decoded_deltas(
        START, added(0, a_call(1)), done(0, a_call(1)), added(0, a_call(2)),
        end(output=[a_call(1)]),
    )  # fmt: skip
    assert called(deltas) == [("call_1", '{"city":"Paris"}')]


def test_a_hosted_call_may_change_its_call_id():
    search = {"type": "tool_search_call", "id": "ts_1", "call_id": "call_1"}
    finished = {**search, "call_id": "call_2", "arguments": {"query": "x"}}
    deltas = decoded_deltas(
        START, added(0, search), done(0, finished), end(output=[finished])
    )
    assert [item["call_id"] for item in built(deltas).output] == ["call_2"]


def test_a_call_without_its_own_end_counts_where_no_other_event_reports_it():
    pieces = {**arguments('{"city":"Rome"}'), "item_id": "fc_2"}
    first = {**arguments('{"city":"Paris"}'), "item_id": "fc_1"}
    deltas = decoded_deltas(
        START, added(0, a_call(1)), added(0, a_call(2)), pieces, first, end()
    )
    assert called(deltas) == [
        ("call_1", '{"city":"Paris"}'),
        ("call_2", '{"city":"Rome"}'),
    ]


CITIES = st.sampled_from(["Paris", "Rome", "Oslo", "Bonn"])


@st.composite
def tellings(draw: st.DrawFn) -> tuple[list[Any], list[tuple[str, str]]]:
    """A response with parallel calls, sent in an odd order, and its calls."""
    places = draw(st.lists(CITIES, min_size=1, max_size=4))
    calls = [a_call(n, city) for n, city in enumerate(places)]
    ids_change = draw(st.booleans())
    fresh = iter(range(1000))
    tracks: list[list[Any]] = []
    for number, call in enumerate(calls):

        def named(fields: dict[str, Any]) -> dict[str, Any]:
            return {**fields, "id": f"x{next(fresh)}"} if ids_change else fields

        # Without ids that stay, deltas are known by their index alone.
        index = st.just(number) if ids_change else st.integers(0, 4)
        done_arguments = draw(
            st.sampled_from([call["arguments"], '{"city":"Nowhere"}', "", "{"])
        )
        cuts = sorted(draw(st.sets(st.integers(0, len(done_arguments)), max_size=2)))
        pieces = [
            done_arguments[a:b] for a, b in pairwise([0, *cuts, len(done_arguments)])
        ]
        item_id = {} if ids_change else {"item_id": call["id"]}
        track: list[Any] = []
        if ids_change or draw(st.booleans()):
            again = draw(st.integers(1, 1 if ids_change else 2))
            track += [added(draw(index), named(call)) for _ in range(again)]
        track += [{**arguments(p, draw(index)), **item_id} for p in pieces]
        if draw(st.booleans()):
            kind = "response.function_call_arguments.done"
            whole = {"arguments": call["arguments"], "output_index": draw(index)}
            track.append({"type": kind, **whole, **item_id})
        times = draw(st.integers(1, 2))
        track += [done(draw(index), named(call)) for _ in range(times)]
        tracks.append(track)
    events: list[Any] = [START]
    while left := [track for track in tracks if track]:
        events.append(draw(st.sampled_from(left)).pop(0))
    final = draw(st.permutations(calls)) if draw(st.booleans()) else []
    events.append(end(output=final))
    return events, [(call["call_id"], call["arguments"]) for call in calls]


@given(tellings())
def test_calls_are_the_same_whichever_events_carry_them(telling: Any):
    events, calls = telling
    assert sorted(called(decoded_deltas(*events))) == sorted(calls)


@given(tellings())
def test_a_call_reported_only_at_the_end_is_decoded(telling: Any):
    events, calls = telling
    *events, last = events
    rest = [e for e in events if e["type"] != "response.output_item.done"]
    output = [
        a_call(int(id[5:]), orjson.loads(arguments)["city"]) for id, arguments in calls
    ]
    last = end(output=output)
    assert sorted(called(decoded_deltas(*rest, last))) == sorted(calls)


def test_a_custom_call_may_end_with_its_input_alone():
    call = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c", "name": "sh"}
    at = {"item_id": "ctc_1", "output_index": 0}
    pieces = {"type": "response.custom_tool_call_input.delta", **at, "delta": "ls"}
    whole = {"type": "response.custom_tool_call_input.done", **at, "input": "ls"}
    begun = added(0, {**call, "input": ""})
    [item] = built(decoded_deltas(START, begun, pieces, whole, end())).output
    assert (item["input"], item["status"]) == ("ls", "completed")
    assert (item["name"], item["call_id"]) == ("sh", "c")
    [item] = built(decoded_deltas(START, begun, pieces, end())).output
    assert item["status"] == "incomplete"


def test_a_custom_call_without_its_end_is_incomplete():
    item = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c", "name": "sql"}
    piece = {"type": "response.custom_tool_call_input.delta", "output_index": 0}
    pieces = [{**piece, "item_id": "ctc_1", "delta": "DELETE "}]
    started = added(0, {**item, "input": "", "status": "in_progress"})
    [call] = built(decoded_deltas(started, *pieces, end())).output
    assert (call["type"], call["status"]) == ("custom_tool_call", "incomplete")
    whole = {**item, "input": "DELETE 1", "status": "completed"}
    [call] = built(decoded_deltas(started, *pieces, end(output=[whole]))).output
    assert (call["input"], call["status"]) == ("DELETE 1", "completed")
