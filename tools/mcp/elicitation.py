"""MCP elicitation: a server asks the user a question during a tool call.

Source: https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from llm.wire.json_schema.validation import compile_schema
from tools.mcp.server_spec import ServerSpec
from tools.runtime_tool import Context, FormAnswer

_EMPTY_FORM: Mapping[str, Any] = {"type": "object", "properties": {}}


async def elicit(
    server: ServerSpec, context: Context | None, question: Mapping[str, Any]
) -> FormAnswer:
    """Show a server's question to the user.

    `question` has the parameters of an `elicitation/create`, unchanged. The answer is
    "cancel" if no person can answer, and "decline" to an unsafe link.
    """
    if context is None:
        return FormAnswer("cancel")
    message = f"{server.title} asks: {question['message']}"
    if question.get("mode") == "url":
        return await _elicit_visit(context, message, question["url"])
    schema = question["requestedSchema"]
    if not _is_schema(schema):
        return FormAnswer("cancel")
    answer = await context.asking(message, schema)
    if answer.action != "accept":
        return answer
    return FormAnswer("accept", {**_defaults(schema), **answer.content})


async def _elicit_visit(context: Context, message: str, url: str) -> FormAnswer:
    """Ask the user to open a link and to confirm it, with an empty form.

    Parley does not see what the user does on that page.
    """
    if not _is_safe_link(url):
        return FormAnswer("decline")
    text = f"{message}\n\nOpen this address, and agree here when you are done: {url}"
    answer = await context.asking(text, _EMPTY_FORM)
    return FormAnswer(answer.action)


def _is_schema(schema: Any) -> bool:
    """False for an invalid schema, which no answer could fit."""
    try:
        compile_schema(schema)
    except ValueError:
        return False
    return isinstance(schema, Mapping)


def _is_safe_link(url: str) -> bool:
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
