"""Files of folders: what may be one, whose they are, and what models are sent."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from conversations.engine import claim_store
from conversations.engine.loading.turn_loader import load
from conversations.forms import folder_uploads
from conversations.models import Conversation, Folder, FolderFile, Turn
from conversations.models.folder import MAX_FOLDER_FILES
from conversations.turns.file_storage import FilesUnavailable
from llm.models import ApiKey, LanguageModel, Provider
from llm.wire.items import user_message
from tests.conversations import files
from tests.conversations.page_scene import read
from tests.conversations.scene import a_user, program, signed_in

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def media(settings: Any, tmp_path: Any) -> Any:
    settings.MEDIA_ROOT = tmp_path
    return tmp_path


@pytest.fixture
def ada() -> Any:
    return a_user("ada")


@pytest.fixture
def web(ada: Any) -> Client:
    return signed_in(ada)


@pytest.fixture
def folder(ada: Any) -> Folder:
    return Folder.objects.create(owner=ada, name="Work")


def stored_files(media: Any) -> list[Any]:
    return [path for path in media.rglob("*") if path.is_file()]


def add(client: Client, folder: Folder, name: str, data: bytes, by: str) -> Any:
    upload = {"file": SimpleUploadedFile(name, data)}
    if by == "page":
        return client.post(reverse("add-folder-file", args=[folder.pk]), upload)
    return client.post(f"/api/folders/{folder.pk}/files/", upload)


def is_added(response: Any) -> bool:
    return response.status_code in (201, 302)


# What may be a file


@pytest.mark.parametrize("by", ["page", "api"])
@pytest.mark.parametrize(
    ("name", "data", "stored_as", "content_type"),
    [
        ("a.png", files.PNG, "a.png", "image/png"),
        ("photo", files.JPEG, "photo.jpeg", "image/jpeg"),
        ("../plan.pdf", files.PDF, "plan.pdf", "application/pdf"),
        ("page.html", files.SVG, "page.html", "text/plain"),
        ("notes.txt", files.TEXT, "notes.txt", "text/plain"),
    ],
)
def test_a_folder_takes_what_a_message_takes(
    ada: Any, folder: Folder, name: str, data: bytes, stored_as: str, content_type: str,
    by: str,
):  # fmt: skip
    client = signed_in(ada) if by == "page" else program(ada)
    assert is_added(add(client, folder, name, data, by))
    row = FolderFile.objects.get()
    assert (row.content_type, row.size) == (content_type, len(data))
    assert row.name.partition(".")[0] == stored_as.partition(".")[0]
    shown = client.get(f"/api/folders/{folder.pk}/files/{row.pk}/")
    assert shown.content == data
    assert shown["Content-Type"] == content_type
    assert "sandbox" in shown["Content-Security-Policy"]
    listed = program(ada).get(f"/api/folders/{folder.pk}/").json()["files"]
    assert [each["content_type"] for each in listed] == [content_type]


def post_files(client: Client, folder: Folder, *chosen: tuple[str, bytes]) -> Any:
    url = reverse("add-folder-file", args=[folder.pk])
    return client.post(url, {"file": [SimpleUploadedFile(*each) for each in chosen]})


def test_a_page_takes_several_files_at_once_and_names_those_that_it_refuses(
    web: Client, folder: Folder
):
    text, empty = files.TEXT, ("__init__.py", b"")
    assert post_files(web, folder, ("a.txt", text), ("b.png", files.PNG)).url
    refused = post_files(
        web, folder, ("c.txt", text), empty, ("d.zip", files.ZIP), (" .txt", b" ")
    )
    assert refused.status_code == 400
    said = read(refused)
    assert "Added 1 of 4 files, but not these:" in said
    assert "“__init__.py” is empty." in said
    assert "“d.zip” has a type that models cannot read" in said
    assert ".txt: The file is empty; choose another one." in said
    names = FolderFile.objects.order_by("pk").values_list("name", flat=True)
    assert list(names) == ["a.txt", "b.png", "c.txt"]
    assert post_files(web, folder).status_code == 400


def test_a_page_says_which_files_a_storage_that_does_not_answer_has_not_taken(
    web: Client, folder: Folder, monkeypatch: pytest.MonkeyPatch
):
    def fail(*_: Any) -> None:
        raise FilesUnavailable("timeout")

    monkeypatch.setattr(folder_uploads, "store", fail)
    answer = post_files(web, folder, ("a.txt", files.TEXT), ("b.png", files.PNG))
    assert answer.status_code == 400
    assert "Added 1 of 2 files" in read(answer)
    assert "b.png: The file could not be stored just now." in read(answer)
    assert [file.name for file in folder.files.all()] == ["a.txt"]
    web.raise_request_exception = False
    again = post_files(web, folder, ("b.png", files.PNG), ("c.txt", files.TEXT))
    assert again.status_code == 503
    assert folder.files.count() == 1


@pytest.mark.parametrize("by", ["page", "api"])
@pytest.mark.parametrize(
    ("data", "words"),
    [
        (files.ZIP, "has a type that models cannot read"),
        (files.ELF, "has a type that models cannot read"),
        (b"", "empty"),
        (b" \n", "The file is empty"),
        (files.PNG + b"0" * 500, "the limit for a file"),
        (b"x" * 199_995, "200,000 bytes together"),
    ],
)
def test_what_a_folder_refuses(
    settings: Any,
    ada: Any,
    folder: Folder,
    media: Any,
    data: bytes,
    words: str,
    by: str,
):
    settings.MAX_UPLOAD_SIZE = 400 if data.startswith(files.PNG) else 10**7
    folder.files.create(name="a", text="Our prices.", size=11)
    client = signed_in(ada) if by == "page" else program(ada)
    answer = add(client, folder, "f.txt", data, by)
    assert answer.status_code in (400, 413, 415)
    said = read(answer) if by == "page" else answer.json()["error"]["message"]
    assert words in said
    assert folder.files.count() == 1
    assert stored_files(media) == []


def test_the_number_of_files_is_bounded(settings: Any, ada: Any, folder: Folder):
    settings.MAX_UPLOAD_COUNT = 1
    api = program(ada)
    assert is_added(add(api, folder, "a.png", files.PNG, "api"))
    second = add(api, folder, "b.png", files.PNG, "api")
    assert "1 pictures and documents" in second.json()["error"]["message"]
    for number in range(MAX_FOLDER_FILES - 1):
        folder.files.create(name=str(number), text="x", size=1)
    last = add(api, folder, "c.txt", b"x", "api")
    assert f"{MAX_FOLDER_FILES} files" in last.json()["error"]["message"]


def test_files_of_folders_and_of_messages_share_one_quota(
    settings: Any, ada: Any, folder: Folder
):
    settings.UPLOAD_QUOTA = len(files.PNG) + 5
    talk = Conversation.objects.create(owner=ada)
    api = program(ada)
    upload = {"file": SimpleUploadedFile("a.png", files.PNG)}
    there = reverse("api:attachments", args=[talk.pk])
    assert api.post(there, upload).status_code == 201
    refused = add(api, folder, "b.png", files.PNG, "api")
    assert (refused.status_code, refused.json()["error"]["code"]) == (
        413,
        "quota_exceeded",
    )
    assert add(api, folder, "b.txt", b"123456", "api").status_code == 413
    assert is_added(add(api, folder, "b.txt", b"12345", "api"))
    eve = a_user("eve")
    hers = Folder.objects.create(owner=eve, name="Hers")
    assert is_added(add(program(eve), hers, "b.png", files.PNG, "api"))


@pytest.mark.parametrize("data", [{}, {"file": "text"}, {"text": "x"}])
def test_a_form_without_a_file_is_refused(ada: Any, folder: Folder, data: Any):
    answer = program(ada).post(f"/api/folders/{folder.pk}/files/", data)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "file")


# Whose they are


def test_files_of_another_user_s_folder_do_not_exist(
    ada: Any, folder: Folder, web: Client, media: Any
):
    assert is_added(add(web, folder, "a.png", files.PNG, "page"))
    row = FolderFile.objects.get()
    eve = a_user("eve")
    own = Folder.objects.create(owner=eve, name="Own")
    for client in (signed_in(eve), program(eve)):
        for pk in (folder.pk, own.pk):
            one = f"/api/folders/{pk}/files/{row.pk}/"
            assert client.get(one).status_code == 404
            assert client.delete(one).status_code == 404
        assert add(client, folder, "b.png", files.PNG, "api").status_code == 404
    assert add(signed_in(eve), folder, "b.png", files.PNG, "page").status_code == 404
    remove = reverse("delete-folder-file", args=[own.pk, row.pk])
    assert signed_in(eve).post(remove).status_code == 404
    assert Client().get(f"/api/folders/{folder.pk}/files/{row.pk}/").status_code == 401
    assert len(stored_files(media)) == FolderFile.objects.count() == 1


@pytest.mark.parametrize("end", ["file", "folder", "user"])
@pytest.mark.django_db(transaction=True)
def test_the_bytes_go_with_their_row(
    ada: Any, folder: Folder, web: Client, media: Any, end: str
):
    add(web, folder, "a.png", files.PNG, "page")
    assert len(stored_files(media)) == 1
    row = FolderFile.objects.get()
    match end:
        case "file":
            web.post(reverse("delete-folder-file", args=[folder.pk, row.pk]))
        case "folder":
            web.post(reverse("delete-folder", args=[folder.pk]))
        case "user":
            ada.delete()
    assert not FolderFile.objects.exists()
    assert stored_files(media) == []


# What models are sent


@pytest.fixture
def talk(ada: Any, folder: Folder) -> Conversation:
    provider = Provider.objects.create(name="Demo", kind="demo")
    ApiKey.objects.create(provider=provider, secret="demo-key-of-these-tests")
    seeing = LanguageModel.objects.create(provider=provider, name="demo")
    return Conversation.objects.create(owner=ada, folder=folder, language_model=seeing)


def prepared(talk: Conversation, text: str = "Hi", **fields: Any) -> Any:
    """The request of a new turn, which then is over."""
    turn = talk.open_turn([user_message(text)], **fields).turn
    claim = claim_store.claim(turn.pk)
    assert claim
    request = load(claim).task.prepare([])
    Turn.objects.filter(pk=turn.pk).update(status=Turn.Status.COMPLETED)
    return request


def test_each_turn_gets_pictures_and_documents_as_files_of_a_message(
    talk: Conversation, folder: Folder, web: Client
):
    for name, data in (("a.png", files.PNG), ("b.pdf", files.PDF), ("c", files.TEXT)):
        add(web, folder, name, data, "page")
    for text in ("One", "Two"):
        request = prepared(talk, text)
        _, picture, document = request.items[0]["content"]
        assert picture == {
            "type": "input_image",
            "image_url": f"data:image/png;base64,{b64encode(files.PNG).decode()}",
            "detail": "auto",
        }
        assert document["type"] == "input_file"
        assert document["filename"] == "b.pdf"
        assert document["file_data"].startswith("data:application/pdf;base64,")
        assert request.items[-1]["content"][0]["text"] == text
        assert files.TEXT.decode() in request.instructions
    assert [item["role"] for item in request.items] == ["user", "user", "user"]
    Conversation.objects.update(folder=None)
    talk.refresh_from_db()
    assert "image" not in str(prepared(talk, "Three").items)


def test_a_model_that_cannot_see_is_told_the_names(
    talk: Conversation, folder: Folder, web: Client
):
    add(web, folder, "a.png", files.PNG, "page")
    LanguageModel.objects.filter(name="demo").update(capabilities={"vision": False})
    first = prepared(talk).items[0]
    assert [part["type"] for part in first["content"]] == ["input_text"] * 2
    assert "a.png" in first["content"][1]["text"]


def test_a_file_that_is_gone_does_not_stop_the_chat(
    talk: Conversation, folder: Folder, web: Client, media: Any
):
    add(web, folder, "a.png", files.PNG, "page")
    for path in stored_files(media):
        path.unlink()
    assert "no longer kept" in str(prepared(talk).items[0])
    row = FolderFile.objects.get()
    assert web.get(f"/api/folders/{folder.pk}/files/{row.pk}/").status_code == 404
