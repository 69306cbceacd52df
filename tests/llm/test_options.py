from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm.capabilities import EFFORTS, Capabilities, capabilities_of
from llm.errors import BadRequest
from llm.options import FitResult, find_approximations, fit, nearest_effort
from llm.providers import all_providers
from llm.wire.codecs.anthropic.codec import AnthropicCodec
from llm.wire.items import Item, function_call_output, message, user_message
from llm.wire.request import Request

TOOL = {"type": "function", "name": "look", "parameters": {"type": "object"}}
NAMED = {"type": "function", "name": "look"}
ALLOWED = {"type": "allowed_tools", "mode": "required", "tools": [NAMED]}
SCHEMA = {"type": "json_schema", "name": "a", "schema": {"type": "object"}}
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AA=="}
PDF = {"type": "input_file", "file_data": "data:application/pdf;base64,AA=="}
NOTE = {"type": "input_file", "file_data": "data:text/plain,hi"}

REASONER = {"reasoning": True, "efforts": ("low", "medium", "high")}
SWITCHABLE = {"efforts": ("none", "low"), "sampling": "without_reasoning"}


HI = user_message("Hi")


def asking(**options: Any) -> Request:
    return Request(**{"model": "m-1", "items": [HI], **options})


def fitted(request: Request, *, ignore: bool = False, **can: Any) -> FitResult:
    known = Capabilities(**can)
    return fit(request, known, model_name="ours/m", ignore_invalid=ignore)


def shows(*parts: dict[str, Any]) -> Item:
    return {"type": "message", "role": "user", "content": list(parts)}


