from __future__ import annotations

import pytest
from hypothesis import given

from llm.wire.deltas import (
    AnnotationDelta,
    FinishDelta,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
)
from llm.wire.items import function_call_output, message
from llm.wire.response_builder import ResponseBuilder
from tests.llm.wire.test_response_builder import batches, build, endings
from tests.openresponses import problems

CITATION = {
    "type": "url_citation",
    "url": "https://example.org/",
    "title": "Example",
    "start_index": 0,
    "end_index": 2,
}
STANDARD = [
    ReasoningDelta("r", "Hm.", "summary"),
    ReasoningDelta("r", "Hm!", "text"),
    TextDelta("t", "Well", phase="commentary"),
    AnnotationDelta("t", CITATION),
    RefusalDelta("t", "No."),
    ToolCallDelta(0, "c1", "weather", '{"city": "Riga"}'),
    UsageDelta(10, 5, 3, 0, reasoning_tokens=2),
]


@pytest.mark.parametrize("ending", ["complete", "fail", "cancel"])
def test_a_response_of_everything_matches_the_standard(ending):
    calls = [STANDARD, [TextDelta(0, "Done."), FinishDelta("length")]]
    for event in build(calls, ending):
        assert problems(event) == []


def test_a_restored_response_matches_the_standard():
    made = ResponseBuilder(id="resp_1", model="m")
    made.begin_call()
    made.feed(STANDARD)
    made.end_call()
    items = [*made.output, function_call_output("c1", "sunny"), message("user", "a")]
    again = ResponseBuilder(id="resp_1", model="m")
    for event in [*again.start(), *again.restore(items, made.usage)]:
        assert problems(event) == []


@given(batches, endings)
def test_events_match_the_standard_whatever_a_provider_sends(calls, ending):
    for event in build(calls, ending):
        found = [p for p in problems(event) if not _is_ours(event)]
        assert found == []


def _is_ours(event):
    """The random stream has hosted tools' receipts and nonsense annotations."""
    text = str(event)
    return "web_search_call" in text or "'type': 'a'" in text
