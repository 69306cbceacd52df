"""Violations of the Open Responses standard, by the schemas in this repository.

The specification itself is beside the project where this machine has it; a test holds
our extract against it.
"""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs

from conversations.gateway.document.openresponses_schemas import SCHEMAS

_BESIDE = Path(__file__).resolve().parent.parent.parent / "shared" / "openresponses"
SPECIFICATION = Path(os.environ.get("OPENRESPONSES_DIR", _BESIDE)) / "openapi.json"


def problems(event: dict[str, Any]) -> list[str]:
    """Of a streamed event; extensions are free."""
    if event["type"].startswith("parley:"):
        return [] if isinstance(event["sequence_number"], int) else ["no number"]
    name = _events().get(event["type"])
    if name is None:
        return [f"{event['type']} is no event of the standard"]
    return problems_of(name, event)


def problems_of(name: str, value: Any) -> list[str]:
    """Violations of the schema `name`."""
    found = _validator(name).iter_errors(value)
    return [f"{each.instance_path}: {each.message}" for each in found]


@cache
def _events() -> dict[str, str]:
    return {
        schema["properties"]["type"]["enum"][0]: name
        for name, schema in SCHEMAS.items()
        if name.endswith("StreamingEvent")
    }


@cache
def _validator(name: str) -> Any:
    whole = {
        "$ref": f"#/components/schemas/{name}",
        "components": {"schemas": SCHEMAS},
    }
    return jsonschema_rs.Draft202012Validator(whole)


def published() -> dict[str, Any]:
    """The schemas as the standard has them."""
    schemas: dict[str, Any] = json.loads(SPECIFICATION.read_text())["components"][
        "schemas"
    ]
    return schemas
