from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from google.genai import types

from llm.errors import BadRequest, InvalidKey, QuotaExhausted, RateLimited
from llm.providers import all_providers
from llm.wire.codecs.gemini import model_capabilities
from llm.wire.items import function_call_output, message, user_message
from llm.wire.request import Request
from tests.llm.gemini import CODEC, ISSUER, MODEL, VERTEX, call, encode, function_call

HI = user_message("Hi")
TOOL = {
    "type": "function",
    "name": "look",
    "description": "Looks.",
    "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
}
OTHER = {**TOOL, "name": "listen"}
SEARCH = {"type": "web_search"}
FORM = {"type": "json_schema", "name": "n", "schema": {"type": "object"}}
ALLOWED = {"type": "allowed_tools", "tools": [{"type": "function", "name": "look"}]}


def request_with(**options: Any) -> Request:
    return Request(**{"model": MODEL, "items": [HI], **options})


def generation(**options: Any) -> dict[str, Any]:
    return encode(HI, **options).get("generationConfig", {})


def calling(**options: Any) -> dict[str, Any] | None:
    body = encode(HI, tools=[TOOL, OTHER], **options)
    return body.get("toolConfig", {}).get("functionCallingConfig")


class TestAddress:
    @pytest.mark.parametrize(
        ("model", "path"),
        [
            ("gemini-x", "/models/gemini-x"),
            ("models/gemini-x", "/models/gemini-x"),
            ("tunedModels/mine", "/tunedModels/mine"),
            ("a?key=b#c", "/models/a%3Fkey%3Db%23c"),
        ],
    )
    def test_the_model_is_part_of_the_path(self, model, path):
        streamed = CODEC.path(request_with(model=model))
        assert streamed == f"{path}:streamGenerateContent?alt=sse"
        assert CODEC.path(request_with(model=model, stream=False)) == (
            f"{path}:generateContent"
        )

    @pytest.mark.parametrize(
        ("model", "path"),
        [
            ("gemini-x", "/publishers/google/models/gemini-x"),
            ("anthropic/claude", "/publishers/anthropic/models/claude"),
            ("publishers/google/models/x", "/publishers/google/models/x"),
            ("endpoints/123", "/endpoints/123"),
        ],
    )
    def test_vertex_models_have_a_publisher(self, model, path):
        path_of = VERTEX.path(request_with(model=model, stream=False))
        assert path_of == f"{path}:generateContent"

    def test_the_key_is_in_a_header_and_never_in_the_address(self):
        provider = all_providers()["gemini"]
        assert provider.auth("AIza-secret") == {"x-goog-api-key": "AIza-secret"}
        assert "key=" not in CODEC.path(request_with())
        assert all_providers()["vertex"].auth("t") == {"Authorization": "Bearer t"}


