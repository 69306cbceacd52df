"""Attributes with which `@tool` stores a function's tool and signature on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tools.json_schema.function_schema import Signature
from tools.runtime_tool import RuntimeTool

_TOOL = "__tool__"
_SIGNATURE = "__tool_signature__"


def mark_function(
    function: Callable[..., Any], tool: RuntimeTool, signature: Signature
) -> None:
    setattr(function, _TOOL, tool)
    setattr(function, _SIGNATURE, signature)


def get_tool(function: Callable[..., Any]) -> RuntimeTool:
    """The tool that `@tool` created for a function."""
    found: RuntimeTool = getattr(function, _TOOL)
    return found


def find_tool(function: Callable[..., Any]) -> RuntimeTool | None:
    """The tool of `function` itself, not of one that it wraps; None without any."""
    tool = vars(function).get(_TOOL)
    return tool if isinstance(tool, RuntimeTool) else None


def function_signature(function: Callable[..., Any]) -> Signature:
    """The signature that `@tool` stored on a function."""
    found: Signature = getattr(function, _SIGNATURE)
    return found
