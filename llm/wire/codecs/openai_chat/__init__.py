"""Chat Completions, as OpenAI and compatible hosts speak it."""

from __future__ import annotations

from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec
from llm.wire.codecs.openai_chat.host_options import OPENAI_OPTIONS

__all__ = ["OPENAI_OPTIONS", "OpenAIChatCodec"]
