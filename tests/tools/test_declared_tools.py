from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from django.urls import reverse

from tools.hosted.declared_kinds import (
    KINDS,
    ONLY_READING,
    get_declared_kind,
    kinds_of_body,
)
from tools.models import DeclaredTool

LIST = reverse("admin:tools_declaredtool_changelist")


@pytest.mark.parametrize(
    ("types", "kind"),
    [
        ("web_search web_search_preview web_search_2025_08_26", "web_search"),
        ("web_search_20250305 openrouter:web_search browser_search", "web_search"),
        ("web_fetch_20260318 url_context", "web_fetch"),
        ("x_search", "x_search"),
        ("google_maps", "maps"),
        ("file_search", "file_search"),
        ("tool_search tool_search_tool_regex_20251119", "tool_search"),
        ("image_generation", "image_generation"),
        ("code_interpreter code_execution_20250825", "code_interpreter"),
        ("computer_use_preview computer computer_20250124", "computer_use"),
        ("computer_toolset_20260801", "computer_use"),
        ("shell local_shell bash_20250124", "shell"),
        ("apply_patch text_editor_20250728 memory_20250818", "text_editor"),
        ("mcp mcp_toolset", "mcp"),
        ("compound_custom evil:web_search web_search_and_shell None", "other"),
    ],
)
def test_every_spelling_is_of_a_kind(types: str, kind: str):
    for type in types.split():
        assert get_declared_kind({"type": type}) == kind, type


@pytest.mark.parametrize("type", [None, "function", "custom", "parley:tools"])
def test_functions_and_tools_of_ours_are_of_none(type: Any):
    assert get_declared_kind({"type": type, "name": "shell"}) is None


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ({}, []),
        ({"tools": None, "mcp_servers": [], "input": "Hi"}, []),
        ({"mcp_servers": [{"url": "u"}]}, [("mcp", "mcp_servers")]),
        ({"web_search_options": {}}, [("web_search", "web_search_options")]),
        (
            {"tools": [{"type": "function"}, {"type": "shell"}]},
            [("shell", "tools[1]")],
        ),
    ],
)
def test_a_body_declares_by_tools_and_by_fields(body: Any, found: Any):
    assert list(kinds_of_body(body)) == found


@pytest.mark.django_db
def test_at_first_everybody_may_what_only_reads():
    rows = dict(DeclaredTool.objects.values_list("kind", "allowed_for"))
    assert rows == {
        kind.name: "everybody" if kind.only_reads else "nobody" for kind in KINDS
    }
    assert {"web_search", "file_search"} <= ONLY_READING
    unsafe = {"code_interpreter", "computer_use", "shell", "mcp", "other"}
    assert not unsafe & ONLY_READING
    ada = User.objects.create_user("ada")
    assert DeclaredTool.objects.kinds_for(ada) == ONLY_READING
    DeclaredTool.objects.all().delete()  # as before the first `migrate` ends
    assert DeclaredTool.objects.kinds_for(ada) == ONLY_READING


@pytest.mark.django_db
def test_choices_of_staff_survive_the_next_migrate():
    DeclaredTool.objects.filter(kind="shell").update(allowed_for="everybody")
    DeclaredTool.objects.filter(kind="web_search").update(allowed_for="nobody")
    DeclaredTool.objects.filter(kind="mcp").delete()
    DeclaredTool.objects.sync()
    rows = dict(DeclaredTool.objects.values_list("kind", "allowed_for"))
    assert (rows["shell"], rows["web_search"], rows["mcp"]) == (
        "everybody",
        "nobody",
        "nobody",
    )


@pytest.mark.django_db
def test_deleting_the_group_leaves_the_kind_to_nobody():
    coders = Group.objects.create(name="coders")
    row = DeclaredTool.objects.get(kind="shell")
    row.allowed_for = "groups"
    row.save()
    row.groups.add(coders)
    ada, eve = (User.objects.create_user(name) for name in ("ada", "eve"))
    ada.groups.add(coders)
    assert "shell" in DeclaredTool.objects.kinds_for(ada)
    assert "shell" not in DeclaredTool.objects.kinds_for(eve)
    coders.delete()
    assert "shell" not in DeclaredTool.objects.kinds_for(ada)


# In the admin


def staff(*permissions: str) -> Client:
    user = User.objects.create_user("clerk", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


@pytest.mark.django_db
def test_staff_decide_for_each_group():
    clerk = staff("view_declaredtool", "change_declaredtool")
    assert "Code interpreter" in clerk.get(LIST).content.decode()
    row = DeclaredTool.objects.get(kind="code_interpreter")
    url = reverse("admin:tools_declaredtool_change", args=[row.pk])
    refused = clerk.post(url, {"allowed_for": "groups"})
    assert "Choose at least one group." in refused.content.decode()
    coders = Group.objects.create(name="coders")
    both = {"allowed_for": "everybody", "groups": [coders.pk]}
    assert "Remove the groups, or choose" in clerk.post(url, both).content.decode()
    assert clerk.post(url, {**both, "allowed_for": "groups"}).status_code == 302
    assert "coders" in clerk.get(LIST).content.decode()
    ada = User.objects.create_user("ada")
    ada.groups.add(coders)
    assert "code_interpreter" in DeclaredTool.objects.kinds_for(ada)
    assert clerk.get(reverse("admin:tools_declaredtool_add")).status_code == 403


@pytest.mark.django_db
def test_others_of_the_staff_change_nothing():
    row = DeclaredTool.objects.get(kind="shell")
    url = reverse("admin:tools_declaredtool_change", args=[row.pk])
    clerk = staff("view_declaredtool")
    assert clerk.post(url, {"allowed_for": "everybody"}).status_code == 403
