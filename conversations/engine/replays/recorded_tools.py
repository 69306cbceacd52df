"""Tools that return what a turn has stored, instead of running."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from llm.wire.items import Item
from tools.errors import ToolError
from tools.runtime_tool import Context, RuntimeTool


class RecordedResults:
    """The results of a turn's calls, by name and arguments, each used once."""

    def __init__(self, outputs: Sequence[Item]) -> None:
        results = {
            item["call_id"]: item["output"]
            for item in outputs
            if item["type"] == "function_call_output"
        }
        self._left: dict[tuple[str, str], list[Any]] = defaultdict(list)
        for item in outputs:
            if item["type"] == "function_call" and item["call_id"] in results:
                key = (item["name"], _canonical(item["arguments"]))
                self._left[key].append(results[item["call_id"]])

    def take(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Raises ToolError. The last result is given to further equal calls."""
        found = self._left.get((name, _canonical(json.dumps(arguments))))
        if not found:
            raise ToolError("This call was not made before: no result is recorded.")
        return found.pop(0) if len(found) > 1 else found[0]


def with_results(tool: RuntimeTool, results: RecordedResults) -> RuntimeTool:
    """The tool with the same definition, which runs nothing."""
    call = partial(_return_recorded, results, tool.name)
    return replace(
        tool, call=call, permit=None, approval=None, blocking=True, replay="safe"
    )


def with_note(tool: RuntimeTool, notes: list[str]) -> RuntimeTool:
    """The tool, which runs, and notes its name."""

    async def call(context: Context, arguments: dict[str, Any]) -> Any:
        notes.append(tool.name)
        return await tool.call(context, arguments)

    return replace(tool, call=call, approval=None, blocking=True)


async def _return_recorded(
    results: RecordedResults, name: str, context: Context, arguments: dict[str, Any]
) -> Any:
    return results.take(name, arguments)


def _canonical(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments or "{}"), sort_keys=True)
    except ValueError:
        return arguments
