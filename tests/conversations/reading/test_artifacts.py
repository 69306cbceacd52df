from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from conversations.access.participation import invite, remove
from conversations.models import Conversation, Turn
from conversations.pages import markdown
from conversations.pages.reading import artifacts
from conversations.pages.reading.link_marks import Fence
from llm.wire.items import message
from tests.conversations.page_scene import (
    THOUGHT,
    a_turn,
    ada,
    conversation,
    model,
    read,
    shown,
    web,
)
from tests.conversations.scene import a_user, signed_in

__all__ = ["ada", "conversation", "model", "web"]

pytestmark = pytest.mark.django_db

PAGES = ("artifact", "artifact-content", "artifact-download")
HOSTILE = "<script>parent.document.cookie</script>"


def a_document(words: str, title: str = "Clock") -> str:
    return f"```html\n<title>{title}</title>\n<p>\n{words}\n{HOSTILE}\n</p>\n\n```\n"


@pytest.fixture
def turn(conversation: Conversation) -> Turn:
    said = message("assistant", f"Here:\n\n{a_document('one')}")
    return a_turn(conversation, "completed", THOUGHT, said)


def url(name: str, turn: Turn, item: int = 1, number: int = 0) -> str:
    return reverse(name, args=[turn.pk, item, number])


def test_the_answer_links_to_its_preview(web: Client, turn: Turn):
    assert f'href="{url("artifact", turn)}"' in shown(web, turn).content.decode()
    page = web.get(url("artifact", turn))
    html = page.content.decode()
    assert "Clock" in read(page)
    assert 'sandbox="allow-scripts"' in html
    assert HOSTILE not in html


def test_the_document_runs_in_a_sandbox_without_origin_and_network(
    web: Client, turn: Turn
):
    answer = web.get(url("artifact-content", turn))
    policy = answer["Content-Security-Policy"]
    directives = [each.strip() for each in policy.split(";")]
    assert HOSTILE in answer.content.decode()
    assert "sandbox allow-scripts" in directives
    assert "default-src 'none'" in directives
    assert "frame-ancestors 'self'" in directives
    for absent in ("allow-same-origin", "allow-top", "allow-popups", "http", "'self' "):
        assert absent not in policy.replace("frame-ancestors 'self'", "")
    assert "no-store" in answer["Cache-Control"]
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["X-Frame-Options"] == "SAMEORIGIN"
    assert answer["Referrer-Policy"] == "no-referrer"


def test_the_document_opens_in_the_preview_only(web: Client, turn: Turn):
    alone = web.get(
        url("artifact-content", turn), headers={"Sec-Fetch-Dest": "document"}
    )
    assert alone["Location"] == url("artifact", turn)


def test_pages_of_parley_may_frame_only_parley_and_only_frames_are_framed(
    web: Client, turn: Turn
):
    policy = web.get(url("artifact", turn))["Content-Security-Policy"]
    assert "frame-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy


def test_the_code_is_shown_escaped_and_saved_as_a_file(web: Client, turn: Turn):
    code = web.get(f"{url('artifact', turn)}?view=code").content.decode()
    assert "<script>parent" not in code
    assert "<iframe" not in code
    file = web.get(url("artifact-download", turn))
    assert HOSTILE in file.content.decode()
    assert file["Content-Disposition"] == 'attachment; filename="clock.html"'
    assert "sandbox" in file["Content-Security-Policy"]


def test_who_takes_part_sees_it_until_removed(conversation: Conversation, turn: Turn):
    bob = a_user("bob")
    participant = invite(conversation, "bob", "viewer")
    participant.accept()
    pages = [url(name, turn) for name in PAGES]
    assert [signed_in(bob).get(page).status_code for page in pages] == [200] * 3
    remove(participant)
    assert [signed_in(bob).get(page).status_code for page in pages] == [404] * 3


@pytest.mark.parametrize("place", [(10**30, 0), (0, 10**30)])
def test_a_place_beyond_every_answer_is_not_found(
    web: Client, turn: Turn, place: tuple[int, int]
):
    assert web.get(url("artifact", turn, *place)).status_code == 404


@pytest.mark.parametrize("page", PAGES)
def test_another_users_artifact_is_not_found(turn: Turn, page: str):
    assert signed_in(a_user("eve")).get(url(page, turn)).status_code == 404
    assert Client().get(url(page, turn)).status_code == 302


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize(("item", "number"), [(0, 0), (1, 1), (9, 0), (1, 10**9)])
def test_what_is_no_artifact_is_not_found(
    web: Client, turn: Turn, page: str, item: int, number: int
):
    assert web.get(url(page, turn, item, number)).status_code == 404


def test_versions_are_the_blocks_of_the_same_title_and_language(
    web: Client, conversation: Conversation, turn: Turn
):
    said = [
        message("assistant", a_document("two") + a_document("other", "Map")),
        message("assistant", a_document("three").replace("html", "svg")),
        message("assistant", a_document("four")),
    ]
    later = [a_turn(conversation, "completed", each) for each in said]
    html = web.get(url("artifact", turn)).content.decode()
    for found, number in ((turn, 1), (later[0], 2), (later[2], 3)):
        place = 1 if found == turn else 0
        assert url("artifact", found, place) in html
        assert f">{number}</a>" in html
    assert url("artifact", later[0], 0, 1) not in html
    assert url("artifact", later[1], 0) not in html


