"""Rows that are deleted while a request changes them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import DatabaseError, connection
from django.db.models.signals import pre_save
from django.urls import reverse

from conversations.access import concurrent_deletion
from conversations.access.concurrent_deletion import is_row_gone
from conversations.models import Conversation, WebhookEndpoint
from conversations.models.access_token import AccessToken
from tests.conversations.scene import a_user, program, signed_in, staff

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def deleted_before_saving(row: Any) -> Iterator[None]:
    """Delete the row when the request has read it and is about to save it."""

    def delete(sender: Any, instance: Any, **_: Any) -> None:
        if isinstance(instance, type(row)) and instance.pk == row.pk:
            type(row)._base_manager.filter(pk=row.pk).delete()

    pre_save.connect(delete)
    try:
        yield
    finally:
        pre_save.disconnect(delete)


def an_endpoint(owner: Any) -> WebhookEndpoint:
    row = WebhookEndpoint(name="Mine", url="https://hooks.example.org/", owner=owner)
    row.events = ["response.failed"]
    row.renew_secret()
    return row


def a_token(owner: Any) -> AccessToken:
    row = AccessToken(user=owner, label="laptop")
    row.generate_token()
    row.save()
    return row


CHANGED = {"name": "New", "label": "New", "title": "New", "events": "response.failed"}


@pytest.mark.parametrize("page", ["webhook", "token-settings", "rename"])
def test_a_page_says_that_the_row_was_deleted_meanwhile(page: str):
    ada = a_user("ada")
    make = {
        "webhook": lambda: an_endpoint(ada),
        "token-settings": lambda: a_token(ada),
        "rename": lambda: Conversation.objects.create(owner=ada),
    }
    row = make[page]()
    client = signed_in(ada)
    with deleted_before_saving(row):
        answer = client.post(reverse(page, args=[row.pk]), CHANGED)
    assert answer.status_code == 409
    assert "was deleted while you changed it" in answer.text


def test_the_admin_says_so_too(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, concurrent_deletion.__name__)
    client = signed_in(staff("ops", "change_webhookendpoint"))
    row = an_endpoint(None)
    page = reverse("admin:conversations_webhookendpoint_change", args=[row.pk])
    form = {**CHANGED, "url": row.url, "networks": "", "is_enabled": "on"}
    with deleted_before_saving(row):
        answer = client.post(page, form)
    assert answer.status_code == 409
    assert "was deleted while you changed it" in answer.text
    assert "before admin:conversations_webhookendpoint_change could" in caplog.text


def test_rest_answers_that_there_is_no_such_row(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, concurrent_deletion.__name__)
    ada = a_user("ada")
    client = program(ada)
    row = Conversation.objects.create(owner=ada)
    with deleted_before_saving(row):
        answer = client.patch(
            f"/api/conversations/{row.pk}/",
            {"title": "New"},
            content_type="application/json",
        )
    assert answer.status_code == 404
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert "a row was deleted before api:" in caplog.text


def test_an_error_of_the_database_is_not_taken_for_a_deleted_row():
    assert not is_row_gone(None)
    with pytest.raises(DatabaseError) as found, connection.cursor() as cursor:
        cursor.execute("SELECT nothing FROM nowhere")
    assert not is_row_gone(found.value)
    assert not is_row_gone(DatabaseError("Another error of Django."))
