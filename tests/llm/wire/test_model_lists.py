from __future__ import annotations

import json
from typing import Any

import pytest

from llm.capabilities import problems
from llm.errors import BadResponse
from llm.management.commands.replay_recordings import (
    LISTS,
    body_of,
    recordings,
    replay,
)
from llm.wire.model_lists import ModelInfo, next_page, parse_models
from tests.llm.wire.test_recordings import FOLDER

RECORDED = {r["id"]: r for r in recordings(FOLDER, api=LISTS)}


def body(*entries: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"object": "list", "data": entries, **more}).encode()


def only(*args: Any, **entry: Any) -> ModelInfo:
    [info] = parse_models(body({**(args[0] if args else {}), **entry}))
    return info


def supported(**names: bool) -> dict[str, Any]:
    return {name: {"supported": value} for name, value in names.items()}


# Shapes


def test_openais_list_contains_only_names():
    entries = [{"id": "gpt-6-luna", "object": "model", "owned_by": "openai"}]
    assert parse_models(body(*entries)) == [ModelInfo(id="gpt-6-luna")]


def test_togethers_is_a_bare_array():
    listed = json.dumps(
        [
            {"id": "a", "type": "chat", "context_length": 131072},
            {"id": "b", "type": "embedding"},
            {"id": "c", "type": "language", "display_name": "C"},
        ]
    ).encode()
    assert parse_models(listed) == [
        ModelInfo(id="a", context_window=131072),
        ModelInfo(id="b", chats=False),
        ModelInfo(id="c", label="C"),
    ]


def test_openrouters_list_contains_parameters_modalities_and_efforts():
    info = only(
        id="openai/gpt-5-nano",
        name="OpenAI: GPT-5 Nano",
        context_length=400000,
        architecture={"input_modalities": ["text", "image"], "output_modalities": None},
        top_provider={"max_completion_tokens": 128000},
        supported_parameters=["max_tokens", "reasoning", "seed", "tools"],
        reasoning={"mandatory": False, "supported_efforts": ["high", "low"]},
    )
    assert info == ModelInfo(
        id="openai/gpt-5-nano",
        label="OpenAI: GPT-5 Nano",
        context_window=400000,
        max_output_tokens=128000,
        capabilities={
            "tools": True,
            "forced_tools": False,
            "json_mode": False,
            "json_schema": False,
            "reasoning": True,
            "stop": False,
            "seed": True,
            "penalties": False,
            "logprobs": False,
            "sampling": "never",
            "vision": True,
            "efforts": ["none", "high", "low"],
        },
    )


def test_anthropics_list_contains_support_by_feature():
    info = only(
        id="claude-opus-5",
        type="model",
        display_name="Claude Opus 5",
        max_input_tokens=1000000,
        max_tokens=128000,
        capabilities={
            **supported(image_input=True, pdf_input=True, structured_outputs=False),
            "thinking": {
                "supported": True,
                "types": supported(adaptive=True, disabled=True),
            },
            "effort": {"supported": True, **supported(low=True, max=True, high=False)},
        },
    )
    assert info == ModelInfo(
        id="claude-opus-5",
        label="Claude Opus 5",
        context_window=1000000,
        max_output_tokens=128000,
        capabilities={
            "vision": True,
            "files": True,
            "json_schema": False,
            "reasoning": True,
            "efforts": ["none", "low", "max"],
        },
    )


def test_anthropics_older_lists_do_not_say_whether_thinking_can_be_off():
    thinking = {"supported": True, "types": supported(adaptive=True)}
    effort = {"supported": True, **supported(low=True)}
    info = only(id="a", capabilities={"thinking": thinking, "effort": effort})
    assert info.capabilities == {"reasoning": True}


