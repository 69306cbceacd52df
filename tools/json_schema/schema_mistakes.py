"""Checks of JSON Schemas that staff write for a tool's arguments. Pure.

Source: https://json-schema.org/draft/2020-12
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from llm.wire.json_schema.validation import compile_schema
from tools.json_schema.arguments import Path, mistakes

if TYPE_CHECKING:
    import jsonschema_rs

DIALECT = "https://json-schema.org/draft/2020-12/schema"
EMPTY: Mapping[str, Any] = {"type": "object", "properties": {}}


def schema_mistakes(parameters: Any) -> Iterator[tuple[Path, str]]:
    """Yield path and text of each mistake in the schema of an object."""
    if not isinstance(parameters, dict):
        yield (), "a schema must be an object, {…}"
    elif parameters.get("type") != "object":
        yield ("type",), 'arguments must be an object: write "type": "object"'
    elif parameters.get("$schema", DIALECT) != DIALECT:
        yield ("$schema",), f"leave it out, or write {DIALECT!r}"
    else:
        yield from _invalid(parameters) or _uncompilable(parameters)


def rule_mistakes(rule: Any) -> Iterator[tuple[Path, str]]:
    """Yield path and text of each mistake in an approval rule, a schema of any
    type."""
    if not isinstance(rule, dict):
        yield (), "a schema must be an object, {…}"
    elif rule.get("$schema", DIALECT) != DIALECT:
        yield ("$schema",), f"leave it out, or write {DIALECT!r}"
    else:
        yield from _invalid(rule) or _uncompilable(rule)


def _invalid(parameters: Mapping[str, Any]) -> list[tuple[Path, str]]:
    found = mistakes(_metaschema().iter_errors(parameters))
    # The metaschema has many parts, and several of them may report the same mistake.
    return list({(*path, text): (path, text) for path, text in found}.values())


def _uncompilable(parameters: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    """Yield broken references and invalid patterns."""
    from jsonschema_rs import ValidationError  # imported late: see `compiled`

    try:
        compile_schema(parameters)
    except ValidationError as exc:
        yield exc.instance_path, exc.message
    except (ValueError, RecursionError) as exc:
        yield (), str(exc)


@cache
def _metaschema() -> jsonschema_rs.Validator:
    import jsonschema_rs

    return jsonschema_rs.Draft202012Validator({"$ref": DIALECT})
