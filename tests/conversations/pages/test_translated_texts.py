"""Every text of a page goes through gettext: under a pseudo-language all are marked."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils.translation.trans_real import CONTEXT_SEPARATOR, DjangoTranslation

from conversations.models import Conversation, Turn
from conversations.models.memory import Memory
from conversations.models.preset import NOTE_CONTEXT_FAILED
from conversations.models.saved_prompt import SavedPrompt
from conversations.pages.transcript import INCOMPLETE
from tests.conversations.scene import (
    a_finished_turn,
    a_model,
    a_user,
    signed_in,
)
from tools.models import Tool

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scripted_host")]

ATTRIBUTES = ("aria-label", "title", "placeholder", "alt")
UNREAD = ("script", "style", "code", "kbd", "svg")
WORD = re.compile(r"[A-Za-z]{2}")
#: Names and data, which have no translation.
OWN = re.compile(
    r"\b(?:Parley|ada|Esc|Shift|Enter|Ctrl|Alt|Meta|ArrowUp|KaTeX|JSON|HTTP|MB|kB|CSV"
    r"|English|Deutsch|Fran.ais|Espa.ol|Test|m-1|Zq\w*|JPEG|PNG|PDF|UTC|ms|Markdown"
    r"|USD|January|February|March|April|May|June|July|August|September|October"
    r"|November|December|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec|a\.m|p\.m)\b"
)


class TextReader(HTMLParser):
    """The texts that a person reads or hears, without those that gettext has marked."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._unread = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._unread += tag in UNREAD
        for name, value in attrs:
            if name in ATTRIBUTES and value:
                self._note(value)

    def handle_endtag(self, tag: str) -> None:
        self._unread -= tag in UNREAD

    def handle_data(self, data: str) -> None:
        if not self._unread:
            self._note(data)

    def _note(self, text: str) -> None:
        left = OWN.sub("", re.sub(r"⟦[^⟧]*⟧", "", re.sub(r"⟦[^⟦⟧]*⟧", "", text)))
        if WORD.search(left):
            self.found.append(" ".join(text.split()))


@pytest.fixture
def pseudo(monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks what catalogues return. Texts made when a module is imported are lazy."""

    def mark(catalogue: DjangoTranslation, text: str) -> str:
        return f"⟦{text.rpartition(CONTEXT_SEPARATOR)[2]}⟧"

    def mark_plural(
        catalogue: DjangoTranslation, one: str, many: str, number: float
    ) -> str:
        return mark(catalogue, many)

    monkeypatch.setattr(DjangoTranslation, "gettext", mark)
    monkeypatch.setattr(DjangoTranslation, "ngettext", mark_plural)


@pytest.fixture
def ada() -> User:
    Tool.objects.update(enabled=False)  # staff write their names and descriptions
    return a_user("ada")


def unmarked(page: str) -> list[str]:
    reader = TextReader()
    reader.feed(page)
    return sorted(set(reader.found))


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/settings/", "/settings/personal/", "/settings/shortcuts/"),
        *("/settings/prompts/", "/settings/usage/", "/account/delete/", "/offline/"),
        *("/memories/", "/keys/", "/tokens/", "/account/", "/questions/"),
        *("/library/", "/folders/", "/invitations/", "/shares/", "/import/"),
    ],
)
@pytest.mark.usefixtures("pseudo")
def test_no_text_of_a_page_is_untranslatable(ada: User, path: str):
    a_model(is_default=True)
    Memory.objects.remember(ada.pk, "Zqmemory")
    SavedPrompt.objects.create(owner=ada, name="Zqname", text="Zqtext")
    assert not "\n".join(unmarked(signed_in(ada).get(path).text))


@pytest.mark.usefixtures("pseudo")
def test_no_text_of_a_conversation_is_untranslatable(ada: User):
    row = Conversation.objects.create(
        owner=ada, title="Zqtitle", language_model=a_model(is_default=True)
    )
    turn = a_finished_turn(row, "Zqquestion", "Zqanswer\n\n```\n1\n```")
    note = {"kind": NOTE_CONTEXT_FAILED, "source": "Zqsource", "text": "Zqreason"}
    Turn.objects.filter(pk=turn.pk).update(notes=[note])
    page = signed_in(ada).get(f"/chat/{row.pk}/").text
    assert "Zqsource" in page
    assert 'data-copy="code">⟦Copy⟧<' in page
    assert not "\n".join(unmarked(page))


@pytest.mark.parametrize(
    "page",
    [
        *("rename", "delete", "organise", "options", "share", "people", "export"),
        "print",
    ],
)
@pytest.mark.usefixtures("pseudo")
def test_no_text_of_what_is_done_with_a_conversation_is_untranslatable(
    ada: User, page: str
):
    row = Conversation.objects.create(
        owner=ada, title="Zqtitle", language_model=a_model(is_default=True)
    )
    a_finished_turn(row, "Zqquestion", "Zqanswer")
    answer: Any = signed_in(ada).get(f"/chat/{row.pk}/{page}/")
    content = b"".join(answer) if answer.streaming else answer.content
    assert not "\n".join(unmarked(content.decode()))


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (Turn.Status.CANCELLED, ""),
        (Turn.Status.COMPLETED, ""),
        *((Turn.Status.INCOMPLETE, reason) for reason in (*INCOMPLETE, "other")),
    ],
)
@pytest.mark.usefixtures("pseudo")
def test_no_text_of_an_answer_that_is_cut_is_untranslatable(
    ada: User, status: Turn.Status, reason: str
):
    row = Conversation.objects.create(
        owner=ada, title="Zqtitle", language_model=a_model(is_default=True)
    )
    turn = a_finished_turn(row, "Zqquestion", "Zqanswer")
    empty = a_finished_turn(row, "Zqquestion", "Zqanswer")
    empty.items.filter(origin="output").delete()
    Turn.objects.filter(pk__in=[turn.pk, empty.pk]).update(
        status=status, incomplete_reason=reason
    )
    assert not "\n".join(unmarked(signed_in(ada).get(f"/chat/{row.pk}/").text))


@pytest.mark.usefixtures("pseudo")
def test_no_text_of_the_sign_in_is_untranslatable(db: None):
    assert not "\n".join(unmarked(Client().get("/login/").text))
