"""Reading of Parley's own format into rows; see `conversations.transfer.parley_format`.

The file may be written by anybody, so every member is checked, and nothing that is read
can run: turns and calls are finished, and options are those that a client may set,
without tools.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.conf import settings
from django.utils.formats import number_format
from django.utils.translation import gettext as _

from conversations.input.checks import InputError, inline_size
from conversations.input.items import is_file_url, options_of
from conversations.models import Item, TitleSource, ToolCall, Turn
from conversations.transfer.json_stream import LongText
from conversations.transfer.parley_format import FORMAT
from conversations.transfer.source import (
    MAX_MESSAGES,
    Unreadable,
    mapping,
    name,
    objects,
    text,
    time,
    title,
)
from conversations.turns.attachments import MISSING_FILE_NOTE
from conversations.turns.file_kinds import TEXT, clean_name, content_type_of
from llm.wire.items import CITED_TEXT
from llm.wire.items import Item as ItemPayload
from llm.wire.sanitize import sanitize_json

_FINISHED = [each for each in Turn.Status if each not in Turn.UNFINISHED]
_ROLES = ("user", "assistant", "system", "developer")
#: Members that the pages and requests take for texts.
_TEXTS = (
    "id",
    "status",
    "name",
    "call_id",
    "parley:call_id",
    "parley:call_name",
    "arguments",
    "server_label",
    "error_code",
)
_FILE_PARTS = ("input_image", "input_file")
_ANNOTATION_TEXTS = ("type", "url", "title", "filename", CITED_TEXT)
#: Options that no page shows: what a stranger has declared would get the messages that
#: the reader writes on, and answers that were stored would be given out.
_UNSEEN = ("tools", "tool_choice", "cache_seconds")
MAX_TURNS = 20_000
_FILE_ID = re.compile(r"[\w-]{1,100}", re.ASCII)  # also a provider's
_PARAMETER = re.compile(r";[\w-]+=[\w.+-]+")  # of a media type
AUTHOR_LENGTH = 150  # characters of a username


@dataclass(frozen=True, slots=True)
class ReadFile:
    id: str  # its name in the document
    name: str
    content_type: str
    size: int  # bytes
    at: datetime | None
    encoded: str | LongText  # in base64

    def read(self) -> bytes:
        return b64decode(_load(self.encoded))


@dataclass(slots=True, kw_only=True)
class ReadTurn:
    parent: int | None
    caused_by: int | None
    model: str | None
    fields: dict[str, Any]  # of the row
    items: list[tuple[str, ItemPayload]]  # origin and payload
    calls: list[dict[str, Any]]  # fields of the rows; `delivered_in` is a number


@dataclass(slots=True, kw_only=True)
class ReadConversation:
    id: str
    fields: dict[str, Any]  # of the row
    model: str | None
    preset: str | None
    folder: str
    tags: list[str]
    at: datetime | None
    files: list[ReadFile]
    turns: list[ReadTurn]
    left_out: Counter[str] = field(default_factory=Counter)


def recognises(value: dict[str, Any]) -> bool:
    return isinstance(value.get("format"), str) and value["format"].startswith(
        "parley.conversation."
    )


def read(
    value: dict[str, Any], texts: Mapping[str, LongText] | None = None
) -> ReadConversation:
    """`texts` are contents of files, by the names that the object has instead of them.
    Raises Unreadable."""
    if value["format"] != FORMAT:
        words = _("Its format is “%(found)s”; we read “%(known)s”.")
        raise Unreadable(words % {"found": value["format"][:50], "known": FORMAT})
    try:
        value = sanitize_json(value)
    except ValueError as exc:
        raise Unreadable(_("It is nested too deeply.")) from exc
    if (id := name(value.get("id"))) is None:
        raise Unreadable(_("It has no id."))
    left_out: Counter[str] = Counter()
    rows = objects(value.get("turns"))
    if len(rows) > MAX_TURNS:
        words = _("It has more than %(count)s turns.")
        raise Unreadable(
            words % {"count": number_format(MAX_TURNS, force_grouping=True)}
        )
    turns = [_turn(row, number, len(rows), left_out) for number, row in enumerate(rows)]
    if sum(len(turn.items) for turn in turns) > MAX_MESSAGES:
        words = _("It has more than %(count)s items.")
        raise Unreadable(
            words % {"count": number_format(MAX_MESSAGES, force_grouping=True)}
        )
    return ReadConversation(
        id=id,
        fields={
            "title": text(value.get("title"), 200),
            "title_source": _one_of(
                value.get("title_source"), TitleSource.values, TitleSource.WORDS
            ),
            "instructions": text(value.get("instructions"), settings.MAX_INPUT_SIZE),
            "options": _options(value.get("options"), left_out),
            "updated_at": time(value.get("updated_at")),
            "pinned_at": time(value.get("pinned_at")),
            "archived_at": time(value.get("archived_at")),
        },
        model=name(value.get("model")),
        preset=name(value.get("preset")),
        folder=text(value.get("folder"), 100).strip(),
        tags=_tags(value.get("tags")),
        at=time(value.get("created_at")),
        files=_files(value.get("attachments"), texts or {}, left_out),
        turns=turns,
        left_out=left_out,
    )


def _turn(
    row: dict[str, Any], number: int, count: int, left_out: Counter[str]
) -> ReadTurn:
    """The turn of this number, of `count` turns."""
    items = [
        (origin, payload)
        for each in objects(row.get("items"))
        if (origin := each.get("origin")) in Item.Origin.values
        and (payload := _payload(each.get("payload"), left_out)) is not None
    ]
    error, usage = mapping(row.get("error")), mapping(row.get("usage"))
    notes = [n for n in objects(row.get("notes")) if _is_turn_note(n)]
    return ReadTurn(
        parent=_earlier(row.get("parent"), number),
        caused_by=_earlier(row.get("caused_by"), number),
        model=name(row.get("model")),
        fields={
            "author_name": title(row.get("author_name"))[:AUTHOR_LENGTH],
            "status": _one_of(row.get("status"), _FINISHED, Turn.Status.INCOMPLETE),
            "incomplete_reason": text(row.get("incomplete_reason"), 40),
            "options": _options(row.get("options"), left_out),
            "error": {n: text(error.get(n), 2000) for n in ("code", "message")}
            if error
            else None,
            "usage": usage if _are_counts(usage) else None,
            "inline_bytes": inline_size(payload for _origin, payload in items),
            "notes": [{k: text(v, 2000) for k, v in n.items()} for n in notes[:100]],
            "created_at": time(row.get("created_at")),
            "started_at": time(row.get("started_at")),
            "finished_at": time(row.get("finished_at")),
        },
        items=items,
        calls=_calls(row.get("tool_calls"), count),
    )


def _earlier(value: Any, number: int) -> int | None:
    """The number of an earlier turn; so there is no circle."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and 0 <= value < number else None


