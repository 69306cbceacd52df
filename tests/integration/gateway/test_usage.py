"""`GET /v1/usage`: a token sees its user's usage, and staff everybody's."""

from __future__ import annotations

import csv
import io
from uuid import uuid4

import pytest

from llm.admin.model_call import ModelCallAdmin
from tests.integration.gateway.programs import FAST, Gateway


@pytest.fixture(scope="module")
def tag(gateway: Gateway) -> str:
    name = f"team:{uuid4().hex[:8]}"
    body = {"model": FAST, "messages": [{"role": "user", "content": "Hello"}]}
    for _ in range(3):
        answer = gateway.post(
            "/chat/completions", body, **{"x-parley-tags": name, "x-request-id": name}
        )
        assert answer.status_code == 200
    while gateway.rows(f"ModelCall.objects.filter(tags={name!r}).count()") != "3":
        pass  # each look takes a second; rows are written 0.1 s after the answers
    return name


@pytest.mark.parametrize("by", ["token", "user", "group", "model", "day", "tag"])
def test_groups_add_up_to_the_total(gateway: Gateway, tag: str, by: str):
    found = gateway.get(f"/usage?by={by}").json()
    assert found["by"] == by
    assert found["total"]["cache_write_1h_tokens"] == 0, "the demo caches nothing"
    calls = sum(row["calls"] for row in found["data"])
    if by == "tag":  # a call with two tags counts for both
        assert calls >= found["total"]["calls"] >= 3
    else:
        assert calls == found["total"]["calls"] >= 3
    names = [row["name"] for row in found["data"]]
    if by == "tag":
        assert tag in names
    if by == "user":
        assert names == ["admin"]


def test_a_report_is_a_file_too(gateway: Gateway, tag: str):
    answer = gateway.get("/usage?by=tag&format=csv")
    assert answer.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert next(row for row in rows if row["tag"] == tag)["calls"] == "3"


def test_everybody_s_usage_is_for_staff_with_the_scope(gateway: Gateway, tag: str):
    answer = gateway.get("/usage?everybody=true")
    assert answer.status_code == 403
    token = gateway.rows(
        "AccessToken.issue(AccessToken.user.field.related_model.objects"
        ".get(username='admin'), 'sums', scopes=['gateway', 'admin-read'])[1]"
    )
    headers = {"Authorization": f"Bearer {token}"}
    found = gateway.get("/usage?everybody=true&by=user", **headers)
    assert found.status_code == 200
    assert found.json()["total"]["calls"] >= 3


@pytest.mark.parametrize(
    "query",
    ["by=colour", "first=x", "format=xml", "everybody=1", "by=tool", "by=conversation"],
)
def test_a_wrong_parameter_is_named(gateway: Gateway, query: str):
    answer = gateway.get(f"/usage?{query}")
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == query.partition("=")[0]


def test_a_request_is_found_by_the_id_that_its_client_chose(gateway: Gateway, tag: str):
    """As the search of the admin's list has it."""
    assert "=client_request_id" in ModelCallAdmin.search_fields
    assert (
        gateway.rows(f"ModelCall.objects.filter(client_request_id={tag!r}).count()")
        == "3"
    )
