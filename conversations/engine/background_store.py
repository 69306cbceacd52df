"""Database reads and writes for calls whose results the model does not wait for.

Such a call has its own claim, lease and epoch, so it outlives its turn and the process.
Its result starts the model once: in a turn that is open in its branch of the
conversation, or in a new one. Synchronous; each function is one transaction.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import orjson
from django.conf import settings
from django.core import signing
from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Greatest, Least
from django.utils import timezone

from conversations.access.participation import check_author
from conversations.engine import message_consequences
from conversations.engine.database import sql
from conversations.engine.database.sql import LAPSED, Moment
from conversations.engine.loading.tool_rate_limit import limit_calls
from conversations.engine.runs.full_outputs import send_to_bucket
from conversations.models import (
    AuthorGone,
    Conversation,
    Item,
    Question,
    ToolCall,
    Tree,
    Turn,
)
from conversations.turns.attachments import discard, store_texts
from conversations.turns.file_storage import are_local
from llm.db.durable_commit import sync_on_commit
from llm.pricing.caller import Caller
from llm.wire.items import Item as ItemPayload
from tools.execute import CallOutcome
from tools.execution.output import render_output
from tools.execution.without_approval import without_approval
from tools.models import Tool as ToolRow
from tools.registry import Accepted, Context, RuntimeTool
from tools.runtime_tool import REPEATABLE

#: A call is claimed at most this many times. The number is lower than for turns, so
#: that turns running beside a call that crashes the process outlast it.
MAX_CLAIMS = 3
MOST_CLAIMS = 1000  # counted; the column of PostgreSQL has room for 32,767
MAX_BUSY = 20  # conversations with open turns that one sweep looks through
_UNKNOWN = (
    "Error: this call was interrupted and may or may not have taken effect. It is not"
    " repeated."
)


@dataclass(frozen=True, slots=True)
class CallClaim:
    """This process may run the call until the lease expires."""

    pk: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallWork:
    """A background call with all that is needed to run it."""

    call: ItemPayload
    tools: Mapping[str, RuntimeTool]
    context: Context
    caller: Caller
    conversation_id: str
    seconds_left: float
    token: str | None  # the id of work that goes on elsewhere, for polling
    outcome: CallOutcome | None = None  # set if the call must not run any more


@dataclass(frozen=True, slots=True)
class ConcludedCall:
    """A call whose result is stored, and the turn that delivers it."""

    conversation_id: str
    new_turn: str | None = None  # opened for it; None: an open turn delivers it


_SALT = "parley.callback"


def callback_url(pk: int) -> str:
    """The URL to which the call's result may be posted; "" if PUBLIC_URL is not set."""
    if not settings.PUBLIC_URL:
        return ""
    token = signing.dumps(pk, salt=_SALT)
    return f"{settings.PUBLIC_URL.rstrip('/')}/api/callbacks/{token}/"


def call_of(token: str) -> int:
    """Raises signing.BadSignature."""
    pk: int = signing.loads(token, salt=_SALT)
    return pk


def find_due(limit: int, *, only_brief: bool = False) -> list[int]:
    """Ids of calls that a process should take up, the oldest first; `only_brief` for
    those that run no tool for long: they end, or poll for a result."""
    now = timezone.now()
    unclaimed = Q(lease_until=None) | Q(lease_until__lt=Moment().expression)
    to_do = (
        Q(accepted_at=None)
        | Q(poll_at__lt=now)
        | Q(deadline_at__lt=now)
        | Q(cancel_requested=True)
    )
    calls = ToolCall.objects.in_background().filter(unclaimed).filter(to_do)
    if only_brief:
        is_over = Q(cancel_requested=True) | Q(deadline_at__lt=now)
        calls = calls.filter(is_over | Q(accepted_at__isnull=False))
    return list(calls.order_by("pk").values_list("pk", flat=True)[:limit])


def _lease() -> Any:
    return Moment(settings.TURN_LEASE).expression


@transaction.atomic
def claim(pk: int) -> CallClaim | None:
    free = Q(lease_until=None) | Q(lease_until__lt=Moment().expression)
    claimable = ToolCall.objects.in_background().filter(free, pk=pk)
    claims = Least(F("claims") + 1, MOST_CLAIMS)
    if not claimable.update(epoch=F("epoch") + 1, claims=claims, lease_until=_lease()):
        return None
    return CallClaim(pk, ToolCall.objects.values_list("epoch", flat=True).get(pk=pk))


