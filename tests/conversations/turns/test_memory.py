"""The tools over a user's memories and conversations, their page, and permissions."""

from __future__ import annotations

from functools import partial

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group
from django.urls import reverse
from django.utils import timezone

from conversations import tools as ours
from conversations.models import Conversation, Item
from conversations.models import memory as memories
from conversations.models.memory import MAX_TEXT, Memory
from conversations.models.preset import ContextSource, Preset
from tests.conversations.scene import a_finished_turn, a_user, signed_in, staff
from tests.tools.calls import call as a_call
from tools.execute import CallOutcome, execute
from tools.models import Tool
from tools.registry import Context, get_tool

pytestmark = pytest.mark.django_db


def context(user, conversation: str = "") -> Context:
    return Context(user_id=user.pk, conversation_id=conversation)


@pytest.fixture
def ada():
    return a_user("ada")


@pytest.fixture
def eve():
    return a_user("eve")


# As rows


def test_they_ship_off_or_for_presets_and_staff_have_the_last_word():
    for_presets, off = ["remember", "recall", "forget"], ["get_history", "get_context"]
    rows = Tool.objects.filter(name__in=[*for_presets, *off])

    def states() -> dict[str, tuple[bool, bool]]:
        return {row.name: (row.enabled, row.only_in_presets) for row in rows.all()}

    shipped = dict.fromkeys(for_presets, (True, True))
    shipped |= dict.fromkeys(off, (False, False))
    assert states() == shipped
    rows.filter(name="recall").update(enabled=False, only_in_presets=False)
    Tool.objects.filter(name="remember").delete()
    Tool.objects.sync()
    assert states() == {**shipped, "recall": (False, False)}


# Remember, recall, forget


def test_memories_are_recalled_best_first(ada):
    for text in ("Likes green tea.", "Drinks tea at four.", "Has a cat."):
        ours.remember(text, context(ada))
    found = ours.recall(context(ada), "green TEA")
    assert [each["text"] for each in found] == [
        "Likes green tea.",
        "Drinks tea at four.",
    ]
    assert ours.recall(context(ada))[0]["text"] == "Has a cat."
    assert ours.recall(context(ada), "dog") == []


def test_the_same_is_remembered_once(ada):
    first = ours.remember("Likes  tea.", context(ada))
    ours.remember("Has a cat.", context(ada))
    again = ours.remember(" Likes tea.\n", context(ada))
    assert first["id"] == again["id"]
    assert [each["text"] for each in ours.recall(context(ada))] == [
        "Likes tea.",
        "Has a cat.",
    ]


def test_a_forgotten_memory_remains_only_as_a_row(ada):
    result = ours.remember("Likes tea.", context(ada))
    assert ours.forget(result["id"], context(ada)) == "Forgotten."
    assert ours.recall(context(ada), "tea") == []
    assert Memory.objects.get().deleted_at
    with pytest.raises(ours.ToolError, match=f"no memory {result['id']}"):
        ours.forget(result["id"], context(ada))


def test_memories_of_other_users_are_out_of_reach(ada, eve):
    result = ours.remember("Ada likes tea.", context(ada))
    assert ours.recall(context(eve), "tea") == ours.recall(context(eve)) == []
    with pytest.raises(ours.ToolError):
        ours.forget(result["id"], context(eve))
    assert ours.remember("Ada likes tea.", context(eve))["id"] != result["id"]
    assert len(ours.recall(context(ada))) == 1


def test_the_number_of_memories_is_limited_and_the_limit_reported(ada, monkeypatch):
    monkeypatch.setattr(memories, "MAX_COUNT", 1)
    ours.remember("Likes tea.", context(ada))
    with pytest.raises(ours.ToolError, match="delete one"):
        ours.remember("Has a cat.", context(ada))
    ours.remember("Likes tea.", context(ada))


@pytest.mark.parametrize(
    "act",
    [
        partial(ours.remember, "x"),
        ours.recall,
        partial(ours.forget, 1),
        ours.get_history,
    ],
)
def test_without_a_user_there_is_nothing(act):
    with pytest.raises(ours.ToolError, match="no user is signed in"):
        act(context=Context())


