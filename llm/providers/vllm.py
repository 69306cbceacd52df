"""vLLM's server: chat completions, which can continue a text."""

from __future__ import annotations

from llm.provider import Provider
from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec

#: Fields that let the model continue the last message.
_PREFILL = {"continue_final_message": True, "add_generation_prompt": False}

PROVIDER = Provider(
    name="vllm",
    label="vLLM",
    base_url="http://localhost:8000/v1",
    codecs={
        # gpt-oss needs its earlier reasoning; other chat templates ignore it.
        "openai_chat": OpenAIChatCodec(
            inline_refs=True,
            reasoning_echo="reasoning",
            merge_system=True,
            prefill_fields=_PREFILL,
        ),
        # A server started without --reasoning-parser.
        "openai_chat_think_tags": OpenAIChatCodec(
            inline_refs=True,
            name="openai_chat_think_tags",
            merge_system=True,
            think_tags=True,
            prefill_fields=_PREFILL,
        ),
    },
    needs_key=False,
    key_env="VLLM_API_KEY",
    model_env="VLLM_MODEL",
    base_url_env="VLLM_API_BASE",
    docs_url="https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html",
)
