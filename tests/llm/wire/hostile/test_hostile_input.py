"""Input that was made to be slow: every decoder ends with the right result.

That its work grows as the input does, and no faster, is counted where it is done in
Python: the calls of functions, ours and the interpreter's, for an input and for one
twice as long. What one call of the interpreter does is not seen by that: a reader whose
searches grow with the square of the input needs an hour or more for the whole of these,
so that the test's timeout is no measure of speed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

import orjson
import pytest

from llm.adaptation.structured import SchemaMismatch, json_in
from llm.demo.schema_sample import sample
from llm.errors import BadRequest, BadResponse, LLMError, ProviderDown
from llm.wire.classify_errors import classify, classify_error
from llm.wire.codecs.anthropic.codec import AnthropicCodec
from llm.wire.codecs.gemini.codec import GeminiCodec
from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec
from llm.wire.codecs.openai_chat.tool_calls import MAX_CALLS
from llm.wire.codecs.openai_responses.codec import OpenAIResponsesCodec
from llm.wire.deltas import AnnotationDelta, TextDelta, ToolCallDelta
from llm.wire.items import Item
from llm.wire.json_schema.validation import compile_schema
from llm.wire.prompted_calls import CallFilter
from llm.wire.request import Request
from llm.wire.response_builder import ResponseBuilder
from llm.wire.sse import ServerSentEvent, SSEDecoder

pytestmark = pytest.mark.timeout(100)
MEGABYTE = 1024 * 1024
SOME = 32_768  # characters of which the work is counted
_AROUND = 500  # calls that are made however long the input is


def work(act: Callable[[], object]) -> int:
    """The calls that are made, of functions in Python and in C."""
    count = 0

    def note(frame: FrameType, event: str, arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(before)
    return count


def assert_linear(read: Callable[[int], object]) -> None:
    """`read` takes an input of so many characters."""
    read(SOME)  # what is made once
    once, twice = work(lambda: read(SOME)), work(lambda: read(2 * SOME))
    assert twice <= 2.2 * once + _AROUND


def test_work_that_grows_with_the_square_is_seen():
    def read(size: int) -> None:
        for number in range(size // 100):
            for _ in range(number):
                len("")

    with pytest.raises(AssertionError):
        assert_linear(read)


ERRORS = [
    "model ",
    "try again in " + "1" * 100_000 + ".",
    '"retryDelay":' + " " * 100_000,
    "thinking ",
    "retry in 1.1.1.1.",
    "{",
]


@pytest.mark.parametrize("unit", ERRORS)
@pytest.mark.parametrize("wrap", ['{"error": {"message": %s}}', "%s", "<html>%s"])
def test_an_error_made_to_be_slow_is_classified(unit: str, wrap: str):
    body = (wrap % (unit * (MEGABYTE // len(unit)))).encode()
    assert isinstance(classify(500, {}, body), LLMError)
    assert isinstance(classify_error(body.decode()), LLMError)


@pytest.mark.parametrize("wrap", ['{"error": {"message": "%s"}}', "%s", "<html>%s"])
def test_no_more_of_an_error_is_searched_than_its_beginning(wrap: str):
    message = "x" * 3_900 + "%s" + "x" * 100_000
    overloaded = classify(400, {}, (wrap % message % "overloaded").encode())
    assert isinstance(overloaded, ProviderDown)
    assert len(overloaded.detail) <= 4_000
    behind = "x" * 4_100 + "overloaded"
    assert type(classify(400, {}, (wrap % behind).encode())) is BadRequest


def test_a_header_of_digits_is_no_time():
    headers = {"x-ratelimit-remaining-tokens": "0"}
    headers["x-ratelimit-reset-tokens"] = "1" * MEGABYTE
    assert classify(429, headers, b"").retry_after is None


@pytest.mark.parametrize(
    "text",
    [
        "```\n" + "\n" * MEGABYTE,
        "```\n" * (MEGABYTE // 4),
        "```a " * (MEGABYTE // 5),
        "[" * MEGABYTE,
        "{" * MEGABYTE,
        "```json\n" + " \n" * MEGABYTE + "x",
    ],
)
def test_an_answer_without_json_is_a_misfit(text: str):
    with pytest.raises(SchemaMismatch):
        json_in(text)

    def read(size: int) -> None:
        with suppress(SchemaMismatch):
            json_in(text[:size])

    assert_linear(read)


@pytest.mark.slow
@pytest.mark.parametrize("unit", [" ", "\n", "`", "``` ", '{"tool": ', "[", "{"])
@pytest.mark.parametrize("before", ["", "Words ", "```\n", '{"tool":"now","input":{}}'])
def test_text_in_small_pieces_is_complete(unit: str, before: str):
    text = unit * (200_000 // len(unit))
    reader = CallFilter({"now"})
    deltas = [*reader.feed([TextDelta("text", before)])]
    for piece in [text[at : at + 20] for at in range(0, len(text), 20)]:
        deltas += reader.feed([TextDelta("text", piece)])
    deltas += reader.close()
    joined = "".join(d.text for d in deltas if isinstance(d, TextDelta))
    called = any(isinstance(d, ToolCallDelta) for d in deltas)
    whole = text if called else before + text
    assert joined.strip() in ("", whole.strip())

    def read(size: int) -> None:
        reader = CallFilter({"now"})
        reader.feed([TextDelta("text", before)])
        for at in range(0, size, 20):
            reader.feed([TextDelta("text", text[at : at + 20])])
        reader.close()

    assert_linear(read)


def request_with(item: Item) -> Request:
    return Request(model="m", items=[item])


@pytest.mark.parametrize("address", ["data:", "data:;", "data:a;b", "data:image/png;"])
def test_an_image_without_its_comma_is_refused(address: str):
    image = {"type": "input_image", "image_url": address + "a" * MEGABYTE}
    item: Item = {"type": "message", "role": "user", "content": [image]}
    with pytest.raises(LLMError):
        GeminiCodec().encode(request_with(item))


@pytest.mark.slow
def test_arguments_that_come_in_a_million_pieces_are_put_together():
    decoder = GeminiCodec().decoder()
    path = {"jsonPath": "$.text", "willContinue": True}

    def part(call: dict) -> ServerSentEvent:
        parts = [{"functionCall": call}]
        return ServerSentEvent(
            orjson.dumps({"candidates": [{"content": {"parts": parts}}]})
        )

    pieces = [{**path, "stringValue": "x" * 10} for _ in range(1000)]
    again = part({"partialArgs": pieces, "willContinue": True})
    list(decoder.feed(part({"name": "f", "willContinue": True})))
    for _ in range(1000):
        assert list(decoder.feed(again)) == []
    deltas = list(decoder.feed(part({})))
    arguments = "".join(d.arguments for d in deltas if isinstance(d, ToolCallDelta))
    assert arguments == '{"text":"%s"}' % ("x" * 10_000_000)


@pytest.mark.parametrize(
    "pieces",
    [
        [{"jsonPath": "$" + ".a" * MEGABYTE, "stringValue": "x"}],
        [{"jsonPath": "$" + "[0]" * MEGABYTE, "stringValue": "x"}],
        [{"jsonPath": "$.a[" + "1" * MEGABYTE + "]", "stringValue": "x"}],
        [{"jsonPath": f"$.a{number}", "boolValue": True} for number in range(20_000)],
    ],
    ids=["deep", "deep lists", "a long number", "many"],
)
def test_pieces_that_are_too_deep_or_too_many_are_a_bad_response(pieces: list[Any]):
    call = {"name": "f", "partialArgs": pieces}
    parts = [{"functionCall": call}]
    body = orjson.dumps({"candidates": [{"content": {"parts": parts}}]})
    with pytest.raises(BadResponse):
        list(GeminiCodec().decoder().feed(ServerSentEvent(body)))


def test_an_event_of_too_many_calls_of_gemini_is_a_bad_response():
    parts = [{"functionCall": {"name": "f"}}] * 40_000
    body = orjson.dumps({"candidates": [{"content": {"parts": parts}}]})
    with pytest.raises(BadResponse):
        list(GeminiCodec().decoder().feed(ServerSentEvent(body)))


def test_a_snapshot_does_not_change_when_sources_follow():
    builder = ResponseBuilder(id="resp_1", model="m")
    builder.start()
    source = {"type": "url_citation", "url": "http://a.example/"}
    builder.feed([TextDelta(0, "Hello"), AnnotationDelta(0, source)])
    before = builder.partial()
    builder.feed([AnnotationDelta(0, source)])
    assert before[0]["content"][0]["annotations"] == [source]
    builder.end_call()
    assert builder.output[0]["content"][0]["annotations"] == [source, source]


@pytest.mark.slow
@pytest.mark.parametrize(
    "chunk",
    [b"data: x\n", b"\n", b"\r", b"data:", b": \n", b"{\n", b"event: a\n", b"x" * 9],
)
@pytest.mark.parametrize("size", [7, 65_536])
def test_a_stream_of_anything_is_cut_into_events(chunk: bytes, size: int):
    body = chunk * (2 * MEGABYTE // len(chunk))
    if size < 100:
        body = body[: MEGABYTE // 8]
    decoder = SSEDecoder()
    events = [
        event
        for at in range(0, len(body), size)
        for event in decoder.feed(body[at : at + size])
    ]
    events += decoder.close()
    assert len(events) <= 1

    def read(length: int) -> None:
        decoder = SSEDecoder()
        for at in range(0, length, size):
            decoder.feed(body[at : min(at + size, length)])
        decoder.close()

    assert_linear(read)


@pytest.mark.parametrize("first", [b"data: 1", b"data:1", b"{"])
def test_an_event_of_many_lines_is_put_together(first: bytes):
    line = b"1" if first == b"{" else first
    decoder = SSEDecoder()
    decoder.feed(first + b"\n")
    for _ in range(25_000):
        assert decoder.feed(line + b"\n") == []
    last = b'"": 1}' if first == b"{" else b"data: 2"
    (event,) = decoder.feed(last + b"\n\n" + b"data: 3\n\n")[-1:]
    assert event.data == b"3"
    if first != b"{":
        decoder.feed((first + b"\n") * 25_000)
        (event,) = decoder.feed(b"\n")
        assert event.data == b"\n".join([b"1"] * 25_000)


def test_an_answer_of_too_many_calls_is_a_bad_response():
    def part(count: int, start: int) -> ServerSentEvent:
        function = {"name": "f", "arguments": "{}"}
        calls = [
            {"index": number, "id": f"c{number}", "function": function}
            for number in range(start, start + count)
        ]
        choice = {"delta": {"tool_calls": calls}}
        return ServerSentEvent(orjson.dumps({"choices": [choice]}))

    decoder = OpenAIChatCodec().decoder()
    deltas = list(decoder.feed(part(MAX_CALLS, 0)))
    assert sum(isinstance(delta, ToolCallDelta) for delta in deltas) == MAX_CALLS
    with pytest.raises(BadResponse) as caught:
        list(decoder.feed(part(1, MAX_CALLS)))
    assert caught.value.detail == "More than 1,000 tool calls."


CATASTROPHIC = ["(a+)+$", "^(a|a)*$", "(?=a)(a+)+$", "(?:a?){30}a{30}", "(.*)*\\1x"]


@pytest.mark.parametrize("pattern", CATASTROPHIC)
def test_a_pattern_that_backtracks_ends(pattern: str):
    schema = {"type": "string", "pattern": pattern}
    assert compile_schema(schema).is_valid("a" * 100_000 + "!") in (True, False)
    assert isinstance(sample(schema), str)


def test_a_pattern_may_look_around_in_short_texts():
    password = compile_schema({"pattern": r"^(?=.*\d)(?=.*[a-z]).{8,}$"})
    assert password.is_valid("passw0rd")
    assert not password.is_valid("password")
    (error,) = password.iter_errors({"a": ["passw0rd" * 1_000]})
    assert list(error.instance_path) == ["a", 0]
    assert error.message == "the value is longer than 1000 characters"


def doubled(levels: int, key: str) -> dict:
    """A schema of a few hundred bytes that is 2 ** levels when written out."""
    defs: dict = {"a0": {"type": "integer"}}
    for n in range(levels):
        defs[f"a{n + 1}"] = {key: [{"$ref": f"#/$defs/a{n}"}] * 2}
    return {"$defs": defs, "$ref": f"#/$defs/a{levels}"}


@pytest.mark.parametrize("key", ["allOf", "anyOf", "oneOf"])
def test_a_schema_that_doubles_at_each_reference_is_refused(key: str):
    assert not compile_schema(doubled(8, key)).is_valid("text")
    with pytest.raises(ValueError, match="too many"):
        compile_schema(doubled(40, key))


def test_a_schema_of_a_tree_is_as_large_as_it_looks():
    tree = {
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "left": {"$ref": "#/$defs/node"},
                    "right": {"$ref": "#/$defs/node"},
                },
            }
        },
        "$ref": "#/$defs/node",
    }
    assert compile_schema(tree).is_valid({"left": {"right": {}}})


def branching(key: str, branches: int) -> dict:
    """A schema whose work grows with the power of a value's depth."""
    node = {"$ref": "#/$defs/node"}
    each = [{"properties": {"a": node, f"b{n}": node}} for n in range(branches)]
    return {
        "$defs": {"node": {key: [*each, {"type": "null"}]}},
        "type": "object",
        **node,
    }


