"""Whatever comes is read, or refused with a sentence that names the place."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema_rs
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llm.errors import BadRequest
from llm.wire.facades import chat_request, messages_request, responses_request
from llm.wire.facades.body_checks import (
    check_chat,
    check_messages,
    check_responses,
    schemas,
)
from llm.wire.facades.request_conversion import portable
from tests.llm.wire.test_recordings import RECORDINGS

FUNCTION = {"name": "look", "description": "Looks.", "parameters": {"type": "object"}}
GRAMMAR = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: A"}}
PICTURE = "data:image/png;base64,iVBORw0KGgo="
CHAT: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is this?"},
                {"type": "image_url", "image_url": {"url": PICTURE, "detail": "low"}},
                {"type": "file", "file": {"file_data": PICTURE, "filename": "a"}},
                {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "refusal": None,
            "reasoning_content": "Hm.",
            "reasoning_details": [{"type": "reasoning.text", "text": "Hm."}],
            "extra_content": {"google": {"thought_signature": "c2ln"}},
            "annotations": [{"type": "url_citation", "url_citation": {"url": "x"}}],
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "look", "arguments": "{}"},
                },
                {
                    "id": "call_2",
                    "type": "custom",
                    "custom": {"name": "say", "input": "A"},
                },
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "ok"},
        {
            "role": "tool",
            "tool_call_id": "call_2",
            "content": [{"type": "text", "text": "ok"}],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "So."}]},
        {"role": "user", "content": "And?"},
    ],
    "tools": [
        {"type": "function", "function": FUNCTION},
        {"type": "custom", "custom": {"name": "say", "format": GRAMMAR}},
        {"type": "web_search"},
        {"type": "parley:tools", "names": ["calculator"]},
    ],
    "tool_choice": {
        "type": "allowed_tools",
        "allowed_tools": {
            "mode": "auto",
            "tools": [{"type": "function", "function": {"name": "look"}}],
        },
    },
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": {"type": "object"}},
    },
    "n": 1,
    "stop": ["."],
    "max_completion_tokens": 9,
    "reasoning_effort": "low",
    "stream": True,
    "stream_options": {"include_usage": True},
    "parley": {"buffer_tool_calls": True},
    "client_metadata": {"a": "b"},
}
SEARCH = {"id": "srvtoolu_1", "name": "web_search", "input": {"query": "cats"}}
CITATION = {"type": "web_search_result_location", "url": "x", "encrypted_index": ""}
MESSAGES: dict[str, Any] = {
    "model": "m",
    "max_tokens": 9,
    "system": [
        {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}
    ],
    "messages": [
        {"role": "user", "content": "Hi"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is this?"},
                {"type": "image", "source": {"type": "url", "url": "https://x.test"}},
                {
                    "type": "document",
                    "title": "a",
                    "source": {"type": "text", "data": "b"},
                },
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
                {"type": "redacted_thinking", "data": "cmVk"},
                {"type": "text", "text": "Well.", "citations": [CITATION]},
                {"type": "server_tool_use", **SEARCH},
                {
                    "type": "web_search_tool_result",
                    "tool_use_id": "srvtoolu_1",
                    "content": [{"type": "web_search_result", "url": "x"}],
                },
                {"type": "compaction", "content": "c", "encrypted_content": "e"},
                {"type": "fallback", "to": {"model": "other"}},
                {"type": "mcp_tool_listing", "tools": [{"name": "t"}]},
                {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_1",
                    "is_error": True,
                    "content": [{"type": "text", "text": "no"}],
                },
                {"type": "text", "text": "Go on."},
            ],
        },
        {"role": "system", "content": "Be kind."},
    ],
    "tools": [
        {"name": "look", "input_schema": {"type": "object"}, "strict": True},
        {"type": "web_search_20260318", "name": "web_search"},
        {"type": "parley:tools", "names": ["calculator"]},
    ],
    "tool_choice": {"type": "tool", "name": "look"},
    "thinking": {"type": "enabled", "budget_tokens": 2048},
    "output_config": {"effort": "low"},
    "metadata": {"user_id": "u"},
    "stop_sequences": ["."],
    "context_management": {"edits": []},
}
RESPONSES: dict[str, Any] = {
    "model": "m",
    "instructions": "Be brief.",
    "input": [
        {"role": "user", "content": "Hi"},
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "What is this?"},
                {"type": "input_image", "image_url": PICTURE, "detail": "auto"},
                {"type": "input_file", "file_data": PICTURE, "filename": "a"},
            ],
        },
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "Hm."}],
            "encrypted_content": "ZW5j",
        },
        {
            "type": "message",
            "role": "assistant",
            "phase": "commentary",
            "content": [
                {"type": "output_text", "text": "Well.", "annotations": [{}]},
                {"type": "refusal", "refusal": "No."},
            ],
        },
        {"role": "assistant", "content": "Hello."},
        {
            "type": "function_call",
            "call_id": "call_1",
            "name": "look",
            "arguments": "{}",
        },
        {"type": "function_call_output", "call_id": "call_1", "output": "ok"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "custom_tool_call", "call_id": "c", "name": "say", "input": "A"},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "ok"},
        {"type": "compaction", "encrypted_content": "ZW5j"},
    ],
    "tools": [
        {"type": "function", **FUNCTION, "strict": None},
        {"type": "custom", "name": "say"},
        {"type": "namespace", "name": "n", "tools": []},
        {"type": "web_search"},
        {"type": "parley:tools", "names": ["calculator"]},
    ],
    "tool_choice": {"type": "function", "name": "look"},
    "text": {"format": {"type": "json_object"}, "verbosity": "low"},
    "reasoning": {"effort": "low", "summary": "auto"},
    "include": ["reasoning.encrypted_content"],
    "max_output_tokens": 16,
    "store": False,
    "stream": True,
    "client_metadata": {},
}
Read = Callable[[Any], Any]


def read_chat(body: Any) -> Any:
    check_chat(body)
    return portable(chat_request.request_of(body))


def read_messages(body: Any) -> Any:
    check_messages(body)
    return portable(messages_request.request_of(body))


def read_responses(body: Any) -> Any:
    check_responses(body)
    return portable(responses_request.request_of(body))


ENDPOINTS = {
    "chat": (CHAT, read_chat),
    "messages": (MESSAGES, read_messages),
    "responses": (RESPONSES, read_responses),
}
each_endpoint = pytest.mark.parametrize("endpoint", ENDPOINTS)

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=5)
    | st.sampled_from(["text", "function", "user", "assistant", "custom", "tool_use"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "role", "content", "name", "id", "text"])
            | st.text(max_size=3),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


def places(value: Any, *path: Any) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict | list):
        for step in value if isinstance(value, dict) else range(len(value)):
            yield (*path, step)
            yield from places(value[step], *path, step)


PLACES = {endpoint: list(places(body)) for endpoint, (body, _) in ENDPOINTS.items()}


def refusal(read: Read, body: Any) -> str:
    """ "" for a body that is read. Raises whatever is no BadRequest."""
    try:
        read(body)
    except BadRequest as exc:
        return str(exc)
    return ""


def is_a_sentence(message: str) -> bool:
    return not message or (message.endswith(".") and "\n" not in message)


@each_endpoint
def test_a_body_with_all_there_is_is_read(endpoint: str):
    body, read = ENDPOINTS[endpoint]
    request, _ = read(body)
    assert request.model == "m"
    assert request.items


@each_endpoint
@given(value=json_values)
def test_any_json_is_read_or_refused(endpoint: str, value: Any):
    assert is_a_sentence(refusal(ENDPOINTS[endpoint][1], value))


@each_endpoint
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_body_with_anything_changed_is_read_or_refused(endpoint: str, data: Any):
    body, read = copy.deepcopy(ENDPOINTS[endpoint][0]), ENDPOINTS[endpoint][1]
    for path in data.draw(st.lists(st.sampled_from(PLACES[endpoint]), max_size=3)):
        node: Any = body
        try:
            for step in path[:-1]:
                node = node[step]
            if data.draw(st.booleans()):
                node[path[-1]] = data.draw(json_values)
            else:
                del node[path[-1]]
        except (LookupError, TypeError):
            continue  # an earlier change has removed it
    assert is_a_sentence(refusal(read, body))


@each_endpoint
def test_every_field_may_have_any_kind_of_value(endpoint: str):
    original, read = ENDPOINTS[endpoint]
    for path in PLACES[endpoint]:
        for value in (None, True, -1, 0.5, "", "x", [], [None], ["x"], {}, {"type": 1}):
            body: Any = copy.deepcopy(original)
            node = body
            for step in path[:-1]:
                node = node[step]
            node[path[-1]] = value
            assert is_a_sentence(refusal(read, body)), path


CHECKED: dict[str, tuple[str, Read]] = {
    "chat": ("ChatRequest", check_chat),
    "messages": ("MessagesRequest", check_messages),
    "responses": ("ResponsesRequest", check_responses),
}
#: What a schema cannot express: one part of a body contradicts another.
BEYOND = ("there is no", "a tool is required", "another call", "is not of a")


@each_endpoint
def test_a_check_and_its_schema_agree(endpoint: str):
    original = ENDPOINTS[endpoint][0]
    name, check = CHECKED[endpoint]
    validator = jsonschema_rs.Draft202012Validator(schemas()[name])
    assert validator.is_valid(original)
    for path in PLACES[endpoint]:
        for value in (None, True, -1, 0.5, "", "x", [], [None], ["x"], {}, {"type": 1}):
            body: Any = copy.deepcopy(original)
            node = body
            for step in path[:-1]:
                node = node[step]
            node[path[-1]] = value
            problem = refusal(check, body)
            if not any(words in problem for words in BEYOND):
                assert validator.is_valid(body) is not bool(problem), (
                    path,
                    value,
                    problem,
                )


@pytest.mark.skipif(not RECORDINGS, reason="no recordings here; set RECORDINGS_DIR")
@each_endpoint
def test_recorded_requests_of_real_programs_are_not_refused(endpoint: str):
    """Unless the vendor has refused it too, or it wants what we do not have."""
    read, count = ENDPOINTS[endpoint][1], 0
    for recording in RECORDINGS.values():
        body = (recording.get("request") or {}).get("json")
        status = recording["response"]["status"]
        if recording["api"] != endpoint or not isinstance(body, dict) or status >= 400:
            continue
        count += 1
        problem = refusal(read, body)
        assert not problem or is_ours_to_refuse(problem), (recording["id"], problem)
    assert count > 10


def is_ours_to_refuse(sentence: str) -> bool:
    return "supported" in sentence or "does not support" in sentence


@pytest.mark.parametrize(
    ("endpoint", "change", "param", "sentence"),
    [
        ("chat", {"model": None}, "model", "missing."),
        ("chat", {"messages": "nope"}, "messages", "expected a list."),
        ("chat", {"messages": []}, "messages", "must not be empty."),
        ("chat", {"n": 2}, "n", "only 1 answer at a time is supported."),
        (
            "chat",
            {"logprobs": True},
            "logprobs",
            "log probabilities are not supported.",
        ),
        (
            "chat",
            {"functions": [{}]},
            "functions",
            "functions are not supported; use tools.",
        ),
        ("chat", {"temperature": 3}, "temperature", "must be at most 2."),
        ("chat", {"max_tokens": 0}, "max_tokens", "must be at least 1."),
        (
            "chat",
            {"messages": [{"role": "pope", "content": "Hi"}]},
            "messages[0].role",
            "'pope' is not supported here; use system, developer, user, assistant,"
            " tool.",
        ),
        (
            "chat",
            {"messages": [{"role": "assistant", "tool_calls": [{"type": "function"}]}]},
            "messages[0].tool_calls[0].id",
            "missing.",
        ),
        (
            "chat",
            {"tool_choice": {"type": "function", "function": {"name": "fly"}}},
            "tool_choice",
            "there is no 'fly' among the tools.",
        ),
        (
            "chat",
            {"tool_choice": "required", "tools": []},
            "tool_choice",
            "a tool is required, but none is declared.",
        ),
        ("messages", {"max_tokens": None}, "max_tokens", "missing."),
        (
            "messages",
            {"messages": [{"role": "user", "content": [{"type": "image"}]}]},
            "messages[0].content[0].source",
            "missing.",
        ),
        (
            "messages",
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {
                                "type": "document",
                                "source": {"type": "text", "data": "x"},
                                "citations": True,
                            }
                        ],
                    }
                ]
            },
            "messages[0].content[0].citations",
            "expected an object.",
        ),
        ("responses", {"input": 42}, "input", "expected a string or a list."),
        (
            "responses",
            {"input": [{"type": "item_reference", "id": "x"}]},
            "input[0]",
            "send the item itself.",
        ),
        (
            "responses",
            {"include": ["message.output_text.logprobs"]},
            "include[0]",
            "log probabilities are not supported.",
        ),
        (
            "responses",
            {"tool_choice": {"type": "file_search"}},
            "tool_choice",
            "there is no 'file_search' among the tools.",
        ),
    ],
)
def test_a_refusal_names_the_place(endpoint, change, param, sentence):
    body, read = ENDPOINTS[endpoint]
    with pytest.raises(BadRequest) as caught:
        read({**body, **change})
    assert caught.value.param == param
    assert str(caught.value) == f"{param}: {sentence}"


def test_a_request_that_is_no_object_or_beyond_json_is_refused():
    with pytest.raises(BadRequest, match=r"^The request must be a JSON object\.$"):
        check_chat([])
    for value in (10**30, "\ud83d", deep(300)):
        with pytest.raises(
            BadRequest, match="invalid text, a number that is too large"
        ):
            check_responses({**RESPONSES, "user": value})


def deep(levels: int) -> Any:
    return orjson.loads("[" * levels + "]" * levels)


def test_counting_tokens_needs_no_limit():
    check_messages({**MESSAGES, "max_tokens": None}, counting=True)


def test_a_choice_may_name_a_tool_that_runs_here():
    choice = {"type": "function", "name": "calculator"}
    check_responses({**RESPONSES, "tool_choice": choice})
    named = {**RESPONSES, "tools": [], "tool_choice": choice}
    check_responses(named, server_tools=["calculator"])
    with pytest.raises(BadRequest, match="there is no 'calculator' among the tools"):
        check_responses(named)


def test_a_choice_names_a_dated_tool_without_its_date():
    tools = [{"type": "web_search_preview_2025_03_11"}]
    choice = {"type": "web_search_preview"}
    check_responses({**RESPONSES, "tools": tools, "tool_choice": choice})
    other = {**RESPONSES, "tools": tools, "tool_choice": {"type": "file_search"}}
    with pytest.raises(BadRequest, match="there is no 'file_search' among the tools"):
        check_responses(other)


def test_a_limit_that_is_null_leaves_the_older_field():
    body, _ = ENDPOINTS["chat"]
    limits = {"max_completion_tokens": None, "max_tokens": 100}
    assert chat_request.request_of({**body, **limits}).max_output_tokens == 100


def test_citations_of_our_own_making_do_not_come_back():
    [item] = messages_request.request_of(
        {
            "model": "m",
            "messages": [
                {
                    "role": "assistant",
                    "content": [{"type": "text", "text": "a", "citations": [CITATION]}],
                }
            ],
        },
        issuer={"provider": "anthropic", "model": "m", "route": "1:1"},
    ).items
    [part] = item["content"]
    assert part["annotations"] == []
    assert item["provider_data"]["raw"] == {"content": [{"type": "text", "text": "a"}]}


def test_a_whole_number_may_be_written_with_a_point():
    body = {**CHAT, "max_completion_tokens": 50.0, "seed": 7.0}
    check_chat(body)
    request = chat_request.request_of(body)
    assert (repr(request.max_output_tokens), repr(request.seed)) == ("50", "7")
    with pytest.raises(BadRequest):
        check_chat({**CHAT, "max_tokens": 50.5})
