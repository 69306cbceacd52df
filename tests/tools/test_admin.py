from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from django.urls import reverse

from tools.models import Tool

pytestmark = pytest.mark.django_db
LIST = reverse("admin:tools_tool_changelist")


def page(row: Tool, kind: str = "change") -> str:
    return reverse(f"admin:tools_tool_{kind}", args=[row.pk])


def switch(client: Client, action: str, *names: str):
    rows = Tool.objects.filter(name__in=names)
    data = {"action": action, "_selected_action": [row.pk for row in rows]}
    return client.post(LIST, data, follow=True)


@pytest.fixture
def calculator() -> Tool:
    return Tool.objects.get(name="calculator")


def test_the_list_shows_how_each_tool_is_used(admin_client, calculator, settings):
    settings.TOOL_TIMEOUT = 42
    calculator.groups.add(Group.objects.create(name="Accountants"))
    text = admin_client.get(LIST).content.decode()
    for expected_text in ("Calculator", "42 s", ">safe<", "Accountants", "everybody"):
        assert expected_text in text


def test_the_list_takes_no_more_queries_for_more_tools(
    admin_client, django_assert_max_num_queries
):
    Tool.objects.bulk_create(Tool(name=f"gone_{n}", is_missing=True) for n in range(50))
    with django_assert_max_num_queries(12):
        text = admin_client.get(LIST).content.decode()
    assert "gone_49" in text


@pytest.mark.parametrize(
    "query",
    ["?q=calc", "?enabled__exact=1", "?is_missing__exact=0", "?kind__exact=python"],
)
def test_a_tool_is_found(admin_client, query):
    assert "calculator" in admin_client.get(LIST + query).content.decode()


def test_a_page_shows_what_the_model_reads_and_where_the_code_is(
    admin_client, calculator
):
    text = admin_client.get(page(calculator)).content.decode()
    assert "&quot;additionalProperties&quot;: false" in text
    assert "Work out an arithmetic expression exactly." in text
    assert "tools.builtin.calculator.calculator" in text
    calculator.description = "<b>Mine</b>"
    calculator.save()
    text = admin_client.get(page(calculator)).content.decode()
    assert "&lt;b&gt;Mine&lt;/b&gt;</pre>" in text
    assert "<b>Mine" not in text


def test_staff_have_the_last_word(admin_client, calculator):
    data = {"enabled": "on", "label": "Sums", "timeout": "2.5", "replay": "once"}
    response = admin_client.post(page(calculator), data)
    assert response.status_code == 302
    used = Tool.objects.available(None)["calculator"]
    assert (used.label, used.timeout, used.replay) == ("Sums", 2.5, "once")


def test_a_timeout_of_nothing_is_refused(admin_client, calculator):
    response = admin_client.post(page(calculator), {"timeout": "0"})
    assert response.status_code == 200
    assert "greater than or equal to 0.1" in response.content.decode()


def test_tools_are_switched_together_and_it_is_on_record(admin_client):
    names = ["calculator", "current_time"]
    text = switch(admin_client, "disable", *names).content.decode()
    assert "2 tools disabled." in text
    assert not {*names} & {*Tool.objects.available(None)}
    assert LogEntry.objects.count() == 2
    text = switch(admin_client, "enable", *names, "weather_demo").content.decode()
    assert "2 tools enabled; left out: 1 enabled already." in text
    assert {*names, "weather_demo"} <= {*Tool.objects.available(None)}


def test_staff_who_may_only_view_change_nothing(client, calculator):
    user = User.objects.create_user("ada", password="x", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_tool"))
    client.force_login(user)
    assert client.get(page(calculator)).status_code == 200
    assert client.post(page(calculator), {"label": "Mine"}).status_code == 403
    switch(client, "disable", "calculator")
    calculator.refresh_from_db()
    assert (calculator.enabled, calculator.label) == (True, "")


def test_only_a_row_without_code_is_deleted(admin_client, calculator):
    assert admin_client.get(page(calculator, "delete")).status_code == 403
    deleted = Tool.objects.create(name="gone", is_missing=True)
    text = admin_client.get(page(deleted)).content.decode()
    assert "The code no longer exists." in text
    admin_client.post(page(deleted, "delete"), {"post": "yes"})
    assert not Tool.objects.filter(name="gone").exists()


def test_a_row_created_by_hand_is_no_tool_of_code(admin_client):
    add = reverse("admin:tools_tool_add")
    assert "http-0-url" in admin_client.get(add).content.decode()
    admin_client.post(add, {"name": "mine", "kind": "python", "description": "x"})
    assert not Tool.objects.filter(name="mine").exists()
