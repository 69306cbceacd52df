"""What a second user tries: rows of others, quotas of others, two tabs at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client
from django.urls import reverse

from conversations import engine
from conversations.access.participation import invite, remove
from conversations.access.sharing import create_link
from conversations.models import (
    Attachment,
    Conversation,
    ConversationImport,
    Folder,
    Participant,
    Rating,
    SavedPrompt,
    ShareLink,
    Tag,
    Turn,
)
from llm.wire.items import user_message
from tests.conversations.page_scene import ada, conversation, model
from tests.conversations.scene import (
    a_finished_turn,
    a_user,
    program,
    signed_in,
)

__all__ = ["ada", "conversation", "model"]

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scripted_host")]
JSON = "application/json"


@pytest.fixture(autouse=True)
def submitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """No engine runs the turns."""
    monkeypatch.setattr(engine, "submit", lambda *_, **__: None)


@pytest.fixture(autouse=True)
def media(settings: Any, tmp_path: Any) -> None:
    settings.MEDIA_ROOT, settings.SHARE_LINKS = tmp_path, "public"


@pytest.fixture
def bob() -> Any:
    return a_user("bob")


def join(conversation: Conversation, user: Any, role: str = "writer") -> Participant:
    row = invite(conversation, user.get_username(), role)
    row.accept()
    return row


def upload(client: Client, conversation: Conversation) -> Any:
    file = SimpleUploadedFile("a.txt", b"frogs")
    url = reverse("api:attachments", args=[conversation.pk])
    return client.post(url, {"file": file})


# Rows of others


@pytest.fixture
def rows(ada: Any, conversation: Conversation) -> dict[str, Any]:
    """One row of each kind, all of ada's."""
    turn = a_finished_turn(conversation)
    waits = conversation.open_turn([user_message("And?")]).turn
    folder = Folder.objects.create(owner=ada, name="Work", instructions="Hush")
    conversation.tags.add(Tag.objects.create(owner=ada, name="trip"))
    file = upload(program(ada), conversation).json()["data"][0]["id"]
    text = folder.files.create(name="a", text="Hush", size=4)
    link = create_link(
        conversation, ada, {"audience": "public", "kind": "snapshot", "turn": turn.pk}
    )
    return {
        "c": conversation.pk,
        "t": turn.pk,
        "w": waits.pk,
        "f": folder.pk,
        "text": text.pk,
        "file": file,
        "link": link.pk,
        "rating": Rating.objects.create(turn=turn, user=ada, value="bad").pk,
        "prompt": SavedPrompt.objects.create(owner=ada, name="p", text="x").pk,
        "import": ConversationImport.objects.create(owner=ada, name="i", size=1).pk,
        "person": invite(conversation, "carla", "viewer").pk,
    }


REQUESTS = [
    ("get", "conversations/{c}/", None),
    ("patch", "conversations/{c}/", {"title": "Mine"}),
    ("delete", "conversations/{c}/", None),
    ("get", "conversations/{c}/export/", None),
    ("get", "conversations/{c}/context/", None),
    ("post", "conversations/{c}/restore/", None),
    ("post", "conversations/{c}/shares/", {"audience": "public"}),
    ("post", "conversations/{c}/participants/", {"name": "bob", "role": "approver"}),
    ("get", "shares/{link}/", None),
    ("delete", "shares/{link}/", None),
    ("delete", "participants/{person}/", None),
    ("post", "invitations/{person}/accept/", None),
    ("put", "turns/{t}/rating/", {"value": "good"}),
    ("delete", "turns/{t}/rating/", None),
    ("delete", "turns/{t}/branch/", None),
    ("post", "turns/{t}/fork/", None),
    ("patch", "turns/{w}/", {"input": "Mine"}),
    ("delete", "turns/{w}/", None),
    ("get", "folders/{f}/", None),
    ("patch", "folders/{f}/", {"instructions": "Mine"}),
    ("delete", "folders/{f}/", None),
    ("post", "folders/{f}/files/", {"name": "x", "text": "Mine"}),
    ("get", "folders/{f}/files/{text}/", None),
    ("delete", "folders/{f}/files/{text}/", None),
    ("delete", "attachments/{file}/", None),
    ("patch", "prompts/{prompt}/", {"text": "Mine"}),
    ("delete", "prompts/{prompt}/", None),
    ("get", "imports/{import}/", None),
]
STRANGERS_TOO = [
    ("get", "conversations/{c}/branch/", None),
    ("put", "conversations/{c}/branch/", {"turn": "{t}"}),
    ("get", "conversations/{c}/turns/", None),
    ("post", "conversations/{c}/turns/", {"input": "Hi"}),
    ("get", "conversations/{c}/queue/", None),
    ("post", "conversations/{c}/queue/", {"order": ["{w}"]}),
    ("post", "conversations/{c}/seen/", None),
    ("get", "conversations/{c}/participants/", None),
    ("get", "turns/{t}/", None),
    ("get", "turns/{t}/events/", None),
    ("get", "turns/{t}/details/", None),
    ("post", "turns/{t}/cancel/", None),
    ("post", "turns/{t}/continue/", None),
    ("get", "attachments/{file}/", None),
]


def answers(user: Any, rows: dict[str, Any], requests: list[Any]) -> dict[str, int]:
    client, found = program(user), {}
    for method, path, body in requests:
        arguments: list[Any] = []
        if body is not None:
            filled = {
                name: value.format(**rows) if isinstance(value, str) else value
                for name, value in body.items()
            }
            arguments = [filled, JSON]
        url = f"/api/{path.format(**rows)}"
        found[f"{method} {path}"] = getattr(client, method)(url, *arguments).status_code
    return found


