"""The JSON Schemas of Open Responses: responses, items, events and compactions.

`openresponses_schemas.json` is an extract of the specification, unchanged; it names its
source, version and licence (Apache-2.0).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

_TEXT = Path(__file__).with_suffix(".json").read_bytes()
_REFERENCE = b'"#/components/schemas/'

SCHEMAS: dict[str, Any] = orjson.loads(_TEXT)["schemas"]
EVENTS = [name for name in SCHEMAS if name.endswith("StreamingEvent")]


def schemas(prefix: str) -> dict[str, Any]:
    """The schemas with `prefix` before their names, as Parley's have the same."""
    renamed = _TEXT.replace(_REFERENCE, _REFERENCE + prefix.encode())
    loaded = orjson.loads(renamed)["schemas"]
    return {prefix + name: schema for name, schema in loaded.items()}