def nested(depth: int, innermost: object) -> dict:
    value = {"a": innermost}
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.parametrize("key", ["allOf", "anyOf", "oneOf"])
def test_a_schema_that_refers_to_itself_in_branches_bounds_its_values(key: str):
    validator = compile_schema(branching(key, 4))
    for depth in (30, 200):
        assert not validator.is_valid(nested(depth, 7))
        (error,) = validator.iter_errors(nested(depth, 7))
        assert "nested too deeply" in error.message


def test_a_branching_schema_by_anchors_is_bounded_too():
    schema = branching("anyOf", 4)
    schema["$defs"]["node"]["$anchor"] = "n"
    body = orjson.dumps(schema).replace(b"#/$defs/node", b"#n")
    assert not compile_schema(orjson.loads(body)).is_valid(nested(200, 7))


def anchored(levels: int, name: str = "$anchor", ref: str = "$ref") -> dict:
    """The same as `doubled`, with names instead of pointers."""
    defs: dict = {"a0": {name: "a0", "type": "integer"}}
    for n in range(levels):
        defs[f"a{n + 1}"] = {name: f"a{n + 1}", "allOf": [{ref: f"#a{n}"}] * 2}
    return {"$defs": defs, ref: f"#a{levels}"}


@pytest.mark.parametrize(
    "names", [("$anchor", "$ref"), ("$dynamicAnchor", "$dynamicRef")]
)
def test_a_schema_that_doubles_at_each_anchor_is_refused(names: tuple[str, str]):
    assert not compile_schema(anchored(8, *names)).is_valid("text")
    for _ in range(20):  # what is refused is remembered too
        with pytest.raises(ValueError, match="too many"):
            compile_schema(anchored(40, *names))


