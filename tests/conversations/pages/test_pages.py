from __future__ import annotations

import re
from datetime import date, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from conversations import engine
from conversations.access.limits import applicable
from conversations.models import Conversation, Item, ToolCall, Turn
from conversations.pages.forms.message_form import SUGGESTIONS
from conversations.pages.sidebar import PAGE, group_by_age
from conversations.pages.transcript import LATEST, WINDOW
from conversations.turns.tool_display import pretty, preview
from llm.models import LanguageModel
from llm.wire.items import function_call_output, message, text_of, user_message
from tests.conversations.page_scene import (
    CALL,
    THOUGHT,
    a_turn,
    ada,
    conversation,
    model,
    page_of,
    read,
    shown,
    submitted,
    web,
)
from tests.conversations.scene import (
    PASSWORD,
    a_finished_turn,
    a_model,
    a_user,
    signed_in,
)

__all__ = ["ada", "conversation", "model", "submitted", "web"]

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scripted_host")]

# Coming and going


@pytest.mark.parametrize("name", ["chat", "conversation-list"])
def test_anonymous_visitors_are_sent_to_the_sign_in_page(client: Client, name: str):
    address = reverse(name)
    assert client.get(address).headers["Location"] == f"/login/?next={address}"


def test_signing_in_leads_to_the_chat_and_out_again(client: Client, ada: Any):
    form = {"username": "ada", "password": PASSWORD}
    assert client.post("/login/", form).headers["Location"] == "/"
    assert client.post("/logout/").headers["Location"] == "/login/"
    assert client.get("/").status_code == 302


def test_a_wrong_password_is_reported_without_details(client: Client, ada: Any):
    answer = client.post("/login/", {"username": "ada", "password": "no"})
    assert "correct username and password" in read(answer)


def test_pages_load_nothing_external_and_contain_no_inline_scripts(
    web: Client, conversation: Conversation
):
    a_finished_turn(conversation, "Hi", "```python\nx = 1\n```")
    page = web.get(page_of(conversation)).content.decode()
    assert not re.search(r'(?:src|href)="(?:https?:)?//', page)
    assert not re.search(r"<script(?![^>]* src=)|<style| style=| on\w+=", page)
    assert "'unsafe" not in web.get("/").headers["Content-Security-Policy"]


# Sending


def test_the_first_message_begins_a_conversation(
    web: Client, ada: Any, model: LanguageModel, submitted: list[str]
):
    answer = web.post("/", {"text": "Hello\r\nthere", "model": "fast"})
    conversation = Conversation.objects.get(owner=ada)
    turn = conversation.turns.get()
    assert answer.headers["Location"] == f"{page_of(conversation)}#turn-{turn.pk}"
    assert text_of(turn.items.get().payload) == "Hello\nthere"
    assert turn.language_model == conversation.language_model == model
    assert submitted == [turn.pk]


def test_a_suggestion_is_sent_by_its_button(web: Client):
    web.post("/", {"text": "First", "suggestion": str(SUGGESTIONS[0])})
    assert text_of(Item.objects.get().payload) == str(SUGGESTIONS[0])


def test_the_empty_page_offers_the_question_of_the_readme(web: Client):
    question = "What is the weather in Paris, and what time is it there?"
    assert question in read(web.get("/"))


def test_a_message_while_a_turn_runs_waits_behind_it(
    web: Client, conversation: Conversation
):
    first = a_turn(conversation, Turn.Status.RUNNING)
    web.post(page_of(conversation), {"text": "And then?"})
    last = conversation.turns.latest("created_at")
    assert last.parent == first
    assert last.status == Turn.Status.QUEUED
    assert "Waiting for its turn" in read(web.get(page_of(conversation)))


def test_pressing_the_button_twice_sends_once(web: Client, conversation: Conversation):
    form = {"text": "Hello", "key": "k1"}
    first = web.post(page_of(conversation), form)
    again = web.post(page_of(conversation), form)
    assert first.headers["Location"] == again.headers["Location"]
    assert conversation.turns.count() == 1


