"""Search with filters: every message that passes is found, indexed or not."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from conversations.models import Conversation, Folder, Tag, ToolCall, Turn
from conversations.search import results
from conversations.search.filters import SearchFilters
from conversations.search.index import index_pending
from conversations.search.results import find_conversations
from tests.conversations.page_scene import ada, model, read, submitted, web
from tests.conversations.scene import (
    a_finished_turn,
    a_model,
    a_user,
    program,
)

__all__ = ["ada", "model", "submitted", "web"]
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scripted_host")]


@pytest.fixture(params=[True, False], ids=["indexed", "fresh"])
def find(request: pytest.FixtureRequest, ada: Any) -> Any:
    def find(query: str, **filters: Any) -> list[str]:
        if request.param:
            list(index_pending())
        found = find_conversations(ada, query, 0, SearchFilters(**filters))
        return ["".join(p.text for p in each.title) for each in found.conversations]

    return find


def a_talk(owner: Any, title: str, text: str = "tea", **fields: Any) -> Conversation:
    row = Conversation.objects.create(owner=owner, title=title, **fields)
    a_finished_turn(row, text)
    return row


def test_by_model_tool_folder_and_tag(find: Any, ada: Any):
    folder = Folder.objects.create(owner=ada, name="Work")
    one = a_talk(ada, "One", folder=folder)
    two = a_talk(ada, "Two", language_model=a_model("m-2", alias="clever"))
    one.tags.add(Tag.objects.create(owner=ada, name="trip"))
    turn = two.turns.get()
    ToolCall.objects.create(turn=turn, call_id="c", name="weather")
    assert sorted(find("tea")) == ["One", "Two"]
    assert find("tea", folder=folder.pk) == ["One"]
    assert find("tea", tag="trip") == ["One"]
    assert find("tea", tool="weather") == ["Two"]
    assert find("tea", model="clever") == ["Two"]
    assert find("tea", model="clever", folder=folder.pk) == []
    assert find("tea", model="no such model") == []


def test_a_later_message_outside_the_dates_hides_no_earlier_one(find: Any, ada: Any):
    row = a_talk(ada, "Long talk")
    Turn.objects.update(created_at=timezone.now() - timedelta(days=30))
    a_finished_turn(row, "tea again")
    day = date.today() - timedelta(days=30)
    assert find("tea", since=day - timedelta(days=1), until=day) == ["Long talk"]
    assert find("tea", until=day - timedelta(days=2)) == []
    assert find("tea", since=date.today() + timedelta(days=1)) == []
    assert find("tea", until=date.max, since=date.min.replace(year=1900))


def test_nothing_is_lost_behind_many_messages_that_do_not_pass(
    find: Any, ada: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(results, "FILTERED", 2)
    folder = Folder.objects.create(owner=ada, name="Work")
    a_talk(ada, "Deep down", folder=folder)
    for number in range(7):
        a_talk(ada, f"Other {number}")
    assert find("tea", folder=folder.pk) == ["Deep down"]


def test_filters_alone_list_conversations_newest_first(find: Any, ada: Any):
    folder = Folder.objects.create(owner=ada, name="Work")
    for title in ("First", "Second"):
        a_talk(ada, title, folder=folder)
    a_talk(ada, "Hush", folder=folder, is_temporary=True)
    assert find("", folder=folder.pk) == ["Second", "First"]


@pytest.mark.parametrize("query", ["🗑️", "++", "→", "???", "__"])
def test_a_query_of_signs_alone_finds_nothing(find: Any, ada: Any, query: str):
    a_talk(ada, f"Keep {query}")
    assert find(query, archived="no") == []
    assert find(" ", archived="no") == [f"Keep {query}"]


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "America/Los_Angeles"])
def test_a_half_typed_year_is_no_error(find: Any, ada: Any, settings: Any, zone: str):
    settings.TIME_ZONE = zone
    a_talk(ada, "Talk")
    for day in (date.min, date.max - timedelta(days=1)):
        assert find("tea", since=date.min, until=day) == ["Talk"] * (day.year > 1)
        assert find("", since=date.min, until=day) == ["Talk"] * (day.year > 1)


def test_nobody_finds_what_others_wrote(find: Any):
    eve = a_user("eve")
    folder = Folder.objects.create(owner=eve, name="Hers")
    a_talk(eve, "Hers", folder=folder)
    assert find("tea", folder=folder.pk) == []
    assert find("", folder=folder.pk) == []


def test_archived_conversations_are_found_unless_left_out(find: Any, ada: Any):
    a_talk(ada, "Old", archived_at=timezone.now())
    assert find("tea") == ["Old"]
    assert find("tea", archived="no") == []
    assert find("tea", archived="only") == ["Old"]


def test_the_page_marks_words_and_leads_to_the_message(web: Client, ada: Any):
    row = a_talk(ada, "Breakfast", "Is <b>tea</b> better?")
    query = {"q": "tea", "from": "2020-01-01", "to": "not a day", "folder": "99"}
    page = web.get(reverse("library"), query)
    assert "Enter a valid date" in read(page)
    assert "Breakfast" in read(page)
    html = page.content.decode()
    assert "&lt;b&gt;<mark>tea</mark>&lt;/b&gt;" in html
    turn = row.turns.get()
    assert f"?at={turn.pk}#turn-{turn.pk}" in html


def test_a_folder_number_beyond_the_database_s_is_refused(ada: Any):
    answer = program(ada).get(reverse("api:search"), {"folder": 10**30})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "folder"
