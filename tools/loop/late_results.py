"""Results of calls that the model does not wait for, as messages to the model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from llm.wire.items import Item, message
from tools.errors import ToolError
from tools.execution.output import Output
from tools.runtime_tool import Context, RuntimeTool

CALL_ID_KEY = "parley:call_id"  # on a message that carries a result to the model
CALL_NAME_KEY = "parley:call_name"  # the tool of that call


@dataclass(frozen=True, slots=True, kw_only=True)
class LateResult:
    """The result of a background call."""

    item: Item  # the message to the model
    call_id: str
    name: str
    state: str  # as that of a `CallOutcome`
    error: str = ""
    seconds: float | None = None  # from its start


@dataclass(frozen=True, slots=True)
class SteeringMessage:
    """A part of a message that a person sent to the running turn."""

    item: Item


def result_message(call_id: str, name: str, output: Output) -> Item:
    heading = f"Result of the call {call_id} of {name} in the background"
    item = message("user", f"{heading}:")
    if isinstance(output, str):
        item["content"][0]["text"] += f"\n\n{output}"
    else:
        item["content"] += output
    return {**item, CALL_ID_KEY: call_id, CALL_NAME_KEY: name}


def poll_for(
    tool: RuntimeTool, token: str
) -> Callable[[Context, dict[str, Any]], Awaitable[Any]]:
    """A `RuntimeTool.call` that asks for the result of work that goes on elsewhere."""

    async def poll(context: Context, arguments: dict[str, Any]) -> Any:
        if tool.poll is None:
            raise ToolError(
                "no result was posted in time, and the server gave no address to poll."
            )
        return await tool.poll(context, token)

    return poll
