"""Facts about an installation that both `doctor` and the first steps judge."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from django.conf import settings
from django.utils import timezone

from conversations.models import Backup, ProcessStatus
from conversations.staff.live_board import LOST_AFTER
from conversations.turns.file_storage import are_local
from project.backups import stored_files
from project.backups.leftovers import PARTIAL, find_leftovers

BACKUP_LASTS = timedelta(days=30)
LOOPBACK = ("localhost", "127.0.0.1", "::1")
LOOPBACK_HOSTS = {*LOOPBACK, "[::1]"}  # as a request names them
_SHORTEST_SECRET = 32  # characters
_FEWEST_LETTERS = 8  # different characters of a secret


def is_secret_strong() -> bool:
    secret = settings.SECRET_KEY
    return len(secret) >= _SHORTEST_SECRET and len(set(secret)) >= _FEWEST_LETTERS


def find_newest_backup() -> Backup | None:
    return Backup.objects.order_by("-finished_at").first()


def is_recent(backup: Backup | None) -> bool:
    return backup is not None and backup.finished_at > timezone.now() - BACKUP_LASTS


def find_leftovers_of_backups() -> list[Path]:
    """Folders with copies of the database and the keys, from killed commands."""
    folders = {settings.DATA, *([settings.MEDIA_ROOT] if are_local() else [])}
    found = [
        path
        for folder in sorted(folders)
        for path in find_leftovers(folder, f"{stored_files.RESTORING}*")
    ]
    newest = Backup.objects.exclude(folder="").order_by("-finished_at").first()
    if newest is not None:
        found += find_leftovers(Path(newest.folder).parent, f"parley-*{PARTIAL}")
    return found


def has_live_worker() -> bool:
    """Whether a process was lately heard that starts turns."""
    heard = timezone.now() - LOST_AFTER
    runs = ProcessStatus.objects.filter(runs_turns=True, heard_at__gt=heard)
    return runs.filter(drains=False).exists()
