"""The upload endpoint: files can be read again, by their owner alone."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone

from conversations import engine
from conversations.access.participation import invite
from conversations.models import Attachment, Conversation, Turn
from tests.conversations import files
from tests.conversations.scene import a_model, a_user, program, signed_in

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scripted_host")]


@pytest.fixture(autouse=True)
def media(settings: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.MEDIA_ROOT = tmp_path
    monkeypatch.setattr(engine, "submit", lambda *_, **__: None)
    monkeypatch.setattr(engine, "cancel", lambda *_: None)


@pytest.fixture
def ada() -> Any:
    a_model(is_default=True)
    return a_user("ada")


@pytest.fixture
def web(ada: Any) -> Client:
    return program(ada)


@pytest.fixture
def conversation(ada: Any) -> Conversation:
    return Conversation.objects.create(owner=ada)


def upload(
    web: Client, conversation: Conversation, *uploads: tuple[str, bytes], **kwargs: Any
) -> Any:
    sent = [SimpleUploadedFile(name, data) for name, data in uploads]
    url = f"/api/conversations/{conversation.pk}/attachments/"
    return web.post(url, {"file": sent}, **kwargs)


def error(response: Any) -> dict[str, Any]:
    return {"status": response.status_code, **response.json()["error"]}


def post_turn(web: Client, conversation: Conversation, *parts: dict[str, Any]) -> Any:
    content = [*parts, {"type": "input_text", "text": "What is this?"}]
    return web.post(
        f"/api/conversations/{conversation.pk}/turns/",
        {"input": [{"role": "user", "content": content}]},
        content_type="application/json",
    )


def test_files_go_in_and_come_out(web: Client, conversation: Conversation):
    uploads = [("Foto ä.png", files.PNG), ("a.pdf", files.PDF), ("x.svg", files.SVG)]
    response = upload(web, conversation, *uploads)
    assert response.status_code == 201
    body = response.json()["data"]
    assert [(one["name"], one["size"]) for one in body] == [
        (name, len(data)) for name, data in uploads
    ]
    kinds = ["image/png", "application/pdf", "text/plain"]
    assert [one["content_type"] for one in body] == kinds
    for one, (_, data), kind in zip(body, uploads, kinds, strict=True):
        out = web.get(one["url"])
        assert (out.content, out.headers["Content-Type"]) == (data, kind)
        assert out.headers["X-Content-Type-Options"] == "nosniff"
        assert out.headers["Content-Security-Policy"] == "default-src 'none'; sandbox"


@pytest.mark.parametrize(
    ("name", "data", "shown"),
    [
        ("photo.png", files.PNG, 'inline; filename="photo.png"'),
        ("page.html", b"<script>x()</script>", 'attachment; filename="page.html"'),
        ("x.svg", files.SVG, 'attachment; filename="x.svg"'),
        ("a.pdf", files.PDF, 'attachment; filename="a.pdf"'),
        ("ä.txt", files.TEXT, "attachment; filename*=utf-8''%C3%A4.txt"),
    ],
)
def test_only_pictures_show_in_the_browser(
    web: Client, conversation: Conversation, name: str, data: bytes, shown: str
):
    [one] = upload(web, conversation, (name, data)).json()["data"]
    assert web.get(one["url"]).headers["Content-Disposition"] == shown


def test_a_known_file_is_not_sent_again(web: Client, conversation: Conversation):
    [one] = upload(web, conversation, ("a.png", files.PNG)).json()["data"]
    first = web.get(one["url"])
    assert first.headers["Cache-Control"] == "private, no-cache"
    known = {"If-None-Match": first.headers["ETag"]}
    assert web.get(one["url"], headers=known).status_code == 304


def test_a_message_names_its_files(web: Client, conversation: Conversation):
    uploads = [("a.png", files.PNG), ("notes.txt", files.TEXT)]
    photo, notes = upload(web, conversation, *uploads).json()["data"]
    response = post_turn(
        web,
        conversation,
        {"type": "input_image", "file_id": photo["id"]},
        {"type": "input_file", "file_id": notes["id"]},
    )
    assert response.status_code == 202
    turn = Turn.objects.get()
    assert turn.items.get().payload["content"][:2] == [
        {"type": "input_image", "file_id": photo["id"], "detail": "auto"},
        {"type": "input_file", "file_id": notes["id"], "filename": "notes.txt"},
    ]


def test_a_file_of_others_is_as_unknown_as_one_that_never_was(
    web: Client, conversation: Conversation
):
    theirs = Conversation.objects.create(owner=a_user("bob"))
    other = Conversation.objects.create(owner=conversation.owner)
    foreign = [
        upload(program(theirs.owner), theirs, ("a.png", files.PNG)),
        upload(web, other, ("a.png", files.PNG)),
    ]
    ids = [answer.json()["data"][0]["id"] for answer in foreign]
    responses = [
        error(post_turn(web, conversation, {"type": "input_image", "file_id": file_id}))
        for file_id in [*ids, "file_never", "../../x"]
    ]
    for one in responses:
        assert one["status"] == 400
        assert one["code"] == "unknown_file"
        assert one["message"] == (
            "input[0].content[0].file_id: there is no such file in this conversation."
        )
    assert not Turn.objects.exists()


def test_whose_file_it_is_not_finds_nothing(web: Client, conversation: Conversation):
    [one] = upload(web, conversation, ("a.png", files.PNG)).json()["data"]
    bob = program(a_user("bob"))
    assert bob.get(one["url"]).status_code == 404
    assert bob.delete(one["url"]).status_code == 404
    assert upload(bob, conversation, ("a.png", files.PNG)).status_code == 404
    assert Client().get(one["url"]).status_code == 401


def test_a_participant_gets_the_files_of_visible_messages_and_their_own(
    web: Client, conversation: Conversation
):
    bob = a_user("bob")
    invite(conversation, "bob", "writer").accept()
    (sent,) = upload(web, conversation, ("a.txt", b"sent")).json()["data"]
    (own,) = upload(program(bob), conversation, ("b.txt", b"own")).json()["data"]
    path = f"/api/attachments/{sent['id']}/"
    own_path = f"/api/attachments/{own['id']}/"
    assert program(bob).get(path).status_code == 404, "it is not sent yet"
    post_turn(web, conversation, {"type": "input_file", "file_id": sent["id"]})
    assert program(bob).get(path).status_code == 200
    conversation.turns.update(deleted_at=timezone.now())
    assert program(bob).get(path).status_code == 404
    assert program(bob).get(own_path).status_code == 200
    assert web.get(path).status_code == 200, "the owner may restore the branch"


def test_a_participant_gets_the_file_of_a_running_answer(
    web: Client, conversation: Conversation
):
    bob = a_user("bob")
    invite(conversation, "bob", "viewer").accept()
    (made,) = upload(web, conversation, ("a.txt", b"made")).json()["data"]
    partial = [{"type": "message", "content": [{"file_id": made["id"]}]}]
    Turn.objects.create(conversation=conversation, partial=partial)
    answer = program(bob).get(f"/api/attachments/{made['id']}/")
    assert answer.status_code == 200


def test_deleting_a_conversation_deletes_its_files(
    web: Client, conversation: Conversation
):
    [one] = upload(web, conversation, ("a.png", files.PNG)).json()["data"]
    web.delete(f"/api/conversations/{conversation.pk}/")
    assert web.get(one["url"]).status_code == 404
    assert upload(web, conversation, ("a.png", files.PNG)).status_code == 404


def test_a_file_is_taken_back_until_it_was_sent(
    web: Client, conversation: Conversation
):
    uploads = [("a.png", files.PNG), ("b.png", files.PNG)]
    first, second = upload(web, conversation, *uploads).json()["data"]
    post_turn(web, conversation, {"type": "input_image", "file_id": first["id"]})
    assert error(web.delete(first["url"]))["code"] == "file_in_use"
    assert web.delete(second["url"]).status_code == 204
    assert web.get(second["url"]).status_code == 404
    assert list(Attachment.objects.values_list("pk", flat=True)) == [first["id"]]


@pytest.mark.parametrize(
    ("uploads", "status", "code"),
    [
        ([("a.zip", files.ZIP)], 415, "unsupported_file"),
        ([("a.png", b"x" * 30_000)], 413, "file_too_large"),
        ([("a.txt", b"x")] * 3, 400, "too_many_files"),
        ([], 400, "missing"),
    ],
)
def test_upload_errors_have_the_apis_own_shape(
    web: Client,
    conversation: Conversation,
    settings: Any,
    uploads: list[tuple[str, bytes]],
    status: int,
    code: str,
):
    settings.MAX_UPLOAD_SIZE, settings.MAX_UPLOAD_COUNT = 20_000, 2
    refusal = error(upload(web, conversation, *uploads))
    assert (refusal["status"], refusal["code"]) == (status, code)
    assert refusal["param"] == "file"
    assert not Attachment.objects.exists()


def test_a_request_beyond_all_measure_is_not_even_read(
    web: Client, conversation: Conversation, settings: Any
):
    settings.MAX_UPLOAD_SIZE = settings.MAX_UPLOAD_COUNT = 1
    refusal = error(upload(web, conversation, ("a.txt", b"x" * 1_100_000)))
    assert (refusal["status"], refusal["code"]) == (413, "request_too_large")


def test_a_body_that_is_no_form_is_refused(web: Client, conversation: Conversation):
    url = f"/api/conversations/{conversation.pk}/attachments/"
    response = web.post(url, {"file": "x"}, content_type="application/json")
    assert response.status_code == 415


def test_a_page_sends_its_token(ada: Any, conversation: Conversation):
    page = signed_in(ada, enforce_csrf_checks=True)
    assert upload(page, conversation, ("a.png", files.PNG)).status_code == 403
    page.get("/")
    token = page.cookies["csrftoken"].value
    headers = {"X-CSRFToken": token}
    good = upload(page, conversation, ("a.png", files.PNG), headers=headers)
    assert good.status_code == 201


def test_a_file_without_bytes_is_not_found(web: Client, conversation: Conversation):
    [one] = upload(web, conversation, ("a.png", files.PNG)).json()["data"]
    row = Attachment.objects.get()
    row.file.storage.delete(row.file.name)
    assert web.get(one["url"]).status_code == 404


@pytest.mark.parametrize(
    "path", ["/api/attachments/file_none/", "/api/folders/1/files/1/"]
)
def test_a_link_to_a_file_leads_a_person_to_pages(ada: Any, path: str):
    browser = {"Accept": "text/html,*/*;q=0.8"}
    sign_in = Client().get(path, headers=browser)
    assert sign_in.headers["Location"] == f"/login/?next={path}"
    missing = signed_in(ada).get(path, headers=browser)
    assert missing.status_code == 404
    assert "To the chats" in missing.content.decode()
    for answer in (
        Client().get(path),
        Client().delete(path, headers=browser),
        Client().get(path, headers={**browser, "Authorization": "Bearer none"}),
    ):
        assert error(answer)["status"] == 401
    assert error(signed_in(ada).get(path))["status"] == 404