def load(call_claim: CallClaim) -> CallWork:
    rows = ToolCall.objects.select_related(
        "turn__caused_by",
        "turn__conversation__owner",
        "turn__author",
        "turn__access_token",
    )
    row = rows.get(pk=call_claim.pk)
    turn, conversation = row.turn, row.turn.conversation
    try:
        check_author(turn)
    except AuthorGone:
        return _work_of_nobody(row)
    tools = ToolRow.objects.available(turn.actor)
    if (token := turn.access_token) is not None and token.allowed_tools:
        tools = {name: each for name, each in tools.items() if token.may_use_tool(name)}
    tool = tools.get(row.name)
    if tool and not turn.may_wait_for_people:
        # A row is no proof of an approval: staff may demand one since it was written.
        tool = without_approval(tool)
    # Neither a repetition nor a poll for the result.
    is_first = row.claims <= 1 and row.accepted_at is None
    if tool and tool.calls_per_minute and is_first:
        tool = limit_calls(tool, turn.actor)
    if tool:
        tools = {**tools, row.name: tool}
    if row.deadline_at is None:
        row.deadline_at = _deadline(row, tool)
        ToolCall.objects.filter(pk=row.pk).update(deadline_at=row.deadline_at)
    return CallWork(
        call=_call(row),
        tools=tools,
        context=Context(
            user_id=turn.actor_id,
            sign_ins_of=turn.actor_id,
            conversation_id=conversation.pk,
            turn_id=turn.pk,
            callback_url=callback_url(row.pk),
            may_read_chats=turn.may_read_chats,
            access_token_id=turn.access_token_id,
        ),
        caller=turn.caller,
        conversation_id=conversation.pk,
        seconds_left=(row.deadline_at - timezone.now()).total_seconds(),
        token=row.token if row.accepted_at else None,
        outcome=_final_outcome(row, call_claim, tool),
    )


def _work_of_nobody(row: ToolCall) -> CallWork:
    """The end of a call whose author may not write any more. It names no user: nobody
    else's rights, nor the former ones, are used."""
    text = "Error: the person who wrote the message may no longer use this chat."
    return CallWork(
        call=_call(row),
        tools={},
        context=Context(conversation_id=row.turn.conversation_id, turn_id=row.turn_id),
        caller=Caller(),
        conversation_id=row.turn.conversation_id,
        seconds_left=0,
        token=None,
        outcome=_outcome(row, "cancelled", text),
    )


def _deadline(row: ToolCall, tool: RuntimeTool | None) -> Any:
    seconds = settings.BACKGROUND_TOOL_TIMEOUT
    if tool is not None and tool.timeout is not None:
        seconds = tool.timeout
    # One that was accepted has run already; others may have waited for their turn.
    began = row.started_at if row.accepted_at else None
    return (began or timezone.now()) + timedelta(seconds=seconds)


def _final_outcome(
    row: ToolCall, call_claim: CallClaim, tool: RuntimeTool | None
) -> CallOutcome | None:
    if row.cancel_requested or message_consequences.is_halted(row.turn):
        return _outcome(row, "cancelled", "Error: a person cancelled this call.")
    if row.deadline_at and row.deadline_at <= timezone.now():
        return _outcome(row, "timed_out", "Error: no result came in time.")
    if row.claims > MAX_CLAIMS:
        return _outcome(row, "unknown", _UNKNOWN)
    if tool is None:
        text = f"Error: the tool {row.name!r} is not available any more."
        return _outcome(row, "failed", text)
    is_repeated = call_claim.epoch > 1 and row.accepted_at is None
    if is_repeated and tool.replay not in REPEATABLE:
        return _outcome(row, "unknown", _UNKNOWN)
    return None


def _outcome(row: ToolCall, state: str, text: str) -> CallOutcome:
    error = text.removeprefix("Error: ")
    return CallOutcome(row.call_id, state, text, error[:1].upper() + error[1:], 0.0)


def _call(row: ToolCall) -> ItemPayload:
    """The model's call, with a person's edited arguments if there are any."""
    items = Item.objects.filter(turn_id=row.turn_id, type="function_call")
    payloads = items.values_list("payload", flat=True)
    call: ItemPayload = next(p for p in payloads if p["call_id"] == row.call_id)
    approved = row.questions.filter(state=Question.State.ACCEPTED, kind="approval")
    for question in approved:
        if question.is_edited:
            return {**call, "arguments": orjson.dumps(question.answer).decode()}
    return call


