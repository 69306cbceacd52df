from __future__ import annotations

import html

import pytest
from django.contrib.auth.models import Group, User
from django.core.exceptions import ValidationError
from django.urls import reverse
from hypothesis import given
from hypothesis import strategies as st

from tests.conversations.scene import signed_in, staff
from tests.tools.http.test_http_admin import ADD, PLANTED, form, page
from tools.models import HttpTool, Tool, ToolVersion
from tools.models.tool_version import compare_snapshots
from tools.text_diff import MAX_LINES, diff_lines

LINES = st.lists(st.sampled_from(["a", "b", "c", "", " "]), max_size=20)


# Two texts


@given(LINES, LINES)
def test_a_version_lists_additions_and_removals_only(old: list, new: list):
    lines = diff_lines("\n".join(old), "\n".join(new))
    signs = [line.sign for line in lines]
    whole = "…" not in signs and lines
    if whole:
        was = [line.text for line in lines if line.sign in "- "]
        becomes = [line.text for line in lines if line.sign in "+ "]
        assert was == "\n".join(old).splitlines()
        assert becomes == "\n".join(new).splitlines()
    same = "\n".join(old).splitlines() == "\n".join(new).splitlines()
    assert (not lines) == same


def test_far_from_a_change_lines_are_left_out():
    old = [str(number) for number in range(50)]
    new = [*old[:25], "new", *old[26:]]
    lines = diff_lines("\n".join(old), "\n".join(new))
    assert [(line.sign, line.text) for line in lines] == [
        ("…", ""),
        *((" ", str(number)) for number in (22, 23, 24)),
        ("-", "25"),
        ("+", "new"),
        *((" ", str(number)) for number in (26, 27, 28)),
        ("…", ""),
    ]


def test_texts_with_very_many_changed_lines_are_only_counted():
    (line,) = diff_lines("", "x\n" * (MAX_LINES + 1))
    assert line.text == f"0 lines became {MAX_LINES + 1}."


@pytest.mark.parametrize("changed", [0, 7, 2 * MAX_LINES, 3 * MAX_LINES - 1])
def test_a_change_of_a_very_long_text_is_shown(changed: int):
    old = [str(number) for number in range(3 * MAX_LINES)]
    new = [*old[:changed], "new", *old[changed + 1 :]]
    lines = diff_lines("\n".join(old), "\n".join(new))
    shown = [(line.sign, line.text) for line in lines]
    at = shown.index(("-", str(changed)))
    assert shown[at + 1] == ("+", "new")
    around = [number for number in range(changed - 3, changed + 4) if number != changed]
    assert [int(text) for sign, text in shown if sign == " "] == [
        number for number in around if 0 <= number < len(old)
    ]
    assert (shown[0] == ("…", "")) == (changed > 3)
    assert (shown[-1] == ("…", "")) == (changed < len(old) - 4)


# Rows


pytestmark = pytest.mark.django_db


@pytest.fixture
def things(admin_client) -> Tool:
    secret = {"secret": f"Authorization: Bearer {PLANTED}"}
    assert admin_client.post(ADD, form(http=secret)).status_code == 302
    return Tool.objects.get(name="things")


def change(client, row: Tool, **fields) -> None:
    assert client.post(page(row), form(row, **fields)).status_code == 302


def restored(client, row: Tool, number: int):
    url = reverse("admin:tools_tool_restore", args=[row.pk, number])
    return client.post(url, follow=True)


def numbers(row: Tool) -> list[int]:
    return list(row.versions.values_list("number", flat=True))


def test_each_save_that_changes_something_is_a_version(admin_client, things):
    change(admin_client, things)
    assert numbers(things) == [1]
    change(admin_client, things, description="Find a thing.")
    change(admin_client, things, description="Find a thing.", http={"max_size": 5})
    assert numbers(things) == [3, 2, 1]
    newest = things.versions.first()
    assert newest.made_by.username == "admin"
    assert newest.snapshot["http"]["max_size"] == 5


def test_no_version_contains_a_secret(things):
    (version,) = things.versions.all()
    assert version.snapshot["http"]["secret_names"] == ["Authorization"]
    text = str(version.snapshot)
    assert PLANTED not in text
    assert things.http.secret_headers.stored not in text


