"""Versions of presets and of groups' prompts in the admin, and who may change them."""

from __future__ import annotations

import tomllib
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import Client
from django.urls import reverse

from conversations.models import ContextSource, Preset, SavedPrompt
from conversations.models.staff.versions import PresetVersion, PromptVersion
from project.config_file import dump_text, load
from tests.conversations.scene import a_model, a_user, signed_in, staff
from tools.models import Tool

pytestmark = pytest.mark.django_db


@pytest.fixture
def preset() -> Preset:
    return Preset.objects.create(name="support", instructions="You help.")


@pytest.fixture
def editor() -> Client:
    return signed_in(staff("eva", "view_preset", "change_preset", "add_preset"))


def form(**fields: Any) -> dict[str, Any]:
    empty = {"links-TOTAL_FORMS": 0, "links-INITIAL_FORMS": 0}
    return {"name": "support", "enabled": "on", "options": "{}", **empty, **fields}


def save(client: Client, preset: Preset, **fields: Any) -> Any:
    url = reverse("admin:conversations_preset_change", args=[preset.pk])
    answer = client.post(url, form(**fields))
    assert answer.status_code == 302, answer.context["errors"]
    return answer


def page(preset: Preset, what: str, *args: Any) -> str:
    return reverse(f"admin:conversations_preset_{what}", args=[preset.pk, *args])


def test_each_save_makes_a_version_with_author_and_note(editor, preset):
    save(editor, preset, instructions="You help kindly.", note="Be kind")
    save(editor, preset, instructions="You help kindly.", note="Nothing changed")
    found = list(preset.versions.values_list("number", "made_by__username", "note"))
    assert found == [(2, "eva", "Be kind"), (1, None, "")]
    preset.refresh_from_db()
    assert preset.version == 2
    text = editor.get(page(preset, "versions")).content.decode()
    assert "- You help." in text
    assert "+ You help kindly." in text


def test_a_new_preset_has_a_version(editor):
    editor.post(reverse("admin:conversations_preset_add"), form(instructions="Hi"))
    [version] = PresetVersion.objects.all()
    assert version.snapshot["instructions"] == "Hi"


def test_an_earlier_version_is_restored_with_its_links_but_not_its_access(
    editor, preset
):
    model, tool = a_model("m"), Tool.objects.create(name="dice", kind="http")
    source = ContextSource.objects.create(name="hours", title="Hours", text="9-5")
    group = Group.objects.create(name="all")
    preset.links.create(source=source)
    preset.allowed_models.add(model)
    save(
        editor,
        preset,
        tools=[tool.pk],
        language_model=model.pk,
        allowed_models=[model.pk],
        max_cost="0.5",
        max_tool_calls=3,
        **{
            "links-TOTAL_FORMS": 1,
            "links-INITIAL_FORMS": 1,
            "links-0-id": preset.links.get().pk,
            "links-0-preset": preset.pk,
            "links-0-source": source.pk,
            "links-0-position": 0,
        },
    )
    full = preset.versions.first().number
    preset.links.all().delete()
    save(editor, preset, groups=[group.pk], instructions="Other.")
    answer = editor.post(page(preset, "restore", full))
    assert answer["Location"] == page(preset, "versions")
    preset.refresh_from_db()
    assert preset.language_model == model
    assert list(preset.allowed_models.all()) == [model]
    assert (preset.max_cost, preset.max_tool_calls) == (Decimal("0.5"), 3)
    assert [s.name for s in preset.context_sources(a_user("reader"))] == ["hours"]
    assert preset.tool_names() == {"dice"}
    assert list(preset.groups.all()) == [group]
    assert preset.versions.first().note == f"Version {full} restored"


def test_what_a_version_names_may_be_gone(editor, preset):
    model, tool = a_model("m"), Tool.objects.create(name="dice", kind="http")
    save(editor, preset, tools=[tool.pk], allowed_models=[model.pk])
    save(editor, preset, instructions="Other.")
    tool.delete()
    text = editor.post(page(preset, "restore", 2), follow=True).content.decode()
    assert "dice" in text
    assert Preset.objects.get().tool_names() == set()  # and not all tools
    save(editor, preset, instructions="Other.")
    model.delete()
    page_after = editor.post(page(preset, "restore", 2), follow=True).content.decode()
    assert "None of the allowed models exists any more." in page_after
    assert Preset.objects.get().instructions == "Other."