def _call_query(call_claim: CallClaim) -> QuerySet[ToolCall]:
    calls = ToolCall.objects.in_background()
    return calls.filter(pk=call_claim.pk, epoch=call_claim.epoch)


@transaction.atomic
def renew(
    beats: Mapping[CallClaim, str],
) -> tuple[list[CallClaim], list[CallClaim]]:
    """Renew our leases and save the latest progress. Returns the calls that another
    process has claimed, and those to be cancelled.

    A call whose row is locked, as while its result is stored, is left to the next beat:
    the leases of all turns would wait for that lock.
    """
    calls = ToolCall.objects.filter(pk__in=[call_claim.pk for call_claim in beats])
    epochs = dict(calls.in_background().values_list("pk", "epoch"))
    lost = [each for each in beats if epochs.get(each.pk) != each.epoch]
    free = calls.select_for_update(skip_locked=True, no_key=True)
    unlocked = set(free.values_list("pk", flat=True))
    for call_claim, progress in beats.items():
        if call_claim.pk in unlocked:
            renewed = {"lease_until": _lease(), "progress": progress}
            _call_query(call_claim).update(**renewed)
    cancelled = calls.filter(cancel_requested=True)
    stopped = set(cancelled.values_list("pk", flat=True))
    return lost, [call_claim for call_claim in beats if call_claim.pk in stopped]


def accept(calls: QuerySet[ToolCall], accepted: Accepted) -> None:
    """Mark the work as going on elsewhere; no process here runs it."""
    now = timezone.now()
    after = accepted.poll_after
    calls.filter(state=ToolCall.State.EXECUTING).update(
        blocking=False,
        accepted_at=now,
        lease_until=None,
        claims=0,
        token=accepted.token,
        poll_after=after,
        poll_at=None if after is None else now + timedelta(seconds=after),
    )


@transaction.atomic
def record_accepted(call_claim: CallClaim, accepted: Accepted) -> None:
    accept(_call_query(call_claim), accepted)


@transaction.atomic
def release(claims: Sequence[CallClaim]) -> None:
    """Let another process continue the calls at once."""
    for call_claim in claims:
        # A release during a deploy is not a crash, so it does not count as a claim.
        _call_query(call_claim).update(
            lease_until=LAPSED.expression, claims=Greatest(F("claims") - 1, 0)
        )


def release_all() -> int:
    """Release all calls. Called at the start of the only process: the process that ran
    them is gone."""
    running = ToolCall.objects.in_background().exclude(lease_until=None)
    return running.update(lease_until=LAPSED.expression)


def conclude(call_claim: CallClaim, outcome: CallOutcome) -> ConcludedCall | None:
    """Store the result. None if the call is over or another process has claimed it."""
    return _conclude(_call_query(call_claim), call_claim.pk, outcome)


class TooLate(Exception):
    """The call has ended; its late result is not used."""


def deliver(pk: int, value: Any, *, error: str = "") -> ConcludedCall:
    """Store a result that was posted from outside, or the error instead of it.

    Raises TooLate, UnusableOutput, and DoesNotExist."""
    result = render_output(f"Error: {error}" if error else value)
    call_id = ToolCall.objects.values_list("call_id", flat=True).get(pk=pk)
    state = "failed" if error else "completed"
    outcome = CallOutcome(
        call_id, state, result.output, error, 0.0, full_text=result.full_text
    )
    calls = ToolCall.objects.in_background().filter(pk=pk)
    if (concluded := _conclude(calls, pk, outcome)) is None:
        ToolCall.objects.filter(pk=pk, late_at=None).update(late_at=timezone.now())
        raise TooLate
    send_to_bucket(concluded.conversation_id, [outcome])
    return concluded


def _conclude(
    calls: QuerySet[ToolCall], pk: int, outcome: CallOutcome
) -> ConcludedCall | None:
    conversation = Conversation.objects.get(turns__tool_calls=pk)
    texts = store_texts(conversation.pk, [outcome]) if are_local() else []
    with ExitStack() as rollback:
        rollback.callback(discard, texts)
        with transaction.atomic():
            concluded = _write_outcome(calls, conversation, outcome)
            if concluded is None:
                return None
            for text in texts:
                text.save(force_insert=True)
        rollback.pop_all()
    return concluded


