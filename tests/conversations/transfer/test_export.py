"""A conversation that is exported, imported and exported again has the same bytes."""

from __future__ import annotations

import io
import json
import zipfile
from base64 import b64decode
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone, translation

from conversations.models import (
    AccessToken,
    Attachment,
    Conversation,
    Folder,
    Item,
    Memory,
    Rating,
    SavedPrompt,
    Tag,
    ToolCall,
    Turn,
)
from conversations.models.user_settings import UserSettings
from conversations.transfer import json_stream
from conversations.transfer.account import write_account
from conversations.transfer.export import load, path_of, write_json, write_markdown
from conversations.transfer.imports import accept, run_import
from conversations.turns.branches import continuation_items
from llm.models import LanguageModel
from llm.wire.items import function_call_output, message, new_id, user_message
from tests.conversations.page_scene import (
    CALL,
    THOUGHT,
    ada,
    conversation,
    model,
    page_of,
    submitted,
    web,
)
from tests.conversations.scene import a_user, program, signed_in
from tools.loop.late_results import result_message

__all__ = ["ada", "conversation", "model", "submitted", "web"]
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scripted_host")]

PICTURE = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(256)) * 800


def bytes_of(row: Conversation) -> bytes:
    loaded = load(Conversation.objects.filter(pk=row.pk))
    assert loaded
    return b"".join(write_json(loaded))


def imported(owner: Any, data: bytes, name: str = "export.json") -> Any:
    row = accept(owner, ContentFile(data, name=name))
    assert run_import(row.pk)
    row.refresh_from_db()
    return row


def a_file(conversation: Conversation, name: str, data: bytes, kind: str) -> Attachment:
    row = Attachment(
        conversation=conversation, name=name, content_type=kind, size=len(data)
    )
    row.file.save(name, ContentFile(data), save=False)
    row.save(force_insert=True)
    return row


@pytest.fixture
def rich(ada: Any, model: LanguageModel) -> Conversation:
    """Two branches, reasoning, calls, files, failures, and names that only Ada has."""
    now = timezone.now()
    row = Conversation.objects.create(
        owner=ada,
        title="Zürich & “Ζυρίχη” 🏔",
        language_model=model,
        folder=Folder.objects.create(owner=ada, name="Reisen"),
        instructions="Be brief.\n",
        options={"temperature": 0.7, "metadata": {"a": "b"}},
        pinned_at=now,
    )
    row.tags.set([Tag.objects.create(owner=ada, name=name) for name in ("b", "a")])
    picture = a_file(row, "b.png", PICTURE, "image/png")
    text = a_file(row, "a.txt", "Grüße".encode(), "text/plain")
    part = {"type": "input_file", "file_id": text.pk, "filename": "a.txt"}
    image = {"type": "input_image", "file_id": picture.pk, "detail": "auto"}
    asked = {**user_message("Look"), "content": [image, part]}
    first = turn(row, asked, THOUGHT, CALL, function_call_output("call_1", "18 °C"))
    ToolCall.objects.create(
        turn=first,
        call_id="call_1",
        name="weather_demo",
        state="completed",
        output="18",
    )
    for answer in ("Rain.", "Sun."):
        turn(
            row,
            user_message("And tomorrow?"),
            message("assistant", answer),
            parent=first,
        )
    failed = turn(row, user_message("\u2028 `<b>`"), parent=first)
    Turn.objects.filter(pk=failed.pk).update(
        status="failed", error={"code": "E", "message": "No.", "detail": "secret"}
    )
    return row


def turn(row: Conversation, *items: Any, parent: Turn | None = None) -> Turn:
    opened = row.open_turn(items[:1], parent=parent).turn
    for position, item in enumerate(items[1:], 1):
        Item.of(opened, position, item, origin=Item.Origin.OUTPUT).save()
    Turn.objects.filter(pk=opened.pk).update(
        status="completed",
        usage={"input_tokens": 3, "output_tokens": 2, "total_tokens": 5},
        finished_at=opened.created_at + timedelta(seconds=2),
        language_model=row.language_model,
    )
    return opened


def test_the_bytes_are_the_same_in_another_account(rich: Conversation):
    eve = a_user("eve")
    first = bytes_of(rich)
    assert imported(eve, first).imported == 1
    copy = Conversation.objects.get(owner=eve)
    assert copy.pk != rich.pk
    assert bytes_of(copy) == first


def test_the_bytes_are_the_same_where_the_models_are_missing(
    rich: Conversation, model: LanguageModel
):
    """The other site has neither the model nor the preset."""
    first = bytes_of(rich)
    model.enabled = False
    model.save()
    eve = a_user("eve")
    imported(eve, first)
    copy = Conversation.objects.get(owner=eve)
    assert copy.language_model is None
    assert bytes_of(copy) == first


