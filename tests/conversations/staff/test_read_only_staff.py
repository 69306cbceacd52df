"""Staff who may only look: each page of the console is without acts for them."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from tests.conversations.scene import a_user, signed_in
from tests.integration.accessibility.rows import stored_pages
from tools.models import Tool

pytestmark = pytest.mark.django_db

#: Rights to see, beside those to view rows of each kind.
SEEING = ["inspect_turn", "view_usage", "view_modelexchange", "inspect_exchange"]
_FORM = re.compile(r'<form[^>]*method="post".*?</form>', re.DOTALL | re.IGNORECASE)


@pytest.fixture
def viewer() -> Client:
    user = a_user("looks-only", is_staff=True)
    every = Permission.objects.filter(codename__startswith="view_")
    user.user_permissions.set(every | Permission.objects.filter(codename__in=SEEING))
    return signed_in(user)


def acts_of(page: str) -> list[str]:
    """Buttons of forms that change something, and actions on rows."""
    content = page.partition('id="content"')[2]
    buttons = [
        button
        for form in _FORM.findall(content)
        for button in re.findall(r'<button[^>]*>|<input type="submit"[^>]*>', form)
        if 'title="Run the selected action"' not in button
    ]
    menus = re.findall(r'<select name="action".*?</select>', content, re.DOTALL)
    actions = [name for menu in menus for name in re.findall(r'value="(\w+)"', menu)]
    return [*buttons, *actions]


def test_no_page_offers_an_act_to_who_may_only_look(viewer: Client, settings):
    settings.SHARE_LINKS = "public"
    chief = User.objects.create_superuser("admin")
    Tool.objects.sync()
    paths = {
        name: path for name, path in stored_pages().items() if name.startswith("admin")
    }
    offered = {}
    shown = 0
    for name, path in paths.items():
        answer = viewer.get(path, follow=True)
        assert answer.status_code in (200, 403), name
        if answer.status_code == 200:
            shown += 1
            offered[name] = acts_of(answer.content.decode())
    assert shown > 50
    # Who may read other people's conversations may take a copy; it is logged.
    assert offered.pop("admin list conversations.Conversation") == ["export"]
    # A bill is compared, and not stored.
    assert len(offered.pop("admin bill")) == 1
    assert [(name, acts[:2]) for name, acts in offered.items() if acts] == []
    # The same search finds acts where somebody has the rights.
    root = signed_in(chief)
    assert sum(bool(acts_of(root.get(p).text)) for p in paths.values()) > 40
