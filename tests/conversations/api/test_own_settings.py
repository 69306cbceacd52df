"""Settings, prompts and deletion by REST: as the pages."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from conversations.models import SavedPrompt, UserSettings
from tests.conversations.scene import (
    PASSWORD,
    a_model,
    a_user,
    program,
    signed_in,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scripted_host")]

SETTINGS, PROMPTS = "/api/settings/", "/api/prompts/"


@pytest.fixture
def ada() -> User:
    return a_user("ada")


@pytest.fixture
def web(ada: User) -> Client:
    return signed_in(ada)


def patch(web: Client, path: str, body: Any) -> Any:
    return web.patch(path, body, "application/json")


def test_settings_are_read_and_changed_one_by_one(web: Client):
    model = a_model("m-1")
    assert web.get(SETTINGS).json()["theme"] == "system"
    body = {"theme": "dark", "default_model": model.public_name}
    changed = patch(web, SETTINGS, body)
    assert changed.status_code == 200, changed.content
    patch(web, SETTINGS, {"shortcuts": {"new": "m"}})
    assert web.get(SETTINGS).json() == {
        "theme": "dark",
        "language": "",
        "font_size": "normal",
        "default_model": model.public_name,
        "favourite_models": [],
        "notify_title": True,
        "notify_browser": False,
        "email_after_minutes": None,
        "shortcuts_enabled": True,
        "shortcuts": {"new": "m"},
        "memory_enabled": True,
        "custom_instructions": "",
    }


def test_favourite_models_are_kept_in_their_order_each_once(web: Client):
    names = ["b/two", "a/one", "b/two"]
    kept = patch(web, SETTINGS, {"favourite_models": names}).json()
    assert kept["favourite_models"] == ["b/two", "a/one"]
    assert web.get(SETTINGS).json() == kept


@pytest.mark.parametrize(
    "wrong",
    [
        {"favourite_models": "a/one"},
        {"favourite_models": [{"a": 1}]},
        {"favourite_models": ["x"] * 101},
        {"favourite_models": ["x" * 401]},
        {"theme": "plaid"},
        {"language": "tlh"},
        {"default_model": "nothing"},
        {"default_model": 7},
        {"shortcuts": {"new": "s"}},
        {"shortcuts": {"fly": "f"}},
        {"shortcuts": ["n"]},
        {"custom_instructions": "x" * 4001},
        {"custom_instructions": "\0"},
        {"account_deleted_at": None},
        ["theme"],
    ],
)
def test_wrong_settings_are_refused_and_nothing_saved(web: Client, wrong: Any):
    answer = patch(web, SETTINGS, wrong)
    assert answer.status_code in (400, 404)
    assert answer.json()["error"]["message"]
    assert not UserSettings.objects.exists()


def test_a_token_does_not_change_what_its_user_has_set(ada: User):
    answer = program(ada).patch(SETTINGS, {"theme": "dark"}, "application/json")
    assert answer.status_code == 403


def test_prompts_are_saved_changed_and_deleted(web: Client):
    body = {"name": "mail", "text": "Answer {{mail}}"}
    made = web.post(PROMPTS, body, "application/json")
    assert made.status_code == 201, made.content
    pk = made.json()["id"]
    assert made.json()["variables"] == ["mail"]
    assert patch(web, f"{PROMPTS}{pk}/", {"title": "Mail"}).json()["title"] == "Mail"
    assert [row["name"] for row in web.get(PROMPTS).json()["data"]] == ["mail"]
    again = web.post(PROMPTS, body, "application/json")
    assert again.status_code == 400
    assert "of this name already" in again.json()["error"]["message"]
    other = signed_in(a_user("bob"))
    assert patch(other, f"{PROMPTS}{pk}/", {"title": "x"}).status_code == 404
    assert other.delete(f"{PROMPTS}{pk}/").status_code == 404
    assert web.delete(f"{PROMPTS}{pk}/").status_code == 204
    assert not SavedPrompt.objects.exists()


def test_usage_has_every_day(web: Client):
    found = web.get("/api/usage/").json()
    assert found["total"]["calls"] == 0
    assert len(found["by_day"]) == 30


def test_an_account_is_deleted_with_its_password(web: Client, ada: User):
    path = "/api/account/delete/"
    wrong = web.post(path, {"password": "no"}, "application/json")
    assert wrong.status_code == 400
    gone = web.post(path, {"password": PASSWORD}, "application/json")
    assert gone.status_code == 204, gone.content
    ada.refresh_from_db()
    assert not ada.is_active
    assert web.get(SETTINGS).status_code in (401, 403)


def test_a_token_does_not_delete_an_account(ada: User):
    answer = program(ada).post(
        "/api/account/delete/", {"password": PASSWORD}, "application/json"
    )
    assert answer.status_code == 403
