"""One answer of a preset's content, in memory: it enters no conversation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import uuid4

from django.conf import settings
from django.core.exceptions import ValidationError

from conversations.context import render
from conversations.engine.loading import preset_limits
from conversations.engine.loading.available_tools import (
    filter_tools,
    load_available_tools,
)
from conversations.engine.loading.model_streams import stream_of
from conversations.engine.loading.turn_context import TurnContext, load_turn_context
from conversations.engine.loading.turn_setup import (
    NO_WISHES,
    instructions_of,
    on_demand_block,
    prepare_request,
    request_template,
    route_of_turn,
)
from conversations.engine.metering import max_cost
from conversations.engine.replays.replay_record import ReplayRecord
from conversations.models import Conversation, Turn
from conversations.models.preset import Preset
from conversations.turns.history import ContextBlock, History
from llm.cache.cached_stream import CacheScope
from llm.errors import LLMError
from llm.http.client import Stream
from llm.pricing.caller import Caller
from llm.provider import Route
from llm.wire.facades.errors import error_to_store
from llm.wire.items import Event, Item
from llm.wire.request import Request
from llm.wire.response_builder import ResponseBuilder
from tools.errors import ToolError
from tools.loop.loop import respond
from tools.loop.task import Task
from tools.runtime_tool import Context, RuntimeTool

Write = Callable[..., Awaitable[Any]]  # runs a function in a database thread


class NotRunnable(LLMError):
    """This content names what no longer exists, or is invalid."""

    code, status = "E_PRESET_NOT_RUNNABLE", 409


class TrialPriceUnknown(LLMError):
    """The model's price is unknown, so the budget cannot be kept."""

    code, status = "E_PRICE_UNKNOWN", 409


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A loaded content, ready to answer."""

    preset: Preset  # in memory, with the content
    user_id: int
    conversation_id: str  # of no row
    route: Route
    prepare: Callable[..., Request]
    context: TurnContext
    stream: Stream
    tools: Mapping[str, RuntimeTool]
    is_parallel: bool


@dataclass(frozen=True, slots=True)
class TrialResult:
    output: Sequence[Item]
    error: str = ""


def load_trial(
    preset: Preset, content: Mapping[str, Any], user: Any, items: Sequence[Item]
) -> Trial:
    """Synchronous; reads rows and writes none. The user's models and tools are
    permitted, not the user's own instructions and keys. Raises LLMError."""
    try:
        drafted = preset.with_content(content)
    except ValidationError as exc:
        raise NotRunnable(" ".join(exc.messages)) from exc
    conversation = Conversation(owner=user, preset=drafted)
    turn = Turn(conversation=conversation)
    [route] = preset_limits.filter_routes(drafted, [route_of_turn(turn)])
    options = {**route.defaults, **drafted.options}
    available = load_available_tools(turn, options, drafted, route)
    template = request_template(route, options, available)
    template = preset_limits.limit_output(drafted, template)
    context = load_turn_context(turn, drafted, again=False)
    demanded = on_demand_block(context, available) if context.on_demand else ()
    return Trial(
        preset=drafted,
        user_id=user.pk,
        conversation_id=conversation.pk,
        route=route,
        prepare=partial(
            prepare_request,
            template,
            instructions_of(turn, drafted, NO_WISHES),
            demanded,
            [],
            History((), items, None, 0),
            route,
        ),
        context=context,
        stream=stream_of(
            conversation.pk,
            [route],
            options,
            None,
            CacheScope(owner_id=user.pk, seconds=0),
            is_gateway=False,
        ),
        tools={
            name: _for_trial(tool)
            for name, tool in filter_tools(available, template.tool_choice).items()
        },
        is_parallel=options.get("parallel_tool_calls") is not False,
    )


def new_record(route: Route, user_id: int, left: Decimal | None) -> ReplayRecord:
    """Its calls are neither answers nor parts of a turn."""
    id = f"trial_{uuid4().hex}"
    builder = ResponseBuilder(id=id, model=route.name)
    caller = Caller(user_id=user_id)
    return ReplayRecord(id, builder, route, caller, left, purpose="trial")


async def run_trial(trial: Trial, record: ReplayRecord) -> TrialResult:
    """Adds its calls to the record. Raises LLMError."""
    sources = trial.context
    found = await render(sources.sources, sources.reader)
    blocks = [ContextBlock(e.source.title, e.text) for e in found if not e.reason]
    prepare = partial(trial.prepare, context=blocks)
    is_bounded = record.budget_left is not None
    if is_bounded and max_cost(prepare([]), trial.route) is None:
        raise TrialPriceUnknown
    record.builder.start()
    events: list[Event] = []
    task = _task(trial, prepare, record)
    async for batch in respond(task, builder=record.builder, record=record):
        events = batch or events
    error = error_to_store(events)
    text = f"{error['code']}: {error['message']}"[:500] if error else ""
    return TrialResult(list(record.builder.output), text)


def _task(trial: Trial, prepare: Callable[..., Request], record: ReplayRecord) -> Task:
    preset = trial.preset
    return Task(
        prepare=prepare,
        stream=trial.stream,
        tools=trial.tools,
        parallel=trial.is_parallel,
        max_steps=settings.TURN_MAX_STEPS,
        max_tool_calls=preset.max_tool_calls,
        context=Context(
            user_id=trial.user_id,
            conversation_id=trial.conversation_id,
            turn_id=record.id,
        ),
        is_cost_exhausted=partial(_is_cost_exhausted, record, preset.max_cost),
        are_tokens_used=partial(_are_tokens_used, record, preset.max_tokens),
    )


def _is_cost_exhausted(record: ReplayRecord, bound: Decimal | None) -> bool:
    return record.is_cost_exhausted() or (bound is not None and record.cost >= bound)


def _are_tokens_used(record: ReplayRecord, bound: int | None) -> bool:
    return bound is not None and record.tokens >= bound


def _for_trial(tool: RuntimeTool) -> RuntimeTool:
    """It runs if it changes nothing and needs no approval."""
    if tool.replay == "safe" and not tool.approval and not tool.changes_something:
        return replace(tool, blocking=True)
    return replace(
        tool, call=_refuse, permit=None, approval=None, blocking=True, replay="safe"
    )


async def _refuse(context: Context, arguments: dict[str, Any]) -> Any:
    raise ToolError("This tool changes something, so it does not run in a trial.")
