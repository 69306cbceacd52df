"""Chat Completions, as OpenAI and compatible hosts speak it."""

from __future__ import annotations

from llm.wire.codecs.openai_chat.codec import OPENAI_OPTIONS, OpenAIChatCodec

__all__ = ["OPENAI_OPTIONS", "OpenAIChatCodec"]
