"""JSON Schemas made ready to hold values against. Nothing is fetched, no value quoted.

Source: https://json-schema.org/draft/2020-12
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn

import orjson

if TYPE_CHECKING:
    import jsonschema_rs


def compiled(schema: Mapping[str, Any]) -> jsonschema_rs.Validator:
    """Raises ValueError where this is no JSON Schema, or one that points elsewhere."""
    return _compiled(orjson.dumps(schema, default=dict))


@lru_cache(maxsize=1000)
def _compiled(schema: bytes) -> jsonschema_rs.Validator:
    # It takes 6 MB, which a server that has not checked anything yet does not need.
    import jsonschema_rs

    return jsonschema_rs.validator_for(
        orjson.loads(schema), retriever=_refuse, mask="the value"
    )


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"{uri!r} is elsewhere, and a schema is never fetched")
