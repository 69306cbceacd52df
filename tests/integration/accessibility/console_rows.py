"""Rows for the console's pages of presets, versions, prompts and provider bytes."""

from __future__ import annotations

import zlib
from decimal import Decimal

import orjson
from django.contrib.auth.models import Group, User
from django.urls import reverse

from conversations.models import ContextSource, Preset, PresetDraft, SavedPrompt, Turn
from conversations.models.staff.evaluation import (
    EvaluationAnswer,
    EvaluationRun,
    EvaluationSet,
    PreviewChat,
)
from conversations.models.staff.versions import PresetVersion, PromptVersion
from llm.db.encrypted_field import MASK
from llm.models import LanguageModel, ModelCall, ModelExchange, ModelPool
from llm.wire.items import message, user_message
from tools.models import Tool

QUESTION = "How long does delivery take?"
HAND_OVER = "My parcel arrived broken, and nobody answers me!"
#: By number of the case and side: the answer, the kind of check, and what it lacks.
ANSWERS = {
    (1, "draft"): ("Delivery takes two days.", "contains", ""),
    (1, "live"): (
        "That depends on the carrier.",
        "contains",
        "It lacks: two days | 48 hours",
    ),
    (2, "draft"): (
        "I am sorry. Send us a photo, and we send you another one today.",
        "judge",
        "",
    ),
    (2, "live"): (
        "Please write to the support.",
        "judge",
        "It neither apologises nor offers a replacement.",
    ),
}


def store_console(turn: Turn) -> dict[str, str]:
    """The addresses of the pages, by kind."""
    return {
        **_of_preset(),
        **_of_models(),
        **_of_versions(),
        "admin exchange": _exchange(turn),
    }


def _of_preset() -> dict[str, str]:
    staff = User.objects.get(username="admin")
    preset = Preset.objects.create(
        name="support", label="Support", instructions="Answer questions of customers."
    )
    _change(preset, staff, "Answer questions of customers in two sentences.", "Shorter")
    draft = {**preset.content(), "instructions": "Answer in two sentences. Be exact."}
    PresetDraft.objects.create(
        preset=preset, content=draft, note="Delivery times", made_by=staff
    )
    chat = PreviewChat(preset=preset, user=staff)
    chat.items = [user_message(QUESTION), message("assistant", ANSWERS[1, "draft"][0])]
    chat.figures = {"model": "GPT-5 mini", "tokens": 412, "cost": "0.000310"}
    chat.save()
    cases = EvaluationSet.objects.create(
        preset=preset,
        name="Delivery",
        blocks_publishing=True,
        judge=LanguageModel.objects.get(name="gpt-5"),
    )
    cases.cases.create(input=QUESTION, contains="two days | 48 hours")
    cases.cases.create(
        input=HAND_OVER, rubric="It apologises and offers to replace it."
    )
    run = EvaluationRun.begin(
        cases, draft, live_content=preset.content(), created_by=staff
    )
    _finish(run)
    base = f"/admin/conversations/preset/{preset.pk}"
    return {
        "admin preset": f"{base}/change/",
        "admin draft": f"{base}/draft/",
        "admin preview": f"{base}/preview/",
        "admin evaluations": f"{base}/evaluations/",
        "admin evaluation": f"{base}/evaluations/{cases.pk}/edit/",
        "admin new evaluation": f"{base}/evaluations/add/",
        "admin evaluation results": f"{base}/runs/{run.pk}/results/",
        "admin preset versions": f"{base}/versions/",
    }


def _change(preset: Preset, user: User, instructions: str, note: str) -> None:
    before = PresetVersion.take_snapshot(preset)
    preset.instructions = instructions
    preset.save()
    PresetVersion.objects.record(preset, user, note, before=before)


def _finish(run: EvaluationRun) -> None:
    for (number, side), (text, kind, reason) in ANSWERS.items():
        passed = not reason
        EvaluationAnswer.objects.filter(run=run, side=side, number=number).update(
            state="passed" if passed else "unmet",
            text=text,
            checks=[{"kind": kind, "passed": passed, "reason": reason}],
            model_calls=1,
            tokens=412,
            cost=Decimal("0.00031"),
            seconds=1.8,
        )
    EvaluationRun.objects.filter(pk=run.pk).update(state="done", passed=True)


def _of_models() -> dict[str, str]:
    model = LanguageModel.objects.get(name="gpt-5-mini")
    first = LanguageModel.objects.get(name="gpt-5")
    first.fallbacks.add(LanguageModel.objects.get(name="claude-sonnet-4-5"), model)
    pool = ModelPool.objects.create(name="gpt-anywhere")
    for weight, each in enumerate((first, model)):
        pool.members.create(model=each, weight=weight)
    base = "/admin/llm/languagemodel"
    return {
        "admin model": f"{base}/{model.pk}/change/",
        "admin capabilities": f"{base}/{model.pk}/capabilities/",
        "admin fallback paths": f"{base}/paths/",
        "admin test prompt": f"{base}/test/?models={model.pk}",
    }


def _of_versions() -> dict[str, str]:
    tool = Tool.objects.get(name="calculator")
    prompt = _prompt()
    source = ContextSource.objects.latest("pk")
    return {
        "admin tool": f"/admin/tools/tool/{tool.pk}/change/",
        "admin tool versions": f"/admin/tools/tool/{tool.pk}/versions/",
        "admin prompt versions": (
            f"/admin/conversations/savedprompt/{prompt.pk}/versions/"
        ),
        "admin context source": (
            f"/admin/conversations/contextsource/{source.pk}/try/"
        ),
    }


def _prompt() -> SavedPrompt:
    staff = User.objects.get(username="admin")
    group = Group.objects.get(name="Board")
    prompt = SavedPrompt.objects.create(
        group=group, name="minutes", title="Minutes", text="Shorten these minutes."
    )
    before = PromptVersion.take_snapshot(prompt)
    prompt.text = "Shorten these minutes to what was decided: {{minutes}}"
    prompt.save()
    PromptVersion.objects.record(prompt, staff, "Decisions only", before=before)
    return prompt


def _exchange(turn: Turn) -> str:
    call = ModelCall.objects.filter(turn_id=turn.pk).latest("pk")
    json = {"content-type": "application/json"}
    request = {
        "model": "gpt-5",
        "stream": True,
        "input": [{"role": "user", "content": "Which region leads?"}],
    }
    sent = orjson.dumps(request).decode()
    received = 'data: {"type":"response.output_text.delta","delta":"North leads."}\n\n'
    content = {
        "method": "POST",
        "url": "https://api.openai.com/v1/responses",
        "request_headers": [*json.items(), ("authorization", f"Bearer {MASK}")],
        "request": sent,
        "request_size": len(sent),
        "request_cut": False,
        "status": 200,
        "response_headers": [("content-type", "text/event-stream")],
        "response": received,
        "response_size": len(received),
        "response_cut": False,
    }
    packed = zlib.compress(orjson.dumps(content))
    ModelExchange.objects.create(call=call, content=packed)
    return reverse("admin:llm_modelcall_exchange", args=[call.pk])
