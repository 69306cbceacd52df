"""How long reasoning took, as its items say."""

from __future__ import annotations

from llm.wire.deltas import FinishDelta, ReasoningDelta, TextDelta, ToolCallDelta
from llm.wire.response_builder import ResponseBuilder


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_each_item_of_reasoning_says_how_long_it_took():
    clock = Clock()
    builder = ResponseBuilder(id="r", model="m", clock=clock)
    builder.begin_call()
    builder.feed([ReasoningDelta(0, "Hm")])
    clock.now += 12.34
    builder.feed([ToolCallDelta(1, "c1", "dig", "{}"), FinishDelta("tool_calls")])
    builder.end_call()
    clock.now += 60  # the tool
    builder.begin_call()
    builder.feed([ReasoningDelta(0, "So")])
    clock.now += 2
    events = builder.feed([TextDelta(1, "Done.")])
    builder.feed([FinishDelta("stop")])
    builder.end_call()
    seconds = [item.get("parley:seconds") for item in builder.output]
    assert seconds == [12.3, None, 2.0, None]
    (done,) = (e for e in events if e["type"] == "response.output_item.done")
    assert done["item"]["parley:seconds"] == 2.0


def test_reasoning_that_was_cut_off_says_it_too():
    clock = Clock()
    builder = ResponseBuilder(id="r", model="m", clock=clock)
    builder.begin_call()
    builder.feed([ReasoningDelta(0, "Hm")])
    clock.now += 3
    builder.cancel()
    assert builder.output[0]["parley:seconds"] == 3.0


def test_reasoning_that_another_run_continues_began_when_the_first_one_says():
    clock = Clock()
    first = ResponseBuilder(id="r", model="m", clock=clock)
    first.begin_call()
    (*_, added) = (
        event
        for event in first.feed([ReasoningDelta(0, "Hm")])
        if event["type"] == "response.output_item.added"
    )
    assert added["item"]["parley:began"] == 100.0
    (partial,) = first.partial()
    clock.now += 20
    second = ResponseBuilder(id="r", model="m", clock=clock)
    again, *_ = second.reopen(0, partial)
    assert again["item"]["parley:began"] == 100.0
    second.cancel()
    assert second.output[0]["parley:seconds"] == 20.0
    assert "parley:began" not in second.output[0]


def test_what_is_restored_keeps_the_time_of_its_own_run():
    first = ResponseBuilder(id="r", model="m", clock=Clock())
    item = {"type": "reasoning", "id": "rs_1", "status": "completed", "summary": []}
    item |= {"content": [], "parley:seconds": 7.5}
    first.restore([item], None)
    assert first.output[0]["parley:seconds"] == 7.5


def test_without_a_clock_nothing_is_added():
    builder = ResponseBuilder(id="r", model="m")
    builder.begin_call()
    builder.feed([ReasoningDelta(0, "Hm"), FinishDelta("stop")])
    builder.end_call()
    assert "parley:seconds" not in builder.output[0]