def test_one_page_may_send_different_things(web: Client, conversation: Conversation):
    web.post(page_of(conversation), {"text": "Hello", "key": "k1"})
    web.post(page_of(conversation), {"text": "Bye", "key": "k1"})
    assert conversation.turns.count() == 2


@pytest.mark.parametrize(
    ("form", "complaint"),
    [
        ({"text": "  \n"}, "Write a message first."),
        ({"text": "x" * 1_000_001}, "too long: 1,000,001 bytes; the limit is"),
        ({"text": "é" * 600_000}, "too long: 1,200,000 bytes"),
        ({"text": "a\x00b"}, "Null characters are not allowed."),
        ({"text": "Hi", "model": "gpt-9"}, "“gpt-9” is not available"),
    ],
)
def test_a_message_that_cannot_be_sent_stays_in_the_input(
    web: Client, conversation: Conversation, form: dict[str, str], complaint: str
):
    answer = web.post(page_of(conversation), form)
    assert answer.status_code == 400
    assert complaint in read(answer)
    assert answer.context["form"].data["text"] == form["text"]
    assert not conversation.turns.exists()


def test_a_model_of_others_cannot_be_named(web: Client, conversation: Conversation):
    secret = a_model("secret", alias="secret")
    secret.groups.add(Group.objects.create(name="board"))
    page = web.get(page_of(conversation))
    assert "secret" not in page.content.decode()
    answer = web.post(page_of(conversation), {"text": "Hi", "model": "secret"})
    assert answer.status_code == 400
    assert not conversation.turns.exists()


def test_without_any_model_the_page_names_whom_to_contact(
    web: Client, model: LanguageModel, conversation: Conversation
):
    model.delete()
    assert "Ask the staff to set one up." in read(web.get("/"))
    assert "ask the staff" in read(web.post("/", {"text": "Hi"}))


def test_the_picker_shows_the_model_used_last(web: Client, conversation: Conversation):
    other = a_model("m-2", label="Other one")
    conversation.open_turn([user_message("Hi")], language_model=other)
    assert web.get(page_of(conversation)).context["form"].chosen == other


def test_a_message_to_a_deleted_conversation_stays_in_the_input(
    web: Client, conversation: Conversation
):
    conversation.delete_softly()
    answer = web.post(page_of(conversation), {"text": "A long letter"})
    assert answer.status_code == 404
    assert "This conversation no longer exists." in read(answer)
    assert "A long letter" in read(answer)
    assert 'action="/"' in answer.content.decode()


# Other people's


@pytest.mark.parametrize("method", ["get", "post"])
@pytest.mark.parametrize("path", ["", "rename/", "delete/", "turn", "stop/", "retry/"])
def test_conversations_of_others_are_not_found(
    web: Client, conversation: Conversation, path: str, method: str
):
    conversation.title = "Secret plan"
    conversation.save()
    turn = a_finished_turn(conversation, "Secret question", "Secret answer")
    if path in ("turn", "stop/", "retry/"):
        path = f"turns/{turn.pk}/{path.removeprefix('turn')}"
    stranger = signed_in(a_user("eve"))
    answer = getattr(stranger, method)(f"{page_of(conversation)}{path}", {"text": "x"})
    assert answer.status_code in (404, 405)
    assert "Secret" not in answer.content.decode()
    turn.refresh_from_db()
    assert not turn.cancel_requested
    assert Conversation.objects.get().deleted_at is None


def test_a_turn_is_found_in_its_own_conversation_only(
    web: Client, ada: Any, conversation: Conversation
):
    turn = a_finished_turn(conversation)
    other = Conversation.objects.create(owner=ada)
    assert web.get(reverse("turn", args=[other.pk, turn.pk])).status_code == 404
    assert web.get(reverse("turn", args=[conversation.pk, turn.pk])).status_code == 200


