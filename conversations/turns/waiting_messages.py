"""Messages that wait behind a running turn: their order, their change and removal.

Each is a queued turn whose parent is the message or the running turn before it. A
message belongs to its sender until a run takes it: every change locks the turns of the
line and looks again whether the message still waits, so a change and a claim exclude
one another.

A message that *steers* joins the running turn at its next step instead of waiting for
its end (`Turn.steering`). If the running turn ends before, the message is answered like
any other.

Locks are taken in the order of `engine.message_consequences`: unfinished turns, then
the conversation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from django.db import connection, transaction

from conversations.input.checks import inline_size
from conversations.models import (
    BranchChoice,
    Conversation,
    IdempotencyKey,
    Item,
    OpenedTurn,
    ShareLink,
    Tree,
    Turn,
)
from conversations.models.turn import increment_rewritten
from conversations.turns.attachments import attachment_ids
from llm.wire.items import Item as ItemPayload

When = Literal["queue", "steer", "interrupt"]
WHENS: tuple[When, ...] = ("queue", "steer", "interrupt")

MAX_SHOWN = 50  # messages that a page lists


class AlreadySent(Exception):
    """It has been sent already."""


class QueueChanged(Exception):
    """The queue has changed in the meantime; look at it again."""


class CannotSteer(Exception):
    """This message cannot join the running answer; it is sent after it."""


def load(conversation_id: str) -> list[Turn]:
    """The messages that wait, in the order in which they will be sent."""
    return list(_Line.read(conversation_id).waiting.values())


def open_message(
    conversation: Conversation,
    items: Sequence[ItemPayload],
    when: When = "queue",
    **fields: Any,
) -> OpenedTurn:
    """Open a turn that waits for the running turn, steers it or interrupts it.

    Without a running turn all three are the same. A message that cannot steer waits.
    """
    if when == "queue":
        return conversation.open_turn(items, **fields)
    with transaction.atomic(savepoint=False):
        lock(conversation.pk)
        opened = conversation.open_turn(items, **fields)
        return _place(opened, when) if opened.items else opened


def _place(opened: OpenedTurn, when: When) -> OpenedTurn:
    turn = opened.turn
    line = _Line.read(turn.conversation_id)
    is_waiting = (
        turn.pk in line.waiting
    )  # else nothing that it may steer runs before it
    if when == "steer":
        items = [row.payload for row in opened.items]
        if is_waiting and _may_steer(turn, line.head(turn), items):
            _ask_to_steer(turn)
        return opened
    return replace(opened, interrupted=_interrupt(turn, line))


@transaction.atomic
def steer(turn: Turn) -> None:
    """Let a waiting message join the running turn at its next step.

    Raises AlreadySent, CannotSteer.
    """
    waiting, line = _lock_waiting(turn)
    items = [row.payload for row in waiting.items.all()]
    if not _may_steer(waiting, line.head(waiting), items):
        raise CannotSteer
    _ask_to_steer(waiting)


@transaction.atomic
def wait(turn: Turn) -> None:
    """Let a message that was to steer wait for its turn. Raises AlreadySent."""
    waiting, _ = _lock_waiting(turn)
    Turn.objects.filter(pk=waiting.pk).update(steering="")


@transaction.atomic
def interrupt(turn: Turn) -> Sequence[Turn]:
    """Send a waiting message next, and stop the running turn and those that are
    compared with it. These are returned.

    Raises AlreadySent.
    """
    waiting, line = _lock_waiting(turn)
    return _interrupt(waiting, line)


def stop_before(turn: Turn) -> Sequence[Turn]:
    """Stop what runs before a turn that was opened to be compared; returns these turns.

    Runs in the transaction that has locked the line (`lock`) and opened the turn.
    """
    line = _Line.read(turn.conversation_id)
    stopped = _find_compared(turn, line)
    if turn.pk in line.before:
        stopped.append(line.head(turn))
    return _stop(stopped)


@transaction.atomic
def change(turn: Turn, items: Sequence[ItemPayload]) -> None:
    """Replace what a waiting message says. Raises AlreadySent, CannotSteer."""
    waiting, line = _lock_waiting(turn)
    if waiting.steering and not _may_steer(waiting, line.head(waiting), items):
        raise CannotSteer
    waiting.items.all().delete()
    Item.objects.bulk_create(
        Item.of(waiting, position, payload, origin=Item.Origin.INPUT)
        for position, payload in enumerate(items)
    )
    Turn.objects.filter(pk=waiting.pk).update(
        inline_bytes=inline_size(items), is_indexed=False
    )
    increment_rewritten(waiting.conversation_id)


@transaction.atomic
def remove(turn: Turn) -> None:
    """Delete a waiting message. A repeated request with its idempotency key is refused
    and does not send it again. Raises AlreadySent."""
    waiting, _ = _lock_waiting(turn)
    _unlink(waiting)
    IdempotencyKey.objects.filter(turn=waiting).update(turn=None)
    waiting.delete()


@transaction.atomic
def reorder(conversation_id: str, ids: Sequence[str]) -> None:
    """Send the waiting messages in this order; `ids` names all that wait for one
    running turn.

    Raises QueueChanged.
    """
    line = lock(conversation_id)
    first = line.waiting.get(ids[0]) if ids else None
    beside = line.beside(first) if first else []
    waiting = {turn.pk: turn for turn in beside}
    is_taken = any(turn.steering == Turn.Steering.TAKEN for turn in beside)
    if not beside or is_taken or sorted(ids) != sorted(waiting):
        raise QueueChanged
    _arrange(beside, [waiting[id] for id in ids])


@transaction.atomic
def move(turn: Turn, places: int) -> None:
    """Send a waiting message so many places later (or earlier, if negative).

    Raises AlreadySent.
    """
    waiting, line = _lock_waiting(turn)
    beside = line.beside(waiting)
    others = [each for each in beside if each.pk != waiting.pk]
    first = sum(each.steering == Turn.Steering.TAKEN for each in others)
    at = [each.pk for each in beside].index(waiting.pk) + places
    at = max(first, min(at, len(others)))
    _arrange(beside, [*others[:at], waiting, *others[at:]])


def absorb(turn_ids: Sequence[str], into: str) -> None:
    """Delete messages that have become items of a running turn.

    Runs in the transaction that writes these items and has locked the line (`lock`), so
    a message is always either in the queue or in the turn. A repetition of its request
    finds the running turn.
    """
    rows = {turn.pk: turn for turn in Turn.objects.filter(pk__in=turn_ids)}
    for turn_id in turn_ids:
        if (row := rows.get(turn_id)) is None:
            continue
        _unlink(row)
        IdempotencyKey.objects.filter(turn=turn_id).update(turn=into)
        row.delete()


def has_joined(turn: Turn) -> bool:
    """Whether a running turn has taken the message, so that it is being sent."""
    return turn.status == Turn.Status.QUEUED and turn.steering == Turn.Steering.TAKEN


def has_steering(conversation_id: str) -> bool:
    return Turn.objects.steering(conversation_id).exists()


@transaction.atomic
def take(turn_id: str, conversation_id: str) -> list[tuple[str, list[ItemPayload]]]:
    """The messages that steer this running turn, oldest first, each with its items.

    From now on they cannot be changed. A run that takes the turn over takes them again.
    Those that were to join an earlier turn, but cannot join this one, wait.
    """
    line = lock(conversation_id)
    asked = [
        turn
        for turn in line.turns.values()
        if turn.status == Turn.Status.QUEUED
        and turn.steering
        and not turn.cancel_requested
        and line.head(turn).pk == turn_id
    ]
    items: dict[str, list[ItemPayload]] = {turn.pk: [] for turn in asked}
    for row in Item.objects.filter(turn__in=asked).order_by("position"):
        items[row.turn_id].append(row.payload)
    taken = {
        turn.pk: items[turn.pk]
        for turn in asked
        if _may_steer(turn, line.turns[turn_id], items[turn.pk])
    }
    Turn.objects.filter(pk__in=taken).update(steering=Turn.Steering.TAKEN)
    Turn.objects.filter(pk__in=items.keys() - taken.keys()).update(steering="")
    return list(taken.items())


# The line


_COLUMNS = [
    "id",
    "conversation_id",
    "parent_id",
    "status",
    "epoch",
    "steering",
    "cancel_requested",
    "caused_by_id",
    "comparison",
    "deleted_at",
    "access_token_id",
    "author_id",
    "author_name",
    "options",
    "created_at",
]


@dataclass(frozen=True, slots=True)
class _Line:
    """The unfinished turns of a conversation, oldest first, and what each waits for."""

    turns: Mapping[str, Turn]
    before: Mapping[str, str]  # by the id of a turn: the unfinished one that it follows

    @classmethod
    def read(cls, conversation_id: str) -> _Line:
        rows = Turn.objects.not_finished().filter(conversation_id=conversation_id)
        found = rows.only(*_COLUMNS).order_by("created_at", "id")
        turns = {turn.pk: turn for turn in found}
        return cls(turns, _find_before(turns))

    @property
    def waiting(self) -> dict[str, Turn]:
        """The waiting messages of pages. What waits behind a message of the gateway is
        left out, as its place follows from the gateway's request."""
        waiting: dict[str, Turn] = {}
        for turn in self.turns.values():
            before = self.before.get(turn.pk)
            if before is None or not _is_message(turn):
                continue
            if before in waiting or before not in self.before:
                waiting[turn.pk] = turn
        return waiting

    def head(self, turn: Turn) -> Turn:
        """The unfinished turn at the beginning of the line: the one that runs."""
        head, left = turn.pk, dict(self.before)
        while (before := left.pop(head, None)) is not None:
            head = before
        return self.turns[head]

    def beside(self, turn: Turn) -> list[Turn]:
        """The messages that wait in one line with this one, in order, up to the places
        where the conversation branches."""
        waiting = self.waiting
        after: dict[str, list[str]] = {}
        for pk in waiting:
            after.setdefault(self.before[pk], []).append(pk)
        line = [turn.pk]
        while (before := self.before[line[0]]) in waiting and len(after[before]) == 1:
            line.insert(0, before)
        while len(behind := after.get(line[-1], [])) == 1:
            line += behind
        return [waiting[pk] for pk in line]


