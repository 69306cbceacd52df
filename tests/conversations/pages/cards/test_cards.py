"""Cards of an answer: calls, tables, sources, background calls."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from conversations import engine
from conversations.models import Attachment, Conversation, Question, ToolCall, Turn
from conversations.pages.blocks import MAX_UNGROUPED, RESULT_CALL_ID
from llm.models import ModelCall
from llm.wire.items import function_call_output, message
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
from tests.conversations.scene import a_user, signed_in

__all__ = ["ada", "conversation", "model", "submitted", "web"]

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scripted_host")]

PIXEL = "data:image/png;base64,iVBORw0KGgo="
ROWS = [{"city": "Paris", "degrees": 12}, {"city": "Oslo", "degrees": -3}]


def calls(count: int) -> list[dict[str, Any]]:
    return [{**CALL, "id": f"fc_{n}", "call_id": f"call_{n}"} for n in range(count)]


def outputs(count: int) -> list[dict[str, Any]]:
    return [function_call_output(f"call_{n}", "ok") for n in range(count)]


def in_background(turn: Turn, **fields: Any) -> ToolCall:
    return turn.tool_calls.create(
        **{
            "call_id": "call_1",
            "name": "weather_demo",
            "blocking": False,
            "state": ToolCall.State.EXECUTING,
            "started_at": timezone.now() - timedelta(seconds=75),
            **fields,
        }
    )


# Results


def laid_flat(html: str) -> str:
    """Without the line breaks that a linter puts between attributes."""
    return " ".join(html.split())


def test_a_list_of_records_is_a_table(web: Client, conversation: Conversation):
    output = function_call_output("call_1", json.dumps(ROWS))
    turn = a_turn(conversation, Turn.Status.COMPLETED, CALL, output)
    words = read(shown(web, turn))
    assert "city degrees Paris 12 Oslo -3 As JSON" in words


def test_a_result_shows_its_pictures_and_files(web: Client, conversation: Conversation):
    parts = [
        {"type": "input_text", "text": "Look:"},
        {"type": "input_image", "image_url": PIXEL},
        {"type": "input_image", "image_url": "https://a.test/tracker.png"},
        {"type": "input_file", "filename": "a.txt", "file_id": "file_1"},
    ]
    output = function_call_output("call_1", parts)
    turn = a_turn(conversation, Turn.Status.COMPLETED, CALL, output)
    page = laid_flat(shown(web, turn).content.decode())
    assert re.findall(r'<img src="([^"]+)"', page) == [PIXEL]
    assert 'href="https://a.test/tracker.png" rel="noopener noreferrer' in page
    assert 'href="/api/attachments/file_1/"' in page


def test_a_result_that_was_cut_leads_to_the_whole(
    web: Client, conversation: Conversation, settings: Any, tmp_path: Any
):
    settings.MEDIA_ROOT = tmp_path
    cut = "x\n[Cut: this is the beginning, 1 of 9 characters.]"
    turn = a_turn(conversation, Turn.Status.COMPLETED, CALL)
    turn.tool_calls.create(
        call_id="call_1", name="weather_demo", state="completed", output=cut
    )
    attachment = Attachment(
        conversation=conversation, name="call_1.txt", content_type="text/plain", size=9
    )
    attachment.file.save(attachment.pk, ContentFile(b"x" * 9), save=False)
    attachment.save()
    page = shown(web, turn).content.decode()
    assert f'href="/api/attachments/{attachment.pk}/"' in page


# Groups


@pytest.mark.parametrize("count", [MAX_UNGROUPED, MAX_UNGROUPED + 1])
def test_many_calls_side_by_side_are_folded(
    web: Client, conversation: Conversation, count: int
):
    items = [*calls(count), *outputs(count)]
    turn = a_turn(conversation, Turn.Status.COMPLETED, *items)
    for n in range(count):
        state = ToolCall.State.FAILED if n == 1 else ToolCall.State.COMPLETED
        turn.tool_calls.create(call_id=f"call_{n}", name="weather_demo", state=state)
    words = read(shown(web, turn))
    folded = f"{count} calls {count - 1} completed 1 failed" in words
    assert folded == (count > MAX_UNGROUPED)
    assert words.count("weather_demo Paris") == count


def test_calls_of_different_steps_are_not_folded_together(
    web: Client, conversation: Conversation
):
    pairs = zip(calls(6), outputs(6), strict=True)
    one_by_one = [item for pair in pairs for item in pair]
    parted = [*calls(2), THOUGHT, *calls(6)[2:5], *outputs(5)]
    for items in (one_by_one, parted):
        turn = a_turn(conversation, Turn.Status.COMPLETED, *items)
        assert "called-group" not in shown(web, turn).content.decode()


# Tools of providers, and where they looked


def test_a_hosted_tool_call_is_a_card(web: Client, conversation: Conversation):
    search = {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {
            "type": "search",
            "query": "weather in Paris",
            "sources": [{"type": "url", "url": "https://a.test/paris"}],
        },
    }
    unheard_of = {"type": "parley:teleport_call", "id": "x_1", "to": "<b>Mars</b>"}
    turn = a_turn(conversation, Turn.Status.COMPLETED, search, unheard_of)
    page = shown(web, turn)
    words = read(page)
    assert "Searched the web weather in Paris Completed" in words
    html = laid_flat(page.content.decode())
    assert 'href="https://a.test/paris" rel="noopener' in html
    assert "Teleport" in words
    assert '"to": "<b>Mars</b>"' in words
    assert "<b>Mars" not in page.content.decode()


def test_sources_are_numbered_links_each_once(web: Client, conversation: Conversation):
    answer = message("assistant", "Grey.")
    notes = [
        ("https://a.test/1", "One"),
        ("https://b.test/two", ""),
        ("https://a.test/1", "One"),
        ("javascript:alert(1)", "Bad"),
    ]
    answer["content"][0]["annotations"] = [
        {"type": "url_citation", "url": url, "title": title} for url, title in notes
    ] + [{"type": "file_citation", "filename": "x"}]
    page = shown(web, a_turn(conversation, Turn.Status.COMPLETED, answer))
    html = laid_flat(page.content.decode())
    found = re.search(r'<ol class="citations".*?</ol>', html)
    assert found
    links = re.findall(r'<a href="([^"]+)" rel="([^"]+)".*?>(.*?)</a>', found[0])
    assert links == [
        ("https://a.test/1", "noopener noreferrer nofollow", "One"),
        ("https://b.test/two", "noopener noreferrer nofollow", "b.test"),
    ]


def test_a_closed_card_shows_the_arguments_that_a_person_approved(
    web: Client, conversation: Conversation
):
    output = function_call_output("call_1", "ok")
    turn = a_turn(conversation, Turn.Status.COMPLETED, CALL, output)
    call = in_background(turn, blocking=True, state=ToolCall.State.COMPLETED)
    call.questions.create(
        kind=Question.Kind.APPROVAL,
        state=Question.State.ACCEPTED,
        arguments=json.loads(CALL["arguments"]),
        answer={"city": "Zürich"},
        expires_at=timezone.now(),
    )
    html = laid_flat(shown(web, turn).content.decode())
    closed = re.search(r'<span class="called-preview".*?>(.*?)</span>', html)
    assert closed
    assert closed[1] == "Zürich"


def test_options_that_a_model_does_not_support_are_named_below_its_answer(
    web: Client, conversation: Conversation
):
    turn = a_turn(conversation, Turn.Status.COMPLETED, message("assistant", "Hi."))
    for options in (["temperature"], [], ["temperature", "text.format (emulated)"]):
        ModelCall.objects.create(turn_id=turn.pk, status="completed", degraded=options)
    assert (
        "The model does not support all options; changed or left out:"
        " temperature, text.format (emulated)." in read(shown(web, turn))
    )


# In the background


def test_a_call_in_the_background_is_not_taken_for_done(
    web: Client, conversation: Conversation
):
    output = function_call_output("call_1", "Accepted: this goes on.")
    turn = a_turn(conversation, Turn.Status.COMPLETED, CALL, output)
    row = in_background(turn, progress="Page 3 of 12")
    words = read(shown(web, turn))
    assert "weather_demo Paris Executing" in words
    assert "Accepted:" not in words
    strip = read(web.get(page_of(conversation)))
    assert re.search(
        r"Running in the background weather_demo Page 3 of 12 \d+ min \d+ s Stop",
        strip,
    )
    ToolCall.objects.update(state=ToolCall.State.COMPLETED, output='{"sky": "grey"}')
    row.refresh_from_db()
    assert '"sky": "grey"' in read(shown(web, turn))
    assert "Running in the background" not in read(web.get(page_of(conversation)))


def test_its_result_is_a_card_and_no_word_of_the_users(
    web: Client, conversation: Conversation
):
    first_turn = a_turn(conversation, Turn.Status.COMPLETED, CALL)
    result_message = message("user", f"Result of the call:\n\n{json.dumps(ROWS)}")
    result_message[RESULT_CALL_ID] = "call_1"
    turn = conversation.open_turn([]).turn
    turn.items.create(
        position=0, origin="output", type="message", payload=result_message
    )
    row = in_background(
        first_turn, state=ToolCall.State.COMPLETED, output=json.dumps(ROWS)
    )
    ToolCall.objects.filter(pk=row.pk).update(delivered_in=turn)
    page = shown(web, turn)
    assert "Result of weather_demo" in read(page)
    assert "city degrees Paris 12 Oslo -3" in read(page)
    assert "You said" not in read(page)
    ToolCall.objects.all().delete()
    assert "Result of the call" in read(shown(web, turn))


def test_it_is_cancelled_by_its_button(
    web: Client, conversation: Conversation, monkeypatch: pytest.MonkeyPatch
):
    cancelled: list[int] = []
    monkeypatch.setattr(engine, "cancel_call", lambda call: cancelled.append(call.pk))
    row = in_background(a_turn(conversation, Turn.Status.COMPLETED, CALL))
    url = reverse("cancel-call", args=[conversation.pk, row.pk])
    assert url in web.get(page_of(conversation)).content.decode()
    assert web.post(url).headers["Location"] == f"{page_of(conversation)}#end"
    assert cancelled == [row.pk]
    assert signed_in(a_user("eve")).post(url).status_code == 404
    other = Conversation.objects.create(owner=conversation.owner)
    foreign = reverse("cancel-call", args=[other.pk, row.pk])
    assert web.post(foreign).status_code == 404
    assert cancelled == [row.pk]


def test_the_strip_is_had_by_itself(web: Client, conversation: Conversation):
    in_background(a_turn(conversation, Turn.Status.COMPLETED, CALL))
    url = reverse("background", args=[conversation.pk])
    assert read(web.get(url)).startswith("Running in the background weather_demo")
    assert signed_in(a_user("eve")).get(url).status_code == 404
