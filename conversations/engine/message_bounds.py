"""What one message may cause: its bounds, its stop, and going on past a bound.

A message's own turn is the root of all turns that results in the background open
because of it. The root's row says whether such results may open more; rows of turns and
of provider calls are counted, so the bounds hold whatever process runs them.

Locks on PostgreSQL are taken in this order: unfinished turns, the root, the
conversation. Rows of several turns or calls are never held while another is waited for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet, Sum

from conversations.models import ToolCall, Turn
from conversations.tokens import AccessToken
from llm.models import ModelCall


class NothingToContinue(Exception):
    """Nothing of this message waits for a person's leave to go on."""


def max_cost() -> Decimal | None:
    """USD that one message may cost; None where there is no bound."""
    bound = settings.MAX_COST_PER_MESSAGE
    return Decimal(str(bound)) if bound else None


def cost_left(turn: Turn) -> Decimal | None:
    """USD that the message of `turn` may still cost; None where there is no bound."""
    bound = max_cost()
    if bound is None or (turn.epoch == 1 and turn.caused_by_id is None):
        return bound  # nothing was spent
    return bound - _cost(turn.caused_by or turn)


def may_cause_another(root_id: str) -> bool:
    """Whether a result may open one more turn for the message; halts it where not.

    In the caller's transaction, at whose end the answer is still true.
    """
    root = Turn.objects.select_for_update(no_key=True).get(pk=root_id)
    if not root.halted_by:
        root.halted_by = _bound_reached(root)
        root.save(update_fields=["halted_by"])
    return not root.halted_by


def halt_for_cost(turn_id: str) -> None:
    """The turn has ended because its message has cost what it may."""
    root = Q(pk=turn_id, caused_by=None) | Q(caused=turn_id)
    roots = list(Turn.objects.filter(root).values_list("pk", flat=True))
    # A person may have stopped the message meanwhile, which says more.
    running = Turn.objects.filter(pk__in=roots, halted_by="")
    running.update(halted_by=Turn.HaltedBy.MAX_COST)


def _bound_reached(root: Turn) -> str:
    if _counted(root).count() >= settings.MAX_TURNS_PER_MESSAGE:
        return Turn.HaltedBy.MAX_TURNS
    bound = max_cost()
    if bound is not None and _cost(root) >= bound:
        return Turn.HaltedBy.MAX_COST
    return ""


def _counted(root: Turn) -> QuerySet[Turn]:
    """The message's turns since a person last let it go on."""
    turns = Turn.objects.of_message(root.pk)
    since = root.continued_at
    return turns if since is None else turns.filter(created_at__gte=since)


def _cost(root: Turn) -> Decimal:
    """USD, as far as prices are known."""
    turns = list(_counted(root).values_list("pk", flat=True))
    calls = ModelCall.objects.filter(turn_id__in=turns)
    return calls.aggregate(cost=Sum("cost"))["cost"] or Decimal(0)


def halt(turn_id: str) -> list[str]:
    """Let results open no more turns for the message of this turn, since a person has
    stopped it. Its turns that are not over.

    Outside of a transaction each statement sees what others have committed before it: a
    turn that a result opens at this moment is either seen here, or not opened.
    """
    if (root_id := _root_of(turn_id)) is None:
        return []
    Turn.objects.filter(pk=root_id).update(halted_by=Turn.HaltedBy.PERSON)
    unfinished = Turn.objects.of_message(root_id).unfinished()
    return list(unfinished.values_list("pk", flat=True))


def cancel_calls_of(turn_id: str) -> None:
    """Ask for the end of all calls in the background that the message has caused. One
    that a run begins at this moment ends when it is taken up; see `is_halted`."""
    if root_id := _root_of(turn_id):
        cancel_calls(ToolCall.objects.of_message(root_id))


def is_halted(turn: Turn) -> bool:
    """Whether a person has stopped the message of this turn."""
    return (turn.caused_by or turn).halted_by == Turn.HaltedBy.PERSON


def _root_of(turn_id: str) -> str | None:
    turn = Turn.objects.filter(pk=turn_id).only("caused_by").first()
    return turn.root_id if turn else None


def cancel_calls(calls: QuerySet[ToolCall]) -> None:
    """Ask for the end of those of them that go on in the background, one by one."""
    running = ToolCall.objects.in_background()
    going_on = calls.filter(blocking=False, state=ToolCall.State.EXECUTING)
    for pk in list(going_on.values_list("pk", flat=True)):
        running.filter(pk=pk, cancel_requested=False).update(cancel_requested=True)


# Going on


@dataclass(frozen=True, slots=True)
class Halt:
    """A message that has reached a bound, and has something to go on with."""

    root: Turn
    results: list[str]  # names of tools whose results the model was not told

    @property
    def reason(self) -> str:
        return self.root.halted_by


def halts(calls: Iterable[ToolCall], last: Turn | None) -> list[Halt]:
    """Where a person is asked whether to go on, oldest first: of calls as
    `beside_turns` finds them, and the conversation's last turn."""
    found: dict[str, Halt] = {}
    if last is not None and (root := _cut_by_cost(last)):
        found[root.pk] = Halt(root, [])
    for call in calls:
        if call.state in ToolCall.OVER:
            root = call.turn.caused_by or call.turn
            found.setdefault(root.pk, Halt(root, [])).results.append(call.name)
    return sorted(found.values(), key=lambda halt: halt.root.created_at)


def _cut_by_cost(last: Turn) -> Turn | None:
    """The turn of the message whose last turn was not asked on."""
    if last.incomplete_reason != Turn.HaltedBy.MAX_COST:
        return None
    root = last.caused_by or last
    return root if root.halted_by in Turn.BOUNDS else None


def _is_at_bound(root: Turn) -> bool:
    """Whether there is something to go on with."""
    if root.halted_by not in Turn.BOUNDS:
        return False
    turns = Turn.objects.filter(conversation_id=root.conversation_id)
    last = turns.order_by("-created_at", "-id").first()
    calls = ToolCall.objects.of_message(root.pk).beside_turns()
    return root.pk in {halt.root.pk for halt in halts(calls, last)}


@transaction.atomic
def continue_message(turn_id: str, token: AccessToken | None = None) -> Turn:
    """A person lets the message of this turn cause as much again: the turn that goes
    on, under the limits of `token` where a program asks.

    Raises NothingToContinue.
    """
    turn = Turn.objects.only("caused_by").get(pk=turn_id)
    rows = Turn.objects.select_for_update(no_key=True, of=["self"])
    root = rows.select_related("conversation").get(pk=turn.root_id)
    if not _is_at_bound(root):
        raise NothingToContinue
    opened = open_turn(root, token)
    root.halted_by, root.continued_at = "", opened.created_at
    root.save(update_fields=["halted_by", "continued_at"])
    return opened


def open_turn(root: Turn, token: AccessToken | None = None) -> Turn:
    """A turn that nobody asks anything in, for what the message has brought about. As
    the last of its turns was asked, less the tool that it had to call."""
    turns = Turn.objects.of_message(root.pk).order_by("-created_at", "-id")
    last = turns.select_related("language_model", "access_token")[0]
    return root.conversation.open_turn(
        [],
        language_model=last.language_model,
        options={k: v for k, v in last.options.items() if k != "tool_choice"},
        access_token=token or last.access_token,
        caused_by=root.pk,
    )
