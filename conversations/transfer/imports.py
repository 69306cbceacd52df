"""Imports: accept an uploaded file, and read its conversations into rows.

An import runs on a thread of its own, in the language of the person who began it. Each
conversation is one transaction, which also writes how far the import is. So an import
that a crash or a deploy has interrupted goes on behind the last conversation that it
has written, when the periodic job `resume_imports` takes it up. Conversations of an
earlier import are known by the program's id. Synchronous.

    ImportRefused    the file cannot be accepted
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from threading import Lock, Thread
from typing import IO, Any
from uuid import uuid4

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.files.base import File
from django.db import IntegrityError, connections, transaction
from django.db.models import Q
from django.utils import timezone
from django.utils.formats import number_format
from django.utils.translation import get_language, override
from django.utils.translation import gettext as _

from conversations.access.user_lock import lock_user
from conversations.models.conversation_import import (
    MAX_REASONS,
    ConversationImport,
)
from conversations.transfer import parley_reader
from conversations.transfer.archive import is_archive, read_entries
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
from conversations.turns.attachments import discard, store
from conversations.turns.file_deletion import delete_later
from conversations.turns.file_kinds import TEXT, clean_name, format_size
from conversations.turns.file_storage import FilesUnavailable

logger = logging.getLogger(__name__)

MAX_UNFINISHED = 3  # imports of one user
MAX_CONVERSATIONS = 100_000  # of one import
SAVE_INTERVAL = 1.0  # seconds between two writes of the progress
STALE = timedelta(seconds=60)  # without progress, another process takes over
_PIECE = 1024 * 1024  # bytes that are copied at once
_SOURCES = (chatgpt, claude, open_webui, librechat)
_resuming = Lock()  # one thread of this process takes up imports


class TooManyConversations(NotReadable):
    """The rest of the file, and the other files of its archive, are not read."""


class OwnerGone(Exception):
    """The account was deleted or made inactive: nothing more is written for it."""


class ImportRefused(Exception):
    """The file cannot be accepted; the message says why and what to do."""


def accept(user: Any, file: File[bytes]) -> ConversationImport:
    """Store an uploaded file, to be read by `start`. Raises ImportRefused."""
    size = file.size or 0
    if not size:
        raise ImportRefused(_("The file is empty; choose another one."))
    if size > settings.IMPORT_MAX_SIZE:
        words = _(
            "The file has %(size)s; the limit is %(limit)s. Import it in parts, or ask"
            " the staff to raise IMPORT_MAX_SIZE."
        )
        limit = format_size(settings.IMPORT_MAX_SIZE)
        raise ImportRefused(words % {"size": format_size(size), "limit": limit})
    _check_unfinished(user)
    row = ConversationImport(
        owner=user,
        name=clean_name(file.name or "", TEXT)[:255],
        size=size,
        language=get_language() or "",
    )
    # Before the row is inserted: a slow storage would hold a transaction open.
    store(row, f"{user.pk}-{uuid4().hex}.import", file)
    with ExitStack() as rollback:
        rollback.callback(discard, [row])
        with transaction.atomic():
            lock_user(user)
            _check_unfinished(user)  # again: others may have begun meanwhile
            row.save()
        rollback.pop_all()
    return row


def _check_unfinished(user: Any) -> None:
    if ConversationImport.objects.of(user).unfinished().count() >= MAX_UNFINISHED:
        words = _("%(count)s of your imports are still running; wait for their end.")
        raise ImportRefused(words % {"count": MAX_UNFINISHED})


def start(row: ConversationImport) -> None:
    """Read the file on a thread, once the row is committed."""
    run = partial(_run_on_thread, row.pk)
    transaction.on_commit(
        lambda: Thread(target=run, name=f"import-{row.pk}", daemon=True).start()
    )


def _run_on_thread(pk: int) -> None:
    try:
        run_import(pk)
    finally:
        connections.close_all()  # the thread ends, so nobody would close its own later


def start_resuming() -> bool:
    """Take up imports that have stopped, on a thread: each may take hours, and other
    periodic jobs do not wait. False if there are none, or a thread is still at it."""
    if not _unattended().exists() or not _resuming.acquire(blocking=False):
        return False
    try:
        Thread(target=_resume_on_thread, name="resume-imports", daemon=True).start()
    except RuntimeError:  # no more threads; the next run of the job tries again
        _resuming.release()
        raise
    return True


def _resume_on_thread() -> None:
    try:
        resume_imports()
    finally:
        _resuming.release()
        connections.close_all()


def resume_imports() -> int:
    """Take up imports that have stopped, one after the other. Returns their number."""
    count = 0
    for pk in list(_unattended().order_by("pk").values_list("pk", flat=True)):
        try:
            count += run_import(pk)
        except Exception as exc:  # the others do not wait for this one
            logger.error("import %s was not resumed: %s", pk, type(exc).__name__)
    return count


def _unattended() -> Any:
    before = timezone.now() - STALE
    waits = Q(seen_at=None, created_at__lt=before) | Q(seen_at__lt=before)
    return ConversationImport.objects.unfinished().filter(waits)


def run_import(pk: int) -> bool:
    """Read the whole file. False if another process reads it, or has read it."""
    now = timezone.now()
    free = Q(state=ConversationImport.State.QUEUED, seen_at=None)
    free |= Q(seen_at__lt=now - STALE)
    rows = ConversationImport.objects.unfinished().filter(free, pk=pk)
    if not rows.update(state=ConversationImport.State.RUNNING, seen_at=now):
        return False
    row = ConversationImport.objects.select_related("owner").get(pk=pk)
    with override(row.language or settings.LANGUAGE_CODE):
        _read_to_end(row)
    return True


def _read_to_end(row: ConversationImport) -> None:
    run = _Run(row)
    try:
        run.read()
        run.end(ConversationImport.State.COMPLETED)
    except NotReadable as exc:
        run.end(ConversationImport.State.FAILED, str(exc))
    except FilesUnavailable:
        logger.warning("import %s waits for the storage of files", row.pk)
    except OwnerGone:
        words = _("The account was deleted before the import was finished.")
        run.end(ConversationImport.State.FAILED, words)
    except Exception as exc:
        # Whatever it is: else the import would be taken up for ever.
        # The type alone: the message may quote the conversation.
        logger.error("import %s failed: %s", row.pk, type(exc).__name__)
        words = _(
            "Internal error. What was read before is there; try again, or tell the"
            " staff the number of this import."
        )
        run.end(ConversationImport.State.FAILED, words)


class _Run:
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
        #: Whether a conversation was, in this reading or an earlier one.
        self._is_recognised = bool(row.format or row.imported or row.repeated)

    def read(self) -> None:
        """Raises NotReadable, after what is before the fault was imported, and
        FilesUnavailable."""
        try:
            file = self._row.file.open("rb")
        except FilesUnavailable:
            raise
        except (OSError, ValueError) as exc:
            raise NotReadable(_("The uploaded file is not stored any more.")) from exc
        with file:
            if is_archive(file):
                for name, entry in read_entries(file, self._save_sometimes):
                    self._read_file(entry, name)
            else:
                with tempfile.TemporaryFile() as copy:
                    self._read_file(_on_disk(file, copy), "")
        if not self._is_recognised:
            raise NotReadable(
                _(
                    "No conversations were found. Upload the export of ChatGPT, Claude,"
                    " Open WebUI, LibreChat or Parley: a JSON file, or the ZIP with it."
                )
            )

    @transaction.atomic
    def end(self, state: str, error: str = "") -> None:
        """Note the end, unless the row was deleted meanwhile, with its user."""
        delete_later([self._row.file.name or ""])
        self._save()
        rows = ConversationImport.objects.filter(pk=self._row.pk)
        rows.update(state=state, error=error[:500], finished_at=timezone.now(), file="")

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
            self._skip_file(name, str(exc))
            return
        if name and self._count == found:
            self._skip_file(name, _("It has no conversations."))

    def _skip_file(self, name: str, reason: str) -> None:
        if self._is_new_step():
            self._skip(name, reason)

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
            return
        label = _("Conversation %(number)s") % {"number": self._count}
        try:
            parsed = value.parse()
            label = label_of(parsed) or label
            self._import(parsed, value.texts, label)
        except (NotReadable, Unreadable, UploadRefused) as exc:
            self._skip(label, str(exc))
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
        elif texts:  # in another format something else was cut out
            raise Unreadable(describe_limit())
        else:
            reader = next((each for each in _SOURCES if each.recognises(value)), None)
            if reader is None:
                raise Unreadable(_("It is in no format that we read."))
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
        self._is_recognised = True
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
            except IntegrityError:
                self._row.imported = imported
                del self._row.reasons[noted:]
                self._saved_reasons = noted
                if is_last_try:
                    raise

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
            self._saved_at = time.monotonic()
            rows = ConversationImport.objects.filter(pk=self._row.pk)
            rows.update(seen_at=timezone.now())

    def _save(self) -> None:
        row = self._row
        self._saved_at = time.monotonic()
        changed = {
            "seen_at": timezone.now(),
            "position": max(self._step, self._passed),
            "imported": row.imported,
            "repeated": row.repeated,
            "skipped": row.skipped,
            "format": row.format,
        }
        if len(row.reasons) != self._saved_reasons:  # they may be long
            changed["reasons"] = row.reasons
            self._saved_reasons = len(row.reasons)
        ConversationImport.objects.filter(pk=row.pk).update(**changed)


def _on_disk(file: Any, copy: IO[bytes]) -> Any:
    """The file if its storage keeps it on this machine; else `copy`, filled with it."""
    try:
        file.fileno()
        return file
    except (AttributeError, OSError):
        for piece in iter(lambda: file.read(_PIECE), b""):
            copy.write(piece)
        copy.flush()
        return copy


def label_of(value: Any) -> str:
    """The title by which the report names the conversation."""
    for name in ("title", "name"):
        if isinstance(value, dict) and isinstance(value.get(name), str):
            return " ".join(value[name][:200].replace("\0", " ").split())
    return ""
