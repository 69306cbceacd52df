"""Options of a run, and the tools with these options applied."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import isawaitable
from typing import Any

from llm.generation.pending_request import CallOptions
from llm.wire.items import Event, Item
from tools.agent.sources import ToolSource
from tools.conf import settings
from tools.errors import InvalidTool, ToolError
from tools.execution.without_approval import without_approval
from tools.http.call import HttpCall
from tools.runtime_tool import Context, RuntimeTool

#: Both are called in the event loop: a function that is not async must not block.
OnEvent = Callable[[Event], Awaitable[None] | None]
Approve = Callable[[Item], Awaitable[bool] | bool]
DEFAULT_ITERATIONS = 10


class LoopOptions(CallOptions, total=False):
    """Options of the requests but `tools`, and of the loop."""

    max_iterations: int  # calls of the model; default 10
    max_tool_calls: int | None  # over the whole run
    #: Seconds that a call of a tool may take: of every tool, or by tool name.
    tool_timeout: float | Mapping[str, float] | None
    deadline: float | None  # seconds for the whole run
    non_blocking: Collection[str]  # names of tools whose results are not waited for
    on_event: OnEvent | None  # is called with each `parley:` event
    approve: Approve | None  # decides about calls that need a person's approval


class RunOptions(LoopOptions, total=False):
    """Options of a run."""

    tools: Sequence[ToolSource]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLimits:
    """The options of the loop itself."""

    max_iterations: int = DEFAULT_ITERATIONS
    max_tool_calls: int | None = None
    tool_timeout: float | Mapping[str, float] | None = None
    deadline: float | None = None
    non_blocking: Collection[str] = ()
    on_event: OnEvent | None = None
    approve: Approve | None = None

    def __post_init__(self) -> None:
        if self.max_iterations < 1:
            raise ValueError("max_iterations is at least 1.")
        if self.max_tool_calls is not None and self.max_tool_calls < 0:
            raise ValueError("max_tool_calls is at least 0, or None for no limit.")
        timeouts = self.tool_timeout
        limits = timeouts.values() if isinstance(timeouts, Mapping) else [timeouts]
        for seconds in [self.deadline, *limits]:
            if seconds is not None and not seconds > 0:
                raise ValueError(f"{seconds!r} is no limit; give seconds above 0.")
        if isinstance(self.non_blocking, str):
            raise TypeError("non_blocking is a list of names.")

    def apply(self, tools: Mapping[str, RuntimeTool]) -> dict[str, RuntimeTool]:
        """Raises InvalidTool if an option names no tool."""
        timeouts = self.tool_timeout
        named = timeouts.keys() if isinstance(timeouts, Mapping) else ()
        if unknown := sorted({*self.non_blocking, *named} - tools.keys()):
            raise InvalidTool(f"there is no tool named {unknown[0]!r} in this run.")
        return {name: self._apply(tool) for name, tool in tools.items()}

    def _apply(self, tool: RuntimeTool) -> RuntimeTool:
        changes: dict[str, Any] = {}
        if (seconds := self._timeout_of(tool.name)) is not None:
            changes["timeout"] = seconds
        if tool.name in self.non_blocking:
            changes["blocking"] = False
        tool = _with_request_limit(replace(tool, **changes) if changes else tool)
        if tool.approval and self.approve:
            permit = _AskFirst(tool, self.approve)
            return replace(tool, permit=permit, approval=None)
        # The program that runs the loop chose its tools, for what they will read.
        return replace(without_approval(tool), refuses_after_untrusted=False)

    def _timeout_of(self, name: str) -> float | None:
        if isinstance(self.tool_timeout, Mapping):
            return self.tool_timeout.get(name)
        return self.tool_timeout


def _with_request_limit(tool: RuntimeTool) -> RuntimeTool:
    """The tool, whose request, if it is one, may take as long as its call."""
    request = tool.call
    # Where the answer comes later, the tool's limit is that of the job.
    if not isinstance(request, HttpCall) or request.async_result:
        return tool
    usual = settings.TOOL_TIMEOUT if tool.blocking else settings.BACKGROUND_TOOL_TIMEOUT
    seconds = usual if tool.timeout is None else tool.timeout
    limits = replace(request.limits, total=seconds)
    return replace(tool, call=replace(request, limits=limits))


@dataclass(frozen=True, slots=True)
class _AskFirst:
    """Permits a call if nobody has to approve it, or `approve` says yes."""

    tool: RuntimeTool
    approve: Approve

    async def __call__(self, context: Context, arguments: dict[str, Any]) -> None:
        if not self.tool.needs_approval(arguments):
            return
        call = {
            "type": "function_call",
            "call_id": context.call_id,
            "name": self.tool.name,
            "arguments": arguments,
        }
        answer = self.approve(call)
        if not (await answer if isawaitable(answer) else answer):
            raise ToolError("this call was declined; it did not run.")
