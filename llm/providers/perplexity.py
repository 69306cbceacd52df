"""Perplexity: chat completions with web search."""

from __future__ import annotations

from llm.provider import Provider
from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec

PROVIDER = Provider(
    name="perplexity",
    label="Perplexity",
    base_url="https://api.perplexity.ai",
    codecs={
        # Every chunk has usage. System messages are refused except at the start.
        "openai_chat": OpenAIChatCodec(
            reasoning_fields=frozenset(),
            stream_options={},
            merge_system=True,
            hosted_tools="perplexity",
        ),
        # Reasoning models write their reasoning into the text.
        "openai_chat_think_tags": OpenAIChatCodec(
            reasoning_fields=frozenset(),
            name="openai_chat_think_tags",
            stream_options={},
            merge_system=True,
            think_tags=True,
            hosted_tools="perplexity",
        ),
    },
    key_env="PERPLEXITY_API_KEY",
    model_env="PERPLEXITY_MODEL",
    base_url_env="PERPLEXITY_API_BASE",
    default_model="sonar",
    docs_url="https://docs.perplexity.ai/api-reference/chat-completions-post",
)
