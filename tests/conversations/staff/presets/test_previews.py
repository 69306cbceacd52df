"""Preview chats: answers in the background, their progress, and their end."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from conversations.engine.evaluations import preview
from conversations.models import Conversation, Item, Preset, Turn
from conversations.models.staff.evaluation import PREVIEW_STALE, PreviewChat
from llm.errors import ProviderDown
from llm.http import client as llm_client
from llm.models import ApiKey, LanguageModel, ModelCall, Provider
from llm.wire.deltas import FinishDelta, ReasoningDelta, TextDelta, UsageDelta
from tests.conversations.scene import a_user, signed_in, staff
from tests.conversations.script import HANG, Script
from tests.conversations.staff.presets.test_preset_drafts import page, save_draft

pytestmark = pytest.mark.django_db(transaction=True)
ANSWER = [
    ReasoningDelta(0, "secret musing"),
    TextDelta(1, "Hello <b>there</b>."),
    UsageDelta(7, 3),
    FinishDelta("stop"),
]


@pytest.fixture
def preset() -> Preset:
    provider = Provider.objects.create(name="Demo", kind="demo")
    ApiKey.objects.create(provider=provider, secret="demo-key-of-these-tests")
    LanguageModel.objects.create(provider=provider, name="demo", is_default=True)
    return Preset.objects.create(name="support", instructions="Live words.")


@pytest.fixture
def editor() -> Client:
    return signed_in(staff("eva", "view_preset", "change_preset"))


@pytest.fixture
def say(monkeypatch):
    monkeypatch.setattr(preview, "PROGRESS_INTERVAL", 0.01)

    def say(*answers: Any) -> Script:
        script = Script(*answers)
        monkeypatch.setattr(llm_client, "stream", script)
        return script

    return say


def the_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("preview-")]


def join_threads() -> None:
    for thread in the_threads():
        thread.join()


def send(client: Client, preset: Preset, text: str) -> Any:
    return client.post(page(preset, "preview"), {"text": text})


def shown(client: Client, preset: Preset) -> str:
    return client.get(page(preset, "preview")).content.decode()


def test_a_preview_talks_with_the_draft_and_enters_no_conversation(editor, preset, say):
    script = say(ANSWER)
    save_draft(editor, preset)
    for text in ("Hi", "Again"):
        assert send(editor, preset, text).status_code == 302
        join_threads()
    html = shown(editor, preset)
    assert html.count("Hello &lt;b&gt;there&lt;/b&gt;.") == 2
    assert "demo: 10 tokens" in html
    assert "secret musing" not in html
    assert {r.instructions for r in script.requests} == {"Draft words."}
    assert len(script.requests[1].items) == 3  # the chat so far
    for table in (Conversation, Turn, Item):
        assert not table.objects.exists()
    assert set(ModelCall.objects.values_list("purpose", "turn_id")) == {("trial", "")}
    other = signed_in(staff("zoe", "view_preset", "change_preset"))
    assert "Hello" not in shown(other, preset)
    editor.post(page(preset, "preview"), {"clear": "1"})
    assert not PreviewChat.objects.exists()


@pytest.mark.parametrize(
    ("prices", "cost"),
    [({}, "cost unknown."), ({"input": 1, "output": 1}, "$0.000010.")],
)
def test_an_unknown_price_is_not_shown_as_free(
    editor, preset, say, prices: dict[str, int], cost: str
):
    LanguageModel.objects.update(prices=prices)
    say(ANSWER)
    send(editor, preset, "Hi")
    join_threads()
    assert f"demo: 10 tokens, {cost}" in shown(editor, preset)


def wait_for(is_so: Any) -> None:
    """While a thread makes an answer."""
    while not is_so():
        [thread] = the_threads()
        thread.join(0.01)


@pytest.mark.parametrize("button", ["stop", "clear"])
def test_an_answer_shows_its_progress_and_ends_when_it_is_stopped(
    editor, preset, say, button
):
    script = say([TextDelta(0, "Half a sen"), HANG])
    assert send(editor, preset, "Go <on>").status_code == 302
    wait_for(PreviewChat.objects.exclude(partial="").exists)
    html = shown(editor, preset)
    assert "Half a sen" in html
    assert "Go &lt;on&gt;" in html
    assert 'name="text"' not in html
    refused = send(editor, preset, "Another")
    assert "An answer is being made" in refused.content.decode()
    editor.post(page(preset, "preview"), {button: "1"})
    join_threads()
    assert script.closed == 1
    [call] = ModelCall.objects.all()
    assert call.purpose == "trial"
    html = shown(editor, preset)
    assert ("Stopped." in html) is (button == "stop")
    assert ("Go &lt;on&gt;" in html) is (button == "stop")  # to be sent again
    assert 'name="text"' in html
    say(ANSWER)
    send(editor, preset, "Anew")
    join_threads()
    assert [i["type"] for i in PreviewChat.objects.get().items] == ["message"] * 2


def test_a_preview_that_cannot_run_says_why_and_keeps_the_text(editor, preset):
    Provider.objects.update(enabled=False)
    answer = send(editor, preset, "Hi there")
    assert answer.status_code == 200
    assert "E_" in answer.content.decode()
    assert "Hi there" in answer.content.decode()
    too_long = send(editor, preset, "x" * 100_001)
    assert "text" in too_long.context["form"].errors
    assert not PreviewChat.objects.exists()


def test_a_call_that_fails_says_why_and_keeps_the_text(editor, preset, say):
    say([ProviderDown("The host burns.")])
    send(editor, preset, "Hi there")
    join_threads()
    html = shown(editor, preset)
    assert "The host burns." in html
    assert "Hi there" in html
    assert PreviewChat.objects.get().items == []


def test_a_failure_is_in_the_language_of_who_asked(editor, preset, say):
    say([ProviderDown()])
    german = {"accept-language": "de"}
    editor.post(page(preset, "preview"), {"text": "Hallo"}, headers=german)
    join_threads()
    error = PreviewChat.objects.get().error
    assert error == "Der Anbieter ist ausgefallen oder überlastet."


def test_an_answer_whose_server_has_ended_can_be_sent_again(editor, preset, say):
    chat = PreviewChat.objects.create(
        preset=preset, user_id=editor.session["_auth_user_id"]
    )
    chat.begin("lost", "Hi there")
    assert "The answer is being made." in shown(editor, preset)
    PreviewChat.objects.update(seen_at=timezone.now() - PREVIEW_STALE)
    html = shown(editor, preset)
    assert "interrupted" in html
    assert "Hi there" in html
    say(ANSWER)
    send(editor, preset, "Hi there")
    join_threads()
    assert "Hello" in shown(editor, preset)
    # The lost thread may only have been slow: its answer is nobody's any more.
    assert not PreviewChat.objects.of_job(chat.pk, "lost").exists()


def test_only_some_previews_run_at_once(editor, preset):
    for number in range(preview.MAX_RUNNING):
        chat = PreviewChat(preset=preset, user=a_user(f"user{number}"))
        chat.begin(f"job{number}", "Hi")
    answer = send(editor, preset, "Hi")
    assert "Other previews are running" in answer.content.decode()
    assert not the_threads()


def test_a_chat_that_is_too_long_is_refused(editor, preset, monkeypatch):
    monkeypatch.setattr(preview, "MAX_CHAT", 100)
    answer = send(editor, preset, "x" * 100)
    assert "too long" in answer.content.decode()
