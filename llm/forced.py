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

_FEW = 8  # tools
#: Deltas that fulfil or refuse the demand.
_HEEDED = (ItemDelta, RefusalDelta, ToolCallDelta)


def demanded(request: Request, choice: Any) -> Request:
    """Add the demand of `choice` to the instructions."""
    told = f"{_demand(request, choice)} Do not answer before you have its output."
    return replace(
        request,
        instructions="\n\n".join(filter(None, [request.instructions, told])),
    )


def demanded_again(request: Request, said: str) -> Request:
    """Repeat the demand after an answer without a call."""
    told = f"You have called no tool. {_demand(request, request.tool_choice)}"
    answer = [message("assistant", said)] if said else []
    return replace(request, items=[*request.items, *answer, user_message(told)])


def _demand(request: Request, choice: Any) -> str:
    chosen = _names(choice) or _few_names(request.tools)
    names = " or ".join(f"`{name}`" for name in chosen)
    return f"You must call {f'the tool {names}' if names else 'one of your tools'} now."


def _names(choice: Any) -> list[str]:
    if not isinstance(choice, Mapping):
        return []
    meant = choice["tools"] if choice.get("type") == "allowed_tools" else [choice]
    return [str(tool.get("name") or tool.get("type")) for tool in meant]


def _few_names(tools: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names of all tools, if all are functions and few enough for a sentence."""
    names = [str(tool["name"]) for tool in tools if tool.get("type") == "function"]
    return names if len(names) == len(tools) <= _FEW else []


class Demand:
    """Holds back the deltas of one provider call until a tool is called.

    Reasoning is passed on at once if the provider supports forced calls; after that the
    request cannot be repeated.
    """

    def __init__(self, *, holds_thoughts: bool) -> None:
        self._held: list[Delta] | None = []
        self._holds_thoughts = holds_thoughts
        self.is_unheeded = False  # set when it is closed
        self.text = ""  # before a call

    def release(self) -> None:
        """Pass on all deltas at once. Call it before the first `feed`."""
        self._held = None

    def feed(self, deltas: Sequence[Delta]) -> list[Delta]:
        if self._held is None:
            return list(deltas)
        self._held += deltas
        if not any(self._releases(delta) for delta in deltas):
            return []
        held, self._held = self._held, None
        return held

    def close(self) -> list[Delta]:
        held, self._held = self._held or [], None
        self.text = "".join(d.text for d in held if isinstance(d, TextDelta))
        reasons = [d.reason for d in held if isinstance(d, FinishDelta)]
        self.is_unheeded = reasons[-1:] == ["stop"]
        return held

    def _releases(self, delta: Delta) -> bool:
        if isinstance(delta, ReasoningDelta):
            return bool(delta.text) and not self._holds_thoughts
        return isinstance(delta, _HEEDED)
