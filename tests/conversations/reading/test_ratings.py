from __future__ import annotations

import csv
import io
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from conversations.models import Conversation, Rating, Turn
from llm.models import ModelCall
from tests.conversations.page_scene import (
    ada,
    conversation,
    model,
    read,
    shown,
    web,
)
from tests.conversations.scene import (
    a_finished_turn,
    a_user,
    program,
    signed_in,
    staff,
)

__all__ = ["ada", "conversation", "model", "web"]

pytestmark = pytest.mark.django_db

SECRET = "it said my salary is 4711"


@pytest.fixture
def turn(conversation: Conversation) -> Turn:
    return a_finished_turn(conversation, "What?", "The **answer**.")


def rest(turn: Turn, name: str = "rating") -> str:
    return reverse(f"api:{name}", args=[turn.pk])


def form(turn: Turn) -> str:
    return reverse("rate", args=[turn.conversation_id, turn.pk])


def put(client: Client, turn: Turn, data: Any) -> Any:
    return client.put(rest(turn), data, content_type="application/json")


def test_a_rating_is_stored_changed_and_taken_back_by_rest(ada: Any, turn: Turn):
    client = program(ada)
    assert put(client, turn, {"value": "good", "comment": "Right."}).status_code == 200
    assert put(client, turn, {"value": "bad"}).json()["comment"] == "Right."
    [row] = Rating.objects.all()
    assert (row.turn, row.user, row.value, row.comment) == (turn, ada, "bad", "Right.")
    assert client.get(rest(turn)).json()["value"] == "bad"
    assert client.delete(rest(turn)).status_code == 204
    assert client.delete(rest(turn)).status_code == 404
    assert client.get(rest(turn)).status_code == 404


@pytest.mark.parametrize(
    ("data", "names"),
    [
        ({"value": "so-so"}, "value"),
        ({"value": 1}, "value"),
        ({}, "value"),
        ({"value": "good", "comment": "x" * 2001}, "comment"),
        ({"value": "good", "comment": 7}, "comment"),
        ({"value": "good", "comment": "a\0b"}, "comment"),
        ({"value": "good", "user": 1}, "user"),
        ([], ""),
    ],
)
def test_a_wrong_rating_is_refused_by_name(ada: Any, turn: Turn, data: Any, names: str):
    answer = put(program(ada), turn, data)
    assert answer.status_code == 400
    assert names in str(answer.json()["error"])
    assert not Rating.objects.exists()


def test_the_page_rates_without_javascript(web: Client, turn: Turn):
    answer = web.post(form(turn), {"value": "good", "comment": "Thanks."})
    page = reverse("conversation", args=[turn.conversation_id])
    assert answer["Location"] == f"{page}?at={turn.pk}#turn-{turn.pk}"
    html = shown(web, turn).content.decode()
    assert "Thanks." in html
    assert 'aria-pressed="true"' in html
    web.post(form(turn), {"value": ""})
    assert not Rating.objects.exists()


def test_a_wrong_form_is_a_400_and_stores_nothing(web: Client, turn: Turn):
    assert web.post(form(turn), {"value": "perhaps"}).status_code == 400
    assert (
        web.post(form(turn), {"value": "bad", "comment": "x" * 3000}).status_code == 400
    )
    assert not Rating.objects.exists()


def test_a_comment_as_long_as_its_box_is_stored_whatever_lines_it_has(
    web: Client, turn: Turn
):
    """A browser counts a line's end as one character and sends two."""
    comment = "\n".join(["y" * 99] * 20)[:2000]
    sent = comment.replace("\n", "\r\n")
    assert len(sent) > 2000
    answer = web.post(form(turn), {"value": "bad", "comment": sent})
    assert answer.status_code == 302
    assert Rating.objects.get().comment == comment


def test_a_refused_comment_is_shown_again_with_the_reason(web: Client, turn: Turn):
    answer = web.post(form(turn), {"value": "bad", "comment": "<b>" + "x" * 3000})
    assert "no more than 2000 characters" in read(answer)
    assert "&lt;b&gt;" + "x" * 3000 in answer.content.decode()


def test_another_users_answer_cannot_be_rated_or_looked_up(turn: Turn):
    eve = a_user("eve")
    client = program(eve)
    assert put(client, turn, {"value": "bad"}).status_code == 404
    assert client.get(rest(turn)).status_code == 404
    assert client.delete(rest(turn)).status_code == 404
    assert client.get(rest(turn, "details")).status_code == 404
    assert signed_in(eve).post(form(turn), {"value": "bad"}).status_code == 404
    assert not Rating.objects.exists()


# Staff


@pytest.fixture
def rated(ada: Any, turn: Turn) -> Rating:
    return Rating.objects.create(turn=turn, user=ada, value="bad", comment=SECRET)


