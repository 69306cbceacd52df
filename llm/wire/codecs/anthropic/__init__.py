"""Package: the codec of the Messages API, of Anthropic and of hosts that copied it."""

from __future__ import annotations

from llm.wire.codecs.anthropic.codec import VERSION_WITH_SAMPLING, AnthropicCodec

__all__ = ["VERSION_WITH_SAMPLING", "AnthropicCodec"]
