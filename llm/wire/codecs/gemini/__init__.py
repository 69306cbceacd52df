"""The generateContent API of Gemini and Vertex AI."""

from __future__ import annotations

from llm.wire.codecs.gemini.codec import GeminiCodec

__all__ = ["GeminiCodec"]
