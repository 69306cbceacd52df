"""Values that no row can have are refused in the admin with one sentence."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group, User
from django.contrib.messages import get_messages
from django.db import models
from django.test import Client
from django.urls import reverse

from conversations.models.access_token import AccessToken
from llm.models import Provider
from tests.conversations.scene import signed_in
from tools.models import Tool

pytestmark = pytest.mark.django_db(transaction=True)

HUGE = "9" * 30


def _url(model: type[models.Model], page: str) -> str:
    return reverse(f"admin:{model._meta.label_lower.replace('.', '_')}_{page}")


@pytest.fixture
def browser() -> Client:
    return signed_in(User.objects.create_superuser("ada"))


@pytest.mark.parametrize("model", [Provider, Group, AccessToken])
def test_an_action_on_rows_that_cannot_exist(browser: Client, model):
    """One number of the action is right; nothing happens to its row either."""
    row = Group.objects.create(name="team")
    url = _url(model, "changelist")
    for selected in ("abc", HUGE, "", "1,2", "\0", "1e5"):
        chosen = {"_selected_action": [str(row.pk), selected]}
        response = browser.post(url, {"action": "delete_selected", **chosen})
        assert response.status_code == 302, selected
        *_, said = get_messages(response.wsgi_request)
        assert "The selection is not valid" in str(said), selected
    assert Group.objects.filter(pk=row.pk).exists()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("get", f"/admin/conversations/usersettings/{HUGE}/change/", 302),
        ("get", "/admin/conversations/usersettings/x/change/", 302),
        ("get", f"/admin/conversations/usersettings/{HUGE}/delete/", 302),
        ("post", f"/admin/conversations/usersettings/{HUGE}/delete/", 302),
        ("get", f"/admin/llm/modelcall/{HUGE}/exchange/", 404),
        ("post", f"/keys/{HUGE}/delete/", 404),
        ("delete", f"/api/keys/{HUGE}/", 404),
    ],
)
def test_an_address_with_a_number_that_no_row_has(
    browser: Client, method: str, path: str, status: int
):
    assert getattr(browser, method)(path).status_code == status


@pytest.mark.parametrize(
    ("model", "field"), [(Tool, "groups"), (Group, "permissions"), (User, "groups")]
)
def test_a_form_with_a_number_that_no_row_has(browser: Client, model, field):
    data = {"name": "team", field: HUGE}
    url = _url(model, "add")
    if model is User:
        url = reverse("admin:auth_user_change", args=[User.objects.get().pk])
    response = browser.post(url, data)
    assert response.status_code == 302
    (said,) = get_messages(response.wsgi_request)
    assert "A value in the form is not valid" in str(said)
    assert browser.get(url).status_code == 200
    assert not Group.objects.filter(name="team").exists()


def test_an_address_that_fills_in_a_form_badly(browser: Client):
    url = _url(AccessToken, "add")
    response = browser.get(url, {"expires_at": "soon"})
    assert (response.status_code, response["Location"]) == (302, url)
    (said,) = get_messages(response.wsgi_request)
    assert "values in the address" in str(said)
