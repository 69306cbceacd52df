"""The Responses API of OpenAI, Azure, xAI and compatible hosts."""

from __future__ import annotations

from llm.wire.codecs.openai_responses.codec import (
    OPENAI_OPTIONS,
    OPENAI_REASONERS,
    OpenAIResponsesCodec,
)

__all__ = ["OPENAI_OPTIONS", "OPENAI_REASONERS", "OpenAIResponsesCodec"]