def test_the_list_shows_ones_own_only(web: Client, conversation: Conversation):
    Conversation.objects.create(owner=a_user("eve"), title="Secret plan")
    assert "Paris" in read(web.get("/"))
    assert "Secret" not in read(web.get("/"))


# What a turn looks like


def test_an_answer_shows_thoughts_calls_and_words(
    web: Client, conversation: Conversation, model: LanguageModel
):
    output = function_call_output("call_1", '{"sky":"grau","wind":[1,2]}')
    turn = a_turn(
        conversation,
        Turn.Status.COMPLETED,
        THOUGHT,
        CALL,
        output,
        message("assistant", "It is **grey**."),
        language_model=model,
    )
    start = timezone.now()
    turn.tool_calls.create(
        call_id="call_1",
        name="weather_demo",
        state=ToolCall.State.COMPLETED,
        started_at=start,
        ended_at=start + timedelta(seconds=1.25),
    )
    answer = shown(web, turn)
    page = answer.content.decode()
    assert "<strong>Paris</strong>" in page
    assert "weather_demo Paris Completed 1.2 s" in read(answer)
    assert '{ "sky": "grau", "wind": [ 1, 2 ] }' in read(answer)
    assert "It is <strong>grey</strong>." in page
    assert "Fast one" in read(answer)
    assert "raw" not in read(answer)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (ToolCall.State.FAILED, "Failed"),
        (ToolCall.State.TIMED_OUT, "Timed out"),
        (ToolCall.State.EXECUTING, "Executing"),
        (ToolCall.State.UNKNOWN, "Outcome unknown"),
    ],
)
def test_a_call_shows_its_outcome(
    web: Client, conversation: Conversation, state: str, words: str
):
    turn = a_turn(conversation, Turn.Status.COMPLETED, CALL)
    turn.tool_calls.create(
        call_id="call_1", name="weather_demo", state=state, error="No such city."
    )
    assert f"weather_demo Paris {words}" in read(shown(web, turn))
    assert "No such city." in read(shown(web, turn))


def test_a_stopped_turn_keeps_its_text(web: Client, conversation: Conversation):
    answer = message("assistant", "Once upon")
    turn = a_turn(conversation, Turn.Status.CANCELLED, answer)
    words = read(shown(web, turn))
    assert "Once upon" in words
    assert "Stopped; the text so far is stored." in words


def test_a_failed_turn_shows_the_reason_and_advice(
    web: Client, conversation: Conversation
):
    error = {"code": "E_LLM_RATE_LIMIT", "message": "Later, please."}
    turn = a_turn(conversation, Turn.Status.FAILED, error=error)
    words = read(shown(web, turn))
    assert "Later, please. Try again Choose another model" in words
    assert turn.pk in words


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("max_output_tokens", "reached its length limit"),
        ("max_steps", "limit of steps"),
        ("max_answer_size", "The answer reached this server"),
        ("something_new", "The answer was cut short."),
    ],
)
def test_an_incomplete_turn_shows_the_reason(
    web: Client, conversation: Conversation, reason: str, words: str
):
    turn = a_turn(conversation, Turn.Status.INCOMPLETE, incomplete_reason=reason)
    assert words in read(shown(web, turn))


def test_an_empty_answer_is_not_a_blank(web: Client, conversation: Conversation):
    turn = a_turn(conversation, Turn.Status.COMPLETED)
    assert "The model gave an empty answer." in read(shown(web, turn))


def test_a_running_turn_shows_the_text_so_far(web: Client, conversation: Conversation):
    partial = [message("assistant", "So far so")]
    turn = a_turn(conversation, Turn.Status.RUNNING, CALL, partial=partial)
    words = read(web.get(page_of(conversation)))
    assert "So far so" in words
    assert "Answering" in words
    assert reverse("stop", args=[conversation.pk, turn.pk]) in (
        web.get(page_of(conversation)).content.decode()
    )