def _find_before(turns: Mapping[str, Turn]) -> dict[str, str]:
    """What each turn waits for. One that was stopped or failed may have ended before
    the turns that it followed; who follows it waits for those, as in a claim."""
    parents = {pk: turn.parent_id for pk, turn in turns.items()}
    while unread := {p for p in parents.values() if p and p not in turns}:
        ended = Turn.objects.filter(
            pk__in=unread, status__in=[Turn.Status.CANCELLED, Turn.Status.FAILED]
        )
        above = dict(ended.values_list("pk", "parent"))
        parents = {
            pk: above.get(parent) if parent in unread else parent
            for pk, parent in parents.items()
        }
    return {pk: parent for pk, parent in parents.items() if parent}


def lock(conversation_id: str) -> _Line:
    """Lock the unfinished turns and then the conversation, against claims and new
    turns, and read them."""
    if connection.features.has_select_for_update:
        rows = Turn.objects.not_finished().filter(conversation_id=conversation_id)
        rows = rows.order_by("created_at", "id").select_for_update(no_key=True)
        list(rows.values_list("pk"))
        same = Conversation.objects.filter(pk=conversation_id)
        list(same.select_for_update(no_key=True).values_list("pk"))
    return _Line.read(conversation_id)


def _lock_waiting(turn: Turn) -> tuple[Turn, _Line]:
    """The message, if it still waits, and the unfinished turns of its conversation.

    Raises AlreadySent.
    """
    line = lock(turn.conversation_id)
    waiting = line.waiting.get(turn.pk)
    if waiting is None or waiting.steering == Turn.Steering.TAKEN:
        raise AlreadySent
    return waiting, line


