"""A person who is erased leaves no byte behind but the event."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from axes.models import AccessLog
from django.apps import apps
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.core.files.base import ContentFile
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from conversations.access import account_deletion
from conversations.access.account_deletion import close_account, reopen_account
from conversations.audit.models import AuditEvent
from conversations.engine.maintenance import erasure, row_erasure
from conversations.engine.maintenance.erasure import compact
from conversations.engine.maintenance.retention import clean_up
from conversations.models import (
    AccessToken,
    Attachment,
    Conversation,
    ConversationImport,
    Folder,
    FolderFile,
    Item,
    Participant,
    Rating,
    SavedPrompt,
    SearchDocument,
    Tag,
    Turn,
)
from conversations.models.memory import Memory
from conversations.models.user_settings import UserSettings
from conversations.search.index import index_pending
from llm.models import ApiKey, CachedAnswer, ModelCall, Provider, UsageSum
from llm.pricing.usage_counting import count_all
from llm.wire.items import user_message
from tests.conversations.scene import PASSWORD, a_finished_turn, a_user, signed_in

pytestmark = pytest.mark.django_db(transaction=True)

NAME = "zoe-quimby-of-this-test"
WORD = "xylographic"  # in everything that she writes


@pytest.fixture(autouse=True)
def media(settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path / "media"
    return settings.MEDIA_ROOT


@pytest.fixture
def others():
    """Somebody whose words stay, with a conversation in which Zoe has written."""
    bob = a_user("bob")
    row = Conversation.objects.create(owner=bob, title="Of Bob")
    a_finished_turn(row, "words-of-bob", "an answer to Bob")
    return row


@pytest.fixture
def zoe(others) -> User:
    user = a_user(NAME, email=f"{NAME}@example.org", first_name=WORD)
    signed = Client(headers={"User-Agent": f"Browser {WORD}"})
    signed.post("/login/", {"username": NAME, "password": "mistyped"})
    signed.post("/login/", {"username": NAME, "password": PASSWORD})
    signed.get("/account/")
    row = Conversation.objects.create(owner=user, title=WORD, instructions=WORD)
    turn = a_finished_turn(row, f"Tell me of {WORD} things", f"The {WORD} answer")
    Rating.objects.create(turn=turn, user=user, comment=WORD, value="good")
    gone = Conversation.objects.create(owner=user, title=f"{WORD} deleted")
    a_finished_turn(gone, WORD, WORD)
    gone.delete_softly()
    for place in (row, others):
        file = Attachment(conversation=place, name=f"{WORD}.txt", size=1)
        file.uploaded_by = user
        file.file.save("a.txt", ContentFile(WORD.encode()), save=True)
    asked = others.open_turn([user_message(f"{WORD} to Bob")], author=user).turn
    Turn.objects.filter(pk=asked.pk).update(status=Turn.Status.COMPLETED)
    Participant.objects.create(
        conversation=others, user=user, name=NAME, invited_by=others.owner
    )
    Memory.objects.create(user=user, text=WORD)
    folder = Folder.objects.create(owner=user, name=WORD, instructions=WORD)
    kept = FolderFile(folder=folder, name=f"{WORD}.txt", size=1)
    kept.file.save("b.txt", ContentFile(WORD.encode()), save=True)
    Tag.objects.create(owner=user, name=WORD)
    SavedPrompt.objects.create(owner=user, name="p", title=WORD, text=WORD)
    UserSettings.objects.change(user.pk, custom_instructions=WORD)
    sent = ConversationImport(owner=user, name=f"{WORD}.json", size=1)
    sent.file.save("c.json", ContentFile(WORD.encode()), save=True)
    token = AccessToken.issue(user, f"token {WORD}")[0]
    provider = Provider.objects.create(name="Host", kind="openai")
    ApiKey.objects.create(provider=provider, owner=user, label=WORD, secret=WORD * 3)
    ModelCall.objects.create(
        turn_id=turn.pk,
        user=user,
        token_id=token.pk,
        token_label=f"token {WORD}",
        end_user=WORD,
        client_request_id=WORD,
        tags=[WORD],
        error_detail=WORD,
    )
    list(count_all())
    CachedAnswer.objects.create(
        digest="d",
        owner=user,
        answer=WORD,
        created_at=timezone.now(),
        expires_at=timezone.now() + timedelta(days=1),
    )
    list(index_pending())
    assert SearchDocument.objects.exists()
    _as_staff(user, others)
    return user


def _as_staff(user: User, others: Conversation) -> None:
    """What the admin's history and the audit log have about her."""
    root = signed_in(a_user("root", is_staff=True, is_superuser=True))
    data = {"action": "deactivate", "_selected_action": [user.pk], "confirmed": "1"}
    root.post(reverse("admin:auth_user_changelist"), data)
    LogEntry.objects.create(
        user=user,
        content_type=ContentType.objects.get_for_model(User),
        object_id=str(user.pk),
        object_repr=NAME,
        action_flag=CHANGE,
    )
    User.objects.filter(pk=user.pk).update(is_active=True)
    assert AccessLog.objects.filter(username=NAME).exists()


