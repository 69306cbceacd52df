"""Evaluations of drafts over a scripted host: verdicts, budget, cancel, crashes."""

from __future__ import annotations

import asyncio
import json
from decimal import Decimal
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import translation
from django.utils.translation.trans_real import DjangoTranslation

from conversations import engine
from conversations.engine.evaluations import evaluating
from conversations.engine.evaluations.check_reasons import (
    BUDGET_SPENT,
    NO_VERDICT,
    OTHER_WORDS,
)
from conversations.engine.evaluations.expectations import Check, check
from conversations.engine.process import leased_batches
from conversations.models import Conversation, Item, Preset, PresetDraft, Turn
from conversations.models.staff.evaluation import (
    EvaluationAnswer,
    EvaluationCase,
    EvaluationRun,
    EvaluationSet,
    NotPublishable,
)
from llm.errors import BadRequest, ProviderDown
from llm.http import client
from llm.models import ApiKey, LanguageModel, ModelCall, Provider
from llm.wire.deltas import FinishDelta, ReasoningDelta, TextDelta, UsageDelta
from tests.conversations.scene import a_user
from tests.conversations.script import HANG, Script, SilentHost

USAGE = UsageDelta(10, 10)


@pytest.fixture
def say(monkeypatch):
    def say(*answers):
        calls = [
            [TextDelta(0, a), USAGE, FinishDelta("stop")] if isinstance(a, str) else a
            for a in answers
        ]
        script = Script(*calls)
        monkeypatch.setattr(client, "stream", script)
        return script

    return say


@pytest.fixture
async def running(transactional_db, settings):
    settings.DRAIN_GRACE = 0.1
    await engine.start()
    yield
    await engine.drain()


@pytest.fixture
def model(transactional_db) -> LanguageModel:
    provider = Provider.objects.create(name="Demo", kind="demo")
    ApiKey.objects.create(provider=provider, secret="demo-key-of-these-tests")
    return LanguageModel.objects.create(
        provider=provider,
        name="demo",
        is_default=True,
        prices={"input": 1, "output": 1},
    )


@pytest.fixture
def cases(model) -> EvaluationSet:
    preset = Preset.objects.create(name="support", instructions="Live words.")
    return EvaluationSet.objects.create(
        preset=preset, name="basics", judge=model, blocks_publishing=True
    )


def a_case(cases: EvaluationSet, **fields: Any) -> EvaluationCase:
    made = EvaluationCase(evaluation_set=cases, **{"input": "Hi", **fields})
    made.full_clean()
    made.save()
    return made


def content(cases: EvaluationSet) -> dict[str, Any]:
    return {**cases.preset.content(), "instructions": "Draft words."}


def begin(cases: EvaluationSet, live: bool = False, **fields: Any) -> EvaluationRun:
    if "created_by" not in fields:
        fields["created_by"] = a_user(f"user{EvaluationRun.objects.count()}")
    if live:
        fields["live_content"] = cases.preset.content()
    return EvaluationRun.begin(cases, content(cases), **fields)


async def finish(run: EvaluationRun) -> list[Any]:
    evaluations = engine.require_engine().evaluations
    while True:
        await run.arefresh_from_db()
        if run.state not in EvaluationRun.UNFINISHED:
            return [row async for row in run.answers.order_by("number", "side")]
        await evaluations.run_due()
        await asyncio.sleep(0)


async def evaluate(cases: EvaluationSet, **fields: Any) -> tuple[EvaluationRun, Any]:
    run = await sync_to_async(begin)(cases, **fields)
    return run, await finish(run)


# What an answer is like


