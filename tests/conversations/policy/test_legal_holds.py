"""While a legal hold stands, nothing that it covers is erased, by any way."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, User
from django.core.files.base import ContentFile
from django.core.management import CommandError, call_command
from django.db.models import ProtectedError
from django.urls import reverse
from django.utils import timezone

from conversations.access.account_deletion import close_account
from conversations.audit.models import AuditEvent
from conversations.engine.maintenance.retention import clean_up, erase_temporary
from conversations.gateway import stored_rows
from conversations.models import (
    AccessToken,
    AnsweredRequest,
    Attachment,
    Conversation,
    Folder,
    FolderFile,
    Item,
    LegalHold,
    LoggedRequest,
    Question,
    RetentionRule,
    SavedPrompt,
    ToolCall,
    Turn,
)
from conversations.models.memory import Memory
from conversations.models.user_settings import UserSettings
from llm.models import ModelCall, ModelExchange
from tests.conversations.scene import (
    a_finished_turn,
    a_user,
    program,
    signed_in,
    staff,
)

pytestmark = pytest.mark.django_db

OLD = timezone.now() - timedelta(days=400)


@pytest.fixture(autouse=True)
def media(settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path
    settings.RETENTION_DAYS = 30
    return tmp_path


@pytest.fixture
def ada() -> User:
    return a_user("ada")


def a_deleted_conversation(owner: User) -> Conversation:
    row = Conversation.objects.create(owner=owner)
    turn = a_finished_turn(row)
    ModelCall.objects.create(turn_id=turn.pk, user=owner, error_detail="words")
    ModelCall.objects.update(created_at=OLD)
    file = Attachment(conversation=row, name="a.txt", size=1)
    file.file.save("a.txt", ContentFile(b"x"), save=True)
    Memory.objects.create(user=owner, text="tea", deleted_at=OLD)
    row.delete_softly()
    Conversation.objects.filter(pk=row.pk).update(deleted_at=OLD, updated_at=OLD)
    return row


def counts() -> dict[str, int]:
    models = (Conversation, Turn, Item, Attachment, Memory, ModelCall)
    return {model.__name__: model._base_manager.count() for model in models}


def test_retention_erases_nothing_of_a_held_person(ada, media):
    a_deleted_conversation(ada)
    before = counts()
    hold = LegalHold.objects.create(user=ada, reason="Case 1")

    list(clean_up())
    list(erase_temporary())

    assert counts() == before
    assert len([path for path in media.rglob("*") if path.is_file()]) == 1

    hold.delete()
    list(clean_up())
    assert set(counts().values()) == {0}


def test_a_hold_of_one_conversation_holds_no_other(ada):
    held, other = a_deleted_conversation(ada), a_deleted_conversation(ada)
    LegalHold.objects.create(conversation=held, reason="Case 1")

    list(clean_up())

    assert list(Conversation.objects.values_list("pk", flat=True)) == [held.pk]
    assert Turn.objects.filter(conversation=held).exists()
    assert not Turn.objects.filter(conversation=other).exists()


def test_a_temporary_conversation_and_a_deleted_branch_stay(ada):
    row = Conversation.objects.create(owner=ada, is_temporary=True)
    turn = a_finished_turn(row)
    Conversation.objects.update(created_at=OLD)
    Turn.objects.filter(pk=turn.pk).update(deleted_at=OLD)
    LegalHold.objects.create(user=ada, reason="Case 1")

    list(erase_temporary())
    list(clean_up())

    assert Turn.objects.filter(pk=turn.pk).exists()


def test_a_rule_of_retention_passes_over_what_is_held(ada):
    group = Group.objects.create(name="Sales")
    bob = a_user("bob")
    for user in (ada, bob):
        user.groups.add(group)
        a_finished_turn(Conversation.objects.create(owner=user))
    Conversation.objects.update(updated_at=OLD)
    fresh = Conversation.objects.create(owner=bob)
    other = Conversation.objects.create(owner=a_user("carol"))
    Conversation.objects.filter(pk=other.pk).update(updated_at=OLD)
    RetentionRule.objects.create(group=group, days=90)
    LegalHold.objects.create(user=ada, reason="Case 1")

    list(clean_up())

    left = set(Conversation.objects.values_list("owner__username", flat=True))
    assert left == {"ada", "bob", "carol"}
    assert list(bob.conversations.all()) == [fresh]
    assert AuditEvent.objects.filter(action="retention.erase").count() == 1


def test_the_shortest_rule_counts_and_a_running_turn_waits(ada):
    for name, days in (("Long", 300), ("Short", 30)):
        group = Group.objects.create(name=name)
        ada.groups.add(group)
        RetentionRule.objects.create(group=group, days=days)
    idle, busy = (Conversation.objects.create(owner=ada) for _ in range(2))
    turn = a_finished_turn(busy)
    Turn.objects.filter(pk=turn.pk).update(status=Turn.Status.RUNNING)
    Conversation.objects.update(updated_at=timezone.now() - timedelta(days=60))

    list(clean_up())

    assert list(Conversation.objects.all()) == [busy]
    assert not Conversation.objects.filter(pk=idle.pk).exists()


def test_an_account_that_is_closed_keeps_its_words(ada):
    SavedPrompt.objects.create(owner=ada, name="p", text="words")
    UserSettings.objects.change(ada.pk, custom_instructions="words")
    LegalHold.objects.create(user=ada, reason="Case 1")

    close_account(ada)
    UserSettings.objects.update(account_deleted_at=OLD)
    list(clean_up())

    assert SavedPrompt.objects.get().text == "words"
    assert UserSettings.objects.get().custom_instructions == "words"
    assert User.objects.filter(pk=ada.pk).exists()


def test_a_response_deleted_over_the_gateway_is_hidden_and_kept(ada):
    row = Conversation.objects.create(owner=ada)
    first, second = a_finished_turn(row), a_finished_turn(row)
    LegalHold.objects.create(conversation=row, reason="Case 1")
    token = AccessToken.issue(ada, "t")[0]

    stored_rows.delete(first.pk, token)

    kept = Turn.objects.get(pk=first.pk)
    assert kept.deleted_at is not None
    assert kept.items.exists()
    assert Turn.objects.get(pk=second.pk).deleted_at is None


@pytest.mark.django_db(transaction=True)
def test_the_owner_deletes_nothing_for_good(ada):
    folder = Folder.objects.create(owner=ada, name="F")
    file = FolderFile(folder=folder, name="f.txt", size=1)
    file.file.save("f.txt", ContentFile(b"x"), save=True)
    prompt = SavedPrompt.objects.create(owner=ada, name="p", text="words")
    LegalHold.objects.create(user=ada, reason="Case 1")
    web, api = signed_in(ada), program(ada)

    refused = [
        web.post(reverse("delete-folder", args=[folder.pk])),
        api.delete(f"/api/folders/{folder.pk}/"),
        api.delete(f"/api/folders/{folder.pk}/files/{file.pk}/"),
        api.delete(f"/api/prompts/{prompt.pk}/"),
    ]

    assert [answer.status_code for answer in refused] == [409] * 4
    assert refused[1].json()["error"]["code"] == "legal_hold"
    assert "cannot be deleted now" in refused[0].content.decode()
    assert (FolderFile.objects.count(), SavedPrompt.objects.count()) == (1, 1)


@pytest.mark.django_db(transaction=True)
def test_staff_delete_nothing_that_is_held(ada):
    row = Conversation.objects.create(owner=ada)
    turn = a_finished_turn(row)
    LegalHold.objects.create(user=ada, reason="Case 1")
    root = signed_in(a_user("root", is_staff=True, is_superuser=True))
    for each in (row, turn, *turn.items.all()):
        name = f"admin:conversations_{each._meta.model_name}_delete"
        answer = root.post(reverse(name, args=[each.pk]), {"post": "yes"})
        assert answer.status_code in (302, 403, 409)
    listed = reverse("admin:conversations_item_changelist")
    chosen = list(turn.items.values_list("pk", flat=True))
    data = {"action": "delete_selected", "_selected_action": chosen, "post": "yes"}
    root.post(listed, data)
    root.post(reverse("admin:auth_user_delete", args=[ada.pk]), {"post": "yes"})

    assert turn.items.count() == 2
    with pytest.raises(ProtectedError):
        ada.delete()
    with pytest.raises(CommandError, match="legal hold"):
        call_command("erase_user", "ada", reason="Asked")
    assert User.objects.filter(pk=ada.pk, is_active=True).exists()


def test_a_hold_is_set_and_lifted_with_a_reason_and_recorded(ada):
    client = signed_in(
        staff("lawyer", "add_legalhold", "delete_legalhold", "view_legalhold")
    )
    address = reverse("admin:conversations_legalhold_add")
    assert client.post(address, {"user": ada.pk, "reason": ""}).status_code == 200
    both = {"user": ada.pk, "conversation": "x", "reason": "Case 1"}
    assert client.post(address, both).status_code == 200
    assert client.post(address, {"reason": "Case 1"}).status_code == 200
    client.post(address, {"user": ada.pk, "reason": "Case 1"})
    hold = LegalHold.objects.get()
    assert hold.created_by.username == "lawyer"

    listed = reverse("admin:conversations_legalhold_changelist")
    data = {"action": "lift", "_selected_action": [hold.pk], "confirmed": "yes"}
    client.post(listed, data)
    assert LegalHold.objects.exists()  # without a reason
    client.post(listed, {**data, "reason": "Case closed"})

    assert not LegalHold.objects.exists()
    events = AuditEvent.objects.filter(target_type="conversations.legalhold")
    actions = list(events.order_by("id").values_list("action", flat=True))
    assert actions == ["hold.set", "hold.lift"]
    assert set(events.values_list("subject", flat=True)) == {ada.pk}


def test_who_may_not_set_holds_does_not(ada):
    client = signed_in(staff("clerk", "view_legalhold"))
    address = reverse("admin:conversations_legalhold_add")
    assert client.post(address, {"user": ada.pk, "reason": "x"}).status_code == 403


def test_requests_of_a_held_users_tokens_stay(ada):
    bob = a_user("bob")
    for user in (ada, bob):
        token = AccessToken.issue(user, "test")[0]
        AnsweredRequest.objects.create(
            token=token, key="k", fingerprint="f", created_at=OLD
        )
        LoggedRequest.objects.create(
            token=token, method="POST", path="/v1/responses", seconds=1, created_at=OLD
        )
    hold = LegalHold.objects.create(user=ada, reason="A case")
    list(clean_up())
    for model in (AnsweredRequest, LoggedRequest):
        assert [row.token.user for row in model.objects.all()] == [ada]
    hold.delete()
    list(clean_up())
    assert not AnsweredRequest.objects.exists()
    assert not LoggedRequest.objects.exists()


def a_message(user: User, turn: Turn) -> None:
    Turn.objects.filter(pk=turn.pk).update(author=user)


def a_file(user: User, turn: Turn) -> None:
    row = Attachment(
        conversation=turn.conversation, uploaded_by=user, name="a.txt", size=1
    )
    row.file.save("a.txt", ContentFile(b"x"), save=True)


def an_answer(user: User, turn: Turn) -> None:
    call = ToolCall.objects.create(turn=turn, call_id="c", name="t")
    Question.objects.create(
        tool_call=call,
        kind=Question.Kind.FORM,
        answer={"city": "Bergen"},
        state=Question.State.ACCEPTED,
        expires_at=OLD,
        decided_by=user,
    )


def contents() -> list[object]:
    items = Item.objects.order_by("pk").values_list("payload", "turn__author")
    answers = Question.objects.values_list("answer", "decided_by")
    files = Attachment.objects.values_list("pk", "uploaded_by")
    return [*items, *answers, *files, ModelExchange.objects.count()]


@pytest.mark.parametrize("held", ["conversation", "user"])
@pytest.mark.parametrize("leave", [a_message, a_file, an_answer])
def test_words_in_a_held_conversation_of_another_outlast_an_erasure(
    ada, held: str, leave: Callable[[User, Turn], None]
):
    row = Conversation.objects.create(owner=a_user("bob"))
    turn = a_finished_turn(row)
    leave(ada, turn)
    call = ModelCall.objects.create(turn_id=turn.pk, user=row.owner)
    ModelExchange.objects.create(call=call, content=b"words")
    of_what = {"conversation": row} if held == "conversation" else {"user": row.owner}
    hold = LegalHold.objects.create(reason="Case 1", **of_what)
    own = Conversation.objects.create(owner=ada)
    before = contents()

    with pytest.raises(CommandError, match="legal hold"):
        call_command("erase_user", "ada", reason="Asked", no_compact=True)

    assert contents() == before
    assert Conversation.objects.filter(pk=own.pk).exists()
    assert User.objects.filter(pk=ada.pk, is_active=True).exists()
    hold.delete()
    call_command("erase_user", "ada", reason="Asked", no_compact=True)
    assert not User.objects.filter(pk=ada.pk).exists()


@pytest.mark.parametrize("of", ["conversation", "user"])
def test_stored_requests_of_a_conversation_under_a_hold_stay(ada, settings, of: str):
    settings.EXCHANGE_RETENTION_DAYS = 7
    row = Conversation.objects.create(owner=a_user("bob"))
    turn = a_finished_turn(row)
    for turn_id in (turn.pk, ""):
        call = ModelCall.objects.create(turn_id=turn_id, user=ada)
        ModelExchange.objects.create(call=call, content=b"words")
    ModelExchange.objects.update(created_at=OLD)
    ModelCall.objects.update(created_at=OLD)
    target = {"conversation": row} if of == "conversation" else {"user": row.owner}
    hold = LegalHold.objects.create(reason="Case 1", **target)

    list(clean_up())

    assert ModelExchange.objects.get().call.turn_id == turn.pk
    hold.delete()
    list(clean_up())
    assert not ModelCall.objects.exists()


def test_retention_passes_over_the_account_of_who_wrote_under_a_hold_of_another(ada):
    turn = a_finished_turn(Conversation.objects.create(owner=a_user("bob")))
    a_message(ada, turn)
    LegalHold.objects.create(conversation=turn.conversation, reason="Case 1")
    close_account(ada)
    UserSettings.objects.update(account_deleted_at=OLD)
    before = contents()

    list(clean_up())

    assert contents() == before
    assert User.objects.filter(pk=ada.pk).exists()
