"""A call's arguments against the tool's JSON Schema. Pure: nothing is fetched.

Source: https://json-schema.org/draft/2020-12
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from llm.wire.json_pointer import spelled
from llm.wire.validation import compiled
from tools.errors import InvalidArguments

if TYPE_CHECKING:
    import jsonschema_rs

MAX_TOLD = 5  # mistakes in one message

Path = Sequence[str | int]


def check(parameters: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    """Raises InvalidArguments, and ValueError where the schema itself is wrong."""
    validator = compiled(parameters)
    if not validator.is_valid(arguments):
        raise_invalid(mistakes(validator.iter_errors(arguments)))


def mistakes(
    errors: Iterable[jsonschema_rs.ValidationError],
) -> Iterator[tuple[Path, str]]:
    for error in errors:
        if branch := _branch_meant(error):
            yield from mistakes(branch)
        else:
            yield error.instance_path, error.message


def raise_invalid(found: Iterable[tuple[Path, str]]) -> NoReturn:
    """Tells each mistake and where it is, and never a value."""
    told = [f"at {spelled(path)}: {text}" if path else text for path, text in found]
    if len(told) > MAX_TOLD:
        told[MAX_TOLD:] = [f"and {len(told) - MAX_TOLD} more"]
    raise InvalidArguments(f"the arguments do not fit: {'; '.join(told)}.")


def _branch_meant(
    error: jsonschema_rs.ValidationError,
) -> Sequence[jsonschema_rs.ValidationError]:
    """The mistakes that count where a value fits no branch of a choice.

    "Not valid under any of the schemas" helps nobody; but where all other branches
    want another type altogether, one is left that was meant.
    """
    if error.kind.name not in ("anyOf", "oneOf"):
        return ()
    branches: list[list[jsonschema_rs.ValidationError]] = getattr(
        error.kind, "context", []
    )
    meant = [branch for branch in branches if not _is_other_type(branch, error)]
    return meant[0] if len(meant) == 1 else ()


def _is_other_type(
    branch: Sequence[jsonschema_rs.ValidationError],
    error: jsonschema_rs.ValidationError,
) -> bool:
    return any(
        each.kind.name == "type" and each.instance_path == error.instance_path
        for each in branch
    )
