"""What a person wrote comes back where the server does not accept the form."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from django.conf import settings
from django.contrib.sessions.models import Session
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from conversations.models import Conversation, Folder, Turn
from conversations.models.memory import Memory
from conversations.models.saved_prompt import SavedPrompt
from conversations.models.user_settings import UserSettings
from tests.conversations.page_scene import (
    ada,
    conversation,
    model,
    page_of,
    read,
    submitted,
    web,
)
from tests.conversations.scene import a_finished_turn, a_user, signed_in

__all__ = ["ada", "conversation", "model", "submitted", "web"]
pytestmark = [
    pytest.mark.django_db,
    pytest.mark.usefixtures("scripted_host", "submitted"),
]

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
OWN = {**BROWSER, "Origin": "http://testserver"}
TEXT = "A page of </textarea><b>thoughts</b>\r\nin two lines"


@pytest.fixture
def old(ada: Any) -> Client:
    """A browser whose page has an old token."""
    client = Client(enforce_csrf_checks=True)
    client.force_login(ada)
    return client


def url_of(name: str, conversation: Conversation, user: Any) -> str:
    turn = a_finished_turn(conversation, "What?", "That.")
    match name:
        case "edit-message" | "change-queued" | "rate" | "stop" | "retry":
            return reverse(name, args=[conversation.pk, turn.pk])
        case "conversation" | "rename" | "chat-options":
            return reverse(name, args=[conversation.pk])
        case "folder":
            folder = Folder.objects.create(owner=user, name="F")
            return reverse(name, args=[folder.pk])
        case "change-memory":
            return reverse(name, args=[Memory.objects.create(user=user, text="m").pk])
        case "prompt" | "use-prompt":
            row = SavedPrompt.objects.create(owner=user, name="p", text="{{one}}")
            return reverse(name, args=[row.pk])
        case "question":
            return reverse(name, args=["q_1"])
    return reverse(name)


FORMS = [
    ("chat", "text"),
    ("chat", "instructions"),
    ("conversation", "text"),
    ("edit-message", "text"),
    ("change-queued", "text"),
    ("stop", "text"),
    ("retry", "text"),
    ("rate", "comment"),
    ("rename", "title"),
    ("chat-options", "instructions"),
    ("folder", "instructions"),
    ("folders", "instructions"),
    ("prompts", "text"),
    ("prompt", "text"),
    ("use-prompt", "v0"),
    ("change-memory", "text"),
    ("settings-personal", "custom_instructions"),
    ("question", "note"),
]


def texts(answer: Any) -> list[str]:
    page = answer.content.decode()
    found = re.findall(r"<textarea[^>]*>\n?(.*?)</textarea>", page, re.DOTALL)
    return [unescape(text) for text in found]


@pytest.mark.parametrize(("name", "field"), FORMS)
def test_a_session_that_has_ended_gives_the_text_back(
    web: Client, conversation: Conversation, ada: Any, name: str, field: str
):
    url = url_of(name, conversation, ada)
    Session.objects.all().delete()
    before = Turn.objects.count()
    answer = web.post(url, {field: TEXT}, headers=BROWSER)
    assert answer.status_code == 403
    assert texts(answer) == [TEXT]
    assert "You are signed out" in read(answer)
    assert "no-store" in answer["Cache-Control"]
    assert Turn.objects.count() == before


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("edit-message", "text"),
        ("rename", "title"),
        ("chat-options", "instructions"),
        ("folder", "instructions"),
        ("prompt", "text"),
        ("change-memory", "text"),
    ],
)
def test_what_was_deleted_meanwhile_gives_the_text_back(
    web: Client, conversation: Conversation, ada: Any, name: str, field: str
):
    url = url_of(name, conversation, ada)
    for rows in (Conversation, Folder, SavedPrompt, Memory):
        rows.objects.all().delete()
    answer = web.post(url, {field: TEXT}, headers=BROWSER)
    assert answer.status_code == 404
    assert texts(answer) == [TEXT]
    assert "It was deleted" in read(answer)
    assert "Send again" not in read(answer)
    assert 'href="/"' in answer.content.decode()
    for empty in (
        web.post(url, {field: " "}, headers=BROWSER),
        web.post(url, {field: TEXT}, headers={"Accept": "*/*"}),
        web.get(url, headers=BROWSER),
    ):
        assert "What you wrote" not in read(empty)


@pytest.mark.parametrize(("name", "field"), FORMS)
def test_an_old_token_gives_the_text_back(
    old: Client, conversation: Conversation, ada: Any, name: str, field: str
):
    answer = old.post(url_of(name, conversation, ada), {field: TEXT}, headers=OWN)
    assert answer.status_code == 403
    assert texts(answer) == [TEXT]
    assert "no-store" in answer["Cache-Control"]


@pytest.mark.parametrize(
    ("origin", "trusted"),
    [
        ("http://[::1]:8000", []),
        ("https://[2001:db8::1]", ["https://[2001:db8::1]"]),
        ("https://chat.example.org", ["https://*.example.org"]),
    ],
)
def test_an_address_in_brackets_is_no_pattern(
    old: Client, settings: Any, origin: str, trusted: list[str]
):
    settings.ALLOWED_HOSTS = ["[::1]"]
    settings.CSRF_TRUSTED_ORIGINS = trusted
    headers = {**BROWSER, "Host": "[::1]:8000", "Origin": origin}
    answer = old.post("/", {"text": TEXT}, headers=headers)
    assert answer.status_code == 403
    assert texts(answer) == [TEXT]
    assert "data-unsent" in answer.content.decode()


def fields_of(answer: Any) -> dict[str, str]:
    """What the page's form sends, unchanged."""
    page = answer.content.decode().partition("<form")[2].partition("</form>")[0]
    hidden = re.findall(r'type="hidden" name="([^"]*)" value="([^"]*)"', page)
    names = re.findall(r'<textarea[^>]* name="([^"]*)"', page)
    fields = {name: unescape(value) for name, value in hidden}
    return fields | dict(zip(names, texts(answer), strict=True))


