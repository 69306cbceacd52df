"""Forced tool calls for models that ignore or do not support `tool_choice`. No IO.

If the provider cannot force a call, the instructions demand it. Output is held back
until the model calls a tool; if it ends without a call, the request is sent once more
with that output. The second answer is passed on as it is.

Source: the sheets of the providers, "forced tool use" in their mapping
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from llm.wire.deltas import (
    Delta,
    FinishDelta,
    ItemDelta,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
)
from llm.wire.items import message, user_message
from llm.wire.request import Request

_MAX_LISTED = 8  # tools
#: Deltas that fulfil or refuse the demand.
_RELEASING_DELTAS = (ItemDelta, RefusalDelta, ToolCallDelta)


def add_demand(request: Request, choice: Any) -> Request:
    """Add the demand of `choice` to the instructions."""
    demand = (
        f"{_demand_text(request, choice)} Do not answer before you have its output."
    )
    return replace(
        request,
        instructions="\n\n".join(filter(None, [request.instructions, demand])),
    )


def repeat_demand(request: Request, text: str) -> Request:
    """Repeat the demand after an answer without a call."""
    demand = f"You have called no tool. {_demand_text(request, request.tool_choice)}"
    answer = [message("assistant", text)] if text else []
    return replace(request, items=[*request.items, *answer, user_message(demand)])


def _demand_text(request: Request, choice: Any) -> str:
    chosen = _chosen_names(choice) or _function_names(request.tools)
    names = " or ".join(f"`{name}`" for name in chosen)
    return f"You must call {f'the tool {names}' if names else 'one of your tools'} now."


def _chosen_names(choice: Any) -> list[str]:
    if not isinstance(choice, Mapping):
        return []
    tools = choice["tools"] if choice.get("type") == "allowed_tools" else [choice]
    return [str(tool.get("name") or tool.get("type")) for tool in tools]


def _function_names(tools: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names of all tools, if all are functions and few enough for a sentence."""
    names = [str(tool["name"]) for tool in tools if tool.get("type") == "function"]
    return names if len(names) == len(tools) <= _MAX_LISTED else []


class ForcedCall:
    """Holds back the deltas of one provider call until a tool is called.

    Reasoning is passed on at once if the provider supports forced calls; after that the
    request cannot be repeated.
    """

    def __init__(self, *, buffers_reasoning: bool) -> None:
        self._buffer: list[Delta] | None = []
        self._buffers_reasoning = buffers_reasoning
        self.is_ignored = False  # set when it is closed
        self.text = ""  # before a call

    def pass_through(self) -> None:
        """Pass on all deltas at once. Call it before the first `feed`."""
        self._buffer = None

    def feed(self, deltas: Sequence[Delta]) -> list[Delta]:
        if self._buffer is None:
            return list(deltas)
        self._buffer += deltas
        if not any(self._releases(delta) for delta in deltas):
            return []
        buffered, self._buffer = self._buffer, None
        return buffered

    def close(self) -> list[Delta]:
        buffered, self._buffer = self._buffer or [], None
        self.text = "".join(d.text for d in buffered if isinstance(d, TextDelta))
        reasons = [d.reason for d in buffered if isinstance(d, FinishDelta)]
        self.is_ignored = reasons[-1:] == ["stop"]
        return buffered

    def _releases(self, delta: Delta) -> bool:
        if isinstance(delta, ReasoningDelta):
            return bool(delta.text) and not self._buffers_reasoning
        return isinstance(delta, _RELEASING_DELTAS)