def test_prompts_of_groups_have_versions(preset):
    group = Group.objects.create(name="sales")
    prompt = SavedPrompt.objects.create(group=group, name="offer", text="Write one.")
    client = signed_in(staff("sam", "view_savedprompt", "change_savedprompt"))
    url = reverse("admin:conversations_savedprompt_change", args=[prompt.pk])
    data = {"group": group.pk, "name": "offer", "text": "Write two.", "note": "two"}
    assert client.post(url, data).status_code == 302
    assert [v.number for v in PromptVersion.objects.all()] == [2, 1]
    restore = reverse("admin:conversations_savedprompt_restore", args=[prompt.pk, 1])
    text = client.post(restore, follow=True).content.decode()
    assert "Write two." in text
    prompt.refresh_from_db()
    assert prompt.text == "Write one."
    own = SavedPrompt.objects.create(owner=a_user("ada"), name="mine", text="secret")
    theirs = reverse("admin:conversations_savedprompt_versions", args=[own.pk])
    assert client.get(theirs).status_code in (403, 404)


@pytest.mark.parametrize("what", ["versions", "restore"])
def test_without_rights_there_are_no_versions(preset, editor, what):
    save(editor, preset, instructions="New.")
    args = [1] if what == "restore" else []
    client = signed_in(staff("nora", "view_tool"))
    answer = client.post(page(preset, what, *args))
    assert answer.status_code == 403
    viewer = signed_in(staff("vera", "view_preset"))
    assert viewer.get(page(preset, "versions")).status_code == 200
    assert viewer.post(page(preset, "restore", 1)).status_code == 403
    assert Preset.objects.get().instructions == "New."


def test_the_owner_group_changes_what_a_preset_does_and_nothing_else(preset):
    group = Group.objects.create(name="owners")
    Preset.objects.update(owner_group=group)
    Preset.objects.create(name="other")
    hidden = a_model("secret-model")
    hidden.groups.add(Group.objects.create(name="board"))
    tom = staff("tom")
    client = signed_in(tom)
    change = page(preset, "change")
    assert client.get(change).status_code == 403  # not yet in the group
    tom.groups.add(group)
    shown = client.get(change).content.decode()
    assert "secret-model" not in shown
    assert "secret-model" not in client.get(page(preset, "versions")).content.decode()
    save(
        client,
        preset,
        instructions="Ours.",
        name="hijacked",
        is_default="on",
        owner_group="",
        groups=[group.pk],
    )
    preset.refresh_from_db()
    assert preset.instructions == "Ours."
    assert (preset.name, preset.is_default) == ("support", False)
    assert preset.owner_group == group
    assert not preset.groups.exists()
    listed = client.get(reverse("admin:conversations_preset_changelist"))
    assert [row.name for row in listed.context["cl"].result_list] == ["support"]
    other = Preset.objects.get(name="other")
    assert client.get(page(other, "versions")).status_code in (403, 404)
    assert client.post(page(preset, "delete")).status_code == 403
    assert client.get(reverse("admin:conversations_preset_add")).status_code == 403


def test_the_configuration_file_has_limits_and_makes_versions(preset):
    model = a_model("m")
    preset.allowed_models.add(model)
    preset.max_cost, preset.max_tokens = Decimal("0.25"), 500
    preset.owner_group = Group.objects.create(name="owners")
    preset.save()
    document = tomllib.loads(dump_text())
    [table] = document["presets"]
    assert table["allowed_models"] == [model.full_name]
    assert load({"presets": [table]}, {}).changes == []
    assert not preset.versions.exists()
    table["instructions"] = "From the file."
    load({"presets": [table]}, {})
    last = preset.versions.first()
    assert (last.number, last.note) == (2, "Configuration file")
    preset.refresh_from_db()
    assert preset.owner_group is not None
    assert preset.max_cost == Decimal("0.25")
