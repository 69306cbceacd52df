"""Loads a claimed turn from its rows, in a fixed number of queries."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from django.conf import settings
from django.db import transaction

from conversations.access.admission import user_bucket_owner
from conversations.access.participation import check_author
from conversations.access.webhooks.limit_events import notes_refusals
from conversations.engine import claim_store, message_consequences
from conversations.engine.claim_store import Claim
from conversations.engine.event_log import Position
from conversations.engine.lease_store import ProviderResponse
from conversations.engine.loading import late_results, preset_limits
from conversations.engine.loading.approvals import Decisions, load_decisions
from conversations.engine.loading.available_tools import (
    AvailableTools,
    client_tools,
    filter_tools,
)
from conversations.engine.loading.earlier_outcomes import earlier_outcomes
from conversations.engine.loading.item_loader import (
    Items,
    Row,
    load_items,
    load_items_of_first_turn,
)
from conversations.engine.loading.loaded_turn import LoadFiles, Progress, Work
from conversations.engine.loading.model_streams import (
    cache_scope,
    compactor_builder,
    stream_of,
)
from conversations.engine.loading.turn_context import (
    NO_TURN_EXTRAS,
    TurnContext,
    TurnExtras,
    load_turn_context,
    load_turn_extras,
)
from conversations.engine.loading.turn_setup import (
    Setup,
    determine_setup,
    echo_of,
    instructions_of,
    on_demand_block,
    prepare_request,
)
from conversations.engine.process import crash_points
from conversations.models import Attachment, OpenedTurn, Turn
from conversations.turns.attachments import attachment_ids, attachments_of, inline_files
from conversations.turns.file_contents import load_contents
from conversations.turns.file_storage import are_local
from conversations.turns.folder_files import (
    files_message,
    files_of,
    has_documents,
    text_blocks,
)
from conversations.turns.history import ContextBlock, History
from llm.cache.cached_stream import CacheScope
from llm.http.client import Stream
from llm.provider import Route
from llm.wire.items import Item as ItemPayload
from llm.wire.request import Request
from tools.execution.without_approval import without_approval
from tools.hosted.declared_kinds import kinds_of_tools
from tools.hosted.unreported_content import may_add_content
from tools.loop.answer_size import AnswerSize
from tools.loop.task import Task
from tools.loop.untrusted_content import has_untrusted_content
from tools.registry import Context, RuntimeTool


@dataclass(slots=True)
class ClaimAttempt:
    """An attempt to claim a turn, and the claim if it succeeds."""

    turn_id: str = ""
    claim: Claim | None = None
    opened: OpenedTurn | None = None  # if it was opened just now, in this process
    is_alone: bool = False  # no other turn starts beside it
    owner: int | None = None  # the user whose other turns it waits behind, if known
    turn: Turn | None = None  # if the claim has read it


def claim_and_load(attempt: ClaimAttempt) -> Work | None:
    """Claim the turn and load it. None if it cannot be claimed.

    Raises what `load` raises; the turn is then claimed all the same.
    """
    turn_id, alone = attempt.turn_id, attempt.is_alone
    claim = claim_store.claim_and_read
    attempt.claim, attempt.turn = (
        crash_points.around(claim, turn_id, alone=alone)
        if crash_points.IS_ARMED
        else claim(turn_id, alone=alone)
    )
    return load_claimed(attempt)


def load_claimed(attempt: ClaimAttempt) -> Work | None:
    if attempt.claim is None:
        return None
    opened, attempt.opened = attempt.opened, None  # the run refers to `attempt`
    turn, attempt.turn = attempt.turn, None
    if crash_points.IS_ARMED:
        return crash_points.around(load, attempt.claim, opened, turn)
    return load(attempt.claim, opened, turn)


@notes_refusals
def open_and_claim(
    attempt: ClaimAttempt,
    open_turn: Callable[[], OpenedTurn],
    active_turns: Collection[str],
) -> Turn:
    """Call `open_turn`, and claim its turn in the same transaction if it can run at
    once, so that no sweep finds it in the queue. `active_turns` already have a run."""
    claim = None
    with transaction.atomic():
        opened = open_turn()
        turn = opened.turn
        if turn.status == Turn.Status.QUEUED and turn.pk not in active_turns:
            claim = claim_store.claim(turn.pk)
    attempt.turn_id, attempt.claim, attempt.opened = turn.pk, claim, opened
    return turn


def load(
    claim: Claim, opened: OpenedTurn | None = None, turn: Turn | None = None
) -> Work:
    """Load a claimed turn, which may have been `opened` just now, or whose row the
    claim has read. Raises LLMError if the turn cannot run: no model, no key, input too
    long."""
    known = _as_opened(claim, opened)
    turn, resolved_route = known or (turn or claim_store.read_turn(claim), None)
    check_author(turn)
    setup = determine_setup(turn, resolved_route)
    is_alone = known is not None and opened is not None and opened.is_conversation_new
    items = (
        load_items_of_first_turn(opened.items)
        if opened and is_alone
        else load_items(turn)
    )
    progress = progress_of(turn, items)
    parts: list[LoadFiles] = []
    history = _history_of(turn, items, parts)
    turn_context = load_turn_context(turn, setup.preset, again=claim.epoch > 1)
    prepare = _prepare(turn, setup, history, turn_context, parts)
    tools, extras = _load_tools(turn, setup, is_alone=is_alone)
    decisions = _decisions(turn, setup, tools, extras, history, turn_context)
    if setup.meter and (pending := progress["pending"]):
        setup.meter.resumed_entry = pending.entry
    preset, left = setup.preset, message_consequences.cost_left(turn)
    return Work(
        task=_task(turn, setup, decisions, turn_context, progress, prepare),
        history=history,
        load_files=_load_or_defer(parts) if parts else None,
        build_compactor=compactor_builder(
            turn, setup.routes, setup.options, setup.meter
        ),
        prepare=prepare,
        turn_context=turn_context,
        route=setup.route,
        conversation_id=turn.conversation_id,
        user_id=turn.actor_id,
        caller=turn.caller,
        echo=echo_of(setup.options, setup.template),
        created_at=turn.created_at,
        cancel_requested=turn.cancel_requested,
        is_approval_expired=bool(decisions.expired)
        and decisions.is_expired(progress["committed"]),
        is_timed="gateway" not in turn.options,
        has_new_results=extras.has_undelivered
        and late_results.has_undelivered_results(turn),
        meter=setup.meter,
        cost_left=preset_limits.cost_left(preset, turn, left) if preset else left,
        tokens_left=preset_limits.tokens_left(preset, turn) if preset else None,
        preset_version=preset.version if preset else None,
        limits_owner=None if turn.access_token else user_bucket_owner(turn.actor),
        **progress,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """What a turn's provider calls are made of, without a claim."""

    route: Route
    prepare: Callable[[Sequence[ItemPayload]], Request]  # from its output items so far
    load_files: LoadFiles | None  # as `Work` has it
    tools: Mapping[str, RuntimeTool]
    client_tools: Collection[str]
    stream: Stream
    is_parallel: bool


