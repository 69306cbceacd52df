from __future__ import annotations

from itertools import product
from typing import Any

import httpx
import pytest
import respx
from pydantic import ValidationError

from llm.errors import (
    BadRequest,
    ContextTooLarge,
    InvalidKey,
    ModelNotAvailable,
    ProviderDown,
    ProviderTimeout,
    QuotaExhausted,
    RateLimited,
)
from llm.http import client
from llm.provider import Endpoint
from llm.providers.anthropic import PROVIDER
from llm.wire.codecs.anthropic.codec import MAX_UNSTREAMED, AnthropicCodec
from llm.wire.deltas import TextDelta
from llm.wire.items import function_call_output, user_message
from llm.wire.request import Request
from tests.llm.claude import (
    CALL,
    CODEC,
    NEW,
    OLD,
    OLD_VERSION,
    START,
    STOP,
    TEXT,
    THOUGHT,
    call,
    encode,
    ended,
    frames,
    issued,
    read,
    stored_items,
    streamed,
    validated,
)

HI = user_message("Hi")
FORCED, FREE = "claude-opus-5", "claude-opus-4-8"
OLDEST = "claude-3-opus-20240229"
TOOL = {
    "type": "function",
    "name": "look",
    "description": "Looks.",
    "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
}
SCHEMA = {
    "type": "object",
    "properties": {"age": {"type": "integer", "minimum": 0}},
    "required": ["age"],
}
FORM = {"type": "json_schema", "name": "person", "schema": SCHEMA, "strict": True}
ANSWER = frames(START, *streamed(TEXT), ended(), STOP)


def degraded(codec: AnthropicCodec = CODEC, **fields: Any) -> list[str]:
    return codec.degraded(Request(**{"model": NEW, "items": [HI], **fields}))


def thinking(model: str, effort: str | None, **fields: Any) -> tuple[Any, Any]:
    """The options for thinking and effort."""
    reasoning = {"effort": effort, **fields.pop("reasoning", {})}
    body = encode(HI, model=model, reasoning=reasoning, **fields)
    return body.get("thinking"), (body.get("output_config") or {}).get("effort")


def test_a_plain_request_contains_only_required_fields():
    assert encode(HI) == {
        "model": NEW,
        "max_tokens": 128_000,
        "stream": True,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
    }


