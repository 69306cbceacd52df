"""Answers of every kind as canonical events, in the batches that a builder gives."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from llm.errors import LLMError
from llm.wire.deltas import (
    AnnotationDelta,
    CloseDelta,
    Delta,
    FinishDelta,
    ItemDelta,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
)
from llm.wire.items import Event, Item, function_call_output
from llm.wire.response_builder import ResponseBuilder

OURS = "calculator"  # a tool that runs here
URL = {
    "type": "url_citation",
    "url": "https://x.test/",
    "title": "X",
    "start_index": 0,
    "end_index": 2,
}


class Answer:
    """A response under way: `events` are all so far."""

    def __init__(self) -> None:
        self.builder = ResponseBuilder(id="resp_1", model="m", created_at=1)
        self.deltas: list[Delta] = []
        self.batches: list[list[Event]] = [self.builder.start()]
        self.builder.begin_call()

    def __repr__(self) -> str:
        return f"Answer({self.deltas}, {self.response['output']})"

    def say(self, *deltas: Delta) -> Answer:
        self.deltas += deltas
        self.batches.append(self.builder.feed(list(deltas)))
        return self

    def round(self, *outputs: tuple[str, str]) -> Answer:
        """Add outputs of the calls; the model is called again."""
        self.batches.append(self.builder.end_call())
        for call_id, output in outputs:
            self.batches.append(
                self.builder.extension("parley:tool_call.started", call_id=call_id)
            )
            item = function_call_output(call_id, output)
            self.batches.append(self.builder.add(item))
        self.builder.begin_call()
        return self

    def end(self, reason: str | None = None) -> Answer:
        self.batches.append(self.builder.end_call())
        self.batches.append(self.builder.complete(reason))
        return self

    def fail(self, error: LLMError) -> Answer:
        self.batches.append(self.builder.fail(error))
        return self

    @property
    def events(self) -> list[Event]:
        return [event for batch in self.batches for event in batch]

    @property
    def response(self) -> dict[str, Any]:
        return self.builder.response()


def call(key: str, arguments: str = '{"at": 1}', name: str = "look") -> list[Delta]:
    """Whole, in pieces."""
    half = len(arguments) // 2
    return [
        ToolCallDelta(key, f"call_{key}", name, arguments[:half]),
        ToolCallDelta(key, arguments=arguments[half:]),
        CloseDelta(key),
    ]


USAGE = UsageDelta(
    input_tokens=10, output_tokens=7, cached_tokens=4, reasoning_tokens=3
)
STOP = FinishDelta("stop")

_texts = st.text(min_size=1, max_size=6)
_keys = st.sampled_from("abc")


def _cited(key: str, text: str) -> list[Delta]:
    return [TextDelta(key, text), AnnotationDelta(key, URL)]


_deltas = st.one_of(
    st.builds(TextDelta, _keys.map("t".__add__), _texts),
    st.builds(RefusalDelta, _keys.map("t".__add__), _texts),
    st.builds(ReasoningDelta, _keys.map("r".__add__), _texts),
    st.builds(
        ReasoningDelta,
        _keys.map("s".__add__),
        _texts,
        st.just("summary"),
        st.integers(0, 1),
    ),
    st.builds(
        ToolCallDelta,
        _keys.map("c".__add__),
        name=st.sampled_from(["look", OURS]),
        arguments=st.sampled_from(["", "{", "}", '{"a":1}', "null", " "]),
    ),
    st.builds(CloseDelta, _keys.map("c".__add__), st.booleans()),
    st.builds(_cited, _keys.map("t".__add__), _texts),
    st.builds(
        ItemDelta,
        _keys.map("h".__add__),
        st.just({"type": "web_search_call", "action": {}}),
        st.booleans(),
    ),
)


@st.composite
def answers(draw: Any) -> Answer:
    """Items in any order, side by side, cut or whole; some run here."""
    answer = Answer()
    for step in draw(st.lists(st.lists(_deltas, max_size=10), min_size=1, max_size=3)):
        for delta in step:
            answer.say(*(delta if isinstance(delta, list) else [delta]))
        calls = [i for i in answer.builder.output if i.get("name") == OURS]
        answer.round(*((item["call_id"], "42") for item in calls[:1]))
    if draw(st.booleans()):
        answer.say(USAGE)
    return answer.end(
        draw(st.sampled_from([None, None, "max_output_tokens", "content_filter"]))
    )


def of_client(items: list[Item]) -> list[Item]:
    """The calls that the client may run, and those that were cut."""
    return [i for i in items if i["type"] == "function_call" and i["name"] != OURS]
