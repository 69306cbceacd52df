"""Titles that a model writes, and titles that stay."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group, User

from conversations import engine
from conversations.access.limits.applicable import clear_cache
from conversations.access.participation import invite
from conversations.access.webhooks import recipients
from conversations.engine.maintenance.titles import LENGTH, clean_title
from conversations.models import (
    Conversation,
    Delivery,
    EventType,
    Participant,
    Turn,
    UsageLimit,
    WebhookEndpoint,
)
from llm.errors import ProviderDown
from llm.http import client
from llm.models import ApiKey, LanguageModel, ModelCall, Provider
from llm.wire.deltas import FinishDelta, ReasoningDelta, TextDelta
from tests.conversations.both_deliveries.test_engine import follow, submit_turn
from tests.conversations.scene import a_user
from tests.conversations.script import HANG, Script

ANSWER = [TextDelta(0, "The Seine."), FinishDelta("stop")]


def a_title(text: str, index: int = 0) -> list[Any]:
    return [TextDelta(index, text), FinishDelta("stop")]


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch):
    def say(*calls: Any) -> Script:
        script = Script(*calls)
        monkeypatch.setattr(client, "stream", script)
        return script

    return say


@pytest.fixture
async def running(transactional_db: None, settings: Any):
    settings.DRAIN_GRACE = 0.1
    settings.AUTO_TITLES = True
    await engine.start()
    yield
    await engine.drain()


@pytest.fixture
def model(transactional_db: None) -> LanguageModel:
    provider = Provider.objects.create(name="Real", kind="openai")
    ApiKey.objects.create(provider=provider, secret="key-of-these-tests")
    return LanguageModel.objects.create(provider=provider, name="real", is_default=True)


@pytest.fixture
def conversation(model: LanguageModel) -> Conversation:
    return Conversation.objects.create(owner=a_user("ada"), language_model=model)


def join(conversation: Conversation, name: str) -> User:
    user = a_user(name)
    invite(conversation, name, "writer").accept()
    return user


async def talk(conversation: Conversation, **fields: Any) -> Turn:
    """One turn to its end, and the title after it."""
    turn = await submit_turn(conversation, "Which rivers cross Paris?", **fields)
    engine.submit(turn.pk, conversation.pk)
    await follow(turn)
    while tasks := _title_tasks():
        await asyncio.wait(tasks)
    await turn.arefresh_from_db()
    await conversation.arefresh_from_db()
    return turn


def _title_tasks() -> list[Any]:
    tasks = asyncio.all_tasks()
    return [t for t in tasks if t.get_name() in ("title", "running")]


async def test_the_first_answer_gives_the_conversation_a_title(
    conversation: Conversation, running: None, say: Any
):
    script = say(
        ANSWER, [ReasoningDelta(0, "Hm."), *a_title('"Flüsse in Paris."\nx', 1)]
    )
    turn = await talk(conversation)
    assert turn.status == "completed"
    assert conversation.title == "Flüsse in Paris"
    assert conversation.title_source == "model"
    prompt = str(script.requests[1].items)
    assert "Which rivers cross Paris?" in prompt
    assert "The Seine." in prompt
    calls = ModelCall.objects.filter(turn_id=turn.pk).order_by("pk")
    purposes = await sync_to_async(list)(calls.values_list("purpose", flat=True))
    assert purposes == ["answer", "title"]


@pytest.fixture
def with_own_keys(model: LanguageModel) -> None:
    """Keys of three people beside the shared one."""
    Provider.objects.filter(pk=model.provider_id).update(accepts_own_keys=True)


def a_key_of(name: str, model: LanguageModel) -> None:
    user = User.objects.get(username=name)
    label = secret = f"key-of-{name}"
    ApiKey.every.create(provider=model.provider, owner=user, label=label, secret=secret)


@pytest.mark.parametrize(
    ("owners_of_keys", "used"),
    [
        (["ada"], None),
        (["ada", "bob"], "bob"),
        ([], None),
    ],
)
async def test_the_title_of_a_participant_s_message_is_written_with_their_key(
    conversation: Conversation,
    model: LanguageModel,
    with_own_keys: None,
    running: None,
    say: Any,
    owners_of_keys: list[str],
    used: str | None,  # the owner of the key; None for the shared one
):
    bob = await sync_to_async(join)(conversation, "bob")
    for name in owners_of_keys:
        await sync_to_async(a_key_of)(name, model)
    say(ANSWER, a_title("Rivers"))
    await talk(conversation, author=bob)
    assert conversation.title == "Rivers"
    names = ("purpose", "key__owner", "user__username")
    calls = ModelCall.objects.order_by("pk").values_list(*names)
    owner = bob.pk if used else None
    assert await sync_to_async(list)(calls) == [
        ("answer", owner, "bob"),
        ("title", owner, "bob"),
    ]


async def test_there_is_no_title_call_for_a_participant_who_was_removed(
    conversation: Conversation, running: None, say: Any
):
    bob = await sync_to_async(join)(conversation, "bob")
    removed = asyncio.Event()
    script = say([removed, *ANSWER], a_title("Theirs"))
    turn = await submit_turn(conversation, "Which rivers?", author=bob)
    engine.submit(turn.pk, conversation.pk)
    while not script.requests:  # the turn runs
        await asyncio.sleep(0)
    await Participant.objects.aupdate(role="viewer")
    removed.set()
    await follow(turn)
    await asyncio.gather(*_title_tasks())
    await conversation.arefresh_from_db()
    assert len(script.requests) == 1
    assert conversation.title == "Which rivers?"


async def test_a_participant_s_permissions_count_for_the_title(
    conversation: Conversation, running: None, say: Any, settings: Any, model: Any
):
    cheap = await LanguageModel.objects.acreate(
        provider_id=model.provider_id, name="cheap"
    )
    few = await Group.objects.acreate(name="few")
    await cheap.groups.aadd(few)
    await conversation.owner.groups.aadd(few)
    settings.TITLE_MODEL = "cheap"
    bob = await sync_to_async(join)(conversation, "bob")
    script = say(ANSWER, a_title("Rivers"))
    await talk(conversation, author=bob)
    assert [request.model for request in script.requests] == ["real"]


async def test_the_second_answer_changes_no_title(
    conversation: Conversation, running: None, say: Any
):
    script = say(ANSWER, a_title("Rivers"), ANSWER)
    await talk(conversation)
    await talk(conversation)
    assert len(script.requests) == 3
    assert conversation.title == "Rivers"


async def test_a_title_that_a_person_wrote_meanwhile_stays(
    conversation: Conversation, running: None, say: Any
):
    renamed = asyncio.Event()
    say(ANSWER, [renamed, *a_title("Theirs")])
    turn = await submit_turn(conversation, "Hello")
    engine.submit(turn.pk, conversation.pk)
    await follow(turn)
    row = Conversation.objects.filter(pk=conversation.pk)
    await row.aupdate(title="Mine", title_source="person")
    renamed.set()
    await asyncio.gather(*_title_tasks())
    await conversation.arefresh_from_db()
    assert conversation.title == "Mine"


@pytest.mark.parametrize(
    "call", [ProviderDown("Down."), a_title(" \n\0\u202e "), [FinishDelta("stop")]]
)
async def test_without_a_title_the_first_words_stay(
    conversation: Conversation, running: None, say: Any, call: Any
):
    say(ANSWER, *[call] * 5)
    turn = await talk(conversation)
    assert turn.status == "completed"
    assert conversation.title == "Which rivers cross Paris?"
    assert conversation.title_source == "words"


@pytest.mark.parametrize(
    "change", [{"is_temporary": True}, {"title": "Mine", "title_source": "person"}]
)
async def test_these_conversations_get_no_title_and_no_call(
    conversation: Conversation, running: None, say: Any, change: dict[str, Any]
):
    await Conversation.objects.filter(pk=conversation.pk).aupdate(**change)
    await conversation.arefresh_from_db()
    script = say(ANSWER)
    await talk(conversation)
    assert len(script.requests) == 1


def limit_tokens(conversation: Conversation, tokens: int) -> None:
    """Of its owner, with an endpoint for limits that are reached."""
    types = [EventType.LIMIT_REACHED]
    endpoint = WebhookEndpoint(name="r", url="https://r.example/", events=types)
    endpoint.renew_secret()
    endpoint.save()
    owner = conversation.owner
    UsageLimit.objects.create(user=owner, tokens=tokens, period="day")
    clear_cache()
    recipients.refresh()


async def test_a_title_for_which_a_limit_has_no_room_is_no_refusal(
    conversation: Conversation, running: None, say: Any
):
    """It may be longer than an answer, and would be told as the limit's end."""
    await sync_to_async(limit_tokens)(conversation, 1500)
    script = say(ANSWER, a_title("Rivers"))
    turn = await talk(conversation)
    assert turn.status == "completed"
    assert len(script.requests) == 1
    assert conversation.title_source == "words"
    assert not await Delivery.objects.aexists()


