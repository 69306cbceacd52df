"""Each page of the staff console has a picture, and browser tests look at it."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import User
from django.urls import URLPattern, URLResolver, resolve

from benchmarks.screenshots import DOCS, PAGES_OF_ACTIONS, PICTURES
from tests.conversations.scene import signed_in
from tests.integration.accessibility.rows import stored_pages
from tests.integration.accessibility.staff_rows import PLAIN
from tools.models import Tool

pytestmark = pytest.mark.django_db
MAX_PICTURE = 150_000  # bytes
#: They do something and lead to a page, or are files.
NO_PAGES = {
    "audit_auditevent_export",
    "autocomplete",
    "config_export",
    "conversations_engine_cancel_call",
    "conversations_engine_maintenance",
    "conversations_preset_draft_discard",
    "conversations_preset_draft_publish",
    "conversations_preset_evaluations_remove",
    "conversations_preset_evaluations_run",
    "conversations_preset_restore",
    "conversations_preset_runs_cancel",
    "conversations_replay_cancel",
    "conversations_savedprompt_restore",
    "conversations_turn_stop",
    "jsi18n",
    "logout",
    "saved_filter_add",
    "saved_filter_delete",
    "tools_mcpserver_sign_in",
    "tools_mcpserver_signed_in",
    "tools_tool_restore",
    "usage_csv",
    "view_on_site",
}
#: Pages that ask once more before they act, the form of a new evaluation, which is that
#: of a stored one, and Django's own.
NO_PICTURES = {
    "conversations_engine_drain",
    "conversations_engine_turn",
    "auth_user_password_change",
    "password_change",
    "password_change_done",
    "app_list",
    "conversations_preset_evaluations_add",
}


def names_of(patterns: list[URLPattern | URLResolver]) -> Iterator[str]:
    for each in patterns:
        if isinstance(each, URLResolver):
            yield from names_of(each.url_patterns)
        elif each.name:
            yield each.name


def pages_of_ours() -> set[str]:
    """Without those that each registered model has."""
    plain = {
        f"{model._meta.app_label}_{model._meta.model_name}_{page}"
        for model in apps.get_models()
        if admin.site.is_registered(model)
        for page in ("changelist", "add", "change", "delete", "history")
    }
    return {*names_of(admin.site.urls[0])} - plain - NO_PAGES


def name_of(path: str) -> str:
    return resolve(urlsplit(path).path).url_name or ""


@pytest.mark.slow
@pytest.mark.smoke
def test_every_page_of_the_console_is_looked_at_and_has_a_picture(settings):
    settings.SHARE_LINKS = "public"
    chief = signed_in(User.objects.create_superuser("admin"))
    Tool.objects.sync()
    paths = stored_pages()
    looked_at = {
        name_of(path)
        for name, path in paths.items()
        if name.startswith("admin") and not name.startswith(PLAIN)
    }
    assert pages_of_ours() - looked_at - NO_PICTURES == set()
    for name, path in paths.items():
        if name.startswith("admin"):
            assert chief.get(path, follow=True).status_code == 200, name
    paths |= PAGES_OF_ACTIONS
    pictured = {name_of(paths[kind]) for _, kind, *_ in PICTURES}
    assert pages_of_ours() - pictured - NO_PICTURES == set()


def test_every_picture_is_small_and_stands_in_a_document():
    texts = "".join(page.read_text() for page in DOCS.glob("*.md"))
    texts += (DOCS.parent / "README.md").read_text()
    for file, *_ in PICTURES:
        assert (DOCS / file).stat().st_size < MAX_PICTURE, file
        assert f"{file})" in texts or f'{file}"' in texts, file
    drawn = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.png")}
    assert drawn == {file for file, *_ in PICTURES}
