"""Imports of files: what is read, told, refused and repeated."""

from __future__ import annotations

import io
import json
import struct
import tempfile
import zipfile
import zlib
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from django.core.files.base import ContentFile
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone, translation

from conversations.access.account_deletion import close_account
from conversations.models import Conversation, ConversationImport, Item, Tag, Turn
from conversations.search.index import index_pending
from conversations.search.results import find_conversations
from conversations.transfer import (
    archive,
    import_run,
    imports,
    json_stream,
)
from conversations.transfer.imports import ImportRefused, accept, run_import
from tests.conversations.page_scene import (
    ada,
    conversation,
    model,
    page_of,
    read,
    submitted,
    web,
)
from tests.conversations.scene import a_model, a_user, signed_in

from .import_scene import SAMPLES, imported, sample, zipped

__all__ = ["ada", "conversation", "model", "submitted", "web"]
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scripted_host")]


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.json")), ids=lambda p: p.stem)
def test_each_sample_can_be_imported_read_and_found(path: Path, ada: Any):
    row = imported(ada, path.read_bytes())
    assert row.state == "completed"
    assert row.imported >= 1
    again = imported(ada, path.read_bytes())
    assert (again.imported, again.repeated) == (0, row.imported)
    web = signed_in(ada)
    for talk in Conversation.objects.of(ada):
        assert web.get(page_of(talk)).status_code == 200
        word = talk.title.split()[0]
        list(index_pending())
        found = find_conversations(ada, word).conversations
        assert talk.pk in [each.id for each in found]


def test_the_report_names_what_was_skipped_and_left_out(ada: Any):
    row = imported(ada, sample("chatgpt"))
    assert (row.imported, row.skipped, row.format) == (2, 1, "chatgpt")
    reasons = {each["title"]: each["reason"] for each in row.reasons}
    assert reasons["Nothing said"] == "It has no messages with text."
    assert "1 picture or file" in reasons["Rivers of Paris"]


def test_times_models_archive_and_titles_come_along(ada: Any):
    a_model("real-name", alias="gpt-4o")
    imported(ada, sample("chatgpt"))
    rivers = Conversation.objects.get(title="Rivers of Paris")
    assert rivers.created_at.isoformat() == "2025-01-07T00:23:20+00:00"
    assert rivers.pinned_at
    assert rivers.title_source == "person"
    assert Conversation.objects.get(title="Archived one").archived_at
    models = {
        turn.language_model and turn.language_model.name for turn in rivers.turns.all()
    }
    assert models == {"real-name", None}  # gpt-5 is not here
    assert rivers.imported_names == {"turns": {"3": "gpt-5"}}
    assert not Turn.objects.not_finished().exists()


def test_tags_come_along_once(ada: Any):
    Tag.objects.create(owner=ada, name="maths")
    imported(ada, sample("open_webui"))
    assert sorted(Tag.objects.values_list("name", flat=True)) == ["School", "maths"]


def test_a_tag_with_a_comma_is_imported_without_it(ada: Any):
    value = json.loads(sample("open_webui"))[0]
    value["meta"]["tags"] = ["red,green", ","]
    imported(ada, json.dumps(value))
    assert [tag.name for tag in Tag.objects.all()] == ["red green"]


def test_an_imported_conversation_goes_on_from_its_last_branch(ada: Any):
    imported(ada, sample("open_webui"))
    row = Conversation.objects.get()
    from llm.wire.items import text_of, user_message

    opened = row.open_turn([user_message("And 16 * 17?")]).turn
    assert opened.parent
    answer = opened.parent.items.get(origin=Item.Origin.OUTPUT)
    assert text_of(answer.payload) == "255"


def test_an_archive_with_other_files_around_it(ada: Any):
    data = zipped(
        conversations=sample("chatgpt_old"),
        user=b"{}",
        message_feedback=b"[]",
        sub__more=sample("claude_old"),
        empty=b"",
    )
    row = imported(ada, data, "export.zip")
    assert (row.imported, row.skipped) == (2, 1)
    assert row.reasons == [{"title": "empty.json", "reason": "The file is empty."}]


# Bad files

