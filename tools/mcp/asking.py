"""MCP elicitation: a server asks the user a question during a tool call.

Source: https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from llm.wire.validation import compiled
from tools.mcp.spec import Server
from tools.registry import Answer, Context

_NOTHING_TO_FILL_IN: Mapping[str, Any] = {"type": "object", "properties": {}}


async def ask(
    server: Server, context: Context | None, question: Mapping[str, Any]
) -> Answer:
    """Shows a server's question to the user.

    `question` has the parameters of an `elicitation/create`, unchanged. The answer is
    "cancel" if no person can answer, and "decline" to an unsafe link.
    """
    if context is None:
        return Answer("cancel")
    message = f"{server.title} asks: {question['message']}"
    if question.get("mode") == "url":
        return await _ask_to_visit(context, message, question["url"])
    schema = question["requestedSchema"]
    if not _is_schema(schema):
        return Answer("cancel")
    answer = await context.asking(message, schema)
    if answer.action != "accept":
        return answer
    return Answer("accept", {**_defaults(schema), **answer.content})


async def _ask_to_visit(context: Context, message: str, url: str) -> Answer:
    """Asks the user to open a link and to confirm it, with an empty form.

    Parley does not see what the user does on that page.
    """
    if not _may_be_followed(url):
        return Answer("decline")
    text = f"{message}\n\nOpen this address, and agree here when you are done: {url}"
    answer = await context.asking(text, _NOTHING_TO_FILL_IN)
    return Answer(answer.action)


def _is_schema(schema: Any) -> bool:
    """False for an invalid schema, which no answer could fit."""
    try:
        compiled(schema)
    except ValueError:
        return False
    return isinstance(schema, Mapping)


def _may_be_followed(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return (
            parts.scheme == "https" and bool(parts.hostname) and "@" not in parts.netloc
        )
    except ValueError:
        return False


def _defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The default values of the form's fields."""
    properties: Mapping[str, Any] = schema.get("properties") or {}
    return {
        name: field["default"]
        for name, field in properties.items()
        if isinstance(field, Mapping) and "default" in field
    }
