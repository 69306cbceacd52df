"""Presets by REST and in the admin."""

from __future__ import annotations

import re

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group
from django.urls import reverse

from conversations import context
from conversations.context import SourceFunction
from conversations.models import Conversation, Turn
from conversations.models.preset import ContextSource, Preset
from tests.conversations.scene import (
    a_model,
    a_user,
    program,
    signed_in,
    staff,
)
from tools.models import Tool

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scripted_host")]
CONVERSATIONS = reverse("api:conversations")


@pytest.fixture
def ada():
    return a_user("ada")


@pytest.fixture
def api(ada):
    return program(ada)


def make(api, **fields):
    return api.post(CONVERSATIONS, fields, content_type="application/json")


# REST


def test_the_presets_that_one_may_use_are_listed(api):
    bee = Preset.objects.create(name="b", label="Bee", language_model=a_model("m-1"))
    bee.allowed_models.add(bee.language_model)
    Preset.objects.create(name="a", description="First.", is_default=True)
    Preset.objects.create(name="off", enabled=False)
    theirs = Preset.objects.create(name="theirs")
    theirs.groups.add(Group.objects.create(name="others"))
    body = api.get(reverse("api:presets")).json()
    assert body == {
        "next": None,
        "previous": None,
        "results": body["data"],  # lists that once came whole have their rows twice
        "data": [
            {
                "name": "a",
                "label": "a",
                "description": "First.",
                "default": True,
                "model": None,
                "models": [],
            },
            {
                "name": "b",
                "label": "Bee",
                "description": "",
                "default": False,
                "model": "Test/m-1",
                "models": ["Test/m-1"],
            },
        ],
    }


def test_a_conversation_begins_with_the_preset_it_names(api):
    Preset.objects.create(name="support")
    answer = make(api, preset="support")
    assert (answer.status_code, answer.json()["preset"]) == (201, "support")
    row = Conversation.objects.get()
    assert row.preset.name == "support"
    page = reverse("api:conversation", args=[row.pk])
    answer = api.patch(page, {"preset": None}, content_type="application/json")
    assert answer.json()["preset"] is None
    assert api.get(CONVERSATIONS).json()["results"][0]["preset"] is None


def test_a_message_to_a_model_that_the_preset_does_not_allow_is_refused(api):
    allowed, other = a_model("m-1"), a_model("m-2")
    Preset.objects.create(name="support").allowed_models.add(allowed)
    chat = make(api, preset="support", model=allowed.public_name).json()["id"]
    turns = reverse("api:turns", args=[chat])

    def say(**fields):
        fields = {"input": "Hi", **fields}
        return api.post(turns, fields, content_type="application/json")

    refused = say(model=other.public_name)
    assert refused.status_code == 403
    assert refused.json()["error"]["code"] == "E_MODEL_NOT_IN_PRESET"
    assert refused.json()["error"]["param"] == "model"
    assert not Turn.objects.exists()
    assert say().status_code == 202


def test_the_default_preset_applies_where_none_is_named(api):
    Preset.objects.create(name="usual", is_default=True)
    assert make(api).json()["preset"] == "usual"
    assert make(api, preset=None).json()["preset"] is None


@pytest.mark.parametrize(
    ("preset", "problem"),
    [
        ("gone", "There is no preset 'gone'."),
        ("theirs", "There is no preset 'theirs'."),
        ("off", "There is no preset 'off'."),
        (7, "Not a valid string."),
    ],
)
def test_a_preset_that_one_may_not_use_is_as_if_it_were_not_there(api, preset, problem):
    Preset.objects.create(name="off", enabled=False)
    theirs = Preset.objects.create(name="theirs")
    theirs.groups.add(Group.objects.create(name="others"))
    answer = make(api, preset=preset)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "preset"
    assert problem in answer.json()["error"]["message"]


