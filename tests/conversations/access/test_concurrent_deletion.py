"""Rows that are deleted while a request changes them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.exceptions import ObjectDoesNotExist
from django.db import DatabaseError, connection
from django.db.models.signals import post_save, pre_save
from django.http import HttpResponse
from django.test import RequestFactory
from django.urls import reverse

from conversations.access.concurrent_deletion import DeletedRowMiddleware, is_row_gone
from conversations.models import Conversation, WebhookEndpoint
from conversations.models.access_token import AccessToken
from llm.models import Provider
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
    client = signed_in(staff("ops", "change_webhookendpoint"))
    row = an_endpoint(None)
    page = reverse("admin:conversations_webhookendpoint_change", args=[row.pk])
    form = {**CHANGED, "url": row.url, "networks": "", "is_enabled": "on"}
    with deleted_before_saving(row):
        answer = client.post(page, form)
    assert answer.status_code == 409
    assert "was deleted while you changed it" in answer.text
    assert "before admin:conversations_webhookendpoint_change could" in caplog.text


@contextmanager
def deleted_after_saving(row: Any) -> Iterator[None]:
    def delete(sender: Any, instance: Any, **_: Any) -> None:
        if isinstance(instance, type(row)) and instance.pk == row.pk:
            type(row)._base_manager.filter(pk=row.pk).delete()

    post_save.connect(delete)
    try:
        yield
    finally:
        post_save.disconnect(delete)


def test_the_admin_says_so_where_it_reads_the_saved_row_again():
    client = signed_in(staff("ops", "change_provider", "view_provider"))
    row = Provider.objects.create(name="Host", kind="openai")
    page = reverse("admin:llm_provider_change", args=[row.pk])
    form = {"name": "New", "kind": row.kind, "base_url": "", "options": ""}
    for inline in ("keys", "models"):
        form |= {f"{inline}-TOTAL_FORMS": "0", f"{inline}-INITIAL_FORMS": "0"}
    with deleted_after_saving(row):
        answer = client.post(page, form)
    assert answer.status_code == 409
    assert "was deleted while you changed it" in answer.text


def test_a_page_of_a_row_that_is_deleted_before_it_is_read_again_is_not_found():
    request = RequestFactory().get("/admin/")
    gone = Provider.DoesNotExist("Provider matching query does not exist.")
    answer = DeletedRowMiddleware(lambda _: HttpResponse()).process_exception(
        request, gone
    )
    assert answer is not None
    assert answer.status_code == 404


def test_staff_find_in_the_log_where_no_row_was_found(
    caplog: pytest.LogCaptureFixture,
):
    secret = "Host of Ada"

    def find() -> None:
        try:
            raise ValueError(secret)
        except ValueError:
            Provider.objects.get(name=secret)

    with pytest.raises(Provider.DoesNotExist) as found:
        find()
    request = RequestFactory().get("/admin/")
    DeletedRowMiddleware(lambda _: HttpResponse()).process_exception(
        request, found.value
    )
    [record] = caplog.records
    shown = logging.Formatter().format(record)
    assert record.levelno == logging.WARNING
    assert "DoesNotExist" in shown
    assert f"{__name__.rpartition('.')[2]}.py" in shown
    assert "in find" in shown
    assert secret not in shown


def test_a_missing_one_to_one_row_is_a_fault_of_the_program():
    group = Group.objects.create(name="readers")
    with pytest.raises(ObjectDoesNotExist) as found:
        str(group.share_rule)
    assert not is_row_gone(found.value)


def test_rest_answers_that_there_is_no_such_row(caplog: pytest.LogCaptureFixture):
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
