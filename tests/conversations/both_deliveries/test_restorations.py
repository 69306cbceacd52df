"""Accounts and branches that are restored while retention erases expired ones."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from django.conf import settings as django_settings
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.utils import timezone

from conversations.access.account_deletion import close_account, reopen_account
from conversations.engine.maintenance.retention import clean_up
from conversations.models import Conversation, Turn, UserSettings
from conversations.turns import branches
from llm.wire.items import user_message
from tests.conversations.scene import a_user

pytestmark = [
    pytest.mark.skipif(not django_settings.IS_SCALED, reason="SQLite has one writer"),
    pytest.mark.django_db(transaction=True),
]

_WAITS = """
SELECT EXISTS (SELECT FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock')
"""


def test_an_account_that_is_being_restored_is_not_erased(settings):
    settings.DELETED_RETENTION_DAYS = 7
    ada = a_user("ada")
    chat = Conversation.objects.create(owner=ada)
    turn = chat.open_turn([user_message("Hi")]).turn
    Turn.objects.update(status=Turn.Status.COMPLETED)
    close_account(ada)
    long_ago = timezone.now() - timedelta(days=8)
    UserSettings.objects.update(account_deleted_at=long_ago)
    Conversation.objects.filter(pk=chat.pk).update(deleted_at=long_ago)
    erasing = threading.Thread(target=_erase)
    with transaction.atomic():
        User.objects.filter(pk=ada.pk).update(is_active=True)
        reopen_account(ada)
        erasing.start()
        while erasing.is_alive() and not is_anybody_waiting():
            erasing.join(0.02)
    erasing.join()
    assert User.objects.filter(pk=ada.pk, is_active=True).exists()
    assert Turn.objects.filter(pk=turn.pk, conversation__deleted_at=None).exists()


def test_a_branch_that_is_being_restored_is_not_erased(settings):
    settings.DELETED_RETENTION_DAYS = 7
    chat, branch = a_deleted_branch()
    erasing = threading.Thread(target=_erase)
    with transaction.atomic():
        assert branches.restore_branch(branch)
        erasing.start()
        while erasing.is_alive() and not is_anybody_waiting():
            erasing.join(0.02)
    erasing.join()
    assert chat.turns.not_deleted().count() == 2


def test_a_branch_that_is_erased_by_now_is_not_restored(settings):
    settings.DELETED_RETENTION_DAYS = 7
    chat, branch = a_deleted_branch()
    list(clean_up())
    assert not branches.restore_branch(branch)
    assert chat.turns.count() == 1


def a_deleted_branch() -> tuple[Conversation, Turn]:
    """Of eight days ago."""
    chat = Conversation.objects.create(owner=a_user("ada"))
    for _ in range(2):
        branch = chat.open_turn([user_message("Hi")]).turn
        Turn.objects.update(status=Turn.Status.COMPLETED)
    branches.delete_branch(branch)
    long_ago = timezone.now() - timedelta(days=8)
    Turn.objects.filter(pk=branch.pk).update(deleted_at=long_ago)
    return chat, Turn.objects.get(pk=branch.pk)


def _erase() -> None:
    try:
        list(clean_up())
    finally:
        connection.close()


def is_anybody_waiting() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(_WAITS)
        return bool(cursor.fetchone()[0])
