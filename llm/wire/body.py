"""A provider's whole answer: the bytes of its body in, JSON out."""

from __future__ import annotations

from typing import Any

import orjson

from llm.errors import BadResponse


def json_of(body: bytes) -> Any:
    """Raises BadResponse."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as exc:
        raise BadResponse(detail="The answer is not JSON.") from exc


def object_of(body: bytes) -> dict[str, Any]:
    """Raises BadResponse."""
    answer = json_of(body)
    if not isinstance(answer, dict):
        raise BadResponse(detail="The answer is not a JSON object.")
    return answer
