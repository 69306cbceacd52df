"""Lists of tables that may have millions of rows: what they ask the database."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps as django_apps
from django.contrib import admin
from django.db import connection, models
from django.db.models import F
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from conversations.models import Conversation, Item, ToolCall, Turn
from llm.admin import LargeTableAdmin
from llm.models import ModelCall
from tests.conversations.scene import (
    a_finished_turn,
    a_model,
    a_user,
    signed_in,
    staff,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scripted_host")]

LARGE = [
    model
    for model in sorted(
        django_apps.get_models(),
        key=lambda model: model._meta.label,
    )
    if admin.site.is_registered(model)
    and isinstance(admin.site.get_model_admin(model), LargeTableAdmin)
]
IDS = [
    "turn.id",
    "conversation.id",
    "item.id",
    "call.id",
    "request.id",
    "response.id",
    "our request",
    "client's request",
]


def list_url(model: type[models.Model]) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")


@pytest.fixture
def root() -> Client:
    return signed_in(a_user("root", is_staff=True, is_superuser=True))


@pytest.fixture
def turn() -> Turn:
    conversation = Conversation.objects.create(
        owner=a_user("ada"), title="Noon in Paris", language_model=a_model()
    )
    turn = a_finished_turn(conversation, "What time is it?", "It is noon.")
    turn.tool_calls.create(call_id="call_1", name="clock", state="completed")
    ModelCall.objects.create(
        turn_id=turn.pk,
        model=conversation.language_model,
        provider_name="Test",
        model_name="m-1",
        status="completed",
        request_id="req_1",
        response_id="chatcmpl_1",
        our_request_id="ours_1",
        client_request_id="theirs_1",
    )
    a_finished_turn(
        Conversation.objects.create(owner=a_user("bob"), title="Other"), "Hi", "Hi"
    )
    return turn


def ids_of(turn: Turn) -> dict[str, str]:
    said = turn.items.earliest("position").payload["id"]
    given = ("call_1", "req_1", "chatcmpl_1", "ours_1", "theirs_1")
    values = (turn.pk, turn.conversation_id, said, *given)
    return dict(zip(IDS, values, strict=True))


@pytest.mark.parametrize("model", LARGE, ids=lambda model: model._meta.model_name)
def test_a_list_is_sorted_by_a_key_or_an_indexed_time(model: type[models.Model]):
    """Sorting anything else reads the whole table."""
    large: Any = admin.site.get_model_admin(model)
    ordering = large.ordering or model._meta.ordering or ["-pk"]
    first = str(ordering[0]).removeprefix("-")
    field = model._meta.pk if first == "pk" else model._meta.get_field(first)
    assert field
    indexed = {
        index.fields[0].removeprefix("-")
        for index in model._meta.indexes
        if index.fields and not index.condition
    }
    is_indexed = field.primary_key or field.db_index or field.name in indexed
    assert is_indexed or model._meta.label in SMALL


#: Tables with few rows for each person, or for each of few people.
SMALL = {
    "axes.AccessAttempt",
    "axes.AccessFailureLog",
    "axes.AccessLog",
    "conversations.ReplaySet",
}


@pytest.mark.parametrize("model", LARGE, ids=lambda model: model._meta.model_name)
def test_no_list_counts_or_sorts_a_whole_table(
    root: Client, turn: Turn, model: type[models.Model]
):
    with CaptureQueriesContext(connection) as queries:
        assert root.get(list_url(model)).status_code == 200
    for query in queries:
        if query["sql"].startswith("SELECT COUNT("):
            assert "LIMIT" in query["sql"], query["sql"]


def test_a_filter_for_few_rows_reads_and_sorts_only_those(root: Client, turn: Turn):
    """An unbounded query in the list's order reads the whole table by its time."""
    turn.tool_calls.create(call_id="call_2", name="clock", state="failed")
    for model in (ModelCall, ToolCall):
        field = "status" if model is ModelCall else "state"
        value = "completed" if model is ModelCall else "failed"
        table = f'FROM "{model._meta.db_table}"'
        with CaptureQueriesContext(connection) as queries:
            page = root.get(list_url(model), {f"{field}__exact": value})
        read = [each["sql"] for each in queries if table in each["sql"]]
        unbounded = [sql for sql in read if "ORDER BY" in sql and " IN (" not in sql]
        assert not [sql for sql in unbounded if "LIMIT" not in sql]
        assert len(page.context["cl"].result_list) == 1


