"""OpenAI: Responses and chat completions."""

from __future__ import annotations

from llm.provider import Provider
from llm.wire.codecs.openai_chat import host_options as openai_chat
from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec
from llm.wire.codecs.openai_responses import codec as openai_responses
from llm.wire.codecs.openai_responses.codec import OpenAIResponsesCodec

PROVIDER = Provider(
    name="openai",
    label="OpenAI",
    base_url="https://api.openai.com/v1",
    codecs={
        "openai_responses": OpenAIResponsesCodec(
            options=openai_responses.OPENAI_OPTIONS,
            reasoners=openai_responses.OPENAI_REASONERS,
            tool_results=True,
        ),
        "openai_chat": OpenAIChatCodec(
            reasoning_fields=frozenset(),
            max_tokens_field="max_completion_tokens",
            stream_options={"include_usage": True, "include_obfuscation": False},
            options=openai_chat.OPENAI_OPTIONS,
            defaults={"store": False},
            efforts={"max": "xhigh"},  # only Responses has "max"
            system_role="developer",
            files=True,
            strict_tools=True,
            allowed_tools=True,
        ),
    },
    key_env="OPENAI_API_KEY",
    model_env="OPENAI_MODEL",
    base_url_env="OPENAI_API_BASE",
    default_model="gpt-6-luna",
    docs_url="https://platform.openai.com/docs/api-reference/responses",
    counts_tokens=True,
)
