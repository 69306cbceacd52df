"""Checks an answer's text against what a case expects. Pure, and in bounded time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from conversations.engine.evaluations.check_reasons import LACKS, NO_JSON, NOT_FOUND
from llm.wire import bounded_json
from llm.wire.json_schema.validation import compile_schema
from llm.wire.sanitize import sanitize_text

MAX_REASON = 500  # characters
_FENCED = re.compile(r"\A```[a-zA-Z]*\n(.*)\n```\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Check:
    kind: str  # "contains", "pattern", "schema" or "judge"
    passed: bool
    reason: str = ""

    def as_table(self) -> dict[str, Any]:
        # A name or a reason in the answer's JSON may have an escaped NUL, which
        # PostgreSQL does not store.
        reason = sanitize_text(self.reason[:MAX_REASON])
        return {"kind": self.kind, "passed": self.passed, "reason": reason}


def check(case: Mapping[str, Any], text: str) -> Iterator[Check]:
    """All that needs no model."""
    if case["contains"].strip():
        yield _check_words(case["contains"], text)
    if case["pattern"]:
        found = compile_schema({"type": "string", "pattern": case["pattern"]})
        is_found = found.is_valid(text)
        reason = "" if is_found else NOT_FOUND
        yield Check("pattern", is_found, reason)
    if case["schema"] is not None:
        yield _check_json(case["schema"], text)


def _check_words(contains: str, text: str) -> Check:
    words = _simplify(text)
    missing = [
        line.strip()
        for line in contains.splitlines()
        if line.strip() and not any(each in words for each in _alternatives(line))
    ]
    reason = LACKS % {"words": "; ".join(missing)} if missing else ""
    return Check("contains", not missing, reason)


def _alternatives(line: str) -> list[str]:
    return [words for each in line.split("|") if (words := _simplify(each))]


def _simplify(text: str) -> str:
    return " ".join(text.casefold().split())


def _check_json(schema: Mapping[str, Any], text: str) -> Check:
    try:
        value = parse_json(text)
    except orjson.JSONDecodeError:
        return Check("schema", False, NO_JSON)
    for error in compile_schema(schema).iter_errors(value):
        path = "/".join(map(str, error.instance_path))
        return Check("schema", False, f"/{path}: {error.message}")
    return Check("schema", True)


def parse_json(text: str) -> Any:
    """JSON, alone or in one fenced block. Raises orjson.JSONDecodeError."""
    stripped = text.strip()
    fenced = _FENCED.match(stripped)
    body = fenced[1] if fenced else stripped
    return bounded_json.loads(body.encode("utf-8", "replace"))
