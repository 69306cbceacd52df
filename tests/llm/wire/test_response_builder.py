from __future__ import annotations

import random
import tracemalloc

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm.errors import ProviderDown
from llm.wire.deltas import (
    AnnotationDelta,
    CloseDelta,
    FinishDelta,
    ItemDelta,
    ProofDelta,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
    merge,
)
from llm.wire.item_stream import TextBuffer
from llm.wire.items import function_call_output
from llm.wire.response_builder import TERMINAL, ResponseBuilder

keys = st.integers(0, 3)
delta = st.one_of(
    st.builds(TextDelta, keys.map(lambda k: ("t", k)), st.text(max_size=4)),
    st.builds(RefusalDelta, keys.map(lambda k: ("t", k)), st.text(max_size=4)),
    st.builds(
        ReasoningDelta,
        keys.map(lambda k: ("r", k)),
        st.text(max_size=4),
        st.sampled_from(["text", "summary"]),
        st.integers(0, 1),
    ),
    st.builds(
        ToolCallDelta,
        keys.map(lambda k: ("c", k)),
        st.sampled_from(["", "call_1", "call_2"]),
        st.sampled_from(["", "f"]),
        st.text(max_size=4),
    ),
    st.builds(
        ItemDelta,
        keys.map(lambda k: ("i", k)),
        st.just({"type": "web_search_call"}),
        st.booleans(),
    ),
    st.builds(ProofDelta, keys.map(lambda k: ("r", k)), st.just({"signature": "x"})),
    st.builds(AnnotationDelta, keys.map(lambda k: ("t", k)), st.just({"type": "a"})),
    st.builds(
        CloseDelta,
        st.tuples(st.sampled_from(["t", "r", "c", "i"]), keys),
        st.booleans(),
    ),
    st.builds(UsageDelta, st.integers(0, 9), st.integers(0, 9)),
    st.builds(FinishDelta, st.sampled_from(["stop", "length", "content_filter"])),
)
batches = st.lists(st.lists(delta, max_size=6), max_size=8)
endings = st.sampled_from(["complete", "fail", "cancel"])


def builder():
    return ResponseBuilder(id="resp_1", model="m", created_at=1)


def build(calls, ending="complete"):
    made = builder()
    events = made.start()
    for batch in calls:
        made.begin_call()
        events += made.feed(batch)
        events += made.end_call()
    return [*events, *end(made, ending)]


def end(made, ending):
    return made.fail(ProviderDown()) if ending == "fail" else getattr(made, ending)()


@pytest.mark.slow
@pytest.mark.smoke
@given(batches, endings)
def test_invariants_of_every_stream(calls, ending):
    events = build(calls, ending)
    assert [e["sequence_number"] for e in events] == list(range(len(events)))
    assert [e["type"] in TERMINAL for e in events] == [False] * (len(events) - 1) + [
        True
    ]
    output = events[-1]["response"]["output"]
    for kind in ("added", "done"):
        item_events = [e for e in events if e["type"] == f"response.output_item.{kind}"]
        assert [e["output_index"] for e in item_events] == list(range(len(output)))
    opened: set[int] = set()
    for event in events:
        index = event.get("output_index")
        if event["type"] == "response.output_item.added":
            assert event["item"]["status"] == "in_progress"
            opened.add(index)
        elif index is not None:
            assert index in opened
            if event["type"] == "response.output_item.done":
                opened.remove(index)
    assert all(item["status"] != "in_progress" for item in output)
    orjson.dumps(events)


@given(batches, endings)
def test_deltas_add_up_to_the_items(calls, ending):
    events = build(calls, ending)
    texts: dict[tuple, str] = {}
    for event in events:
        if event["type"].endswith(".delta"):
            at = (
                event["output_index"],
                event.get("content_index"),
                event.get("summary_index"),
            )
            texts[at] = texts.get(at, "") + event["delta"]
    stored: dict[tuple, str] = {}
    for index, item in enumerate(events[-1]["response"]["output"]):
        if item["type"] == "function_call":
            stored[index, None, None] = item["arguments"]
        for n, part in enumerate(item.get("content", [])):
            stored[index, n, None] = part.get("text") or part.get("refusal")
        for n, part in enumerate(item.get("summary", [])):
            stored[index, None, n] = part["text"]
    calls_without_arguments = {at for at, text in stored.items() if text in ("{}", "")}
    assert {at: t for at, t in stored.items() if at in texts} == texts or (
        {at: t for at, t in texts.items() if at not in calls_without_arguments}
        == {
            at: t for at, t in stored.items() if at not in calls_without_arguments and t
        }
    )


@given(st.lists(delta, max_size=12))
def test_merged_deltas_build_the_same_items(deltas):
    single, merged = builder(), builder()
    for made, batch in ((single, [[d] for d in deltas]), (merged, [merge(deltas)])):
        made.begin_call()
        for part in batch:
            made.feed(part)
        made.complete()
    ids = {"id", "call_id"}
    strip = [
        [{k: v for k, v in item.items() if k not in ids} for item in made.output]
        for made in (single, merged)
    ]
    assert strip[0] == strip[1]


@pytest.mark.parametrize(
    "make_delta",
    [
        lambda text: TextDelta(0, text),
        lambda text: ReasoningDelta(0, text),
        lambda text: ToolCallDelta(0, arguments=text),
    ],
)
def test_merged_deltas_are_limited_on_request(make_delta):
    deltas = [make_delta("x" * 100) for _ in range(1_000)]
    assert merge(deltas) == [make_delta("x" * 100_000)]
    assert merge(deltas, 5_000) == [make_delta("x" * 5_000)] * 20


