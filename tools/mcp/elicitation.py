"""MCP elicitation: a server asks the user a question during a tool call.

Source: https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

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
    return await context.asking(message, question["requestedSchema"])


async def _elicit_visit(context: Context, message: str, url: str) -> FormAnswer:
    """Ask the user to open a link and to confirm it, with an empty form.

    Parley does not see what the user does on that page.
    """
    if not _is_safe_link(url):
        return FormAnswer("decline")
    text = f"{message}\n\nOpen this address, and agree here when you are done: {url}"
    answer = await context.asking(text, _EMPTY_FORM)
    return FormAnswer(answer.action)


def _is_safe_link(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return (
            parts.scheme == "https" and bool(parts.hostname) and "@" not in parts.netloc
        )
    except ValueError:
        return False