def test_a_turn_takes_the_presets_model_and_shows_its_notes(api, monkeypatch):
    from conversations import engine

    monkeypatch.setattr(engine, "submit", lambda *_, **__: None)
    a_model("m-1", is_default=True)
    Preset.objects.create(name="p", language_model=a_model("m-2"))
    pk = make(api, preset="p").json()["id"]
    turns = reverse("api:turns", args=[pk])
    answer = api.post(turns, {"input": "hi"}, content_type="application/json")
    assert answer.status_code == 202, answer.content
    assert answer.json()["model"] == "Test/m-2"
    note = {"kind": "context.failed", "source": "s", "text": "it took too long."}
    Turn.objects.update(notes=[note])
    assert api.get(turns).json()["results"][0]["notes"] == [note]


# Admin


def sources_page(name: str, *args) -> str:
    return reverse(f"admin:conversations_contextsource_{name}", args=args)


def source_fields(**fields) -> dict:
    form_data = {
        "name": "web",
        "title": "Web",
        "kind": "http",
        "enabled": "on",
        "url": "https://crm.example/{username}",
        "headers": "{}",
        "max_size": "20000",
        "timeout": "5",
        "cache_seconds": "0",
    }
    return {**form_data, **fields}


def test_staff_make_a_source_and_never_see_its_secret_again(admin_client):
    sent = source_fields(secret="Authorization: Bearer s3cret-token")
    answer = admin_client.post(sources_page("add"), sent)
    assert answer.status_code == 302, answer.content.decode()
    row = ContextSource.objects.get()
    assert row.get_secret_headers() == {"Authorization": "Bearer s3cret-token"}
    text = admin_client.get(sources_page("change", row.pk)).content.decode()
    assert "Currently set: Authorization." in text
    assert "s3cret" not in text
    admin_client.post(sources_page("change", row.pk), source_fields(title="CRM"))
    row.refresh_from_db()
    assert (row.title, row.secret_names) == ("CRM", ["Authorization"])


def test_a_mistake_is_reported_at_its_field(admin_client):
    sent = source_fields(url="https://crm.example/{me}", headers='{"X-Api-Key": "x"}')
    text = admin_client.post(sources_page("add"), sent).content.decode()
    assert "{me} is unknown; use {user_id}, {username}" in text
    sent = source_fields(kind="python", function="")
    text = admin_client.post(sources_page("add"), sent).content.decode()
    assert "No app provides a context function" in text


def test_functions_are_chosen_of_those_there_are(admin_client, monkeypatch):
    made = SourceFunction(
        path="shop.context.orders", call=lambda: "x", parameter="", is_async=False
    )
    monkeypatch.setattr(
        "conversations.forms.preset_forms.source_functions", lambda: {made.path: made}
    )
    monkeypatch.setattr(context, "source_functions", lambda: {made.path: made})
    text = admin_client.get(sources_page("add")).content.decode()
    assert '<option value="shop.context.orders">' in text
    sent = source_fields(kind="python", function=made.path, url="")
    assert admin_client.post(sources_page("add"), sent).status_code == 302


def test_lists_include_related_rows_in_few_queries(
    admin_client, django_assert_max_num_queries
):
    rules = ContextSource.objects.create(name="rules", title="Rules", text="x")
    for number in range(20):
        preset = Preset.objects.create(name=f"p{number}")
        preset.links.create(source=rules)
        preset.tools.add(Tool.objects.get(name="calculator"))
        preset.groups.add(Group.objects.create(name=f"g{number}"))
    presets = reverse("admin:conversations_preset_changelist")
    with django_assert_max_num_queries(14):
        text = admin_client.get(presets).content.decode()
    for expected_text in ("rules", "g19", "p19"):
        assert expected_text in text
    with django_assert_max_num_queries(14):
        assert "p19" in admin_client.get(sources_page("changelist")).content.decode()
    for query in ("?enabled__exact=1", "?is_default__exact=0", "?q=p1"):
        assert admin_client.get(presets + query).status_code == 200