class TestOptions:
    def test_unset_options_are_not_sent(self):
        assert encode(HI).keys() == {"contents"}

    def test_sampling_and_limits(self):
        assert generation(
            max_output_tokens=9,
            temperature=0.0,
            top_p=0.5,
            stop=["."],
            seed=0,
            presence_penalty=0.1,
            frequency_penalty=0.2,
            top_logprobs=3,
        ) == {
            "maxOutputTokens": 9,
            "temperature": 0.0,
            "topP": 0.5,
            "stopSequences": ["."],
            "seed": 0,
            "presencePenalty": 0.1,
            "frequencyPenalty": 0.2,
            "responseLogprobs": True,
            "logprobs": 3,
        }

    def test_five_stops_and_no_more(self):
        with pytest.raises(BadRequest, match="5 stops"):
            generation(stop=list("abcdef"))

    @pytest.mark.parametrize(
        ("model", "effort", "expected"),
        [
            ("gemini-3.8-flash", "none", {"thinkingLevel": "LOW"}),
            ("gemini-3.8-flash", "medium", {"thinkingLevel": "MEDIUM"}),
            ("gemini-4-argon", "minimal", {"thinkingLevel": "LOW"}),
            ("gemini-3.1-pro-preview", "minimal", {"thinkingLevel": "LOW"}),
            ("gemini-3.1-flash-lite", "minimal", {"thinkingLevel": "MINIMAL"}),
            ("gemini-3-flash-preview", "none", {"thinkingLevel": "MINIMAL"}),
            ("gemini-3-pro-preview", "medium", {"thinkingLevel": "HIGH"}),
            ("gemini-flash-latest", "xhigh", {"thinkingLevel": "HIGH"}),
            ("models/gemini-2.5-pro", "none", {"thinkingBudget": 128}),
            ("gemini-2.5-pro", "low", {"thinkingBudget": 1024}),
            ("gemini-2.5-flash", "none", {"thinkingBudget": 0}),
            ("gemini-2.5-flash-lite", "max", {"thinkingBudget": 24576}),
            ("gemini-2.5-flash-image", "low", {}),
            ("gemini-2.0-flash-001", "low", {}),
            ("gemma-4-31b-it", "low", {}),
            ("gemini-3.8-flash", "unheard-of", {}),
        ],
    )
    def test_effort_is_what_the_family_calls_it(self, model, effort, expected):
        assert model_capabilities.thinking_of(model, effort) == expected
        config = generation(model=model, reasoning={"effort": effort})
        assert config.get("thinkingConfig", {}) == expected

    def test_a_summary_of_the_reasoning_is_requested(self):
        config = generation(reasoning={"effort": None, "summary": "auto"})
        assert config == {"thinkingConfig": {"includeThoughts": True}}
        old = generation(model="gemini-2.0-flash", reasoning={"summary": "auto"})
        assert old == {}

    def test_the_form_of_the_answer(self):
        assert generation(text={"format": {"type": "json_object"}}) == {
            "responseMimeType": "application/json"
        }
        form = {**FORM, "schema": {"type": "object", "minProperties": 1}}
        assert generation(text={"format": form}) == {
            "responseMimeType": "application/json",
            "responseJsonSchema": {
                "type": "object",
                "description": "(minProperties: 1)",
            },
        }
        assert generation(text={"format": {"type": "text"}}) == {}

    @pytest.mark.parametrize(
        ("tier", "expected"),
        [("default", "standard"), ("flex", "flex"), ("priority", "priority")],
    )
    def test_the_tier_by_googles_names(self, tier, expected):
        assert encode(HI, service_tier=tier)["serviceTier"] == expected
        assert "serviceTier" not in encode(HI, service_tier="auto")

    def test_vertex_takes_metadata_for_labels_where_they_are_fit(self):
        metadata = {"team": "a-1", "Team": "a", "x": "Big", "1": "a"}
        assert encode(HI, codec=VERTEX, metadata=metadata)["labels"] == {"team": "a-1"}
        assert "labels" not in encode(HI, metadata=metadata)

    def test_extras_reach_into_the_configuration(self):
        body = encode(
            HI,
            temperature=0.5,
            extra={"generationConfig": {"topK": 4}, "safetySettings": []},
        )
        assert body["generationConfig"] == {"temperature": 0.5, "topK": 4}
        assert body["safetySettings"] == []


