"""Before staff delete a row, the page shows what refers to it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from unittest import mock

import pytest
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.auth.models import Group
from django.test import Client
from django.urls import reverse

from conversations.models import Conversation, Preset
from llm.models import ApiKey, LanguageModel, ModelCall
from tests.conversations.scene import a_model, a_user, signed_in, staff
from tools.models import HttpTool, Tool, ToolUse

pytestmark = pytest.mark.django_db
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def model() -> LanguageModel:
    return a_model("m-1", label=HOSTILE)


@pytest.fixture
def key(model: LanguageModel) -> ApiKey:
    key = model.provider.keys.create(label=HOSTILE, secret="sk-1")
    ModelCall.objects.create(
        model=model, key=key, provider_name="Test", status="failed"
    )
    return key


@pytest.fixture
def tool() -> Tool:
    row = Tool.objects.create(name="ask_host", kind=Tool.Kind.HTTP, description="Ask.")
    HttpTool.objects.create(tool=row, url="https://host/")
    use = {"name": row.name, "state": "completed", "blocking": True, "calls": 1_500}
    day = datetime(2026, 1, 2, tzinfo=UTC)
    for span in ToolUse.Span:
        ToolUse.objects.create(span=span, start=day, last_at=day, **use)
    return row


@pytest.fixture
def preset(model: LanguageModel, tool: Tool) -> Preset:
    preset = Preset.objects.create(name="p", label=HOSTILE, language_model=model)
    preset.tools.add(tool)
    Conversation.objects.create(owner=a_user(), preset=preset)
    return preset


def confirm(client: Client, row: Any) -> str:
    name = f"admin:{row._meta.label_lower.replace('.', '_')}_delete"
    return client.get(reverse(name, args=[row.pk])).text


def confirm_all(client: Client, row: Any) -> str:
    name = f"admin:{row._meta.label_lower.replace('.', '_')}_changelist"
    chosen = {"action": "delete_selected", ACTION_CHECKBOX_NAME: [row.pk]}
    return client.post(reverse(name), chosen).text


def test_each_page_counts_what_refers_to_the_row(
    admin_client: Client, key: ApiKey, preset: Preset, tool: Tool, model: LanguageModel
):
    expected: list[tuple[Any, list[str]]] = [
        (key, ["Model calls: 1"]),
        (model, ["Presets: 1", "Model calls: 1"]),
        (preset, ["Conversations: 1"]),
        (tool, ["Presets: 1", "Tool calls: 1500"]),
    ]
    for row, texts in expected:
        pages = [confirm(admin_client, row)]
        if row is not tool:  # tools are deleted one by one
            pages.append(confirm_all(admin_client, row))
        for page in pages:
            assert all(f"<li>{text}</li>" in page for text in texts), (row, texts)
            assert HOSTILE not in page


def test_links_of_many_to_many_tables_are_not_listed(
    admin_client: Client, model: LanguageModel, tool: Tool
):
    group = Group.objects.create(name="research")
    model.groups.add(group)
    tool.groups.add(group)
    for row in (model, tool):
        page = confirm(admin_client, row)
        assert "relationship" not in page
        assert "_groups object" not in page


def test_a_row_whose_name_begins_like_a_link_is_listed_with_what_goes_with_it(
    admin_client: Client, model: LanguageModel
):
    """Names of links are texts of Django, which a row's own name may be as well."""
    links = LanguageModel.groups.through._meta
    meta = Preset._meta
    preset = Preset.objects.create(name="p", language_model=model)
    preset.tools.add(Tool.objects.create(name="t", kind=Tool.Kind.HTTP))
    with mock.patch.object(meta, "verbose_name", str(links.verbose_name)):
        page = confirm(admin_client, preset)
    assert f">{preset}</a>" in page[page.index("Objects") :]


def test_a_kind_that_one_may_not_delete_is_named(model: LanguageModel, key: ApiKey):
    few = signed_in(staff("dan", "view_provider", "delete_provider"))
    page = confirm(few, key.provider)
    assert "your account doesn" in page
    for kind in ("API key", "language model"):
        assert f"<li>{kind}</li>" in page


def test_a_name_with_capitals_stays_as_it_is(admin_client: Client, key: ApiKey):
    page = confirm(admin_client, key.provider)
    assert "<li>API keys: 1</li>" in page
    assert "Api keys" not in page


def test_parts_of_a_row_are_not_its_users(admin_client: Client, tool: Tool):
    ToolUse.objects.all().delete()
    assert "Nothing refers to it." in confirm(admin_client, tool)


def test_what_is_deleted_after_the_question_is_gone_and_its_users_stay(
    admin_client: Client, preset: Preset
):
    chosen = {"action": "delete_selected", ACTION_CHECKBOX_NAME: [preset.pk]}
    url = reverse("admin:conversations_preset_changelist")
    admin_client.post(url, chosen | {"post": "yes"})
    assert not Preset.objects.exists()
    assert Conversation.objects.get().preset is None


def test_who_may_not_delete_learns_nothing_of_the_users(
    key: ApiKey, preset: Preset, tool: Tool
):
    names = [f"view_{name}" for name in ("apikey", "languagemodel", "preset", "tool")]
    reader = signed_in(staff("rita", *names))
    for row in (key, preset, tool, key.provider.models.get()):
        name = f"admin:{row._meta.label_lower.replace('.', '_')}_delete"
        assert reader.get(reverse(name, args=[row.pk])).status_code == 403
        assert "Used by" not in confirm_all(reader, row)
