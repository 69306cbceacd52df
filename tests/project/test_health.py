from __future__ import annotations

from typing import Any

import pytest
from django.db import OperationalError, connection
from django.db.migrations.recorder import MigrationRecorder
from django.test import Client

from conversations import engine


def test_alive_needs_no_database(client: Client):
    answer = client.get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
    assert client.post("/healthz").status_code == 405


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_health_checks_by_address_work_with_any_allowed_hosts(
    client: Client, settings: Any, path: str
):
    settings.ALLOWED_HOSTS = ["chat.example.org"]
    assert client.get(path, headers={"host": "10.1.2.3:8000"}).status_code == 200


@pytest.mark.django_db
def test_ready_when_nothing_is_missing(client: Client):
    answer = client.get("/readyz")
    assert answer.status_code == 200
    assert answer.json() == {
        "status": "ready",
        "checks": {
            "database": "ok",
            "migrations": "ok",
            "storage": "ok",
            "draining": "no",
        },
    }


@pytest.mark.django_db
def test_not_ready_while_draining(client: Client, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(engine, "is_draining", lambda: True)
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["checks"]["draining"] == "yes"


@pytest.mark.django_db
def test_not_ready_before_the_migrations(client: Client):
    MigrationRecorder.Migration.objects.filter(app="conversations").delete()
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["checks"]["migrations"] == "pending"


def test_not_ready_without_the_database(
    client: Client, monkeypatch: pytest.MonkeyPatch
):
    def fail() -> None:
        raise OperationalError("no such host: db.internal")

    monkeypatch.setattr(connection, "cursor", fail)
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["checks"]["database"] == "unreachable"
    assert "db.internal" not in answer.content.decode()
