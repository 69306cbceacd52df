"""Mistral: chat completions."""

from __future__ import annotations

from llm.provider import Provider
from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec

PROVIDER = Provider(
    name="mistral",
    label="Mistral",
    base_url="https://api.mistral.ai/v1",
    codecs={
        "openai_chat": OpenAIChatCodec(
            reasoning_fields=frozenset(),
            seed_field="random_seed",
            stream_options={},  # usage is always sent; unknown fields are refused
            drops=frozenset({"logprobs", "top_logprobs"}),
            reasoning_echo="content",
            call_id_length=9,
            prefill_message={"prefix": True},
            strict_tools=True,
        )
    },
    key_env="MISTRAL_API_KEY",
    model_env="MISTRAL_MODEL",
    base_url_env="MISTRAL_API_BASE",
    default_model="mistral-medium-latest",
    docs_url="https://docs.mistral.ai/api",
)
