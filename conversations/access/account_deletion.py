"""Deletion of an account by the person whom it belongs to.

At once the account is closed, its keys, tokens and sessions are gone, and what it has
shared opens for nobody, as its owner may not sign in. Its conversations and memories
are hidden in batches, as one transaction of all would hold up others; retention goes on
with them after a crash.
Retention erases the rows later, unless staff make the account active again.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from conversations.access.sessions import end_others
from conversations.audit.watch import one_event
from conversations.models import (
    Conversation,
    SavedPrompt,
    Turn,
    WebhookEndpoint,
)
from conversations.models.access_token import AccessToken
from conversations.models.memory import Memory
from conversations.models.policy.legal_hold import LegalHold
from conversations.models.tool_call import stop_turns
from conversations.models.user_settings import UserSettings
from llm.models import ApiKey
from tools.models import McpSignIn, McpUserSignIn

#: For so long after the closing its rows may have been hidden: earlier versions did not
#: write one and the same time to all of them.
_CLOSING = timedelta(minutes=1)
BATCH = 500  # conversations, and as many memories, that one transaction hides


class LastSuperuser(Exception):
    """The last administrator cannot be deleted."""

    message = _(
        "You are the only administrator. Make somebody else an administrator first."
    )


def close_account(user: Any) -> None:
    """Raises LastSuperuser. The user's open connections end at their next check."""
    with transaction.atomic():
        check_not_last(user)
        with one_event("account.close", target=user, subject=user):
            user.is_active = False
            user.save(update_fields=["is_active"])
            now = timezone.now()
            _delete_secrets(user, now)
    end_others(user, None)
    while _hide_batch(user.pk):
        pass


def continue_closings() -> Iterator[int]:
    """Hide what closings have left that a crash broke off. Yields numbers of rows."""
    closed = UserSettings.objects.exclude(account_deleted_at=None)
    closed = closed.filter(user__is_active=False)
    visible = Conversation.objects.filter(owner=OuterRef("user"), deleted_at=None)
    known = Memory.objects.filter(user=OuterRef("user"), deleted_at=None)
    left = closed.filter(Exists(visible) | Exists(known))
    for pk in list(left.values_list("user", flat=True)):
        while count := _hide_batch(pk):
            yield count


def is_closed(user: Any) -> bool:
    closed = UserSettings.objects.exclude(account_deleted_at=None)
    return not user.is_active and closed.filter(user=user.pk).exists()


def reopen_account(user: Any) -> bool:
    """Show again what `close_account` hid, for an account that staff have made active.
    False if it was not closed.

    Its keys, tokens and saved prompts are gone.
    """
    with transaction.atomic():
        closed_at = (
            UserSettings.objects.select_for_update()
            .filter(user=user.pk)
            .values_list("account_deleted_at", flat=True)
            .first()
        )
        if closed_at is None:
            return False
        hidden = {"deleted_at__range": (closed_at, closed_at + _CLOSING)}
        Conversation.objects.filter(owner=user, is_temporary=False, **hidden).update(
            deleted_at=None
        )
        Memory.objects.filter(user=user, **hidden).update(deleted_at=None)
        UserSettings.objects.change(user.pk, account_deleted_at=None)
    return True


def check_not_last(user: Any) -> None:
    """Raises LastSuperuser. In a transaction."""
    if not (user.is_superuser and user.is_active):
        return
    active = get_user_model()._default_manager.filter(is_superuser=True, is_active=True)
    # Locked, so that two administrators do not delete each other's last successor.
    if {row.pk for row in active.select_for_update()} <= {user.pk}:
        raise LastSuperuser


def _delete_secrets(user: Any, now: datetime) -> None:
    tokens = AccessToken.objects.filter(user=user, revoked_at=None)
    tokens.update(revoked_at=now)
    ApiKey.every.filter(owner=user.pk).delete()
    McpSignIn.objects.filter(user=user).delete()
    McpUserSignIn.objects.filter(user=user).delete()
    WebhookEndpoint.objects.filter(owner=user).delete()
    UserSettings.objects.change(user.pk, account_deleted_at=now)
    if not LegalHold.objects.filter(user=user).exists():
        UserSettings.objects.change(user.pk, custom_instructions="")
        SavedPrompt.objects.filter(owner=user).delete()


def stop_work(*, instance: Any, update_fields: Any, **_: Any) -> None:
    """A receiver of `post_save`: what a user has begun stops once the account is not
    active any more. What still runs is checked when it goes on."""
    is_written = update_fields is None or "is_active" in update_fields
    if is_written and not instance.is_active:
        stop_turns(Turn.objects.filter(author=instance))
        stop_turns(Turn.objects.filter(conversation__owner=instance))


@transaction.atomic
def _hide_batch(user_id: int) -> int:
    """Returns how many rows were left; none if the account was opened again."""
    settings = UserSettings.objects.select_for_update().filter(user=user_id).first()
    if settings is None or settings.account_deleted_at is None:
        return 0
    count = 0
    contents: tuple[QuerySet[Any], ...] = (
        Conversation.objects.filter(owner=user_id, deleted_at=None),
        Memory.objects.filter(user=user_id, deleted_at=None),
    )
    for rows in contents:
        pks = list(rows.order_by("pk").values_list("pk", flat=True)[:BATCH])
        rows.filter(pk__in=pks).update(deleted_at=settings.account_deleted_at)
        count += len(pks)
    return count
