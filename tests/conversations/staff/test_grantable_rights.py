"""Staff with few rights cannot give themselves, or others, more than they have."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import Client

from conversations.admin.grantable_rights import rights_of_group
from conversations.migrations import _rights
from tests.conversations.scene import signed_in

pytestmark = pytest.mark.django_db


def a_right(name: str) -> Permission:
    app, _, codename = name.partition(".")
    return Permission.objects.get(content_type__app_label=app, codename=codename)


@pytest.fixture
def clerk() -> User:
    """May change users and groups, and nothing else."""
    user = User.objects.create_user("clerk", is_staff=True)
    rights = ["add_user", "change_user", "view_user", "delete_user"]
    rights += ["change_group", "view_group", "add_group"]
    user.user_permissions.set([a_right(f"auth.{name}") for name in rights])
    return user


@pytest.fixture
def client(clerk: User) -> Client:
    return signed_in(clerk)


def page_of(row: Any) -> str:
    return f"/admin/auth/{row._meta.model_name}/{row.pk}/change/"


def fields(user: User, **changes: Any) -> dict[str, Any]:
    joined = user.date_joined
    return {
        "username": user.username,
        "date_joined_0": f"{joined:%Y-%m-%d}",
        "date_joined_1": f"{joined:%H:%M:%S}",
        "is_active": "on",
        **changes,
    }


def test_nobody_raises_himself(client: Client, clerk: User):
    operator = Group.objects.get(name="Operator")
    before = clerk.get_all_permissions()
    wishes = {
        "is_superuser": "on",
        "groups": [operator.pk],
        "user_permissions": [a_right("llm.view_apikey").pk],
    }
    client.post(page_of(clerk), fields(clerk, **wishes))
    found = User.objects.get(pk=clerk.pk)
    assert not found.is_superuser
    assert found.get_all_permissions() == before


def test_nobody_makes_another_a_superuser_or_gives_rights_of_others(client: Client):
    other = User.objects.create_user("other")
    operator = Group.objects.get(name="Operator")
    client.post(page_of(other), fields(other, is_superuser="on"))
    client.post(page_of(other), fields(other, groups=[operator.pk]))
    right = a_right("llm.view_apikey")
    client.post(page_of(other), fields(other, user_permissions=[right.pk]))
    other.refresh_from_db()
    assert not other.is_superuser
    assert not other.groups.exists()
    assert not other.user_permissions.exists()


def test_a_right_of_ones_own_can_be_given(client: Client):
    other = User.objects.create_user("other")
    right = a_right("auth.view_user")
    answer = client.post(page_of(other), fields(other, user_permissions=[right.pk]))
    assert answer.status_code == 302
    assert list(other.user_permissions.all()) == [right]


@pytest.mark.parametrize("is_superuser", [True, False])
def test_accounts_with_more_rights_cannot_be_taken_over(
    client: Client, is_superuser: bool
):
    chief = User.objects.create_user("chief", is_superuser=is_superuser)
    chief.groups.add(Group.objects.get(name="Operator"))
    for url in (page_of(chief), f"/admin/auth/user/{chief.pk}/password/"):
        answer = client.post(url, {"password1": "x" * 20, "password2": "x" * 20})
        assert answer.status_code == 403, url
    assert client.post(f"/admin/auth/user/{chief.pk}/delete/").status_code == 403
    for action in ("deactivate", "sign_out"):
        client.post(
            "/admin/auth/user/",
            {"action": action, "_selected_action": [chief.pk], "confirmed": "yes"},
        )
    chief.refresh_from_db()
    assert chief.is_active
    assert not chief.has_usable_password() or not chief.check_password("x" * 20)


def test_a_group_gets_no_right_that_its_editor_lacks(client: Client, clerk: User):
    group = Group.objects.create(name="mine")
    clerk.groups.add(group)
    right = a_right("llm.view_apikey")
    client.post(page_of(group), {"name": "mine", "permissions": [right.pk]})
    assert rights_of_group(group) == set()
    operator = Group.objects.get(name="Operator")
    assert client.post(page_of(operator), {"name": "x"}).status_code == 403


def test_the_shipped_groups_have_rights_that_exist():
    for name, rights in _rights.GROUPS.items():
        found = rights_of_group(Group.objects.get(name=name))
        of_pools = 2 * len(_rights.POOL_ACTIONS.get(name, ()))
        of_webhooks = _rights.WEBHOOK_ACTIONS.get(name, {})
        added = of_pools + sum(map(len, of_webhooks.values()))
        assert len(found) == sum(map(len, rights.values())) + added, name
        for each in found:  # and Django has made none of that name besides
            assert a_right(each)
    assert "auth.change_user" not in rights_of_group(Group.objects.get(name="Support"))


def test_every_shipped_right_is_one_of_a_model():
    from django.apps import apps

    known = {
        (model._meta.app_label, model._meta.model_name, codename)
        for model in apps.get_models()
        for codename in _codenames(model)
    }
    rows = Permission.objects.filter(group__isnull=False).select_related("content_type")
    shipped = {
        (row.content_type.app_label, row.content_type.model, row.codename)
        for row in rows
    }
    assert shipped
    assert shipped <= known


def _codenames(model: Any) -> list[str]:
    meta = model._meta
    usual = [f"{action}_{meta.model_name}" for action in meta.default_permissions]
    return [*usual, *(codename for codename, _ in meta.permissions)]


@pytest.mark.parametrize(
    ("group", "may_add"), [("Operator", True), ("Auditor", False), ("Support", False)]
)
def test_the_groups_of_staff_see_webhooks(group: str, may_add: bool):
    member = User.objects.create_user("member", is_staff=True)
    member.groups.add(Group.objects.get(name=group))
    client = signed_in(member)
    for name in ("webhookendpoint", "delivery"):
        assert client.get(f"/admin/conversations/{name}/").status_code == 200
    page = client.get("/admin/conversations/webhookendpoint/add/")
    assert page.status_code == (200 if may_add else 403)


def test_a_group_that_lost_its_rights_gets_none_on_webhooks():
    from django.apps import apps

    support = Group.objects.get(name="Support")
    support.permissions.clear()
    _rights.add_webhook_rights(apps, None)
    assert rights_of_group(support) == set()
