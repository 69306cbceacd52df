from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from llm.adaptation import structured
from llm.adaptation.adapt import Adaptation
from llm.adaptation.structured import (
    AnswerValidator,
    OutputFormat,
    SchemaMismatch,
    build_output_format,
    json_in,
    parse_output_format,
)
from llm.errors import BadRequest
from llm.wire.deltas import (
    CloseDelta,
    Delta,
    FinishDelta,
    ProofDelta,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
)
from llm.wire.items import user_message
from llm.wire.request import Request
from tests.llm.hosts import route

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}
FORM = OutputFormat(schema=CITY)
STOP = FinishDelta("stop")
TOOL = {"type": "function", "name": "now", "parameters": {"type": "object"}}


def request(**fields: Any) -> Request:
    text = {"format": {"type": "json_schema", "name": "c", "schema": CITY}}
    return Request(model="m", items=[user_message("?")], **{"text": text, **fields})


# What an answer must be


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "objekt"}, "is not valid"),
        ({"$ref": "https://models.test/a.json"}, "schemas are never fetched"),
        ({"$ref": "file:///etc/passwd"}, "schemas are never fetched"),
        ({"$ref": "#/$defs/No"}, "does not exist"),
    ],
)
def test_a_schema_that_cannot_be_used_is_explained(schema: Any, message: str):
    text = {"format": {"type": "json_schema", "name": "c", "schema": schema}}
    with pytest.raises(BadRequest, match=message) as caught:
        parse_output_format(request(text=text))
    assert caught.value.param == "text.format.schema"


def test_references_within_a_schema_are_followed():
    schema = {"$ref": "#/$defs/City", "$defs": {"City": CITY}}
    assert OutputFormat(schema=schema).parse('{"city": "Rome"}') == {"city": "Rome"}
    with pytest.raises(SchemaMismatch, match='"city" is a required property'):
        OutputFormat(schema=schema).parse("{}")


def test_mistakes_name_the_place_and_never_the_value():
    schema = {"type": "object", "properties": {"n": {"items": {"type": "integer"}}}}
    found = structured.schema_errors(schema, {"n": [1, "secret"]})
    assert found == ['At n[1]: the value is not of type "integer".']
    assert len(structured.schema_errors(schema, {"n": list("secrets")})) == 5


def test_only_a_json_format_requests_structured_output():
    assert parse_output_format(request(text=None)) is None
    assert parse_output_format(request(text={"format": {"type": "text"}})) is None
    assert parse_output_format(request()) == FORM
    any_object = parse_output_format(request(text={"format": {"type": "json_object"}}))
    assert any_object.parse('{"a": 1}') == {"a": 1}
    with pytest.raises(SchemaMismatch):
        any_object.parse("[]")


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1}',
        ' {"a": 1}\n',
        '```json\n{"a": 1}\n```',
        'Here it is:\n\n```\n{"a": 1}\n```\nAnything else?',
        'Here it is: {"a": 1} as you wished.',
        'Here is the [short] report {as wished}: {"a": 1}',
    ],
)
def test_json_is_found_in_a_fence_and_behind_words(text: str):
    assert json_in(text) == {"a": 1}


@pytest.mark.parametrize(
    "text", ["", "no", "{", '{"a": NaN}', "[" * 100_000, "[x] " * 100_000]
)
def test_text_that_is_no_json_is_a_mismatch(text: str):
    with pytest.raises(SchemaMismatch, match="The answer is not JSON"):
        json_in(text)


# Types


class Person(BaseModel):
    name: str = Field(min_length=1)
    born: date


@dataclass
class Point:
    x: int
    y: int


class Card(TypedDict):
    title: str


