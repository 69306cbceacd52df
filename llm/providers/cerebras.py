"""Cerebras: chat completions."""

from __future__ import annotations

from llm.provider import Provider
from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec

PROVIDER = Provider(
    name="cerebras",
    label="Cerebras",
    base_url="https://api.cerebras.ai/v1",
    codecs={
        "openai_chat": OpenAIChatCodec(
            reasoning_fields=frozenset(),
            inline_refs=True,
            max_tokens_field="max_completion_tokens",
            drops=frozenset({"frequency_penalty", "presence_penalty"}),  # 400 for both
            efforts={"minimal": "low", "xhigh": "high", "max": "high"},
            strict_tools=True,
        )
    },
    key_env="CEREBRAS_API_KEY",
    model_env="CEREBRAS_MODEL",
    base_url_env="CEREBRAS_API_BASE",
    default_model="gpt-oss-120b",
    docs_url="https://inference-docs.cerebras.ai/api-reference/chat-completions",
)