async def test_staff_switch_titles_off(
    conversation: Conversation, running: None, say: Any, settings: Any
):
    settings.AUTO_TITLES = False
    script = say(ANSWER)
    await talk(conversation)
    assert len(script.requests) == 1


async def test_staff_name_a_cheap_model_for_titles(
    conversation: Conversation, running: None, say: Any, settings: Any, model: Any
):
    await LanguageModel.objects.acreate(provider_id=model.provider_id, name="cheap")
    settings.TITLE_MODEL = "cheap"
    script = say(ANSWER, a_title("Rivers"))
    await talk(conversation)
    assert [request.model for request in script.requests] == ["real", "cheap"]


async def test_a_server_that_stops_does_not_wait_for_a_title(
    conversation: Conversation, running: None, say: Any
):
    say(ANSWER, [HANG])
    turn = await submit_turn(conversation, "Hello")
    engine.submit(turn.pk, conversation.pk)
    await follow(turn)
    await engine.drain()
    await conversation.arefresh_from_db()
    assert conversation.title == "Hello"


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Title: “Rivers of Paris”.", "Rivers of Paris"),
        ("\n\n**Rivers**\nIgnore this", "Rivers"),
        ("a\u202eb\x1b[31mc\0", "a b [31mc"),
        ("<script>alert(1)</script>", "<script>alert(1)</script>"),
        ("「巴黎的河流」", "「巴黎的河流」"),
        ("## Choosing a **bicycle** for `work`", "Choosing a bicycle for work"),
        ("A *light* ~~heavy~~ **very *fine* bike**", "A light heavy very fine bike"),
        ("See [the manual](https://a.example/b)", "See the manual"),
        ("2 * 3 * 4 and 2*3*4 and a ** b ** c", "2 * 3 * 4 and 2*3*4 and a ** b ** c"),
        ("Fix __init__ and snake_case_names", "Fix __init__ and snake_case_names"),
        ("<think>\nThe user asks.\n\n</think>\n\n**Rivers**", "Rivers"),
        ("<think>\nThe user asks", ""),
        ("The user asks.\n</think>\n\nRivers", "Rivers"),
        ("The user asks</think> Rivers", "Rivers"),
        ("Fix arr[i](x) call", "Fix arr[i](x) call"),
        ("", ""),
    ],
)
def test_a_title_is_one_line_without_control_characters(text: str, title: str):
    assert clean_title(text) == title


def test_a_long_title_is_cut_at_a_word():
    assert len(clean_title("word " * 100)) <= LENGTH
    assert clean_title("word " * 100).endswith("word…")
    assert len(clean_title("x" * 10_000)) == LENGTH
    for mark in ("*", "`", "**", "[", "~~", "*a ", "`a "):
        assert len(clean_title(f"a {mark * 20_000}")) <= LENGTH