@pytest.mark.parametrize(
    ("case", "text", "passed"),
    [
        ({"contains": "Paris"}, "It is PARIS.", True),
        ({"contains": "two  days | 48 hours"}, "Within 48\nhours.", True),
        ({"contains": "yes\nno"}, "yes", False),
        ({"contains": "|\nyes"}, "no", False),
        ({"pattern": r"^\d+$"}, "12", True),
        ({"pattern": r"(a+)+$"}, "a" * 90_000 + "!", False),
        ({"pattern": r"(?=x)x"}, "x", True),
        ({"schema": {"type": "object", "required": ["a"]}}, '{"a": 1}', True),
        ({"schema": {"type": "object"}}, '```json\n{"a": 1}\n```', True),
        ({"schema": {"type": "object"}}, "Here: {}", False),
        ({"schema": {"type": "integer"}}, "[" * 90_000, False),
        ({"schema": {"type": "string", "pattern": "^(a+)+$"}}, '"aaa!"', False),
    ],
)
def test_expectations(case, text, passed):
    whole = {"input": "", "contains": "", "pattern": "", "schema": None, **case}
    [found] = check({**whole, "rubric": ""}, text)
    assert found.passed is passed
    assert bool(found.reason) is not passed


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"contains": "  "},
        {"pattern": "("},
        {"pattern": r"(\w{1000}){1000}"},
        {"schema": {"type": 7}},
        {"schema": {"$ref": "https://example.com/x"}},
        {"schema": [1]},
        {"contains": "x", "input": "y" * 100_001},
    ],
)
def test_a_case_that_cannot_be_checked_is_refused(cases, fields):
    with pytest.raises(ValidationError):
        a_case(cases, **fields)


def test_a_run_needs_cases_and_a_judge(cases):
    with pytest.raises(ValidationError, match="no cases"):
        begin(cases, created_by=None)
    a_case(cases, rubric="Is kind.")
    cases.judge = None
    with pytest.raises(ValidationError, match="judges"):
        begin(cases, created_by=None)


# Runs


async def test_both_sides_answer_each_case_and_nothing_enters_a_chat(
    cases, running, say
):
    await sync_to_async(a_case)(cases, contains="draft", input="Ping")
    script = say("I am the Draft.", "I am live.")
    run, (draft, live) = await evaluate(cases, live=True)
    assert run.passed is True
    assert (draft.side, draft.state) == ("draft", "passed")
    assert (live.side, live.state, live.text) == ("live", "unmet", "I am live.")
    assert [r.instructions for r in script.requests] == ["Draft words.", "Live words."]
    assert (draft.model_calls, draft.tokens) == (1, 20)
    assert draft.cost == Decimal("0.00002")
    for table in (Turn, Conversation, Item):
        assert not await table.objects.aexists()
    calls = [row async for row in ModelCall.objects.all()]
    assert {(c.purpose, c.turn_id, c.user_id) for c in calls} == {
        ("trial", "", run.created_by_id)
    }


async def test_a_judge_decides_about_other_words_and_never_reads_reasoning(
    cases, running, say
):
    await sync_to_async(a_case)(cases, rubric="It names the capital.")
    thinking = [
        ReasoningDelta(0, "secret musing"),
        TextDelta(1, "Paris it is."),
        USAGE,
        FinishDelta("stop"),
    ]
    verdict = [
        ReasoningDelta(0, '{"passed": false}'),
        TextDelta(1, '```json\n{"passed": true, "reason": "Named."}\n```'),
        USAGE,
        FinishDelta("stop"),
    ]
    script = say(thinking, verdict)
    _, [row] = await evaluate(cases)
    assert row.state == "passed"
    assert row.checks == [{"kind": "judge", "passed": True, "reason": "Named."}]
    asked = json.loads(script.requests[1].items[-1]["content"][0]["text"])
    assert asked["answer"] == row.text == "Paris it is."
    assert row.model_calls == 2


@pytest.mark.parametrize(
    "nonsense",
    ["Sure!", '{"passed": "yes"}', "[]", "", '{"passed": 1}', '{"passed": true} ok'],
)
async def test_a_judge_that_answers_nonsense_passes_nothing(
    cases, running, say, nonsense
):
    await sync_to_async(a_case)(cases, rubric="Is kind.")
    say("Hello.", nonsense, nonsense)
    run, [row] = await evaluate(cases)
    assert run.passed is False
    assert (row.state, row.model_calls) == ("unmet", 3)
    assert "no verdict" in row.checks[0]["reason"]
    assert nonsense in row.checks[0]["reason"]


