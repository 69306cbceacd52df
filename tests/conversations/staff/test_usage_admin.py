"""Everybody's usage, for staff who may see it: the admin's page, its file, the API."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import pytest
from django.test import override_settings
from django.urls import reverse
from django.utils.html import escape

from conversations.engine.maintenance.tool_call_counts import count_calls
from conversations.models import AccessToken, Conversation, ToolCall
from conversations.models.access_token import Scope
from llm.models import ModelCall
from llm.pricing.usage_report import GROUPINGS
from llm.wire.items import user_message
from tests.conversations.scene import a_user, program, signed_in, staff
from tests.llm.pricing.usage_calls import save_calls

pytestmark = pytest.mark.django_db
PAGE, FILE = reverse("admin:usage"), reverse("admin:usage_csv")
API = "/api/usage/all/"
HOSTILE = ["=1+1", "+1", "-1", "@SUM(A1)", "<script>alert(1)</script>", '"; DROP']


@pytest.fixture
def seer() -> Any:
    return signed_in(staff("seer", "view_usage"))


def rows_of(answer: Any) -> list[dict[str, str]]:
    assert answer.status_code == 200
    return list(csv.DictReader(io.StringIO(answer.text)))


def test_only_staff_with_the_permission_see_it():
    user = a_user("ada")
    few = staff("few", "view_modelcall")
    for path in (PAGE, FILE):
        assert signed_in(user).get(path).status_code == 302  # to the sign-in
        assert signed_in(few).get(path).status_code == 403
    assert signed_in(user).get(API).status_code == 403
    assert signed_in(few).get(API).status_code == 403
    assert PAGE not in signed_in(few).get(reverse("admin:index")).text


def test_a_token_needs_the_scope_and_its_user_the_permission(seer: Any):
    person = staff("other", "view_usage")
    _, narrow = AccessToken.issue(person, "chat", scopes=[Scope.CHAT.value])
    assert program(person).get(API).status_code == 200
    headers = {"Authorization": f"Bearer {narrow}"}
    assert seer.get(API, headers=headers).status_code == 403
    assert program(a_user("ada")).get(API).status_code == 403


def test_one_persons_usage_is_not_divided_by_key(seer: Any):
    ada = a_user("ada")
    save_calls({"key_id": 5, "user_id": ada.pk})
    assert "deleted key 5" in seer.get(PAGE, {"by": "key"}).text
    refused = seer.get(PAGE, {"by": "key", "user": ada.pk})
    assert refused.status_code == 400
    assert "only everybody" in refused.text
    own = signed_in(ada).get("/settings/usage/", {"by": "key"})
    assert own.status_code == 400


def test_who_may_see_sums_only_gets_no_links_to_calls(seer: Any):
    save_calls({})
    rows = reverse("admin:llm_modelcall_changelist")
    assert PAGE in seer.get(reverse("admin:index")).text
    page = seer.get(PAGE).text
    assert "Host/m" in page
    assert rows not in page
    assert seer.get(rows).status_code == 403


@pytest.mark.parametrize("grouping", [g for g in GROUPINGS if g != "group"])
def test_a_row_leads_to_its_calls(grouping: str, admin_client: Any):
    ada = a_user("ada")
    save_calls(
        {"user_id": ada.pk, "token_id": 7, "tags": "a.b,c", "status": "failed"},
        {"model_name": "other", "tags": "axb", "purpose": "title", "days": 1},
        {"user_id": ada.pk, "days": 31},
    )
    page = admin_client.get(PAGE, {"by": grouping})
    assert page.context["rows"]
    for row in page.context["rows"]:
        assert escape(row.address) in page.text
        found = admin_client.get(row.address)
        assert found.status_code == 200
        assert found.context["cl"].result_count == row.group.usage.calls, row.address


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_stay_text_everywhere(text: str, seer: Any):
    save_calls({"model_name": text, "provider_name": text, "tags": text})
    for grouping in ("model", "provider", "tag"):
        page = seer.get(PAGE, {"by": grouping}).text
        assert "<script>alert" not in page
        (row,) = rows_of(seer.get(FILE, {"by": grouping}))
        assert row[grouping][0] not in "=+-@"
        assert text in row[grouping]
        (group,) = seer.get(API, {"by": grouping}).json()["groups"]
        assert text in group["name"]  # JSON needs no quote


def test_each_group_of_users_is_summed_up(seer: Any):
    from django.contrib.auth.models import Group

    ada = a_user("ada")
    ada.groups.add(Group.objects.create(name="red"))
    save_calls({"user_id": ada.pk}, {})
    rows = rows_of(seer.get(FILE, {"by": "group"}))
    assert {row["group"]: row["calls"] for row in rows} == {
        "red": "1",
        "in no group": "1",
    }


def test_one_user_s_usage_can_be_chosen(seer: Any):
    ada = a_user("ada")
    save_calls({"user_id": ada.pk}, {}, {})
    query = {"user": ada.pk}
    assert "Only calls of ada." in seer.get(PAGE, query).text
    assert rows_of(seer.get(FILE, query))[0]["calls"] == "1"
    assert seer.get(API, query).json()["total"]["calls"] == 1
    assert seer.get(PAGE, {"user": "ada"}).status_code == 400
    assert seer.get(PAGE, {"user": 2**64}).status_code == 400


def test_tools_are_counted_by_day_and_name(seer: Any):
    turn = Conversation.objects.create(owner=a_user("ada")).open_turn(
        [user_message("Hi")]
    )
    for state in ("completed", "failed", "executing"):
        ToolCall.objects.create(turn=turn.turn, call_id=state, name="look", state=state)
    before = rows_of(seer.get(FILE, {"by": "tool"}))
    list(count_calls())  # what is counted already, and what is not, add up
    assert rows_of(seer.get(FILE, {"by": "tool"})) == before
    (row,) = before
    assert (row["tool"], row["calls"], row["pending"]) == ("look", "3", "1")
    assert float(row["error_rate"]) == 0.5
    page = seer.get(PAGE, {"by": "tool"}).text
    assert "look" in page
    assert "?q=look" not in page  # who may not see calls gets no link to them


def test_a_page_without_data_has_no_chart(seer: Any):
    page = seer.get(PAGE)
    assert page.status_code == 200
    assert "No calls in this period." in page.text
    assert "<path class" not in page.text


def test_days_are_those_of_the_server_s_time_zone(admin_client: Any):
    save_calls({})
    at = datetime(2026, 3, 1, 23, 30, tzinfo=UTC)  # 2 March in Tokyo
    ModelCall.objects.update(created_at=at)
    with override_settings(TIME_ZONE="Asia/Tokyo"):
        query = {"first": "2026-03-01", "last": "2026-03-03", "by": "day"}
        page = admin_client.get(PAGE, query)
        (row,) = page.context["rows"]
        assert row.group.name == "2026-03-02"
        assert "2026-03-02T00:00:00+09:00" in unquote(row.address)
        assert admin_client.get(row.address).context["cl"].result_count == 1
        found = admin_client.get(API, query).json()
        assert found["time_zone"] == "Asia/Tokyo"
        assert [day["calls"] for day in found["by_day"]] == [0, 1, 0]


def test_the_document_of_the_api_describes_it(admin_client: Any):
    document = admin_client.get("/api/schema/", headers={"Accept": "application/json"})
    operation = document.json()["paths"]["/api/usage/all/"]["get"]
    names = {each["name"] for each in operation["parameters"]}
    assert {"first", "last", "by", "format", "user"} <= names
    assert {"200", "400", "403"} <= set(operation["responses"])
