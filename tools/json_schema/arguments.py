"""Validation of a call's arguments against the tool's JSON Schema. Pure.

Source: https://json-schema.org/draft/2020-12
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from llm.wire.json_pointer import format_path
from llm.wire.json_schema.validation import INVALID_SCHEMA, compile_schema
from tools.errors import InvalidArguments

if TYPE_CHECKING:
    import jsonschema_rs

MAX_MISTAKES = 5  # mistakes that one message lists
MAX_REASON = 300  # characters of the reason why a schema is invalid

Path = Sequence[str | int]


def check(parameters: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    """Raises InvalidArguments, also if the schema itself is invalid: nobody checks
    the schemas of MCP servers before."""
    try:
        validator = compile_schema(parameters)
    except INVALID_SCHEMA as exc:
        raise InvalidArguments(
            "this tool cannot be called until an operator corrects it, because the"
            f" schema of its arguments is invalid: {_describe(exc)}."
        ) from exc
    if not validator.is_valid(arguments):
        raise_invalid(mistakes(validator.iter_errors(arguments)))


def why_invalid(schema: Mapping[str, Any]) -> str:
    """Why no call of a tool with this schema can run; "" if calls can."""
    try:
        compile_schema(schema)
    except INVALID_SCHEMA as exc:
        return _describe(exc)
    return ""


def _describe(exc: Exception) -> str:
    """The reason without the value, at the path of the mistake."""
    import jsonschema_rs  # imported late, as in `compile_schema`

    if not isinstance(exc, jsonschema_rs.ValidationError):
        return f"{exc}"[:MAX_REASON]
    at = f"at {format_path(exc.instance_path)}: " if exc.instance_path else ""
    return f"{at}{exc.message}"[:MAX_REASON]


def mistakes(
    errors: Iterable[jsonschema_rs.ValidationError],
) -> Iterator[tuple[Path, str]]:
    for error in errors:
        if branch := _matching_branch(error):
            yield from mistakes(branch)
        else:
            yield error.instance_path, error.message


def raise_invalid(found: Iterable[tuple[Path, str]]) -> NoReturn:
    """Raises InvalidArguments with each mistake and its path, but without values."""
    sentences = [
        f"at {format_path(path)}: {text}" if path else text for path, text in found
    ]
    if len(sentences) > MAX_MISTAKES:
        sentences[MAX_MISTAKES:] = [f"and {len(sentences) - MAX_MISTAKES} more"]
    raise InvalidArguments(f"the arguments do not fit: {'; '.join(sentences)}.")


def _matching_branch(
    error: jsonschema_rs.ValidationError,
) -> Sequence[jsonschema_rs.ValidationError]:
    """The mistakes in the only branch of `anyOf` or `oneOf` that fits the value's type.

    They say more than "not valid under any of the schemas". Empty if several branches,
    or none, fit the type.
    """
    if error.kind.name not in ("anyOf", "oneOf"):
        return ()
    branches: list[list[jsonschema_rs.ValidationError]] = getattr(
        error.kind, "context", []
    )
    matching = [branch for branch in branches if not _is_other_type(branch, error)]
    return matching[0] if len(matching) == 1 else ()


def _is_other_type(
    branch: Sequence[jsonschema_rs.ValidationError],
    error: jsonschema_rs.ValidationError,
) -> bool:
    return any(
        each.kind.name == "type" and each.instance_path == error.instance_path
        for each in branch
    )
