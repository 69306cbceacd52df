"""Labels of the admin that come from the names of columns and rows are translated."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.admin.utils import flatten
from django.contrib.auth.models import User
from django.core.exceptions import FieldDoesNotExist
from django.db import models
from django.test import Client, RequestFactory
from django.utils.html import escape
from django.utils.translation import override
from django.utils.translation.trans_real import DjangoTranslation

from llm.forms.provider import QUIRK_TEXTS
from llm.wire.codecs.openai_chat.quirks import QUIRKS
from project.admin_pages.names import NAMES, OWN_APPS
from tests.serving import BASE

OWN = [
    model
    for label in OWN_APPS
    for model in apps.get_app_config(label).get_models()
    if admin.site.is_registered(model)
]


def left_to_django(model: type[models.Model]) -> set[str]:
    """The names of its columns on its admin's list and form that Django makes."""
    row_admin = admin.site.get_model_admin(model)
    request = RequestFactory().get("/")
    request.user = User(is_superuser=True, is_active=True)
    shown: list[Any] = [
        *row_admin.get_list_display(request),
        *row_admin.get_readonly_fields(request),
        *flatten(row_admin.get_fields(request)),
    ]
    names = set()
    for each in shown:
        try:
            column: Any = model._meta.get_field(str(each))
        except FieldDoesNotExist:
            continue
        if "verbose_name" not in column.deconstruct()[3]:
            names.add(str(column.verbose_name))
    return names


@pytest.mark.django_db
@pytest.mark.parametrize("model", OWN, ids=lambda model: model.__name__)
def test_each_name_of_the_admin_is_in_the_catalogue(model: type[models.Model]):
    text = (BASE / "project/locale/de/LC_MESSAGES/django.po").read_text()
    catalogue = {*re.findall(r'^msgid "(.*)"$', text, re.MULTILINE)}
    with override(None, deactivate=True):
        own = {str(model._meta.verbose_name), str(model._meta.verbose_name_plural)}
        made = {model._meta.object_name, f"{model._meta.object_name}s"}
        spaced = {re.sub(r"(?<=.)([A-Z])", r" \1", each or "").lower() for each in made}
        assert left_to_django(model) | (own & spaced) <= {*NAMES} | catalogue


@pytest.mark.django_db
def test_labels_columns_and_apps_are_in_the_readers_language(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(DjangoTranslation, "gettext", lambda self, text: f"⟦{text}⟧")
    form = admin_client.get("/admin/llm/provider/add/").text
    for label in ("⟦codec⟧", "⟦connect timeout⟧", "⟦allow private network⟧"):
        assert label in form
    turns = admin_client.get("/admin/conversations/turn/").text
    for label in ("⟦created at⟧", "⟦share links⟧", "⟦Conversations⟧"):
        assert label in turns
    assert "Created at" not in turns


@pytest.mark.django_db
def test_switches_of_quirks_say_what_they_do_in_the_readers_language(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
):
    assert {each.description for each in QUIRKS.values()} == {*QUIRK_TEXTS}
    monkeypatch.setattr(DjangoTranslation, "gettext", lambda self, text: f"⟦{text}⟧")
    form = admin_client.get("/admin/llm/provider/add/").text
    for text in QUIRK_TEXTS:
        assert f"⟦{escape(text)}⟧" in form
