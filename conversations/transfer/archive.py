"""JSON files of an uploaded ZIP archive, unpacked one after the other onto the disk."""

from __future__ import annotations

import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO

from django.conf import settings
from django.utils.formats import number_format
from django.utils.translation import gettext as _

from conversations.transfer.json_stream import NotReadable
from conversations.transfer.parley_format import FOLDER_FILES
from conversations.turns.file_kinds import format_size

MAX_ENTRIES = 20_000  # files in an archive
MAX_DIRECTORY = 8 * 1024 * 1024  # bytes of an archive's list of files
_ARCHIVE_START = b"PK\x03\x04"  # of its first file
UNPACKED_FACTOR = 20  # times the largest upload may an archive have when unpacked
#: Python unpacks the other methods into memory without a limit.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
#: What `zipfile` raises for an archive that is damaged or encrypted.
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    NotImplementedError,
    RuntimeError,
    EOFError,
    UnicodeDecodeError,  # of a file's name
    struct.error,
)
PIECE = 1024 * 1024  # bytes that are unpacked at once
#: Files of these archives that hold something else.
_OTHER_FILES = {
    "account.json",
    "user.json",
    "users.json",
    "projects.json",
    "memories.json",
    "message_feedback.json",
    "model_comparisons.json",
    "shared_conversations.json",
    "tool_messages.json",
}


def is_archive(file: IO[bytes]) -> bool:
    """True also for an archive whose end, with the list of its files, is missing."""
    file.seek(0)
    begins = file.read(len(_ARCHIVE_START)) == _ARCHIVE_START
    found = begins or zipfile.is_zipfile(file)
    file.seek(0)
    return found


def read_entries(
    file: IO[bytes], note_progress: Callable[[], None]
) -> Iterator[tuple[str, IO[bytes]]]:
    """Each file with its name; it is closed when the next one is wanted.

    Calls `note_progress` while it unpacks. Raises NotReadable.
    """
    with _open(file) as archive:
        entries = [each for each in archive.infolist() if _is_wanted(each)]
        if len(entries) > MAX_ENTRIES:
            raise _too_many_files()
        left = settings.IMPORT_MAX_SIZE * UNPACKED_FACTOR
        for entry in entries:
            with tempfile.TemporaryFile() as unpacked:
                left -= _unpack(archive, entry, unpacked, left, note_progress)
                yield entry.filename, unpacked


def _open(file: IO[bytes]) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(_BoundedReads(file))
    except _DAMAGED as exc:
        raise _damaged() from exc


def _unpack(
    archive: zipfile.ZipFile,
    entry: zipfile.ZipInfo,
    to: IO[bytes],
    left: int,
    note_progress: Callable[[], None],
) -> int:
    """Write the entry to `to` and return its size. Raises NotReadable where it has
    more than `left` bytes, whatever the archive says."""
    if entry.compress_type not in _METHODS:
        raise NotReadable(
            _(
                "The archive is compressed in an unusual way; unpack it and upload"
                " the JSON, or pack it again as an ordinary ZIP."
            )
        )
    size = 0
    for piece in _pieces(archive, entry):
        size += len(piece)
        if size > left:
            raise _too_large_unpacked()
        to.write(piece)
        note_progress()
    to.flush()
    return size


def _pieces(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Iterator[bytes]:
    try:
        with archive.open(entry) as packed:
            while piece := packed.read(PIECE):
                yield piece
    except _DAMAGED as exc:
        raise _damaged() from exc


class _BoundedReads:
    """An archive's file. Its list of files is read at once, before the number of files
    is known; a list that would fill the memory is refused. Raises NotReadable."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        if size > MAX_DIRECTORY:
            raise _too_many_files()
        return self._file.read(size)


def _too_many_files() -> NotReadable:
    words = _("The archive has more than %(count)s files.")
    return NotReadable(
        words % {"count": number_format(MAX_ENTRIES, force_grouping=True)}
    )


def _too_large_unpacked() -> NotReadable:
    words = _("The archive is too large when it is unpacked; the limit is %(limit)s.")
    limit = settings.IMPORT_MAX_SIZE * UNPACKED_FACTOR
    return NotReadable(words % {"limit": format_size(limit)})


def _is_wanted(entry: zipfile.ZipInfo) -> bool:
    base = entry.filename.rpartition("/")[2].lower()
    if f"/{FOLDER_FILES}" in f"/{entry.filename}":  # also where it was packed again
        return False
    return base.endswith(".json") and base not in _OTHER_FILES


def _damaged() -> NotReadable:
    return NotReadable(
        _("The archive is damaged or encrypted; unpack it and upload the JSON.")
    )
