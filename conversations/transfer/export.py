"""Export of conversations: JSON that can be imported again, and Markdown to read.

All functions yield bytes piece by piece, so that neither the files of a conversation
nor all conversations of a user are in memory at once. Synchronous.
"""

from __future__ import annotations

import io
import re
import zipfile
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext as _

from conversations.input.items import OPTION_NAMES
from conversations.models import (
    Attachment,
    Conversation,
    ConversationQuerySet,
    FolderFile,
    Item,
    ToolCall,
    Turn,
)
from conversations.models.item import CONTINUES
from conversations.transfer.parley_format import (
    EXPORTED_UNFINISHED,
    FOLDER_FILES,
    FORMAT,
    dump,
    find_files,
    rename_files,
    write_time,
)
from conversations.turns.file_kinds import clean_name
from conversations.turns.file_storage import FilesUnavailable
from llm.wire.items import text_of
from tools.loop.late_results import CALL_ID_KEY, CALL_NAME_KEY

PIECE = 3 * 64 * 1024  # bytes of a file that are encoded at once; divisible by three
ACCOUNT_FILE = "account.json"
MISSING_FILES = "missing-files.txt"  # names the files that are no longer stored
SUFFIXES = {"json": "json", "markdown": "md"}
CONTENT_TYPES = {"json": "application/json", "markdown": "text/markdown"}
_IMPORTED = "parley:"  # prefix of `import_key`


def write_json(row: Conversation) -> Iterator[bytes]:
    """The conversation as `conversations.transfer.parley_format` describes it."""
    turns = list(
        row.turns.not_deleted()
        .order_by("created_at", "pk")
        .select_related("language_model__provider")
    )
    names = _name_files(row, turns)
    numbers = {turn.pk: number for number, turn in enumerate(turns)}
    head: dict[str, Any] = _head(row)
    for number, name in enumerate(sorted([*head, "attachments", "turns"])):
        yield (b"," if number else b"{") + dump(name) + b":"
        match name:
            case "attachments":
                yield from _joined(_attachment(file, id) for id, file in names)
            case "turns":
                ids = {file.pk: id for id, file in names}
                yield from _joined(
                    iter([dump(_turn(row, turn, numbers, ids))]) for turn in turns
                )
            case _:
                yield dump(head[name])
    yield b"}\n"


def write_markdown(row: Conversation) -> Iterator[bytes]:
    """The messages with their headings, to be read; it cannot be imported."""
    title = " ".join((row.title or row.pk).split())
    yield f"# {title}\n".encode(errors="replace")
    turns = row.turns.not_deleted().order_by("created_at", "pk")
    for turn in turns.select_related("language_model__provider"):
        # No cursor stays open while a client takes its time: over SQLite it would
        # stop checkpoints.
        for item in list(turn.items.order_by("position").defer("provider_data")):
            yield _markdown_of(turn, item).encode(errors="replace")
        if turn.status == Turn.Status.FAILED and turn.error:
            reason = {"reason": turn.error.get("message", "")}
            yield _remark(_("Failed: %(reason)s") % reason).encode(errors="replace")


def write_zip(
    rows: ConversationQuerySet,
    form: str,
    account: bytes | None = None,
    files: Iterable[FolderFile] = (),
) -> Iterator[bytes]:
    """A ZIP archive with a file for each conversation, one of the account, and the
    files of its folders. Raises FilesUnavailable."""
    pks = list(rows.order_by("created_at", "pk").values_list("pk", flat=True))
    stream = _Stream()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        if account is not None:
            archive.writestr(ACCOUNT_FILE, account)
            yield from stream.take()
        yield from _write_files(archive, stream, files)
        for pk in pks:
            row = load(Conversation.objects.filter(pk=pk))
            if row is None:  # erased meanwhile
                continue
            name = f"conversations/{pk}.{SUFFIXES[form]}"
            info = zipfile.ZipInfo(name, _zip_time(row.created_at))
            info.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(info, "w", force_zip64=True) as file:
                for piece in write(row, form):
                    file.write(piece)
                    yield from stream.take()
            yield from stream.take()
    yield from stream.take()


def path_of(file: FolderFile) -> str:
    """Its name in an archive."""
    return f"{FOLDER_FILES}{file.pk}/{clean_name(file.name, file.content_type)}"