def exported(client: Client, kind: str, row: Rating) -> Any:
    data = {"action": f"export_as_{kind}", "_selected_action": [row.pk]}
    return client.post(reverse("admin:conversations_rating_changelist"), data)


def words(answer: Any) -> str:
    return b"".join(
        answer.streaming_content if answer.streaming else [answer.content]
    ).decode()


def test_staff_without_the_inspectors_permission_see_values_and_no_comment(
    rated: Rating,
):
    client = signed_in(staff("bo", "view_rating", "export_ratings"))
    row = reverse("admin:conversations_rating_change", args=[rated.pk])
    for answer in (
        client.get(reverse("admin:conversations_rating_changelist")),
        client.get(row),
        exported(client, "csv", rated),
        exported(client, "json", rated),
    ):
        text = words(answer)
        assert answer.status_code == 200
        assert SECRET not in text
        assert "What?" not in text
        assert "bad" in text.lower()


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n"])
def test_inspectors_export_comments_and_no_cell_is_a_formula(rated: Rating, start: str):
    Rating.objects.update(comment=f"{start}HYPERLINK(1)")
    client = signed_in(staff("ida", "view_rating", "export_ratings", "inspect_turn"))
    names, row = csv.reader(io.StringIO(words(exported(client, "csv", rated))))
    assert dict(zip(names, row, strict=True))["comment"] == f"'{start}HYPERLINK(1)"
    [one] = exported(client, "json", rated).json()["data"]
    assert (one["turn"], one["comment"]) == (rated.turn_id, f"{start}HYPERLINK(1)")


def test_to_export_needs_its_own_permission(rated: Rating):
    client = signed_in(staff("cy", "view_rating", "inspect_turn"))
    answer = exported(client, "csv", rated)
    assert "Content-Disposition" not in answer


def test_staff_with_no_permission_see_no_ratings(rated: Rating):
    client = signed_in(staff("dan"))
    url = reverse("admin:conversations_rating_changelist")
    assert client.get(url).status_code == 403


# Details


def a_call(turn: Turn, **fields: Any) -> ModelCall:
    return ModelCall.objects.create(
        turn_id=turn.pk,
        provider_name="P",
        model_name="m-1",
        status="completed",
        **fields,
    )


def test_details_sum_the_calls_of_an_answer(web: Client, ada: Any, turn: Turn):
    a_call(
        turn,
        input_tokens=100,
        cached_tokens=40,
        output_tokens=20,
        ttft=0.5,
        cost=Decimal("0.01"),
    )
    a_call(
        turn,
        input_tokens=50,
        output_tokens=5,
        reasoning_tokens=3,
        ttft=2,
        cost=Decimal("0.002"),
    )
    found = program(ada).get(rest(turn, "details")).json()
    assert found["models"] == ["m-1"]
    assert found["calls"] == 2
    assert (found["input_tokens"], found["output_tokens"]) == (150, 25)
    assert (found["cached_tokens"], found["reasoning_tokens"]) == (40, 3)
    assert found["cache_write_tokens"] is None
    assert found["first_token_seconds"] == 0.5
    assert Decimal(found["cost"]) == Decimal("0.012")
    assert found["is_cost_complete"] is True
    page = read(shown(web, turn))
    assert "150" in page
    assert "$0.012" in page


def test_details_name_service_tiers_and_count_searches(
    web: Client, ada: Any, turn: Turn
):
    a_call(turn, service_tier="flex", web_searches=2)
    a_call(turn, service_tier="", web_searches=5, file_searches=1)
    found = program(ada).get(rest(turn, "details")).json()
    assert found["service_tiers"] == ["flex"]
    assert (found["web_searches"], found["file_searches"]) == (7, 1)
    page = read(shown(web, turn))
    for shown_text in ("Service tier flex", "Searches of the web 7"):
        assert shown_text in " ".join(page.split())


def test_a_cost_that_is_partly_unknown_is_called_so(web: Client, turn: Turn):
    a_call(turn, cost=Decimal("0.01"))
    a_call(turn, cost=None)
    assert "at least $0.01" in read(shown(web, turn))


def test_costs_are_hidden_where_staff_hide_them(
    web: Client, ada: Any, turn: Turn, settings: Any
):
    settings.SHOW_COSTS = False
    a_call(turn, cost=Decimal("0.0123"))
    assert "0.0123" not in read(shown(web, turn))
    assert program(ada).get(rest(turn, "details")).json()["cost"] is None
    turn_page = program(ada).get(f"/api/turns/{turn.pk}/")
    assert [call["cost"] for call in turn_page.json()["model_calls"]] == [None]
