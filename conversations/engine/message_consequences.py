"""What one message may cause: the limits of its turns and its cost, the stop of all of
it, and how a person continues past a limit.

The turn of the message is the root of all turns that background results open because of
it. The root's row says whether results may open more turns. Turns and provider calls
are counted from their rows, so the limits hold in whatever process runs them.

Locks on PostgreSQL are taken in this order: unfinished turns, the root, the
conversation. Rows of several turns or calls are never held while another is waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet, Sum

from conversations.engine import claim_store
from conversations.models import BranchChoice, Conversation, ToolCall, Tree, Turn
from conversations.models.access_token import AccessToken
from llm.models import ModelCall


class CannotContinue(Exception):
    """The message has reached no limit, or has nothing to continue with."""


def max_cost() -> Decimal | None:
    """USD that one message may cost; None without a limit."""
    bound = settings.MAX_COST_PER_MESSAGE
    return Decimal(str(bound)) if bound else None


def cost_left(turn: Turn) -> Decimal | None:
    """USD that the message of `turn` may still cost; None without a limit."""
    bound = max_cost()
    if bound is None or (turn.epoch == 1 and turn.caused_by_id is None):
        return bound  # nothing has been spent yet
    return bound - _cost(turn.caused_by or turn)


def may_cause_another(root_id: str) -> bool:
    """Whether a result may open one more turn for the message; halts the message if
    not.

    Runs in the caller's transaction, at whose end the answer is still true.
    """
    root = Turn.objects.select_for_update(no_key=True).get(pk=root_id)
    if not root.halted_by:
        root.halted_by = _bound_reached(root)
        root.save(update_fields=["halted_by"])
    return not root.halted_by


def halt_for_cost(turn_id: str) -> None:
    """Halt the message of a turn that ended because of the cost limit."""
    root = Q(pk=turn_id, caused_by=None) | Q(caused=turn_id)
    roots = list(Turn.objects.filter(root).values_list("pk", flat=True))
    # A message that a person has stopped meanwhile keeps that reason.
    running = Turn.objects.filter(pk__in=roots, halted_by="")
    running.update(halted_by=Turn.HaltedBy.MAX_COST)


def _bound_reached(root: Turn) -> str:
    if _turns_since_continued(root).count() >= settings.MAX_TURNS_PER_MESSAGE:
        return Turn.HaltedBy.MAX_TURNS
    bound = max_cost()
    if bound is not None and _cost(root) >= bound:
        return Turn.HaltedBy.MAX_COST
    return ""


def _turns_since_continued(root: Turn) -> QuerySet[Turn]:
    """The message's turns since a person last let it continue."""
    turns = Turn.objects.of_message(root.pk)
    since = root.continued_at
    return turns if since is None else turns.filter(created_at__gte=since)


def _cost(root: Turn) -> Decimal:
    """USD, for the calls whose prices are known."""
    turns = list(_turns_since_continued(root).values_list("pk", flat=True))
    calls = ModelCall.objects.filter(turn_id__in=turns)
    return calls.aggregate(cost=Sum("cost"))["cost"] or Decimal(0)


def halt(turn_id: str) -> list[str]:
    """Stop the unfinished turns of this turn's message and open no more for it, because
    a person has stopped it. Returns these turns.

    Outside of a transaction each statement sees all earlier commits: a turn that a
    result opens at this moment is either seen here or not opened. Running turns are
    stopped first: should the process end here, none of them may go on while the message
    counts as stopped.
    """
    if (root_id := _root_of(turn_id)) is None:
        return []
    running = _request_cancel(root_id)
    Turn.objects.filter(pk=root_id).update(halted_by=Turn.HaltedBy.PERSON)
    return list(dict.fromkeys([*running, *_request_cancel(root_id)]))


def _request_cancel(root_id: str) -> list[str]:
    """Returns the unfinished turns of the message."""
    unfinished = Turn.objects.of_message(root_id).not_finished()
    found = dict(unfinished.values_list("pk", "cancel_requested"))
    for turn_id, is_requested in found.items():
        if not is_requested:
            claim_store.request_cancel(turn_id)
    return list(found)


def cancel_calls_of(turn_id: str) -> None:
    """Cancel all background calls that the message has caused. One that a run starts at
    this moment ends when it is claimed; see `is_halted`."""
    if root_id := _root_of(turn_id):
        cancel_calls(ToolCall.objects.of_message(root_id))


def is_halted(turn: Turn) -> bool:
    """Whether a person has stopped the message of this turn."""
    return (turn.caused_by or turn).halted_by == Turn.HaltedBy.PERSON