def wide(schemas: int, **more: Any) -> dict:
    """A schema of many names for one value, in as many schemas."""
    each = [{"properties": {f"p{n}": {}}, **more} for n in range(schemas)]
    return {"allOf": each, "properties": {"x": {"$ref": "#/allOf/0"}}}


def test_many_names_in_many_schemas_take_linear_time():
    assert compile_schema(wide(10_000)).is_valid({"x": {}})
    with pytest.raises(ValueError, match="too many"):
        compile_schema(wide(10_000, additionalProperties={"type": "string"}))


def expressions(operators: int) -> dict:
    """A discriminated union as pydantic writes it."""
    node = {"$ref": "#/$defs/node"}
    defs: dict = {}
    for n in range(operators):
        defs[f"op{n}"] = {
            "type": "object",
            "properties": {"op": {"const": f"op{n}"}, "left": node, "right": node},
            "required": ["op", "left", "right"],
        }
    branches = [{"$ref": f"#/$defs/{name}"} for name in defs]
    defs["node"] = {"anyOf": [*branches, {"type": "integer"}]}
    return {"$defs": defs, **node}


def test_a_union_that_refers_to_itself_fits_values_of_some_levels():
    validator = compile_schema(expressions(4))
    value: Any = 1
    for n in range(7):
        value = {"op": f"op{n % 4}", "left": value, "right": n}
    assert validator.is_valid(value)
    value["right"] = "one"
    (error,) = validator.iter_errors(value)
    assert error.message == (
        "the value does not match; it is nested too deeply to say where"
    )
    (error,) = validator.iter_errors({"op": "op1", "left": 1, "right": "one"})
    assert error.kind.name == "anyOf"


def test_a_schema_of_any_json_fits_what_is_deep():
    node = {"$ref": "#/$defs/json"}
    either = [
        {"type": ["string", "number", "boolean", "null"]},
        {"type": "array", "items": node},
        {"type": "object", "properties": {"a": node}, "additionalProperties": node},
    ]
    validator = compile_schema({"$defs": {"json": {"anyOf": either}}, **node})
    assert validator.is_valid(nested(120, [1]))


@pytest.mark.parametrize(
    "codec", [AnthropicCodec(), OpenAIChatCodec(), OpenAIResponsesCodec()]
)
def test_an_error_that_a_proxy_of_google_wraps_in_a_list_is_read(codec):
    error = orjson.dumps([{"error": {"code": 503, "message": "Overloaded"}}])
    [event] = SSEDecoder().feed(error + b"\n\n")
    with pytest.raises(ProviderDown):
        list(codec.decoder().feed(event))
