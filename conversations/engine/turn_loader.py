"""Loads a claimed turn from its rows, in a fixed number of queries."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any

from django.conf import settings
from django.db import transaction

from conversations.access.admission import check_model, user_bucket_owner
from conversations.engine import approvals, background_store, message_bounds, turn_store
from conversations.engine.available_tools import (
    AvailableTools,
    client_tools,
    filter_tools,
    load_available_tools,
)
from conversations.engine.event_log import Position
from conversations.engine.item_loader import Row, items_of
from conversations.engine.metering import Meter
from conversations.engine.process import crash_points
from conversations.engine.turn_context import TurnContext, load_turn_context
from conversations.engine.turn_store import Claim, ProviderResponse
from conversations.models import ToolCall, Turn
from conversations.models.access_token import AccessToken
from conversations.models.preset import Preset, PresetNotAvailable
from conversations.turns.answer_size import AnswerSize, limit_stream, size_of
from conversations.turns.attachments import attachment_ids, inline_files, load_contents
from conversations.turns.history import ContextBlock, HistoryPrefix, render_prompt
from conversations.turns.loop import PLACEHOLDER, Stream, Task
from conversations.turns.single_deltas import split_batches
from conversations.turns.steps import choice_after_calls
from llm import policy, router
from llm.db.compiled_queries import CompiledQuery, RegularUser
from llm.errors import BadRequest, ModelNotAvailable
from llm.http.inline_files import FileCache
from llm.models import LanguageModel
from llm.provider import Route
from llm.wire.items import Item as ItemPayload
from llm.wire.items import ProviderData
from llm.wire.request import Request
from tools.execute import CallOutcome
from tools.execution.without_approval import without_approval
from tools.registry import Context, RuntimeTool

#: Options of a turn that go into every request as they are.
REQUEST_OPTIONS = (
    "extra",
    "frequency_penalty",
    "max_output_tokens",
    "metadata",
    "parallel_tool_calls",
    "presence_penalty",
    "prompt_cache_key",
    "reasoning",
    "safety_identifier",
    "seed",
    "service_tier",
    "stop",
    "temperature",
    "text",
    "tool_choice",
    "top_logprobs",
    "top_p",
)
#: The rows that nearly every turn needs; a preset and its model are further rows.
_TURN = CompiledQuery[Turn](
    lambda pk: Turn.objects.filter(pk=pk).select_related(
        "conversation__owner", "language_model__provider", "access_token"
    ),
    "a turn",
)
_PERMITTED = CompiledQuery[LanguageModel](
    lambda pk, user: (
        LanguageModel.objects.available_to(RegularUser(user))
        .filter(pk=pk)
        .values_list("pk")
    ),
    -1,
    -2,
)
_OUTCOME_UNKNOWN = (
    "Error: this call was interrupted and may or may not have taken effect. It is not"
    " repeated; find out before you call it again."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A loaded turn, ready to run."""

    task: Task
    #: Like the task's `prepare`, but takes `context`, which is not known yet.
    prepare: Callable[..., Request]
    turn_context: TurnContext
    route: Route
    conversation_id: str
    user_id: int
    echo: Mapping[str, Any]
    created_at: datetime
    committed: Sequence[ItemPayload]
    proofs: Mapping[str, ProviderData]  # of committed items, by id
    earlier_positions: Mapping[
        int, Position
    ]  # by index, where a committed item was published
    ended_output: int | None  # as `ResponseBuilder` has it
    pending: ProviderResponse | None  # a response that the next call may resume
    usage: Mapping[str, Any] | None
    inputs: int  # number of the turn's own items
    cancel_requested: bool
    has_new_results: bool  # undelivered background results
    meter: Meter | None = None  # of the access token, if there is one
    limits_owner: str | None = None  # the user who is charged without a token
    cost_left: Decimal | None = None  # USD, of the message; None: no bound


@dataclass(slots=True)
class ClaimAttempt:
    """An attempt to claim a turn, and the claim if it succeeds."""

    turn_id: str = ""
    claim: Claim | None = None
    opened: Turn | None = None  # the instance, if just opened here
    is_alone: bool = False  # no other turn starts beside it


