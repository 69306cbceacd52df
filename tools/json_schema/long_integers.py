"""Integers beyond 64 bits, which servers may write and orjson cannot. Pure."""

from __future__ import annotations

from typing import Any

import orjson
from pydantic_core import to_json


def dump(value: Any) -> bytes:
    """Compact JSON, in which such integers stay exact."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        return to_json(value)


def as_floats(value: Any) -> Any:
    """The value with floats in their place; the same object if it has none."""
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError:
        return orjson.loads(to_json(value))
    return value
