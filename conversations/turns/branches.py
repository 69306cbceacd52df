"""Branches of a conversation: ask again, edit, go on, copy, delete, restore.

A turn's siblings are the turns with the same parent. Nothing here changes a finished
turn: what a person changes becomes a new turn beside it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from conversations.audit.record import record_event
from conversations.models import (
    Attachment,
    BranchChoice,
    Conversation,
    Item,
    SearchDocument,
    ToolCall,
    Tree,
    Turn,
)
from conversations.models.conversation import TITLE_LENGTH
from conversations.models.item import CONTINUES
from conversations.turns.attachments import attachment_ids
from llm.db.statements import CompiledInsert
from llm.wire.items import Item as ItemPayload
from llm.wire.items import new_id, user_message
from tools.loop.resume import MIN_PREFILL

MAX_COMPARED = 4  # models that answer one message side by side

_GO_ON = (
    "Your last answer was cut off. Go on exactly where it stopped: repeat nothing,"
    " begin with the next word, and add no introduction."
)
_CUT = (Turn.Status.INCOMPLETE, Turn.Status.CANCELLED, Turn.Status.FAILED)


# Input of new turns


def question_items(turn: Turn) -> list[ItemPayload]:
    """The messages that the turn answers, to ask them again in a new turn."""
    return [
        {**row.payload, "id": new_id("msg")}
        for row in turn.items.filter(origin=Item.Origin.INPUT)
        if row.payload.get("role") == "user"
    ]


def edited_items(
    turn: Turn, text: str, files: Collection[str] | None = None
) -> list[ItemPayload]:
    """The messages that the turn answers, the last one with another text. `files` has
    the ids of the stored files that it keeps; None for all."""
    *before, last = question_items(turn)
    content: list[Any] = [
        part
        for part in last["content"]
        if part.get("type") != "input_text"
        and (files is None or part.get("file_id") in (None, *files))
    ]
    if text.strip():
        content.append({"type": "input_text", "text": text})
    plain = {name: value for name, value in last.items() if name != CONTINUES}
    return [*before, {**plain, "content": content}]


def place_beside(turn: Turn) -> dict[str, Any]:
    """Arguments of `Conversation.open_turn` for a sibling of the turn."""
    return {"parent": turn.parent, "is_first": turn.parent_id is None}


def has_question(turn: Turn) -> bool:
    """Whether a person wrote what the turn answers, so that it can be edited."""
    inputs = turn.items.filter(origin=Item.Origin.INPUT)
    return any(
        row.payload.get("role") == "user" and CONTINUES not in row.payload
        for row in inputs
    )


def is_cut(turn: Turn) -> bool:
    """Whether the turn has ended in the middle of its answer."""
    if turn.status not in _CUT:
        return False
    said = turn.items.filter(origin=Item.Origin.OUTPUT, type="message")
    return said.exists()


def continuation_items() -> list[ItemPayload]:
    return [{**user_message(_GO_ON), CONTINUES: True}]


def begun_message(turn: Turn) -> ItemPayload | None:
    """A copy of the text of a turn that has a user's messages and one text; None for
    all other turns, and for a text that is too short to be sent as a prefill."""
    rows = list(turn.items.order_by("position"))
    said = [row.payload for row in rows if row.origin == Item.Origin.OUTPUT]
    asked = [row.payload for row in rows if row.origin == Item.Origin.INPUT]
    if not asked or any(item.get("role") != "user" for item in asked):
        return None
    match said:
        case [{"type": "message", "content": [{"type": "output_text", "text": text}]}]:
            begun: str = text.rstrip()  # as it is sent: some hosts refuse spaces there
            if len(begun) < MIN_PREFILL or "parley:interrupted" in said[0]:
                return None
            (part,) = said[0]["content"]
            content = [{**part, "text": begun}]
            fields = {"id": new_id("msg"), "status": "in_progress", "content": content}
            return {**said[0], **fields}
    return None


# Deletion


@transaction.atomic
def delete_branch(turn: Turn) -> list[str]:
    """Hide the turn and all that follow it; retention erases them later. Returns their
    ids. The caller stops those that run. Every viewer who looked at the branch then
    looks at a sibling, or at what came before."""
    tree = _lock_tree(turn.conversation_id)
    if turn.pk not in tree.turns:
        return []
    gone = tree.descendants(turn.pk)
    Turn.objects.filter(pk__in=gone).update(deleted_at=timezone.now(), is_indexed=False)
    SearchDocument.objects.filter(turn__in=gone).delete()
    siblings = tree.siblings(turn.pk)
    number = siblings.index(turn.pk)
    others = siblings[:number][::-1] + siblings[number + 1 :]
    instead = next(iter(others), tree.turns[turn.pk].parent_id)
    choices = BranchChoice.objects.filter(leaf__in=gone)
    if instead is None:
        choices.delete()
    else:
        choices.update(leaf=instead)
        _look_at(turn.conversation, instead)
    owner = turn.conversation.owner_id
    record_event("content.delete", target=turn, subject=owner)
    return gone


@transaction.atomic
def restore_branch(turn: Turn) -> bool:
    """Show a deleted turn again, with those that were deleted together with it; its
    owner then looks at it. False if it is erased by now, or what it follows is deleted
    too."""
    _lock_tree(turn.conversation_id)
    rows = Turn.objects.filter(conversation_id=turn.conversation_id)
    found = rows.filter(pk=turn.pk).values_list("deleted_at").first()
    if found is None:
        return False
    (deleted_at,) = found
    if deleted_at is None:
        return True
    if turn.parent_id and not rows.not_deleted().filter(pk=turn.parent_id).exists():
        return False
    together = rows.filter(deleted_at=deleted_at)
    below = Tree.from_turns(together).descendants(turn.pk)
    rows.filter(pk__in=below).update(deleted_at=None)
    BranchChoice.objects.choose(
        turn.conversation_id, turn.conversation.owner_id, turn.pk
    )
    return True


def _look_at(conversation: Conversation, turn_id: str) -> None:
    """Let the owner stay where the branch was, unless they look elsewhere."""
    if BranchChoice.objects.chosen(conversation.pk, conversation.owner_id) is None:
        BranchChoice.objects.choose(conversation.pk, conversation.owner_id, turn_id)


def _lock_tree(conversation_id: str) -> Tree:
    """The tree, once no other transaction adds a turn to it."""
    rows = Conversation.objects.select_for_update(no_key=True).only("pk")
    rows.get(pk=conversation_id)
    return Tree.of(conversation_id)


# Copies


_write_turns, _write_items = CompiledInsert(Turn), CompiledInsert(Item)
_OF_RUNS = ("lease_until", "deadline_at", "seconds_left", "partial", "deleted_at")


@transaction.atomic
def fork(turn: Turn) -> Turn:
    """Copy the conversation up to this turn into a new one. Returns the copy of the
    turn. A turn that is not over is copied as stopped, without open questions; files
    are copied as rows that name the same stored file."""
    source = turn.conversation
    line = Turn.objects.lineage_of(turn)
    copy = _copy_conversation(source)
    new_ids = {pk: new_id("resp") for pk in line}
    rows = Turn.objects.in_bulk(line)
    turns = [_copy_turn(rows[pk], copy, new_ids) for pk in line]
    items = list(Item.objects.filter(turn__in=line).order_by("pk"))
    files = _copy_files(source, copy, [item.payload for item in items])
    for row in turns:
        _write_turns(row)
    _write_items(*(_copy_item(item, new_ids, files) for item in items))
    _copy_calls(line, new_ids)
    return turns[-1]


def _copy_conversation(source: Conversation) -> Conversation:
    suffix = _(" (fork)")
    title = f"{source.title[: TITLE_LENGTH - len(suffix)]}{suffix}"
    copy = Conversation.objects.create(
        owner=source.owner,
        title=title,
        title_source=source.title_source,
        folder=source.folder,
        language_model=source.language_model,
        preset=source.preset,
        instructions=source.instructions,
        options=source.options,
        is_temporary=source.is_temporary,
        session=source.session,
    )
    # Marked, because others may have written the words; by its own id, because an owner
    # has each key once.
    if source.import_key:
        copy.import_key = f"fork:{copy.pk}"
        copy.save(update_fields=["import_key"])
    copy.tags.set(source.tags.all())
    return copy


def _copy_turn(turn: Turn, copy: Conversation, new_ids: Mapping[str, str]) -> Turn:
    if not turn.is_finished:
        turn.status, turn.finished_at = Turn.Status.CANCELLED, timezone.now()
    for name in _OF_RUNS:
        setattr(turn, name, None)
    turn.parent_id = new_ids.get(turn.parent_id or "")
    turn.caused_by_id = new_ids.get(turn.caused_by_id or "")
    turn.comparison, turn.provider_response = "", None
    turn.cancel_requested, turn.is_indexed = False, False
    turn.pk, turn.conversation = new_ids[turn.pk], copy
    return turn


def _copy_item(
    item: Item, new_ids: Mapping[str, str], files: Mapping[str, str]
) -> Item:
    item.payload = _with_new_ids(item, {**files, **new_ids})
    item.pk, item.turn_id = None, new_ids[item.turn_id]
    return item


def _with_new_ids(item: Item, new_ids: Mapping[str, str]) -> ItemPayload:
    """The payload with the ids of the copies of turns and files that it names."""
    if item.type != "compaction" and not attachment_ids([item.payload]):
        return dict(item.payload)
    changed: ItemPayload = _replace(item.payload, new_ids)
    return changed


def _replace(value: Any, new_ids: Mapping[str, str]) -> Any:
    match value:
        case str():
            return new_ids.get(value, value)
        case dict():
            return {name: _replace(each, new_ids) for name, each in value.items()}
        case list():
            return [_replace(each, new_ids) for each in value]
    return value


def _copy_files(
    source: Conversation, copy: Conversation, items: Sequence[ItemPayload]
) -> dict[str, str]:
    """Rows of the new conversation for the files that the items name, by the old id."""
    found = source.attachments.in_bulk(attachment_ids(items))
    copies = {}
    for old, row in found.items():
        row.pk, row.conversation = new_id("file"), copy
        row.uploaded_by_id = None  # copies count for who has the copy
        copies[old] = row
    Attachment.objects.bulk_create(copies.values())
    return {old: row.pk for old, row in copies.items()}


def _copy_calls(line: Sequence[str], new_ids: Mapping[str, str]) -> None:
    """Calls as they ended; one that goes on belongs to the original only."""
    calls = list(ToolCall.objects.filter(turn__in=line))
    for call in calls:
        if call.state not in ToolCall.FINISHED:
            call.state, call.ended_at = ToolCall.State.CANCELLED, timezone.now()
        call.pk, call.lease_until, call.token, call.poll_at = None, None, "", None
        call.turn_id = new_ids[call.turn_id]
        if not call.blocking:
            call.delivered_in_id = new_ids.get(call.delivered_in_id or "", call.turn_id)
    ToolCall.objects.bulk_create(calls)
