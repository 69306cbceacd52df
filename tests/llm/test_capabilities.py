from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm.capabilities import (
    EFFORTS,
    FIELD_NAMES,
    Capabilities,
    capabilities_of,
    problems,
)
from llm.providers import all_providers
from llm.wire.codecs.anthropic.model_capabilities import traits_of
from llm.wire.codecs.gemini.model_capabilities import takes_effort, thinks

ALL_BUT = {
    "minimal": ["none", "low", "medium", "high", "xhigh", "max"],
    "none, minimal": ["low", "medium", "high", "xhigh", "max"],
}


def capability_fields(kind: str, name: str, wire: str = "") -> dict[str, Any]:
    return capabilities_of(kind, name, wire=wire).to_dict()


# The data


@pytest.mark.parametrize(
    ("kind", "name", "efforts", "sampling"),
    [
        ("openai", "gpt-6-astra", ALL_BUT["none, minimal"], "never"),
        ("openai", "gpt-6.1-sol", ALL_BUT["none, minimal"], "never"),
        ("openai", "gpt-6-luna", ALL_BUT["minimal"], "without_reasoning"),
        ("openai", "gpt-6.1-terra", ALL_BUT["minimal"], "without_reasoning"),
        ("openai", "gpt-5.6-sol-2026-08-01", ALL_BUT["minimal"], "without_reasoning"),
        (
            "openai",
            "gpt-5.5",
            ["none", "low", "medium", "high", "xhigh"],
            "without_reasoning",
        ),
        ("openai", "gpt-5.5-pro", ["medium", "high", "xhigh"], "never"),
        (
            "azure_openai",
            "gpt-5.1",
            ["none", "low", "medium", "high"],
            "without_reasoning",
        ),
        ("openai", "gpt-5.2-chat-latest", ["medium"], "never"),
        ("openai", "gpt-5", ["minimal", "low", "medium", "high"], "never"),
        ("openai", "gpt-5-2025-08-07", ["minimal", "low", "medium", "high"], "never"),
        ("openai", "gpt-5-pro", ["high"], "never"),
        ("openai", "gpt-5-chat-latest", None, "always"),
        ("openai", "gpt-5.3-codex", None, None),
        ("openai", "o4-mini", ["low", "medium", "high"], "never"),
        ("openai", "gpt-4o", None, "always"),
        ("openai", "ft:gpt-4.1-mini:org::id", None, "always"),
        ("anthropic", "claude-fable-5-2", ALL_BUT["none, minimal"], "never"),
        ("anthropic", "claude-opus-5-20260301", ALL_BUT["minimal"], "never"),
        (
            "anthropic",
            "claude-sonnet-4-6",
            ["none", "low", "medium", "high", "max"],
            "without_reasoning",
        ),
        (
            "anthropic",
            "claude-haiku-4-5-20251001",
            ["none", "low", "medium", "high"],
            "without_reasoning",
        ),
        ("anthropic", "claude-3-5-haiku-latest", None, "always"),
        ("gemini", "gemini-3.8-flash", ["low", "medium", "high"], "always"),
        (
            "vertex",
            "gemini-3.5-flash-lite",
            ["minimal", "low", "medium", "high"],
            "always",
        ),
        (
            "gemini",
            "models/gemini-2.5-flash",
            ["none", "minimal", "low", "medium", "high"],
            "always",
        ),
        ("gemini", "gemini-2.0-flash", None, "always"),
        ("xai", "grok-4.7", ["low", "medium", "high", "xhigh"], "always"),
        ("xai", "grok-4.5-latest", ["low", "medium", "high"], "always"),
        ("xai", "grok-4-0709", ["none", "low", "medium", "high"], "always"),
        ("xai", "grok-4.20-0309-reasoning", [], "always"),
        ("xai", "grok-3-mini-fast", ["none", "low", "high"], "always"),
        ("groq", "openai/gpt-oss-120b", ["low", "medium", "high"], None),
        ("ollama", "gpt-oss:20b", [e for e in EFFORTS if e != "default"], None),
    ],
)
def test_which_efforts_are_legal_and_when_sampling_is(
    kind: str, name: str, efforts: list[str] | None, sampling: str | None
):
    known = capability_fields(kind, name)
    assert known.get("efforts") == efforts
    assert known.get("sampling") == sampling