@pytest.mark.parametrize("passes", [True, False])
async def test_a_judge_that_writes_its_own_words_is_asked_for_the_form(
    cases, running, say, passes
):
    await sync_to_async(a_case)(cases, rubric="Is kind.")
    own = '**Verdict:** it says {"passed": true}, but let me see … I believe so.'
    verdict = json.dumps({"passed": passes, "reason": "So it is."})
    script = say("Hello.", own, verdict)
    run, [row] = await evaluate(cases)
    assert run.passed is passes
    assert row.checks == [{"kind": "judge", "passed": passes, "reason": "So it is."}]
    _first, said, correction = script.requests[2].items
    assert (said["role"], said["content"][0]["text"]) == ("assistant", own)
    assert "one JSON object" in correction["content"][0]["text"]


@pytest.mark.parametrize("start", ["<think>", ""])
@pytest.mark.parametrize("passes", [True, False])
async def test_a_judge_may_think_in_its_text_before_the_verdict(
    cases, running, say, passes, start
):
    await sync_to_async(a_case)(cases, rubric="Is kind.")
    thought = f'{start}{{"passed": {json.dumps(not passes)}}} </think> '
    say("Hello.", thought + json.dumps({"passed": passes, "reason": "So it is."}))
    run, [row] = await evaluate(cases)
    assert run.passed is passes
    assert row.checks == [{"kind": "judge", "passed": passes, "reason": "So it is."}]


async def test_a_thought_without_an_end_holds_no_verdict(cases, running, say):
    await sync_to_async(a_case)(cases, rubric="Is kind.")
    odd = '<think>It may be {"passed": true}'
    say("Hello.", odd, odd)
    run, _rows = await evaluate(cases)
    assert run.passed is False


async def test_an_answer_that_fails_is_no_pass_and_the_rest_goes_on(
    cases, running, say
):
    for word in ("one", "two"):
        await sync_to_async(a_case)(cases, contains=word)
    say([BadRequest("It is refused.")], "two")
    run, rows = await evaluate(cases)
    assert run.state == EvaluationRun.State.DONE
    assert run.passed is False
    assert [row.state for row in rows] == ["failed", "passed"]
    assert "refused" in rows[0].error


async def test_cancelling_interrupts_the_running_answer_and_counts_its_cost(
    cases, running, monkeypatch
):
    for text in ("one", "two"):
        await sync_to_async(a_case)(cases, input=text, contains="x")
    host = SilentHost([TextDelta(0, "Half an ans"), HANG])
    monkeypatch.setattr(client, "stream", host)
    run = await sync_to_async(begin)(cases)
    await engine.require_engine().evaluations.run_due()
    async with asyncio.timeout(30):
        while not host.hanging:
            await asyncio.sleep(0)
        await EvaluationRun.objects.aupdate(cancel_requested=True)
        while not host.closed:
            await asyncio.sleep(0)
    rows = await finish(run)
    assert (run.state, run.passed) == (EvaluationRun.State.CANCELLED, None)
    assert [row.state for row in rows] == ["cancelled", "pending"]
    assert rows[0].cost == Decimal("0.00002")
    assert len(host.requests) == 1


async def test_a_run_ends_with_its_budget_and_when_it_is_cancelled(cases, running, say):
    for _ in range(3):
        await sync_to_async(a_case)(cases, contains="yes")
    say("yes")
    run, rows = await evaluate(cases, budget=Decimal("0.00003"))
    assert (run.state, run.passed) == (EvaluationRun.State.BUDGET, None)
    assert [row.state for row in rows] == ["passed", "passed", "pending"]
    run, rows = await evaluate(cases, cancel_requested=True)
    assert (run.state, run.passed) == (EvaluationRun.State.CANCELLED, None)
    assert {row.state for row in rows} == {"pending"}