@pytest.mark.django_db(transaction=True)
async def test_they_run_as_tools_do_in_threads_of_their_own():
    ada = await sync_to_async(a_user)("ada")
    mine = Context(user_id=ada.pk)
    tools = {"remember": get_tool(ours.remember), "recall": get_tool(ours.recall)}

    async def say(name, **arguments):
        happenings = execute([a_call(name, **arguments)], tools, mine)
        [done] = [each async for each in happenings if isinstance(each, CallOutcome)]
        return done

    assert (await say("remember", text="Likes tea.")).state == "completed"
    assert '"text":"Likes tea."' in (await say("recall", query="tea")).output
    too_long = await say("remember", text="x" * 1001)
    assert (too_long.state, await Memory.objects.acount()) == ("failed", 1)


# Earlier conversations


def conversation(user, title, *exchange, **fields):
    row = Conversation.objects.create(owner=user, title=title, **fields)
    if exchange:
        a_finished_turn(row, *exchange)
    return row


def test_conversations_are_found_by_title_and_messages(ada):
    conversation(ada, "Tea", "Which tea is best?", "Green tea, they say.")
    conversation(ada, "Cats", "My cat drinks tea.", "Curious!")
    conversation(ada, "Dogs", "And dogs?", "They do not.")
    found = ours.get_history(context(ada), "green tea")
    assert [each["title"] for each in found] == ["Tea", "Cats"]
    assert found[0]["messages"][0] == "assistant: Green tea, they say."
    assert ours.get_history(context(ada), "DOGS")[0]["title"] == "Dogs"
    assert len(ours.get_history(context(ada), "tea", limit=1)) == 1


@pytest.mark.parametrize("word", ["Łódź", "łódź", "ΑΘΉΝΑ", '"quoted', "100%", "a_b"])
def test_words_of_any_script_are_found(ada, word):
    conversation(ada, "x", f"I was in {word} once.", "Nice.")
    conversation(ada, "y", "Nothing of the sort.", "No.")
    assert [each["title"] for each in ours.get_history(context(ada), word)] == ["x"]


def test_without_a_query_the_latest_other_conversations_are_listed(ada):
    rows = [conversation(ada, f"{n}", "hi", "hello") for n in range(7)]
    found = ours.get_history(context(ada, rows[-1].pk))
    assert [each["title"] for each in found] == ["5", "4", "3", "2", "1"]
    assert all(
        each["title"] != "6"
        for each in ours.get_history(context(ada, rows[-1].pk), "hello", limit=20)
    )


def test_deleted_and_other_users_texts_are_not_found(ada, eve):
    conversation(ada, "Tea secrets", "Where is the tea?", "In the tin.")
    conversation(eve, "gone", "tea?", "tea!", deleted_at=timezone.now())
    assert ours.get_history(context(eve), "tea") == []
    assert ours.get_history(context(eve)) == []


def test_only_messages_of_user_and_assistant_are_returned(ada):
    row = conversation(ada, "x", "hi", "hello")
    turn = row.turns.get()
    for position, payload in enumerate(
        [
            {"type": "message", "role": "system", "content": "tea rules"},
            {
                "type": "message",
                "role": "assistant",
                "content": "tea",
                "parley:interrupted": True,
            },
            {"type": "function_call_output", "call_id": "c", "output": "tea"},
        ],
        start=5,
    ):
        Item.of(turn, position, payload, origin="output").save()
    assert ours.get_history(context(ada), "tea") == []


# Context


@pytest.mark.django_db(transaction=True)
async def test_a_source_of_the_conversations_preset_is_read():
    def rows():
        ada, eve = a_user("ada"), a_user("eve")
        preset = Preset.objects.create(name="p")
        for name, fields in {
            "rules": {"text": "Be kind."},
            "web": {"kind": "http", "url": "http://10.0.0.1/"},
            "off": {"text": "x", "enabled": False},
        }.items():
            source = ContextSource.objects.create(name=name, title=name, **fields)
            preset.links.create(source=source)
        return ada, eve, conversation(ada, "x", preset=preset), preset

    ada, eve, row, preset = await sync_to_async(rows)()
    mine = context(ada, row.pk)
    assert await ours.get_context("rules", mine) == "Be kind."
    with pytest.raises(ours.ToolError, match=r"there are: rules, web\."):
        await ours.get_context("off", mine)
    with pytest.raises(ours.ToolError, match=r"web cannot be read: .* not allowed"):
        await ours.get_context("web", mine)
    with pytest.raises(ours.ToolError, match="this conversation has none"):
        await ours.get_context("rules", context(eve, row.pk))
    await preset.groups.aadd(await Group.objects.acreate(name="others"))
    with pytest.raises(ours.ToolError, match="this conversation has none"):
        await ours.get_context("rules", mine)


