"""Health probes: `/healthz` (liveness) and `/readyz` (readiness)."""

from __future__ import annotations

from functools import lru_cache

from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_safe

from conversations import engine
from conversations.engine.database import disk_space
from project.startup.preparation import has_pending_migrations


@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """Liveness. No IO: a slow database must not get the process killed."""
    return JsonResponse({"status": "ok"})


@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """Readiness: 503 while a check fails, with the result of each check."""
    checks = {**_database(), "draining": "yes" if engine.is_draining() else "no"}
    ready = checks == {
        "database": "ok",
        "migrations": "ok",
        "storage": "ok",
        "draining": "no",
    }
    status = "ready" if ready else "not ready"
    return JsonResponse(
        {"status": status, "checks": checks}, status=200 if ready else 503
    )


def _database() -> dict[str, str]:
    try:
        newest = _newest_migration()
        is_pending = _is_migration_pending(newest)
    except DatabaseError:
        return {
            "database": "unreachable",
            "migrations": "unknown",
            "storage": "unknown",
        }
    return {
        "database": "ok",
        "migrations": "pending" if is_pending else "ok",
        "storage": "ok" if disk_space.has_room() else "full",
    }


def _newest_migration() -> tuple[int, int]:
    """The number of applied migrations and the newest one's id."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*), MAX(id) FROM django_migrations")
        count, newest = cursor.fetchone()
    return count, newest or 0


@lru_cache(maxsize=1)
def _is_migration_pending(newest: tuple[int, int]) -> bool:
    """Computed again when a migration was applied or undone: it takes a while."""
    return has_pending_migrations()
