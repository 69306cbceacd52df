"""Features that a host does not support, and what it receives in their place."""

from __future__ import annotations

from typing import Any

import pytest

from llm.providers import all_providers
from llm.wire.codecs.feature_fallbacks import filter_by_choice, is_forced, open_schema
from llm.wire.items import user_message
from llm.wire.request import Request

LOOK, LISTEN = ({"type": "function", "name": name} for name in ("look", "listen"))
SEARCH = {"type": "web_search"}
TOOLS = [LOOK, LISTEN, SEARCH]
NAMED = {"type": "function", "name": "look"}
SCHEMA = {
    "type": "object",
    "properties": {"at": {"type": "object", "additionalProperties": False}},
    "additionalProperties": False,
}


def allowed(mode: str, *tools: dict[str, Any]) -> dict[str, Any]:
    return {"type": "allowed_tools", "mode": mode, "tools": list(tools)}


@pytest.mark.parametrize(
    ("choice", "left"),
    [
        (None, TOOLS),
        ("auto", TOOLS),
        ("required", TOOLS),
        ("none", []),
        (NAMED, [LOOK]),
        ({"type": "web_search"}, [SEARCH]),
        (allowed("auto", LISTEN, SEARCH), [LISTEN, SEARCH]),
        (allowed("required", NAMED), [LOOK]),
    ],
)
def test_a_choice_that_cannot_be_sent_leaves_some_tools(choice: Any, left: Any):
    assert filter_by_choice(TOOLS, choice) == left


@pytest.mark.parametrize(
    ("choice", "forced"),
    [
        (None, False),
        ("auto", False),
        ("none", False),
        ("required", True),
        (NAMED, True),
        (allowed("auto", NAMED), False),
        (allowed("required", NAMED), True),
    ],
)
def test_a_choice_forces_a_call_or_does_not(choice: Any, forced: bool):
    assert is_forced(choice) is forced


def test_a_schema_is_opened_at_every_depth_and_nothing_else_is_lost():
    shut = {"anyOf": [SCHEMA], "additionalProperties": {"type": "string"}}
    at = {"type": "object"}
    assert open_schema(shut) == {
        "anyOf": [{"type": "object", "properties": {"at": at}}],
        "additionalProperties": {"type": "string"},
    }


# Hosts


def encoded_by(kind: str, codec: str = "", **fields: Any) -> dict[str, Any]:
    return codec_of(kind, codec).encode(request_with(**fields))


def lost(kind: str, codec: str = "", **fields: Any) -> list[str]:
    return codec_of(kind, codec).degraded(request_with(**fields))


def codec_of(kind: str, codec: str) -> Any:
    return all_providers()[kind].codec(codec)


def request_with(**fields: Any) -> Request:
    known = {"model": "some-model", "items": [user_message("Hello")], **fields}
    return Request(**known)


def effort(word: str) -> dict[str, Any]:
    return {"reasoning": {"effort": word}}


FUNCTION = {"type": "function", "name": "look", "parameters": SCHEMA}


@pytest.mark.parametrize("codec", ["openai_responses", "openai_chat"])
@pytest.mark.parametrize("choice", ["required", NAMED, "auto", None])
def test_meta_never_receives_a_tool_choice(codec: str, choice: Any):
    body = encoded_by("meta", codec, tools=[FUNCTION], tool_choice=choice)
    assert "tool_choice" not in body
    assert len(body["tools"]) == 1
    degraded = lost("meta", codec, tools=[FUNCTION], tool_choice=choice)
    assert degraded == (["tool_choice"] if is_forced(choice) else [])


@pytest.mark.parametrize(
    ("kind", "codec"), [("meta", ""), ("meta", "openai_chat"), ("ollama", "")]
)
def test_tools_that_must_not_be_called_are_not_shown_there(kind: str, codec: str):
    body = encoded_by(kind, codec, tools=[FUNCTION], tool_choice="none")
    assert not {"tools", "tool_choice"} & body.keys()


def test_meta_always_reasons():
    assert encoded_by("meta", **effort("none"))["reasoning"] == {"effort": "minimal"}
    assert encoded_by("meta")["include"] == ["reasoning.encrypted_content"]
    assert lost("meta", **effort("none")) == ["reasoning.effort"]
    assert lost("meta", **effort("max")) == []


def test_deepseek_has_a_switch_for_not_thinking():
    body = encoded_by("deepseek", **effort("none"))
    assert body["thinking"] == {"type": "disabled"}
    assert "reasoning_effort" not in body
    body = encoded_by("deepseek", **effort("high"))
    assert body["reasoning_effort"] == "high"
    assert "thinking" not in body


