"""JSON parsing of a provider's complete (not streamed) response body."""

from __future__ import annotations

from typing import Any

import orjson

from llm.errors import BadResponse
from llm.wire import bounded_json


def parse_json(body: bytes) -> Any:
    """Parse `body` as JSON. Raises BadResponse."""
    try:
        return bounded_json.loads(body)
    except bounded_json.TooManyValues as exc:
        raise BadResponse(detail=f"The response is too large: {exc.msg}.") from exc
    except orjson.JSONDecodeError as exc:
        raise BadResponse(detail="The response is not JSON.") from exc


def parse_object(body: bytes) -> dict[str, Any]:
    """Parse `body` as a JSON object. Raises BadResponse."""
    answer = parse_json(body)
    if not isinstance(answer, dict):
        raise BadResponse(detail="The response is not a JSON object.")
    return answer