def _write_outcome(
    calls: QuerySet[ToolCall], conversation: Conversation, outcome: CallOutcome
) -> ConcludedCall | None:
    late = None
    if conversation.deleted_at and outcome.state in ("completed", "failed"):
        text = "The conversation was deleted before the result arrived."
        outcome = CallOutcome(outcome.call_id, "cancelled", f"Error: {text}", text, 0.0)
        late = timezone.now()
    # Before the call, whose row would else be locked while this waits for a turn.
    _lock_open_turns(conversation.pk)
    changed = calls.update(
        late_at=late,
        state=outcome.state,
        output=outcome.output,
        error=outcome.error[:500],
        ended_at=timezone.now(),
        lease_until=None,
        poll_at=None,
    )
    if not changed:
        return None
    sync_on_commit()
    return ConcludedCall(conversation.pk, open_turn_for_results(conversation.pk))


def open_turn_for_results(
    conversation_id: str, *, is_ending: bool = False
) -> str | None:
    """Open a turn that delivers new results to the model, if none is open in the
    branch of their calls and the message that caused them may cause one more.

    Returns the id of the new turn. Runs in the caller's transaction; `is_ending` if
    that ends a turn, whose row it has locked: then no other turn is waited for, and the
    sweep finds what two turns that end at once leave to each other.
    """
    # Results of cancelled calls can wait until the person's next message.
    if sql.first(sql.HAS_WAKING_RESULTS, [conversation_id]) is None:
        return None
    results = ToolCall.objects.opening_turns().filter(
        turn__conversation_id=conversation_id
    )
    if not results.exists():
        return None
    # A turn that is ending at this moment holds its row's lock, so this waits for it
    # and then finds no open turn. Turns are locked before conversations, as everywhere.
    if not is_ending:
        _lock_open_turns(conversation_id)
    causes = (
        (root, below)
        for root, below in _find_causes(conversation_id, results)
        if message_consequences.may_cause_another(root)
    )
    if (cause := next(causes, None)) is None:
        return None
    root_id, below = cause
    Conversation.objects.select_for_update(no_key=True).only("pk").get(
        pk=conversation_id
    )
    if cause not in _find_causes(conversation_id, results):
        return None
    root = Turn.objects.select_related("conversation").get(pk=root_id)
    return message_consequences.open_turn(root, below=below).pk


def _lock_open_turns(conversation_id: str) -> None:
    turns = Turn.objects.not_finished().filter(conversation_id=conversation_id)
    list(turns.select_for_update(no_key=True).values_list("pk", flat=True))


def _find_causes(
    conversation_id: str, results: QuerySet[ToolCall]
) -> list[tuple[str, str]]:
    """The root turns of the messages that caused the results, newest result first, each
    with the turn of its newest call. Without results that an open turn can deliver: one
    that follows the turn of the call."""
    calls = results.order_by("-turn__created_at", "-turn")
    turns = calls.values_list("turn", "turn__caused_by")
    tree = Tree.of(conversation_id)
    unfinished = Turn.objects.not_finished().filter(conversation_id=conversation_id)
    open_turns = set(unfinished.values_list("pk", flat=True))
    found: dict[str, str] = {}
    for turn, root in turns:
        if open_turns.isdisjoint(tree.descendants(turn)):
            found.setdefault(root or turn, turn)
    return list(found.items())


def find_conversations_to_wake(limit: int) -> list[str]:
    """Conversations with undelivered results and no turn to deliver them: a process
    died after it stored a result."""
    results = ToolCall.objects.opening_turns()
    ids = results.values_list("turn__conversation_id", flat=True).distinct()
    if not (found := list(ids)):
        return []
    unfinished = Turn.objects.not_finished().filter(conversation_id__in=found)
    busy = set(unfinished.values_list("conversation_id", flat=True))
    idle = [each for each in found if each not in busy]
    if len(idle) >= limit:
        return idle[:limit]
    # Most wait for a turn of their branch, maybe for days: each sweep sees others.
    sample = random.sample(sorted(busy), min(len(busy), MAX_BUSY))
    return [*idle, *filter(_has_causes, sample)][:limit]


def _has_causes(conversation_id: str) -> bool:
    results = ToolCall.objects.opening_turns().filter(
        turn__conversation_id=conversation_id
    )
    return bool(_find_causes(conversation_id, results))


@transaction.atomic
def wake(conversation_id: str) -> str | None:
    """Open a turn for the results of such a conversation. Returns its id."""
    return open_turn_for_results(conversation_id)
