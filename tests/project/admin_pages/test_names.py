"""Labels of the admin that come from the names of columns and rows are translated."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import polib
import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.admin.utils import flatten, get_fields_from_path
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


def is_left_to_django(column: Any) -> bool:
    return column.auto_created or "verbose_name" not in column.deconstruct()[3]


def made_by_django(model: type[models.Model]) -> set[str]:
    """The names of its columns, and its own, that Django makes."""
    columns = model._meta.local_fields + model._meta.local_many_to_many
    names = {str(each.verbose_name) for each in columns if is_left_to_django(each)}
    own = {str(model._meta.verbose_name), str(model._meta.verbose_name_plural)}
    made = {model._meta.object_name, f"{model._meta.object_name}s"}
    spaced = {re.sub(r"(?<=.)([A-Z])", r" \1", each or "").lower() for each in made}
    return names | (own & spaced)


def shown_columns(model: type[models.Model]) -> Iterator[Any]:
    """Those on its admin's list and form, and on the forms within it."""
    row_admin = admin.site.get_model_admin(model)
    request = RequestFactory().get("/")
    request.user = User(is_superuser=True, is_active=True)
    listed: list[Any] = [
        *row_admin.get_list_display(request),
        *row_admin.get_list_filter(request),
    ]
    for form in (row_admin, *row_admin.get_inline_instances(request)):
        fields = [
            *form.get_readonly_fields(request),
            *flatten(form.get_fields(request)),
        ]
        for each in [*fields, *(listed if form is row_admin else ())]:
            path = str(each[0] if isinstance(each, tuple) else each)
            try:
                column = get_fields_from_path(form.model, path)[-1]
            except FieldDoesNotExist:
                continue
            if hasattr(column, "verbose_name"):
                yield column


def catalogue() -> set[str]:
    path = BASE / "project/locale/de/LC_MESSAGES/django.po"
    return {entry.msgid for entry in polib.pofile(str(path))}


@pytest.mark.django_db
@pytest.mark.parametrize("model", OWN, ids=lambda model: model.__name__)
def test_each_name_of_the_admin_is_in_the_catalogue(model: type[models.Model]):
    with override(None, deactivate=True):
        own = made_by_django(model) & {
            str(model._meta.verbose_name),
            str(model._meta.verbose_name_plural),
        }
        columns = filter(is_left_to_django, shown_columns(model))
        names = own | {str(each.verbose_name) for each in columns}
    assert names <= {*NAMES} | catalogue()


def test_each_name_is_in_the_catalogue_and_that_of_a_column_or_row():
    apps_and_rows = {apps.get_app_config(label).verbose_name for label in OWN_APPS}
    with override(None, deactivate=True):
        made = {str(each) for each in apps_and_rows}
        for label in OWN_APPS:
            for model in apps.get_app_config(label).get_models():
                made |= made_by_django(model)
                made.add(str(model._meta.verbose_name_plural))
    assert {*NAMES} <= made
    assert {*NAMES} <= catalogue()


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
