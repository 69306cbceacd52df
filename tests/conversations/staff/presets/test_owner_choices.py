"""What administrators remove from a preset stays removed for its owner group."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import Client
from django.urls import reverse

from conversations.models import ContextSource, Preset, PresetDraft
from conversations.models.staff.evaluation import EvaluationRun, EvaluationSet
from conversations.models.staff.versions import PresetVersion
from llm.models import LanguageModel
from tests.conversations.scene import a_model, signed_in, staff
from tools.models import Tool

pytestmark = pytest.mark.django_db


@pytest.fixture
def preset() -> Preset:
    """Its second version has neither the source nor the tool and model, which are for
    a group without the owners."""
    board = Group.objects.create(name="board")
    made = Preset.objects.create(
        name="support",
        instructions="Old words.",
        owner_group=Group.objects.create(name="owners"),
    )
    model = a_model("board-model")
    tool = Tool.objects.create(name="pay", kind="http")
    model.groups.add(board)
    tool.groups.add(board)
    made.allowed_models.add(model)
    made.tools.add(tool)
    source = ContextSource.objects.create(name="salaries", kind="text", text="Secret.")
    made.links.create(source=source, position=0)
    PresetVersion.objects.record(made)
    return made


@pytest.fixture
def owner(preset) -> Client:
    tom = staff("tom")
    tom.groups.add(preset.owner_group)
    return signed_in(tom)


def remove_all(preset: Preset) -> None:
    kept = {"tools": [], "allowed_models": [], "sources": []}
    content = {**preset.content(), **kept, "instructions": "New words."}
    preset.set_content(content)
    PresetVersion.objects.record(preset)


def page(preset: Preset, what: str, *args: Any) -> str:
    return reverse(f"admin:conversations_preset_{what}", args=[preset.pk, *args])


def post(client: Client, url: str, **fields: Any) -> str:
    return client.post(url, fields, follow=True).content.decode()


def links(preset: Preset) -> list[list[str]]:
    content = Preset.objects.get(pk=preset.pk).content()
    return [content[name] for name in ("sources", "tools", "allowed_models")]


def test_owners_restore_no_tools_and_models_that_were_removed(owner, preset):
    remove_all(preset)
    shown = post(owner, page(preset, "restore", 1))
    assert "pay" in shown
    assert links(preset) == [[], [], []]
    preset.refresh_from_db()
    assert preset.instructions == "New words."


def test_owners_restore_all_but_the_sources(owner, preset):
    Tool.objects.get(name="pay").groups.clear()
    LanguageModel.objects.get(name="board-model").groups.clear()
    names = links(preset)[1:]
    remove_all(preset)
    other = ContextSource.objects.create(name="rules", kind="text", text="Be fair.")
    preset.links.create(source=other, position=0)
    post(owner, page(preset, "restore", 1))
    assert links(preset) == [["rules"], *names]
    preset.refresh_from_db()
    assert preset.instructions == "Old words."


def test_who_may_change_presets_restores_everything(preset):
    before = links(preset)
    remove_all(preset)
    editor = signed_in(staff("eva", "view_preset", "change_preset"))
    post(editor, page(preset, "restore", 1))
    assert links(preset) == before


@pytest.mark.parametrize("name", ["sources", "tools", "allowed_models"])
def test_owners_neither_try_nor_publish_an_old_draft(owner, preset, name):
    before = preset.content()
    remove_all(preset)
    content = {**preset.content(), name: before[name], "instructions": "Drafted."}
    draft = PresetDraft.objects.create(preset=preset, content=content)
    refusal = "up to staff who may change presets"
    shown = owner.get(page(preset, "draft"))
    assert refusal in shown.content.decode()
    seen = shown.context["draft"].state
    assert refusal in post(owner, page(preset, "draft_publish"), seen=seen)
    assert links(preset) == [[], [], []]
    assert refusal in post(owner, page(preset, "preview"), text="Hi")
    cases = EvaluationSet.objects.create(preset=preset, name="basics")
    cases.cases.create(input="Hi", contains="yes")
    assert refusal in post(owner, page(preset, "evaluations_run", cases.pk))
    assert not EvaluationRun.objects.exists()
    editor = signed_in(staff("eva", "view_preset", "change_preset"))
    post(editor, page(preset, "draft_publish"), seen=draft.state)
    preset.refresh_from_db()
    assert preset.content()[name] == before[name]


def test_owners_publish_what_they_may_choose(owner, preset):
    """What the live preset has stays, also what they could not add."""
    content = {**preset.content(), "instructions": "Drafted."}
    draft = PresetDraft.objects.create(preset=preset, content=content)
    before = links(preset)
    post(owner, page(preset, "draft_publish"), seen=draft.state)
    preset.refresh_from_db()
    assert preset.instructions == "Drafted."
    assert links(preset) == before
