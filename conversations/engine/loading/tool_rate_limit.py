"""Limits how often each user may have a tool called."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from conversations.access import rate_limits
from conversations.access.admission import user_bucket_owner
from conversations.access.rate_limits import Charge
from tools.errors import ToolError
from tools.runtime_tool import Context, RuntimeTool


def limit_calls(tool: RuntimeTool, user: Any) -> RuntimeTool:
    """The tool, whose calls are refused beyond `tool.calls_per_minute` of the user."""
    owner = f"tool:{tool.name}:{user_bucket_owner(user)}"
    return replace(tool, permit=_CallLimit(owner, tool))


@dataclass(frozen=True, slots=True)
class _CallLimit:
    owner: str
    tool: RuntimeTool  # as it was without this

    async def __call__(self, context: Context, arguments: dict[str, Any]) -> None:
        if self.tool.permit:
            await self.tool.permit(context, arguments)
        limit = self.tool.calls_per_minute or 0
        verdict = await rate_limits.atake(self.owner, [Charge("requests", limit, 1)])
        if not verdict.is_allowed:
            seconds = math.ceil(verdict.retry_after)
            raise ToolError(
                f"it may be called {limit} times a minute for this user. Try again in"
                f" {seconds} s, or do without it."
            )
