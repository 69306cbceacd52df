from __future__ import annotations

import enum
import itertools
import json
from base64 import b64encode
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from llm.concurrency.worker_thread import LARGE
from tools.errors import UnusableOutput
from tools.execution import output
from tools.execution.output import MAX_TEXT, measure, render_output

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from("abc"), inner),
)
TEXT = {"type": "input_text", "text": "see"}
IMAGE = {"type": "input_image", "image_url": "https://example.com/a.png"}


def output_of(value):
    return render_output(value).output


class Colour(enum.Enum):
    RED = "red"


class Place(BaseModel):
    city: str


@dataclass
class Point:
    x: float


@pytest.mark.parametrize(
    ("value", "output"),
    [
        ("plain", "plain"),
        ("", ""),
        (None, "null"),
        (True, "true"),
        (3, "3"),
        (2**80, str(2**80)),
        (0.5, "0.5"),
        (float("nan"), '"NaN"'),
        ({"é": [1]}, '{"é":[1]}'),
        ([], "[]"),
        (
            [TEXT, {"type": "other"}],
            '[{"type":"input_text","text":"see"},{"type":"other"}]',
        ),
        (Place(city="Riga"), '{"city":"Riga"}'),
        ([Place(city="Riga")], '[{"city":"Riga"}]'),
        ([{"type": ["input_text"]}], '[{"type":["input_text"]}]'),
        (Point(1.0), '{"x":1.0}'),
        (Colour.RED, '"red"'),
        (date(2026, 1, 2), '"2026-01-02"'),
        (Decimal("1.10"), '"1.10"'),
        ({"a"}, '["a"]'),
        ("half \ud83d", "half \N{REPLACEMENT CHARACTER}"),
        ("\ud83d\ude00", "\N{GRINNING FACE}"),
        ("nul\0", "nul\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_a_value_becomes_text(value, output):
    assert output_of(value) == output


@given(JSON)
def test_json_stays_what_it_is(value):
    assert json.loads(output_of(value)) == value


@given(st.text(st.characters(codec=None)))
def test_any_text_can_be_sent_on(text):
    assert orjson.loads(orjson.dumps(output_of(text))) == output_of(text)


def test_content_parts_stay_parts():
    assert output_of([TEXT, IMAGE]) == [TEXT, IMAGE]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (object(), "its result, of type object, cannot be written as JSON."),
        ([print], "its result, of type list, cannot be written as JSON."),
        (b"\xff", "its result, of type bytes, cannot be written as JSON."),
        ({"a": "\ud83d"}, "its result, of type dict, cannot be written as JSON."),
        ([{"type": "input_text"}], "part 0 of its result has no text."),
        (
            [TEXT, {"type": "input_image", "image_url": None}],
            "part 1 of its result has no image_url or file_id.",
        ),
    ],
)
def test_an_output_no_model_can_read_is_refused(value, problem):
    with pytest.raises(UnusableOutput) as caught:
        output_of(value)
    assert str(caught.value) == problem


def test_an_output_that_contains_itself_is_refused():
    value = []
    value.append(value)
    with pytest.raises(UnusableOutput):
        output_of(value)


def nest(depth):
    inner = []
    for _ in range(depth):
        inner = [inner]
    return inner


def test_parts_that_are_nested_too_deeply_are_refused():
    with pytest.raises(UnusableOutput, match="cannot be written as JSON"):
        output_of([{**TEXT, "detail": nest(240)}])


@pytest.mark.parametrize(
    "value",
    ["x" * 101, {"a": "x" * 100}, [{**IMAGE, "image_url": "x" * 100}], [TEXT] * 9],
)
def test_a_result_beyond_all_measure_is_refused(value, monkeypatch):
    monkeypatch.setattr(output, "MAX_RESULT", 100)
    with pytest.raises(UnusableOutput, match="larger than 100 bytes"):
        output_of(value)


def test_long_text_is_cut_with_a_note():
    output = output_of("x" * (MAX_TEXT + 1))
    assert output == (
        "x" * MAX_TEXT + "\n[Cut: this is the beginning, 50,000 of 50,001 characters.]"
    )
    assert output_of("x" * MAX_TEXT) == "x" * MAX_TEXT


def test_all_parts_together_have_no_more_text_than_one():
    long = {"type": "input_text", "text": "x" * (MAX_TEXT - 1)}
    first, second, image = output_of([long, {**TEXT, "text": "yz"}, TEXT, IMAGE])
    assert first == long
    assert second["text"].startswith("y\n[Cut:")
    assert image == IMAGE
    full_text = render_output([long, {**TEXT, "text": "yz"}, TEXT, IMAGE]).full_text
    assert full_text == f"{long['text']}\nyz\n{TEXT['text']}"
    assert render_output([long, IMAGE]).full_text is None


@pytest.mark.parametrize(
    ("value", "is_large"),
    [
        ("x" * LARGE, False),
        ("x" * (LARGE + 1), True),
        ({"a": [1, 2.5, None, True, "text"]}, False),
        ([{}] * 50_000, True),
        ({str(n): n for n in range(50_000)}, True),
        ({"a": {"b": ["x" * LARGE]}}, True),
        (Place(city="Bonn"), True),  # only pydantic knows what it takes
    ],
)
def test_what_takes_long_to_write_is_known_before(value, is_large):
    assert (measure(value) > LARGE) == is_large


@pytest.mark.parametrize(
    "value",
    [itertools.count(), (n for n in [1]), {"numbers": [map(str, [1])]}, [iter([])]],
)
def test_an_iterator_is_no_result(value):
    """It would be read on the event loop, maybe without end."""
    with pytest.raises(UnusableOutput, match="a tool returns a list instead"):
        measure(value)


def base64_of(content: bytes) -> str:
    return b64encode(content).decode()


WHOLE = {
    "png": b"\x89PNG\r\n\x1a\n......IEND....",
    "jpeg": b"\xff\xd8\xff............\xff\xd9",
    "gif": b"GIF89a..........;",
    "webp": b"RIFF\x08\0\0\0WEBPVP8 ",
}
PNG, JPEG = base64_of(WHOLE["png"]), base64_of(WHOLE["jpeg"])


def image_of(url):
    [part] = output_of([{"type": "input_image", "image_url": url, "detail": "low"}])
    return part


@pytest.mark.parametrize(
    ("url", "size"),
    [
        ("data:image/png;base64,", "0 bytes"),
        ("data:image/png;base64,not base64!!", "11 characters"),
        (f"data:image/png;base64,{PNG[:-1]}", "31 characters"),
        (f"data:image/png;base64,{base64_of(b'<html>')}", "6 bytes"),
        (f"data:IMAGE/WEBP;base64,{base64_of(b'RIFF')}", "4 bytes"),
        (f"data:image/svg+xml;base64,{base64_of(b'<svg/>')}", "6 bytes"),
        (f"data:image/bmp;base64,{base64_of(b'BM....')}", "6 bytes"),
        (f"data:image/heic;base64,{base64_of(b'....ftypheic')}", "12 bytes"),
        (f"data:;base64,{base64_of(b'<html>')}", "6 bytes"),
        (f"data:image/png;charset=utf8;base64,{base64_of(b'text')}", "4 bytes"),
        ("data:image/png,xx", "17 characters"),
        ("data:image/svg+xml,<svg/>", "25 characters"),
        ("not a url", "9 characters"),
        *(
            (f"data:image/{kind};base64,{base64_of(content[:12])}", "12 bytes")
            for kind, content in WHOLE.items()
        ),
    ],
)
def test_an_image_that_no_provider_reads_is_described(url, size):
    """It would be refused in each further turn of the conversation."""
    text = f"[An image that cannot be read, {size}, not shown.]"
    assert image_of(url) == {"type": "input_text", "text": text}


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        (f"data:image/png;base64,{PNG}", f"data:image/png;base64,{PNG}"),
        (f"data:image/png;base64,{JPEG}", f"data:image/jpeg;base64,{JPEG}"),
        (
            f"data:image/png;base64,{PNG[:8]}\n{PNG[8:]}\n",
            f"data:image/png;base64,{PNG}",
        ),
        (f"data:;charset=utf8;base64,{PNG}", f"data:image/png;base64,{PNG}"),
        *(
            [f"data:image/{kind};base64,{base64_of(content)}"] * 2
            for kind, content in WHOLE.items()
        ),
        ("https://example.com/a.png", "https://example.com/a.png"),
        ("HTTP://example.com/a.png", "HTTP://example.com/a.png"),
    ],
)
def test_other_images_are_sent_with_the_type_that_they_have(url, sent):
    assert image_of(url) == {
        "type": "input_image",
        "image_url": sent,
        "detail": "low",
    }
