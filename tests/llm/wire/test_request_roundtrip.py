"""Recorded conversations, read as our items and written again for the same provider."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import orjson
import pytest
from django.core.management import CommandError, call_command

from llm.errors import BadRequest
from llm.management.commands.replay_recordings import recordings
from llm.management.commands.request_roundtrip import compare, conversations
from llm.management.request_normal_form import differences, normalize
from llm.wire.facades import (
    chat_request,
    generate_content_request,
    messages_request,
    responses_request,
)
from tests.llm.wire.test_recordings import FOLDER

CONVERSATIONS = {r["id"]: r for r in conversations(recordings(FOLDER))}
HISTORIES = {
    "chat": "messages",
    "generateContent": "contents",
    "messages": "messages",
    "responses": "input",
}
#: Fields of a history that the normal form does not look at, by the API.
IGNORED = {
    "chat": {"id", "tool_call_id"},  # ids count by their order
    "generateContent": set(),
    "messages": {"cache_control"},
    "responses": {"id", "status"},  # of outputs
}

needs_recordings = pytest.mark.skipif(
    not CONVERSATIONS, reason="no recordings here; set RECORDINGS_DIR"
)


def recording(api: str, body: dict[str, Any], **fields: Any) -> dict[str, Any]:
    made = {"id": "made", "api": api, "provider": "openai", "model": "m", **fields}
    return {**made, "stream": False, "request": {"json": body}}


QUESTION = {"role": "user", "content": "What is the weather?"}
CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"at": "Rome"}'},
}
REQUEST = {
    "model": "m",
    "messages": [
        QUESTION,
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "40 C"},
    ],
}


# Recorded conversations


@needs_recordings
@pytest.mark.parametrize("id", CONVERSATIONS)
def test_a_recorded_conversation_is_written_again_as_it_was(id: str):
    assert [d.path for d in compare(CONVERSATIONS[id]) if not d.reason] == []


@needs_recordings
@pytest.mark.parametrize("id", CONVERSATIONS)
def test_the_normal_form_sees_every_word_of_a_history(id: str):
    """Each string of it is changed in turn; only those that are listed may be lost."""
    api, body = CONVERSATIONS[id]["api"], CONVERSATIONS[id]["request"]["json"]
    plain = normalize(api, body)
    for path in words(body[HISTORIES[api]]):
        changed = copy.deepcopy(body)
        node: Any = changed[HISTORIES[api]]
        for step in path[:-1]:
            node = node[step]
        node[path[-1]] = "something else"
        if not IGNORED[api] & set(path) and path[-1] != "type":
            assert list(differences(normalize(api, changed), plain)), path


def words(value: Any, *path: Any) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for name, each in pairs:
            yield from words(each, *path, name)
    elif isinstance(value, str) and value:
        yield path


# The command


def saved(folder: Path, *made: dict[str, Any]) -> str:
    for number, each in enumerate(made):
        (folder / f"{number}.json").write_bytes(orjson.dumps(each))
    return str(folder)


def test_the_command_reports_each_conversation(tmp_path: Path):
    single = {"model": "m", "messages": [QUESTION]}
    folder = saved(tmp_path, recording("chat", REQUEST), recording("chat", single))
    out = StringIO()
    call_command("request_roundtrip", folder, stdout=out)
    assert "same      made" in out.getvalue()
    assert "1 conversations: 1 same." in out.getvalue()


def test_the_command_fails_where_something_is_lost_and_names_the_place(tmp_path: Path):
    named = {**REQUEST["messages"][1], "name": "Ann"}
    lost = {**REQUEST, "messages": [QUESTION, named, REQUEST["messages"][2]]}
    out = StringIO()
    with pytest.raises(CommandError):
        call_command(
            "request_roundtrip", saved(tmp_path, recording("chat", lost)), stdout=out
        )
    assert "different made" in out.getvalue()
    assert "-messages[1].name" in out.getvalue()
    assert "Ann" not in out.getvalue()


def test_content_that_cannot_be_encoded_is_a_difference():
    body = {"model": "m", "messages": [*REQUEST["messages"], {"role": "robot"}]}
    [found] = compare(recording("chat", body))
    assert found.path.startswith("not sent: ")
    assert not found.reason


# What the readers do that no recording shows


def test_without_an_issuer_nothing_is_a_proof():
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
    answer = {
        "role": "assistant",
        "content": [thought, {"type": "text", "text": "Hi."}],
    }
    body = {"model": "m", "messages": [QUESTION, answer]}
    items = messages_request.request_of(body).items
    assert [item["type"] for item in items] == ["message", "reasoning", "message"]
    assert not any("provider_data" in item for item in items)


def test_a_failed_result_begins_as_ours_do():
    use = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "is_error": True}
    body = {
        "model": "m",
        "messages": [
            QUESTION,
            {"role": "assistant", "content": [use]},
            {"role": "user", "content": [{**result, "content": "It is gone."}]},
        ],
    }
    output = messages_request.request_of(body).items[-1]
    assert output["output"] == [{"type": "input_text", "text": "Error: It is gone."}]


def test_gemini_s_outputs_without_ids_answer_their_calls_in_turn():
    calls = [{"functionCall": {"name": "look", "args": {"at": n}}} for n in (1, 2)]
    responses = [
        {"functionResponse": {"name": "look", "response": {"output": word}}}
        for word in ("one", "two")
    ]
    request = generate_content_request.request_of(
        {"contents": [{"role": "model", "parts": calls}, {"parts": responses}]},
        "gemini-3",
    )
    ids = [i["call_id"] for i in request.items if i["type"] == "function_call"]
    outputs = {i["call_id"]: i["output"] for i in request.items if "output" in i}
    assert outputs == dict(zip(ids, ("one", "two"), strict=True))


def test_gemini_s_output_of_no_call_is_refused():
    parts = [{"functionResponse": {"name": "look", "response": {}}}]
    with pytest.raises(BadRequest):
        generate_content_request.request_of(
            {"contents": [{"parts": parts}]}, "gemini-3"
        )


def test_gemini_s_own_kind_of_schema_is_read():
    schema = {"type": "OBJECT", "properties": {"at": {"type": "STRING"}}}
    declared = {"name": "look", "parameters": schema}
    body = {
        "contents": [{"parts": [{"text": "Look."}]}],
        "tools": [{"codeExecution": None, "functionDeclarations": [declared]}],
    }
    [tool] = generate_content_request.request_of(body, "gemini-3").tools
    assert tool["parameters"] == {
        "type": "object",
        "properties": {"at": {"type": "string"}},
    }


def test_names_in_a_schema_keep_their_case():
    schema = {"properties": {"first_name": {"type": "string"}}}
    body = {"function_declarations": [{"name": "a", "parameters": schema}]}
    assert generate_content_request.camel(body) == {
        "functionDeclarations": [{"name": "a", "parameters": schema}]
    }


def test_the_easy_forms_of_responses_are_read():
    answer = {"role": "assistant", "content": "Hi."}
    request = responses_request.request_of({"model": "m", "input": [QUESTION, answer]})
    assert [item["role"] for item in request.items] == ["user", "assistant"]
    assert request.items[1]["content"][0]["text"] == "Hi."
    assert responses_request.request_of({"model": "m", "input": "Hi."}).items[0][
        "content"
    ]


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("auto", "auto"),
        ("any", "required"),
        (
            {"type": "function", "function": {"name": "weather"}},
            {"type": "function", "name": "weather"},
        ),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "auto",
                    "tools": [{"type": "function", "function": {"name": "weather"}}],
                },
            },
            {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": "function", "name": "weather"}],
            },
        ),
    ],
)
def test_choices_of_chat_are_those_of_responses(theirs: Any, ours: Any):
    assert (
        chat_request.request_of({**REQUEST, "tool_choice": theirs}).tool_choice == ours
    )


def test_unknown_fields_are_preserved():
    request = chat_request.request_of({**REQUEST, "logit_bias": {"1": 2}, "user": None})
    assert request.extra == {"logit_bias": {"1": 2}}
