"""The file format of an exported conversation, "parley.conversation.v1".

One JSON object: its members in alphabetical order at every level, times in UTC with
microseconds, turns in the order in which they were opened. A turn names its parent by
its number in the list, and items name files by `file_1`, `file_2`, …, so the same
conversation gives the same bytes wherever it was imported. Members:

    format, id, title, title_source, model, preset, folder, tags, instructions, options,
    created_at, updated_at, pinned_at, archived_at,
    attachments   id, name, content_type, created_at, data (base64)
    turns         parent, caused_by, author_name (of another than the owner), status,
                  incomplete_reason, model, options, error, usage, notes, created_at,
                  started_at, finished_at, items, tool_calls
    tool_calls    of a turn: call_id, name, state, attempts, delivered_in (the number of
                  the turn that got the result of a background call), output, error,
                  started_at, ended_at

What is not in it: figures of model calls, which are the site's accounts; providers'
proofs, which only their issuer can read; unfinished output of a turn that still runs.
Such a turn is written as `incomplete`.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

FOLDER_FILES = "folder-files/"  # where an archive has the files of folders
FORMAT = "parley.conversation.v1"
FILE_NAME = re.compile(r"file_[0-9]{1,9}")  # what an export calls a file
EXPORTED_UNFINISHED = "exported_unfinished"  # reason of a turn that still ran


def dump(value: Any) -> bytes:
    """The one form in which a value is written."""
    text = json.dumps(
        value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=str
    )
    return text.encode(errors="replace")


def write_time(at: datetime | None) -> str | None:
    if at is None:
        return None
    utc = at.astimezone(UTC).replace(tzinfo=None)
    return f"{utc.isoformat(timespec='microseconds')}Z"


def rename_files(value: Any, names: dict[str, str]) -> Any:
    """`value` with the ids of files in its members `file_id` replaced."""
    if isinstance(value, list):
        return [rename_files(each, names) for each in value]
    if not isinstance(value, dict):
        return value
    renamed = {key: rename_files(each, names) for key, each in value.items()}
    file_id = renamed.get("file_id")
    if isinstance(file_id, str) and file_id in names:
        renamed["file_id"] = names[file_id]
    return renamed


def find_files(value: Any) -> list[str]:
    """The values of all members `file_id`, in order."""
    if isinstance(value, list):
        return [found for each in value for found in find_files(each)]
    if not isinstance(value, dict):
        return []
    found = [name for key in sorted(value) for name in find_files(value[key])]
    file_id = value.get("file_id")
    return [file_id, *found] if isinstance(file_id, str) else found
