"""The option `cache_seconds`: how long the answers to equal requests are stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llm.wire.facades.common_shape import MAX_CACHE_SECONDS


def are_valid_seconds(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MAX_CACHE_SECONDS


def seconds_of(options: Mapping[str, Any]) -> int:
    """0, which switches the cache off, if the option is not set."""
    value: Any = options.get("cache_seconds")
    return value if value is not None and are_valid_seconds(value) else 0