CUT = sample("chatgpt")[:-900]


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"hello", "No conversations were found"),
        (b"   ", "No conversations were found"),
        (b"\x89PNG\r\n\x1a\n", "No conversations were found"),
        (b"[]", "No conversations were found"),
        (b"[1, 2, null, [{}]]", "No conversations were found"),
        (b"[" * 5000, "cut off"),
        (b'[{"a": "b', "middle of a text"),
        (b"PK\x03\x04 no archive", "archive is damaged"),
        ("\ufeff [{}]".encode("utf-16-le"), "save it in UTF-8"),
        ("\ufeff\n{}".encode("utf-16-be"), "save it in UTF-8"),
    ],
)
def test_a_wrong_file_makes_one_clear_error(ada: Any, data: bytes, error: str):
    row = imported(ada, data)
    assert row.state == "failed"
    assert error in row.error
    assert not Conversation.objects.exists()


def test_what_stands_before_a_fault_is_imported_and_told(ada: Any):
    whole = json.dumps(json.loads(sample("claude_old"))[0]).encode()
    row = imported(ada, b"[" + whole + b', {"title": "half", "mapping": {')
    assert (row.state, row.imported) == ("failed", 1)
    assert "cut off" in row.error


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ('{"title": "T", "mapping": [' + "[" * 2000 + "]" * 2000 + "]}", "levels deep"),
        ('{"title": "T", "mapping": {"a": }}', "no valid JSON"),
        ('{"title": "T", "mapping": {}, "id": 7}', "no id"),
        ('{"title": "T", "something": {}}', "in no format"),
        ('{"title": "T", "format": "parley.conversation.v9"}', "we read"),
        ('{"title": "T", "format": "parley.conversation.v1", "id": null}', "no id"),
    ],
)
def test_one_bad_conversation_does_not_keep_the_others_out(
    ada: Any, entry: str, reason: str
):
    good = json.dumps(json.loads(sample("claude_old"))[0])
    row = imported(ada, f"[{entry}, {good}]")
    assert (row.state, row.imported, row.skipped) == ("completed", 1, 1)
    assert reason in row.reasons[0]["reason"]


@pytest.mark.parametrize("data", ['{"no": "chat"}', '[{"a": 1}, [2], 3]'])
def test_a_file_of_something_else_fails_with_the_reason(ada: Any, data: str):
    for row in (imported(ada, data), imported(ada, zipped(a=data.encode()), "a.zip")):
        assert (row.state, row.imported) == ("failed", 0)
        assert "No conversations were found" in row.error
        assert row.reasons


def test_nul_halves_of_characters_and_long_titles_are_made_harmless(ada: Any):
    value = json.loads(sample("claude_old"))[0]
    value["name"] = "x\0\ud800" * 5000
    value["chat_messages"][0]["text"] = "a\0b\ud800c"
    imported(ada, json.dumps([value]))
    row = Conversation.objects.get()
    assert len(row.title) <= 200
    assert "\0" not in row.title
    text = Item.objects.filter(turn__conversation=row).first()
    assert text
    assert text.payload["content"][0]["text"] == "a\ufffdb\ufffdc"


def test_an_archive_that_unpacks_to_too_much_is_refused(ada: Any, settings: Any):
    settings.IMPORT_MAX_SIZE = 10_000
    data = zipped(conversations=b" " * 3_000_000)
    assert len(data) < 10_000
    row = imported(ada, data)
    assert row.state == "failed"
    assert "too large when it is unpacked" in row.error


@pytest.mark.parametrize("escape", [b"", b"\\\\", b'\\"'])
@pytest.mark.parametrize("shift", [0, 1])
def test_a_long_string_is_searched_in_pieces(
    shift: int, escape: bytes, monkeypatch: pytest.MonkeyPatch
):
    """One search of it all would stop the other threads of the process."""
    monkeypatch.setattr(json_stream, "PIECE", 8)
    long = b"x" * shift + (escape or b"[}") * 40
    reports: list[int] = []
    with tempfile.TemporaryFile() as file:
        file.write(b'[ {"a": "' + long + b'"}, {"b": []} ]')
        file.flush()
        found = list(json_stream.read_values(file, lambda: reports.append(1)))
    assert [each.data for each in found] == [b'{"a": "' + long + b'"}', b'{"b": []}']
    assert len(reports) > len(long) / 8