def test_all_rows_of_a_short_list_are_shown_in_its_order(root: Client, turn: Turn):
    copies = [turn.conversation.turns.get() for _ in range(120)]
    for number, copy in enumerate(copies):
        copy.pk = f"resp_{number:03}"
        copy.save()
    page = root.get(list_url(Turn), {"all": "", "status__exact": turn.status})
    shown = [row.pk for row in page.context["cl"].result_list]
    rows = Turn.objects.filter(status=turn.status).order_by("-created_at", "-id")
    assert shown == list(rows.values_list("pk", flat=True))
    assert len(shown) > 120


@pytest.mark.parametrize("name", IDS)
@pytest.mark.parametrize("model", [Conversation, Turn, Item, ToolCall])
def test_any_id_finds_what_belongs_to_it(
    root: Client, turn: Turn, model: type[models.Model], name: str
):
    page = root.get(list_url(model), {"q": ids_of(turn)[name]})
    if model is Turn and page.status_code == 302:  # the only one is opened at once
        assert page["Location"] == reverse(
            "admin:conversations_turn_change", args=[turn.pk]
        )
        return
    found = page.context["cl"].result_list
    of_turn = {
        Conversation: {turn.conversation_id},
        Turn: {turn.pk},
        Item: set(turn.items.values_list("pk", flat=True)),
        ToolCall: set(turn.tool_calls.values_list("pk", flat=True)),
    }[model]
    assert {row.pk for row in found} <= of_turn
    assert found
    assert not root.get(list_url(model), {"q": "resp_none"}).context["cl"].result_list


@pytest.mark.parametrize("model", [Conversation, Turn, Item, ToolCall])
def test_a_search_shows_staff_with_few_rights_no_row_of_others(
    turn: Turn, model: type[models.Model]
):
    client = signed_in(staff("few", f"view_{model._meta.model_name}"))
    for term in ids_of(turn).values():
        page = client.get(list_url(model), {"q": term})
        assert not page.context["cl"].result_list, term


@pytest.mark.parametrize("model", LARGE, ids=lambda model: model._meta.model_name)
def test_a_search_takes_any_text(root: Client, model: type[models.Model]):
    for term in ("9" * 40, "%", "'", "\u0000x", "ä" * 500, "-1", "1e9"):
        assert root.get(list_url(model), {"q": term}).status_code in (200, 302), term


def test_a_search_uses_an_index_for_each_lookup(root: Client, turn: Turn):
    """SQLite's iexact is LIKE, which reads every row; so is an OR over joins."""
    with CaptureQueriesContext(connection) as queries:
        root.get(list_url(Turn), {"q": "call_1"})
    assert not [q["sql"] for q in queries if " LIKE " in q["sql"]]
    assert not [
        q["sql"]
        for q in queries
        if " OR " in q["sql"] and q["sql"].startswith("SELECT")
    ]


def test_periods_lead_from_years_to_days(root: Client, turn: Turn):
    now = timezone.now()
    Turn.objects.exclude(pk=turn.pk).update(created_at=now - timedelta(days=800))
    top = root.get(list_url(Turn)).content.decode()
    years = re.findall(r'href="\?created_at__year=(\d+)"', top)
    assert years == [
        str(year) for year in range((now - timedelta(days=800)).year, now.year + 1)
    ]
    of_year = root.get(list_url(Turn), {"created_at__year": now.year}).content.decode()
    assert f"created_at__month={now.month}" in of_year
    query = {"created_at__year": now.year, "created_at__month": now.month}
    of_month = root.get(list_url(Turn), query)
    assert f"created_at__day={now.day}" in of_month.content.decode()
    assert [row.pk for row in of_month.context["cl"].result_list] == [turn.pk]
    of_day = root.get(list_url(Turn), {**query, "created_at__day": now.day})
    assert [row.pk for row in of_day.context["cl"].result_list] == [turn.pk]


@pytest.mark.parametrize("value", ["0", "x", "99999", "-1", ""])
def test_a_bad_period_is_refused(root: Client, turn: Turn, value: str):
    page = root.get(list_url(Turn), {"created_at__year": value}, follow=True)
    assert page.status_code == 200


@pytest.mark.slow
@pytest.mark.smoke
def test_a_page_holds_the_rows_of_its_place(root: Client, turn: Turn):
    first = turn.conversation.turns.get()
    for number in range(1, 106):
        copy = Turn.objects.get(pk=first.pk)
        copy.pk = f"resp_{number:03}"
        copy.save()
    Turn.objects.update(created_at=F("created_at"))
    pages = [root.get(list_url(Turn), {"p": number}) for number in (1, 2, 3)]
    shown = [row.pk for page in pages for row in page.context["cl"].result_list]
    assert shown == list(
        Turn.objects.order_by("-created_at", "-id").values_list("pk", flat=True)
    )
