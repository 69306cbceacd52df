"""What a preset makes of a conversation, from its rows to the prompt."""

from __future__ import annotations

import asyncio

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError

from conversations import context, engine
from conversations.context import SourceFunction
from conversations.engine import claim_store
from conversations.engine.loading import turn_context, turn_loader
from conversations.models import Conversation, Question, Turn
from conversations.models.preset import ContextSource, GatheredContext, Preset
from conversations.models.user_settings import UserSettings
from conversations.staff.turn_timeline import timeline
from conversations.turns.tool_choices import tool_choices
from llm.errors import ModelNotAvailable, ProviderDown
from llm.http import client
from llm.models import ApiKey, LanguageModel, Provider
from llm.wire.deltas import FinishDelta, TextDelta, ToolCallDelta
from llm.wire.items import user_message
from tests.conversations.both_deliveries.test_engine import follow, submit_turn
from tests.conversations.scene import a_user
from tests.conversations.script import HANG, Script
from tools.models import PermittedTools, Tool
from tools.registry import Approval
from tools.registry import RuntimeTool as OfferedTools

ANSWER = [TextDelta(0, "Hello."), FinishDelta("stop")]


@pytest.fixture
def say(monkeypatch):
    """Script the provider's calls."""

    def say(*calls):
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
    return LanguageModel.objects.create(provider=provider, name="demo", is_default=True)


@pytest.fixture
def preset(model) -> Preset:
    return Preset.objects.create(name="support", instructions="You help.")


@pytest.fixture
def conversation(preset) -> Conversation:
    return Conversation.objects.create(owner=a_user("alice"), preset=preset)


def attach(preset: Preset, **fields) -> ContextSource:
    source = ContextSource(**{"title": fields["name"].title(), **fields})
    source.full_clean()
    source.save()
    preset.links.create(source=source, position=preset.links.count())
    return source


def functions(monkeypatch, **found) -> None:
    made = {
        name: SourceFunction(
            path=name,
            call=function,
            parameter="reader",
            is_async=asyncio.iscoroutinefunction(function),
        )
        for name, function in found.items()
    }
    monkeypatch.setattr(context, "source_functions", lambda: made)


async def answered(conversation, **fields):
    turn = await submit_turn(conversation, **fields)
    engine.submit(turn.pk, conversation.pk)
    entries = await follow(turn)
    await turn.arefresh_from_db()
    return turn, [entry.event for entry in entries]


def loaded(conversation, **options) -> turn_loader.Work:
    turn = conversation.open_turn([user_message("hi")], options=options).turn
    claim = claim_store.claim(turn.pk)
    assert claim
    work = turn_loader.load(claim)
    Turn.objects.update(status=Turn.Status.COMPLETED)
    return work


# Precedence


def test_instructions_closer_to_the_turn_take_precedence(
    conversation, preset, settings
):
    settings.SYSTEM_PROMPT = "The site's."

    def instructions(**options):
        return loaded(conversation, **options).task.prepare([]).instructions

    assert instructions(instructions="The turn's.") == "The turn's."
    assert instructions() == "You help."
    conversation.instructions = "The conversation's."
    conversation.save()
    assert instructions() == "The conversation's."
    conversation.instructions = preset.instructions = ""
    conversation.save()
    preset.save()
    conversation.refresh_from_db()
    assert instructions() == "The site's."


def test_the_users_own_instructions_follow_the_presets(conversation, settings):
    settings.SYSTEM_PROMPT = "The site's."
    theirs = UserSettings.objects.create(
        user=conversation.owner, custom_instructions="Be brief."
    )

    def instructions(**options):
        return loaded(conversation, **options).task.prepare([]).instructions

    assert instructions().startswith("You help.\n\n")
    assert instructions().endswith("\nBe brief.")
    assert "Be brief." not in instructions(gateway={"echo": {}})
    theirs.custom_instructions = " "
    theirs.save()
    assert instructions() == "You help."


def test_the_instructions_of_others_are_not_used(conversation):
    UserSettings.objects.create(user=a_user("bob"), custom_instructions="Be rude.")
    assert loaded(conversation).task.prepare([]).instructions == "You help."


def test_switched_off_memory_hides_its_tools_from_models(conversation, preset):
    for name in ("remember", "recall", "forget", "now"):
        preset.tools.add(Tool.objects.get_or_create(name=name)[0])
    with_memory = set(loaded(conversation).task.tools)
    assert {"remember", "recall", "forget"} <= with_memory
    UserSettings.objects.create(user=conversation.owner, memory_enabled=False)
    without = set(loaded(conversation).task.tools)
    assert with_memory - without == {"remember", "recall", "forget"}


