"""DeepSeek: chat completions, with a beta address that continues a text."""

from __future__ import annotations

from llm.provider import Provider
from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec

PROVIDER = Provider(
    name="deepseek",
    label="DeepSeek",
    base_url="https://api.deepseek.com/v1",
    prefill_base_url="https://api.deepseek.com/beta",
    codecs={
        "openai_chat": OpenAIChatCodec(
            reasoning_fields=frozenset({"reasoning_content"}),
            no_reasoning={"thinking": {"type": "disabled"}},
            # A request with a call is refused without the reasoning before the call.
            reasoning_echo="reasoning_content",
            prefill_message={"prefix": True},
        )
    },
    key_env="DEEPSEEK_API_KEY",
    model_env="DEEPSEEK_MODEL",
    base_url_env="DEEPSEEK_API_BASE",
    default_model="deepseek-chat",
    docs_url="https://api-docs.deepseek.com",
)
