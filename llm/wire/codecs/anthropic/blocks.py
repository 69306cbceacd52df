"""Streamed content blocks and usage counts of the Messages API.

Source: https://platform.claude.com/docs/en/build-with-claude/streaming
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from llm.wire.bounded_json import loads_lenient
from llm.wire.deltas import ApartUsage, TextDelta, UsageDelta
from llm.wire.sanitize import sanitize_text
from llm.wire.usage_numbers import amount, count, name_tier

#: Types of `iterations` that the counts beside them leave out.
_APART = ("compaction", "advisor_message")
_SHARED = ("service_tier", "speed")
_USUAL_REGIONS = (None, "", "global", "not_available")


@dataclass(slots=True)
class Block:
    """A content block as far as it has arrived; `raw` is what is sent back."""

    key: int  # of the item that the block belongs to
    raw: dict[str, Any]
    pieces: list[str] = field(default_factory=list)  # of its text, thinking or JSON
    is_whole: bool = True  # False after a delta of unknown type

    @property
    def text(self) -> str:
        return sanitize_text("".join(self.pieces))

    def append_text(self, text: str) -> TextDelta:
        """Append a piece of text and return its delta."""
        self.pieces.append(text)
        return TextDelta(self.key, text)

    def input(self) -> dict[str, Any] | None:
        """The input that came in pieces; None if it is not a complete object."""
        try:
            parsed = orjson.loads(self.text)
        except orjson.JSONDecodeError:
            try:
                parsed = loads_lenient(self.text)  # half a surrogate pair, escaped
            except ValueError:
                return None
        return parsed if isinstance(parsed, dict) else None

    def compact(self, delta: dict[str, Any]) -> None:
        if (content := delta.get("content")) is not None:
            self.raw["content"] = (self.raw.get("content") or "") + content
        if delta.get("encrypted_content") is not None:
            self.raw["encrypted_content"] = delta["encrypted_content"]


def usage_of(usage: dict[str, Any]) -> UsageDelta:
    """Anthropic's counts in canonical meaning; the original object stays in `raw`."""
    read = count(usage, "input_tokens")
    cached = count(usage, "cache_read_input_tokens")
    written = count(usage, "cache_creation_input_tokens")
    return UsageDelta(
        # `input_tokens` counts only the tokens after the last cache breakpoint.
        input_tokens=None if read is None else read + (cached or 0) + (written or 0),
        output_tokens=count(usage, "output_tokens"),
        cached_tokens=cached,
        cache_write_tokens=written,
        cache_write_1h_tokens=count(
            usage.get("cache_creation"), "ephemeral_1h_input_tokens"
        ),
        reasoning_tokens=count(usage.get("output_tokens_details"), "thinking_tokens"),
        cost=amount(usage, "cost"),  # OpenRouter's
        raw=usage,
        apart=_apart(usage) if usage.get("iterations") else None,
        has_other_prices=usage.get("inference_geo") not in _USUAL_REGIONS or None,
        tier=_tier(usage),
        web_searches=count(usage.get("server_tool_use"), "web_search_requests"),
    )


def _apart(usage: dict[str, Any]) -> Sequence[ApartUsage] | None:
    """What the counts of an answer leave out: the work of compaction, and of the model
    that the tool `advisor` asks. It is done at the speed and in the tier of the
    answer."""
    if not isinstance(usage["iterations"], list):
        return None
    shared = {name: usage.get(name) for name in _SHARED}
    return [
        ApartUsage(
            usage_of({**shared, **entry, "iterations": None}),
            str(entry.get("model", "")),
        )
        for entry in usage["iterations"]
        if isinstance(entry, dict) and entry.get("type") in _APART
    ] or None


def _tier(usage: dict[str, Any]) -> str | None:
    """The fast mode too has prices of its own; combined with another tier it has no
    known price."""
    tier = name_tier(usage.get("service_tier"))
    if usage.get("speed") != "fast":
        return tier
    return f"fast-{tier}" if tier else "fast"
