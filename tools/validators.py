"""Validators of headers, argument locations, networks and schemas in rows and forms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from django.core.exceptions import ValidationError

from llm.wire.json_pointer import format_path
from tools.http.validation import header_problems, parse_locations, parse_networks
from tools.json_schema.arguments import Path
from tools.json_schema.schema_mistakes import schema_mistakes


def validate_parameters(parameters: Any) -> None:
    raise_validation_errors(describe_mistakes(schema_mistakes(parameters)))


def describe_mistakes(mistakes: Iterable[tuple[Path, str]]) -> Iterator[str]:
    """Yield a sentence for each mistake in a schema."""
    for path, text in mistakes:
        whole = f"{text[:1].upper()}{text[1:]}."
        yield f"At {format_path(path)}: {text}." if path else whole


def validate_headers(headers: Any) -> None:
    raise_validation_errors(header_problems(headers))


def validate_places(locations: Any) -> None:
    raise_validation_errors(parse_locations(locations)[1])


def validate_networks(text: str) -> None:
    raise_validation_errors(parse_networks(text)[1])


def raise_validation_errors(sentences: Iterable[str]) -> None:
    if wrong := list(sentences):
        raise ValidationError(wrong)


def raise_field_errors(field: str, sentences: Iterable[str]) -> None:
    if wrong := list(sentences):
        raise ValidationError({field: wrong})
