from __future__ import annotations

import pytest

from llm.errors import BadResponse, LLMError
from llm.wire.codecs.event_json import parse_event, parse_event_object
from llm.wire.sse import ServerSentEvent


def test_an_object_is_read():
    assert parse_event_object(ServerSentEvent(b'{"a": [1]}')) == {"a": [1]}


def test_a_named_error_may_be_plain_text():
    with pytest.raises(LLMError) as caught:
        parse_event(ServerSentEvent(b"upstream is overloaded", event="error"))
    assert caught.value.detail == "upstream is overloaded"


@pytest.mark.parametrize(
    ("data", "problem"),
    [(b"text", "The event is not JSON."), (b"[1]", "The event is not a JSON object.")],
)
def test_other_data_are_a_bad_response(data: bytes, problem: str):
    with pytest.raises(BadResponse) as caught:
        parse_event_object(ServerSentEvent(data))
    assert caught.value.detail == problem


def test_a_list_of_errors_in_place_of_an_object_is_classified():
    errors = b'[{"error": {"code": 503, "message": "The model is overloaded."}}]'
    with pytest.raises(LLMError) as caught:
        parse_event_object(ServerSentEvent(errors))
    assert not isinstance(caught.value, BadResponse)