def _root_of(turn_id: str) -> str | None:
    turn = Turn.objects.filter(pk=turn_id).only("caused_by").first()
    return turn.root_id if turn else None


def cancel_calls(calls: QuerySet[ToolCall]) -> None:
    """Cancel those of the calls that run in the background, one by one."""
    running = ToolCall.objects.in_background()
    going_on = calls.filter(blocking=False, state=ToolCall.State.EXECUTING)
    for pk in list(going_on.values_list("pk", flat=True)):
        running.filter(pk=pk, cancel_requested=False).update(cancel_requested=True)


# Continuing


@dataclass(frozen=True, slots=True)
class Halt:
    """A message that has reached a limit and has something to continue with."""

    root: Turn
    results: list[str]  # names of tools with undelivered results

    @property
    def reason(self) -> str:
        return self.root.halted_by


def halts(calls: Iterable[ToolCall], last: Turn | None) -> list[Halt]:
    """The halts that a person can continue, oldest first. `calls` are those of
    `background_or_halted`, `last` is the conversation's last turn."""
    found: dict[str, Halt] = {}
    if last is not None and (root := _cut_by_cost(last)):
        found[root.pk] = Halt(root, [])
    for call in calls:
        if call.state in ToolCall.FINISHED:
            root = call.turn.caused_by or call.turn
            found.setdefault(root.pk, Halt(root, [])).results.append(call.name)
    return sorted(found.values(), key=lambda halt: halt.root.created_at)


def _cut_by_cost(last: Turn) -> Turn | None:
    """The root of the conversation's last turn, if the cost limit ended that turn."""
    if last.incomplete_reason != Turn.HaltedBy.MAX_COST:
        return None
    root = last.caused_by or last
    return root if root.halted_by in Turn.BOUNDS else None


def _is_at_bound(root: Turn) -> bool:
    """Whether the message has reached a limit and can continue."""
    if root.halted_by not in Turn.BOUNDS:
        return False
    last = root.conversation.last_turn_for(root.conversation.owner_id)
    calls = ToolCall.objects.of_message(root.pk).background_or_halted()
    return root.pk in {halt.root.pk for halt in halts(calls, last)}


@transaction.atomic
def continue_message(
    turn_id: str,
    token: AccessToken | None = None,
    user: Any = None,
    admit: Callable[[], None] | None = None,
) -> Turn:
    """Let the message of this turn cause as much again. Returns the turn that continues
    it in the name of `user`, under the limits of `token` if a program asks.

    Raises CannotContinue.
    """
    turn = Turn.objects.only("caused_by").get(pk=turn_id)
    rows = Turn.objects.select_for_update(no_key=True, of=["self"])
    root = rows.select_related("conversation").get(pk=turn.root_id)
    if not _is_at_bound(root):
        raise CannotContinue
    opened = open_turn(root, token, user=user)
    root.halted_by, root.continued_at = "", opened.created_at
    root.save(update_fields=["halted_by", "continued_at"])
    if admit is not None:
        admit()
    return opened


def open_turn(
    root: Turn,
    token: AccessToken | None = None,
    below: str | None = None,
    user: Any = None,
) -> Turn:
    """A turn without a question, for the results of the message. It has the model and
    options of the message's last turn, except for a forced tool. It ends the branch
    that goes through the turn `below`, or else through the message's last turn."""
    turns = Turn.objects.of_message(root.pk).order_by("-created_at", "-id")
    last = turns.select_related("language_model", "access_token", "author")[0]
    author, last_token = last.author, last.access_token
    if user is not None:
        author = None if user.pk == root.conversation.owner_id else user
        last_token = last_token if author == last.author else None
    return root.conversation.open_turn(
        [],
        language_model=last.language_model,
        options=last.options_for(author),
        access_token=token or last_token,
        parent=_end_of_branch(root.conversation, below or last.pk),
        caused_by=root.pk,
        author=author,
        author_name="" if user else last.author_name,
    ).turn


def _end_of_branch(conversation: Conversation, turn_id: str) -> Turn:
    """The last turn of the branch that goes through this turn: of the one that the
    owner looks at, if it does, else of the newest."""
    tree = Tree.of(conversation.pk)
    chosen = BranchChoice.objects.chosen(conversation.pk, conversation.owner_id)
    if chosen not in tree.descendants(turn_id):
        chosen = turn_id
    leaf = tree.leaf_of(chosen) if chosen in tree.turns else turn_id
    return Turn.objects.get(pk=leaf)
