"""Calls as a model makes them, and what becomes of them."""

from __future__ import annotations

import json
from typing import Any

from tools.execute import CallBegins, CallOutcome, CallProgress, execute
from tools.registry import Context, get_tool


def call(name: str, call_id: str = "c1", /, **arguments: Any) -> dict[str, Any]:
    return raw_call(name, json.dumps(arguments), call_id)


def raw_call(name: str, arguments: str, call_id: str = "c1") -> dict[str, Any]:
    return {
        "type": "function_call",
        "id": f"fc_{call_id}",
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
        "status": "completed",
    }


async def happenings(
    calls: list[dict[str, Any]], *functions: Any, context: Context | None = None
) -> list[CallProgress | CallOutcome]:
    tools = {get_tool(f).name: get_tool(f) for f in functions}
    events = execute(calls, tools, context or Context())
    return [each async for each in events if not isinstance(each, CallBegins)]


async def outcome(function: Any, /, **arguments: Any) -> CallOutcome:
    """Of one call of one tool."""
    calls = [call(get_tool(function).name, **arguments)]
    *_, last = await happenings(calls, function)
    assert isinstance(last, CallOutcome)
    return last