@pytest.mark.parametrize(
    ("kind", "name", "window", "output"),
    [
        ("openai", "gpt-6-sol", 1_050_000, 128_000),
        ("openai", "gpt-5.4", 1_050_000, 128_000),
        ("openai", "gpt-5.4-mini", 400_000, 128_000),
        ("openai", "gpt-4.1", 1_047_576, 32_768),
        ("openai", "gpt-4o-mini", 128_000, 16_384),
        ("anthropic", "claude-sonnet-5-5", 1_000_000, 128_000),
        ("anthropic", "claude-opus-4-1-20250805", 200_000, 32_000),
        ("gemini", "gemini-4-argon", 1_048_576, 1_048_576),
        ("gemini", "gemini-2.5-pro", 1_048_576, 65_536),
        ("xai", "grok-4.6", 500_000, None),
        ("together", "meta-llama/Llama-3.3-70B-Instruct-Turbo", 131_072, None),
        ("perplexity", "sonar-pro", 200_000, None),
        ("meta", "muse-spark-1.3", 1_048_576, 131_072),
        ("openai_compatible", "something-else", None, None),
    ],
)
def test_how_much_fits(kind: str, name: str, window: int | None, output: int | None):
    known = capabilities_of(kind, name)
    assert (known.context_window, known.max_output_tokens) == (window, output)


@pytest.mark.parametrize(
    ("kind", "name", "field", "value"),
    [
        ("anthropic", "claude-opus-5-5", "forced_tools", False),
        ("anthropic", "claude-sonnet-5-5", "forced_tools", False),
        ("anthropic", "claude-fable-5", "forced_tools", True),
        ("anthropic", "claude-opus-4-5", "forced_while_reasoning", False),
        ("anthropic", "claude-sonnet-4-20250514", "json_schema", False),
        ("meta", "muse-spark-1.3", "forced_tools", False),
        ("ollama", "llama3.1:8b", "forced_tools", False),
        ("ollama", "llama3.1:8b", "vision", False),
        ("vllm", "meta-llama/Llama-4-Scout-17B", "vision", True),
        ("openrouter", "nvidia/llama-3.1-nemotron-ultra-253b", "reasoning", None),
        ("openai", "o3-mini", "vision", False),
        ("openai", "gpt-4o-audio-preview", "vision", None),
        ("openai", "gpt-3.5-turbo", "json_schema", False),
        ("xai", "grok-4.7", "stop", False),
        ("xai", "grok-3", "stop", None),
        ("groq", "whatever", "logprobs", False),
        ("deepseek", "deepseek-v4-pro", "forced_while_reasoning", False),
    ],
)
def test_peculiarities_of_some_models(kind: str, name: str, field: str, value: Any):
    assert getattr(capabilities_of(kind, name), field) is value


def test_an_unknown_model_is_assumed_to_support_everything():
    assert capability_fields("openai_compatible", "my-own-7b") == {}


@pytest.mark.parametrize("kind", all_providers())
def test_the_model_that_a_host_proposes_can_be_used(kind: str):
    host = all_providers()[kind]
    known = capabilities_of(kind, host.default_model, wire=host.codec().name)
    assert known.tools is not False
    assert known.efforts != ()


# The layers


def test_a_wire_format_without_the_word_takes_the_option_from_all_its_models():
    assert capabilities_of("openai", "gpt-4o").stop is None
    on_responses = capabilities_of("openai", "gpt-4o", wire="openai_responses")
    assert (on_responses.stop, on_responses.seed) == (False, False)


def test_one_model_may_take_less_on_another_wire():
    on_chat = capabilities_of("openai", "gpt-6-luna", wire="openai_chat").efforts
    assert (
        "max"
        in (capability_fields("openai", "gpt-6-luna", "openai_responses")["efforts"])
    )
    assert on_chat is not None
    assert "max" not in on_chat


def test_newer_anthropic_models_have_no_sampling_options():
    name = "claude-haiku-4-5"
    assert capability_fields("anthropic", name, "anthropic")["sampling"] == "never"
    older = capability_fields("anthropic", name, "anthropic_2023")
    assert older["sampling"] == "without_reasoning"
    assert older["seed"] is False


def test_the_staff_have_the_last_word():
    overrides = {"vision": True, "sampling": "always", "context_window": 7}
    known = capabilities_of("openai", "o3-mini", overrides, wire="openai_responses")
    assert (known.vision, known.sampling, known.context_window) == (True, "always", 7)
    assert known.efforts == ("low", "medium", "high")


def test_null_makes_a_field_unknown_again():
    assert capabilities_of("openai", "o3-mini", {"efforts": None}).efforts is None