def _is_message(turn: Turn) -> bool:
    """Whether it is a person's message that no run has taken up."""
    return (
        turn.status == Turn.Status.QUEUED
        and turn.epoch == 0
        and not turn.cancel_requested
        and turn.caused_by_id is None
        and turn.deleted_at is None
        and not turn.comparison
        and "gateway" not in turn.options
    )


def _arrange(line: Sequence[Turn], order: Sequence[Turn]) -> None:
    """Give the turns of `line` the times and parents that put them in this order."""
    if not line:
        return
    last, before = line[-1].pk, line[0].parent_id
    inside = [turn.pk for turn in line]
    followers = Turn.objects.filter(parent=last).exclude(pk__in=inside)
    followers.update(parent=order[-1].pk)
    for earlier, turn in zip(line, order, strict=True):
        Turn.objects.filter(pk=turn.pk).update(
            created_at=earlier.created_at, parent=before
        )
        before = turn.pk
    increment_rewritten(line[0].conversation_id)


def _move_to_front(turn: Turn, line: _Line) -> None:
    beside = line.beside(turn)
    others = [each for each in beside if each.pk != turn.pk]
    _arrange(beside, [turn, *others])


def _unlink(turn: Turn) -> None:
    """Let what follows the turn follow the one before it, before it is deleted."""
    parent = Turn.objects.values_list("parent", flat=True).get(pk=turn.pk)
    Turn.objects.filter(parent=turn.pk).update(parent=parent)
    BranchChoice.objects.filter(leaf=turn.pk).update(leaf=parent)
    ShareLink.objects.filter(leaf=turn.pk).update(leaf=parent)