def stored_text() -> str:
    """All rows of all tables."""
    found = []
    for model in apps.get_models():
        with connection.cursor() as cursor:
            cursor.execute(f'SELECT * FROM "{model._meta.db_table}"')
            found += [repr(row) for row in cursor.fetchall()]
    return "\n".join(found)


def database_files() -> bytes:
    """Of SQLite: the file and its journals."""
    if connection.vendor != "sqlite":
        return b""
    path = Path(str(connection.settings_dict["NAME"]))
    return b"".join(each.read_bytes() for each in path.parent.glob(f"{path.name}*"))


def test_no_byte_is_left(zoe, others, media, caplog):
    key = zoe.pk
    before = stored_text()
    assert before.count(WORD) > 20
    assert NAME in before
    out = io.StringIO()

    with caplog.at_level("DEBUG"):
        call_command("erase_user", NAME, reason="A request by letter", stdout=out)

    after = stored_text()
    for planted in (NAME, WORD, "Browser "):
        assert planted not in after, [
            line[:200] for line in after.splitlines() if planted in line
        ]
        assert planted.encode() not in database_files()
        assert planted not in caplog.text
        assert planted not in out.getvalue()
    files = [path for path in media.rglob("*") if path.is_file()]
    assert [path.read_bytes() for path in files] == []
    event = AuditEvent.objects.get(action="person.erase")
    assert (event.target_id, event.subject) == (str(key), key)
    assert "A request by letter" in after
    assert "words-of-bob" in after
    assert "an answer to Bob" in after
    assert UsageSum.objects.filter(calls__gt=0).exists()
    report = io.StringIO()
    call_command("verify_audit", stdout=report)
    assert "texts erased" in report.getvalue()
    assert " 0 texts erased" not in report.getvalue()


def test_texts_that_vanish_without_an_erasure_are_found(zoe):
    from conversations.audit.erasure import erase_texts

    erase_texts(zoe.pk)

    with pytest.raises(CommandError):
        call_command("verify_audit", stdout=io.StringIO(), stderr=io.StringIO())


def test_staff_erase_by_an_action_with_a_reason(zoe):
    root = Client()
    root.force_login(User.objects.get(username="root"))
    address = reverse("admin:auth_user_changelist")
    data = {"action": "erase", "_selected_action": [zoe.pk], "confirmed": "yes"}

    root.post(address, data)
    assert User.objects.filter(pk=zoe.pk).exists()
    root.post(address, {**data, "reason": "A request by letter"})

    assert not User.objects.filter(pk=zoe.pk).exists()
    assert WORD not in stored_text()
    assert AuditEvent.objects.get(action="person.erase").channel == "admin"


def test_nobody_erases_without_the_permission_or_himself(zoe):
    root = User.objects.get(username="root")
    client = Client()
    client.force_login(root)
    data = {"action": "erase", "confirmed": "yes", "reason": "A request"}
    own = {**data, "_selected_action": [root.pk]}
    client.post(reverse("admin:auth_user_changelist"), own)
    assert User.objects.filter(pk=root.pk).exists()

    User.objects.filter(pk=root.pk).update(is_superuser=False)
    page = client.get(reverse("admin:auth_user_changelist"))
    assert page.status_code == 403


def test_the_last_administrator_is_not_erased():
    a_user("boss", is_superuser=True, is_staff=True)
    with pytest.raises(CommandError, match="only administrator"):
        call_command("erase_user", "boss", reason="A request")
    with pytest.raises(CommandError, match="no such user"):
        call_command("erase_user", "nobody", reason="A request")


def test_the_database_can_be_compacted():
    assert compact() == ""


# Many rows, and crashes between the batches


class Crash(Exception):
    """Of the process, in the tests."""


@contextmanager
def crash_at(number: int, words: str) -> Iterator[None]:
    """The statement of this number that begins with `words` is not executed."""
    left = number

    def execute(run: Any, sql: str, *rest: Any) -> Any:
        nonlocal left
        left -= sql.startswith(words)
        if left == 0:
            raise Crash
        return run(sql, *rest)

    with connection.execute_wrapper(execute), suppress(Crash):
        yield
    assert left <= 0, "it never came so far"


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (account_deletion, erasure, row_erasure):
        for name in ("BATCH", "ROWS", "TURNS", "FILES", "CONVERSATIONS"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, 2)


