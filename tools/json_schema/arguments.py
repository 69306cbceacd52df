"""Validation of a call's arguments against the tool's JSON Schema. Pure.

Source: https://json-schema.org/draft/2020-12
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from llm.wire.json_pointer import format_path
from llm.wire.json_schema.validation import compile_schema
from tools.errors import InvalidArguments

if TYPE_CHECKING:
    import jsonschema_rs

MAX_MISTAKES = 5  # mistakes that one message lists

Path = Sequence[str | int]


def check(parameters: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    """Raises InvalidArguments, or ValueError if the schema itself is invalid."""
    validator = compile_schema(parameters)
    if not validator.is_valid(arguments):
        raise_invalid(mistakes(validator.iter_errors(arguments)))


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
