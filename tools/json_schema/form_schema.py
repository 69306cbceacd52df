"""Which JSON Schemas are forms for a person, and the defaults of their fields. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from llm.wire.json_schema.validation import INVALID_SCHEMA, compile_schema

MAX_FIELDS = 100  # a browser may send ten times as many
MAX_SIZE = 64 * 1024  # bytes of a schema: it is part of each page that has the form


def is_form(schema: Any) -> bool:
    """False for an invalid schema, which no answer could fit, and for a form too large
    to be shown."""
    try:
        compile_schema(schema)
        size = len(orjson.dumps(schema, default=dict))
    except INVALID_SCHEMA:
        return False
    return (
        isinstance(schema, Mapping)
        and size <= MAX_SIZE
        and len(schema.get("properties") or ()) <= MAX_FIELDS
    )


def add_defaults(schema: Any, content: Mapping[str, Any]) -> dict[str, Any]:
    """The content with the defaults of the fields that it omits. A question may be
    older than the check of its schema (`is_form`)."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping):
        return dict(content)
    defaults = {
        name: field["default"]
        for name, field in properties.items()
        if isinstance(field, Mapping) and "default" in field
    }
    return {**defaults, **content}