def _interrupt(turn: Turn, line: _Line) -> Sequence[Turn]:
    """Store that what runs before the message is to be stopped; `engine.cancel` stops
    it sooner. Compared answers may still run when the one that it follows has ended.
    """
    stopped = _find_compared(turn, line)
    is_waiting = turn.pk in line.waiting
    if is_waiting or (stopped and turn.pk in line.before):
        stopped.append(line.head(turn))
    if is_waiting:
        _move_to_front(turn, line)
    return _stop(stopped)


def _stop(turns: Sequence[Turn]) -> Sequence[Turn]:
    """The turns, each once."""
    found = {turn.pk: turn for turn in turns}
    if found:
        rows = Turn.objects.not_finished().filter(pk__in=found)
        rows.update(cancel_requested=True)
    return list(found.values())


def _find_compared(turn: Turn, line: _Line) -> list[Turn]:
    """The unfinished turns of the comparisons that the message goes on with."""
    compared = [each for each in line.turns.values() if each.comparison]
    if not compared:
        return []
    tree = Tree.of(turn.conversation_id)
    followed = {tree.turns[pk].comparison for pk in tree.lineage(turn.pk)[:-1]}
    return [each for each in compared if each.comparison in followed]


# Steering


def _ask_to_steer(turn: Turn) -> None:
    turn.steering = Turn.Steering.ASKED
    Turn.objects.filter(pk=turn.pk).update(steering=turn.steering)


def _may_steer(turn: Turn, head: Turn, items: Sequence[ItemPayload]) -> bool:
    """Whether the message can become part of the running turn: text of the same
    sender. A file's content is read only when a turn begins."""
    return (
        "gateway" not in head.options
        and head.access_token_id == turn.access_token_id
        and (head.author_id, head.author_name) == (turn.author_id, turn.author_name)
        and all(item.get("role") == "user" for item in items)
        and not attachment_ids(items)
    )