def test_groq_is_asked_to_separate_reasoning_where_it_would_not():
    assert encoded_by("groq", model="qwen/qwen3-32b")["reasoning_format"] == "parsed"
    assert "reasoning_format" not in encoded_by("groq", model="openai/gpt-oss-120b")
    own = encoded_by("groq", model="qwen/x", extra={"reasoning_format": "hidden"})
    assert own["reasoning_format"] == "hidden"


def test_logprobs_are_not_sent_to_groq():
    assert "logprobs" not in encoded_by("groq", top_logprobs=2)
    assert lost("groq", top_logprobs=2) == ["top_logprobs"]


@pytest.mark.parametrize(
    "kind", ["cerebras", "fireworks", "groq", "sambanova", "together"]
)
def test_hosts_of_gpt_oss_know_three_efforts(kind: str):
    words = ["minimal", "low", "medium", "high", "xhigh", "max"]
    sent = [encoded_by(kind, **effort(word))["reasoning_effort"] for word in words]
    assert sent == ["low", "low", "medium", "high", "high", "high"]
    assert lost(kind, **effort("max")) == ["reasoning.effort"]


def test_penalties_are_not_sent_to_cerebras():
    penalties = {"presence_penalty": 0.5, "frequency_penalty": 0.5}
    assert not penalties.keys() & encoded_by("cerebras", **penalties).keys()
    assert lost("cerebras", **penalties) == ["frequency_penalty", "presence_penalty"]


@pytest.mark.parametrize("codec", ["openai_responses", "openai_chat"])
def test_xai_is_shown_no_closed_schema(codec: str):
    form = {"type": "json_schema", "name": "n", "schema": SCHEMA}
    body = encoded_by("xai", codec, tools=[FUNCTION], text={"format": form})
    assert "additionalProperties" not in str(body)
    assert "at" in str(body["tools"])


def test_openrouter_is_asked_for_the_cost_and_receives_our_name():
    assert encoded_by("openrouter")["usage"] == {"include": True}
    assert all_providers()["openrouter"].headers == {"X-Title": "Parley"}
    sent = encoded_by("openrouter", **effort("none"))["reasoning"]
    assert sent == {"effort": "none"}


def test_perplexity_has_one_system_message_in_front():
    items = [user_message("Hello"), {**user_message("Be brief."), "role": "system"}]
    messages = encoded_by("perplexity", items=items, instructions="Be kind.")[
        "messages"
    ]
    assert [message["role"] for message in messages] == ["system", "user"]
    assert messages[0]["content"] == "Be kind.\n\nBe brief."


def test_an_option_without_a_field_is_reported():
    wishes = {
        "metadata": {"team": "a"},
        "service_tier": "flex",
        "text": {"verbosity": "low"},
    }
    assert lost("together", **wishes) == [
        "metadata",
        "service_tier",
        "text.verbosity",
    ]
    assert lost("openai", "openai_chat", **wishes) == []
    assert lost("openai", **wishes, seed=7) == ["seed"]
    assert lost("xai", **wishes, top_logprobs=3) == [
        "metadata",
        "service_tier",
        "text.verbosity",
        "top_logprobs",
    ]


def test_ollama_does_not_support_serial_calls():
    fields = {"tools": [FUNCTION], "parallel_tool_calls": False}
    assert lost("ollama", **fields) == ["parallel_tool_calls"]
    assert lost("ollama", parallel_tool_calls=False) == []


def test_hosts_of_llama_receive_schemas_without_references():
    schema = {
        "type": "object",
        "properties": {"at": {"$ref": "#/$defs/Place"}},
        "$defs": {"Place": {"type": "string"}},
    }
    plain = {"type": "object", "properties": {"at": {"type": "string"}}}
    tools = [{**FUNCTION, "parameters": schema}]
    form = {"format": {"type": "json_schema", "name": "f", "schema": schema}}
    for kind, wanted in {"groq": plain, "ollama": plain, "mistral": schema}.items():
        body = encoded_by(kind, tools=tools, text=form)
        assert body["tools"][0]["function"]["parameters"] == wanted
        assert body["response_format"]["json_schema"]["schema"] == wanted


def test_an_instruction_moved_to_the_front_is_reported():
    early = [{**user_message("Be brief."), "role": "developer"}, user_message("Hi")]
    assert lost("vllm", items=early) == []
    assert lost("vllm", items=early[::-1]) == ["input"]
    assert lost("groq", items=early[::-1]) == []