def rebuild(
    turn: Turn,
    route: Route,
    items: Items,
    change_tools: Callable[[AvailableTools], AvailableTools],
) -> Rebuilt:
    """The requests of a turn anew, by this route and without its fallbacks. It reads
    rows and writes none. Raises LLMError."""
    setup = determine_setup(turn, route, change_tools)
    parts: list[LoadFiles] = []
    history = _history_of(turn, items, parts)
    context = load_turn_context(turn, setup.preset, again=True)
    prepare = _prepare(turn, setup, history, context, parts)
    choice = setup.template.tool_choice
    return Rebuilt(
        route=route,
        prepare=partial(prepare, context=context.blocks),
        load_files=_load_or_defer(parts) if parts else None,
        tools=filter_tools(setup.available, choice),
        client_tools=client_tools(turn, setup.available, choice),
        stream=stream_of(
            turn.conversation_id,
            [route],
            setup.options,
            None,
            CacheScope(owner_id=turn.actor_id, seconds=0),
            is_gateway="gateway" in turn.options,
        ),
        is_parallel=setup.options.get("parallel_tool_calls") is not False,
    )


def load_history(claim: Claim) -> tuple[History, LoadFiles | None]:
    """The history of a claimed turn, as its rows have it now, and what reads its files
    as `Work` has it."""
    turn, parts = claim_store.read_turn(claim), list[LoadFiles]()
    history = _history_of(turn, load_items(turn), parts)
    return history, _load_or_defer(parts) if parts else None