def test_options_are_encoded_in_anthropics_fields():
    body = encode(
        HI,
        tools=[TOOL],
        tool_choice="auto",
        parallel_tool_calls=False,
        max_output_tokens=100,
        stop=["END"],
        safety_identifier="u1",
        service_tier="default",
        stream=False,
    )
    assert body["max_tokens"] == 100
    assert body["stream"] is False
    assert body["stop_sequences"] == ["END"]
    assert body["metadata"] == {"user_id": "u1"}
    assert body["service_tier"] == "standard_only"
    assert body["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    assert [tool["name"] for tool in body["tools"]] == ["look"]


class TestLength:
    @pytest.mark.parametrize(
        ("model", "longest"),
        [(NEW, 128_000), (OLD, 64_000), (OLDEST, 4096), ("kimi-k3", 8192)],
    )
    def test_max_tokens_is_required_and_defaults_to_the_models_limit(
        self, model, longest
    ):
        assert encode(HI, model=model)["max_tokens"] == longest

    def test_of_an_answer_in_one_piece_is_limited(self):
        assert encode(HI, stream=False)["max_tokens"] == MAX_UNSTREAMED


class TestThinking:
    SHOWN = {"type": "adaptive", "display": "summarized"}

    @pytest.mark.parametrize(
        ("model", "effort", "expected"),
        [
            (NEW, None, (None, None)),
            (NEW, "high", (SHOWN, "high")),
            (NEW, "minimal", (SHOWN, "low")),
            (NEW, "none", ({"type": "between_tools"}, None)),
            ("claude-opus-5-5", "none", (None, "low")),
            (FORCED, "none", ({"type": "disabled"}, None)),
            (FREE, "none", (None, None)),
            (FREE, "max", (SHOWN, "max")),
            ("claude-opus-4-6", "xhigh", (SHOWN, "max")),
            (
                "claude-opus-4-5",
                "max",
                ({"type": "enabled", "budget_tokens": 16_384}, "high"),
            ),
            (OLD, "none", (None, None)),
            (OLD, "low", ({"type": "enabled", "budget_tokens": 2048}, None)),
            (OLD, "medium", ({"type": "enabled", "budget_tokens": 8192}, None)),
            (OLD, "max", ({"type": "enabled", "budget_tokens": 16_384}, None)),
            (OLDEST, "high", (None, None)),
        ],
    )
    def test_reasoning_is_requested_as_the_model_supports_it(
        self, model, effort, expected
    ):
        assert thinking(model, effort) == expected

    @pytest.mark.parametrize(
        ("model", "effort"),
        [
            (NEW, "minimal"),
            (NEW, "none"),
            ("claude-opus-5-5", "none"),
            ("claude-opus-4-6", "xhigh"),
            (OLDEST, "high"),
        ],
    )
    def test_an_approximation_is_reported(self, model, effort):
        degradations = degraded(model=model, reasoning={"effort": effort})
        assert degradations == ["reasoning.effort"]

    @pytest.mark.parametrize(("model", "shown"), [(NEW, SHOWN), (FREE, None)])
    def test_a_summary_is_shown_of_what_is_thought_anyway(self, model, shown):
        options = thinking(model, None, reasoning={"summary": "auto"})
        assert options == (shown, None)

    @pytest.mark.parametrize(
        ("limit", "budget"), [(4096, 3072), (2048, 1024), (2047, None), (16, None)]
    )
    def test_a_budget_leaves_room_for_the_answer(self, limit, budget):
        options, _ = thinking(OLD, "high", max_output_tokens=limit)
        assert (options and options["budget_tokens"]) == budget
        lost = degraded(
            model=OLD, reasoning={"effort": "high"}, max_output_tokens=limit
        )
        assert bool(lost) == (budget is None)

    def test_a_turn_begun_without_a_thought_goes_on_without(self):
        items = [HI, call(), function_call_output("toolu_1", "It.")]
        high = {"model": OLD, "reasoning": {"effort": "high"}}
        assert "thinking" not in encode(*items, **high)
        assert "thinking" in encode(*items, HI, **high)
        thought = issued({"type": "reasoning", "summary": []}, {"content": [THOUGHT]})
        begun = [HI, thought, *items[1:]]
        assert "thinking" in encode(*begun, **high)


class TestToolChoice:
    ANY, AUTO = {"type": "any"}, {"type": "auto"}

    @pytest.mark.parametrize(
        ("model", "fields", "expected"),
        [
            (FORCED, {}, ANY),
            (NEW, {}, AUTO),
            ("claude-opus-9", {}, AUTO),
            (FREE, {"reasoning": {"effort": "high"}}, ANY),
            (OLD, {}, ANY),
            (OLD, {"reasoning": {"effort": "high"}}, AUTO),
            ("kimi-k3", {"reasoning": {"effort": "high"}}, ANY),
        ],
    )
    def test_force_is_used_where_it_is_legal(self, model, fields, expected):
        wanted = {"tools": [TOOL], "tool_choice": "required", **fields}
        assert encode(HI, model=model, **wanted)["tool_choice"] == expected
        lost = ["tool_choice"] if expected == self.AUTO else []
        assert degraded(model=model, **wanted) == lost

    def test_calls_one_by_one_need_a_choice(self):
        body = encode(HI, tools=[TOOL], parallel_tool_calls=False)
        assert body["tool_choice"] == {
            "type": "auto",
            "disable_parallel_tool_use": True,
        }

    def test_without_tools_there_is_none(self):
        body = encode(HI, tool_choice="none", parallel_tool_calls=False)
        assert "tool_choice" not in body


class TestSampling:
    WANTED = {"temperature": 0.5, "top_p": 0.9}

    @pytest.mark.parametrize("model", [NEW, OLD])
    def test_sampling_is_omitted_for_newer_models(self, model):
        body = encode(HI, model=model, **self.WANTED)
        assert not {"temperature", "top_p"} & body.keys()
        assert degraded(model=model, **self.WANTED) == ["temperature", "top_p"]

    @pytest.mark.parametrize(
        ("model", "wanted", "sent"),
        [
            (OLD, {"temperature": 0.5}, {"temperature": 0.5}),
            (OLD, {"temperature": 1.5}, {"temperature": 1}),
            (OLD, {"top_p": 0.9}, {"top_p": 0.9}),
            (OLD, WANTED, {"temperature": 0.5}),
            (OLD, {"temperature": 0.5, "reasoning": {"effort": "low"}}, {}),
            (NEW, {"temperature": 0.5}, {}),
        ],
    )
    def test_was_there_in_the_version_before(self, model, wanted, sent):
        body = encode(HI, codec=OLD_VERSION, model=model, **wanted)
        assert {n: body[n] for n in ("temperature", "top_p") if n in body} == sent
        options = {name: wanted[name] for name in wanted if name != "reasoning"}
        assert bool(degraded(OLD_VERSION, model=model, **wanted)) == (options != sent)


class TestForm:
    def test_a_schema_is_closed_and_cut(self):
        body = encode(HI, text={"format": FORM})
        [form] = [body["output_config"]["format"]]
        assert form["type"] == "json_schema"
        assert form["schema"]["additionalProperties"] is False
        assert "minimum" not in form["schema"]["properties"]["age"]
        assert "minimum" in form["schema"]["properties"]["age"]["description"]
        assert degraded(text={"format": FORM}) == []

    @pytest.mark.parametrize(
        ("model", "form"),
        [
            (NEW, {"type": "json_object"}),
            (OLDEST, FORM),
            (NEW, {**FORM, "schema": {"type": "object"}}),
        ],
    )
    def test_an_unenforceable_choice_is_requested_in_words(self, model, form):
        body = encode(HI, model=model, text={"format": form}, instructions="Be brief.")
        assert "output_config" not in body
        assert "JSON" in body["system"][-1]["text"]
        assert degraded(model=model, text={"format": form}) == ["text.format"]

    def test_plain_text_needs_no_asking(self):
        assert encode(HI, text={"format": {"type": "text"}}) == encode(HI)


def test_an_option_without_a_field_is_reported():
    fields = {
        "frequency_penalty": 0.5,
        "presence_penalty": 0.5,
        "seed": 1,
        "top_logprobs": 2,
        "service_tier": "flex",
        "text": {"verbosity": "low"},
    }
    assert degraded(**fields) == [
        "frequency_penalty",
        "presence_penalty",
        "seed",
        "service_tier",
        "text.verbosity",
        "top_logprobs",
    ]
    assert encode(HI, **fields) == {**encode(HI), "service_tier": "standard_only"}


CHOICES = ["auto", "none", "required", {"type": "function", "name": "look"}]
FORMS = [{"type": "text"}, {"type": "json_object"}, FORM]


@pytest.mark.parametrize("effort", [None, "none", "low", "xhigh"])
@pytest.mark.parametrize("model", [NEW, FORCED, FREE, OLD, OLDEST])
def test_every_mixture_of_options_is_what_the_sdk_takes(model, effort):
    items = [HI, *stored_items(read(*streamed(THOUGHT, TEXT, CALL), reason="tool_use"))]
    for choice, form, codec in product(CHOICES, FORMS, [CODEC, OLD_VERSION]):
        encode(
            *items,
            function_call_output("toolu_1", "It."),
            codec=codec,
            model=model,
            instructions="Be brief.",
            reasoning={"effort": effort, "summary": "auto"},
            tools=[TOOL, {**TOOL, "name": "strictly", "strict": True}],
            tool_choice=choice,
            text={"format": form},
            parallel_tool_calls=False,
            temperature=0.5,
            stop=["END"],
            safety_identifier="u1",
            service_tier="priority",
        )


def test_the_sdk_would_notice_a_field_that_is_not_there():
    with pytest.raises(ValidationError):
        validated({**encode(HI), "tool_choise": {"type": "auto"}})
    with pytest.raises(ValidationError):
        validated({**encode(HI), "metadata": {"user": "u1"}})


class TestHeaders:
    @pytest.mark.parametrize(
        ("fields", "betas"),
        [
            ({}, None),
            ({"extra": {"betas": ["b", "a"]}}, "a,b"),
            ({"extra": {"fallbacks": []}}, "server-side-fallback-2026-07-01"),
            (
                {
                    "tools": [
                        {
                            "type": "mcp",
                            "server_label": "wiki",
                            "server_url": "https://wiki.test",
                            "require_approval": "never",
                        }
                    ]
                },
                "mcp-client-2025-11-20",
            ),
            (
                {
                    "extra": {
                        "context_management": {"edits": [{"type": "compact_20260112"}]}
                    }
                },
                "compact-2026-01-12,context-management-2025-06-27",
            ),
        ],
    )
    def test_name_the_version_and_the_betas_that_are_used(self, fields, betas):
        request = Request(**{"model": NEW, "items": [HI], **fields})
        headers = CODEC.headers(request)
        assert headers["anthropic-version"] == "2026-10-21"
        assert headers.get("anthropic-beta") == betas
        assert "betas" not in CODEC.encode(request)

    def test_a_block_that_goes_back_may_need_a_beta(self):
        block = {"type": "compaction", "content": "So far."}
        builder = read(*streamed(block))
        request = Request(model=NEW, items=[HI, *stored_items(builder)])
        assert "anthropic-beta" not in CODEC.headers(request)
        request = Request(model=NEW, items=request.items, issuer=_issuer())
        assert CODEC.headers(request)["anthropic-beta"] == "compact-2026-01-12"

    @pytest.mark.parametrize(
        ("codec", "version"),
        [("anthropic", "2026-10-21"), ("anthropic_2023", "2023-06-01")],
    )
    async def test_the_client_sends_them(self, codec, version):
        endpoint = Endpoint(
            provider=PROVIDER, codec=PROVIDER.codec(codec), api_key="sk-1"
        )
        with respx.mock(using="parley") as host:
            route = host.post("https://api.anthropic.com/v1/messages")
            route.return_value = httpx.Response(200, content=ANSWER)
            request = Request(model=NEW, items=[HI], extra={"betas": ["b"]})
            deltas = [
                d async for each in client.stream(endpoint, request) for d in each
            ]
        await client.aclose()
        sent = route.calls[0].request
        assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == "Hello."
        assert sent.headers["x-api-key"] == "sk-1"
        assert sent.headers["anthropic-version"] == version
        assert sent.headers["anthropic-beta"] == "b"
        assert "authorization" not in sent.headers


BAD, LIMIT = "invalid_request_error", "rate_limit_error"


@pytest.mark.parametrize(
    ("status", "kind", "message", "details", "expected"),
    [
        (400, BAD, "Field required", None, BadRequest),
        (
            400,
            BAD,
            "prompt is too long: 2 > 1",
            None,
            ContextTooLarge,
        ),
        (
            400,
            BAD,
            "input length and `max_tokens` exceed context limit: 3 + 4 > 5",
            None,
            ContextTooLarge,
        ),
        (
            400,
            BAD,
            "Your credit balance is too low to access the API.",
            None,
            QuotaExhausted,
        ),
        (
            400,
            BAD,
            "You have reached your specified API usage limits.",
            None,
            QuotaExhausted,
        ),
        (401, "authentication_error", "invalid x-api-key", None, InvalidKey),
        (402, "billing_error", "Pay.", None, QuotaExhausted),
        (403, "permission_error", "Not yours.", None, InvalidKey),
        (404, "not_found_error", "model: claude-nope", None, ModelNotAvailable),
        (413, "request_too_large", "Too large.", None, ContextTooLarge),
        (429, LIMIT, "Slower.", None, RateLimited),
        (
            429,
            LIMIT,
            "Limit.",
            {"error_code": "enforced_spend_limit_reached"},
            QuotaExhausted,
        ),
        (
            429,
            LIMIT,
            "",
            {"error_code": "ramp_limit_exceeded"},
            RateLimited,
        ),
        (500, "api_error", "Oops.", None, ProviderDown),
        (504, "timeout_error", "Late.", None, ProviderTimeout),
        (529, "overloaded_error", "Overloaded", None, ProviderDown),
    ],
)
def test_every_error_is_ours(status, kind, message, details, expected):
    error = {"type": kind, "message": message}
    if details:
        error["details"] = details
    body = {"type": "error", "error": error, "request_id": "req_1"}
    content = httpx.Response(status, json=body).content
    converted = CODEC.error(status, {"retry-after": "3"}, content)
    assert type(converted) is expected
    assert (converted.detail, converted.upstream_type) == (message, kind)
    assert (converted.request_id, converted.retry_after) == ("req_1", 3)


def _issuer():
    return stored_items(read(*streamed(TEXT)))[0]["provider_data"]["issuer"]
