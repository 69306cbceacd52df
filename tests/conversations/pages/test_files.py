"""Files and tools of a message, without JavaScript: a plain form."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from conversations.models import Attachment, Conversation, Turn
from llm.wire.items import user_message
from tests.conversations import files
from tests.conversations.page_scene import (
    ada,
    conversation,
    model,
    page_of,
    read,
    submitted,
    web,
)
from tests.conversations.scene import a_user, program, signed_in
from tools.models import Tool

__all__ = ["ada", "conversation", "model", "submitted", "web"]

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scripted_host")]


@pytest.fixture(autouse=True)
def media(settings: Any, tmp_path: Any) -> Any:
    settings.MEDIA_ROOT = tmp_path
    return tmp_path


def form(*uploads: tuple[str, bytes], text: str = "Look") -> dict[str, Any]:
    sent = [SimpleUploadedFile(name, data) for name, data in uploads]
    return {"text": text, "file": sent, "key": "k-1"}


def stored_files(media: Any) -> list[Any]:
    return [path for path in media.rglob("*") if path.is_file()]


# Files


def test_the_first_message_may_bring_files(web: Client, submitted: list[str]):
    uploads = [("a.png", files.PNG), ("notes.txt", files.TEXT)]
    response = web.post("/", form(*uploads))
    turn = Turn.objects.get()
    assert response.headers["Location"].endswith(f"#turn-{turn.pk}")
    assert submitted == [turn.pk]
    photo, notes = Attachment.objects.order_by("name")
    assert photo.conversation_id == turn.conversation_id
    assert turn.items.get().payload["content"] == [
        {"type": "input_image", "file_id": photo.pk, "detail": "auto"},
        {"type": "input_file", "file_id": notes.pk, "filename": "notes.txt"},
        {"type": "input_text", "text": "Look"},
    ]
    page = web.get(page_of(turn.conversation)).content.decode()
    assert f'<img src="/api/attachments/{photo.pk}/"' in page
    assert f'href="/api/attachments/{notes.pk}/"' in page


def test_files_need_no_words(web: Client, conversation: Conversation):
    web.post(page_of(conversation), form(("a.png", files.PNG), text=" "))
    [part] = Turn.objects.get().items.get().payload["content"]
    assert part["type"] == "input_image"


def test_pressing_twice_sends_files_once(
    web: Client, conversation: Conversation, media: Any
):
    for _ in range(2):
        web.post(page_of(conversation), form(("a.png", files.PNG)))
    assert (
        Turn.objects.count()
        == Attachment.objects.count()
        == len(stored_files(media))
        == 1
    )
    web.post(page_of(conversation), form(("a.png", files.GIF)))
    assert Turn.objects.count() == 2


@pytest.mark.parametrize("path", ["new", "conversation"])
def test_a_refused_file_is_reported_and_the_draft_remains(
    web: Client, conversation: Conversation, media: Any, path: str
):
    url = "/" if path == "new" else page_of(conversation)
    response = web.post(url, form(("a.png", files.PNG), ("b.zip", files.ZIP)))
    assert response.status_code == 400
    assert "“b.zip” has a type that models cannot read." in read(response)
    assert "Look" in read(response)
    assert not Turn.objects.exists()
    assert not stored_files(media)
    assert Conversation.objects.count() == 1


def test_storage_that_runs_out_during_the_upload_is_reported(
    web: Client, media: Any, monkeypatch: pytest.MonkeyPatch
):
    from conversations.pages.forms import message_form
    from conversations.turns.attachments import UploadRefused

    def full(*_: Any) -> None:
        raise UploadRefused("There is no more room.", "quota_exceeded", 413)

    monkeypatch.setattr(message_form, "insert_stored", full)
    response = web.post("/", form(("a.png", files.PNG)))
    assert response.status_code == 400
    assert "There is no more room." in read(response)
    assert not Conversation.objects.exists()
    assert not stored_files(media)


def test_a_failure_after_the_upload_leaves_no_files(
    web: Client, media: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Conversation, "open_turn", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        web.post("/", form(("a.png", files.PNG)))
    assert not stored_files(media)
    assert not Attachment.objects.exists()


LOST = "These files were not sent; choose them again: a.png, n.txt"


@pytest.mark.parametrize("path", ["new", "conversation", "deleted"])
def test_a_page_that_sends_nothing_names_the_files_to_choose_again(
    web: Client, conversation: Conversation, path: str
):
    url = "/" if path == "new" else page_of(conversation)
    if path == "deleted":
        conversation.delete_softly()
    uploads = form(("a.png", files.PNG), ("n.txt", files.TEXT))
    page = read(web.post(url, {**uploads, "model": "gone"}))
    assert LOST in page
    assert LOST not in read(web.get("/"))


@pytest.mark.parametrize("text", ["Look", ""])
@pytest.mark.parametrize("button", ["stop", "cancel-call", "choose-tools"])
def test_a_button_beside_the_message_keeps_what_is_written(
    web: Client, conversation: Conversation, button: str, text: str
):
    turn = conversation.open_turn([user_message("Hi")]).turn
    call = turn.tool_calls.create(call_id="c", name="x", state="executing")
    row = {"stop": [turn.pk], "cancel-call": [call.pk], "choose-tools": []}[button]
    url = reverse(button, args=[conversation.pk, *row])
    sent = form(("a.png", files.PNG), ("n.txt", files.TEXT), text=text)
    page = web.post(url, sent)
    assert page.status_code == 200
    assert LOST in read(page)
    assert page.context["form"].data["text"] == text
    assert web.post(url, {"text": ""}).status_code == 302
    assert not Attachment.objects.exists()


def test_files_for_a_deleted_conversation_are_not_stored(
    web: Client, conversation: Conversation, media: Any
):
    conversation.delete_softly()
    response = web.post(page_of(conversation), form(("a.png", files.PNG)))
    assert response.status_code == 404
    assert "This conversation no longer exists." in read(response)
    assert not stored_files(media)


def test_asking_again_brings_the_files_again(web: Client, conversation: Conversation):
    web.post(page_of(conversation), form(("a.png", files.PNG)))
    turn = Turn.objects.get()
    web.post(reverse("retry", args=[conversation.pk, turn.pk]), {"key": "k-2"})
    again = Turn.objects.exclude(pk=turn.pk).get()
    first, second = (one.items.get().payload["content"] for one in (turn, again))
    assert first == second
    assert Attachment.objects.count() == 1


# Tools


@pytest.fixture
def tools() -> None:
    Tool.objects.all().delete()
    for name in ("calculator", "current_time"):
        Tool.objects.create(name=name, enabled=True)


def box(name: str, page: str) -> str:
    flat = " ".join(page.split())  # a linter may put each attribute on a line
    return flat.partition(f'name="tool" value="{name}"')[2].partition(">")[0]


@pytest.mark.usefixtures("tools")
def test_a_conversation_uses_the_tools_that_are_ticked(
    web: Client, conversation: Conversation
):
    page = web.get(page_of(conversation)).content.decode()
    assert "checked" in box("calculator", page)
    url = reverse("choose-tools", args=[conversation.pk])
    assert web.post(url, {"tool": ["current_time"]}).status_code == 302
    conversation.refresh_from_db()
    assert conversation.options == {"disabled_tools": ["calculator"]}
    page = web.get(page_of(conversation)).content.decode()
    assert "checked" not in box("calculator", page)
    assert "checked" in box("current_time", page)
    web.post(url, {"tool": ["current_time", "calculator"]})
    conversation.refresh_from_db()
    assert conversation.options == {}
    assert signed_in(a_user("eve")).post(url).status_code == 404


@pytest.mark.usefixtures("tools")
def test_the_first_message_brings_the_choice(web: Client):
    web.post("/", {"text": "Hi", "tools_shown": "1", "tool": ["calculator"]})
    assert Conversation.objects.get().options == {"disabled_tools": ["current_time"]}
    assert Turn.objects.get().options == {"disabled_tools": ["current_time"]}


@pytest.mark.usefixtures("tools")
def test_a_refused_message_comes_back_with_its_choice(web: Client):
    sent = {"text": " ", "tools_shown": "1", "tool": ["calculator"]}
    answer = web.post("/", sent)
    assert answer.status_code == 400
    page = answer.content.decode()
    assert "checked" in box("calculator", page)
    assert "checked" not in box("current_time", page)


@pytest.mark.usefixtures("tools")
def test_a_form_that_showed_no_tools_changes_none(
    web: Client, conversation: Conversation
):
    web.post(page_of(conversation), {"text": "Hi"})
    conversation.refresh_from_db()
    assert conversation.options == {}


@pytest.mark.usefixtures("tools")
def test_a_tool_that_may_not_be_used_now_stays_off(
    web: Client, conversation: Conversation
):
    conversation.options = {"disabled_tools": ["gone"], "temperature": 0.5}
    conversation.save()
    url = reverse("choose-tools", args=[conversation.pk])
    web.post(url, {"tool": ["calculator", "current_time"]})
    conversation.refresh_from_db()
    assert conversation.options == {"disabled_tools": ["gone"], "temperature": 0.5}


@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize(
    ("names", "status", "problem"),
    [
        (["calculator", "calculator"], 200, ""),
        ([], 200, ""),
        (["calculatr"], 400, "options.disabled_tools: no tool is named 'calculatr'."),
        ("calculator", 400, "options.disabled_tools: expected a list of names."),
        ([""], 400, "options.disabled_tools[0]: expected 1 to 128 characters."),
    ],
)
def test_programs_choose_tools_too(
    ada: Any, conversation: Conversation, names: Any, status: int, problem: str
):
    url = f"/api/conversations/{conversation.pk}/"
    options = {"options": {"disabled_tools": names}}
    answer = program(ada).patch(url, options, content_type="application/json")
    assert answer.status_code == status
    if problem:
        assert answer.json()["error"]["message"] == problem
    else:
        disabled = answer.json()["options"]["disabled_tools"]
        assert disabled == list(dict.fromkeys(names))
