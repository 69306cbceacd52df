"""Erase expired rows and files, in small batches that hold locks only briefly.

Deleted conversations, branches and memories are erased after
`DELETED_RETENTION_DAYS`, records of provider calls after `RETENTION_DAYS`,
conversations of a group's members by its rule. What a legal hold covers stays. The work
may be interrupted at any moment and repeated, also by two processes at once.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from axes.models import AccessFailureLog, AccessLog
from django.conf import settings
from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model
from django.contrib.sessions.models import Session
from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from conversations.access.account_deletion import continue_closings
from conversations.audit.record import record_event
from conversations.engine.maintenance.erasure import erase_user
from conversations.engine.maintenance.row_erasure import (
    TURNS,
    erase_conversations,
    erase_turns,
)
from conversations.models import (
    AnsweredRequest,
    CacheEntry,
    Conversation,
    Delivery,
    IdempotencyKey,
    LedgerEntry,
    LoggedRequest,
    SignedInSession,
    Turn,
    UnderLegalHold,
    WebhookEndpoint,
)
from conversations.models.idempotency_key import IDEMPOTENCY_DAYS
from conversations.models.memory import Memory
from conversations.models.policy.legal_hold import exclude_held, of_held_conversation
from conversations.models.policy.retention_rule import RetentionRule
from llm.models import CachedAnswer, ModelCall, ModelExchange
from llm.pricing.usage_counting import count_all

LEDGER_DAYS = 30  # that closed ledger entries are kept
SIGN_IN_DAYS = 90  # that attempts to sign in are kept
TEMPORARY_AGE = timedelta(hours=24)  # of a temporary conversation, at most
BATCH = 500  # rows without dependents, per transaction
Expired: TypeAlias = tuple[str, QuerySet[Any]]
_OWN_DELETION = "The owner deleted the account."  # in the audit log
_HELD = of_held_conversation("pk", "owner")
_TURN_HELD = of_held_conversation("conversation", "conversation__owner")


def clean_up() -> Iterator[Counter[str]]:
    """Erase everything that has expired, one transaction per step.

    Yields the number of erased rows by kind. Synchronous.
    """
    for count in continue_closings():
        yield Counter({"rows of closed accounts, hidden": count})
    while erased := _erase_conversation_batch():
        yield erased
    yield from _apply_rules()
    while erased := _erase_branch_batch():
        yield erased
    for name, expired in _expired_rows():
        while count := _erase_batch(expired):
            yield Counter({name: count})
    yield from _erase_closed_accounts()
    if count := WebhookEndpoint.objects.forget_previous_secrets():
        yield Counter({"old secrets of webhooks": count})


@transaction.atomic
def _erase_conversation_batch() -> Counter[str]:
    """Erase files first, then turns, then conversations, so that an interruption leaves
    no row without its conversation."""
    if (before := _cutoff(settings.DELETED_RETENTION_DAYS)) is None:
        return Counter()
    rows = Conversation.objects.filter(deleted_at__lt=before).order_by("deleted_at")
    return erase_conversations(_unlocked(rows.exclude(_HELD)))


def _apply_rules() -> Iterator[Counter[str]]:
    """Erase old conversations of the members of groups with a rule of retention."""
    running = Turn.objects.not_finished().filter(conversation=OuterRef("pk"))
    for rule in RetentionRule.objects.order_by("days"):
        rows = Conversation.objects.filter(
            ~Exists(running),
            owner__groups=rule.group_id,
            updated_at__lt=timezone.now() - timedelta(days=rule.days),
        ).exclude(_HELD)
        count = 0
        while erased := _erase_rule_batch(rows.order_by("updated_at")):
            count += erased["conversations"]
            yield erased
        if count:
            details = {"conversations": count, "days": rule.days}
            record_event("retention.erase", target=rule, details=details)


@transaction.atomic
def _erase_rule_batch(rows: QuerySet[Conversation]) -> Counter[str]:
    return erase_conversations(_unlocked(rows))


def erase_temporary() -> Iterator[Counter[str]]:
    """Erase temporary conversations whose session has ended, or that are a day old.
    Yields as `clean_up`."""
    before = timezone.now() - TEMPORARY_AGE
    old = Conversation.objects.filter(is_temporary=True, created_at__lt=before)
    for row in old.filter(deleted_at=None).iterator(chunk_size=BATCH):
        row.delete_softly()  # stops what still runs
    ended = Conversation.objects.filter(is_temporary=True, deleted_at__isnull=False)
    running = Turn.objects.not_finished().filter(conversation=OuterRef("pk"))
    rows = ended.filter(~Exists(running)).exclude(_HELD).order_by("created_at")
    while erased := _erase_temporary_batch(rows):
        yield erased


@transaction.atomic
def _erase_temporary_batch(rows: QuerySet[Conversation]) -> Counter[str]:
    return erase_conversations(_unlocked(rows))


def _unlocked(rows: QuerySet[Conversation]) -> QuerySet[Conversation]:
    """Those that nothing changes at this moment, as a restoration does. They are
    locked: rows without running turns, whose end would wait for the lock."""
    return rows.select_for_update(of=("self",), skip_locked=True)


@transaction.atomic
def _erase_branch_batch() -> Counter[str]:
    """Erase turns of deleted branches, newest first: no turn loses its parent."""
    if (before := _cutoff(settings.DELETED_RETENTION_DAYS)) is None:
        return Counter()
    turns = Turn.objects.filter(deleted_at__lt=before).exclude(_TURN_HELD)
    turns = turns.order_by("-created_at", "-id")
    found = dict(turns.values_list("pk", "conversation_id")[:TURNS])
    # A conversation that is locked may just get a branch back.
    free = Conversation.objects.filter(pk__in=set(found.values()))
    free = free.select_for_update(skip_locked=True, no_key=True)
    locked = list(free.values_list("pk", flat=True))
    still_deleted = turns.filter(pk__in=list(found), conversation__in=locked)
    pks = list(still_deleted.values_list("pk", flat=True))
    return Counter({"turns": erase_turns(pks)} if pks else {})


#: What other apps erase, as `_expired_rows` has it.
_further_rows: list[Callable[[], Expired]] = []


def add_expired_rows(find: Callable[[], Expired]) -> None:
    """For apps above this one: also erase the rows that `find` gives."""
    _further_rows.append(find)


def _expired_rows() -> Iterator[tuple[str, QuerySet[Any]]]:
    """Querysets of expired rows that have no dependent files or turns, by name."""
    keys_before = _cutoff(IDEMPOTENCY_DAYS)
    yield "idempotency keys", IdempotencyKey.objects.filter(created_at__lt=keys_before)
    day_ago = timezone.now() - timedelta(days=1)
    answered = AnsweredRequest.objects.filter(created_at__lt=day_ago)
    yield "answered requests", exclude_held(answered, "token__user")
    logged = LoggedRequest.objects.expired()
    yield "logged requests", exclude_held(logged, "token__user")
    yield "deliveries", Delivery.objects.expired()
    # `Balance` rows hold the sums, so closed entries can go.
    closed = LedgerEntry.objects.exclude(state=LedgerEntry.State.RESERVED)
    yield "ledger entries", closed.filter(deadline__lt=_cutoff(LEDGER_DAYS))
    for attempts in (AccessLog, AccessFailureLog):
        old = attempts.objects.filter(attempt_time__lt=_cutoff(SIGN_IN_DAYS))
        yield "sign-in attempts", old
    counts = CacheEntry.objects.filter(expires__lt=timezone.now())
    yield "counts of attempts", counts
    unused = timezone.now() - timedelta(seconds=settings.SESSION_COOKIE_AGE)
    yield "session records", SignedInSession.objects.filter(last_used_at__lt=unused)
    yield "sessions", Session.objects.filter(expire_date__lt=timezone.now())
    if before := _cutoff(settings.DELETED_RETENTION_DAYS):
        memories = Memory.objects.filter(deleted_at__lt=before)
        yield "memories", exclude_held(memories, "user")
    # The audit log has the same acts.
    if before := _cutoff(settings.AUDIT_RETENTION_DAYS):
        history = LogEntry.objects.filter(action_time__lt=before)
        yield "entries of the admin's history", history
    for find in _further_rows:
        yield find()
    cached = CachedAnswer.objects.filter(expires_at__lt=timezone.now())
    yield "cached answers", cached
    if before := _cutoff(settings.EXCHANGE_RETENTION_DAYS):
        kept = ModelExchange.objects.filter(created_at__lt=before)
        kept = kept.filter(~_of_held_turn("call__turn_id"))
        yield "requests and responses", exclude_held(kept, "call__user")
    if before := _cutoff(settings.RETENTION_DAYS):
        deque(count_all(), maxlen=0)  # their sums stay
        calls = ModelCall.objects.filter(created_at__lt=before)
        calls = calls.filter(~_of_held_turn("turn_id"))
        yield "model calls", exclude_held(calls, "user")


def _of_held_turn(column: str) -> Exists:
    """For a queryset: the turn of this column is in a conversation under a hold."""
    return Exists(Turn.objects.filter(_TURN_HELD, pk=OuterRef(column)))


def _erase_closed_accounts() -> Iterator[Counter[str]]:
    if (before := _cutoff(settings.DELETED_RETENTION_DAYS)) is None:
        return
    accounts = _closed_accounts(before)
    for user in list(accounts):
        steps = erase_user(user, reason=_OWN_DELETION)
        with suppress(UnderLegalHold):  # of words in a conversation of another
            while erased := _erase_step(accounts.filter(pk=user.pk), steps):
                yield erased


@transaction.atomic
def _erase_step(accounts: QuerySet[Any], steps: Iterator[Counter[str]]) -> Counter[str]:
    """In each transaction the account is still closed, and nothing restores it."""
    # A row that another transaction changes now, a restored account say, is left.
    rows = accounts.select_for_update(of=("self",), skip_locked=True)
    return next(filter(None, steps), Counter()) if rows.first() else Counter()


def _closed_accounts(before: datetime) -> QuerySet[Any]:
    """Accounts that their owners deleted, and staff did not restore, without
    conversations, which are erased first."""
    accounts = get_user_model()._default_manager.filter(is_active=False)
    closed = accounts.filter(preferences__account_deleted_at__lt=before)
    unheld = exclude_held(closed, "pk")
    return unheld.filter(conversations=None)


@transaction.atomic
def _erase_batch(expired: QuerySet[Any]) -> int:
    # A row that another transaction changes now, a restored account say, is left.
    rows = expired.order_by().select_for_update(of=("self",), skip_locked=True)
    pks = [row.pk for row in rows.only("pk")[:BATCH]]
    if pks:
        expired.model._default_manager.filter(pk__in=pks).delete()
    return len(pks)


def _cutoff(days: int) -> datetime | None:
    """The time before which rows are erased; None if `days` is 0 (never)."""
    return timezone.now() - timedelta(days=days) if days else None
