from __future__ import annotations

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm.wire.bounded_json import (
    MAX_VALUES,
    TooManyValues,
    check_values,
    find_long_integer,
    loads,
    loads_exact,
)

TEXTS = st.text(st.sampled_from('a,:[{"\\é'), max_size=6)
VALUES = st.recursive(
    st.none() | st.integers(0, 9) | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
)


def count(value: object) -> int:
    """Values and names, brackets included: what the guard bounds."""
    match value:
        case list():
            return 1 + sum(map(count, value)) + (not value)
        case dict():
            return 1 + sum(1 + count(v) for v in value.values()) + (not value)
    return 1


@given(VALUES, st.integers(1, 8), st.booleans())
def test_values_are_counted_wherever_the_body_is_cut(value, piece, ascii):
    body = json.dumps(value, ensure_ascii=ascii).encode()
    marks = count(value) - 1
    check_values(body, most=max(marks, 1), piece=piece)
    if marks > 1 and len(body) > marks - 1:
        with pytest.raises(TooManyValues):
            check_values(body, most=marks - 1, piece=piece)


def test_text_may_be_as_long_as_it_likes():
    text = 'a,"b":[{\\' * 1_000_000
    assert loads(orjson.dumps([text])) == [text]


@pytest.mark.parametrize("unit", [b"[],", b"{},", b"1,", b'"a",', b'{"a":1},'])
def test_a_large_body_of_small_values_is_refused_and_not_parsed(unit: bytes):
    body = b"[" + unit * (20 * 1024 * 1024 // len(unit)) + b"0]"
    with pytest.raises(TooManyValues, match=f"more than {MAX_VALUES:,} values"):
        loads(body)


@pytest.mark.parametrize("number", [0, 2**63, 2**64 - 1, 2**64, -(2**63) - 1, 10**300])
def test_integers_of_any_length_are_read_exactly(number: int):
    assert loads_exact(b'{"id": [%d, "a"]}' % number) == {"id": [number, "a"]}


def test_what_python_cannot_read_is_rounded():
    body = b"[" * 1000 + b"123456789012345678901" + b"]" * 1000
    value = loads_exact(body)
    while isinstance(value, list):
        [value] = value
    assert value == 123456789012345678901.0


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"a": 18446744073709551615}', ""),
        ('{"a": -9223372036854775808}', ""),
        ('{"a": "18446744073709551616"}', ""),
        ('{"a": 0.12345678901234567890123}', ""),
        ('{"a": 1e30}', ""),
        ('{"a": 18446744073709551616}', "18446744073709551616"),
        ('{"a": ["1", -9223372036854775809]}', "-9223372036854775809"),
        ("[" * 990 + "123456789012345678901" + "]" * 990, "123456789012345678901"),
    ],
)
def test_an_integer_beyond_64_bits_is_found(text: str, found: str):
    assert find_long_integer(text) == found
