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

from conversations.admission import check_model, user_owner
from conversations.answer_size import AnswerSize, bounded, size_of
from conversations.attachments import attachments_of, contents, inlined
from conversations.engine import (
    approvals,
    background_rows,
    faults,
    message_bounds,
    rows,
)
from conversations.engine.gathering import Gathering, gathering
from conversations.engine.items import Row, items_of
from conversations.engine.log import Position
from conversations.engine.offer import Offer, allowed_tools, client_tools, offer_of
from conversations.engine.rows import Claim, ProviderResponse
from conversations.history import ContextBlock, Story, render_prompt
from conversations.loop import PLACEHOLDER, Stream, Task
from conversations.metering import Meter
from conversations.models import ToolCall, Turn
from conversations.pieces import piece_by_piece
from conversations.presets import Preset, PresetNotAvailable
from conversations.steps import choice_after_calls
from conversations.tokens import AccessToken
from llm import policy, router
from llm.errors import BadRequest, ModelNotAvailable
from llm.inline import Files
from llm.models import LanguageModel
from llm.prepared import Prepared, Somebody
from llm.provider import Route
from llm.wire.items import Item as ItemPayload
from llm.wire.items import ProviderData
from llm.wire.request import Request
from tools.execute import Outcome
from tools.registry import Context, Tool
from tools.unattended import unattended

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
_TURN = Prepared[Turn](
    lambda pk: Turn.objects.filter(pk=pk).select_related(
        "conversation__owner", "language_model__provider", "access_token"
    ),
    "a turn",
)
_PERMITTED = Prepared[LanguageModel](
    lambda pk, user: (
        LanguageModel.objects.permitted(Somebody(user)).filter(pk=pk).values_list("pk")
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
    gathering: Gathering
    route: Route
    conversation_id: str
    user_id: int
    echo: Mapping[str, Any]
    created_at: datetime
    committed: Sequence[ItemPayload]
    proofs: Mapping[str, ProviderData]  # of committed items, by id
    told: Mapping[int, Position]  # by index, where a committed item was published
    ended_output: int | None  # as `ResponseBuilder` has it
    pending: ProviderResponse | None  # a response that the next call may resume
    usage: Mapping[str, Any] | None
    inputs: int  # number of the turn's own items
    cancel_requested: bool
    has_news: bool  # undelivered background results
    meter: Meter | None = None  # of the access token, if there is one
    limits_owner: str | None = None  # the user who is charged without a token
    cost_left: Decimal | None = None  # USD, of the message; None: no bound


@dataclass(slots=True)
class Taken:
    """An attempt to claim a turn, and the claim if it succeeds."""

    turn_id: str = ""
    claim: Claim | None = None
    opened: Turn | None = None  # the instance, if just opened here
    is_alone: bool = False  # no other turn starts beside it


def take(taken: Taken) -> Work | None:
    """Claim the turn and load it. None if it cannot be claimed.

    Raises what `load` raises; the turn is then claimed all the same.
    """
    taken.claim = faults.around(rows.claim, taken.turn_id, alone=taken.is_alone)
    return load_taken(taken)


def load_taken(taken: Taken) -> Work | None:
    if taken.claim is None:
        return None
    opened, taken.opened = taken.opened, None  # the run refers to `attempt`
    return faults.around(load, taken.claim, opened)


def open_taken(
    taken: Taken, open_turn: Callable[[], Turn], wanted: Collection[str]
) -> Turn:
    """Call `open_turn`, and claim its turn in the same transaction if it can run at
    once, so that no sweep finds it in the queue. `active_turns` already have a run."""
    claim = None
    with transaction.atomic():
        turn = open_turn()
        if turn.status == Turn.Status.QUEUED and turn.pk not in wanted:
            claim = rows.claim(turn.pk)
    taken.turn_id, taken.claim, taken.opened = turn.pk, claim, turn
    return turn


def load(claim: Claim, opened: Turn | None = None) -> Work:
    """Load a claimed turn; `opened` is the instance if it was opened just now. Raises
    LLMError if the turn cannot run: no model, no key, input too long."""
    turn, way = _as_opened(claim, opened) or (_TURN.first(claim.turn_id), None)
    assert turn is not None, "who has claimed it has seen it"
    preset, route = _preset(turn), way or _route(turn)
    options = _options(turn, preset, route)
    offer = offer_of(turn, options, preset, route)
    template = _template(route, options, offer)
    items = items_of(turn)
    question: Sequence[ItemPayload] = [row.item for row in items.inputs]
    history = items.before
    if items.may_have_files:
        question, history = _with_files(turn.conversation_id, question, history)
    history = history or ()
    told = gathering(turn, preset, again=claim.epoch > 1)
    prepare = partial(
        _prepare,
        template,
        _instructions(turn, preset),
        _on_demand(told, offer),
        history,
        question,
        route,
        story=items.story if history is items.before else None,
    )
    meter = Meter.of(turn.access_token, route)
    committed = [row.payload for row in items.outputs]
    pending = ProviderResponse.read(turn.provider_response)
    if pending and pending.after != len(committed):
        pending = None
    return Work(
        task=_task(
            turn,
            prepare=partial(prepare, context=told.blocks),
            stream=bounded(
                _stream(turn, route, options, offer, meter),
                AnswerSize(settings.MAX_ANSWER_SIZE, size_of(committed)),
            ),
            tools=_runnable(turn, allowed_tools(offer, template.tool_choice)),
            client_tools=client_tools(turn, offer, template.tool_choice),
            parallel=options.get("parallel_tool_calls") is not False,
            resumes=pending.response if pending else None,
        ),
        prepare=prepare,
        gathering=told,
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
        told={
            number: Position(row.epoch, row.sequence)
            for number, row in enumerate(items.outputs)
        },
        ended_output=_ended_output(turn, items.outputs),
        pending=pending,
        usage=turn.usage,
        inputs=len(items.inputs),
        cancel_requested=turn.cancel_requested,
        has_news=background_rows.has_news(turn.conversation_id),
        meter=meter,
        cost_left=message_bounds.cost_left(turn),
        limits_owner=None if turn.access_token else user_owner(turn.conversation.owner),
    )


def _ended_output(turn: Turn, outputs: Sequence[Row]) -> int | None:
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
    if model is None or model.way is None:
        return None
    opened.epoch = claim.epoch
    return opened, model.way


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
    offer: Offer,
    meter: Meter | None,
) -> Stream:
    routes = policy.routes_of(route, user=turn.conversation.owner)
    stream: Stream = partial(
        policy.stream,
        offer.at(_allowed(routes, turn.access_token)),
        ignore_invalid=options.get("ignore_invalid_options") is True,
        files=Files(),
        admit=meter.admit if meter else None,
        affinity=turn.conversation_id,
    )
    stream = meter.counting(stream) if meter else stream
    return piece_by_piece(stream) if "gateway" in turn.options else stream


def _runnable(turn: Turn, tools: Mapping[str, Tool]) -> Mapping[str, Tool]:
    """The tools of a turn. A program waits for a gateway turn and cannot wait for a
    person too, so calls that need approval are refused, except in a background turn."""
    gateway = turn.options.get("gateway")
    if gateway is None or gateway["echo"].get("background") is True:
        return tools
    return {name: unattended(tool) for name, tool in tools.items()}


class ApprovalExpired(BadRequest):
    """Nobody approved the tool call that this response waited for."""

    code, status = "E_APPROVAL_EXPIRED", 409
    openai_code = "approval_expired"


def _task(turn: Turn, *, tools: Mapping[str, Tool], **fields: Any) -> Task:
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
    named = attachments_of(item for items in parts for item in items)
    if not named:
        return list(parts)
    files = contents(conversation_id, named)
    return [inlined(items, files) for items in parts]


def _preset(turn: Turn) -> Preset | None:
    """Raises PresetNotAvailable: without the preset its restrictions would be lost."""
    chosen = turn.conversation.preset_id
    if chosen is None:
        return None
    permitted = Preset.objects.permitted(turn.conversation.owner)
    preset = permitted.filter(pk=chosen).first()
    if preset is None:
        raise PresetNotAvailable
    turn.conversation.preset = preset  # its model may be the one of the turn
    return preset


def _instructions(turn: Turn, preset: Preset | None) -> str:
    told: str = (
        turn.options.get("instructions")
        or turn.conversation.instructions
        or (preset.instructions if preset else "")
        or settings.SYSTEM_PROMPT
    )
    return told


def _on_demand(gathering: Gathering, offer: Offer) -> Sequence[ContextBlock]:
    """A list of the sources that the model can read with `get_context`, if it has that
    tool."""
    if not gathering.on_demand or "get_context" not in offer.tools:
        return ()
    names = [f"- {source.name}: {source.title}" for source in gathering.on_demand]
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


def _allowed(routes: Sequence[Route], token: AccessToken | None) -> Sequence[Route]:
    """The routes that the token permits now; this may have changed since the request.

    Raises ModelNotAvailable.
    """
    if token is None:
        return routes
    check_model(token, routes[0].model_id, routes[0].name)
    return [route for route in routes if token.may_ask(route.model_id)]


def _template(route: Route, options: Mapping[str, Any], offer: Offer) -> Request:
    chosen = {k: options[k] for k in REQUEST_OPTIONS if options.get(k) is not None}
    return Request(
        **{
            "model": route.model,
            "items": (),
            "tools": offer.definitions,
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
    story: Story | None = None,
) -> Request:
    prompt = render_prompt(
        instructions,
        [*before, *question, *answered],
        context=[*context, *on_demand],
        tools=template.tools,
        context_window=route.context_window,
        max_output_tokens=template.max_output_tokens,
        story=story,
    )
    called = any(item["type"] == "function_call" for item in answered)
    choice = template.tool_choice
    return replace(
        template,
        instructions=prompt.instructions,
        items=prompt.items,
        tool_choice=choice_after_calls(choice) if called else choice,
    )


def _outcomes(turn: Turn, tools: Mapping[str, Tool]) -> dict[str, Outcome]:
    """The outcomes of calls that an interrupted run has stored.

    A tool that was running is executed again only if it declares that it may be.
    """
    outcomes = {}
    for row in ToolCall.objects.filter(turn=turn):
        if not row.blocking:  # a message delivers its result
            outcomes[row.call_id] = Outcome(
                row.call_id, "background", PLACEHOLDER, "", 0.0
            )
        elif row.output is not None:
            outcomes[row.call_id] = Outcome(
                row.call_id, row.state, row.output, row.error, row.seconds or 0.0
            )
        elif row.state == ToolCall.State.EXECUTING and not _may_repeat(row, tools):
            outcomes[row.call_id] = Outcome(
                row.call_id, "unknown", _OUTCOME_UNKNOWN, "outcome unknown", 0.0
            )
    return outcomes


def _may_repeat(row: ToolCall, tools: Mapping[str, Tool]) -> bool:
    tool = tools.get(row.name)
    return tool is not None and tool.replay in ("safe", "idempotent")


def _told_openly(tools: Sequence[dict[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """The tools without secrets; the same list if there are none."""
    told = [_without_secrets(tool) for tool in tools]
    return tools if told == tools else told


def _without_secrets(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """Credentials for an MCP server are not shown to the client."""
    hidden = ("authorization", "headers")
    if not any(name in tool for name in hidden):
        return tool
    return {name: value for name, value in tool.items() if name not in hidden}


def _echo(options: Mapping[str, Any], template: Request) -> dict[str, Any]:
    """The parts of the request that the response repeats."""
    echo: dict[str, Any] = {
        "tools": _told_openly(template.tools),
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