def test_authors_and_deliveries_of_background_calls_come_along(
    rich: Conversation, ada: Any
):
    bob, eve = a_user("bob"), a_user("eve")
    told = turn(rich, user_message("Mine"))
    Turn.objects.filter(pk=told.pk).update(author=bob, author_name="bob")
    call = ToolCall.objects.get()
    ToolCall.objects.filter(pk=call.pk).update(blocking=False, delivered_in=told)
    imported(eve, bytes_of(rich))
    copy = Conversation.objects.get(owner=eve)
    assert bytes_of(copy) == bytes_of(rich)
    theirs = copy.turns.get(author_name="bob")
    assert theirs.author is None
    again = ToolCall.objects.get(turn__conversation=copy)
    assert (again.blocking, again.delivered_in) == (False, theirs)


def test_a_result_that_was_never_delivered_is_not_delivered_by_an_import(
    rich: Conversation,
):
    ToolCall.objects.update(blocking=False)
    eve = a_user("eve")
    imported(eve, bytes_of(rich))
    copy = ToolCall.objects.filter(turn__conversation__owner=eve)
    assert copy.exists()
    assert not copy.awaiting_delivery().exists()


def test_files_come_with_their_content_and_belong_to_the_new_owner(rich: Conversation):
    eve = a_user("eve")
    imported(eve, bytes_of(rich))
    copy = Conversation.objects.get(owner=eve)
    contents = {}
    for file in copy.attachments.all():
        with file.file.open("rb") as stored:
            contents[file.name] = stored.read()
    assert contents == {"b.png": PICTURE, "a.txt": "Grüße".encode()}
    named = json.dumps(
        list(Item.objects.filter(turn__conversation=copy).values_list("payload"))
    )
    assert all(file.pk in named for file in copy.attachments.all())
    assert not any(file.pk in named for file in rich.attachments.all())


def test_files_may_be_larger_than_the_limit_of_the_rest(
    rich: Conversation, monkeypatch: pytest.MonkeyPatch
):
    eve, bob = a_user("eve"), a_user("bob")
    data = bytes_of(rich)
    monkeypatch.setattr(json_stream, "PIECE", 1024)
    monkeypatch.setattr(json_stream, "MAX_VALUE", 20_000)
    assert len(data) > 20_000
    indented = json.dumps(json.loads(data), indent=1).encode()
    for owner, written in ((eve, data), (bob, indented)):
        report = imported(owner, written)
        assert report.imported == 1, report.reasons
        assert bytes_of(Conversation.objects.get(owner=owner)) == data
    foreign = {"title": "T", "mapping": [{"data": "x" * 20_000}]}
    report = imported(eve, json.dumps(foreign).encode())
    assert "more than" in report.reasons[0]["reason"]


def test_a_missing_file_does_not_become_another_one(rich: Conversation):
    picture = Attachment.objects.get(name="b.png")
    picture.file.delete(save=False)
    owners = [a_user(name) for name in ("eve", "bob")]
    data = bytes_of(rich)
    for owner in owners:
        report = imported(owner, data)
        copy = Conversation.objects.get(owner=owner)
        data = bytes_of(copy)
        assert report.imported == 1, report.reasons
    asked = Item.objects.get(turn__conversation=copy, payload__icontains="input_image")
    image, text = asked.payload["content"]
    file = copy.attachments.get()
    assert text["file_id"] == file.pk
    assert image["file_id"] != file.pk
    assert signed_in(owner).get(page_of(copy)).status_code == 200


def test_branches_stay_branches(rich: Conversation):
    eve = a_user("eve")
    imported(eve, bytes_of(rich))
    turns = list(Turn.objects.filter(conversation__owner=eve).order_by("created_at"))
    assert [each.parent_id for each in turns] == [None, *[turns[0].pk] * 3]


def test_a_second_import_brings_nothing_twice(rich: Conversation, ada: Any):
    eve, data = a_user("eve"), bytes_of(rich)
    imported(eve, data)
    again = imported(eve, data)
    assert (again.imported, again.repeated, again.skipped) == (0, 1, 0)
    assert imported(ada, data).repeated == 1  # it is hers
    Conversation.objects.get(owner=eve).delete_softly()
    assert imported(eve, data).imported == 1


