"""Erase a person: rows, files, history in the admin, texts of the audit log.

What stays is the event of the erasure, events with keys instead of names, and sums of
usage. The work may be interrupted at any moment and repeated.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from axes.models import AccessAttempt, AccessFailureLog, AccessLog
from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model
from django.contrib.contenttypes.models import ContentType
from django.db import connection, models, transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Cast
from django.utils import timezone

from conversations.access.account_deletion import (
    check_not_last,
    close_account,
    is_closed,
)
from conversations.audit.erasure import erase_texts, find_former_names
from conversations.audit.record import record_event
from conversations.engine.maintenance.row_erasure import FILES, TURNS, erase_files
from conversations.engine.maintenance.row_erasure import (
    erase_conversations as erase_some,
)
from conversations.models import (
    AccessToken,
    Attachment,
    Conversation,
    ConversationImport,
    FolderFile,
    GatheredContext,
    Item,
    LegalHold,
    Participant,
    Question,
    SearchDocument,
    ToolCall,
    Turn,
    UnderLegalHold,
    UserSettings,
)
from conversations.models.policy.legal_hold import (
    check_user_not_held,
    of_held_conversation,
)
from conversations.turns.file_deletion import delete_later
from llm.models import ModelCall, ModelExchange, UsageSum
from llm.wire.items import user_message

ERASED = "[erased]"  # in the place of what the person wrote to others
ROWS = 500  # without dependents, per transaction
MAX_COMPACTED = 2_000_000_000  # bytes of a SQLite file that is rewritten at once

#: Rows inside conversations, whose names in the admin's history may be words of theirs.
_CONTENT: dict[type[models.Model], str] = {
    Conversation: "owner",
    Turn: "conversation__owner",
    Attachment: "conversation__owner",
    Item: "turn__conversation__owner",
    ToolCall: "turn__conversation__owner",
    Question: "tool_call__turn__conversation__owner",
}

_DECLINED = "A person declined this call."
_DECLINED_QUESTION = Q(state=Question.State.DECLINED)
_UNDER_HOLD = of_held_conversation("conversation", "conversation__owner")
_QUESTION_UNDER_HOLD = of_held_conversation(
    "tool_call__turn__conversation", "tool_call__turn__conversation__owner"
)

logger = logging.getLogger(__name__)


def check_erasable(user: Any) -> None:
    """Raises UnderLegalHold, LastSuperuser."""
    check_user_not_held(user.pk)
    if LegalHold.objects.filter(conversation__owner=user).exists():
        raise UnderLegalHold
    _check_words_erasable(user)
    with transaction.atomic():
        check_not_last(user)


def _check_words_erasable(user: Any) -> None:
    """What the person wrote, sent or answered in conversations of others."""
    written = Turn.objects.filter(_UNDER_HOLD, author=user)
    sent = Attachment.objects.filter(_UNDER_HOLD, uploaded_by=user)
    answered = Question.objects.filter(_QUESTION_UNDER_HOLD, decided_by=user)
    if written.exists() or sent.exists() or answered.exists():
        raise UnderLegalHold


def erase_user(user: Any, *, reason: str, actor: Any = None) -> Iterator[Counter[str]]:
    """Yields the number of erased rows by kind. Raises UnderLegalHold, LastSuperuser.

    Synchronous. A legal hold that is set meanwhile stops the erasure, because it
    protects the user's row. The account is closed first, also one that staff have only
    made inactive; so retention finishes an erasure that a crash breaks off.
    """
    check_erasable(user)
    if not is_closed(user):
        close_account(user)
    theirs = Conversation.objects.filter(owner=user).order_by("pk")
    _stop(theirs)
    _erase_history(user)
    while erased := _erase_batch(theirs):
        yield erased
    for erase_some_rows in (_erase_words_to_others, _erase_files):
        while erased := erase_some_rows(user):
            yield erased
    yield from _erase_calls(user)
    _erase_records(user)
    yield from _erase_own_rows(user)
    yield _erase_account(user, reason, actor)


def _stop(rows: QuerySet[Conversation]) -> None:
    """Turns that still run find no row to write, and end."""
    unfinished = Turn.objects.not_finished().filter(conversation__in=rows)
    unfinished.update(cancel_requested=True)


@transaction.atomic
def _erase_history(user: Any) -> None:
    """Erase the admin's history about the person and the person's rows, and the name in
    the history of deleted rows. Call it before the rows are deleted: they name what to
    look for."""
    own = ContentType.objects.get_for_model(get_user_model())
    LogEntry.objects.filter(content_type=own, object_id=str(user.pk)).delete()
    for rows in _rows_of(user):
        kind = ContentType.objects.get_for_model(rows.model, for_concrete_model=False)
        keys = rows.annotate(row_key=Cast("pk", models.TextField())).values("row_key")
        LogEntry.objects.filter(content_type=kind, object_id__in=keys).delete()
    now = timezone.now()
    names = dict.fromkeys(filter(None, {user.get_username(), user.email}), now)
    for name, until in (find_former_names(user.pk) | names).items():
        whole = rf"(?<!\w){re.escape(name)}(?!\w)"
        found = LogEntry.objects.filter(
            Q(object_repr__contains=name) | Q(change_message__contains=name),
            action_time__lte=until,
        )
        for entry in found:
            entry.object_repr = re.sub(whole, ERASED, entry.object_repr)[:200]
            entry.change_message = re.sub(whole, ERASED, entry.change_message)
            entry.save(update_fields=["object_repr", "change_message"])


def _rows_of(user: Any) -> Iterator[QuerySet[Any]]:
    yield from _rows_that_end_with(user)
    for model, owner in _CONTENT.items():
        yield model._base_manager.filter(**{owner: user})


def _rows_that_end_with(user: Any) -> Iterator[QuerySet[Any]]:
    for relation in get_user_model()._meta.related_objects:
        model = relation.related_model
        if isinstance(model, type) and relation.on_delete is models.CASCADE:
            yield model._base_manager.filter(**{relation.field.name: user})


@transaction.atomic
def _erase_batch(rows: QuerySet[Conversation]) -> Counter[str]:
    return erase_some(rows)


@transaction.atomic
def _erase_words_to_others(user: Any) -> Counter[str]:
    """What the person wrote into some conversations of others: answers stay, as they
    are the owners'. Raises UnderLegalHold, for a hold that was set meanwhile."""
    _check_words_erasable(user)
    written = Turn.objects.filter(author=user).exclude(conversation__owner=user)
    pks = list(written.order_by("pk").values_list("pk", flat=True)[:TURNS])
    turns = Turn.objects.filter(pk__in=pks)
    count = 0
    for item in Item.objects.filter(turn__in=pks).select_related("turn"):
        if _is_by_person(item):
            item.correct(_without_words(item.payload))
            count += 1
    SearchDocument.objects.filter(turn__in=pks).delete()  # made anew later
    # Each later request of the conversation repeats the words.
    of_same = Turn.objects.filter(conversation__turns__in=pks)
    ModelCall.objects.erase_contents(of_same.values("pk"))
    GatheredContext.objects.filter(turn__in=pks).delete()
    turns.update(author=None, author_name=ERASED, notes=[])
    decided = _erase_decisions(user)
    return Counter(
        {
            name: number
            for name, number in (
                ("turns with messages to others", len(pks)),
                ("messages to others", count),
                ("decisions", decided),
            )
            if number
        }
    )