def claim_and_load(attempt: ClaimAttempt) -> Work | None:
    """Claim the turn and load it. None if it cannot be claimed.

    Raises what `load` raises; the turn is then claimed all the same.
    """
    attempt.claim = crash_points.around(
        turn_store.claim, attempt.turn_id, alone=attempt.is_alone
    )
    return load_claimed(attempt)


def load_claimed(attempt: ClaimAttempt) -> Work | None:
    if attempt.claim is None:
        return None
    opened, attempt.opened = attempt.opened, None  # the run refers to `attempt`
    return crash_points.around(load, attempt.claim, opened)


def open_and_claim(
    attempt: ClaimAttempt, open_turn: Callable[[], Turn], active_turns: Collection[str]
) -> Turn:
    """Call `open_turn`, and claim its turn in the same transaction if it can run at
    once, so that no sweep finds it in the queue. `active_turns` already have a run."""
    claim = None
    with transaction.atomic():
        turn = open_turn()
        if turn.status == Turn.Status.QUEUED and turn.pk not in active_turns:
            claim = turn_store.claim(turn.pk)
    attempt.turn_id, attempt.claim, attempt.opened = turn.pk, claim, turn
    return turn


def load(claim: Claim, opened: Turn | None = None) -> Work:
    """Load a claimed turn; `opened` is the instance if it was opened just now. Raises
    LLMError if the turn cannot run: no model, no key, input too long."""
    turn, resolved_route = _as_opened(claim, opened) or (
        _TURN.first(claim.turn_id),
        None,
    )
    assert turn is not None, "who has claimed it has seen it"
    preset, route = _preset(turn), resolved_route or _route(turn)
    options = _options(turn, preset, route)
    available = load_available_tools(turn, options, preset, route)
    template = _template(route, options, available)
    items = items_of(turn)
    question: Sequence[ItemPayload] = [row.item for row in items.inputs]
    history = items.before
    if items.may_have_files:
        question, history = _with_files(turn.conversation_id, question, history)
    history = history or ()
    turn_context = load_turn_context(turn, preset, again=claim.epoch > 1)
    prepare = partial(
        _prepare,
        template,
        _instructions(turn, preset),
        _on_demand(turn_context, available),
        history,
        question,
        route,
        story=items.story if history is items.before else None,
    )
    meter = Meter.of(turn.access_token, route)
    committed = [row.payload for row in items.outputs]
    pending = ProviderResponse.from_dict(turn.provider_response)
    if pending and pending.after != len(committed):
        pending = None
    return Work(
        task=_task(
            turn,
            prepare=partial(prepare, context=turn_context.blocks),
            stream=limit_stream(
                _stream(turn, route, options, available, meter),
                AnswerSize(settings.MAX_ANSWER_SIZE, size_of(committed)),
            ),
            tools=_runnable(turn, filter_tools(available, template.tool_choice)),
            client_tools=client_tools(turn, available, template.tool_choice),
            parallel=options.get("parallel_tool_calls") is not False,
            background_response=pending.response if pending else None,
        ),
        prepare=prepare,
        turn_context=turn_context,
        route=route,
        conversation_id=turn.conversation_id,
        user_id=turn.conversation.owner_id,
        echo=_echo(options, template),
        created_at=turn.created_at,
        committed=committed,
        proofs={
            row.payload["id"]: row.provider_data
            for row in items.outputs
            if row.provider_data
        },
        earlier_positions={
            number: Position(row.epoch, row.sequence)
            for number, row in enumerate(items.outputs)
        },
        ended_output=_find_ended_output(turn, items.outputs),
        pending=pending,
        usage=turn.usage,
        inputs=len(items.inputs),
        cancel_requested=turn.cancel_requested,
        has_new_results=background_store.has_undelivered_results(turn.conversation_id),
        meter=meter,
        cost_left=message_bounds.cost_left(turn),
        limits_owner=None
        if turn.access_token
        else user_bucket_owner(turn.conversation.owner),
    )


def _find_ended_output(turn: Turn, outputs: Sequence[Row]) -> int | None:
    """The number of items up to the end of the last finished provider call.

    Rows of an older version do not store it. There the items of a provider call were
    written when it ended, together with its tool calls; other items mark no end.
    """
    if turn.ended_output is not None:
        return turn.ended_output
    calls = [
        n for n, row in enumerate(outputs) if row.payload["type"] == "function_call"
    ]
    return calls[-1] + 1 if calls else None


