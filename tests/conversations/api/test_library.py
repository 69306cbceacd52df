"""Folders, tags, changes of many, exports and imports over REST."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from conversations.api.serializers import ConversationSerializer
from conversations.models import Conversation, ConversationImport, Folder, Tag
from conversations.pages.forms.title_form import TitleForm
from conversations.pages.library.forms import OrganiseForm
from conversations.requests import bulk
from conversations.transfer import imports
from tests.conversations.page_scene import ada, conversation, model, submitted
from tests.conversations.scene import a_user, program

__all__ = ["ada", "conversation", "model", "submitted"]
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scripted_host")]


@pytest.fixture
def api(ada: Any) -> Client:
    return program(ada)


def send(api: Client, method: str, path: str, data: Any) -> Any:
    return getattr(api, method)(f"/api/{path}", data, content_type="application/json")


def test_a_folder_with_instructions_model_and_texts(api: Client):
    answer = send(api, "post", "folders/", {"name": "Work", "model": "fast"})
    assert answer.status_code == 201
    pk = answer.json()["id"]
    send(api, "patch", f"folders/{pk}/", {"instructions": "Be brief."})
    text = {"name": "../prices.txt", "text": "Tea: 3 €"}
    file = send(api, "post", f"folders/{pk}/files/", text).json()
    assert file["name"] == "prices.txt"
    assert "text" not in file
    shown = api.get(f"/api/folders/{pk}/").json()
    assert shown["instructions"] == "Be brief."
    assert len(shown["files"]) == 1
    assert api.delete(f"/api/folders/{pk}/files/{file['id']}/").status_code == 204
    assert api.delete(f"/api/folders/{pk}/").status_code == 204


def test_a_folder_of_another_user_does_not_exist(
    api: Client, conversation: Conversation
):
    hers = Folder.objects.create(owner=a_user("eve"), name="Hers")
    assert api.get(f"/api/folders/{hers.pk}/").status_code == 404
    path = f"conversations/{conversation.pk}/"
    for value in (hers.pk, "x", True, 1e300, [hers.pk]):
        answer = send(api, "patch", path, {"folder": value})
        assert answer.status_code == 400, value
        assert answer.json()["error"]["param"] == "folder"


def test_a_conversation_is_pinned_tagged_archived_and_moved(
    api: Client, ada: Any, conversation: Conversation
):
    folder = Folder.objects.create(owner=ada, name="Work")
    path = f"conversations/{conversation.pk}/"
    change = {"pinned": True, "tags": ["b", "a"], "folder": folder.pk}
    shown = send(api, "patch", path, change).json()
    assert shown["pinned"] is True
    assert shown["archived"] is False
    assert shown["tags"] == ["a", "b"]
    assert shown["folder"] == folder.pk
    assert api.get("/api/tags/").json()["data"] == ["a", "b"]
    shown = send(api, "patch", path, {"pinned": False, "folder": None}).json()
    assert (shown["pinned"], shown["folder"]) == (False, None)
    assert shown["tags"] == ["a", "b"]


def test_a_title_that_a_person_sets_is_theirs(api: Client, conversation: Conversation):
    send(api, "patch", f"conversations/{conversation.pk}/", {"title": "Mine"})
    conversation.refresh_from_db()
    assert conversation.title_source == "person"


def test_only_a_new_conversation_is_temporary(api: Client, conversation: Conversation):
    made = send(api, "post", "conversations/", {"temporary": True}).json()
    assert made["temporary"] is True
    listed = api.get("/api/conversations/").json()["results"]
    assert [row["id"] for row in listed] == [conversation.pk]
    assert api.get(f"/api/conversations/{made['id']}/").status_code == 200
    path = f"conversations/{conversation.pk}/"
    assert send(api, "patch", path, {"temporary": True}).status_code == 400
    assert api.get(f"/api/conversations/{made['id']}/export/").status_code == 404


def test_many_change_at_once_and_strangers_are_missing(
    api: Client, conversation: Conversation
):
    hers = Conversation.objects.create(owner=a_user("eve"))
    ids = [conversation.pk, hers.pk, "conv_nothing"]
    answer = send(api, "post", "conversations/bulk/", {"ids": ids, "action": "delete"})
    assert answer.json() == {"changed": ids[:1], "missing": ids[1:]}
    hers.refresh_from_db()
    assert hers.deleted_at is None


def test_a_conversation_has_few_tags_and_none_with_a_comma(
    api: Client, ada: Any, conversation: Conversation
):
    path = f"conversations/{conversation.pk}/"
    wrong = send(api, "patch", path, {"tags": ["red, green"]})
    assert wrong.status_code == 400
    assert wrong.json()["error"]["param"] == "tags"
    names = [f"t{number}" for number in range(20)]
    assert send(api, "patch", path, {"tags": names}).status_code == 200
    change = {"ids": [conversation.pk], "action": "tag", "tag": "one more"}
    answer = send(api, "post", "conversations/bulk/", change)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "tag"
    again = send(api, "post", "conversations/bulk/", {**change, "tag": "t7"})
    assert again.status_code == 200
    assert conversation.tags.count() == 20
    assert not Tag.objects.filter(name="one more").exists()


@pytest.mark.parametrize(
    ("data", "param"),
    [
        ({"action": "pin"}, "ids"),
        ({"ids": [], "action": "pin"}, "ids"),
        ({"ids": ["x"] * 501, "action": "pin"}, "ids"),
        ({"ids": [7], "action": "pin"}, "ids"),
        ({"ids": ["x"], "action": "explode"}, "action"),
        ({"ids": ["x"], "action": "move"}, "folder"),
        ({"ids": ["x"], "action": "tag"}, "tag"),
        ({"ids": ["x"], "action": "pin", "id": 1}, "id"),
    ],
)
def test_a_wrong_change_names_what_is_wrong(api: Client, data: Any, param: str):
    answer = send(api, "post", "conversations/bulk/", data)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].startswith(param)


def test_an_export_is_imported_over_rest(
    api: Client, conversation: Conversation, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(imports, "start", lambda row: imports.run_import(row.pk))
    answer = api.get(f"/api/conversations/{conversation.pk}/export/")
    data = b"".join(answer.streaming_content)
    assert json.loads(data)["title"] == "Paris"
    everything = api.get("/api/conversations/export/")
    assert b"".join(everything.streaming_content).startswith(b"PK")
    assert api.get("/api/conversations/export/?format=exe").status_code == 400
    eve = program(a_user("eve"))
    upload = SimpleUploadedFile("paris.json", data)
    begun = eve.post("/api/imports/", {"file": upload})
    assert begun.status_code == 202
    pk = begun.json()["id"]
    shown = eve.get(f"/api/imports/{pk}/").json()
    assert (shown["state"], shown["imported"]) == ("completed", 1)
    assert api.get(f"/api/imports/{pk}/").status_code == 404


def test_an_import_without_a_file_or_too_large_is_refused(api: Client, settings: Any):
    assert api.post("/api/imports/", {}).status_code == 400
    settings.IMPORT_MAX_SIZE = 3
    upload = SimpleUploadedFile("a.json", b"[{}]")
    answer = api.post("/api/imports/", {"file": upload})
    assert answer.status_code == 400
    assert "the limit is 3 bytes" in answer.json()["error"]["message"]
    assert not ConversationImport.objects.exists()


def test_a_search_with_filters_alone_lists_and_marks(
    api: Client, ada: Any, conversation: Conversation
):
    folder = Folder.objects.create(owner=ada, name="Work")
    Conversation.objects.filter(pk=conversation.pk).update(folder=folder)
    Conversation.objects.create(owner=ada, title="Paris too")
    found = api.get("/api/search/", {"folder": folder.pk}).json()["data"]
    assert [row["title"] for row in found] == ["Paris"]
    both = api.get("/api/search/", {"query": "par", "folder": folder.pk}).json()
    assert both["data"][0]["title_pieces"] == [
        {"text": "Par", "is_match": True},
        {"text": "is", "is_match": False},
    ]
    assert api.get("/api/search/").status_code == 400
    assert api.get("/api/search/", {"from": "yesterday"}).status_code == 400


def change_by_rest(row: Conversation) -> None:
    serializer = ConversationSerializer(row, data={"pinned": True}, partial=True)
    assert serializer.is_valid()
    serializer.save()


def move_on_the_page(row: Conversation) -> None:
    form = OrganiseForm({"folder": "", "labels": ""}, instance=row, user=row.owner)
    assert form.is_valid()
    form.save()


def rename_on_the_page(row: Conversation) -> None:
    form = TitleForm({"title": "By me"}, instance=row)
    assert form.is_valid()
    form.save()


@pytest.mark.parametrize("change", [change_by_rest, move_on_the_page])
def test_a_title_that_is_written_meanwhile_stays(
    conversation: Conversation, change: Any
):
    same = Conversation.objects.filter(pk=conversation.pk)
    read_before = same.get()
    same.update(title="By a model", title_source="model")
    change(read_before)
    assert same.get().title == "By a model"


@pytest.mark.parametrize(
    "change", [change_by_rest, move_on_the_page, rename_on_the_page]
)
def test_a_conversation_that_is_deleted_meanwhile_stays_deleted(
    conversation: Conversation, change: Any
):
    same = Conversation.objects.filter(pk=conversation.pk)
    read_before = same.get()
    conversation.delete_softly()
    change(read_before)
    assert same.get().deleted_at is not None


def test_a_conversation_with_one_tag_too_many_is_not_created(
    api: Client, ada: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(bulk, "MAX_TAGS", 1)
    answer = send(api, "post", "conversations/", {"tags": ["one", "two"]})
    assert answer.status_code == 400
    assert not Conversation.objects.of(ada).exists()