def _erase_decisions(user: Any) -> int:
    """What the person answered to questions, and the calls that repeat it. In a
    transaction; returns their number."""
    has_words = Q(answer__isnull=False) & ~Q(answer={}) | ~Q(note="")
    # Earlier versions wrote the person's name into the call.
    names_person = _DECLINED_QUESTION & Q(tool_call__error__contains=" by ")
    answered = Question.objects.filter(has_words | names_person, decided_by=user)
    pks = list(answered.order_by("pk").values_list("pk", flat=True)[:ROWS])
    rows = Question.objects.filter(pk__in=pks)
    for call in ToolCall.objects.filter(questions__in=rows.filter(_DECLINED_QUESTION)):
        _erase_decline(call)
    # Each later request of the conversation repeats the words.
    of_same = Turn.objects.filter(conversation__turns__tool_calls__questions__in=pks)
    ModelCall.objects.erase_contents(of_same.values("pk"))
    rows.filter(answer__isnull=False).update(answer={})
    rows.update(note="")
    return len(pks)


def _erase_decline(call: ToolCall) -> None:
    """Why a call was declined is in its output, too."""
    outputs = Item.objects.filter(turn=call.turn_id, type="function_call_output")
    for item in outputs.select_related("turn"):
        if item.payload.get("call_id") == call.call_id:
            item.correct({**item.payload, "output": f"Error: {_DECLINED}"})
    SearchDocument.objects.filter(turn=call.turn_id).delete()  # made anew later
    ToolCall.objects.filter(pk=call.pk).update(error=_DECLINED)


def _is_by_person(item: Item) -> bool:
    """Whether a person wrote the item: the input of a turn, or a message that joined a
    running answer. Results of tools that enter as messages are not meant."""
    if item.origin == Item.Origin.INPUT:
        return True
    is_message = item.payload.get("role") == "user"
    return is_message and "parley:call_id" not in item.payload