def test_a_temporary_chat_neither_reads_nor_writes_memories(conversation, preset):
    for name in ("remember", "recall", "forget", "now"):
        preset.tools.add(Tool.objects.get_or_create(name=name)[0])
    with_memory = set(loaded(conversation).task.tools)
    Conversation.objects.filter(pk=conversation.pk).update(is_temporary=True)
    conversation.refresh_from_db()
    without = set(loaded(conversation).task.tools)
    assert with_memory - without == {"remember", "recall", "forget"}


def test_the_presets_model_is_used_where_none_was_chosen(conversation, preset, model):
    other = model.provider.models.create(name="other")
    third = model.provider.models.create(name="third")
    assert loaded(conversation).route.model == "demo"
    preset.language_model = other
    preset.save()
    conversation.refresh_from_db()
    assert loaded(conversation).route.model == "other"
    conversation.language_model = third
    conversation.save()
    assert loaded(conversation).route.model == "third"


def test_a_presets_model_is_no_way_to_a_model_that_one_may_not_use(
    conversation, preset, model
):
    other = model.provider.models.create(name="other")
    other.groups.add(Group.objects.create(name="others"))
    preset.language_model = other
    preset.save()
    conversation.refresh_from_db()
    with pytest.raises(ModelNotAvailable):
        loaded(conversation)


def test_options_are_merged(conversation, preset):
    preset.options = {"temperature": 0.1, "top_p": 0.5, "seed": 1}
    preset.save()
    conversation.options = {"top_p": 0.6, "seed": 2}
    conversation.save()
    request = loaded(conversation, seed=3).task.prepare([])
    assert (request.temperature, request.top_p, request.seed) == (0.1, 0.6, 3)


def test_only_the_presets_tools_are_available(conversation, preset):
    assert {"calculator", "current_time"} <= set(loaded(conversation).task.tools)
    preset.tools.add(Tool.objects.get(name="calculator"))
    preset.tools.add(Tool.objects.get(name="get_history"))  # which is switched off
    assert set(loaded(conversation).task.tools) == {"calculator"}


def test_tools_for_presets_need_one_that_names_them(conversation, preset):
    owner = conversation.owner
    memory_tools = {"remember", "recall", "forget"}
    for preset_tools, offered in ([], set()), (["recall", "calculator"], {"recall"}):
        preset.tools.set(Tool.objects.filter(name__in=preset_tools))
        assert memory_tools & {*loaded(conversation).task.tools} == offered
        choices = {each.name for each in tool_choices(owner, conversation)}
        assert memory_tools & choices == offered
    assert "recall" not in {each.name for each in tool_choices(owner, None)}
    Tool.objects.filter(name="forget").update(only_in_presets=False)
    assert "forget" in {each.name for each in tool_choices(owner, None)}


def test_a_preset_whose_tools_are_missing_allows_none(conversation, preset):
    preset.tools.add(Tool.objects.get(name="calculator"))
    Tool.objects.filter(name="calculator").delete()
    assert not loaded(conversation).task.tools
    Preset.objects.update(only_named_tools=False)  # staff's own word
    assert loaded(Conversation.objects.get()).task.tools


@pytest.mark.parametrize("why", ["off", "group"])
async def test_a_deleted_preset_is_not_silently_ignored(
    conversation,
    preset,
    say,
    running,
    why,
):
    script = say(ANSWER)
    if why == "off":
        await Preset.objects.aupdate(enabled=False)
    else:
        await preset.groups.aadd(await Group.objects.acreate(name="others"))
    turn, _ = await answered(conversation)
    assert turn.error["code"] == "E_PRESET_NOT_AVAILABLE"
    assert "choose another one, or none" in turn.error["message"]
    assert not script.requests


def test_without_sources_a_turn_costs_no_query_more(conversation, preset):
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    def queries() -> int:
        turn = conversation.open_turn([user_message("hi")]).turn
        claim = claim_store.claim(turn.pk)
        with CaptureQueriesContext(connection) as captured:
            work = turn_loader.load(claim)
        assert not work.turn_context.sources
        Turn.objects.update(status=Turn.Status.COMPLETED)
        return len(captured)

    queries()  # the first turn has no history
    with_preset = queries()
    conversation.preset = None
    conversation.save()
    # permitted, its tools, its models, its sources
    assert with_preset - queries() == 4


# Context in the prompt


