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
from contextlib import ExitStack
from functools import partial
from threading import Lock, Thread
from typing import Any
from uuid import uuid4

from django.conf import settings
from django.core.files.base import File
from django.db import connections, transaction
from django.db.models import F, Q
from django.utils.translation import get_language, override
from django.utils.translation import gettext as _

from conversations.access.user_lock import lock_user
from conversations.models.conversation_import import ConversationImport
from conversations.transfer.import_run import (
    PASSING,
    ImportRun,
    LeaseLost,
    OwnerGone,
)
from conversations.transfer.import_threads import BoundedThreads
from conversations.transfer.json_stream import NotReadable
from conversations.turns.attachments import discard, store
from conversations.turns.file_kinds import TEXT, clean_name, format_size
from conversations.turns.file_storage import FilesUnavailable
from llm.db.clock import database_now

logger = logging.getLogger(__name__)

MAX_UNFINISHED = 3  # imports of one user
#: Imports that one process reads at once, beside those that it resumes one after the
#: other. Each has a connection to the database, of which PostgreSQL has about 100.
MAX_THREADS = 3
STALE = 60.0  # seconds without progress, after which another process takes over
MAX_FRUITLESS = 10  # readings in a row that end before they have finished a step
_resuming = Lock()  # one thread of this process takes up imports


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
    """Read the file on a thread, once the row is committed and a thread is free. If
    this process ends before or can start no thread, `resume_imports` of any process
    takes it up."""
    transaction.on_commit(partial(_threads.add, row.pk), robust=True)


def _run_on_thread(pk: int) -> None:
    try:
        run_import(pk)
    finally:
        connections.close_all()  # the thread may end, and would leave its own open


_threads = BoundedThreads(MAX_THREADS, _run_on_thread, "import")


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
    before = database_now(-STALE)
    waits = Q(seen_at=None, created_at__lt=before) | Q(seen_at__lt=before)
    return ConversationImport.objects.unfinished().filter(waits)


def run_import(pk: int) -> bool:
    """Read the whole file. False if another process reads it, or has read it."""
    free = Q(state=ConversationImport.State.QUEUED, seen_at=None)
    free |= Q(seen_at__lt=database_now(-STALE))
    rows = ConversationImport.objects.unfinished().filter(free, pk=pk)
    claimed = rows.update(
        state=ConversationImport.State.RUNNING,
        seen_at=database_now(),
        epoch=F("epoch") + 1,
        fruitless=F("fruitless") + 1,
    )
    if not claimed:
        return False
    row = ConversationImport.objects.select_related("owner").get(pk=pk)
    with override(row.language or settings.LANGUAGE_CODE):
        _read_to_end(row)
    return True


def _read_to_end(row: ConversationImport) -> None:
    run = ImportRun(row)
    try:
        if row.fruitless > MAX_FRUITLESS:
            text = "import %s was given up after %s readings without progress"
            logger.error(text, row.pk, MAX_FRUITLESS)
            run.end(ConversationImport.State.FAILED, _internal_error())
            return
        run.read()
        run.end(ConversationImport.State.COMPLETED)
    except NotReadable as exc:
        run.end(ConversationImport.State.FAILED, str(exc))
    except FilesUnavailable:
        logger.warning("import %s waits for the storage of files", row.pk)
        run.wait_for_storage()
    except LeaseLost:
        run.leave()
    except PASSING as exc:
        logger.warning("import %s goes on later: %s", row.pk, type(exc).__name__)
    except OwnerGone:
        words = _("The account was deleted before the import was finished.")
        run.end(ConversationImport.State.FAILED, words)
    except Exception as exc:
        # Whatever it is: else the import would be taken up again and again.
        # The type alone: the message may quote the conversation.
        logger.error("import %s failed: %s", row.pk, type(exc).__name__)
        run.end(ConversationImport.State.FAILED, _internal_error())


def _internal_error() -> str:
    return _(
        "Internal error. What was read before is there; try again, or tell the"
        " staff the number of this import."
    )