def test_user_text_is_escaped(web: Client, conversation: Conversation):
    turn = a_finished_turn(conversation, "<script>alert(1)</script> *a*", "<b>x</b>")
    page = shown(web, turn).content.decode()
    assert "&lt;script&gt;alert(1)&lt;/script&gt; *a*" in page
    assert "<b>" not in page


def test_pictures_are_shown_only_where_nothing_is_fetched(
    web: Client, conversation: Conversation
):
    parts = [
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
        {"type": "input_image", "image_url": "https://a.test/x.png"},
        {"type": "input_file", "filename": "notes.pdf", "file_url": "https://a.test"},
    ]
    turn = conversation.open_turn([{**user_message(""), "content": parts}]).turn
    page = " ".join(shown(web, turn).content.decode().split())
    assert page.count("<img") == 1
    assert 'href="https://a.test/x.png" rel="noopener noreferrer nofollow"' in page
    assert "notes.pdf" in page


def test_a_conversation_of_programs_is_readable(
    web: Client, conversation: Conversation
):
    turn = conversation.open_turn(
        [
            message("developer", "Be brief."),
            message("assistant", "**Yes?**"),
            function_call_output("call_1", '{"a":1}'),
        ]
    ).turn
    words = read(shown(web, turn))
    assert "Developer: Be brief." in words
    assert "Yes?" in words
    assert 'Tool: { "a": 1 }' in words


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ('{"city": "Paris", "days": 3}', "Paris, 3"),
        ('{"city": "Par', ""),
        ("[1]", ""),
        ("{}", ""),
        ('{"text": "%s"}' % ("x" * 200), "x" * 79 + "…"),
    ],
)
def test_a_closed_card_shows_the_arguments_in_a_few_words(arguments: str, words: str):
    assert preview(arguments) == words


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ('{"a":1}', '{\n  "a": 1\n}'),
        ("plain", "plain"),
        ("12", "12"),
        ('{"a":', '{"a":'),
        ([{"é": 1}], '[\n  {\n    "é": 1\n  }\n]'),
    ],
)
def test_json_is_indented_and_text_left_alone(value: Any, text: str):
    assert pretty(value) == text


# Buttons


def test_stop_cancels_the_turn_in_the_engine(
    web: Client, conversation: Conversation, monkeypatch: pytest.MonkeyPatch
):
    stopped: list[str] = []
    monkeypatch.setattr(engine, "cancel", lambda turn: stopped.append(turn.pk))
    turn = a_turn(conversation, Turn.Status.RUNNING)
    answer = web.post(reverse("stop", args=[conversation.pk, turn.pk]))
    assert answer.headers["Location"] == f"{page_of(conversation)}#turn-{turn.pk}"
    assert stopped == [turn.pk]


@pytest.mark.parametrize("name", ["stop", "retry", "continue", "refresh"])
def test_a_message_that_is_not_sent_yet_outlives_other_buttons(
    web: Client, conversation: Conversation, submitted: list[str], name: str
):
    """Without scripts they send the message box, whose text would be lost."""
    turn = a_turn(conversation, Turn.Status.INCOMPLETE, message("assistant", "Half"))
    address = reverse(name, args=[conversation.pk, turn.pk])
    answer = web.post(address, {"text": "a draft"})
    assert answer.status_code == 200
    assert "a draft" in read(answer)
    assert "notice is-error" not in answer.content.decode()
    assert not Item.objects.filter(payload__icontains="a draft").exists()


def test_regenerating_keeps_the_first_attempt(
    web: Client, conversation: Conversation, submitted: list[str]
):
    other = a_model("m-2", alias="other")
    failed = a_turn(conversation, Turn.Status.FAILED)
    retry = reverse("retry", args=[conversation.pk, failed.pk])
    web.post(retry, {"model": "other", "text": "a draft"})
    again = conversation.turns.exclude(pk=failed.pk).get()
    assert text_of(again.items.get().payload) == "What is the weather?"
    assert again.items.get().payload["id"] != failed.items.get().payload["id"]
    assert again.language_model == other
    assert submitted == [again.pk]