def test_a_turn_that_still_runs_is_exported_as_incomplete_and_never_runs_again(
    rich: Conversation,
):
    opened = rich.open_turn([user_message("Still running")]).turn
    ToolCall.objects.create(
        turn=opened, call_id="c", name="slow", state="executing", blocking=False
    )
    eve, data = a_user("eve"), bytes_of(rich)
    imported(eve, data)
    theirs = Turn.objects.filter(conversation__owner=eve)
    assert not theirs.not_finished().exists()
    calls = ToolCall.objects.filter(turn__in=theirs)
    assert not calls.in_background().exists()
    assert not calls.awaiting_delivery().exists()
    assert json.loads(data)["turns"][-1]["incomplete_reason"] == "exported_unfinished"


def test_secrets_of_the_site_are_not_exported(rich: Conversation):
    item = Item.objects.filter(turn__conversation=rich).last()
    assert item
    item.provider_data = {"raw": "PROOF-7"}
    item.save()
    data = bytes_of(rich)
    assert b"PROOF-7" not in data
    assert b"secret" not in data


def test_markdown_has_the_messages_in_order(rich: Conversation):
    loaded = load(Conversation.objects.filter(pk=rich.pk))
    assert loaded
    text = b"".join(write_markdown(loaded)).decode()
    assert text.startswith("# Zürich")
    assert text.index("## You") < text.index("weather_demo") < text.index("Rain.")
    assert "## Answer (fast)" in text
    assert "It is about" not in text


def test_no_cursor_stays_open_while_the_reader_takes_its_time(rich: Conversation):
    turn = rich.turns.create(status="completed")
    for number in range(60):
        payload = message("assistant", f"Part {number}")
        Item.of(turn, number, payload, origin=Item.Origin.OUTPUT).save()
    pieces = write_markdown(rich)
    begun = next(piece for piece in pieces if b"Part 0" in piece)
    turn.items.all().delete()
    rest = b"".join(pieces)
    assert b"Part 59" in rest
    assert begun


def test_markdown_tells_apart_who_wrote_what(rich: Conversation, ada: Any):
    result = result_message("call_1", "weather_demo", "Fog.\n\nMist.")
    told = turn(rich, user_message("Mine"), result)
    Turn.objects.filter(pk=told.pk).update(author_name="bob")
    turn(rich, *continuation_items())
    text = b"".join(write_markdown(rich)).decode()
    assert "## bob\n\nMine" in text
    assert "## Result of `weather_demo`\n\nFog.\n\nMist." in text
    assert "> Continued" in text
    assert "Go on exactly" not in text


# Downloads


def test_markdown_is_in_the_language_of_its_reader(web: Client, rich: Conversation):
    address = reverse("export-conversation", args=[rich.pk])
    headers = {"Accept-Language": "de"}
    response = web.get(f"{address}?format=markdown", headers=headers)
    with translation.override("en"):
        text = content(response).decode()
    assert "`weather_demo` aufgerufen" in text


def content(response: Any) -> bytes:
    return b"".join(response.streaming_content)


def test_one_conversation_is_downloaded_in_both_formats(
    web: Client, rich: Conversation
):
    address = reverse("export-conversation", args=[rich.pk])
    answer = web.get(address, {"format": "json"})
    assert content(answer) == bytes_of(rich)
    assert answer.headers["Content-Disposition"].startswith("attachment;")
    answer = web.get(address, {"format": "markdown"})
    assert b"## You" in content(answer)
    assert b"?format=json" in web.get(address).content


def test_all_conversations_are_one_archive_that_can_be_imported(
    web: Client, ada: Any, rich: Conversation
):
    Conversation.objects.create(owner=ada, title="Hush", is_temporary=True)
    gone = Conversation.objects.create(owner=ada, title="Gone")
    gone.delete_softly()
    Conversation.objects.create(owner=ada, title="Empty")
    Conversation.objects.create(owner=a_user("bob"), title="His")
    data = content(web.get(reverse("export-all")))
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        chats = [n for n in archive.namelist() if n.startswith("conversations/")]
        titles = {json.loads(archive.read(n))["title"] for n in chats}
    assert titles == {rich.title, "Empty"}
    eve = a_user("eve")
    report = imported(eve, data, "all.zip")
    assert (report.imported, report.skipped, report.error) == (2, 0, "")
    copy = Conversation.objects.get(owner=eve, title=rich.title)
    assert bytes_of(copy) == bytes_of(rich)


def test_a_time_that_zip_cannot_write_does_not_end_the_archive(
    web: Client, ada: Any, rich: Conversation
):
    at = datetime(2150, 1, 1, tzinfo=UTC)
    Conversation.objects.filter(pk=rich.pk).update(created_at=at)
    data = content(web.get(reverse("export-all")))
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        info = archive.getinfo(f"conversations/{rich.pk}.json")
    assert info.date_time[0] == 2107