def _write_files(
    archive: zipfile.ZipFile, stream: _Stream, files: Iterable[FolderFile]
) -> Iterator[bytes]:
    """A file that is no longer stored is not written, but named. Raises
    FilesUnavailable."""
    missing: list[str] = []
    for row in files:
        try:
            content = row.file.open("rb") if row.file else _open_text(row)
        except (FileNotFoundError, FolderFile.DoesNotExist):  # deleted meanwhile
            missing.append(path_of(row))
            continue
        with content, archive.open(path_of(row), "w", force_zip64=True) as file:
            while piece := content.read(PIECE):
                file.write(piece)
                yield from stream.take()
    if missing:
        archive.writestr(MISSING_FILES, "\n".join([*missing, ""]))
        yield from stream.take()


def _open_text(row: FolderFile) -> io.BytesIO:
    return io.BytesIO(row.text.encode(errors="replace"))


def write(row: Conversation, form: str) -> Iterator[bytes]:
    return write_json(row) if form == "json" else write_markdown(row)


def load(rows: ConversationQuerySet) -> Conversation | None:
    """The first of the rows with what an export needs."""
    related = ("language_model__provider", "preset", "folder")
    return rows.select_related(*related).prefetch_related("tags").first()


def file_name(row: Conversation, form: str) -> str:
    words = re.sub(r"[^\w.-]+", "-", row.title)[:60].strip("-.")
    return f"{words or row.pk}.{SUFFIXES[form]}"


class _Stream(io.RawIOBase):
    """Where `zipfile` writes; it cannot seek, and forgets what was taken."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._pieces.append(bytes(data))
        return len(data)

    def take(self) -> Iterator[bytes]:
        pieces, self._pieces = self._pieces, []
        if pieces:
            yield b"".join(pieces)


def _zip_time(at: datetime) -> tuple[int, int, int, int, int, int]:
    local = timezone.localtime(at)
    year = min(max(1980, local.year), 2107)  # the years that ZIP knows
    return (year, local.month, local.day, local.hour, local.minute, local.second)


def _head(row: Conversation) -> dict[str, Any]:
    names = row.imported_names or {}
    key = row.import_key or ""
    model, preset = row.language_model, row.preset
    return {
        "format": FORMAT,
        "id": key.removeprefix(_IMPORTED) if key.startswith(_IMPORTED) else row.pk,
        "title": row.title,
        "title_source": row.title_source,
        "model": model.public_name if model else names.get("model"),
        "preset": preset.name if preset else names.get("preset"),
        "folder": row.folder.name if row.folder else None,
        "tags": sorted(tag.name for tag in row.tags.all()),
        "instructions": row.instructions,
        "options": _public_options(row.options),
        "created_at": write_time(row.created_at),
        "updated_at": write_time(row.updated_at),
        "pinned_at": write_time(row.pinned_at),
        "archived_at": write_time(row.archived_at),
    }


def _public_options(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name in OPTION_NAMES}


def _turn(
    row: Conversation, turn: Turn, numbers: dict[str, int], files: dict[str, str]
) -> dict[str, Any]:
    items = turn.items.order_by("position").defer("provider_data")
    is_finished = turn.is_finished
    error = turn.error or None
    return {
        "parent": numbers.get(turn.parent_id or ""),
        "caused_by": numbers.get(turn.caused_by_id or ""),
        "author_name": turn.author_name,
        "status": turn.status if is_finished else Turn.Status.INCOMPLETE,
        "incomplete_reason": turn.incomplete_reason
        if is_finished
        else EXPORTED_UNFINISHED,
        "model": _model_name(row, turn, numbers[turn.pk]),
        "options": _public_options(turn.options),
        "error": error and {name: error.get(name) for name in ("code", "message")},
        "usage": turn.usage,
        "notes": turn.notes,
        "created_at": write_time(turn.created_at),
        "started_at": write_time(turn.started_at),
        "finished_at": write_time(turn.finished_at),
        "items": [
            {"origin": item.origin, "payload": rename_files(item.payload, files)}
            for item in items
            if item.type != "compaction"  # it names items by the site's own ids
        ],
        "tool_calls": [
            _tool_call(call, numbers, files) for call in turn.tool_calls.order_by("pk")
        ],
    }


def _model_name(row: Conversation, turn: Turn, number: int) -> str | None:
    if turn.language_model:
        return turn.language_model.public_name
    names: dict[str, str] = (row.imported_names or {}).get("turns", {})
    return names.get(str(number))


def _tool_call(
    call: ToolCall, numbers: dict[str, int], files: dict[str, str]
) -> dict[str, Any]:
    is_over = call.state in ToolCall.FINISHED
    return {
        "call_id": call.call_id,
        "name": call.name,
        "state": call.state if is_over else ToolCall.State.CANCELLED,
        "attempts": call.attempts,
        "delivered_in": numbers.get(call.delivered_in_id or ""),
        "output": rename_files(call.output, files),
        "error": call.error,
        "started_at": write_time(call.started_at),
        "ended_at": write_time(call.ended_at),
    }


def _name_files(
    row: Conversation, turns: Sequence[Turn]
) -> list[tuple[str, Attachment]]:
    """The files with their names in the export, in the order in which messages name
    them, which does not depend on the files' ids."""
    rest = {file.pk: file for file in row.attachments.order_by("created_at", "name")}
    if not rest:
        return []
    found: list[Attachment] = []
    for turn in turns:
        payloads = turn.items.order_by("position").values_list("payload", flat=True)
        for payload in payloads.iterator(chunk_size=20):
            named = [rest.pop(id) for id in find_files(payload) if id in rest]
            found += named
    files = [*found, *rest.values()]
    return [(f"file_{number}", file) for number, file in enumerate(files, 1)]


