"""Language models with tools for other Django code: one call runs the whole tool loop.

    from tools import api

    result = await api.run("fast", "What is 12 * 7?", tools=["calculator"])
    print(result.text, result.metadata["tool_rounds"])

The functions of `llm.api` are here too; `stream` and `generate_json` run tools. Nothing
of a run is stored but its `ModelCall` rows. `docs/library.md` has the examples. Each
asynchronous function has a synchronous variant whose name ends in `_sync`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, Unpack, overload

from llm.api import (
    Chunk,
    Context,
    Finding,
    Metadata,
    Options,
    Policy,
    Question,
    RequestOptions,
    Result,
    check,
    check_sync,
    collect,
    collect_sync,
    format_for,
    generate,
    generate_sync,
    require_answer,
    text_chunks,
)
from llm.concurrency.sync_variant import make_sync
from llm.generation.input_items import as_items
from llm.generation.pending_request import Input, Model
from tools.agent.options import LoopOptions, RunOptions
from tools.agent.run_stream import RunStream, SyncRunStream
from tools.agent.sources import HttpTool, McpServer, ToolSource
from tools.registry import tool
from tools.runtime_tool import Accepted, Approval
from tools.runtime_tool import Context as ToolContext

__all__ = [
    "Accepted",
    "Approval",
    "Chunk",
    "Context",
    "Finding",
    "HttpTool",
    "McpServer",
    "Metadata",
    "Options",
    "Policy",
    "Question",
    "RequestOptions",
    "Result",
    "RunOptions",
    "RunStream",
    "SyncRunStream",
    "ToolContext",
    "ToolSource",
    "as_items",
    "check",
    "check_sync",
    "collect",
    "collect_sync",
    "generate",
    "generate_json",
    "generate_json_sync",
    "generate_sync",
    "generate_text",
    "generate_text_sync",
    "generate_with_tools",
    "generate_with_tools_sync",
    "run",
    "run_sync",
    "stream",
    "stream_sync",
    "text_chunks",
    "tool",
]

T = TypeVar("T")


async def run(model: Model, input: Input, **options: Unpack[RunOptions]) -> Result:
    """Call the model and its tools until it has answered.

    The result's metadata adds up all calls; its `calls` are those of functions that the
    caller has to run. Raises LLMError, BadResponse if the answer does not match
    `text.format`; InvalidTool, and ToolError if an MCP server lists no tools.
    """
    return await collect(RunStream(model, input, options, buffered=True))


def stream(model: Model, input: Input, **options: Unpack[RunOptions]) -> RunStream:
    """Run the tool loop and stream its canonical events. Read it inside `aclosing`."""
    return RunStream(model, input, options)


def stream_sync(
    model: Model, input: Input, **options: Unpack[RunOptions]
) -> SyncRunStream:
    """`stream` for code that cannot await. Use it in a `with` block, not in an event
    loop."""
    return SyncRunStream(RunStream(model, input, options))


async def generate_text(
    model: Model, input: Input, **options: Unpack[RunOptions]
) -> str:
    """The text of the answer, as `run`."""
    return (await run(model, input, **options)).text


async def generate_with_tools(
    model: Model,
    input: Input,
    tools: Sequence[ToolSource],
    **options: Unpack[LoopOptions],
) -> Result:
    """`run` with these tools."""
    return await run(model, input, tools=tools, **options)


@overload
async def generate_json(
    model: Model, input: Input, form: type[T], **options: Unpack[RunOptions]
) -> T: ...
@overload
async def generate_json(
    model: Model, input: Input, form: Any, **options: Unpack[RunOptions]
) -> Any: ...
async def generate_json(
    model: Model, input: Input, form: Any, **options: Unpack[RunOptions]
) -> Any:
    """As `llm.api.generate_json`, after the model has called what tools it needs."""
    output_format, options["text"] = format_for(form, options.get("text"))
    result = await collect(
        RunStream(model, input, options, output_format=output_format, buffered=True)
    )
    require_answer(result)
    return result.parsed


run_sync = make_sync(run)
generate_text_sync = make_sync(generate_text)
generate_json_sync = make_sync(generate_json)
generate_with_tools_sync = make_sync(generate_with_tools)
