from __future__ import annotations

import copy
from typing import Any

import pytest
from django.core.files.storage import default_storage
from django.core.files.uploadedfile import SimpleUploadedFile

from conversations.models import Attachment, Conversation
from conversations.turns.attachments import (
    UnknownFile,
    UploadRefused,
    attachment_ids,
    attachments_of,
    inline_files,
    is_used,
    parts_for,
    resolve_file_parts,
    save_attachments,
    validate_files,
)
from conversations.turns.file_contents import FileContent, load_contents
from conversations.turns.history import estimate_tokens
from llm.wire.items import function_call_output, message, user_message
from tests.conversations import files
from tests.conversations.scene import a_user

KINDS = {
    "file_png": FileContent("photo.png", "image/png", b"\x89PNG"),
    "file_pdf": FileContent("report.pdf", "application/pdf", b"%PDF-"),
    "file_txt": FileContent('a "b".txt', "text/plain", "Grüße\n".encode("utf-16")),
}


def user_content(*parts: dict[str, Any]) -> dict[str, Any]:
    return {**message("user", ""), "content": list(parts)}


@pytest.fixture
def conversation(db: None, tmp_path: Any, settings: Any) -> Conversation:
    settings.MEDIA_ROOT = tmp_path
    return Conversation.objects.create(owner=a_user("ada"))


def upload(name: str = "notes.txt", data: bytes = files.TEXT) -> SimpleUploadedFile:
    return SimpleUploadedFile(name, data, content_type="image/png")  # a lie, mostly


def keep(conversation: Conversation, *uploads: SimpleUploadedFile) -> list[Attachment]:
    return save_attachments(
        conversation, validate_files(conversation.owner_id, uploads)
    )


def stored() -> list[str]:
    """Every stored file."""
    pending, found = ["attachments"], []
    while pending:
        folder = pending.pop()
        if not default_storage.exists(folder):
            continue
        folders, names = default_storage.listdir(folder)
        pending += [f"{folder}/{name}" for name in folders]
        found += names
    return found


# Into a prompt


@pytest.mark.parametrize(
    ("part", "sent"),
    [
        (
            {"type": "input_image", "file_id": "file_png", "detail": "low"},
            {
                "type": "input_image",
                "image_url": "data:image/png;base64,iVBORw==",
                "detail": "low",
            },
        ),
        (
            {"type": "input_file", "file_id": "file_png"},
            {
                "type": "input_image",
                "image_url": "data:image/png;base64,iVBORw==",
                "detail": "auto",
            },
        ),
        (
            {"type": "input_file", "file_id": "file_pdf"},
            {
                "type": "input_file",
                "filename": "report.pdf",
                "file_data": "data:application/pdf;base64,JVBERi0=",
            },
        ),
        (
            {"type": "input_file", "file_id": "file_txt"},
            {
                "type": "input_text",
                "text": "<file name=\"a 'b'.txt\">\nGrüße\n\n</file>",
            },
        ),
        (
            {"type": "input_image", "file_id": "file_gone"},
            {
                "type": "input_text",
                "text": "[A file stood here that is no longer kept.]",
            },
        ),
    ],
)
def test_a_file_takes_the_place_of_its_id(part: dict[str, Any], sent: dict[str, Any]):
    words = {"type": "input_text", "text": "What is this?"}
    [item] = inline_files([user_content(part, words)], KINDS)
    assert item["content"] == [sent, words]
    [output] = inline_files([function_call_output("call_1", [part])], KINDS)
    assert output["output"] == [sent]


def test_items_without_our_files_stay_the_same_object():
    theirs = {"type": "input_file", "file_id": "file-of-the-provider"}
    items = [
        user_message("Hi"),
        user_content(theirs),
        function_call_output("call_1", "x"),
    ]
    assert all(a is b for a, b in zip(inline_files(items, KINDS), items, strict=True))


def test_stored_items_are_not_modified():
    items = [user_content({"type": "input_image", "file_id": "file_png"})]
    before = copy.deepcopy(items)
    inline_files(items, KINDS)
    assert items == before


def test_file_ids_are_returned_once_in_order():
    parts = [{"type": "input_file", "file_id": f"file_{n}"} for n in "bab"]
    assert attachment_ids([user_message("Hi"), user_content(*parts)]) == [
        "file_b",
        "file_a",
    ]


def test_a_large_file_is_not_taken_for_a_long_text():
    big = FileContent("big.pdf", "application/pdf", b"%PDF-" + b"x" * 3_000_000)
    part = {"type": "input_file", "file_id": "file_big"}
    assert (
        estimate_tokens("", inline_files([user_content(part)], {"file_big": big}))
        < 2000
    )


# Keeping


def read(conversation: Conversation, *ids: str) -> dict[str, FileContent]:
    return load_contents(attachments_of(conversation.pk, ids))