def _are_counts(usage: Mapping[str, Any]) -> bool:
    names = ("input_tokens", "output_tokens", "total_tokens")
    return all(isinstance(usage.get(each), int) for each in names)


def _options(value: Any, left_out: Counter[str]) -> dict[str, Any]:
    try:
        options = options_of(mapping(value))
    except InputError:
        left_out["options that cannot be set"] += 1
        return {}
    left_out["options that cannot be set"] += len(options.keys() & {*_UNSEEN})
    return {name: each for name, each in options.items() if name not in _UNSEEN}


def _payload(value: Any, left_out: Counter[str]) -> ItemPayload | None:
    """The item if pages and requests can take it; None otherwise."""
    payload = _without_bad_files(mapping(value), left_out)
    if _is_item(payload):
        return payload
    left_out["items that cannot be read"] += 1
    return None


def _without_bad_files(item: dict[str, Any], left_out: Counter[str]) -> dict[str, Any]:
    """The item with a note instead of each file that cannot be read."""
    changed = {
        field: [_readable_part(part, left_out) for part in item[field]]
        for field in ("content", "output")
        if isinstance(item.get(field), list)
    }
    return {**item, **changed}


def _readable_part(part: Any, left_out: Counter[str]) -> Any:
    is_file = isinstance(part, dict) and part.get("type") in _FILE_PARTS
    if not is_file or _has_usable_file(part):
        return part
    left_out["files that cannot be read"] += 1
    return {"type": "input_text", "text": MISSING_FILE_NOTE}


def _is_item(item: dict[str, Any]) -> bool:
    if not name(item.get("type")) or len(item["type"]) > 50:
        return False
    if any(n in item and not isinstance(item[n], str) for n in _TEXTS):
        return False
    match item["type"]:
        case "message":
            return item.get("role") in _ROLES and _has_parts(item.get("content"))
        case "function_call":
            return all(n in item for n in ("call_id", "name", "arguments"))
        case "function_call_output":
            output = item.get("output")
            is_text = isinstance(output, str)
            return "call_id" in item and (is_text or _has_parts(output))
        case "reasoning":
            return all(_has_parts(item.get(n) or []) for n in ("summary", "content"))
        case "compaction":
            return False  # it names items by ids of another site
    return "id" in item


