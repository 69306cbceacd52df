"""What is erased and what stays, over real rows and files."""

from __future__ import annotations

import io
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest
from axes.models import AccessFailureLog, AccessLog
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.sessions.models import Session
from django.core.files.base import ContentFile
from django.core.management import call_command
from django.utils import timezone

from conversations.engine.maintenance import row_erasure
from conversations.engine.maintenance.retention import clean_up
from conversations.models import (
    AccessToken,
    Attachment,
    Conversation,
    IdempotencyKey,
    Item,
    Turn,
)
from conversations.models.ledger import Balance, LedgerEntry
from conversations.models.memory import Memory
from conversations.turns.file_deletion import delete_noted
from llm.models import ModelCall, UsageSum
from project.accounts.models import Invitation
from tests.conversations.scene import a_finished_turn, a_user

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def media(settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path
    return tmp_path


@pytest.fixture
def ada():
    return a_user("ada")


def ago(days: float):
    return timezone.now() - timedelta(days=days)


def a_conversation(owner, *, deleted: float | None, turns: int = 2) -> Conversation:
    """With a file, turns and a provider call of each."""
    conversation = Conversation.objects.create(owner=owner)
    for _ in range(turns):
        turn = a_finished_turn(conversation)
        a_call(turn_id=turn.pk, error_detail="You said: Hi")
    attachment = Attachment(conversation=conversation, name="a.txt", size=1)
    attachment.file.save("a.txt", ContentFile(b"x"), save=True)
    if deleted is not None:
        conversation.delete_softly()
        Conversation.objects.filter(pk=conversation.pk).update(deleted_at=ago(deleted))
    return conversation


def a_call(age: float = 0, **fields) -> ModelCall:
    call = ModelCall.objects.create(
        provider_name="p", model_name="m", status="failed", cost=1, **fields
    )
    ModelCall.objects.filter(pk=call.pk).update(created_at=ago(age))
    return call


def files(media: Path) -> list[Path]:
    return [path for path in media.rglob("*") if path.is_file()]


def erased() -> Counter[str]:
    found = sum(clean_up(), Counter())
    list(delete_noted())  # these tests commit nothing, after which it would happen
    return found


def test_a_conversation_is_erased_when_its_time_is_over(ada, media):
    expired = a_conversation(ada, deleted=31)
    retained = a_conversation(ada, deleted=29)
    live = a_conversation(ada, deleted=None)
    assert erased() == Counter(files=1, turns=2, conversations=1)
    assert set(Conversation.objects.all()) == {retained, live}
    assert not Turn.objects.filter(conversation=expired.pk).exists()
    assert Item.objects.count() == 8
    assert len(files(media)) == 2


def test_the_second_time_there_is_nothing_to_erase(ada):
    a_conversation(ada, deleted=31)
    erased()
    assert erased() == Counter()


def test_the_accounts_stay_without_the_providers_words(ada):
    a_conversation(ada, deleted=31, turns=1)
    erased()
    call = ModelCall.objects.get()
    assert (call.error_detail, call.cost) == ("", 1)


def test_zero_days_means_no_erasure(ada, settings):
    settings.DELETED_RETENTION_DAYS = 0
    a_conversation(ada, deleted=3650)
    a_memory(ada, deleted=3650)
    a_call(age=3650)
    assert erased() == Counter()


def a_memory(owner, *, deleted: float | None) -> Memory:
    memory = Memory.objects.remember(owner.pk, f"likes {Memory.objects.count()}")
    Memory.objects.filter(pk=memory.pk).update(
        deleted_at=None if deleted is None else ago(deleted)
    )
    return memory


def test_forgotten_memories_are_erased(ada):
    a_memory(ada, deleted=31)
    retained = {a_memory(ada, deleted=29), a_memory(ada, deleted=None)}
    assert erased() == Counter(memories=1)
    assert set(Memory.objects.all()) == retained


def test_model_call_rows_are_erased_where_configured(settings):
    a_call(age=91)
    retained = a_call(age=89)
    settings.RETENTION_DAYS = 90
    assert erased() == Counter({"model calls": 1})
    assert ModelCall.objects.get() == retained
    sums = UsageSum.objects.filter(level="").values_list("calls", flat=True)
    assert list(sums.order_by("day")) == [1, 1]  # of the erased one too


def test_keys_of_requests_and_sessions_are_erased(ada):
    turn = a_finished_turn(Conversation.objects.create(owner=ada))
    for number, days in enumerate((8, 6)):
        key = IdempotencyKey.objects.create(
            user=ada, key=f"k{number}", fingerprint="f", turn=turn
        )
        IdempotencyKey.objects.filter(pk=key.pk).update(created_at=ago(days))
    for name, days in (("old", 1), ("new", -1)):
        Session.objects.create(session_key=name, expire_date=ago(days))
    assert erased() == Counter({"idempotency keys": 1, "sessions": 1})
    assert IdempotencyKey.objects.get().key == "k1"
    assert Session.objects.get().session_key == "new"


def test_records_of_attempts_to_sign_in_are_erased():
    for days in (91, 89):
        for attempts in (AccessLog, AccessFailureLog):
            row = attempts.objects.create(username=f"{days}", ip_address="192.0.2.7")
            attempts.objects.filter(pk=row.pk).update(attempt_time=ago(days))
    assert erased() == Counter({"sign-in attempts": 2})
    assert AccessLog.objects.get().username == "89"


def test_closed_entries_of_the_ledger_are_erased_and_sums_stay(ada):
    token, _ = AccessToken.issue(ada, "test")
    balance = Balance.objects.create(token=token, period="total", spent=7)
    for state, days in (("settled", 31), ("settled", 29), ("reserved", 31)):
        LedgerEntry.objects.create(
            balance=balance, state=state, amount=7, deadline=ago(days)
        )
    assert erased() == Counter({"ledger entries": 1})
    assert Balance.objects.get().spent == 7


def test_it_goes_on_where_it_was_broken_off(ada, media, monkeypatch):
    for part in ("FILES", "TURNS", "CONVERSATIONS"):
        monkeypatch.setattr(row_erasure, part, 1)
    for _ in range(2):
        a_conversation(ada, deleted=31)
    for _ in range(3):
        assert next(clean_up())
    assert 0 < Turn.objects.count() < 4
    assert erased()["conversations"] == 2
    assert not Turn.objects.exists()
    assert files(media) == []


def test_an_already_missing_file_stops_no_erasure(ada, media):
    a_conversation(ada, deleted=31)
    for path in files(media):
        path.unlink()
    assert erased()["conversations"] == 1


def test_the_command_prints_what_it_erased(ada):
    a_conversation(ada, deleted=31)
    assert command() == [
        "erased conversations: 1",
        "erased files: 1",
        "erased turns: 2",
    ]
    assert command() == ["There was nothing to erase."]


def command() -> list[str]:
    out = io.StringIO()
    call_command("clean_up", stdout=out)
    return out.getvalue().splitlines()


def test_invitations_end_after_they_have_expired(ada):
    now = timezone.now()
    for name, days, accepted in (("a", -31, None), ("b", -31, now), ("c", -29, None)):
        Invitation.objects.create(
            email=f"{name}@example.org",
            expires_at=now + timedelta(days=days),
            accepted_at=accepted,
        )
    assert erased()["invitations"] == 2
    assert Invitation.objects.get().email == "c@example.org"


def test_the_admins_history_is_as_old_as_the_audit_log(ada, settings):
    LogEntry.objects.log_actions(ada.pk, [ada], CHANGE, single_object=True)
    LogEntry.objects.update(action_time=timezone.now() - timedelta(days=366))
    LogEntry.objects.log_actions(ada.pk, [ada], CHANGE, single_object=True)
    assert "entries of the admin's history" not in erased()
    settings.AUDIT_RETENTION_DAYS = 365
    assert erased()["entries of the admin's history"] == 1
    assert LogEntry.objects.count() == 1