async def test_a_host_that_reports_no_tokens_spends_the_budget_too(
    cases, running, monkeypatch
):
    for _ in range(3):
        await sync_to_async(a_case)(cases, contains="yes")
    monkeypatch.setattr(client, "stream", SilentHost([TextDelta(0, "yes")]))
    run, rows = await evaluate(cases, budget=Decimal("0.00003"))
    assert run.state == EvaluationRun.State.BUDGET
    assert [row.tokens for row in rows] == [20, 20, 0]
    calls = [call async for call in ModelCall.objects.all()]
    assert {(call.cost, call.is_estimated) for call in calls} == {(rows[0].cost, True)}


async def test_an_impossible_cost_is_left_out_as_everywhere(cases, running, say):
    await sync_to_async(a_case)(cases, contains="yes")
    say([TextDelta(0, "yes"), UsageDelta(10**12, 10**12), FinishDelta("stop")])
    run, [row] = await evaluate(cases, budget=Decimal(1))
    assert (run.state, row.state) == (EvaluationRun.State.DONE, "passed")
    assert row.cost is None


async def test_a_judge_with_a_price_does_not_hide_an_answer_without_one(
    cases, model, running, say
):
    prices = model.prices
    cases.judge = await LanguageModel.objects.acreate(
        provider=model.provider, name="judge", prices=prices
    )
    await cases.asave()
    await LanguageModel.objects.filter(pk=model.pk).aupdate(prices={})
    await sync_to_async(a_case)(cases, rubric="Is kind.")
    say("Hello.", '{"passed": true, "reason": "So it is."}')
    _run, [row] = await evaluate(cases)
    assert (row.state, row.model_calls, row.cost) == ("passed", 2, None)


async def test_a_cost_that_is_unknown_is_not_shown_as_none(
    cases, model, running, say, admin_client
):
    await sync_to_async(a_case)(cases, contains="yes")
    await LanguageModel.objects.aupdate(prices={})
    say("yes")
    run, [row] = await evaluate(cases)
    assert (row.state, row.model_calls, row.cost) == ("passed", 1, None)
    where = [cases.preset_id, run.pk]
    url = reverse("admin:conversations_preset_runs_results", args=where)
    page = await sync_to_async(admin_client.get)(url)
    assert "$0.00" not in page.text


async def test_without_a_price_a_budget_calls_nothing(cases, model, running, say):
    await sync_to_async(a_case)(cases, contains="yes")
    model.prices = {}
    await model.asave()
    script = say("yes")
    _, [row] = await evaluate(cases, budget=Decimal(1))
    assert row.error.startswith("E_PRICE_UNKNOWN")
    assert script.requests == []


async def test_a_run_whose_process_is_lost_goes_on_elsewhere(cases, running, say):
    for _ in range(2):
        await sync_to_async(a_case)(cases, contains="yes")
    say("yes")
    run = await sync_to_async(begin)(cases)
    assert await sync_to_async(evaluating.store.claim)(run.pk)
    assert not await sync_to_async(evaluating.store.claim)(run.pk)
    await run.answers.filter(number=1).aupdate(state="passed", cost=7)
    await EvaluationRun.objects.aupdate(lease_until=None)
    rows = await finish(run)
    assert rows[0].cost == 7  # it was not asked again
    assert run.passed is True


async def test_an_answer_that_ends_its_process_is_given_up_and_the_rest_goes_on(
    cases, running, say
):
    for _ in range(2):
        await sync_to_async(a_case)(cases, contains="yes")
    say("yes")
    run = await sync_to_async(begin)(cases)
    for _ in range(leased_batches.MAX_ATTEMPTS):  # each process is lost with the answer
        lease = await sync_to_async(evaluating.store.claim)(run.pk)
        row = await sync_to_async(evaluating.store.next_row)(run.pk, lease)
        assert row.number == 1
        await EvaluationRun.objects.aupdate(lease_until=None)
    first, second = await finish(run)
    assert (first.state, second.state) == ("failed", "passed")
    assert "its process was lost 3 times" in first.error
    assert run.passed is False


