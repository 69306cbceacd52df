"""The request of a turn's model calls, with what its user wants of every model, and
what its response repeats of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.conf import settings

from conversations.engine.loading.available_tools import AvailableTools
from conversations.engine.loading.turn_context import TurnContext
from conversations.models import Turn
from conversations.models.preset import Preset
from conversations.models.user_settings import UserSettings
from conversations.turns.history import ContextBlock, History, render_prompt
from llm.generation.request_builder import RequestBuilder
from llm.provider import Route
from llm.wire.items import Item as ItemPayload
from llm.wire.items import is_compaction
from llm.wire.request import Request
from tools.loop.steps import choice_after_calls

_HEADING = "The user's own instructions, for all conversations:"
MEMORY_TOOLS = frozenset({"remember", "recall", "forget"})


@dataclass(frozen=True, slots=True)
class UserWishes:
    """What a turn's user wants of every model: own instructions, and memory or none."""

    instructions: str = ""  # with their heading
    unwanted_tools: frozenset[str] = frozenset()


NO_WISHES = UserWishes()


def load_user_wishes(turn: Turn) -> UserWishes:
    """None for gateway turns, whose clients say all that a model shall know."""
    if "gateway" in turn.options:
        return NO_WISHES
    found = UserSettings()
    if "wishes" not in turn.lacking:
        found = UserSettings.objects.for_user(turn.actor_id)
    own = found.custom_instructions.strip()
    remembers = found.memory_enabled and not turn.conversation.is_temporary
    return UserWishes(
        instructions=f"{_HEADING}\n{own}" if own else "",
        unwanted_tools=frozenset() if remembers else MEMORY_TOOLS,
    )


def request_template(
    route: Route, options: Mapping[str, Any], available: AvailableTools
) -> Request:
    request = Request(
        model="",
        items=(),
        tools=available.definitions,
        in_background=True,  # if staff enabled it for the model
    )
    return RequestBuilder(route).build(request, options)


def instructions_of(turn: Turn, preset: Preset | None, wishes: UserWishes) -> str:
    """The preset's or the site's instructions, then those of the user."""
    instructions: str = (
        turn.options.get("instructions")
        or turn.conversation.instructions
        or (folder.instructions if (folder := turn.conversation.folder) else "")
        or (preset.instructions if preset else "")
        or settings.SYSTEM_PROMPT
    )
    return "\n\n".join(filter(None, [instructions, wishes.instructions]))


def on_demand_block(
    turn_context: TurnContext, available: AvailableTools
) -> Sequence[ContextBlock]:
    """A list of the sources that the model can read with `get_context`, if it has that
    tool."""
    if "get_context" not in available.tools:
        return ()
    names = [f"- {source.name}: {source.title}" for source in turn_context.on_demand]
    text = "Call `get_context` with one of these names:\n" + "\n".join(names)
    return [ContextBlock("Further context", text)]


def prepare_request(
    template: Request,
    instructions: str,
    on_demand: Sequence[ContextBlock],
    first: Sequence[ItemPayload],
    history: History,
    route: Route,
    answered: Sequence[ItemPayload],
    context: Sequence[ContextBlock] = (),
) -> Request:
    """`first` stands before the conversation, where providers cache it."""
    own = [item for item in answered[history.covered :] if not is_compaction(item)]
    prompt = render_prompt(
        instructions,
        [*first, *history.before, *history.question, *own],
        context=[*context, *on_demand],
        tools=template.tools,
        context_window=route.context_window,
        max_output_tokens=template.max_output_tokens,
        prefix=None if first else history.prefix,
    )
    called = any(item["type"] == "function_call" for item in answered)
    choice = template.tool_choice
    return replace(
        template,
        instructions=prompt.instructions,
        items=prompt.items,
        tool_choice=choice_after_calls(choice) if called else choice,
    )


def echo_of(options: Mapping[str, Any], template: Request) -> dict[str, Any]:
    """The parts of the request that the response repeats."""
    echo: dict[str, Any] = {
        "tools": _redact_tools(template.tools),
        "max_output_tokens": template.max_output_tokens,
    }
    for name in ("temperature", "top_p", "tool_choice", "parallel_tool_calls"):
        if options.get(name) is not None:
            echo[name] = options[name]
    if isinstance(metadata := options.get("metadata"), dict):
        echo["metadata"] = metadata
    if reasoning := options.get("reasoning"):
        echo["reasoning"] = {"effort": None, "summary": None, **reasoning}
    if text := options.get("text"):
        echo["text"] = {"format": {"type": "text"}, **text}
    return echo


def _redact_tools(tools: Sequence[dict[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """The tools without credentials for MCP servers, which are not shown to the
    client; the same list if there are none."""
    hidden = {"authorization", "headers"}
    if all(hidden.isdisjoint(tool) for tool in tools):
        return tools
    return [{n: v for n, v in tool.items() if n not in hidden} for tool in tools]
