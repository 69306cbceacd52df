"""Questions that a server puts to the person who waits for one of its tools.

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
    """`question`: the parameters of an `elicitation/create`, as they come.

    The answer is "cancel" where nobody can be asked, and "decline" to a link that
    nobody should follow.
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
    """A form with nothing to fill in: the link, and whether the person has been there.

    What happens there stays between the person and the server.
    """
    if not _may_be_followed(url):
        return Answer("decline")
    text = f"{message}\n\nOpen this address, and agree here when you are done: {url}"
    answer = await context.asking(text, _NOTHING_TO_FILL_IN)
    return Answer(answer.action)


def _is_schema(schema: Any) -> bool:
    """No answer fits one that cannot be read."""
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
    """What the server takes for the answer where a person gave none."""
    properties: Mapping[str, Any] = schema.get("properties") or {}
    return {
        name: field["default"]
        for name, field in properties.items()
        if isinstance(field, Mapping) and "default" in field
    }