async def test_context_follows_the_system_prompt_in_order(
    conversation,
    preset,
    say,
    running,
    monkeypatch,
):
    functions(monkeypatch, orders=lambda reader: f"Tea, for {reader.username}.")
    script = say(ANSWER)
    await sync_to_async(attach)(preset, name="rules", kind="text", text="Be kind.")
    await sync_to_async(attach)(preset, name="orders", kind="python", function="orders")
    off = await sync_to_async(attach)(preset, name="off", kind="text", text="Off.")
    await ContextSource.objects.filter(pk=off.pk).aupdate(enabled=False)
    turn, _ = await answered(conversation)
    assert script.requests[0].instructions == (
        "You help.\n\n## Context\n\n### Rules\n\nBe kind.\n\n"
        "### Orders\n\nTea, for alice."
    )
    assert [note["kind"] for note in turn.notes] == ["context"]


async def test_a_failing_source_is_omitted_and_reported(
    conversation,
    preset,
    say,
    running,
    monkeypatch,
):
    def broken(reader):
        raise RuntimeError("quotes the customer")

    functions(monkeypatch, broken=broken)
    script = say(ANSWER)
    await sync_to_async(attach)(preset, name="orders", kind="python", function="broken")
    await sync_to_async(attach)(preset, name="rules", kind="text", text="Be kind.")
    turn, events = await answered(conversation)
    assert turn.status == Turn.Status.COMPLETED
    assert script.requests[0].instructions.endswith("### Rules\n\nBe kind.")
    [failed] = [e for e in events if e["type"] == "parley:context.failed"]
    assert failed["source"] == "orders"
    assert failed["reason"] == "it failed: RuntimeError."
    note, gathered = turn.notes
    assert (note["kind"], note["source"]) == ("context.failed", "orders")
    assert note["text"] == "it failed: RuntimeError."
    assert gathered["text"] == "Rules"
    entries = await sync_to_async(timeline)(turn)
    notes = [entry for entry in entries if entry.kind == "note"]
    assert [(each.bad, list(each.texts)) for each in notes] == [
        (True, []),
        (False, [("Rules", "Be kind.")]),
    ]


async def test_stop_ends_a_turn_that_waits_for_its_context(
    conversation,
    preset,
    say,
    running,
    monkeypatch,
):
    reading = asyncio.Event()

    async def slow(reader):
        reading.set()
        await asyncio.Event().wait()

    functions(monkeypatch, slow=slow)
    script = say(ANSWER)
    await sync_to_async(attach)(
        preset, name="slow", kind="python", function="slow", timeout=60
    )
    turn = await submit_turn(conversation)
    engine.submit(turn.pk, conversation.pk)
    await reading.wait()
    await sync_to_async(engine.cancel)(turn)
    entries = await follow(turn)
    await turn.arefresh_from_db()
    assert turn.status == Turn.Status.CANCELLED
    assert entries[-1].type == "response.incomplete"
    assert not script.requests


# The same to the end of the turn


@pytest.fixture
def counted(monkeypatch):
    runs = []

    def count(reader):
        runs.append(reader)
        return f"Number {len(runs)}."

    functions(monkeypatch, count=count)
    return runs


async def test_after_a_crash_the_model_gets_the_same_context(
    conversation,
    preset,
    say,
    counted,
    settings,
):
    settings.DRAIN_GRACE = 0.1
    await sync_to_async(attach)(preset, name="n", kind="python", function="count")
    script = say([HANG])
    turn = await submit_turn(conversation)
    await engine.start()
    engine.submit(turn.pk, conversation.pk)
    while not script.requests:
        await asyncio.sleep(0)
    await engine.drain()
    again = say(ANSWER)
    await engine.start()
    try:
        engine.submit(turn.pk, conversation.pk)
        await follow(turn)
    finally:
        await engine.drain()
    await turn.arefresh_from_db()
    assert (turn.status, turn.epoch) == (Turn.Status.COMPLETED, 2)
    requests = [*script.requests, *again.requests]
    assert {each.instructions for each in requests} == {
        "You help.\n\n## Context\n\n### N\n\nNumber 1."
    }
    assert len(counted) == 1


async def test_after_an_approval_the_model_gets_the_same_context(
    conversation,
    preset,
    say,
    running,
    counted,
    monkeypatch,
):
    async def pay(context, arguments):
        return "paid"

    tool = OfferedTools(
        name="pay",
        description="",
        parameters={"type": "object"},
        call=pay,
        approval=Approval(policy="always"),
    )
    monkeypatch.setattr(
        "conversations.engine.loading.available_tools.permitted_tools",
        lambda turn: PermittedTools({"pay": tool}),
    )
    await sync_to_async(attach)(preset, name="n", kind="python", function="count")
    call = [ToolCallDelta(0, "c1", "pay", "{}"), FinishDelta("tool_calls")]
    script = say(call, ANSWER)
    turn = await submit_turn(conversation)
    engine.submit(turn.pk, conversation.pk)
    async for batch in engine.subscribe(turn.pk):
        if batch[-1].type == "parley:turn.waiting":
            break

    def agree():
        question = Question.objects.get()
        question.decide(conversation.owner, "accept")
        engine.submit(turn.pk, conversation.pk)

    await sync_to_async(agree)()
    await follow(turn)
    first, second = script.requests
    assert first.instructions == second.instructions
    assert "Number 1." in first.instructions
    assert len(counted) == 1


