"""Archives and JSON files of which a part cannot be read."""

from __future__ import annotations

import errno
import io
import json
import tempfile
import zipfile
from typing import Any
from unittest.mock import MagicMock, Mock

import pytest
from django.core.files.base import ContentFile

from conversations.transfer import (
    archive,
    import_run,
    json_stream,
)
from conversations.transfer.imports import accept, run_import
from tests.conversations.page_scene import ada, model

from .import_scene import age, imported, sample, zipped

__all__ = ["ada", "model"]
pytestmark = pytest.mark.django_db


def test_a_damaged_file_of_an_archive_does_not_keep_the_others_out(ada: Any):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:  # stored, so bytes can be found
        for name in ("chatgpt_old", "claude", "claude_old"):
            archive.writestr(f"{name}.json", sample(name))
    data = stream.getvalue()
    flipped = data.replace(b"chat_messages", b"chat_massages", 1)
    assert flipped.index(b"chat_massages") < flipped.index(b"claude_old.json")
    row = imported(ada, flipped, "export.zip")
    assert (row.state, row.imported, row.skipped) == ("completed", 2, 1)
    assert row.reasons[0]["title"] == "claude.json"
    assert "damaged" in row.reasons[0]["reason"]


def test_side_files_of_macs_and_newer_exports_are_not_counted_as_skipped(ada: Any):
    other = b'[{"title": "No chat", "a": 1}, {"b": 2}]'
    data = zipped(
        conversations=sample("chatgpt_old"),
        sub__strange=other,
        text=b"plain words",
        export_manifest=b'{"files": []}',
        conversation_asset_file_names=b'{"a.dat": "a.pdf"}',
    )
    stream = io.BytesIO(data)
    with zipfile.ZipFile(stream, "a") as packed:
        packed.writestr("__MACOSX/._conversations.json", b"\0\5\x16\7")
        packed.writestr("sub/._strange.json", b"\0\5\x16\7")
    row = imported(ada, stream.getvalue(), "export.zip")
    assert (row.state, row.imported, row.skipped) == ("completed", 1, 0)
    reasons = {each["title"]: each["reason"] for each in row.reasons}
    assert reasons.pop("sub/strange.json") == "It has no conversations."
    assert "no JSON" in reasons.pop("text.json")
    assert not reasons


def test_strange_values_beside_conversations_are_counted_as_skipped(
    ada: Any, monkeypatch: pytest.MonkeyPatch
):
    """Also where the reading is interrupted before the first conversation."""
    chat = json.loads(sample("chatgpt_old"))[0]
    strange = [{"title": "Odd", "a": 1}, {"title": "T", "mapping": {}, "id": 7}]
    data = zipped(a=json.dumps([*strange[:1], chat, *strange]).encode())
    row = accept(ada, ContentFile(data, name="a.zip"))
    monkeypatch.setattr(import_run, "SAVE_INTERVAL", 0)
    with monkeypatch.context() as patched:
        crash = Mock(side_effect=KeyboardInterrupt)
        patched.setattr(import_run, "write_source", crash)
        with pytest.raises(KeyboardInterrupt):
            run_import(row.pk)
    age(row)
    assert run_import(row.pk)
    row.refresh_from_db()
    assert (row.state, row.imported, row.skipped) == ("completed", 1, 3)
    assert [each["title"] for each in row.reasons] == ["Odd", "Odd", "T"]


def test_a_small_archive_may_not_fill_the_disk(
    ada: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(archive, "UNPACKED_LEAST", 1_000_000)
    data = zipped(conversations=b" " * 3_000_000)
    row = imported(ada, data)
    assert row.state == "failed"
    assert "too large when it is unpacked; the limit is 1 MB" in row.error


def test_unpacking_leaves_room_for_others(ada: Any, monkeypatch: pytest.MonkeyPatch):
    usage = Mock(total=10**12, free=archive.RESERVE + len(sample("chatgpt")) - 1)
    monkeypatch.setattr(archive.shutil, "disk_usage", lambda folder: usage)
    row = imported(ada, zipped(conversations=sample("chatgpt")))
    assert row.state == "failed"
    assert "no room" in row.error
    usage.free += 1
    assert imported(ada, zipped(conversations=sample("chatgpt"))).imported == 2


def test_a_disk_that_is_full_is_told(ada: Any, monkeypatch: pytest.MonkeyPatch):
    full = Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    real = tempfile.TemporaryFile

    def open_full(*args: Any) -> Any:
        file = MagicMock(wraps=real(*args), write=full)
        file.__enter__ = lambda self: self
        file.__exit__ = lambda self, *_: self.close()
        return file

    monkeypatch.setattr(archive.tempfile, "TemporaryFile", open_full)
    row = imported(ada, zipped(conversations=sample("chatgpt")))
    assert row.state == "failed"
    assert "no room" in row.error


@pytest.mark.parametrize(
    "between",
    [b",", b",\n", b"\nnull\n", b'\ntrue,\n-1.5e3\n"a text, {"\n', b"\n\0\0", b""],
)
def test_what_may_stand_between_two_values_is_passed_over(between: bytes):
    assert read_all(b'{"a": 1}' + between + b'[{"b": 2}]' + between) == [
        (b'{"a": 1}', ""),
        (b'{"b": 2}', ""),
    ]


@pytest.mark.parametrize("fault", [b"# note", b"nonsense\nmore {of} it", b";", b"}"])
def test_lines_that_are_no_json_are_told_and_the_rest_is_read(fault: bytes):
    first, wrong, last = read_all(b'[{"a": 1}]\n' + fault + b'\n{"b": 2}')
    assert (first[0], last[0]) == (b'{"a": 1}', b'{"b": 2}')
    assert f"{len(fault) + 1} bytes" in wrong[1]
    assert [each[1] != "" for each in read_all(b'{"a": 1}\n' + fault)] == [False, True]


def read_all(data: bytes) -> list[tuple[bytes, str]]:
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        return [(each.data, each.problem) for each in json_stream.read_values(file)]


def test_a_bad_line_between_conversations_is_named_by_the_report(ada: Any):
    chats = json.loads(sample("claude_old")) + json.loads(sample("chatgpt_old"))
    row = imported(ada, "\n# note\n".join(json.dumps(each) for each in chats))
    assert (row.state, row.imported, row.skipped) == ("completed", 2, 1)
    assert "not JSON" in row.reasons[0]["reason"]


def test_a_conversation_with_too_many_values_is_named_and_not_parsed(
    ada: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(json_stream, "MAX_MEMBERS", 1000)
    row = imported(ada, json.dumps({"title": "T", "mapping": [{}] * 1000}))
    assert "more than 1,000 values" in row.reasons[0]["reason"]
