"""Tools that need approval, in requests where no person can give it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from llm.wire.validation import compiled
from tools.errors import ToolError
from tools.registry import Approval, Context, Tool

CODE = "E_TOOL_NEEDS_APPROVAL"


class ApprovalNeeded(ToolError):
    """This call needs a person's approval, and nobody can be asked here."""

    def __init__(self) -> None:
        super().__init__(
            f"{CODE}: this call needs a person's approval, and nobody can be asked"
            " here; it did not run."
        )


@dataclass(frozen=True, slots=True)
class _Unattended:
    """Runs calls that need no approval, and refuses the others."""

    tool: Tool
    approval: Approval

    async def __call__(self, context: Context, arguments: dict[str, Any]) -> Any:
        if self.approval.policy != "rule":
            raise ApprovalNeeded
        if compiled(self.approval.rule or {}).is_valid(arguments):
            raise ApprovalNeeded
        return await self.tool.call(context, arguments)


def unattended(tool: Tool) -> Tool:
    """A copy of the tool that asks no person: calls that need approval fail."""
    if tool.approval is None:
        return tool
    return replace(tool, call=_Unattended(tool, tool.approval), approval=None)


def never_runs_unattended(tool: Tool) -> bool:
    """True if every call needs approval, whatever its arguments."""
    return tool.approval is not None and tool.approval.policy != "rule"