def test_a_file_is_stored_under_its_id_and_read_again(conversation: Conversation):
    photo, notes = keep(conversation, upload("p.png", files.PNG), upload())
    assert (photo.name, photo.content_type) == ("p.png", "image/png")
    assert (notes.content_type, notes.size) == ("text/plain", len(files.TEXT))
    assert {name.partition(".")[0] for name in stored()} == {photo.pk, notes.pk}
    found = read(conversation, photo.pk, notes.pk, "file_none")
    assert found[photo.pk] == FileContent("p.png", "image/png", files.PNG)
    assert found[notes.pk].data == files.TEXT
    assert [part["type"] for part in parts_for([photo, notes])] == [
        "input_image",
        "input_file",
    ]


def test_files_of_another_conversation_are_not_read(conversation: Conversation):
    [row] = keep(conversation, upload())
    other = Conversation.objects.create(owner=conversation.owner)
    assert read(other, row.pk) == {}


def test_a_file_whose_bytes_are_missing_is_omitted(conversation: Conversation):
    [row] = keep(conversation, upload())
    row.file.storage.delete(row.file.name)
    assert read(conversation, row.pk) == {}


def test_none_is_no_query(conversation: Conversation, django_assert_num_queries: Any):
    with django_assert_num_queries(0):
        assert read(conversation) == {}


@pytest.mark.parametrize(
    ("uploads", "code", "words"),
    [
        (
            [("a.zip", files.ZIP)],
            "unsupported_file",
            "“a.zip” has a type that models",
        ),
        ([("a.txt", b"")], "empty_file", "“a.txt” is empty."),
        (
            [("a.pdf", files.PDF * 99)],
            "file_too_large",
            "has 2.3 kB; the limit for a file",
        ),
        ([("a.txt", b"x" * 600)], "file_too_large", "for a text file is 500"),
        ([("a.txt", b"x")] * 4, "too_many_files", "may have 3 files, not 4"),
        ([("a.pdf", files.PDF * 30)] * 3, "quota_exceeded", "your quota of 2 kB"),
    ],
)
def test_an_invalid_upload_is_reported_and_nothing_is_stored(
    conversation: Conversation,
    settings: Any,
    uploads: list[tuple[str, bytes]],
    code: str,
    words: str,
):
    settings.MAX_UPLOAD_SIZE, settings.MAX_UPLOAD_COUNT = 1000, 3
    settings.MAX_INPUT_SIZE, settings.UPLOAD_QUOTA = 500, 2000
    good = [upload()] if len(uploads) == 1 else []
    with pytest.raises(UploadRefused, match=words) as refused:
        keep(conversation, *good, *(upload(*one) for one in uploads))
    assert refused.value.code == code
    assert not Attachment.objects.exists()
    assert not stored()


def test_deleted_conversations_count_until_they_are_erased(
    conversation: Conversation, settings: Any, django_capture_on_commit_callbacks: Any
):
    settings.UPLOAD_QUOTA = len(files.TEXT)
    keep(conversation, upload())
    conversation.delete_softly()
    other = Conversation.objects.create(owner=conversation.owner)
    with pytest.raises(UploadRefused, match="until they are erased"):
        keep(other, upload())
    with django_capture_on_commit_callbacks(execute=True):
        conversation.delete()
    assert not stored()
    keep(other, upload())


def test_an_upload_that_fails_half_way_leaves_nothing(conversation: Conversation):
    good = validate_files(conversation.owner_id, [upload(), upload()])
    good[1].file.close()
    with pytest.raises(ValueError, match="closed file"):
        save_attachments(conversation, good)
    assert not Attachment.objects.exists()
    assert not stored()


# Naming


def test_a_message_may_name_files_of_its_own_conversation_only(
    conversation: Conversation,
):
    [row] = keep(conversation, upload("report.pdf", files.PDF))
    part = {"type": "input_file", "file_id": row.pk}
    [item] = resolve_file_parts(conversation, [user_content(part)])
    assert item["content"] == [{**part, "filename": "report.pdf"}]
    other = Conversation.objects.create(owner=conversation.owner)
    unknown = {"type": "input_file", "file_id": "file_none"}
    errors = []
    for target, named in ((other, part), (conversation, unknown)):
        with pytest.raises(UnknownFile) as refused:
            resolve_file_parts(target, [user_message("Hi"), user_content(named)])
        errors.append((str(refused.value), refused.value.param))
    assert (
        errors
        == [
            (
                "there is no such file in this conversation.",
                "input[1].content[0].file_id",
            )
        ]
        * 2
    )


def test_a_file_that_is_no_picture_cannot_be_sent_as_one(conversation: Conversation):
    [row] = keep(conversation, upload())
    with pytest.raises(UnknownFile, match="not a picture"):
        resolve_file_parts(
            conversation, [user_content({"type": "input_image", "file_id": row.pk})]
        )


def test_a_message_has_no_more_files_than_may_be_sent(
    conversation: Conversation, settings: Any
):
    rows = [*keep(conversation, upload()), *keep(conversation, upload())]
    settings.MAX_UPLOAD_COUNT = 1
    with pytest.raises(UnknownFile, match="may have 1 files"):
        resolve_file_parts(conversation, [user_content(*parts_for(rows))])


def test_a_file_is_in_use_once_it_was_sent(conversation: Conversation):
    [row] = keep(conversation, upload())
    assert not is_used(row)
    conversation.open_turn([user_content(*parts_for([row]))])
    assert is_used(row)
