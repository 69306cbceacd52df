"""The dearest conversations: sums of their calls, and to whom titles are shown."""

from __future__ import annotations

import csv
import io
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from hypothesis import given
from hypothesis import strategies as st

from conversations.models import Conversation
from conversations.staff import expensive_conversations
from conversations.staff.expensive_conversations import report_conversations
from llm.models import ModelCall
from llm.pricing.usage_report import Usage, UsageQuery
from llm.wire.items import user_message
from tests.conversations.scene import a_user, signed_in, staff
from tests.llm.pricing.test_usage_sums import assert_equal, clear, sums_of
from tests.llm.pricing.usage_calls import calls, save_calls

pytestmark = pytest.mark.django_db
PAGE, FILE, API = reverse("admin:usage"), reverse("admin:usage_csv"), "/api/usage/all/"
OWN_PAGE = reverse("usage")
BY = {"by": "conversation"}
#: The report knows no times to the first token of conversations.
UNKNOWN = {"waited": 0, "wait_ms": 0}


@pytest.fixture
def ada(db: None) -> User:
    return a_user("ada")


def a_chat(owner: User, title: str) -> tuple[Conversation, str]:
    """With the id of its turn."""
    chat = Conversation.objects.create(owner=owner, title=title)
    return chat, chat.open_turn([user_message("Hi")]).turn.pk


@given(st.lists(st.tuples(st.integers(0, 3), calls), max_size=12))
def test_sums_of_conversations_equal_their_rows(made: list[tuple[int, dict[str, Any]]]):
    clear()
    Conversation.objects.all().delete()
    owner = User.objects.get_or_create(username="owner")[0]
    chats = [a_chat(owner, f"chat {number}") for number in range(2)]
    # Two turns of one chat, one of another, and none.
    second = chats[0][0].open_turn([user_message("More")]).turn.pk
    turns = [chats[0][1], second, chats[1][1], ""]
    places = {chats[0][1]: chats[0][0].pk, second: chats[0][0].pk}
    places |= {chats[1][1]: chats[1][0].pk, "": ""}
    save_calls(*({**fields, "turn_id": turns[number]} for number, fields in made))
    report, is_cut = report_conversations(UsageQuery.of_last(60))
    assert not is_cut
    for group in report.groups:
        rows = [r for r in ModelCall.objects.all() if places[r.turn_id] == group.name]
        expected = Usage(**{**sums_of(rows).as_dict(), **UNKNOWN})
        assert_equal(group.usage, expected)
    found = sum((group.usage for group in report.groups), Usage())
    total = Usage(**{**report.total.as_dict(), **UNKNOWN})
    assert_equal(found, total)
    costs = [group.usage.cost for group in report.groups]
    assert costs == sorted(costs, reverse=True)


def test_titles_are_for_staff_who_may_read_conversations(ada: User):
    chat, turn = a_chat(ada, "<b>Divorce</b>")
    save_calls({"turn_id": turn, "cost": Decimal(3)}, {"cost": Decimal(1)})
    few = signed_in(staff("few", "view_usage")).get(PAGE, BY).text
    assert f"ada: {chat.pk}" in few
    assert "Divorce" not in few
    assert "without a conversation" in few
    reader = staff("reader", "view_usage", "inspect_turn", "view_conversation")
    page = signed_in(reader).get(PAGE, BY).text
    assert "ada: &lt;b&gt;Divorce" in page
    assert reverse("admin:conversations_conversation_change", args=[chat.pk]) in page
    assert page.index("Divorce") < page.index("without a conversation")


def test_the_file_and_the_api_name_conversations_by_their_ids(ada: User):
    chat, turn = a_chat(ada, "Divorce")
    save_calls({"turn_id": turn, "cost": Decimal("0.25"), "status": "failed"})
    seer = signed_in(staff("seer", "view_usage", "inspect_turn"))
    (row,) = csv.DictReader(io.StringIO(seer.get(FILE, BY).text))
    assert (row["conversation"], row["failed"]) == (chat.pk, "1")
    assert Decimal(row["cost"]) == Decimal("0.25")
    answer = seer.get(API, BY).json()
    assert answer["by"] == "conversation"
    assert [group["name"] for group in answer["groups"]] == [chat.pk]


def test_people_see_their_own_calls_and_titles_that_they_may_open(ada: User):
    bob = a_user("bob")
    own, own_turn = a_chat(ada, "Garden")
    _closed, closed_turn = a_chat(bob, "Secret of Bob")
    save_calls(
        {"turn_id": own_turn, "user_id": ada.pk},
        {"turn_id": closed_turn, "user_id": ada.pk},  # was invited, and is no more
        {"turn_id": closed_turn, "user_id": bob.pk, "cost": Decimal(9)},
    )
    page = signed_in(ada).get(OWN_PAGE, BY)
    assert "Garden" in page.text
    assert reverse("conversation", args=[own.pk]) in page.text
    assert "Secret of Bob" not in page.text
    assert page.context["report"].total.calls == 2
    (api,) = [signed_in(ada).get("/api/usage/", BY).json()]
    assert api["total"]["calls"] == 2


def test_unknown_costs_do_not_displace_the_dearest(
    ada: User, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(expensive_conversations, "MAX_CONVERSATIONS", 1)
    dear, turn = a_chat(ada, "Dear")
    _unpriced, other = a_chat(ada, "Unpriced")
    save_calls({"turn_id": turn, "cost": Decimal(3)}, {"turn_id": other, "cost": None})
    report, _is_cut = report_conversations(UsageQuery.of_last(30))
    assert [group.name for group in report.groups] == [dear.pk]


def test_a_report_that_is_cut_says_so(ada: User, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(expensive_conversations, "MAX_CALLS", 2)
    _chat, turn = a_chat(ada, "Long")
    save_calls(*({"turn_id": turn, "days": day} for day in range(4)))
    report, is_cut = report_conversations(UsageQuery.of_last(30))
    assert is_cut
    assert report.groups[0].usage.calls == 2
    assert report.total.calls == 4
    page = signed_in(staff("seer", "view_usage")).get(PAGE, BY).text
    assert "of the newest" in page
