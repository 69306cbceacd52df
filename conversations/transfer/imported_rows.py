"""Writing of imported conversations: each in one transaction, whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta
from itertools import chain, islice
from typing import Any, TypeVar

from django.conf import settings
from django.core.files.base import ContentFile
from django.db import transaction
from django.utils import timezone

from conversations.input.checks import inline_contents, inline_size
from conversations.models import (
    Attachment,
    Conversation,
    Folder,
    Item,
    Tag,
    TitleSource,
    ToolCall,
    Turn,
)
from conversations.models.folder import MAX_FOLDERS, MAX_TAGS
from conversations.models.preset import Preset
from conversations.transfer.parley_format import FILE_NAME, find_files, rename_files
from conversations.transfer.parley_reader import (
    ReadConversation,
    ReadFile,
    ReadTurn,
)
from conversations.transfer.source import SourceConversation, SourceTurn, to_turns
from conversations.turns.attachments import (
    INFECTED,
    UploadRefused,
    check_quota,
    check_scanned,
    discard,
    store,
)
from llm import router
from llm.db.statements import CompiledInsert
from llm.models import LanguageModel
from llm.wire.items import message, new_id

BATCH = 200  # rows of one INSERT
_LATER = timedelta(microseconds=1)
_write_turn, _write_item = CompiledInsert(Turn), CompiledInsert(Item)
_write_call = CompiledInsert(ToolCall)
T = TypeVar("T")


def is_present(owner: Any, key: str, id: str = "") -> bool:
    """Whether the user has the conversation already: imported before, or their own."""
    rows = Conversation.objects.of(owner)
    return rows.filter(import_key=key).exists() or (
        bool(id) and rows.filter(pk=id).exists()
    )


class Names:
    """The user's models, presets, folders and tags, by name."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        models = router.available(owner).select_related("provider")
        self.models: dict[str, LanguageModel] = {row.public_name: row for row in models}
        presets = Preset.objects.available_to(owner)
        self.presets: dict[str, Preset] = {row.name: row for row in presets}

    def folder(self, name: str) -> Folder | None:
        """The folder of this name, created if missing; None at the user's limit."""
        theirs = Folder.objects.of(self.owner)
        found: Folder | None = theirs.filter(name=name).first() if name else None
        if found or not name or theirs.count() >= MAX_FOLDERS:
            return found
        return Folder.objects.create(owner=self.owner, name=name)

    def tags(self, names: Iterable[str]) -> list[Tag]:
        """The tags of these names, as many as the user may have. A comma separates
        tags where people write them, so it becomes a space."""
        theirs = Tag.objects.of(self.owner)
        tags = []
        cleaned = (" ".join(name.replace(",", " ").split()) for name in names)
        for name in dict.fromkeys(filter(None, cleaned)):
            tag = theirs.filter(name=name).first()
            if tag is None and theirs.count() < MAX_TAGS:
                tag = Tag.objects.create(owner=self.owner, name=name)
            tags += [tag] if tag else []
        return tags


@transaction.atomic
def write_source(
    names: Names,
    source: SourceConversation,
    key: str,
    note_written: Callable[[], None] = lambda: None,
) -> None:
    """Write a conversation of another program, and what `note_written` writes of it, in
    one transaction. Raises Unreadable."""
    turns = to_turns(source)
    missing = {
        str(number): turn.model
        for number, turn in enumerate(turns)
        if turn.model and turn.model not in names.models
    }
    changed = source.changed_at or turns[-1].at
    row = _create(
        names.owner,
        key,
        source.at or turns[0].at,
        title=source.title or _first_words(turns),
        title_source=TitleSource.PERSON if source.title else TitleSource.WORDS,
        updated_at=changed,
        archived_at=changed if source.is_archived else None,
        pinned_at=changed if source.is_pinned and not source.is_archived else None,
        imported_names={"turns": missing} if missing else None,
    )
    if source.tags:
        row.tags.set(names.tags(source.tags))
    rows = [_turn_of(row, turn, names) for turn in turns]
    for turn_row, turn in zip(rows, turns, strict=True):
        turn_row.parent = None if turn.parent is None else rows[turn.parent]
    _insert(_write_turn, rows)
    _insert(_write_item, _items_of(rows, turns))
    note_written()


