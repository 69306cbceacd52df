"""Pinned, archived and foldered conversations in the sidebar and in the library."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from conversations.access.participation import invite
from conversations.models import Conversation, Folder, FolderFile, Tag, Turn
from conversations.pages import sidebar as pages_sidebar
from conversations.pages.library import views
from conversations.pages.sidebar import sidebar
from conversations.requests.branches import restore_conversations
from llm.wire.items import user_message
from tests.conversations.page_scene import (
    ada,
    conversation,
    model,
    page_of,
    read,
    submitted,
    web,
)
from tests.conversations.scene import a_user, signed_in

__all__ = ["ada", "conversation", "model", "submitted", "web"]
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scripted_host")]


def listed(web: Client, **query: Any) -> str:
    return read(web.get(reverse("conversation-list"), query))


def keep(web: Client, row: Conversation, action: str) -> None:
    answer = web.post(reverse("keep", args=[row.pk]), {"action": action})
    assert answer.status_code == 302


def test_a_pinned_conversation_stands_first_and_once(web: Client, ada: Any):
    old = Conversation.objects.create(owner=ada, title="Old")
    Conversation.objects.create(owner=ada, title="New")
    keep(web, old, "pin")
    words = listed(web)
    assert words.index("Pinned") < words.index("Old") < words.index("New")
    assert web.get(reverse("chat")).content.decode().count('title="Old"') == 1
    keep(web, old, "unpin")
    assert "Pinned" not in listed(web)


@pytest.mark.parametrize("page", ["keep", "rename", "organise", "chat-options"])
def test_a_guest_stays_in_the_shared_chat_after_a_change_of_an_own_one(
    web: Client, ada: Any, page: str
):
    shared = Conversation.objects.create(owner=a_user("bob"), title="Shared")
    invite(shared, "ada", "writer").accept()
    own = Conversation.objects.create(owner=ada, title="Own")
    fields = {"action": "pin", "current": shared.pk, "title": "Other"}
    url = f"{reverse(page, args=[own.pk])}?current={shared.pk}"
    answer = web.post(url, fields)
    assert answer["Location"] == reverse("conversation", args=[shared.pk])


@pytest.mark.parametrize("change", ["pin", "archive", "touch", "delete"])
def test_older_conversations_go_on_whatever_became_of_the_last_one(
    ada: Any, change: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(pages_sidebar, "PAGE", 2)
    monkeypatch.setattr(pages_sidebar, "LONGEST", 2)
    for title in ("Oldest", "Third", "Second", "Newest"):
        Conversation.objects.create(owner=ada, title=title)
    older = sidebar(ada, 2).older
    last = Conversation.objects.filter(title="Second")
    now = timezone.now()
    match change:
        case "pin":
            last.update(pinned_at=now)
        case "archive":
            last.update(archived_at=now)
        case "touch":
            last.update(updated_at=now)
        case "delete":
            last.delete()
    [(_label, rows)] = sidebar(ada, 2, before=older).groups
    assert [row.title for row in rows] == ["Third", "Oldest"]


def test_an_archived_conversation_leaves_the_list_but_can_be_read(
    web: Client, conversation: Conversation
):
    keep(web, conversation, "archive")
    assert "Paris" not in listed(web)
    assert web.get(page_of(conversation)).status_code == 200
    assert "Paris" in read(web.get(reverse("library"), {"archived": "only"}))
    keep(web, conversation, "unarchive")
    assert "Paris" in listed(web)


def test_nobody_keeps_the_conversation_of_another_user(conversation: Conversation):
    eve = signed_in(a_user("eve"))
    for name in ("keep", "organise", "export-conversation"):
        address = reverse(name, args=[conversation.pk])
        assert eve.post(address, {"action": "archive"}).status_code in (404, 405)
        assert eve.get(address).status_code in (404, 405)
    conversation.refresh_from_db()
    assert conversation.archived_at is None


def test_a_folder_in_the_address_limits_the_list_to_its_conversations(
    web: Client, ada: Any, conversation: Conversation
):
    folder = Folder.objects.create(owner=ada, name="Work")
    Conversation.objects.create(owner=ada, title="Report", folder=folder)
    assert "Work" in listed(web)
    words = listed(web, folder=folder.pk)
    assert "Report" in words
    assert "Paris" not in words


def test_the_folder_of_another_user_limits_nothing(web: Client, ada: Any):
    Conversation.objects.create(owner=ada, title="Mine")
    theirs = Folder.objects.create(owner=a_user("eve"), name="Secret plans")
    words = read(web.get(reverse("chat"), {"folder": theirs.pk}))
    assert "Mine" in words
    assert "Secret plans" not in words
    assert web.get(reverse("folder", args=[theirs.pk])).status_code == 404


def test_a_new_conversation_begins_in_the_folder_of_the_page(
    web: Client, ada: Any, model: Any
):
    folder = Folder.objects.create(owner=ada, name="Work", language_model=model)
    page = web.get(reverse("chat"), {"folder": folder.pk}).content.decode()
    assert f'name="folder" value="{folder.pk}"' in page
    web.post(reverse("chat"), {"text": "Hello", "folder": folder.pk})
    assert Conversation.objects.get().folder == folder


def test_a_message_into_a_deleted_folder_is_kept_with_an_explanation(web: Client):
    answer = web.post(reverse("chat"), {"text": "My long text", "folder": "999"})
    assert answer.status_code == 400
    assert "My long text" in answer.content.decode()
    assert "does not exist any more" in read(answer)


def test_folder_and_tags_are_set_on_a_page_of_their_own(
    web: Client, ada: Any, conversation: Conversation
):
    folder = Folder.objects.create(owner=ada, name="Work")
    address = reverse("organise", args=[conversation.pk])
    web.post(address, {"folder": folder.pk, "labels": "trip,  far  away , trip"})
    conversation.refresh_from_db()
    assert conversation.folder == folder
    assert {tag.name for tag in conversation.tags.all()} == {"trip", "far away"}
    too_many = ",".join(map(str, range(21)))
    assert "Use 20 tags" in read(web.post(address, {"labels": too_many}))


def test_the_folder_of_another_user_cannot_be_chosen(
    web: Client, conversation: Conversation
):
    theirs = Folder.objects.create(owner=a_user("eve"), name="Hers")
    web.post(reverse("organise", args=[conversation.pk]), {"folder": theirs.pk})
    conversation.refresh_from_db()
    assert conversation.folder is None


# Many at once


def bulk(web: Client, ids: list[str], action: str, **fields: Any) -> Any:
    data = {"ids": ids, "action": action, **fields}
    return web.post(reverse("library"), data, follow=True)


def test_the_library_with_archived_conversations_lists_all(web: Client, ada: Any):
    Conversation.objects.create(owner=ada, title="New")
    Conversation.objects.create(owner=ada, title="Old", archived_at=timezone.now())
    page = web.get(reverse("library"), {"archived": "yes"})
    assert [each["row"].title for each in page.context["found"]] == ["Old", "New"]


def test_many_conversations_change_at_once_without_javascript(web: Client, ada: Any):
    folder = Folder.objects.create(owner=ada, name="Work")
    rows = [Conversation.objects.create(owner=ada, title=f"T{n}") for n in range(3)]
    ids = [row.pk for row in rows[:2]]
    assert "2 conversations changed" in read(bulk(web, ids, "move", folder=folder.pk))
    assert set(folder.conversations.all()) == set(rows[:2])
    bulk(web, ids, "tag", tag="trip")
    assert Tag.objects.get().conversations.count() == 2
    bulk(web, ids, "untag", tag="trip")
    assert not Tag.objects.get().conversations.exists()
    bulk(web, ids, "archive")
    assert Conversation.objects.filter(archived_at=None).get() == rows[2]
    page = bulk(web, ids, "delete").content.decode()
    assert list(Conversation.objects.of(ada)) == [rows[2]]
    assert all(f'name="ids" value="{each}"' in page for each in ids)
    assert "2 conversations deleted." in page
    shown = read(bulk(web, [*ids, "x\0"], "restore"))
    assert "2 conversations restored." in shown
    assert Conversation.objects.of(ada).count() == 3
    assert "Undo" not in read(web.get("/library/"))
    bulk(web, ids, "delete")
    assert list(Conversation.objects.of(ada)) == [rows[2]]


def test_undo_stays_when_another_tab_has_shown_the_library(web: Client, ada: Any):
    row = Conversation.objects.create(owner=ada)
    deletion = {"ids": [row.pk], "action": "delete"}
    assert web.post(reverse("library"), deletion).status_code == 302
    for _ in range(2):
        assert "1 conversation deleted. Undo" in read(web.get("/library/"))


def test_undo_is_offered_for_a_short_time(
    web: Client, ada: Any, monkeypatch: pytest.MonkeyPatch
):
    row = Conversation.objects.create(owner=ada)
    monkeypatch.setattr(views, "UNDO_TIME", -1)  # seconds: it is over
    bulk(web, [row.pk], "delete")
    assert "Undo" not in read(web.get("/library/"))


def test_many_conversations_are_restored_as_fast_as_one(
    ada: Any, django_assert_num_queries: Any
):
    now = timezone.now()
    rows = [
        Conversation.objects.create(owner=ada, deleted_at=now, title=f"T{number}")
        for number in range(20)
    ]
    rows[0].import_key = "chatgpt:1"
    rows[0].save()
    again = Conversation.objects.create(owner=ada, import_key="chatgpt:1")
    #: A transaction, the imported one's row, a look at the other and its change in a
    #: savepoint, and the change of all the rest.
    with django_assert_num_queries(8):
        assert restore_conversations(ada, [row.pk for row in rows]) == 20
    assert Conversation.objects.of(ada).filter(deleted_at=None).count() == 21
    again.refresh_from_db()
    assert again.import_key == "chatgpt:1"


def test_nothing_is_changed_for_ids_of_other_users(web: Client):
    theirs = Conversation.objects.create(owner=a_user("eve"), title="Hers")
    assert "0 conversations changed" in read(bulk(web, [theirs.pk], "delete"))
    theirs.refresh_from_db()
    assert theirs.deleted_at is None


@pytest.mark.parametrize(
    ("ids", "action", "problem"),
    [
        ([], "delete", "Choose at least one"),
        (["x"] * 501, "delete", "no more than 500"),
        (["x"], "burn", "not a valid choice"),
        (["x"], "tag", "Write a tag"),
    ],
)
def test_a_wrong_choice_is_explained(
    web: Client, ids: list[str], action: str, problem: str
):
    assert problem in read(bulk(web, ids, action))


def test_a_refused_change_asks_for_no_choice_again(
    web: Client, ada: Any, conversation: Conversation
):
    folder = Folder.objects.create(owner=ada, name="Work")
    other = Conversation.objects.create(owner=ada, title="Other")
    page = bulk(
        web,
        [conversation.pk],
        "untag",
        tag="  ",
        folder=folder.pk,
        back=f"{reverse('library')}?archived=no",
    )
    assert page.status_code == 400
    assert "Write a tag." in read(page)
    html = page.content.decode()
    assert 'name="back" value="/library/?archived=no"' in html
    assert f'value="{folder.pk}" selected' in html
    page = bulk(web, [conversation.pk], "untag", tag="")
    html = page.content.decode()
    assert f'value="{conversation.pk}" checked' in html
    assert f'value="{other.pk}">' in html
    page = bulk(web, [], "tag", tag='"later"')
    assert "Choose at least one conversation." in read(page)
    assert 'value="&quot;later&quot;"' in page.content.decode()


def test_the_way_back_leads_nowhere_else(web: Client, conversation: Conversation):
    data = {"ids": [conversation.pk], "action": "pin", "back": "//evil.example"}
    answer = web.post(reverse("library"), data)
    assert answer.headers["Location"] == reverse("library")


# Folders


def test_a_folder_is_made_changed_and_deleted(web: Client, ada: Any):
    answer = web.post(reverse("folders"), {"name": "Work", "instructions": "Be brief."})
    folder = Folder.objects.get()
    assert answer.headers["Location"] == reverse("folder", args=[folder.pk])
    assert "already" in read(web.post(reverse("folders"), {"name": "Work"}))
    row = Conversation.objects.create(owner=ada, folder=folder)
    for name in ("a.md", "b.md"):
        FolderFile.objects.create(folder=folder, name=name, text="A", size=1)
    url = reverse("delete-folder", args=[folder.pk])
    page = web.get(reverse("folder", args=[folder.pk])).content.decode()
    assert f'href="{url}"' in page
    assert f'action="{url}"' not in page
    assert "its 2 files are deleted for good" in read(web.get(url))
    assert Folder.objects.exists()
    web.post(url)
    row.refresh_from_db()
    assert row.folder is None
    assert row.deleted_at is None


def test_temporary_conversations_are_in_no_list(web: Client, ada: Any):
    Conversation.objects.create(
        owner=ada, title="Hush", is_temporary=True, updated_at=timezone.now()
    )
    assert "Hush" not in listed(web)
    assert "Hush" not in read(web.get(reverse("library"), {"archived": "yes"}))
    assert "Hush" not in listed(web, q="Hush")[20:]


def test_a_conversation_that_waits_for_a_person_does_not_seem_to_answer(
    web: Client, conversation: Conversation
):
    turn = conversation.open_turn([user_message("Send it?")]).turn
    assert 'aria-label="answering"' in row_of(web, conversation)
    Turn.objects.filter(pk=turn.pk).update(status=Turn.Status.WAITING)
    row = row_of(web, conversation)
    assert 'aria-label="Waiting for a decision"' in row
    assert "answering" not in row


def row_of(web: Client, conversation: Conversation) -> str:
    page = web.get(reverse("conversation-list")).content.decode()
    return page.partition(f'data-key="{conversation.pk}"')[2].partition("</li>")[0]


def test_the_librarys_filters_are_shown_where_one_is_set(web: Client):
    for query, is_open in [
        ({}, False),
        ({"q": "tea"}, False),
        ({"archived": "no", "api": "yes", "model": ""}, False),
        ({"archived": "only"}, True),
        ({"from": "2026-01-01"}, True),
        ({"from": "yesterday"}, True),  # what is wrong is beside the field
    ]:
        page = web.get(reverse("library"), query).content.decode()
        assert ("<details open>" in page) == is_open, query
        assert ("Without filters" in page) == is_open, query