@pytest.mark.parametrize(
    ("wanted", "text", "value"),
    [
        (
            Person,
            '{"name": "Ada", "born": "1815-12-10"}',
            Person(name="Ada", born=date(1815, 12, 10)),
        ),
        (Point, '{"x": 1, "y": 2}', Point(1, 2)),
        (Card, '{"title": "A"}', {"title": "A"}),
        (list[Point], '{"value": [{"x": 1, "y": 2}]}', [Point(1, 2)]),
        (int | None, '{"value": null}', None),
        (tuple[date, ...], '{"value": ["2026-01-02"]}', (date(2026, 1, 2),)),
        (CITY, '{"city": "Rome"}', {"city": "Rome"}),
    ],
)
def test_a_value_is_of_the_type_wanted(wanted: Any, text: str, value: Any):
    form = build_output_format(wanted)
    assert form.schema["type"] == "object"
    assert form.parse(text) == value


def test_a_types_own_rules_count_too():
    with pytest.raises(SchemaMismatch, match="At born: "):
        build_output_format(Person).parse('{"name": "Ada", "born": "1815-13-40"}')


# The answer


def judged(
    *deltas: Delta, tool: str = "", is_buffered: bool = True
) -> tuple[AnswerValidator, Any]:
    answer = AnswerValidator(FORM, tool=tool, buffered=is_buffered)
    output = [t for delta in deltas for t in answer.feed([delta])]
    return answer, [*output, *answer.close()]


GOOD = '{"city": "Rome"}'


def test_an_answer_that_fits_passes_as_it_is():
    deltas = [ReasoningDelta(0, "hm"), TextDelta(1, GOOD), STOP, UsageDelta(1, 2)]
    for is_buffered in (True, False):
        answer, output = judged(*deltas, is_buffered=is_buffered)
        assert output == deltas
        assert answer.is_valid


def test_a_buffered_answer_is_published_without_its_code_fence():
    proof = ProofDelta(1, {"text": "all of it"})
    answer, output = judged(
        TextDelta(1, "```json\n"),
        TextDelta(1, GOOD),
        TextDelta(1, "\n```"),
        proof,
        STOP,
    )
    assert answer.is_valid
    assert output == [TextDelta(1, '{"city":"Rome"}'), STOP]


def test_text_before_the_answer_is_not_part_of_it():
    aside = TextDelta(0, "I look it up.", "commentary")
    final = TextDelta(1, GOOD, "final_answer")
    answer, output = judged(aside, final, STOP)
    assert (answer.text, answer.is_valid) == (GOOD, True)
    assert output == [aside, final, STOP]


@given(st.sets(st.integers(1, 15)))
def test_the_input_of_the_tool_is_the_answer_however_it_is_cut(cuts: set[int]):
    borders = [0, *sorted(cuts), len(GOOD)]
    pieces = [ToolCallDelta(1, arguments=GOOD[a:b]) for a, b in pairwise(borders)]
    answer, output = judged(
        ReasoningDelta(0, "hm"),
        TextDelta(7, "Here:"),
        ToolCallDelta(1, "call_1", "final_answer"),
        *pieces,
        CloseDelta(1),
        FinishDelta("tool_calls", "tool_use"),
        tool="final_answer",
    )
    assert answer.is_valid
    assert output == [
        ReasoningDelta(0, "hm"),
        TextDelta(("answer", 1), GOOD),
        CloseDelta(("answer", 1)),
        FinishDelta("stop", "tool_use"),
    ]


def test_tools_come_before_the_answer():
    """A call of both is a call of the tool; the answer is requested after it."""
    now = [ToolCallDelta(2, "call_2", "now", "{}"), CloseDelta(2)]
    answer, output = judged(
        ToolCallDelta(1, "call_1", "final_answer", "{}"),
        *now,
        FinishDelta("tool_calls"),
        tool="final_answer",
    )
    assert output == [*now, FinishDelta("tool_calls")]
    assert not answer.errors


