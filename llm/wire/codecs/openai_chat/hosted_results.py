"""Receipts of hosts' own tools as canonical items.

In: an entry of Groq's `executed_tools`, which a stream sends twice: when the tool
begins, and with its output; or the sources that a host names. Out: an item that any
client can read. It is never sent back.

Source: https://console.groq.com/docs/compound/built-in-tools
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from llm.wire.items import Item

_CODE = frozenset({"python", "code_interpreter", "code_execution"})
_PAGE = frozenset({"visit", "visit_website", "browser.open", "browser.find"})


def receipt_of(entry: Mapping[str, Any]) -> tuple[Item, bool]:
    """The receipt, and whether it is complete."""
    kind, output = str(entry.get("type") or ""), entry.get("output")
    arguments = _arguments(entry.get("arguments"))
    whole = output is not None
    if kind in _CODE:
        code = arguments.get("code") or entry.get("arguments") or ""
        logs = [{"type": "logs", "logs": output}] if output else []
        item = {"type": "code_interpreter_call", "code": code, "container_id": ""}
        return {**item, "outputs": logs}, whole
    if kind in _PAGE:
        return _web_search_call(
            {"type": "open_page", "url": arguments.get("url") or ""}
        ), whole
    if "search" in kind:
        query = arguments.get("query") or ""
        return _web_search_call(
            {"type": "search", "query": query, **_search_sources(entry)}
        ), whole
    return {
        "type": "mcp_call",
        "server_label": "groq",
        "name": kind,
        "arguments": orjson.dumps(arguments).decode(),
        "output": output,
        "error": None,
    }, whole


def search_receipt(found: Iterable[Mapping[str, Any]]) -> Item:
    """The receipt of a search of which only the results are known."""
    sources = [
        {"type": "url", "url": hit["url"], "title": hit.get("title") or ""}
        for hit in found
    ]
    return _web_search_call({"type": "search", "query": "", "sources": sources})


def _web_search_call(action: dict[str, Any]) -> Item:
    return {"type": "web_search_call", "action": action}


def _search_sources(entry: Mapping[str, Any]) -> dict[str, Any]:
    results = entry.get("search_results")
    if isinstance(results, dict):
        results = results.get("results")
    sources = [
        {"type": "url", "url": hit["url"], "title": hit.get("title") or ""}
        for hit in (results if isinstance(results, list) else ())
        if isinstance(hit, dict) and hit.get("url")
    ]
    return {"sources": sources} if sources else {}


def _arguments(text: Any) -> dict[str, Any]:
    try:
        parsed = orjson.loads(text or "{}")
    except (TypeError, orjson.JSONDecodeError):
        return {}
    return parsed if isinstance(parsed, dict) else {}