def _as_opened(claim: Claim, opened: Turn | None) -> tuple[Turn, Route] | None:
    """The opened turn and the resolved route to its model, which cannot have changed
    since. None if they must be read from the database."""
    if opened is None or not opened.opened_with or claim.epoch != 1:
        return None
    model = opened.language_model
    if model is None or model.resolved_route is None:
        return None
    opened.epoch = claim.epoch
    return opened, model.resolved_route


def _options(turn: Turn, preset: Preset | None, route: Route) -> dict[str, Any]:
    return {
        **route.defaults,
        **(preset.options if preset else {}),
        **turn.conversation.options,
        **turn.options,
    }


def _stream(
    turn: Turn,
    route: Route,
    options: Mapping[str, Any],
    available: AvailableTools,
    meter: Meter | None,
) -> Stream:
    routes = policy.routes_of(route, user=turn.conversation.owner)
    stream: Stream = partial(
        policy.stream,
        available.adapt_routes(_filter_routes(routes, turn.access_token)),
        ignore_invalid=options.get("ignore_invalid_options") is True,
        files=FileCache(),
        admit=meter.admit if meter else None,
        affinity=turn.conversation_id,
    )
    stream = meter.meter_stream(stream) if meter else stream
    return split_batches(stream) if "gateway" in turn.options else stream


def _runnable(
    turn: Turn, tools: Mapping[str, RuntimeTool]
) -> Mapping[str, RuntimeTool]:
    """The tools of a turn. A program waits for a gateway turn and cannot wait for a
    person too, so calls that need approval are refused, except in a background turn."""
    gateway = turn.options.get("gateway")
    if gateway is None or gateway["echo"].get("background") is True:
        return tools
    return {name: without_approval(tool) for name, tool in tools.items()}


class ApprovalExpired(BadRequest):
    """Nobody approved the tool call that this response waited for."""

    code, status = "E_APPROVAL_EXPIRED", 409
    openai_code = "approval_expired"


def _task(turn: Turn, *, tools: Mapping[str, RuntimeTool], **fields: Any) -> Task:
    """The task, with what an earlier run and people's decisions have left."""
    decisions = approvals.decisions(turn, tools)
    if decisions.has_expired and "gateway" in turn.options:
        raise ApprovalExpired
    left = {**_outcomes(turn, tools), **decisions.outcomes} if turn.epoch > 1 else {}
    return Task(
        tools=tools,
        needs_approval=decisions.needs_approval,
        arguments=decisions.arguments,
        context=Context(
            user_id=turn.conversation.owner_id,
            conversation_id=turn.conversation_id,
            turn_id=turn.pk,
            may_read_chats=turn.may_read_chats,
        ),
        max_steps=settings.TURN_MAX_STEPS,
        max_tool_calls=turn.options.get("max_tool_calls"),
        outcomes=left,
        partial=turn.partial or (),
        **fields,
    )


def _with_files(
    conversation_id: str, *parts: Sequence[ItemPayload]
) -> list[Sequence[ItemPayload]]:
    """The items with the content of the attachments that they name, as providers take
    it."""
    named = attachment_ids(item for items in parts for item in items)
    if not named:
        return list(parts)
    files = load_contents(conversation_id, named)
    return [inline_files(items, files) for items in parts]


def _preset(turn: Turn) -> Preset | None:
    """Raises PresetNotAvailable: without the preset its restrictions would be lost."""
    chosen = turn.conversation.preset_id
    if chosen is None:
        return None
    permitted = Preset.objects.available_to(turn.conversation.owner)
    preset = permitted.filter(pk=chosen).first()
    if preset is None:
        raise PresetNotAvailable
    turn.conversation.preset = preset  # its model may be the one of the turn
    return preset


def _instructions(turn: Turn, preset: Preset | None) -> str:
    instructions: str = (
        turn.options.get("instructions")
        or turn.conversation.instructions
        or (preset.instructions if preset else "")
        or settings.SYSTEM_PROMPT
    )
    return instructions