def add_files(folder: Folder, name: str) -> None:
    words = f"By {name}"
    folder.files.create(name="../notes.json", text=words, size=6)
    folder.files.create(
        name="a.png",
        content_type="image/png",
        file=ContentFile(words, "a.png"),
        size=6,
    )


@pytest.mark.parametrize("way", ["page", "REST"])
def test_the_archive_has_what_the_account_has_besides(
    web: Client, ada: Any, rich: Conversation, way: str
):
    eve, chat = a_user("eve"), rich.turns.earliest("created_at")
    for user in (ada, eve):
        text = f"Lives with {user.username}"
        Memory.objects.remember(user.pk, text)
        SavedPrompt.objects.create(owner=user, name="polite", text=text)
        folder = Folder.objects.create(owner=user, name=f"Folder of {user.username}")
        UserSettings.objects.change(user.pk, custom_instructions=text)
        Rating.objects.create(user=user, turn=chat, value="good", comment=text)
        add_files(folder, user.username)
    AccessToken.issue(ada, "phone", scopes=["chat"])
    if way == "page":
        data = content(web.get(reverse("export-all")))
    else:
        data = content(program(ada).get(reverse("api:export-all")))
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        account = json.loads(archive.read("account.json"))
        [files] = [row["files"] for row in account["folders"] if row["files"]]
        contents = {row["name"]: archive.read(row["path"]) for row in files}
        paths = [name for name in archive.namelist() if "folder-files/" in name]
    assert contents == {"../notes.json": b"By ada", "a.png": b"By ada"}
    assert len(paths) == 2
    assert not any(".." in path for path in paths)
    copied = imported(a_user("zoe"), data, "all.zip")
    assert (copied.imported, copied.skipped) == (1, 0)
    assert account["format"] == "parley.account.v1"
    assert account["user"]["username"] == "ada"
    assert account["settings"]["custom_instructions"] == "Lives with ada"
    assert [row["text"] for row in account["memories"]] == ["Lives with ada"]
    assert [row["text"] for row in account["prompts"]] == ["Lives with ada"]
    assert [row["comment"] for row in account["ratings"]] == ["Lives with ada"]
    names = {row["name"] for row in account["folders"]}
    assert names == {"Folder of ada", "Reisen"}
    assert "eve" not in json.dumps(account)
    assert "phone" not in json.dumps(account)
    assert ada.password not in json.dumps(account)


def test_the_account_is_described_without_the_texts_of_its_files(ada: Any):
    add_files(Folder.objects.create(owner=ada, name="Reisen"), "ada")
    with CaptureQueriesContext(connection) as queries:
        write_account(ada)
    texts = [each["sql"] for each in queries if 'folderfile"."text"' in each["sql"]]
    assert texts == []


def test_a_file_that_is_not_stored_any_more_is_named(web: Client, ada: Any):
    folder = Folder.objects.create(owner=ada, name="Reisen")
    add_files(folder, "ada")
    lost = folder.files.get(name="a.png")
    lost.file.storage.delete(lost.file.name)
    data = content(web.get(reverse("export-all")))
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = archive.namelist()
        missing = archive.read("missing-files.txt").decode()
    assert path_of(lost) not in names
    assert missing == f"{path_of(lost)}\n"


def test_files_of_folders_are_no_conversations_in_an_archive_packed_again(
    web: Client, ada: Any, rich: Conversation
):
    add_files(Folder.objects.get(owner=ada), "ada")
    data, again = content(web.get(reverse("export-all"))), io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(data)) as archive,
        zipfile.ZipFile(again, "w") as packed,
    ):
        for name in archive.namelist():
            packed.writestr(f"parley-export/{name}", archive.read(name))
    report = imported(a_user("zoe"), again.getvalue(), "again.zip")
    assert (report.imported, report.skipped) == (1, 0)


def test_an_imported_conversation_can_be_read(rich: Conversation):
    eve = a_user("eve")
    imported(eve, bytes_of(rich))
    copy = Conversation.objects.get(owner=eve)
    answered = copy.turns.filter(status="completed").last()
    assert answered is not None
    address = f"{page_of(copy)}?at={answered.pk}"  # the newest branch has failed
    page = signed_in(eve).get(address).content.decode()
    assert "Sun." in page
    assert "18 °C" in page


def test_file_data_is_base64(rich: Conversation):
    [picture, _] = json.loads(bytes_of(rich))["attachments"]
    assert b64decode(picture["data"]) == PICTURE
    assert new_id("file") not in picture["id"]
