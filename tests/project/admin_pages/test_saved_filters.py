from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from conversations.models import SavedFilter
from project.admin_pages.saved_filters import MOST
from tests.conversations.scene import signed_in, staff

pytestmark = pytest.mark.django_db
LIST = reverse("admin:llm_modelcall_changelist")
SAVE = reverse("admin:saved_filter_add")
FAILED = "status__exact=failed"


@pytest.fixture
def bo() -> Client:
    return signed_in(staff("bo", "view_modelcall"))


def save(browser: Client, name: str = "failed ones", **fields: str) -> Any:
    data = {"list_of": "llm.modelcall", "query": FAILED, "name": name, **fields}
    return browser.post(SAVE, data)


def shown_in(browser: Client, path: str = LIST) -> bool:
    return "failed ones" in browser.get(path).content.decode()


def test_a_filter_is_offered_once_a_list_is_filtered(bo: Client):
    assert "Save this filter" not in bo.get(LIST).content.decode()
    text = bo.get(f"{LIST}?{FAILED}&p=1").content.decode()
    assert "Save this filter" in text
    assert f'name="query" value="{FAILED}"' in text  # without the page


def test_a_saved_filter_is_a_link_of_its_list_for_its_owner(bo: Client):
    assert save(bo)["Location"] == f"{LIST}?{FAILED}"
    assert f'href="?{FAILED}"' in bo.get(LIST).content.decode()
    assert not shown_in(signed_in(staff("eve", "view_modelcall")))
    admin = signed_in(staff("kim", "view_provider"))
    assert not shown_in(admin, reverse("admin:llm_provider_changelist"))


def test_a_shared_filter_is_for_all_who_may_see_the_list(bo: Client):
    save(bo, is_shared="on")
    eve = signed_in(staff("eve", "view_modelcall"))
    assert shown_in(eve)
    remove = reverse("admin:saved_filter_delete", args=[SavedFilter.objects.get().pk])
    assert remove not in eve.get(LIST).content.decode()
    assert eve.post(remove).status_code == 404
    assert bo.get(remove).status_code == 405
    assert bo.post(remove)["Location"] == LIST
    assert not SavedFilter.objects.exists()


def test_the_same_name_replaces_ones_own_filter(bo: Client):
    save(bo)
    save(bo, query="status__exact=completed", is_shared="on")
    row = SavedFilter.objects.get()
    assert (row.query, row.is_shared) == ("status__exact=completed", True)


@pytest.mark.parametrize(
    "fields",
    [{"name": ""}, {"name": "x" * 61}, {"name": "a\0b"}, {"query": "q=" * 600}],
)
def test_an_invalid_filter_is_refused_with_a_message(
    bo: Client, fields: dict[str, str]
):
    response = bo.post(
        SAVE,
        {"list_of": "llm.modelcall", "query": FAILED, "name": "x", **fields},
        follow=True,
    )
    assert "was not saved" in response.content.decode()
    assert not SavedFilter.objects.exists()


@pytest.mark.parametrize(
    ("list_of", "status"),
    [
        ("", 404),
        ("llm", 404),
        ("llm.none", 404),
        ("llm.modelcall.x", 404),
        ("llm.cachedanswer", 404),
        ("llm.apikey", 403),
    ],
)
def test_filters_are_of_lists_that_one_may_see(bo: Client, list_of: str, status: int):
    assert save(bo, list_of=list_of).status_code == status
    assert not SavedFilter.objects.exists()


def test_a_number_that_no_column_holds_is_no_filter(bo: Client):
    url = reverse("admin:saved_filter_delete", args=[10**30])
    assert bo.post(url).status_code == 404


def test_somebody_has_a_bounded_number_of_filters(bo: Client):
    for number in range(MOST + 5):
        save(bo, f"filter {number}")
    assert SavedFilter.objects.count() == MOST
    save(bo, "filter 0", query="status__exact=completed")  # replaces one
    assert SavedFilter.objects.get(name="filter 0").query != FAILED


def test_others_than_staff_save_nothing(client: Client):
    assert save(client)["Location"].startswith("/admin/login/")
    assert not SavedFilter.objects.exists()