def test_invalid_capabilities_of_staff_change_nothing():
    overrides = {"vision": "no", "efforts": ["lots"], "sampling": 3, "visoin": True}
    assert capabilities_of("openai", "o3", overrides) == capabilities_of("openai", "o3")


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        ({"vision": True, "efforts": [], "max_output_tokens": 8}, ""),
        ({"vision": None, "sampling": False, "max_temperature": 1.5}, ""),
        ({"visoin": True}, "'visoin' is unknown; use tools, parallel_tools, "),
        ({"vision": 1}, "'vision' cannot be 1; use true or false."),
        ({"efforts": "low"}, "'efforts' cannot be 'low'; write a list of none"),
        ({"efforts": [{}]}, "'efforts' cannot be [{}]; write a list of none"),
        ({"sampling": "no"}, "'sampling' cannot be 'no'; use one of always, "),
        ({"default_effort": "?"}, "'default_effort' cannot be '?'; use one of none"),
        ({"context_window": True}, "'context_window' cannot be True; use a whole "),
        ({"max_temperature": -1}, "'max_temperature' cannot be -1; use a number "),
        ([], "Capabilities must be an object of names and values."),
    ],
)
def test_invalid_capabilities_of_staff_are_reported(overrides: Any, problem: str):
    found = " ".join(problems(overrides))
    assert found.startswith(problem)
    assert bool(found) == bool(problem)


def test_a_boolean_for_sampling_means_always_or_never():
    assert Capabilities.from_dict({"sampling": True}).sampling == "always"
    assert Capabilities.from_dict({"sampling": False}).sampling == "never"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from(FIELD_NAMES) | st.text(max_size=3), json_values))
def test_nothing_that_is_json_breaks_it(overrides: dict[str, Any]):
    known = Capabilities.from_dict(overrides)
    assert Capabilities.from_dict(known.to_dict()) == known
    assert problems(known.to_dict()) == []


@pytest.mark.parametrize(
    ("known", "effort", "reasons"),
    [
        (Capabilities(reasoning=False), "high", False),
        (Capabilities(reasoning=True), None, None),
        (Capabilities(reasoning=True), "low", True),
        (Capabilities(reasoning=True), "none", False),
        (Capabilities(default_effort="none"), None, False),
        (Capabilities(default_effort="medium"), None, True),
        (Capabilities(default_effort="medium"), "none", False),
        (Capabilities(), None, None),
    ],
)
def test_whether_it_reasons(known: Capabilities, effort: str | None, reasons):
    assert known.reasons(effort) is reasons


# Nothing here contradicts what the codecs act on

CLAUDES = [
    "claude-fable-5-2",
    "claude-fable-5",
    "claude-mythos-5-1",
    "claude-opus-5-5",
    "claude-opus-5",
    "claude-sonnet-5-5",
    "claude-sonnet-5-20260801",
    "claude-haiku-5-5",
    "claude-opus-4-8",
    "claude-opus-4-7",
    "claude-opus-4-6",
    "claude-sonnet-4-6",
    "claude-opus-4-5",
    "claude-haiku-4-5-20251001",
    "claude-opus-4-1-20250805",
    "claude-sonnet-4-20250514",
    "claude-3-7-sonnet-latest",
    "claude-3-5-haiku-latest",
]


@pytest.mark.parametrize("name", CLAUDES)
def test_the_codec_for_claude_knows_no_better(name: str):
    known, traits = capabilities_of("anthropic", name), traits_of(name)
    assert known.forced_tools is (traits.forced_tools != "never")
    unless_thinking = traits.forced_tools == "unless_thinking"
    assert (known.forced_while_reasoning is False) == unless_thinking
    assert (known.sampling == "never") == (not traits.samples)
    assert known.json_schema is traits.structured
    assert (known.reasoning is False) == (not traits.thinking)
    if traits.efforts:
        assert [e for e in known.efforts or () if e != "none"] == [*traits.efforts]
        assert ("none" in (known.efforts or ())) == ("disabled" in traits.thinking)


@pytest.mark.parametrize(
    "name",
    [
        "gemini-4-argon",
        "gemini-3.8-flash",
        "gemini-3.5-flash-lite",
        "gemini-3.1-pro-preview",
        "gemini-3-pro-preview",
        "gemini-3-flash-preview",
        "gemini-2.5-pro",
        "gemini-2.5-flash",
        "gemini-2.0-flash",
    ],
)
def test_the_codec_for_gemini_knows_no_better(name: str):
    known = capabilities_of("gemini", name)
    assert (known.reasoning is not False) == thinks(name)
    if thinks(name):
        legal = [effort for effort in EFFORTS if takes_effort(name, effort)]
        assert list(known.efforts or ()) == legal