def test_the_list_distinguishes_no_tools_from_all_tools(admin_client):
    Preset.objects.create(name="all")
    Preset.objects.create(name="bare", only_named_tools=True)
    text = admin_client.get(reverse("admin:conversations_preset_changelist"))
    cells = re.findall(r'field-tool_count">([^<]+)<', text.content.decode())
    assert cells == ["all", "none"]


def test_tools_chosen_in_the_form_replace_the_presets_tools(admin_client):
    tool = Tool.objects.get(name="calculator")
    sent = {
        "name": "sums",
        "options": "{}",
        "tools": [tool.pk],
        "links-TOTAL_FORMS": "0",
        "links-INITIAL_FORMS": "0",
    }
    admin_client.post(reverse("admin:conversations_preset_add"), sent)
    assert Preset.objects.get().only_named_tools


def test_staff_make_a_preset_with_its_sources_in_their_order(admin_client):
    first = ContextSource.objects.create(name="a", title="A", text="x")
    second = ContextSource.objects.create(name="b", title="B", text="x")
    sent = {
        "name": "support",
        "enabled": "on",
        "options": '{"temperature": 0.2}',
        "links-TOTAL_FORMS": "2",
        "links-INITIAL_FORMS": "0",
        "links-0-position": "2",
        "links-0-source": first.pk,
        "links-1-position": "1",
        "links-1-source": second.pk,
    }
    answer = admin_client.post(reverse("admin:conversations_preset_add"), sent)
    assert answer.status_code == 302, answer.content.decode()
    preset = Preset.objects.get()
    assert [source.name for source in preset.context_sources(a_user("reader"))] == [
        "b",
        "a",
    ]
    bad = {**sent, "name": "other", "options": '{"temprature": 1}'}
    answer = admin_client.post(reverse("admin:conversations_preset_add"), bad)
    assert "temprature" in answer.content.decode()


# Try


@pytest.fixture
def rules():
    return ContextSource.objects.create(name="r", title="Rules", text="<b>Bé kind</b>")


def test_a_source_is_tried_and_its_text_size_and_time_are_shown(admin_client, rules):
    page = sources_page("try", rules.pk)
    assert page in admin_client.get(sources_page("change", rules.pk)).content.decode()
    assert "Result" not in admin_client.get(page).content.decode()
    text = admin_client.post(page, {"username": "admin"}).content.decode()
    assert "&lt;b&gt;Bé kind&lt;/b&gt;" in text
    assert "15 bytes" in text
    assert "Tried as admin: 15 bytes" in LogEntry.objects.get().change_message


def test_a_failing_source_is_shown_with_advice(admin_client, rules):
    ContextSource.objects.update(kind="http", url="http://10.0.0.1/secret-path")
    page = sources_page("try", rules.pk)
    text = admin_client.post(page, {"username": "admin"}).content.decode()
    assert "The turn would run without this context:" in text
    assert "allow its network" in text
    assert "secret-path" not in text


def test_reading_a_source_as_another_user_needs_a_permission(rules, ada, monkeypatch):
    made = SourceFunction(
        path="me",
        call=lambda reader: reader.username,
        parameter="reader",
        is_async=False,
    )
    monkeypatch.setattr(context, "source_functions", lambda: {"me": made})
    ContextSource.objects.update(kind="python", function="me")
    page = sources_page("try", rules.pk)

    def read_source(*permissions):
        user = staff("-".join(permissions), *permissions)
        answer = signed_in(user).post(page, {"username": "ada"})
        text = answer.content.decode()
        return answer.status_code, "<pre" in text and text.split("<pre")[1]

    assert read_source("view_contextsource") == (403, False)
    status, text = read_source("view_contextsource", "change_contextsource")
    assert status == 200
    assert ">view_contextsource-change_contextsource</pre>" in text
    status, text = read_source("view_contextsource", "try_contextsource")
    assert ">ada</pre>" in text