def _without_words(payload: Any) -> Any:
    if payload.get("type") == "function_call_output":  # of a tool of the client
        return {**payload, "output": ERASED}
    return {**user_message(ERASED), "id": payload.get("id", "")}


@transaction.atomic
def _erase_files(user: Any) -> Counter[str]:
    check_user_not_held(user.pk)
    count = erase_files(list(Attachment.objects.filter(uploaded_by=user)[:FILES]))
    for row in FolderFile.objects.filter(folder__owner=user)[:FILES]:
        row.delete()  # a receiver deletes the file
        count += 1
    for imported in ConversationImport.objects.filter(owner=user)[:FILES]:
        delete_later([imported.file.name or ""])
        imported.delete()
        count += 1
    return Counter({"files": count} if count else {})


def _erase_calls(user: Any) -> Iterator[Counter[str]]:
    """What records of calls say of the person. Their tokens find them again after an
    interruption, which repeats the work."""
    tokens = list(AccessToken.objects.filter(user=user).values_list("pk", flat=True))
    calls = ModelCall.objects.filter(Q(user=user) | Q(token_id__in=tokens))
    pks, last = calls.order_by("pk").values_list("pk", flat=True), 0
    while found := list(pks.filter(pk__gt=last)[:ROWS]):
        _unname_calls(user, found)
        last = found[-1]
        yield Counter({"records of calls": len(found)})


@transaction.atomic
def _unname_calls(user: Any, pks: Sequence[int]) -> None:
    check_user_not_held(user.pk)
    ModelExchange.objects.filter(call__in=pks).delete()
    named: dict[str, Any] = {"user": None, "tags": []}
    for column in ("token_label", "end_user", "client_request_id", "error_detail"):
        named[column] = ""
    ModelCall.objects.filter(pk__in=pks).update(**named)


@transaction.atomic
def _erase_records(user: Any) -> None:
    """Sums and records that name the person beside the account's own rows."""
    pks = list(AccessToken.objects.filter(user=user).values_list("pk", flat=True))
    sums = UsageSum.objects.filter(Q(user_id=user.pk) | Q(token_id__in=pks))
    tags = set(sums.exclude(tags="").values_list("tags", flat=True))
    sums.update(token_label="", tags="")
    shared = UsageSum.objects.filter(tags__in=tags, level=UsageSum.Level.DETAIL)
    own_tags = tags - set(shared.values_list("tags", flat=True))
    UsageSum.objects.filter(tags__in=own_tags).update(tags="")
    current = {user.get_username(): timezone.now()}
    # Another user may have a former name by now.
    for name, until in (find_former_names(user.pk) | current).items():
        Participant.objects.filter(name=name, created_at__lte=until).delete()
        named = Q(username=name) | Q(username__startswith=f"{name} (known browser")
        for model in (AccessAttempt, AccessFailureLog, AccessLog):
            model.objects.filter(named, attempt_time__lte=until).delete()


def _erase_own_rows(user: Any) -> Iterator[Counter[str]]:
    """Rows that end with the account, so that few are left for its own transaction.
    The settings stay until then: they say that the account is closed."""
    for rows in _rows_that_end_with(user):
        if rows.model is not UserSettings:
            while count := _erase_some(user, rows):
                yield Counter({"rows of the account": count})


@transaction.atomic
def _erase_some(user: Any, rows: QuerySet[Any]) -> int:
    check_user_not_held(user.pk)
    pks = list(rows.order_by("pk").values_list("pk", flat=True)[:ROWS])
    rows.filter(pk__in=pks).delete()
    return len(pks)


@transaction.atomic
def _erase_account(user: Any, reason: str, actor: Any) -> Counter[str]:
    key = user.pk
    user.delete()
    texts = erase_texts(key)
    record_event(
        "person.erase",
        target=("auth.user", key),
        subject=key,
        actor=actor,
        reason=reason,
    )
    return Counter({"accounts": 1, "texts of the audit log": texts})


def compact() -> str:
    """Make the database forget deleted bytes; "" or why it could not. Outside of a
    transaction.

    SQLite is rewritten: deleted bytes stay in its free pages. On PostgreSQL, VACUUM
    frees the rows, and autovacuum does so by itself.
    """
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("VACUUM")
            return ""
        cursor.execute("PRAGMA page_count")
        pages = int(cursor.fetchone()[0])
        cursor.execute("PRAGMA page_size")
        if pages * int(cursor.fetchone()[0]) > MAX_COMPACTED:
            return "the file is too large to be rewritten while the server runs"
        cursor.execute(
            "INSERT INTO conversations_search(conversations_search) VALUES ('optimize')"
        )
        cursor.execute("VACUUM")
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        is_busy = bool(cursor.fetchone()[0])
    return "another process reads it; run the command again" if is_busy else ""