class TestTools:
    def test_a_function_is_declared_with_its_schema(self):
        assert encode(HI, tools=[TOOL])["tools"] == [
            {
                "functionDeclarations": [
                    {
                        "name": "look",
                        "description": "Looks.",
                        "parameters": TOOL["parameters"],
                    }
                ]
            }
        ]

    @pytest.mark.parametrize(
        "parameters", [None, {}, {"type": "object", "properties": {}}]
    )
    def test_a_function_without_parameters_declares_none(self, parameters):
        tool = {"type": "function", "name": "now", "parameters": parameters}
        [sent_tool] = encode(HI, tools=[tool])["tools"]
        assert sent_tool == {"functionDeclarations": [{"name": "now"}]}

    @pytest.mark.parametrize(
        ("tool", "expected"),
        [
            (SEARCH, {"googleSearch": {}}),
            ({"type": "web_search_preview"}, {"googleSearch": {}}),
            (
                {"type": "code_interpreter", "container": {"type": "auto"}},
                {"codeExecution": {}},
            ),
            ({"type": "url_context"}, {"urlContext": {}}),
            (
                {
                    "type": "file_search",
                    "vector_store_ids": ["fileSearchStores/a"],
                    "max_num_results": 3,
                },
                {
                    "fileSearch": {
                        "fileSearchStoreNames": ["fileSearchStores/a"],
                        "topK": 3,
                    }
                },
            ),
        ],
    )
    def test_googles_own_tools(self, tool, expected):
        assert encode(HI, tools=[tool])["tools"] == [expected]

    def test_a_tool_that_google_has_not_is_refused(self):
        with pytest.raises(BadRequest, match="'mcp'"):
            encode(HI, tools=[{"type": "mcp"}])

    def test_both_kinds_together_where_the_model_takes_them(self):
        body = encode(HI, tools=[TOOL, SEARCH])
        assert [list(tool) for tool in body["tools"]] == [
            ["googleSearch"],
            ["functionDeclarations"],
        ]
        assert body["toolConfig"] == {"includeServerSideToolInvocations": True}
        assert "toolConfig" not in encode(HI, tools=[TOOL, SEARCH], codec=VERTEX)
        with pytest.raises(BadRequest, match="not both"):
            encode(HI, tools=[TOOL, SEARCH], model="gemini-2.5-flash")

    def test_parts_of_googles_tools_go_back_only_with_leave(self):
        raw = [{"toolCall": {"id": "1", "toolType": "FILE_SEARCH"}}]
        receipt = {
            "type": "file_search_call",
            "provider_data": {"issuer": ISSUER, "raw": raw},
        }
        body = encode(HI, receipt)
        assert body["toolConfig"] == {"includeServerSideToolInvocations": True}
        assert "toolConfig" not in encode(HI, receipt, issuer=None)

    def test_old_models_take_tools_or_a_schema(self):
        options = {"tools": [TOOL], "text": {"format": FORM}}
        assert encode(HI, **options)["generationConfig"]["responseJsonSchema"]
        with pytest.raises(BadRequest, match="not both"):
            encode(HI, model="gemini-2.5-flash", **options)

    @pytest.mark.parametrize(
        ("choice", "expected"),
        [
            (None, None),
            ("auto", {"mode": "AUTO"}),
            ("none", {"mode": "NONE"}),
            ("required", {"mode": "ANY"}),
            (
                {"type": "function", "name": "look"},
                {"mode": "ANY", "allowedFunctionNames": ["look"]},
            ),
            (
                {**ALLOWED, "mode": "auto"},
                {"mode": "VALIDATED", "allowedFunctionNames": ["look"]},
            ),
            (
                {**ALLOWED, "mode": "required"},
                {"mode": "ANY", "allowedFunctionNames": ["look"]},
            ),
        ],
    )
    def test_the_choice_of_a_tool(self, choice, expected):
        assert calling(tool_choice=choice) == expected

    def test_old_models_are_shown_only_the_tools_allowed(self):
        options = {"tools": [TOOL, OTHER], "model": "gemini-2.0-flash"}
        body = encode(HI, tool_choice={**ALLOWED, "mode": "auto"}, **options)
        [declared] = body["tools"][0]["functionDeclarations"]
        assert declared["name"] == "look"
        assert "toolConfig" not in body

    def test_a_hosted_tool_cannot_be_chosen(self):
        with pytest.raises(BadRequest, match="'web_search'"):
            calling(tool_choice=SEARCH)

    def test_tool_choice_none_disables_googles_tools_too(self):
        body = encode(HI, tools=[TOOL, SEARCH], tool_choice="none")
        assert [list(tool) for tool in body["tools"]] == [["functionDeclarations"]]

    def test_strictness_is_of_all_tools_or_of_none(self):
        strict = {**TOOL, "strict": True}
        calling_config = encode(HI, tools=[strict])["toolConfig"][
            "functionCallingConfig"
        ]
        assert calling_config == {"mode": "VALIDATED"}
        assert "toolConfig" not in encode(HI, tools=[strict, OTHER])
        assert CODEC.degraded(request_with(tools=[strict, OTHER])) == ["tools"]
        assert CODEC.degraded(request_with(tools=[strict])) == []


class TestDegraded:
    def test_a_plain_request_in_full(self):
        options = {"reasoning": {"effort": "low"}, "service_tier": "flex"}
        assert CODEC.degraded(request_with(tools=[TOOL], seed=1, **options)) == []

    @pytest.mark.parametrize(
        ("options", "names"),
        [
            ({"parallel_tool_calls": False}, ["parallel_tool_calls"]),
            ({"text": {"verbosity": "low"}}, ["text.verbosity"]),
            ({"metadata": {"a": "b"}}, ["metadata"]),
            ({"service_tier": "scale"}, ["service_tier"]),
            ({"reasoning": {"effort": "none"}}, ["reasoning"]),
            ({"reasoning": {"effort": "xhigh"}}, ["reasoning"]),
            ({"top_logprobs": 2}, ["top_logprobs"]),
            ({"temperature": 0.5, "top_p": 1.0}, ["temperature", "top_p"]),
            ({"temperature": 0.5, "model": "gemini-2.5-pro"}, []),
            (
                {"reasoning": {"effort": "none"}, "model": "gemini-2.5-flash"},
                [],
            ),
            (
                {"reasoning": {"effort": "none"}, "model": "gemini-2.0-flash"},
                [],
            ),
            ({"items": [message("developer", "Rhyme."), HI]}, []),
            ({"items": [HI, message("developer", "Rhyme.")]}, ["input"]),
        ],
    )
    def test_approximations_are_named(self, options, names):
        assert CODEC.degraded(request_with(**options)) == names

    def test_fit_metadata_is_no_loss_on_vertex(self):
        assert VERTEX.degraded(request_with(metadata={"a": "b"})) == []
        assert VERTEX.degraded(request_with(metadata={"A": "b"})) == ["metadata"]