# Unsupported options: the request, the model's capabilities, the named option,
# the error, and the result where the option may be dropped.
REFUSED = [
    (
        {"tools": [TOOL], "tool_choice": "auto", "parallel_tool_calls": True},
        {"tools": False},
        "tools",
        "The model 'ours/m' does not support 'tools'; leave them out.",
        {"tools": (), "tool_choice": None, "parallel_tool_calls": None},
        "tools",
    ),
    (
        {"tools": [TOOL], "tool_choice": "required"},
        {"forced_tools": False},
        "tool_choice",
        "The model 'ours/m' cannot be forced to call a tool; 'tool_choice' may be"
        " 'auto'"
        " or 'none'.",
        {"tool_choice": "auto"},
        "tool_choice",
    ),
    (
        {"tools": [TOOL], "tool_choice": NAMED},
        {"forced_tools": False},
        "tool_choice",
        "cannot be forced to call a tool; ",
        {"tool_choice": "auto"},
        "tool_choice",
    ),
    (
        {"tools": [TOOL], "tool_choice": ALLOWED},
        {"forced_tools": False},
        "tool_choice",
        "cannot be forced to call a tool; ",
        {"tool_choice": {**ALLOWED, "mode": "auto"}},
        "tool_choice",
    ),
    (
        {"tools": [TOOL], "tool_choice": "required", "reasoning": {"effort": "low"}},
        {"forced_while_reasoning": False, "efforts": ("none", "low")},
        "tool_choice",
        "cannot be forced to call a tool while it reasons; 'tool_choice' may be 'auto'"
        " or"
        " 'none', or set 'reasoning.effort' to 'none'.",
        {"tool_choice": "auto"},
        "tool_choice",
    ),
    (
        {"reasoning": {"effort": "high"}},
        {"reasoning": False},
        "reasoning.effort",
        "The model 'ours/m' does not reason; leave 'reasoning' out.",
        {"reasoning": None},
        "reasoning.effort",
    ),
    (
        {"reasoning": {"effort": "max", "summary": "auto"}},
        REASONER,
        "reasoning.effort",
        "The model 'ours/m' does not support the 'reasoning.effort' 'max'; it may be"
        " 'low', 'medium' or 'high'.",
        {"reasoning": {"summary": "auto", "effort": "high"}},
        "reasoning.effort (max → high)",
    ),
    (
        {"reasoning": {"effort": "low"}},
        {"efforts": ("high",)},
        "reasoning.effort",
        "does not support the 'reasoning.effort' 'low'; it may be 'high'.",
        {"reasoning": {"effort": "high"}},
        "reasoning.effort (low → high)",
    ),
    (
        {"reasoning": {"effort": "low", "summary": "auto"}},
        {"reasoning": True, "efforts": ()},
        "reasoning.effort",
        "decides itself how much it reasons and does not support 'reasoning.effort';"
        " leave it out.",
        {"reasoning": {"summary": "auto"}},
        "reasoning.effort",
    ),
    (
        {"temperature": 0.0},
        {"sampling": "never"},
        "temperature",
        "The model 'ours/m' does not support 'temperature'; leave it out.",
        {"temperature": None},
        "temperature",
    ),
    (
        {"top_p": 0.5},
        {**SWITCHABLE, "default_effort": "low"},
        "top_p",
        "does not support 'top_p' while it reasons; leave it out, or set"
        " 'reasoning.effort' to 'none'.",
        {"top_p": None},
        "top_p",
    ),
    (
        {"top_logprobs": 2, "reasoning": {"effort": "low"}},
        {"sampling": "without_reasoning", "default_effort": "none"},
        "top_logprobs",
        "does not support 'top_logprobs' while it reasons; leave it out, or leave"
        " 'reasoning' out.",
        {"top_logprobs": None},
        "top_logprobs",
    ),
    (
        {"presence_penalty": 0.5},
        {"penalties": False},
        "presence_penalty",
        "does not support 'presence_penalty'; leave it out.",
        {"presence_penalty": None},
        "presence_penalty",
    ),
    (
        {"top_logprobs": 1},
        {"logprobs": False},
        "top_logprobs",
        "does not support 'top_logprobs'; leave it out.",
        {"top_logprobs": None},
        "top_logprobs",
    ),
    (
        {"temperature": 1.7},
        {"max_temperature": 1},
        "temperature",
        "does not support a 'temperature' of 1.7; it may be from 0 to 1.",
        {"temperature": 1},
        "temperature (1.7 → 1)",
    ),
    (
        {"stop": ["\n"]},
        {"stop": False},
        "stop",
        "does not support 'stop'; leave it out.",
        {"stop": ()},
        "stop",
    ),
    (
        {"max_output_tokens": 9000},
        {"max_output_tokens": 8192},
        "max_output_tokens",
        "cannot write 9000 tokens; 'max_output_tokens' may be 8192 at most.",
        {"max_output_tokens": 8192},
        "max_output_tokens (9000 → 8192)",
    ),
    (
        {"text": {"format": SCHEMA, "verbosity": "low"}},
        {"json_schema": False, "json_mode": True},
        "text.format",
        "does not support a JSON Schema for its answer; 'text.format' may be of the"
        " type 'text'"
        " or 'json_object'.",
        {"text": {"verbosity": "low", "format": {"type": "json_object"}}},
        "text.format (json_schema → json_object)",
    ),
    (
        {"text": {"format": SCHEMA}},
        {"json_schema": False, "json_mode": False},
        "text.format",
        "does not support a JSON Schema for its answer; 'text.format' may be of the"
        " type 'text'.",
        {"text": None},
        "text.format",
    ),
    (
        {"text": {"format": {"type": "json_object"}}},
        {"json_mode": False},
        "text.format",
        "has no JSON mode; 'text.format' may be of the type 'text' or 'json_schema'.",
        {"text": None},
        "text.format",
    ),
    (
        {"items": [shows(IMAGE)]},
        {"vision": False},
        "input",
        "The model 'ours/m' cannot see images; leave them out of 'input' or choose"
        " another model.",
        {
            "items": [
                shows(
                    {
                        "type": "input_text",
                        "text": "[An image stood here that you cannot see.]",
                    }
                )
            ]
        },
        "input (without input_image)",
    ),
    (
        {"items": [shows(NOTE, PDF)]},
        {"files": False},
        "input",
        "cannot read files of this type; send their text in 'input' or choose another"
        " model.",
        {
            "items": [
                shows(
                    NOTE,
                    {
                        "type": "input_text",
                        "text": "[A file stood here that you cannot read.]",
                    },
                )
            ]
        },
        "input (without input_file)",
    ),
]
refused = pytest.mark.parametrize(
    ("options", "can", "param", "message", "instead", "dropped"), REFUSED
)


@refused
def test_an_unsupported_option_is_refused_by_name(
    options, can, param, message, instead, dropped
):
    with pytest.raises(BadRequest) as caught:
        fitted(asking(**options), **can)
    assert message in str(caught.value)
    assert str(caught.value).startswith("The model 'ours/m' ")
    assert caught.value.param == param


@refused
def test_or_dropped_and_reported_where_the_caller_allows_it(
    options, can, param, message, instead, dropped
):
    request = asking(**options)
    assert fitted(request, ignore=True, **can) == FitResult(
        asking(**{**options, **instead}), (dropped,)
    )


@refused
def test_an_unknown_model_receives_every_option(
    options, can, param, message, instead, dropped
):
    request = asking(**options)
    result = fitted(request)
    assert result.request is request
    assert result.dropped == ()


@refused
def test_fitted_options_fit(options, can, param, message, instead, dropped):
    once = fitted(asking(**options), ignore=True, **can).request
    assert fitted(once, **can) == FitResult(once)


