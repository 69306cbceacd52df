"""Any host with Chat Completions that has no file of its own in this package."""

from __future__ import annotations

from llm.provider import Provider
from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec

PROVIDER = Provider(
    name="openai_compatible",
    label="OpenAI-compatible",
    base_url="",
    codecs={
        # Files are sent: a host that does not support them answers with an error.
        "openai_chat": OpenAIChatCodec(files=True, inline_refs=True),
        "openai_chat_think_tags": OpenAIChatCodec(
            files=True,
            inline_refs=True,
            name="openai_chat_think_tags",
            think_tags=True,
        ),
    },
    needs_key=False,
    needs_base_url=True,
    key_env="OPENAI_COMPATIBLE_API_KEY",
    model_env="OPENAI_COMPATIBLE_MODEL",
    base_url_env="OPENAI_COMPATIBLE_API_BASE",
)
