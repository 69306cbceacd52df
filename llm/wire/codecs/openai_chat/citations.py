"""Citations of Chat Completions answers, in the shape of the Responses API."""

from __future__ import annotations

from typing import Any

from llm.wire.items import add_quotation


def citation_of(annotation: dict[str, Any]) -> dict[str, Any] | None:
    nested = annotation.get("url_citation")
    if annotation.get("type") != "url_citation":
        return None
    fields = nested if isinstance(nested, dict) else annotation
    return source_citation(fields, str(fields.get("url") or ""))


def source_citation(fields: dict[str, Any], url: str) -> dict[str, Any]:
    page = {
        "type": "url_citation",
        "url": url,
        "title": fields.get("title") or "",
        "start_index": fields.get("start_index") or 0,
        "end_index": fields.get("end_index") or 0,
    }
    # Names of OpenRouter and of Perplexity:
    add_quotation(page, fields.get("content") or fields.get("snippet"))
    return page
