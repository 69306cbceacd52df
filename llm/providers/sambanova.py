"""SambaNova: chat completions."""

from __future__ import annotations

from llm.provider import Provider
from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec

PROVIDER = Provider(
    name="sambanova",
    label="SambaNova",
    base_url="https://api.sambanova.ai/v1",
    codecs={
        "openai_chat": OpenAIChatCodec(
            inline_refs=True, efforts={"minimal": "low", "xhigh": "high", "max": "high"}
        ),
        # DeepSeek's models write their reasoning into the text here.
        "openai_chat_think_tags": OpenAIChatCodec(
            inline_refs=True, name="openai_chat_think_tags", think_tags=True
        ),
    },
    key_env="SAMBANOVA_API_KEY",
    model_env="SAMBANOVA_MODEL",
    base_url_env="SAMBANOVA_API_BASE",
    default_model="Meta-Llama-3.3-70B-Instruct",
    docs_url="https://docs.sambanova.ai",
)
