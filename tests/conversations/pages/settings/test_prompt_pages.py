"""Saved prompts: kept by their owner, shared by groups, filled in by a form."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from conversations.models import SavedPrompt
from conversations.models.saved_prompt import fill, find_variables
from tests.conversations.scene import (
    a_model,
    a_user,
    signed_in,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scripted_host")]

PAGE = "/settings/prompts/"


@pytest.fixture
def ada() -> User:
    return a_user("ada")


@pytest.fixture
def web(ada: User) -> Client:
    a_model(is_default=True)
    return signed_in(ada)


def save(web: Client, name: str = "mail", text: str = "Answer {{mail}}.") -> int:
    assert web.post(PAGE, {"name": name, "text": text}).status_code == 302
    return SavedPrompt.objects.get(name=name).pk


def test_a_prompt_is_saved_changed_and_deleted(web: Client):
    pk = save(web)
    assert "/mail" in web.get(PAGE).text
    web.post(f"{PAGE}{pk}/", {"name": "post", "title": "Post", "text": "Hello"})
    assert "Post" in web.get(PAGE).text
    web.post(f"{PAGE}{pk}/delete/")
    assert not SavedPrompt.objects.exists()


def test_a_used_prompt_is_in_the_box_of_a_new_chat_and_not_sent(web: Client):
    pk = save(web, text="Dear {{name}},\n{{body text}}\n{{name}}")
    form = web.get(f"{PAGE}{pk}/use/")
    assert "name" in form.text
    page = web.post(f"{PAGE}{pk}/use/", {"v0": "<b>Bo", "v1": "a\r\nb"})
    assert page.status_code == 200
    assert "Dear &lt;b&gt;Bo,\na\nb\n&lt;b&gt;Bo</textarea>" in page.text


def test_a_prompt_without_variables_asks_nothing(web: Client):
    pk = save(web, text="Tell me a joke.")
    assert "Tell me a joke.</textarea>" in web.get(f"{PAGE}{pk}/use/").text


def test_a_variable_without_a_value_is_asked_for(web: Client):
    pk = save(web)
    answer = web.post(f"{PAGE}{pk}/use/", {})
    assert answer.status_code == 400
    assert "field-error" in answer.text


def test_prompts_of_others_do_not_exist(web: Client):
    pk = save(web)
    bob = signed_in(a_user("bob"))
    assert "/mail" not in bob.get(PAGE).text
    for path in (f"{PAGE}{pk}/", f"{PAGE}{pk}/use/", f"{PAGE}{pk}/delete/"):
        assert bob.post(path).status_code == 404
    assert bob.get(f"{PAGE}{pk}/").status_code == 404
    assert SavedPrompt.objects.exists()


def test_a_groups_prompt_is_used_but_not_changed_by_its_members(web: Client, ada: User):
    group = Group.objects.create(name="Sales")
    row = SavedPrompt.objects.create(group=group, name="offer", text="Write an offer.")
    assert "/offer" not in web.get(PAGE).text
    ada.groups.add(group)
    assert "/offer" in web.get(PAGE).text
    assert "Write an offer." in web.get(f"{PAGE}{row.pk}/use/").text
    assert web.post(f"{PAGE}{row.pk}/delete/").status_code == 404
    assert web.post(f"{PAGE}{row.pk}/", {"name": "x", "text": "y"}).status_code == 404


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"name": "mail", "text": "Again"}, "of this name already"),
        ({"name": "two words", "text": "x"}, "no spaces"),
        ({"name": "x", "text": "x" * 20_001}, "at most 20000"),
        ({"name": "x", "text": " ".join(f"{{{{v{n}}}}}" for n in range(21))}, "20"),
        ({"name": "x", "text": "\0"}, "Null"),
        ({"name": "x"}, "required"),
    ],
)
def test_a_wrong_prompt_is_refused_with_what_to_do(
    web: Client, fields: dict[str, str], sentence: str
):
    save(web)
    answer = web.post(PAGE, fields)
    assert answer.status_code == 400
    assert sentence in answer.text
    assert SavedPrompt.objects.count() == 1


def test_staff_edit_prompts_of_groups_and_see_no_others(web: Client):
    pk = save(web, text="My secret worry")
    boss = signed_in(a_user("boss", is_staff=True, is_superuser=True))
    listed = boss.get("/admin/conversations/savedprompt/")
    assert listed.status_code == 200
    assert ">mail</a>" not in listed.text
    change = boss.get(f"/admin/conversations/savedprompt/{pk}/change/")
    assert "My secret worry" not in change.text
    group = Group.objects.create(name="Sales")
    fields = {"group": group.pk, "name": "offer", "title": "", "text": "Offer {{x}}"}
    boss.post("/admin/conversations/savedprompt/add/", fields)
    assert SavedPrompt.objects.get(group=group).variables == ["x"]
    del fields["group"]
    refused = boss.post("/admin/conversations/savedprompt/add/", fields)
    assert refused.status_code == 200
    assert SavedPrompt.objects.count() == 2


@given(st.text(alphabet="{} ab\n", max_size=40), st.text(max_size=10))
def test_values_are_not_searched_for_variables(text: str, value: str):
    names = find_variables(text)
    marker = "{{a}}" + value
    filled = fill(text, dict.fromkeys(names, marker))
    assert filled.count(marker) >= len(names)
    assert fill(text, {}) == text
