"""A form that was saved says so on the page that follows, and so does a deletion."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from conversations.access.sharing import create_link
from conversations.models import Conversation, Folder, Participant, WebhookEndpoint
from conversations.models.access_token import AccessToken
from conversations.models.memory import Memory
from conversations.models.saved_prompt import SavedPrompt
from tests.conversations.page_scene import ada, conversation, model, read, web
from tests.conversations.scene import a_finished_turn, a_user, signed_in

__all__ = ["ada", "conversation", "model", "web"]
pytestmark = pytest.mark.django_db

BROWSER = {"Accept": "text/html,*/*;q=0.8"}


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("folder", {"name": "Plans", "instructions": "Be brief."}),
        ("rename", {"title": "Other"}),
        ("organise", {"labels": "one"}),
        ("chat-options", {"instructions": "In verse."}),
        ("change-memory", {"text": "Likes tea.", "act": "save"}),
        ("prompts", {"name": "greet", "title": "", "text": "Hello"}),
    ],
)
def test_a_saved_form_says_so_once_and_scripts_say_it_themselves(
    web: Client, ada: Any, conversation: Conversation, name: str, fields: Any
):
    rows = {
        "folder": lambda: [Folder.objects.create(owner=ada, name="F").pk],
        "change-memory": lambda: [Memory.objects.create(user=ada, text="m").pk],
        "prompts": list,
    }
    url = reverse(name, args=rows.get(name, lambda: [conversation.pk])())
    answer = web.post(url, fields, headers=BROWSER)
    assert answer.status_code == 302
    assert read(web.get(answer["Location"])).count("Saved.") == 1
    assert "Saved." not in read(web.get(answer["Location"]))
    fields = {**fields, "name": fields.get("name", "") + "x"}
    assert web.post(url, fields).status_code == 302
    assert "Saved." not in read(web.get(answer["Location"]))


def _rows(ada: Any, conversation: Conversation) -> dict[str, tuple[str, list[Any]]]:
    """What was done, by the name of the page: what it says, and what it is about."""
    a_finished_turn(conversation)  # there is something to share
    folder = Folder.objects.create(owner=ada, name="Plans")
    file = folder.files.create(name="a.txt", text="A", size=1)
    mine = {"owner": ada, "name": "greet"}
    eve = {"conversation": conversation, "name": "eve", "invited_by": ada}
    invited = Participant.objects.create(user=a_user("eve"), **eve)
    joined = {**eve, "name": "bo", "accepted_at": timezone.now()}
    joined = Participant.objects.create(user=a_user("bo"), **joined)
    link = create_link(conversation, ada, {"audience": "signed_in", "kind": "live"})
    token = AccessToken.issue(ada, "laptop")[0]
    hook = WebhookEndpoint.objects.create(url="https://host/", secret="s", **mine)
    return {
        "delete-folder-file": ("The file “a.txt” was deleted.", [folder.pk, file.pk]),
        "delete-folder": ("The folder “Plans” was deleted.", [folder.pk]),
        "delete-prompt": (
            "The prompt “greet” was deleted.",
            [SavedPrompt.objects.create(text="Hi", **mine).pk],
        ),
        "delete-memory": (
            "The memory was deleted.",
            [Memory.objects.create(user=ada, text="m").pk],
        ),
        "end-other-sessions": ("All other sessions were ended.", []),
        "remove-person": ("The invitation of eve was withdrawn.", [invited.pk]),
        "remove-person/": ("bo no longer takes part.", [joined.pk]),
        "revoke-token": ("The token “laptop” was revoked.", [token.pk]),
        "revoke-share": ("The link was revoked.", [link.pk]),
        "delete-webhook": ("The endpoint was deleted.", [hook.pk]),
    }


ASKED_FIRST = ["delete-folder-file", "delete-folder", "delete-prompt", "delete-memory"]
OTHERS = ["end-other-sessions", "remove-person", "remove-person/", "revoke-token"]
OTHERS += ["revoke-share", "delete-webhook"]


@pytest.mark.parametrize("name", [*ASKED_FIRST, *OTHERS])
def test_what_was_deleted_or_ended_is_said_once(
    web: Client, ada: Any, conversation: Conversation, name: str
):
    text, about = _rows(ada, conversation)[name]
    url = reverse(name.rstrip("/"), args=about)
    answer = web.post(url, headers=BROWSER)
    assert answer.status_code == 302
    assert read(web.get(answer["Location"])).count(text) == 1
    assert text not in read(web.get(answer["Location"]))


@pytest.mark.parametrize("name", ASKED_FIRST)
def test_a_deletion_asks_first_and_only_the_owner(
    web: Client, ada: Any, conversation: Conversation, name: str
):
    _text, about = _rows(ada, conversation)[name]
    url = reverse(name, args=about)
    for _ in range(2):  # reading deletes nothing
        page = web.get(url)
        assert page.status_code == 200
        assert "Delete this" in read(page)
    stranger = signed_in(a_user("mallory"))
    assert [stranger.get(url).status_code, stranger.post(url).status_code] == [404, 404]
    assert web.post(url).status_code == 302
    assert web.get(url).status_code == 404