def test_geminis_calls_its_list_and_its_limits_otherwise():
    listed = json.dumps(
        {
            "models": [
                {
                    "name": "models/gemini-2.5-flash",
                    "displayName": "Gemini 2.5 Flash",
                    "inputTokenLimit": 1048576,
                    "outputTokenLimit": 65536,
                    "supportedGenerationMethods": ["generateContent", "countTokens"],
                    "thinking": True,
                    "maxTemperature": 2,
                },
                {"name": "models/aqa", "supportedGenerationMethods": ["x"]},
            ]
        }
    ).encode()
    flash, aqa = parse_models(listed)
    assert flash == ModelInfo(
        id="models/gemini-2.5-flash",
        label="Gemini 2.5 Flash",
        context_window=1048576,
        max_output_tokens=65536,
        capabilities={"reasoning": True, "max_temperature": 2},
    )
    assert flash.name == "gemini-2.5-flash"
    assert not aqa.chats


@pytest.mark.parametrize(
    ("entry", "window", "output"),
    [
        ({"max_context_length": 32768}, 32768, None),  # Mistral
        ({"max_model_len": 40960}, 40960, None),  # vLLM
        ({"meta": {"n_ctx": 4096, "n_ctx_train": 40960}}, 4096, None),  # llama.cpp
        ({"meta": {"n_ctx_train": 40960}}, None, None),
        ({"meta": None}, None, None),
        ({"context_window": 131072, "max_completion_tokens": 8192}, 131072, 8192),
        ({"context_length": None, "max_model_len": 5}, 5, None),
        ({"context_length": "many"}, None, None),
        ({"context_length": True}, None, None),
        ({"context_length": -1}, None, None),
    ],
)
def test_limits_are_found_where_each_host_puts_them(entry, window, output):
    info = only(entry, id="m")
    assert (info.context_window, info.max_output_tokens) == (window, output)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (
            {"capabilities": {"completion_chat": True, "function_calling": True}},
            {"tools": True},
        ),
        (
            {"capabilities": {"completion_chat": True, "vision": False}},
            {"vision": False},
        ),
        (
            {
                "supported_features": ["tools", "json_mode"],
                "input_modalities": ["text"],
            },
            {
                "tools": True,
                "json_mode": True,
                "json_schema": False,
                "reasoning": False,
                "vision": False,
            },
        ),
        (
            {
                "capabilities": {
                    "supports": {"tool_calls": True, "reasoning_effort": ["low"]}
                }
            },
            {"tools": True, "reasoning": True, "efforts": ["low"]},
        ),
        ({"capabilities": None, "supported_parameters": None}, {}),
        ({"capabilities": ["chat"]}, {}),
        ({"capabilities": {"supports": {"tool_calls": "yes"}}}, {}),
    ],
)
def test_capabilities_have_our_names(entry, expected):
    assert only(entry, id="m").capabilities == expected


@pytest.mark.parametrize(
    ("entry", "chats"),
    [
        ({"id": "gpt-6-luna"}, True),
        ({"id": "text-embedding-3-small"}, False),
        ({"id": "whisper-1"}, False),
        ({"id": "gpt-image-1"}, False),
        ({"id": "omni-moderation-latest"}, False),
        ({"id": "Llama-3.3-70B-Instruct"}, True),
        ({"id": "gpt-3.5-turbo-instruct"}, False),
        ({"id": "m", "capabilities": {"completion_chat": False}}, False),
        ({"id": "m", "capabilities": {"type": "embeddings"}}, False),
        ({"id": "m", "output_modalities": ["speech"]}, False),
        ({"id": "m", "architecture": {"output_modalities": ["text"]}}, True),
        ({"id": "m", "type": "image"}, False),
        ({"id": "m", "type": "base"}, True),  # Mistral's; of one that is not tuned
    ],
)
def test_models_with_other_outputs_are_recognised(entry, chats):
    assert only(entry).chats is chats


def test_the_limits_are_part_of_the_capabilities():
    info = ModelInfo(id="m", context_window=8, capabilities={"tools": True})
    assert info.capabilities_and_limits == {"tools": True, "context_window": 8}


# Pages, and what is no list


@pytest.mark.parametrize(
    ("listed", "query"),
    [
        (body(), {}),
        (body(has_more=False, last_id="z"), {}),
        (body(has_more=True, last_id="z"), {"after_id": "z"}),
        (b'{"models": [], "nextPageToken": "t"}', {"pageToken": "t"}),
        (b"[]", {}),
    ],
)
def test_the_next_page_is_requested_as_each_host_requires(listed, query):
    assert next_page(listed) == query


