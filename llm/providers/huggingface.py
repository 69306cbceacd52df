"""Hugging Face's router to many hosts, which behave differently.

A model is named `organisation/model`, or `organisation/model:host` to choose the host.
"""

from __future__ import annotations

from llm.provider import Provider
from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec

PROVIDER = Provider(
    name="huggingface",
    label="Hugging Face",
    base_url="https://router.huggingface.co/v1",
    codecs={"openai_chat": OpenAIChatCodec(inline_refs=True)},
    key_env="HUGGINGFACE_API_KEY",
    model_env="HUGGINGFACE_MODEL",
    base_url_env="HUGGINGFACE_API_BASE",
    default_model="openai/gpt-oss-120b",
    docs_url="https://huggingface.co/docs/inference-providers",
)
