"""`/metrics` of a web process: who may read it, and what is wrong with the database."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_network
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test import Client
from django.utils import timezone

from conversations.models import Conversation, Turn
from project.environment.monitoring import Monitoring
from project.monitoring.exposition import write_metrics
from tests.project.monitoring.live_metrics import read, value

TOKEN = "0123456789abcdef"


@pytest.fixture
def allow(settings: Any) -> Iterator[Any]:
    """`allow(token=…, networks=…)`: a client of a server with these settings."""

    def allow(**allowed: Any) -> Client:
        settings.MONITORING = Monitoring(**allowed)
        return Client()  # loads the middleware anew

    return allow


@pytest.mark.django_db
def test_without_a_setting_there_are_no_metrics(allow: Any):
    for headers in ({}, {"authorization": "Bearer "}):
        answer = allow().get("/metrics", headers=headers)
        assert answer.status_code == 404
        assert b"parley_" not in answer.content


@pytest.mark.django_db
def test_the_token_opens_them_under_any_host_name(allow: Any, settings: Any):
    settings.ALLOWED_HOSTS = ["chat.example.org"]
    headers = {"authorization": f"Bearer {TOKEN}", "host": "10.1.2.3:8000"}
    answer = allow(token=TOKEN).get("/metrics", headers=headers)
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    assert value(read(answer.text), "parley_database_up") == 1
    assert allow(token=TOKEN).post("/metrics", headers=headers).status_code == 405


@pytest.mark.parametrize("sent", [{}, {"authorization": "Bearer wrong"}])
def test_a_refusal_asks_for_the_token_and_reads_nothing(
    allow: Any, sent: dict[str, str]
):
    answer = allow(token=TOKEN).get("/metrics", headers=sent)  # no database is allowed
    assert (answer.status_code, answer.text) == (401, "Not allowed.\n")
    assert answer.headers["www-authenticate"] == 'Bearer realm="metrics"'


@pytest.mark.django_db
def test_a_near_connection_opens_them_but_not_through_a_proxy(allow: Any):
    client = allow(networks=(ip_network("127.0.0.1"),))
    assert client.get("/metrics").status_code == 200
    assert client.get("/metrics", REMOTE_ADDR="10.0.0.1").status_code == 403
    forwarded = {"x-forwarded-for": "127.0.0.1"}
    assert client.get("/metrics", headers=forwarded).status_code == 403


def test_without_the_database_the_process_is_still_told_of(
    monkeypatch: pytest.MonkeyPatch,
):
    def refuse(*args: object) -> None:
        raise OperationalError("the database is down")

    monkeypatch.setattr(connection, "ensure_connection", refuse)
    monkeypatch.setattr(connection, "cursor", refuse)
    samples = read(write_metrics().decode())
    assert value(samples, "parley_database_up") == 0
    assert value(samples, "parley_event_loop_stalls_total") >= 0
    assert "parley_turns" not in {each.name for each in samples}


@pytest.mark.django_db
def test_queue_and_leases_are_those_of_the_rows(django_user_model: Any):
    owner = django_user_model.objects.create(username="ada")
    moment = timezone.now()
    for age, status, lease in (
        (50, Turn.Status.QUEUED, None),
        (90, Turn.Status.RUNNING, moment - timezone.timedelta(seconds=40)),
        (9, Turn.Status.RUNNING, moment + timezone.timedelta(seconds=5)),
    ):
        conversation = Conversation.objects.create(owner=owner)
        turn = conversation.turns.create(status=status, lease_until=lease)
        created_at = moment - timezone.timedelta(seconds=age)
        Turn.objects.filter(pk=turn.pk).update(created_at=created_at)
    samples = read(write_metrics().decode())
    assert value(samples, "parley_turns", state="queued") == 1
    assert value(samples, "parley_turns", state="running") == 2
    assert value(samples, "parley_leases", state="held") == 1
    assert value(samples, "parley_leases", state="expired") == 1
    assert 40 <= value(samples, "parley_lease_overdue_seconds") < 45
    assert 50 <= value(samples, "parley_queue_oldest_wait_seconds") < 55