@pytest.mark.parametrize(
    ("options", "can"),
    [
        ({"tools": [TOOL], "tool_choice": "auto"}, {"forced_tools": False}),
        ({"tools": [TOOL], "tool_choice": "none"}, {"forced_tools": False}),
        ({"tools": [TOOL], "tool_choice": "required"}, {"forced_tools": True}),
        # Without tools the choice is not sent at all.
        ({"tool_choice": "required"}, {"forced_tools": False}),
        (
            {"tools": [TOOL], "tool_choice": {**ALLOWED, "mode": "auto"}},
            {"forced_tools": False},
        ),
        (
            {"tools": [TOOL], "tool_choice": "required"},
            {"forced_while_reasoning": False, "default_effort": "none"},
        ),
        ({"reasoning": {"effort": "low"}}, REASONER),
        ({"reasoning": {"summary": "auto"}}, REASONER),
        ({"temperature": 1.0}, {**SWITCHABLE, "default_effort": "none"}),
        ({"temperature": 1.0, "reasoning": {"effort": "none"}}, SWITCHABLE),
        ({"temperature": 1.0}, {"sampling": "without_reasoning", "reasoning": False}),
        ({"presence_penalty": 0.0, "top_logprobs": 0}, {"sampling": "never"}),
        ({"max_output_tokens": 8192}, {"max_output_tokens": 8192}),
        ({"text": {"format": {"type": "text"}}}, {"json_schema": False}),
        ({"text": {"format": SCHEMA}}, {"json_schema": True, "json_mode": False}),
        ({"items": [shows(NOTE)]}, {"files": False, "vision": False}),
        ({"items": [HI]}, {"files": False, "vision": False}),
        ({"items": [{"type": "message", "content": "Hi"}]}, {"vision": False}),
    ],
)
def test_supported_options_are_sent_unchanged(options, can):
    request = asking(**options)
    assert fitted(request, **can).request is request


# Wishes


@pytest.mark.parametrize(
    ("options", "can", "instead", "dropped"),
    [
        ({"seed": 7}, {"seed": False}, {"seed": None}, "seed"),
        (
            {"text": {"verbosity": "low"}},
            {"verbosity": False},
            {"text": None},
            "text.verbosity",
        ),
        (
            {"text": {"verbosity": "low", "format": SCHEMA}},
            {"verbosity": False},
            {"text": {"format": SCHEMA}},
            "text.verbosity",
        ),
        (
            {"parallel_tool_calls": True},
            {"parallel_tools": False},
            {"parallel_tool_calls": None},
            "parallel_tool_calls",
        ),
        (
            {"reasoning": {"summary": "auto"}},
            {"reasoning": False},
            {"reasoning": None},
            "reasoning",
        ),
    ],
)
def test_an_ignored_option_is_reported_and_the_answer_remains(
    options, can, instead, dropped
):
    assert fitted(asking(**options), **can) == FitResult(
        asking(**{**options, **instead}), (dropped,)
    )


def test_not_to_reason_is_granted_by_a_model_that_cannot():
    request = asking(reasoning={"effort": "none"})
    assert fitted(request, reasoning=False) == FitResult(asking(reasoning=None))


# Efforts


@pytest.mark.parametrize(
    ("effort", "legal", "nearest"),
    [
        ("none", ["low", "high"], "low"),
        ("none", ["none", "low"], "none"),
        ("minimal", ["none", "low"], "low"),
        ("low", ["minimal", "high"], "minimal"),
        ("medium", ["none", "low", "high"], "low"),
        ("xhigh", ["low", "medium", "high"], "high"),
        ("max", ["medium", "xhigh"], "xhigh"),
        ("low", ["high"], "high"),
        ("low", ["none"], "none"),
        ("high", ["none", "default"], "default"),
        ("unheard-of", ["low", "high"], "high"),
        ("low", [], None),
    ],
)
def test_the_nearest_effort_is_below_rather_than_above(effort, legal, nearest):
    assert nearest_effort(effort, legal) == nearest


@given(st.sampled_from(EFFORTS), st.sets(st.sampled_from(EFFORTS)))
def test_the_nearest_effort_is_legal(effort: str, legal: set[str]):
    near = nearest_effort(effort, sorted(legal))
    assert near in legal or (near is None and not legal)
    if effort in legal:
        assert near == effort


def test_sampling_is_judged_by_the_effort_that_is_sent():
    request = asking(reasoning={"effort": "none"}, temperature=0.5)
    result = fitted(
        request, ignore=True, efforts=("low",), sampling=SWITCHABLE["sampling"]
    )
    assert result.dropped == ("reasoning.effort (none → low)", "temperature")


# What lies in the past


def test_an_image_that_was_shown_to_an_earlier_model_does_not_end_the_conversation():
    items = [shows(IMAGE), message("assistant", "A cat."), user_message("Sure?")]
    result = fitted(asking(items=items), vision=False)
    assert result.dropped == ("input (without input_image)",)
    assert "image stood here" in result.request.items[0]["content"][0]["text"]
    assert result.request.items[1:] == items[1:]
    assert items[0] == shows(IMAGE)