def snapshot() -> list[Any]:
    """All rows that the requests could change."""
    kinds = (Conversation, Turn, Folder, Tag, ShareLink, Rating, SavedPrompt)
    kinds += (ConversationImport, Participant, Attachment)
    return [list(kind.objects.order_by("pk").values()) for kind in kinds]


@pytest.mark.parametrize("person", ["stranger", "viewer", "writer", "approver", "gone"])
def test_rows_of_another_person_do_not_exist(
    conversation: Conversation, bob: Any, rows: dict[str, Any], person: str
):
    if person == "gone":
        remove(join(conversation, bob, "approver"))
    elif person != "stranger":
        join(conversation, bob, person)
    before = snapshot()
    assert set(answers(bob, rows, REQUESTS).values()) == {404}
    if person in ("stranger", "gone"):
        assert set(answers(bob, rows, STRANGERS_TOO).values()) == {404}
    assert snapshot() == before


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("conversations/", {"title": "x", "owner": 1}),
        ("conversations/", {"title": "x", "import_key": "k"}),
        ("folders/", {"name": "x", "owner": 1}),
        ("prompts/", {"name": "x", "text": "x", "owner": 1}),
        ("conversations/{c}/shares/", {"audience": "public", "owner": 1}),
        ("conversations/{c}/shares/", {"audience": "public", "token": "t"}),
        ("conversations/{c}/participants/", {"name": "b", "role": "viewer", "user": 1}),
        ("conversations/{c}/turns/", {"input": "x", "author": 1}),
    ],
)
def test_fields_that_are_not_the_clients_are_refused(
    ada: Any, rows: dict[str, Any], path: str, body: Any
):
    before = snapshot()
    answer = program(ada).post(f"/api/{path.format(**rows)}", body, JSON)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] in body
    assert snapshot() == before


# Quotas of others


def test_copies_of_a_guest_s_files_count_for_who_copies(
    settings: Any, ada: Any, conversation: Conversation, bob: Any
):
    settings.UPLOAD_QUOTA = 30
    join(conversation, bob)
    file = upload(program(bob), conversation).json()["data"][0]["id"]
    part = {"type": "input_file", "file_id": file}
    said = [{"role": "user", "content": [part]}]
    turns = reverse("api:turns", args=[conversation.pk])
    turn = program(bob).post(turns, {"input": said}, JSON).json()["id"]
    for _ in range(5):
        assert program(ada).post(f"/api/turns/{turn}/fork/").status_code == 201
    assert upload(program(bob), conversation).status_code == 201
    assert upload(program(ada), conversation).status_code == 201
    assert upload(program(ada), conversation).status_code == 413


def test_a_guest_takes_back_a_file_that_no_message_names(
    ada: Any, conversation: Conversation, bob: Any
):
    row = join(conversation, bob)
    files = [upload(program(bob), conversation).json()["data"][0]["id"] for _ in "ab"]
    theirs = upload(program(ada), conversation).json()["data"][0]["id"]
    assert program(bob).delete(f"/api/attachments/{theirs}/").status_code == 404
    assert program(bob).delete(f"/api/attachments/{files[0]}/").status_code == 204
    remove(row)
    assert program(bob).delete(f"/api/attachments/{files[1]}/").status_code == 404
    assert program(ada).delete(f"/api/attachments/{files[1]}/").status_code == 204


# Two tabs at once


def first(act: Callable[[], Any], table: str) -> Any:
    """Let another tab `act` just before this request inserts into the table."""
    done: list[Any] = []

    def race(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith(f'INSERT INTO "{table}"') and not done:
            done.append(True)
            done.append(act())
        return execute(sql, params, many, context)

    return connection.execute_wrapper(race)


@pytest.mark.parametrize("by", ["page", "api"])
def test_two_tabs_make_one_folder(ada: Any, model: Any, by: str):
    def create() -> Any:
        if by == "page":
            return signed_in(ada).post(reverse("folders"), {"name": "Work"})
        return program(ada).post("/api/folders/", {"name": "Work"}, JSON)

    with first(
        lambda: Folder.objects.create(owner=ada, name="Work"), "conversations_folder"
    ):
        answer = create()
    assert answer.status_code == 400
    assert "a folder of this name" in answer.content.decode()


@pytest.mark.parametrize("by", ["page", "api"])
def test_two_tabs_save_one_prompt(ada: Any, by: str):
    fields = {"name": "tea", "title": "", "text": "Tea, please."}

    def create() -> Any:
        if by == "page":
            return signed_in(ada).post(reverse("prompts"), fields)
        return program(ada).post("/api/prompts/", fields, JSON)

    def save() -> Any:
        return SavedPrompt.objects.create(owner=ada, **fields)

    with first(save, "conversations_savedprompt"):
        answer = create()
    assert answer.status_code == 400
    assert "a prompt of this name" in answer.content.decode()


@pytest.mark.skipif(
    not connection.features.has_select_for_update,
    reason="SQLite begins transactions that write one after the other",
)
@pytest.mark.django_db(transaction=True)
def test_two_tabs_invite_one_person(ada: Any, model: Any):
    conversation = Conversation.objects.create(owner=ada, language_model=model)
    together = threading.Barrier(2)

    def invite_as(role: str) -> int:
        together.wait()
        try:
            return invite(conversation, "bob", role).pk
        finally:
            connection.close()

    with ThreadPoolExecutor() as threads:
        assert len(set(threads.map(invite_as, ["viewer", "writer"]))) == 1
