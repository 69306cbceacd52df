"""Ollama: chat completions."""

from __future__ import annotations

from llm.provider import Provider
from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec

PROVIDER = Provider(
    name="ollama",
    label="Ollama",
    base_url="http://localhost:11434/v1",
    codecs={
        "openai_chat": OpenAIChatCodec(
            inline_refs=True,
            efforts={"minimal": "low", "xhigh": "max"},
            drops=frozenset({"parallel_tool_calls"}),
            image_urls=False,
            takes_tool_choice=False,
        )
    },
    needs_key=False,
    key_env="OLLAMA_API_KEY",
    model_env="OLLAMA_MODEL",
    base_url_env="OLLAMA_API_BASE",
    docs_url="https://docs.ollama.com/api/openai-compatibility",
)