@pytest.mark.parametrize(
    "listed", [b"", b"<html>", b"null", b'"x"', b"{}", b'{"data": 3}', b'{"error": {}}']
)
def test_an_answer_that_is_no_list_is_a_bad_response(listed):
    with pytest.raises(BadResponse):
        parse_models(listed)


def test_entries_without_a_name_are_passed_over():
    assert parse_models(b'[3, null, {}, {"id": ""}, {"id": "m"}]') == [
        ModelInfo(id="m")
    ]


# Real lists


@pytest.mark.skipif(not RECORDED, reason="no recordings here; set RECORDINGS_DIR")
async def test_recorded_lists_contain_what_the_vendors_sdk_finds():
    replayed = await replay(RECORDED.values(), seed=0)
    for id, recording in RECORDED.items():
        expected = recording["expected"]
        assert replayed[id]["model_ids"] == expected.get("model_ids", []), id
        assert replayed[id]["outcome"] == expected["outcome"]


@pytest.mark.parametrize("id", RECORDED)
def test_recorded_lists_contain_nothing_implausible(id: str):
    recording = RECORDED[id]
    if recording["response"]["status"] == 200:
        assert [
            problems(info.capabilities_and_limits)
            for info in parse_models(body_of(recording))
        ] == [[] for _ in recording["expected"]["model_ids"]]


# Prices and retirement


def test_openrouters_prices_are_for_a_token():
    pricing = {
        "prompt": "0.00000005",
        "completion": "0.0000004",
        "input_cache_read": "0.000000005",
        "web_search": "0.01",
    }
    found = only(id="openai/gpt-5-nano", pricing=pricing).prices
    assert {name: str(price) for name, price in found.items()} == {
        "input": "0.05",
        "cached_input": "0.005",
        "output": "0.4",
    }


def test_togethers_numbers_are_for_a_million_and_vercels_texts_for_a_token():
    together = {"hourly": 0, "input": 0.18, "output": 0.59, "base": 0, "finetune": 0}
    vercel = {"input": "0.00000018", "output": "0.00000059"}
    first, second = (only(id="a", pricing=each).prices for each in (together, vercel))
    assert first == second
    assert str(first["output"]) == "0.59"


@pytest.mark.parametrize(
    "pricing",
    [
        {"prompt": "-1", "completion": "-1"},  # depends on the model that answers
        {"prompt": "0.1"},
        {"prompt": "NaN", "completion": "1e-6"},
        {"prompt": "1e999999", "completion": "1e-6"},
        {"prompt": True, "completion": True},
        {"hourly": 2.5, "input": 0, "output": 0},
        {"prompt": "9", "completion": "9"},
        {"input": "0.05", "output": "0.08"},  # texts for a million tokens
        {"hourly": 0, "input": 0, "output": 0},
        "0.1",
        None,
    ],
)
def test_prices_that_say_nothing_are_left_out(pricing):
    assert only(id="a", pricing=pricing).prices == {}


def test_a_free_model_costs_nothing():
    assert only(id="a", pricing={"prompt": "0", "completion": "0"}).prices == {
        "input": 0,
        "output": 0,
    }


def test_mistral_and_openrouter_name_the_day_of_a_retirement():
    mistral = only(id="a", deprecation="2026-01-31T12:00:00Z").retires_at
    openrouter = only(id="b", expiration_date="2027-03-01").retires_at
    assert mistral is not None
    assert openrouter is not None
    assert mistral.isoformat() == "2026-01-31T12:00:00+00:00"
    assert openrouter.isoformat() == "2027-03-01T00:00:00+00:00"
    assert only(id="c", deprecation="soon", expiration_date=None).retires_at is None


@pytest.mark.parametrize(
    "none",
    ["0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31", "1970-01-01"],
)
def test_a_date_that_means_none_retires_no_model(none: str):
    assert only(id="a", deprecation=none).retires_at is None
