"""Fireworks AI: chat completions."""

from __future__ import annotations

from llm.provider import Provider
from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec

PROVIDER = Provider(
    name="fireworks",
    label="Fireworks AI",
    base_url="https://api.fireworks.ai/inference/v1",
    codecs={
        "openai_chat": OpenAIChatCodec(
            inline_refs=True,
            # Otherwise `max_tokens` is silently lowered to fit the context window.
            defaults={"context_length_exceeded_behavior": "error"},
            options=frozenset({"prompt_cache_key"}),
            efforts={"minimal": "low", "xhigh": "high", "max": "high"},
        )
    },
    key_env="FIREWORKS_API_KEY",
    model_env="FIREWORKS_MODEL",
    base_url_env="FIREWORKS_API_BASE",
    default_model="accounts/fireworks/models/gpt-oss-120b",
    docs_url="https://docs.fireworks.ai/api-reference/post-chatcompletions",
)