@pytest.mark.parametrize(
    "deltas",
    [
        [TextDelta(0, '{"ci'), FinishDelta("length")],
        [TextDelta(0, ""), FinishDelta("content_filter")],
        [RefusalDelta(0, "I cannot."), STOP],
        [ToolCallDelta(0, "call_1", "now", "{}"), FinishDelta("tool_calls")],
        [TextDelta(0, '{"ci')],  # the stream broke off
    ],
)
def test_an_incomplete_answer_is_not_validated(deltas: list[Delta]):
    answer, output = judged(*deltas)
    assert (answer.errors, answer.is_valid) == ((), False)
    assert output == deltas


@pytest.mark.parametrize("text", ["", "Rome", '{"town": "Rome"}', "[]"])
def test_mistakes_are_known_once_it_is_over(text: str):
    answer, output = judged(TextDelta(0, text), STOP)
    assert answer.errors
    assert output == [TextDelta(0, text), STOP]


# The request


def adapted(source: Request, **capabilities: Any) -> Adaptation:
    return Adaptation(
        source,
        route(capabilities=capabilities),
        output_format=parse_output_format(source),
    )


def test_a_model_with_schema_support_gets_the_unchanged_request():
    adaptation = adapted(request(), json_schema=True)
    assert adaptation.request.text == request().text
    assert adaptation.request.tools == ()
    assert adaptation.degraded == []


def test_a_trace_shows_no_prompt():
    assert "Question" not in repr(adapted(request(instructions="Question")))


def test_the_answer_tool_is_added_to_the_offered_tools():
    adapted_request = adapted(request(tools=[TOOL]), json_schema=False).request
    assert [tool["name"] for tool in adapted_request.tools] == ["now", "final_answer"]
    assert adapted_request.tool_choice == "required"
    assert adapted_request.text is None


def test_the_tools_name_is_free():
    taken = {**TOOL, "name": "final_answer"}
    adapted_request = adapted(request(tools=[taken]), json_schema=False).request
    assert [tool["name"] for tool in adapted_request.tools] == [
        "final_answer",
        "final_answer_",
    ]


@pytest.mark.parametrize(
    "capabilities",
    [
        {"tools": False},
        {"forced_tools": False},
        {"forced_while_reasoning": False, "default_effort": "high"},
    ],
)
def test_where_no_tool_can_be_forced_words_must_do(capabilities: dict[str, Any]):
    adapted_request = adapted(request(), json_schema=False, **capabilities).request
    assert (adapted_request.tools, adapted_request.text) == ((), None)
    assert '"required": ["city"]' in adapted_request.instructions


def test_words_are_helped_by_a_json_mode():
    adapted_request = adapted(
        request(), json_schema=False, json_mode=True, forced_tools=False
    ).request
    assert adapted_request.text == {"format": {"type": "json_object"}}


def test_a_schema_without_an_object_at_the_top_goes_by_words():
    text = {"format": {"type": "json_schema", "schema": {"type": "array"}}}
    adapted_request = adapted(request(text=text), json_schema=False).request
    assert adapted_request.tools == ()


def test_a_forced_tool_comes_before_any_form():
    forced = request(tools=[TOOL], tool_choice="required")
    adaptation = adapted(forced, json_schema=False)
    assert list(adaptation.request.tools) == [TOOL]
    assert adaptation.request.text is None
    output = [*adaptation.feed([TextDelta(0, "no"), STOP]), *adaptation.close()]
    assert output == [TextDelta(0, "no"), STOP]
    assert "required" in str(adaptation.problem)  # of a call, not of a form


def test_tools_and_schema_may_both_be_prompted():
    adaptation = adapted(request(tools=[TOOL]), json_schema=False, tools=False)
    assert adaptation.degraded == [
        "text.format (emulated by words)",
        "tools (emulated by words)",
    ]
    adaptation.feed([TextDelta(0, '{"tool": "now", "input": {}}'), STOP])
    call, *_ = adaptation.close()
    assert (call.name, adaptation.problem) == ("now", None)
