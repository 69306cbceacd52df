"""The rows of calls that the model does not wait for.

Such a call is claimed, leased and fenced by an epoch of its own, so it outlives its
turn and the process. Its result wakes the model once: in the turn that is open in its
conversation, or else in a new one. Synchronous; each function is one transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import orjson
from django.conf import settings
from django.core import signing
from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Greatest
from django.utils import timezone

from conversations.engine import message_bounds, sql
from conversations.engine.durable import sync_on_commit
from conversations.engine.sql import LAPSED, Moment
from conversations.models import Conversation, Item, Question, ToolCall, Turn
from llm.wire.items import Item as ItemPayload
from llm.wire.items import message
from tools.execute import Outcome
from tools.models import Tool as ToolRow
from tools.output import Output
from tools.registry import Accepted, Context, Tool

#: As often a call is taken up, and the process ends while it runs: fewer times than a
#: turn, so that turns beside it outlast it.
MAX_CLAIMS = 3
TOLD = "parley:call_id"  # on a message that tells the model a result
_UNKNOWN = (
    "Error: this call was interrupted and may or may not have taken effect. It is not"
    " repeated."
)


@dataclass(frozen=True, slots=True)
class CallClaim:
    """The call is ours until the lease runs out."""

    pk: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallWork:
    """A call in the background, ready to go on."""

    call: ItemPayload
    tools: Mapping[str, Tool]
    context: Context
    conversation_id: str
    seconds_left: float
    token: str | None  # of work that goes on elsewhere, to be asked for
    outcome: Outcome | None = None  # where there is nothing left to do


@dataclass(frozen=True, slots=True)
class Concluded:
    """A result is on record: who is to be told."""

    conversation_id: str
    new_turn: str | None = None  # opened for it; else an open one tells it


_SALT = "parley.callback"


def callback_url(pk: int) -> str:
    """Where the call's result may be posted; "" where our own address is not known."""
    if not settings.PUBLIC_URL:
        return ""
    token = signing.dumps(pk, salt=_SALT)
    return f"{settings.PUBLIC_URL.rstrip('/')}/api/callbacks/{token}/"


def call_of(token: str) -> int:
    """Raises signing.BadSignature."""
    pk: int = signing.loads(token, salt=_SALT)
    return pk


def due(limit: int) -> list[int]:
    """Calls that somebody should take up."""
    now = timezone.now()
    unattended = Q(lease_until=None) | Q(lease_until__lt=Moment().expression)
    to_do = (
        Q(accepted_at=None)
        | Q(poll_at__lt=now)
        | Q(deadline_at__lt=now)
        | Q(cancel_requested=True)
    )
    calls = ToolCall.objects.in_background().filter(unattended).filter(to_do)
    return list(calls.order_by("pk").values_list("pk", flat=True)[:limit])


def _lease() -> Any:
    return Moment(settings.TURN_LEASE).expression


@transaction.atomic
def claim(pk: int) -> CallClaim | None:
    free = Q(lease_until=None) | Q(lease_until__lt=Moment().expression)
    taken = ToolCall.objects.in_background().filter(free, pk=pk)
    if not taken.update(
        epoch=F("epoch") + 1, claims=F("claims") + 1, lease_until=_lease()
    ):
        return None
    return CallClaim(pk, ToolCall.objects.values_list("epoch", flat=True).get(pk=pk))


def load(mine: CallClaim) -> CallWork:
    rows = ToolCall.objects.select_related(
        "turn__caused_by", "turn__conversation__owner"
    )
    row = rows.get(pk=mine.pk)
    turn, conversation = row.turn, row.turn.conversation
    tools = ToolRow.objects.available(conversation.owner)
    tool = tools.get(row.name)
    if row.deadline_at is None:
        row.deadline_at = _deadline(row, tool)
        ToolCall.objects.filter(pk=row.pk).update(deadline_at=row.deadline_at)
    return CallWork(
        call=_call(row),
        tools=tools,
        context=Context(
            user_id=conversation.owner_id,
            conversation_id=conversation.pk,
            turn_id=turn.pk,
            callback_url=callback_url(row.pk),
            may_read_chats=turn.may_read_chats,
        ),
        conversation_id=conversation.pk,
        seconds_left=(row.deadline_at - timezone.now()).total_seconds(),
        token=row.token if row.accepted_at else None,
        outcome=_hopeless(row, mine, tool),
    )