def test_what_came_back_is_sent_with_its_choices_after_a_sign_in(web: Client, ada: Any):
    Session.objects.all().delete()
    browser = Client(enforce_csrf_checks=True)
    browser.cookies = web.cookies
    token = "a" * 32
    browser.cookies[settings.CSRF_COOKIE_NAME] = token
    sent = {"text": "Hello", "temporary": "on", "key": "k-1"}
    over = browser.post("/", {**sent, "csrfmiddlewaretoken": token}, headers=OWN)
    assert "You are signed out" in read(over)
    browser.force_login(ada)
    browser.cookies[settings.CSRF_COOKIE_NAME] = "b" * 32  # a sign-in changes it
    late = browser.post("/", fields_of(over), headers=OWN)
    assert late.status_code == 403
    assert "You are signed in as ada." in read(late)
    answer = browser.post("/", fields_of(late), headers=OWN)
    assert answer.status_code == 302
    [row] = Conversation.objects.all()
    assert row.is_temporary
    assert read(browser.get(answer["Location"].partition("#")[0])).count("Hello")


def test_another_site_cannot_have_its_words_made_ready(old: Client):
    foreign = {**BROWSER, "Origin": "https://evil.example"}
    answer = old.post("/", {"text": TEXT}, headers=foreign)
    assert answer.status_code == 403
    assert "thoughts" not in answer.content.decode()
    silent = old.post("/", {"text": TEXT, "key": "k"}, headers=BROWSER)
    assert texts(silent) == [TEXT]
    assert fields_of_silent(silent) == []


def fields_of_silent(answer: Any) -> list[str]:
    page = answer.content.decode()
    form = page.partition("data-unsent")[2].partition("</form>")[0]
    names = re.findall(r' name="([^"]*)"', form)
    buttons = re.findall(r'<button type="submit"', form)
    return [name for name in names if name != "csrfmiddlewaretoken"] + buttons


@pytest.mark.parametrize("url", ["/login/", "/account/", "/keys/1/", "/tokens/"])
@pytest.mark.parametrize("field", ["password", "old_password", "key", "text"])
def test_forms_with_secrets_come_back_empty(
    old: Client, web: Client, url: str, field: str
):
    answer = old.post(url, {field: "s3cret-word"}, headers=OWN)
    assert answer.status_code == 403
    assert "s3cret-word" not in answer.content.decode()
    Session.objects.all().delete()
    answer = web.post(url, {field: "s3cret-word"}, headers=BROWSER)
    assert "s3cret-word" not in answer.content.decode()


def test_a_text_above_the_limit_is_cut_and_cannot_be_sent(old: Client, settings: Any):
    settings.MAX_INPUT_SIZE = 1000
    answer = old.post("/", {"text": "x" * 200_000}, headers=OWN)
    [text] = texts(answer)
    assert len(text) == 101_000
    assert "the end is missing" in read(answer)
    assert fields_of_silent(answer) == []


def test_files_that_were_not_sent_are_named(web: Client):
    Session.objects.all().delete()
    file = SimpleUploadedFile("plan <1>.txt", b"words")
    answer = web.post("/", {"text": "", "file": file}, headers=BROWSER)
    assert "choose them again: plan <1>.txt" in read(answer)


@pytest.mark.parametrize("headers", [{}, {"Accept": "*/*"}])
def test_scripts_are_led_to_the_sign_in_as_before(web: Client, headers: Any):
    Session.objects.all().delete()
    answer = web.post("/", {"text": TEXT}, headers=headers)
    assert answer["Location"] == "/login/?next=/"


def test_a_form_without_a_word_is_led_to_the_sign_in(
    web: Client, conversation: Conversation
):
    Session.objects.all().delete()
    answer = web.post(page_of(conversation), {"text": " "}, headers=BROWSER)
    assert answer.status_code == 302
    assert texts(web.post("/settings/", {"theme": "dark"}, headers=BROWSER)) == []
    got = web.get("/settings/personal/", headers=BROWSER)
    assert got["Location"] == "/login/?next=/settings/personal/"


def test_a_required_step_gives_the_text_back(web: Client, settings: Any):
    settings.SECOND_FACTOR_FOR_ALL = True
    web.cookies = signed_in(a_user("bob")).cookies
    answer = web.post("/", {"text": TEXT}, headers=BROWSER)
    assert texts(answer) == [TEXT]
    assert "Another step comes first" in read(answer)


def test_saved_settings_are_those_that_came_back(old: Client, ada: Any):
    url = reverse("settings-personal")
    late = old.post(url, {"custom_instructions": "Be brief."}, headers=OWN)
    assert old.post(url, fields_of(late), headers=OWN).status_code == 302
    row = UserSettings.objects.for_user(ada.pk)
    assert (row.custom_instructions, row.memory_enabled) == ("Be brief.", False)