FULL_OPTIONS: dict[str, Any] = {
    "instructions": "Be brief.",
    "tools": [TOOL, OTHER, SEARCH],
    "tool_choice": {**ALLOWED, "mode": "auto"},
    "max_output_tokens": 9,
    "temperature": 0.5,
    "top_p": 0.5,
    "stop": ["."],
    "seed": 1,
    "presence_penalty": 0.1,
    "frequency_penalty": 0.2,
    "top_logprobs": 3,
    "reasoning": {"effort": "low", "summary": "auto"},
    "text": {"format": FORM},
    "service_tier": "flex",
    "metadata": {"team": "a"},
}
FULL_ITEMS = [
    {
        "type": "message",
        "role": "user",
        "content": [
            {"type": "input_text", "text": "See"},
            {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0K"},
            {"type": "input_file", "file_url": "https://a.example/b.pdf"},
        ],
    },
    function_call("call_1", raw=[call(args={}, thoughtSignature="c2ln")]),
    function_call("call_2"),
    function_call_output("call_1", "A"),
    function_call_output(
        "call_2",
        [{"type": "input_image", "image_url": "data:image/png;base64,iVBORw0K"}],
    ),
    message("assistant", "So."),
    user_message("And now?"),
]
#: Which of the SDK's types reads which field of the body.
SDK_TYPES: dict[str, Callable[[bytes], Any]] = {
    "contents": lambda error_for: [
        types.Content.model_validate_json(orjson.dumps(one))
        for one in orjson.loads(error_for)
    ],
    "systemInstruction": types.Content.model_validate_json,
    "tools": lambda error_for: [
        types.Tool.model_validate_json(orjson.dumps(one))
        for one in orjson.loads(error_for)
    ],
    "toolConfig": types.ToolConfig.model_validate_json,
    "generationConfig": types.GenerationConfig.model_validate_json,
    "serviceTier": lambda error_for: types.ServiceTier(orjson.loads(error_for)),
    "labels": lambda error_for: orjson.loads(error_for),
}


@pytest.mark.parametrize("codec", [CODEC, VERTEX])
@pytest.mark.parametrize(
    "model", ["gemini-3.8-flash", "gemini-3-flash-preview", "gemini-4-argon"]
)
def test_the_sdk_knows_every_field_that_we_send(codec, model):
    body = encode(*FULL_ITEMS, codec=codec, model=model, **FULL_OPTIONS)
    assert {*body} - {"labels"} == {*SDK_TYPES} - {"labels"}
    for name, value in body.items():
        SDK_TYPES[name](orjson.dumps(value))


class TestErrors:
    @staticmethod
    def error_for(status: int, word: str, *details: dict[str, Any]) -> Exception:
        error = {"code": status, "message": "m", "status": word, "details": details}
        return CODEC.error(status, {}, orjson.dumps({"error": error}))

    def test_a_bad_key_is_a_bad_request_to_google(self):
        reason = {"reason": "API_KEY_INVALID"}
        assert isinstance(self.error_for(400, "INVALID_ARGUMENT", reason), InvalidKey)

    def test_a_days_quota_is_used_up_and_a_minutes_comes_again(self):
        def quota(per: str) -> dict[str, Any]:
            return {"violations": [{"quotaId": f"GenerateRequests{per}PerProject"}]}

        minute = self.error_for(
            429, "RESOURCE_EXHAUSTED", quota("PerMinute"), {"retryDelay": "34.4s"}
        )
        assert isinstance(minute, RateLimited)
        assert minute.retry_after == 34.4
        day = self.error_for(429, "RESOURCE_EXHAUSTED", quota("PerDay"))
        assert isinstance(day, QuotaExhausted)