def _load_or_defer(parts: Sequence[LoadFiles]) -> LoadFiles | None:
    """A disk is read at once. A bucket may answer slowly or not at all, and the writes
    of other turns wait for this thread."""

    def load_files() -> None:
        for load_part in parts:
            load_part()

    if not are_local():
        return load_files
    load_files()
    return None


def _prepare(
    turn: Turn,
    setup: Setup,
    history: History,
    turn_context: TurnContext,
    parts: list[LoadFiles],
) -> Callable[..., Request]:
    blocks: list[ContextBlock] = []
    first: list[ItemPayload] = []
    # Programs' turns do not get the files of the conversation's folder.
    folder = None if "gateway" in turn.options else turn.conversation.folder
    if folder is not None:
        in_folder = files_of(folder)
        blocks += text_blocks(in_folder)
        if has_documents(in_folder):
            can = setup.route.capabilities
            parts.append(lambda: first.extend(files_message(in_folder, can)))
    if turn_context.on_demand:
        blocks += on_demand_block(turn_context, setup.available)
    return partial(
        prepare_request,
        setup.template,
        instructions_of(turn, setup.preset, setup.wishes),
        blocks,
        first,
        history,
        setup.route,
    )


def _decisions(
    turn: Turn,
    setup: Setup,
    tools: Mapping[str, RuntimeTool],
    extras: TurnExtras,
    history: History,
    turn_context: TurnContext,
) -> Decisions:
    asks = any(tool.approval or tool.own_sign_in for tool in tools.values())
    if turn.epoch == 1 and not asks:
        decisions = Decisions(tools)
    else:
        has_approvals = extras.has_standing_approvals
        decisions = load_decisions(turn, tools, has_approvals=has_approvals)
    if not tools:
        return decisions
    has_files = "gateway" not in turn.options and turn.conversation.folder_id
    may_act = any(tool.asks_after_untrusted for tool in tools.values())
    is_foreign = turn_context.sources or turn_context.blocks or has_files
    if is_foreign or (may_act and _has_words_of_others(turn, extras)):
        return replace(decisions, has_untrusted_input=lambda: True)
    return replace(
        decisions,
        has_untrusted_input=lambda: (
            history.has_files
            or _may_host_add_content(setup)
            or has_untrusted_content([*history.before, *history.question], tools)
        ),
    )


def _may_host_add_content(setup: Setup) -> bool:
    """Whether one of the hosts may search, say, without an item that shows it."""
    available, (first, *others) = setup.available, setup.routes
    sent = [(first, available.hosted), *((each, each.hosted_tools) for each in others)]
    for route, hosted in sent:
        found = kinds_of_tools([*available.declared, *hosted])
        if may_add_content(route, {kind for kind, _ in found}):
            return True
    return False


def _has_words_of_others(turn: Turn, extras: TurnExtras) -> bool:
    """Whether the chat was imported from a file, or another person writes in it: a
    tool acts with the rights and sign-ins of this turn's author alone."""
    conversation = turn.conversation
    if conversation.import_key:
        return True
    if turn.author_id is not None and conversation.instructions:
        return True  # which the owner wrote
    if turn.parent_id is None or conversation.is_from_api:
        return False
    return turn.author_id is not None or extras.has_words_of_others


def progress_of(turn: Turn, items: Items) -> Progress:
    outputs, pending = items.outputs, None
    if turn.provider_response:
        pending = ProviderResponse.from_dict(turn.provider_response)
        if pending.after != len(outputs):
            pending = None  # it does not continue the items that are committed
    ended = turn.ended_output
    if ended is None and outputs:
        ended = _find_ended_output(outputs)
    return Progress(
        committed=[row.payload for row in outputs],
        proofs={
            row.payload["id"]: row.provider_data for row in outputs if row.provider_data
        },
        earlier_positions={
            number: Position(row.epoch, row.sequence)
            for number, row in enumerate(outputs)
        },
        ended_output=ended,
        pending=pending,
        usage=turn.usage,
        inputs=len(items.inputs),
    )


