from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conversations.gateway.stop_sequences import StopSequenceFilter, stop_at_sequences
from llm.adaptation.adapt import merge_usage
from llm.http.client import ProviderCall
from llm.models.model_call import usage_with_estimates
from llm.wire.deltas import (
    Delta,
    FinishDelta,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
)
from llm.wire.items import user_message
from llm.wire.request import Request


def text_of(deltas: Sequence[Delta]) -> str:
    return "".join(d.text for d in deltas if isinstance(d, TextDelta))


@given(
    st.text("abc", max_size=30),
    st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=3),
    st.lists(st.integers(0, 30), max_size=5),
)
def test_text_ends_before_the_first_stop_wherever_it_is_cut(
    text: str, sequences: list[str], cuts: list[int]
):
    borders = sorted({0, *(cut for cut in cuts if cut < len(text)), len(text)})
    pieces = [text[a:b] for a, b in pairwise(borders)]
    stops, collected = StopSequenceFilter(sequences), ""
    for piece in pieces:
        collected += text_of(stops.feed([TextDelta(0, piece)]))
        if stops.found:
            break
    collected += text_of(stops.close())
    found = [text.find(s) for s in sequences if s in text]
    if not found:
        assert (collected, stops.found) == (text, None)
        return
    # A longer piece shows an earlier place; a shorter one ends where a stop is whole.
    assert stops.found
    assert text.startswith(collected + stops.found)
    assert not any(sequence in collected for sequence in sequences)


def test_buffered_text_precedes_what_follows_it():
    stops = StopSequenceFilter(["stop"])
    assert stops.feed([TextDelta(0, "do st")]) == [TextDelta(0, "do ")]
    call = ToolCallDelta(1, "call_1", "f")
    assert stops.feed([call]) == [TextDelta(0, "st"), call]


def test_after_the_stop_only_the_usage_counts():
    stops = StopSequenceFilter(["b"])
    usage = UsageDelta(3, 4)
    deltas = stops.feed(
        [TextDelta(0, "ab"), TextDelta(0, "c"), usage, FinishDelta("length")]
    )
    assert deltas == [TextDelta(0, "a"), FinishDelta("stop", "stop_sequence"), usage]


async def test_the_provider_is_hung_up_on_and_the_usage_estimated():
    closed: list[bool] = []

    async def stream(request: Request, call: ProviderCall) -> AsyncGenerator[Any, None]:
        assert request.stop == ()
        try:
            for piece in ("one ", "two ", "three"):
                yield [TextDelta(0, piece)]
        finally:
            closed.append(True)

    stops = StopSequenceFilter(["two"])
    request = Request(model="m", items=[user_message("count")], stop=["two"])
    received: list[Delta] = []
    async for deltas in stop_at_sequences(stream, stops)(request, ProviderCall()):
        received += deltas
    assert closed == [True]
    assert text_of(received) == "one "
    assert isinstance(received[-1], UsageDelta)
    assert received[-1].output_tokens
    assert stops.found == "two"


async def stop_after(
    *batches: list[Delta], call: ProviderCall | None = None
) -> UsageDelta:
    """The usage of an answer that END ends."""

    async def stream(request: Request, call: ProviderCall) -> AsyncGenerator[Any, None]:
        for batch in batches:
            call.note_deltas(batch)
            yield batch

    usage = UsageDelta()
    call = call or ProviderCall(prompt_tokens=7)
    request = Request(model="m", items=[user_message("?")])
    stops = StopSequenceFilter(["END"])
    async for deltas in stop_at_sequences(stream, stops)(request, call):
        for delta in deltas:
            if isinstance(delta, UsageDelta):
                usage = merge_usage(usage, delta)
    return usage


async def test_thoughts_and_calls_before_the_stop_are_counted():
    call = ProviderCall(prompt_tokens=7)
    thought = [ReasoningDelta(0, "x" * 4000), ToolCallDelta(1, "c", "f", "y" * 400)]
    usage = await stop_after(thought, [TextDelta(2, "ok END")], call=call)
    assert usage.input_tokens == 7
    assert usage.output_tokens == pytest.approx(1100, abs=2)
    recorded = usage_with_estimates(call, usage, FinishDelta("stop"))
    assert recorded == (usage, True)


async def test_a_count_of_the_beginning_is_no_count_of_the_answer():
    """Anthropic's hosts begin an answer with one token of output."""
    start = UsageDelta(25, 1, cached_tokens=20)
    usage = await stop_after([start], [TextDelta(0, "x" * 8000)], [TextDelta(0, "END")])
    assert (usage.input_tokens, usage.cached_tokens) == (25, 20)
    assert usage.output_tokens == pytest.approx(2000, abs=2)


async def test_the_count_of_a_host_that_has_ended_is_kept():
    call = ProviderCall(prompt_tokens=7)
    text, end = TextDelta(0, "x" * 8000 + "END"), FinishDelta("stop")
    usage = await stop_after([text, UsageDelta(5, 6), end], call=call)
    assert (usage.input_tokens, usage.output_tokens) == (5, 6)
    assert usage_with_estimates(call, usage, end) == (usage, False)
