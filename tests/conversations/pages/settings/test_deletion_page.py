"""Deleting one's own account: what ends at once, and what retention erases later."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from conversations.engine.maintenance.retention import clean_up
from conversations.models import AccessToken, Conversation, Memory, SavedPrompt, Turn
from conversations.models.user_settings import UserSettings
from llm.wire.items import user_message
from tests.conversations.scene import PASSWORD, a_user, program, signed_in

pytestmark = pytest.mark.django_db(transaction=True)

PAGE = "/account/delete/"


@pytest.fixture
def ada() -> User:
    return a_user("ada")


def test_all_ends_at_once(ada: User):
    here, there = signed_in(ada), signed_in(ada)
    there.get("/")
    api = program(ada)
    chat = Conversation.objects.create(owner=ada, title="Mine")
    chat.open_turn([user_message("Hi")])
    Memory.objects.remember(ada.pk, "Likes tea")
    SavedPrompt.objects.create(owner=ada, name="x", text="y")
    UserSettings.objects.create(user=ada, custom_instructions="Be brief.")
    answer = here.post(PAGE, {"password": PASSWORD})
    assert "Your account is deleted" in answer.text
    for client in (here, there):
        assert client.get("/").status_code == 302
    assert api.get("/api/conversations/").status_code == 401
    sign_in = {"username": "ada", "password": PASSWORD}
    assert Client().post("/login/", sign_in).status_code == 200  # the form again
    assert AccessToken.objects.get().revoked_at is not None
    assert not Conversation.objects.filter(deleted_at=None).exists()
    assert not Memory.objects.filter(deleted_at=None).exists()
    assert not SavedPrompt.objects.exists()
    assert UserSettings.objects.get().custom_instructions == ""
    assert Turn.objects.get().cancel_requested


def test_what_runs_for_the_person_in_chats_of_others_is_stopped(ada: User):
    chat = Conversation.objects.create(owner=a_user("eve"), title="Shared")
    own = chat.open_turn([user_message("Hi")]).turn
    theirs = chat.open_turn([user_message("Hi")], author=ada).turn
    signed_in(ada).post(PAGE, {"password": PASSWORD})
    own.refresh_from_db()
    theirs.refresh_from_db()
    assert (own.cancel_requested, theirs.cancel_requested) == (False, True)


@pytest.mark.parametrize("password", ["", "wrong", "correct horse\0"])
def test_a_wrong_password_deletes_nothing(ada: User, password: str):
    web = signed_in(ada)
    answer = web.post(PAGE, {"password": password})
    assert answer.status_code == 400
    ada.refresh_from_db()
    assert ada.is_active
    assert web.get("/").status_code == 200


def test_guesses_are_delayed_as_at_the_sign_in(ada: User):
    web = signed_in(ada)
    for _ in range(5):
        web.post(PAGE, {"password": "wrong"})
    answer = web.post(PAGE, {"password": PASSWORD})
    assert answer.status_code in (400, 403, 429)
    ada.refresh_from_db()
    assert ada.is_active


def test_the_last_administrator_stays(ada: User):
    ada.is_superuser = True
    ada.save()
    a_user("retired", is_superuser=True, is_active=False)
    web = signed_in(ada)
    answer = web.post(PAGE, {"password": PASSWORD})
    assert answer.status_code == 400
    assert "Make somebody else an administrator first" in answer.text
    a_user("grace", is_superuser=True)
    assert web.post(PAGE, {"password": PASSWORD}).status_code == 200


def test_who_has_no_password_types_the_name(ada: User):
    ada.set_unusable_password()
    ada.save()
    web = signed_in(ada)
    assert web.post(PAGE, {"password": "bob"}).status_code == 400
    assert web.post(PAGE, {"password": "ada"}).status_code == 200


def test_retention_erases_the_account_and_nobody_elses(ada: User, settings):
    settings.DELETED_RETENTION_DAYS = 7
    bob = a_user("bob")
    kept = Conversation.objects.create(owner=bob)
    Conversation.objects.create(owner=ada).open_turn([user_message("Hi")])
    signed_in(ada).post(PAGE, {"password": PASSWORD})
    assert list(clean_up()) == [] or User.objects.filter(pk=ada.pk).exists()
    long_ago = timezone.now() - timedelta(days=8)
    UserSettings.objects.update(account_deleted_at=long_ago)
    Conversation.objects.filter(owner=ada).update(deleted_at=long_ago)
    assert any(erased["accounts"] for erased in clean_up())
    assert list(User.objects.all()) == [bob]
    assert list(Conversation.objects.all()) == [kept]


def test_a_restored_account_is_not_erased(ada: User, settings):
    settings.DELETED_RETENTION_DAYS = 7
    signed_in(ada).post(PAGE, {"password": PASSWORD})
    UserSettings.objects.update(account_deleted_at=timezone.now() - timedelta(days=8))
    User.objects.update(is_active=True)
    list(clean_up())
    assert User.objects.filter(pk=ada.pk).exists()


@pytest.mark.parametrize("way", ["action", "form"])
def test_staff_restore_an_account_with_what_it_hid(ada: User, settings, way: str):
    settings.DELETED_RETENTION_DAYS = 7
    kept = Conversation.objects.create(owner=ada, title="Mine")
    deleted = Conversation.objects.create(owner=ada, title="Deleted before")
    deleted.delete_softly()
    Memory.objects.remember(ada.pk, "Likes tea")
    signed_in(ada).post(PAGE, {"password": PASSWORD})
    activate(ada, way)
    ada.refresh_from_db()
    assert ada.is_active
    assert list(Conversation.objects.filter(deleted_at=None)) == [kept]
    assert Memory.objects.of(ada.pk).count() == 1
    # Nor is it erased where staff end it later for another reason.
    User.objects.filter(pk=ada.pk).update(is_active=False)
    Conversation.objects.all().delete()
    UserSettings.objects.exclude(account_deleted_at=None).update(
        account_deleted_at=timezone.now() - timedelta(days=8)
    )
    list(clean_up())
    assert User.objects.filter(pk=ada.pk).exists()


@pytest.mark.parametrize("way", ["action", "form"])
def test_staff_restore_the_rest_of_an_account_that_is_active_already(
    ada: User, way: str
):
    """Earlier versions restored no chats."""
    chat = Conversation.objects.create(owner=ada, title="Mine")
    signed_in(ada).post(PAGE, {"password": PASSWORD})
    User.objects.filter(pk=ada.pk).update(is_active=True)
    activate(ada, way)
    assert list(Conversation.objects.filter(deleted_at=None)) == [chat]
    assert UserSettings.objects.get(user=ada).account_deleted_at is None


def test_a_restored_account_that_staff_deactivate_is_not_erased(ada: User, settings):
    settings.DELETED_RETENTION_DAYS = 7
    signed_in(ada).post(PAGE, {"password": PASSWORD})
    UserSettings.objects.update(account_deleted_at=timezone.now() - timedelta(days=8))
    User.objects.filter(pk=ada.pk).update(is_active=True)  # by an earlier version
    staff = signed_in(a_user("root", is_staff=True, is_superuser=True))
    ends = {"action": "deactivate", "_selected_action": [ada.pk], "confirmed": "1"}
    staff.post(reverse("admin:auth_user_changelist"), ends)
    ada.refresh_from_db()
    assert not ada.is_active
    list(clean_up())
    assert User.objects.filter(pk=ada.pk).exists()


def activate(user: User, way: str) -> None:
    staff = signed_in(a_user("root", is_staff=True, is_superuser=True))
    if way == "action":
        rows = reverse("admin:auth_user_changelist")
        staff.post(rows, {"action": "activate", "_selected_action": [user.pk]})
        return
    form = reverse("admin:auth_user_change", args=[user.pk])
    joined = timezone.localtime(user.date_joined)
    answer = staff.post(
        form,
        {
            "username": user.username,
            "is_active": "on",
            "date_joined_0": f"{joined:%Y-%m-%d}",
            "date_joined_1": f"{joined:%H:%M:%S}",
        },
    )
    assert answer.status_code == 302


def test_the_page_of_a_server_that_keeps_everything_says_so(ada: User, settings):
    settings.DELETED_RETENTION_DAYS = 0
    assert "ask an administrator to erase it" in signed_in(ada).get(PAGE).text
