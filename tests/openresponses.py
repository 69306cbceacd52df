"""The standard's own schema, where this machine has it."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

_BESIDE = Path(__file__).resolve().parent.parent.parent / "shared" / "openresponses"
DIRECTORY = Path(os.environ.get("OPENRESPONSES_DIR", _BESIDE))


def need_schema() -> None:
    if not (DIRECTORY / "openapi.json").exists():
        pytest.skip("the Open Responses schema is not here; set OPENRESPONSES_DIR")


def problems(event: dict[str, Any]) -> list[str]:
    """What the standard finds wrong with a streamed event; extensions are free."""
    if event["type"].startswith("parley:"):
        return [] if isinstance(event["sequence_number"], int) else ["no number"]
    validator = _validators().get(event["type"])
    if validator is None:
        return [f"{event['type']} is no event of the standard"]
    return [f"{e.instance_path}: {e.message}" for e in validator.iter_errors(event)]


@cache
def _validators() -> dict[str, Any]:
    document = json.loads((DIRECTORY / "openapi.json").read_text())
    schemas = document["components"]["schemas"]
    validators = {}
    for name, schema in schemas.items():
        if name.endswith("StreamingEvent"):
            whole = {
                "$ref": f"#/components/schemas/{name}",
                "components": document["components"],
            }
            kind = schema["properties"]["type"]["enum"][0]
            validators[kind] = jsonschema_rs.Draft202012Validator(whole)
    return validators