async def test_an_answer_that_a_drain_ends_is_free_at_once_and_not_counted(
    cases, running, say
):
    await sync_to_async(a_case)(cases, contains="yes")
    script = say([UsageDelta(10, 10), HANG])
    run = await sync_to_async(begin)(cases)
    while not script.hanging:
        await engine.require_engine().evaluations.run_due()
        await asyncio.sleep(0)
    await engine.drain()
    row = await run.answers.aget()
    assert (row.state, row.attempts) == ("pending", 0)
    assert await sync_to_async(evaluating.store.find_due)() == run.pk


async def test_the_model_must_be_one_that_the_person_may_use(
    cases, model, running, say
):
    await sync_to_async(a_case)(cases, contains="yes")
    await model.groups.aadd(await Group.objects.acreate(name="board"))
    script = say("yes")
    run, [row] = await evaluate(cases)
    assert row.state == "failed"
    assert script.requests == []
    assert run.passed is False


# Publishing


async def test_a_draft_goes_live_only_after_just_it_has_passed(cases, running, say):
    await sync_to_async(a_case)(cases, contains="yes")
    say("yes")
    preset = cases.preset
    draft = await PresetDraft.objects.acreate(
        preset=preset, content=await sync_to_async(content)(cases)
    )

    def publish(may_override=False):
        return draft.publish(None, seen=draft.state, may_override=may_override)

    with pytest.raises(NotPublishable, match="basics"):
        await sync_to_async(publish)()
    await evaluate(cases)
    draft.content["instructions"] = "Changed after it passed."
    await draft.asave()
    with pytest.raises(NotPublishable):
        await sync_to_async(publish)()
    draft.content["instructions"] = "Draft words."
    await draft.asave()
    case = await sync_to_async(a_case)(cases, contains="no")
    with pytest.raises(NotPublishable):  # the cases are others now
        await sync_to_async(publish)()
    await case.adelete()
    await sync_to_async(publish)()
    await preset.arefresh_from_db()
    assert preset.instructions == "Draft words."
    assert preset.version == 2
    assert not await PresetDraft.objects.aexists()


def test_an_error_of_a_provider_is_in_the_language_of_its_reader():
    answer = EvaluationAnswer(
        state="failed", error=f"{ProviderDown.code}: {ProviderDown()}"
    )
    with translation.override("de"):
        page = render_to_string(
            "admin/conversations/preset/_answer.html",
            {"answer": answer, "max_shown": 100},
        )
    assert "Der Anbieter ist ausgefallen oder überlastet." in page
    assert ProviderDown.code not in page


def test_why_a_check_is_not_passed_is_in_the_language_of_its_reader(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(DjangoTranslation, "gettext", lambda self, text: f"⟦{text}⟧")
    case = {"contains": "river", "pattern": "^x", "schema": {}}
    reasons = [each.reason for each in check(case, "Hello.")]
    reasons += [BUDGET_SPENT, NO_VERDICT, OTHER_WORDS % {"words": "Sure!"}]
    for reason in reasons:
        answer = EvaluationAnswer(checks=[Check("judge", False, reason).as_table()])
        page = render_to_string(
            "admin/conversations/preset/_answer.html",
            {"answer": answer, "max_shown": 100},
        )
        assert f"⟦{reason}⟧" in page


async def test_a_judge_that_replied_nothing_is_asked_for_the_form(cases, running, say):
    await sync_to_async(a_case)(cases, rubric="Is kind.")
    script = say("Hello.", "", '{"passed": true, "reason": "So it is."}')
    run, _rows = await evaluate(cases)
    assert run.passed
    _first, correction = script.requests[2].items
    assert "one JSON object" in correction["content"][0]["text"]


def test_no_check_has_a_character_that_postgresql_refuses(cases):
    schema = {"type": "object", "additionalProperties": {"type": "number"}}
    case = {"contains": "", "pattern": "", "schema": schema}
    [found] = check(case, '{"a\\u0000": "b"}')
    assert not found.passed
    for each in (found, Check("judge", True, "ok\0")):
        assert "\0" not in each.as_table()["reason"]