def test_the_first_version_of_an_older_row_keeps_its_previous_state(admin_client):
    row = Tool.objects.get(name="calculator")
    assert not numbers(row)
    action = {"action": "disable", "_selected_action": [row.pk]}
    admin_client.post(reverse("admin:tools_tool_changelist"), action)
    new, old = row.versions.all()
    assert old.snapshot["tool"]["enabled"] is True
    assert new.snapshot["tool"]["enabled"] is False
    assert (old.made_by, new.made_by.username) == (None, "admin")


def test_the_page_shows_what_differs(admin_client, things):
    change(admin_client, things, description="Find a <b>thing</b>.")
    url = reverse("admin:tools_tool_versions", args=[things.pk])
    text = admin_client.get(url).content.decode()
    assert "<del>- Look up a thing." in text
    assert "<ins>+ Find a &lt;b&gt;thing&lt;/b&gt;." in text
    same = admin_client.get(url, {"old": 2, "new": 2}).content.decode()
    assert "The versions are identical." in same
    odd = admin_client.get(url, {"old": "x", "new": "99"}).content.decode()
    assert "<del>- Look up a thing." in odd


def test_a_version_is_brought_back_without_touching_secrets_or_the_switch(
    admin_client, things
):
    group = Group.objects.create(name="cooks")
    change(admin_client, things, groups=[group.pk], http={"max_size": 5})
    off = form(things, description="Other.", http={"secret": "X-Key: new-secret-0"})
    del off["enabled"]
    assert admin_client.post(page(things), off).status_code == 302
    restored(admin_client, things, 2)
    row = Tool.objects.get(pk=things.pk)
    assert (row.description, row.http.max_size) == ("Look up a thing.", 5)
    assert list(row.groups.all()) == [group]
    assert not row.enabled
    assert row.http.secret_names == ["Authorization", "X-Key"]
    assert PLANTED in row.http.secret_headers.reveal()
    assert row.versions.first().note == "Version 2 restored"


def test_a_deleted_group_never_means_everybody(admin_client, things):
    cooks, chefs = (Group.objects.create(name=name) for name in ("cooks", "chefs"))
    change(admin_client, things, groups=[cooks.pk, chefs.pk])
    change(admin_client, things)
    cooks.delete()
    text = html.unescape(restored(admin_client, things, 2).content.decode())
    assert "'cooks' no longer exists and was left out." in text
    assert list(things.groups.all()) == [chefs]
    change(admin_client, things)
    chefs.delete()
    text = html.unescape(restored(admin_client, things, 2).content.decode())
    assert "None of the groups that could use the tool exists any more." in text
    assert numbers(things)[0] == 5


def test_a_deleted_approver_is_not_replaced_by_the_user(things):
    chefs = Group.objects.create(name="chefs")
    Tool.objects.filter(pk=things.pk).update(approval="always", approvers=chefs)
    ToolVersion.objects.record(things)
    chefs.delete()
    things.refresh_from_db()
    with pytest.raises(
        ValidationError, match="approving group 'chefs' no longer exists"
    ):
        things.versions.get(number=2).restore()


def test_a_version_that_is_no_longer_valid_is_not_restored(admin_client, things):
    change(admin_client, things, name="other")
    Tool.objects.create(name="things", kind="http", description="Another.")
    text = html.unescape(restored(admin_client, things, 1).content.decode())
    assert "Tool with this Name already exists." in text
    assert Tool.objects.get(pk=things.pk).name == "other"


def test_restoring_a_tool_requires_the_permission_to_change_it(things):
    looks = signed_in(staff("looks", "view_tool"))
    url = reverse("admin:tools_tool_versions", args=[things.pk])
    shown = looks.get(url)
    assert shown.status_code == 200
    assert "Restoring makes" not in shown.content.decode()
    assert restored(looks, things, 1).status_code == 403
    assert signed_in(staff("nobody")).get(url).status_code == 403


def test_a_version_from_before_a_column_existed_gets_its_default(things):
    version = things.versions.get()
    del version.snapshot["http"]["max_size"]
    del version.snapshot["tool"]["timeout"]
    version.save()
    HttpTool.objects.update(max_size=7)
    version.restore(User.objects.get(username="admin"))
    assert HttpTool.objects.get().max_size == HttpTool().max_size


def test_differences_name_the_fields(things):
    before = ToolVersion.take_snapshot(things)
    things.label, things.http.url = "Things", "https://api.test/other/{id}"
    found = compare_snapshots(before, ToolVersion.take_snapshot(things))
    assert [each.field for each in found] == ["label", "HTTP url"]