# The page


PAGE = reverse("memories")


def test_people_see_and_delete_their_own_memories(ada, eve):
    row = conversation(ada, "About <tea>")
    Memory.objects.remember(ada.pk, "Likes <b>tea</b>.", row.pk)
    Memory.objects.remember(eve.pk, "Eve's own.")
    web = signed_in(ada)
    text = web.get(PAGE).content.decode()
    assert "Likes &lt;b&gt;tea&lt;/b&gt;." in text
    assert "About &lt;tea&gt;" in text
    assert "Eve" not in text
    mine, hers = Memory.objects.of(ada.pk).get(), Memory.objects.of(eve.pk).get()
    assert web.post(reverse("change-memory", args=[hers.pk])).status_code == 404
    assert web.get(reverse("change-memory", args=[mine.pk])).status_code == 405
    path = reverse("change-memory", args=[mine.pk])
    answer = web.post(path, {"act": "delete"}, follow=True)
    assert "Delete this memory?" in answer.text
    assert Memory.objects.of(ada.pk).exists()
    assert web.post(reverse("delete-memory", args=[hers.pk])).status_code == 404
    path = reverse("delete-memory", args=[mine.pk])
    assert "There are no memories." in web.post(path, follow=True).text
    assert Memory.objects.of(eve.pk).exists()


def test_people_correct_their_own_memories(ada, eve):
    mine = Memory.objects.remember(ada.pk, "Likes <b>tea</b>.")
    hers = Memory.objects.remember(eve.pk, "Eve's own.")
    web = signed_in(ada)
    path = reverse("change-memory", args=[mine.pk])
    answer = web.post(path, {"act": "save", "text": " Likes\r\ncoffee. "}, follow=True)
    assert "Likes coffee." in answer.text
    for wrong in (" ", "x" * (MAX_TEXT + 1)):
        refused = web.post(path, {"act": "save", "text": wrong})
        assert refused.status_code == 400
        assert "Write 1 to 1000 characters" in refused.text
        assert wrong.strip() in refused.text
    other = reverse("change-memory", args=[hers.pk])
    assert web.post(other, {"act": "save", "text": "Mine now."}).status_code == 404
    api = f"/api/memories/{mine.pk}/"
    changed = web.patch(api, {"text": "Likes water."}, content_type="application/json")
    assert changed.json()["text"] == "Likes water."
    for text in ("", " ", "x" * (MAX_TEXT + 1)):
        wrong = web.patch(api, {"text": text}, content_type="application/json")
        assert wrong.status_code == 400
    theirs = f"/api/memories/{hers.pk}/"
    body = {"text": "Mine now."}
    assert web.patch(theirs, body, content_type="application/json").status_code == 404
    assert set(Memory.objects.values_list("text", flat=True)) == {
        "Likes water.",
        "Eve's own.",
    }


@pytest.mark.parametrize("form", [{}, {"act": "save"}, {"act": "Delete", "text": " "}])
def test_only_the_button_deletes_a_memory(ada, form):
    row = Memory.objects.remember(ada.pk, "Likes tea.")
    path = reverse("change-memory", args=[row.pk])
    refused = signed_in(ada).post(path, form)
    assert refused.status_code == 400
    assert "or delete the memory" in refused.text
    assert Memory.objects.of(ada.pk).get().text == "Likes tea."


def test_the_page_of_memories_requires_a_session(client):
    assert client.get(PAGE).status_code == 302
    assert client.post(reverse("change-memory", args=[1])).status_code == 302


# Staff


def test_staff_read_others_memories_only_if_they_may_inspect(ada):
    memory = Memory.objects.remember(ada.pk, "Likes tea.")
    page = reverse("admin:conversations_memory_change", args=[memory.pk])
    listed = reverse("admin:conversations_memory_changelist")
    viewer = signed_in(staff("viewer", "view_memory", "edit_items"))
    assert viewer.get(page).status_code == 302  # as if it were not there
    assert "ada" not in viewer.get(listed).content.decode()
    inspector = signed_in(staff("inspector", "inspect_turn"))
    assert "Likes tea." in inspector.get(page).content.decode()
    text = inspector.get(listed).content.decode()
    assert "ada" in text
    assert "Likes tea." not in text
