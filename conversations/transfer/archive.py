"""JSON files of an uploaded ZIP archive, unpacked one after the other onto the disk."""

from __future__ import annotations

import errno
import shutil
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
#: An archive may have so many times its own size when it is unpacked, but at least so
#: many bytes, and never more than so many times `IMPORT_MAX_SIZE`.
UNPACKED_FACTOR = 50
UNPACKED_LEAST = 200_000_000
UNPACKED_MAX_FACTOR = 20
#: Free bytes that unpacking leaves in the folder of temporary files, or a quarter of a
#: small one: uploads and bodies of requests of other people need it too.
RESERVE = 500_000_000
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
    "conversation_asset_file_names.json",
    "export_manifest.json",
    "group_chats.json",
    "library_files.json",
    "memories.json",
    "message_feedback.json",
    "model_comparisons.json",
    "projects.json",
    "shared_conversations.json",
    "tool_messages.json",
    "user.json",
    "user_settings.json",
    "users.json",
}
_MAC_FOLDER = "__MACOSX/"  # the Finder's, with a file of attributes for each other file


class DamagedEntry(NotReadable):
    """A file of the archive cannot be unpacked; the others may."""


def is_archive(file: IO[bytes]) -> bool:
    """True also for an archive whose end, with the list of its files, is missing."""
    file.seek(0)
    begins = file.read(len(_ARCHIVE_START)) == _ARCHIVE_START
    found = begins or zipfile.is_zipfile(file)
    file.seek(0)
    return found


def read_entries(
    file: IO[bytes], note_progress: Callable[[], None]
) -> Iterator[tuple[str, IO[bytes] | DamagedEntry]]:
    """Each file with its name, or why it cannot be unpacked; it is closed when the next
    one is wanted.

    Calls `note_progress` while it unpacks. Raises NotReadable where the rest of the
    archive cannot be read either.
    """
    with _open(file) as archive:
        entries = [each for each in archive.infolist() if _is_wanted(each)]
        if len(entries) > MAX_ENTRIES:
            raise _too_many_files()
        room = _Room(file.seek(0, 2))
        for entry in entries:
            with tempfile.TemporaryFile() as unpacked:
                try:
                    _unpack(archive, entry, unpacked, room, note_progress)
                except DamagedEntry as exc:
                    yield entry.filename, exc
                else:
                    yield entry.filename, unpacked


def _open(file: IO[bytes]) -> zipfile.ZipFile:
    with _explaining_damage():
        return zipfile.ZipFile(_BoundedReads(file))


def _unpack(
    archive: zipfile.ZipFile,
    entry: zipfile.ZipInfo,
    to: IO[bytes],
    room: _Room,
    note_progress: Callable[[], None],
) -> None:
    """Write the entry to `to`. Raises NotReadable where it is too large, whatever the
    archive says of its size."""
    if entry.compress_type not in _METHODS:
        raise DamagedEntry(
            _(
                "The archive is compressed in an unusual way; unpack it and upload"
                " the JSON, or pack it again as an ordinary ZIP."
            )
        )
    with explaining_full_disk():
        for piece in _pieces(archive, entry):
            room.take(len(piece))
            to.write(piece)
            note_progress()
        to.flush()


def _pieces(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Iterator[bytes]:
    with _explaining_damage(), archive.open(entry) as packed:
        while piece := packed.read(PIECE):
            yield piece


@contextmanager
def _explaining_damage() -> Iterator[None]:
    """Raises DamagedEntry."""
    try:
        yield
    except _DAMAGED as exc:
        raise _damaged() from exc
    except OSError as exc:
        # An archive whose beginning is missing has offsets before its first byte.
        if exc.errno != errno.EINVAL:
            raise
        raise _damaged() from exc


class _Room:
    """What an archive of this size may still write to the disk."""

    def __init__(self, size: int) -> None:
        most = settings.IMPORT_MAX_SIZE * UNPACKED_MAX_FACTOR
        self._limit = min(most, max(UNPACKED_LEAST, size * UNPACKED_FACTOR))
        self._left = self._limit

    def take(self, size: int) -> None:
        """Count bytes that are about to be written. Raises NotReadable if they are too
        many."""
        self._left -= size
        if self._left < 0:
            words = _(
                "The archive is too large when it is unpacked; the limit is %(limit)s."
            )
            raise NotReadable(words % {"limit": format_size(self._limit)})
        folder = shutil.disk_usage(tempfile.gettempdir())
        if folder.free - size < min(RESERVE, folder.total // 4):
            raise _no_room()


@contextmanager
def explaining_full_disk() -> Iterator[None]:
    """Raises NotReadable where the disk is full."""
    try:
        yield
    except OSError as exc:
        if exc.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _no_room() from exc
        raise


def _no_room() -> NotReadable:
    return NotReadable(
        _(
            "The server has no room for the unpacked file now. Try again later, or"
            " import it in parts."
        )
    )


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


def _is_wanted(entry: zipfile.ZipInfo) -> bool:
    base = entry.filename.rpartition("/")[2].lower()
    if entry.filename.startswith(_MAC_FOLDER) or base.startswith("._"):
        return False
    if f"/{FOLDER_FILES}" in f"/{entry.filename}":  # also where it was packed again
        return False
    return base.endswith(".json") and base not in _OTHER_FILES


def _damaged() -> DamagedEntry:
    return DamagedEntry(
        _("The archive is damaged or encrypted; unpack it and upload the JSON.")
    )