def test_regenerating_without_a_model_keeps_the_draft(
    web: Client, conversation: Conversation
):
    failed = a_turn(conversation, Turn.Status.FAILED)
    retry = reverse("retry", args=[conversation.pk, failed.pk])
    answer = web.post(retry, {"model": "gone", "text": "a draft"})
    assert answer.status_code == 400
    assert "a draft" in read(answer)
    assert conversation.turns.count() == 1


def test_a_conversation_is_renamed(web: Client, conversation: Conversation):
    address = reverse("rename", args=[conversation.pk])
    assert "Rename" in read(web.get(address))
    web.post(address, {"title": " Rome "})
    conversation.refresh_from_db()
    assert conversation.title == "Rome"


def test_renaming_leads_back_to_where_the_person_was(
    web: Client, conversation: Conversation
):
    other = Conversation.objects.create(owner=conversation.owner, title="Oslo")
    address = reverse("rename", args=[conversation.pk])
    for query, back in [
        ("", reverse("conversation", args=[conversation.pk])),
        (f"?current={other.pk}", reverse("conversation", args=[other.pk])),
        ("?current=", "/"),
        ("?current=conv_of_another", "/"),
        ("?current=%00", "/"),
    ]:
        answer = web.post(address + query, {"title": "Rome"})
        assert (answer.status_code, answer["Location"]) == (302, back)


@pytest.mark.slow
@pytest.mark.smoke
def test_a_long_answer_is_shown_in_parts(web: Client, conversation: Conversation):
    text = "# Part\n\nSome *words* of it.\n\n" * 10_000
    turn = a_turn(conversation, Turn.Status.COMPLETED)
    item = {**message("assistant", text), "id": "msg_1"}
    Item.of(turn, 7, item, origin=Item.Origin.OUTPUT).save()
    page = web.get(reverse("conversation", args=[conversation.pk])).content.decode()
    shown = page.count("<em>words</em>")
    while link := re.search(r'href="([^"]*\?from=\d+)"', page):
        address = link.group(1)
        if address.startswith("?"):
            address = reverse("text", args=[conversation.pk, turn.pk, 0]) + address
        page = web.get(address).content.decode()
        shown += page.count("<em>words</em>")
    assert shown == 10_000
    for index, start, status in [(0, "x", 200), (0, "9" * 20, 200), (1, "0", 404)]:
        address = reverse("text", args=[conversation.pk, turn.pk, index])
        assert web.get(address, {"from": start}).status_code == status


@pytest.mark.parametrize("title", ["", "  ", "x" * 201])
def test_a_title_that_cannot_be_is_refused(
    web: Client, conversation: Conversation, title: str
):
    answer = web.post(reverse("rename", args=[conversation.pk]), {"title": title})
    assert answer.status_code == 200
    assert "field-error" in answer.content.decode()
    conversation.refresh_from_db()
    assert conversation.title == "Paris"


def test_deleting_needs_a_confirmation(web: Client, conversation: Conversation):
    address = reverse("delete", args=[conversation.pk])
    assert "Delete this conversation?" in read(web.get(address))
    assert Conversation.objects.get().deleted_at is None
    location = web.post(address).headers["Location"]
    assert location == f"/?deleted={conversation.pk}"
    assert Conversation.objects.get().deleted_at is not None
    assert web.get(page_of(conversation)).status_code == 404


# Long ones


def fill(conversation: Conversation, count: int) -> None:
    for number in range(count):
        a_finished_turn(conversation, f"Question {number}.", f"Answer {number}.")


