"""An erasure also removes what names the person in rows that others own."""

from __future__ import annotations

import io
from datetime import timedelta
from typing import Any

import pytest
from axes.models import AccessFailureLog, AccessLog
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from conversations.access.account_deletion import close_account
from conversations.audit.models import AuditEvent
from conversations.engine.maintenance.retention import clean_up
from conversations.models import (
    Conversation,
    GatheredContext,
    Item,
    Question,
    ToolCall,
    Turn,
    UsageLimit,
)
from conversations.models.user_settings import UserSettings
from llm.models import ModelCall, ModelExchange
from llm.wire.items import user_message
from tests.conversations.policy.test_erasure import stored_text
from tests.conversations.scene import a_finished_turn, a_user, signed_in

pytestmark = pytest.mark.django_db(transaction=True)

NAME, WORD = "Zoe-Quimby", "xylographic"


@pytest.fixture
def zoe() -> User:
    a_user("root", is_staff=True, is_superuser=True)
    return a_user(NAME, email=f"{NAME}@example.org")


@pytest.fixture
def of_bob(zoe: User) -> Turn:
    """Zoe's message in a conversation of somebody else."""
    row = Conversation.objects.create(owner=a_user("bob"), title="Of Bob")
    turn = row.open_turn([user_message("Hello")], author=zoe).turn
    Turn.objects.filter(pk=turn.pk).update(status=Turn.Status.COMPLETED)
    return turn


def erase() -> str:
    call_command("erase_user", NAME, reason="A request by letter")
    return stored_text()


def note(row: Any) -> None:
    LogEntry.objects.create(
        user=User.objects.get(username="root"),
        content_type=ContentType.objects.get_for_model(row),
        object_id=str(row.pk),
        object_repr=WORD,
        action_flag=CHANGE,
    )


def test_the_admins_history_of_conversations(zoe: User):
    row = Conversation.objects.create(owner=zoe, title=WORD)
    turn = a_finished_turn(row, "Hi", "Hello")
    call = ToolCall.objects.create(turn=turn, call_id="c", name="t")
    for each in (row, turn, turn.items.first(), call):
        note(each)
    gone = UsageLimit.objects.create(user=zoe, period="day", requests=1)
    root = User.objects.get(username="root")
    LogEntry.objects.log_actions(root.pk, [gone], DELETION, single_object=True)
    gone.delete()
    assert NAME in stored_text()

    after = erase()

    assert WORD not in after
    assert NAME not in after


@pytest.mark.parametrize("typed", [NAME.lower(), NAME.upper(), f"{NAME}@example.org"])
def test_sign_ins_that_named_the_person_otherwise(zoe: User, typed: str):
    Client().post("/login/", {"username": typed, "password": "wrong"})
    assert AccessFailureLog.objects.exists()

    assert NAME.lower() not in erase().lower()


def test_a_former_name(zoe: User):
    former = "Zoe-Before-Her-Wedding"
    User.objects.filter(pk=zoe.pk).update(username=former)
    zoe.refresh_from_db()
    Client().post("/login/", {"username": former, "password": "wrong"})
    root = User.objects.get(username="root")
    limit = UsageLimit.objects.create(user=zoe, period="day", requests=1)
    LogEntry.objects.log_actions(root.pk, [limit], DELETION, single_object=True)
    limit.delete()
    zoe.username = NAME
    zoe.save()
    AccessLog.objects.create(username=former, user_agent="of the next of the name")
    assert stored_text().count(former) > 3

    [left] = [row for row in erase().split("\n") if former in row]

    assert "of the next of the name" in left


def test_words_in_answers_to_questions_of_others(zoe: User, of_bob: Turn):
    call = ToolCall.objects.create(turn=of_bob, call_id="c", name="t")
    Question.objects.create(
        tool_call=call,
        kind=Question.Kind.FORM,
        answer={"name": WORD},
        note=WORD,
        state=Question.State.ACCEPTED,
        expires_at=timezone.now(),
        decided_by=zoe,
    )

    assert WORD not in erase()
    assert Question.objects.exists()


def test_why_the_person_declined_a_call_of_others(zoe: User, of_bob: Turn):
    told = f"Error: a person declined this call: {WORD}."
    call = ToolCall.objects.create(
        turn=of_bob,
        call_id="c",
        name="t",
        state=ToolCall.State.CANCELLED,
        output=told,
        error=f"Declined by {NAME}: {WORD}.",
    )
    output = {"type": "function_call_output", "call_id": "c", "output": told}
    Item.of(of_bob, 6, output, origin=Item.Origin.OUTPUT).save()
    declined = {"kind": Question.Kind.APPROVAL, "state": Question.State.DECLINED}
    declined |= {"expires_at": timezone.now(), "decided_by": zoe}
    Question.objects.create(tool_call=call, note=WORD, **declined)
    unexplained = ToolCall.objects.create(
        turn=of_bob, call_id="d", name="t", error=f"Declined by {NAME}."
    )
    Question.objects.create(tool_call=unexplained, **declined)

    after = erase()

    assert WORD not in after
    assert NAME not in after
    assert "A person declined this call." in after


def test_the_context_and_the_notes_of_the_persons_turns(zoe: User, of_bob: Turn):
    blocks = [{"source": "crm", "title": "Of the reader", "text": WORD}]
    GatheredContext.objects.create(turn=of_bob, blocks=blocks)
    Turn.objects.filter(pk=of_bob.pk).update(notes=[{"kind": "c", "text": WORD}])

    assert WORD not in erase()


def test_a_message_that_joined_an_answer(zoe: User, of_bob: Turn):
    joined = user_message(f"And {WORD}")
    Item.of(of_bob, 5, joined, origin=Item.Origin.OUTPUT).save()
    ToolCall.objects.create(turn=of_bob, call_id="c", name="of_the_client")
    output = {"type": "function_call_output", "call_id": "c", "output": WORD}
    Item.of(of_bob, 6, output, origin=Item.Origin.INPUT).save()

    assert WORD not in erase()


def test_recorded_requests_that_repeat_the_words(zoe: User, of_bob: Turn):
    later = a_finished_turn(of_bob.conversation, "More", "Yes")
    call = ModelCall.objects.create(turn_id=later.pk, user=of_bob.conversation.owner)
    ModelExchange.objects.create(call=call, content=WORD.encode())

    erase()

    assert not ModelExchange.objects.exists()


def test_exports_of_the_audit_log_that_looked_for_the_name(zoe: User):
    root = signed_in(User.objects.get(username="root"))
    root.get("/admin/audit/auditevent/export/", {"q": NAME})

    assert NAME not in erase()


def test_an_account_that_its_owner_deleted(zoe: User, of_bob: Turn, settings: Any):
    settings.DELETED_RETENTION_DAYS = 7
    signed_in(zoe)
    close_account(zoe)
    Turn.objects.filter(pk=of_bob.pk).update(author_name=NAME)
    UserSettings.objects.update(account_deleted_at=timezone.now() - timedelta(days=8))
    assert NAME in stored_text()

    list(clean_up())

    after = stored_text()
    assert NAME not in after, [row[:300] for row in after.split("\n") if NAME in row]
    event = AuditEvent.objects.get(action="person.erase")
    assert event.subject == zoe.pk
    call_command("verify_audit", stdout=io.StringIO())
