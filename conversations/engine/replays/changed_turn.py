"""Loads a turn for a replay: its requests anew, with what the replay changes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from conversations.engine.loading.available_tools import AvailableTools
from conversations.engine.loading.item_loader import load_items_at, output_rows
from conversations.engine.loading.turn_loader import Rebuilt, rebuild
from conversations.engine.replays.recorded_tools import (
    RecordedResults,
    with_note,
    with_results,
)
from conversations.models import Turn
from conversations.models.staff.replay import Replay
from llm import router
from llm.errors import LLMError
from llm.models import LanguageModel, ModelExchange
from llm.provider import Route
from llm.wire.items import Item, is_compaction
from tools.models import ToolVersion
from tools.runtime_tool import RuntimeTool


class NotReplayable(LLMError):
    """This turn cannot be run again."""

    code, status = "E_NOT_REPLAYABLE", 409


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedTurn:
    turn: Turn
    rebuilt: Rebuilt
    tools: Mapping[str, RuntimeTool]
    tools_run: list[str]  # filled in while it runs
    access_token_id: int | None  # whose limit to conversations holds here too
    first_request: str  # of the original, if it is kept; else ""


def load_changed(turn_id: str, change: Replay) -> ChangedTurn:
    """Synchronous; reads rows. Raises LLMError."""
    turn = _load_turn(turn_id)
    access_token_id = turn.access_token_id
    turn.access_token = None  # nothing is charged to it, and its rates do not hold
    if change.instructions:
        turn.options = {**turn.options, "instructions": change.instructions}
    outputs = [row.payload for row in output_rows(turn)]
    version = change.tool_version
    rebuilt = rebuild(
        turn,
        _route(turn, change.language_model),
        load_items_at(turn, _start(outputs)),
        lambda available: _with_version(available, version),
    )
    results, notes = RecordedResults(outputs), list[str]()
    runs = _runs(change)
    return ChangedTurn(
        turn=turn,
        rebuilt=rebuilt,
        tools={
            name: with_note(tool, notes) if runs(tool) else with_results(tool, results)
            for name, tool in rebuilt.tools.items()
        },
        tools_run=notes,
        access_token_id=access_token_id,
        first_request=_first_request(turn_id),
    )


def _load_turn(turn_id: str) -> Turn:
    related = ("conversation__owner", "language_model__provider", "author")
    turn = Turn.objects.select_related(*related).filter(pk=turn_id).first()
    if turn is None or not turn.is_finished:
        raise NotReplayable("The turn is not over, or was erased.")
    return turn


def _route(turn: Turn, model: LanguageModel | None) -> Route:
    """With a key for everybody: staff do not use people's own ones."""
    model = model or turn.language_model or turn.conversation.usual_model
    return router.route_of(model) if model else router.resolve(None)


def _start(outputs: Sequence[Item]) -> int:
    """The number of summaries before the first answer."""
    return next((n for n, i in enumerate(outputs) if not is_compaction(i)), 0)


def _with_version(
    available: AvailableTools, version: ToolVersion | None
) -> AvailableTools:
    """The tools with the definition of this version, where it is one of them."""
    if version is None or version.tool.name not in available.tools:
        return available
    tool, snapshot = available.tools[version.tool.name], version.snapshot
    mcp, http = snapshot.get("mcp") or {}, snapshot.get("http") or {}
    changed = replace(
        tool,
        description=snapshot["tool"].get("description")
        or mcp.get("description")
        or tool.description,
        parameters=http.get("parameters") or mcp.get("inputSchema") or tool.parameters,
    )
    return replace(available, tools={**available.tools, tool.name: changed})


def _runs(change: Replay) -> Callable[[RuntimeTool], bool]:
    """Whether a tool runs, or only returns what is recorded."""
    named: Collection[str] = change.live_tools
    other = change.tool_version.tool.name if change.tool_version else ""

    def runs(tool: RuntimeTool) -> bool:
        if not change.is_live or tool.name == other:
            return False
        return tool.name in named or (tool.replay == "safe" and tool.approval is None)

    return runs


def _first_request(turn_id: str) -> str:
    kept = ModelExchange.objects.filter(call__turn_id=turn_id, call__purpose="answer")
    first = kept.order_by("call_id").first()
    content: dict[str, Any] = first.read() if first else {"request": ""}
    return "" if content.get("request_cut") else str(content["request"])
