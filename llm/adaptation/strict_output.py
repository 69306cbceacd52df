"""Strict structured output: which schema a host is sent, and what it cannot enforce.

A wire format that knows `strict` gets a schema that strict mode accepts. Whatever the
host enforces, the answer is validated against the caller's own schema here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from llm.adaptation.structured import OutputFormat
from llm.wire.codec import Codec, EnforcedFormatCodec, StrictFormatCodec
from llm.wire.json_schema import strict
from llm.wire.request import Request

NOT_STRICT = "text.format.strict"  # the host may answer in another format


@dataclass(frozen=True, slots=True)
class StrictOutput:
    request: Request
    output_format: OutputFormat
    degraded: Sequence[str] = ()


def make_strict(
    request: Request, output_format: OutputFormat, codec: Codec
) -> StrictOutput:
    """The request with a schema that the host enforces as far as it can.

    An explicit `strict: false` of the caller stays.
    """
    form = (request.text or {}).get("format") or {}
    if form.get("type") != "json_schema" or form.get("strict") is False:
        return StrictOutput(request, output_format)
    if isinstance(codec, EnforcedFormatCodec):
        ignored = _unenforced(output_format.schema, codec.unenforced_keywords)
        return StrictOutput(request, output_format, ignored)
    if not isinstance(codec, StrictFormatCodec):
        return StrictOutput(request, output_format)
    accepts_strict = codec.strict_formats
    found = strict.to_strict_schema(form["schema"]) if accepts_strict else None
    if found is None:
        loose = {name: value for name, value in form.items() if name != "strict"}
        return StrictOutput(_with_format(request, loose), output_format, [NOT_STRICT])
    return StrictOutput(
        _with_format(request, {**form, "schema": found.schema, "strict": True}),
        replace(output_format, has_added_nulls=found.has_added_nulls),
        _unenforced(output_format.schema, strict.UNENFORCED),
    )


def _with_format(request: Request, form: dict[str, Any]) -> Request:
    return replace(request, text={**(request.text or {}), "format": form})


def _unenforced(schema: Mapping[str, Any], keywords: frozenset[str]) -> list[str]:
    """A note of the constraints that only Parley enforces."""
    found = ", ".join(sorted(strict.find_keywords(schema, keywords)))
    return [f"text.format (checked by Parley alone: {found})"] if found else []
