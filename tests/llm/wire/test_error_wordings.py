"""Error messages of providers, each with its source, and the class that they become."""

from __future__ import annotations

import json
from collections import Counter
from typing import NamedTuple

import pytest

from llm.errors import (
    BadRequest,
    BadResponse,
    ContentPolicy,
    ContextTooLarge,
    InvalidKey,
    LLMError,
    ModelNotAvailable,
    ProviderDown,
    ProviderTimeout,
    QuotaExhausted,
    RateLimited,
)
from llm.wire.classify_errors import classify


class Wording(NamedTuple):
    wire: str
    source: str  # a recording's id, or the public thread that quotes the message
    status: int
    error: object  # the body; a string is the message in the wire's usual shape
    expected: type[LLMError]


CHAT, RESPONSES, MESSAGES, GEMINI = (
    "openai_chat",
    "openai_responses",
    "anthropic",
    "gemini",
)
_GH = "https://github.com/"

#: Messages about an input longer than the model's context window.
TOO_LONG = [
    Wording(wire, source, status, message, ContextTooLarge)
    for wire, source, status, message in (
        (
            CHAT,
            "openrouter-chat-json-400-9c8892b4ad81",
            400,
            "This endpoint's maximum context length is 200000 tokens. However, you"
            " requested about 2500021 tokens (2500021 of text input).",
        ),
        (
            CHAT,
            "perplexity-chat-json-400-8fb0ef09a592",
            400,
            "The total length of all messages is too long.",
        ),
        (
            CHAT,
            _GH + "earendil-works/pi/pull/5929",  # vLLM
            400,
            "This model's maximum context length is 262144 tokens. However, you"
            " requested 0 output tokens and your prompt contains at least 262145 input"
            " tokens, for a total of at least 262145 tokens. Please reduce the length"
            " of the input prompt or the number of requested output tokens.",
        ),
        (
            CHAT,
            _GH + "earendil-works/pi/issues/4943",  # Poolside over OpenRouter
            400,
            "Input length 131393 exceeds the maximum allowed input length of 131040"
            " tokens.",
        ),
        (
            CHAT,
            _GH + "earendil-works/pi/issues/5677",
            400,
            "Input length (265330) exceeds model's maximum context length (262144).",
        ),
        (
            CHAT,
            _GH + "thu-coai/Glyph/issues/9",  # vLLM, of images too
            400,
            "The decoder prompt (length 163840) is longer than the maximum model length"
            " of 131072. Make sure that `max_model_len` is no smaller than the number"
            " of text tokens plus multimodal tokens.",
        ),
        (
            CHAT,
            _GH + "QwenLM/Qwen3/issues/1321",  # SGLang
            400,
            {
                "object": "error",
                "message": "The input (61709 tokens) is longer than the model's context"
                " length (40960 tokens).",
                "type": "BadRequestError",
                "param": None,
                "code": 400,
            },
        ),
        (
            CHAT,
            _GH + "sgl-project/sglang/issues/4048",
            400,
            "Input length (160062 tokens) exceeds the maximum allowed length (59862"
            " tokens).",
        ),
        (
            CHAT,
            _GH + "huggingface/huggingface_hub/issues/2763",
            422,
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <="
            " 4096. Given: 8740 `inputs` tokens and 500 `max_new_tokens`",
        ),
        (
            CHAT,
            _GH + "huggingface/text-generation-inference/issues/695",
            422,
            "Input validation error: `inputs` must have less than 1024 tokens. Given:"
            " 1168.",
        ),
        (
            CHAT,
            _GH + "lmstudio-ai/lmstudio-bug-tracker/issues/546",
            400,
            "Trying to keep the first 111490 tokens when context the overflows."
            " However, the model is loaded with context length of only 32768 tokens,"
            " which is not enough. Try to load the model with a larger context length,"
            " or provide a shorter input",
        ),
        (
            CHAT,
            _GH + "anomalyco/opencode/issues/11141",  # LM Studio
            400,
            "Cannot truncate prompt with n_keep (15028) >= n_ctx (7424)",
        ),
        (
            CHAT,
            _GH + "NousResearch/hermes-agent/pull/1877",  # Zhipu
            400,
            {"error": {"code": "1261", "message": "Prompt exceeds max length"}},
        ),
        (
            CHAT,
            _GH + "cohere-ai/sandbox-topically/issues/4",
            400,
            "too many tokens: total number of tokens (prompt and prediction) cannot"
            " exceed 2048 - received 6354. Try using a shorter prompt or a smaller"
            " max_tokens value.",
        ),
        (
            CHAT,
            _GH + "sjzar/chatlog/issues/30",
            400,
            "length of prompt_tokens (163280) must be less than max_seq_len (32768).",
        ),
        (
            CHAT,
            _GH + "BerriAI/litellm/pull/21647",  # Mistral
            400,
            "Prompt contains 140000 tokens and 0 draft tokens, too large for model with"
            " 131072 maximum context length",
        ),
        (
            CHAT,
            _GH + "anomalyco/opencode/pull/45834",  # DashScope
            400,
            "Range of input length should be [1, 129024]",
        ),
        (
            CHAT,
            _GH + "0xBakeer/inference-atlas/pull/186",
            400,
            "Prompt too long: 5152 tokens exceeds max_seq_len 2048 (leave room for"
            " output tokens)",
        ),
        (
            CHAT,
            _GH + "badlogic/pi-mono/blob/main/packages/ai/src/utils/overflow.ts",  # xAI
            400,
            "This model's maximum prompt length is 131072 but the request contains"
            " 537812 tokens.",
        ),
        (
            CHAT,
            _GH
            + "badlogic/pi-mono/blob/main/packages/ai/src/utils/overflow.ts",  # Groq
            400,
            "Please reduce the length of the messages or completion.",
        ),
        (
            CHAT,
            _GH + "badlogic/pi-mono/blob/main/packages/ai/src/utils/overflow.ts",
            400,  # llama.cpp
            "the request exceeds the available context size, try increasing it",
        ),
        (
            CHAT,
            _GH + "badlogic/pi-mono/blob/main/packages/ai/src/utils/overflow.ts",
            400,  # LM Studio
            "The number of tokens to keep from the initial prompt is greater than the"
            " context length.",
        ),
        (
            CHAT,
            _GH + "badlogic/pi-mono/blob/main/packages/ai/src/utils/overflow.ts",
            400,  # GitHub Copilot
            "prompt token count of 140000 exceeds the limit of 128000",
        ),
        (
            CHAT,
            _GH + "badlogic/pi-mono/blob/main/packages/ai/src/utils/overflow.ts",
            400,  # MiniMax
            "invalid params, context window exceeds limit",
        ),
        (
            CHAT,
            _GH + "badlogic/pi-mono/blob/main/packages/ai/src/utils/overflow.ts",
            400,  # Kimi
            "Invalid request: Your request exceeded model token limit: 262144"
            " (requested: 300001)",
        ),
        (
            CHAT,
            "../shared/wire/llama.md",  # Ollama
            400,
            "prompt too long; exceeded max context length by 1200 tokens",
        ),
        (
            CHAT,
            _GH + "openclaw/openclaw/issues/58839",  # Cohere
            400,
            "total tokens exceeds the model's max of 4096",
        ),
        (
            CHAT,
            _GH + "openclaw/openclaw/issues/58839",
            400,
            "input is too long for model gpt-5.4",
        ),
        (
            RESPONSES,
            "openai-responses-json-400-8da585ebca32",
            400,
            "Your input exceeds the context window of this model. Please adjust your"
            " input and try again.",
        ),
        (
            RESPONSES,
            "../shared/wire/openai-responses.md",
            400,
            "This model's maximum context length is 128000 tokens. Please reduce the"
            " length of the messages.",
        ),
        (
            MESSAGES,
            "anthropic-messages-json-400-e154cd7c15e0",
            400,
            "prompt is too long: 3333404 tokens > 200000 maximum",
        ),
        (
            MESSAGES,
            "../shared/wire/anthropic-messages.md",
            400,
            "input length and `max_tokens` exceed context limit: 188240 + 21333 >"
            " 200000, decrease input length or `max_tokens` and try again",
        ),
        (
            MESSAGES,
            _GH + "aws-samples/bedrock-chat/issues/95",
            400,
            "Input is too long for requested model.",
        ),
        (
            MESSAGES,
            _GH + "continuedev/continue/issues/9592",
            400,
            "The model returned the following errors: Input is too long for requested"
            " model.",
        ),
        (
            MESSAGES,
            _GH + "openclaw/openclaw/issues/58839",
            400,
            "Input exceeds the max input token limit",
        ),
        (
            GEMINI,
            _GH + "google-gemini/gemini-cli/issues/4231",
            400,
            "The input token count (3475108) exceeds the maximum number of tokens"
            " allowed (1048576).",
        ),
        (
            GEMINI,
            _GH + "warpdotdev/warp/issues/15662",
            400,
            "The input token count exceeds the maximum number of tokens allowed"
            " 1048576.",
        ),
        (
            GEMINI,
            _GH + "googleapis/python-genai/issues/2050",
            400,
            "The input token count (25270) exceeds the maximum number of tokens allowed"
            " (4000).",
        ),
    )
]