def test_objects_and_arrays_one_after_the_other_are_all_read(ada: Any):
    first = json.loads(sample("claude"))[0]
    lines = [json.dumps({**first, "uuid": id}) for id in ("one", "two")]
    row = imported(ada, "\n".join([*lines, sample("claude_old").decode()]))
    assert (row.state, row.imported, row.skipped) == ("completed", 3, 0)


@pytest.mark.parametrize("kind", ["unpacking", "no object", "one object"])
def test_a_long_way_without_a_conversation_counts_as_progress(
    ada: Any, monkeypatch: pytest.MonkeyPatch, kind: str
):
    """Otherwise another process would take the import over."""
    monkeypatch.setattr(import_run, "SAVE_INTERVAL", 0.0)
    data = {
        "unpacking": zipped(conversations=b" " * 5 * archive.PIECE + b"[]"),
        "no object": b"[" + b"[]," * 500_000 + b"[]]",
        "one object": b'{"a": [' + b"[]," * 500_000 + b"[]]}",
    }[kind]
    saved: list[str] = []

    def count(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if '"seen_at"' in sql and sql.startswith("UPDATE"):
            saved.append(sql)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(count):
        imported(ada, data)
    assert len(saved) > 5


def test_nothing_more_is_unpacked_after_too_many_conversations(
    ada: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(import_run, "MAX_CONVERSATIONS", 1)
    mine = sample("chatgpt_old")
    broken = b"[{}, not JSON"
    row = imported(ada, zipped(a=mine, b=broken, c=broken))
    assert row.state == "failed"
    assert "more than 1 conversations" in row.error
    assert (row.imported, row.skipped) == (1, 0)
    assert row.reasons == []


def test_an_archive_that_was_cut_off_is_called_damaged(ada: Any):
    whole = zipped(conversations=sample("chatgpt"))
    row = imported(ada, whole[: len(whole) // 2], "export.zip")
    assert row.state == "failed"
    assert "The archive is damaged" in row.error


def test_an_archive_without_its_beginning_is_called_damaged(ada: Any):
    whole = zipped(conversations=sample("chatgpt"), z=b"[]")
    row = imported(ada, whole[30:], "export.zip")
    assert row.state == "failed"
    assert "The archive is damaged" in row.error


def test_an_archive_with_a_name_that_is_no_text_is_called_damaged(ada: Any):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("ää.json", "[]")
    data = packed.getvalue().replace("ää".encode(), b"\xff\xff\xff\xff")
    row = imported(ada, data, "export.zip")
    assert "The archive is damaged" in row.error


def test_an_archive_with_damaged_contents_ends_its_import_alone(ada: Any):
    whole = zipped(conversations=sample("chatgpt"))
    at = whole.index(b"PK\1\2") // 2
    damaged = whole[:at] + bytes(byte ^ 0xFF for byte in whole[at : at + 40])
    row = imported(ada, damaged + whole[at + 40 :], "export.zip")
    assert row.state == "failed"
    assert "The archive is damaged" in row.error


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_an_archive_is_not_unpacked_by_methods_without_a_limit(ada: Any, method: int):
    """A few bytes of such an archive unpack into the memory as a whole."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        archive.writestr("conversations.json", b"[" + b" " * 3_000_000 + b"{}]")
    assert len(stream.getvalue()) < 3000
    row = imported(ada, stream.getvalue())
    assert row.state == "failed"
    assert "pack it again as an ordinary ZIP" in row.error


def test_an_archive_s_list_of_files_is_not_read_if_it_would_fill_the_memory(ada: Any):
    entry = struct.pack("<4s42x", b"PK\1\2")
    size = archive.MAX_DIRECTORY + len(entry)
    end = struct.pack("<4s8xLLH", b"PK\5\6", size, 0, 0)
    row = imported(ada, entry * (size // len(entry) + 1) + end)
    assert row.state == "failed"
    assert f"more than {archive.MAX_ENTRIES:,} files" in row.error


def citing(note: dict[str, Any]) -> dict[str, Any]:
    notes = [{"type": "url_citation", "start_index": 0, "end_index": 1, **note}]
    part = {"type": "output_text", "text": "Said", "annotations": notes}
    return {"type": "message", "role": "assistant", "content": [part]}


def test_a_hostile_file_of_our_own_format_can_be_shown_and_runs_nothing(ada: Any):
    call = {"type": "function_call", "id": "i", "call_id": "c", "name": "n"}
    items: list[Any] = [
        {"type": "message", "role": "assistant", "content": [{"type": "output_text"}]},
        {"type": "message", "role": "user", "content": "text"},
        {"type": "message", "role": "root", "content": []},
        {**call, "arguments": {"a": 1}},
        {**call, "arguments": "{"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": 7}]},
        {"type": "reasoning", "id": "r", "summary": "no list"},
        {"type": "web_search_call", "id": "w", "action": [[7]], "results": "x"},
        {"type": "mcp_call", "id": "m", "output": {"a": []}, "error": 7},
        {"type": "image_generation_call", "id": "g", "result": 7},
        {"type": "code_interpreter_call", "id": "k", "outputs": 7, "code": []},
        {"type": "compaction", "id": "z", "parley:through": {}},
        {"type": ["a"]},
        None,
        {
            "type": "message",
            "role": "assistant",
            "content": [
                {"type": "output_text", "text": "<script>x", "annotations": [7]}
            ],
        },
        {"type": "message", "role": "user", "content": [], "parley:call_id": {}},
        *(
            {"type": "message", "role": "user", "content": [part]}
            for part in (
                {"type": "input_image", "file_id": "../../shares/"},
                {"type": "input_file", "file_data": "QUJD"},
                {"type": "input_image", "image_url": "data:text/html;base64,QUJD"},
            )
        ),
        *(citing(note) for note in ({"url": 7}, {"url": "https://a", "title": [7]})),
    ]
    turns = [
        {
            "items": [{"origin": "output", "payload": each}],
            "status": "queued",
            "parent": number,
            "usage": {"input_tokens": "x"},
            "notes": [{"kind": []}, {"kind": "context.failed"}, {"text": "x"}],
            "error": {"code": [], "message": {}},
            "options": {"temperature": "hot", "gateway": {"chats": True}},
            "tool_calls": [{"call_id": "c", "name": 5, "state": "executing"}],
        }
        for number, each in enumerate(items)
    ]
    value = {"format": "parley.conversation.v1", "id": "h", "turns": turns}
    files = [{"id": "file_1", "name": "../x", "data": "!!"}]
    row = imported(ada, json.dumps({**value, "attachments": files, "tags": [[]]}))
    assert row.imported == 1, row.reasons
    found = Conversation.objects.get()
    assert not Turn.objects.not_finished().exists()
    assert Turn.objects.filter(options={}).count() == len(items)
    page = signed_in(ada).get(page_of(found))
    assert page.status_code == 200
    assert b"<script>x" not in page.content
    assert b"attachments/../" not in page.content


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_file", "file_id": "file-6F2ksMainStreet"},
        {"type": "input_file", "file_data": "data:text/csv;charset=utf-8;base64,YQ=="},
        {"type": "input_image", "image_url": "data:image/png;base64,QUJD\r\nQUJD"},
    ],
)
def test_files_as_programs_send_them_are_imported(ada: Any, part: dict[str, Any]):
    message = {"type": "message", "role": "user", "content": [part]}
    turns = [{"items": [{"origin": "input", "payload": message}]}]
    value = {"format": "parley.conversation.v1", "id": "h", "turns": turns}
    imported(ada, json.dumps(value))
    assert Item.objects.get().payload["content"] == [part]


def test_a_file_that_cannot_be_read_leaves_its_message(ada: Any):
    parts = [
        {"type": "input_text", "text": "Read it"},
        {"type": "input_file", "file_data": "QUJD"},
    ]
    message = {"type": "message", "role": "user", "content": parts}
    turns = [{"items": [{"origin": "input", "payload": message}]}]
    value = {"format": "parley.conversation.v1", "id": "h", "turns": turns}
    row = imported(ada, json.dumps(value))
    text, note = Item.objects.get().payload["content"]
    assert text == parts[0]
    assert note["type"] == "input_text"
    assert "1 file that cannot be read" in row.reasons[0]["reason"]


def test_a_note_of_an_earlier_import_that_has_no_words_does_not_hide_its_chat(
    ada: Any,
):
    turns = [{"items": [{"origin": "output", "payload": citing({})}]}]
    value = {"format": "parley.conversation.v1", "id": "h", "turns": turns}
    imported(ada, json.dumps(value))
    Turn.objects.update(notes=[{"kind": "context.failed"}])
    assert signed_in(ada).get(page_of(Conversation.objects.get())).status_code == 200


def test_a_file_brings_no_tools_that_its_reader_cannot_see(ada: Any):
    evil = {"type": "mcp", "server_label": "x", "server_url": "https://evil.example"}
    options = {
        "temperature": 0.5,
        "tools": [{**evil, "require_approval": "never"}],
        "tool_choice": "required",
        "cache_seconds": 60,
    }
    turn = {"options": options, "items": []}
    value = {"format": "parley.conversation.v1", "id": "h", "turns": [turn]}
    row = imported(ada, json.dumps({**value, "options": options}))
    assert Conversation.objects.get().options == {"temperature": 0.5}
    assert Turn.objects.get().options == {"temperature": 0.5}
    assert "6 options that cannot be set" in row.reasons[0]["reason"]


# Running


def test_an_interrupted_import_is_taken_up_once_and_repeats_nothing(
    ada: Any, monkeypatch: pytest.MonkeyPatch
):
    row = accept(ada, ContentFile(sample("chatgpt"), name="a.json"))
    real = import_run.write_source

    def crash(*args: Any) -> None:
        real(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(import_run, "write_source", crash)
    with pytest.raises(KeyboardInterrupt):
        run_import(row.pk)
    monkeypatch.undo()
    assert not imports.resume_imports()  # it may still run elsewhere
    long_ago = timezone.now() - timedelta(minutes=5)
    ConversationImport.objects.update(seen_at=long_ago)
    assert imports.resume_imports() == 1
    row.refresh_from_db()
    assert (row.state, row.imported, row.repeated) == ("completed", 2, 0)
    assert Conversation.objects.count() == 2
    assert not run_import(row.pk)


def test_an_import_that_fails_does_not_keep_others_from_being_resumed(
    ada: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any
):
    bad, good = (
        accept(ada, ContentFile(sample(name), name=name))
        for name in ("chatgpt", "claude")
    )
    long_ago = timezone.now() - timedelta(minutes=5)
    ConversationImport.objects.update(created_at=long_ago)
    real = imports.run_import

    def fail(pk: int) -> bool:
        if pk == bad.pk:
            raise LookupError("quotes the conversation")
        return real(pk)

    monkeypatch.setattr(imports, "run_import", fail)
    assert imports.resume_imports() == 1
    good.refresh_from_db()
    assert good.state == "completed"
    assert "LookupError" in caplog.text
    assert "quotes" not in caplog.text


def test_a_job_starts_one_thread_for_imports_that_have_stopped(
    ada: Any, monkeypatch: pytest.MonkeyPatch
):
    threads: list[Any] = []

    class Noted:
        def __init__(self, target: Any, **_: Any) -> None:
            self.start = lambda: threads.append(target)

    monkeypatch.setattr(imports, "Thread", Noted)
    monkeypatch.setattr(imports, "connections", Mock())
    assert not imports.start_resuming()  # nothing has stopped
    row = accept(ada, ContentFile(sample("claude"), name="a.json"))
    long_ago = timezone.now() - timedelta(minutes=5)
    ConversationImport.objects.update(created_at=long_ago)
    assert imports.start_resuming()
    assert not imports.start_resuming()  # the first is still at it
    threads.pop()()
    row.refresh_from_db()
    assert row.state == "completed"
    ConversationImport.objects.update(state="running", seen_at=long_ago)
    monkeypatch.setattr(imports, "Thread", Mock(side_effect=RuntimeError))
    with pytest.raises(RuntimeError):
        imports.start_resuming()
    monkeypatch.setattr(imports, "Thread", Noted)
    assert imports.start_resuming()
    threads.pop()()


def test_an_interrupted_import_knows_what_an_earlier_reading_recognised(
    ada: Any, monkeypatch: pytest.MonkeyPatch
):
    values = [{"title": "T", "mapping": {}, "id": 7}, {"title": "U"}]
    row = accept(ada, ContentFile(json.dumps(values).encode(), name="a.json"))
    real = import_run.label_of

    def crash_on_second(value: Any) -> str:
        if value["title"] == "U":
            raise KeyboardInterrupt
        return real(value)

    monkeypatch.setattr(import_run, "SAVE_INTERVAL", 0)
    monkeypatch.setattr(import_run, "label_of", crash_on_second)
    with pytest.raises(KeyboardInterrupt):
        run_import(row.pk)
    monkeypatch.undo()
    long_ago = timezone.now() - timedelta(minutes=5)
    ConversationImport.objects.update(seen_at=long_ago)
    assert run_import(row.pk)
    row.refresh_from_db()
    assert (row.state, row.skipped) == ("completed", 2), row.error


@pytest.mark.parametrize("is_written", [True, False])
def test_an_import_that_is_killed_at_each_conversation_counts_each_once(
    ada: Any, monkeypatch: pytest.MonkeyPatch, is_written: bool
):
    chats = json.loads(sample("claude_old"))
    many = [{**chats[0], "uuid": f"talk-{number}"} for number in range(5)]
    archive = zipped(
        a=b"[]", b=json.dumps(many[:2]).encode(), c=sample("chatgpt"), d=b"no JSON"
    )
    later = zipped(e=json.dumps(many[1:]).encode())
    row = accept(ada, ContentFile(archive, name="a.zip"))
    real = import_run.write_source

    def crash(*args: Any) -> None:
        if is_written:
            real(*args)
        raise KeyboardInterrupt

    def crash_on_second(*args: Any) -> None:
        monkeypatch.setattr(import_run, "write_source", crash)
        real(*args)

    is_over = False
    while not is_over:
        monkeypatch.setattr(import_run, "write_source", crash_on_second)
        try:
            is_over = run_import(row.pk)
        except KeyboardInterrupt:
            long_ago = timezone.now() - timedelta(minutes=5)
            ConversationImport.objects.update(seen_at=long_ago)
    row.refresh_from_db()
    assert (row.state, row.imported, row.repeated) == ("completed", 4, 0)
    titles = ["a.json", "Nothing said", "Rivers of Paris", "d.json"]
    assert sorted(each["title"] for each in row.reasons) == sorted(titles)
    assert row.skipped == 1
    monkeypatch.undo()
    again = imported(ada, later, "b.zip")
    assert (again.imported, again.repeated) == (3, 1)


def test_an_import_whose_user_is_deleted_meanwhile_ends(
    ada: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any
):
    row = accept(ada, ContentFile(sample("chatgpt"), name="a.json"))
    real = import_run.write_source

    def write_after_deletion(*args: Any) -> None:
        real(*args)
        ConversationImport.objects.all().delete()

    monkeypatch.setattr(import_run, "write_source", write_after_deletion)
    assert run_import(row.pk)
    assert not ConversationImport.objects.exists()
    assert "failed" not in caplog.text


def test_an_import_writes_nothing_more_once_its_account_is_closed(
    ada: Any, monkeypatch: pytest.MonkeyPatch
):
    row = accept(ada, ContentFile(sample("chatgpt"), name="a.json"))
    real = import_run.write_source

    def write_and_close(*args: Any) -> None:
        real(*args)
        close_account(ada)

    monkeypatch.setattr(import_run, "write_source", write_and_close)
    assert run_import(row.pk)
    row.refresh_from_db()
    assert (row.state, row.imported, row.file.name) == ("failed", 1, "")
    assert "account was deleted" in row.error
    assert not Conversation.objects.of(ada).exists()
    assert Conversation.objects.count() == 1


def test_the_report_speaks_the_language_of_the_upload(ada: Any):
    with translation.override("de"):
        row = accept(ada, ContentFile(zipped(conversations=b""), name="a.zip"))
    run_import(row.pk)
    row.refresh_from_db()
    assert row.reasons[0]["reason"] == german("The file is empty.")


def german(text: str) -> str:
    with translation.override("de"):
        return translation.gettext(text)


@pytest.mark.parametrize("fault", [RuntimeError, zlib.error])
def test_an_internal_error_skips_its_conversation_and_is_told_without_details(
    ada: Any, fault: type[Exception], monkeypatch: pytest.MonkeyPatch, caplog: Any
):
    real = import_run.write_source

    def fail_once(names: Any, source: Any, *args: Any) -> None:
        if source.title == "Rivers of Paris":
            raise fault("quotes the conversation")
        real(names, source, *args)

    monkeypatch.setattr(import_run, "write_source", fail_once)
    row = imported(ada, sample("chatgpt"))
    assert (row.state, row.imported, row.skipped) == ("completed", 1, 2)
    assert row.reasons[0]["title"] == "Rivers of Paris"
    assert "Internal error" in row.reasons[0]["reason"]
    assert "quotes" not in json.dumps(row.reasons) + caplog.text
    assert fault.__name__ in caplog.text


def test_an_import_that_can_read_nothing_fails_without_details(
    ada: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any
):
    def fail(*_: Any) -> None:
        raise RuntimeError("quotes the conversation")

    monkeypatch.setattr(import_run, "read_values", fail)
    row = imported(ada, sample("chatgpt"))
    assert row.state == "failed"
    assert "Internal error" in row.error
    assert "quotes" not in row.error + caplog.text


def test_the_uploaded_file_is_not_kept(ada: Any):
    row = imported(ada, sample("chatgpt"))
    assert not row.file


def test_a_user_has_few_imports_at_once(ada: Any):
    for _ in range(imports.MAX_UNFINISHED):
        accept(ada, ContentFile(b"[]", name="a.json"))
    with pytest.raises(ImportRefused, match="still running"):
        accept(ada, ContentFile(b"[]", name="a.json"))


# Pages


def test_the_page_shows_progress_and_result_without_javascript(
    web: Client, ada: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(imports, "start", lambda row: None)
    upload = SimpleUploadedFile("chat.json", sample("chatgpt"))
    answer = web.post(reverse("imports"), {"file": upload})
    row = ConversationImport.objects.get()
    assert answer.headers["Location"] == reverse("import", args=[row.pk])
    page = web.get(answer.headers["Location"])
    assert "Running" in read(page)
    assert page.headers["Refresh"] == "2"
    run_import(row.pk)
    page = web.get(answer.headers["Location"])
    assert "Completed." in read(page)
    assert "Nothing said" in read(page)
    assert "Refresh" not in page.headers
    eve = signed_in(a_user("eve"))
    assert eve.get(reverse("import", args=[row.pk])).status_code == 404


def test_no_file_is_explained_on_the_page(web: Client):
    answer = web.post(reverse("imports"), {})
    assert answer.status_code == 400
    assert "Choose a file first" in read(answer)


def test_a_file_that_was_imported_again_does_not_keep_the_first_from_coming_back(
    ada: Any, web: Client
):
    imported(ada, sample("claude"))
    first = Conversation.objects.of(ada).first()
    first.delete_softly()
    imported(ada, sample("claude"))
    address = reverse("restore-conversation", args=[first.pk])
    assert web.post(address).status_code == 302
    assert Conversation.objects.of(ada).filter(pk=first.pk).exists()


def test_a_conversation_that_another_import_writes_meanwhile_is_a_repetition(
    ada: Any, monkeypatch: pytest.MonkeyPatch
):
    imported(ada, sample("claude"))
    count = Conversation.objects.of(ada).count()
    answers = iter([False])  # not yet
    monkeypatch.setattr(import_run, "is_present", lambda *key: next(answers, True))
    row = imported(ada, sample("claude"))
    assert (row.state, row.repeated) == ("completed", count)
    assert Conversation.objects.of(ada).count() == count


@pytest.mark.slow
def test_many_messages_with_unknown_parents_are_read_without_a_stall(ada: Any):
    said = {"sender": "human", "text": "Hi", "parent_message_uuid": "elsewhere"}
    data = json.dumps({"uuid": "long", "chat_messages": [said] * 51_000})
    row = imported(ada, data)
    assert "more than 50,000 messages" in row.reasons[0]["reason"]