def _history_of(turn: Turn, items: Items, parts: list[LoadFiles]) -> History:
    question: Sequence[ItemPayload] = [row.item for row in items.inputs]
    history = History(items.before or (), question, items.history_prefix, items.covered)
    if items.may_have_files:
        named = attachment_ids([*history.before, *question])
        if named:
            history.has_files = True
            files = attachments_of(turn.conversation_id, named)
            parts.append(partial(_inline, history, files))
    return history


def _inline(history: History, files: Collection[Attachment]) -> None:
    """Put the contents of attachments into the items that name them, as providers take
    them."""
    contents = load_contents(files)
    history.before = inline_files(history.before, contents)
    history.question = inline_files(history.question, contents)
    history.prefix = None  # of the items as they were


def _find_ended_output(outputs: Sequence[Row]) -> int | None:
    """The number of items up to the end of the last finished provider call, for rows of
    an older version, which do not store it.

    There the items of a provider call were written when it ended, together with its
    tool calls; other items mark no end.
    """
    calls = [
        n for n, row in enumerate(outputs) if row.payload["type"] == "function_call"
    ]
    return calls[-1] + 1 if calls else None


def _as_opened(claim: Claim, opened: OpenedTurn | None) -> tuple[Turn, Route] | None:
    """The opened turn and the resolved route to its model. None if they must be read
    from the database. A route of the gateway is at most some seconds old."""
    if opened is None or not opened.items or claim.epoch != 1:
        return None
    if opened.route is None:
        return None
    opened.turn.epoch = claim.epoch
    return opened.turn, opened.route


def _load_tools(
    turn: Turn, setup: Setup, *, is_alone: bool
) -> tuple[Mapping[str, RuntimeTool], TurnExtras]:
    """The tools that the turn may run, and the extras of its conversation; a turn that
    is alone in it has none. Where no call may wait for a person, those that need
    approval are refused."""
    tools = filter_tools(setup.available, setup.template.tool_choice)
    if "gateway" in turn.options and not turn.may_wait_for_people:
        tools = {name: without_approval(tool) for name, tool in tools.items()}
    return tools, NO_TURN_EXTRAS if is_alone else load_turn_extras(turn, tools)


def _task(
    turn: Turn,
    setup: Setup,
    decisions: Decisions,
    turn_context: TurnContext,
    progress: Progress,
    prepare: Callable[..., Request],
) -> Task:
    """The task, with what an earlier run and people's decisions have left."""
    left = (
        {**earlier_outcomes(turn, decisions.tools), **decisions.outcomes}
        if turn.epoch > 1
        else {}
    )
    committed, pending = progress["committed"], progress["pending"]
    return Task(
        prepare=partial(prepare, context=turn_context.blocks),
        stream=stream_of(
            turn.conversation_id,
            setup.routes,
            setup.options,
            setup.meter,
            cache_scope(turn, setup.options, setup.available, turn_context),
            is_gateway="gateway" in turn.options,
        ),
        answer_size=AnswerSize(settings.MAX_ANSWER_SIZE, committed),
        background_response=pending.response if pending else None,
        tools=decisions.tools,
        client_tools=client_tools(turn, setup.available, setup.template.tool_choice),
        parallel=setup.options.get("parallel_tool_calls") is not False,
        needs_approval=decisions.needs_approval,
        has_untrusted_input=decisions.has_untrusted_input,
        arguments=decisions.arguments,
        context=Context(
            user_id=turn.actor_id,
            sign_ins_of=turn.actor_id,
            conversation_id=turn.conversation_id,
            turn_id=turn.pk,
            may_read_chats=turn.may_read_chats,
            access_token_id=turn.access_token_id,
        ),
        max_steps=settings.TURN_MAX_STEPS,
        max_tool_calls=(
            preset_limits.max_tool_calls(setup.preset, turn.options)
            if setup.preset
            else turn.options.get("max_tool_calls")
        ),
        outcomes=left,
        partial=turn.partial or (),
    )
