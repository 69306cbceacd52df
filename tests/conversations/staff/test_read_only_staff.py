"""Pages without acts: for staff who may only look, and while the admin is read-only."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from conversations.access import maintenance
from conversations.access.maintenance import Notice
from conversations.models import Conversation, Maintenance
from llm.models import Provider
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


@pytest.fixture
def chief() -> User:
    return User.objects.create_superuser("admin")


@pytest.fixture
def paths(chief: User, settings) -> dict[str, str]:
    settings.SHARE_LINKS = "public"
    Tool.objects.sync()
    stored = stored_pages()
    return {name: path for name, path in stored.items() if name.startswith("admin")}


@pytest.fixture
def read_only() -> Iterator[None]:
    maintenance.note(Notice(admin_is_read_only=True))
    yield
    maintenance.note(Notice())


@pytest.mark.slow
@pytest.mark.smoke
def test_no_page_offers_an_act_to_who_may_only_look(
    viewer: Client, chief: User, paths: dict[str, str]
):
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
    assert len(offered.pop("admin reason")) == 1  # an auditor states one, too
    assert [(name, acts[:2]) for name, acts in offered.items() if acts] == []
    # The same search finds acts where somebody has the rights.
    root = signed_in(chief)
    assert sum(bool(acts_of(root.get(p).text)) for p in paths.values()) > 40


@pytest.mark.slow
@pytest.mark.smoke
def test_no_page_offers_an_act_while_the_admin_is_read_only(
    chief: User, paths: dict[str, str], read_only: None
):
    root = signed_in(chief)
    offered = {}
    for name, path in paths.items():
        answer = root.get(path, follow=True)
        assert answer.status_code in (200, 403), name
        if answer.status_code == 200:
            assert "The admin is read-only" in answer.text, name
            offered[name] = acts_of(answer.text)
    assert len(offered) > 50
    assert len(offered.pop("admin bill")) == 1
    assert offered.pop("admin list conversations.Conversation") == ["export"]
    exports = ["export_as_csv", "export_as_json"]
    assert offered.pop("admin list conversations.Rating") == exports
    assert offered.pop("admin board")  # drains, and the way back
    assert len(offered.pop("admin reason")) == 1  # reading needs one, as ever
    assert [(name, acts[:2]) for name, acts in offered.items() if acts] == []


def test_a_read_only_admin_takes_the_reason_for_reading(
    chief: User, read_only: None, settings
):
    settings.READING_NEEDS_REASON = True
    stranger = Conversation.objects.create(owner=a_user("stranger"))
    page = reverse("admin:conversations_conversation_change", args=[stranger.pk])
    root = signed_in(chief)
    asked = reverse("admin:reading_reason")
    assert root.get(page)["Location"].startswith(asked)
    stated = root.post(asked, {"reason": "Ticket 4711", "next": page})
    assert stated["Location"] == page
    assert root.get(page).status_code == 200


def test_a_read_only_admin_refuses_every_form_but_the_live_board(
    chief: User, paths: dict[str, str]
):
    root = signed_in(chief)
    switch = reverse("admin:conversations_engine_maintenance")
    assert root.post(switch, {"admin_is_read_only": "on"}).status_code == 302
    before = list(Provider.objects.values())
    try:
        for name in (
            "admin provider",
            "admin deletion",
            "admin probe",
            "admin dry run",
        ):
            refused = root.post(paths[name], {"name": "other", "post": "yes"})
            assert refused.status_code == 403, name
            assert "Nothing was changed" in refused.text
        action = {"action": "switch_off", "_selected_action": [before[0]["id"]]}
        assert root.post("/admin/llm/provider/", action).status_code == 403
        assert list(Provider.objects.values()) == before
        assert root.get("/").status_code == 200  # the chat is as ever
        chats = Conversation.objects.values_list("pk", flat=True)[:1]
        export = {"action": "export", "_selected_action": list(chats)}
        answer = root.post("/admin/conversations/conversation/", export)
        assert answer["Content-Type"] == "application/zip"
        archive = export | {"action": "archive"}
        assert (
            root.post("/admin/conversations/conversation/", archive).status_code == 403
        )
        shown = {"initial-admin_is_read_only": "True"}
        assert root.post(switch, shown).status_code == 302
        assert not Maintenance.objects.get().admin_is_read_only
        assert root.post(paths["admin provider"], {"name": "x"}).status_code == 200
    finally:
        maintenance.note(Notice())


def test_staff_without_rights_get_none_while_the_admin_is_read_only(
    read_only: None, paths: dict[str, str]
):
    helper = signed_in(a_user("helper", is_staff=True))
    assert helper.get(paths["admin provider"]).status_code == 403
    assert helper.get(paths["admin board"]).status_code == 403
    assert helper.post(reverse("admin:logout")).url == reverse("login")
