"""Prompted tools: the instructions, and the events for any cut of the answer."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm.errors import BadRequest
from llm.wire.deltas import (
    AnnotationDelta,
    CloseDelta,
    Delta,
    FinishDelta,
    ProofDelta,
    ReasoningDelta,
    StartDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
    merge,
)
from llm.wire.incremental_json import JsonReader
from llm.wire.items import function_call_output, message, text_of, user_message
from llm.wire.prompted_calls import CallFilter
from llm.wire.prompted_tools import available_tool_names, with_prompted_tools
from llm.wire.request import Request
from llm.wire.response_builder import ResponseBuilder

NAMES = frozenset({"now", "weather"})
NOW = '{"tool": "now", "input": {}}'
PARIS = '{"tool": "weather", "input": {"city": "Paris"}}'


def heard(*deltas: Delta, names: Iterable[str] = NAMES) -> list[Delta]:
    reader, out = CallFilter(frozenset(names)), []
    for delta in deltas:
        out += reader.feed([delta])
    return merge([*out, *reader.close()])


def read(*pieces: str) -> list[str | tuple[str, str]]:
    """Texts, and calls with their arguments, in their order."""
    output: list[str | tuple[str, str]] = []
    for delta in heard(*(TextDelta(0, piece) for piece in pieces)):
        if isinstance(delta, ToolCallDelta):
            output.append((delta.name, delta.arguments))
        elif isinstance(delta, TextDelta) and delta.text:
            output.append(delta.text)
    return output


CALLED = ("now", "{}")
CALL = ("weather", '{"city": "Paris"}')


@pytest.mark.parametrize(
    ("text", "prompted"),
    [
        (NOW, [CALLED]),
        (f"\n  {NOW}  \n", [CALLED]),
        ('{"input":{"a":1},"tool":"weather"}', [("weather", '{"a":1}')]),
        ('{\n  "tool": "now",\n  "input": {\n  }\n}', [("now", "{\n  }")]),
        (f"Let me look.\n\n{PARIS}", ["Let me look.", CALL]),
        (f"Let me look: {PARIS}", ["Let me look:", CALL]),
        (f"```json\n{PARIS}\n```", [CALL]),
        (f"```\n{PARIS}\n```\n", [CALL]),
        (f"```tool_call\n{PARIS}", [CALL]),
        (f"First.\n```json\n{NOW}\n```\nThen.", ["First.", CALLED, "Then."]),
        (f"{PARIS}\n{NOW}", [CALL, CALLED]),
        (f"{PARIS} {NOW}", [CALL, CALLED]),
        (f"```json\n{PARIS}\n{NOW}\n```", [CALL, CALLED]),
        (f"```json\n{PARIS}\n```\n```json\n{NOW}\n```", [CALL, CALLED]),
        (f"[1] says so. {{not json}}\n{NOW}", ["[1] says so. {not json}", CALLED]),
        (f"```python\nx = 1\n```\n{NOW}", ["```python\nx = 1\n```", CALLED]),
        (f"A `word` and\n{NOW}", ["A `word` and", CALLED]),
        ('{"tool": "n\\u006fw", "input": {}}', [CALLED]),
    ],
)
def test_a_call_is_recognised_and_its_json_is_not_published(
    text: str, prompted: list[Any]
):
    assert read(text) == prompted


@pytest.mark.parametrize(
    "text",
    [
        "Hello",
        "",
        "   ",
        '{"city": "Paris"}',
        '{"tool": "hammer", "input": {}}',  # not on offer
        '{"tool": "now"}',
        '{"tool": "now", "input": {}, "why": "x"}',
        '{"tool": "now", "input": "{}"}',
        '{"tool": "now", "input": []}',
        '{"tool": ["now"], "input": {}}',
        '{"tool": "now", "tool": "now"}',
        '{"name": "now", "input": {}}',
        f'{{"example": {NOW}}}',
        f'{{"tool": "hammer", "input": {NOW}}}',
        f"[{NOW}, {NOW}]",
        f"Write {NOW} to see the time.",
        f"Write `{NOW}` to see the time.",
        f"```python\ncall({NOW})\n{NOW}\n```",
        f'```json\n{{"a": 1}}\n{NOW}\n```',
        '{"tool": "now", "input": {',
        '{"tool": "now", "input": {}',
        '```json\n{"tool": "now", "in',
        "```",
        "``",
        '{"tool": "now", "input": {"a": \n}}',
        '{"tool": "now", "input": {"a": "line\nbreak"}}',
        '{"tool": "' + "n" * 1000,
        "{" * 1000,
        "[" * 1000,
    ],
)
def test_text_that_is_no_call_is_published_unchanged(text: str):
    assert "".join(read(text)) == text
    assert "".join(read(*text)) == text


PIECES = [
    *(NOW, PARIS, f'{{"a": {NOW}}}', '{"tool"', '"now"', ': "now"', '"input"'),
    *("{", "}", "[", "]", ", ", ": ", "{}", '"', "\\", "1", "tru"),
    *("```", "```json\n", "```python", "`", "\n", " ", " " * 45, "x", "é", "“"),
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


@given(TEXTS, st.sets(st.integers(1, 300)))
def test_any_cut_of_the_text_gives_the_same_events(text: str, cuts: set[int]):
    borders = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    whole = heard(TextDelta(0, text), FinishDelta("stop"))
    cut = [TextDelta(0, text[a:b]) for a, b in pairwise(borders)]
    assert heard(*cut, FinishDelta("stop")) == whole
    assert heard(*(TextDelta(0, c) for c in text), FinishDelta("stop")) == whole or (
        text == ""
    )


@given(TEXTS)
def test_without_tools_on_offer_every_text_is_text(text: str):
    deltas = heard(TextDelta(0, text), names=())
    assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == text
    assert not any(isinstance(d, ToolCallDelta) for d in deltas)


def test_ordinary_text_and_json_are_published_as_they_arrive():
    reader = CallFilter(NAMES)
    for piece in ["Hello", " there", ' {"a": ', "[1, 2", "], ", '"b"', ": {", "}"]:
        deltas = reader.feed([TextDelta(0, piece)])
        assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == piece


def test_a_long_call_is_read_once():
    reader = CallFilter(NAMES)
    opening = '{"tool": "weather", "input": {"city": "'
    assert reader.feed([TextDelta(0, opening)]) == []
    for _ in range(20_000):
        assert reader.feed([TextDelta(0, "abcd")]) == []
    reader.feed([TextDelta(0, '"}}')])
    call, _ = reader.close()
    assert len(json.loads(call.arguments)["city"]) == 80_000


# Other parts of a stream


def test_a_call_ends_the_answer_as_native_ones_do():
    deltas = heard(StartDelta("r", "m"), TextDelta(0, NOW), FinishDelta("stop", "eos"))
    assert deltas == [
        StartDelta("r", "m"),
        ToolCallDelta(("prompted", 1), name="now", arguments="{}"),
        CloseDelta(("prompted", 1)),
        FinishDelta("tool_calls", "eos"),
    ]
    assert heard(TextDelta(0, "Hi"), FinishDelta("stop"))[-1] == FinishDelta("stop")
    cut = heard(TextDelta(0, NOW[:-3]), FinishDelta("length"))
    assert cut == [TextDelta(0, NOW[:-3]), FinishDelta("length")]


def test_counts_in_between_do_not_end_a_text():
    deltas = heard(TextDelta(0, NOW[:9]), UsageDelta(1, 2), TextDelta(0, NOW[9:]))
    assert [type(d) for d in deltas] == [UsageDelta, ToolCallDelta, CloseDelta]


def test_another_block_ends_a_text():
    deltas = heard(TextDelta(0, NOW[:9]), ReasoningDelta(1, "hm"), TextDelta(2, NOW))
    assert deltas[0] == TextDelta(0, NOW[:9])
    assert deltas[1] == ReasoningDelta(1, "hm")
    assert isinstance(deltas[2], ToolCallDelta)


def test_a_proof_of_a_text_that_was_taken_apart_is_left_out():
    proof, note = ProofDelta(0, {"text": NOW}), AnnotationDelta(0, {})
    taken = heard(TextDelta(0, NOW), proof, note, CloseDelta(0))
    assert proof not in taken
    assert note not in taken
    deltas = heard(TextDelta(0, "Hi"), proof, CloseDelta(0))
    assert deltas == [TextDelta(0, "Hi"), proof, CloseDelta(0)]


def test_the_events_are_those_of_native_calls():
    builder = ResponseBuilder(id="resp_1", model="m")
    builder.begin_call()
    builder.feed(
        heard(TextDelta(0, f"Let me look.\n{PARIS}\n{NOW}"), FinishDelta("stop"))
    )
    builder.complete()
    message, first, second = builder.output
    assert text_of(message) == "Let me look."
    assert (first["name"], first["arguments"]) == ("weather", '{"city": "Paris"}')
    assert (first["status"], second["status"]) == ("completed", "completed")
    assert first["call_id"] != second["call_id"]


# The request


def tool(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "function", "name": name, **fields}


TOOLS = [
    tool("now", description="Tells the time."),
    tool("weather", parameters={"type": "object", "required": ["city"]}),
]


def prompted(**fields: Any) -> Request:
    options = {"items": [user_message("Hi")], "tools": TOOLS, **fields}
    return with_prompted_tools(Request(model="m", **options))


def test_tools_are_described_in_the_instructions():
    request = prompted(instructions="Be kind.", parallel_tool_calls=False)
    assert (request.tools, request.tool_choice) == ((), None)
    assert request.parallel_tool_calls is None
    assert request.instructions.startswith("Be kind.\n\n# Tools\n")
    assert "## now\nTells the time.\nJSON Schema" in request.instructions
    assert '{"type": "object", "required": ["city"]}' in request.instructions
    assert "Use one tool at a time." in request.instructions


@pytest.mark.parametrize(
    ("choice", "names", "note"),
    [
        (None, {"now", "weather"}, ""),
        ("auto", {"now", "weather"}, ""),
        ("none", set(), ""),
        ("required", {"now", "weather"}, "must use a tool."),
        ({"type": "function", "name": "now"}, {"now"}, "must use the tool now."),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [tool("now")]},
            {"now"},
            "must use a tool.",
        ),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [tool("now")]},
            {"now"},
            "",
        ),
    ],
)
def test_the_tool_choice_limits_what_is_described(
    choice: Any, names: set[str], note: str
):
    request = prompted(tool_choice=choice)
    prompted_request = Request(model="m", items=(), tools=TOOLS, tool_choice=choice)
    assert available_tool_names(prompted_request) == names
    assert {n for n in NAMES if f"## {n}\n" in request.instructions} == names
    assert note in request.instructions
    assert ("must use" in request.instructions) == bool(note)


def test_a_hosted_tool_is_refused():
    with pytest.raises(BadRequest, match="not 'web_search'") as caught:
        prompted(tools=[{"type": "web_search"}])
    assert caught.value.param == "tools"


def test_past_calls_and_outputs_are_described_in_text():
    calls = [
        {"type": "function_call", "call_id": id, "name": name, "arguments": arguments}
        for id, name, arguments in [("1", *CALL), ("2", "now", "")]
    ]
    picture = {"type": "input_image", "image_url": "data:image/png;base64,AA=="}
    outputs = [function_call_output("1", "sunny"), function_call_output("2", [picture])]
    answer = message("assistant", "It is sunny.")
    items = prompted(items=[user_message("?"), *calls, *outputs, answer]).items
    assert [item["role"] for item in items] == [
        *("user", "assistant", "assistant", "user", "assistant")
    ]
    assert [text_of(item) for item in items[1:3]] == [PARIS, NOW]
    assert items[3]["content"] == [
        {"type": "input_text", "text": "Result of weather:\nsunny"},
        {"type": "input_text", "text": "Result of now:"},
        picture,
    ]


# The JSON reader

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(-1e9, 1e9),
    lambda some: (
        st.lists(some, max_size=3) | st.dictionaries(st.text(), some, max_size=3)
    ),
    max_leaves=10,
)


@given(
    st.dictionaries(st.text(), JSON, max_size=4),
    st.sets(st.integers(1, 200)),
    st.sampled_from([None, 1]),
    st.text(),
)
def test_an_object_ends_where_it_ends(value, cuts, indent, behind: str):
    written = json.dumps(value, indent=indent)
    text = written + behind
    borders = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    reader = JsonReader()
    for a, b in pairwise(borders):
        reader.feed(text[a:b])
    assert reader.is_whole
    assert reader.size == len(written)
    assert value == {
        json.loads(text[m.key : m.key_end]): json.loads(text[m.value : m.value_end])
        for m in reader.members
    }


@given(st.text('{}[]":, \\utrue1-.eE0n\n', max_size=14))
def test_a_truncated_or_invalid_call_is_never_complete(text: str):
    reader = JsonReader()
    end = reader.feed("{" + text)
    try:
        _, whole = json.JSONDecoder().raw_decode("{" + text)
    except ValueError:
        assert not reader.is_whole
    else:
        assert (reader.is_whole, end) == (True, whole)
