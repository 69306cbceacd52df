from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm.wire.deltas import (
    ProofDelta,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
)
from llm.wire.items import text_of
from llm.wire.response_builder import ResponseBuilder
from tools.loop.resume import Resumption


def partial_of(*deltas):
    builder = ResponseBuilder(id="r", model="m")
    builder.feed(list(deltas))
    return [*builder.output, *builder.partial()]


def resume(partial, *batches):
    builder = ResponseBuilder(id="r", model="m")
    events = builder.start()
    resumption = Resumption(builder, partial)
    events += resumption.start()
    builder.begin_call()
    for batch in batches:
        events += resumption.feed(list(batch))
    events += resumption.end()
    events += builder.complete()
    assert [e["sequence_number"] for e in events] == list(range(len(events)))
    return builder.output, events


def cut(text, borders):
    edges = [0, *sorted(borders), len(text)]
    return [text[a:b] for a, b in pairwise(edges)]


@given(st.integers(1, 29), st.sets(st.integers(1, 29)))
def test_the_same_answer_goes_on_where_it_was_cut(snapshot, borders):
    text = "".join(f"{n} " for n in range(10, 20))
    partial = partial_of(TextDelta(0, text[:snapshot]))
    output, events = resume(partial, *([TextDelta(5, t)] for t in cut(text, borders)))
    assert [text_of(item) for item in output] == [text]
    deltas = [e["delta"] for e in events if e["type"] == "response.output_text.delta"]
    assert deltas[0] == text[:snapshot]
    assert "".join(deltas) == text


@given(st.sets(st.integers(1, 10)))
def test_a_new_answer_follows_the_interrupted_one(borders):
    partial = partial_of(TextDelta(0, "It is sunny and"))
    text = "It is rainy"
    output, _ = resume(partial, *([TextDelta(0, t)] for t in cut(text, borders)))
    assert [text_of(item) for item in output] == ["It is sunny and", "It is rainy"]
    assert output[0]["parley:interrupted"]
    assert "parley:interrupted" not in output[1]


def test_a_shorter_answer_is_another_answer():
    partial = partial_of(TextDelta(0, "It is sunny and"))
    output, _ = resume(partial, [TextDelta(0, "It is")])
    assert [text_of(item) for item in output] == ["It is sunny and", "It is"]


def test_reasoning_is_not_repeated_and_its_proof_is_the_new_one():
    partial = partial_of(ReasoningDelta("r", "hm", "summary"), TextDelta("t", "Wel"))
    builder = ResponseBuilder(id="r", model="m")
    resumption = Resumption(builder, partial)
    resumption.start()
    resumption.feed([ReasoningDelta(1, "hmm", "summary"), ProofDelta(1, {"s": "new"})])
    resumption.feed([TextDelta(2, "Well."), ProofDelta(2, {"raw": "message"})])
    builder.complete()
    thought, answer = builder.output
    assert (thought["summary"][0]["text"], text_of(answer)) == ("hm", "Well.")
    assert builder.proofs == {
        thought["id"]: {"s": "new"},
        answer["id"]: {"raw": "message"},
    }


def test_an_incomplete_call_is_dropped():
    partial = partial_of(ToolCallDelta(0, "c1", "weather", '{"ci'))
    output, _ = resume(partial, [ToolCallDelta(0, "c2", "weather", "{}")])
    assert [item["call_id"] for item in output] == ["c2"]


def test_text_before_a_call_is_kept_and_the_call_follows():
    partial = partial_of(TextDelta(0, "Let me see."), ToolCallDelta(1, "c1", "f", "{"))
    output, _ = resume(
        partial, [TextDelta(0, "Let me see."), ToolCallDelta(1, "c1", "f", "{}")]
    )
    assert [item["type"] for item in output] == ["message", "function_call"]
    assert text_of(output[0]) == "Let me see."


@given(
    st.lists(st.builds(TextDelta, st.integers(0, 2), st.text(max_size=3)), max_size=9)
)
def test_no_committed_text_is_lost(deltas):
    partial = partial_of(TextDelta(0, "abc"))
    output, _ = resume(partial, deltas)
    assert text_of(output[0]).startswith("abc")


BEGUN = "The answer has forty characters or more, which are kept. "


def resumed_behind(prefill, *batches):
    builder = ResponseBuilder(id="r", model="m")
    resumption = Resumption(builder, partial_of(TextDelta(0, BEGUN)))
    resumption.start()
    assert resumption.prefill == BEGUN.rstrip()
    builder.begin_call()
    resumption.continue_after(prefill)
    for batch in batches:
        resumption.feed(batch)
    resumption.end()
    builder.complete()
    return builder.output


@given(st.sets(st.integers(1, 20)), st.booleans())
def test_an_answer_behind_a_prefill_is_one_with_it(borders, repeats):
    prefill, rest = BEGUN.rstrip(), " And so it goes on."
    text = prefill + rest if repeats else rest
    output = resumed_behind(prefill, *([TextDelta(5, t)] for t in cut(text, borders)))
    assert [text_of(item) for item in output] == [prefill + rest]
    assert not output[0].get("parley:interrupted")


def test_thoughts_behind_a_prefill_do_not_cut_the_answer():
    rest = [ReasoningDelta("r", "Hm."), TextDelta("t", " And more.")]
    output = resumed_behind(BEGUN.rstrip(), rest)
    assert [text_of(i) for i in output if i["type"] == "message"] == [
        BEGUN,
        BEGUN.rstrip() + " And more.",
    ]
    assert output[0]["parley:interrupted"]


@pytest.mark.parametrize("batches", [[], [[TextDelta(1, "")]]], ids=["none", "empty"])
def test_nothing_behind_a_prefill_leaves_the_prefill(batches):
    output = resumed_behind(BEGUN.rstrip(), *batches)
    assert text_of(output[-1]) == BEGUN.rstrip()


@pytest.mark.parametrize(
    "partial",
    [
        partial_of(TextDelta(0, "Short.")),
        partial_of(ReasoningDelta("r", "Hm."), TextDelta(0, BEGUN)),
        partial_of(TextDelta(0, BEGUN), TextDelta(1, BEGUN)),
        partial_of(TextDelta(0, BEGUN), ToolCallDelta(1, "c1", "f", "{")),
        partial_of(RefusalDelta(0, BEGUN)),
    ],
    ids=["short", "thought", "two messages", "a call", "a refusal"],
)
def test_only_plain_text_is_given_as_a_prefill(partial):
    builder = ResponseBuilder(id="r", model="m")
    assert Resumption(builder, partial).prefill == ""
