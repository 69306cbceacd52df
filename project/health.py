"""Health probes: `/healthz` (liveness) and `/readyz` (readiness)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from django.db import DatabaseError, connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.views.decorators.http import require_safe

from conversations import engine
from conversations.engine.database import disk_space


def answer_supervisors(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Middleware that serves the probes.

    It precedes all middleware that checks the Host header, because supervisors connect
    by IP address, which ALLOWED_HOSTS need not contain.
    """
    views = {"/healthz": healthz, "/readyz": readyz}

    def answer(request: HttpRequest) -> HttpResponseBase:
        return views.get(request.path, get_response)(request)

    return answer


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
        applied = set(MigrationRecorder(connection).applied_migrations())
    except DatabaseError:
        return {
            "database": "unreachable",
            "migrations": "unknown",
            "storage": "unknown",
        }
    pending = _latest_migrations() - applied
    return {
        "database": "ok",
        "migrations": "pending" if pending else "ok",
        "storage": "ok" if disk_space.has_room() else "full",
    }


@cache
def _latest_migrations() -> frozenset[tuple[str, str]]:
    """The last migration of each app; if it is applied, so are its predecessors."""
    return frozenset(MigrationLoader(None).graph.leaf_nodes())