def _create(owner: Any, key: str, at: datetime, **fields: Any) -> Conversation:
    row = Conversation.objects.create(owner=owner, import_key=key, **fields)
    Conversation.objects.filter(pk=row.pk).update(created_at=at)
    return row


def _first_words(turns: Sequence[SourceTurn]) -> str:
    words = " ".join(turns[0].messages[0].text[:500].split())
    return words if len(words) <= 80 else f"{words[:79]}…"


def _turn_of(row: Conversation, turn: SourceTurn, names: Names) -> Turn:
    is_answered = turn.messages[-1].role == "assistant"
    return Turn(
        conversation=row,
        language_model=names.models.get(turn.model),
        status=Turn.Status.COMPLETED if is_answered else Turn.Status.INCOMPLETE,
        incomplete_reason="" if is_answered else "imported_without_answer",
        created_at=turn.at,
        started_at=turn.at,
        finished_at=turn.messages[-1].at or turn.at,
    )


def _items_of(rows: Sequence[Turn], turns: Sequence[SourceTurn]) -> Iterator[Item]:
    for row, turn in zip(rows, turns, strict=True):
        for position, each in enumerate(turn.messages):
            yield _item(
                row, position, _ORIGINS[each.role], message(each.role, each.text)
            )


_ORIGINS = {"user": Item.Origin.INPUT, "assistant": Item.Origin.OUTPUT}


def _item(turn: Turn, position: int, origin: str, payload: Any) -> Item:
    item = Item.of(turn, position, payload, origin=origin)
    item.created_at = turn.created_at
    return item


def _insert(write: CompiledInsert[Any], rows: Iterable[Any]) -> None:
    for batch in _batches(rows):
        write(*batch)


def _batches(rows: Iterable[T]) -> Iterator[list[T]]:
    rest = iter(rows)
    while batch := list(islice(rest, BATCH)):
        yield batch


# Parley's own format


def write_document(
    names: Names,
    read: ReadConversation,
    key: str,
    note_written: Callable[[], None] = lambda: None,
    note_progress: Callable[[], None] = lambda: None,
) -> None:
    """Like `write_source`, for a conversation of another Parley, or of another user.
    `note_progress` is called after each file. Raises UploadRefused where its files
    exceed the user's quota or the virus scanner is silent, and FilesUnavailable."""
    stored: list[Attachment] = []
    with ExitStack() as rollback:
        rollback.callback(discard, stored)
        _check_quota(names.owner, read)
        if settings.CLAMD_ADDRESS:
            _leave_out_infected(read, note_progress)
        # Before the transaction: PostgreSQL ends one that waits for a slow storage.
        for file in read.files:
            stored.append(row := _attachment(file))
            store(row, row.pk, ContentFile(file.read()))
            note_progress()
        with transaction.atomic():
            _write_document(names, read, key, stored)
            note_written()
        rollback.pop_all()


def _write_document(
    names: Names, read: ReadConversation, key: str, stored: Sequence[Attachment]
) -> None:
    now = timezone.now()
    model = names.models.get(read.model or "")
    preset = names.presets.get(read.preset or "")
    row = _create(
        names.owner,
        key,
        read.at or now,
        language_model=model,
        preset=preset,
        folder=names.folder(read.folder),
        imported_names=_missing_names(names, read),
        **{**read.fields, "updated_at": read.fields["updated_at"] or read.at or now},
    )
    if read.tags:
        row.tags.set(names.tags(read.tags))
    _check_quota(names.owner, read)
    files = {**_missing_files(read), **_insert_files(row, read, stored)}
    turns = list(_turn_rows(row, read.turns, names, read.at or now))
    _insert(_write_turn, turns)
    _insert(_write_item, _read_items(turns, read.turns, files))
    _insert(_write_call, _read_calls(turns, read.turns, files))


def _missing_names(names: Names, read: ReadConversation) -> dict[str, Any] | None:
    """What an export of the imported conversation must still say."""
    missing: dict[str, Any] = {}
    if read.model and read.model not in names.models:
        missing["model"] = read.model
    if read.preset and read.preset not in names.presets:
        missing["preset"] = read.preset
    turns = {
        str(number): turn.model
        for number, turn in enumerate(read.turns)
        if turn.model and turn.model not in names.models
    }
    return {**missing, **({"turns": turns} if turns else {})} or None