def _anthropic(type: str, message: str, **more: object) -> dict[str, object]:
    return {"type": "error", "error": {"type": type, "message": message, **more}}


def _openai(
    message: str,
    code: str | int | None = None,
    type: str | None = "invalid_request_error",
    param: str | None = None,
) -> dict[str, object]:
    error = {"message": message, "type": type, "param": param, "code": code}
    return {"error": error}


def _google(
    code: int, status: str, message: str, *details: object
) -> dict[str, object]:
    error = {"code": code, "message": message, "status": status}
    return {"error": {**error, "details": list(details)} if details else error}


OTHERS = [
    Wording(
        MESSAGES,
        "anthropic-messages-json-400-b18de8fb3f5a",
        400,
        "tools.0.custom: Invalid schema: Circular reference detected in schema"
        " definitions: Node -> Node.",
        BadRequest,
    ),
    Wording(
        MESSAGES,
        "anthropic-messages-json-401-9d32700256fb",
        401,
        _anthropic("authentication_error", "invalid x-api-key"),
        InvalidKey,
    ),
    Wording(
        MESSAGES,
        "anthropic-models-json-401-8abc1d378f9b",
        401,
        _anthropic("authentication_error", "API key is invalid."),
        InvalidKey,
    ),
    Wording(
        MESSAGES,
        "anthropic-messages-json-404-696bcaedcb42",
        404,
        _anthropic("not_found_error", "model: claude-4-5-haiku"),
        ModelNotAvailable,
    ),
    Wording(
        MESSAGES,
        "reported-anthropic-messages-529-32760a06",
        529,
        _anthropic("overloaded_error", "Overloaded"),
        ProviderDown,
    ),
    Wording(  # the answer's limit, not the input's
        MESSAGES,
        _GH + "charmbracelet/crush/issues/946",
        400,
        "The maximum tokens you requested exceeds the model limit of 32768",
        BadRequest,
    ),
    Wording(
        MESSAGES,
        _GH + "anomalyco/opencode/pull/18853",
        403,
        _anthropic(
            "billing_error", "Extra usage is required for long context requests"
        ),
        QuotaExhausted,
    ),
    Wording(
        MESSAGES,
        "../shared/wire/anthropic-messages.md",
        400,
        "Your credit balance is too low to access the Anthropic API. Please go to Plans"
        " & Billing to upgrade or purchase credits.",
        QuotaExhausted,
    ),
    Wording(
        MESSAGES,
        "../shared/wire/anthropic-messages.md",
        429,
        _anthropic(
            "rate_limit_error",
            "The spend limit is reached.",
            details={"error_code": "enforced_spend_limit_reached"},
        ),
        QuotaExhausted,
    ),
    Wording(
        MESSAGES,
        _GH + "jin-bo/agentao/pull/88",  # Bedrock's throttling is no overflow
        429,
        "Too many tokens, please wait before trying again.",
        RateLimited,
    ),
    Wording(
        CHAT,
        "azure-chat-json-429-aafd46d6e3c1",
        429,
        _openai("Your requests have exceeded rate limit.", "RateLimitReached", None),
        RateLimited,
    ),
    Wording(
        CHAT,
        "deepseek-chat-json-400-9e9460952201",
        400,
        _openai(
            "Failed to deserialize the JSON body into the target type: messages[0]:"
            " unknown variant `image_url`, expected `text` at line 1 column 391",
            "invalid_request_error",
        ),
        BadRequest,
    ),
    Wording(
        CHAT,
        "deepseek-chat-json-401-72c2ac7ff561",
        401,
        _openai(
            "Authentication Fails, Your api key: ****-key is invalid",
            "invalid_request_error",
            "authentication_error",
        ),
        InvalidKey,
    ),
    Wording(
        CHAT,
        "doubleword-chat-json-400-8842912ce6f4",
        400,
        {
            "code": 400,
            "message": "Validation: Temperature must be between 0 and 2, got 100",
            "type": "Bad Request",
        },
        BadRequest,
    ),
    Wording(
        CHAT,
        "groq-chat-json-400-ce2ae3365864",
        400,
        _openai("Tool call validation failed: tool call", "tool_use_failed"),
        BadResponse,
    ),
    Wording(
        CHAT,
        "groq-chat-json-404-72278b4092ba",
        404,
        _openai("The model `a` does not exist or you do not have access to it."),
        ModelNotAvailable,
    ),
    Wording(
        CHAT,
        "llamacpp-chat-json-500-9c9940dacce8",
        500,
        _openai("tools param requires --jinja flag", 500, "server_error"),
        BadRequest,
    ),
    Wording(
        CHAT,
        "llamacpp-chat-json-500-5c5bdb6dcff0",
        500,
        _openai(
            "image input is not supported - hint: if this is unexpected, you may need"
            " to provide the mmproj",
            500,
            "server_error",
        ),
        BadRequest,
    ),
    Wording(
        CHAT,
        "mistral-chat-json-400-6a3dd15c1329",
        400,
        {
            "code": "1500",
            "message": "Invalid model: definitely-not-a-model",
            "object": "error",
            "type": "invalid_model",
        },
        ModelNotAvailable,
    ),
    Wording(
        CHAT,
        "mistral-chat-json-401-08327cbfef8b",
        401,
        {"detail": "Invalid API Key"},
        InvalidKey,
    ),
    Wording(
        CHAT,
        "openai-chat-json-400-99ee982f9bba",
        400,
        _openai(
            "Web search options not supported with this model.",
            param="web_search_options",
        ),
        BadRequest,
    ),
    Wording(
        CHAT,
        "openai-chat-json-404-b3989f123ed3",
        404,
        _openai(
            "This is not a chat model and thus not supported in the"
            " v1/chat/completions endpoint.",
            param="model",
        ),
        ModelNotAvailable,
    ),
    Wording(
        CHAT,
        "openrouter-chat-json-401-a5c01dc568ef",
        401,
        {"error": {"message": "Missing Authentication header", "code": 401}},
        InvalidKey,
    ),
    Wording(
        CHAT,
        "openrouter-chat-json-429-3940213faecd",
        429,
        {
            "error": {
                "code": 429,
                "message": "Provider returned error",
                "metadata": {"raw": "temporarily rate-limited upstream."},
            }
        },
        RateLimited,
    ),
    Wording(
        CHAT,
        "reported-azure-chat-400-9fd60c99",
        400,
        _openai(
            "The response was filtered due to the prompt triggering Azure OpenAI's"
            " content management policy.",
            "content_filter",
            None,
            "prompt",
        ),
        ContentPolicy,
    ),
    Wording(
        CHAT,
        "reported-llamacpp-chat-502-61b30d40",
        502,
        b"<html><head><title>502 Bad Gateway</title></head></html>",
        ProviderDown,
    ),
    Wording(
        RESPONSES,
        "chatgpt-codex-responses-json-401-e8c169ca9a49",
        401,
        {"detail": "Could not parse your authentication token."},
        InvalidKey,
    ),
    Wording(
        RESPONSES,
        "deepseek-responses-json-400-00a4c9ee6251",
        400,
        _openai("No tool output found for tool call call-a.", "invalid_request_error"),
        BadRequest,
    ),
    Wording(
        RESPONSES,
        "openai-responses-json-400-12b81d1c1c64",
        400,
        _openai(
            "Item 'rs_1' of type 'reasoning' was provided without its required"
            " following item.",
            param="input",
        ),
        BadRequest,
    ),
    Wording(
        RESPONSES,
        "openai-responses-json-400-14cd02faf78b",
        400,
        _openai(
            "You exceeded your current quota, please check your plan and billing"
            " details.",
            "insufficient_quota",
            "insufficient_quota",
        ),
        QuotaExhausted,
    ),
    Wording(
        RESPONSES,
        "openai-responses-json-400-6d35214596eb",
        400,
        _openai(
            "Previous response with id 'resp_1' not found.",
            "previous_response_not_found",
            param="previous_response_id",
        ),
        BadRequest,
    ),
    Wording(
        RESPONSES,
        "openai-responses-json-400-7377b8f4993f",
        400,
        _openai(
            "Invalid schema for response_format 'response': In context=(),"
            " 'additionalProperties' is required to be supplied and to be false.",
            "invalid_json_schema",
            param="text.format.schema",
        ),
        BadRequest,
    ),
    Wording(
        RESPONSES,
        "openai-responses-json-400-ffe26ac36cf0",
        400,
        _openai(
            "The requested model 'this-model-does-not-exist-12345' does not exist.",
            "model_not_found",
            param="model",
        ),
        ModelNotAvailable,
    ),
    Wording(
        RESPONSES,
        "openai-responses-json-401-89e6dbed6e2b",
        401,
        _openai("Incorrect API key provided: test.", "invalid_api_key"),
        InvalidKey,
    ),
    Wording(
        RESPONSES,
        "xai-responses-json-400-d3e5d9dc38ff",
        400,
        {"code": "invalid-argument", "error": "Incorrect API key provided."},
        InvalidKey,
    ),
    Wording(
        RESPONSES,
        "reported-openai-chat-429-a1b38089",
        429,
        _openai(
            "Rate limit reached for o4-mini in organization org-x on tokens per min"
            " (TPM): Limit 200000, Used 162960, Requested 42288. Please try again in"
            " 1.574s.",
            "rate_limit_exceeded",
            "tokens",
        ),
        RateLimited,
    ),
    Wording(
        RESPONSES,
        "../shared/wire/openai-responses.md",
        503,
        _openai("The server is overloaded.", "server_is_overloaded", "server_error"),
        ProviderDown,
    ),
    Wording(
        GEMINI,
        "gemini-generatecontent-json-400-d86810fbfbcf",
        400,
        _google(
            400,
            "INVALID_ARGUMENT",
            "API key not valid. Please pass a valid API key.",
            {"reason": "API_KEY_INVALID", "domain": "googleapis.com"},
        ),
        InvalidKey,
    ),
    Wording(
        GEMINI,
        "gemini-generatecontent-json-403-0c1bcee8a0e6",
        403,
        _google(
            403,
            "PERMISSION_DENIED",
            "Generative Language API has not been used in project 1 before or it is"
            " disabled.",
        ),
        InvalidKey,
    ),
    Wording(
        GEMINI,
        "gemini-generatecontent-json-404-1885f2702305",
        404,
        _google(
            404,
            "NOT_FOUND",
            "models/gemini-none is not found for API version v1beta, or is not"
            " supported for generateContent.",
        ),
        ModelNotAvailable,
    ),
    Wording(
        GEMINI,
        "gemini-generatecontent-json-429-f2fd0540f7a2",
        429,
        _google(
            429,
            "RESOURCE_EXHAUSTED",
            "You exceeded your current quota, please check your plan.",
            {"violations": [{"quotaId": "GenerateRequestsPerMinutePerProject"}]},
        ),
        RateLimited,
    ),
    Wording(
        GEMINI,
        "../shared/wire/gemini.md",
        429,
        _google(
            429,
            "RESOURCE_EXHAUSTED",
            "You exceeded your current quota, please check your plan.",
            {"violations": [{"quotaId": "GenerateRequestsPerDayPerProject"}]},
        ),
        QuotaExhausted,
    ),
    Wording(
        GEMINI,
        "reported-gemini-generatecontent-503-866c90d1",
        503,
        _google(503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
        ProviderDown,
    ),
    Wording(
        GEMINI,
        "../shared/wire/gemini.md",
        504,
        _google(504, "DEADLINE_EXCEEDED", "Deadline expired before operation."),
        ProviderTimeout,
    ),
    Wording(
        GEMINI,
        "vertex-generatecontent-json-400-74844a078b62",
        400,
        _google(
            400,
            "INVALID_ARGUMENT",
            "Cannot fetch content from the provided URL. Please ensure the URL is valid"
            " and accessible by Vertex AI.",
        ),
        BadRequest,
    ),
    Wording(
        GEMINI,
        "vertex-generatecontent-json-404-997b713068ad",
        404,
        _google(404, "NOT_FOUND", "Publisher Model `projects/a/models/b` not found."),
        ModelNotAvailable,
    ),
    Wording(
        GEMINI,
        "vertex-generatecontent-json-429-b2c11e520bbd",
        429,
        _google(
            429,
            "RESOURCE_EXHAUSTED",
            "Quota exceeded for quota metric 'Generate Content API requests per minute'"
            " and limit 'GenerateContent request limit per minute for a region'.",
        ),
        RateLimited,
    ),
]
WORDINGS = [*TOO_LONG, *OTHERS]


def _body(wording: Wording) -> bytes:
    error = wording.error
    if isinstance(error, bytes):
        return error
    if isinstance(error, str) and wording.wire == MESSAGES:
        error = _anthropic("invalid_request_error", error)
        if wording.status == 429:
            error = {"message": wording.error}
    elif isinstance(error, str) and wording.wire == GEMINI:
        error = _google(wording.status, "INVALID_ARGUMENT", error)
    elif isinstance(error, str):
        error = _openai(error)
    return json.dumps(error).encode()


@pytest.mark.parametrize("wording", WORDINGS, ids=lambda each: each.source[-60:])
def test_wording_is_classified(wording: Wording) -> None:
    error = classify(wording.status, {}, _body(wording))
    assert type(error) is wording.expected


def test_every_wire_has_ten_wordings() -> None:
    counts = Counter(wording.wire for wording in WORDINGS)
    assert len(WORDINGS) >= 60
    assert min(counts[wire] for wire in (CHAT, RESPONSES, MESSAGES, GEMINI)) >= 10
