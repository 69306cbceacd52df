"""Tools that need approval, in requests where no person can give it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tools.errors import ToolError
from tools.runtime_tool import Context, RuntimeTool

ERROR_CODE = "E_TOOL_NEEDS_APPROVAL"


class ApprovalNeeded(ToolError):
    """This call needs a person's approval, and nobody can be asked here."""

    def __init__(self) -> None:
        super().__init__(
            f"{ERROR_CODE}: this call needs a person's approval, and nobody can be"
            " asked here; it did not run."
        )


@dataclass(frozen=True, slots=True)
class _UnattendedCall:
    """Runs calls that need no approval, and refuses the others."""

    tool: RuntimeTool

    async def __call__(self, context: Context, arguments: dict[str, Any]) -> Any:
        if self.tool.needs_approval(arguments):
            raise ApprovalNeeded
        return await self.tool.call(context, arguments)


def without_approval(tool: RuntimeTool) -> RuntimeTool:
    """A copy of the tool that asks no person: a call that needs approval fails, and so
    does one for which the user would first have to sign in."""
    if tool.own_sign_in:
        tool = replace(tool, own_sign_in=None)
    if tool.asks_after_untrusted:
        tool = replace(tool, refuses_after_untrusted=True, runs_after_untrusted=True)
    if tool.approval is None:
        return tool
    return replace(tool, call=_UnattendedCall(tool), approval=None)


def refuses(tool: RuntimeTool, arguments: Mapping[str, Any]) -> bool:
    """True if this call would raise ApprovalNeeded."""
    call = tool.call
    return isinstance(call, _UnattendedCall) and call.tool.needs_approval(arguments)


def always_needs_approval(tool: RuntimeTool) -> bool:
    """True if every call needs approval, whatever its arguments."""
    return tool.approval is not None and tool.approval.policy != "rule"