def _check_quota(owner: Any, read: ReadConversation) -> None:
    size = sum(file.size for file in read.files)
    size += sum(turn.fields["inline_bytes"] for turn in read.turns)
    if size:
        check_quota(owner.pk, size)


def _leave_out_infected(
    read: ReadConversation, note_progress: Callable[[], None]
) -> None:
    """Raises UploadRefused if the scanner does not answer."""

    def is_clean(data: bytes) -> bool:
        note_progress()
        try:
            check_scanned(data)
        except UploadRefused as exc:
            if exc.code != INFECTED:
                raise
            read.left_out["files that the virus scanner refuses"] += 1
            return False
        return True

    read.files = [file for file in read.files if is_clean(file.read())]
    for turn in read.turns:
        if turn.fields["inline_bytes"]:
            turn.items = [
                (origin, payload)
                for origin, payload in turn.items
                if all(map(is_clean, inline_contents(payload)))
            ]
            sizes = (inline_size(payload) for _origin, payload in turn.items)
            turn.fields["inline_bytes"] = sum(sizes)


def _attachment(file: ReadFile) -> Attachment:
    return Attachment(name=file.name, content_type=file.content_type, size=file.size)


def _insert_files(
    row: Conversation, read: ReadConversation, stored: Sequence[Attachment]
) -> dict[str, str]:
    """New ids by the names in the document."""
    ids = {}
    for file, attachment in zip(read.files, stored, strict=True):
        attachment.conversation = row
        attachment.save(force_insert=True)
        if file.at:
            Attachment.objects.filter(pk=attachment.pk).update(created_at=file.at)
        ids[file.id] = attachment.pk
    return ids


def _missing_files(read: ReadConversation) -> dict[str, str]:
    """New ids for the names of files that the document lacks. Else the next export
    would give such a name to another file."""
    texts = (payload for turn in read.turns for _origin, payload in turn.items)
    outputs = (call["output"] for turn in read.turns for call in turn.calls)
    names = {name for each in chain(texts, outputs) for name in find_files(each)}
    return {name: new_id("file") for name in names if FILE_NAME.fullmatch(name)}


def _turn_rows(
    row: Conversation, turns: Sequence[ReadTurn], names: Names, at: datetime
) -> Iterator[Turn]:
    made: list[Turn] = []
    for turn in turns:
        # Turns are identified by their times, so no two may have the same.
        least = made[-1].created_at + _LATER if made else None
        created = turn.fields["created_at"] or least or at
        fields = {
            **turn.fields,
            "created_at": max(created, least) if least else created,
        }
        made.append(
            Turn(
                conversation=row,
                parent=None if turn.parent is None else made[turn.parent],
                caused_by=None if turn.caused_by is None else made[turn.caused_by],
                language_model=names.models.get(turn.model or ""),
                **fields,
            )
        )
        yield made[-1]


def _read_items(
    rows: Sequence[Turn], turns: Sequence[ReadTurn], files: Mapping[str, str]
) -> Iterator[Item]:
    for row, turn in zip(rows, turns, strict=True):
        for position, (origin, payload) in enumerate(turn.items):
            renamed = rename_files(payload, dict(files)) if files else payload
            renamed = (
                renamed if renamed.get("id") else {**renamed, "id": new_id("item")}
            )
            yield _item(row, position, origin, renamed)


def _read_calls(
    rows: Sequence[Turn], turns: Sequence[ReadTurn], files: Mapping[str, str]
) -> Iterator[ToolCall]:
    for row, turn in zip(rows, turns, strict=True):
        for fields in turn.calls:
            delivered_in = fields["delivered_in"]
            changed = {
                "output": rename_files(fields["output"], dict(files)),
                "delivered_in": None if delivered_in is None else rows[delivered_in],
                # Else its result would still be delivered, which calls a model.
                "blocking": delivered_in is None,
            }
            yield ToolCall(turn=row, created_at=row.created_at, **{**fields, **changed})


__all__ = [
    "Names",
    "UploadRefused",
    "is_present",
    "write_document",
    "write_source",
]
