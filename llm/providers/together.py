"""Together AI: chat completions."""

from __future__ import annotations

from llm.errors import ContextTooLarge
from llm.provider import Provider
from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec

PROVIDER = Provider(
    name="together",
    label="Together AI",
    base_url="https://api.together.xyz/v1",
    codecs={
        "openai_chat": OpenAIChatCodec(
            inline_refs=True,
            efforts={"minimal": "low", "xhigh": "high", "max": "high"},
            statuses={403: ContextTooLarge},
        )
    },
    key_env="TOGETHER_API_KEY",
    model_env="TOGETHER_MODEL",
    base_url_env="TOGETHER_API_BASE",
    default_model="meta-llama/Llama-3.3-70B-Instruct-Turbo",
    docs_url="https://docs.together.ai/reference/chat-completions",
)
