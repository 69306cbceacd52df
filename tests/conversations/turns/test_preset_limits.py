"""What a preset allows a turn: models, tokens, cost and tool calls; and its version."""

from __future__ import annotations

import pytest
from asgiref.sync import sync_to_async

from conversations.engine.loading.preset_limits import ModelNotInPreset
from conversations.models import Conversation, PresetVersion, Turn
from llm.http import client
from llm.models import LanguageModel
from llm.wire.deltas import FinishDelta, TextDelta, ToolCallDelta, UsageDelta
from tests.conversations.script import SilentHost
from tests.conversations.turns.test_presets import (
    ANSWER,
    answered,
    conversation,
    loaded,
    model,
    preset,
    running,
    say,
)
from tools.models import PermittedTools
from tools.registry import RuntimeTool

__all__ = ["conversation", "model", "preset", "running", "say"]
CALL = [
    ToolCallDelta(0, "c1", "count", "{}"),
    UsageDelta(40, 10),
    FinishDelta("tool_calls"),
]
ENDLESS = [CALL] * 20


@pytest.fixture
def count(monkeypatch) -> list[int]:
    ran: list[int] = []

    async def run(context, arguments):
        ran.append(1)
        return {"times": len(ran)}

    tool = RuntimeTool(
        name="count",
        description="",
        parameters={"type": "object"},
        call=run,
        replay="safe",
    )
    monkeypatch.setattr(
        "conversations.engine.loading.available_tools.permitted_tools",
        lambda turn: PermittedTools({"count": tool}),
    )
    return ran


def test_only_allowed_models_answer(conversation, preset, model):
    other = LanguageModel.objects.create(provider=model.provider, name="other")
    preset.allowed_models.add(other)
    with pytest.raises(ModelNotInPreset):
        loaded(conversation)
    Turn.objects.all().delete()
    preset.allowed_models.add(model)
    assert loaded(conversation).route.model_id == model.pk


async def test_another_model_fails_with_a_reason(
    conversation, preset, model, running, say
):
    script = say()
    other = await LanguageModel.objects.acreate(provider=model.provider, name="other")
    await preset.allowed_models.aadd(other)
    turn, _ = await answered(conversation)
    assert turn.status == Turn.Status.FAILED
    assert turn.error["code"] == "E_MODEL_NOT_IN_PRESET"
    assert script.requests == []


def test_no_answer_is_longer_than_all_tokens(conversation, preset):
    preset.max_tokens = 50
    preset.save()

    def most(**options):
        return loaded(conversation, **options).task.prepare([]).max_output_tokens

    assert most() == 50
    assert most(max_output_tokens=9) == 9
    assert most(max_output_tokens=900) == 50


async def test_tokens_end_a_turn_between_its_calls(
    conversation, preset, model, running, say, count
):
    preset.max_tokens = 100  # two calls of 50
    await preset.asave()
    script = say(*ENDLESS)
    turn, _ = await answered(conversation)
    assert turn.status == Turn.Status.INCOMPLETE
    assert turn.incomplete_reason == "max_tokens"
    assert len(script.requests) == 2


@pytest.mark.parametrize(
    ("limit", "reason"),
    [({"max_tokens": 30}, "max_tokens"), ({"max_cost": "0.00003"}, "max_cost")],
)
async def test_what_a_host_does_not_report_is_estimated_for_the_limits(
    conversation, preset, model, running, monkeypatch, count, limit, reason
):
    model.prices = {"input": 1, "output": 1}
    await model.asave()
    for name, value in limit.items():
        setattr(preset, name, value)  # two calls of 20 tokens
    await preset.asave()
    call, _, end = CALL
    script = SilentHost(*[[call, end]] * 20)
    monkeypatch.setattr(client, "stream", script)
    turn, _ = await answered(conversation)
    assert turn.incomplete_reason == reason
    assert len(script.requests) == 2


async def test_cost_ends_a_turn_between_its_calls(
    conversation, preset, model, running, say, count
):
    model.prices = {"input": 1, "output": 1}
    await model.asave()
    preset.max_cost = "0.00008"  # a call costs 0.00005
    await preset.asave()
    script = say(*ENDLESS)
    turn, _ = await answered(conversation)
    assert turn.incomplete_reason == "max_cost"
    assert len(script.requests) == 2


async def test_calls_beyond_the_number_do_not_run(
    conversation, preset, model, running, say, count
):
    preset.max_tool_calls = 1
    await preset.asave()
    say(CALL, CALL, ANSWER)
    turn, _ = await answered(conversation, options={"max_tool_calls": 5})
    assert turn.status == Turn.Status.COMPLETED
    assert len(count) == 1


async def test_the_turn_stores_which_version_answered(
    conversation, preset, model, running, say
):
    say(ANSWER, ANSWER, [TextDelta(0, "x"), FinishDelta("stop")])
    first, _ = await answered(conversation)
    await sync_to_async(PresetVersion.objects.record)(preset)
    second, _ = await answered(conversation)
    plain = await Conversation.objects.acreate(owner=conversation.owner)
    third, _ = await answered(plain)
    numbers = [turn.preset_version for turn in (first, second, third)]
    assert numbers == [0, 1, None]