@pytest.mark.usefixtures("small_batches")
def test_a_closing_that_a_crash_broke_off_is_finished_later(zoe, others):
    rows = [Conversation.objects.create(owner=zoe) for _ in range(7)]
    of_bob = {"conversation": rows[-1], "user": others.owner, "name": "bob"}
    Participant.objects.create(**of_bob, accepted_at=timezone.now())
    visible = Conversation.objects.filter(owner=zoe, deleted_at=None)
    with crash_at(3, 'UPDATE "conversations_conversation"'):
        close_account(zoe)
    zoe.refresh_from_db()
    assert not zoe.is_active
    assert 0 < visible.count() < 7
    joined = Participant.objects.joined()
    assert not joined.filter(user=others.owner).exists()  # though it is not hidden yet
    list(clean_up())
    assert not visible.exists()
    assert not Memory.objects.filter(user=zoe, deleted_at=None).exists()
    hidden_at = set(
        Conversation.objects.filter(pk__in=[row.pk for row in rows]).values_list(
            "deleted_at", flat=True
        )
    )
    closed_at = UserSettings.objects.get(user=zoe).account_deleted_at
    assert hidden_at == {closed_at}
    User.objects.filter(pk=zoe.pk).update(is_active=True)
    assert reopen_account(zoe)
    assert set(rows) <= set(visible)
    list(clean_up())
    assert set(rows) <= set(visible)


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize(
    "words",
    [
        'UPDATE "llm_modelcall"',
        'UPDATE "conversations_turn"',
        'DELETE FROM "conversations_accesstoken"',
        'DELETE FROM "conversations_usersettings"',
        'DELETE FROM "auth_user"',
    ],
)
def test_an_erasure_goes_on_after_a_crash(zoe, others, settings, words):
    settings.DELETED_RETENTION_DAYS = 7
    for number in range(5):
        ModelCall.objects.create(user=zoe, token_label=WORD, error_detail=WORD)
        AccessToken.issue(zoe, f"{WORD} {number}")
        asked = others.open_turn([user_message(f"{WORD} {number}")], author=zoe).turn
        Turn.objects.filter(pk=asked.pk).update(status=Turn.Status.COMPLETED)
    close_account(zoe)
    long_ago = timezone.now() - timedelta(days=8)
    Conversation.objects.filter(owner=zoe).update(deleted_at=long_ago)
    UserSettings.objects.filter(user=zoe).update(account_deleted_at=long_ago)
    calls, turns = ModelCall.objects.count(), Turn.objects.filter(conversation=others)
    number_of_turns = turns.count()
    with crash_at(1 if "auth" in words or "settings" in words else 2, words):
        list(clean_up())
    assert User.objects.filter(pk=zoe.pk).exists()
    list(clean_up())
    assert not User.objects.filter(pk=zoe.pk).exists()
    assert (ModelCall.objects.count(), turns.count()) == (calls, number_of_turns)
    assert not ModelCall.objects.filter(user_id=zoe.pk).exists()
    assert not ModelCall.objects.exclude(token_label="", error_detail="").exists()
    texts = [str(item.payload) for item in Item.objects.filter(turn__in=turns)]
    assert not any(WORD in text for text in texts)
    assert any("answer to Bob" in text for text in texts)
    erased = AuditEvent.objects.filter(action="person.erase")
    assert erased.count() == 1


@pytest.mark.usefixtures("small_batches")
def test_a_broken_off_erasure_of_an_inactive_account_is_finished(zoe, settings):
    settings.DELETED_RETENTION_DAYS = 7
    for _ in range(5):
        Conversation.objects.create(owner=zoe)
    User.objects.filter(pk=zoe.pk).update(is_active=False, is_superuser=True)
    with crash_at(2, 'DELETE FROM "conversations_conversation"'):
        call_command("erase_user", NAME, reason="asked", no_compact=True)
    later = timezone.now() - timedelta(days=8)
    Conversation.objects.filter(owner=zoe).update(deleted_at=later)
    closed = UserSettings.objects.filter(user=zoe, account_deleted_at__isnull=False)
    assert closed.update(account_deleted_at=later) == 1
    list(clean_up())
    assert not User.objects.filter(pk=zoe.pk).exists()
    assert AuditEvent.objects.filter(action="person.erase").count() == 1
