"""The pages of drafts and evaluations: what they do, and for whom."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import Client
from django.urls import reverse

from conversations.models import Preset, PresetDraft
from conversations.models.staff.evaluation import (
    EvaluationAnswer,
    EvaluationCase,
    EvaluationRun,
    EvaluationSet,
)
from llm.models import ApiKey, LanguageModel, Provider
from tests.conversations.scene import signed_in, staff

pytestmark = pytest.mark.django_db


@pytest.fixture
def preset() -> Preset:
    provider = Provider.objects.create(name="Demo", kind="demo")
    ApiKey.objects.create(provider=provider, secret="demo-key-of-these-tests")
    LanguageModel.objects.create(provider=provider, name="demo", is_default=True)
    return Preset.objects.create(name="support", instructions="Live words.")


@pytest.fixture
def editor() -> Client:
    return signed_in(staff("eva", "view_preset", "change_preset"))


def page(preset: Preset, what: str, *args: Any) -> str:
    return reverse(f"admin:conversations_preset_{what}", args=[preset.pk, *args])


def seen(client: Client, preset: Preset) -> str:
    shown = client.get(page(preset, "draft")).context["draft"]
    return shown.state if shown else ""


def save_draft(client: Client, preset: Preset, **fields: Any) -> PresetDraft:
    data = {"options": "{}", "instructions": "Draft words.", **fields}
    data = {"seen": seen(client, preset), **data}
    answer = client.post(page(preset, "draft"), data)
    assert answer.status_code == 302, answer.context["form"].errors
    return PresetDraft.objects.get()


def publish(client: Client, preset: Preset, **fields: Any) -> str:
    data = {"seen": seen(client, preset), **fields}
    answer = client.post(page(preset, "draft_publish"), data, follow=True)
    return answer.content.decode()


def blocking(preset: Preset) -> EvaluationSet:
    made = EvaluationSet.objects.create(
        preset=preset, name="basics", blocks_publishing=True
    )
    made.cases.create(input="Hi", contains="yes")
    return made


def live_words(preset: Preset) -> str:
    preset.refresh_from_db()
    return preset.instructions


# Drafts


def test_a_draft_changes_nothing_until_it_is_published(editor, preset):
    draft = save_draft(editor, preset, note="Kinder", max_cost="0.25")
    assert live_words(preset) == "Live words."
    shown = editor.get(page(preset, "draft")).content.decode()
    assert "- Live words." in shown
    assert "+ Draft words." in shown
    assert draft.content["max_cost"] == "0.25"
    assert "The draft is live." in publish(editor, preset)
    assert live_words(preset) == "Draft words."
    version = preset.versions.first()
    assert (version.number, version.note) == (2, "Kinder")
    assert version.made_by.username == "eva"
    assert not PresetDraft.objects.exists()
    assert "There is no draft." in publish(editor, preset)


@pytest.mark.parametrize("page", ["change", "draft", "evaluations_add"])
def test_models_of_one_name_are_told_apart_by_their_providers(editor, preset, page):
    for name in ("First", "Second"):
        provider = Provider.objects.create(name=name, kind="demo")
        provider.models.create(name="twin")
    address = reverse(f"admin:conversations_preset_{page}", args=[preset.pk])
    html = editor.get(address).content.decode()
    assert ">First/twin<" in html
    assert ">Second/twin<" in html


def test_only_what_was_seen_is_published(editor, preset):
    draft = save_draft(editor, preset)
    seen = draft.state
    Preset.objects.update(instructions="Somebody else's words.")
    answer = editor.post(page(preset, "draft_publish"), {"seen": seen}, follow=True)
    assert "changed meanwhile" in answer.content.decode()
    assert live_words(preset) == "Somebody else's words."


def test_only_what_was_seen_is_discarded(editor, preset):
    seen = save_draft(editor, preset).state
    PresetDraft.objects.update(note="Of another member of staff.")
    for old in (seen, ""):
        answer = editor.post(page(preset, "draft_discard"), {"seen": old}, follow=True)
        assert "changed meanwhile" in answer.content.decode()
        assert "Of another member of staff." in answer.content.decode()
    draft = PresetDraft.objects.get()
    editor.post(page(preset, "draft_discard"), {"seen": draft.state})
    assert not PresetDraft.objects.exists()
    editor.post(page(preset, "draft_discard"), {"seen": draft.state})


@pytest.mark.parametrize(
    "fields",
    [
        {"options": "[1]"},
        {"options": '{"temperature": "hot"}'},
        {"max_tokens": "0"},
        {"max_cost": "-1"},
        {"language_model": "99"},
        {"sources": "nowhere"},
        {"label": "x" * 101},
        {"note": "x" * 201},
    ],
)
def test_a_wrong_value_is_named_and_saves_nothing(editor, preset, fields):
    data = {"options": "{}", "instructions": "D", **fields}
    answer = editor.post(page(preset, "draft"), data)
    assert answer.status_code == 200
    assert list(answer.context["form"].errors) == list(fields)
    assert not PresetDraft.objects.exists()


def test_a_draft_whose_model_is_gone_can_be_mended(editor, preset):
    model = LanguageModel.objects.create(provider=Provider.objects.get(), name="old")
    save_draft(editor, preset, language_model=model.pk)
    model.delete()
    assert "no longer exists" in editor.get(page(preset, "draft")).content.decode()
    assert "no longer exists" in publish(editor, preset)
    save_draft(editor, preset)
    publish(editor, preset)
    assert live_words(preset) == "Draft words."


def test_a_draft_that_another_saved_meanwhile_is_not_overwritten(editor, preset):
    early = seen(editor, preset)
    save_draft(editor, preset, instructions="Words of Eva.")
    mine = {"options": "{}", "instructions": "Words of Max.", "seen": early}
    answer = editor.post(page(preset, "draft"), mine)
    assert "has changed meanwhile" in answer.text
    assert "+ Words of Eva." in answer.text
    assert "Words of Max." in answer.context["form"]["instructions"].value()
    assert PresetDraft.objects.get().content["instructions"] == "Words of Eva."
    shown = f'name="seen" value="{seen(editor, preset)}"'
    assert answer.text.count(shown) == 2  # so that who has looked may save
    save_draft(editor, preset, instructions="Words of Max.")
    assert PresetDraft.objects.get().content["instructions"] == "Words of Max."


def test_a_wrong_value_does_not_make_a_draft_of_another_seen(editor, preset):
    early = seen(editor, preset)
    save_draft(editor, preset, instructions="Words of Eva.")
    mine = {"options": "[1]", "instructions": "Words of Max.", "seen": early}
    answer = editor.post(page(preset, "draft"), mine)
    mine |= {"options": "{}", "seen": answer.context["seen"]}
    assert f'name="seen" value="{mine["seen"]}"' in answer.text
    assert "has changed meanwhile" in editor.post(page(preset, "draft"), mine).text
    assert PresetDraft.objects.get().content["instructions"] == "Words of Eva."


@pytest.mark.slow
@pytest.mark.smoke
def test_a_blocking_evaluation_leaves_no_other_way(editor, preset):
    save_draft(editor, preset)
    blocking(preset)
    assert "has not passed" in publish(editor, preset)
    assert "has not passed" in publish(editor, preset, override="1")
    form = {"name": "support", "instructions": "Past it.", "options": "{}"}
    form |= {"links-TOTAL_FORMS": 0, "links-INITIAL_FORMS": 0}
    editor.post(page(preset, "change"), form)
    assert live_words(preset) == "Live words."
    chief = signed_in(
        staff("ceo", "view_preset", "change_preset", "publish_unevaluated")
    )
    publish(chief, preset, override="1")
    assert live_words(preset) == "Draft words."
    text = editor.post(page(preset, "restore", 1), follow=True).content.decode()
    assert "has not passed" in text
    assert live_words(preset) == "Draft words."


# Evaluations


def case_form(*cases: dict[str, Any], **fields: Any) -> dict[str, Any]:
    data = {"name": "basics", "cases-TOTAL_FORMS": len(cases), **fields}
    data["cases-INITIAL_FORMS"] = 0
    for number, case in enumerate(cases):
        data |= {f"cases-{number}-{name}": value for name, value in case.items()}
    return data


def test_a_rubric_needs_a_judge_when_it_is_saved(editor, preset):
    add = page(preset, "evaluations_add")
    case = {"input": "Hi", "rubric": "It is kind."}
    answer = editor.post(add, case_form(case))
    assert "Choose the model that judges by the rubrics." in answer.text
    assert not EvaluationSet.objects.exists()
    judge = LanguageModel.objects.get()
    assert editor.post(add, case_form(case, judge=judge.pk)).status_code == 302
    edit = page(preset, "evaluations_edit", EvaluationSet.objects.get().pk)
    saved = {"cases-0-id": EvaluationCase.objects.get().pk, "cases-INITIAL_FORMS": 1}
    without = case_form(case, **saved)
    assert "Choose the model" in editor.post(edit, without).text
    emptied = case_form({**case, "rubric": "", "contains": "hi"}, **saved)
    assert editor.post(edit, emptied).status_code == 302


def test_a_judge_that_the_editor_may_not_use_stays(editor, preset):
    judge = LanguageModel.objects.get()
    made = EvaluationSet.objects.create(preset=preset, name="basics", judge=judge)
    judge.groups.add(Group.objects.create(name="judges"))
    edit = page(preset, "evaluations_edit", made.pk)
    assert f'value="{judge.pk}" selected' in editor.get(edit).text
    answer = editor.post(edit, case_form(name="renamed", judge=judge.pk))
    assert answer.status_code == 302
    made.refresh_from_db()
    assert (made.name, made.judge) == ("renamed", judge)
    add = page(preset, "evaluations_add")
    assert editor.post(add, case_form(judge=judge.pk)).status_code == 200


def test_a_set_is_made_run_read_and_cancelled(editor, preset):
    add = page(preset, "evaluations_add")
    answer = editor.post(add, case_form({"input": "Hi", "contains": "yes"}))
    assert answer["Location"] == page(preset, "evaluations")
    made = EvaluationSet.objects.get()
    assert made.cases.get().contains == "yes"
    again = editor.post(add, case_form({"input": "Hi", "contains": "yes"}))
    assert "name" in again.context["form"].errors
    save_draft(editor, preset)
    assert "with_live" in editor.get(page(preset, "evaluations")).text
    run_url = page(preset, "evaluations_run", made.pk)
    answer = editor.post(run_url, {"budget": "1", "with_live": "on"})
    run = EvaluationRun.objects.get()
    assert answer["Location"] == page(preset, "runs_results", run.pk)
    assert run.content["instructions"] == "Draft words."
    assert run.live_content["instructions"] == "Live words."
    EvaluationAnswer.objects.update(
        state="unmet",
        text="<script>no</script>",
        checks=[{"kind": "contains", "passed": False, "reason": "It lacks: yes"}],
    )
    shown = editor.get(answer["Location"]).content.decode()
    assert shown.count("&lt;script&gt;no&lt;/script&gt;") == 2
    assert "It lacks: yes" in shown
    editor.post(page(preset, "runs_cancel", run.pk))
    run.refresh_from_db()
    assert run.cancel_requested
    assert editor.get(answer["Location"], {"fragment": "1"}).status_code == 200
    assert editor.get(page(preset, "evaluations")).status_code == 200
    editor.post(run_url, {"budget": "-1"})
    editor.post(run_url, {"budget": "lots"})
    assert EvaluationRun.objects.count() == 1


def test_without_a_draft_the_live_preset_is_asked_once(editor, preset):
    add = page(preset, "evaluations_add")
    editor.post(add, case_form({"input": "Hi", "contains": "yes"}))
    assert "with_live" not in editor.get(page(preset, "evaluations")).text
    run_url = page(preset, "evaluations_run", EvaluationSet.objects.get().pk)
    editor.post(run_url, {"budget": "1", "with_live": "on"})
    run = EvaluationRun.objects.get()
    assert run.content["instructions"] == "Live words."
    assert [answer.side for answer in run.answers.all()] == ["draft"]
    results = editor.get(page(preset, "runs_results", run.pk)).text
    assert "Live version –" in results
    assert "Draft –" not in results
    EvaluationRun.objects.update(passed=False)
    results = editor.get(page(preset, "runs_results", run.pk)).text
    assert "The live version has not passed." in results


@pytest.mark.parametrize(
    "case",
    [
        {"input": "Hi"},
        {"input": "Hi", "pattern": "("},
        {"input": "Hi", "schema": "{"},
        {"input": "Hi", "schema": '{"type": 7}'},
        {"input": "", "contains": "x"},
        {"input": "x" * 100_001, "contains": "x"},
    ],
)
def test_a_wrong_case_is_named_and_saves_nothing(editor, preset, case):
    answer = editor.post(page(preset, "evaluations_add"), case_form(case))
    assert answer.status_code == 200
    assert any(answer.context["cases"].errors)
    assert not EvaluationSet.objects.exists()


def test_only_who_may_override_ends_the_requirement(editor, preset):
    made = blocking(preset)
    case = made.cases.get()
    form = case_form({"id": case.pk, "input": "Hi", "contains": "yes"})
    form["cases-INITIAL_FORMS"] = 1
    editor.post(page(preset, "evaluations_edit", made.pk), form)
    made.refresh_from_db()
    assert made.blocks_publishing
    shown = editor.get(page(preset, "evaluations_edit", made.pk)).content.decode()
    assert ">null<" not in shown.replace("\n", "")
    answer = editor.post(page(preset, "evaluations_remove", made.pk))
    assert answer.status_code == 403
    chief = signed_in(
        staff("ceo", "view_preset", "change_preset", "publish_unevaluated")
    )
    chief.post(page(preset, "evaluations_remove", made.pk))
    assert not EvaluationSet.objects.exists()


def test_cases_that_block_publishing_are_changed_only_by_who_may_override(
    editor, preset
):
    made = blocking(preset)
    case, edit = made.cases.get(), page(preset, "evaluations_edit", made.pk)
    easier = case_form({"id": case.pk, "input": "Hi", "contains": "e"}, name="mine")
    easier["cases-INITIAL_FORMS"] = 1
    more = {"cases-TOTAL_FORMS": 2, "cases-1-input": "Ho", "cases-1-contains": "h"}
    form = {**easier, **more, "judge": LanguageModel.objects.get().pk}
    assert "without its evaluation" in editor.get(edit).text
    for sent in (form, {**form, "cases-0-DELETE": "on"}):
        assert editor.post(edit, sent).status_code == 302
        made.refresh_from_db()
        assert (made.name, made.judge) == ("mine", None)
        assert [each.contains for each in made.cases.all()] == ["yes"]
    chief = signed_in(
        staff("ceo", "view_preset", "change_preset", "publish_unevaluated")
    )
    chief.post(edit, {**easier, "blocks_publishing": "on"})
    assert made.cases.get().contains == "e"


# Rights


@pytest.mark.slow
@pytest.mark.smoke
def test_without_rights_the_pages_are_closed_and_owners_have_them(editor, preset):
    made = blocking(preset)
    editor.post(page(preset, "evaluations_run", made.pk))
    run = EvaluationRun.objects.get()
    pages = [("draft",), ("preview",), ("evaluations",), ("evaluations_add",)]
    pages += [("evaluations_edit", made.pk), ("runs_results", run.pk)]
    posts = [("draft_publish",), ("draft_discard",), ("runs_cancel", run.pk)]
    posts += [("evaluations_remove", made.pk), ("evaluations_run", made.pk)]
    tom = staff("tom")
    viewer = signed_in(staff("vera", "view_preset"))
    client = signed_in(tom)
    for each in (client, viewer):
        assert {each.get(page(preset, *p)).status_code for p in pages} == {403}
        assert {each.post(page(preset, *p)).status_code for p in posts} == {403}
    assert "/draft/" not in viewer.get(page(preset, "change")).content.decode()
    group = Group.objects.create(name="owners")
    Preset.objects.update(owner_group=group)
    tom.groups.add(group)
    assert {client.get(page(preset, *p)).status_code for p in pages} == {200}
    save_draft(client, preset, sources="nowhere")  # a field that owners do not have
    assert PresetDraft.objects.get().content["sources"] == []
    other = Preset.objects.create(name="other")
    assert client.get(page(other, "runs_results", run.pk)).status_code in (403, 404)
    assert editor.get(page(other, "runs_results", run.pk)).status_code == 404
    assert editor.get(page(other, "evaluations_edit", made.pk)).status_code == 404