@pytest.mark.parametrize("count", [3, 30])
def test_the_number_of_queries_does_not_grow(
    web: Client,
    conversation: Conversation,
    count: int,
    django_assert_num_queries: Any,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(applicable, "SECONDS", 3600)  # on a slow machine, too
    fill(conversation, count)
    web.get("/tokens/")  # notes the use of the session, once a minute
    web.get(page_of(conversation))  # compiles queries, and marks it as read
    with django_assert_num_queries(31):
        # Session, user, its settings, conversation, its tree, the branch chosen
        # (twice), turns, items, calls, deliveries,
        # edited arguments, ratings, models, tools, background calls, list, questions of
        # groups; for the context: its preset and model, the last turn, its items,
        # ancestors and model call, and all items where no call has counted them; the
        # waiting messages; when the page was last seen, and that it is seen now.
        web.get(page_of(conversation))


def test_a_part_beyond_every_answer_is_not_found(
    web: Client, conversation: Conversation
):
    turn = a_finished_turn(conversation)
    address = reverse("text", args=[conversation.pk, turn.pk, 10**30])
    assert web.get(address).status_code == 404


def test_a_long_conversation_is_shown_in_windows(
    web: Client, conversation: Conversation
):
    fill(conversation, LATEST + WINDOW + 1)
    page, before = web.get(page_of(conversation)), LATEST + WINDOW + 1
    for size in (LATEST, WINDOW):
        text = read(page)
        for number in (before - 1, before - size):
            assert f"Question {number}." in text
        assert f"Question {before - size - 1}." not in text
        assert ("To the latest messages" in text) == (size == WINDOW)
        before -= size
        earlier = re.search(r'href="([^"]+)"[^>]*data-earlier', page.content.decode())
        assert earlier
        page = web.get(earlier[1].removesuffix("#end"))
    assert "Question 0." in read(page)
    assert "Question 1." not in read(page)
    assert b"data-earlier" not in page.content


def test_a_long_list_is_shown_in_parts(web: Client, ada: Any):
    Conversation.objects.bulk_create(
        Conversation(owner=ada, title=f"Talk {number}.") for number in range(PAGE + 5)
    )
    page = web.get("/").content.decode()
    assert page.count("row-link") == PAGE
    assert f'href="?chats={2 * PAGE}"' in page
    assert web.get(f"/?chats={2 * PAGE}").content.decode().count("row-link") == PAGE + 5


@pytest.mark.parametrize("size", ["x", "-1", "9" * 5000, "٣"])
def test_a_size_that_makes_no_sense_does_no_harm(web: Client, size: str):
    assert web.get("/", {"chats": size}).status_code == 200


def test_conversations_are_grouped_by_day():
    now = timezone.now()
    ages = [0, 1, 3, 7, 8, 30, 31]
    rows = [Conversation(updated_at=now - timedelta(days=age)) for age in ages]
    labels = [(label, len(group)) for label, group in group_by_age(rows, now.date())]
    month = f"{now - timedelta(days=31):%B %Y}"
    assert labels == [
        ("Today", 1),
        ("Yesterday", 1),
        ("Previous 7 days", 2),
        ("Previous 30 days", 2),
        (month, 1),
    ]


def test_a_clock_ahead_of_ours_is_today():
    row = Conversation(updated_at=timezone.now() + timedelta(days=1))
    assert [label for label, _ in group_by_age([row], date.today())] == ["Today"]


def test_a_running_conversation_is_marked_in_the_list(
    web: Client, conversation: Conversation
):
    a_turn(conversation, Turn.Status.RUNNING)
    assert 'aria-label="answering"' in web.get("/chats/").content.decode()


# When nothing works


@pytest.mark.parametrize("template", ["400", "403", "403_csrf", "404", "500"])
def test_error_pages_need_nothing(template: str):
    from django.template.loader import get_template

    assert "Parley" in get_template(f"{template}.html").render()


def test_a_missing_page_has_our_own_error_page(web: Client):
    answer = web.get("/chat/conv_nowhere/")
    assert answer.status_code == 404
    assert "Page not found" in read(answer)