def _deadline(row: ToolCall, tool: Tool | None) -> Any:
    seconds = settings.BACKGROUND_TOOL_TIMEOUT
    if tool is not None and tool.timeout is not None:
        seconds = tool.timeout
    return (row.started_at or timezone.now()) + timedelta(seconds=seconds)


def _hopeless(row: ToolCall, mine: CallClaim, tool: Tool | None) -> Outcome | None:
    if row.cancel_requested or message_bounds.is_halted(row.turn):
        return _outcome(row, "cancelled", "Error: a person cancelled this call.")
    if row.deadline_at and row.deadline_at <= timezone.now():
        return _outcome(row, "timed_out", "Error: no result came in time.")
    if row.claims > MAX_CLAIMS:
        return _outcome(row, "unknown", _UNKNOWN)
    if tool is None:
        text = f"Error: the tool {row.name!r} is not available any more."
        return _outcome(row, "failed", text)
    is_repeated = mine.epoch > 1 and row.accepted_at is None
    if is_repeated and tool.replay not in ("safe", "idempotent"):
        return _outcome(row, "unknown", _UNKNOWN)
    return None


def _outcome(row: ToolCall, state: str, text: str) -> Outcome:
    error = text.removeprefix("Error: ")
    return Outcome(row.call_id, state, text, error[:1].upper() + error[1:], 0.0)


def _call(row: ToolCall) -> ItemPayload:
    """The model's call, with the arguments a person may have put into it."""
    items = Item.objects.filter(turn_id=row.turn_id, type="function_call")
    payloads = items.values_list("payload", flat=True)
    call: ItemPayload = next(p for p in payloads if p["call_id"] == row.call_id)
    approved = row.questions.filter(state=Question.State.ACCEPTED, kind="approval")
    for question in approved:
        if question.is_edited:
            return {**call, "arguments": orjson.dumps(question.answer).decode()}
    return call


def _mine(mine: CallClaim) -> QuerySet[ToolCall]:
    calls = ToolCall.objects.in_background()
    return calls.filter(pk=mine.pk, epoch=mine.epoch)


@transaction.atomic
def renew(
    beats: Mapping[CallClaim, str],
) -> tuple[list[CallClaim], list[CallClaim]]:
    """Keep our leases and the latest progress. The calls that are not ours any more,
    and those to be cancelled."""
    lost = []
    for mine, progress in beats.items():
        if not _mine(mine).update(lease_until=_lease(), progress=progress):
            lost.append(mine)
    pks = ToolCall.objects.filter(
        pk__in=[mine.pk for mine in beats], cancel_requested=True
    ).values_list("pk", flat=True)
    stopped = set(pks)
    return lost, [mine for mine in beats if mine.pk in stopped]


def accept(calls: QuerySet[ToolCall], accepted: Accepted) -> None:
    """The work goes on elsewhere, and nobody here is busy with it."""
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
def goes_on(mine: CallClaim, accepted: Accepted) -> None:
    accept(_mine(mine), accepted)


@transaction.atomic
def release(claims: Sequence[CallClaim]) -> None:
    """Let another process go on at once."""
    for mine in claims:
        # A deploy is no crash: what is handed over in order does not count.
        _mine(mine).update(
            lease_until=LAPSED.expression, claims=Greatest(F("claims") - 1, 0)
        )


def release_all() -> int:
    """At the start of the only process: whoever ran these calls is gone."""
    running = ToolCall.objects.in_background().exclude(lease_until=None)
    return running.update(lease_until=LAPSED.expression)


def conclude(mine: CallClaim, outcome: Outcome) -> Concluded | None:
    """None where the call is over already, or somebody else's."""
    return _conclude(_mine(mine), mine.pk, outcome)


class TooLate(Exception):
    """The call is over; what came now is not used."""


