"""llama.cpp's server: chat completions."""

from __future__ import annotations

from llm.provider import Provider
from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec

PROVIDER = Provider(
    name="llamacpp",
    label="llama.cpp",
    base_url="http://localhost:8080/v1",
    codecs={
        "openai_chat": OpenAIChatCodec(inline_refs=True, merge_system=True),
        # A server started with --reasoning-format none.
        "openai_chat_think_tags": OpenAIChatCodec(
            inline_refs=True,
            name="openai_chat_think_tags",
            merge_system=True,
            think_tags=True,
        ),
    },
    needs_key=False,
    key_env="LLAMACPP_API_KEY",
    model_env="LLAMACPP_MODEL",
    base_url_env="LLAMACPP_API_BASE",
    docs_url="https://github.com/ggml-org/llama.cpp/tree/master/tools/server",
)