def test_messages_that_have_no_version_are_not_parsed(
    web: Client,
    conversation: Conversation,
    turn: Turn,
    monkeypatch: pytest.MonkeyPatch,
):
    others = [
        "```python\n# html Clock\nprint()\n\n```\n",
        a_document("two", "Map"),
        a_document("three").replace("```html", "```markdown"),
    ]
    for text in others:
        a_turn(conversation, "completed", message("assistant", text))
    parsed: list[str] = []
    find = markdown.previewable_fences

    def noted(text: str) -> Iterator[Fence]:
        parsed.append(text)
        return find(text)

    monkeypatch.setattr(markdown, "previewable_fences", noted)
    assert web.get(url("artifact", turn)).status_code == 200
    assert not set(parsed) & set(others)


def test_a_version_is_shown_that_is_older_than_what_is_searched(
    web: Client,
    conversation: Conversation,
    turn: Turn,
    monkeypatch: pytest.MonkeyPatch,
):
    a_turn(conversation, "completed", message("assistant", a_document("two")))
    monkeypatch.setattr(artifacts, "MAX_PARSED", 150)
    html = web.get(url("artifact", turn)).content.decode()
    assert "Clock" in html
    assert url("artifact", turn) in html


def test_the_shown_version_is_among_as_many_newer_ones_as_are_listed(
    web: Client,
    conversation: Conversation,
    turn: Turn,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(artifacts, "MAX_VERSIONS", 2)
    said = [message("assistant", a_document(words)) for words in ("two", "three")]
    second, third = [a_turn(conversation, "completed", each) for each in said]
    html = web.get(url("artifact", turn)).content.decode()
    assert url("artifact", turn) in html
    assert url("artifact", third, 0) in html
    assert url("artifact", second, 0) not in html


def test_a_message_too_long_to_parse_hides_no_older_version(
    web: Client,
    conversation: Conversation,
    turn: Turn,
    monkeypatch: pytest.MonkeyPatch,
):
    long = message("assistant", a_document("two") + "x" * 1000)
    a_turn(conversation, "completed", long)
    third = a_turn(conversation, "completed", message("assistant", a_document("three")))
    monkeypatch.setattr(artifacts, "MAX_PARSED", 900)
    html = web.get(url("artifact", third, 0)).content.decode()
    assert url("artifact", turn) in html


def test_a_title_written_with_references_is_the_same(
    web: Client, conversation: Conversation, turn: Turn
):
    said = message("assistant", a_document("two", "&#67;lock"))
    later = a_turn(conversation, "completed", said)
    assert url("artifact", later, 0) in web.get(url("artifact", turn)).content.decode()


def test_untitled_blocks_are_no_versions_of_each_other(
    web: Client, conversation: Conversation
):
    said = message("assistant", a_document("one", "") + a_document("two", ""))
    turn = a_turn(conversation, "completed", said)
    html = web.get(url("artifact", turn, 0)).content.decode()
    assert url("artifact", turn, 0, 1) not in html


def test_versions_are_those_of_one_branch(web: Client, conversation: Conversation):
    def answer(words: str, parent: Turn | None) -> Turn:
        said = message("assistant", a_document(words))
        turn = a_turn(conversation, "completed", said)
        Turn.objects.filter(pk=turn.pk).update(parent=parent)
        return turn

    first = answer("one", None)
    one, other = (answer(words, first) for words in ("two", "another"))
    last = answer("three", one)
    for shown_turn, absent in ((one, other), (other, one)):
        html = web.get(url("artifact", shown_turn, 0)).content.decode()
        assert url("artifact", first, 0) in html
        assert url("artifact", absent, 0) not in html
        assert (url("artifact", last, 0) in html) == (shown_turn == one)


def test_a_deleted_message_is_no_version(
    web: Client, conversation: Conversation, turn: Turn
):
    gone = a_turn(conversation, "completed", message("assistant", a_document("two")))
    Turn.objects.filter(pk=gone.pk).update(deleted_at=timezone.now())
    assert gone.pk not in web.get(url("artifact", turn)).content.decode()
    assert web.get(url("artifact", gone, 0)).status_code == 404


def test_versions_of_a_soft_deleted_conversation_are_gone(web: Client, turn: Turn):
    turn.conversation.delete_softly()
    assert web.get(url("artifact", turn)).status_code == 404


@pytest.mark.parametrize(
    ("text", "name", "inside"),
    [
        (
            "```svg\n<svg>\n<title>A &amp; B</title>\n\n\n</svg>\n```",
            "a-b.svg",
            "<svg>",
        ),
        (
            "```md\n# Plan/../x\n\n<script>x</script>\n\n- a\n```",
            "planx.md",
            "&lt;script",
        ),
        ('```html title="My page"\n1\n2\n3\n4\n5\n```', "my-page.html", "1\n2"),
        ("```html\n1\n2\n3\n4\n5\n```", "artifact.html", "1\n2"),
    ],
)
def test_kinds_are_shown_and_named(
    web: Client, conversation: Conversation, text: str, name: str, inside: str
):
    turn = a_turn(conversation, "completed", message("assistant", text))
    file: Any = web.get(url("artifact-download", turn, 0))
    assert file["Content-Disposition"] == f'attachment; filename="{name}"'
    assert inside in web.get(url("artifact-content", turn, 0)).content.decode()


def test_the_frame_of_diagrams_holds_nothing_and_may_do_nothing(web: Client):
    answer = web.get(reverse("mermaid-frame"))
    policy = answer["Content-Security-Policy"]
    assert "sandbox allow-scripts;" in policy
    assert "allow-same-origin" not in policy
    assert "connect-src" not in policy
    assert "default-src 'none'" in policy
    assert "ada" not in answer.content.decode()
    assert not answer.cookies