def _attachment(file: Attachment, id: str) -> Iterator[bytes]:
    """As `dump` would write it; `data` is null if the file is not stored any more."""
    fields = {
        "content_type": file.content_type,
        "created_at": write_time(file.created_at),
    }
    yield dump(fields)[:-1] + b',"data":'
    yield from _data_of(file)
    yield b"," + dump({"id": id, "name": file.name})[1:]


def _data_of(file: Attachment) -> Iterator[bytes]:
    try:
        content = file.file.open("rb")
    except FilesUnavailable:
        raise  # else the export would lack what exists
    except (OSError, ValueError):
        yield b"null"
        return
    with content:
        yield b'"'
        while piece := content.read(PIECE):
            yield b64encode(piece)
        yield b'"'


def _joined(values: Iterator[Iterator[bytes]] | Any) -> Iterator[bytes]:
    """A JSON array of the values."""
    yield b"["
    for number, value in enumerate(values):
        if number:
            yield b","
        yield from value
    yield b"]"


def _markdown_of(turn: Turn, item: Item) -> str:
    payload = item.payload
    match payload.get("type"):
        case "message" if payload.get(CONTINUES):
            return _remark(_("Continued"))
        case "message" if CALL_ID_KEY in payload:
            return _late_result(payload)
        case "message":
            text = _with_files(payload, _text(payload))
            return f"\n## {_speaker(turn, payload)}\n\n{text}\n"
        case "function_call":
            tool = f"`{payload.get('name', '')}`"
            return _remark(_("Called %(tool)s") % {"tool": tool})
        case "compaction":
            return _remark(_("Earlier messages were summarised here for the model."))
    return ""


def _remark(words: str) -> str:
    return f"\n> {words}\n"


def _late_result(payload: Any) -> str:
    """The result of a background call; its heading in the text is for the model."""
    tool = payload.get(CALL_NAME_KEY) or payload[CALL_ID_KEY]
    heading = _("Result of %(tool)s") % {"tool": f"`{tool}`"}
    _first, _blank, text = _text(payload).partition("\n\n")
    return f"\n## {heading}\n\n{_with_files(payload, text)}\n"


def _speaker(turn: Turn, payload: Any) -> str:
    match payload.get("role"):
        case "user":
            return turn.author_name or _("You")
        case "assistant":
            model = turn.language_model
            name = _("Answer")
            return f"{name} ({model.public_name})" if model else name
    return _("System")


def _text(payload: Any) -> str:
    try:
        return text_of(payload)
    except (AttributeError, KeyError, TypeError):
        return ""


def _with_files(payload: Any, text: str) -> str:
    content = payload.get("content")
    parts = content if isinstance(content, list) else []
    files = [part for part in parts if isinstance(part, dict) and "file_id" in part]
    label, picture = _("File"), _("Picture")
    lines = [f"- {label}: {part.get('filename') or picture}" for part in files]
    return "\n\n".join(filter(None, ["\n".join(lines), text]))