def deliver(pk: int, output: Output, *, error: str = "") -> Concluded:
    """A result that comes from outside. Raises TooLate, and DoesNotExist."""
    call_id = ToolCall.objects.values_list("call_id", flat=True).get(pk=pk)
    state = "failed" if error else "completed"
    outcome = Outcome(call_id, state, output, error, 0.0)
    calls = ToolCall.objects.in_background().filter(pk=pk)
    if (concluded := _conclude(calls, pk, outcome)) is None:
        ToolCall.objects.filter(pk=pk, late_at=None).update(late_at=timezone.now())
        raise TooLate
    return concluded


@transaction.atomic
def _conclude(calls: QuerySet[ToolCall], pk: int, outcome: Outcome) -> Concluded | None:
    conversation = Conversation.objects.get(turns__tool_calls=pk)
    late = None
    if conversation.deleted_at and outcome.state in ("completed", "failed"):
        text = "The conversation was deleted before the result came."
        outcome = Outcome(outcome.call_id, "cancelled", f"Error: {text}", text, 0.0)
        late = timezone.now()
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
    if outcome.whole is not None:
        from conversations.engine.rows import keep_whole

        keep_whole(conversation.pk, outcome)
    return Concluded(conversation.pk, wake(conversation.pk))


def wake(conversation_id: str) -> str | None:
    """A turn in which the model is told what has come, where none is open and the
    message that caused it may cause one more.

    The id of the new turn. In the caller's transaction.
    """
    # What a person gave up can wait until the person says something.
    if sql.first(sql.WAKES, [conversation_id]) is None:
        return None
    results = ToolCall.objects.waking().filter(turn__conversation_id=conversation_id)
    if not results.exists():
        return None
    open_turns = Turn.objects.unfinished().filter(conversation_id=conversation_id)
    # One that ends at this moment is waited for, and then is none. Turns are locked
    # before conversations, as everywhere.
    if list(open_turns.select_for_update(no_key=True).values_list("pk", flat=True)):
        return None
    root_id = next(filter(message_bounds.may_cause_another, _roots(results)), None)
    if root_id is None:
        return None
    Conversation.objects.select_for_update(no_key=True).only("pk").get(
        pk=conversation_id
    )
    if open_turns.exists():
        return None
    root = Turn.objects.select_related("conversation").get(pk=root_id)
    return message_bounds.open_turn(root).pk


def _roots(results: QuerySet[ToolCall]) -> list[str]:
    """The turns of the messages that caused them, of the newest result first."""
    turns = results.order_by("-turn__created_at", "-turn").values_list(
        "turn", "turn__caused_by"
    )
    return list(dict.fromkeys(root or turn for turn, root in turns))


def unheard(limit: int) -> list[str]:
    """Conversations with results that no turn is there to tell: a process died between
    the two."""
    results = ToolCall.objects.waking()
    ids = results.values_list("turn__conversation_id", flat=True).distinct()
    return list(ids[:limit])


@transaction.atomic
def wake_unheard(limit: int) -> list[tuple[str, str]]:
    """The turns opened for them, each with its conversation."""
    turns = []
    for conversation_id in unheard(limit):
        if turn_id := wake(conversation_id):
            turns.append((turn_id, conversation_id))
    return turns


def has_news(conversation_id: str) -> bool:
    return sql.first(sql.HAS_NEWS, [conversation_id]) is not None


def arrived(conversation_id: str) -> list[tuple[int, ItemPayload]]:
    """Results the model has not been told, as messages, in the order of their end."""
    rows = ToolCall.objects.undelivered().filter(turn__conversation_id=conversation_id)
    return [(row.pk, _told(row)) for row in rows.order_by("ended_at", "pk")]


def _told(row: ToolCall) -> ItemPayload:
    heading = f"Result of the call {row.call_id} of {row.name} in the background"
    output: Output = row.output if row.output is not None else ""
    told = message("user", f"{heading}:")
    if isinstance(output, str):
        told["content"][0]["text"] += f"\n\n{output}"
    else:
        told["content"] += output
    return {**told, TOLD: row.call_id}
