"""Checks of JSON Schemas that staff write for a tool's arguments. Pure.

Source: https://json-schema.org/draft/2020-12
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from llm.wire.json_pointer import is_index, steps_of
from llm.wire.json_schema.validation import compile_schema
from tools.json_schema.arguments import Path, mistakes
from tools.json_schema.provider_support import subschemas

if TYPE_CHECKING:
    import jsonschema_rs

DIALECT = "https://json-schema.org/draft/2020-12/schema"
MAX_SHOWN = 100  # characters of a reference
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
        yield _broken_reference(parameters) or (exc.instance_path, exc.message)
    except (ValueError, RecursionError) as exc:
        yield _broken_reference(parameters) or ((), str(exc))


def _broken_reference(root: Mapping[str, Any]) -> tuple[Path, str] | None:
    """Path and text of the first `$ref` that leads nowhere."""
    for path, schema in subschemas(root, ()):
        ref = schema.get("$ref")
        if not isinstance(ref, str) or not ref or ref == "#":
            continue
        shown = ref if len(ref) <= MAX_SHOWN else f"{ref[:MAX_SHOWN]}…"
        if not ref.startswith("#"):
            return (*path, "$ref"), (
                f"{shown!r} is another document, which is never fetched; copy what is"
                ' needed into "$defs" and refer to it as "#/$defs/NAME"'
            )
        if ref.startswith("#/") and not _has(root, ref):
            return (*path, "$ref"), f"this schema has nothing at {shown!r}"
    return None


def _has(root: Any, ref: str) -> bool:
    place = root
    for step in steps_of(ref):
        if isinstance(place, Mapping) and step in place:
            place = place[step]
        elif isinstance(place, list) and is_index(step, place):
            place = place[int(step)]
        else:
            return False
    return True


@cache
def _metaschema() -> jsonschema_rs.Validator:
    import jsonschema_rs

    return jsonschema_rs.Draft202012Validator({"$ref": DIALECT})