def test_a_long_read_becomes_events_of_some_length():
    made = builder()
    made.begin_call()
    events = made.feed([TextDelta(0, "x" * 100) for _ in range(10_000)])
    sizes = [len(e["delta"]) for e in events if "delta" in e]
    assert sum(sizes) == 1_000_000
    assert 10 < len(sizes) <= 100


def test_a_long_text_is_stored_once_until_its_end():
    """Many are open at once, and snapshots of one leave nothing behind."""
    dice = random.Random(1)
    words = ["".join(dice.choices("abcdefghij", k=7)) for _ in range(1_000)]
    pieces = [" ".join(dice.choices(words, k=50)) for _ in range(5_000)]
    text = "".join(pieces)
    made = builder()
    made.begin_call()
    tracemalloc.start()
    for piece in pieces:
        made.feed([TextDelta(0, piece)])
    [snapshot] = made.partial()
    assert snapshot["content"][0]["text"] == text
    del snapshot
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 1.3 * len(text)
    assert made.open_length == len(text)
    made.complete()
    assert made.output[0]["content"][0]["text"] == text


@given(st.lists(st.text(max_size=30).map(lambda t: t * 3_000), max_size=6))
def test_a_text_of_any_length_is_put_together_again(pieces):
    buffer = TextBuffer()
    for piece in pieces:
        buffer.append(piece)
        buffer.join()
    assert buffer.join() == "".join(pieces)
    assert buffer.length == sum(map(len, pieces))


@given(batches)
def test_a_restored_response_has_the_same_items(calls):
    first = builder()
    for batch in calls:
        first.begin_call()
        first.feed(batch)
        first.end_call()
    second = builder()
    events = second.restore(first.output, first.usage)
    assert second.output == first.output
    assert [e["sequence_number"] for e in events] == list(range(len(events)))


def test_usage_of_all_calls_is_added_up():
    made = builder()
    for _ in range(2):
        made.begin_call()
        made.feed([UsageDelta(10, 5, cached_tokens=4), UsageDelta(output_tokens=7)])
        made.end_call()
    usage = made.complete()[-1]["response"]["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (20, 14)
    assert usage["input_tokens_details"] == {"cached_tokens": 8}
    assert usage["total_tokens"] == 34


def test_a_call_without_arguments_gets_an_empty_object():
    made = builder()
    events = made.feed(
        [ToolCallDelta(0, "c1", "now", ""), ToolCallDelta(1, "c2", "now", "null")]
    )
    events += made.end_call()
    assert [item["arguments"] for item in made.output] == ["{}", "{}"]
    pieces = [e["delta"] for e in events if e["type"].endswith("arguments.delta")]
    assert pieces == ["null", "{}"]  # the first is published when both end


def test_two_calls_never_share_an_id():
    made = builder()
    made.feed([ToolCallDelta(0, "0", "f", "{}"), ToolCallDelta(1, "0", "f", "{}")])
    made.end_call()
    first, second = (item["call_id"] for item in made.output)
    assert first == "0" != second


def test_a_cut_off_call_is_incomplete():
    made = builder()
    made.begin_call()
    made.feed(
        [ToolCallDelta(0, "c1", "f", '{"a": 1}'), ToolCallDelta(1, "c2", "f", "{")]
    )
    made.feed([FinishDelta("length")])
    made.end_call()
    assert [item["status"] for item in made.output] == ["completed", "incomplete"]
    assert made.complete()[-1]["response"]["incomplete_details"] == {
        "reason": "max_output_tokens"
    }


def test_half_a_surrogate_pair_waits_for_the_other():
    made = builder()
    events = made.feed([TextDelta(0, "a\ud83d")])
    events += made.feed([TextDelta(0, "\ude00b")])
    texts = [e["delta"] for e in events if e["type"].endswith(".delta")]
    assert texts == ["a", "😀b"]


def test_half_a_surrogate_pair_left_alone_is_replaced():
    made = builder()
    made.feed([TextDelta(0, "a\ud83d")])
    orjson.dumps(made.complete())
    assert made.output[0]["content"][0]["text"] == "a\ufffd"


def test_nul_is_neither_published_nor_stored():
    made = builder()
    events = made.feed([TextDelta(0, "a\0b"), ReasoningDelta(1, "c\0")])
    events += made.complete()
    assert "a\ufffdb" in (texts := [e.get("delta") for e in events])
    assert "c\ufffd" in texts
    assert b"\\u0000" not in orjson.dumps([*events, made.output])


def test_partial_items_contain_the_text_so_far():
    made = builder()
    made.feed([ReasoningDelta("r", "hm", "summary"), TextDelta("t", "Well")])
    made.feed([TextDelta("t", ", so")])
    done, partial = made.output, made.partial()
    assert done[0]["summary"] == [{"type": "summary_text", "text": "hm"}]
    assert partial[0]["content"][0]["text"] == "Well, so"
    assert partial[0]["status"] == "in_progress"


def test_outputs_stand_between_calls():
    made = builder()
    made.begin_call()
    made.feed([ToolCallDelta(0, "c1", "f", "{}")])
    made.end_call()
    made.add(function_call_output("c1", "done"))
    made.begin_call()
    made.feed([TextDelta(0, "Done.")])
    made.complete()
    assert [item["type"] for item in made.output] == [
        "function_call",
        "function_call_output",
        "message",
    ]


@pytest.mark.parametrize("ending", ["complete", "cancel", "fail"])
def test_a_response_ends_once(ending):
    made = builder()
    end(made, ending)
    with pytest.raises(AssertionError, match="ends once"):
        made.complete()