@pytest.mark.parametrize("kind", ["function_call_output", "custom_tool_call_output"])
def test_an_image_that_a_tool_drew_does_not_either(kind: str):
    output = {**function_call_output("c1", [IMAGE]), "type": kind}
    items = [user_message("Draw."), output]
    result = fitted(asking(items=items), vision=False)
    assert result.dropped == ("input (without input_image)",)
    assert result.request.items[1]["output"][0]["type"] == "input_text"


def test_an_input_may_be_several_messages():
    items = [message("assistant", "Hi"), shows(IMAGE), user_message("What is it?")]
    with pytest.raises(BadRequest, match="cannot see images"):
        fitted(asking(items=items), vision=False)


# All together


def test_several_things_at_once_are_all_reported():
    request = asking(temperature=1.0, top_p=1.0, seed=1, stop=["x"])
    known = capabilities_of("openai", "gpt-6-astra", wire="openai_responses")
    result = fit(request, known, model_name="m", ignore_invalid=True)
    assert result == FitResult(asking(), ("temperature", "top_p", "stop", "seed"))


everything = st.fixed_dictionaries(
    {},
    optional={
        "tools": st.just([TOOL]),
        "tool_choice": st.sampled_from(["auto", "none", "required", NAMED, ALLOWED]),
        "parallel_tool_calls": st.booleans(),
        "max_output_tokens": st.sampled_from([16, 4096, 2_000_000]),
        "temperature": st.sampled_from([0.0, 1.0, 2.0]),
        "top_p": st.just(0.5),
        "reasoning": st.fixed_dictionaries(
            {},
            optional={"effort": st.sampled_from(EFFORTS), "summary": st.just("auto")},
        ),
        "text": st.fixed_dictionaries(
            {},
            optional={
                "format": st.sampled_from([SCHEMA, {"type": "json_object"}]),
                "verbosity": st.just("low"),
            },
        ),
        "stop": st.just(["x"]),
        "seed": st.just(1),
        "presence_penalty": st.sampled_from([0.0, 1.0]),
        "top_logprobs": st.sampled_from([0, 3]),
        "items": st.sampled_from([[shows(IMAGE, PDF)], [HI]]),
    },
)
MODELS = [
    ("openai", "gpt-6-astra", "openai_responses"),
    ("openai", "gpt-6-luna", "openai_chat"),
    ("openai", "gpt-4o", "openai_responses"),
    ("openai", "gpt-3.5-turbo", "openai_chat"),
    ("anthropic", "claude-opus-5-5", "anthropic"),
    ("anthropic", "claude-haiku-4-5", "anthropic_2023"),
    ("gemini", "gemini-3.8-flash", "gemini"),
    ("gemini", "gemini-2.0-flash", "gemini"),
    ("xai", "grok-4.20-reasoning", "openai_responses"),
    ("groq", "openai/gpt-oss-120b", "openai_chat"),
    ("ollama", "llama3.1:8b", "openai_chat"),
    ("meta", "muse-spark-1.3", "openai_responses"),
]


@given(everything, st.sampled_from(MODELS))
def test_every_combination_of_options_can_be_fitted(options, model):
    kind, name, wire = model
    known = capabilities_of(kind, name, wire=wire)
    request = asking(**options)
    result = fit(request, known, model_name=name, ignore_invalid=True)
    assert (result.request == request) or result.dropped or "reasoning" in options
    assert fit(result.request, known, model_name=name) == FitResult(result.request)


# Codecs


class Candid:
    def degraded(self, request: Request) -> list[str]:
        return ["seed"] if request.seed else []


def test_an_approximation_of_a_codec_is_reported():
    assert find_approximations(Candid(), asking(seed=1)) == ("seed",)
    assert find_approximations(object(), asking(seed=1)) == ()


@pytest.mark.parametrize(
    "options",
    [
        {"text": {"format": {**SCHEMA, "schema": {"properties": [1]}}}},
        {"tools": [{"type": "function", "name": "f", "parameters": {"$ref": 5}}]},
    ],
)
def test_a_schema_that_cannot_be_read_is_refused(options: dict[str, Any]):
    with pytest.raises(BadRequest, match="JSON Schemas"):
        find_approximations(
            AnthropicCodec(), asking(model="claude-sonnet-4-5", **options)
        )


@pytest.mark.parametrize("kind", all_providers())
def test_every_codec_lists_its_approximations(kind: str):
    for codec in all_providers()[kind].codecs.values():
        approximations = find_approximations(
            codec, asking(seed=1, temperature=0.5, tools=[TOOL])
        )
        assert all(isinstance(name, str) for name in approximations)
