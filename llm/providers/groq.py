"""Groq: chat completions."""

from __future__ import annotations

from llm.provider import Provider
from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec

PROVIDER = Provider(
    name="groq",
    label="Groq",
    base_url="https://api.groq.com/openai/v1",
    codecs={
        "openai_chat": OpenAIChatCodec(
            reasoning_fields=frozenset({"reasoning"}),
            inline_refs=True,
            max_tokens_field="max_completion_tokens",
            options=frozenset({"service_tier"}),
            drops=frozenset({"logprobs", "top_logprobs"}),  # 400 for both
            # Otherwise Qwen's reasoning is part of the text; gpt-oss refuses the field.
            model_defaults={"qwen/": {"reasoning_format": "parsed"}},
            hosted_tools="groq",
            efforts={"minimal": "low", "xhigh": "high", "max": "high"},
        )
    },
    key_env="GROQ_API_KEY",
    model_env="GROQ_MODEL",
    base_url_env="GROQ_API_BASE",
    default_model="openai/gpt-oss-120b",
    docs_url="https://console.groq.com/docs/api-reference",
)
