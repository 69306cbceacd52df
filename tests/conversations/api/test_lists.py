"""Lists of the REST API: their envelope, pages, filters, and unknown parameters."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from conversations.models import Conversation, Folder, Participant, Tag
from conversations.models.memory import Memory
from tests.conversations.scene import a_user, bearer

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada() -> Any:
    return a_user("ada")


@pytest.fixture
def api(ada: Any) -> Client:
    return Client(headers=bearer(ada))


def names(answer: Any) -> list[str]:
    return [row["name"] for row in answer.json()["results"]]


def test_a_list_that_came_whole_still_does(api: Client, ada: Any):
    for name in ("a", "b", "c"):
        Folder.objects.create(owner=ada, name=name)
    answer = api.get("/api/folders/").json()
    assert answer["data"] == answer["results"]
    assert (len(answer["data"]), answer["next"], answer["previous"]) == (3, None, None)


def test_pages_of_a_small_list_lead_to_each_other(api: Client, ada: Any):
    for name in "abcde":
        Folder.objects.create(owner=ada, name=name)
    first = api.get("/api/folders/", {"limit": 2})
    second = api.get(first.json()["next"])
    third = api.get(second.json()["next"])
    assert [names(each) for each in (first, second, third)] == [
        ["a", "b"],
        ["c", "d"],
        ["e"],
    ]
    assert (first.json()["previous"], third.json()["next"]) == (None, None)
    assert names(api.get(third.json()["previous"])) == ["c", "d"]
    assert names(api.get(second.json()["previous"])) == ["a", "b"]


def test_pages_of_rows_that_come_and_go_repeat_and_skip_none(api: Client, ada: Any):
    def remember(text: str) -> Memory:
        return Memory.objects.create(user=ada, text=text)

    def texts(answer: Any) -> str:
        return "".join(row["text"] for row in answer.json()["results"])

    a, _, _, d, _, _ = (remember(text) for text in "abcdef")
    first = api.get("/api/memories/", {"limit": 2})
    assert (texts(first), first.json()["previous"]) == ("fe", None)
    remember("g")
    second = api.get(first.json()["next"])
    assert texts(second) == "dc"
    d.delete()
    third = api.get(second.json()["next"])
    assert (texts(third), third.json()["next"]) == ("ba", None)
    assert texts(api.get(third.json()["previous"])) == "ec"
    assert texts(api.get(second.json()["previous"])) == "fe"
    a.save()  # now it is the newest
    assert texts(api.get(second.json()["next"])) == "b"
    whole = api.get("/api/memories/").json()
    assert [row["text"] for row in whole["data"]] == list("agfecb")
    assert texts(api.get("/api/memories/", {"query": "G"})) == "g"


@pytest.mark.parametrize(
    "key", ["start:1", "after:x", "until:[1]", "after:[1]", "after:[[],1]", "a:1"]
)
def test_an_invalid_cursor_of_such_rows_is_explained(api: Client, key: str):
    cursor = urlsafe_b64encode(key.encode()).decode()
    error = api.get("/api/memories/", {"cursor": cursor}).json()["error"]
    assert error["param"] == "cursor"


@pytest.mark.parametrize(
    ("address", "values"),
    [
        ("/api/folders/", ["\ud800", "1"]),
        ("/api/memories/", ["9999-12-31T23:59:59-23:59", "1"]),
        ("/api/memories/", ["0001-01-01T00:00:00+23:59", "1"]),
    ],
)
def test_a_key_that_no_row_can_have_is_explained(
    api: Client, address: str, values: list[str]
):
    for kind in ("after", "before", "until"):
        key = f"{kind}:{json.dumps(values)}"
        cursor = urlsafe_b64encode(key.encode()).decode()
        answer = api.get(address, {"cursor": cursor})
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "cursor"


def test_the_page_before_one_whose_rows_were_deleted_skips_none(api: Client, ada: Any):
    for name in "abcd":
        Folder.objects.create(owner=ada, name=name)
    first = api.get("/api/folders/", {"limit": 2})
    Folder.objects.filter(name__in="cd").delete()
    empty = api.get(first.json()["next"])
    assert (names(empty), empty.json()["next"]) == ([], None)
    before = api.get(empty.json()["previous"])
    assert names(before) == ["a", "b"]
    assert (before.json()["previous"], before.json()["next"]) == (None, None)
    Folder.objects.filter(name="b").delete()
    assert names(api.get(empty.json()["previous"])) == ["a"]
    Folder.objects.all().delete()
    assert api.get(first.json()["next"]).json()["previous"] is None


def test_rows_are_found_by_words(api: Client, ada: Any):
    for name in ("Green tea", "Coffee"):
        Folder.objects.create(owner=ada, name=name)
        Tag.objects.create(owner=ada, name=name)
    assert names(api.get("/api/folders/", {"query": "TEA"})) == ["Green tea"]
    assert api.get("/api/tags/", {"query": "cof"}).json()["results"] == ["Coffee"]


def test_conversations_are_filtered(api: Client, ada: Any):
    folder = Folder.objects.create(owner=ada, name="Tea")
    inside = Conversation.objects.create(owner=ada, title="Oolong", folder=folder)
    Conversation.objects.create(owner=ada, title="Paris")

    def found(**query: Any) -> list[str]:
        answer = api.get("/api/conversations/", query)
        assert answer.status_code == 200, answer.content
        return [row["title"] for row in answer.json()["results"]]

    assert found(query="OOL") == ["Oolong"]
    assert found(folder=folder.pk) == ["Oolong"]
    assert found(archived="only") == []
    api.patch(
        f"/api/conversations/{inside.pk}/",
        {"archived": True, "tags": ["t"]},
        content_type="application/json",
    )
    assert found(archived="only") == found(tag="t") == ["Oolong"]
    assert found(archived="no") == ["Paris"]
    assert api.get("/api/conversations/", {"folder": "x"}).status_code == 400
    assert api.get("/api/conversations/", {"archived": "x"}).status_code == 400


def test_turns_are_filtered_by_status(api: Client, ada: Any):
    conversation = Conversation.objects.create(owner=ada)
    conversation.open_turn([])
    address = reverse("api:turns", args=[conversation.pk])
    assert len(api.get(address, {"status": "queued"}).json()["results"]) == 1
    assert api.get(address, {"status": "failed"}).json()["results"] == []
    assert api.get(address, {"status": "odd"}).status_code == 400


@pytest.mark.parametrize(
    ("address", "known"),
    [
        ("/api/conversations/", "query, model"),
        ("/api/folders/", "limit, cursor, query"),
        ("/api/settings/", "none"),
        ("/api/models/", "provider"),
    ],
)
def test_an_unknown_parameter_is_refused_by_name(address: str, known: str, ada: Any):
    browser = Client()
    browser.force_login(ada)
    answer = browser.get(address, {"colour": "red"})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["param"], error["code"]) == ("colour", "unknown_parameter")
    assert known in error["message"]


def test_an_unknown_parameter_of_a_change_is_refused_before_it(api: Client, ada: Any):
    row = Conversation.objects.create(owner=ada)
    address = f"/api/conversations/{row.pk}/"
    assert api.delete(f"{address}?really=yes").status_code == 400
    assert api.get(address).status_code == 200


def test_the_document_refuses_unknown_parameters():
    assert Client().get("/api/schema/", {"colour": "red"}).status_code == 400


@pytest.mark.parametrize("cursor", ["x", "é", "c3RhcnQ6eA==", "c3RhcnQ6LTE="])
def test_an_invalid_cursor_is_explained(api: Client, cursor: str):
    error = api.get("/api/folders/", {"cursor": cursor}).json()["error"]
    assert error["param"] == "cursor"


def test_the_open_questions_have_the_envelope(api: Client):
    assert api.get("/api/questions/open/").json() == {
        "next": None,
        "previous": None,
        "results": [],
        "data": [],
    }


def test_search_has_pages(api: Client, ada: Any):
    for number in range(3):
        Conversation.objects.create(owner=ada, title=f"Tea {number}")
    first = api.get("/api/search/", {"query": "tea", "limit": 2}).json()
    rest = api.get(first["next"]).json()
    assert len(first["results"]) == 2
    assert len(rest["results"]) == 1
    assert rest["next"] is None
    assert first["has_more"] is True


def test_a_long_list_costs_what_its_page_costs(api: Client, ada: Any):
    def fetched() -> tuple[int, int]:
        with CaptureQueriesContext(connection) as queries:
            answer = api.get("/api/folders/", {"limit": 2, "query": "Tea"}).json()
        cut = [each for each in queries if "folder" in each["sql"].lower()]
        assert any("LIMIT 3" in each["sql"] for each in cut)
        return len(answer["results"]), len(queries)

    Folder.objects.bulk_create(Folder(owner=ada, name=f"Tea {n}") for n in range(3))
    fetched()  # fills caches
    few = fetched()
    Folder.objects.bulk_create(Folder(owner=ada, name=f"Tea {n}") for n in range(3, 99))
    assert fetched() == few


def test_a_list_without_a_limit_ends_after_a_thousand_rows(api: Client, ada: Any):
    Memory.objects.bulk_create(Memory(user=ada, text=f"m{n}") for n in range(1005))
    first = api.get("/api/memories/").json()
    rest = api.get(first["next"]).json()
    assert (len(first["data"]), len(rest["data"]), rest["next"]) == (1000, 5, None)
    ids = {row["id"] for row in first["data"] + rest["data"]}
    assert len(ids) == 1005


def test_rows_of_one_name_are_neither_repeated_nor_skipped(api: Client, ada: Any):
    for name in ("tea", "TEA", "Tea", "coffee"):
        Folder.objects.create(owner=ada, name=name)
    address, found = "/api/folders/?limit=1", []
    while address:
        answer = api.get(address)
        found += names(answer)
        address = answer.json()["next"]
    assert found == ["coffee", "tea", "TEA", "Tea"]


def test_words_are_found_in_any_case_of_any_script(api: Client, ada: Any):
    for name in ("Grüne Äpfel", "ÖL", "Чай"):
        Folder.objects.create(owner=ada, name=name)
    assert names(api.get("/api/folders/", {"query": "äpfel"})) == ["Grüne Äpfel"]
    assert names(api.get("/api/folders/", {"query": "öl"})) == ["ÖL"]
    assert names(api.get("/api/folders/", {"query": "чАЙ"})) == ["Чай"]


def test_a_title_is_not_found_before_its_invitation_is_accepted(api: Client, ada: Any):
    chat = Conversation.objects.create(owner=a_user("bob"), title="Secret")
    row = Participant.objects.create(conversation=chat, user=ada, name="ada")
    found = {"query": "secret"}
    assert api.get("/api/invitations/", found).json()["results"] == []
    assert len(api.get("/api/invitations/", {"query": "bob"}).json()["results"]) == 1
    row.accept()
    assert len(api.get("/api/invitations/", found).json()["results"]) == 1


@pytest.fixture(scope="module")
def document() -> Any:
    return Client().get("/api/schema/", {"format": "json"}).json()


def test_every_list_of_rows_has_pages_words_and_filters(document: Any, api: Client):
    for address, described in document["paths"].items():
        if "get" not in described or "{" in address:
            continue
        known = {each["name"] for each in described["get"].get("parameters", ())}
        if not {"limit", "cursor"} <= known:
            continue
        query = dict.fromkeys(known - {"cursor", "api", "archived", "folder"}, "x")
        query |= {"limit": "1"}
        for name, value in list(query.items()):
            answer = api.get(address, {"limit": "1", name: value})
            assert answer.status_code in (200, 400, 403), (address, name)
            if answer.status_code == 200:
                assert {"results", "next", "previous"} <= answer.json().keys()


def test_the_old_list_of_questions_has_the_envelope_on_request(api: Client):
    old = api.get("/api/questions/")
    assert old.json() == []
    assert "/api/questions/open/" in old["Link"]
    assert api.get("/api/questions/", {"limit": 5}).json() == {
        "next": None,
        "previous": None,
        "results": [],
        "data": [],
    }
    assert api.get("/api/questions/", {"colour": "red"}).status_code == 400
