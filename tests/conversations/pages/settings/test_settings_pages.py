"""The settings pages: what is chosen there holds on all pages of this user only."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone

from conversations.forms.settings_forms import (
    GeneralForm,
    PersonalForm,
    ShortcutsForm,
)
from conversations.models import UserSettings
from conversations.models.keyboard_shortcuts import ACTIONS, keys_of
from tests.conversations.scene import (
    a_model,
    a_user,
    signed_in,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scripted_host")]

GENERAL = {"theme": "dark", "font_size": "large", "language": "de", "default_model": ""}
KEYS = {name: usual for name, (_, usual) in ACTIONS.items()}


@pytest.fixture
def ada() -> User:
    return a_user("ada")


@pytest.fixture
def web(ada: User) -> Client:
    return signed_in(ada)


def test_a_theme_reaches_every_page_from_the_server(web: Client):
    assert web.post("/settings/", GENERAL).status_code == 302
    for path in ("/", "/settings/", "/account/", "/tokens/"):
        page = web.get(path).text
        assert '<html lang="de"' in page
        assert 'class="theme-dark size-large"' in page
        assert "css/dark.css" in page
        assert 'media="screen and (prefers-color-scheme: dark)"' not in page


def test_a_light_page_loads_no_dark_colours(web: Client):
    web.post("/settings/", {**GENERAL, "theme": "light"})
    assert "css/dark.css" not in web.get("/").text


def test_settings_are_their_users_only(web: Client):
    web.post("/settings/", GENERAL)
    other = signed_in(a_user("bob")).get("/", headers={"Accept-Language": "fr"})
    assert '<html lang="fr"' in other.text
    assert "theme-dark" not in other.text
    assert "theme-dark" not in Client().get("/login/").text


def test_the_users_language_precedes_the_browsers(web: Client):
    web.post("/settings/", GENERAL)
    page = web.get("/", headers={"Accept-Language": "fr"})
    assert page["Content-Language"] == "de"


@pytest.mark.parametrize(
    "wrong",
    [
        {"theme": "plaid"},
        {"language": "tlh"},
        {"font_size": "9000"},
        {"default_model": "77"},
        {"default_model": "x\0"},
    ],
)
def test_an_unknown_value_is_refused_and_nothing_saved(web: Client, wrong: Any):
    answer = web.post("/settings/", {**GENERAL, **wrong})
    assert answer.status_code == 400
    assert "field-error" in answer.text
    assert not UserSettings.objects.exists()


def test_the_default_model_is_the_one_of_new_chats(web: Client, ada: User):
    a_model("first", is_default=True)
    second = a_model("second")
    web.post("/settings/", {**GENERAL, "default_model": second.pk})
    assert web.get("/").context["form"].chosen == second


def test_a_default_model_may_be_withdrawn(web: Client, ada: User):
    first, second = a_model("first", is_default=True), a_model("second")
    web.post("/settings/", {**GENERAL, "default_model": second.pk})
    second.groups.add(Group.objects.create(name="others"))
    assert web.get("/").context["form"].chosen == first
    second.delete()
    assert web.get("/").context["form"].chosen == first


def test_another_groups_model_cannot_be_chosen(web: Client):
    hidden = a_model("of-others")
    hidden.groups.add(Group.objects.create(name="others"))
    answer = web.post("/settings/", {**GENERAL, "default_model": hidden.pk})
    assert answer.status_code == 400
    assert "of-others" not in web.get("/settings/").text


def test_instructions_and_memory_are_saved(web: Client, ada: User):
    answer = web.post("/settings/personal/", {"custom_instructions": "Be brief."})
    assert answer["Location"] == "/settings/personal/?saved"
    row = UserSettings.objects.get()
    assert row.custom_instructions == "Be brief."
    assert row.memory_enabled is False  # an unticked box sends nothing
    assert 'role="status"' in web.get(answer["Location"]).text


def test_an_empty_form_switches_memory_off(web: Client):
    assert web.post("/settings/personal/").status_code == 302
    assert UserSettings.objects.get().memory_enabled is False


def test_long_instructions_are_refused_and_kept_on_the_page(web: Client):
    text = "é" * 4001
    answer = web.post("/settings/personal/", {"custom_instructions": text})
    assert answer.status_code == 400
    assert text in answer.text
    assert not UserSettings.objects.exists()


def test_keys_are_changed_and_taken_away(web: Client, ada: User):
    fields = {**KEYS, "shortcuts_enabled": "on", "new": "Alt+n", "copy": ""}
    assert web.post("/settings/shortcuts/", fields).status_code == 302
    row = UserSettings.objects.get()
    assert row.shortcuts == {"new": "Alt+n", "copy": ""}
    assert row.keys["new"] == "Alt+n"
    assert row.keys["search"] == ACTIONS["search"][1]


def test_shortcuts_can_be_off(web: Client):
    web.post("/settings/shortcuts/", KEYS)
    assert UserSettings.objects.get().keys == {}
    assert 'data-shortcuts="{}"' in web.get("/").text


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        ("s", "used twice"),
        ("Ctrl+w", "Browsers use"),
        ("Shift+Meta+t", "Browsers use"),
        ("F5", "Browsers use"),
        ("nn", "is no key"),
        ("Tab", "is no key"),
        ("Hyper+x", "is no key"),
        ("<script>", "is no key"),
    ],
)
def test_a_key_that_cannot_work_is_refused(web: Client, key: str, sentence: str):
    fields = {**KEYS, "shortcuts_enabled": "on", "new": key}
    answer = web.post("/settings/shortcuts/", fields)
    assert answer.status_code == 400
    assert sentence in answer.text
    assert "<script>" not in answer.text.replace("<script type", "")
    assert not UserSettings.objects.exists()


def test_the_usual_keys_are_single_and_different():
    usual = list(keys_of({}).values())
    assert len(set(usual)) == len(usual)
    assert all(len(key) == 1 for key in usual)


@pytest.mark.parametrize(
    "path", ["/settings/", "/settings/personal/", "/settings/shortcuts/"]
)
def test_a_stranger_has_no_settings(path: str):
    for answer in (Client().get(path), Client().post(path)):
        assert answer.status_code == 302
        assert answer["Location"].startswith("/login/")


def test_staff_see_settings_only_with_the_right_to_read_content(ada: User):
    UserSettings.objects.create(user=ada, custom_instructions="I am ill.")
    clerk = signed_in(a_user("clerk", is_staff=True))
    path = f"/admin/conversations/usersettings/{ada.pk}/change/"
    assert "I am ill." not in clerk.get(path).text
    boss = signed_in(a_user("boss", is_staff=True, is_superuser=True))
    listed = boss.get("/admin/conversations/usersettings/")
    assert listed.status_code == 200
    assert "I am ill." not in listed.text


@pytest.mark.parametrize(
    ("form", "data"),
    [
        (GeneralForm, GENERAL),
        (PersonalForm, {"custom_instructions": "Be brief."}),
        (ShortcutsForm, KEYS),
    ],
)
def test_a_page_saves_its_own_settings_only(ada: User, form: Any, data: Any):
    read_before = UserSettings.objects.for_user(ada.pk)
    UserSettings.objects.create(user=ada, account_deleted_at=timezone.now())
    filled = form(data, instance=read_before)
    assert filled.is_valid()
    filled.save()
    assert UserSettings.objects.get().account_deleted_at is not None
