"""Presets of the configuration file whose changes must pass an evaluation."""

from __future__ import annotations

import html
import tomllib

import pytest
from django.test import Client

from conversations.models.preset import Preset
from conversations.models.staff.evaluation import (
    EvaluationRun,
    EvaluationSet,
    PresetDraft,
)
from project.config_file import dump, load

pytestmark = pytest.mark.django_db

FILE = """
[[presets]]
name = "lawyer"
label = "Our lawyer"
instructions = "Cite the paragraph."
options = {temperature = 0.1}
"""
CHANGED = FILE.replace("Cite the paragraph.", "Be brief.").replace("0.1", "0.9")
WHY = "The evaluation “Paragraphs” has not passed with this content."


def made(text: str = FILE):
    return load(tomllib.loads(text), {})


@pytest.fixture
def cases() -> EvaluationSet:
    """What each change of the preset must pass."""
    made()
    found = EvaluationSet.objects.create(
        preset=Preset.objects.get(), name="Paragraphs", blocks_publishing=True
    )
    found.cases.create(input="May I?", contains="§")
    return found


def test_a_change_is_held_back_as_a_draft_and_told(cases):
    report = made(CHANGED)
    assert list(report.changes) == ["presets[lawyer]: saved as a draft"]
    assert list(report.notes) == [f"presets[lawyer]: held back as a draft. {WHY}"]
    preset = Preset.objects.get()
    assert preset.instructions == "Cite the paragraph."
    assert preset.options == {"temperature": 0.1}
    draft = PresetDraft.objects.get()
    assert draft.content["instructions"] == "Be brief."
    assert draft.content["options"] == {"temperature": 0.9}
    again = made(CHANGED)
    assert list(again.changes) == []
    assert list(again.notes) == [f"presets[lawyer]: still held back as a draft. {WHY}"]


def test_it_goes_live_once_its_evaluation_has_passed(cases):
    made(CHANGED)
    run = EvaluationRun.begin(cases, PresetDraft.objects.get().content)
    EvaluationRun.objects.filter(pk=run.pk).update(passed=True, state="done")
    report = made(CHANGED)
    assert len(report.changes) == 2
    assert list(report.notes) == []
    assert Preset.objects.get().instructions == "Be brief."
    newest = Preset.objects.get().versions.first()
    assert newest.snapshot["instructions"] == "Be brief."


def test_what_no_evaluation_tries_is_live_at_once(cases):
    report = made(CHANGED.replace("Our lawyer", "The lawyer") + 'groups = ["Law"]\n')
    preset = Preset.objects.get()
    assert preset.label == "The lawyer"
    assert [group.name for group in preset.groups.all()] == ["Law"]
    assert preset.instructions == "Cite the paragraph."
    assert any(change.startswith("presets[lawyer].label") for change in report.changes)


def test_a_persons_draft_is_not_overwritten(cases, admin_user):
    preset = Preset.objects.get()
    content = {**preset.content(), "instructions": "Mine."}
    PresetDraft.objects.create(preset=preset, content=content, made_by=admin_user)
    report = made(CHANGED)
    assert list(report.changes) == []
    assert "It has another draft" in report.notes[0]
    assert PresetDraft.objects.get().content["instructions"] == "Mine."


def test_a_preset_without_such_an_evaluation_changes_at_once(cases):
    EvaluationSet.objects.update(blocks_publishing=False)
    assert len(made(CHANGED).changes) == 2
    assert Preset.objects.get().instructions == "Be brief."
    assert not PresetDraft.objects.exists()


def test_loading_what_was_dumped_leaves_the_draft(cases):
    made(CHANGED)
    report = load(dump(), {})
    assert (list(report.changes), list(report.notes)) == ([], [])
    assert PresetDraft.objects.exists()


def test_the_import_page_says_so_before_anything_is_stored(cases, admin_client: Client):
    page = admin_client.post("/admin/config/", {"text": CHANGED})
    text = html.unescape(page.content.decode())
    assert f"held back as a draft. {WHY}" in text
    assert "Apply these changes" in text
    assert not PresetDraft.objects.exists()
    data = {"text": CHANGED, "before": page.context["before"], "_apply": "1"}
    shown = admin_client.post("/admin/config/", data, follow=True)
    assert "held back as a draft" in html.unescape(shown.content.decode())
    assert PresetDraft.objects.get().content["instructions"] == "Be brief."
    assert Preset.objects.get().instructions == "Cite the paragraph."
