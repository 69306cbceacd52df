"""One's own use of models, and nobody else's: page, CSV file and API."""

from __future__ import annotations

import csv
import io
from decimal import Decimal
from typing import Any

import pytest

from conversations.models import Conversation, ToolCall
from llm.wire.items import user_message
from tests.conversations.scene import a_user, program, signed_in
from tests.llm.pricing.usage_calls import save_calls

pytestmark = pytest.mark.django_db
PAGE, FILE, API = "/settings/usage/", "/settings/usage/csv/", "/api/usage/"


def rows_of(answer: Any) -> list[dict[str, str]]:
    assert answer.status_code == 200
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    return list(csv.DictReader(io.StringIO(answer.text)))


def test_a_user_sees_own_calls_and_nobody_else_s():
    ada, bob = a_user("ada"), a_user("bob")
    save_calls(
        {"user_id": ada.pk, "model_name": "of-ada"},
        {"user_id": bob.pk, "model_name": "of-bob"},
        {"user_id": None, "model_name": "of-nobody"},
    )
    for user, model in ((ada, "of-ada"), (bob, "of-bob")):
        client = signed_in(user)
        # Whose it is cannot be asked for.
        for path in ("", f"?user={ada.pk}", "?by=user"):
            page = client.get(PAGE + path).text
            assert ("Host/of-ada" in page) is (user == ada and path != "?by=user")
            assert "of-nobody" not in page
        (row,) = rows_of(client.get(FILE))
        assert (row["model"], row["calls"]) == (f"Host/{model}", "1")
        found = client.get(API).json()
        assert [each["name"] for each in found["groups"]] == [f"Host/{model}"]


def test_page_file_and_api_have_the_same_figures():
    ada = a_user("ada")
    save_calls(
        {"user_id": ada.pk, "cached_tokens": 4, "reasoning_tokens": 3, "tags": "red"},
        {"user_id": ada.pk, "cost": None, "status": "failed", "days": 3},
        {"user_id": ada.pk, "days": 40},
    )
    client = signed_in(ada)
    (row,) = rows_of(client.get(FILE))
    total = client.get(API).json()["total"]
    for name in ("calls", "failed", "input_tokens", "reasoning_tokens", "unpriced"):
        assert int(row[name]) == total[name]
    assert Decimal(row["cost"]) == Decimal(total["cost"]) == Decimal("0.01")
    assert (total["calls"], total["failed"], total["unpriced"]) == (2, 1, 1)
    assert "≥" in client.get(PAGE).text
    found = client.get(API, {"by": "tag", "as": "csv"})
    assert {each["tag"] for each in rows_of(found)} == {"red", "without a tag"}
    days = client.get(API).json()["by_day"]
    assert [day["calls"] for day in days if day["calls"]] == [1, 1]


def test_refused_calls_and_stored_answers_leave_sums_exact():
    ada = a_user("ada")
    nothing = {"user_id": ada.pk, "input_tokens": None, "output_tokens": None}
    save_calls(
        {"user_id": ada.pk},
        {**nothing, "status": "failed", "cost": None},
        {**nothing, "is_cached": True, "cost": Decimal(0)},
    )
    client = signed_in(ada)
    total = client.get(API).json()["total"]
    assert (total["calls"], total["unpriced"], total["unmeasured"]) == (3, 0, 0)
    assert "≥" not in client.get(PAGE).text


def test_what_was_cached_for_an_hour_is_shown_where_there_is_any():
    ada = a_user("ada")
    client, heading = signed_in(ada), "of it for an hour"
    save_calls({"user_id": ada.pk, "cache_write_tokens": 4})
    assert heading not in client.get(PAGE).text
    written = {"cache_write_tokens": 9000, "cache_write_1h_tokens": 8001}
    save_calls({"user_id": ada.pk, **written})
    page = client.get(PAGE).text
    assert heading in page
    assert "<td>9,004</td>" in page
    assert page.count("<td>8,001</td>") == 2, "the row and the total"
    assert "input into a cache for an hour" in page
    (row,) = rows_of(client.get(FILE))
    assert row["cache_write_1h_tokens"] == "8001"
    assert client.get(API).json()["total"]["cache_write_1h_tokens"] == 8001


def test_the_file_and_the_api_count_searches_of_providers():
    ada = a_user("ada")
    save_calls({"user_id": ada.pk, "web_searches": 3}, {"user_id": ada.pk})
    save_calls({"user_id": ada.pk, "web_searches": 4, "file_searches": 1})
    client = signed_in(ada)
    (row,) = rows_of(client.get(FILE))
    assert (row["web_searches"], row["file_searches"]) == ("7", "1")
    total = client.get(API).json()["total"]
    assert (total["web_searches"], total["file_searches"]) == (7, 1)


def test_the_page_draws_charts_without_styles_or_scripts():
    ada = a_user("ada")
    save_calls({"user_id": ada.pk})
    page = signed_in(ada).get(PAGE, headers={"Accept-Language": "de"}).text
    assert '<path class="usage-0" d="M' in page
    assert 'width="33.33"' in page  # numbers of the chart are not localised
    assert " style=" not in page


def test_a_new_user_s_page_says_that_there_is_nothing():
    client = signed_in(a_user("ada"))
    assert "No calls in this period." in client.get(PAGE).text
    assert "No tool was called in this period." in client.get(PAGE + "?by=tool").text
    assert rows_of(client.get(FILE)) == []
    assert client.get(API).json()["groups"] == []


@pytest.mark.parametrize("shows", [True, False])
def test_costs_are_shown_where_staff_show_them(settings: Any, shows: bool):
    settings.SHOW_COSTS = shows
    ada = a_user("ada")
    save_calls({"user_id": ada.pk})
    client = signed_in(ada)
    assert ("$0.01" in client.get(PAGE).text) is shows
    total = client.get(API).json()["total"]
    assert total["cost"] == ("0.010000000000" if shows else None)
    (row,) = rows_of(client.get(FILE))
    assert row["cost"] == ("0.010000000000" if shows else "")


def test_own_tools_are_counted_by_name():
    ada, bob = a_user("ada"), a_user("bob")
    for user, name in ((ada, "look"), (ada, "look"), (bob, "<b>")):
        turn = Conversation.objects.create(owner=user).open_turn([user_message("Hi")])
        ToolCall.objects.create(
            turn=turn.turn, call_id="c", name=name, state="completed"
        )
    (row,) = rows_of(signed_in(ada).get(FILE + "?by=tool"))
    assert (row["tool"], row["calls"]) == ("look", "2")
    page = signed_in(bob).get(PAGE + "?by=tool").text
    assert "&lt;b&gt;" in page
    assert "<b>" not in page


@pytest.mark.parametrize(
    "query",
    [
        "first=soon",
        "first=2026-02-30",
        "first=0001-01-01&last=0001-01-02",
        "last=9999-12-31",
        "first=2026-05-02&last=2026-05-01",
        "first=2020-01-01&last=2026-01-01",
        "by=password",
        "by=" + "x" * 5000,
        "measure=%00",
    ],
)
def test_what_cannot_be_reported_is_one_clear_error(query: str):
    client = signed_in(a_user("ada"))
    page = client.get(f"{PAGE}?{query}")
    assert page.status_code == 400
    assert page.text.count('role="alert"') == 1
    assert client.get(f"{FILE}?{query}").status_code == 400
    answer = client.get(f"{API}?{query}")
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]


def test_an_access_token_reads_its_user_s_usage():
    ada = a_user("ada")
    save_calls({"user_id": ada.pk}, {"user_id": None})
    assert program(ada).get(API).json()["total"]["calls"] == 1