async def test_the_next_turn_reads_its_context_again(
    conversation,
    preset,
    say,
    running,
    counted,
):
    await sync_to_async(attach)(preset, name="n", kind="python", function="count")
    script = say(ANSWER)
    await answered(conversation)
    await answered(conversation)
    assert "Number 2." in script.requests[1].instructions


async def test_a_failing_provider_changes_no_stored_context(
    conversation,
    preset,
    say,
    running,
    counted,
):
    await sync_to_async(attach)(preset, name="n", kind="python", function="count")
    say([ProviderDown()])
    turn, _ = await answered(conversation)
    gathered = await GatheredContext.objects.aget(turn=turn)
    assert gathered.blocks == [{"source": "n", "title": "N", "text": "Number 1."}]


def test_a_fenced_run_stores_nothing(conversation):
    turn = conversation.open_turn([user_message("hi")]).turn
    old = claim_store.claim(turn.pk)
    Turn.objects.filter(pk=turn.pk).update(epoch=5)
    with pytest.raises(engine.event_log.StaleEpoch):
        turn_context.save_context(old, [])
    assert not GatheredContext.objects.exists()


# On demand


def test_a_source_on_demand_is_listed_where_the_model_can_call_tools(
    conversation, preset
):
    attach(preset, name="orders", kind="text", text="Tea.", on_demand=True)
    work = loaded(conversation)
    assert work.task.prepare([]).instructions == "You help."
    Tool.objects.filter(name="get_context").update(enabled=True)
    work = loaded(conversation)
    assert not work.turn_context.sources
    instructions = work.task.prepare([]).instructions
    assert "- orders: Orders" in instructions
    assert "Tea." not in instructions


# Rows


@pytest.mark.parametrize(
    ("fields", "name", "problem"),
    [
        ({"kind": "text", "text": " "}, "text", "Write the text."),
        (
            {"kind": "python", "function": "shop.gone"},
            "function",
            "provides a context function",
        ),
        ({"kind": "http"}, "url", "Write a URL"),
        ({"kind": "http", "url": "ftp://x/"}, "url", "Write a URL"),
        ({"kind": "http", "url": "https://x/{me}"}, "url", "{me} is unknown; use"),
        (
            {"kind": "http", "url": "https://x/", "headers": {"Authorization": "x"}},
            "headers",
            "looks secret",
        ),
        ({"kind": "http", "url": "https://x/", "networks": "x"}, "networks", "x"),
        ({"kind": "mcp", "uri": "a://b"}, "mcp_server", "Choose the server."),
        ({"kind": "text", "text": "x", "timeout": 0}, "timeout", "greater than"),
        ({"kind": "text", "text": "x", "max_size": 0}, "max_size", "greater than"),
    ],
)
def test_a_source_that_cannot_work_is_refused_with_what_to_do(
    db, monkeypatch, fields, name, problem
):
    functions(monkeypatch)
    with pytest.raises(ValidationError) as caught:
        ContextSource(name="s", title="S", **fields).full_clean()
    assert problem in " ".join(caught.value.message_dict[name])


def test_options_of_a_preset_are_those_of_a_turn(db):
    with pytest.raises(ValidationError) as caught:
        Preset(name="p", options={"temprature": 1}).full_clean()
    assert "temprature" in str(caught.value.message_dict["options"])


def test_the_default_passes_from_one_preset_to_the_next(db):
    Preset.objects.create(name="a", is_default=True)
    second = Preset(name="b", is_default=True)
    second.full_clean()
    second.save()
    assert [row.name for row in Preset.objects.filter(is_default=True)] == ["b"]


def test_presets_are_for_their_groups(db):
    ada, group = a_user("ada"), Group.objects.create(name="support")
    Preset.objects.create(name="all")
    Preset.objects.create(name="off", enabled=False)
    Preset.objects.create(name="some", is_default=True).groups.add(group)

    def names(user):
        return [row.name for row in Preset.objects.available_to(user)]

    assert names(ada) == ["all"]
    assert Preset.objects.default_for(ada) is None
    ada.groups.add(group)
    assert names(ada) == ["all", "some"]
    assert names(None) == ["all", "some"]
    assert names(a_user("root", is_superuser=True)) == ["all", "some"]
    assert Preset.objects.default_for(ada).name == "some"