def _has_parts(value: Any) -> bool:
    """Whether it is a list of content parts with the texts that their types have."""
    return isinstance(value, list) and all(map(_is_part, value))


def _is_part(part: Any) -> bool:
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        return False
    names = ("text", "refusal", "file_id", "filename", "image_url", "file_data")
    if any(n in part and not isinstance(part[n], str) for n in names):
        return False
    if not _has_usable_file(part):
        return False
    if part["type"] in ("input_text", "output_text", "summary_text", "reasoning_text"):
        notes = part.get("annotations", [])
        return "text" in part and isinstance(notes, list) and all(map(_is_note, notes))
    return part["type"] in ("refusal", "input_image", "input_file")


def _has_usable_file(part: dict[str, Any]) -> bool:
    """Pages make an address of the id. What is written into the part must be in the
    form that is counted for the quota and scanned."""
    id, picture, data = (part.get(n) for n in ("file_id", "image_url", "file_data"))
    if not all(isinstance(each or "", str) for each in (id, picture, data)):
        return False
    return (
        (not id or _FILE_ID.fullmatch(id) is not None)
        and (not picture or is_file_url(_in_short(picture), is_picture=True))
        and (not data or is_file_url(_in_short(data), is_picture=False))
    )


def _in_short(url: str) -> str:
    """A data: URL without the parameters and line breaks that it may have."""
    head, comma, data = url.partition(",")
    if not head.startswith("data:"):
        return url
    return _PARAMETER.sub("", head) + comma + "".join(data.split())


def _is_turn_note(note: dict[str, Any]) -> bool:
    """Whether the page can show it."""
    return all(isinstance(note.get(each), str) for each in ("kind", "text"))


def _is_note(note: Any) -> bool:
    """Whether it can be an annotation."""
    return isinstance(note, dict) and all(
        isinstance(note.get(each) or "", str) for each in _ANNOTATION_TEXTS
    )


def _calls(value: Any, count: int) -> list[dict[str, Any]]:
    calls: dict[str, dict[str, Any]] = {}
    for row in objects(value):
        call_id = text(row.get("call_id"), 64)
        if not call_id:
            continue
        attempts = row.get("attempts")
        calls[call_id] = {
            "call_id": call_id,
            "name": text(row.get("name"), 128),
            "state": _one_of(
                row.get("state"), ToolCall.FINISHED, ToolCall.State.CANCELLED
            ),
            "attempts": attempts if attempts in range(1000) else 0,
            "delivered_in": _earlier(row.get("delivered_in"), count),
            "output": row.get("output"),
            "error": text(row.get("error"), 500),
            "started_at": time(row.get("started_at")),
            "ended_at": time(row.get("ended_at")),
        }
    return list(calls.values())


def _files(
    value: Any, texts: Mapping[str, LongText], left_out: Counter[str]
) -> list[ReadFile]:
    """Each is decoded here and again where it is stored, so that they are not all in
    memory at once."""
    files = []
    for row in objects(value):
        written = row.get("data")
        written = written if isinstance(written, str) else ""
        id, encoded = name(row.get("id")), texts.get(written, written)
        data = _decode(encoded)
        kind = content_type_of(data) if data else None
        is_long = kind == TEXT and len(data or b"") > settings.MAX_INPUT_SIZE
        if id is None or kind is None or data is None or is_long:
            left_out["files that cannot be read"] += 1
            continue
        label = clean_name(text(row.get("name"), 255), kind)
        at = time(row.get("created_at"))
        files.append(ReadFile(id, label, kind, len(data), at, encoded))
    return files


def _load(encoded: str | LongText) -> str | bytes:
    return encoded.read() if isinstance(encoded, LongText) else encoded


def _decode(encoded: str | LongText) -> bytes | None:
    if isinstance(encoded, LongText) and encoded.size > 2 * settings.MAX_UPLOAD_SIZE:
        return None
    try:
        data = b64decode(_load(encoded), validate=True)
    except (binascii.Error, ValueError):
        return None
    return data if data and len(data) <= settings.MAX_UPLOAD_SIZE else None


def _tags(value: Any) -> list[str]:
    names = value[:20] if isinstance(value, list) else []
    return [found for each in names if (found := title(each)[:50])]


def _one_of(value: Any, values: Any, otherwise: str) -> str:
    return value if isinstance(value, str) and value in values else otherwise
