"""One reading of an import's file: its conversations become rows. Synchronous.

OwnerGone    the account was deleted
LeaseLost    another process reads the file
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import IO, Any

from django.contrib.auth import get_user_model
from django.db import IntegrityError, InterfaceError, OperationalError, transaction
from django.utils import timezone
from django.utils.formats import number_format
from django.utils.translation import gettext as _

from conversations.access.user_lock import lock_user
from conversations.models.conversation_import import (
    MAX_REASONS,
    ConversationImport,
)
from conversations.transfer import parley_reader
from conversations.transfer.archive import (
    DamagedEntry,
    explaining_full_disk,
    is_archive,
    read_entries,
)
from conversations.transfer.import_threads import call_beside
from conversations.transfer.imported_rows import (
    Names,
    UploadRefused,
    is_present,
    write_document,
    write_source,
)
from conversations.transfer.json_stream import (
    LongText,
    NoJSON,
    NotReadable,
    Value,
    describe_limit,
    read_values,
)
from conversations.transfer.omissions import describe
from conversations.transfer.source import Unreadable
from conversations.transfer.sources import chatgpt, claude, librechat, open_webui
from conversations.turns.file_deletion import delete_later
from conversations.turns.file_storage import FilesUnavailable, are_local
from llm.db.clock import database_now

logger = logging.getLogger(__name__)

MAX_CONVERSATIONS = 100_000  # of one import
SAVE_INTERVAL = 1.0  # seconds between two writes of the progress
RENEWAL = 10.0  # seconds between two renewals of the lease while a storage is slow
#: What may be over in a minute: a locked database, a full disk.
PASSING = (OperationalError, InterfaceError, OSError)
_PIECE = 1024 * 1024  # bytes that are copied at once
_SOURCES = (chatgpt, claude, open_webui, librechat)


class TooManyConversations(NotReadable):
    """The rest of the file, and the other files of its archive, are not read."""


class UnknownFormat(Unreadable):
    """A value of something else than a conversation, as far as we know."""


class OwnerGone(Exception):
    """The account was deleted or made inactive: nothing more is written for it."""


class LeaseLost(Exception):
    """Another process has taken the import over, or its row was deleted: this reading
    writes nothing more."""


class ImportRun:
    """One reading of an import's file, from the row's position on.

    A position is a number of steps: each object is one, and each file of an archive
    that could not be read. Position and counts are saved together, so each step counts
    once, wherever an earlier reading was interrupted.
    """

    def __init__(self, row: ConversationImport) -> None:
        self._row = row
        self._names = Names(row.owner)
        self._saved_at = time.monotonic()
        self._count = 0  # objects
        self._step = 0
        self._passed = row.position  # steps of an earlier reading
        self._saved_reasons = len(row.reasons)
        #: Whether a conversation was recognised, in this reading or an earlier one.
        self._is_recognised = bool(row.format or row.imported or row.repeated)
        self._damage: NotReadable | None = None  # of a file of the archive
        self._faults: set[type[Exception]] = set()  # that are in the log
        #: Of a file in which no conversation was recognised yet: its skipped values,
        #: and the step before the first. Another reading begins with that again.
        self._doubtful: list[tuple[str, str, bool]] | None = None
        self._begin = 0

    def read(self) -> None:
        """Raises NotReadable, after what is before the fault was imported, and
        FilesUnavailable."""
        try:
            file = self._open()
        except FilesUnavailable:
            raise
        except (OSError, ValueError) as exc:
            raise NotReadable(_("The uploaded file is not stored any more.")) from exc
        with file:
            if is_archive(file):
                for name, entry in read_entries(file, self._save_sometimes):
                    self._read_entry(entry, name)
            else:
                with tempfile.TemporaryFile() as copy:
                    self._read_file(self._copy_to_disk(file, copy), "")
        if not self._is_recognised:
            raise self._damage or NotReadable(
                _(
                    "No conversations were found. Upload the export of ChatGPT, Claude,"
                    " Open WebUI, LibreChat or Parley: a JSON file, or the ZIP with it."
                )
            )

    @transaction.atomic
    def end(self, state: str, error: str = "") -> None:
        """Note the end, unless another process has taken over or the row was deleted
        meanwhile, with its user."""
        try:
            self._save()
        except LeaseLost:
            self.leave()
            return
        delete_later([self._row.file.name or ""])
        now = timezone.now()
        self._rows().update(state=state, error=error[:500], finished_at=now, file="")

    def leave(self) -> None:
        """Write nothing more. Only a row that was deleted leaves a file behind."""
        logger.warning("import %s is not read here any more", self._row.pk)
        if not ConversationImport.objects.filter(pk=self._row.pk).exists():
            delete_later([self._row.file.name or ""])

    def wait_for_storage(self) -> None:
        """Outages of the storage are no fault of the import, however many there are."""
        self._rows().update(fruitless=0)

    def _rows(self) -> Any:
        """The row, if this is still its latest reading."""
        return ConversationImport.objects.unfinished().filter(
            pk=self._row.pk, epoch=self._row.epoch
        )

    def _open(self) -> Any:
        open_file = partial(self._row.file.open, "rb")
        if are_local():
            return open_file()
        return call_beside(open_file, self._renew, RENEWAL)  # it is downloaded first

    def _copy_to_disk(self, file: Any, copy: IO[bytes]) -> Any:
        """The file if its storage has it on this machine; else `copy`, filled with
        it."""
        try:
            file.fileno()
            return file
        except (AttributeError, OSError):
            with explaining_full_disk():
                for piece in iter(lambda: file.read(_PIECE), b""):
                    copy.write(piece)
                    self._save_sometimes()
                copy.flush()
            return copy

    def _read_entry(self, entry: IO[bytes] | DamagedEntry, name: str) -> None:
        if isinstance(entry, DamagedEntry):
            self._damage = entry
            self._skip_file(name, str(entry))
            return
        self._doubtful, self._begin = [], self._step
        self._read_file(entry, name)
        self._settle(name)

    def _read_file(self, file: Any, name: str) -> None:
        found = self._count
        try:
            for value in read_values(file, self._save_sometimes):
                self._read_value(value)
        except TooManyConversations:
            raise
        except NotReadable as exc:
            if not name and isinstance(exc, NoJSON):
                return  # the person learns which files can be imported
            if not name:
                raise
            self._settle(name)
            self._skip_file(name, str(exc), is_counted=not isinstance(exc, NoJSON))
            return
        if name and self._count == found:
            words = _("It has no conversations.")
            self._skip_file(name, words, is_counted=False)

    def _skip_file(self, name: str, reason: str, *, is_counted: bool = True) -> None:
        """Note why the file was skipped, and count it if it seems to have
        conversations."""
        if self._is_new_step():
            self._row.skipped += is_counted
            self._note(name, reason)

    def _skip_value(self, label: str, reason: str, is_unknown: bool) -> None:
        """Count the value as skipped, once its file is known to have conversations:
        values in other files of an archive do not count."""
        if self._doubtful is None:
            self._skip(label, reason)
        else:
            self._doubtful.append((label, reason, is_unknown))

    def _recognise(self) -> None:
        """The file has conversations, so its other values were skipped."""
        self._is_recognised = True
        doubtful, self._doubtful = self._doubtful, None
        for label, reason, _is_strange in doubtful or ():
            self._skip(label, reason)

    def _settle(self, name: str) -> None:
        """At the end of a file: nothing in it was recognised."""
        doubtful, self._doubtful = self._doubtful or [], None
        for label, reason, is_unknown in doubtful:
            if not is_unknown:
                self._skip(label, reason)
        if any(is_unknown for _label, _reason, is_unknown in doubtful):
            self._note(name, _("It has no conversations."))

    def _is_new_step(self) -> bool:
        self._step += 1
        return self._step > self._passed

    def _read_value(self, value: Value) -> None:
        self._count += 1
        if self._count > MAX_CONVERSATIONS:
            words = _(
                "The file has more than %(count)s conversations; import it in parts."
            )
            raise TooManyConversations(
                words % {"count": number_format(MAX_CONVERSATIONS, force_grouping=True)}
            )
        if not self._is_new_step():
            self._doubtful = None  # an earlier reading has settled it
            return
        label = _("Conversation %(number)s") % {"number": self._count}
        try:
            parsed = value.parse()
            label = label_of(parsed) or label
            self._import(parsed, value.texts, label)
        except UnknownFormat as exc:
            self._skip_value(label, str(exc), is_unknown=True)
        except (NotReadable, Unreadable, UploadRefused) as exc:
            self._skip_value(label, str(exc), is_unknown=False)
        except (OwnerGone, LeaseLost, *PASSING):
            raise
        except Exception as exc:  # the others do not wait for this one
            self._log_fault(exc)
            words = _("Internal error; tell the staff the number of this import.")
            self._skip_value(label, words, is_unknown=False)
        self._save_sometimes()

    def _import(
        self, value: dict[str, Any], texts: Mapping[str, LongText], label: str
    ) -> None:
        if parley_reader.recognises(value):
            self._note_program("parley")
            document = parley_reader.read(value, texts)
            key = f"parley:{document.id}"
            id, left_out = document.id, document.left_out
            write = partial(
                write_document,
                self._names,
                document,
                key,
                note_progress=self._renew_sometimes,
            )
        elif texts:  # only Parley's format may have long texts
            raise Unreadable(describe_limit())
        else:
            reader = next((each for each in _SOURCES if each.recognises(value)), None)
            if reader is None:
                raise UnknownFormat(_("It is in no format that we read."))
            self._note_program(reader.PROGRAM)
            source = reader.read(value)
            key = f"{source.program}:{source.id}"
            id, left_out = "", source.left_out
            write = partial(write_source, self._names, source, key)

        def note_written() -> None:
            self._check_owner()
            self._row.imported += 1
            if missing := describe(left_out):
                words = _("Imported without %(parts)s.")
                self._note(label, words % {"parts": missing})
            self._save()

        self._write_once(write, note_written, key, id)

    def _check_owner(self) -> None:
        """At the end of a conversation's transaction. One that closes the account waits
        for it and hides the conversation, or was first. Raises OwnerGone."""
        owner = self._row.owner
        lock_user(owner)
        active = get_user_model()._default_manager.filter(pk=owner.pk, is_active=True)
        if not active.exists():
            raise OwnerGone

    def _note_program(self, program: str) -> None:
        """Saved with the next position, so that a later reading knows it too."""
        self._recognise()
        self._row.format = self._row.format or program

    def _write_once(
        self,
        write: Callable[[Callable[[], None]], None],
        note_written: Callable[[], None],
        key: str,
        id: str,
    ) -> None:
        """Write the conversation, unless it is there already. Another import of the
        user may write the same conversation, folder or tag at once."""
        imported, noted = self._row.imported, len(self._row.reasons)
        for is_last_try in (False, True):
            if is_present(self._row.owner, key, id):
                self._row.repeated += 1
                return
            try:
                write(note_written)
                return
            except Exception as exc:
                self._row.imported = imported
                del self._row.reasons[noted:]
                self._saved_reasons = -1  # what was saved is rolled back, or unknown
                if is_last_try or not isinstance(exc, IntegrityError):
                    raise

    def _log_fault(self, exc: Exception) -> None:
        """Once in a reading: thousands of conversations may have the same fault. The
        type alone: the message may quote the conversation."""
        if type(exc) not in self._faults:
            self._faults.add(type(exc))
            values = self._row.pk, self._count, type(exc).__name__
            logger.error("import %s skipped conversation %s: %s", *values)

    def _skip(self, label: str, reason: str) -> None:
        self._row.skipped += 1
        self._note(label, reason)

    def _note(self, label: str, reason: str) -> None:
        if len(self._row.reasons) < MAX_REASONS:
            self._row.reasons.append({"title": label[:200], "reason": reason[:300]})

    def _save_sometimes(self) -> None:
        """Save the progress, so that no other process takes the import over."""
        if time.monotonic() - self._saved_at >= SAVE_INTERVAL:
            self._save()

    def _renew_sometimes(self) -> None:
        """Like `_save_sometimes`, within a step, which the position would pass."""
        if time.monotonic() - self._saved_at >= SAVE_INTERVAL:
            self._renew()

    def _renew(self) -> None:
        self._saved_at = time.monotonic()
        self._write(seen_at=database_now())

    def _write(self, **changed: Any) -> None:
        """Raises LeaseLost."""
        if not self._rows().update(**changed):
            raise LeaseLost

    def _save(self) -> None:
        row = self._row
        self._saved_at = time.monotonic()
        step = self._step if not self._doubtful else self._begin
        changed = {
            "seen_at": database_now(),
            "position": max(step, self._passed),
            "imported": row.imported,
            "repeated": row.repeated,
            "skipped": row.skipped,
            "format": row.format,
        }
        if len(row.reasons) != self._saved_reasons:  # they may be long
            changed["reasons"] = row.reasons
            self._saved_reasons = len(row.reasons)
        if step > self._passed:
            changed["fruitless"] = 0
        self._write(**changed)


def label_of(value: Any) -> str:
    """The title by which the report names the conversation."""
    for name in ("title", "name"):
        if isinstance(value, dict) and isinstance(value.get(name), str):
            return " ".join(value[name][:200].replace("\0", " ").split())
    return ""