def _on_demand(
    turn_context: TurnContext, available: AvailableTools
) -> Sequence[ContextBlock]:
    """A list of the sources that the model can read with `get_context`, if it has that
    tool."""
    if not turn_context.on_demand or "get_context" not in available.tools:
        return ()
    names = [f"- {source.name}: {source.title}" for source in turn_context.on_demand]
    text = "Call `get_context` with one of these names:\n" + "\n".join(names)
    return [ContextBlock("Further context", text)]


def _route(turn: Turn) -> Route:
    """Checks the permission again, which may have been withdrawn since the turn was
    opened."""
    model = turn.language_model or turn.conversation.usual_model
    owner = turn.conversation.owner
    if model is None:
        return router.resolve(None, user=owner)
    if not owner.is_superuser and not _PERMITTED.rows(model.pk, owner.pk):
        raise ModelNotAvailable
    return router.route_of(model)


def _filter_routes(
    routes: Sequence[Route], token: AccessToken | None
) -> Sequence[Route]:
    """The routes that the token permits now; this may have changed since the request.

    Raises ModelNotAvailable.
    """
    if token is None:
        return routes
    check_model(token, routes[0].model_id, routes[0].name)
    return [route for route in routes if token.may_use_model(route.model_id)]


def _template(
    route: Route, options: Mapping[str, Any], available: AvailableTools
) -> Request:
    chosen = {k: options[k] for k in REQUEST_OPTIONS if options.get(k) is not None}
    return Request(
        **{
            "model": route.model,
            "items": (),
            "tools": available.definitions,
            "max_output_tokens": route.max_output_tokens,
            "issuer": route.endpoint.issuer(route.model),
            "in_background": True,  # if staff enabled it for the model
            **chosen,
        }
    )


def _prepare(
    template: Request,
    instructions: str,
    on_demand: Sequence[ContextBlock],
    before: Sequence[ItemPayload],
    question: Sequence[ItemPayload],
    route: Route,
    answered: Sequence[ItemPayload],
    context: Sequence[ContextBlock] = (),
    *,
    story: HistoryPrefix | None = None,
) -> Request:
    prompt = render_prompt(
        instructions,
        [*before, *question, *answered],
        context=[*context, *on_demand],
        tools=template.tools,
        context_window=route.context_window,
        max_output_tokens=template.max_output_tokens,
        prefix=story,
    )
    called = any(item["type"] == "function_call" for item in answered)
    choice = template.tool_choice
    return replace(
        template,
        instructions=prompt.instructions,
        items=prompt.items,
        tool_choice=choice_after_calls(choice) if called else choice,
    )


def _outcomes(turn: Turn, tools: Mapping[str, RuntimeTool]) -> dict[str, CallOutcome]:
    """The outcomes of calls that an interrupted run has stored.

    A tool that was running is executed again only if it declares that it may be.
    """
    outcomes = {}
    for row in ToolCall.objects.filter(turn=turn):
        if not row.blocking:  # a message delivers its result
            outcomes[row.call_id] = CallOutcome(
                row.call_id, "background", PLACEHOLDER, "", 0.0
            )
        elif row.output is not None:
            outcomes[row.call_id] = CallOutcome(
                row.call_id, row.state, row.output, row.error, row.seconds or 0.0
            )
        elif row.state == ToolCall.State.EXECUTING and not _may_repeat(row, tools):
            outcomes[row.call_id] = CallOutcome(
                row.call_id, "unknown", _OUTCOME_UNKNOWN, "outcome unknown", 0.0
            )
    return outcomes


def _may_repeat(row: ToolCall, tools: Mapping[str, RuntimeTool]) -> bool:
    tool = tools.get(row.name)
    return tool is not None and tool.replay in ("safe", "idempotent")


def _redact_tools(tools: Sequence[dict[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """The tools without secrets; the same list if there are none."""
    redacted = [_without_secrets(tool) for tool in tools]
    return tools if redacted == tools else redacted


def _without_secrets(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """Credentials for an MCP server are not shown to the client."""
    hidden = ("authorization", "headers")
    if not any(name in tool for name in hidden):
        return tool
    return {name: value for name, value in tool.items() if name not in hidden}


def _echo(options: Mapping[str, Any], template: Request) -> dict[str, Any]:
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
