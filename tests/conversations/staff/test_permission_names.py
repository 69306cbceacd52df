"""Staff read the names of permissions in their own language."""

from __future__ import annotations

import pytest
from django.apps import apps
from django.conf import settings
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from django.utils.translation import override

from conversations.forms.permission_names import OWN, name_permission
from project.admin_pages.names import OWN_APPS

pytestmark = pytest.mark.django_db

OTHERS = [code for code, _ in settings.LANGUAGES if code != settings.LANGUAGE_CODE]


def test_each_permission_of_the_models_has_a_name_to_translate():
    models = [m for app in OWN_APPS for m in apps.get_app_config(app).get_models()]
    names = [str(pair[1]) for model in models for pair in model._meta.permissions]
    assert sorted(names) == sorted(OWN)


@pytest.mark.parametrize("language", OTHERS)
def test_no_permission_has_its_english_name(language: str):
    with override(language):
        named = [
            row.name
            for row in Permission.objects.select_related("content_type")
            if name_permission(row) == row.name
        ]
    assert named == []


@pytest.mark.parametrize("page", ["group", "user"])
def test_the_names_are_on_the_pages(admin_client: Client, page: str):
    user, group = User.objects.get(username="admin"), Group.objects.create(name="g")
    path = f"/admin/auth/{page}/{ {'user': user, 'group': group}[page].pk }/change/"
    answer = admin_client.get(path, headers={"accept-language": "de"})
    assert "Werkzeug als beliebiger Benutzer" in answer.content.decode()
    assert "Can " not in answer.content.decode()
